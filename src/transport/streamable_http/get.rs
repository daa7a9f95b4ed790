//! GET: the stream of a session, the rest of a resumed answer, or the single stream of the HTTP+SSE transport.

use std::sync::Arc;

use actix_web::{HttpRequest, http::header};

use super::{
    endpoint::{
        Endpoint, HttpResult, SESSION_ID, SSE_PATH, exposure_of, identity_of, method_not_allowed, require_capacity,
        session_of, socket_state, stream_gone,
    },
    headers::{self, Accepts},
    response::{Driver, ResponseWriter},
    sessions::{self, ResumeError},
    streams,
};
use crate::transport::TransportContext;
use api::mcp::{Framing, Peer};

/// Serves one GET: the stream of a session, or the rest of a resumed stream.
///
/// # Errors
/// 404 or 405 without a session to read, 410 when the stream is not retained, 503 at the limit.
pub async fn handle_get(request: &HttpRequest, endpoint: &Endpoint) -> HttpResult {
    let context = require_capacity(endpoint)?;
    let headers = request.headers();
    if !headers::accepts(headers)?.events() || !headers.contains_key(header::ACCEPT) {
        return Err(method_not_allowed());
    }
    // Every session of later revisions has an id, so a request without one is of 2024-11-05. Some clients of that
    // transport name a later revision here; 2026-07-28 has no GET at its endpoint.
    let names_session = headers.contains_key(SESSION_ID);
    let is_modern = headers::is_modern(headers);
    if !names_session && (!is_modern || request.path() == SSE_PATH) {
        return open_http_sse(request, endpoint, context).await;
    }
    if is_modern {
        return Err(method_not_allowed());
    }
    let identity = identity_of(request)?;
    let session = session_of(request, endpoint, &identity)?;
    let last = headers
        .get("Last-Event-ID")
        .and_then(|id| id.to_str().ok())
        .and_then(streams::parse_event_id);
    let resumption = session.resume(last).map_err(|over| match over {
        // A cancelled request has no answer: 405 tells the client not to retry.
        ResumeError::Cancelled => method_not_allowed(),
        ResumeError::Dropped => stream_gone(),
    })?;
    let outbox = Arc::clone(&resumption.stream.outbox);
    let driver = Driver::StreamReader(resumption);
    let exchange = ResponseWriter::new(
        outbox,
        driver,
        socket_state(request),
        context,
        (Accepts::EVENTS, identity),
    );
    exchange.respond_with_stream(None).await
}

/// Opens a session of the HTTP+SSE transport (2024-11-05): its first event names the URL for POST, and all answers
/// follow on this stream.
async fn open_http_sse(request: &HttpRequest, endpoint: &Endpoint, context: &TransportContext) -> HttpResult {
    let identity = identity_of(request)?;
    let outbox = context
        .service
        .outbox(Framing::Events { stream: None }, identity.project.id());
    let exposure = exposure_of(request, &identity)?;
    let service = Arc::clone(&context.service);
    let peer = Peer::for_http_session(Arc::clone(&identity), Arc::clone(&outbox), service, exposure);
    let session = endpoint
        .sessions
        .open(context.replica_id(), peer, Arc::clone(&outbox), Arc::clone(&identity));
    // Relative to this URL, so that a prefix that a proxy takes away stays.
    let (_, resource) = request.path().rsplit_once('/').unwrap_or_default();
    let endpoint_event = format!(
        "event: endpoint\ndata: {resource}?{}={}\n\n",
        sessions::SESSION_QUERY_KEY,
        session.id
    );
    let driver = Driver::HttpSse {
        sessions: Arc::clone(&endpoint.sessions),
        session,
    };
    let exchange = ResponseWriter::new(
        outbox,
        driver,
        socket_state(request),
        context,
        (Accepts::EVENTS, identity),
    );
    exchange.respond_with_stream(Some(endpoint_event.into())).await
}
