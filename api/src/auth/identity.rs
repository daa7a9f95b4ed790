//! The authenticated caller: its scope, its validity and its rate limit.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use actors::{
    broker::Principal,
    clock::Now,
    metrics::{METRICS, RateLimitKind},
    model::{BrokerError, Owner, Scope, SessionId, ToolSet},
    project::ProjectHandle,
    rate::RateLimit,
};

/// Bytes that one request covers; a longer request counts as several.
pub const BYTES_PER_REQUEST: usize = 64 * 1024;
/// Work of checking a message that counts as one more request, in nanoseconds of the slowest case measured.
const WORK_NS_PER_REQUEST: u64 = 50_000;

fn extra_requests(len: usize) -> u32 {
    u32::try_from(len.saturating_sub(1) / BYTES_PER_REQUEST).unwrap_or(u32::MAX)
}

/// An authenticated caller and the project that it acts in.
pub struct Identity {
    pub principal: Arc<Principal>,
    pub project: ProjectHandle,
    pub address: Option<IpAddr>,
    /// The rate limit of callers without a key of their own: by address, or by token subject.
    pub(super) shared_rate: Option<Arc<RateLimit>>,
    /// Keys of agents may answer questions to people.
    pub(super) allows_agent_answers: bool,
    /// When the credential was first seen invalid, in milliseconds of the monotonic clock; 0 while it is valid.
    pub(super) invalid_since_ms: AtomicU64,
}

impl Identity {
    /// The owner of what the caller creates.
    pub fn owner(&self) -> &Owner {
        &self.principal.owner
    }

    /// What the caller may do.
    pub fn scope(&self) -> Scope {
        self.principal.scope
    }

    /// The tools that the caller is listed, where the setting is `by_setting`.
    pub fn tools(&self, by_setting: ToolSet) -> ToolSet {
        self.principal.tools.unwrap_or(by_setting)
    }

    /// Whether the caller has no credential: it may do all that its scope says, and is not known to administer anything.
    pub fn is_keyless(&self) -> bool {
        self.principal.only_project.is_none() && *self.owner() != Owner::operator()
    }

    /// The owner whose sessions have to be among sender and recipients of the messages that the caller may see; None for a
    /// caller who sees all messages of the project.
    pub fn messages_of(&self) -> Option<&Owner> {
        (self.scope() == Scope::Member).then(|| self.owner())
    }

    /// Whether this session of the project belongs to the caller.
    pub fn owns_session(&self, id: SessionId) -> bool {
        let member = self.project.session(id);
        member.is_some_and(|member| member.record.owner == *self.owner())
    }

    /// Checks the caller's scope.
    ///
    /// # Errors
    /// `forbidden` when `needed` is a wider scope than the caller has.
    pub fn check_scope(&self, needed: Scope) -> Result<(), BrokerError> {
        if self.scope() >= needed {
            return Ok(());
        }
        Err(BrokerError::forbidden(match needed {
            Scope::Operator => "this requires the admin key of the broker".to_owned(),
            _ => format!("this requires a key of scope {}", needed.as_str()),
        }))
    }

    /// Whether the credential is valid and the project exists.
    pub fn is_valid(&self, now_unix_ms: u64) -> bool {
        self.principal.status.is_valid(now_unix_ms) && !self.project.is_closed() && !self.project.is_killed()
    }

    /// Returns for how long the credential is known to be invalid (revoked, expired, or its project gone); `None` while
    /// it is valid. Callers wait a moment before they close a connection, so that a caller that ends its own key
    /// receives the answer.
    pub fn invalid_for(&self, now: Now) -> Option<Duration> {
        if self.is_valid(now.unix_ms) {
            return None;
        }
        let now_ms = now.mono_ms.max(1);
        let seen = self
            .invalid_since_ms
            .compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed);
        Some(now.since(seen.err().unwrap_or(now_ms)))
    }

    /// Takes one request from the caller's rate limit, then from the project's.
    ///
    /// # Errors
    /// The time until a request is available again.
    pub fn take_request(&self) -> Result<(), Duration> {
        self.take_requests(1)
    }

    /// Takes a request of `len` bytes that the broker has to scan: one, and one more for each [`BYTES_PER_REQUEST`]
    /// beyond the first.
    ///
    /// # Errors
    /// The time until that many requests are available again.
    pub fn take_request_of_len(&self, len: usize) -> Result<(), Duration> {
        self.take_requests(1 + extra_requests(len))
    }

    /// Takes the additional requests of a body that turned out to have `len` bytes; see [`Self::take_request_of_len`].
    ///
    /// # Errors
    /// The time until that many requests are available again.
    pub fn take_extra_requests(&self, len: usize) -> Result<(), Duration> {
        match extra_requests(len) {
            0 => Ok(()),
            count => self.take_requests(count),
        }
    }

    /// Charges an answer of `len` bytes like a request of that length, to the caller's next request.
    pub fn charge_answer(&self, len: usize) {
        self.charge_later(extra_requests(len));
    }

    /// Charges `work` nanoseconds of checking a message to the caller's next request. Ordinary work costs nothing.
    pub fn charge_work(&self, work: u64) {
        self.charge_later(u32::try_from(work / WORK_NS_PER_REQUEST).unwrap_or(u32::MAX));
    }

    fn charge_later(&self, count: u32) {
        if count == 0 {
            return;
        }
        if let Some(rate) = self.principal.rate.as_ref().or(self.shared_rate.as_deref()) {
            rate.add_debt(count);
        }
        self.project.charge_requests(count);
    }

    fn take_requests(&self, count: u32) -> Result<(), Duration> {
        let refused = |kind| METRICS.rate_limited.of(kind).increment();
        let own = self.principal.rate.as_ref().or(self.shared_rate.as_deref());
        own.map_or(Ok(()), |rate| rate.take_many(count))
            .inspect_err(|_| refused(RateLimitKind::Caller))?;
        self.project
            .take_requests(count)
            .inspect_err(|_| refused(RateLimitKind::Project))
    }

    /// The requests per minute that the caller may make; `None` means no limit.
    pub fn request_limit(&self) -> Option<u32> {
        let own = self.principal.rate.as_ref().or(self.shared_rate.as_deref());
        let of_project = self.project.limits().record.config.rate_limit;
        let of_project = Some(of_project).filter(|&limit| limit > 0);
        own.map(RateLimit::limit_per_minute).into_iter().chain(of_project).min()
    }

    /// Whether both are the same caller in the same project, even with different credentials.
    pub fn is_same_caller(&self, other: &Self) -> bool {
        self.owner() == other.owner() && self.project.id() == other.project.id()
    }

    /// Identifies the owner of a state that the caller carries: project and principal.
    pub fn owner_path(&self) -> String {
        format!("{}/{}", self.project.id(), self.principal.owner.as_str())
    }
}
