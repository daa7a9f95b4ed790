//! MCP over Streamable HTTP at `/mcp`, in both eras on one endpoint. `/sse` is the same endpoint under the name that
//! clients of 2024-11-05 expect.
//!
//! A request with modern `_meta` (2026-07-28) stands for itself and is served by a [`Peer`] that lives as long as its
//! answer. An `initialize` (2025-11-25 and before) opens a [`Session`], whose peer lives in a task of its own until it
//! is deleted or forgotten; the answers to its requests go to the HTTP requests that brought them, and what nobody
//! asked for goes to the stream of its `GET`. A `GET` that names no session is a client of 2024-11-05, which gets all
//! its answers there.

mod commands;
mod exchange;
mod forwarding;
mod headers;
mod logs;
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
    commands::Command,
    exchange::{Driver, Exchange},
    headers::{Accepts, Refusal},
    sessions::{Over, Session},
};
use super::{Gate, Line, body};
use crate::mcp::{
    Form, Framing, Outbox, Peer,
    rpc::{self, INVALID_REQUEST, Incoming, Malformed, Params, RpcError},
    tools,
    version::RequestMeta,
};
use crate::{auth::Identity, budget::Hold, problem::Problem};

pub use sessions::Sessions;

/// What the endpoint needs to know. The gate is there as soon as the broker has started.
pub struct Endpoint {
    pub gate: Arc<OnceLock<Gate>>,
    pub sessions: Arc<Sessions>,
}

/// Adds the routes.
pub fn routes(config: &mut web::ServiceConfig) {
    config.service(
        web::resource(["/mcp", SSE_PATH])
            .route(web::post().to(post))
            .route(web::get().to(get))
            .route(web::delete().to(delete))
            .default_service(web::to(not_allowed)),
    );
}

/// A `GET` here without a session opens a stream of 2024-11-05, whatever version the client names.
const SSE_PATH: &str = "/sse";
const SESSION_ID: &str = "Mcp-Session-Id";

type Shared = web::Data<Endpoint>;
type Answer = Result<HttpResponse, Refusal>;

async fn post(request: HttpRequest, payload: web::Payload, endpoint: Shared) -> HttpResponse {
    let answer = match forwarding::destination(&request, &endpoint).await {
        Ok(None) => take(&request, payload, &endpoint).await,
        Ok(Some(replica)) => forwarding::forward(&request, Some(payload), &endpoint, replica).await,
        Err(refusal) => Err(refusal),
    };
    if matches!(&answer, Err(refusal) if refusal.closes()) {
        let len_max = endpoint.gate.get().map_or(0, Gate::refused_len_max);
        line(&request).refuse(len_max);
    }
    served(answer)
}

async fn get(request: HttpRequest, endpoint: Shared) -> HttpResponse {
    served(match forwarding::destination(&request, &endpoint).await {
        Ok(None) => listen(&request, &endpoint).await,
        Ok(Some(replica)) => forwarding::forward(&request, None, &endpoint, replica).await,
        Err(refusal) => Err(refusal),
    })
}

async fn delete(request: HttpRequest, endpoint: Shared) -> HttpResponse {
    served(match forwarding::destination(&request, &endpoint).await {
        Ok(None) => end(&request, &endpoint),
        Ok(Some(replica)) => forwarding::forward(&request, None, &endpoint, replica).await,
        Err(refusal) => Err(refusal),
    })
}

async fn not_allowed() -> HttpResponse {
    served(Err(method_not_allowed()))
}

fn served(answer: Answer) -> HttpResponse {
    answer.unwrap_or_else(Refusal::into_response)
}

fn method_not_allowed() -> Refusal {
    let error = RpcError::new(
        INVALID_REQUEST,
        "this endpoint takes POST; GET and DELETE need the session of an initialize",
    );
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error).with_header(header::ALLOW, "POST, GET, DELETE")
}

