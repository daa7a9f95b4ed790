//! The metrics that belong to no project, and the values of their labels.

use super::{
    counter::{Counter, CounterVec, Gauge},
    histogram::Histogram,
    label::{Labelled, label},
};
use crate::model::{Closing, Rung, WakeResult};

label! {
    /// An operation of a store, as its callers see it.
    StoreOperation {
        Append = "append",
        Lease = "lease",
        Acknowledge = "acknowledge",
        Release = "release",
        Claim = "claim",
        /// Sessions, protocols, receipts and all else.
        Other = "other",
    }
}

label! {
    /// What became of a delivery report.
    ReportResult {
        Sent = "sent",
        /// The sender of the messages has ended, or its inbox is full.
        Refused = "refused",
    }
}

label! {
    /// What a transformation by lenses did to a payload.
    TransformResult {
        Exact = "exact",
        /// It has made up values.
        Defaulted = "defaulted",
        Lossy = "lossy",
        Failed = "failed",
    }
}

label! {
    /// A kind of actor.
    ActorKind {
        Broker = "broker",
        Bridge = "bridge",
        Project = "project",
        Registry = "registry",
        Router = "router",
        Session = "session",
        Desk = "desk",
    }
}

impl ActorKind {
    /// The kind of this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

label! {
    /// A way into the broker that holds a connection open.
    TransportKind {
        Websocket = "websocket",
        /// An open response over HTTP.
        Http = "http",
        /// A request that was forwarded to another replica.
        Forwarded = "forwarded",
        /// A Unix socket or a FIFO of this machine.
        Local = "local",
        /// The port of the rubberduck programs.
        Rubberduck = "rubberduck",
    }
}

label! {
    /// Whose limit refused a request.
    RateLimitKind {
        /// That of the key, the subject or the address.
        Caller = "caller",
        Project = "project",
        /// That of a permission to send to another project.
        Grant = "grant",
    }
}

label! {
    /// Why a caller was not authenticated.
    AuthFailure {
        Missing = "missing",
        Invalid = "invalid",
        /// Too many failed attempts.
        Blocked = "blocked",
        /// The credential is valid, and the project or the scope is not.
        Refused = "refused",
        /// Another user of the machine has opened the local socket.
        ForeignUser = "foreign_user",
    }
}

label! {
    /// The way in which a client was asked to wake its agent.
    WakeWay {
        Inbox = "inbox",
        Channel = "channel",
        Queue = "queue",
        Tmux = "tmux",
        Hook = "hook",
        /// A way that this broker does not know.
        Other = "other",
    }
}

impl From<Option<Rung>> for WakeWay {
    fn from(rung: Option<Rung>) -> Self {
        match rung {
            Some(Rung::Inbox) => Self::Inbox,
            Some(Rung::Channel) => Self::Channel,
            Some(Rung::Queue) => Self::Queue,
            Some(Rung::Tmux) => Self::Tmux,
            Some(Rung::Hook) => Self::Hook,
            None => Self::Other,
        }
    }
}

label! {
    /// Why messages that wait wake no agent.
    WakeHold {
        /// They have come from agent to agent too often.
        HopLimit = "hop_limit",
        /// Their sender has caused too many wakes.
        SenderRate = "sender_rate",
        /// The agent has quiet hours.
        Quiet = "quiet",
        /// The agent wants to be woken for more urgent ones.
        Preference = "preference",
    }
}

label! {
    /// How a question to people ended.
    QuestionEnd {
        Answered = "answered",
        Declined = "declined",
        Expired = "expired",
        Cancelled = "cancelled",
    }
}

impl QuestionEnd {
    /// The label of an end.
    pub const fn of(closing: &Closing) -> Self {
        match closing {
            Closing::Answered { .. } => Self::Answered,
            Closing::Declined { .. } => Self::Declined,
            Closing::Expired => Self::Expired,
            Closing::Cancelled { .. } => Self::Cancelled,
        }
    }
}

impl Labelled for WakeResult {
    const ALL: &'static [Self] = &Self::ALL;

    fn index(self) -> usize {
        self as usize
    }

    fn as_str(self) -> &'static str {
        self.as_str()
    }
}

