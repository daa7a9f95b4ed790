//! 2026-07-28 over HTTP: the headers and the `_meta` of a request must agree with its body.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use super::unregistered_client;
use crate::support::{Broker, HttpAgent, Request};

const MODERN: &str = "2026-07-28";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

fn sentinel(text: &str) -> String {
    format!("=?base64?{}?=", STANDARD.encode(text))
}

/// A call of a tool that needs no session.
fn list_sessions(caller: &HttpAgent) -> Request {
    caller.call("list_sessions", json!({}))
}

#[test]
fn required_headers_must_be_present_and_agree_with_the_body() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    let call = list_sessions(&stranger);
    let read = stranger.asks("resources/read", json!({"uri": "broker://sessions"}));
    let list = stranger.asks("tools/list", json!({}));
    assert_eq!(call.answered().status, 200);
    for (what, request) in [
        ("no version", call.clone().without("MCP-Protocol-Version")),
        (
            "an older version",
            call.clone().with("MCP-Protocol-Version", "2025-11-25"),
        ),
        ("no such version", call.clone().with("MCP-Protocol-Version", "v999.0.0")),
        ("an empty version", call.clone().with("MCP-Protocol-Version", "")),
        (
            "two versions",
            call.clone().with_another("MCP-Protocol-Version", MODERN),
        ),
        (
            "two versions in one",
            call.clone().with("MCP-Protocol-Version", format!("{MODERN}, {MODERN}")),
        ),
        ("no method", call.clone().without("Mcp-Method")),
        ("no method of a list", list.clone().without("Mcp-Method")),
        ("another method", list.clone().with("Mcp-Method", "resources/list")),
        ("a method in capitals", list.clone().with("Mcp-Method", "TOOLS/LIST")),
        (
            "an encoded method",
            list.clone().with("Mcp-Method", sentinel("tools/list")),
        ),
        ("two methods", list.clone().with_another("Mcp-Method", "tools/list")),
        (
            "two methods, the second wrong",
            list.clone().with_another("Mcp-Method", "tools/call"),
        ),
        ("no name", call.clone().without("Mcp-Name")),
        ("an empty name", call.clone().with("Mcp-Name", "")),
        ("another name", call.clone().with("Mcp-Name", "heartbeat")),
        ("a name in capitals", call.clone().with("Mcp-Name", "List_Sessions")),
        ("two names", call.clone().with_another("Mcp-Name", "list_sessions")),
        (
            "another name encoded",
            call.clone().with("Mcp-Name", sentinel("heartbeat")),
        ),
        (
            "a name that is not Base64",
            call.clone().with("Mcp-Name", "=?base64?list!!sessions?="),
        ),
        (
            "Base64 without its padding",
            call.clone().with("Mcp-Name", "=?base64?bGlzdF9zZXNzaW9ucw?="),
        ),
        (
            "Base64 of no UTF-8",
            call.clone()
                .with("Mcp-Name", format!("=?base64?{}?=", STANDARD.encode([0xff, 0xfe]))),
        ),
        (
            "a sentinel in capitals",
            call.clone()
                .with("Mcp-Name", sentinel("list_sessions").replace("base64", "BASE64")),
        ),
        (
            "a name that is not ASCII",
            call.clone().with("Mcp-Name", "list_sessiöns"),
        ),
        ("no URI", read.clone().without("Mcp-Name")),
        ("another URI", read.clone().with("Mcp-Name", "broker://protocols")),
    ] {
        let response = request.answered();
        assert_eq!(response.refusal(), (400, -32020), "{what}: {response:?}");
        assert_eq!(response.json()["id"], 1, "{what}");
    }
    // A refused request leaves no trace.
    assert_eq!(call.answered().status, 200);
}

