//! The life of a question: asked, seen, and ended in each way, in both eras and by every way of waiting.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{asked, asks, notices};
use crate::support::{Agent, Broker, eventually};

const EVENTS_FIRST: &str = "text/event-stream, application/json";

#[test]
fn a_call_waits_for_the_answer_of_a_person() {
    let broker = Broker::without_timeouts();
    let mara = broker.person("mara");
    for agent in [broker.agent("alice"), broker.modern("bob")] {
        let options = json!([{"value": "drop", "label": "Drop it", "description": "irreversible"}, "keep"]);
        let arguments = json!({
            "question": "Drop the old table?", "context": "Migration **42**", "options": options, "urgency": "high",
        });
        let call = agent.begins_call("clarify", &arguments);
        let id = mara.awaits("Drop the old table?");
        let shown = mara.sends("GET", &format!("questions/{id}"), &Value::Null).json();
        assert_eq!(shown["context"], "Migration **42**");
        assert_eq!(
            (&shown["asker"]["name"], &shown["urgency"]),
            (&json!(agent.name), &json!("high"))
        );
        assert_eq!(shown["options"][1], json!({"value": "keep", "label": "keep"}));
        mara.answers(&id, json!({"selected": ["drop"], "text": "but dump it first\nto s3"}));
        let result = agent.finishes_call("clarify", &call);
        assert_eq!(
            (&result["question_id"], &result["state"]),
            (&json!(id), &json!("answered"))
        );
        assert_eq!(result["summary"], "ANSWERED by mara: drop. but dump it first to s3");
        let answer = json!({
            "selected": ["drop"], "other": null, "text": "but dump it first\nto s3", "answers": null, "images": [],
        });
        assert_eq!(result["answer"], answer);
        assert_eq!(result["answered_by"]["human"], "mara");
        assert!(
            result["seen_at"].is_string() && result["answered_at"].is_string(),
            "{result}"
        );
    }
}

#[test]
fn nothing_happens_to_a_question_before_it_is_asked() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    for at in 0..60 {
        let id = asked(&alice, asks(&format!("{at}?")));
        let shown = mara.answers(&id, json!({"text": "yes"}));
        let at = |member: &str| shown[member].as_str().unwrap().to_owned();
        assert!(
            at("asked_at") <= at("seen_at") && at("seen_at") <= at("answered_at"),
            "{shown}"
        );
    }
}

#[test]
fn a_call_over_http_waits_for_the_answer_of_a_person() {
    let broker = Broker::without_timeouts();
    let mara = broker.person("mara");
    for caller in [broker.http_modern("modern"), broker.http_legacy("legacy")] {
        for accept in [EVENTS_FIRST, "application/json"] {
            let question = format!("{} {accept}?", caller.name);
            let mut reply = caller
                .call("clarify", json!({"question": question}))
                .with("Accept", accept)
                .sent();
            mara.answers(&mara.awaits(&question), json!({"text": "yes"}));
            let result = reply.answer_to(&json!(1)).unwrap();
            assert_eq!(result["structuredContent"]["state"], "answered", "{result}");
            // The answer was handed over, so no message is left.
            reply.awaits_end();
            eventually("the inbox is empty", || {
                (caller.calls("heartbeat", json!({}))["queue_size"] == 0).then_some(())
            });
        }
    }
}

#[test]
fn the_answer_to_a_sensitive_question_is_deleted_once_the_agent_has_it() {
    let broker = Broker::without_timeouts();
    let (mara, lena) = (broker.person("mara"), broker.person("lena"));
    let alice = broker.agent("alice");
    let id = asked(
        &alice,
        json!({"question": "Password?", "sensitive": true, "wait_seconds": 0}),
    );
    let draft = mara.sends("PUT", &format!("questions/{id}/draft"), &json!({"text": "hunt"}));
    assert_eq!(draft.status, 400, "nothing is kept of what is typed: {draft:?}");
    let elsewhere = mara.sends("POST", &format!("questions/{id}/answer"), &json!({"text": "hunter2"}));
    assert_eq!(elsewhere.status, 403, "it is answered on the page: {elsewhere:?}");
    let shown = mara.answers(&id, json!({"text": "hunter2", "via": "web"}));
    assert_eq!((&shown["state"], &shown["answer"]), (&json!("answered"), &Value::Null));
    let late = lena.sends("POST", &format!("questions/{id}/answer"), &json!({"text": "swordfish"}));
    assert_eq!(late.status, 409, "{late:?}");
    let kept = lena.sends("GET", &format!("questions/{id}/draft"), &Value::Null).json();
    assert_eq!(kept["text"], "", "a late answer to it is no draft");
    // The message says that there is an answer, and not which.
    assert_eq!(notices(&alice)[0]["payload"]["answer"], Value::Null);
    let read = |agent: &Agent| agent.calls("get_answer", json!({"question_id": id}));
    assert_eq!(read(&alice)["answer"]["text"], "hunter2");
    let after = eventually("the answer is deleted", || {
        Some(read(&alice)).filter(|result| result["answer"].is_null())
    });
    assert_eq!(after["answered_by"]["human"], "mara");
    assert!(after["answer_deleted_at"].is_string(), "{after}");
    let shown = mara.sends("GET", &format!("questions/{id}"), &Value::Null).json();
    assert_eq!(shown["answer_deleted_at"], after["answer_deleted_at"]);
}

