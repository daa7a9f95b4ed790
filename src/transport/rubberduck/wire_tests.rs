//! Tests of the lines of the rubberduck programs, with the bytes that the real ones send.

use actors::model::{SessionId, SessionName, Yap};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use api::mcp::lines::{LineDecoder, LineEvent};

const REGISTER: &str = r#"{"id":"6a0b5f0e-6ae6-4d6f-8a8f-0a5c1a4f2b11","type":"register","clientId":"0b1f6a52-8c47-4f3a-9d51-1f0a3a9f7c02","clientType":"mcp-server","timestamp":1763990000000,"data":{}}"#;
const HEARTBEAT: &str =
    r#"{"id":"1","type":"heartbeat","clientId":"alice","clientType":"cli","timestamp":1763990005000,"data":{}}"#;
const CLARIFICATION: &str = r#"{"id":"2","type":"clarification","clientId":"alice","clientType":"mcp-server","timestamp":1,"data":{"id":"q","question":"Async or threads? ä€","context":"two\nlines","urgency":"high","timestamp":1763990001000,"status":"pending"}}"#;
const RESPONSE: &str = r#"{"id":"3","type":"response","clientId":"mara","clientType":"cli","timestamp":1,"data":{"requestId":"q","response":"async"}}"#;
const YAP: &str = r#"{"id":"4","type":"yap","clientId":"alice","clientType":"mcp-server","timestamp":1,"data":{"id":"y","message":"hello","mode":"verbose","category":"funny","timestamp":1763990002000}}"#;

fn stamp() -> Stamp {
    Stamp {
        id: Uuid::from_u128(7),
        now_ms: 1_763_990_000_000,
    }
}

fn json_of(line: &[u8]) -> Value {
    assert_eq!(memchr::memchr(b'\n', line), Some(line.len() - 1), "one line");
    serde_json::from_slice(line).unwrap()
}

#[test]
fn the_lines_of_the_real_programs_are_read() {
    let incoming = parse(REGISTER).unwrap();
    assert_eq!(incoming.body, Body::Register);
    assert_eq!(incoming.client.id, "0b1f6a52-8c47-4f3a-9d51-1f0a3a9f7c02");
    assert_eq!(incoming.client.client_type, ClientType::McpServer);
    assert_eq!(parse(HEARTBEAT).unwrap().body, Body::Heartbeat);
    let question = Clarification {
        id: "q".into(),
        question: "Async or threads? ä€".into(),
        context: Some("two\nlines".into()),
        urgency: Some(Urgency::High),
    };
    assert_eq!(parse(CLARIFICATION).unwrap().body, Body::Clarification(question));
    let answer = Response {
        request_id: "q".into(),
        response: "async".into(),
    };
    assert_eq!(parse(RESPONSE).unwrap().body, Body::Response(answer));
    let yap = IncomingYap {
        message: "hello".into(),
        mode: Some("verbose".into()),
        category: Some("funny".into()),
        task_context: None,
        sent_at_ms: Some(1_763_990_002_000),
    };
    assert_eq!(parse(YAP).unwrap().body, Body::Yap(yap));
}

#[test]
fn what_is_no_line_of_the_protocol_is_refused_with_the_words_of_the_original() {
    let with_id = |id: &str| json!({"type": "heartbeat", "clientId": id, "clientType": "cli", "data": {}}).to_string();
    assert!(parse(&with_id(&"x".repeat(128))).is_ok());
    for line in [
        "not json",
        "[]",
        r#"{"type":"heartbeat","clientType":"cli"}"#,
        r#"{"type":"heartbeat","clientId":"a","clientType":"other"}"#,
        r#"{"type":"sync","clientId":"a","clientType":"cli","data":{}}"#,
        r#"{"type":"clarification","clientId":"a","clientType":"mcp-server"}"#,
        r#"{"type":"clarification","clientId":"a","clientType":"mcp-server","data":{"id":"q"}}"#,
        r#"{"type":"clarification","clientId":"a","clientType":"mcp-server","data":{"id":"q","question":"?","urgency":"now"}}"#,
        r#"{"type":"response","clientId":"a","clientType":"cli","data":{"requestId":"","response":"x"}}"#,
        &with_id(""),
        &with_id("a\nb"),
        &with_id(&"x".repeat(129)),
    ] {
        assert_eq!(parse(line), Err("Invalid message format"), "{line}");
    }
}

