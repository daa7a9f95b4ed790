//! The statistics of `GET /api/v1/stats`: the present figures of one project, or of all of them, and the health of the broker.
//!
//! Each replica answers for itself, and the answers are merged: what each replica counts is added; of what every replica
//! of a shared storage sees, such as the sessions, the largest figure holds.

use actors::metrics::{DeadLetterCounts, MessageCounts};
use answer::answer;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{series::Series, words::Time};

/// The upper bounds of the buckets of [`Latency`], in seconds. One more bucket has what is longer than all of them. They
/// are those of the histograms in `/metrics`.
pub const LATENCY_BOUNDS: &[f64] = actors::metrics::CLASSIC_BOUNDS;

/// Figures of a project, or of the whole broker. Counters run since the start of the replicas.
#[answer(lenient)]
pub struct Stats {
    /// The number of replicas whose figures are in these.
    #[needed]
    pub replicas: u64,
    #[serde(with = "MessageStats")]
    #[schema(value_type = MessageStats)]
    pub messages: MessageCounts,
    pub sessions: SessionStats,
    pub inboxes: InboxStats,
    pub connections: ConnectionStats,
    pub storage: StorageStats,
    pub desk: DeskStats,
    pub backends: BackendStats,
    /// Protocols that are registered.
    pub protocols: u64,
    /// The replicas whose figures are in these, this one first.
    pub replica_list: Vec<ReplicaStats>,
    /// Figures that belong to no project. Absent from the statistics of a project.
    #[absent]
    pub broker: Option<BrokerStats>,
    /// That of the replica that works worst.
    #[schema(nullable = false)]
    pub health: Option<StorageCondition>,
    /// What an operator should look at, most urgent first.
    pub warnings: Vec<Warning>,
    /// Of the replica that answers.
    pub version: String,
    /// The id of the replica that answers; null where the storage is not shared.
    pub replica: Option<String>,
    /// With `window`. A project that is not among the busiest `METRICS_PROJECTS_MAX` has no points.
    #[absent]
    pub series: Option<Series>,
    /// Replicas that did not answer: their figures are missing.
    #[absent]
    pub partial: Vec<String>,
}

/// How well the broker works, which is how well its storage works.
#[answer(lenient)]
pub struct StorageCondition {
    pub status: HealthStatus,
    /// Null while the broker starts.
    pub storage_backend: Option<String>,
    /// The durability that the storage promises.
    pub storage_durability: Option<String>,
    /// Why the status is not `healthy`, where the storage is the cause.
    #[absent]
    pub storage_problem: Option<String>,
}

/// `degraded`: the broker works with restrictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    Healthy,
    Degraded,
    /// Also a word of a later version.
    #[default]
    #[serde(other)]
    Unhealthy,
}

/// Something that needs attention. It has counts and no names, because `/health` shows it to every caller.
#[answer(lenient)]
pub struct Warning {
    /// `storage`, `configuration`, `replica_silent`, `backend_failed`, `questions_unseen` or `inbox_nearly_full`.
    pub code: String,
    /// How many there are.
    pub count: u64,
    /// What is wrong.
    pub text: String,
    /// What to do about it, with a command where one exists.
    pub cure: String,
}

/// A replica.
#[answer(lenient)]
pub struct ReplicaStats {
    /// Null where the storage is not shared.
    pub id: Option<String>,
    pub version: String,
    pub started_at: Time,
    /// Sessions with a live connection there.
    pub sessions: u64,
    /// The replica that answers.
    pub is_self: bool,
}

/// What became of messages, counted since the start. Describes how [`MessageCounts`] are written.
#[answer(lenient)]
#[serde(remote = "MessageCounts")]
pub struct MessageStats {
    /// Messages that senders gave to the broker, well formed and valid.
    pub received: u64,
    /// Messages that were accepted for one recipient or more.
    pub accepted: u64,
    /// Messages that were refused, for example because an inbox is full.
    pub refused: u64,
    /// Messages that repeated an earlier one by their idempotency key.
    pub repeated: u64,
    /// Copies of accepted messages, one for each recipient.
    pub enqueued: u64,
    /// Deliveries to a connection or to a call that receives messages, repeated ones included.
    pub delivered: u64,
    /// Copies that their recipient acknowledged.
    pub acknowledged: u64,
    /// Dead letters that were put back into their inboxes.
    pub redriven: u64,
    #[serde(with = "DeadLetterStats")]
    #[schema(value_type = DeadLetterStats)]
    pub dead_lettered: DeadLetterCounts,
}

