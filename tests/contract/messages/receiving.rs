//! Reading an inbox: limits, long polls, and the three ways to acknowledge.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Broker, texts};

/// Calls that may be in flight on one connection.
const CALLS_MAX: usize = 256;

#[test]
fn a_read_takes_no_more_than_its_limit_and_says_what_remains() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    for at in 0..25 {
        alice.sends(&at.to_string()).to(&bob);
    }
    let first = bob.calls("receive_messages", json!({}));
    assert_eq!(first["messages"].as_array().unwrap().len(), 20);
    assert_eq!(first["remaining"], 5);
    let second = bob.calls("receive_messages", json!({"limit": 2}));
    assert_eq!(second["remaining"], 3);
    bob.sees(["22", "23", "24"]);
}

#[test]
fn the_next_read_acknowledges_the_last() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("one").to(&bob);
    bob.sees(["one"]);
    assert_eq!(alice.status_of(&sent.id), "delivered");
    bob.sees_nothing();
    assert_eq!(alice.status_of(&sent.id), "acknowledged");
}

#[test]
fn an_immediate_read_acknowledges_at_once() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("one").to(&bob);
    assert_eq!(texts(&bob.reads(json!({"acknowledge": "immediate"}))), ["one"]);
    alice.awaits_status(&sent.id, "acknowledged");
}

#[test]
fn a_manual_read_is_acknowledged_by_id_only() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("one").to(&bob);
    assert_eq!(texts(&bob.reads(json!({"acknowledge": "manual"}))), ["one"]);
    bob.sees_nothing();
    bob.sees_nothing();
    assert_eq!(alice.status_of(&sent.id), "delivered");
    let done = bob.calls("acknowledge_messages", json!({"message_ids": [sent.id]}));
    assert_eq!(done, json!({"acknowledged": 1, "unknown": []}));
    assert_eq!(alice.status_of(&sent.id), "acknowledged");
}

#[test]
fn an_id_that_is_not_leased_is_not_acknowledged() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let of_alice = alice.sends("for alice").to(&alice).id;
    let unread = alice.sends("not read yet").to(&bob).id;
    let never = "01890000-0000-7000-8000-000000000000";
    let ids = json!([of_alice, unread, never, "nonsense", ""]);
    let done = bob.calls("acknowledge_messages", json!({"message_ids": ids}));
    assert_eq!(done["acknowledged"], 0);
    let mut unknown: Vec<_> = done["unknown"].as_array().unwrap().clone();
    let mut expected = ids.as_array().unwrap().clone();
    unknown.sort_by_key(ToString::to_string);
    expected.sort_by_key(ToString::to_string);
    assert_eq!(unknown, expected);
    // No message was lost.
    bob.sees(["not read yet"]);
    alice.sees(["for alice"]);
    // An id that is given twice counts once.
    let done = bob.calls("acknowledge_messages", json!({"message_ids": [unread, unread]}));
    assert_eq!(done, json!({"acknowledged": 1, "unknown": [unread]}));
    assert_eq!(
        bob.calls("acknowledge_messages", json!({"message_ids": []}))["acknowledged"],
        0
    );
}

#[test]
fn a_long_poll_returns_with_the_first_message() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let poll = bob.begins_call("receive_messages", &json!({"wait_seconds": 100}));
    bob.syncs();
    let sent = alice.sends("hi").to(&bob);
    let received = bob.finishes_call("receive_messages", &poll);
    assert_eq!(received["messages"][0]["message_id"], sent.id.as_str());
    if broker.answers_after_delivery() {
        // The waiting read took it, and the sender was told.
        assert_eq!(sent.status, "delivered");
        assert_eq!(sent.object["queue_size"], 0);
        assert!(sent.object["delivered_at"].is_string());
    }
}

#[test]
fn a_long_poll_ends_at_its_timeout() {
    let broker = Broker::start();
    let bob = broker.agent("bob");
    let began = Instant::now();
    let received = bob.calls("receive_messages", json!({"wait_seconds": 0.3}));
    assert_eq!((&received["messages"], &received["remaining"]), (&json!([]), &json!(0)));
    assert!(began.elapsed() >= Duration::from_millis(290));
}

#[test]
fn a_long_poll_does_not_block_other_calls() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let poll = bob.begins_call("receive_messages", &json!({"wait_seconds": 100}));
    bob.calls("heartbeat", json!({}));
    bob.sends("while waiting").to(&alice);
    alice.sees(["while waiting"]);
    alice.sends("done").to(&bob);
    bob.finishes_call("receive_messages", &poll);
}