#[test]
fn the_broker_writes_the_forms_that_the_programs_expect() {
    let envelope = |kind: &str, data: Value| {
        json!({
            "id": "00000000-0000-0000-0000-000000000007", "type": kind, "clientId": "broker",
            "clientType": "mcp-server", "timestamp": 1_763_990_000_000_u64, "data": data,
        })
    };
    let registered = envelope("sync", json!({"status": "registered"}));
    assert_eq!(json_of(&sync(stamp())), registered);
    let refused = envelope("error", json!({"error": "already answered by mara"}));
    assert_eq!(json_of(&error(stamp(), "already answered by mara")), refused);
    let shown = Shown {
        request_id: "q",
        question: "Drop it?\u{1b}[2J",
        context: None,
        urgency: Urgency::Medium,
        asked_at_ms: 5,
        asker: "alice",
    };
    let data = json!({
        "id": "q", "question": "Drop it?\\u{1b}[2J", "urgency": "medium", "timestamp": 5, "status": "pending",
        "sourceClientId": "alice",
    });
    assert_eq!(
        json_of(&clarification(stamp(), &shown)),
        envelope("clarification", data)
    );
    let answered = json!({
        "id": "00000000-0000-0000-0000-000000000007", "type": "response", "clientId": "c1", "clientType": "cli",
        "timestamp": 1_763_990_000_000_u64, "data": {"requestId": "q", "response": "two\nlines", "cliId": "c1"},
    });
    assert_eq!(json_of(&response(stamp(), "q", "two\nlines", "c1")), answered);
    let failed = envelope(
        "response",
        json!({"requestId": "q", "response": null, "error": "nobody"}),
    );
    assert_eq!(json_of(&no_response(stamp(), "q", "nobody")), failed);
}

#[test]
fn a_yap_is_shown_with_its_sender_and_its_time_and_is_not_changed() {
    let yap_of = |folded| ShownYap {
        seq: 3,
        at_ms: 9,
        is_late: false,
        yap: Yap {
            id: Uuid::from_u128(8),
            sender: SessionId::parse("0198f3aa-0000-7000-8000-000000000001").unwrap(),
            sender_name: Some(SessionName::parse("alice").unwrap()),
            message: "short".into(),
            mode: Some("verbose".into()),
            category: Some("funny".into()),
            task_context: Some("tests".into()),
            sent_at_ms: None,
            folded,
        },
    };
    let shown = json_of(&yap(stamp(), &yap_of(0)));
    let data = json!({
        "id": "00000000-0000-0000-0000-000000000008", "message": "short", "mode": "verbose", "category": "funny",
        "task_context": "tests", "timestamp": 9, "sourceClientId": "alice",
    });
    assert_eq!((shown["type"].as_str(), &shown["data"]), (Some("yap"), &data));
    // The programs know five categories.
    let mut other = yap_of(0);
    other.yap.category = Some("progress".into());
    assert_eq!(json_of(&yap(stamp(), &other))["data"]["category"], "neutral");
    let folded = json_of(&yap(stamp(), &yap_of(37)));
    assert_eq!(folded["data"]["message"], "short (and 37 more)");
}

/// The frames of these bytes, when they arrive in pieces of these sizes, in turn.
fn frames(bytes: &[u8], pieces: &[usize]) -> Vec<Result<Incoming, &'static str>> {
    let mut decoder = LineDecoder::new(LINE_LEN_MAX);
    let mut frames = Vec::new();
    let mut rest = bytes;
    for &piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (read, left) = rest.split_at(piece.clamp(1, rest.len()));
        decoder.decode(read, |event| {
            frames.push(match event {
                LineEvent::Text(text) => parse(text),
                LineEvent::TooLong(_) | LineEvent::NotUtf8(_) => Err(INVALID),
            });
        });
        rest = left;
    }
    frames
}

proptest! {
    #[test]
    fn frames_do_not_depend_on_how_the_bytes_are_split(
        lines in prop::collection::vec(
            prop::sample::select(vec![REGISTER, HEARTBEAT, CLARIFICATION, RESPONSE, YAP, "", "{\"broken\"", "\u{e4}"]),
            0..12,
        ),
        pieces in prop::collection::vec(1_usize..600, 1..6),
    ) {
        let bytes = lines.iter().fold(String::new(), |bytes, line| bytes + line + "\n");
        let expected: Vec<_> = lines.iter().filter(|line| !line.is_empty()).map(|line| parse(line)).collect();
        prop_assert_eq!(&frames(bytes.as_bytes(), &pieces), &expected);
        prop_assert_eq!(&frames(bytes.as_bytes(), &[usize::MAX]), &expected);
    }
}
