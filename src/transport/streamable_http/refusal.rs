//! Refusals of this transport: an HTTP status with a JSON-RPC error as the body.

use std::borrow::Cow;

use actix_web::{
    HttpResponse,
    http::{
        StatusCode,
        header::{self, HeaderName},
    },
};

use crate::transport::body::BodyError;
use api::mcp::rpc::{self, INVALID_REQUEST, RpcError};
use common::json::frame::JsonText;

/// Why a request is not served: an HTTP status with a JSON-RPC error as the body.
pub struct Refusal {
    status: StatusCode,
    /// The JSON-RPC error of the response.
    pub error: RpcError,
    id: Option<String>,
    headers: Vec<(HeaderName, &'static str)>,
    closes: bool,
}

impl Refusal {
    /// A refusal with this status and JSON-RPC error.
    pub fn new(status: StatusCode, error: RpcError) -> Self {
        Self {
            status,
            error,
            id: None,
            headers: Vec::new(),
            closes: false,
        }
    }

    /// 503: the broker has not started yet.
    pub fn starting() -> Self {
        Self::unavailable("the broker is starting")
    }

    /// 503 with `Retry-After: 1`.
    pub fn unavailable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            RpcError::new(rpc::INTERNAL_ERROR, reason),
        )
        .with_header(header::RETRY_AFTER, "1")
    }

    /// Sets the id of the refused JSON-RPC request.
    pub fn for_request(mut self, id: Option<&str>) -> Self {
        self.id = id.map(str::to_owned).or(self.id);
        self
    }

    /// Adds a header.
    pub fn with_header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Closes the connection after the response, without reading more from it.
    pub fn and_close(mut self) -> Self {
        self.closes = true;
        self
    }

    /// Whether the connection closes after the response.
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// The refusal as a response with a JSON-RPC error.
    pub fn into_response(self) -> HttpResponse {
        let body = rpc::error_response(self.id.as_deref(), &self.error).into_bytes();
        let mut response = HttpResponse::build(self.status);
        for (name, value) in self.headers {
            response.insert_header((name, value));
        }
        if self.closes {
            response.force_close();
        }
        response.content_type(header::ContentType::json()).body(body)
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        let reason = error.to_string();
        match error {
            BodyError::Overloaded => Self::unavailable(reason).and_close(),
            BodyError::Incomplete(_) => Self::new(error.status(), RpcError::new(INVALID_REQUEST, reason)),
            BodyError::TooLarge { .. } | BodyError::TooSlow => {
                Self::new(error.status(), RpcError::new(INVALID_REQUEST, reason)).and_close()
            }
        }
    }
}
