use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Capabilities, Owner, SessionId, SessionName};

/// A session as it is stored: what survives the connection and the actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub id: SessionId,
    pub name: Option<SessionName>,
    pub capabilities: Capabilities,
    pub metadata: Map<String, Value>,
    /// Milliseconds since the Unix epoch, of the first registration.
    pub connected_at_ms: u64,
    /// Who made it, and alone can act as it.
    #[serde(default)]
    pub owner: Owner,
}

impl SessionRecord {
    /// Bytes of the record as storages keep it: JSON.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        // Writing plain values to memory cannot fail.
        serde_json::to_vec(self).map_or(0, |text| text.len())
    }
}

/// Presence of a session, derived from its last sign of life; never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    Active,
    Stale,
    Disconnected,
}

impl SessionStatus {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Stale => "stale",
            Self::Disconnected => "disconnected",
        }
    }
}

/// After how much silence a session is what. `stale_after < disconnect_after`.
#[derive(Clone, Copy, Debug)]
pub struct Presence {
    pub stale_after: Duration,
    pub disconnect_after: Duration,
}

impl Presence {
    #[must_use]
    pub fn status(&self, silence: Duration) -> SessionStatus {
        if silence >= self.disconnect_after {
            SessionStatus::Disconnected
        } else if silence >= self.stale_after {
            SessionStatus::Stale
        } else {
            SessionStatus::Active
        }
    }
}
