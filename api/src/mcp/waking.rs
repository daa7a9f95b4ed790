//! The notifications by which a broker asks a front to wake its agent, and by which the front tells what became of it.

pub use actors::model::WakeResult;
use actors::model::{MailSummary, WakeReason};
use serde::{Deserialize, Serialize};

/// The notification of the broker: [`Wake`].
pub const WAKE: &str = "notifications/dev.mcp-broker/wake";
/// The notification of the front: [`Woken`].
pub const WOKEN: &str = "notifications/dev.mcp-broker/woken";

/// The parameters of [`WAKE`]. They carry no payload: a wake is no delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// The name of this wake in the answer.
    pub wake_id: String,
    pub session_id: String,
    /// The waiting messages.
    #[serde(flatten)]
    pub mail: MailSummary,
    pub reason: WakeReason,
}

/// The parameters of [`WOKEN`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Woken {
    pub wake_id: String,
    /// The way that was tried, such as `inbox`.
    pub rung: String,
    pub result: WakeResult,
    /// One sentence about a wake that was not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
