//! Push over WebSocket: which clients get it, how many messages at a time, and how they are acknowledged.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, texts};

const PUSH: &str = "notifications/dev.mcp-broker/message";

fn send_many(alice: &Agent, len: usize) -> Vec<String> {
    (0..len).map(|at| alice.sends(&at.to_string()).to("bob").id).collect()
}

#[test]
fn a_message_is_pushed_whole() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.push_agent("bob", &json!({})));
    let sent = alice.sends("hi").with("correlation_id", "c").to(&bob);
    let params = bob.wire.next_notification(PUSH);
    assert_eq!(params.as_object().unwrap().len(), 1, "{params}");
    let message = &params["message"];
    assert_eq!(message["message_id"], sent.id.as_str());
    assert_eq!(message["payload"]["text"], "hi");
    assert_eq!(message["headers"]["correlation_id"], "c");
    assert_eq!(message["delivery_count"], 1);
    // The same as a read returns.
    bob.wire.disconnects();
    let read = broker.agent("bob").sees(["hi"]).remove(0);
    let mut expected = message.clone();
    expected["delivery_count"] = json!(2);
    assert_eq!(read, expected);
}

#[test]
fn a_client_that_did_not_declare_push_gets_none() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for bob in [broker.agent("bob"), broker.modern("bob2")] {
        assert_eq!(alice.sends("hi").to(&bob).status, "queued");
        if bob.name == "bob" {
            bob.sees_no_push();
        }
        bob.sees(["hi"]);
    }
    // A modern client that declares push and does not listen.
    let capabilities = json!({"extensions": {"dev.mcp-broker/push": {}}});
    let carol = Agent::modern(broker.wire(), capabilities).registered("carol");
    assert_eq!(alice.sends("hi").to(&carol).status, "queued");
    carol.sees(["hi"]);
}

#[test]
fn at_most_a_window_of_messages_is_in_flight() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.push_agent("bob", &json!({"window": 3})));
    let sent = send_many(&alice, 10);
    let first = bob.is_pushed(["0", "1", "2"]);
    bob.sees_no_push();
    assert_eq!(alice.status_of(&sent[2]), "delivered");
    assert_eq!(alice.status_of(&sent[3]), "queued");
    bob.acknowledges(&first[1..2]);
    let fourth = bob.is_pushed(["3"]);
    bob.sees_no_push();
    bob.acknowledges(&[&first[..1], &first[2..], &fourth[..]].concat());
    bob.is_pushed(["4", "5", "6"]);
    bob.sees_no_push();
}

#[test]
fn an_acknowledgement_up_to_an_id_covers_all_messages_before_it() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.push_agent("bob", &json!({"window": 4})));
    let sent = send_many(&alice, 6);
    bob.is_pushed(["0", "1", "2", "3"]);
    bob.wire
        .notifies("notifications/dev.mcp-broker/ack", &json!({"up_to": sent[2]}));
    bob.is_pushed(["4", "5"]);
    for id in &sent[..3] {
        alice.awaits_status(id, "acknowledged");
    }
    for id in &sent[3..] {
        assert_eq!(alice.status_of(id), "delivered");
    }
}

#[test]
fn pushed_messages_can_be_acknowledged_by_the_tool() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.push_agent("bob", &json!({"window": 1})));
    let sent = send_many(&alice, 2);
    bob.is_pushed(["0"]);
    let done = bob.calls("acknowledge_messages", json!({"message_ids": [sent[0]]}));
    assert_eq!(done["acknowledged"], 1);
    bob.is_pushed(["1"]);
}

#[test]
fn an_invalid_acknowledgement_has_no_effect() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.push_agent("bob", &json!({"window": 1})));
    let sent = send_many(&alice, 2);
    bob.is_pushed(["0"]);
    for params in [
        json!({}),
        json!({"message_ids": "all"}),
        json!({"message_ids": ["nonsense"]}),
        json!({"message_ids": [sent[1]]}),
        json!({"up_to": "nonsense"}),
        json!({"up_to": sent[1]}),
        json!({"up_to": sent[0], "message_ids": [sent[0]]}),
        json!([1]),
        json!([[sent[0]], null]),
        Value::Null,
    ] {
        bob.wire.notifies("notifications/dev.mcp-broker/ack", &params);
    }
    bob.sees_no_push();
    assert_eq!(alice.status_of(&sent[0]), "delivered");
    assert_eq!(alice.status_of(&sent[1]), "queued");
}

