//! Who acts as a session: its connection, and the caller that has the id of its registration. The ids in lists only address.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, HttpAgent, texts};

/// A call of each tool that acts as a session.
fn acting_calls(session: &str) -> Vec<(&'static str, Value)> {
    let letter = json!({
        "recipient_id": "alice", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "forged"},
    });
    let mut calls = vec![
        ("heartbeat", json!({})),
        ("receive_messages", json!({})),
        ("receive_messages", json!({"wait_seconds": 100})),
        ("acknowledge_messages", json!({"message_ids": []})),
        ("negotiate_capabilities", json!({"target_session_id": "alice"})),
        ("send_message", letter),
        ("disconnect_session", json!({})),
    ];
    for (_, arguments) in &mut calls {
        arguments["session_id"] = json!(session);
    }
    calls
}

#[test]
fn an_id_from_a_list_does_not_act_as_another_agent() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let (connected, stateless) = (broker.agent("bob"), broker.http_modern("carol"));
    let [mallory, modern, visitor] = [broker.agent("mallory"), broker.modern("mark"), broker.client()];
    let listed = mallory.calls("list_sessions", json!({}));
    let id_of = |name: &str| {
        let mut sessions = listed["sessions"].as_array().unwrap().iter();
        let session = sessions.find(|session| session["name"] == name).unwrap();
        session["session_id"].as_str().unwrap().to_owned()
    };
    let http = HttpAgent::modern(broker.address, json!({}));
    for victim in ["bob", "carol"] {
        let (sent, id) = (alice.sends("private").to(victim), id_of(victim));
        for (tool, arguments) in acting_calls(&id) {
            for agent in [&mallory, &modern, &visitor] {
                let error = agent.is_refused_as("invalid_argument", tool, arguments.clone());
                assert!(
                    error["message"].as_str().unwrap().contains("register_session"),
                    "{error}"
                );
            }
            http.is_refused_as("invalid_argument", tool, arguments);
        }
        let ack = json!({"session_id": id, "message_ids": [sent.id]});
        http.notifies("notifications/dev.mcp-broker/ack", ack);
        let inbox = format!("broker://sessions/{id}/inbox");
        http.request("resources/read", json!({"uri": inbox})).unwrap_err();
        mallory.request("resources/read", json!({"uri": inbox})).unwrap_err();
        // Neither read nor acknowledged by anyone; a message to the listed id arrives.
        assert_eq!(alice.status_of(&sent.id), "queued");
        alice.sends("to the id").to(&id);
    }
    for read in [connected.reads(json!({})), stateless.reads(json!({}))] {
        assert_eq!(texts(&read), ["private", "to the id"]);
    }
    alice.sees_nothing();
}

#[test]
fn the_id_that_a_registration_returned_acts_until_another_caller_registers() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    assert_ne!(bob.held, bob.session);
    // On the connection any id of its session is good, as lists show it too.
    for id in [&bob.held, &bob.session] {
        bob.calls("heartbeat", json!({"session_id": id}));
    }
    alice.sends("1").to("bob");
    let helper = broker.client();
    let read = helper.reads(json!({"session_id": bob.held, "acknowledge": "immediate"}));
    assert_eq!(texts(&read), ["1"]);
    // The same caller keeps its id; another one ends it.
    let again = bob.calls("register_session", json!({"name": "bob"}));
    assert_eq!(again["session_id"], bob.held.as_str());
    let newer: Agent = broker.agent("bob");
    assert_eq!(newer.session, bob.session);
    helper.is_refused_as("session_taken_over", "heartbeat", json!({"session_id": bob.held}));
    // The client of the newer connection may know an older id.
    newer.calls("heartbeat", json!({"session_id": bob.held}));
}
