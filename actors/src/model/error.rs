//! The errors of the domain. Their texts tell the caller what to do next.

use std::{fmt, time::Duration};

use lens::{LensError, Places, TransformError};
use semver::Version;
use uuid::Uuid;

use super::{BackendFailure, BudgetFull};

/// One place at which a payload does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFailure {
    /// JSON Pointer (RFC 6901) into the payload; empty for the payload itself.
    pub path: String,
    /// The reason, for the sender.
    pub reason: String,
}

/// One of the two projects of a cross-project message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossProjectSide {
    /// The project of the sender.
    Sender,
    /// The project of the recipient.
    Target,
}

/// What the grant of the sender's project lacks, when both projects take part in cross-project messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingGrant {
    /// A grant for the target project.
    Project,
    /// The protocol of the message; the grant lists others.
    Protocol,
}

/// Why a payload does not reach a recipient in a version that it declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransformFailure {
    /// The version of the payload.
    pub from: Version,
    pub to: Version,
    pub reason: TransformReason,
}

/// Why lenses do not transform a payload, or may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransformReason {
    /// The lenses fail on this payload.
    Fails(TransformError),
    /// It would lose these places, and its sender demands a transformation without loss.
    Loses(Places),
    /// The lens between these versions is on the way, and this broker cannot compile it.
    NotCompiled(Box<[Version; 2]>),
}

impl fmt::Display for TransformFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the payload of version {} does not become one of {}: ",
            self.from, self.to
        )?;
        match &self.reason {
            TransformReason::Fails(error) => write!(f, "{error}"),
            TransformReason::NotCompiled(lens) => {
                let [from, to] = &**lens;
                write!(
                    f,
                    "this broker cannot compile the lens from {from} to {to}: replace the lens"
                )
            }
            TransformReason::Loses(places) => {
                let shown: Vec<_> = places.iter().map(|place| format!("`{place}`")).collect();
                let more = if places.more() { " and more" } else { "" };
                write!(
                    f,
                    "it would lose {}{more}, and its sender allows no loss",
                    shown.join(", ")
                )
            }
        }
    }
}

/// A session that does not exist or does not belong to the caller; the text says what to do next.
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
        "no session \"{address}\"{}: list_sessions with status \"all\" shows every session of the project{}",
        did_you_mean(similar),
        keep_hint(address)
    )]
    Other { address: String, similar: Vec<String> },
    /// A session of another project. The error reveals nothing about that project.
    #[error("no session \"{address}\" in that project: ask its owner for the address")]
    Remote { address: String },
    /// The session ended during the call.
    #[error("the session has ended: list_sessions with status \"all\" shows every session of the project")]
    Ended,
}

impl MissingSession {
    /// The longest part of an address that an error repeats, in characters: the maximum length of a name.
    const SHOWN_LEN_MAX: usize = 128;

    /// The error for a session that the caller wants to act as.
    pub fn own(id: &str) -> Self {
        Self::Own { id: shown(id) }
    }

    /// The error for a recipient in the caller's project.
    pub fn other(address: &str, similar: Vec<String>) -> Self {
        Self::Other {
            address: shown(address),
            similar,
        }
    }

    /// The error for a recipient in another project.
    pub fn remote(address: &str) -> Self {
        Self::Remote {
            address: shown(address),
        }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(MissingSession::SHOWN_LEN_MAX).collect()
}

/// How a message is kept for a name that no session has yet; nothing for an address that can be no name.
fn keep_hint(address: &str) -> &'static str {
    if address.contains(['@', ':']) || Uuid::try_parse(address).is_ok() {
        ""
    } else {
        "; send_message with if_unknown \"keep\" keeps a message for an agent that is still to come"
    }
}

fn did_you_mean(similar: &[String]) -> String {
    let quoted: Vec<_> = similar.iter().map(|name| format!("\"{name}\"")).collect();
    if quoted.is_empty() {
        String::new()
    } else {
        format!(", did you mean {}?", quoted.join(" or "))
    }
}

fn closed_text(state: &str, by: Option<&str>) -> String {
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    format!(
        "the question was already {state}{by}, so nothing has changed: read it again; to add something, send its \
         asker a message"
    )
}

words! {
    /// What too many questions or yaps fill.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum QuestionBudget {
        /// The open questions of one session.
        Session = "session_questions",
        /// The open questions of the project.
        Project = "project_questions",
        /// The bytes of the open questions of the project.
        Bytes = "question_bytes",
        /// The bytes of the open questions of one session.
        SessionBytes = "session_question_bytes",
        /// The drafts of one question.
        Drafts = "drafts",
        /// The yaps of the project that wait for their place in the order.
        Yaps = "held_yaps",
    }
}

impl QuestionBudget {
    /// The unit of the limit.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Session | Self::Project => "questions",
            Self::Bytes | Self::SessionBytes => "bytes",
            Self::Drafts => "drafts",
            Self::Yaps => "yaps",
        }
    }
}