#[test]
fn written_messages_are_acknowledged_with_ack_auto() {
    let broker = Broker::start();
    let settings = json!({"window": 2, "ack": "auto"});
    let (alice, bob) = (broker.agent("alice"), broker.push_agent("bob", &settings));
    let sent = send_many(&alice, 50);
    let pushed: Vec<_> = sent.iter().map(|_| bob.next_push()).collect();
    let ids: Vec<_> = pushed
        .iter()
        .map(|message| message["message_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, sent);
    for id in &sent {
        alice.awaits_status(id, "acknowledged");
    }
}

#[test]
fn invalid_push_settings_are_refused() {
    let broker = Broker::start();
    for settings in [
        json!({"window": 0}),
        json!({"window": -1}),
        json!({"window": 1.5}),
        json!({"window": "64"}),
        json!({"window": 1_000_000_000}),
        json!({"ack": "never"}),
        json!({"ack": 1}),
        json!(true),
    ] {
        let wire = broker.wire();
        let params = json!({
            "protocolVersion": "2025-11-25", "clientInfo": {"name": "t", "version": "1"},
            "capabilities": {"experimental": {"dev.mcp-broker/push": settings}},
        });
        assert_eq!(wire.error_of("initialize", params), -32602, "{settings}");
    }
}

#[test]
fn waiting_messages_are_pushed_after_the_answer_to_the_registration() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    broker.agent("bob").calls("disconnect_session", json!({}));
    send_many(&alice, 3);
    let capabilities = json!({"experimental": {"dev.mcp-broker/push": {}}});
    let bob = Agent::legacy(broker.wire(), "2025-11-25", &capabilities);
    let id = bob.begins_call("register_session", &json!({"name": "bob"}));
    let first = bob.wire.awaits_frame("the first frame", |_| true);
    assert_eq!(first["id"], id, "{first}");
    assert_eq!(first["result"]["structuredContent"]["queue_size"], 3);
    bob.is_pushed(["0", "1", "2"]);
}

#[test]
fn waiting_messages_are_pushed_by_priority() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.push_agent("bob", &json!({"window": 1})));
    alice.sends("first").to(&bob);
    let pushed = bob.is_pushed(["first"]);
    alice.sends("low").with("priority", "low").to(&bob);
    alice.sends("normal").to(&bob);
    alice.sends("urgent").with("priority", "urgent").to(&bob);
    bob.acknowledges(&pushed);
    for text in ["urgent", "normal", "low"] {
        let pushed = bob.is_pushed([text]);
        bob.acknowledges(&pushed);
    }
}

#[test]
fn a_client_with_push_may_read_as_well() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.push_agent("bob", &json!({"window": 1})));
    send_many(&alice, 3);
    bob.is_pushed(["0"]);
    // A pushed message is not returned by a read.
    assert_eq!(texts(&bob.reads(json!({"acknowledge": "manual"}))), ["1", "2"]);
    bob.sees_no_push();
}

#[test]
fn a_modern_client_gets_pushes_while_it_listens() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let capabilities = json!({"extensions": {"dev.mcp-broker/push": {"window": 2, "ack": "manual"}}});
    let bob = Agent::modern(broker.wire(), capabilities).registered("bob");
    send_many(&alice, 3);
    let filter = json!({"notifications": {"resourceSubscriptions": ["broker://inbox"]}});
    bob.wire
        .asks_as(&json!("listen-é"), "subscriptions/listen", bob.params(filter));
    let frame = bob
        .wire
        .awaits_frame("the first frame", |frame| frame.get("id").is_none());
    assert_eq!(frame["method"], "notifications/subscriptions/acknowledged");
    let first = bob.wire.next_notification(PUSH);
    assert_eq!(first["_meta"]["io.modelcontextprotocol/subscriptionId"], "listen-é");
    assert_eq!(first["message"]["payload"]["text"], "0");
    let second = bob.is_pushed(["1"]);
    bob.acknowledges(&second);
    let third = bob.is_pushed(["2"]);
    bob.wire.cancels(&json!("listen-é"));
    // Later messages wait.
    bob.acknowledges(&third);
    bob.syncs();
    assert_eq!(alice.sends("later").to(&bob).status, "queued");
    // Pushed messages without an acknowledgement wait too.
    bob.sees(["0", "later"]);
}
