//! What one caller, and one project, may ask at once, and what a question may hold.

use serde_json::json;

use super::{asked, asks};
use crate::support::Broker;

#[test]
fn a_session_has_at_most_100_open_questions() {
    let broker = Broker::without_timeouts();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let ids: Vec<_> = (0..100).map(|at| asked(&alice, asks(&format!("{at}?")))).collect();
    let full = alice.is_refused_as("queue_full", "clarify", asks("101?"));
    assert_eq!(full["detail"]["limit"], 100);
    asked(&bob, asks("Mine?"));
    alice.calls("cancel_question", json!({"question_id": ids[7]}));
    asked(&alice, asks("101?"));
    assert_eq!(
        alice.calls("get_answer", json!({}))["questions"]
            .as_array()
            .unwrap()
            .len(),
        100
    );
}

#[test]
fn a_project_has_at_most_2000_open_questions() {
    let broker = Broker::without_timeouts();
    for at in 0..20 {
        let agent = broker.agent(&format!("agent{at}"));
        let calls: Vec<_> = (0..100)
            .map(|at| agent.begins_call("clarify", &asks(&format!("{at}?"))))
            .collect();
        for call in calls {
            assert_eq!(agent.finishes_call("clarify", &call)["state"], "pending");
        }
    }
    let full = broker
        .agent("last")
        .is_refused_as("queue_full", "clarify", asks("2001?"));
    assert_eq!(full["detail"]["limit"], 2_000);
}

#[test]
fn an_argument_out_of_bounds_is_named() {
    let broker = Broker::start();
    for agent in [broker.agent("alice"), broker.modern("bob")] {
        for (argument, arguments) in [
            ("question", json!({})),
            ("question", json!({"question": "x".repeat(8_001)})),
            (
                "options.label",
                json!({"question": "?", "options": [{"value": "a", "label": "x".repeat(121)}]}),
            ),
            ("wait_seconds", json!({"question": "?", "wait_seconds": 111})),
            ("expires_in_seconds", json!({"question": "?", "expires_in_seconds": 59})),
            ("colour", json!({"question": "?", "colour": "red"})),
        ] {
            let error = agent.is_refused_as("invalid_argument", "clarify", arguments);
            assert_eq!(error["detail"]["argument"], argument, "{error}");
        }
        for (tool, arguments) in [
            ("get_answer", json!({"question_id": "no id"})),
            ("cancel_question", json!({"question_id": "no id"})),
            ("cancel_question", json!({})),
        ] {
            let error = agent.is_refused_as("invalid_argument", tool, arguments);
            assert_eq!(error["detail"]["argument"], "question_id");
        }
    }
}
