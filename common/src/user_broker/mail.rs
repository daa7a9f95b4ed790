//! What hooks and fronts ask and tell a local broker about the mail of an agent, besides MCP.

use actors::model::MailSummary;
use serde::{Deserialize, Serialize};

/// The method that returns [`Mail`]: the waiting messages of the agent of a conversation.
pub const MAIL: &str = "dev.mcp-broker/mail";
/// The method that tells what the agent of a conversation does: [`ActivityReport`].
pub const ACTIVITY: &str = "dev.mcp-broker/activity";

/// Longest wait of one [`MailQuery`], in seconds.
pub const MAIL_WAIT_MAX: u64 = 86_400;

/// The parameters of [`MAIL`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MailQuery {
    /// The conversation, as the client of the agent names it.
    pub conversation: String,
    /// How long the broker waits for a wake, at most [`MAIL_WAIT_MAX`]. 0 asks for the messages that wait now.
    #[serde(default)]
    pub wait_seconds: u64,
}

/// The result of [`MAIL`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// The session that is bound to the conversation; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Its waiting messages.
    #[serde(flatten)]
    pub summary: MailSummary,
    /// The wake that this answer is; absent for an answer to a query that does not wait, and after the time is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_id: Option<String>,
    /// Another query of the same conversation waits instead of this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_replaced: bool,
}

/// The parameters of [`ACTIVITY`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivityReport {
    /// The conversation, as the client of the agent names it.
    pub conversation: String,
    pub activity: ReportedActivity,
}

/// What an agent does, as its client tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportedActivity {
    /// A turn runs.
    Busy,
    /// The agent waits for its next turn.
    Idle,
}
