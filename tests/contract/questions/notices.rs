//! The message by which an asker is told of the end of its question: protocol `human-answer` 1.0.0.

use serde_json::json;

use super::{asked, asks, notices};
use crate::support::Broker;

#[test]
fn the_message_says_what_the_call_would_have_said() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    for (urgency, priority) in [("low", "low"), ("medium", "normal"), ("high", "high")] {
        let id = asked(
            &alice,
            json!({"question": "Which?", "urgency": urgency, "wait_seconds": 0}),
        );
        mara.answers(&id, json!({"text": "this"}));
        let notice = notices(&alice).remove(0);
        assert_eq!(notice["protocol_version"], "1.0.0");
        assert_eq!(notice["sender_name"], "mara");
        let headers = &notice["headers"];
        assert_eq!(
            (&headers["correlation_id"], &headers["reply_to"]),
            (&json!(id), &json!(id))
        );
        assert_eq!(headers["priority"], priority);
        let payload = &notice["payload"];
        assert_eq!(
            (&payload["question_id"], &payload["state"]),
            (&json!(id), &json!("answered"))
        );
        let by_call = alice.calls("get_answer", json!({"question_id": id}));
        for member in ["answer", "answered_by", "asked_at", "answered_at", "seen_at"] {
            assert_eq!(payload[member], by_call[member], "{member}");
        }
    }
}

#[test]
fn a_declined_question_is_told_too() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let id = asked(&alice, asks("No?"));
    mara.does("decline", &id, json!({"reason": "no time"}));
    let payload = notices(&alice).remove(0)["payload"].take();
    assert_eq!(
        (&payload["state"], &payload["reason"]),
        (&json!("declined"), &json!("no time"))
    );
}

#[test]
fn clients_neither_register_nor_send_the_protocol_of_the_answers() {
    let broker = Broker::without_timeouts();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let protocol = json!({"name": "human-answer", "version": "1.0.0", "schema": {}});
    alice.is_refused_as("forbidden", "register_protocol", protocol);
    let message = json!({
        "recipient_id": bob.name, "protocol_name": "human-answer", "protocol_version": "1.0.0", "payload": {},
    });
    alice.is_refused_as("forbidden", "send_message", message);
    let found = alice.calls("discover_protocols", json!({"name": "human-answer"}));
    assert_eq!(found["protocols"][0]["version"], "1.0.0");
}

#[test]
fn an_answer_has_room_in_a_full_inbox() {
    let broker = Broker::start_with(&["--queue-capacity=2"]);
    let (alice, bob, mara) = (broker.agent("alice"), broker.agent("bob"), broker.person("mara"));
    let id = asked(&alice, asks("Which one?"));
    for text in ["one", "two"] {
        bob.sends(text).to(&alice);
    }
    bob.sends("three").fails_as("queue_full", "alice");
    mara.answers(&id, json!({"text": "this"}));
    let read = alice.reads(json!({}));
    let of_answers = read.iter().filter(|message| message["protocol_name"] == "human-answer");
    assert_eq!((read.len(), of_answers.count()), (3, 1), "{read:?}");
}
