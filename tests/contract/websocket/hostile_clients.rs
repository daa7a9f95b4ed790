//! WebSocket clients that break the rules: bad JSON, bad frames, bad handshakes. Each gets its documented answer, and the
//! broker keeps serving others.

use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::support::{Broker, Response, Wire, eventually, exchange, masked_frame};

const NOT_JSON: [&str; 10] = [
    "nonsense",
    "",
    "   ",
    "{",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}x",
    "{'jsonrpc':'2.0'}",
    "[1,",
    "\u{feff}{}",
    "nul",
];

fn next_error(wire: &Wire) -> Value {
    wire.awaits_frame("a refusal", |frame| frame.get("error").is_some())
}

#[test]
fn a_frame_that_is_not_json_is_refused_and_the_connection_stays_open() {
    let broker = Broker::start();
    let wire = broker.wire();
    for text in NOT_JSON {
        wire.sends_text(text);
        let refused = next_error(&wire);
        assert_eq!(refused["error"]["code"], -32700, "{text}");
        assert_eq!(refused.get("id"), Some(&Value::Null), "{text}");
        // A valid frame in between resets the count of bad frames in a row.
        wire.syncs();
    }
}

#[test]
fn broken_json_inside_the_arguments_of_a_call_is_refused() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for (at, params) in [
        r#"{"name":"heartbeat","arguments":{"x":}}"#,
        r#"{"name":"heartbeat","arguments":{}, "more": [1,,2]}"#,
        r#"{"name":"send_message","arguments":{"recipient_id":"alice","protocol_name":"note","protocol_version":"1.0.0","payload":{"text":"x",}}}"#,
        r#"{"name":"send_message","arguments":{"recipient_id":"alice","protocol_name":"note","protocol_version":"1.0.0","payload":{"text":"x"},"headers":{priority:"low"}}}"#,
        r#"{"name":"heartbeat","arguments":{"session_id":"\x"}}"#,
        r#"{"name":"list_sessions","arguments":{"limit":01}}"#,
    ]
    .into_iter()
    .enumerate()
    {
        let id = 1000 + at;
        alice
            .wire
            .sends_text(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#));
        let refused = next_error(&alice.wire);
        assert_eq!(refused["error"]["code"], -32700, "{params}: {refused}");
        assert_eq!(refused["id"], Value::Null, "{params}");
    }
    alice.sees_nothing();
}

#[test]
fn several_bad_frames_in_a_row_close_the_connection() {
    let broker = Broker::start();
    let wire = broker.wire();
    for _ in 0..100 {
        wire.sends_text("nonsense");
    }
    assert!(!wire.closes_with(1008).is_empty());
}

#[test]
fn several_calls_with_broken_json_in_a_row_close_the_connection() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for _ in 0..100 {
        alice.wire.sends_text(
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"heartbeat","arguments":{"x":[1,,2]}}}"#,
        );
    }
    alice.wire.closes_with(1008);
}

#[test]
fn json_that_is_not_a_request_is_refused() {
    let broker = Broker::start();
    let wire = broker.wire();
    for text in [
        "1",
        "\"text\"",
        "null",
        "{}",
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"}"#,
    ] {
        wire.sends_text(text);
        assert_eq!(next_error(&wire)["error"]["code"], -32600, "{text}");
    }
    wire.syncs();
}

#[test]
fn deep_json_is_refused_before_anything_recurses() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for depth in [200, 10_000, 1_000_000] {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let objects = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        for text in [
            deep.clone(),
            objects.clone(),
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{deep}}}}}"#),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"send_message","arguments":{{"recipient_id":"alice","protocol_name":"note","protocol_version":"1.0.0","payload":{objects}}}}}}}"#
            ),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":{}"#,
                "[".repeat(depth)
            ),
        ] {
            alice.wire.sends_text(&text);
            let refused = next_error(&alice.wire);
            assert!(
                refused["error"]["code"] == -32700 || refused["error"]["code"] == -32600,
                "{refused}"
            );
            alice.wire.syncs();
        }
    }
    alice.sees_nothing();
}

