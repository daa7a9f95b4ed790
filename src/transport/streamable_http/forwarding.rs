//! Forwards a request to the replica that owns its session or task, and passes the response back.
//!
//! The id of a session or task names the replica that made it, and the storage knows each replica's HTTP address. So a
//! load balancer may send each request to any replica. A session has one [`Peer`](api::mcp::Peer), at one replica,
//! wherever its requests arrive: its streams, answers, cancellations and subscriptions end with that replica.

use std::{
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use actix_codec::Framed;
use actix_http::{
    ResponseHead,
    h1::{ClientCodec, ClientPayloadCodec, MessageType},
};
use actix_rt::net::TcpStream;
use actix_web::{
    HttpRequest, HttpResponse,
    body::{BodySize, MessageBody},
    http::{Method, header},
    web::{self, Bytes},
};
use actors::{metrics::TransportKind, session::CloseReason};
use futures_util::Stream;
use tokio::time::{Sleep, sleep};

use super::{
    endpoint::{Endpoint, HttpResult, SESSION_ID, identity_of, require_capacity, socket_state},
    headers,
    refusal::Refusal,
    sessions::{self, not_found},
};
use crate::transport::{
    OpenResponse, SocketState, body,
    replica_client::{FORWARDED, connect, end_to_end_headers, forwarded_head, send_request},
};
use api::{
    budget::Reservation,
    mcp::{located_id, rpc},
};

/// After this replica started to stop: how long its callers still wait for another replica. Then the request is
/// dropped, as if the caller had disconnected.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Returns the HTTP address of the replica that owns what a request names. `None`: the request is served here.
///
/// # Errors
/// 503 when the storage cannot tell.
pub async fn destination(request: &HttpRequest, endpoint: &Endpoint) -> Result<Option<SocketAddr>, Refusal> {
    let Some(replicas) = endpoint.context.get().and_then(|context| context.replicas.as_ref()) else {
        return Ok(None);
    };
    let owner = named_id(request).and_then(located_id::replica_of);
    match owner.filter(|owner| *owner != replicas.own_id()) {
        // A lost replica has no address: the request is served here, and finds nothing.
        Some(owner) => replicas.address_of(owner).await.map_err(|_| replica_unreachable()),
        None => Ok(None),
    }
}

/// The id of the session or task that a request is for.
fn named_id(request: &HttpRequest) -> Option<&str> {
    let headers = request.headers();
    if headers.contains_key(FORWARDED) {
        return None;
    }
    if *request.method() == Method::POST
        && let Some(session) = sessions::session_id_in_query(request.query_string())
    {
        return Some(session);
    }
    if headers::is_modern(headers) {
        return headers::task_id(headers);
    }
    headers.get(SESSION_ID)?.to_str().ok()
}

/// Forwards a request to the replica at an address and returns its response.
///
/// # Errors
/// 404 when nothing listens at the address: the session ended with its replica. 503 when the replica cannot be reached
/// or ends before it answers.
pub async fn forward(
    request: &HttpRequest,
    payload: Option<web::Payload>,
    endpoint: &Endpoint,
    to: SocketAddr,
) -> HttpResult {
    let context = require_capacity(endpoint)?;
    let mut inbound = Reservation::new(&context.inbound, identity_of(request)?.project.id());
    let reservation = body::BodyReservation {
        reservation: &mut inbound,
        socket: socket_state(request),
    };
    let body = match payload {
        Some(payload) => body::read(request.headers(), payload, context.message_len_max(), reservation).await?,
        None => Bytes::new(),
    };
    let refuse = |refusal: Refusal| match std::str::from_utf8(&body).map(rpc::parse) {
        Ok(Ok(parsed)) => refusal.for_request(parsed.id()),
        _ => refusal,
    };
    let socket = connect(to, context.timeouts.stall_timeout).await;
    let socket = socket.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused if !headers::is_modern(request.headers()) => refuse(not_found()),
        _ => refuse(replica_unreachable()),
    })?;

    let mut caller = ForwardedCaller {
        response: OpenResponse::open_over_limit(context, &identity_of(request)?, TransportKind::Forwarded),
        socket: socket_state(request),
        reads_stream: *request.method() == Method::GET,
        stop_timer: None,
    };
    let mut upstream = Framed::new(socket, ClientCodec::default());
    let head = {
        let mut answered = pin!(send_request(&mut upstream, forwarded_head(request), body.clone()));
        std::future::poll_fn(|cx| {
            if caller.is_gone(cx) {
                Poll::Ready(None)
            } else {
                answered.as_mut().poll(cx).map(Some)
            }
        })
        .await
    };
    match head {
        Some(Ok(head)) => Ok(respond(head, upstream, caller)),
        Some(Err(error)) => {
            tracing::debug!(%error, replica = %to, "a replica did not answer a forwarded request");
            Err(refuse(replica_unreachable()))
        }
        None => Err(refuse(Refusal::unavailable("this replica is stopping: try again"))),
    }
}

fn replica_unreachable() -> Refusal {
    Refusal::unavailable("the replica that owns this session or task cannot be reached: try again")
}

/// The response of another replica, whose body is streamed to the caller.
fn respond(head: ResponseHead, upstream: Framed<TcpStream, ClientCodec>, caller: ForwardedCaller) -> HttpResponse {
    let mut response = HttpResponse::build(head.status);
    for header in end_to_end_headers(&head.headers) {
        response.append_header(header);
    }
    let content_length = head.headers.get(header::CONTENT_LENGTH);
    let content_length = content_length.and_then(|len| len.to_str().ok()?.parse().ok());
    match upstream.codec_ref().message_type() {
        MessageType::None => response.finish(),
        MessageType::Payload | MessageType::Stream => response.body(ForwardedBody {
            upstream: upstream.into_map_codec(ClientCodec::into_payload_codec),
            caller,
            size: content_length.map_or(BodySize::Stream, BodySize::Sized),
            done: false,
        }),
    }
}

/// The caller that waits for another replica's response.
struct ForwardedCaller {
    /// `None` when the broker stops already.
    response: Option<OpenResponse>,
    socket: Rc<SocketState>,
    /// It reads the stream of its session, which ends when this replica stops.
    reads_stream: bool,
    stop_timer: Option<Pin<Box<Sleep>>>,
}

impl ForwardedCaller {
    /// Whether nothing more is to be sent to the caller. Called on each poll.
    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(response) = self.response.as_ref().filter(|_| !self.socket.has_peer_closed()) else {
            return true;
        };
        match response.poll_closed(cx) {
            Poll::Pending => false,
            Poll::Ready(CloseReason::ShuttingDown) if !self.reads_stream => {
                let stopping = self.stop_timer.get_or_insert_with(|| Box::pin(sleep(STOP_TIMEOUT)));
                stopping.as_mut().poll(cx).is_ready()
            }
            Poll::Ready(_) => true,
        }
    }
}

/// The body of a forwarded response.
struct ForwardedBody {
    upstream: Framed<TcpStream, ClientPayloadCodec>,
    caller: ForwardedCaller,
    size: BodySize,
    done: bool,
}

impl MessageBody for ForwardedBody {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, io::Error>>> {
        if self.done || self.caller.is_gone(cx) {
            return Poll::Ready(None);
        }
        let next = Pin::new(&mut self.upstream).poll_next(cx);
        next.map(|next| match next {
            Some(Ok(Some(chunk))) => Some(Ok(chunk)),
            Some(Ok(None)) => {
                self.done = true;
                None
            }
            Some(Err(error)) => Some(Err(io::Error::other(error))),
            // The replica ended in the middle of the body.
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }
}
