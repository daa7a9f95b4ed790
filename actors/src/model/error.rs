use std::time::Duration;

use super::ProtocolName;

/// Why a payload does not fit its schema, at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFailure {
    /// JSON Pointer (RFC 6901) into the payload; empty for the payload itself.
    pub path: String,
    pub reason: String,
}

/// Everything a verb of the broker can refuse, each variant naming the caller's next choice.
///
/// Surfaces translate it once: MCP tools to the error object of the contract, HTTP to problem details.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    #[error("this needs a session: call register_session first, or pass session_id")]
    SessionRequired,
    #[error("no such session")]
    SessionNotFound,
    #[error("a newer connection has taken this session over")]
    SessionTakenOver,
    #[error("protocol {name} {version} is not registered")]
    ProtocolNotFound { name: String, version: String },
    #[error("protocol {name} {version} exists already and cannot change: register a new version")]
    ProtocolExists {
        name: ProtocolName,
        version: semver::Version,
    },
    #[error("the schema is refused: {reason}")]
    InvalidSchema { reason: String },
    #[error("the payload does not fit the schema of its protocol")]
    PayloadInvalid { failures: Vec<PathFailure> },
    #[error("{recipient} does not speak {name} {version}")]
    IncompatibleProtocol {
        recipient: String,
        name: ProtocolName,
        version: semver::Version,
        speaks: Vec<String>,
    },
    #[error("the recipient's queue is full ({limit} messages): try again when it has read some")]
    QueueFull { limit: usize },
    #[error("larger than {limit} bytes")]
    PayloadTooLarge { limit: usize },
    #[error("{field}: {reason}")]
    InvalidArgument { field: String, reason: String },
    #[error("not done in time")]
    Timeout,
    #[error("the broker cannot do this now: try again")]
    Unavailable { retry_after: Duration },
}

impl BrokerError {
    /// How long a caller is told to wait when a part of the broker is restarting or overloaded.
    pub const RETRY_AFTER: Duration = Duration::from_millis(200);

    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::InvalidArgument {
            field: field.into(),
            reason: reason.into(),
        }
    }

    #[must_use]
    pub const fn unavailable() -> Self {
        Self::Unavailable {
            retry_after: Self::RETRY_AFTER,
        }
    }

    /// The code of this error in the contract, section 7.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::SessionRequired => "session_required",
            Self::SessionNotFound => "session_not_found",
            Self::SessionTakenOver => "session_taken_over",
            Self::ProtocolNotFound { .. } => "protocol_not_found",
            Self::ProtocolExists { .. } => "protocol_exists",
            Self::InvalidSchema { .. } => "invalid_schema",
            Self::PayloadInvalid { .. } => "payload_invalid",
            Self::IncompatibleProtocol { .. } => "incompatible_protocol",
            Self::QueueFull { .. } => "queue_full",
            Self::PayloadTooLarge { .. } => "payload_too_large",
            Self::InvalidArgument { .. } => "invalid_argument",
            Self::Timeout => "timeout",
            Self::Unavailable { .. } => "unavailable",
        }
    }
}
