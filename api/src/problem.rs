//! Problem documents (RFC 9457): how every refusal over HTTP is answered, before an upgrade, by the middleware or by a
//! resource.

use std::time::Duration;

use actix_http::{
    StatusCode,
    header::{HeaderName, HeaderValue, RETRY_AFTER},
};
use actors::{
    clock::millis,
    model::{BackendFailure, BrokerError},
};
use serde_json::{Value, json};

use common::refusal::error_detail;

/// The media type of the body.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// A problem document: status, code, text and headers of a refusal.
#[derive(Clone, Debug)]
pub struct Problem {
    pub status: StatusCode,
    code: &'static str,
    detail: String,
    /// Extension members of the code, the same as in the error object of a tool.
    extensions: Value,
    retry_after: Option<Duration>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem with a `code` of the contract, section 7.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            extensions: Value::Null,
            retry_after: None,
            headers: Vec::new(),
        }
    }

    /// 503 with `Retry-After: 1`.
    pub fn unavailable(detail: &str) -> Self {
        Self {
            retry_after: Some(Duration::from_secs(1)),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
        }
    }

    /// Adds the time until another attempt makes sense.
    #[must_use]
    pub fn with_retry_after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }

    /// Adds a header. A value that is no valid header is left out.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// The error code of the contract, section 7.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// What is wrong, for the caller.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The headers besides the media type. `Retry-After` is in whole seconds (RFC 9110, section 10.2.3).
    pub fn headers(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let retry_after = self.retry_after.map(|wait| {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            (
                RETRY_AFTER,
                HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX)),
            )
        });
        self.headers.clone().into_iter().chain(retry_after)
    }

    /// The problem document as JSON text.
    pub fn body(&self) -> String {
        let mut body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or(""),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        if let (Some(body), Value::Object(members)) = (body.as_object_mut(), &self.extensions) {
            for (name, value) in members {
                body.entry(name).or_insert_with(|| value.clone());
            }
        }
        if let Some(wait) = self.retry_after {
            body["retry_after_ms"] = json!(millis(wait));
        }
        body.to_string()
    }

    /// The problem as a response.
    pub fn into_response(self) -> actix_web::HttpResponse {
        let mut response = actix_web::HttpResponse::build(self.status);
        for header in self.headers() {
            response.append_header(header);
        }
        response.content_type(CONTENT_TYPE).body(self.body())
    }
}

/// The status of an error of the gateway.
fn backend_status(failure: &BackendFailure) -> StatusCode {
    match failure {
        BackendFailure::NotFound { .. } => StatusCode::NOT_FOUND,
        BackendFailure::Exists { .. } | BackendFailure::Cancelled { .. } => StatusCode::CONFLICT,
        BackendFailure::CommandNotAllowed { .. } => StatusCode::FORBIDDEN,
        BackendFailure::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
        BackendFailure::Died { .. }
        | BackendFailure::Http { .. }
        | BackendFailure::Protocol { .. }
        | BackendFailure::TooLarge { .. }
        | BackendFailure::GivenUp { .. } => StatusCode::BAD_GATEWAY,
        BackendFailure::Unavailable { .. }
        | BackendFailure::Busy { .. }
        | BackendFailure::TooManyCalls { .. }
        | BackendFailure::NoRoom { .. }
        | BackendFailure::ShuttingDown { .. } => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl From<&BrokerError> for Problem {
    fn from(error: &BrokerError) -> Self {
        let status = match error {
            BrokerError::AuthenticationFailed => StatusCode::UNAUTHORIZED,
            BrokerError::Forbidden { .. }
            | BrokerError::ProjectMismatch
            | BrokerError::CrossProjectDisabled { .. }
            | BrokerError::CrossProjectForbidden { .. } => StatusCode::FORBIDDEN,
            BrokerError::ProjectNotFound
            | BrokerError::TargetNotFound { .. }
            | BrokerError::SessionNotFound(_)
            | BrokerError::ProtocolNotFound { .. }
            | BrokerError::LensNotFound { .. }
            | BrokerError::QuestionNotFound { .. }
            | BrokerError::CallNotFound { .. } => StatusCode::NOT_FOUND,
            BrokerError::ProjectExists { .. }
            | BrokerError::ProtocolExists { .. }
            | BrokerError::SessionTakenOver
            | BrokerError::IncompatibleProtocol { .. }
            | BrokerError::NoLens { .. }
            | BrokerError::TransformFailed(_)
            | BrokerError::QuestionClosed { .. } => StatusCode::CONFLICT,
            BrokerError::RevisionMismatch { .. } => StatusCode::PRECONDITION_FAILED,
            BrokerError::SessionRequired
            | BrokerError::InvalidSchema { .. }
            | BrokerError::InvalidLens(_)
            | BrokerError::PayloadInvalid { .. }
            | BrokerError::InvalidArgument { .. } => StatusCode::BAD_REQUEST,
            BrokerError::PayloadTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BrokerError::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
            BrokerError::QueueFull { .. }
            | BrokerError::RecipientFull
            | BrokerError::QuestionsFull { .. }
            | BrokerError::Unavailable { .. }
            | BrokerError::StorageFull
            | BrokerError::EarlierReplica => StatusCode::SERVICE_UNAVAILABLE,
            BrokerError::Timeout => StatusCode::GATEWAY_TIMEOUT,
            BrokerError::Backend(failure) => backend_status(failure),
        };
        Self {
            extensions: error_detail(error),
            retry_after: error.retry_after(),
            ..Self::new(status, error.code(), error.to_string())
        }
    }
}
