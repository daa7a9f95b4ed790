//! What a project may do: the settings of all projects, the record of one, and the limits that follow from them. Its
//! actors and its callers read them without asking an actor.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    gateway::GatewaySettings,
    locked::RwLocked,
    model::{AnswerSeal, PresenceTimeouts, ProjectId, ProjectRecord},
    rate::RateLimit,
    session::CloseReason,
    supervise::RestartPolicy,
    targets::Target,
};

/// Settings of every project of a broker.
#[derive(Clone, Debug)]
pub struct ProjectSettings {
    /// Messages that may wait for one session, unless the project's record says otherwise.
    pub queue_capacity: usize,
    /// Sessions of a project, unless its record says otherwise.
    pub sessions_max: usize,
    /// The share of the queue capacity from which on a warning is logged.
    pub queue_warning: f64,
    /// Deliveries of one message without acknowledgement until it becomes a dead letter.
    pub delivery_limit: u32,
    /// How often a live connection is asked for a heartbeat.
    pub heartbeat_interval: Duration,
    /// The silence after which a session is stale or disconnected.
    pub presence: PresenceTimeouts,
    /// How long a disconnected session keeps its name and its inbox.
    pub session_retention: Duration,
    /// Bytes of a payload.
    pub payload_len_max: usize,
    /// The event log keeps the payloads of messages, as the storage is configured.
    pub keeps_payloads: bool,
    pub restarts: RestartPolicy,
    pub desk: DeskSettings,
    /// The backend servers that agents share; None without any.
    pub gateway: Option<GatewaySettings>,
}

/// Settings of the desk that apply to every project.
#[derive(Clone, Debug)]
pub struct DeskSettings {
    /// Agents may ask people, and consoles may connect.
    pub is_on: bool,
    /// Open questions that are offered to one console, at most.
    pub capacity: usize,
    /// How long a yap is held for its place in the order.
    pub yap_delay: Duration,
    /// The targets outside the broker that receive changes of questions: at most [`TARGETS_MAX`](crate::storage::TARGETS_MAX).
    pub targets: Arc<[Arc<dyn Target>]>,
    /// Encrypts answers to sensitive questions; None to store them as they are.
    pub seal: Option<Arc<dyn AnswerSeal>>,
}

impl Default for DeskSettings {
    fn default() -> Self {
        Self {
            is_on: true,
            capacity: 10,
            yap_delay: Duration::from_millis(200),
            targets: Arc::default(),
            seal: None,
        }
    }
}

impl ProjectSettings {
    /// Messages in a queue of this capacity from which on a warning is logged.
    pub fn queue_warning_len(&self, queue_capacity: usize) -> usize {
        // A share of a count that fits into memory is exact enough as a float.
        #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]
        let len = (queue_capacity as f64 * self.queue_warning).ceil() as usize;
        len.max(1)
    }
}

/// The current policy of a project. An update replaces its limits as a whole.
#[derive(Debug)]
pub struct ProjectPolicy {
    settings: ProjectSettings,
    /// Lets projects without a request limit skip the lock.
    has_request_limit: AtomicBool,
    closed: AtomicBool,
    /// Set when the subtree was killed, with the reason that its connections are closed with.
    kill_reason: OnceLock<CloseReason>,
    limits: RwLocked<Arc<PolicyLimits>>,
}

/// The limits that follow from one version of the record.
#[derive(Debug)]
pub struct PolicyLimits {
    /// The record itself.
    pub record: Arc<ProjectRecord>,
    /// Messages that may wait for one session.
    pub queue_capacity: usize,
    /// Messages in one queue from which on a warning is logged.
    pub queue_warning_len: usize,
    /// Sessions at one time, at most.
    pub sessions_max: usize,
    /// Limits all requests to the project.
    request_rate: Option<Arc<RateLimit>>,
    /// Limits messages per target project.
    cross_project_rates: HashMap<ProjectId, Arc<RateLimit>>,
}

impl ProjectPolicy {
    pub(crate) fn new(settings: ProjectSettings, record: Arc<ProjectRecord>) -> Arc<Self> {
        Arc::new(Self {
            has_request_limit: AtomicBool::new(record.config.rate_limit > 0),
            closed: AtomicBool::new(!record.active),
            kill_reason: OnceLock::new(),
            limits: RwLocked::new(Arc::new(PolicyLimits::new(&settings, record, None))),
            settings,
        })
    }

    /// The current limits. They stay valid for the caller after an update.
    pub fn limits(&self) -> Arc<PolicyLimits> {
        Arc::clone(&self.limits.read())
    }

    /// Takes requests from the rate limit of the project.
    ///
    /// # Errors
    /// The time until the limit has room again.
    pub fn take_requests(&self, count: u32) -> Result<(), Duration> {
        if self.has_request_limit.load(Ordering::Relaxed) {
            self.limits().take_requests(count)
        } else {
            Ok(())
        }
    }

    /// Whether the project was deleted.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Why the subtree was killed; None while it runs.
    pub(crate) fn kill_reason(&self) -> Option<CloseReason> {
        self.kill_reason.get().copied()
    }

    /// Marks the subtree as killed.
    pub(crate) fn kill(&self, why: CloseReason) {
        // The first reason stays.
        let _ = self.kill_reason.set(why);
    }

    /// Replaces the limits.
    pub(crate) fn update(&self, record: Arc<ProjectRecord>) {
        self.closed.store(!record.active, Ordering::Relaxed);
        self.has_request_limit
            .store(record.config.rate_limit > 0, Ordering::Relaxed);
        let mut limits = self.limits.write();
        *limits = Arc::new(PolicyLimits::new(&self.settings, record, Some(&limits)));
    }
}

impl PolicyLimits {
    /// A limit with an unchanged rate keeps its count.
    fn new(settings: &ProjectSettings, record: Arc<ProjectRecord>, before: Option<&Self>) -> Self {
        let limit = |before: Option<&Arc<RateLimit>>, count: u32| match before {
            Some(rate) if rate.limit_per_minute() == count => Some(Arc::clone(rate)),
            _ => RateLimit::from_per_minute(count).map(Arc::new),
        };
        let rate = limit(
            before.and_then(|before| before.request_rate.as_ref()),
            record.config.rate_limit,
        );
        let rates = record.grants.iter().filter_map(|(target, grant)| {
            let known = before.and_then(|before| before.cross_project_rates.get(target));
            Some((target.clone(), limit(known, grant.message_rate_limit)?))
        });
        let rates = rates.collect();
        let queue_capacity = record.config.queue_capacity.unwrap_or(settings.queue_capacity);
        Self {
            sessions_max: record.config.max_sessions.unwrap_or(settings.sessions_max),
            queue_capacity,
            queue_warning_len: settings.queue_warning_len(queue_capacity),
            request_rate: rate,
            cross_project_rates: rates,
            record,
        }
    }

    fn take_requests(&self, count: u32) -> Result<(), Duration> {
        self.request_rate.as_ref().map_or(Ok(()), |rate| rate.take_many(count))
    }

    /// Charges requests whose cost became known only after they were served: later requests wait for them.
    pub(crate) fn charge_requests(&self, count: u32) {
        if let Some(rate) = &self.request_rate {
            rate.add_debt(count);
        }
    }

    /// Takes one message to another project from the rate limit of its grant.
    ///
    /// # Errors
    /// The time until the limit has room again.
    pub fn take_cross_project(&self, target: &ProjectId) -> Result<(), Duration> {
        self.cross_project_rates.get(target).map_or(Ok(()), |rate| rate.take())
    }
}
