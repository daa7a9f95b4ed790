//! Wakes over the local socket: what the broker tells a front that can wake its agent, and a hook that waits.

use serde_json::{Value, json};

use super::{
    places::LocalBroker,
    support::{Agent, eventually},
};

const WAKE: &str = "notifications/dev.mcp-broker/wake";
const MAIL: &str = "dev.mcp-broker/mail";

/// A connection of the front of an agent, which can wake it in these ways.
fn front(local: &LocalBroker, conversation: &str, rungs: &[&str], wake: &Value) -> Agent {
    let wire = local.wire();
    let agent = json!({"product": "claude-code", "conversation": conversation, "wake": rungs});
    let hello = json!({"protocol": 1, "version": "1", "build": "test", "pid": 1, "kind": "connect", "agent": agent});
    wire.request("dev.mcp-broker/hello", hello).unwrap();
    let metadata = json!({"product": "claude-code", "conversation": conversation});
    let registration = json!({"name": conversation, "metadata": metadata, "wake": wake});
    Agent::legacy(wire, "2025-11-25", &json!({})).registered_with(&registration)
}

/// Asserts that the agent got no wake but those that were awaited.
fn has_no_other_wake(agent: &Agent) {
    agent.syncs();
    assert_eq!(agent.wire.notifications_so_far(WAKE), 0);
}

fn await_wake(agent: &Agent) -> Value {
    agent.wire.next_notification(WAKE)
}

fn woken(agent: &Agent, wake: &Value, result: &str) {
    let params = json!({"wake_id": wake["wake_id"], "rung": "inbox", "result": result});
    agent.wire.notifies("notifications/dev.mcp-broker/woken", &params);
}

fn sessions_row(agent: &Agent, name: &str) -> Value {
    let sessions = agent.calls("list_sessions", json!({}))["sessions"].clone();
    let row = sessions.as_array().unwrap().iter().find(|row| row["name"] == name);
    row.unwrap().clone()
}

#[test]
fn a_message_for_an_idle_agent_wakes_it_once_and_says_what_waits() {
    let local = LocalBroker::start();
    let alice = front(&local, "alice", &["inbox", "later"], &json!({}));
    let bob = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("bob");
    assert_eq!(sessions_row(&bob, "alice")["wakes_by"], json!(["inbox"]));
    assert_eq!(sessions_row(&bob, "bob")["wakes_by"], Value::Null);
    // A storm is one wake.
    let sent: Vec<_> = (0..100)
        .map(|number| bob.sends(&format!("secret {number}")).to(&alice))
        .collect();
    assert_eq!(sent[0].object["recipient"]["wakes_by"], json!(["inbox"]));
    assert_eq!(sent[0].object["recipient"]["activity"], "unknown");
    let wake = await_wake(&alice);
    assert_eq!((&wake["from"], &wake["reason"]), (&json!(["bob"]), &json!("message")));
    assert!(wake["unread"].as_u64().unwrap() >= 1);
    assert!(!wake.to_string().contains("secret"), "a wake has no payload: {wake}");
    woken(&alice, &wake, "written");
    let wake_of = |id: &str| bob.calls("get_message_status", json!({"message_id": id}))["recipients"][0].clone();
    let status = eventually("the wake is in the status", || {
        let status = wake_of(&sent[0].id);
        status["wakes"].is_array().then_some(status)
    });
    assert_eq!(status["status"], "queued", "a wake is no delivery");
    assert_eq!(
        (&status["wakes"][0]["rung"], &status["wakes"][0]["result"]),
        (&json!("inbox"), &json!("written"))
    );
    assert_eq!(alice.reads(json!({"limit": 200})).len(), 100);
    has_no_other_wake(&alice);
    assert!(sessions_row(&bob, "alice")["queue_size"] == 0);
}

#[test]
fn an_agent_that_waits_for_messages_is_not_woken() {
    let local = LocalBroker::start();
    let alice = front(&local, "alice", &["inbox"], &json!({"min_interval_seconds": 0}));
    let bob = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("bob");
    let waiting = alice.begins_call("receive_messages", &json!({"wait_seconds": 60}));
    alice.wire.syncs();
    bob.sends("hi").to(&alice);
    alice.finishes_call("receive_messages", &waiting);
    // The next message wakes: by then a wake for the first would have come.
    bob.sends("yo").to(&alice);
    let wake = await_wake(&alice);
    assert_eq!(wake["unread"], 1);
    has_no_other_wake(&alice);
}

