//! Keys, tokens and scopes: which caller is let in, what it may do, what it must not learn, and the audit log.

mod acting_project;
mod audit;
mod cookies;
mod credentials;
mod discovery;
mod isolation;
mod other_users;
mod revocation;
mod scopes;
mod secrets;
mod tokens;

use std::{
    io::{Read, Write},
    net::Shutdown,
};

use serde_json::json;

use crate::support::{Broker, HttpAgent, Request, connect, initialize_request};

/// A request that reports the identity of its caller.
fn identity_request(broker: &Broker) -> Request {
    Request::get(broker.address).with_path("/security/status")
}

fn handshake(broker: &Broker) -> Request {
    Request::get(broker.address)
        .with_path("/ws")
        .with("Connection", "Upgrade")
        .with("Upgrade", "websocket")
        .with("Sec-WebSocket-Version", "13")
        .with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
}

/// One request for each entry point.
fn entry_points(broker: &Broker) -> [Request; 5] {
    [
        HttpAgent::modern(broker.address, json!({})).asks("tools/list", json!({})),
        initialize_request(broker.address, "2025-11-25", json!({})),
        identity_request(broker),
        Request::get(broker.address).with_path("/api/v1/projects"),
        handshake(broker),
    ]
}

/// The status codes of all responses to these bytes, and their text.
fn send_raw(broker: &Broker, bytes: &[u8]) -> (Vec<u16>, String) {
    let mut socket = connect(broker.address);
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let statuses = answer.match_indices("HTTP/1.1 ");
    let statuses = statuses
        .map(|(at, _)| answer[at + 9..at + 12].parse().unwrap())
        .collect();
    (statuses, answer)
}
