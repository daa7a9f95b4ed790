//! The transport of 2024-11-05, HTTP with server-sent events: one stream carries everything that the broker sends.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::INBOX;
use crate::support::{Broker, Request, ResponseReader, eventually, initialize_request};

/// A client whose stream has named the endpoint for its POSTs.
struct SseClient {
    stream: ResponseReader,
    post: Request,
    last_id: i64,
}

/// The path that an address relative to the stream's URL leads to: a proxy may have taken a prefix of it away.
fn resolved(stream: &str, address: &str) -> String {
    assert!(!address.contains('/'), "{address}");
    format!("{}/{address}", stream.rsplit_once('/').unwrap().0)
}

impl SseClient {
    fn open(broker: &Broker) -> Self {
        let mut stream = Request::get(broker.address).sent().streams();
        let first = stream.next_event().unwrap();
        assert_eq!(first.kind.as_deref(), Some("endpoint"), "{first:?}");
        assert!(first.data.starts_with("mcp?"), "{first:?}");
        assert_eq!(stream.header("mcp-session-id"), None);
        Self {
            stream,
            post: Request::post(broker.address, "").with_path(&resolved("/mcp", &first.data)),
            last_id: 0,
        }
    }

    fn initialized(broker: &Broker, version: &str, capabilities: Value) -> Self {
        let mut old = Self::open(broker);
        let params = json!({
            "protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "old", "version": "1"},
        });
        assert_eq!(old.request("initialize", params).unwrap()["protocolVersion"], version);
        old.sends(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        old
    }

    fn posts(&self, frame: &Value) -> Request {
        let mut post = self.post.clone();
        post.body = frame.to_string().into_bytes();
        post
    }

    fn sends(&self, frame: &Value) {
        let response = self.posts(frame).answered();
        assert_eq!(response.status, 202, "{response:?}");
        assert_eq!(response.header("mcp-session-id"), None);
    }

    fn asks(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        self.sends(&json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}));
        json!(self.last_id)
    }

    fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.asks(method, params);
        self.stream.answer_to(&id)
    }

    fn calls(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let mut result = self.request("tools/call", params).unwrap();
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].take()
    }
}

#[test]
fn every_request_is_answered_on_the_stream() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for version in ["2024-11-05", "2025-03-26", "2025-11-25"] {
        let mut old = SseClient::initialized(&broker, version, json!({}));
        assert_eq!(old.request("ping", json!({})), Ok(json!({})));
        assert!(old.request("tools/list", json!({})).unwrap()["tools"].is_array());
        assert_eq!(old.request("no/such", json!({})).unwrap_err()["code"], -32601);
        old.calls("register_session", json!({"name": version}));
        // Five calls in flight. Each is answered, in any order: one may wait longer for its store than the next.
        let mut unanswered: BTreeSet<i64> = (0..5)
            .map(|_| old.asks("tools/call", json!({"name": "heartbeat", "arguments": {}})))
            .map(|id| id.as_i64().unwrap())
            .collect();
        while !unanswered.is_empty() {
            let event = old.stream.next_event().unwrap();
            // An event has no id, because this transport cannot resume a stream.
            assert_eq!(event.id, None);
            let answer = event.json();
            assert_eq!(answer["result"]["isError"], false, "{answer}");
            assert!(unanswered.remove(&answer["id"].as_i64().unwrap()), "{answer}");
        }
        assert_eq!(old.request("resources/subscribe", json!({"uri": INBOX})), Ok(json!({})));
        alice.sends("hi").to(version);
        let told = old.stream.next_notification("notifications/resources/updated");
        assert_eq!(told, json!({"uri": INBOX}));
        assert_eq!(
            old.calls("receive_messages", json!({}))["messages"][0]["payload"]["text"],
            "hi"
        );
    }
}

