//! The WebSocket handshake: checks the request and starts the connection's task.

use std::{io, sync::Arc};

use actix_codec::Framed;
use actix_http::{
    Request, Response, StatusCode,
    body::{BodySize, BoxBody, MessageBody},
    h1,
    header::{CONTENT_TYPE, SEC_WEBSOCKET_VERSION},
    ws,
};
use actix_web_actors::ws::HandshakeError;
use actors::metrics::TransportKind;
use futures_util::SinkExt;

use super::{frame::Decoder, wire::WebSocketWire};
use crate::{
    edge,
    transport::{LastingConnection, Socket, TransportContext},
};
use api::{
    auth::{Credentials, Identity},
    budget::Reservation,
    mcp::{Exposure, Framing, Peer},
    problem::{self, Problem},
};

/// Serves one upgrade request: answers with a refusal, or starts the connection's task.
///
/// # Errors
/// The I/O error of the handshake.
pub async fn upgrade(
    context: Option<TransportContext>,
    request: Request,
    mut framed: Framed<Socket, h1::Codec>,
) -> io::Result<()> {
    let Some(context) = context else {
        return refuse(framed, Problem::unavailable("the broker is starting")).await;
    };
    if let Err(problem) = check_handshake(&context, &request) {
        return refuse(framed, problem).await;
    }
    let credentials = Credentials {
        stranger: framed.io_ref().state().stranger(),
        ..Credentials::of(request.head())
    };
    let identity = match edge::authenticate(&context.auth, &credentials).await {
        Ok(identity) => identity,
        Err(problem) => return refuse(framed, problem).await,
    };
    let Some(exposure) = exposure_of(request.head().uri.path(), &identity) else {
        let detail = "no backend of this name: /ws shows all, /ws/broker the broker's own tools";
        return refuse(framed, Problem::new(StatusCode::NOT_FOUND, "backend_not_found", detail)).await;
    };
    let outbox = context.service.outbox(Framing::WebSocket, identity.project.id());
    let Some(permit) = context
        .connections
        .try_acquire(&outbox, &identity, TransportKind::Websocket)
    else {
        let problem = Problem::unavailable("too many connections: try again later");
        return refuse(framed, problem).await;
    };
    let mut response = ws::handshake_response(request.head());
    if offers_subprotocol(&request).is_some() {
        response.insert_header(("Sec-WebSocket-Protocol", SUBPROTOCOL));
    }
    let response = response.finish().drop_body();
    framed.send((response, BodySize::None).into()).await?;
    let parts = framed.into_parts();
    let inbound = Reservation::new(&context.inbound, identity.project.id());
    let peer = Peer::new(identity, Arc::clone(&outbox), Arc::clone(&context.service), exposure);
    let (io, address_permit) = parts.io.into_inner();
    let decoder = Decoder::new(context.message_len_max());
    let connection = LastingConnection::new(
        (io, WebSocketWire),
        peer,
        outbox,
        (decoder, inbound),
        context.timeouts,
        (permit, address_permit),
    );
    let first = parts.read_buf.to_vec();
    // A new task, so that the buffers of the handshake are freed.
    actix_rt::spawn(async move { drop(connection.run(first).await) });
    Ok(())
}

const SUBPROTOCOL: &str = "mcp";
const PATH: &str = "/ws";

/// What a path shows of the broker. `None` if the project has no such backend.
fn exposure_of(path: &str, identity: &Identity) -> Option<Exposure> {
    match exposed_segment(path) {
        Some(segment) => Exposure::of_segment(segment, &identity.project),
        None => Some(Exposure::All),
    }
}

/// The last segment of `/ws/NAME`.
fn exposed_segment(path: &str) -> Option<&str> {
    let segment = path.strip_prefix(PATH)?.strip_prefix('/')?;
    Some(segment).filter(|segment| !segment.is_empty() && !segment.contains('/'))
}

fn check_handshake(context: &TransportContext, request: &Request) -> Result<(), Problem> {
    let head = request.head();
    let bad = |status, detail: &str| Problem::new(status, "invalid_argument", detail);
    context.admission.check(head.headers())?;
    context.admission.check_site(head.headers(), false)?;
    let path = head.uri.path();
    if path != PATH && exposed_segment(path).is_none() {
        return Err(bad(StatusCode::NOT_FOUND, "WebSocket is served at /ws"));
    }
    ws::verify_handshake(head).map_err(|error| match error {
        HandshakeError::GetMethodRequired => bad(StatusCode::METHOD_NOT_ALLOWED, "a WebSocket starts with GET"),
        HandshakeError::UnsupportedVersion => {
            bad(StatusCode::UPGRADE_REQUIRED, "only WebSocket version 13 is supported")
                .with_header(SEC_WEBSOCKET_VERSION, "13")
        }
        _ => bad(
            StatusCode::BAD_REQUEST,
            "not a WebSocket handshake (RFC 6455, section 4.1)",
        ),
    })?;
    // A client that offers no subprotocol may be unable to; one that offers only others speaks another protocol.
    match offers_subprotocol(request) {
        Some(false) => Err(bad(StatusCode::BAD_REQUEST, "offer the subprotocol mcp")),
        _ => Ok(()),
    }
}

/// Whether `mcp` is among the offered subprotocols; `None` when none is offered.
fn offers_subprotocol(request: &Request) -> Option<bool> {
    let headers = request.head().headers();
    let mut offers = headers.get_all("Sec-WebSocket-Protocol").peekable();
    offers.peek()?;
    Some(
        offers
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|name| name.trim() == SUBPROTOCOL),
    )
}

async fn refuse(mut framed: Framed<Socket, h1::Codec>, problem: Problem) -> io::Result<()> {
    let (http_status, reason) = (problem.status.as_u16(), problem.detail());
    tracing::debug!(path = PATH, http_status, reason, "a request is refused");
    let mut response = Response::build(problem.status);
    response
        .insert_header((CONTENT_TYPE, problem::CONTENT_TYPE))
        .force_close();
    for header in problem.headers() {
        response.insert_header(header);
    }
    let (response, body) = response.body(problem.body()).into_parts();
    let body: BoxBody = MessageBody::boxed(body);
    let size = body.size();
    framed.send((response, size).into()).await?;
    if let Ok(bytes) = actix_http::body::to_bytes(body).await {
        framed.send(h1::Message::Chunk(Some(bytes))).await?;
    }
    framed.close().await
}
