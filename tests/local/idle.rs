//! When a broker ends by itself: after the time in which it was not used, and what counts as use.

use std::{thread, time::Duration, time::Instant};

use serde_json::json;
use test_client::mcp;

use super::{
    home::{Home, is_alive},
    places::LocalBroker,
    runtime::{START, STATUS, pids, start_at_once},
    support::{Agent, Broker, eventually},
};

/// The time without use after which the brokers of these tests end.
const IDLE_S: u64 = 1;
pub const IDLE: &str = "--idle-shutdown=1s";

/// Waits as long as a broker lives that is started now and not used. One that was idle before has had the time to end.
pub fn awaits_an_idle_end() {
    assert!(Broker::start_with(&[IDLE]).wait_for_exit().success());
}

#[test]
fn a_broker_without_clients_ends_and_one_with_a_client_stays() {
    let home = Home::new().with("MCP_BROKER_IDLE_SHUTDOWN", "1s");
    let pid = home.pid(START);
    let client = home.client();
    client.syncs();
    awaits_an_idle_end();
    client.syncs();
    awaits_an_idle_end();
    // The client was silent for longer than the time: the time begins when it leaves.
    let left = Instant::now();
    drop(client);
    eventually("the broker ends", || (!is_alive(pid)).then_some(()));
    assert!(left.elapsed() >= Duration::from_secs(IDLE_S));
    assert_eq!(home.runs(STATUS).code, 3, "nothing is left");
    assert_ne!(home.pid(START), pid);
}

#[test]
fn a_start_at_the_moment_of_an_idle_end_finds_a_broker() {
    let home = Home::new().with("MCP_BROKER_IDLE_SHUTDOWN", "1s");
    for round in 0..6 {
        home.pid(START);
        thread::sleep(Duration::from_millis(900 + 40 * round));
        // Each has one, even if it ends before the next comes.
        pids(&start_at_once(&home, START, 4));
    }
}

#[test]
fn a_running_task_keeps_its_broker_without_a_connection() {
    let mut local = LocalBroker::start_with(&[IDLE]);
    let declared = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let alice = Agent::modern(local.wire(), declared.clone()).registered("alice");
    let wait = json!({"name": "receive_messages", "arguments": {"wait_seconds": 100}});
    let begun = alice.request("tools/call", wait).unwrap();
    assert_eq!(begun["status"], "working", "{begun}");
    drop(alice);
    awaits_an_idle_end();
    let again = Agent::modern(local.wire(), declared);
    let task = json!({"taskId": begun["taskId"]});
    assert_eq!(again.request("tasks/get", task.clone()).unwrap()["status"], "working");
    again.request("tasks/cancel", task).unwrap();
    drop(again);
    assert!(local.broker.wait_for_exit().success());
}

#[test]
fn a_long_poll_over_http_keeps_its_broker() {
    let mut broker = Broker::start_with(&[IDLE]);
    let alice = broker.http_modern("alice");
    let waiting = alice.call("receive_messages", json!({"wait_seconds": 100})).sent();
    awaits_an_idle_end();
    assert_eq!(broker.get("/livez").status, 200);
    awaits_an_idle_end();
    assert_eq!(broker.get("/livez").status, 200);
    drop(waiting);
    assert!(broker.wait_for_exit().success());
}

#[test]
fn a_connection_for_pushes_keeps_its_broker() {
    let mut local = LocalBroker::start_with(&[IDLE]);
    let push = json!({"experimental": {"dev.mcp-broker/push": {"ack": "auto"}}});
    let bob = Agent::legacy(local.wire(), "2025-11-25", &push).registered("bob");
    awaits_an_idle_end();
    let alice = local.broker.http_modern("alice");
    alice.calls(
        "send_message",
        json!({"recipient_id": "bob", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "hi"}}),
    );
    assert_eq!(bob.next_push()["payload"]["text"], "hi");
    drop(bob);
    assert!(local.broker.wait_for_exit().success());
}

#[test]
fn a_newer_program_does_not_cut_a_running_task() {
    let home = Home::new();
    let pid = home.pid(START);
    let client = home.client();
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let meta = mcp::meta("a test", &tasks);
    let call = |name: &str, arguments| json!({"name": name, "arguments": arguments, "_meta": meta});
    client
        .request("tools/call", call("register_session", json!({"name": "alice"})))
        .unwrap();
    let begun = client
        .request("tools/call", call("receive_messages", json!({"wait_seconds": 100})))
        .unwrap();
    assert_eq!(begun["status"], "working", "{begun}");
    drop(client);
    let newer = home.command(START).env("FAULT_VERSION", "9.0.0").output().unwrap();
    assert!(newer.status.success(), "{newer:?}");
    let client = home.client();
    let task = json!({"taskId": begun["taskId"], "_meta": meta});
    let found = client.request("tasks/get", task.clone()).unwrap();
    assert_eq!(found["status"], "working", "{found}");
    client.request("tasks/cancel", task).unwrap();
    drop(client);
    eventually("the older one makes room", || (!is_alive(pid)).then_some(()));
}
