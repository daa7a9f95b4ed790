//! MCP over Streamable HTTP at `/mcp`, both eras on one endpoint. `/sse` is the same endpoint, under the path that
//! clients of 2024-11-05 expect.
//!
//! A modern request (2026-07-28, with `_meta`) is stateless: its [`Peer`] lives as long as the response. An
//! `initialize` (2025-11-25 and before) opens an [`HttpSession`], whose peer runs in a task until the session is
//! deleted or times out; answers go to the HTTP requests that asked, everything else to the stream of its `GET`. A
//! `GET` without a session is a client of 2024-11-05 (HTTP+SSE transport), which gets all answers there.

mod commands;
mod forwarding;
mod headers;
mod replay_logs;
mod response;
mod sessions;
mod streams;

use std::{
    borrow::Cow,
    rc::Rc,
    sync::{Arc, OnceLock},
};

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::{StatusCode, header},
    web,
};
use actors::{clock::now, model::BrokerError};

use self::{
    commands::SessionCommand,
    headers::{Accepts, Refusal},
    response::{Driver, ResponseWriter},
    sessions::{HttpSession, ResumeError},
};
use super::{SocketState, TransportContext, body};
use crate::mcp::{
    Framing, Outbox, Peer, ResponseForm,
    rpc::{self, INVALID_REQUEST, Incoming, Malformed, Params, RpcError},
    tools,
    version::RequestMeta,
};
use crate::{auth::Identity, budget::Reservation, problem::Problem};

pub use sessions::HttpSessions;

/// State of the endpoint. `context` is set once the broker has started.
pub struct Endpoint {
    pub context: Arc<OnceLock<TransportContext>>,
    pub sessions: Arc<HttpSessions>,
}

/// Registers the routes.
pub fn routes(config: &mut web::ServiceConfig) {
    config.service(
        web::resource(["/mcp", SSE_PATH])
            .route(web::post().to(post))
            .route(web::get().to(get))
            .route(web::delete().to(delete))
            .default_service(web::to(not_allowed)),
    );
}

/// A `GET` here without a session opens an HTTP+SSE stream of 2024-11-05, for any version that the client names.
const SSE_PATH: &str = "/sse";
const SESSION_ID: &str = "Mcp-Session-Id";

type EndpointData = web::Data<Endpoint>;
type HttpResult = Result<HttpResponse, Refusal>;

async fn post(request: HttpRequest, payload: web::Payload, endpoint: EndpointData) -> HttpResponse {
    let answer = match forwarding::destination(&request, &endpoint).await {
        Ok(None) => handle_post(&request, payload, &endpoint).await,
        Ok(Some(replica)) => forwarding::forward(&request, Some(payload), &endpoint, replica).await,
        Err(refusal) => Err(refusal),
    };
    if matches!(&answer, Err(refusal) if refusal.closes()) {
        let len_max = endpoint
            .context
            .get()
            .map_or(0, TransportContext::discarded_body_len_max);
        socket_state(&request).discard_input(len_max);
    }
    into_response(answer)
}

async fn get(request: HttpRequest, endpoint: EndpointData) -> HttpResponse {
    into_response(match forwarding::destination(&request, &endpoint).await {
        Ok(None) => handle_get(&request, &endpoint).await,
        Ok(Some(replica)) => forwarding::forward(&request, None, &endpoint, replica).await,
        Err(refusal) => Err(refusal),
    })
}

async fn delete(request: HttpRequest, endpoint: EndpointData) -> HttpResponse {
    into_response(match forwarding::destination(&request, &endpoint).await {
        Ok(None) => handle_delete(&request, &endpoint),
        Ok(Some(replica)) => forwarding::forward(&request, None, &endpoint, replica).await,
        Err(refusal) => Err(refusal),
    })
}

async fn not_allowed() -> HttpResponse {
    into_response(Err(method_not_allowed()))
}

fn into_response(answer: HttpResult) -> HttpResponse {
    answer.unwrap_or_else(Refusal::into_response)
}

fn method_not_allowed() -> Refusal {
    let error = RpcError::new(
        INVALID_REQUEST,
        "this endpoint takes POST; GET and DELETE need the session of an initialize",
    );
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error).with_header(header::ALLOW, "POST, GET, DELETE")
}

fn stream_gone() -> Refusal {
    let reason = "the broker no longer keeps this stream: send the request again if its answer is still needed";
    Refusal::new(StatusCode::GONE, RpcError::new(INVALID_REQUEST, reason))
}

/// Returns the context if one more connection is allowed. Called before the request has any effect.
fn require_capacity(endpoint: &Endpoint) -> Result<&TransportContext, Refusal> {
    let context = endpoint.context.get().ok_or_else(Refusal::starting)?;
    if context.connections.has_room() {
        Ok(context)
    } else {
        Err(Refusal::unavailable("too many connections: try again later"))
    }
}

/// The identity that the authentication middleware found.
fn identity_of(request: &HttpRequest) -> Result<Arc<Identity>, Refusal> {
    let identity = request.extensions().get::<Arc<Identity>>().cloned();
    identity.ok_or_else(Refusal::starting)
}