#[test]
fn messages_are_pushed_on_the_stream() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let capabilities = json!({"experimental": {"dev.mcp-broker/push": {"window": 1, "ack": "manual"}}});
    let mut old = SseClient::initialized(&broker, "2024-11-05", capabilities);
    old.calls("register_session", json!({"name": "old"}));
    let first = alice.sends("first").to("old");
    alice.sends("second").to("old");
    let event = old.stream.next_event().unwrap();
    assert_eq!(event.id, None);
    assert_eq!(event.json()["params"]["message"]["message_id"], first.id.as_str());
    old.sends(&json!({
        "jsonrpc": "2.0", "method": "notifications/dev.mcp-broker/ack", "params": {"message_ids": [first.id]},
    }));
    let message = old.stream.next_notification("notifications/dev.mcp-broker/message");
    assert_eq!(message["message"]["payload"]["text"], "second");
    alice.awaits_status(&first.id, "acknowledged");
}

#[test]
fn a_wait_on_the_stream_can_be_cancelled_and_ends_with_a_message() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let mut old = SseClient::initialized(&broker, "2024-11-05", json!({}));
    old.calls("register_session", json!({"name": "old"}));
    let wait = json!({"name": "receive_messages", "arguments": {"wait_seconds": 100}});
    let cancelled = old.asks("tools/call", wait.clone());
    old.sends(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": cancelled},
    }));
    let id = old.asks("tools/call", wait);
    alice.sends("hi").to("old");
    let frame = old.stream.next_frame();
    assert_eq!(frame["id"], id, "{frame}");
    assert_eq!(
        frame["result"]["structuredContent"]["messages"][0]["payload"]["text"],
        "hi"
    );
}

#[test]
fn the_session_ends_with_its_stream() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let mut old = SseClient::initialized(&broker, "2024-11-05", json!({}));
    old.calls("register_session", json!({"name": "old"}));
    let sent = alice.sends("hi").to("old");
    old.calls("receive_messages", json!({}));
    alice.awaits_status(&sent.id, "delivered");
    // The client may not have seen what it has not acknowledged.
    old.asks(
        "tools/call",
        json!({"name": "receive_messages", "arguments": {"wait_seconds": 100}}),
    );
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let post = old.posts(&ping);
    old.stream.disconnects();
    eventually("the endpoint is gone", || (post.answered().status == 404).then_some(()));
    let mut again = SseClient::initialized(&broker, "2024-11-05", json!({}));
    assert_eq!(again.calls("register_session", json!({"name": "old"}))["resumed"], true);
    alice.sends("ho").to("old");
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| last != "ho") {
        let read = again.calls(
            "receive_messages",
            json!({"wait_seconds": 20, "acknowledge": "immediate"}),
        );
        for message in read["messages"].as_array().unwrap() {
            seen.push(message["payload"]["text"].as_str().unwrap().to_owned());
        }
    }
}

#[test]
fn an_unknown_endpoint_is_not_found() {
    let broker = Broker::without_timeouts();
    let old = SseClient::initialized(&broker, "2024-11-05", json!({}));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for path in [
        "/mcp?session_id=nonsense",
        "/mcp?session_id=",
        "/mcp?session_id=00000000000000000000000000000000",
    ] {
        assert_eq!(old.posts(&ping).with_path(path).answered().status, 404, "{path}");
    }
    // A body that is not a frame is refused in the answer to its POST.
    let mut post = old.posts(&ping);
    post.body = b"nonsense".to_vec();
    assert_eq!(post.refused(), (400, -32700));
    assert_eq!(
        old.posts(&ping).with("Content-Type", "text/plain").answered().status,
        415
    );
    assert_eq!(
        old.posts(&ping)
            .with("Origin", "https://evil.example")
            .answered()
            .status,
        403
    );
}

#[test]
fn each_stream_has_an_endpoint_that_cannot_be_guessed() {
    let broker = Broker::without_timeouts();
    let olds: Vec<_> = (0..20).map(|_| SseClient::open(&broker)).collect();
    let mut heads: Vec<_> = olds.iter().map(|old| old.post.head()).collect();
    heads.sort();
    heads.dedup();
    assert_eq!(heads.len(), 20);
    let id = heads[0].split("session_id=").nth(1).unwrap().split(' ').next().unwrap();
    assert!(id.len() >= 22, "{id}");
}

#[test]
fn a_client_that_accepts_no_events_gets_no_stream() {
    let broker = Broker::without_timeouts();
    for request in [
        Request::get(broker.address).with("Accept", "application/json"),
        Request::get(broker.address).with("Accept", "text/html"),
        Request::get(broker.address).without("Accept"),
        Request::get(broker.address).with("MCP-Protocol-Version", "2026-07-28"),
    ] {
        let status = request.answered().status;
        assert!([405, 406].contains(&status), "{status} {request:?}");
    }
}