fn gone() -> Refusal {
    let reason = "the broker no longer keeps this stream: send the request again if its answer is still needed";
    Refusal::new(StatusCode::GONE, RpcError::new(INVALID_REQUEST, reason))
}

/// Whether there is room for somebody who may have to wait, asked before anything is done.
fn open_gate(endpoint: &Endpoint) -> Result<&Gate, Refusal> {
    let gate = endpoint.gate.get().ok_or_else(Refusal::starting)?;
    if gate.connections.has_room() {
        Ok(gate)
    } else {
        Err(Refusal::unavailable(
            "no place for another connection now: try again later",
        ))
    }
}

/// Who calls, as was found before the request came here.
fn identity_of(request: &HttpRequest) -> Result<Arc<Identity>, Refusal> {
    let identity = request.extensions().get::<Arc<Identity>>().cloned();
    identity.ok_or_else(Refusal::starting)
}

/// One POST: a message, or a batch of them.
async fn take(request: &HttpRequest, payload: web::Payload, endpoint: &Endpoint) -> Answer {
    let gate = open_gate(endpoint)?;
    headers::check_content_type(request.headers())?;
    let identity = identity_of(request)?;
    // Held until the request is answered, for as long as its text is there.
    let mut inbound = Hold::new(&gate.inbound, identity.project.id());
    let room = body::Room {
        hold: &mut inbound,
        line: line(request),
    };
    let body = body::read(request.headers(), payload, gate.message_len_max(), room).await?;
    // The body may have come long after the key, which may have been revoked in between.
    if !identity.is_good(now().unix_ms) {
        return Ok(gate.auth.good_no_more().into_response());
    }
    if let Err(retry_after) = identity.take_rest_of(body.len()) {
        let error = BrokerError::RateLimited { retry_after };
        return Ok(Problem::from(&error).into_response());
    }
    let text = std::str::from_utf8(&body).map_err(|_| {
        let error = RpcError::new(rpc::PARSE_ERROR, "Parse error: the body is not UTF-8");
        Refusal::new(StatusCode::BAD_REQUEST, error)
    })?;
    let post = Post {
        request,
        identity,
        gate,
        endpoint,
        text,
    };
    let parsed = rpc::parse(text).map_err(|malformed| {
        let Malformed { id, code, message } = malformed;
        Refusal::new(StatusCode::BAD_REQUEST, RpcError::new(code, message)).to(id)
    })?;
    if let Some(id) = sessions::id_in_query(request.query_string()) {
        let refuse = |refusal: Refusal| refusal.to(parsed.id());
        let session = endpoint.sessions.find_old(id, &post.identity).map_err(refuse)?;
        session.take(text, line(request).read_at()).await.map_err(refuse)?;
        return Ok(HttpResponse::Accepted().body("Accepted"));
    }
    match parsed {
        Incoming::Request { id, method, params } => {
            let answer = post.request(id, method, params).await;
            answer.map_err(|refusal| refusal.to(Some(id)))
        }
        Incoming::Notification { .. } if headers::is_modern(request.headers()) => Ok(post.modern_notification()),
        Incoming::Notification { .. } | Incoming::Response { .. } => {
            post.session()?.take(text, line(request).read_at()).await?;
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
            if asks || !session.takes_batches() {
                return post.legacy(&session, true).await;
            }
            session.take(text, line(request).read_at()).await?;
            Ok(HttpResponse::Accepted().finish())
        }
    }
}

/// A POST under way.
struct Post<'a> {
    request: &'a HttpRequest,
    identity: Arc<Identity>,
    gate: &'a Gate,
    endpoint: &'a Endpoint,
    text: &'a str,
}

