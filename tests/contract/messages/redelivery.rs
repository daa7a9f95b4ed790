//! What was delivered and not acknowledged comes again, until the limit; and what was given up can be sent again.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, eventually, texts};

fn manual(broker: &Broker, name: &str) -> Agent {
    broker.pushed(name, &json!({"ack": "manual"}))
}

#[test]
fn a_message_comes_again_after_its_connection_was_killed() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = manual(&broker, "bob");
    let sent = alice.sends("hi").to(&bob);
    assert_eq!(bob.is_pushed(["hi"])[0]["delivery_count"], 1);
    bob.wire.dies();
    alice.learns(&sent.id, "queued");
    let bob = manual(&broker, "bob");
    let again = bob.is_pushed(["hi"]);
    assert_eq!(again[0]["message_id"], sent.id.as_str());
    assert_eq!(again[0]["delivery_count"], 2);
    bob.acknowledges(&again);
    alice.learns(&sent.id, "acknowledged");
    // Done is done.
    bob.wire.dies();
    let bob = manual(&broker, "bob");
    bob.is_pushed_nothing();
}

#[test]
fn what_a_read_returned_comes_again_too() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    for text in ["1", "2", "3"] {
        alice.sends(text).to(&bob);
    }
    bob.sees(["1", "2", "3"]);
    bob.wire.dies();
    // In the same order, under the same ids, and before what came since.
    let bob = broker.agent("bob");
    alice.sends("4").to(&bob);
    let again = bob.sees(["1", "2", "3", "4"]);
    let counts: Vec<_> = again.iter().map(|message| &message["delivery_count"]).collect();
    assert_eq!(counts, [2, 2, 2, 1]);
}

#[test]
fn what_was_acknowledged_does_not_come_again() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    alice.sends("1").to(&bob);
    alice.sends("2").to(&bob);
    let read = bob.reads(json!({"acknowledge": "manual"}));
    bob.calls("acknowledge_messages", json!({"message_ids": [read[0]["message_id"]]}));
    bob.wire.dies();
    broker.agent("bob").sees(["2"]);
}

#[test]
fn a_long_poll_of_a_dead_connection_takes_nothing_with_it() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    bob.begins("receive_messages", &json!({"wait_seconds": 100}));
    bob.settles();
    bob.wire.dies();
    alice.sends("hi").to(&bob);
    broker.agent("bob").sees(["hi"]);
}

/// Has a message delivered once more, to a consumer that dies of it.
fn dies_of_it(broker: &Broker, witness: &Agent, id: &str, settled: &str) {
    let bob = manual(broker, "bob");
    assert_eq!(bob.next_push()["message_id"], id);
    bob.wire.dies();
    witness.learns(id, settled);
}

#[test]
fn a_message_that_kills_its_consumers_is_given_up_and_can_be_sent_again() {
    let broker = Broker::with(&["--delivery-limit=3"]);
    let alice = broker.agent("alice");
    // One that takes no pushes: nothing is delivered to it before the broker has noticed that it is gone.
    broker.agent("bob").wire.dies();
    let sent = alice.sends("poison").to("bob");
    dies_of_it(&broker, &alice, &sent.id, "queued");
    dies_of_it(&broker, &alice, &sent.id, "queued");
    dies_of_it(&broker, &alice, &sent.id, "dead_lettered");
    assert_eq!(alice.looks_up(&sent.id)[0]["reason"], "delivery_limit");
    let dead = alice.dead_letters("delivery_limit");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0]["deliveries"], 3);
    assert_eq!(dead[0]["message"]["message_id"], sent.id.as_str());
    assert_eq!(dead[0]["message"]["payload"]["text"], "poison");

    // It holds nothing up, and is not delivered again by itself.
    let bob = manual(&broker, "bob");
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
    alice.learns(&sent.id, "acknowledged");
    assert_eq!(alice.dead_letters("delivery_limit"), [Value::Null; 0]);
}

#[test]
fn a_dead_letter_can_be_sent_to_somebody_else() {
    let broker = Broker::start();
    let (alice, bob, carol) = (broker.agent("alice"), broker.agent("bob"), broker.agent("carol"));
    let sent = alice.sends("anyone?").with("ttl_seconds", 1).to(&bob);
    alice.learns(&sent.id, "expired");
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
    let recipients = alice.looks_up(&sent.id);
    assert!(
        recipients
            .iter()
            .any(|recipient| recipient["session_id"] == carol.session.as_str())
    );
}

#[test]
fn what_is_no_dead_letter_cannot_be_sent_again() {
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
fn a_redriven_message_needs_room_like_any_other() {
    let broker = Broker::with(&["--queue-capacity=1"]);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("late").with("ttl_seconds", 1).to(&bob);
    alice.learns(&sent.id, "expired");
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
fn nothing_accepted_is_lost_however_often_its_recipient_dies() {
    let broker = Broker::with(&["--delivery-limit=1000"]);
    let alice = broker.agent("alice");
    broker.agent("bob").wire.dies();
    let sender = std::thread::spawn(move || {
        let ids = (0..300)
            .map(|at| alice.sends(&at.to_string()).off_to("bob"))
            .collect::<Vec<_>>();
        for id in ids {
            alice.returns("send_message", &id);
        }
    });
    let mut seen = std::collections::BTreeSet::new();
    for round in 0.. {
        let bob = manual(&broker, "bob");
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
            bob.wire.dies();
        }
        assert!(round < 200, "only {} of 300", seen.len());
    }
    sender.join().unwrap();
    assert_eq!(seen.len(), 300);
}

#[test]
fn leaving_puts_back_what_was_not_acknowledged() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), manual(&broker, "bob"));
    let sent = alice.sends("hi").to(&bob);
    bob.is_pushed(["hi"]);
    let left = bob.calls("disconnect_session", json!({}));
    assert_eq!(left["queue_size"], 1);
    alice.learns(&sent.id, "queued");
    // The same connection may come back.
    bob.calls("register_session", json!({"name": "bob"}));
    assert_eq!(bob.is_pushed(["hi"])[0]["delivery_count"], 2);
    eventually("it is delivered again", || {
        (alice.status_of(&sent.id) == "delivered").then_some(())
    });
}
