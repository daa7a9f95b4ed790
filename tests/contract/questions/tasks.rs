//! Questions as tasks (2026-07-28): the id of the task is that of the question.

use serde_json::{Value, json};

use super::awaits_empty_inbox;
use crate::support::{Agent, Broker, HttpAgent};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

fn capabilities() -> Value {
    json!({"extensions": {EXTENSION: {}}})
}

fn task_agent(broker: &Broker, name: &str) -> Agent {
    Agent::modern(broker.wire(), capabilities()).registered(name)
}

/// Asks, and gets a task because no person has answered after two seconds.
fn begins(agent: &Agent, question: &str) -> Value {
    let params = json!({"name": "clarify", "arguments": {"question": question}});
    let task = agent.request("tools/call", params).unwrap();
    assert_eq!(
        (&task["resultType"], &task["status"]),
        (&json!("task"), &json!("working")),
        "{task}"
    );
    task
}

fn get(agent: &Agent, id: &Value) -> Value {
    let task = agent.request("tasks/get", json!({"taskId": id})).unwrap();
    assert_eq!(
        (&task["taskId"], &task["resultType"]),
        (id, &json!("complete")),
        "{task}"
    );
    task
}

#[test]
fn a_question_becomes_a_task_that_lives_as_long_as_it_does() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (task_agent(&broker, "alice"), broker.person("mara"));
    let task = begins(&alice, "Task?");
    let id = &task["taskId"];
    let ttl_ms = task["ttlMs"].as_u64().unwrap();
    assert!((86_399_000..=86_400_000).contains(&ttl_ms), "{ttl_ms}");
    assert_eq!(task["statusMessage"], "no person is at the desk");
    assert_eq!(mara.awaits("Task?"), id.as_str().unwrap(), "the task is the question");
    assert_eq!(get(&alice, id)["status"], "working");
    mara.answers(id.as_str().unwrap(), json!({"text": "yes"}));
    let done = get(&alice, id);
    assert_eq!(done["status"], "completed");
    let result = &done["result"];
    assert_eq!(
        (&result["isError"], &result["resultType"]),
        (&json!(false), &json!("complete"))
    );
    assert_eq!(result["structuredContent"]["answer"]["text"], "yes");
    assert_eq!(result["structuredContent"]["summary"], "ANSWERED by mara: yes");
    awaits_empty_inbox(&alice);
}

#[test]
fn an_answer_within_two_seconds_is_a_result_and_no_task() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (task_agent(&broker, "alice"), broker.person("mara"));
    let call = alice.begins_call("clarify", &json!({"question": "Quick?"}));
    mara.answers(&mara.awaits("Quick?"), json!({"text": "yes"}));
    assert_eq!(alice.finishes_call("clarify", &call)["state"], "answered");
    // A call that does not wait is none either.
    let pending = alice.calls("clarify", json!({"question": "Later?", "wait_seconds": 0}));
    assert_eq!(pending["state"], "pending");
}

#[test]
fn a_question_is_read_as_a_task_from_anywhere_and_by_its_owner_alone() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let [own, foreign] = ["member", "member"].map(|scope| team.new_key_with_scope(scope));
    let alice = Agent::modern(team.wire_as(&own), capabilities()).registered("alice");
    let asked = alice.calls("clarify", json!({"question": "Where?", "wait_seconds": 0}));
    let id = &asked["question_id"];
    let http = HttpAgent::modern_with(broker.address, capabilities(), &[("X-API-Key", &own)]);
    let mut reply = http
        .asks("tasks/get", json!({"taskId": id}))
        .with("Mcp-Name", id.as_str().unwrap())
        .sent();
    let task = reply.answer_to(&json!(1)).unwrap();
    assert_eq!((&task["taskId"], &task["status"]), (id, &json!("working")));
    let bob = Agent::modern(team.wire_as(&foreign), capabilities()).registered("bob");
    let unknown = json!("0198f3a2-0000-7000-8000-000000000000");
    for method in ["tasks/get", "tasks/cancel"] {
        let theirs = bob.request(method, json!({"taskId": id})).unwrap_err();
        let nothing = bob.request(method, json!({"taskId": unknown})).unwrap_err();
        assert_eq!(theirs, nothing, "{method}");
        assert_eq!(theirs["code"], -32602);
    }
    assert_eq!(get(&alice, id)["status"], "working");
}

#[test]
fn a_cancelled_task_is_a_cancelled_question() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (task_agent(&broker, "alice"), broker.person("mara"));
    let task = begins(&alice, "Cancel?");
    for _ in 0..2 {
        let done = alice
            .request("tasks/cancel", json!({"taskId": task["taskId"]}))
            .unwrap();
        assert_eq!(done["resultType"], "complete");
        assert_eq!(get(&alice, &task["taskId"])["status"], "cancelled");
    }
    assert!(mara.sees().is_empty());
    let read = alice.calls("get_answer", json!({"question_id": task["taskId"]}));
    assert_eq!(read["state"], "cancelled");
}

#[test]
fn a_task_of_messages_stays_as_it_is() {
    let broker = Broker::without_timeouts();
    let alice = task_agent(&broker, "alice");
    let params = json!({"name": "receive_messages", "arguments": {"wait_seconds": 60}});
    let task = alice.request("tools/call", params).unwrap();
    assert_eq!(task["ttlMs"], 600_000, "{task}");
    let cancelled = alice
        .request("tasks/cancel", json!({"taskId": task["taskId"]}))
        .unwrap();
    assert_eq!(cancelled["resultType"], "complete");
}