#[test]
fn each_framing_violation_closes_the_connection_with_its_code() {
    let broker = Broker::start_with(&["--max-payload-mb=1"]);
    let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let unmasked = [&[0x81, ping.len() as u8][..], ping].concat();
    // A header that announces more bytes than the limit, without a payload.
    let huge = [&[0x81, 0xff][..], &(2_u64 << 20).to_be_bytes(), &[1, 2, 3, 4]].concat();
    let absurd = [&[0x81, 0xff][..], &[0xff; 8], &[1, 2, 3, 4]].concat();
    let mut many = Vec::new();
    many.extend(masked_frame(0x01, &vec![b' '; 600_000]));
    many.extend(masked_frame(0x80, &vec![b' '; 600_000]));
    for (what, bytes, code) in [
        ("a frame that is not masked", unmasked, 1002),
        ("a binary frame", masked_frame(0x82, ping), 1003),
        ("bytes that are not UTF-8", masked_frame(0x81, b"\"\xff\xfe\""), 1007),
        ("half a character", masked_frame(0x81, b"\"\xc3\""), 1007),
        ("a surrogate", masked_frame(0x81, b"\"\xed\xa0\x80\""), 1007),
        ("a huge frame", huge, 1009),
        ("an absurd length", absurd, 1009),
        ("a huge message in fragments", many, 1009),
        ("reserved bits", masked_frame(0xc1, ping), 1002),
        ("an unknown opcode", masked_frame(0x83, ping), 1002),
        ("a continuation of nothing", masked_frame(0x80, ping), 1002),
        ("a control frame in fragments", masked_frame(0x09, b""), 1002),
        ("a large control frame", masked_frame(0x89, &[0; 126]), 1002),
        ("a close frame of one byte", masked_frame(0x88, &[3]), 1002),
        (
            "a close code that may not be sent",
            masked_frame(0x88, &1006_u16.to_be_bytes()),
            1002,
        ),
    ] {
        let wire = broker.wire();
        wire.sends_bytes(&bytes);
        let closed = wire.awaits_close();
        assert_eq!(closed.code, Some(code), "{what}: {closed:?}");
    }
}

#[test]
fn a_frame_as_large_as_the_limit_is_read_in_pieces_of_any_size() {
    let broker = Broker::start_with(&["--max-payload-mb=1"]);
    let alice = broker.agent("alice");
    let text = "é".repeat(500_000);
    let call = json!({
        "jsonrpc": "2.0", "id": "large", "method": "tools/call",
        "params": {"name": "send_message", "arguments": alice.sends(&text).arguments_to(&alice)},
    })
    .to_string();
    // Fragments that cut characters, with a ping between them.
    let (first, rest) = call.as_bytes().split_at(400_001);
    let (second, third) = rest.split_at(300_000);
    let mut bytes = masked_frame(0x01, first);
    bytes.extend(masked_frame(0x89, b"still there?"));
    bytes.extend(masked_frame(0x00, second));
    bytes.extend(masked_frame(0x80, third));
    for piece in bytes.chunks(70_001) {
        alice.wire.sends_bytes(piece);
    }
    alice.finishes_call("send_message", &json!("large"));
    assert_eq!(alice.reads(json!({}))[0]["payload"]["text"], text.as_str());
}

#[test]
fn a_client_that_dies_in_mid_frame_publishes_nothing() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "send_message", "arguments": alice.sends("half").arguments_to(&bob)},
    });
    let frame = masked_frame(0x81, call.to_string().as_bytes());
    for len in [1, 2, 7, 8, frame.len() / 2, frame.len() - 1] {
        let carol = broker.agent("carol");
        carol.wire.sends_bytes(&frame[..len]);
        carol.wire.disconnects();
    }
    // A message whose last fragment is missing.
    let carol = broker.agent("carol");
    carol.wire.sends_frame(0x01, call.to_string().as_bytes());
    carol.wire.disconnects();
    broker.agent("carol").calls("heartbeat", json!({}));
    alice.sends("whole").to(&bob);
    bob.sees(["whole"]);
    bob.sees_nothing();
}

#[test]
fn foreign_origins_and_hosts_are_refused_before_the_upgrade() {
    let broker = Broker::start_with(&[
        "--cors-origins=https://ops.example",
        "--allowed-hosts=localhost,127.0.0.1",
    ]);
    for (name, value) in [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Origin", "https://ops.example.evil.example"),
        ("Origin", "http://localhost:1"),
        ("Host", "evil.example"),
        ("Host", "localhost.evil.example"),
        ("Host", ""),
    ] {
        let response = broker.upgrade(&[(name, value)]);
        assert_eq!(response.status, 403, "{name}: {value}");
        let head = format!(
            "{}\r\n{name}: {value}\r\nConnection: close\r\n\r\n",
            "GET /health HTTP/1.1"
        );
        let head = match name {
            "Host" => head,
            _ => head.replace("\r\nOrigin", &format!("\r\nHost: {}\r\nOrigin", broker.address)),
        };
        assert_eq!(
            exchange(&broker.socket(), head.as_bytes()).status,
            403,
            "{name}: {value}"
        );
    }
    let two = broker.upgrade(&[("Host", "localhost"), ("Host", "evil.example")]);
    assert!([400, 403].contains(&two.status), "{two:?}");
    for lines in [
        &[][..],
        &[("Origin", "https://ops.example")],
        &[("Host", "localhost:8000")],
        &[("Host", "localhost:8000"), ("Origin", "http://localhost:8000")],
    ] {
        assert_eq!(broker.upgrade(lines).status, 101, "{lines:?}");
    }
}

