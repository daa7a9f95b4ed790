//! The mail of a conversation, as hooks ask a real broker for it: nothing is left lying at the end of a turn.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    harness::{CONVERSATION, Hook, hook_input},
    home::Home,
    support::{Wire, eventually},
};

/// Agents that end their turns at the same time.
const AGENTS: usize = 40;
/// Turns of each agent.
const TURNS: usize = 25;
/// A turn ends, and its message comes, within this time.
const END_OF_TURN: Duration = Duration::from_millis(50);
/// The longest wait for a wake, in seconds.
const WAKE_WAIT: u64 = 60;

/// Calls a tool and returns the object of its result.
pub fn calls(client: &mut Wire, tool: &str, arguments: &Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    let mut result = client.request("tools/call", params).unwrap();
    assert_eq!(result["isError"], json!(false), "{tool}: {result}");
    result["structuredContent"].take()
}

fn mail(client: &mut Wire, conversation: &str, wait_seconds: u64) -> Value {
    let params = json!({"conversation": conversation, "wait_seconds": wait_seconds});
    client.request("dev.mcp-broker/mail", params).unwrap()
}

fn reports(client: &mut Wire, conversation: &str, activity: &str) {
    let params = json!({"conversation": conversation, "activity": activity});
    client.request("dev.mcp-broker/activity", params).unwrap();
}

/// A client whose session belongs to a conversation.
fn agent(user: &Home, name: &str, conversation: &str) -> Wire {
    let mut client = user.client();
    let arguments = json!({"name": name, "metadata": {"conversation": conversation}});
    calls(&mut client, "register_session", &arguments);
    client
}

/// A client that sends, and the protocol of its messages.
pub fn sender(user: &Home, name: &str) -> Wire {
    let mut client = user.client();
    calls(&mut client, "register_session", &json!({"name": name}));
    let schema = json!({"type": "object"});
    let protocol = json!({"name": "chat", "version": "1.0.0", "schema": schema});
    calls(&mut client, "register_protocol", &protocol);
    client
}

/// Sends a message; returns its id.
pub fn sends(client: &mut Wire, recipient: &str) -> String {
    let message =
        json!({"recipient_id": recipient, "protocol_name": "chat", "protocol_version": "1.0.0", "payload": {}});
    let sent = calls(client, "send_message", &message);
    sent["message_id"].as_str().unwrap().to_owned()
}

/// A random time within the end of a turn.
fn moment() -> Duration {
    let random = uuid::Uuid::new_v4().as_u128() % END_OF_TURN.as_nanos();
    Duration::from_nanos(u64::try_from(random).unwrap())
}

#[test]
fn a_message_at_the_end_of_a_turn_is_found_by_the_stop_hook_or_the_waiter() {
    let user = Home::new();
    user.start_broker();
    sender(&user, "first");
    let [by_stop, by_waiter] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let turn = |sender: &mut Wire, name: &str| {
        let mut agent = agent(&user, name, name);
        let mut hook = user.client();
        reports(&mut hook, name, "busy");
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(moment());
                sends(sender, name);
            });
            // The turn ends at a moment that has nothing to do with the message.
            thread::sleep(moment());
            reports(&mut hook, name, "idle");
            if mail(&mut hook, name, 0)["unread"] == 1 {
                by_stop.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let mut waiter = user.client();
            let woken = mail(&mut waiter, name, WAKE_WAIT);
            assert_eq!(
                (&woken["unread"], &woken["from"]),
                (&json!(1), &json!([format!("of {name}")])),
                "{woken}"
            );
            by_waiter.fetch_add(1, Ordering::Relaxed);
        });
        let read = calls(&mut agent, "receive_messages", &json!({"acknowledge": "immediate"}));
        assert_eq!(read["messages"].as_array().unwrap().len(), 1, "{read}");
        assert_eq!(mail(&mut hook, name, 0)["unread"], 0);
    };
    thread::scope(|scope| {
        for number in 0..AGENTS {
            let (user, turn) = (&user, &turn);
            scope.spawn(move || {
                for round in 0..TURNS {
                    let name = format!("{number}-{round}");
                    let mut sender = sender(user, &format!("of {name}"));
                    turn(&mut sender, &name);
                }
            });
        }
    });
    let [by_stop, by_waiter] = [by_stop, by_waiter].map(AtomicUsize::into_inner);
    assert_eq!(by_stop + by_waiter, AGENTS * TURNS);
    assert!(
        by_stop > 0 && by_waiter > 0,
        "{by_stop} by the stop hook, {by_waiter} by the waiter"
    );
}

#[test]
fn the_hooks_of_a_client_tell_of_the_messages_of_their_conversation() {
    let user = Home::new();
    user.start_broker();
    let mut bob = sender(&user, "bob");
    let event = |name: &str| hook_input(CONVERSATION, &json!({"hook_event_name": name}));
    // The waiter may begin before the session is bound.
    let waiter = Hook::starts(&user, "wait", &event("SessionStart"));
    let mut alice = agent(&user, "alice", "c-1");
    let activity = |bob: &mut Wire| {
        let listed = calls(bob, "list_sessions", &json!({}));
        let sessions = listed["sessions"].as_array().unwrap().clone();
        let alice = sessions.into_iter().find(|session| session["name"] == "alice").unwrap();
        alice["activity"].clone()
    };
    Hook::starts(&user, "prompt", &event("UserPromptSubmit")).says_nothing();
    assert_eq!(activity(&mut bob), "busy");
    Hook::starts(&user, "stop", &event("Stop")).says_nothing();
    assert_eq!(activity(&mut bob), "idle");
    sends(&mut bob, "alice");
    let text = "mcp-broker: 1 message waits, from bob, protocol chat. Call receive_messages.";
    let done = waiter.ends();
    assert_eq!((done.code, done.stderr), (2, format!("{text}\n")));
    let said = Hook::starts(&user, "stop", &event("Stop")).says();
    assert_eq!(said, json!({"decision": "block", "reason": text}));
    let said = Hook::starts(&user, "prompt", &event("UserPromptSubmit")).says();
    assert_eq!(said["hookSpecificOutput"]["additionalContext"], text);
    calls(&mut alice, "receive_messages", &json!({"acknowledge": "immediate"}));
    Hook::starts(&user, "stop", &event("Stop")).says_nothing();
}

#[test]
fn a_waiter_follows_the_broker_through_a_restart() {
    let user = Home::new();
    user.start_broker();
    let mut bob = sender(&user, "bob");
    drop(agent(&user, "alice", "c-1"));
    let waiter = Hook::starts(
        &user,
        "wait",
        &hook_input(CONVERSATION, &json!({"hook_event_name": "SessionStart"})),
    );
    eventually("the waiter has connected", || {
        (user.json("local status --json")["clients"].as_u64()? >= 2).then_some(())
    });
    user.kill_broker();
    drop(bob);
    user.start_broker();
    bob = sender(&user, "bob");
    sends(&mut bob, "alice");
    assert_eq!(waiter.ends().code, 2);
}
