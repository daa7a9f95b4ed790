//! Every tool: its description, and the exact keys of its result, in both eras.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, keys};

const TOOLS: [&str; 30] = [
    "register_session",
    "heartbeat",
    "disconnect_session",
    "list_sessions",
    "register_protocol",
    "discover_protocols",
    "transform_message",
    "negotiate_capabilities",
    "compatibility_matrix",
    "send_message",
    "broadcast_message",
    "receive_messages",
    "acknowledge_messages",
    "get_message_status",
    "get_thread",
    "search_messages",
    "clarify",
    "get_answer",
    "cancel_question",
    "yap",
    "permission_prompt",
    "list_dead_letters",
    "redrive_dead_letters",
    "add_backend",
    "create_project",
    "list_projects",
    "get_project_info",
    "rotate_project_keys",
    "grant_project_access",
    "revoke_project_access",
];

/// One client of each era.
fn client_of_each_era(broker: &Broker) -> [Agent; 2] {
    [broker.agent("legacy"), broker.modern("modern")]
}

fn assert_keys(object: &Value, expected: &[&str]) {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(keys(object), expected, "{object}");
}

#[test]
fn the_list_has_every_tool_fully_described() {
    let broker = Broker::start();
    for agent in client_of_each_era(&broker) {
        let listed = agent.request("tools/list", json!({})).unwrap();
        assert!(listed.get("nextCursor").is_none());
        let tools = listed["tools"].as_array().unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, TOOLS);
        for tool in tools {
            for text in ["title", "description"] {
                assert!(!tool[text].as_str().unwrap().is_empty(), "{tool}");
            }
            for hint in ["readOnlyHint", "destructiveHint", "idempotentHint"] {
                assert!(tool["annotations"][hint].is_boolean(), "{tool}");
            }
            // A client that sees an output schema wants `structuredContent`, which Claude Code does not want here.
            let has_output = tool["name"] != "permission_prompt";
            assert_eq!(tool.get("outputSchema").is_some(), has_output, "{tool}");
            for schema in ["inputSchema", "outputSchema"]
                .into_iter()
                .take(1 + usize::from(has_output))
            {
                let schema = &tool[schema];
                assert_eq!(schema["type"], "object", "{tool}");
                assert!(jsonschema::meta::is_valid(schema), "{schema}");
                jsonschema::validator_for(schema).unwrap();
            }
            let properties = tool["inputSchema"]["properties"].as_object().unwrap();
            assert!(properties.contains_key("session_id"), "{tool}");
        }
    }
}

#[test]
fn the_list_is_the_same_for_every_caller() {
    let broker = Broker::start();
    let [legacy, modern] = client_of_each_era(&broker);
    let first = legacy.request("tools/list", json!({})).unwrap()["tools"].take();
    for agent in [&modern, &legacy, &broker.client()] {
        assert_eq!(agent.request("tools/list", json!({})).unwrap()["tools"], first);
    }
}

#[test]
fn register_session_returns_the_documented_keys() {
    let broker = Broker::start();
    for agent in client_of_each_era(&broker) {
        let session = agent.calls("register_session", json!({"name": format!("{}2", agent.name)}));
        let expected = [
            "session_id",
            "project_id",
            "name",
            "status",
            "resumed",
            "was_active",
            "queue_size",
            "next",
            "heartbeat_interval_seconds",
            "stale_after_seconds",
            "disconnect_after_seconds",
        ];
        assert_keys(&session, &expected);
        assert_eq!(session["project_id"], "default");
        assert_eq!(session["status"], "active");
        assert_eq!(session["resumed"], false);
        assert_eq!(session["was_active"], false);
        assert_eq!(session["queue_size"], 0);
        assert_eq!(session["heartbeat_interval_seconds"], 10.0);
        assert_eq!(session["stale_after_seconds"], 30.0);
        assert_eq!(session["disconnect_after_seconds"], 60.0);
        let again = agent.calls("register_session", json!({"name": format!("{}2", agent.name)}));
        assert_eq!(again["resumed"], true);
        assert_eq!(again["session_id"], session["session_id"]);
    }
}

