//! Yaps: short remarks of agents to the people who watch them. Nothing is expected back.

use serde::{Deserialize, Serialize};

use super::{SessionId, SessionName};

/// Characters of a yap.
pub const YAP_CHARACTERS_MAX: usize = 4_000;

/// A remark of an agent, before it has its place in the order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Yap {
    pub id: uuid::Uuid,
    pub sender: SessionId,
    pub sender_name: Option<SessionName>,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_context: Option<String>,
    /// When the sender says that it wrote it, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at_ms: Option<u64>,
    /// Further yaps of the sender that were over its rate and that this one replaces.
    #[serde(default)]
    pub folded: u32,
}

/// A yap with its place in the order that all consoles of the project share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownYap {
    /// Counts the yaps of the project, without gaps, from 1.
    pub seq: u64,
    /// The time by which it is ordered, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// It came after a yap with a later time was shown.
    pub is_late: bool,
    #[serde(flatten)]
    pub yap: Yap,
}
