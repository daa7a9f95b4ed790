use std::{io, sync::Arc};

use actix_codec::Framed;
use actix_http::{
    Request, Response, StatusCode,
    body::{BodySize, BoxBody, MessageBody},
    h1, ws,
};
use actix_web_actors::ws::HandshakeError;
use actors::model::ProjectId;
use futures_util::SinkExt;

use super::connection::Connection;
use crate::{
    mcp::{Framing, Outbox, Peer},
    transport::{Gate, Socket},
};

/// Serves one request to upgrade: refuses it as HTTP, or becomes a connection.
pub async fn upgrade(gate: Option<Gate>, request: Request, mut framed: Framed<Socket, h1::Codec>) -> io::Result<()> {
    let Some(gate) = gate else {
        return refuse(
            framed,
            Refusal(StatusCode::SERVICE_UNAVAILABLE, "the broker is starting"),
        )
        .await;
    };
    if let Err(refusal) = admit(&gate, &request) {
        return refuse(framed, refusal).await;
    }
    let outbox = Arc::new(Outbox::new(Framing::WebSocket));
    let Some(seat) = gate.connections.seat(&outbox) else {
        return refuse(
            framed,
            Refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "no place for another connection now: try again later",
            ),
        )
        .await;
    };
    let Ok(project) = gate.broker.project(&ProjectId::default_project()).await else {
        return refuse(
            framed,
            Refusal(StatusCode::SERVICE_UNAVAILABLE, "the broker is busy: try again"),
        )
        .await;
    };
    let mut response = ws::handshake_response(request.head());
    if offered(&request).is_some() {
        response.insert_header(("Sec-WebSocket-Protocol", SUBPROTOCOL));
    }
    let response = response.finish().drop_body();
    framed.send((response, BodySize::None).into()).await?;
    let parts = framed.into_parts();
    let peer = Peer::new(project, Arc::clone(&outbox), Arc::clone(&gate.service));
    let message_len_max = gate.message_len_max();
    let connection = Connection::new(parts.io.into_inner(), peer, outbox, message_len_max, gate.tempo, seat);
    let first = parts.read_buf.to_vec();
    // Its own task: what served the handshake is given back with its buffers.
    actix_rt::spawn(connection.run(first));
    Ok(())
}

const SUBPROTOCOL: &str = "mcp";

struct Refusal(StatusCode, &'static str);

fn admit(gate: &Gate, request: &Request) -> Result<(), Refusal> {
    let head = request.head();
    gate.admission
        .check(head.headers())
        .map_err(|reason| Refusal(StatusCode::FORBIDDEN, reason))?;
    if head.uri.path() != "/ws" {
        return Err(Refusal(StatusCode::NOT_FOUND, "WebSocket is served at /ws"));
    }
    ws::verify_handshake(head).map_err(|error| match error {
        HandshakeError::GetMethodRequired => Refusal(StatusCode::METHOD_NOT_ALLOWED, "WebSocket begins with GET"),
        HandshakeError::UnsupportedVersion => Refusal(StatusCode::UPGRADE_REQUIRED, "WebSocket version 13 is spoken"),
        _ => Refusal(
            StatusCode::BAD_REQUEST,
            "not a WebSocket handshake (RFC 6455, section 4.1)",
        ),
    })?;
    // A client that offers nothing may be one that cannot; one that offers only others speaks something else.
    match offered(request) {
        Some(false) => Err(Refusal(StatusCode::BAD_REQUEST, "offer the subprotocol mcp")),
        _ => Ok(()),
    }
}

/// Whether `mcp` is among the subprotocols on offer; None when there are none.
fn offered(request: &Request) -> Option<bool> {
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

async fn refuse(mut framed: Framed<Socket, h1::Codec>, Refusal(status, reason): Refusal) -> io::Result<()> {
    let body = serde_json::json!({"type": "about:blank", "title": status.canonical_reason(), "status": status.as_u16(), "detail": reason});
    let mut response = Response::build(status);
    response
        .insert_header(("content-type", "application/problem+json"))
        .force_close();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.insert_header(("retry-after", "1"));
    }
    if status == StatusCode::UPGRADE_REQUIRED {
        response.insert_header(("sec-websocket-version", "13"));
    }
    let (response, body) = response.body(body.to_string()).into_parts();
    let body: BoxBody = MessageBody::boxed(body);
    let size = body.size();
    framed.send((response, size).into()).await?;
    if let Ok(bytes) = actix_http::body::to_bytes(body).await {
        framed.send(h1::Message::Chunk(Some(bytes))).await?;
    }
    framed.close().await
}
