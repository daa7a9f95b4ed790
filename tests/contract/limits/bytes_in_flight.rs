//! Bytes in flight: one caller holds a bounded number of bytes, and other callers have room.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::peek_at_once;
use crate::support::{Agent, Broker, HttpAgent, Request, Tenant, connect, eventually, masked_frame, read_frame};

const MIB: usize = 1024 * 1024;
/// Small budgets, so that a test can fill them.
const TIGHT: [&str; 3] = [
    "--max-payload-mb=4",
    "--inbound-buffer-mb=16",
    "--outbound-buffer-mb=32",
];
/// The growth of the process that is allowed under them: both budgets, the copies of one answer, and what the kernel and
/// the allocator keep. Without the bounds each of these tests takes several hundred MiB.
const GROWTH_MAX_KIB: u64 = 110 * 1024;

/// Stores this many dead letters of nearly the largest payload.
fn store_dead_letters(agent: &Agent, len: usize) {
    agent.calls(
        "register_protocol",
        json!({"name": "blob", "version": "1.0.0", "schema": {"type": "object"}}),
    );
    for _ in 0..len {
        let arguments = json!({
            "recipient_id": agent.name, "protocol_name": "blob", "protocol_version": "1.0.0",
            "payload": {"text": "x".repeat(3 * MIB)}, "headers": {"ttl_seconds": 1},
        });
        agent.calls("send_message", arguments);
    }
    eventually("all messages are dead letters", || {
        let letters = agent.calls("get_project_info", json!({}))["counts"]["dead_letters"].as_u64();
        (letters == Some(len as u64)).then_some(())
    });
}

fn list_dead_letters(id: usize) -> Value {
    let params = json!({"name": "list_dead_letters", "arguments": {"limit": 500}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// A project with much to read, another project, and the peak memory of the process so far in KiB.
fn prepared(broker: &Broker) -> (Tenant<'_>, Tenant<'_>, u64) {
    let (team, other) = (broker.project("team", &json!({})), broker.project("other", &json!({})));
    store_dead_letters(&team.agent("alice"), 4);
    (team, other, broker.peak_kib())
}

/// Asserts that the process has not grown by much, and that another project is served.
fn assert_bounded(broker: &Broker, other: &Tenant<'_>, before: u64) {
    let (alice, bob) = (other.agent("alice"), other.agent("bob"));
    alice.sends(&"x".repeat(3 * MIB)).to(&bob);
    assert_eq!(bob.reads(json!({})).len(), 1);
    let growth = broker.peak_kib().saturating_sub(before);
    assert!(growth < GROWTH_MAX_KIB, "grew by {growth} KiB");
}

#[test]
fn calls_of_one_connection_start_when_their_answers_have_room() {
    let broker = Broker::secured_with(&TIGHT);
    let (team, other, before) = prepared(&broker);
    let (response, mut socket) = broker.upgrade_on(broker.socket(), &[("X-API-Key", &team.key)]);
    assert_eq!(response.status, 101);
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"},
    }});
    let calls = (1..=250).map(list_dead_letters);
    let written: Vec<u8> = std::iter::once(hello)
        .chain(calls)
        .flat_map(|frame| masked_frame(0x81, frame.to_string().as_bytes()))
        .collect();
    socket.write_all(&written).unwrap();
    // The first bytes of an answer come; the rest is not read.
    let mut some = vec![0; MIB];
    socket.read_exact(&mut some).unwrap();
    assert_bounded(&broker, &other, before);
    drop(socket);
    // Nothing is left of them: the next caller of the project is answered.
    team.client().calls("list_dead_letters", json!({}));
}

#[test]
fn concurrent_requests_start_when_their_answers_have_room() {
    let broker = Broker::secured_with(&TIGHT);
    let (team, other, before) = prepared(&broker);
    let modern = team.http_modern_as(&team.key);
    let legacy = team.http_legacy_as(&team.key);
    let ask = |caller: &HttpAgent| -> Vec<_> {
        let request = caller.call("list_dead_letters", json!({"limit": 500}));
        (0..30).map(|_| send_unread(&broker, &request)).collect()
    };
    let mut waiting = [ask(&modern), ask(&legacy)].into_iter().flatten().collect();
    let others = other.http_modern_as(&other.key);
    others.calls("list_dead_letters", json!({}));
    assert_bounded(&broker, &other, before);
    // A client that reads gets its answer, one after the other. Which of them has room first is up to the broker.
    for _ in 0..3 {
        let mut socket = take_answered(&mut waiting);
        let mut head = [0; 12];
        socket.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        let mut rest = vec![0; 6 * MIB];
        socket.read_exact(&mut rest).unwrap();
    }
}

