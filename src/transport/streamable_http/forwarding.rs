//! Requests for a session or a task that another replica has: this replica sends them on, and passes the response back.
//!
//! The id of a session or a task names the replica that made it, and the storage knows where each replica serves HTTP. So
//! a load balancer may send each request to any replica. A session has one [`Peer`](crate::mcp::Peer) wherever its
//! requests come in: its streams, answers, cancellations and subscriptions are all at one replica, and end with it.

use std::{
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actix_codec::Framed;
use actix_http::{
    ConnectionType, RequestHead, RequestHeadType, ResponseHead,
    h1::{ClientCodec, ClientPayloadCodec, Message, MessageType},
};
use actix_rt::net::TcpStream;
use actix_web::{
    HttpRequest, HttpResponse,
    body::{BodySize, MessageBody},
    http::{
        Method,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    web::{self, Bytes},
};
use actors::session::CloseReason;
use futures_util::{SinkExt, Stream, StreamExt};
use tokio::time::{Sleep, sleep, timeout};

use super::{
    Endpoint, HttpResult, SESSION_ID,
    headers::{self, Refusal},
    identity_of, require_capacity,
    sessions::{self, not_found},
    socket_state,
};
use crate::{
    budget::Reservation,
    mcp::{Framing, Outbox, ResponseForm, located_id, rpc},
    transport::{ConnectionPermit, SocketState, body, socket},
};

/// Marks a request that came from another replica. It is not sent on again, whatever it names.
const FORWARDED: HeaderName = HeaderName::from_static("mcp-broker-forwarded");
/// How long it may take to connect to another replica.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Once this replica stops, how long its callers still wait for another replica. What they wait for after that is given
/// up there, as if the caller had left.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Headers that belong to one connection (RFC 9110, section 7.6.1), and those that are set anew for each.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::CONTENT_LENGTH,
    header::DATE,
    // The body that was expected is here.
    header::EXPECT,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Where the replica serves HTTP that has what a request names. None: the request is served here.
///
/// # Errors
/// 503 when that cannot be found out now.
pub async fn destination(request: &HttpRequest, endpoint: &Endpoint) -> Result<Option<SocketAddr>, Refusal> {
    let Some(replicas) = endpoint.context.get().and_then(|gate| gate.replicas.as_ref()) else {
        return Ok(None);
    };
    let owner = named_id(request).and_then(located_id::replica_of);
    match owner.filter(|owner| *owner != replicas.own_id()) {
        // What a replica had that is gone is not found here either.
        Some(owner) => replicas.address_of(owner).await.map_err(|_| replica_unreachable()),
        None => Ok(None),
    }
}

/// The id of the session or the task that a request is for.
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

/// Sends a request on to the replica at an address. The response is the one that comes from there.
///
/// # Errors
/// 404 when nothing listens there, and the session is gone with the replica; 503 when it cannot be reached now, or ends
/// before it answers.
pub async fn forward(
    request: &HttpRequest,
    payload: Option<web::Payload>,
    endpoint: &Endpoint,
    to: SocketAddr,
) -> HttpResult {
    let gate = require_capacity(endpoint)?;
    let mut inbound = Reservation::new(&gate.inbound, identity_of(request)?.project.id());
    let room = body::BodyReservation {
        reservation: &mut inbound,
        socket: socket_state(request),
    };
    let body = match payload {
        Some(payload) => body::read(request.headers(), payload, gate.message_len_max(), room).await?,
        None => Bytes::new(),
    };
    let refuse = |refusal: Refusal| match std::str::from_utf8(&body).map(rpc::parse) {
        Ok(Ok(parsed)) => refusal.for_request(parsed.id()),
        _ => refusal,
    };
    let socket = connect(to, gate.timeouts.stall_timeout).await;
    let socket = socket.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused if !headers::is_modern(request.headers()) => refuse(not_found()),
        _ => refuse(replica_unreachable()),
    })?;

    // What the connections of this replica are told, this outbox hears: that it stops, or that the credential has ended.
    let form = ResponseForm::Events;
    let outbox = Arc::new(Outbox::new(Framing::Exchange { stream: None, form }));
    let mut caller = ForwardedCaller {
        permit: gate.connections.acquire_over_limit(&outbox, &identity_of(request)?),
        outbox,
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
            tracing::debug!(%error, replica = %to, "a replica did not answer a request that was sent on to it");
            Err(refuse(replica_unreachable()))
        }
        None => Err(refuse(Refusal::unavailable("this replica stops: try again"))),
    }
}

