//! Calls that end before the answer comes: the question lives, and the answer is neither lost nor asked for twice.

use serde_json::{Value, json};

use super::{asked, asks, awaits_empty_inbox, notices};
use crate::support::{Broker, broker_program, eventually};

#[test]
fn an_answer_after_a_cancelled_call_waits_in_the_inbox() {
    let broker = Broker::without_timeouts();
    let mara = broker.person("mara");
    for agent in [broker.agent("alice"), broker.modern("bob")] {
        let call = agent.begins_call("clarify", &json!({"question": "Cut?"}));
        let id = mara.awaits("Cut?");
        agent.wire.cancels(&call);
        agent.syncs();
        assert!(!agent.wire.has_received(&call), "a cancelled call has no answer");
        mara.answers(&id, json!({"text": "still here"}));
        let notice = agent.reads(json!({"wait_seconds": 20})).remove(0);
        assert_eq!(notice["payload"]["question_id"], id.as_str());
        assert_eq!(notice["payload"]["answer"]["text"], "still here");
        assert_eq!(notice["sender_name"], "mara");
        let read = agent.calls("get_answer", json!({"question_id": id}));
        assert_eq!(read["answer"]["text"], "still here");
    }
}

/// A broker that reads no end of a connection, as one on a busy machine does for a moment.
fn late_reader() -> Broker {
    let mut program = broker_program();
    program.env("FAULT_HIDE_CLOSED", "yes");
    Broker::with_program(program, &[])
}

#[test]
fn an_answer_after_a_closed_connection_waits_for_the_agent_that_resumes_its_name() {
    answer_after_a_closed_connection_waits(&Broker::without_timeouts());
}

#[test]
fn an_answer_after_a_closed_connection_waits_although_the_broker_has_not_read_its_end() {
    answer_after_a_closed_connection_waits(&late_reader());
}

fn answer_after_a_closed_connection_waits(broker: &Broker) {
    let mara = broker.person("mara");
    let alice = broker.agent("alice");
    alice.begins_call("clarify", &json!({"question": "Killed?"}));
    let id = mara.awaits("Killed?");
    alice.wire.disconnects();
    mara.answers(&id, json!({"text": "for the next one"}));
    let next = broker.agent("alice");
    let notices = notices(&next);
    assert_eq!(notices.len(), 1);
    assert_eq!(notices[0]["payload"]["answer"]["text"], "for the next one");
    assert!(super::notices(&next).is_empty(), "it is read once");
}

#[test]
fn an_answer_after_a_closed_http_request_waits_in_the_inbox() {
    answers_after_closed_http_requests_wait(&Broker::without_timeouts());
}

#[test]
fn an_answer_after_a_closed_http_request_waits_although_the_broker_has_not_read_its_end() {
    answers_after_closed_http_requests_wait(&late_reader());
}

fn answers_after_closed_http_requests_wait(broker: &Broker) {
    let mara = broker.person("mara");
    for caller in [broker.http_modern("modern"), broker.http_legacy("legacy")] {
        let question = format!("{} closes?", caller.name);
        let reply = caller.call("clarify", json!({"question": question})).sent();
        let id = mara.awaits(&question);
        reply.disconnects();
        mara.answers(&id, json!({"text": "kept"}));
        let notice = caller.reads(json!({"wait_seconds": 20})).remove(0);
        assert_eq!(notice["payload"]["answer"]["text"], "kept");
    }
}

#[test]
fn the_same_key_waits_on_and_asks_once() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let arguments = json!({"question": "Once?", "idempotency_key": "mig-42"});
    let cut = alice.begins_call("clarify", &arguments);
    let id = mara.awaits("Once?");
    alice.wire.cancels(&cut);
    let again = alice.begins_call("clarify", &arguments);
    alice.syncs();
    assert_eq!(mara.sees().len(), 1, "it is asked once");
    mara.answers(&id, json!({"text": "once"}));
    let result = alice.finishes_call("clarify", &again);
    assert_eq!(
        (&result["question_id"], &result["answer"]["text"]),
        (&json!(id), &json!("once"))
    );
    // Also after the answer.
    let late = alice.calls("clarify", arguments.clone());
    assert_eq!((&late["question_id"], &late["state"]), (&json!(id), &json!("answered")));
    // The key belongs to its session.
    let bob = broker.agent("bob");
    let mut other = arguments;
    other["wait_seconds"] = json!(0);
    assert_ne!(asked(&bob, other), id);
}

#[test]
fn an_answer_that_a_call_hands_over_is_read() {
    let broker = Broker::without_timeouts();
    let mara = broker.person("mara");
    for agent in [broker.agent("alice"), broker.modern("bob")] {
        let call = agent.begins_call("clarify", &json!({"question": "Seen?"}));
        mara.answers(&mara.awaits("Seen?"), json!({"text": "yes"}));
        agent.finishes_call("clarify", &call);
        awaits_empty_inbox(&agent);
        assert!(notices(&agent).is_empty());
    }
}

#[test]
fn an_answer_that_get_answer_hands_over_is_read_and_another_session_reads_nothing_away() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let id = asked(&alice, asks("Mine?"));
    mara.answers(&id, json!({"text": "yours"}));
    // Another session of the same owner may read it, and it stays unread for the asker.
    let bob = broker.agent("bob");
    bob.calls("get_answer", json!({"question_id": id}));
    bob.syncs();
    assert_eq!(alice.calls("heartbeat", json!({}))["queue_size"], 1);
    alice.calls("get_answer", json!({"question_id": id}));
    awaits_empty_inbox(&alice);
}

#[test]
fn two_calls_wait_for_one_question_and_both_are_answered() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let id = asked(&alice, asks("Both?"));
    let calls: Vec<Value> = (0..2)
        .map(|_| alice.begins_call("get_answer", &json!({"question_id": id, "wait_seconds": 60})))
        .collect();
    alice.syncs();
    mara.answers(&id, json!({"text": "both"}));
    for call in calls {
        assert_eq!(alice.finishes_call("get_answer", &call)["answer"]["text"], "both");
    }
    eventually("the inbox is empty", || notices(&alice).is_empty().then_some(()));
}
