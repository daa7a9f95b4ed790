//! The schema of problem documents, for `/openapi.json`.

use serde::Serialize;
use utoipa::ToSchema;

/// Why a request was refused (RFC 9457). Some codes have additional members, such as `argument`.
#[allow(dead_code, reason = "schema of the output of Problem")]
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    r#type: String,
    title: String,
    #[schema(value_type = usize, minimum = 400, maximum = 599)]
    status: u16,
    code: Code,
    /// A text for people.
    detail: String,
    /// Milliseconds to wait before another attempt.
    #[schema(value_type = Option<usize>, nullable = false)]
    retry_after_ms: Option<u64>,
}

/// The error code for programs. MCP tools use the same codes.
#[allow(dead_code, reason = "schema of BrokerError::code")]
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ProblemCode)]
enum Code {
    AuthenticationFailed,
    BackendNotFound,
    BackendExists,
    CommandNotAllowed,
    BackendUnavailable,
    BackendBusy,
    BackendDied,
    BackendProtocol,
    ResultTooLarge,
    ShuttingDown,
    CallCancelled,
    CallNotFound,
    Forbidden,
    ProjectMismatch,
    ProjectNotFound,
    ProjectExists,
    SessionRequired,
    SessionNotFound,
    SessionTakenOver,
    ProtocolNotFound,
    ProtocolExists,
    InvalidSchema,
    InvalidLens,
    PayloadInvalid,
    IncompatibleProtocol,
    TransformFailed,
    QueueFull,
    PayloadTooLarge,
    RateLimited,
    CrossProjectDisabled,
    CrossProjectForbidden,
    InvalidArgument,
    QuestionNotFound,
    QuestionClosed,
    PreconditionFailed,
    Timeout,
    Unavailable,
}