#[test]
fn an_invalid_handshake_is_refused() {
    let broker = Broker::start();
    for (lines, status) in [
        (&[("Sec-WebSocket-Version", "12")][..], 426),
        (&[("Sec-WebSocket-Key", "")], 400),
        (&[("Sec-WebSocket-Key", "short")], 400),
        (&[("Sec-WebSocket-Protocol", "graphql-ws")], 400),
        (&[("Sec-WebSocket-Protocol", "mcp2, xmcp")], 400),
    ] {
        let response: Response = broker.upgrade(lines);
        assert_eq!(response.status, status, "{lines:?} {response:?}");
    }
    let chosen = broker.upgrade(&[("Sec-WebSocket-Protocol", "other, mcp")]);
    assert_eq!(chosen.status, 101);
    assert_eq!(chosen.header("sec-websocket-protocol"), Some("mcp"));
    // RFC 6455, section 1.3.
    assert_eq!(
        chosen.header("sec-websocket-accept"),
        Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    );
    // A client that offers no subprotocol is accepted without one.
    let plain = broker.upgrade(&[]);
    assert_eq!(plain.status, 101);
    assert_eq!(plain.header("sec-websocket-protocol"), None);
    let elsewhere = format!(
        "GET /elsewhere HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: \
         13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        broker.address
    );
    assert_eq!(exchange(&broker.socket(), elsewhere.as_bytes()).status, 404);
}

#[test]
fn requests_with_ambiguous_framing_are_refused() {
    let broker = Broker::start();
    let host = broker.address;
    let both =
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(exchange(&broker.socket(), both.as_bytes()).status, 400);
    for head in [
        "nonsense\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nbad header\r\n\r\n"),
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: -1\r\n\r\n"),
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n", "x".repeat(1_000_000)),
    ] {
        let mut socket = broker.socket();
        let _ = socket.write_all(head.as_bytes());
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
}

#[test]
fn a_connection_above_the_limit_is_told_to_retry_later() {
    let broker = Broker::start_with(&["--connections-max=3"]);
    // The connection that registered the protocol may still count.
    let wires: Vec<_> = (0..2).map(|_| broker.wire()).collect();
    let last = eventually("a third connection is accepted", || {
        let (response, socket) = broker.upgrade_on(broker.socket(), &[]);
        (response.status == 101).then_some(socket)
    });
    let refused = broker.upgrade(&[]);
    assert_eq!(refused.status, 503, "{refused:?}");
    let wait_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(wait_s > 0, "{refused:?}");
    drop(last);
    eventually("another connection is accepted", || {
        (broker.upgrade(&[]).status == 101).then_some(())
    });
    drop(wires);
}

#[test]
fn hostile_text_is_delivered_unchanged_and_never_interpreted() {
    let broker = Broker::start_with(&["--log-level=debug", "--log-format=pretty"]);
    let alice = broker.agent("alice");
    let hostile = "\u{1b}[2J\u{1b}]0;owned\u{7}\r\n{\"level\":\"fake\"}\u{0}\u{202e}<script>alert(1)</script>";
    alice.sends(hostile).with("correlation_id", hostile).to(&alice);
    alice.sees([hostile]);
    alice.calls(
        "register_session",
        json!({"name": "alice", "metadata": {"x": hostile}, "capabilities": {"supported_features": [hostile]}}),
    );
    alice.is_refused("register_session", json!({"name": hostile}));
    alice.sends("hi").fails_as("session_not_found", hostile);
    alice.is_refused("heartbeat", json!({hostile: 1}));
    assert_eq!(alice.error_of(hostile, json!({})), -32601);
    assert_eq!(alice.error_of("tools/call", json!({"name": hostile})), -32602);
    let _ = alice.request("resources/read", json!({"uri": hostile}));
    broker.get("/%1b%5b2J%0d%0afake");
    broker.get("/health?key=%1b%5b2J");
    let log = broker.log();
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!log.contains(control), "{log:?}");
}

#[test]
fn the_number_of_calls_in_flight_is_bounded() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let calls: Vec<_> = (0..600)
        .map(|_| alice.begins_call("receive_messages", &json!({"wait_seconds": 100})))
        .collect();
    // Some calls wait, the others are told to retry; the connection stays usable.
    let mut refused = 0;
    alice.wire.syncs();
    for call in &calls {
        if let Some(answer) = alice.wire.answer_so_far(call) {
            assert_eq!(answer["result"]["structuredContent"]["code"], "unavailable", "{answer}");
            assert!(answer["result"]["structuredContent"]["retry_after_ms"].is_u64());
            refused += 1;
        }
    }
    assert!((1..600).contains(&refused), "{refused}");
    eventually("a call is accepted again", || {
        let call = alice.begins_call("list_sessions", &json!({}));
        let answer = alice.wire.answer_to(&call).unwrap();
        (answer["isError"] == false).then_some(())
    });
}