#[test]
fn several_long_polls_get_each_message_once() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let arguments = json!({"wait_seconds": 100, "limit": 1, "acknowledge": "manual"});
    let polls: Vec<_> = (0..4)
        .map(|_| bob.begins_call("receive_messages", &arguments))
        .collect();
    bob.syncs();
    for text in ["0", "1", "2", "3"] {
        alice.sends(text).to(&bob);
    }
    let mut seen: Vec<_> = polls
        .iter()
        .map(|poll| bob.finishes_call("receive_messages", poll)["messages"][0]["payload"]["text"].to_string())
        .collect();
    seen.sort();
    assert_eq!(seen, ["\"0\"", "\"1\"", "\"2\"", "\"3\""]);
}

#[test]
fn a_cancelled_long_poll_is_not_answered_and_takes_no_message() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.modern("bob"));
    let poll = bob.begins_call("receive_messages", &json!({"wait_seconds": 100}));
    bob.wire.cancels(&poll);
    bob.syncs();
    let sent = alice.sends("hi").to(&bob);
    assert_eq!(sent.status, "queued");
    let read = bob.sees(["hi"]);
    assert_eq!(read[0]["delivery_count"], 1);
    assert_eq!(bob.wire.answer_so_far(&poll), None);
}

#[test]
fn a_long_poll_that_is_cancelled_as_a_message_arrives_is_answered_or_takes_nothing() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    for round in 0..150 {
        let text = round.to_string();
        let poll = bob.begins_call("receive_messages", &json!({"wait_seconds": 100}));
        if round % 2 == 0 {
            bob.wire.syncs();
        }
        let sent = alice.sends(&text).begins_sending_to(&bob);
        bob.wire.cancels(&poll);
        alice.finishes_call("send_message", &sent);
        bob.syncs();
        let answer = bob.wire.answer_so_far(&poll);
        let read = match answer {
            Some(answer) => answer["result"]["structuredContent"]["messages"].clone(),
            None => bob.reads(json!({"wait_seconds": 5})).into(),
        };
        assert_eq!(texts(read.as_array().unwrap()), [text.as_str()], "round {round}");
        bob.sees_nothing();
    }
}

/// More rounds than a message may be delivered.
const ROUNDS: usize = 7;

#[test]
fn a_cancellation_after_the_answer_changes_nothing() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for bob in [broker.agent("bob"), broker.modern("ben")] {
        for acknowledge in ["on_next", "manual", "immediate"] {
            let arguments = json!({"acknowledge": acknowledge, "wait_seconds": 20});
            for round in 0..ROUNDS {
                let sent = alice.sends("hi").to(&bob);
                let read = bob.begins_call("receive_messages", &arguments);
                let received = bob.finishes_call("receive_messages", &read);
                let messages = received["messages"].as_array().unwrap();
                assert_eq!(
                    messages[0]["message_id"],
                    sent.id.as_str(),
                    "{acknowledge} {round}: {messages:?}"
                );
                assert_eq!((messages.len(), &messages[0]["delivery_count"]), (1, &json!(1)));
                bob.wire.cancels(&read);
                bob.syncs();
                let kept = if acknowledge == "immediate" {
                    "acknowledged"
                } else {
                    "delivered"
                };
                assert_eq!(alice.status_of(&sent.id), kept, "{acknowledge} {round}");
                match acknowledge {
                    "manual" => drop(bob.calls("acknowledge_messages", json!({"message_ids": [sent.id]}))),
                    _ => bob.sees_nothing(),
                }
                assert_eq!(alice.status_of(&sent.id), "acknowledged", "{acknowledge} {round}");
            }
        }
    }
    assert_eq!(alice.dead_letters("delivery_limit"), [Value::Null; 0]);
}

#[test]
fn the_next_read_acknowledges_several_earlier_ones() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let arguments = json!({"wait_seconds": 100, "limit": 1});
    let polls = [(); 2].map(|()| bob.begins_call("receive_messages", &arguments));
    bob.syncs();
    let sent = ["1", "2"].map(|text| alice.sends(text).to(&bob));
    for poll in &polls {
        bob.finishes_call("receive_messages", poll);
    }
    bob.sees_nothing();
    for sent in &sent {
        assert_eq!(alice.status_of(&sent.id), "acknowledged");
    }
}

#[test]
fn a_read_takes_messages_of_any_size() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let text = "x".repeat(3_000_000);
    for _ in 0..4 {
        alice.sends(&text).to(&bob);
    }
    // All of them come, in several answers.
    let mut len = 0;
    while len < 4 {
        let read = bob.reads(json!({"limit": 100}));
        assert!(!read.is_empty());
        assert!(read.iter().all(|message| message["payload"]["text"] == text.as_str()));
        len += read.len();
    }
    assert_eq!(len, 4);
}

