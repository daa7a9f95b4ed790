//! What a client may write to `mcp-broker connect`: handshakes of all revisions or none, line breaks of all kinds, and frames
//! that are too long or none. Each request is answered under its id.

use serde_json::{Value, json};

use super::{front::Front, home::Home, support::eventually};

/// The revisions with `initialize`, the newest last.
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const PING: &str = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
const MIB: usize = 1024 * 1024;

/// Asks as no helper of [`Front`] does: with `id` at the end, where the SDKs for TypeScript and Python write it.
fn with_id_at_the_end(method: &str, params: &Value, id: &str) -> String {
    format!(r#"{{"method":"{method}","params":{params},"jsonrpc":"2.0","id":{id}}}"#)
}

fn long_call(len: usize) -> Value {
    let payload = json!({"id": "of the payload", "text": "x".repeat(len)});
    json!({"name": "send_message", "arguments": {"recipient_id": "a", "protocol_name": "n", "payload": payload}})
}

fn initialize(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}})
}

/// The most memory that the front has used.
fn peak_kib(front: &Front) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", front.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_revision_that_is_spoken_is_agreed_and_the_newest_in_place_of_any_other() {
    let user = Home::new();
    user.start_broker();
    let unknown = ["1999-01-01", "2025-04-01", "2099-12-31", "2026-07-28", "", "latest"];
    let others = unknown.map(|version| (version, LEGACY[3]));
    for (asked, agreed) in LEGACY.map(|version| (version, version)).into_iter().chain(others) {
        let mut front = user.front().start();
        let answer = front.request("initialize", &initialize(asked));
        assert_eq!(answer["result"]["protocolVersion"], agreed, "{asked}: {answer}");
        front.notifies("notifications/initialized", &json!({}));
        front.calls("list_sessions", &json!({}));
        let again = front.request("initialize", &initialize(asked));
        assert_eq!(again["error"]["code"], -32600, "{asked}: {again}");
    }
}

#[test]
fn a_modern_revision_that_is_unknown_is_refused_with_those_that_are_known() {
    let user = Home::new();
    let mut front = user.front().args(&["--no-start"]).start();
    for version in ["2026-07-29", "2099-12-31"] {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let refused = front.request("server/discover", &json!({"_meta": meta}));
        assert_eq!(refused["error"]["code"], -32022, "{refused}");
        let supported = refused["error"]["data"]["supported"].as_array().unwrap();
        assert!(supported.contains(&json!("2026-07-28")), "{refused}");
    }
}