/// Sends a request whose answer is not read.
fn send_unread(broker: &Broker, request: &Request) -> TcpStream {
    let mut socket = connect(broker.address);
    socket.write_all(&request.bytes()).unwrap();
    socket
}

/// Removes a socket whose long answer has begun to come.
fn take_answered(waiting: &mut Vec<TcpStream>) -> TcpStream {
    /// More than the head of an answer whose body waits for room.
    const BEGUN_LEN: usize = 64 * 1024;
    let mut begun = vec![0; BEGUN_LEN];
    let at = eventually("an answer begins", || {
        waiting
            .iter()
            .position(|socket| peek_at_once(socket, &mut begun).is_ok_and(|len| len == BEGUN_LEN))
    });
    waiting.swap_remove(at)
}

#[test]
fn a_batch_is_answered_as_far_as_its_answers_have_room() {
    let broker = Broker::secured_with(&TIGHT);
    let (team, other, before) = prepared(&broker);
    let agent = Agent::legacy(team.wire(), "2025-03-26", &json!({}));
    let batch: Vec<_> = (1..=40).map(list_dead_letters).collect();
    agent.wire.sends(&json!(batch));
    let answers = agent.wire.awaits_frame("the answers", Value::is_array);
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 40);
    let refused = answers
        .iter()
        .filter(|answer| answer["error"]["code"] == -32000)
        .count();
    assert_eq!(refused, 39);
    assert_bounded(&broker, &other, before);
}

/// A connection that receives pushes and reads no more than the answer to its registration.
fn subscribed(broker: &Broker, team: &Tenant<'_>, name: &str) -> TcpStream {
    let (response, mut socket) = broker.upgrade_on(broker.socket(), &[("X-API-Key", &team.key)]);
    assert_eq!(response.status, 101);
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {"experimental": {"dev.mcp-broker/push": {}}},
        "clientInfo": {"name": "a test", "version": "1"},
    }});
    let params = json!({"name": "register_session", "arguments": {"name": name}});
    let register = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    for frame in [hello, register] {
        socket
            .write_all(&masked_frame(0x81, frame.to_string().as_bytes()))
            .unwrap();
        read_frame(&mut socket);
    }
    socket
}

#[test]
fn pushes_to_many_slow_readers_are_bounded_together() {
    let broker = Broker::secured_with(&TIGHT);
    let (team, other) = (broker.project("team", &json!({})), broker.project("other", &json!({})));
    let alice = team.agent("alice");
    let mut slow: Vec<_> = (0..60)
        .map(|at| subscribed(&broker, &team, &format!("slow{at}")))
        .collect();
    let before = broker.peak_kib();
    // More than the kernel buffers for a client that does not read.
    for _ in 0..5 {
        alice.sends(&"x".repeat(3 * MIB)).to_everyone();
    }
    assert_bounded(&broker, &other, before);
    // The room of clients that leave goes to those that read.
    let mut last = slow.pop().unwrap();
    drop(slow);
    last.read_exact(&mut vec![0; 15 * MIB]).unwrap();
}

#[test]
fn waiting_calls_take_a_message_when_its_answer_has_room() {
    let broker = Broker::secured_with(&TIGHT);
    let (team, other) = (broker.project("team", &json!({})), broker.project("other", &json!({})));
    let alice = team.agent("alice");
    let mut waiting: Vec<_> = (0..60)
        .map(|at| {
            let caller = team.http_modern_as(&team.key).registered(&format!("waits{at}"));
            send_unread(&broker, &caller.call("receive_messages", json!({"wait_seconds": 100})))
        })
        .collect();
    let before = broker.peak_kib();
    for _ in 0..3 {
        alice.sends(&"x".repeat(3 * MIB)).to_everyone();
    }
    assert_bounded(&broker, &other, before);
    // The room of clients that leave goes to those that read.
    let mut last = waiting.pop().unwrap();
    drop(waiting);
    last.read_exact(&mut vec![0; 6 * MIB]).unwrap();
}

