//! The revisions of MCP in both eras, and both eras on one connection.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, keys};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

fn initialize_params(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}})
}

#[test]
fn each_legacy_version_is_supported() {
    let broker = Broker::start();
    for version in LEGACY {
        let wire = broker.wire();
        let result = wire.request("initialize", initialize_params(version)).unwrap();
        assert_eq!(
            keys(&result),
            ["capabilities", "instructions", "protocolVersion", "serverInfo"]
        );
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["serverInfo"]["name"], "mcp-broker");
        assert_eq!(result["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(result["capabilities"]["resources"]["subscribe"], true);
        assert!(result["capabilities"]["tools"].is_object());
        assert!(result["capabilities"]["experimental"]["dev.mcp-broker/push"].is_object());
        assert!(result["instructions"].as_str().unwrap().contains("register_session"));
        wire.notifies("notifications/initialized", &json!({}));
        assert_eq!(wire.request("ping", Value::Null), Ok(json!({})));
        let tools = wire.request("tools/list", Value::Null).unwrap();
        assert_eq!(tools["tools"].as_array().unwrap().len(), 30);
        let result = wire.request("tools/call", json!({"name": "heartbeat"})).unwrap();
        assert_eq!(result["isError"], false);
        assert!(result.get("resultType").is_none());
    }
}

#[test]
fn an_unknown_version_is_answered_with_the_newest() {
    let broker = Broker::start();
    for version in ["2099-01-01", "1.0", "", "2026-07-28"] {
        let result = broker.wire().request("initialize", initialize_params(version)).unwrap();
        assert_eq!(result["protocolVersion"], LEGACY[0], "{version}");
    }
}

#[test]
fn a_second_initialize_is_refused() {
    let broker = Broker::start();
    let wire = broker.wire();
    for params in [json!({}), json!({"protocolVersion": 5}), Value::Null] {
        assert_eq!(wire.error_of("initialize", params), -32602);
    }
    wire.request("initialize", initialize_params(LEGACY[0])).unwrap();
    assert_eq!(wire.error_of("initialize", initialize_params(LEGACY[0])), -32600);
    wire.syncs();
}

#[test]
fn before_initialize_only_a_ping_is_answered() {
    let broker = Broker::start();
    let wire = broker.wire();
    assert_eq!(wire.request("ping", Value::Null), Ok(json!({})));
    assert_eq!(wire.error_of("tools/list", json!({})), -32602);
    assert_eq!(wire.error_of("tools/call", json!({"name": "heartbeat"})), -32602);
    wire.request("initialize", initialize_params(LEGACY[0])).unwrap();
    wire.request("tools/list", json!({})).unwrap();
}

#[test]
fn a_modern_client_discovers_the_server() {
    let broker = Broker::start();
    let bob = Agent::modern(broker.wire(), json!({}));
    let found = bob.request("server/discover", json!({})).unwrap();
    let expected = [
        "_meta",
        "cacheScope",
        "capabilities",
        "instructions",
        "resultType",
        "supportedVersions",
        "ttlMs",
    ];
    assert_eq!(keys(&found), expected);
    assert_eq!(found["resultType"], "complete");
    assert_eq!(found["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(found["capabilities"]["resources"]["subscribe"], true);
    assert!(found["capabilities"]["tools"].is_object());
    assert!(found["capabilities"]["extensions"]["dev.mcp-broker/push"].is_object());
    assert_eq!(
        found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "mcp-broker"
    );
    assert!(found["ttlMs"].is_u64());
    assert!(["public", "private"].contains(&found["cacheScope"].as_str().unwrap()));
}

#[test]
fn every_modern_list_says_how_long_it_may_be_cached() {
    let broker = Broker::start();
    let bob = broker.modern("bob");
    for (method, params) in [
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "broker://sessions"})),
    ] {
        let result = bob.request(method, params).unwrap();
        assert_eq!(result["resultType"], "complete", "{method}");
        assert!(result["ttlMs"].is_u64(), "{method}");
        assert!(
            ["public", "private"].contains(&result["cacheScope"].as_str().unwrap()),
            "{method}"
        );
    }
}

fn with_meta(meta: &Value) -> Value {
    json!({"_meta": meta, "name": "list_sessions"})
}

#[test]
fn a_modern_request_must_have_its_meta() {
    let broker = Broker::start();
    let wire = broker.wire();
    for meta in [
        json!({}),
        json!({VERSION: "2026-07-28"}),
        json!({CAPABILITIES: {}}),
        json!({VERSION: 20_260_728, CAPABILITIES: {}}),
        json!({VERSION: "2026-07-28", CAPABILITIES: []}),
        json!({VERSION: "2026-07-28", CAPABILITIES: null}),
        json!("meta"),
        json!(["2026-07-28", {}, null]),
    ] {
        for method in ["tools/call", "tools/list", "server/discover", "resources/list"] {
            assert_eq!(wire.error_of(method, with_meta(&meta)), -32602, "{method} {meta}");
        }
    }
    for version in ["1900-01-01", "2025-11-25", ""] {
        for method in ["tools/call", "server/discover", "no/such/method"] {
            let meta = json!({VERSION: version, CAPABILITIES: {}});
            let error = wire.request(method, with_meta(&meta)).unwrap_err();
            assert_eq!(error["code"], -32022);
            assert_eq!(
                error["data"],
                json!({"supported": ["2026-07-28"], "requested": version})
            );
        }
    }
}

