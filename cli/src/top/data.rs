//! The answers of the broker that `top` shows. Members that are not known, and members that are missing, do no harm: the
//! broker may be older or newer.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::operate::{DeadLetter, LifePage, Message, Session};

/// Everything that one look at the broker brings.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The time of the look, in ms since the Unix epoch.
    pub at_ms: u64,
    pub stats: Stats,
    pub sessions: Vec<Session>,
    /// The broker has more sessions than are shown.
    pub more_sessions: bool,
    /// Newest first; empty while another view is shown.
    pub messages: Vec<Message>,
    /// Oldest first; empty while another view is shown.
    pub dead_letters: Vec<DeadLetter>,
    /// The questions that wait for a person; empty while another view is shown, and where the key may not see them.
    pub questions: Vec<Question>,
    /// The backends; empty while another view is shown, and where the key may not see them.
    pub backends: Vec<Backend>,
    pub detail: Option<Detail>,
}

/// A question that waits for a person.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Question {
    pub urgency: String,
    pub asked_at: String,
    pub asker: Asker,
    pub to: String,
    pub desk_state: Option<String>,
    pub summary: String,
}

/// The agent that asks.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Asker {
    pub session_id: String,
    pub name: Option<String>,
}

/// A backend of the gateway.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Backend {
    pub name: String,
    pub state: String,
    pub since: String,
    pub reason: Option<String>,
    pub tools: u64,
    pub calls: u64,
    pub open_calls: u64,
}

/// What the user has opened.
#[derive(Debug)]
pub enum Detail {
    Session(Box<Session>, Vec<Message>),
    Message(Box<LifePage>),
    /// It is gone, or the key may not see it.
    Refused(String),
}

/// How well the replicas work.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Health {
    pub status: String,
    pub storage_backend: Option<String>,
    pub storage_problem: Option<String>,
}

/// The answer of `/api/v1/stats`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Stats {
    pub replicas: u64,
    /// Those that answered.
    pub replica_list: Vec<Replica>,
    pub messages: MessageStats,
    pub sessions: SessionStats,
    pub inboxes: InboxStats,
    pub connections: ConnectionStats,
    pub storage: StorageStats,
    pub desk: DeskStats,
    pub backends: BackendStats,
    pub protocols: u64,
    pub health: Option<Health>,
    /// Of the replica that answers.
    pub version: String,
    pub broker: Option<BrokerStats>,
    pub series: Option<Series>,
    /// Replicas that did not answer.
    pub partial: Vec<String>,
    /// What needs attention, most urgent first.
    pub warnings: Vec<Warning>,
}

/// Something that needs attention.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Warning {
    pub text: String,
}

/// A replica of the broker.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Replica {
    /// Absent where the storage is not shared.
    pub id: Option<String>,
    pub version: String,
    pub started_at: String,
    pub sessions: u64,
    pub is_self: bool,
}

/// Counters since the start of the replicas.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct MessageStats {
    pub accepted: u64,
    pub refused: u64,
    pub delivered: u64,
    pub acknowledged: u64,
}

/// Sessions by state.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SessionStats {
    pub active: u64,
    pub stale: u64,
    pub disconnected: u64,
}

/// Messages that wait.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct InboxStats {
    pub waiting: u64,
    pub longest: u64,
    pub over_warning: u64,
}

/// Live connections.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ConnectionStats {
    pub websocket: u64,
    pub http: u64,
    pub local: u64,
}

/// What is kept.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct StorageStats {
    pub dead_letters: u64,
    pub message_bytes: u64,
}

/// Questions that wait for a person.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DeskStats {
    pub open: u64,
    pub urgent: u64,
}

/// Backends of the gateway.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct BackendStats {
    pub all: u64,
    pub ready: u64,
    pub failed: u64,
}

/// Figures of the broker as a whole, for operators.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct BrokerStats {
    pub uptime_seconds: u64,
    pub accept: Latency,
    pub deliver: Latency,
    pub store_operation: Latency,
    pub actor_restarts: u64,
}

/// Quantiles of a duration.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Latency {
    pub p50_seconds: f64,
    pub p99_seconds: f64,
}

/// Points of the last minutes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Series {
    pub step_seconds: u64,
    pub points: BTreeMap<String, Vec<Option<f64>>>,
}