#[test]
fn a_question_without_an_answer_says_what_to_do_next() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let began = Instant::now();
    let result = alice.calls("clarify", json!({"question": "Anybody there?", "wait_seconds": 0.3}));
    assert!(began.elapsed() >= Duration::from_millis(290));
    assert_eq!(result["state"], "pending");
    assert!(
        result["next"].as_str().unwrap().contains("mcp-broker console"),
        "{result}"
    );
    assert_eq!(result["humans"], json!({"present": 0, "idle": 0, "away": 0}));
    assert!(result["expires_at"].is_string() && result["asked_at"].is_string());
    let id = &result["question_id"];
    let again = alice.calls("get_answer", json!({"question_id": id}));
    assert_eq!((&again["question_id"], &again["state"]), (id, &json!("pending")));
    let all = alice.calls("get_answer", json!({}));
    assert_eq!(all["questions"][0]["question_id"], *id);
    assert_eq!(all["summary"], "0 ended and unread, 1 pending.");
}

#[test]
fn an_answer_is_read_by_its_question_and_by_all_of_them() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let (first, second) = (asked(&alice, asks("One?")), asked(&alice, asks("Two?")));
    mara.answers(&second, json!({"text": "2"}));
    let all = alice.calls("get_answer", json!({"wait_seconds": 20}));
    let states: Vec<_> = all["questions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["state"])
        .collect();
    assert_eq!(states, ["answered", "pending"], "what has ended comes first");
    assert_eq!(all["questions"][0]["answer"]["text"], "2");
    // It was handed over, so it is read: the list has it no longer, its question still has.
    eventually("the answer is read", || {
        let rest = alice.calls("get_answer", json!({}));
        (rest["questions"].as_array().unwrap().len() == 1).then_some(())
    });
    let again = alice.calls("get_answer", json!({"question_id": second}));
    assert_eq!(again["answer"]["text"], "2");
    // A call that waits for all ends with the first of them.
    let call = alice.begins_call("get_answer", &json!({"wait_seconds": 60}));
    mara.answers(&first, json!({"text": "1"}));
    let all = alice.finishes_call("get_answer", &call);
    assert_eq!(all["questions"][0]["question_id"], first.as_str());
}

#[test]
fn a_declined_question_tells_its_asker_why() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let call = alice.begins_call("clarify", &json!({"question": "Which vendor?"}));
    mara.does("decline", &mara.awaits("Which vendor?"), json!({"reason": "ask Lena"}));
    let result = alice.finishes_call("clarify", &call);
    assert_eq!(
        (&result["state"], &result["reason"]),
        (&json!("declined"), &json!("ask Lena"))
    );
    assert_eq!(result["declined_by"]["human"], "mara");
    assert!(result.get("answer").is_none());
}

#[test]
fn an_asker_cancels_its_question_and_gets_no_message_about_it() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let id = asked(&alice, asks("Still needed?"));
    let waiting = alice.begins_call("get_answer", &json!({"question_id": id, "wait_seconds": 60}));
    for _ in 0..2 {
        let cancelled = alice.calls("cancel_question", json!({"question_id": id, "reason": "found it"}));
        assert_eq!(cancelled, json!({"question_id": id, "state": "cancelled"}));
    }
    let result = alice.finishes_call("get_answer", &waiting);
    assert_eq!(
        (&result["state"], &result["reason"]),
        (&json!("cancelled"), &json!("found it"))
    );
    assert!(notices(&alice).is_empty());
    assert!(mara.sees().is_empty());
    let late = mara.sends("POST", &format!("questions/{id}/answer"), &json!({"text": "late"}));
    assert_eq!((late.status, &late.json()["code"]), (409, &json!("question_closed")));
}