impl Post<'_> {
    /// The session that the request names.
    fn session(&self) -> Result<Arc<Session>, Refusal> {
        session_of(self.request, self.endpoint, &self.identity)
    }

    async fn request(&self, id: &str, method: Cow<'_, str>, params: Params<'_>) -> Answer {
        if method != "tools/call" {
            self.waits_for_room().await;
        }
        if let Some(meta) = headers::check_era(self.request.headers(), &method, &params)? {
            return self.modern(Incoming::Request { id, method, params }, meta).await;
        }
        if method == "initialize" {
            return self.initialize().await;
        }
        let takes = params.named().is_some_and(|name| tools::takes_messages(&name));
        self.legacy(&self.session()?, takes).await
    }

    /// A request that stands for itself (2026-07-28).
    async fn modern(&self, request: Incoming<'_>, meta: RequestMeta) -> Answer {
        let accepts = headers::accepts(self.request.headers())?;
        let listens = matches!(&request, Incoming::Request { method, .. } if method == "subscriptions/listen");
        if listens && !accepts.events() {
            return Err(headers::not_acceptable());
        }
        let form = accepts.form();
        let outbox = self.outbox(Framing::Exchange { stream: None, form });
        let service = Arc::clone(&self.gate.service);
        let mut peer = Peer::stateless(Arc::clone(&self.identity), Arc::clone(&outbox), service);
        peer.reads(line(self.request).read_at(), now());
        peer.request(self.text, request, meta);
        peer.end_turn(now());
        let exchange = self.exchange(outbox, Driver::Stateless(Box::new(peer)), accepts);
        exchange.respond(headers::modern_status).await
    }

    fn modern_notification(&self) -> HttpResponse {
        let form = Form::Whole;
        let outbox = self.outbox(Framing::Exchange { stream: None, form });
        let mut peer = Peer::stateless(Arc::clone(&self.identity), outbox, Arc::clone(&self.gate.service));
        peer.frame(self.text);
        HttpResponse::Accepted().finish()
    }

    async fn initialize(&self) -> Answer {
        if self.request.headers().contains_key(SESSION_ID) {
            self.session()?;
            let error = RpcError::new(INVALID_REQUEST, "Invalid Request: already initialized");
            return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
        }
        let accepts = headers::accepts(self.request.headers())?;
        let outbox = self.outbox(Framing::Events { stream: Some(0) });
        let service = Arc::clone(&self.gate.service);
        let peer = Peer::resumable(Arc::clone(&self.identity), Arc::clone(&outbox), service);
        let identity = Arc::clone(&self.identity);
        let sessions = &self.endpoint.sessions;
        let session = Unheard {
            sessions,
            session: sessions.open(self.gate.replica(), peer, outbox, identity),
            told: false,
        };
        // Its answer names the session in a header, so it has to be there first.
        let exchange = self
            .asks(&session.session, false, accepts)
            .await?
            .after_the_first_frame();
        let answer = exchange.respond(headers::legacy_status).await;
        session.session.caught_up().await;
        if session.session.version().is_none() {
            return answer;
        }
        answer.map(|response| session.tell(response))
    }

    /// A frame with requests of a session (2025-11-25 and before), answered here.
    async fn legacy(&self, session: &Arc<Session>, takes: bool) -> Answer {
        let accepts = headers::accepts(self.request.headers())?;
        let exchange = self.asks(session, takes, accepts).await?;
        exchange.respond(headers::legacy_status).await
    }

    async fn asks(&self, session: &Arc<Session>, takes: bool, accepts: Accepts) -> Result<Exchange, Refusal> {
        let room = session.room(self.text.len()).await?;
        let (stream, framing) = session.open_stream(accepts.form());
        let outbox = self.outbox(framing);
        session.tell(Command::Frame {
            text: self.text.to_owned(),
            lane: Some(Arc::clone(&outbox)),
            read_at: line(self.request).read_at(),
            room,
        });
        let driver = Driver::Call {
            session: Arc::clone(session),
            stream,
            takes,
        };
        Ok(self.exchange(outbox, driver, accepts))
    }

    fn outbox(&self, framing: Framing) -> Arc<Outbox> {
        self.gate.service.outbox(framing, self.identity.project.id())
    }

    /// Waits until there is room for an answer, if there is none: calls of tools see to that themselves.
    async fn waits_for_room(&self) {
        let mut hold = Hold::new(&self.gate.service.outbound, self.identity.project.id());
        if hold.gauge().is_full() {
            hold.grow(1).await;
        }
    }

    fn exchange(&self, outbox: Arc<Outbox>, driver: Driver, accepts: Accepts) -> Exchange {
        let identity = Arc::clone(&self.identity);
        Exchange::new(outbox, driver, line(self.request), self.gate, (accepts, identity))
    }
}

