//! POST: a message or a batch, stateless or for a session.

use std::{borrow::Cow, sync::Arc};

use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
    web,
};
use actors::{
    clock::now,
    model::{BrokerError, PAGE_BYTES_MAX},
};

use super::{
    commands::SessionCommand,
    endpoint::{
        Endpoint, HttpResult, SESSION_ID, exposure_of, identity_of, require_capacity, session_of, socket_state,
    },
    headers::{self, Accepts},
    refusal::Refusal,
    response::{Driver, ResponseWriter},
    sessions::{self, HttpSession, HttpSessions},
};
use crate::transport::{TransportContext, body};
use api::{
    auth::Identity,
    budget::Reservation,
    mcp::{
        Exposure, Framing, Outbox, Peer, ResponseForm,
        owned_frame::OwnedFrame,
        rpc::{self, INVALID_REQUEST, Incoming, Malformed, Params, RpcError},
        tools,
        version::RequestMeta,
    },
    problem::Problem,
};
use common::telemetry;

/// Serves one POST: a message or a batch.
///
/// # Errors
/// The body or the headers are refused, the caller has no such session, or the endpoint is at its limit.
pub async fn handle_post(request: &HttpRequest, payload: web::Payload, endpoint: &Endpoint) -> HttpResult {
    let context = require_capacity(endpoint)?;
    headers::check_content_type(request.headers())?;
    let identity = identity_of(request)?;
    // Held until the request is answered, because the text lives as long.
    let mut inbound = Reservation::new(&context.inbound, identity.project.id());
    let reservation = body::BodyReservation {
        reservation: &mut inbound,
        socket: socket_state(request),
    };
    let body = body::read(request.headers(), payload, context.message_len_max(), reservation).await?;
    // The body may arrive long after the head; the key may have been revoked meanwhile.
    if !identity.is_valid(now().unix_ms) {
        return Ok(context.auth.invalid_credential().into_response());
    }
    if let Err(retry_after) = identity.take_extra_requests(body.len()) {
        let error = BrokerError::RateLimited { retry_after };
        return Ok(Problem::from(&error).into_response());
    }
    let text = std::str::from_utf8(&body).map_err(|_| {
        let error = RpcError::new(rpc::PARSE_ERROR, "Parse error: the body is not UTF-8");
        Refusal::new(StatusCode::BAD_REQUEST, error)
    })?;
    let post = PostRequest {
        request,
        identity,
        context,
        endpoint,
        text,
    };
    let parsed = rpc::parse(text).map_err(|malformed| {
        let Malformed { id, code, message } = malformed;
        Refusal::new(StatusCode::BAD_REQUEST, RpcError::new(code, message)).for_request(id)
    })?;
    if let Some(id) = sessions::session_id_in_query(request.query_string()) {
        let refuse = |refusal: Refusal| refusal.for_request(parsed.id());
        let session = endpoint.sessions.find_http_sse(id, &post.identity).map_err(refuse)?;
        session
            .accept_frame(
                OwnedFrame::new(text, Ok(&parsed)).with_http_trace(telemetry::trace_of(request)),
                socket_state(request).read_at(),
            )
            .await
            .map_err(refuse)?;
        return Ok(HttpResponse::Accepted().body("Accepted"));
    }
    match parsed {
        Incoming::Request { id, method, params } => {
            let answer = post.serve_request(id, method, params).await;
            answer.map_err(|refusal| refusal.for_request(Some(id)))
        }
        Incoming::Notification { .. } if headers::is_modern(request.headers()) => Ok(post.serve_modern_notification()),
        Incoming::Notification { .. } | Incoming::Response { .. } => {
            post.session()?
                .accept_frame(
                    OwnedFrame::new(text, Ok(&parsed)).with_http_trace(telemetry::trace_of(request)),
                    socket_state(request).read_at(),
                )
                .await?;
            Ok(HttpResponse::Accepted().finish())
        }
        Incoming::Batch(ref frames) => {
            let session = post.session()?;
            let has_requests = frames.iter().any(|frame| {
                !matches!(
                    rpc::parse(frame),
                    Ok(Incoming::Notification { .. } | Incoming::Response { .. })
                )
            });
            if has_requests || !session.supports_batches() {
                return post.serve_legacy(&session, &parsed, true).await;
            }
            let frame = OwnedFrame::new(text, Ok(&parsed)).with_http_trace(telemetry::trace_of(request));
            session.accept_frame(frame, socket_state(request).read_at()).await?;
            Ok(HttpResponse::Accepted().finish())
        }
    }
}

/// A POST in progress.
struct PostRequest<'a> {
    request: &'a HttpRequest,
    identity: Arc<Identity>,
    context: &'a TransportContext,
    endpoint: &'a Endpoint,
    text: &'a str,
}

