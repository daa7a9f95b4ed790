//! A client that says nothing for a long time between two requests: its next call is answered.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use super::{front::Front, home::Home, runtime::STATUS, support::listed_id};

/// Servers were seen that lose a call which comes so long after the list of tools.
const PAUSE: Duration = Duration::from_secs(120);

fn list_tools(front: &mut Front) -> Value {
    front.initialize("x");
    let tools = front.request("tools/list", &json!({}));
    assert!(tools["result"]["tools"].as_array().unwrap().len() > 10);
    tools
}

/// `scripts/lib/nextest.toml` names this test, so that it begins first.
#[test]
fn a_call_after_two_minutes_of_silence_is_answered_by_the_same_broker() {
    let user = Home::new();
    let mut front = user.front().env("MCP_BROKER_IDLE_SHUTDOWN", "1s").start();
    let tools = list_tools(&mut front);
    user.awaits_status(STATUS, 0);
    let pid = user.pid(STATUS);
    thread::sleep(PAUSE);
    front.calls("heartbeat", &json!({}));
    assert_eq!(
        user.pid(STATUS),
        pid,
        "a connected front is a client: the broker is not idle"
    );
    assert_eq!(front.request("tools/list", &json!({}))["result"], tools["result"]);
    assert!(front.others().is_empty());
}

#[test]
fn a_call_after_the_broker_has_ended_in_a_pause_starts_it_again() {
    let user = Home::new();
    let mut front = user.front().start();
    list_tools(&mut front);
    let registered = front.calls("register_session", &json!({"name": "alice"}));
    let pid = user.pid(STATUS);
    user.does("local stop");
    assert_eq!(front.calls("heartbeat", &json!({}))["status"], "active");
    let again = front.calls("register_session", &json!({}));
    let [before, after] = [&registered, &again].map(|answer| listed_id(answer["session_id"].as_str().unwrap()));
    assert_eq!(after, before);
    // The agent may still use the id that it knows.
    front.calls("heartbeat", &json!({"session_id": registered["session_id"]}));
    assert_ne!(user.pid(STATUS), pid);
    assert!(front.others().is_empty());
}