#[test]
fn methods_of_the_other_era_are_not_found() {
    let broker = Broker::start();
    let bob = broker.modern("bob");
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe"] {
        assert_eq!(
            bob.error_of(method, json!({"uri": "broker://inbox"})),
            -32601,
            "{method}"
        );
    }
    let alice = broker.agent("alice");
    assert_eq!(alice.error_of("server/discover", json!({})), -32601);
}

#[test]
fn both_eras_share_one_connection_and_one_session() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let modern = json!({
        "name": "heartbeat",
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    });
    alice.sends("hi").to(&alice);
    let result = alice.wire.request("tools/call", modern.clone()).unwrap();
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["_meta"]["dev.mcp-broker/unread"], 1);
    let result = alice.request("tools/call", json!({"name": "heartbeat"})).unwrap();
    assert!(result.get("resultType").is_none());
    alice.sees(["hi"]);

    // The reverse order: first a modern request, then `initialize`.
    let bob = broker.modern("bob");
    bob.wire.request("initialize", initialize_params("2025-06-18")).unwrap();
    let result = bob.wire.request("tools/call", json!({"name": "heartbeat"})).unwrap();
    assert_eq!(result["isError"], false);
    assert!(result.get("resultType").is_none());
    bob.calls("heartbeat", json!({}));
}

#[test]
fn a_request_id_is_returned_unchanged() {
    let broker = Broker::start();
    let wire = broker.wire();
    for id in [
        json!(0),
        json!(-1),
        json!(9_007_199_254_740_993_i64),
        json!(""),
        json!("ünï\u{0} \"q\" \\ 😀"),
    ] {
        wire.asks_as(&id, "ping", Value::Null);
        assert_eq!(wire.answer_to(&id), Ok(json!({})));
    }
    for id in ["null", "1.5", "true", "{}", "[1]"] {
        wire.sends_text(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
        let refused = wire.awaits_frame("a refusal", |frame| frame.get("error").is_some());
        assert_eq!(refused["error"]["code"], -32600, "{id}");
        assert_eq!(refused["id"], Value::Null);
    }
}

fn batch_client(broker: &Broker, version: &str) -> Agent {
    Agent::legacy(broker.wire(), version, &json!({})).registered(&format!("b{version}"))
}

#[test]
fn a_batch_is_answered_with_one_frame() {
    let broker = Broker::start();
    let bob = batch_client(&broker, "2025-03-26");
    let call = |id: Value, tool: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}});
    bob.wire.sends(&json!([
        {"jsonrpc": "2.0", "id": "p", "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        call(json!("s"), "send_message", bob.sends("hi").arguments_to(&bob)),
        call(json!("l"), "list_sessions", json!({})),
        {"jsonrpc": "2.0", "id": "m", "method": "no/such/method"},
        {"jsonrpc": "1.0", "id": "v", "method": "ping"},
        1,
    ]));
    let answers = bob.wire.awaits_frame("the answers", Value::is_array);
    let find = |id: Value| {
        answers
            .as_array()
            .unwrap()
            .iter()
            .find(|answer| answer["id"] == id)
            .unwrap()
    };
    assert_eq!(answers.as_array().unwrap().len(), 6, "{answers}");
    assert_eq!(find(json!("p"))["result"], json!({}));
    assert_eq!(find(json!("s"))["result"]["structuredContent"]["status"], "queued");
    assert_eq!(find(json!("l"))["result"]["isError"], false);
    assert_eq!(find(json!("m"))["error"]["code"], -32601);
    assert_eq!(find(json!("v"))["error"]["code"], -32600);
    assert_eq!(find(Value::Null)["error"]["code"], -32600);
    bob.sees(["hi"]);
    // A batch of notifications has no answer.
    bob.wire
        .sends(&json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]));
    bob.wire.sends(&json!([]));
    let refused = bob.wire.awaits_frame("a refusal", |frame| frame.get("error").is_some());
    assert_eq!(refused["error"]["code"], -32600);
    bob.wire.syncs();
}

#[test]
fn a_first_batch_may_send_without_a_registration() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = Agent::legacy(broker.wire(), "2025-03-26", &json!({}));
    let call = |id: u32| {
        let arguments = bob.sends("hi").arguments_to(&alice);
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "send_message", "arguments": arguments}})
    };
    bob.wire.sends(&json!([call(101), call(102)]));
    let answers = bob.wire.awaits_frame("the answers", Value::is_array);
    for answer in answers.as_array().unwrap() {
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    alice.sees(["hi", "hi"]);
}

#[test]
fn a_revision_without_batches_refuses_a_batch() {
    let broker = Broker::start();
    for version in ["2025-11-25", "2025-06-18", "2024-11-05"] {
        let bob = batch_client(&broker, version);
        bob.wire
            .sends(&json!([{"jsonrpc": "2.0", "id": "x", "method": "ping"}]));
        let refused = bob.wire.awaits_frame("a refusal", |frame| frame.get("error").is_some());
        assert_eq!(refused["error"]["code"], -32600, "{version}");
        bob.wire.syncs();
    }
}

#[test]
fn unknown_notifications_and_responses_are_ignored() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    alice.wire.notifies("notifications/unknown/method", &json!({"x": 1}));
    alice
        .wire
        .notifies("notifications/cancelled", &json!({"requestId": 12345}));
    alice.wire.notifies("notifications/cancelled", &json!({}));
    alice
        .wire
        .notifies("notifications/cancelled", &json!({"requestId": {"no": "id"}}));
    alice.wire.sends(&json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    alice
        .wire
        .sends(&json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}));
    // The next frame is the answer to this request.
    alice.wire.asks_as(&json!("next"), "ping", Value::Null);
    let next = alice.wire.awaits_frame("anything", |_| true);
    assert_eq!(next["id"], "next");
}
