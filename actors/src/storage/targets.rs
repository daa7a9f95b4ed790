//! How far the event log has been sent to each target outside the broker.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{error::Op, events::EventPosition};

/// Targets of a broker: each has a cursor in the store of every project.
pub const TARGETS_MAX: usize = 32;

/// The cursors of the targets to which events of a project are sent.
pub trait TargetStore {
    /// Has this replica send to the target for this time, or longer if it does so already. Returns the cursor of the target;
    /// None while another replica sends to it. A store of one process always returns the cursor.
    fn claim_target(&self, target: TargetId, ttl: Duration) -> Op<Option<TargetCursor>>;

    /// Stores a new cursor of the target, and has this replica send to it for this time from now on. Returns false, and stores
    /// nothing, if another replica sends to the target now.
    fn move_target(&self, target: TargetId, cursor: TargetCursor, ttl: Duration) -> Op<bool>;
}

/// A target, by its address: the same address is the same target after a restart and at another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId([u8; Self::LEN]);

impl TargetId {
    /// Bytes of an id.
    pub const LEN: usize = 16;

    /// The target with this address.
    #[must_use]
    pub fn of_address(address: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(address).into();
        let mut id = [0; Self::LEN];
        id.copy_from_slice(&hash[..Self::LEN]);
        Self(id)
    }

    /// The id with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes of the id.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

/// 32 hexadecimal digits.
impl std::fmt::Display for TargetId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How far the events of a project have been sent to a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetCursor {
    /// The last event that was sent, or that the target does not want; None before the target was first seen.
    pub position: Option<EventPosition>,
    /// How often the next event could not be sent.
    pub failures: u32,
    /// When it is tried again, in milliseconds since the Unix epoch; 0 for at once.
    pub retry_at_ms: u64,
}
