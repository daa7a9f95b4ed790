//! 2026-07-28 over HTTP: each POST is independent. Its answer is JSON or a stream of events.

use serde_json::{Value, json};

use super::unregistered_client;
use crate::support::{Broker, HttpAgent, Request, broker_program, keys, texts};

const MODERN: &str = "2026-07-28";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// A call of a tool that needs no session.
fn list_sessions(caller: &HttpAgent) -> Request {
    caller.call("list_sessions", json!({}))
}

#[test]
fn discovery_lists_and_calls_are_answered_as_json() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    for (method, params, member) in [
        ("server/discover", json!({}), "supportedVersions"),
        ("tools/list", json!({}), "tools"),
        ("resources/list", json!({}), "resources"),
        ("resources/templates/list", json!({}), "resourceTemplates"),
        ("resources/read", json!({"uri": "broker://sessions"}), "contents"),
        (
            "tools/call",
            json!({"name": "list_sessions", "arguments": {}}),
            "structuredContent",
        ),
    ] {
        for id in [json!(0), json!(-7), json!("é \"x\""), json!(9_007_199_254_740_991_u64)] {
            let response = stranger.asks_as(&id, method, params.clone()).answered();
            assert_eq!(response.status, 200, "{method}");
            assert_eq!(response.header("content-type"), Some("application/json"));
            let frame = response.json();
            assert_eq!(keys(&frame), ["id", "jsonrpc", "result"]);
            assert_eq!(frame["id"], id);
            let result = &frame["result"];
            assert!(result.get(member).is_some(), "{method}: {result}");
            assert_eq!(result["resultType"], "complete");
            assert_eq!(
                result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
                "mcp-broker"
            );
            assert_eq!(result["ttlMs"].is_u64(), method != "tools/call", "{result}");
            assert_eq!(result["cacheScope"].is_string(), method != "tools/call", "{result}");
        }
    }
    assert_eq!(
        stranger.request("server/discover", json!({})).unwrap()["supportedVersions"],
        json!([MODERN])
    );
}

#[test]
fn requests_follow_each_other_on_one_connection() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    let request = list_sessions(&stranger).bytes();
    let socket = broker.socket();
    for _ in 0..3 {
        assert_eq!(crate::support::exchange(&socket, &request).status, 200);
    }
    // Requests of either era, also after a refusal.
    let refused = list_sessions(&stranger).without("Mcp-Name").bytes();
    assert_eq!(crate::support::exchange(&socket, &refused).status, 400);
    let hello = crate::support::initialize_request(broker.address, "2025-11-25", json!({})).bytes();
    assert_eq!(crate::support::exchange(&socket, &hello).status, 200);
    assert_eq!(crate::support::exchange(&socket, &request).status, 200);
}

#[test]
fn unknown_methods_are_not_found() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    for method in [
        "ping",
        "initialize",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "roots/list",
        "unknown/method",
        "tools/call/",
        "TOOLS/LIST",
        "",
    ] {
        let response = stranger.asks(method, json!({})).answered();
        assert_eq!(response.refusal(), (404, -32601), "{method}: {response:?}");
        assert_eq!(response.json()["id"], 1, "{method}");
        assert_eq!(response.header("mcp-session-id"), None, "{method}");
    }
}

#[test]
fn an_unknown_tool_is_an_error_and_a_refusing_tool_a_result() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    let error = stranger
        .request("tools/call", json!({"name": "no_such_tool", "arguments": {}}))
        .unwrap_err();
    assert_eq!(error["code"], -32602);
    for params in [
        json!({"arguments": {}}),
        json!({"name": 1, "arguments": {}}),
        json!({"name": "heartbeat", "arguments": []}),
        json!({"name": "heartbeat", "arguments": "x"}),
    ] {
        assert_eq!(
            stranger.request("tools/call", params.clone()).unwrap_err()["code"],
            -32602,
            "{params}"
        );
    }
    let response = stranger.call("heartbeat", json!({})).answered();
    assert_eq!(response.status, 200);
    assert_eq!(response.json()["result"]["isError"], true);
}

#[test]
fn a_notification_is_accepted_without_a_body() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    for method in [
        "notifications/cancelled",
        "notifications/whatever",
        "notifications/dev.mcp-broker/ack",
    ] {
        stranger.notifies(method, json!({}));
        stranger.notifies(method, json!({"requestId": 1, "message_ids": ["nonsense"]}));
    }
    // This revision knows neither responses nor batches.
    for frame in [
        json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
        json!([]),
        json!([{"jsonrpc": "2.0", "id": 1, "method": "server/discover"}]),
        json!([{"jsonrpc": "2.0", "method": "notifications/cancelled"}]),
    ] {
        let response = stranger.post(&frame).answered();
        assert_eq!(response.status, 400, "{frame}: {response:?}");
    }
}

