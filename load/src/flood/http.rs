//! Clients of a flood that call a tool over HTTP on persistent connections.

use std::{net::SocketAddr, thread, time::Duration};

use serde_json::json;
use test_client::{http::Connection, mcp};

use super::{FloodState, SWITCH_DELAY_MAX};
use crate::workloads::RunContext;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A call that is cheap for the broker, so that the accepted calls do no harm. Carries the headers of each connection
/// of the project.
pub fn request(bench: &RunContext) -> Vec<u8> {
    let target = bench.target();
    let params = json!({"name": "list_sessions", "arguments": {"limit": 1}});
    let mut request = mcp::modern(&json!(1), "tools/call", params);
    for (name, value) in target.headers.lines().filter_map(|line| line.split_once(": ")) {
        request.add(name, value);
    }
    request.encode(target.address)
}

/// Runs one client with one request in flight.
pub fn client(address: SocketAddr, request: &[u8], shared: &FloodState) {
    let mut connection = None;
    while !shared.is_over() {
        if !shared.is_on() {
            thread::sleep(SWITCH_DELAY_MAX);
            continue;
        }
        let connect = || Connection::open(address, ANSWER_TIMEOUT);
        let connected = connection.take().map_or_else(connect, Ok);
        let asked = connected.and_then(|mut open| {
            let status = open.ask(request)?.head.status;
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
