//! Reading an inbox: pages, waiting, and the three ways to acknowledge.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Broker, texts};

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
fn an_immediate_read_needs_no_more() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("one").to(&bob);
    assert_eq!(texts(&bob.reads(json!({"acknowledge": "immediate"}))), ["one"]);
    alice.learns(&sent.id, "acknowledged");
}

#[test]
fn a_manual_read_is_acknowledged_by_nothing_else() {
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
fn what_is_not_in_the_inbox_is_not_acknowledged() {
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
    // Nothing was lost by it.
    bob.sees(["not read yet"]);
    alice.sees(["for alice"]);
    // Twice is once.
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
    let poll = bob.begins("receive_messages", &json!({"wait_seconds": 100}));
    bob.settles();
    let sent = alice.sends("hi").to(&bob);
    let received = bob.returns("receive_messages", &poll);
    assert_eq!(received["messages"][0]["message_id"], sent.id.as_str());
    if broker.answers_at_once() {
        // It was there for it, and so the sender was told.
        assert_eq!(sent.status, "delivered");
        assert_eq!(sent.object["queue_size"], 0);
        assert!(sent.object["delivered_at"].is_string());
    }
}

#[test]
fn a_long_poll_ends_with_its_time() {
    let broker = Broker::start();
    let bob = broker.agent("bob");
    let began = Instant::now();
    let received = bob.calls("receive_messages", json!({"wait_seconds": 0.3}));
    assert_eq!((&received["messages"], &received["remaining"]), (&json!([]), &json!(0)));
    assert!(began.elapsed() >= Duration::from_millis(290));
}

#[test]
fn a_long_poll_holds_nothing_else_up() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let poll = bob.begins("receive_messages", &json!({"wait_seconds": 100}));
    bob.calls("heartbeat", json!({}));
    bob.sends("while waiting").to(&alice);
    alice.sees(["while waiting"]);
    alice.sends("done").to(&bob);
    bob.returns("receive_messages", &poll);
}

#[test]
fn several_long_polls_get_each_message_once() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let arguments = json!({"wait_seconds": 100, "limit": 1, "acknowledge": "manual"});
    let polls: Vec<_> = (0..4).map(|_| bob.begins("receive_messages", &arguments)).collect();
    bob.settles();
    for text in ["0", "1", "2", "3"] {
        alice.sends(text).to(&bob);
    }
    let mut seen: Vec<_> = polls
        .iter()
        .map(|poll| bob.returns("receive_messages", poll)["messages"][0]["payload"]["text"].to_string())
        .collect();
    seen.sort();
    assert_eq!(seen, ["\"0\"", "\"1\"", "\"2\"", "\"3\""]);
}

#[test]
fn a_cancelled_long_poll_is_not_answered_and_takes_nothing() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.modern("bob"));
    let poll = bob.begins("receive_messages", &json!({"wait_seconds": 100}));
    bob.wire.cancels(&poll);
    bob.settles();
    let sent = alice.sends("hi").to(&bob);
    assert_eq!(sent.status, "queued");
    let read = bob.sees(["hi"]);
    assert_eq!(read[0]["delivery_count"], 1);
    assert_eq!(bob.wire.answer_so_far(&poll), None);
}

#[test]
fn a_long_poll_that_is_cancelled_while_a_message_comes_loses_nothing() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    for round in 0..150 {
        let text = round.to_string();
        let poll = bob.begins("receive_messages", &json!({"wait_seconds": 100}));
        if round % 2 == 0 {
            bob.wire.catches_up();
        }
        let sent = alice.sends(&text).off_to(&bob);
        bob.wire.cancels(&poll);
        alice.returns("send_message", &sent);
        // Whoever cancels does not listen for the answer any more (2025-11-25, cancellation).
        let _ = bob.wire.answer_so_far(&poll);
        let read = bob.reads(json!({"wait_seconds": 5}));
        assert_eq!(texts(&read), [text.as_str()], "round {round}");
    }
}

#[test]
fn an_answer_that_crosses_its_cancellation_takes_nothing_with_it() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    for acknowledge in ["on_next", "manual"] {
        let sent = alice.sends("hi").to(&bob);
        let read = bob.begins("receive_messages", &json!({"acknowledge": acknowledge}));
        // The answer is here, and nobody looked at it.
        bob.wire.answer_to(&read).unwrap();
        bob.wire.cancels(&read);
        let again = bob.reads(json!({"wait_seconds": 5, "acknowledge": "manual"}));
        assert_eq!(texts(&again), ["hi"]);
        assert_eq!(again[0]["delivery_count"], 2);
        bob.calls("acknowledge_messages", json!({"message_ids": [sent.id]}));
        // To cancel what was acknowledged changes nothing.
        bob.wire.cancels(&read);
        bob.sees_nothing();
    }
}

#[test]
fn what_several_reads_returned_is_acknowledged_by_the_next() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let arguments = json!({"wait_seconds": 100, "limit": 1});
    let polls = [(); 2].map(|()| bob.begins("receive_messages", &arguments));
    bob.settles();
    let sent = ["1", "2"].map(|text| alice.sends(text).to(&bob));
    for poll in &polls {
        bob.returns("receive_messages", poll);
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
    // Not all in one answer, but all of them.
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
fn so_many_calls_may_wait_for_one_session_and_one_more_is_refused() {
    /// Calls of `receive_messages` that may wait for one session.
    const WAITING_MAX: usize = 32;
    let broker = Broker::with(&crate::support::TIMELESS);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let wait = json!({"wait_seconds": 100, "limit": 1});
    let waiting: Vec<_> = (0..WAITING_MAX)
        .map(|_| bob.begins("receive_messages", &wait))
        .collect();
    let refused = bob.is_refused_as("unavailable", "receive_messages", wait.clone());
    assert!(refused["retry_after_ms"].is_u64(), "{refused}");
    for call in &waiting {
        assert_eq!(bob.wire.answer_so_far(call), None);
    }
    // A place that becomes free is for the next.
    alice.sends("first").to(&bob);
    let text_of = |call: &Value| {
        let mut message = bob.returns("receive_messages", call)["messages"][0].take();
        message["payload"]["text"].take()
    };
    assert_eq!(text_of(&waiting[0]), "first");
    let next = bob.begins("receive_messages", &wait);
    for _ in 0..WAITING_MAX {
        alice.sends("later").to(&bob);
    }
    for call in waiting[1..].iter().chain([&next]) {
        assert_eq!(text_of(call), "later");
    }
}

#[test]
fn so_many_calls_may_be_under_way_on_one_connection_and_one_more_is_refused() {
    /// Calls that may be under way on one connection.
    const CALLS_MAX: usize = 256;
    let broker = Broker::with(&crate::support::TIMELESS);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let waits = |text: &str| {
        let letter = alice.sends(text).and("wait_for", "acknowledged");
        letter.and("timeout_seconds", 100).arguments_to("bob")
    };
    let calls: Vec<_> = (0..CALLS_MAX)
        .map(|at| alice.begins("send_message", &waits(&at.to_string())))
        .collect();
    alice.is_refused_as("unavailable", "send_message", waits("one more"));
    let mut read = 0;
    while read < CALLS_MAX {
        read += bob.reads(json!({"acknowledge": "immediate", "limit": 1000})).len();
    }
    for call in &calls {
        assert_eq!(alice.returns("send_message", call)["status"], "acknowledged");
    }
    alice.calls("heartbeat", json!({}));
}
