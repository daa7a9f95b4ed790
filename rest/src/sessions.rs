//! Sessions, and what two of them have in common.

use std::collections::BTreeMap;

use actors::{
    desk::Presence,
    model::{Activity, Rung, SessionStatus},
};
use answer::answer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::words::{self, Id, Time};

/// A session.
#[answer]
pub struct Session {
    pub session_id: Id,
    /// The durable address, unique in the project.
    #[schema(max_length = 128)]
    pub name: Option<String>,
    /// Its further addresses, each unique in the project; absent without one.
    #[absent]
    #[schema(max_items = 8)]
    pub aliases: Vec<String>,
    #[serde(default)]
    #[schema(value_type = words::ProjectId)]
    pub project_id: String,
    #[schema(value_type = SessionStatus)]
    pub status: String,
    pub connection_time: Time,
    pub last_heartbeat: Time,
    /// Messages that wait.
    #[schema(value_type = usize)]
    pub queue_size: u64,
    #[serde(default)]
    #[schema(value_type = Activity)]
    pub activity: String,
    /// The ways in which the client of the agent can wake it; null if there is none.
    #[schema(value_type = Option<Vec<Rung>>)]
    pub wakes_by: Option<Vec<String>>,
    /// Of a person: `human`.
    #[absent]
    #[schema(value_type = Option<SessionKind>)]
    pub kind: Option<String>,
    /// Of a person: whether they are at the desk.
    #[absent]
    #[schema(value_type = Option<Presence>)]
    pub presence: Option<String>,
    /// Of a person: questions at their consoles.
    #[absent]
    pub open: Option<usize>,
    /// With `include_capabilities`.
    #[absent]
    pub capabilities: Option<Capabilities>,
    /// Free data of the session, with `include_capabilities`.
    #[absent]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
}

/// The kind of a session that is not an agent's.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum SessionKind {
    Human,
}

/// What a session declares it can do.
#[answer(lenient)]
pub struct Capabilities {
    /// Versions by name of protocol. A session without any accepts every protocol.
    pub supported_protocols: BTreeMap<String, Vec<String>>,
    pub supported_features: Vec<String>,
}

/// A page of sessions.
#[answer]
pub struct Sessions {
    pub sessions: Vec<Session>,
    /// All sessions that match, on this page and the others.
    pub total: usize,
    /// Cursor of the next page, when items are left.
    #[absent]
    pub next_cursor: Option<String>,
}

/// A filter by presence.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum SessionStatusFilter {
    Active,
    Stale,
    Disconnected,
    All,
}

/// A session after it was disconnected or ended.
#[answer]
pub struct EndedSession {
    pub session_id: Id,
    pub status: SessionEnd,
    /// Messages that wait for a disconnected session.
    #[absent]
    pub queue_size: Option<usize>,
    /// Messages of an ended session that became dead letters.
    #[absent]
    pub dead_letters: Option<usize>,
    /// Replicas that did not answer: the session may be connected there.
    #[absent]
    pub partial: Vec<String>,
}

/// How a session was ended: `disconnected` keeps its name and inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionEnd {
    #[default]
    Disconnected,
    Ended,
}

/// What two sessions have in common.
#[answer]
pub struct MatrixRow {
    pub session_a: Id,
    pub session_b: Id,
    pub compatible: bool,
    /// The agreed version by name of protocol.
    pub common_protocols: BTreeMap<String, String>,
    /// Protocols for which lenses lead both ways, with the version of each side.
    #[absent]
    pub by_lens: Option<BTreeMap<String, LensVersions>>,
    pub common_features: Vec<String>,
}

/// The versions in which two sessions send, between which lenses lead.
#[answer]
pub struct LensVersions {
    #[schema(value_type = words::Version)]
    pub a: String,
    #[schema(value_type = words::Version)]
    pub b: String,
}

/// A page of the matrix.
#[answer]
pub struct Matrix {
    pub rows: Vec<MatrixRow>,
    /// Cursor of the next page, when rows are left.
    #[absent]
    pub next_cursor: Option<String>,
}