#[test]
fn cancelling_an_answered_question_returns_its_state() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let id = asked(&alice, asks("Go?"));
    mara.answers(&id, json!({"text": "go"}));
    let cancelled = alice.calls("cancel_question", json!({"question_id": id}));
    assert_eq!(cancelled["state"], "answered");
    assert_eq!(notices(&alice)[0]["payload"]["answer"]["text"], "go");
}

#[test]
fn get_answer_withdraws_a_question_too() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let id = asked(&alice, asks("Still needed?"));
    for _ in 0..2 {
        let arguments = json!({"question_id": id, "cancel": true, "reason": "found it"});
        let cancelled = alice.calls("get_answer", arguments);
        assert_eq!(
            (&cancelled["state"], &cancelled["reason"]),
            (&json!("cancelled"), &json!("found it")),
            "{cancelled}"
        );
    }
    assert!(notices(&alice).is_empty() && mara.sees().is_empty());
    // What is answered stays so.
    let id = asked(&alice, asks("Go?"));
    mara.answers(&id, json!({"text": "go"}));
    let answered = alice.calls("get_answer", json!({"question_id": id, "cancel": true}));
    assert_eq!(
        (&answered["state"], &answered["answer"]["text"]),
        (&json!("answered"), &json!("go"))
    );
    let error = alice.is_refused_as("invalid_argument", "get_answer", json!({"cancel": true}));
    assert_eq!(error["detail"]["argument"], "question_id");
}

#[test]
fn a_form_has_one_answer_with_a_part_for_each_question() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let questions = json!([
        {"id": "db", "question": "Which database?", "options": ["pg", "my"], "required": true, "allow_other": false},
        {"id": "why", "question": "Why?"},
    ]);
    let id = asked(&alice, json!({"questions": questions, "wait_seconds": 0}));
    let refused = mara.sends(
        "POST",
        &format!("questions/{id}/answer"),
        &json!({"answers": {"why": {"text": "x"}}}),
    );
    assert_eq!(refused.status, 400, "{refused:?}");
    mara.answers(
        &id,
        json!({"answers": {"db": {"selected": ["pg"]}, "why": {"text": "known"}}}),
    );
    let result = alice.calls("get_answer", json!({"question_id": id}));
    assert_eq!(result["answer"]["answers"]["db"]["selected"], json!(["pg"]));
    assert_eq!(result["answer"]["answers"]["why"]["text"], "known");
    assert_eq!(result["summary"], "ANSWERED by mara: db: pg; why: known");
}

#[test]
fn progress_says_where_the_question_is() {
    let broker = Broker::start_with(&["--heartbeat-interval=100ms"]);
    let mara = broker.person("mara");
    for agent in [broker.agent("alice"), broker.modern("bob")] {
        let mut params = agent.params(json!({"name": "clarify", "arguments": {"question": "How far?"}}));
        params["_meta"]["progressToken"] = json!("p");
        let call = agent.wire.asks("tools/call", params);
        let mut last = -1.0;
        for _ in 0..3 {
            let progress = agent.wire.next_notification("notifications/progress");
            assert_eq!(
                (&progress["progressToken"], &progress["message"]),
                (&json!("p"), &json!("no person is at the desk"))
            );
            let now = progress["progress"].as_f64().unwrap();
            assert!(now > last, "{now} after {last}");
            last = now;
        }
        let id = mara.awaits("How far?");
        mara.does("claim", &id, json!({}));
        agent.wire.awaits_frame("progress tells of the person", |frame| {
            let message = frame["params"]["message"].as_str().unwrap_or_default();
            message == "mara is typing" || message == "mara is reading it"
        });
        mara.answers(&id, json!({"text": "done"}));
        assert_eq!(agent.finishes_call("clarify", &call)["state"], "answered");
    }
}

#[test]
fn a_call_is_answered_with_the_present_state_when_the_broker_stops() {
    let mut broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let call = alice.begins_call("clarify", &json!({"question": "Too late?"}));
    broker.person("mara").awaits("Too late?");
    broker.terminate();
    let result = alice.wire.answer_to(&call).unwrap();
    assert_eq!(result["structuredContent"]["state"], "pending", "{result}");
    broker.wait_for_exit();
}
