//! Clients of a flood that call a tool over HTTP on persistent connections.

use std::{net::SocketAddr, thread, time::Duration};

use serde_json::json;

use super::{FloodState, SWITCH_DELAY_MAX};
use crate::{
    http::HttpConnection,
    messages::{MODERN, modern_meta},
    workloads::RunContext,
};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A call that is cheap for the broker, so that the accepted calls do no harm. Carries the headers of each connection
/// of the project.
pub fn request(bench: &RunContext) -> Vec<u8> {
    let params = json!({"name": "list_sessions", "arguments": {"limit": 1}, "_meta": modern_meta()});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: list_sessions\r\nContent-Length: {}\r\n\r\n{body}",
        bench.target().address,
        bench.target().headers,
        body.len(),
    )
    .into_bytes()
}

/// Runs one client with one request in flight.
pub fn client(address: SocketAddr, request: &[u8], shared: &FloodState) {
    let mut connection = None;
    while !shared.is_over() {
        if !shared.is_on() {
            thread::sleep(SWITCH_DELAY_MAX);
            continue;
        }
        let connect = || HttpConnection::open(address, ANSWER_TIMEOUT);
        let connected = connection.take().map_or_else(connect, Ok);
        let asked = connected.and_then(|mut open| {
            let status = open.ask(request)?.status();
            connection = Some(open);
            Ok(status)
        });
        match asked {
            Ok(200) => FloodState::add(&shared.accepted),
            Ok(429) => FloodState::add(&shared.refused),
            Ok(_) => FloodState::add(&shared.failed),
            Err(_) => {
                FloodState::add(&shared.lost);
                thread::sleep(SWITCH_DELAY_MAX);
            }
        }
    }
}
