//! WebSocket clients that read slowly or not at all harm only themselves.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::{Agent, Broker, Wire, eventually, masked_frame, read_frame};

/// Connects a client that receives pushes and reads nothing after the answer to its registration.
fn connect_deaf_client(broker: &Broker, name: &str, window: usize) -> TcpStream {
    let mut socket = broker.upgraded();
    let hello = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "clientInfo": {"name": "deaf", "version": "1"},
            "capabilities": {"experimental": {"dev.mcp-broker/push": {"window": window, "ack": "manual"}}},
        },
    });
    let register = json!({
        "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "register_session", "arguments": {"name": name}},
    });
    for frame in [hello, register] {
        socket
            .write_all(&masked_frame(0x81, frame.to_string().as_bytes()))
            .unwrap();
    }
    // Reads the two answers and not one byte more.
    while !String::from_utf8_lossy(&read_frame(&mut socket)).contains("\"resumed\"") {}
    socket
}

#[test]
fn a_client_that_does_not_read_costs_bounded_memory() {
    const MESSAGES: usize = 300;
    const LEN: usize = 200_000;
    let broker = Broker::start_with(&["--stale-threshold=50s", "--log-level=warn"]);
    let alice = broker.agent("alice");
    let deaf: Vec<_> = (0..4)
        .map(|at| connect_deaf_client(&broker, &format!("deaf{at}"), 65_536))
        .collect();
    let well = broker.push_agent("well", &json!({"ack": "auto"}));
    let before = broker.rss_kib();
    // The broker keeps one copy of each message for all recipients, and no further copy for a client that does not read.
    let text = "x".repeat(LEN);
    for _ in 0..MESSAGES {
        alice.sends(&text).to_everyone();
        assert_eq!(well.next_push()["payload"]["text"], text.as_str());
    }
    let grown = broker.rss_kib() - before;
    let kept = (MESSAGES * LEN / 1024) as u64;
    // The disk engine also keeps a table of its last writes in memory.
    let besides = if broker.answers_after_delivery() {
        40_000
    } else {
        120_000
    };
    assert!(grown < kept + besides, "{grown} KiB for {kept} KiB of messages");
    drop(deaf);
}

#[test]
fn a_client_that_reads_nothing_is_closed_and_keeps_its_messages() {
    // The close frame is offered for two seconds and must be read within them to be seen. A machine that is too busy
    // for that gets another attempt.
    for attempt in 0.. {
        let broker = Broker::start_with(&[
            "--heartbeat-interval=100ms",
            "--stale-threshold=1s",
            "--disconnect-threshold=60s",
        ]);
        let alice = broker.agent("alice");
        let deaf = connect_deaf_client(&broker, "deaf", 1000);
        let text = "x".repeat(100_000);
        let calls: Vec<_> = (0..60).map(|_| alice.sends(&text).begins_sending_to("deaf")).collect();
        let sent: Vec<_> = calls
            .iter()
            .map(|call| alice.finishes_call("send_message", call)["message_id"].take())
            .map(|id| id.as_str().unwrap().to_owned())
            .collect();
        // Other clients are unaffected.
        let bob = broker.agent("bob");
        alice.sends("quick").to(&bob);
        bob.sees(["quick"]);
        std::thread::sleep(Duration::from_millis(2000));
        let closed = Wire::on_stream(deaf).awaits_close();
        for id in &sent {
            alice.awaits_status(id, "queued");
        }
        let again = broker.agent("deaf");
        let mut seen = Vec::new();
        while seen.len() < sent.len() {
            let read = again.reads(json!({"limit": 10}));
            assert!(!read.is_empty());
            seen.extend(read);
        }
        let ids = |messages: &[serde_json::Value]| -> Vec<String> {
            let id = |message: &serde_json::Value| message["message_id"].as_str().unwrap().to_owned();
            messages.iter().map(id).collect()
        };
        assert_eq!(ids(&seen), sent);
        if closed.code == Some(4003) {
            break;
        }
        assert!(attempt < 3, "{closed:?}");
    }
}

#[test]
fn a_client_that_reads_slowly_stays_connected() {
    let broker = Broker::start_with(&[
        "--heartbeat-interval=100ms",
        "--stale-threshold=1s",
        "--disconnect-threshold=60s",
    ]);
    let alice = broker.agent("alice");
    let mut slow = connect_deaf_client(&broker, "slow", 1000);
    let text = "x".repeat(100_000);
    for _ in 0..60 {
        alice.sends(&text).to("slow");
    }
    // Three times the threshold, a few bytes at a time.
    let began = Instant::now();
    let mut chunk = vec![0; 64 * 1024];
    let mut len = 0;
    while began.elapsed() < Duration::from_secs(3) {
        len += slow.read(&mut chunk).unwrap();
        std::thread::sleep(Duration::from_millis(60));
    }
    assert!(len < 60 * text.len(), "the client was not slow");
    alice.sends("still there").to("slow");
    assert_eq!(
        alice
            .presence_of("slow")
            .as_deref()
            .map(|status| status != "disconnected"),
        Some(true)
    );
    let wire = Wire::on_stream(slow);
    drop(wire);
}

#[test]
fn a_client_that_sends_without_reading_is_not_read_further() {
    let broker = Broker::start_with(&["--stale-threshold=50s", "--log-level=warn", "--workers=1"]);
    let alice = broker.agent("alice");
    let mut deaf = connect_deaf_client(&broker, "deaf", 1);
    deaf.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let before = broker.rss_kib();
    // Each request is small and has a large answer.
    let list = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"}).to_string();
    let frames = masked_frame(0x81, list.as_bytes()).repeat(100);
    let mut taken = 0;
    while taken < 200 && deaf.write_all(&frames).is_ok() {
        taken += 1;
    }
    // Other clients are served meanwhile. Each call gives the only worker a turn to read more from the deaf client's socket.
    for _ in 0..1000 {
        alice.calls("heartbeat", json!({}));
    }
    let grown = broker.rss_kib().saturating_sub(before);
    assert!(grown < 60_000, "{grown} KiB, {taken} times taken");
}

#[test]
fn a_half_open_connection_is_detected_and_its_inbox_kept() {
    let broker = Broker::with_fast_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.push_agent("bob", &json!({"ack": "manual"}));
    alice.sends("hi").to(&bob);
    bob.is_pushed(["hi"]);
    // The peer stays connected and sends nothing, as behind a network that drops all packets.
    bob.wire.stops_answering_pings();
    bob.wire.closes_with(4002);
    let bob = broker.push_agent("bob", &json!({"ack": "manual"}));
    assert_eq!(bob.is_pushed(["hi"])[0]["delivery_count"], 2);
}

#[test]
fn a_client_that_dies_with_calls_in_flight_leaves_nothing_behind() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for round in 0..20 {
        let bob: Agent = broker.push_agent("bob", &json!({"window": 1000}));
        for at in 0..20 {
            alice.sends(&format!("{round} {at}")).begins_sending_to(&bob);
            bob.sends("noise").begins_sending_to("alice");
        }
        bob.begins_call("receive_messages", &json!({"wait_seconds": 100}));
        bob.wire.disconnects();
    }
    eventually("only two sessions are left", || {
        let tree = broker.get("/api/v1/tree?replica=self").json();
        let mut children = tree["children"].as_array().unwrap().iter();
        let project = children.find(|child| child["kind"] == "project").unwrap();
        let sessions = project["children"].as_array().unwrap().iter();
        (sessions.filter(|child| child["kind"] == "session").count() == 2).then_some(())
    });
    alice.calls("heartbeat", json!({}));
}
