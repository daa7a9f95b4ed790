//! Lenses as they are registered.

use lens::Direction;
use semver::Version;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{KeyId, ProtocolName};

/// A registered lens as it is stored: how payloads of one version of a protocol become payloads of a higher one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LensRecord {
    pub name: ProtocolName,
    pub from: Version,
    /// Higher in precedence than `from`.
    pub to: Version,
    /// The operations as they were registered.
    pub ops: Value,
    pub direction: Direction,
    pub allow_loss: bool,
    /// 1 for the first lens of this pair; each replacement adds 1.
    pub revision: u64,
    /// What is known about the way forward, as the answer of the registration shows it. None where `direction` excludes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<Value>,
    /// As `forward`, for the way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward: Option<Value>,
    /// The first key of the rotation chain that registered it; None without keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_by_key: Option<KeyId>,
    /// Milliseconds since the Unix epoch.
    pub registered_at_ms: u64,
}
