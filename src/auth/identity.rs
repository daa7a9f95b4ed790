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
    model::{BrokerError, Owner, Scope},
    project::ProjectHandle,
    rate::RateLimit,
};

/// A longer request counts as several.
pub const BYTES_PER_REQUEST: usize = 64 * 1024;
/// Work of checking a message that counts as one more request: nanoseconds of the slowest case measured.
const WORK_NS_PER_REQUEST: u64 = 50_000;

fn extra_requests(len: usize) -> u32 {
    u32::try_from(len.saturating_sub(1) / BYTES_PER_REQUEST).unwrap_or(u32::MAX)
}

/// Somebody who was let in, and where they act.
pub struct Identity {
    pub principal: Arc<Principal>,
    pub project: ProjectHandle,
    pub address: Option<IpAddr>,
    /// The limit of those that no key tells apart.
    pub(super) shared_rate: Option<Arc<RateLimit>>,
    /// When it was first seen that they are good no more, on the monotonic clock; 0 while that was not seen.
    pub(super) invalid_since_ms: AtomicU64,
}

impl Identity {
    pub fn owner(&self) -> &Owner {
        &self.principal.owner
    }

    pub fn scope(&self) -> Scope {
        self.principal.scope
    }

    /// # Errors
    /// `forbidden` when this takes more than they have.
    pub fn check_scope(&self, needed: Scope) -> Result<(), BrokerError> {
        if self.scope() >= needed {
            return Ok(());
        }
        Err(BrokerError::forbidden(match needed {
            Scope::Operator => "this takes the admin key of the broker".to_owned(),
            _ => format!("this takes a key of scope {}", needed.as_str()),
        }))
    }

    /// Whether what they came in with is still good, and their project still there.
    pub fn is_valid(&self, now_unix_ms: u64) -> bool {
        self.principal.status.is_valid(now_unix_ms) && !self.project.is_closed() && !self.project.is_killed()
    }

    /// How long it is known that they are good no more; None while they are good. Who ends its own key is to have the
    /// answer first.
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

    /// Takes one request: of the caller's own limit, then of its project's.
    ///
    /// # Errors
    /// When there will be one again.
    pub fn take_request(&self) -> Result<(), Duration> {
        self.take_requests(1)
    }

    /// Takes a request of this many bytes, all of which the broker has to look at: it counts once more for each
    /// [`BYTES_OF_REQUEST`] beyond the first.
    ///
    /// # Errors
    /// When there will be as many again.
    pub fn take_request_of_len(&self, len: usize) -> Result<(), Duration> {
        self.take_requests(1 + extra_requests(len))
    }

    /// What is left to take of a request, when it turns out to have this many bytes.
    ///
    /// # Errors
    /// When there will be as many again.
    pub fn take_extra_requests(&self, len: usize) -> Result<(), Duration> {
        match extra_requests(len) {
            0 => Ok(()),
            count => self.take_requests(count),
        }
    }

    /// An answer turned out to have this many bytes: it counts as a request of as many would, with the next request.
    pub fn charge_answer(&self, len: usize) {
        self.charge_later(extra_requests(len));
    }

    /// Checking a message turned out to take so much work, in nanoseconds: what is beyond that of an ordinary one counts
    /// with the next request.
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
        let own = self.principal.rate.as_ref().or(self.shared_rate.as_deref());
        own.map_or(Ok(()), |rate| rate.take_many(count))?;
        self.project.take_requests(count)
    }

    /// How many requests a minute are taken of them; None for any number.
    pub fn request_limit(&self) -> Option<u32> {
        let own = self.principal.rate.as_ref().or(self.shared_rate.as_deref());
        let of_project = self.project.limits().record.config.rate_limit;
        let of_project = Some(of_project).filter(|&limit| limit > 0);
        own.map(RateLimit::limit_per_minute).into_iter().chain(of_project).min()
    }

    /// Whether it is the same caller in the same project, whatever they came in with.
    pub fn is_same_caller(&self, other: &Self) -> bool {
        self.owner() == other.owner() && self.project.id() == other.project.id()
    }

    /// Who it is that a state belongs to which its caller carries: not the project alone.
    pub fn owner_path(&self) -> String {
        format!("{}/{}", self.project.id(), self.principal.owner.as_str())
    }
}