#[test]
fn the_stream_is_served_to_a_client_of_any_version() {
    let broker = Broker::without_timeouts();
    let versions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "1999-01-01", ""];
    let at = |path, version| (path, version);
    let mcp = versions.map(|version| at("/mcp", version));
    let sse = versions.map(|version| at("/sse", version));
    let slash = ["/mcp/", "/sse/", "/mcp/broker", "/mcp/broker/"].map(|path| at(path, "2024-11-05"));
    // 2026-07-28 has no GET at its endpoint, and `/sse` is no endpoint of it.
    for (path, version) in mcp
        .into_iter()
        .chain(sse)
        .chain(slash)
        .chain([at("/sse", "2026-07-28")])
    {
        let get = Request::get(broker.address).with_path(path);
        let mut stream = get.with("MCP-Protocol-Version", version).sent().streams();
        let first = stream.next_event().unwrap();
        assert_eq!(first.kind.as_deref(), Some("endpoint"), "{path} {version}: {first:?}");
        let address = resolved(path, &first.data);
        assert!(address.starts_with(&format!("{path}?session_id=")), "{first:?}");
        let mut old = SseClient {
            stream,
            // Its requests name the version too.
            post: Request::post(broker.address, "")
                .with_path(&address)
                .with("MCP-Protocol-Version", version),
            last_id: 0,
        };
        let params = json!({
            "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"},
        });
        assert_eq!(
            old.request("initialize", params).unwrap()["protocolVersion"],
            "2024-11-05"
        );
        old.sends(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(old.calls("register_session", json!({}))["resumed"], false);
    }
}

#[test]
fn the_sse_path_serves_the_later_revisions_too() {
    let broker = Broker::without_timeouts();
    let hello = initialize_request(broker.address, "2025-11-25", json!({}))
        .with_path("/sse")
        .answered();
    let session = hello.header("mcp-session-id").expect("a session").to_owned();
    let stream = Request::get(broker.address)
        .with_path("/sse")
        .with("Mcp-Session-Id", &session);
    stream.sent().streams();
    let modern = broker
        .http_modern("modern")
        .call("heartbeat", json!({}))
        .with_path("/sse");
    assert_eq!(modern.answered().status, 200);
    let end = Request::get(broker.address)
        .with_method("DELETE")
        .with_path("/sse")
        .with("Mcp-Session-Id", session);
    assert_eq!(end.answered().status, 204);
}

#[test]
fn a_call_receipt_is_exact_across_two_streams() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let registered = || {
        let mut old = SseClient::initialized(&broker, "2024-11-05", json!({}));
        old.calls("register_session", json!({"name": "old"}));
        old
    };
    let mut old = registered();
    let sent = ["0", "1", "2"].map(|text| alice.sends(text).to("old").id);
    let first = old.calls("receive_messages", json!({"limit": 1}));
    let other = old.calls("receive_messages", json!({"limit": 1, "acknowledge": "manual"}));
    let last = old.calls("receive_messages", json!({"limit": 1, "receipt": first["receipt"]}));
    assert_eq!(other["messages"][0]["payload"]["text"], "1");
    assert_eq!(last["messages"][0]["payload"]["text"], "2");
    let statuses = || sent.each_ref().map(|id| alice.status_of(id));
    assert_eq!(statuses(), ["acknowledged", "delivered", "delivered"]);
    // The end of the stream releases its messages; the receipts stay valid.
    drop(old);
    alice.awaits_status(&sent[2], "queued");
    let mut old = registered();
    let again = old.calls("receive_messages", json!({"limit": 1, "receipt": last["receipt"]}));
    assert_eq!(again["messages"][0]["payload"]["text"], "1");
    assert_eq!(statuses(), ["acknowledged", "delivered", "acknowledged"]);
    let rest = old.calls("receive_messages", json!({"receipt": other["receipt"]}));
    assert_eq!(rest["messages"], json!([]));
    assert_eq!(statuses(), ["acknowledged"; 3]);
}
