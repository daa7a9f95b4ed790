//! Redelivery: unacknowledged messages are delivered again up to the limit, and dead letters can be redriven.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, eventually, texts};

fn push_agent(broker: &Broker, name: &str) -> Agent {
    broker.push_agent(name, &json!({"ack": "manual"}))
}

#[test]
fn a_pushed_message_is_redelivered_after_its_connection_died() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = push_agent(&broker, "bob");
    let sent = alice.sends("hi").to(&bob);
    assert_eq!(bob.is_pushed(["hi"])[0]["delivery_count"], 1);
    bob.wire.disconnects();
    alice.awaits_status(&sent.id, "queued");
    let bob = push_agent(&broker, "bob");
    let again = bob.is_pushed(["hi"]);
    assert_eq!(again[0]["message_id"], sent.id.as_str());
    assert_eq!(again[0]["delivery_count"], 2);
    bob.acknowledges(&again);
    alice.awaits_status(&sent.id, "acknowledged");
    // An acknowledged message is not delivered again.
    bob.wire.disconnects();
    let bob = push_agent(&broker, "bob");
    bob.sees_no_push();
}

#[test]
fn a_message_that_was_read_is_redelivered_after_its_connection_died() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    for text in ["1", "2", "3"] {
        alice.sends(text).to(&bob);
    }
    bob.sees(["1", "2", "3"]);
    bob.wire.disconnects();
    // In the same order, with the same ids, and before later messages.
    let bob = broker.agent("bob");
    alice.sends("4").to(&bob);
    let again = bob.sees(["1", "2", "3", "4"]);
    let counts: Vec<_> = again.iter().map(|message| &message["delivery_count"]).collect();
    assert_eq!(counts, [2, 2, 2, 1]);
}

#[test]
fn an_acknowledged_message_is_not_redelivered() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    alice.sends("1").to(&bob);
    alice.sends("2").to(&bob);
    let read = bob.reads(json!({"acknowledge": "manual"}));
    bob.calls("acknowledge_messages", json!({"message_ids": [read[0]["message_id"]]}));
    bob.wire.disconnects();
    broker.agent("bob").sees(["2"]);
}

#[test]
fn a_long_poll_of_a_dead_connection_takes_no_message() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    bob.begins_call("receive_messages", &json!({"wait_seconds": 100}));
    bob.syncs();
    bob.wire.disconnects();
    alice.sends("hi").to(&bob);
    broker.agent("bob").sees(["hi"]);
}

/// Has a message delivered once more to a consumer that dies of it, and waits for this status.
fn die_of_message(broker: &Broker, witness: &Agent, id: &str, settled: &str) {
    let bob = push_agent(broker, "bob");
    assert_eq!(bob.next_push()["message_id"], id);
    bob.wire.disconnects();
    witness.awaits_status(id, settled);
}

#[test]
fn a_message_that_kills_its_consumers_becomes_a_dead_letter_and_can_be_redriven() {
    let broker = Broker::start_with(&["--delivery-limit=3"]);
    let alice = broker.agent("alice");
    // A client without push: nothing is delivered to it before the broker has noticed that it is gone.
    broker.agent("bob").wire.disconnects();
    let sent = alice.sends("poison").to("bob");
    die_of_message(&broker, &alice, &sent.id, "queued");
    die_of_message(&broker, &alice, &sent.id, "queued");
    die_of_message(&broker, &alice, &sent.id, "dead_lettered");
    assert_eq!(alice.recipient_statuses(&sent.id)[0]["reason"], "delivery_limit");
    let dead = alice.dead_letters("delivery_limit");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0]["deliveries"], 3);
    assert_eq!(dead[0]["message"]["message_id"], sent.id.as_str());
    assert_eq!(dead[0]["message"]["payload"]["text"], "poison");

    // The dead letter blocks no other message, and is not delivered by itself.
    let bob = push_agent(&broker, "bob");
    alice.sends("bread").to(&bob);
    let pushed = bob.is_pushed(["bread"]);
    bob.acknowledges(&pushed);

    let redriven = alice.calls("redrive_dead_letters", json!({"message_ids": [sent.id, sent.id]}));
    assert_eq!(redriven["redriven"], 1);
    assert_eq!(redriven["unknown"], json!([sent.id]));
    let again = bob.is_pushed(["poison"]);
    assert_eq!(again[0]["message_id"], sent.id.as_str());
    assert_eq!(again[0]["delivery_count"], 1);
    bob.acknowledges(&again);
    alice.awaits_status(&sent.id, "acknowledged");
    assert_eq!(alice.dead_letters("delivery_limit"), [Value::Null; 0]);
}

