//! Clients of a flood that call a tool over HTTP on persistent connections.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use memchr::memmem;
use serde_json::json;

use super::{FloodState, SWITCH_DELAY_MAX};
use crate::workloads::RunContext;

const MODERN: &str = "2026-07-28";
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A call that is cheap for the broker, so that the accepted calls do no harm. Carries the headers of each connection
/// of the project.
pub fn request(bench: &RunContext) -> Vec<u8> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "mcp-broker-load", "version": env!("CARGO_PKG_VERSION")},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": "list_sessions", "arguments": {"limit": 1}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: list_sessions\r\nContent-Length: {}\r\n\r\n{body}",
        bench.target.address,
        bench.target.headers,
        body.len(),
    )
    .into_bytes()
}

/// Runs one client with one request in flight.
pub fn client(address: SocketAddr, request: &[u8], shared: &FloodState) {
    let mut socket = None;
    let mut answer = vec![];
    while !shared.is_over() {
        if !shared.is_on() {
            thread::sleep(SWITCH_DELAY_MAX);
            continue;
        }
        let connected = socket.take().map_or_else(|| connect(address), Ok);
        let asked = connected.and_then(|mut open| {
            let status = exchange(&mut open, request, &mut answer)?;
            socket = Some(open);
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

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(socket)
}

/// Returns the status of the answer, which is read to its end.
fn exchange(socket: &mut TcpStream, request: &[u8], answer: &mut Vec<u8>) -> io::Result<u16> {
    answer.clear();
    socket.write_all(request)?;
    let mut chunk = [0; 4096];
    loop {
        if let Some(status) = complete(answer) {
            return Ok(status);
        }
        match socket.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => answer.extend_from_slice(&chunk[..len]),
        }
    }
}

/// The status, once the answer is complete.
fn complete(answer: &[u8]) -> Option<u16> {
    let end = memmem::find(answer, b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let len = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let is_whole = match len.and_then(|len| len.trim().parse::<usize>().ok()) {
        Some(len) => answer.len() >= end + len,
        None => answer.ends_with(b"0\r\n\r\n"),
    };
    is_whole.then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_to_its_end() {
        let known = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(complete(known), Some(429));
        assert_eq!(complete(&known[..known.len() - 1]), None);
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        assert_eq!(complete(chunked), Some(200));
        assert_eq!(complete(&chunked[..chunked.len() - 5]), None);
        assert_eq!(complete(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
