use std::time::Duration;

use super::{BudgetFull, ProjectId, ProtocolName};

/// Why a payload does not fit its schema, at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFailure {
    /// JSON Pointer (RFC 6901) into the payload; empty for the payload itself.
    pub path: String,
    pub reason: String,
}

/// Which of two projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossProjectSide {
    Sender,
    Target,
}

/// What stands between two projects that are both open to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingGrant {
    Project,
    Protocol,
}

/// A session that does not exist, or not for its caller, and what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingSession {
    /// The session that a caller wants to act as.
    #[error(
        "no session \"{id}\" of yours: it has ended or belongs to another key; call register_session with your name \
         and pass the session_id that it returns"
    )]
    Own { id: String },
    /// The session that a caller wants to reach. `similar` holds names of the same project that the caller may have
    /// meant.
    #[error(
        "no session \"{address}\"{}: list_sessions with status \"all\" shows every session of the project",
        did_you_mean(similar)
    )]
    Other { address: String, similar: Vec<String> },
    /// A session of another project, of which nothing is said.
    #[error("no session \"{address}\" in that project: ask its owner for the address")]
    Remote { address: String },
    /// The session ended while the call was under way.
    #[error("the session has ended: list_sessions with status \"all\" shows every session of the project")]
    Ended,
}

impl MissingSession {
    /// The longest part of an address that an error repeats, in characters: as long as a name may be.
    const SHOWN_LEN_MAX: usize = 128;

    pub fn own(id: &str) -> Self {
        Self::Own { id: shown(id) }
    }

    pub fn other(address: &str, similar: Vec<String>) -> Self {
        Self::Other {
            address: shown(address),
            similar,
        }
    }

    pub fn remote(address: &str) -> Self {
        Self::Remote {
            address: shown(address),
        }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(MissingSession::SHOWN_LEN_MAX).collect()
}

fn did_you_mean(similar: &[String]) -> String {
    let quoted: Vec<_> = similar.iter().map(|name| format!("\"{name}\"")).collect();
    if quoted.is_empty() {
        String::new()
    } else {
        format!(", did you mean {}?", quoted.join(" or "))
    }
}

/// Everything a verb of the broker can refuse, each variant naming the caller's next choice.
///
/// Surfaces translate it once: MCP tools to the error object of the contract, HTTP to problem details.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    #[error("this needs a key: send it as X-API-Key or as Authorization: Bearer")]
    AuthenticationFailed,
    #[error("{reason}")]
    Forbidden { reason: String },
    #[error("X-Project-ID names another project than the key is of: leave it out, or use a key of that project")]
    ProjectMismatch,
    #[error("no such project")]
    ProjectNotFound,
    #[error("no project \"{id}\" to send to: list_projects shows which there are")]
    TargetNotFound { id: ProjectId },
    #[error("there is a project of this id already: choose another")]
    ProjectExists { id: ProjectId },
    #[error("this needs a session: call register_session first, or pass session_id")]
    SessionRequired,
    #[error(transparent)]
    SessionNotFound(#[from] MissingSession),
    #[error(
        "another caller has registered this session since: call register_session to take it back, or with another name, \
         and use the session_id of its answer"
    )]
    SessionTakenOver,
    #[error("protocol {name} {version} is not registered: {}", match versions.as_slice() {
        [] => "no version of it is; discover_protocols lists what there is, register_protocol adds one".to_owned(),
        versions => format!("use a version that is ({}), or register this one with register_protocol", versions.join(", ")),
    })]
    ProtocolNotFound {
        name: String,
        version: String,
        /// Versions that there are, newest first; the first [`BrokerError::VERSIONS_LEN_MAX`].
        versions: Vec<String>,
    },
    #[error(
        "protocol {name} {version} is registered with another {} and cannot change: register a new version",
        differs.join(" and another ")
    )]
    ProtocolExists {
        name: ProtocolName,
        version: semver::Version,
        /// What is not the same: version, schema, capabilities or metadata.
        differs: Vec<&'static str>,
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
    #[error(transparent)]
    QueueFull(#[from] BudgetFull),
    #[error("the recipient's queue is full: try again when it has read some")]
    RecipientFull,
    #[error("too many in too short a time: wait as long as retry_after_ms says")]
    RateLimited { retry_after: Duration },
    #[error("{}", match side {
        CrossProjectSide::Sender => "this project does not send to others: set allow_cross_project",
        CrossProjectSide::Target => "that project does not take messages from others",
    })]
    CrossProjectDisabled { side: CrossProjectSide },
    #[error("{}", match wall {
        MissingGrant::Project => "this project has no permission to send to that one: see grant_project_access",
        MissingGrant::Protocol => "this project's permission to send to that one does not hold for the protocol",
    })]
    CrossProjectForbidden { wall: MissingGrant },
    #[error("larger than {limit} bytes")]
    PayloadTooLarge { limit: usize },
    #[error("{field}: {reason}")]
    InvalidArgument { field: String, reason: String },
    #[error("not done in time")]
    Timeout,
    #[error("the broker cannot do this now: try again")]
    Unavailable { retry_after: Duration },
    #[error("the storage has no room: nothing new is accepted until it has")]
    StorageFull,
}