#[test]
fn get_and_delete_are_not_allowed() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    for request in [
        stranger.stream_request(),
        stranger.delete_request(),
        stranger.delete_request().with("Mcp-Session-Id", "whatever"),
        stranger.stream_request().with("Last-Event-ID", "0-0"),
        stranger.stream_request().with_method("PUT"),
        stranger.stream_request().with_method("PATCH"),
        stranger
            .stream_request()
            .with_method("OPTIONS")
            .without("MCP-Protocol-Version"),
    ] {
        let response = request.answered();
        assert_eq!(response.status, 405, "{request:?}: {response:?}");
        let allow = response.header("allow").expect("what is allowed");
        assert!(allow.split(", ").any(|method| method == "POST"), "{allow}");
    }
}

#[test]
fn the_session_header_is_neither_sent_nor_used() {
    let broker = Broker::without_timeouts();
    let legacy = HttpAgent::legacy(broker.address, "2025-11-25", json!({}));
    let known = legacy.stream_request();
    let known = known.head();
    let known = known
        .lines()
        .find_map(|line| line.strip_prefix("Mcp-Session-Id: "))
        .unwrap();
    let stranger = unregistered_client(&broker);
    for id in ["", "nonsense", known] {
        for request in [
            stranger.asks("server/discover", json!({})),
            stranger.call("register_session", json!({})),
            stranger.call("heartbeat", json!({})),
        ] {
            let response = request.with("Mcp-Session-Id", id).answered();
            assert_eq!(response.status, 200, "{id}");
            assert_eq!(response.header("mcp-session-id"), None, "{id}");
        }
    }
    // The modern request does not use what the other session knows.
    let legacy = legacy.registered("legacy");
    let result = stranger
        .call("heartbeat", json!({}))
        .with("Mcp-Session-Id", known)
        .answered();
    assert_eq!(
        result.json()["result"]["structuredContent"]["code"],
        "session_required",
        "{result:?}"
    );
    legacy.calls("heartbeat", json!({}));
}

#[test]
fn a_call_that_acts_as_a_session_must_name_it() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let stranger = unregistered_client(&broker);
    for (tool, arguments) in [
        ("heartbeat", json!({})),
        ("disconnect_session", json!({})),
        ("receive_messages", json!({})),
        ("receive_messages", json!({"wait_seconds": 100})),
        ("acknowledge_messages", json!({"message_ids": []})),
        (
            "send_message",
            json!({
                "recipient_id": "alice", "protocol_name": "note", "protocol_version": "1.0.0",
                "payload": {"text": "from nobody"},
            }),
        ),
    ] {
        stranger.is_refused_as("session_required", tool, arguments.clone());
        let mut unknown = arguments;
        unknown["session_id"] = json!("00000000-0000-4000-8000-000000000000");
        stranger.is_refused_as("session_not_found", tool, unknown);
    }
    alice.sees_nothing();

    let bob = broker.http_modern("bob");
    assert_eq!(bob.calls("heartbeat", json!({}))["queue_size"], 0);
    let sent = bob.calls(
        "send_message",
        json!({
            "recipient_id": "alice", "protocol_name": "note", "protocol_version": "1.0.0",
            "payload": {"text": "from bob"},
        }),
    );
    let seen = alice.sees(["from bob"]);
    assert_eq!(seen[0]["message_id"], sent["message_id"]);
    assert_eq!(seen[0]["sender_id"], bob.listed().unwrap().as_str());
    // Others see the same session; the callers are told apart by the ids they were given.
    let again = broker.http_modern("bob");
    assert_ne!(again.session, bob.session);
    assert_eq!(again.calls("heartbeat", json!({}))["status"], "active");
    let listed = alice.calls("list_sessions", json!({"status": "all"}));
    let bobs = listed["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|session| session["name"] == "bob");
    let ids: Vec<_> = bobs.map(|session| session["session_id"].as_str()).collect();
    assert_eq!(ids, [bob.listed().as_deref()]);
}

#[test]
fn every_result_says_how_many_messages_are_unread() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.http_modern("bob");
    let unread = |tool: &str, arguments: Value| {
        let result = bob.call(tool, arguments).sent().answer_to(&json!(1)).unwrap();
        result["_meta"]["dev.mcp-broker/unread"].as_u64().unwrap()
    };
    for (at, text) in ["one", "two", "three"].iter().enumerate() {
        assert_eq!(unread("heartbeat", json!({})), at as u64);
        alice.sends(text).to("bob");
    }
    assert_eq!(unread("list_sessions", json!({})), 3);
    assert_eq!(unread("get_message_status", json!({"message_id": "nonsense"})), 3);
    assert_eq!(unread("receive_messages", json!({"limit": 2})), 1);
    assert_eq!(unread("receive_messages", json!({})), 0);
}