/// Dead letters by reason, counted since the start. Describes how [`DeadLetterCounts`] are written.
#[answer(lenient)]
#[serde(remote = "DeadLetterCounts")]
pub struct DeadLetterStats {
    pub expired: u64,
    pub delivery_limit: u64,
    pub recipient_gone: u64,
    pub rejected: u64,
    pub transform_failed: u64,
}

/// Sessions by state, at present.
#[answer(lenient)]
#[derive(Copy)]
pub struct SessionStats {
    pub active: u64,
    pub stale: u64,
    pub disconnected: u64,
}

/// Messages that wait in inboxes, at present.
#[answer(lenient)]
#[derive(Copy)]
pub struct InboxStats {
    /// Messages in all inboxes together.
    pub waiting: u64,
    /// Messages in the fullest inbox.
    pub longest: u64,
    /// Inboxes with at least the share `queue_warning` of their capacity.
    pub over_warning: u64,
}

/// Live connections, at present.
#[answer(lenient)]
#[derive(Copy)]
pub struct ConnectionStats {
    /// WebSocket connections.
    pub websocket: u64,
    /// Open responses over HTTP.
    pub http: u64,
    /// Unix sockets, FIFOs and the rubberduck port of this machine.
    pub local: u64,
}

/// What the storage keeps, as of the last ten seconds.
#[answer(lenient)]
#[derive(Copy)]
pub struct StorageStats {
    /// Dead letters that are kept.
    pub dead_letters: u64,
    /// Bytes of dead letters.
    pub dead_letter_bytes: u64,
    /// Bytes of waiting, delivered and dead messages.
    pub message_bytes: u64,
    /// Bytes of the records of sessions.
    pub session_bytes: u64,
}

/// Questions to people, at present.
#[answer(lenient)]
#[derive(Copy)]
pub struct DeskStats {
    /// Questions without an answer.
    pub open: u64,
    /// Those of them with the urgency `high`.
    pub urgent: u64,
    /// Those of them that no person sees: at the desk, no person was active in the last 5 minutes.
    pub unseen: u64,
}

/// Backends of the gateway, at present.
#[answer(lenient)]
#[derive(Copy)]
pub struct BackendStats {
    /// All that are configured.
    pub all: u64,
    /// Those that take calls, or are started by the first one.
    pub ready: u64,
    /// Those that cannot be started, or ended again and again.
    pub failed: u64,
}

/// Figures that belong to no project.
#[answer(lenient)]
pub struct BrokerStats {
    /// Open projects.
    pub projects: u64,
    /// Seconds since the start of the replica that has run longest.
    pub uptime_seconds: u64,
    /// From the arrival of a message at the router until the storage has it.
    pub accept: Latency,
    /// From the acceptance of a message until it is delivered.
    pub deliver: Latency,
    /// From the start of an operation of the storage until its result.
    pub store_operation: Latency,
    /// Restarts of actors after a panic.
    pub actor_restarts: u64,
    /// Commands in the mailboxes of all actors.
    pub mailbox_len: u64,
    /// Operations of the storage that failed.
    pub store_failures: u64,
    /// Requests that were refused by a rate limit.
    pub rate_limited: u64,
    /// Requests whose credential was refused.
    pub authentication_failures: u64,
    pub process: ProcessStats,
}

/// What the processes use.
#[answer(lenient)]
#[derive(Copy)]
pub struct ProcessStats {
    /// Seconds of processor time since the start.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    pub open_files: u64,
    pub threads: u64,
}

