//! Every refusal: inside a tool a result with a code of the contract, outside a JSON-RPC error.

use serde_json::{Value, json};

use crate::support::{Broker, keys, listed_id};

#[test]
fn every_refusal_has_the_same_form() {
    let broker = Broker::start();
    for agent in [broker.agent("alice"), broker.modern("bob")] {
        let error = agent.is_refused_as(
            "session_not_found",
            "negotiate_capabilities",
            json!({"target_session_id": "?"}),
        );
        assert!(
            keys(&error)
                .iter()
                .all(|key| ["code", "message", "detail", "retry_after_ms"].contains(key))
        );
    }
}

#[test]
fn tools_that_act_need_a_session() {
    let broker = Broker::start();
    for agent in [broker.agent("alice"), broker.modern("bob")] {
        agent.calls("disconnect_session", json!({}));
        for tool in ["heartbeat", "receive_messages", "disconnect_session"] {
            agent.is_refused_as("session_required", tool, json!({}));
        }
        agent.is_refused_as("session_required", "acknowledge_messages", json!({"message_ids": []}));
        agent.is_refused_as(
            "session_required",
            "negotiate_capabilities",
            json!({"target_session_id": agent.name}),
        );
        agent.sends("from nobody").fails_as("session_required", &agent);
        agent.is_refused_as(
            "session_required",
            "broadcast_message",
            json!({"protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "x"}}),
        );
        // Tools that only read need no session, and a registration restores it.
        agent.calls("list_sessions", json!({}));
        let back = agent.calls("register_session", json!({"name": agent.name}));
        assert_eq!(back["resumed"], true);
        assert_eq!(listed_id(back["session_id"].as_str().unwrap()), agent.session);
        agent.calls("heartbeat", json!({}));
    }
}

#[test]
fn an_unknown_session_is_not_found() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let unknown_id = "01890000-0000-7000-8000-000000000000";
    for address in ["nobody", unknown_id, "nobody@default", "ALICE"] {
        alice.sends("hi").fails_as("session_not_found", address);
    }
    for id in [unknown_id, "not an id"] {
        alice.is_refused_as("session_not_found", "heartbeat", json!({"session_id": id}));
    }
    alice.is_refused_as(
        "session_not_found",
        "compatibility_matrix",
        json!({"session_ids": ["alice", "nobody"]}),
    );
    // The other addresses of alice.
    for address in ["alice", "alice@default", &alice.session] {
        alice.sends("hi").to(address);
    }
}

#[test]
fn an_unknown_protocol_is_not_found() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for (name, version) in [("none", "1.0.0"), ("note", "1.0.1"), ("note", "1"), ("note", "^1.0.0")] {
        let error = alice
            .sends("hi")
            .with_argument("protocol_name", name)
            .with_argument("protocol_version", version)
            .fails_as("protocol_not_found", &alice);
        assert_eq!(
            (&error["detail"]["name"], &error["detail"]["version"]),
            (&json!(name), &json!(version))
        );
    }
}

#[test]
fn a_payload_is_checked_before_it_is_accepted() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let schema = json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 3},
            "steps": {"type": "array", "items": {"type": "object", "required": ["do"]}},
        },
        "required": ["title"],
        "additionalProperties": false,
    });
    alice.calls(
        "register_protocol",
        json!({"name": "plan", "version": "1.0.0", "schema": schema}),
    );
    let payload = json!({"title": "no", "steps": [{"do": 1}, {"undo": 1}], "more": 1});
    let plan = |payload: Value| {
        alice
            .sends("")
            .with_argument("protocol_name", "plan")
            .with_argument("payload", payload)
    };
    let error = plan(payload).fails_as("payload_invalid", &alice);
    let failures = error["detail"]["failures"].as_array().unwrap();
    let mut paths: Vec<_> = failures
        .iter()
        .map(|failure| failure["path"].as_str().unwrap())
        .collect();
    paths.sort_unstable();
    assert_eq!(paths, ["", "/steps/1", "/title"]);
    assert!(failures.iter().all(|failure| failure["reason"].is_string()));
    for no_object in [json!([]), json!("text"), json!(1), json!(true)] {
        plan(no_object).fails_as("payload_invalid", &alice);
    }
    // None of them was accepted, and a broadcast is checked as well.
    alice.is_refused_as(
        "payload_invalid",
        "broadcast_message",
        json!({"protocol_name": "plan", "protocol_version": "1.0.0", "payload": {}}),
    );
    alice.sees_nothing();
    plan(json!({"title": "yes"})).to(&alice);
    assert_eq!(alice.reads(json!({})).len(), 1);
}

