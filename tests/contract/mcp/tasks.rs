//! Waits as tasks: the extension `io.modelcontextprotocol/tasks` of 2026-07-28.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, eventually};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// An agent that declares the extension.
fn task_agent(broker: &Broker, name: &str) -> Agent {
    Agent::modern(broker.wire(), json!({"extensions": {EXTENSION: {}}})).registered(name)
}

/// Calls a tool that answers with a task. Returns its id.
fn begin_task(agent: &Agent, tool: &str, arguments: &Value) -> String {
    let task = agent
        .request("tools/call", json!({"name": tool, "arguments": arguments}))
        .unwrap();
    assert_eq!(task["resultType"], "task", "{task}");
    assert_eq!(task["status"], "working", "{task}");
    assert!(
        task["ttlMs"].as_u64() > Some(0) && task["pollIntervalMs"].as_u64() > Some(0),
        "{task}"
    );
    assert!(
        task["createdAt"].is_string() && task["lastUpdatedAt"].is_string(),
        "{task}"
    );
    task["taskId"].as_str().unwrap().to_owned()
}

fn begin_wait(agent: &Agent) -> String {
    begin_task(agent, "receive_messages", &json!({"wait_seconds": 60}))
}

fn get_task(agent: &Agent, task: &str) -> Value {
    let found = agent.request("tasks/get", json!({"taskId": task})).unwrap();
    assert_eq!(found["resultType"], "complete", "{found}");
    assert_eq!(found["taskId"], task);
    found
}

/// The result of a task, once it is completed.
fn fetch_result(agent: &Agent, task: &str) -> Value {
    eventually("the task is completed", || {
        let found = get_task(agent, task);
        (found["status"] == "completed").then(|| found["result"].clone())
    })
}

/// Reads without waiting; exactly one message must be there.
fn read_one(agent: &Agent, text: &str) -> Value {
    let messages = agent.reads(json!({}));
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["payload"]["text"], text);
    messages[0].clone()
}

fn texts(result: &Value) -> Vec<&str> {
    let messages = result["structuredContent"]["messages"].as_array().unwrap();
    messages
        .iter()
        .map(|message| message["payload"]["text"].as_str().unwrap())
        .collect()
}

#[test]
fn a_wait_for_messages_is_a_task_that_ends_with_them() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), task_agent(&broker, "bob"));
    let task = begin_wait(&bob);
    assert_eq!(get_task(&bob, &task)["status"], "working");
    alice.sends("hi").to(&bob);
    for _ in 0..2 {
        let result = fetch_result(&bob, &task);
        assert_eq!(texts(&result), ["hi"]);
        assert_eq!(result["isError"], false);
    }
}

#[test]
fn a_wait_for_an_acknowledgement_is_a_task() {
    let broker = Broker::start();
    let (alice, bob) = (task_agent(&broker, "alice"), broker.agent("bob"));
    let arguments = alice
        .sends("hi")
        .with_argument("wait_for", "acknowledged")
        .arguments_to(&bob);
    let task = begin_task(&alice, "send_message", &arguments);
    let messages = bob.sees(["hi"]);
    assert_eq!(get_task(&alice, &task)["status"], "working");
    bob.acknowledges(&messages);
    let result = fetch_result(&alice, &task);
    assert_eq!(result["structuredContent"]["status"], "acknowledged");
}

#[test]
fn a_call_that_does_not_wait_is_no_task() {
    let broker = Broker::start();
    let (alice, bob) = (task_agent(&broker, "alice"), broker.agent("bob"));
    alice.calls("heartbeat", json!({}));
    assert!(alice.reads(json!({})).is_empty());
    alice.sends("hi").to(&bob);
    bob.sees(["hi"]);
    // A refusal comes at once.
    let to_unknown = alice
        .sends("hi")
        .with_argument("wait_for", "acknowledged")
        .arguments_to("nobody");
    alice.is_refused_as("session_not_found", "send_message", to_unknown);
}

#[test]
fn a_client_without_the_extension_gets_no_task() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.modern("bob"));
    let call = bob.begins_call("receive_messages", &json!({"wait_seconds": 60}));
    alice.sends("hi").to(&bob);
    let returned = bob.finishes_call("receive_messages", &call);
    assert_eq!(returned["messages"][0]["payload"]["text"], "hi");
    for (method, params) in [
        ("tasks/get", json!({"taskId": "any"})),
        ("tasks/update", json!({"taskId": "any", "inputResponses": {}})),
        ("tasks/cancel", json!({"taskId": "any"})),
        ("subscriptions/listen", json!({"notifications": {"taskIds": []}})),
    ] {
        let error = bob.request(method, params).unwrap_err();
        assert_eq!(error["code"], -32021, "{method}");
        assert_eq!(
            error["data"]["requiredCapabilities"]["extensions"][EXTENSION],
            json!({})
        );
    }
    // Older revisions have no tasks, even if a client declares them.
    let capabilities = json!({"extensions": {EXTENSION: {}}, "experimental": {EXTENSION: {}}});
    let old = Agent::legacy(broker.wire(), "2025-11-25", &capabilities).registered("old");
    let call = old.begins_call("receive_messages", &json!({"wait_seconds": 60}));
    alice.sends("hello").to(&old);
    assert_eq!(
        old.finishes_call("receive_messages", &call)["messages"][0]["payload"]["text"],
        "hello"
    );
    assert_eq!(old.error_of("tasks/get", json!({"taskId": "any"})), -32601);
}