/// Everything that a verb of the broker can refuse; each variant names the caller's next choice.
///
/// Each surface translates it once: MCP tools to the error object of the contract, HTTP to problem details.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    #[error("this needs a key: send it as X-API-Key or as Authorization: Bearer")]
    AuthenticationFailed,
    #[error("{reason}")]
    Forbidden { reason: String },
    #[error("X-Project-ID names a project that the key does not belong to: leave it out, or use a key of that project")]
    ProjectMismatch,
    #[error("no such project")]
    ProjectNotFound,
    #[error("no project \"{id}\" to send to: list_projects shows the projects")]
    TargetNotFound { id: String },
    #[error("a project with this id exists already")]
    ProjectExists { id: String },
    #[error("this needs a session: call register_session, then pass the session_id that it returns with every call")]
    SessionRequired,
    #[error(transparent)]
    SessionNotFound(#[from] MissingSession),
    #[error(
        "another caller has registered this session since: call register_session to take it back, or with another name, \
         and use the session_id of its answer"
    )]
    SessionTakenOver,
    #[error("protocol {name} {version} is not registered: {}", match versions.as_slice() {
        [] => "it has no versions; discover_protocols lists the protocols, register_protocol adds one".to_owned(),
        versions => format!("use a registered version ({}), or register this one with register_protocol", versions.join(", ")),
    })]
    ProtocolNotFound {
        name: String,
        version: String,
        /// Registered versions, newest first; at most [`BrokerError::VERSIONS_LEN_MAX`].
        versions: Vec<String>,
    },
    #[error(
        "protocol {name} {version} is registered with another {} and cannot change: register a new version",
        differs.join(" and another ")
    )]
    ProtocolExists {
        name: String,
        version: String,
        /// The parts that differ: version, schema, capabilities, metadata or lens.
        differs: Vec<&'static str>,
    },
    #[error("protocol {name} has no lens from {from} to {version}: discover_protocols shows the lenses")]
    LensNotFound {
        name: String,
        from: String,
        version: String,
    },
    #[error("the lens is refused: {0}")]
    InvalidLens(Box<LensError>),
    #[error("the schema is refused: {reason}")]
    InvalidSchema { reason: String },
    #[error("the payload does not fit the schema of its protocol")]
    PayloadInvalid { failures: Vec<PathFailure> },
    #[error("{recipient} does not speak {name} {version}; every session speaks a plain text: send without a protocol")]
    IncompatibleProtocol {
        recipient: String,
        name: String,
        version: String,
        speaks: Vec<String>,
        /// What would let the recipient read it.
        suggestions: Vec<String>,
    },
    #[error(
        "no lenses lead from {name} {from} to {to}: discover_protocols shows the lenses, register_protocol with from and \
         lens adds one"
    )]
    NoLens { name: String, from: Version, to: Version },
    #[error("{0}; transform_message shows what becomes of a payload")]
    TransformFailed(Box<TransformFailure>),
    #[error(transparent)]
    QueueFull(#[from] BudgetFull),
    #[error("the recipient's queue is full: send again when the recipient has read some messages")]
    RecipientFull,
    #[error("rate limit exceeded: wait retry_after_ms, then repeat")]
    RateLimited { retry_after: Duration },
    #[error("{}", match side {
        CrossProjectSide::Sender => "this project does not send to others: set allow_cross_project",
        CrossProjectSide::Target => "that project does not take messages from others",
    })]
    CrossProjectDisabled { side: CrossProjectSide },
    #[error("{}", match wall {
        MissingGrant::Project => "this project has no permission to send to that one: see grant_project_access",
        MissingGrant::Protocol => "this project's permission to send to that one does not include the protocol",
    })]
    CrossProjectForbidden { wall: MissingGrant },
    #[error("larger than {limit} bytes")]
    PayloadTooLarge { limit: usize },
    #[error("{field}: {reason}")]
    InvalidArgument { field: String, reason: String },
    #[error(
        "no question {id} that you may read: get_answer without question_id shows an agent's own, mcp-broker desk list those \
         of a person"
    )]
    QuestionNotFound { id: Uuid },
    #[error("{}", closed_text(state, by.as_deref()))]
    QuestionClosed {
        /// `answered`, `declined`, `expired` or `cancelled`.
        state: &'static str,
        /// The person, agent or administrator who closed it.
        by: Option<String>,
        /// Milliseconds since the Unix epoch.
        at_ms: u64,
    },
    #[error("the question has changed: read it again, then repeat with its revision {revision}, or without one")]
    RevisionMismatch {
        /// The present revision.
        revision: u64,
    },
    #[error("{limit} {} already: wait for answers with get_answer, or cancel_question what is no longer needed", match which {
        QuestionBudget::Session => "questions of this session are open",
        QuestionBudget::Project => "questions of the project are open",
        QuestionBudget::Bytes => "bytes of open questions are kept for the project",
        QuestionBudget::SessionBytes => "bytes of open questions are kept for this session",
        QuestionBudget::Drafts => "drafts of other people are kept for the question, or the questions take all their bytes",
        QuestionBudget::Yaps => "yaps are held for their order",
    })]
    QuestionsFull { which: QuestionBudget, limit: usize },
    #[error(transparent)]
    Backend(#[from] BackendFailure),
    #[error("no open call {id}: mcp-broker gateway calls shows those of the project")]
    CallNotFound { id: String },
    #[error("timed out")]
    Timeout,
    #[error("the broker cannot do this now: try again")]
    Unavailable { retry_after: Duration },
    #[error("the storage is full: nothing new is accepted until space is freed")]
    StorageFull,
    #[error(
        "a replica of an earlier version is running, which does not know lenses: update it, then register the lens"
    )]
    EarlierReplica,
}