#[test]
fn a_message_is_refused_if_its_recipient_does_not_speak_the_protocol() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let french =
        json!({"name": "bob", "capabilities": {"supported_protocols": {"lettre": ["1.0.0"], "note": ["2.0.0"]}}});
    let bob = broker.client().registered_with(&french);
    let error = alice.sends("hi").fails_as("incompatible_protocol", &bob);
    let detail = &error["detail"];
    assert_eq!(detail["protocol"], "note");
    assert_eq!(detail["version"], "1.0.0");
    assert_eq!(detail["speaks"], json!(["lettre 1.0.0", "note 2.0.0"]));
    bob.sees_nothing();
    // A compatible version is sufficient.
    bob.calls(
        "register_session",
        json!({"name": "bob", "capabilities": {"supported_protocols": {"note": ["1.4.0"]}}}),
    );
    alice.sends("hi").to(&bob);
    bob.sees(["hi"]);
}

#[test]
fn a_queue_takes_no_more_than_its_capacity() {
    let broker = Broker::start_with(&["--queue-capacity=3"]);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    for at in 1..=3 {
        assert_eq!(alice.sends("x").to(&bob).object["queue_size"], at);
    }
    let error = alice.sends("x").fails_as("queue_full", &bob);
    assert_eq!(error["detail"]["limit"], 3);
    // Other inboxes are unaffected.
    alice.sends("x").to(&alice);
    bob.sees(["x", "x", "x"]);
    bob.sees_nothing();
    alice.sends("room again").to(&bob);
    bob.sees(["room again"]);
}

#[test]
fn unacknowledged_messages_count_towards_the_capacity() {
    let broker = Broker::start_with(&["--queue-capacity=2"]);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice.sends("1").to(&bob);
    alice.sends("2").to(&bob);
    let read = bob.reads(json!({"acknowledge": "manual"}));
    alice.sends("3").fails_as("queue_full", &bob);
    bob.calls("acknowledge_messages", json!({"message_ids": [read[0]["message_id"]]}));
    alice.sends("3").to(&bob);
}