impl BrokerError {
    /// Versions of a protocol that an error names.
    pub const VERSIONS_LEN_MAX: usize = 10;

    /// How long a caller is told to wait for an operator to make room.
    const STORAGE_RETRY_AFTER: Duration = Duration::from_secs(5);

    /// How long a caller is told to wait when a part of the broker is restarting or overloaded.
    pub const RETRY_AFTER: Duration = Duration::from_millis(200);

    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::InvalidArgument {
            field: field.into(),
            reason: reason.into(),
        }
    }

    /// An idempotency key is reserved for a message to one project, and the same key came with a message to another.
    #[must_use]
    pub fn key_in_use() -> Self {
        Self::invalid(
            "headers.idempotency_key",
            "another message was sent with this key and its result is not known yet: repeat that message, or use a key \
             of its own for this one",
        )
    }

    pub fn forbidden(reason: impl Into<String>) -> Self {
        Self::Forbidden { reason: reason.into() }
    }

    #[must_use]
    pub const fn unavailable() -> Self {
        Self::Unavailable {
            retry_after: Self::RETRY_AFTER,
        }
    }

    /// How long to wait before trying again, for what a repeat may mend.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after } | Self::Unavailable { retry_after } => Some(*retry_after),
            Self::StorageFull => Some(Self::STORAGE_RETRY_AFTER),
            _ => None,
        }
    }

    /// The code of this error in the contract, section 7.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::AuthenticationFailed => "authentication_failed",
            Self::Forbidden { .. } => "forbidden",
            Self::ProjectMismatch => "project_mismatch",
            Self::ProjectNotFound | Self::TargetNotFound { .. } => "project_not_found",
            Self::ProjectExists { .. } => "project_exists",
            Self::RateLimited { .. } => "rate_limited",
            Self::CrossProjectDisabled { .. } => "cross_project_disabled",
            Self::CrossProjectForbidden { .. } => "cross_project_forbidden",
            Self::SessionRequired => "session_required",
            Self::SessionNotFound(_) => "session_not_found",
            Self::SessionTakenOver => "session_taken_over",
            Self::ProtocolNotFound { .. } => "protocol_not_found",
            Self::ProtocolExists { .. } => "protocol_exists",
            Self::InvalidSchema { .. } => "invalid_schema",
            Self::PayloadInvalid { .. } => "payload_invalid",
            Self::IncompatibleProtocol { .. } => "incompatible_protocol",
            Self::QueueFull(_) | Self::RecipientFull => "queue_full",
            Self::PayloadTooLarge { .. } => "payload_too_large",
            Self::InvalidArgument { .. } => "invalid_argument",
            Self::Timeout => "timeout",
            Self::Unavailable { .. } | Self::StorageFull => "unavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_session_is_named_with_those_that_its_caller_may_have_meant() {
        let missing = |similar: &[&str]| {
            let similar = similar.iter().map(|name| (*name).to_owned()).collect();
            MissingSession::other("alcie", similar).to_string()
        };
        assert!(missing(&[]).starts_with("no session \"alcie\": list_sessions"));
        assert!(missing(&["alice"]).starts_with("no session \"alcie\", did you mean \"alice\"?: "));
        assert!(missing(&["alice", "alci"]).contains(", did you mean \"alice\" or \"alci\"?: "));
    }

    #[test]
    fn an_error_repeats_no_more_of_an_address_than_a_name_may_have() {
        let long = "ü".repeat(1000);
        for missing in [
            MissingSession::own(&long),
            MissingSession::other(&long, Vec::new()),
            MissingSession::remote(&long),
        ] {
            let shown = missing.to_string();
            assert_eq!(shown.matches('ü').count(), MissingSession::SHOWN_LEN_MAX, "{shown}");
        }
    }

    #[test]
    fn only_what_a_repeat_may_mend_says_how_long_to_wait() {
        let retry_after = Duration::from_millis(321);
        for (error, wait) in [
            (BrokerError::RateLimited { retry_after }, Some(retry_after)),
            (BrokerError::Unavailable { retry_after }, Some(retry_after)),
            (BrokerError::StorageFull, Some(Duration::from_secs(5))),
            (BrokerError::SessionRequired, None),
        ] {
            assert_eq!(error.retry_after(), wait, "{error}");
        }
    }
}
