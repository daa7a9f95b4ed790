//! The state of the endpoint, and what its handlers have in common.

use std::{
    rc::Rc,
    sync::{Arc, OnceLock},
};

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::{StatusCode, header},
};

use super::{
    headers,
    refusal::Refusal,
    sessions::{HttpSession, HttpSessions},
};
use crate::transport::{SocketState, TransportContext};
use api::{
    auth::Identity,
    mcp::{
        Exposure,
        rpc::{INVALID_REQUEST, RpcError},
    },
};

/// A `GET` here without a session opens an HTTP+SSE stream of 2024-11-05, for any version that the client names.
pub const SSE_PATH: &str = "/sse";
/// The header with the id of a session.
pub const SESSION_ID: &str = "Mcp-Session-Id";

/// A response, or a refusal.
pub type HttpResult = Result<HttpResponse, Refusal>;

/// State of the endpoint. `context` is set once the broker has started.
pub struct Endpoint {
    pub context: OnceLock<TransportContext>,
    pub sessions: Arc<HttpSessions>,
}

/// 405 with the methods of the endpoint.
pub fn method_not_allowed() -> Refusal {
    let error = RpcError::new(
        INVALID_REQUEST,
        "this endpoint takes POST; GET and DELETE need the session of an initialize",
    );
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error).with_header(header::ALLOW, "POST, GET, DELETE")
}

/// 410: the stream can no longer be resumed.
pub fn stream_gone() -> Refusal {
    let reason = "the broker no longer keeps this stream: send the request again if its answer is still needed";
    Refusal::new(StatusCode::GONE, RpcError::new(INVALID_REQUEST, reason))
}

/// Returns the context if one more connection is allowed. Called before the request has any effect.
///
/// # Errors
/// 503 at the limit, or while the broker is starting.
pub fn require_capacity(endpoint: &Endpoint) -> Result<&TransportContext, Refusal> {
    let context = endpoint.context.get().ok_or_else(Refusal::starting)?;
    if context.connections.has_room() {
        Ok(context)
    } else {
        Err(Refusal::unavailable("too many connections: try again later"))
    }
}

/// The identity that the authentication middleware found.
///
/// # Errors
/// 503 while the broker is starting.
pub fn identity_of(request: &HttpRequest) -> Result<Arc<Identity>, Refusal> {
    let identity = request.extensions().get::<Arc<Identity>>().cloned();
    identity.ok_or_else(Refusal::starting)
}

/// The state of the socket that a request arrived on.
pub fn socket_state(request: &HttpRequest) -> Rc<SocketState> {
    request.conn_data::<Rc<SocketState>>().cloned().unwrap_or_default()
}

/// What the path of a request shows of the broker: everything, its own tools, or one backend.
///
/// # Errors
/// 404 when the caller's project has no such backend.
pub fn exposure_of(request: &HttpRequest, identity: &Identity) -> Result<Exposure, Refusal> {
    let Some(segment) = request.match_info().get("exposed") else {
        return Ok(Exposure::All);
    };
    Exposure::of_segment(segment, &identity.project).ok_or_else(|| {
        let reason = "no backend of this name: /mcp shows all, /mcp/broker the broker's own tools";
        Refusal::new(StatusCode::NOT_FOUND, RpcError::new(INVALID_REQUEST, reason))
    })
}

/// The session that a request names in its header.
///
/// # Errors
/// 400 when the header or the protocol version is wrong, 404 when the caller has no such session.
pub fn session_of(
    request: &HttpRequest,
    endpoint: &Endpoint,
    identity: &Arc<Identity>,
) -> Result<Arc<HttpSession>, Refusal> {
    let headers = request.headers();
    headers::check_legacy_version(headers)?;
    let mut ids = headers.get_all(SESSION_ID);
    let reason = match (ids.next(), ids.next()) {
        (Some(id), None) => {
            let exposure = exposure_of(request, identity)?;
            return endpoint.sessions.find(id.to_str().unwrap_or(""), identity, &exposure);
        }
        (Some(_), Some(_)) => "Mcp-Session-Id is given twice",
        (None, _) => "neither an Mcp-Session-Id (initialize first) nor a request with the _meta of 2026-07-28",
    };
    let error = RpcError::new(INVALID_REQUEST, reason);
    Err(Refusal::new(StatusCode::BAD_REQUEST, error))
}
