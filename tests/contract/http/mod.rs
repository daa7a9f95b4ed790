//! HTTP in every revision of MCP, and the REST API: requests, sessions, streams, and hostile clients.

mod bodies;
mod cors;
mod hostile_clients;
mod listen;
mod modern;
mod modern_headers;
mod push;
mod replay;
mod replay_bounds;
mod rest;
mod session_presence;
mod sessions;
mod sse;
mod timeouts;
mod waits;

use std::io::Write;

use serde_json::json;

use crate::support::{Broker, HttpAgent, Request, ResponseReader, connect};

/// The `Accept` header of a client that prefers events.
const EVENTS_FIRST: &str = "text/event-stream, application/json";
const INBOX: &str = "broker://inbox";
const PUSH: &str = "notifications/dev.mcp-broker/message";
const UPDATED: &str = "notifications/resources/updated";

/// A client of 2026-07-28 that has registered no session.
fn unregistered_client(broker: &Broker) -> HttpAgent {
    HttpAgent::modern(broker.address, json!({}))
}

/// An HTTP session of this revision, in which no session of the broker is registered.
fn open_session(broker: &Broker, version: &str) -> HttpAgent {
    HttpAgent::legacy(broker.address, version, json!({}))
}

/// Sends a head that announces a body of `len` bytes, and no byte of the body.
pub(crate) fn send_head_only(request: &Request, len: usize) -> ResponseReader {
    let mut socket = connect(request.address);
    let head = format!("{}Content-Length: {len}\r\n\r\n", request.head());
    socket.write_all(head.as_bytes()).unwrap();
    ResponseReader::from_socket(socket)
}