impl PostRequest<'_> {
    /// The session that the request names.
    fn session(&self) -> Result<Arc<HttpSession>, Refusal> {
        session_of(self.request, self.endpoint, &self.identity)
    }

    async fn serve_request(&self, id: &str, method: Cow<'_, str>, params: Params<'_>) -> HttpResult {
        let _page = match &*method {
            // Each reserves what it needs.
            "tools/call" => None,
            method => Some(self.wait_for_room(method).await),
        };
        let meta = headers::check_era(self.request.headers(), &method, &params)?;
        let is_initialize = method == "initialize";
        let receives = meta.is_none() && params.named().is_some_and(|name| tools::hands_over_messages(&name));
        let request = Incoming::Request { id, method, params };
        match meta {
            Some(meta) => self.serve_modern(request, meta).await,
            None if is_initialize => self.initialize(&request).await,
            None => self.serve_legacy(&self.session()?, &request, receives).await,
        }
    }

    /// Serves a stateless request (2026-07-28).
    async fn serve_modern(&self, request: Incoming<'_>, meta: RequestMeta) -> HttpResult {
        let accepts = headers::accepts(self.request.headers())?;
        let listens = matches!(&request, Incoming::Request { method, .. } if method == "subscriptions/listen");
        if listens && !accepts.events() {
            return Err(headers::not_acceptable());
        }
        let form = accepts.form();
        let outbox = self.outbox(Framing::Exchange { stream: None, form });
        let service = Arc::clone(&self.context.service);
        let exposure = exposure_of(self.request, &self.identity)?;
        let mut peer = Peer::stateless(Arc::clone(&self.identity), Arc::clone(&outbox), service, exposure);
        peer.begin_read(socket_state(self.request).read_at(), now());
        peer.set_http_trace(telemetry::trace_of(self.request));
        peer.handle_request(self.text, request, meta);
        peer.finish_read(now());
        let exchange = self.response_writer(outbox, Driver::Stateless(Box::new(peer)), accepts);
        exchange.respond(headers::modern_status).await
    }

    fn serve_modern_notification(&self) -> HttpResponse {
        let form = ResponseForm::Whole;
        let outbox = self.outbox(Framing::Exchange { stream: None, form });
        let service = Arc::clone(&self.context.service);
        let mut peer = Peer::stateless(Arc::clone(&self.identity), outbox, service, Exposure::All);
        peer.handle_frame(self.text);
        HttpResponse::Accepted().finish()
    }

    async fn initialize(&self, request: &Incoming<'_>) -> HttpResult {
        if self.request.headers().contains_key(SESSION_ID) {
            self.session()?;
            let error = RpcError::new(INVALID_REQUEST, "Invalid Request: already initialized");
            return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
        }
        let accepts = headers::accepts(self.request.headers())?;
        let outbox = self.outbox(Framing::Events { stream: Some(0) });
        let service = Arc::clone(&self.context.service);
        let exposure = exposure_of(self.request, &self.identity)?;
        let peer = Peer::for_http_session(Arc::clone(&self.identity), Arc::clone(&outbox), service, exposure);
        let identity = Arc::clone(&self.identity);
        let sessions = &self.endpoint.sessions;
        let session = UnannouncedSession {
            sessions,
            session: sessions.open(self.context.replica_id(), peer, outbox, identity),
            is_announced: false,
        };
        // A response header carries the session id, so the session must be open first.
        let exchange = self
            .send_to_session(&session.session, request, false, accepts)
            .await?
            .await_first_frame();
        let answer = exchange.respond(headers::legacy_status).await;
        session.session.wait_until_processed().await;
        if session.session.version().is_none() {
            return answer;
        }
        answer.map(|response| session.announce(response))
    }

    /// Sends a frame with requests to its session (2025-11-25 and before) and answers them here.
    async fn serve_legacy(&self, session: &Arc<HttpSession>, frame: &Incoming<'_>, receives: bool) -> HttpResult {
        let accepts = headers::accepts(self.request.headers())?;
        let exchange = self.send_to_session(session, frame, receives, accepts).await?;
        exchange.respond(headers::legacy_status).await
    }

    async fn send_to_session(
        &self,
        session: &Arc<HttpSession>,
        frame: &Incoming<'_>,
        receives: bool,
        accepts: Accepts,
    ) -> Result<ResponseWriter, Refusal> {
        let permit = session.reserve(self.text.len()).await?;
        let (stream, framing) = session.next_stream(accepts.form());
        let outbox = self.outbox(framing);
        session.send(SessionCommand::Frame {
            frame: OwnedFrame::new(self.text, Ok(frame)).with_http_trace(telemetry::trace_of(self.request)),
            reply_outbox: Some(Arc::clone(&outbox)),
            read_at: socket_state(self.request).read_at(),
            permit,
        });
        let driver = Driver::SessionCall {
            session: Arc::clone(session),
            stream,
            may_hold_messages: receives,
        };
        Ok(self.response_writer(outbox, driver, accepts))
    }

    fn outbox(&self, framing: Framing) -> Arc<Outbox> {
        self.context.service.outbox(framing, self.identity.project.id())
    }

    /// Waits for room in the outbound budget, and takes a page of it if the answer is one.
    async fn wait_for_room(&self, method: &str) -> Reservation {
        let mut room = Reservation::new(&self.context.service.outbound, self.identity.project.id());
        if method.ends_with("/list") {
            room.grow_to(PAGE_BYTES_MAX).await;
        } else if room.gauge().is_full() {
            room.grow_to(1).await;
            room.set_bytes(0);
        }
        room
    }

    fn response_writer(&self, outbox: Arc<Outbox>, driver: Driver, accepts: Accepts) -> ResponseWriter {
        let identity = Arc::clone(&self.identity);
        ResponseWriter::new(
            outbox,
            driver,
            socket_state(self.request),
            self.context,
            (accepts, identity),
        )
    }
}

/// A session whose id the client has not received. It is closed on drop: the `initialize` may have failed, or the
/// client may have disconnected.
struct UnannouncedSession<'a> {
    sessions: &'a HttpSessions,
    session: Arc<HttpSession>,
    is_announced: bool,
}

impl UnannouncedSession<'_> {
    fn announce(mut self, mut response: HttpResponse) -> HttpResponse {
        if let Ok(id) = header::HeaderValue::from_str(&self.session.id) {
            response
                .headers_mut()
                .insert(header::HeaderName::from_static("mcp-session-id"), id);
            self.is_announced = true;
        }
        response
    }
}

impl Drop for UnannouncedSession<'_> {
    fn drop(&mut self) {
        if !self.is_announced {
            self.sessions.close(&self.session.id);
        }
    }
}