#[test]
fn a_session_may_have_no_name() {
    let broker = Broker::start();
    let agent = broker.client();
    let session = agent.calls("register_session", json!({}));
    assert_eq!(session["name"], Value::Null);
    // A later registration gives the same session a name.
    let named = agent.calls("register_session", json!({"name": "late"}));
    assert_eq!(named["session_id"], session["session_id"]);
    assert_eq!(named["name"], "late");
}

#[test]
fn heartbeat_and_disconnect_session_return_the_documented_keys() {
    let broker = Broker::start();
    for agent in client_of_each_era(&broker) {
        let beat = agent.calls("heartbeat", json!({}));
        assert_keys(&beat, &["status", "last_heartbeat", "queue_size"]);
        assert_eq!(beat["status"], "active");
        let left = agent.calls("disconnect_session", json!({}));
        assert_keys(&left, &["status", "queue_size"]);
        assert_eq!(left["status"], "disconnected");
    }
}

#[test]
fn list_sessions_returns_the_documented_keys() {
    let broker = Broker::start();
    for agent in client_of_each_era(&broker) {
        let capabilities = json!({"supported_protocols": {"note": ["1.0.0"]}, "supported_features": ["fast"]});
        agent.calls(
            "register_session",
            json!({"name": agent.name, "capabilities": capabilities, "metadata": {"team": 7}}),
        );
        let described = [
            "session_id",
            "name",
            "project_id",
            "status",
            "connection_time",
            "last_heartbeat",
            "queue_size",
            "activity",
            "wakes_by",
        ];
        let listed = agent.calls("list_sessions", json!({}));
        assert_keys(&listed, &["sessions"]);
        for session in listed["sessions"].as_array().unwrap() {
            assert_keys(session, &described);
        }
        let listed = agent.calls(
            "list_sessions",
            json!({"include_capabilities": true, "protocol": "note", "feature": "fast"}),
        );
        let session = listed["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|session| session["name"] == agent.name.as_str())
            .unwrap();
        assert_keys(session, &[&described[..], &["capabilities", "metadata"]].concat());
        assert_eq!(session["capabilities"], capabilities);
        assert_eq!(session["metadata"], json!({"team": 7}));
        for filter in [
            json!({"protocol": "nobodys"}),
            json!({"feature": "slow"}),
            json!({"status": "stale"}),
        ] {
            assert_eq!(agent.calls("list_sessions", filter)["sessions"], json!([]));
        }
    }
}

#[test]
fn protocol_tools_return_the_documented_keys() {
    let broker = Broker::start();
    for agent in client_of_each_era(&broker) {
        let name = format!("task-{}", agent.name);
        let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"});
        let metadata = json!({"author": "Ada", "description": "What to do", "tags": ["work"]});
        let mut registered = agent.calls(
            "register_protocol",
            json!({
                "name": name, "version": "1.2.3", "schema": schema, "capabilities": ["point_to_point", "broadcast"],
                "metadata": metadata,
            }),
        );
        let described = [
            "name",
            "version",
            "capabilities",
            "metadata",
            "registered_at",
            "registered_by",
        ];
        assert_eq!(registered["existed"], false);
        registered.as_object_mut().unwrap().remove("existed");
        assert_keys(&registered, &described);
        assert_eq!(registered["metadata"], metadata);
        assert_eq!(registered["registered_by"], agent.session.as_str());

        let found = agent.calls("discover_protocols", json!({"name": name}));
        assert_keys(&found, &["protocols"]);
        assert_eq!(found["protocols"], json!([registered]));
        let found = agent.calls("discover_protocols", json!({"name": name, "include_schema": true}));
        assert_keys(&found["protocols"][0], &[&described[..], &["schema"]].concat());
        assert_eq!(found["protocols"][0]["schema"], schema);
    }
}

#[test]
fn negotiation_tools_return_the_documented_keys() {
    let broker = Broker::start();
    let [legacy, modern] = client_of_each_era(&broker);
    for (ours, theirs) in [(&legacy, &modern), (&modern, &legacy)] {
        let negotiated = ours.calls("negotiate_capabilities", json!({"target_session_id": theirs.name}));
        let expected = [
            "compatible",
            "supported_protocols",
            "feature_intersections",
            "unsupported_features",
            "incompatibilities",
            "suggestions",
        ];
        assert_keys(&negotiated, &expected);
        assert_keys(&negotiated["unsupported_features"], &["ours", "theirs"]);
        let matrix = ours.calls("compatibility_matrix", json!({}));
        assert_keys(&matrix, &["rows"]);
        let row = [
            "session_a",
            "session_b",
            "compatible",
            "common_protocols",
            "common_features",
        ];
        assert_keys(&matrix["rows"][0], &row);
    }
}

#[test]
fn message_tools_return_the_documented_keys() {
    let broker = Broker::start();
    let [legacy, modern] = client_of_each_era(&broker);
    for (from, to) in [(&legacy, &modern), (&modern, &legacy), (&modern, &modern)] {
        let receipt = from.sends("hi").with("correlation_id", "c").to(to);
        assert_keys(
            &receipt.object,
            &["message_id", "status", "queue_size", "delivered_at", "recipient"],
        );
        assert_keys(
            &receipt.object["recipient"],
            &["status", "activity", "wakes_by", "last_read_at"],
        );
        assert_eq!(receipt.object["queue_size"], 1);

        let received = to.calls("receive_messages", json!({"acknowledge": "immediate"}));
        assert_keys(&received, &["messages", "receipt", "remaining"]);
        assert_eq!(received["remaining"], 0);
        let message = &received["messages"][0];
        let envelope = [
            "message_id",
            "project_id",
            "sender_id",
            "sender_name",
            "recipient_id",
            "timestamp",
            "protocol_name",
            "protocol_version",
            "payload",
            "headers",
            "delivery_count",
        ];
        assert_keys(message, &envelope);
        assert_eq!(message["message_id"], receipt.id.as_str());
        assert_eq!(message["project_id"], "default");
        assert_eq!(message["sender_id"], from.session.as_str());
        assert_eq!(message["sender_name"], from.name.as_str());
        assert_eq!(message["recipient_id"], to.session.as_str());
        assert_eq!(message["protocol_name"], "note");
        assert_eq!(message["protocol_version"], "1.0.0");
        assert_eq!(message["payload"], json!({"text": "hi"}));
        assert_eq!(message["headers"], json!({"priority": "normal", "correlation_id": "c"}));
        assert_eq!(message["delivery_count"], 1);
        assert_is_a_time(&message["timestamp"]);
        // A UUIDv7 sorts by time.
        assert_eq!(receipt.id.as_bytes()[14], b'7');

        let recipients = from.recipient_statuses(&receipt.id);
        assert_keys(&recipients[0], &["session_id", "status", "at"]);
        assert_eq!(recipients[0]["session_id"], to.session.as_str());
        assert_is_a_time(&recipients[0]["at"]);
    }
}

fn assert_is_a_time(text: &Value) {
    let text = text.as_str().unwrap();
    assert!(
        text.len() >= 20 && &text[10..11] == "T" && text.ends_with('Z'),
        "{text}"
    );
}

#[test]
fn broadcast_message_returns_the_documented_keys() {
    let broker = Broker::start();
    for agent in client_of_each_era(&broker) {
        let sent = agent.sends("all").to_everyone();
        let expected = [
            "message_id",
            "recipients",
            "delivered",
            "queued",
            "failed",
            "skipped",
            "failures",
        ];
        assert_keys(&sent, &expected);
    }
}

#[test]
fn acknowledge_messages_returns_the_documented_keys() {
    let broker = Broker::start();
    for agent in client_of_each_era(&broker) {
        agent.sends("to myself").to(&agent);
        let messages = agent.reads(json!({"acknowledge": "manual"}));
        let done = agent.calls(
            "acknowledge_messages",
            json!({"message_ids": [messages[0]["message_id"]]}),
        );
        assert_eq!(done, json!({"acknowledged": 1, "unknown": []}));
    }
}

#[test]
fn dead_letter_tools_return_the_documented_keys() {
    let broker = Broker::start();
    let agents = client_of_each_era(&broker);
    let sent = agents.each_ref().map(|agent| {
        agent
            .sends("too late")
            .with("ttl_seconds", 1)
            .with("report", "none")
            .to(agent)
    });
    for (agent, sent) in agents.iter().zip(sent) {
        agent.awaits_status(&sent.id, "expired");
        let listed = agent.calls("list_dead_letters", json!({}));
        assert_keys(&listed, &["dead_letters"]);
        let mut letters = listed["dead_letters"].as_array().unwrap().iter();
        let letter = letters
            .find(|letter| letter["message"]["message_id"] == sent.id.as_str())
            .unwrap();
        // In addition to the contract's fields: the recipient, which a broadcast does not name.
        assert_keys(
            letter,
            &["message", "reason", "at", "deliveries", "session_id", "session_name"],
        );
        assert_eq!(letter["reason"], "expired");
        assert_eq!(letter["deliveries"], 0);
        let redriven = agent.calls("redrive_dead_letters", json!({"message_ids": [sent.id]}));
        assert_eq!(redriven, json!({"redriven": 1, "unknown": [], "failures": []}));
        agent.sees(["too late"]);
        agent.sees_nothing();
    }
}

#[test]
fn every_result_says_how_many_messages_are_unread() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.modern("bob"));
    for text in ["1", "2", "3"] {
        alice.sends(text).to(&bob);
    }
    assert_eq!(alice.unread(), 0);
    bob.calls("list_sessions", json!({}));
    assert_eq!(bob.unread(), 3);
    bob.is_refused("get_message_status", json!({"message_id": "none"}));
    assert_eq!(bob.unread(), 3);
    bob.reads(json!({"limit": 2}));
    assert_eq!(bob.unread(), 1);
    bob.sees(["3"]);
    assert_eq!(bob.unread(), 0);
    bob.calls("heartbeat", json!({}));
    assert_eq!(bob.unread(), 0);
}