fn replica_unreachable() -> Refusal {
    Refusal::unavailable("the replica that has this session or task cannot be reached: try again")
}

async fn connect(address: SocketAddr, stall_max: Duration) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
    socket::configure_outgoing(&stream, stall_max)?;
    Ok(stream)
}

/// The head of a request as it came, but for what belongs to its connection.
fn forwarded_head(request: &HttpRequest) -> RequestHead {
    let mut head = RequestHead::default();
    head.method = request.method().clone();
    head.uri = request.uri().clone();
    head.headers = end_to_end_headers(request.headers());
    head.headers.insert(FORWARDED, HeaderValue::from_static("1"));
    head.set_connection_type(ConnectionType::Close);
    head
}

fn end_to_end_headers(headers: &HeaderMap) -> HeaderMap {
    let mut lasting = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if !HOP_BY_HOP.contains(name) {
            lasting.append(name.clone(), value.clone());
        }
    }
    lasting
}

async fn send_request(
    upstream: &mut Framed<TcpStream, ClientCodec>,
    head: RequestHead,
    body: Bytes,
) -> io::Result<ResponseHead> {
    let size = match body.len() {
        0 => BodySize::None,
        len => BodySize::Sized(len as u64),
    };
    upstream
        .send(Message::Item((RequestHeadType::Owned(head), size)))
        .await?;
    if !body.is_empty() {
        upstream.send(Message::Chunk(Some(body))).await?;
    }
    match upstream.next().await {
        Some(head) => head.map_err(io::Error::other),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The response of another replica, whose body goes on to the caller as it comes.
fn respond(head: ResponseHead, upstream: Framed<TcpStream, ClientCodec>, caller: ForwardedCaller) -> HttpResponse {
    let mut response = HttpResponse::build(head.status);
    for header in end_to_end_headers(&head.headers) {
        response.append_header(header);
    }
    let told_len = head.headers.get(header::CONTENT_LENGTH);
    let told_len = told_len.and_then(|len| len.to_str().ok()?.parse().ok());
    match upstream.codec_ref().message_type() {
        MessageType::None => response.finish(),
        MessageType::Payload | MessageType::Stream => response.body(ForwardedBody {
            upstream: upstream.into_map_codec(ClientCodec::into_payload_codec),
            caller,
            size: told_len.map_or(BodySize::Stream, BodySize::Sized),
            done: false,
        }),
    }
}

/// Who waits for a response of another replica.
struct ForwardedCaller {
    /// Its place among the connections; None when all have been told to go.
    permit: Option<ConnectionPermit>,
    outbox: Arc<Outbox>,
    socket: Rc<SocketState>,
    /// It reads the stream of its session, which ends when this replica stops.
    reads_stream: bool,
    stop_timer: Option<Pin<Box<Sleep>>>,
}

impl ForwardedCaller {
    /// Whether nothing more is to be passed on to it; asked whenever there may be something.
    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            if self.permit.is_none() || self.socket.has_peer_closed() {
                return true;
            }
            match self.outbox.closing() {
                None => {}
                Some(CloseReason::ShuttingDown) if !self.reads_stream => {
                    let stopping = self.stop_timer.get_or_insert_with(|| Box::pin(sleep(STOP_TIMEOUT)));
                    return stopping.as_mut().poll(cx).is_ready();
                }
                Some(_) => return true,
            }
            if self.outbox.register_waker(cx.waker()) {
                return false;
            }
        }
    }
}

/// The body of a response that another replica writes.
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
            // The replica ended in the middle of it.
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }
}