/// A distribution of durations.
#[answer(lenient)]
pub struct Latency {
    pub count: u64,
    pub sum_seconds: f64,
    /// Half of the durations are at most so long. 0 without durations.
    pub p50_seconds: f64,
    pub p95_seconds: f64,
    pub p99_seconds: f64,
    /// The number of durations in each bucket: up to 25 µs, 50 µs, 100 µs, 250 µs and so on up to 60 s, and longer.
    pub buckets: Vec<u64>,
}

impl Stats {
    /// Adds the figures of another replica.
    pub fn merge(&mut self, other: &Self) {
        self.replicas += other.replicas;
        self.messages.add(&other.messages);
        self.sessions = self.sessions.max(other.sessions);
        self.inboxes = self.inboxes.max(other.inboxes);
        self.connections.add(other.connections);
        self.storage = self.storage.max(other.storage);
        self.desk = self.desk.max(other.desk);
        self.backends = self.backends.max(other.backends);
        self.protocols = self.protocols.max(other.protocols);
        self.replica_list
            .extend(other.replica_list.iter().map(|replica| ReplicaStats {
                is_self: false,
                ..replica.clone()
            }));
        match (&mut self.broker, &other.broker) {
            (Some(broker), Some(other)) => broker.merge(other),
            (None, Some(other)) => self.broker = Some(other.clone()),
            (_, None) => {}
        }
        self.health = match (self.health.take(), &other.health) {
            (Some(own), Some(other)) => Some(own.worse(other.clone())),
            (own, other) => own.or(other.clone()),
        };
        if let (Some(series), Some(other)) = (&mut self.series, &other.series) {
            series.merge(other);
        }
    }
}

impl StorageCondition {
    /// The worse one of two replicas.
    fn worse(self, other: Self) -> Self {
        if other.status > self.status { other } else { self }
    }
}

impl HealthStatus {
    /// The word in the answer.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        }
    }
}

impl SessionStats {
    fn max(self, other: Self) -> Self {
        Self {
            active: self.active.max(other.active),
            stale: self.stale.max(other.stale),
            disconnected: self.disconnected.max(other.disconnected),
        }
    }

    /// Adds the sessions of another project.
    pub fn add(&mut self, other: Self) {
        self.active += other.active;
        self.stale += other.stale;
        self.disconnected += other.disconnected;
    }
}

impl InboxStats {
    fn max(self, other: Self) -> Self {
        Self {
            waiting: self.waiting.max(other.waiting),
            longest: self.longest.max(other.longest),
            over_warning: self.over_warning.max(other.over_warning),
        }
    }

    /// Adds the inboxes of another project.
    pub fn add(&mut self, other: Self) {
        self.waiting += other.waiting;
        self.longest = self.longest.max(other.longest);
        self.over_warning += other.over_warning;
    }
}

impl ConnectionStats {
    /// Adds other connections.
    pub fn add(&mut self, other: Self) {
        self.websocket += other.websocket;
        self.http += other.http;
        self.local += other.local;
    }
}

impl StorageStats {
    fn max(self, other: Self) -> Self {
        Self {
            dead_letters: self.dead_letters.max(other.dead_letters),
            dead_letter_bytes: self.dead_letter_bytes.max(other.dead_letter_bytes),
            message_bytes: self.message_bytes.max(other.message_bytes),
            session_bytes: self.session_bytes.max(other.session_bytes),
        }
    }

    /// Adds what is kept of another project.
    pub fn add(&mut self, other: Self) {
        self.dead_letters += other.dead_letters;
        self.dead_letter_bytes += other.dead_letter_bytes;
        self.message_bytes += other.message_bytes;
        self.session_bytes += other.session_bytes;
    }
}

impl DeskStats {
    fn max(self, other: Self) -> Self {
        Self {
            open: self.open.max(other.open),
            urgent: self.urgent.max(other.urgent),
            unseen: self.unseen.max(other.unseen),
        }
    }

    /// Adds the desk of another project.
    pub fn add(&mut self, other: Self) {
        self.open += other.open;
        self.urgent += other.urgent;
        self.unseen += other.unseen;
    }
}

impl BackendStats {
    fn max(self, other: Self) -> Self {
        Self {
            all: self.all.max(other.all),
            ready: self.ready.max(other.ready),
            failed: self.failed.max(other.failed),
        }
    }