#[test]
fn messages_read_by_a_stateless_client_are_acknowledged() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.http_modern("bob");
    let first = alice.sends("first").to("bob");
    let second = alice.sends("second").to("bob");
    let read = bob.reads(json!({"limit": 1}));
    assert_eq!(read[0]["message_id"], first.id.as_str());
    assert_eq!(alice.status_of(&first.id), "delivered");
    let read = bob.reads(json!({}));
    assert_eq!(read[0]["message_id"], second.id.as_str());
    assert_eq!(alice.status_of(&first.id), "acknowledged");
    assert_eq!(alice.status_of(&second.id), "delivered");
    let done = bob.calls("acknowledge_messages", json!({"message_ids": [second.id]}));
    assert_eq!(done["acknowledged"], 1);
    // By a notification too.
    let third = alice.sends("third").to("bob");
    assert_eq!(bob.reads(json!({"acknowledge": "manual"})).len(), 1);
    bob.notifies(
        "notifications/dev.mcp-broker/ack",
        json!({"message_ids": [third.id], "session_id": bob.session}),
    );
    alice.awaits_status(&third.id, "acknowledged");
}

#[test]
fn an_answer_is_acknowledged_by_a_request_that_follows_at_once_on_another_thread() {
    let mut program = broker_program();
    // The thread that has sent an answer does not run for a moment.
    program.env("FAULT_DELAY_AT", "answer_sent 20");
    let broker = Broker::with_program(program, &["--workers=2"]);
    let (alice, bob) = (broker.agent("alice"), broker.http_modern("bob"));
    for round in 0..8 {
        let sent = alice.sends("hi").to("bob");
        assert_eq!(texts(&bob.reads(json!({}))), ["hi"], "{round}");
        assert_eq!(texts(&bob.reads(json!({}))), [""; 0], "{round}");
        assert_eq!(alice.status_of(&sent.id), "acknowledged", "{round}");
    }
}

#[test]
fn a_client_that_prefers_events_gets_its_answer_as_an_event() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    for accept in [
        "text/event-stream, application/json",
        "text/event-stream",
        "TEXT/Event-Stream;q=0.9, application/json;q=0.1",
        "text/*, application/json",
    ] {
        for (method, params) in [
            ("tools/list", json!({})),
            ("tools/call", json!({"name": "list_sessions", "arguments": {}})),
        ] {
            let request = stranger.asks(method, params).with("Accept", accept);
            let mut reply = request.sent().streams();
            assert_eq!(reply.header("x-accel-buffering").as_deref(), Some("no"), "{accept}");
            let caching = reply.header("cache-control").unwrap();
            assert!(caching.contains("no-cache"), "{caching}");
            let event = reply.next_event().unwrap();
            // Streams of this revision cannot be resumed, so their events have no ids.
            assert_eq!((event.id.as_deref(), event.retry), (None, None), "{event:?}");
            assert_eq!(event.json()["result"]["resultType"], "complete");
            reply.ends();
        }
    }
    for accept in [
        "application/json, text/event-stream",
        "application/json",
        "application/json;q=0.5",
        "*/*",
        "application/*",
    ] {
        let response = list_sessions(&stranger).with("Accept", accept).answered();
        assert_eq!(response.header("content-type"), Some("application/json"), "{accept}");
    }
    let response = list_sessions(&stranger).without("Accept").answered();
    assert_eq!(response.header("content-type"), Some("application/json"));
}

#[test]
fn an_error_can_come_as_an_event() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    let request = stranger
        .asks("tools/call", json!({"name": "no_such_tool", "arguments": {}}))
        .with("Accept", "text/event-stream, application/json");
    assert_eq!(request.sent().answer_to(&json!(1)).unwrap_err()["code"], -32602);
    // A request that is refused before it is parsed gets an HTTP status.
    for request in [
        request.clone().without("Mcp-Name"),
        stranger
            .asks("server/discover", json!({"_meta": {VERSION: "x"}}))
            .with("MCP-Protocol-Version", "x")
            .with("Accept", "text/event-stream, application/json"),
    ] {
        assert_eq!(request.answered().status, 400);
    }
}

#[test]
fn log_messages_come_before_the_answer() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    let call = |level: &str| {
        let meta = json!({"io.modelcontextprotocol/logLevel": level});
        let params = json!({"name": "heartbeat", "arguments": {}, "_meta": meta});
        stranger.asks("tools/call", params)
    };
    let mut reply = call("warning").sent().streams();
    let logged = reply.next_frame();
    assert_eq!(logged["method"], "notifications/message");
    assert_eq!(logged["params"]["level"], "warning");
    assert_eq!(logged["params"]["data"]["code"], "session_required");
    assert_eq!(reply.answer_to(&json!(1)).unwrap()["isError"], true);
    reply.ends();
    // Less severe messages are left out, and without a level none is sent.
    let quiet = call("emergency").answered();
    assert_eq!(quiet.header("content-type"), Some("application/json"));
    let error = call("loud").sent().answer_to(&json!(1)).unwrap_err();
    assert_eq!(error["code"], -32602);
}

#[test]
fn a_client_that_accepts_no_events_gets_none() {
    let broker = Broker::without_timeouts();
    let stranger = unregistered_client(&broker);
    let meta = json!({"io.modelcontextprotocol/logLevel": "debug", "progressToken": 1});
    let params = json!({"name": "heartbeat", "arguments": {}, "_meta": meta});
    let request = stranger.asks("tools/call", params).with("Accept", "application/json");
    let response = request.answered();
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.json()["result"]["isError"], true);
}