/// A session whose id nobody has heard yet. It ends unless somebody does: what opens it may have been refused, or its
/// client have gone.
struct Unheard<'a> {
    sessions: &'a Sessions,
    session: Arc<Session>,
    told: bool,
}

impl Unheard<'_> {
    fn tell(mut self, mut response: HttpResponse) -> HttpResponse {
        if let Ok(id) = header::HeaderValue::from_str(&self.session.id) {
            response
                .headers_mut()
                .insert(header::HeaderName::from_static("mcp-session-id"), id);
            self.told = true;
        }
        response
    }
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.sessions.close(&self.session.id);
        }
    }
}

fn line(request: &HttpRequest) -> Rc<Line> {
    request.conn_data::<Rc<Line>>().cloned().unwrap_or_default()
}

fn session_of(request: &HttpRequest, endpoint: &Endpoint, identity: &Arc<Identity>) -> Result<Arc<Session>, Refusal> {
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

/// One GET: the stream of a session, or the rest of another stream of it.
async fn listen(request: &HttpRequest, endpoint: &Endpoint) -> Answer {
    let gate = open_gate(endpoint)?;
    let headers = request.headers();
    if !headers::accepts(headers)?.events() || !headers.contains_key(header::ACCEPT) {
        return Err(method_not_allowed());
    }
    // Every session of the later revisions has an id, so a request without one is of 2024-11-05. Some clients of that
    // transport name a later revision here; 2026-07-28 has no GET at its endpoint.
    let names_session = headers.contains_key(SESSION_ID);
    let is_modern = headers::is_modern(headers);
    if !names_session && (!is_modern || request.path() == SSE_PATH) {
        return listen_old(request, endpoint, gate).await;
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
        // There will never be an answer to a cancelled request: the client is to ask no further.
        Over::Cancelled => method_not_allowed(),
        Over::Dropped => gone(),
    })?;
    let outbox = Arc::clone(&resumption.stream.outbox);
    let driver = Driver::Reader(resumption);
    let exchange = Exchange::new(outbox, driver, line(request), gate, (Accepts::EVENTS, identity));
    exchange.stream(None).await
}

/// The transport of 2024-11-05: all that the broker says goes to this stream, and its first event says where to POST.
async fn listen_old(request: &HttpRequest, endpoint: &Endpoint, gate: &Gate) -> Answer {
    let identity = identity_of(request)?;
    let outbox = gate
        .service
        .outbox(Framing::Events { stream: None }, identity.project.id());
    let peer = Peer::resumable(Arc::clone(&identity), Arc::clone(&outbox), Arc::clone(&gate.service));
    let session = endpoint
        .sessions
        .open(gate.replica(), peer, Arc::clone(&outbox), Arc::clone(&identity));
    let endpoint_event = format!(
        "event: endpoint\ndata: {}?{}={}\n\n",
        request.path(),
        sessions::QUERY_KEY,
        session.id
    );
    let driver = Driver::Old {
        sessions: Arc::clone(&endpoint.sessions),
        session,
    };
    let exchange = Exchange::new(outbox, driver, line(request), gate, (Accepts::EVENTS, identity));
    exchange.stream(Some(endpoint_event.into())).await
}

fn end(request: &HttpRequest, endpoint: &Endpoint) -> Answer {
    let headers = request.headers();
    if headers::is_modern(headers) {
        return Err(method_not_allowed());
    }
    let session = session_of(request, endpoint, &identity_of(request)?)?;
    endpoint.sessions.close(&session.id);
    Ok(HttpResponse::NoContent().finish())
}
