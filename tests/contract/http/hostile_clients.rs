//! HTTP clients that read nothing, open too much or send random bytes: each costs a bounded amount of memory.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

use super::{EVENTS_FIRST, open_session, unregistered_client};
use crate::support::{Broker, HttpAgent, Request, ResponseReader, connect, eventually, exchange, initialize_request};

#[test]
fn messages_that_were_not_written_are_not_acknowledged() {
    const MESSAGES: usize = 24;
    let broker = Broker::start_with(&[
        "--log-level=warn",
        "--workers=2",
        "--stale-threshold=50s",
        "--queue-max-mb=64",
    ]);
    let alice = broker.agent("alice");
    let text = "x".repeat(1_000_000);
    let modern = {
        let capabilities = json!({"extensions": {"dev.mcp-broker/push": {"window": 1000, "ack": "auto"}}});
        let caller = HttpAgent::modern(broker.address, capabilities).registered("modern");
        let stream = caller.subscribes_as(&json!(1));
        (caller, stream)
    };
    let legacy = {
        let capabilities = json!({"experimental": {"dev.mcp-broker/push": {"window": 1000, "ack": "auto"}}});
        let caller = HttpAgent::legacy(broker.address, "2025-11-25", capabilities).registered("legacy");
        let stream = caller.opens_stream();
        (caller, stream)
    };
    for (caller, stream) in [modern, legacy] {
        let sent: Vec<_> = (0..MESSAGES).map(|_| alice.sends(&text).to(&caller.name).id).collect();
        // No socket buffers that much.
        let unread = sent.iter().filter(|id| alice.status_of(id) != "acknowledged").count();
        assert!(unread > MESSAGES / 2, "{} {unread}", caller.name);
        stream.disconnects();
        let last = sent.last().unwrap();
        alice.awaits_status(last, "queued");
        // Every message that is not acknowledged can be read, in order.
        let mut seen = Vec::new();
        while seen.last() != Some(last) {
            let read = caller.reads(json!({"limit": 5, "acknowledge": "immediate"}));
            assert!(!read.is_empty(), "{} {}", caller.name, seen.len());
            seen.extend(
                read.iter()
                    .map(|message| message["message_id"].as_str().unwrap().to_owned()),
            );
        }
        assert!(seen.len() >= unread, "{} of {unread}", seen.len());
        assert_eq!(seen, sent[MESSAGES - seen.len()..]);
    }
}

/// A client of 2025-11-25 and its stream, on which messages are pushed and which is not read.
fn open_unread_stream(broker: &Broker, name: &str) -> (HttpAgent, ResponseReader) {
    let capabilities = json!({"experimental": {"dev.mcp-broker/push": {"window": 65_536, "ack": "manual"}}});
    let caller = HttpAgent::legacy(broker.address, "2025-11-25", capabilities).registered(name);
    let stream = caller.opens_stream();
    (caller, stream)
}

/// The same with 2026-07-28.
fn open_unread_listen_stream(broker: &Broker, name: &str) -> (HttpAgent, ResponseReader) {
    let capabilities = json!({"extensions": {"dev.mcp-broker/push": {"window": 65_536, "ack": "manual"}}});
    let caller = HttpAgent::modern(broker.address, capabilities).registered(name);
    let stream = caller.subscribes_as(&json!(1));
    (caller, stream)
}

#[test]
fn a_client_that_does_not_read_its_stream_costs_bounded_memory() {
    const MESSAGES: usize = 150;
    const LEN: usize = 200_000;
    let broker = Broker::start_with(&["--stale-threshold=50s", "--log-level=warn"]);
    let alice = broker.agent("alice");
    let deaf: Vec<_> = (0..4)
        .map(|at| match at % 2 {
            0 => open_unread_stream(&broker, &format!("deaf{at}")),
            _ => open_unread_listen_stream(&broker, &format!("deaf{at}")),
        })
        .collect();
    let well = broker.push_agent("well", &json!({"ack": "auto"}));
    let before = broker.rss_kib();
    let text = "x".repeat(LEN);
    for _ in 0..MESSAGES {
        alice.sends(&text).to_everyone();
        assert_eq!(well.next_push()["payload"]["text"], text.as_str());
    }
    let grown = broker.rss_kib().saturating_sub(before);
    let kept = (MESSAGES * LEN / 1024) as u64;
    assert!(grown < kept + 40_000, "{grown} KiB for {kept} KiB of messages");
    // No message is lost: a client that reads again gets them.
    for (caller, mut stream) in deaf {
        for _ in 0..5 {
            let message = stream.next_notification("notifications/dev.mcp-broker/message");
            assert_eq!(message["message"]["payload"]["text"], text.as_str(), "{}", caller.name);
        }
    }
}