    /// Adds the backends of another project.
    pub fn add(&mut self, other: Self) {
        self.all += other.all;
        self.ready += other.ready;
        self.failed += other.failed;
    }
}

impl BrokerStats {
    fn merge(&mut self, other: &Self) {
        self.projects = self.projects.max(other.projects);
        self.uptime_seconds = self.uptime_seconds.max(other.uptime_seconds);
        self.accept.merge(&other.accept);
        self.deliver.merge(&other.deliver);
        self.store_operation.merge(&other.store_operation);
        self.actor_restarts += other.actor_restarts;
        self.mailbox_len += other.mailbox_len;
        self.store_failures += other.store_failures;
        self.rate_limited += other.rate_limited;
        self.authentication_failures += other.authentication_failures;
        self.process.cpu_seconds += other.process.cpu_seconds;
        self.process.resident_bytes += other.process.resident_bytes;
        self.process.open_files += other.process.open_files;
        self.process.threads += other.process.threads;
    }
}

impl Latency {
    /// The distribution with these counts, one for each bucket.
    pub fn new(sum_seconds: f64, buckets: Vec<u64>) -> Self {
        let mut latency = Self {
            sum_seconds,
            buckets,
            ..Self::default()
        };
        latency.derive();
        latency
    }

    /// Adds another distribution.
    pub fn merge(&mut self, other: &Self) {
        self.sum_seconds += other.sum_seconds;
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (count, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self.derive();
    }

    fn derive(&mut self) {
        self.count = self.buckets.iter().sum();
        self.p50_seconds = self.quantile(0.5);
        self.p95_seconds = self.quantile(0.95);
        self.p99_seconds = self.quantile(0.99);
    }

    /// An estimate from the buckets: linear within one, and the last bound for what is longer.
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    fn quantile(&self, share: f64) -> f64 {
        let rank = share * self.count as f64;
        let (mut seen, mut lower) = (0, 0.0);
        for (&count, &upper) in self.buckets.iter().zip(LATENCY_BOUNDS) {
            let before = seen as f64;
            seen += count;
            if count > 0 && seen as f64 >= rank {
                return lower + (upper - lower) * ((rank - before) / count as f64).clamp(0.0, 1.0);
            }
            lower = upper;
        }
        if self.count > 0 { lower } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_replica_counts_is_added_and_what_all_see_is_not() {
        let mut one = Stats {
            replicas: 1,
            ..Stats::default()
        };
        (one.messages.accepted, one.sessions.active, one.connections.websocket) = (3, 10, 4);
        one.broker = Some(BrokerStats {
            accept: Latency::new(1.0, vec![1, 0, 2]),
            ..BrokerStats::default()
        });
        let mut other = one.clone();
        (
            other.messages.accepted,
            other.sessions.active,
            other.connections.websocket,
        ) = (5, 9, 2);
        one.merge(&other);
        assert_eq!((one.replicas, one.messages.accepted), (2, 8));
        assert_eq!((one.sessions.active, one.connections.websocket), (10, 6));
        let accept = one.broker.unwrap().accept;
        assert_eq!((accept.count, accept.buckets), (6, vec![2, 0, 4]));
    }

    #[test]
    fn quantiles_lie_in_the_bucket_of_their_rank() {
        let mut buckets = vec![0; LATENCY_BOUNDS.len() + 1];
        assert!(Latency::new(0.0, buckets.clone()).p99_seconds.abs() < f64::EPSILON);
        (buckets[2], buckets[5]) = (98, 2);
        let latency = Latency::new(0.0, buckets.clone());
        assert!(latency.p50_seconds > LATENCY_BOUNDS[1] && latency.p50_seconds < LATENCY_BOUNDS[2]);
        assert!(latency.p99_seconds > LATENCY_BOUNDS[4] && latency.p99_seconds <= LATENCY_BOUNDS[5]);
        let longer = vec![0; LATENCY_BOUNDS.len()].into_iter().chain([1]).collect();
        let difference = Latency::new(0.0, longer).p50_seconds - LATENCY_BOUNDS.last().unwrap();
        assert!(difference.abs() < f64::EPSILON);
    }
}
