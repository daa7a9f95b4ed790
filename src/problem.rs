//! Why a request over HTTP is not served (RFC 9457), whoever refuses it: before a connection is upgraded, before a tool
//! runs, or by a resource of REST.

use std::time::Duration;

use actix_http::{
    StatusCode,
    header::{HeaderName, HeaderValue, RETRY_AFTER},
};
use actors::{clock::millis, model::BrokerError};
use serde_json::{Value, json};

use crate::refusal::error_detail;

/// The media type of its body.
pub const CONTENT_TYPE: &str = "application/problem+json";

#[derive(Clone, Debug)]
pub struct Problem {
    pub status: StatusCode,
    code: &'static str,
    detail: String,
    /// What belongs to the code, as in the error object of a tool.
    extensions: Value,
    retry_after: Option<Duration>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// `code` is one of the contract, section 7.
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

    /// Nobody can be served now.
    pub fn unavailable(detail: &str) -> Self {
        Self {
            retry_after: Some(Duration::from_secs(1)),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
        }
    }

    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The headers of the response beside its media type. `Retry-After` is in whole seconds (RFC 9110, section 10.2.3).
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

    pub fn into_response(self) -> actix_web::HttpResponse {
        let mut response = actix_web::HttpResponse::build(self.status);
        for header in self.headers() {
            response.insert_header(header);
        }
        response.content_type(CONTENT_TYPE).body(self.body())
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
            | BrokerError::ProtocolNotFound { .. } => StatusCode::NOT_FOUND,
            BrokerError::ProjectExists { .. }
            | BrokerError::ProtocolExists { .. }
            | BrokerError::SessionTakenOver
            | BrokerError::IncompatibleProtocol { .. } => StatusCode::CONFLICT,
            BrokerError::SessionRequired
            | BrokerError::InvalidSchema { .. }
            | BrokerError::PayloadInvalid { .. }
            | BrokerError::InvalidArgument { .. } => StatusCode::BAD_REQUEST,
            BrokerError::PayloadTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BrokerError::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
            BrokerError::QueueFull { .. }
            | BrokerError::RecipientFull
            | BrokerError::Unavailable { .. }
            | BrokerError::StorageFull => StatusCode::SERVICE_UNAVAILABLE,
            BrokerError::Timeout => StatusCode::GATEWAY_TIMEOUT,
        };
        Self {
            extensions: error_detail(error),
            retry_after: error.retry_after(),
            ..Self::new(status, error.code(), error.to_string())
        }
    }
}