#[test]
fn answers_that_are_not_read_cost_bounded_memory() {
    let broker = Broker::start_with(&["--log-level=warn"]);
    let callers: Vec<_> = (0..4).map(|_| open_session(&broker, "2025-11-25")).collect();
    let list = |caller: &HttpAgent| caller.asks("tools/list", json!({})).with("Accept", EVENTS_FIRST);
    for caller in &callers {
        list(caller).sent().streams();
    }
    let before = broker.rss_kib();
    for _ in 0..300 {
        for caller in &callers {
            // Each client leaves once the answer has begun, and never asks for the rest.
            list(caller).sent().streams().disconnects();
        }
    }
    // Sixteen answers of each session are kept for a replay.
    let grown = broker.rss_kib().saturating_sub(before);
    assert!(grown < 30_000, "{grown} KiB");
}

#[test]
fn an_sse_client_that_does_not_read_costs_bounded_memory() {
    const POSTS: usize = 4000;
    let broker = Broker::start_with(&["--log-level=error", "--workers=2"]);
    let mut stream = Request::get(broker.address).sent().streams();
    let endpoint = format!("/{}", stream.next_event().unwrap().data);
    let frame = |id: usize, method: &str, params: Value| {
        let frame = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        Request::post(broker.address, frame.to_string()).with_path(&endpoint)
    };
    let params = json!({
        "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "deaf", "version": "1"},
    });
    assert_eq!(frame(0, "initialize", params).answered().status, 202);
    let before = broker.rss_kib();
    let socket = broker.socket();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    // Each request is small and has a large answer. It may be refused, delayed, or find the session gone.
    for id in 1..=POSTS {
        let mut writer = &socket;
        if writer.write_all(&frame(id, "tools/list", json!({})).bytes()).is_err() {
            break;
        }
        let mut answer = [0; 4096];
        let len = writer.read(&mut answer).unwrap_or(0);
        if !answer[..len].starts_with(b"HTTP/1.1 202") {
            break;
        }
    }
    // If this request is accepted, all requests before it have been.
    let last = frame(
        POSTS + 1,
        "tools/call",
        json!({"name": "register_session", "arguments": {"name": "deaf"}}),
    );
    let mut last = last.sent();
    last.socket().set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    if last.socket().peek(&mut [0]).is_ok() && last.status() == 202 {
        let alice = broker.agent("alice");
        eventually("the session is registered", || alice.presence_of("deaf"));
    }
    let grown = broker.rss_kib().saturating_sub(before);
    assert!(grown < 60_000, "{grown} KiB");
}

#[test]
fn a_connection_that_sends_requests_without_reading_is_not_read_further() {
    let broker = Broker::start_with(&["--log-level=warn"]);
    let request = unregistered_client(&broker).asks("tools/list", json!({})).bytes();
    let mut socket = connect(broker.address);
    socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let before = broker.rss_kib();
    let many = request.repeat(100);
    let mut taken = 0;
    while taken < 300 && socket.write_all(&many).is_ok() {
        taken += 1;
    }
    let grown = broker.rss_kib().saturating_sub(before);
    assert!(grown < 60_000, "{grown} KiB, {taken} times taken");
    assert_eq!(broker.get("/livez").status, 200);
}

#[test]
fn unused_sessions_make_room_for_new_ones() {
    let broker = Broker::start_with(&["--connections-max=200", "--log-level=error"]);
    let alice = broker.agent("alice");
    let first = open_session(&broker, "2025-11-25").registered("first");
    let listener = open_session(&broker, "2025-11-25").registered("listener");
    let mut stream = listener.opens_stream();
    listener
        .request("resources/subscribe", json!({"uri": "broker://inbox"}))
        .unwrap();
    // One connection for all, because the test is about many sessions.
    let socket = broker.socket();
    let bytes = initialize_request(broker.address, "2025-11-25", json!({})).bytes();
    let before = broker.rss_kib();
    let mut last = String::new();
    for _ in 0..3000 {
        let response = exchange(&socket, &bytes);
        assert_eq!(response.status, 200);
        response.header("mcp-session-id").unwrap().clone_into(&mut last);
    }
    let grown = broker.rss_kib().saturating_sub(before);
    assert!(grown < 40_000, "{grown} KiB");
    let newest = listener.asks("tools/list", json!({})).with("Mcp-Session-Id", last);
    assert_eq!(newest.answered().status, 200);
    assert_eq!(first.call("heartbeat", json!({})).answered().status, 404);
    // A client that reads its stream is not silent.
    alice.sends("hi").to("listener");
    stream.next_notification("notifications/resources/updated");
    listener.calls("heartbeat", json!({}));
}