#[test]
fn a_second_hook_takes_the_place_of_the_first_and_a_hook_that_has_gone_is_forgotten() {
    let local = LocalBroker::start();
    let bob = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("bob");
    let query = json!({"conversation": "alice", "wait_seconds": 60});
    // It waits before the conversation has a session.
    let first = local.wire();
    let waiting = first.asks(MAIL, query.clone());
    let alice = front(&local, "alice", &[], &json!({}));
    let rungs = || sessions_row(&bob, "alice")["wakes_by"].clone();
    let sees = |what: &str, expected: Value| eventually(what, || (rungs() == expected).then_some(()));
    sees("the first hook", json!(["hook"]));
    let second = local.wire();
    let waiting_too = second.asks(MAIL, query);
    assert_eq!(first.answer_to(&waiting).unwrap()["is_replaced"], true);
    bob.sends("hi").to(&alice);
    assert_eq!(second.answer_to(&waiting_too).unwrap()["unread"], 1);
    sees("no hook", Value::Null);
    let third = local.wire();
    third.asks(MAIL, json!({"conversation": "alice", "wait_seconds": 60}));
    sees("the third hook", json!(["hook"]));
    drop(third);
    sees("no hook after its end", Value::Null);
}

#[test]
fn an_idle_agent_has_ended_its_turn() {
    let local = LocalBroker::start();
    let wake = json!({"min_interval_seconds": 0});
    let (alice, bob) = (
        front(&local, "alice", &["inbox"], &wake),
        front(&local, "bob", &["inbox"], &wake),
    );
    alice.sends("hi").with("hops", 3).to(&bob);
    woken(&bob, &await_wake(&bob), "written");
    bob.reads(json!({}));
    let hook = local.wire();
    let report = |activity: &str| {
        hook.request(
            "dev.mcp-broker/activity",
            json!({"conversation": "bob", "activity": activity}),
        )
    };
    for activity in ["busy", "idle"] {
        assert_eq!(report(activity).unwrap()["session_id"], bob.session.as_str());
        assert_eq!(sessions_row(&alice, "bob")["activity"], activity);
    }
    bob.sends("yo").to(&alice);
    await_wake(&alice);
    assert_eq!(alice.reads(json!({}))[0]["headers"]["hops"], Value::Null);
    for bad in [
        json!({}),
        json!({"conversation": "", "activity": "idle"}),
        json!({"conversation": "bob", "activity": "asleep"}),
    ] {
        assert_eq!(hook.error_of("dev.mcp-broker/activity", bad), -32602);
    }
    for bad in [
        json!({"conversation": "bob", "wait_seconds": 86_401}),
        json!({"conversation": "x".repeat(300)}),
    ] {
        assert_eq!(hook.error_of(MAIL, bad), -32602);
    }
}

#[test]
fn what_an_agent_prefers_is_checked_and_kept() {
    let local = LocalBroker::start();
    let alice = front(
        &local,
        "alice",
        &["inbox"],
        &json!({"for": "urgent", "min_interval_seconds": 0}),
    );
    let bob = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("bob");
    for bad in [
        json!({"for": "some"}),
        json!({"quiet": "22:00"}),
        json!({"min_interval_seconds": 3601}),
        json!({"min_interval_seconds": -1}),
        json!({"other": 1}),
    ] {
        let error = alice.is_refused("register_session", json!({"name": "alice", "wake": bad}));
        assert_eq!(error["code"], "invalid_argument", "{error}");
    }
    // It stays what it was: an urgent message wakes, and what came before it does not.
    alice.calls("register_session", json!({"name": "alice"}));
    bob.sends("hi").to(&alice);
    bob.sends("now").with("priority", "urgent").to(&alice);
    let wake = await_wake(&alice);
    assert_eq!((&wake["unread"], &wake["urgent"]), (&json!(2), &json!(1)));
    has_no_other_wake(&alice);
}