#[test]
fn equivalent_spellings_of_headers_are_accepted() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    let call = list_sessions(&stranger);
    for (what, request) in [
        (
            "small letters",
            call.clone()
                .without("Mcp-Method")
                .with("mcp-method", "tools/call")
                .without("MCP-Protocol-Version")
                .with("mcp-protocol-version", MODERN),
        ),
        (
            "capitals",
            call.clone()
                .without("Mcp-Name")
                .with("MCP-NAME", "list_sessions")
                .without("Mcp-Method")
                .with("MCP-METHOD", "tools/call"),
        ),
        (
            "white space around values",
            call.clone()
                .with("Mcp-Name", "  list_sessions  ")
                .with("Mcp-Method", " tools/call\t"),
        ),
        (
            "an encoded name",
            call.clone().with("Mcp-Name", sentinel("list_sessions")),
        ),
        (
            "an encoded name with white space around",
            call.clone()
                .with("Mcp-Name", format!(" {} ", sentinel("list_sessions"))),
        ),
        (
            "headers that mean nothing here",
            call.clone()
                .with("Mcp-Param-Region", "nowhere")
                .with("Last-Event-ID", "1-1")
                .with("X-Whatever", "x"),
        ),
        (
            "a type with a parameter",
            call.clone().with("Content-Type", "Application/JSON; charset=utf-8"),
        ),
        ("no name for a list", stranger.asks("tools/list", json!({}))),
        (
            "a name that a list does not need",
            stranger.asks("tools/list", json!({})).with("Mcp-Name", "whatever"),
        ),
    ] {
        let response = request.answered();
        assert_eq!(response.status, 200, "{what}: {response:?}");
        assert!(response.json()["result"].is_object(), "{what}: {response:?}");
    }
}

#[test]
fn a_name_that_does_not_fit_a_header_is_encoded() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    for name in ["wörld", " padded ", "line\nbreak", "=?base64?literal?=", "\u{1F980}"] {
        let call = stranger
            .asks("tools/call", json!({"name": name, "arguments": {}}))
            .with("Mcp-Name", sentinel(name));
        // The name is decoded: the error is that no such tool exists.
        assert_eq!(call.answered().json()["error"]["code"], -32602, "{name:?}");
        let read = stranger
            .asks("resources/read", json!({"uri": name}))
            .with("Mcp-Name", sentinel(name));
        let error = &read.answered().json()["error"];
        assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(-32602), &json!(name)));
    }
    // A value that only looks like the encoding is taken literally.
    for name in ["=?base64?SGVsbG8=", "SGVsbG8=?=", "=?utf-8?SGVsbG8=?="] {
        let call = stranger.asks("tools/call", json!({"name": name, "arguments": {}}));
        assert_eq!(call.answered().json()["error"]["code"], -32602, "{name:?}");
    }
    // A value in the encoding is never taken literally.
    let literal = "=?base64?SGVsbG8=?=";
    let call = stranger.asks("tools/call", json!({"name": literal, "arguments": {}}));
    assert_eq!(call.refused(), (400, -32020));
}

#[test]
fn the_meta_of_a_request_is_checked() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    for version in ["2025-11-25", "2024-11-05", "v999.0.0", "1900-01-01", "2026-07-29", ""] {
        let request = stranger
            .asks("server/discover", json!({"_meta": {VERSION: version}}))
            .with("MCP-Protocol-Version", version);
        let response = request.answered();
        assert_eq!(response.refusal(), (400, -32022), "{version}");
        let frame = response.json();
        assert_eq!(frame["id"], 1);
        assert_eq!(
            frame["error"]["data"],
            json!({"supported": [MODERN], "requested": version})
        );
    }
    // A difference between header and body is found before the values are checked.
    let differ = stranger.asks("server/discover", json!({"_meta": {VERSION: "v999.0.0"}}));
    assert_eq!(differ.refused(), (400, -32020));

    for (what, meta) in [
        ("no version", json!({"io.modelcontextprotocol/clientCapabilities": {}})),
        ("no capabilities", json!({VERSION: MODERN})),
        (
            "capabilities that are none",
            json!({VERSION: MODERN, "io.modelcontextprotocol/clientCapabilities": []}),
        ),
        (
            "a version that is none",
            json!({VERSION: 1, "io.modelcontextprotocol/clientCapabilities": {}}),
        ),
        ("nothing", json!({})),
        ("no object", json!([])),
        ("null", json!(null)),
        ("a text", json!("x")),
    ] {
        let frame = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}});
        let request = stranger.post(&frame).with("Mcp-Method", "server/discover");
        let response = request.answered();
        assert_eq!(response.refusal(), (400, -32602), "{what}");
        assert_eq!(response.json()["id"], 1, "{what}");
    }
    for params in [json!({}), json!([]), json!(null), json!(1)] {
        let frame = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": params});
        let request = stranger.post(&frame).with("Mcp-Method", "server/discover");
        assert_eq!(request.refused(), (400, -32602), "{params}");
    }
    let bare = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover"});
    let request = stranger.post(&bare).with("Mcp-Method", "server/discover");
    assert_eq!(request.refused(), (400, -32602));
}