/// Serves one POST: a message or a batch.
async fn handle_post(request: &HttpRequest, payload: web::Payload, endpoint: &Endpoint) -> HttpResult {
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
            .accept_frame(text, socket_state(request).read_at())
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
                .accept_frame(text, socket_state(request).read_at())
                .await?;
            Ok(HttpResponse::Accepted().finish())
        }
        Incoming::Batch(frames) => {
            let session = post.session()?;
            let asks = frames.iter().any(|frame| {
                !matches!(
                    rpc::parse(frame),
                    Ok(Incoming::Notification { .. } | Incoming::Response { .. })
                )
            });
            if asks || !session.supports_batches() {
                return post.serve_legacy(&session, true).await;
            }
            session.accept_frame(text, socket_state(request).read_at()).await?;
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
        if method != "tools/call" {
            self.wait_for_outbound_capacity().await;
        }
        if let Some(meta) = headers::check_era(self.request.headers(), &method, &params)? {
            return self.serve_modern(Incoming::Request { id, method, params }, meta).await;
        }
        if method == "initialize" {
            return self.initialize().await;
        }
        let takes = params.named().is_some_and(|name| tools::receives_messages(&name));
        self.serve_legacy(&self.session()?, takes).await
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
        let mut peer = Peer::stateless(Arc::clone(&self.identity), Arc::clone(&outbox), service);
        peer.begin_read(socket_state(self.request).read_at(), now());
        peer.handle_request(self.text, request, meta);
        peer.finish_read(now());
        let exchange = self.response_writer(outbox, Driver::Stateless(Box::new(peer)), accepts);
        exchange.respond(headers::modern_status).await
    }

    fn serve_modern_notification(&self) -> HttpResponse {
        let form = ResponseForm::Whole;
        let outbox = self.outbox(Framing::Exchange { stream: None, form });
        let mut peer = Peer::stateless(Arc::clone(&self.identity), outbox, Arc::clone(&self.context.service));
        peer.handle_frame(self.text);
        HttpResponse::Accepted().finish()
    }

    async fn initialize(&self) -> HttpResult {
        if self.request.headers().contains_key(SESSION_ID) {
            self.session()?;
            let error = RpcError::new(INVALID_REQUEST, "Invalid Request: already initialized");
            return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
        }
        let accepts = headers::accepts(self.request.headers())?;
        let outbox = self.outbox(Framing::Events { stream: Some(0) });
        let service = Arc::clone(&self.context.service);
        let peer = Peer::for_http_session(Arc::clone(&self.identity), Arc::clone(&outbox), service);
        let identity = Arc::clone(&self.identity);
        let sessions = &self.endpoint.sessions;
        let session = UnannouncedSession {
            sessions,
            session: sessions.open(self.context.replica_id(), peer, outbox, identity),
            is_announced: false,
        };
        // A response header carries the session id, so the session must be open first.
        let exchange = self
            .send_to_session(&session.session, false, accepts)
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
    async fn serve_legacy(&self, session: &Arc<HttpSession>, takes: bool) -> HttpResult {
        let accepts = headers::accepts(self.request.headers())?;
        let exchange = self.send_to_session(session, takes, accepts).await?;
        exchange.respond(headers::legacy_status).await
    }

    async fn send_to_session(
        &self,
        session: &Arc<HttpSession>,
        takes: bool,
        accepts: Accepts,
    ) -> Result<ResponseWriter, Refusal> {
        let permit = session.reserve(self.text.len()).await?;
        let (stream, framing) = session.next_stream(accepts.form());
        let outbox = self.outbox(framing);
        session.send(SessionCommand::Frame {
            text: self.text.to_owned(),
            reply_outbox: Some(Arc::clone(&outbox)),
            read_at: socket_state(self.request).read_at(),
            permit,
        });
        let driver = Driver::SessionCall {
            session: Arc::clone(session),
            stream,
            may_hold_messages: takes,
        };
        Ok(self.response_writer(outbox, driver, accepts))
    }

    fn outbox(&self, framing: Framing) -> Arc<Outbox> {
        self.context.service.outbox(framing, self.identity.project.id())
    }

    /// Waits while the outbound budget is full. Tool calls wait for their own reservations.
    async fn wait_for_outbound_capacity(&self) {
        let mut reservation = Reservation::new(&self.context.service.outbound, self.identity.project.id());
        if reservation.gauge().is_full() {
            reservation.grow_to(1).await;
        }
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

fn socket_state(request: &HttpRequest) -> Rc<SocketState> {
    request.conn_data::<Rc<SocketState>>().cloned().unwrap_or_default()
}

fn session_of(
    request: &HttpRequest,
    endpoint: &Endpoint,
    identity: &Arc<Identity>,
) -> Result<Arc<HttpSession>, Refusal> {
    let headers = request.headers();
    headers::check_legacy_version(headers)?;
    let mut ids = headers.get_all(SESSION_ID);
    let reason = match (ids.next(), ids.next()) {
        (Some(id), None) => return endpoint.sessions.find(id.to_str().unwrap_or(""), identity),
        (Some(_), Some(_)) => "Mcp-Session-Id is given twice",
        (None, _) => "neither an Mcp-Session-Id (initialize first) nor a request with the _meta of 2026-07-28",
    };
    let error = RpcError::new(INVALID_REQUEST, reason);
    Err(Refusal::new(StatusCode::BAD_REQUEST, error))
}

/// Serves one GET: the stream of a session, or the rest of a resumed stream.
async fn handle_get(request: &HttpRequest, endpoint: &Endpoint) -> HttpResult {
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
    let peer = Peer::for_http_session(Arc::clone(&identity), Arc::clone(&outbox), Arc::clone(&context.service));
    let session = endpoint
        .sessions
        .open(context.replica_id(), peer, Arc::clone(&outbox), Arc::clone(&identity));
    let endpoint_event = format!(
        "event: endpoint\ndata: {}?{}={}\n\n",
        request.path(),
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

fn handle_delete(request: &HttpRequest, endpoint: &Endpoint) -> HttpResult {
    let headers = request.headers();
    if headers::is_modern(headers) {
        return Err(method_not_allowed());
    }
    let session = session_of(request, endpoint, &identity_of(request)?)?;
    endpoint.sessions.close(&session.id);
    Ok(HttpResponse::NoContent().finish())
}