#[test]
fn the_number_of_waiting_reads_of_a_session_is_bounded() {
    /// Calls of `receive_messages` that may wait for one session.
    const WAITING_MAX: usize = 32;
    let broker = Broker::start_with(&crate::support::TIMEOUTS_OFF);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let wait = json!({"wait_seconds": 100, "limit": 1});
    let waiting: Vec<_> = (0..WAITING_MAX)
        .map(|_| bob.begins_call("receive_messages", &wait))
        .collect();
    let refused = bob.is_refused_as("unavailable", "receive_messages", wait.clone());
    assert!(refused["retry_after_ms"].is_u64(), "{refused}");
    for call in &waiting {
        assert_eq!(bob.wire.answer_so_far(call), None);
    }
    // A place that becomes free can be used again.
    alice.sends("first").to(&bob);
    let text_of = |call: &Value| {
        let mut message = bob.finishes_call("receive_messages", call)["messages"][0].take();
        message["payload"]["text"].take()
    };
    assert_eq!(text_of(&waiting[0]), "first");
    let next = bob.begins_call("receive_messages", &wait);
    for _ in 0..WAITING_MAX {
        alice.sends("later").to(&bob);
    }
    for call in waiting[1..].iter().chain([&next]) {
        assert_eq!(text_of(call), "later");
    }
}

#[test]
fn the_number_of_calls_in_flight_on_a_connection_is_bounded() {
    let broker = Broker::start_with(&crate::support::TIMEOUTS_OFF);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let waits = |text: &str| {
        let letter = alice.sends(text).with_argument("wait_for", "acknowledged");
        letter.with_argument("timeout_seconds", 100).arguments_to("bob")
    };
    let calls: Vec<_> = (0..CALLS_MAX)
        .map(|at| alice.begins_call("send_message", &waits(&at.to_string())))
        .collect();
    alice.is_refused_as("unavailable", "send_message", waits("one more"));
    let mut read = 0;
    while read < CALLS_MAX {
        read += bob.reads(json!({"acknowledge": "immediate", "limit": 1000})).len();
    }
    for call in &calls {
        assert_eq!(alice.finishes_call("send_message", call)["status"], "acknowledged");
    }
    alice.calls("heartbeat", json!({}));
}

#[test]
fn calls_under_one_request_id_are_bounded_too() {
    let broker = Broker::start_with(&crate::support::TIMEOUTS_OFF);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let waits = |text: &str| {
        let message = alice.sends(text).with_argument("wait_for", "acknowledged");
        message.with_argument("timeout_seconds", 100).arguments_to("bob")
    };
    let id = json!("reused");
    for at in 0..CALLS_MAX {
        let params = json!({"name": "send_message", "arguments": waits(&at.to_string())});
        alice.wire.asks_as(&id, "tools/call", params);
    }
    alice.is_refused_as("unavailable", "send_message", waits("one more"));
    // A cancellation ends all of them: those that wait for their acknowledgements, and those whose messages are still
    // being stored.
    alice.wire.cancels(&id);
    // Bob may be served by another worker, before the cancellation.
    alice.syncs();
    let last = alice.begins_call("send_message", &waits("last"));
    bob.reads_until("last");
    assert_eq!(alice.finishes_call("send_message", &last)["status"], "acknowledged");
    assert_eq!(alice.wire.answer_so_far(&id), None);
}

#[test]
fn a_cancellation_reaches_a_call_whose_message_is_being_stored() {
    let broker = Broker::start_with(&crate::support::TIMEOUTS_OFF);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let waits = |text: &str| {
        let message = alice.sends(text).with_argument("wait_for", "acknowledged");
        json!({"name": "send_message", "arguments": message.with_argument("timeout_seconds", 100).arguments_to("bob")})
    };
    let id = json!("reused");
    alice.wire.asks_as(&id, "tools/call", waits("waiting"));
    // Messages are stored in order: once this one is, the first call waits for its acknowledgement.
    alice.sends("stored").to("bob");
    alice.wire.asks_as(&id, "tools/call", waits("being stored"));
    alice.wire.cancels(&id);
    let last = alice.wire.asks("tools/call", waits("last"));
    bob.reads_until("last");
    alice.wire.answer_to(&last).unwrap();
    assert_eq!(alice.wire.answer_so_far(&id), None);
}
