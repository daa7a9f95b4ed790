//! The outcome of an acknowledgement: what a recipient says of a message reaches its sender, and a rejected message is a
//! dead letter.

use serde_json::{Value, json};

use crate::support::{Broker, texts};

fn acknowledges(bob: &crate::support::Agent, ids: &[&str], outcome: &Value) -> Value {
    let mut arguments = json!({"message_ids": ids});
    for (name, value) in outcome.as_object().unwrap() {
        arguments[name] = value.clone();
    }
    bob.calls("acknowledge_messages", arguments)
}

#[test]
fn the_sender_reads_the_outcome_in_the_status() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let (done, blocked, plain) = (
        alice.sends("one").to(&bob),
        alice.sends("two").to(&bob),
        alice.sends("three").to(&bob),
    );
    bob.calls("receive_messages", json!({"acknowledge": "manual"}));
    let answer = acknowledges(&bob, &[&done.id], &json!({"outcome": "done"}));
    assert_eq!(answer, json!({"acknowledged": 1, "unknown": []}));
    acknowledges(
        &bob,
        &[&blocked.id],
        &json!({"outcome": "blocked", "note": "no access to \"prod\""}),
    );
    acknowledges(&bob, &[&plain.id], &json!({}));
    let row = |id: &str| alice.recipient_statuses(id)[0].clone();
    assert_eq!(row(&done.id)["status"], "acknowledged");
    assert_eq!(row(&done.id)["outcome"], "done");
    assert_eq!(row(&done.id).get("note"), None);
    assert_eq!(row(&blocked.id)["outcome"], "blocked");
    assert_eq!(row(&blocked.id)["note"], "no access to \"prod\"");
    assert_eq!(row(&plain.id).get("outcome"), None);
}

#[test]
fn a_rejected_message_is_a_dead_letter() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("one").to(&bob);
    bob.calls("receive_messages", json!({"acknowledge": "manual"}));
    acknowledges(&bob, &[&sent.id], &json!({"outcome": "rejected", "note": "ask carol"}));
    let row = &alice.recipient_statuses(&sent.id)[0];
    assert_eq!(row["status"], "dead_lettered");
    assert_eq!(row["reason"], "rejected");
    assert_eq!(row["outcome"], "rejected");
    assert_eq!(row["note"], "ask carol");
    let dead = alice.calls("list_dead_letters", json!({"reason": "rejected"}));
    assert_eq!(dead["dead_letters"][0]["message"]["message_id"], sent.id.as_str());
    let redriven = alice.calls("redrive_dead_letters", json!({"message_ids": [sent.id]}));
    assert_eq!(redriven["redriven"], 1);
    let again = bob.calls("receive_messages", json!({}));
    assert_eq!(texts(again["messages"].as_array().unwrap()), ["one"]);
    assert_eq!(alice.recipient_statuses(&sent.id)[0].get("outcome"), None);
}

#[test]
fn a_sender_that_waits_is_told_the_outcome() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    for (outcome, status) in [("done", "acknowledged"), ("rejected", "dead_lettered")] {
        let arguments = alice
            .sends("hi")
            .with_argument("wait_for", "acknowledged")
            .arguments_to(&bob);
        let call = alice.begins_call("send_message", &arguments);
        let got = bob.calls("receive_messages", json!({"acknowledge": "manual", "wait_seconds": 20}));
        let id = got["messages"][0]["message_id"].as_str().unwrap().to_owned();
        acknowledges(&bob, &[&id], &json!({"outcome": outcome, "note": "so be it"}));
        let told = alice.finishes_call("send_message", &call);
        assert_eq!(told["status"], status);
        assert_eq!(told["outcome"], outcome);
        assert_eq!(told["note"], "so be it");
    }
}

#[test]
fn a_bad_outcome_acknowledges_nothing() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("hi").to(&bob);
    bob.calls("receive_messages", json!({"acknowledge": "manual"}));
    let too_many = vec![sent.id.clone(); 101];
    let bad = [
        json!({"message_ids": [sent.id], "outcome": "maybe"}),
        json!({"message_ids": [sent.id], "note": "without an outcome"}),
        json!({"message_ids": [sent.id], "outcome": "done", "note": "x".repeat(1001)}),
        json!({"message_ids": too_many, "outcome": "done"}),
    ];
    for arguments in bad {
        bob.is_refused_as("invalid_argument", "acknowledge_messages", arguments);
    }
    assert_eq!(alice.status_of(&sent.id), "delivered");
    let longest = "\u{1f980}".repeat(1000);
    acknowledges(&bob, &[&sent.id], &json!({"outcome": "done", "note": longest}));
    assert_eq!(alice.recipient_statuses(&sent.id)[0]["note"], longest.as_str());
}