/// Writes a message that never ends, as many bytes as the broker reads.
fn write_endless_message(socket: &mut TcpStream, head: &[u8]) {
    socket.set_nonblocking(true).unwrap();
    let mut left = [head, &vec![b'x'; 3 * MIB]].concat();
    let mut idle = 0;
    while !left.is_empty() && idle < 3 {
        match socket.write(&left) {
            Ok(len) => drop(left.drain(..len)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                idle += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(_) => break,
        }
    }
    socket.set_nonblocking(false).unwrap();
}

#[test]
fn unfinished_messages_wait_for_room_without_delaying_small_ones() {
    let broker = Broker::secured_with(&TIGHT);
    let (team, other) = (broker.project("team", &json!({})), broker.project("other", &json!({})));
    let bob = team.agent("bob");
    let before = broker.peak_kib();
    let mut held = Vec::new();
    for at in 0..90 {
        let socket = match at % 3 {
            0 => {
                let (response, mut socket) = broker.upgrade_on(broker.socket(), &[("X-API-Key", &team.key)]);
                assert_eq!(response.status, 101);
                write_endless_message(&mut socket, &masked_frame(0x81, &vec![b' '; 4 * MIB])[..14]);
                socket
            }
            1 => {
                let mut socket = connect(broker.address);
                let post = team.http_modern_as(&team.key).asks("server/discover", json!({}));
                let head = format!("{}Content-Length: {}\r\n\r\n", post.head(), 4 * MIB);
                write_endless_message(&mut socket, head.as_bytes());
                socket
            }
            _ => {
                let mut socket = connect(broker.address);
                let post = team.http_modern_as(&team.key).asks("server/discover", json!({}));
                let head = format!("{}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", post.head(), 4 * MIB);
                write_endless_message(&mut socket, head.as_bytes());
                socket
            }
        };
        held.push(socket);
    }
    // A small message of the same project is served, on a connection and as a request.
    bob.sends("hi").to(&bob);
    bob.sees(["hi"]);
    team.http_modern_as(&team.key).calls("list_sessions", json!({}));
    assert_bounded(&broker, &other, before);
    drop(held);
    // Afterwards a large message fits again.
    bob.sends(&"x".repeat(3 * MIB)).to(&bob);
}

#[test]
fn an_idle_connection_that_holds_room_is_closed_when_others_wait() {
    let broker = Broker::secured_with(&TIGHT);
    let team = broker.project("team", &json!({}));
    let bob = team.agent("bob");
    // Beside two of 3 MiB, a third does not fit into the half of the budget that one project may use.
    let mut idle: Vec<_> = (0..2)
        .map(|_| {
            let (response, mut socket) = broker.upgrade_on(broker.socket(), &[("X-API-Key", &team.key)]);
            assert_eq!(response.status, 101);
            socket
                .write_all(&[&masked_frame(0x81, &vec![b' '; 3 * MIB])[..14], &[b'x'; 8192]].concat())
                .unwrap();
            socket
        })
        .collect();
    let (began, before) = (Instant::now(), broker.processor_time());
    bob.sends(&"x".repeat(3 * MIB)).to(&bob);
    // Waiting takes no processor time: a connection that polled would use a whole processor.
    let (waited, worked) = (began.elapsed(), Duration::from_nanos(broker.processor_time() - before));
    assert!(worked < waited / 10, "{worked:?} of {waited:?}");
    // The room of one of them was enough.
    let mut received = [Vec::new(), Vec::new()];
    eventually("an idle connection is closed with the code 1013", || {
        let mut sockets = idle.iter_mut().zip(&mut received);
        let is_closed = sockets.any(|(socket, received)| {
            // Until there is nothing to read: an error then.
            socket.set_nonblocking(true).unwrap();
            let _ = socket.read_to_end(received);
            received.windows(2).any(|code| code == 1013_u16.to_be_bytes())
        });
        is_closed.then_some(())
    });
}

#[test]
fn a_client_that_writes_a_large_body_before_reading_gets_the_refusal() {
    let broker = Broker::start_with(&["--max-payload-mb=2"]);
    let post = HttpAgent::modern(broker.address, json!({})).asks("server/discover", json!({}));
    for framing in ["length", "chunks"] {
        let mut socket = connect(broker.address);
        let len = 7 * MIB;
        let head = match framing {
            "length" => format!("{}Content-Length: {len}\r\n\r\n", post.head()),
            _ => format!("{}Transfer-Encoding: chunked\r\n\r\n{len:x}\r\n", post.head()),
        };
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(&vec![b' '; len]).unwrap();
        if framing == "chunks" {
            socket.write_all(b"\r\n0\r\n\r\n").unwrap();
        }
        let mut head = [0; 12];
        socket.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 413", "{framing}");
    }
}