#[test]
fn a_dead_letter_can_be_redriven_to_another_session() {
    let broker = Broker::start();
    let (alice, bob, carol) = (broker.agent("alice"), broker.agent("bob"), broker.agent("carol"));
    let sent = alice.sends("anyone?").with("ttl_seconds", 1).to(&bob);
    alice.awaits_status(&sent.id, "expired");
    let redriven = alice.calls(
        "redrive_dead_letters",
        json!({"message_ids": [sent.id], "recipient_id": "carol"}),
    );
    assert_eq!(redriven["redriven"], 1);
    let read = carol.sees(["anyone?"]);
    assert_eq!(read[0]["message_id"], sent.id.as_str());
    assert_eq!(read[0]["recipient_id"], carol.session.as_str());
    assert_eq!(read[0]["sender_name"], "alice");
    bob.sees_nothing();
    let recipients = alice.recipient_statuses(&sent.id);
    assert!(
        recipients
            .iter()
            .any(|recipient| recipient["session_id"] == carol.session.as_str())
    );
}

#[test]
fn only_dead_letters_can_be_redriven() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let alive = alice.sends("alive").to(&bob).id;
    let redriven = alice.calls("redrive_dead_letters", json!({"message_ids": [alive, "nonsense"]}));
    assert_eq!(redriven["redriven"], 0);
    let mut unknown: Vec<_> = redriven["unknown"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect();
    unknown.sort();
    assert_eq!(unknown, [format!("\"{alive}\""), "\"nonsense\"".to_owned()]);
    bob.sees(["alive"]);
    bob.sees_nothing();
    alice.is_refused_as(
        "session_not_found",
        "redrive_dead_letters",
        json!({"message_ids": [], "recipient_id": "nobody"}),
    );
}

#[test]
fn a_redriven_message_counts_towards_the_capacity() {
    let broker = Broker::start_with(&["--queue-capacity=1"]);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("late").with("ttl_seconds", 1).to(&bob);
    alice.awaits_status(&sent.id, "expired");
    alice.sends("full").to(&bob);
    let redriven = alice.calls("redrive_dead_letters", json!({"message_ids": [sent.id]}));
    assert_eq!(redriven["redriven"], 0);
    assert_eq!(
        redriven["failures"],
        json!([{"message_id": sent.id, "code": "queue_full"}])
    );
    assert_eq!(alice.dead_letters("expired").len(), 1);
    bob.sees(["full"]);
}

#[test]
fn no_accepted_message_is_lost_however_often_its_recipient_dies() {
    let broker = Broker::start_with(&["--delivery-limit=1000"]);
    let alice = broker.agent("alice");
    broker.agent("bob").wire.disconnects();
    let sender = std::thread::spawn(move || {
        let ids = (0..300)
            .map(|at| alice.sends(&at.to_string()).begins_sending_to("bob"))
            .collect::<Vec<_>>();
        for id in ids {
            alice.finishes_call("send_message", &id);
        }
    });
    let mut seen = std::collections::BTreeSet::new();
    for round in 0.. {
        let bob = push_agent(&broker, "bob");
        let mut pushed = Vec::new();
        for _ in 0..(40_usize).min(300 - seen.len()) {
            pushed.push(bob.next_push());
        }
        seen.extend(texts(&pushed).iter().map(|text| text.parse::<u32>().unwrap()));
        // Some are acknowledged, some are not, and the connection dies in between.
        bob.acknowledges(&pushed[..pushed.len().div_ceil(2)]);
        if seen.len() == 300 {
            break;
        }
        if round % 2 == 0 {
            bob.wire.disconnects();
        }
        assert!(round < 200, "only {} of 300", seen.len());
    }
    sender.join().unwrap();
    assert_eq!(seen.len(), 300);
}

#[test]
fn disconnect_session_releases_unacknowledged_messages() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), push_agent(&broker, "bob"));
    let sent = alice.sends("hi").to(&bob);
    bob.is_pushed(["hi"]);
    let left = bob.calls("disconnect_session", json!({}));
    assert_eq!(left["queue_size"], 1);
    alice.awaits_status(&sent.id, "queued");
    // The same connection may register again.
    bob.calls("register_session", json!({"name": "bob"}));
    assert_eq!(bob.is_pushed(["hi"])[0]["delivery_count"], 2);
    eventually("the message is delivered again", || {
        (alice.status_of(&sent.id) == "delivered").then_some(())
    });
}