#[test]
fn a_payload_may_be_as_large_as_the_limit_and_no_larger() {
    const LIMIT: usize = 1024 * 1024;
    let broker = Broker::start_with(&["--max-payload-mb=1"]);
    let alice = broker.agent("alice");
    let payload = |len: usize| json!({"text": "x".repeat(len - r#"{"text":""}"#.len())});
    alice.sends("").with_argument("payload", payload(LIMIT)).to(&alice);
    let error = alice
        .sends("")
        .with_argument("payload", payload(LIMIT + 1))
        .fails_as("payload_too_large", &alice);
    assert_eq!(error["detail"]["limit"], LIMIT);
    alice.is_refused_as(
        "payload_too_large",
        "broadcast_message",
        json!({"protocol_name": "note", "protocol_version": "1.0.0", "payload": payload(LIMIT + 1)}),
    );
    let read = alice.reads(json!({}));
    assert_eq!(read.len(), 1);
    assert_eq!(read[0]["payload"], payload(LIMIT));
}

/// A tool, arguments that it refuses, and the name of the invalid one.
type InvalidCall = (&'static str, Value, &'static str);

/// Invalid arguments of the tools for sessions, and of lists.
fn invalid_session_calls() -> Vec<InvalidCall> {
    vec![
        ("heartbeat", json!({"surprise": 1}), "surprise"),
        ("register_session", json!({"Name": "x"}), "Name"),
        ("register_session", json!({"name": 5}), "name"),
        ("register_session", json!({"name": "a@b"}), "name"),
        ("register_session", json!({"name": "x".repeat(129)}), "name"),
        ("register_session", json!({"capabilities": []}), "capabilities"),
        (
            "register_session",
            json!({"capabilities": {"supported_protocol": {}}}),
            "capabilities",
        ),
        (
            "register_session",
            json!({"capabilities": {"supported_protocols": {"note": ["one"]}}}),
            "capabilities",
        ),
        (
            "register_session",
            json!({"capabilities": {"supported_features": "fast"}}),
            "capabilities",
        ),
        ("register_session", json!({"metadata": "x"}), "metadata"),
        (
            "register_session",
            json!({"metadata": {"x": "x".repeat(20_000)}}),
            "metadata",
        ),
        ("list_sessions", json!({"status": "asleep"}), "status"),
        ("list_sessions", json!({"limit": 0}), "limit"),
        ("list_sessions", json!({"limit": "10"}), "limit"),
        ("list_sessions", json!({"limit": 1_000_000}), "limit"),
        ("list_sessions", json!({"cursor": "nonsense"}), "cursor"),
        (
            "list_sessions",
            json!({"include_capabilities": "yes"}),
            "include_capabilities",
        ),
        ("discover_protocols", json!({"cursor": "nonsense"}), "cursor"),
        ("discover_protocols", json!({"version": "newest"}), "version"),
        ("discover_protocols", json!({"tags": "one"}), "tags"),
        ("discover_protocols", json!({"capability": "telepathy"}), "capability"),
        ("list_dead_letters", json!({"cursor": "nonsense"}), "cursor"),
        ("list_dead_letters", json!({"reason": "bored"}), "reason"),
    ]
}

/// Invalid arguments of the tools for protocols and capabilities.
fn invalid_protocol_calls() -> Vec<InvalidCall> {
    vec![
        ("register_protocol", json!({"version": "1.0.0", "schema": {}}), "name"),
        (
            "register_protocol",
            json!({"name": "Upper", "version": "1.0.0", "schema": {}}),
            "name",
        ),
        (
            "register_protocol",
            json!({"name": "x", "version": "1.0.0", "schema": {}}),
            "name",
        ),
        (
            "register_protocol",
            json!({"name": "fine", "version": "1.0", "schema": {}}),
            "version",
        ),
        (
            "register_protocol",
            json!({"name": "fine", "version": "1.0.0"}),
            "schema",
        ),
        (
            "register_protocol",
            json!({"name": "fine", "version": "1.0.0", "schema": {}, "capabilities": ["x"]}),
            "capabilities",
        ),
        (
            "register_protocol",
            json!({"name": "fine", "version": "1.0.0", "schema": {}, "metadata": {"tags": 1}}),
            "metadata",
        ),
        (
            "register_protocol",
            json!({"name": "fine", "version": "1.0.0", "schema": {}, "metadata": []}),
            "metadata",
        ),
        (
            "register_protocol",
            json!({"name": "fine", "version": "1.0.0", "schema": {}, "metadata": {"tag": []}}),
            "metadata",
        ),
        ("negotiate_capabilities", json!({}), "target_session_id"),
        (
            "negotiate_capabilities",
            json!({"target_session_id": "alice", "required_protocols": [["note", "1.0.0"]]}),
            "required_protocols",
        ),
        (
            "negotiate_capabilities",
            json!({"target_session_id": "alice", "required_protocols": [{"name": "note", "version": "1.0.0", "x": 1}]}),
            "required_protocols",
        ),
        (
            "negotiate_capabilities",
            json!({"target_session_id": "alice", "required_protocols": [{"name": "note"}]}),
            "required_protocols",
        ),
        ("compatibility_matrix", json!({"session_ids": "alice"}), "session_ids"),
    ]
}

/// Invalid arguments of the tools for messages.
fn invalid_message_calls() -> Vec<InvalidCall> {
    let note = json!({"protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "x"}});
    let send = |name: &str, value: Value| {
        let mut arguments = note.clone();
        arguments["recipient_id"] = json!("alice");
        arguments[name] = value;
        arguments
    };
    let broadcast = |name: &str, value: Value| {
        let mut arguments = note.clone();
        arguments[name] = value;
        arguments
    };
    vec![
        ("send_message", note.clone(), "recipient_id"),
        ("send_message", send("payload", Value::Null), "payload"),
        ("send_message", send("wait_for", json!("read")), "wait_for"),
        ("send_message", send("timeout_seconds", json!(-1)), "timeout_seconds"),
        ("send_message", send("timeout_seconds", json!(111)), "timeout_seconds"),
        ("send_message", send("headers", json!([])), "headers"),
        ("send_message", send("headers", json!({"priority": "asap"})), "headers"),
        ("send_message", send("headers", json!({"colour": "red"})), "headers"),
        (
            "send_message",
            send("headers", json!({"ttl_seconds": 0})),
            "headers.ttl_seconds",
        ),
        ("send_message", send("headers", json!({"ttl_seconds": 1.5})), "headers"),
        ("send_message", send("recipient_id", json!("")), "recipient_id"),
        ("send_message", send("protocol_name", json!("")), "protocol_name"),
        (
            "send_message",
            send("headers", json!({"idempotency_key": "k".repeat(257)})),
            "headers.idempotency_key",
        ),
        (
            "broadcast_message",
            broadcast("capability_filter", json!({"colour": "red"})),
            "capability_filter",
        ),
        (
            "broadcast_message",
            broadcast("capability_filter", json!([])),
            "capability_filter",
        ),
        (
            "broadcast_message",
            broadcast("wait_for", json!("delivered")),
            "wait_for",
        ),
        ("receive_messages", json!({"wait_seconds": 111}), "wait_seconds"),
        ("receive_messages", json!({"wait_seconds": "1"}), "wait_seconds"),
        ("receive_messages", json!({"acknowledge": "maybe"}), "acknowledge"),
        ("receive_messages", json!({"limit": -1}), "limit"),
        ("acknowledge_messages", json!({"message_ids": "all"}), "message_ids"),
        ("acknowledge_messages", json!({}), "message_ids"),
        ("get_message_status", json!({}), "message_id"),
        ("get_message_status", json!({"message_id": "none"}), "message_id"),
        (
            "get_message_status",
            json!({"message_id": "01890000-0000-7000-8000-000000000000"}),
            "message_id",
        ),
        ("redrive_dead_letters", json!({"message_ids": [1]}), "message_ids"),
    ]
}

fn invalid_history_calls() -> Vec<(&'static str, Value, &'static str)> {
    let search = |name: &str, value: Value| json!({"query": "a", name: value});
    let thread = |name: &str, value: Value| json!({"thread_id": "t", name: value});
    vec![
        ("get_thread", json!({}), "thread_id"),
        ("get_thread", thread("thread_id", json!("")), "thread_id"),
        ("get_thread", thread("thread_id", json!("t".repeat(129))), "thread_id"),
        ("get_thread", thread("thread_id", json!("a\nb")), "thread_id"),
        ("get_thread", thread("limit", json!(101)), "limit"),
        ("get_thread", thread("cursor", json!("1")), "cursor"),
        (
            "get_thread",
            thread("include_payloads", json!("all")),
            "include_payloads",
        ),
        ("get_thread", thread("query", json!("a")), "query"),
        ("search_messages", json!({}), "query"),
        ("search_messages", search("query", json!("")), "query"),
        ("search_messages", search("query", json!("a".repeat(129))), "query"),
        ("search_messages", search("thread_id", json!("\u{0}")), "thread_id"),
        ("search_messages", search("from", json!(1)), "from"),
        ("search_messages", search("since", json!("yesterday")), "since"),
        ("search_messages", search("limit", json!(0)), "limit"),
        ("search_messages", search("cursor", json!("x")), "cursor"),
        (
            "search_messages",
            search("include_payloads", json!("all")),
            "include_payloads",
        ),
    ]
}

#[test]
fn an_invalid_argument_is_named() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let calls = [
        invalid_session_calls(),
        invalid_protocol_calls(),
        invalid_message_calls(),
        invalid_history_calls(),
    ];
    for (tool, arguments, argument) in calls.concat() {
        let error = alice.is_refused_as("invalid_argument", tool, arguments.clone());
        assert_eq!(error["detail"]["argument"], argument, "{tool} {arguments}: {error}");
    }
    alice.sees_nothing();
}

#[test]
fn an_argument_given_twice_is_refused() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    alice.wire.sends_text(
        r#"{"jsonrpc":"2.0","id":"twice","method":"tools/call","params":{"name":"list_sessions","arguments":{"limit":1,"limit":2}}}"#,
    );
    let result = alice.wire.answer_to(&json!("twice")).unwrap();
    assert_eq!(result["structuredContent"]["code"], "invalid_argument");
}

#[test]
fn an_unknown_tool_or_method_is_a_json_rpc_error() {
    let broker = Broker::start();
    for agent in [broker.agent("alice"), broker.modern("bob")] {
        for params in [
            json!({"name": "no_such_tool", "arguments": {}}),
            json!({"name": "Heartbeat"}),
            json!({"name": ""}),
            json!({"name": 5}),
            json!({"arguments": {}}),
            json!({"name": "heartbeat", "arguments": []}),
            json!({"name": "heartbeat", "arguments": "x"}),
        ] {
            assert_eq!(agent.error_of("tools/call", params.clone()), -32602, "{params}");
        }
        for method in ["no/such/method", "", "tools", "prompts", "prompts/get_all"] {
            assert_eq!(agent.error_of(method, json!({})), -32601, "{method}");
        }
        assert_eq!(agent.error_of("tools/list", json!({"cursor": "nonsense"})), -32602);
    }
    // Params must be an object in both eras.
    let alice = broker.agent("alice");
    assert_eq!(alice.wire.error_of("tools/call", json!([1])), -32602);
}
