//! Requests to other replicas, in the name of the caller of a request: a session is served by the replica that has it,
//! and the figures of processes are asked from each.

use std::{io, net::SocketAddr, time::Duration};

use actix_codec::Framed;
use actix_http::{
    ConnectionType, RequestHead, RequestHeadType, ResponseHead,
    h1::{ClientCodec, Message, MessageType},
};
use actix_rt::net::TcpStream;
use actix_web::{
    HttpRequest,
    body::BodySize,
    http::{
        StatusCode, Uri,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    web::{Bytes, BytesMut},
};
use futures_util::{SinkExt, StreamExt};
use tokio::time::timeout;

use super::socket;

/// Marks a forwarded request, which is not forwarded again.
pub const FORWARDED: HeaderName = HeaderName::from_static("mcp-broker-forwarded");
/// Timeout of connecting to another replica.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Hop-by-hop headers (RFC 9110, section 7.6.1), and headers that each connection sets itself.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::CONTENT_LENGTH,
    header::DATE,
    // The body was already received.
    header::EXPECT,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Connects to another replica.
///
/// # Errors
/// It cannot be reached within two seconds.
pub async fn connect(address: SocketAddr, stall_max: Duration) -> io::Result<TcpStream> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
    socket::configure_outgoing(&stream, stall_max)?;
    Ok(stream)
}

/// The head of the forwarded request: that of the caller with its credentials, without hop-by-hop headers.
pub fn forwarded_head(request: &HttpRequest) -> RequestHead {
    let mut head = RequestHead::default();
    head.method = request.method().clone();
    head.uri = request.uri().clone();
    head.headers = end_to_end_headers(request.headers());
    head.headers.insert(FORWARDED, HeaderValue::from_static("1"));
    head.set_connection_type(ConnectionType::Close);
    head
}

/// The headers that do not belong to one connection.
pub fn end_to_end_headers(headers: &HeaderMap) -> HeaderMap {
    let mut lasting = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if !HOP_BY_HOP.contains(name) {
            lasting.append(name.clone(), value.clone());
        }
    }
    lasting
}

/// Sends a request and waits for the head of its response.
///
/// # Errors
/// The connection broke, or the response is not HTTP.
pub async fn send_request(
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

/// Asks the replica at an address what its caller asked this one, at another URI and with this body. Returns the status and the body, of at
/// most `bytes_max` bytes.
///
/// # Errors
/// The replica cannot be reached, or the answer is incomplete or longer.
pub async fn ask(
    request: &HttpRequest,
    uri: Uri,
    body: Bytes,
    to: SocketAddr,
    stall_max: Duration,
    bytes_max: usize,
) -> io::Result<(StatusCode, Bytes)> {
    let socket = connect(to, stall_max).await?;
    let mut upstream = Framed::new(socket, ClientCodec::default());
    let mut head = forwarded_head(request);
    head.uri = uri;
    let answer = send_request(&mut upstream, head, body).await?;
    if upstream.codec_ref().message_type() == MessageType::None {
        return Ok((answer.status, Bytes::new()));
    }
    let mut upstream = upstream.into_map_codec(ClientCodec::into_payload_codec);
    let mut body = BytesMut::new();
    loop {
        match upstream.next().await {
            Some(Ok(Some(chunk))) if body.len() + chunk.len() <= bytes_max => body.extend_from_slice(&chunk),
            Some(Ok(Some(_))) => return Err(io::Error::other("the answer is too long")),
            Some(Ok(None)) => return Ok((answer.status, body.freeze())),
            Some(Err(error)) => return Err(io::Error::other(error)),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