#[test]
fn thousands_of_sessions_are_served() {
    let broker = Broker::start_with(&["--workers=2", "--log-level=error"]);
    let socket = broker.socket();
    let bytes = initialize_request(broker.address, "2025-11-25", json!({})).bytes();
    let before = broker.rss_kib();
    let ids: Vec<_> = (0..3000)
        .map(|_| exchange(&socket, &bytes).header("mcp-session-id").unwrap().to_owned())
        .collect();
    let grown = broker.rss_kib().saturating_sub(before);
    assert!(grown < 120_000, "{grown} KiB");
    let caller = open_session(&broker, "2025-11-25");
    for id in ids.iter().step_by(100) {
        let ping = caller.asks("ping", json!({})).with("Mcp-Session-Id", id.as_str());
        assert_eq!(ping.answered().status, 200);
    }
    for id in &ids {
        let delete = caller.delete_request().with("Mcp-Session-Id", id.as_str()).bytes();
        assert_eq!(exchange(&socket, &delete).status, 204);
    }
}

#[test]
fn a_stream_above_the_limit_is_told_to_retry_later() {
    let broker = Broker::start_with(&["--connections-max=6"]);
    let bob = open_session(&broker, "2025-11-25").registered("bob");
    let carol = unregistered_client(&broker).registered("carol");
    let mut streams = vec![bob.opens_stream()];
    let listen = carol.asks(
        "subscriptions/listen",
        json!({"notifications": {"resourceSubscriptions": [carol.inbox()]}}),
    );
    // The connection that registered the protocol may still count.
    let refused = eventually("a stream is refused", || {
        let mut reply = listen.sent();
        match reply.socket().set_read_timeout(Some(Duration::from_millis(500))) {
            Ok(()) => {}
            Err(error) => panic!("{error}"),
        }
        // A connection that waits to be accepted is not served either.
        let mut byte = [0];
        if reply.socket().peek(&mut byte).is_err() {
            return Some(None);
        }
        if reply.status() == 200 {
            streams.push(reply);
            return None;
        }
        Some(Some(reply.into_response()))
    });
    if let Some(response) = refused {
        assert_eq!(response.status, 503, "{response:?}");
        assert!(response.header("retry-after").is_some());
    }
    assert!(streams.len() >= 3, "{}", streams.len());
    drop(streams);
    // The streams that end make room.
    eventually("a stream is accepted again", || {
        (listen.sent().status() == 200).then_some(())
    });
}

/// A random number generator with a fixed seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[test]
fn random_bytes_do_no_harm() {
    let broker = Broker::start_with(&["--log-level=error"]);
    let alice = broker.agent("alice");
    let session = open_session(&broker, "2025-11-25").registered("legacy");
    let stateless = broker.http_modern("modern");
    let sources: Vec<Vec<u8>> = vec![
        stateless.call("heartbeat", json!({})).bytes(),
        stateless
            .asks(
                "subscriptions/listen",
                json!({"notifications": {"resourceSubscriptions": [stateless.inbox()]}}),
            )
            .bytes(),
        session.call("receive_messages", json!({"wait_seconds": 0.01})).bytes(),
        session.stream_request().with("Last-Event-ID", "1-2").bytes(),
        session
            .post(&json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]))
            .bytes(),
        initialize_request(broker.address, "2025-03-26", json!({})).bytes(),
        Request::get(broker.address).bytes(),
    ];
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..1500 {
        let mut bytes = sources[dice.below(sources.len())].clone();
        for _ in 0..=dice.below(6) {
            let at = dice.below(bytes.len());
            match dice.below(5) {
                0 => bytes[at] = dice.below(256) as u8,
                1 => bytes.truncate(at + 1),
                2 => bytes.insert(at, dice.below(256) as u8),
                3 => drop(bytes.remove(at)),
                _ => {
                    let other = &sources[dice.below(sources.len())];
                    let from = dice.below(other.len());
                    bytes.splice(at..at, other[from..].iter().copied());
                }
            }
            if bytes.is_empty() {
                bytes.push(0);
            }
        }
        let mut socket = connect(broker.address);
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(Shutdown::Write);
        if dice.below(4) > 0 {
            read_any(&socket);
        }
    }
    // The sessions survived, and no message was sent.
    session.calls("heartbeat", json!({}));
    stateless.calls("heartbeat", json!({}));
    alice.sees_nothing();
}