#[test]
fn requests_before_the_handshake_are_served_and_it_keeps_their_session() {
    let user = Home::new();
    let mut front = user.front().start();
    assert_eq!(front.request("ping", &json!({}))["result"], json!({}));
    let listed = front.request("tools/list", &json!({}));
    assert!(listed["result"]["tools"].as_array().unwrap().len() > 10);
    let session = front.calls("register_session", &json!({"name": "alice"}))["session_id"].clone();
    front.notifies("notifications/unknown", &json!({"x": 1}));
    front.initialize("x");
    front.notifies("notifications/unknown", &json!({"x": 1}));
    let unknown = front.request("unknown/method", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let again = front.calls("register_session", &json!({}));
    assert_eq!((&again["session_id"], &again["name"]), (&session, &json!("alice")));
    assert_eq!(front.others(), [json!(null); 0]);
}

#[test]
fn line_breaks_of_all_kinds_separate_frames_and_the_last_frame_needs_none() {
    let user = Home::new();
    let mut front = user.front().start();
    let call = with_id_at_the_end("tools/call", &json!({"name": "list_sessions", "arguments": {}}), "2");
    front.sends_bytes(format!("\n\r\n  \n\t\r\n{PING}\r\n\n{call}\r\n").as_bytes());
    assert_eq!(front.answer("p")["result"], json!({}));
    assert_eq!(front.answer(2)["result"]["isError"], false);
    // In pieces that end anywhere, also between the two bytes of a line break.
    for piece in [&PING[..5], &PING[5..], "\r", "\n"] {
        front.sends_bytes(piece.as_bytes());
    }
    assert_eq!(front.answer("p")["result"], json!({}));
    front.sends_bytes(call.as_bytes());
    front.closes();
    assert_eq!(front.answer(2)["result"]["isError"], false);
    assert!(front.others().is_empty());
    let (status, errors) = front.ends();
    assert!(status.success() && errors.is_empty(), "{status} {errors}");
}

#[test]
fn a_frame_that_is_not_utf_8_or_not_json_is_refused_once_and_not_kept() {
    let user = Home::new();
    let mut front = user.front().start();
    front.initialize("x");
    front.calls("heartbeat", &json!({}));
    let frames: [&[u8]; 6] = [
        b"\xff\xfe",
        b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\",\"params\":{\"x\":\"\xc3\"}}",
        b"\xef\xbb\xbf{}",
        b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"prompts/get\",\"params\":{\"name\":tru}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"resources/read\",\"params\":{\"uri\":\"x\",}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"unknown\",\"params\":{\"name\":1e}}",
    ];
    for frame in frames {
        front.sends_bytes(&[frame, b"\n"].concat());
        let refused = front.answer(Value::Null);
        assert_eq!(refused["error"]["code"], -32700, "{}", frame.escape_ascii());
        front.calls("heartbeat", &json!({}));
    }
    // A kept request would be sent again, and refused again.
    user.kill_broker();
    front.calls("heartbeat", &json!({}));
    assert!(front.others().is_empty());
}

#[test]
fn a_frame_that_is_too_long_is_refused_under_its_id_wherever_that_is() {
    let user = Home::new();
    let mut front = user.front().env("MCP_BROKER_MAX_PAYLOAD_MB", "1").start();
    front.initialize("x");
    let params = long_call(2 * MIB);
    for frame in [
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#),
        format!(r#"{{"jsonrpc":"2.0","params":{params},"id":7,"method":"tools/call"}}"#),
        with_id_at_the_end("tools/call", &params, "7"),
        with_id_at_the_end("tools/call", &long_call(MIB + 64 * 1024), "7") + "\r",
    ] {
        front.sends_line(&frame);
        let refused = front.answer(7);
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert_eq!(front.request("ping", &json!({}))["result"], json!({}));
    }
    let batch = format!("[{}]", with_id_at_the_end("tools/call", &params, "7"));
    front.sends_line(&batch);
    assert_eq!(front.answer(Value::Null)["error"]["code"], -32600);
    let before = peak_kib(&front);
    front.sends_line(&with_id_at_the_end("tools/call", &long_call(16 * MIB), "\"big\""));
    assert_eq!(front.answer("big")["error"]["code"], -32600);
    let grown = peak_kib(&front).saturating_sub(before);
    assert!(grown < 4 * 1024, "the frame is not kept as a whole: {grown} KiB");
    // Without a line break, at the end of the input.
    front.sends_bytes(with_id_at_the_end("tools/call", &params, "8").as_bytes());
    front.closes();
    assert_eq!(front.answer(8)["error"]["code"], -32600);
    assert!(front.ends().0.success());
}

#[test]
fn a_frame_that_is_too_long_for_the_broker_alone_is_answered_too() {
    let user = Home::new();
    let mut start = user.command("local start");
    let started = start.env("MCP_BROKER_MAX_PAYLOAD_MB", "1").output().unwrap();
    assert!(started.status.success(), "{started:?}");
    let mut front = user.front().start();
    front.initialize("x");
    front.calls("heartbeat", &json!({}));
    front.sends_line(&with_id_at_the_end("tools/call", &long_call(3 * MIB), "7"));
    assert_eq!(front.answer(7)["error"]["code"], -32600);
    // A request without an answer would be sent again.
    user.kill_broker();
    user.start_broker();
    front.calls("heartbeat", &json!({}));
    assert!(front.others().is_empty());
}

#[test]
fn a_front_whose_name_was_taken_acts_as_no_other_session_until_its_agent_takes_it_back() {
    const ROUNDS: usize = 6;
    let user = Home::new();
    let mut fronts = ["one", "two"].map(|name| {
        let mut front = user.front().start();
        front.initialize(name);
        front
    });
    let name = json!({"name": "alice"});
    fronts[0].calls("register_session", &name);
    fronts[0].request("resources/subscribe", &json!({"uri": "broker://inbox"}));
    for round in 0..ROUNDS {
        let [left, right] = &mut fronts;
        let (older, newer) = if round % 2 == 0 { (left, right) } else { (right, left) };
        assert_eq!(newer.calls("register_session", &name)["resumed"], true);
        // Before the older front can know it.
        for tool in ["heartbeat", "receive_messages"] {
            let error = older.is_refused(tool, &json!({}));
            assert_eq!(error["code"], "session_taken_over", "{round} {tool}: {error}");
        }
        let subscribed = older.request("resources/subscribe", &json!({"uri": "broker://inbox"}));
        assert_eq!(
            subscribed["error"]["data"]["code"], "session_taken_over",
            "{subscribed}"
        );
        let listed = older.calls("list_sessions", &json!({"status": "all"}));
        assert_eq!(listed["sessions"].as_array().unwrap().len(), 1, "{round}: {listed}");
    }
    // The first front has the name again, and with it the subscription.
    let [owner, other] = &mut fronts;
    other.calls("register_session", &json!({"name": "bob"}));
    other.calls(
        "register_protocol",
        &json!({"name": "chat", "version": "1.0.0", "schema": {"type": "object"}}),
    );
    eventually("the subscription is renewed", || {
        let message =
            json!({"recipient_id": "alice", "protocol_name": "chat", "protocol_version": "1.0.0", "payload": {}});
        other.calls("send_message", &message);
        let frames = owner.others();
        let is_told = frames
            .iter()
            .any(|frame| frame["method"] == "notifications/resources/updated");
        is_told.then_some(())
    });
    let listed = owner.calls("list_sessions", &json!({"status": "all"}));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 2, "{listed}");
}