#[test]
fn every_call_can_name_its_session() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.client());
    alice.sends("for alice").to(&alice);
    let read = bob.calls("receive_messages", json!({"session_id": alice.held}));
    assert_eq!(read["messages"][0]["payload"]["text"], "for alice");
    let sent = bob.calls(
        "send_message",
        json!({
            "session_id": alice.held, "recipient_id": "alice", "protocol_name": "note",
            "protocol_version": "1.0.0", "payload": {"text": "again"},
        }),
    );
    let read = alice.sees(["again"]);
    assert_eq!(read[0]["message_id"], sent["message_id"]);
    assert_eq!(read[0]["sender_name"], "alice");
    // The call created no session for bob.
    let listed = alice.calls("list_sessions", json!({"status": "all"}));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_caller_without_a_session_gets_one() {
    let broker = Broker::start();
    let (alice, visitor) = (broker.agent("alice"), broker.client());
    visitor.sends("hello from a visitor").to(&alice);
    let message = &alice.sees(["hello from a visitor"])[0];
    assert_eq!(message["sender_name"], Value::Null);
    // The answer is sent to the id.
    let sender = message["sender_id"].as_str().unwrap();
    alice.sends("hello visitor").to(sender);
    visitor.sees(["hello visitor"]);
}

#[test]
fn arguments_may_be_null_or_absent() {
    let broker = Broker::start();
    let agent = broker.agent("alice");
    for params in [
        json!({"name": "heartbeat"}),
        json!({"name": "heartbeat", "arguments": null}),
        json!({"name": "heartbeat", "arguments": {"session_id": null}}),
    ] {
        let result = agent.request("tools/call", params).unwrap();
        assert_eq!(result["isError"], false, "{result}");
    }
}