impl BrokerError {
    /// Versions of a protocol that an error names, at most.
    pub const VERSIONS_LEN_MAX: usize = 10;

    /// The wait that a caller gets when an operator has to free space, or to update a replica.
    const STORAGE_RETRY_AFTER: Duration = Duration::from_secs(5);

    /// The wait that a caller gets when a part of the broker restarts or is overloaded.
    pub const RETRY_AFTER: Duration = Duration::from_millis(200);

    /// An `invalid_argument` error for this field.
    pub fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::InvalidArgument {
            field: field.into(),
            reason: reason.into(),
        }
    }

    /// The error for acting as a session by the id that lists show.
    pub fn listed_session_id(field: &str) -> Self {
        Self::invalid(
            field,
            "an id from a list is an address and does not let you act as the session: pass the session_id that register_session \
             returned to you, or call register_session",
        )
    }

    /// The error for an idempotency key that is reserved for a message to one project and comes with a message to
    /// another.
    pub fn key_in_use() -> Self {
        Self::invalid(
            "headers.idempotency_key",
            "another message was sent with this key and its result is not known yet: repeat that message, or use a key \
             of its own for this one",
        )
    }

    /// An `invalid_lens` error.
    pub fn invalid_lens(error: LensError) -> Self {
        Self::InvalidLens(Box::new(error))
    }

    /// A `forbidden` error with this text.
    pub fn forbidden(reason: impl Into<String>) -> Self {
        Self::Forbidden { reason: reason.into() }
    }

    /// An `unavailable` error with the default wait.
    pub const fn unavailable() -> Self {
        Self::Unavailable {
            retry_after: Self::RETRY_AFTER,
        }
    }

    /// How long to wait before a repeat, for errors that a repeat can resolve.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after } | Self::Unavailable { retry_after } => Some(*retry_after),
            Self::StorageFull | Self::EarlierReplica => Some(Self::STORAGE_RETRY_AFTER),
            Self::Backend(failure) => failure.retry_after(),
            _ => None,
        }
    }

    /// The error code of the contract, section 7.
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
            Self::ProtocolNotFound { .. } | Self::LensNotFound { .. } => "protocol_not_found",
            Self::ProtocolExists { .. } => "protocol_exists",
            Self::InvalidSchema { .. } => "invalid_schema",
            Self::InvalidLens(_) => "invalid_lens",
            Self::PayloadInvalid { .. } => "payload_invalid",
            Self::IncompatibleProtocol { .. } | Self::NoLens { .. } => "incompatible_protocol",
            Self::TransformFailed(_) => "transform_failed",
            Self::QueueFull(_) | Self::RecipientFull | Self::QuestionsFull { .. } => "queue_full",
            Self::QuestionNotFound { .. } => "question_not_found",
            Self::QuestionClosed { .. } => "question_closed",
            Self::RevisionMismatch { .. } => "precondition_failed",
            Self::PayloadTooLarge { .. } => "payload_too_large",
            Self::InvalidArgument { .. } => "invalid_argument",
            Self::Backend(failure) => failure.code(),
            Self::CallNotFound { .. } => "call_not_found",
            Self::Timeout => "timeout",
            Self::Unavailable { .. } | Self::StorageFull | Self::EarlierReplica => "unavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_session_error_suggests_similar_names() {
        let missing = |similar: &[&str]| {
            let similar = similar.iter().map(|name| (*name).to_owned()).collect();
            MissingSession::other("alcie", similar).to_string()
        };
        assert!(missing(&[]).starts_with("no session \"alcie\": list_sessions"));
        assert!(missing(&["alice"]).starts_with("no session \"alcie\", did you mean \"alice\"?: "));
        assert!(missing(&["alice", "alci"]).contains(", did you mean \"alice\" or \"alci\"?: "));
    }

    #[test]
    fn an_error_repeats_an_address_up_to_the_length_of_a_name() {
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
    fn only_errors_that_a_repeat_can_resolve_have_a_wait() {
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