#[test]
fn a_cancelled_task_takes_nothing() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), task_agent(&broker, "bob"));
    let task = begin_wait(&bob);
    for _ in 0..2 {
        let done = bob.request("tasks/cancel", json!({"taskId": task})).unwrap();
        assert_eq!(done["resultType"], "complete");
        assert_eq!(get_task(&bob, &task)["status"], "cancelled");
    }
    alice.sends("hi").to(&bob);
    assert_eq!(read_one(&bob, "hi")["delivery_count"], 1);
}

#[test]
fn messages_of_a_task_that_is_not_fetched_are_queued_again() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), task_agent(&broker, "bob"));
    begin_wait(&bob);
    let receipt = alice.sends("hi").to(&bob);
    alice.awaits_status(&receipt.id, "delivered");
    // The next call acknowledges what an answer has returned, and this task has returned nothing. The message is delivered a
    // moment before the task has it.
    let again = eventually("the message is queued again", || bob.reads(json!({})).pop());
    assert_eq!(
        (&again["payload"]["text"], &again["delivery_count"]),
        (&json!("hi"), &json!(2))
    );
}

#[test]
fn messages_of_a_fetched_task_are_acknowledged_by_the_next_call() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), task_agent(&broker, "bob"));
    let task = begin_wait(&bob);
    let receipt = alice.sends("hi").to(&bob);
    assert_eq!(texts(&fetch_result(&bob, &task)), ["hi"]);
    bob.sees_nothing();
    alice.awaits_status(&receipt.id, "acknowledged");
}

#[test]
fn a_task_outlives_its_connection() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), task_agent(&broker, "bob"));
    let task = begin_wait(&bob);
    drop(bob);
    alice.sends("hi").to("bob");
    let other = Agent::modern(broker.wire(), json!({"extensions": {EXTENSION: {}}}));
    assert_eq!(texts(&fetch_result(&other, &task)), ["hi"]);
}

#[test]
fn a_subscription_is_notified_of_its_tasks() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), task_agent(&broker, "bob"));
    let task = begin_wait(&bob);
    let filter = json!({"notifications": {"taskIds": [task, "unknown"]}});
    let listen = bob.wire.asks("subscriptions/listen", bob.params(filter));
    let acknowledged = bob.wire.next_notification("notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["notifications"], json!({"taskIds": [task]}));
    let working = bob.wire.next_notification("notifications/tasks");
    assert_eq!(working["status"], "working");
    alice.sends("hi").to(&bob);
    let completed = bob.wire.next_notification("notifications/tasks");
    assert_eq!(completed["status"], "completed");
    assert_eq!(completed["taskId"], task.as_str());
    assert_eq!(completed["_meta"]["io.modelcontextprotocol/subscriptionId"], listen);
    assert_eq!(texts(&completed["result"]), ["hi"]);
    assert!(completed.get("resultType").is_none(), "{completed}");
}

#[test]
fn an_unknown_task_is_not_found() {
    let broker = Broker::start();
    let bob = task_agent(&broker, "bob");
    for method in ["tasks/get", "tasks/cancel"] {
        assert_eq!(bob.error_of(method, json!({"taskId": "none"})), -32602, "{method}");
        assert_eq!(bob.error_of(method, json!({})), -32602, "{method}");
    }
    let unknown = json!({"taskId": "none", "inputResponses": {}});
    assert_eq!(bob.error_of("tasks/update", unknown), -32602);
    let task = begin_wait(&bob);
    assert_eq!(bob.error_of("tasks/update", json!({"taskId": task})), -32602);
    // An answer to a question that was not asked is ignored.
    let update = json!({"taskId": task, "inputResponses": {"name": {"action": "accept"}}});
    assert_eq!(bob.request("tasks/update", update).unwrap()["resultType"], "complete");
    for method in ["tasks/result", "tasks/list"] {
        assert_eq!(bob.error_of(method, json!({"taskId": task})), -32601, "{method}");
    }
}

#[test]
fn a_call_receipt_can_come_from_a_task_and_go_to_one() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), task_agent(&broker, "bob"));
    let receipt_of = |result: &Value| result["structuredContent"]["receipt"].as_str().unwrap().to_owned();
    let task = begin_wait(&bob);
    let first = alice.sends("first").to(&bob).id;
    let receipt = receipt_of(&fetch_result(&bob, &task));
    assert_eq!(alice.status_of(&first), "delivered");
    // A task that begins with a receipt acknowledges its messages before it waits.
    let task = begin_task(
        &bob,
        "receive_messages",
        &json!({"wait_seconds": 60, "receipt": receipt}),
    );
    alice.awaits_status(&first, "acknowledged");
    let second = alice.sends("second").to(&bob).id;
    let result = fetch_result(&bob, &task);
    assert_eq!(texts(&result), ["second"]);
    assert_eq!(alice.status_of(&second), "delivered");
    let rest = bob.calls("receive_messages", json!({"receipt": receipt_of(&result)}));
    assert_eq!(rest["messages"], json!([]));
    assert_eq!(alice.status_of(&second), "acknowledged");
}