/// The metrics of the process.
#[derive(Debug)]
pub struct BrokerMetrics {
    /// From the arrival of a message at the router until the store has it.
    pub accept: Histogram,
    /// From the acceptance of a message until its first delivery.
    pub deliver: Histogram,
    /// The operations of a store that is outside of the memory of the process, and every append.
    pub store_operations: [Histogram; StoreOperation::LEN],
    /// Operations of a store that failed.
    pub store_failures: CounterVec<StoreOperation, { StoreOperation::LEN }>,
    /// Restarts after a panic.
    pub actor_restarts: CounterVec<ActorKind, { ActorKind::LEN }>,
    /// Actors that panicked too often.
    pub actors_given_up: CounterVec<ActorKind, { ActorKind::LEN }>,
    /// Live connections.
    pub connections: [Gauge; TransportKind::LEN],
    /// Connections that were opened.
    pub connections_opened: CounterVec<TransportKind, { TransportKind::LEN }>,
    /// Connections that were refused because a limit was reached.
    pub connections_refused: CounterVec<TransportKind, { TransportKind::LEN }>,
    /// Requests that a rate limit refused.
    pub rate_limited: CounterVec<RateLimitKind, { RateLimitKind::LEN }>,
    /// Callers that were not authenticated.
    pub authentication_failures: CounterVec<AuthFailure, { AuthFailure::LEN }>,
    /// Event frames and delivery batches that the bridge brought.
    pub bridge_frames: Counter,
    /// Gaps in the sequence of frames.
    pub bridge_gaps: Counter,
    /// Lost connections of the bridge.
    pub bridge_disconnects: Counter,
    /// Frames that were dropped because a mailbox was full.
    pub bridge_frames_dropped: Counter,
    /// The last time that a ping took on the connection of the bridge, in nanoseconds.
    pub bridge_lag_ns: Gauge,
    /// Resyncs that were begun, and those that failed.
    pub resyncs: Counter,
    pub resyncs_failed: Counter,
    /// Groups of records that were written and synced.
    pub disk_commits: Histogram,
    /// Records in these groups.
    pub disk_records: Counter,
    /// Groups that could not be written.
    pub disk_failures: Counter,
    /// Batches of operations of Redis.
    pub redis_batches: Histogram,
    /// Operations in these batches.
    pub redis_operations: Counter,
    /// Batches that failed.
    pub redis_failures: Counter,
    /// Connections to Redis that were opened.
    pub redis_connects: Counter,
    /// How often a breaker opened.
    pub breaker_openings: Counter,
    /// Records of the event log that were not written to the store.
    pub lost_events: Counter,
    /// Spans that no collector took.
    pub dropped_spans: Counter,
    /// Wakes that were sent to a client, by what became of them.
    pub wakes: [CounterVec<WakeResult, { WakeResult::ALL.len() }>; WakeWay::LEN],
    /// How often messages that wait were held back.
    pub wakes_held: CounterVec<WakeHold, { WakeHold::LEN }>,
    /// Payloads that lenses have transformed, or could not.
    pub transforms: CounterVec<TransformResult, { TransformResult::LEN }>,
    /// How long a transformation and the check of its result take.
    pub transform: Histogram,
    /// From a wake until its agent reads its inbox.
    pub wake_to_read: Histogram,
    /// From a question until a person first sees it.
    pub question_wait: Histogram,
    /// From a question until its answer.
    pub question_answer: Histogram,
    /// Questions that have ended.
    pub questions_closed: CounterVec<QuestionEnd, { QuestionEnd::LEN }>,
    /// Attempts to tell a target outside the broker of a change of a question that failed.
    pub webhook_failures: Counter,
    /// Yaps that were shown.
    pub yaps: Counter,
    /// Reports to the senders of messages.
    pub delivery_reports: CounterVec<ReportResult, { ReportResult::LEN }>,
}

/// The metrics of this process.
pub static METRICS: BrokerMetrics = BrokerMetrics::new();

impl BrokerMetrics {
    #[allow(clippy::large_stack_arrays, reason = "evaluated by the compiler, for a static")]
    const fn new() -> Self {
        Self {
            accept: Histogram::new(),
            deliver: Histogram::new(),
            store_operations: [const { Histogram::new() }; StoreOperation::LEN],
            store_failures: CounterVec::new(),
            actor_restarts: CounterVec::new(),
            actors_given_up: CounterVec::new(),
            connections: [const { Gauge::new() }; TransportKind::LEN],
            connections_opened: CounterVec::new(),
            connections_refused: CounterVec::new(),
            rate_limited: CounterVec::new(),
            authentication_failures: CounterVec::new(),
            bridge_frames: Counter::new(),
            bridge_gaps: Counter::new(),
            bridge_disconnects: Counter::new(),
            bridge_frames_dropped: Counter::new(),
            bridge_lag_ns: Gauge::new(),
            resyncs: Counter::new(),
            resyncs_failed: Counter::new(),
            disk_commits: Histogram::new(),
            disk_records: Counter::new(),
            disk_failures: Counter::new(),
            redis_batches: Histogram::new(),
            redis_operations: Counter::new(),
            redis_failures: Counter::new(),
            redis_connects: Counter::new(),
            breaker_openings: Counter::new(),
            lost_events: Counter::new(),
            dropped_spans: Counter::new(),
            wakes: [const { CounterVec::new() }; WakeWay::LEN],
            wakes_held: CounterVec::new(),
            transforms: CounterVec::new(),
            transform: Histogram::new(),
            wake_to_read: Histogram::new(),
            question_wait: Histogram::new(),
            question_answer: Histogram::new(),
            questions_closed: CounterVec::new(),
            webhook_failures: Counter::new(),
            yaps: Counter::new(),
            delivery_reports: CounterVec::new(),
        }
    }

    /// Counts an operation of a store that took so long.
    pub fn store_operation(&self, operation: StoreOperation, duration_ns: u64, succeeded: bool) {
        self.store_operations[operation.index()].observe(duration_ns);
        if !succeeded {
            self.store_failures.of(operation).increment();
        }
    }
}