/// Reads until some bytes or the end come.
fn read_any(mut socket: &TcpStream) {
    let mut chunk = [0; 1024];
    let read = socket.read(&mut chunk);
    let text = String::from_utf8_lossy(&chunk);
    assert!(
        !read.is_ok_and(|len| len > 0) || (text.starts_with("HTTP/1.1 ") && !text.starts_with("HTTP/1.1 500")),
        "{text}"
    );
}

#[test]
fn headers_that_are_too_large_are_refused() {
    let broker = Broker::start();
    let caller = unregistered_client(&broker);
    let long = "x".repeat(1_000_000);
    for name in ["Mcp-Name", "Mcp-Session-Id", "Last-Event-ID", "Accept", "X"] {
        let mut socket = connect(broker.address);
        let request = caller.asks("server/discover", json!({})).with(name, long.clone());
        let _ = socket.write_all(&request.bytes());
        if let Some(response) = ResponseReader::from_socket(socket).into_response_if_complete() {
            assert!((400..500).contains(&response.status), "{name} {}", response.status);
        }
    }
    // A header that fits is answered without repeating all of it.
    let name = "x".repeat(20_000);
    let call = caller.asks("tools/call", json!({"name": name, "arguments": {}}));
    let response = call.with("Mcp-Name", "other").answered();
    assert_eq!(response.refusal(), (400, -32020));
    assert!(response.body.len() < 1000, "{}", response.body.len());
    let mut accept = vec!["x/y"; 1000].join(", ");
    accept.push_str(", application/json");
    let response = caller
        .asks("server/discover", json!({}))
        .with("Accept", accept)
        .answered();
    assert_eq!(response.status, 200);
}

#[test]
fn hostile_text_in_headers_reaches_no_log() {
    let broker = Broker::start_with(&["--log-level=debug", "--log-format=pretty"]);
    let caller = unregistered_client(&broker);
    let session = open_session(&broker, "2025-11-25");
    for value in ["\u{9b}2J", "a\u{202e}b", "\u{1b}[2J", "{\"level\":\"fake\"}"] {
        for name in [
            "Mcp-Session-Id",
            "MCP-Protocol-Version",
            "Mcp-Name",
            "Last-Event-ID",
            "Origin",
            "User-Agent",
        ] {
            let _ = caller
                .asks("server/discover", json!({}))
                .with(name, value)
                .sent()
                .into_response_if_complete();
            let _ = session
                .delete_request()
                .with(name, value)
                .with("Mcp-Session-Id", "x")
                .sent()
                .into_response_if_complete();
        }
    }
    for path in ["/mcp?session_id=%1b%5b2J", "/mcp?x=%0d%0afake"] {
        let response = Request::post(broker.address, "{}").with_path(path).answered();
        assert!(response.status >= 400);
    }
    let log = broker.log();
    assert!(!log.contains(|c: char| c.is_control() && c != '\n'), "{log:?}");
}

#[test]
fn notifications_for_a_stream_that_is_not_open_do_not_accumulate() {
    let broker = Broker::start_with(&["--log-level=error"]);
    let alice = broker.agent("alice");
    let bob = open_session(&broker, "2025-11-25").registered("bob");
    bob.request("resources/subscribe", json!({"uri": "broker://inbox"}))
        .unwrap();
    let before = broker.rss_kib();
    // The stream is not read while notifications are due.
    let read = bob
        .call("receive_messages", json!({"acknowledge": "immediate"}))
        .bytes();
    let socket = broker.socket();
    for _ in 0..2000 {
        let sent = alice.sends("x").begins_sending_to("bob");
        alice.wire.answer_to(&sent).unwrap();
        let response = exchange(&socket, &read);
        assert!(response.body.contains("message_id"), "{response:?}");
    }
    let grown = broker.rss_kib().saturating_sub(before);
    assert!(grown < 20_000, "{grown} KiB");
    let mut stream = bob.opens_stream();
    assert_eq!(
        stream.next_notification("notifications/resources/updated"),
        json!({"uri": "broker://inbox"})
    );
    // One notification came, not two thousand.
    bob.calls("heartbeat", json!({}));
    alice.sends("last").to("bob");
    let mut told = 0;
    bob.request("resources/unsubscribe", json!({"uri": "broker://inbox"}))
        .unwrap();
    bob.delete_request().answered();
    while let Some(event) = stream.next_event() {
        told += usize::from(!event.data.is_empty());
    }
    assert!(told < 10, "{told}");
    let _: Value = alice.calls("heartbeat", json!({}));
}
