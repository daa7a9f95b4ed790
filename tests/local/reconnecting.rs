//! Fronts whose broker ends, is killed or is far away: every request is answered once, messages exist once, and names,
//! inboxes and subscriptions come back.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

use serde_json::{Value, json};

use super::{
    front::Front,
    home::Home,
    support::{Broker, Proxy, eventually, listed_id},
};

const KILLS: usize = 4;

fn message(to: &str, text: &str) -> Value {
    json!({"recipient_id": to, "protocol_name": "chat", "protocol_version": "1.0.0", "payload": {"text": text}})
}

fn named(user: &Home, name: &str) -> Front {
    let mut front = user.front().args(&["--name", name]).start();
    front.initialize("x");
    let schema = json!({"type": "object"});
    front.calls(
        "register_protocol",
        &json!({"name": "chat", "version": "1.0.0", "schema": schema}),
    );
    front
}

/// Sends messages while the broker is killed. Returns how often each text was accepted.
fn send_many(
    mut front: Front,
    to: &str,
    from: &str,
    is_over: &std::sync::atomic::AtomicBool,
) -> (Front, BTreeSet<String>) {
    let mut accepted = BTreeSet::new();
    let mut number = 0;
    while !is_over.load(std::sync::atomic::Ordering::Relaxed) || number < 20 {
        // Several under way at once, safe to repeat and not.
        let texts: Vec<String> = (0..5).map(|at| format!("{from} {number} {at}")).collect();
        let sends: Vec<u64> = texts
            .iter()
            .map(|text| front.asks_tool("send_message", &message(to, text)))
            .collect();
        let beat = front.asks_tool("heartbeat", &json!({}));
        let redrive = front.asks_tool("redrive_dead_letters", &json!({"message_ids": []}));
        for (id, text) in sends.into_iter().zip(texts) {
            let answer = front.answer(id);
            assert_eq!(answer["result"]["isError"], false, "{answer}");
            accepted.insert(text);
        }
        let beat = front.answer(beat);
        assert_eq!(beat["result"]["isError"], false, "{beat}");
        let redriven = front.answer(redrive);
        let code = &redriven["result"]["structuredContent"]["code"];
        assert!(
            redriven["result"]["isError"] == false || code == "unavailable" || code == "invalid_argument",
            "{redriven}"
        );
        number += 1;
    }
    assert!(front.others().is_empty(), "each request has one answer");
    (front, accepted)
}

#[test]
fn nothing_is_lost_or_doubled_when_the_broker_is_killed_under_calls() {
    let user = Home::new();
    let mut reader = named(&user, "reader");
    let senders: Vec<(String, Front)> = (0..2)
        .map(|number| format!("s{number}"))
        .map(|name| {
            let front = named(&user, &name);
            (name, front)
        })
        .collect();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let (mut accepted, mut fronts) = (BTreeSet::new(), Vec::new());
    thread::scope(|scope| {
        let running: Vec<_> = senders
            .into_iter()
            .map(|(name, front)| {
                let is_over = &is_over;
                scope.spawn(move || send_many(front, "reader", &name, is_over))
            })
            .collect();
        for _ in 0..KILLS {
            reader.calls("heartbeat", &json!({}));
            user.kill_broker();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        for sender in running {
            let (front, texts) = sender.join().unwrap();
            accepted.extend(texts);
            fronts.push(front);
        }
    });
    let mut received: BTreeMap<String, usize> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    while seen.len() < accepted.len() {
        let answer = reader.calls("receive_messages", &json!({"limit": 100, "wait_seconds": 5}));
        let messages = answer["messages"].as_array().unwrap();
        assert!(
            !messages.is_empty(),
            "{} of {} messages arrived",
            seen.len(),
            accepted.len()
        );
        for message in messages {
            if seen.insert(message["message_id"].as_str().unwrap().to_owned()) {
                *received
                    .entry(message["payload"]["text"].as_str().unwrap().to_owned())
                    .or_default() += 1;
            }
        }
    }
    assert!(received.values().all(|count| *count == 1), "{received:?}");
    assert_eq!(received.keys().cloned().collect::<BTreeSet<_>>(), accepted);
    assert!(fronts.iter_mut().all(Front::is_running));
}

#[test]
fn a_restart_brings_back_the_name_the_inbox_and_the_subscription() {
    let user = Home::new();
    let (mut alice, mut bob) = (named(&user, "alice"), named(&user, "bob"));
    let registered = alice.calls(
        "register_session",
        &json!({"name": "anna", "capabilities": {"supported_features": ["f"]}}),
    );
    alice.request("resources/subscribe", &json!({"uri": "broker://inbox"}));
    bob.calls("send_message", &message("anna", "before"));
    alice.notification("notifications/resources/updated");
    user.kill_broker();
    let updated = alice.notification("notifications/resources/updated");
    assert_eq!(updated["params"]["uri"], "broker://inbox");
    bob.calls("send_message", &message("anna", "after"));
    eventually("the subscription tells of the new message", || {
        let frame = alice.notification("notifications/resources/updated");
        (frame["params"]["uri"] == "broker://inbox").then_some(())
    });
    let received = alice.calls("receive_messages", &json!({}));
    let texts: Vec<&Value> = received["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["payload"]["text"])
        .collect();
    assert_eq!(texts, ["before", "after"]);
    let sessions = alice.calls("list_sessions", &json!({"feature": "f"}));
    let own = listed_id(registered["session_id"].as_str().unwrap());
    assert_eq!(sessions["sessions"][0]["session_id"], own.as_str());
}

#[test]
fn a_call_that_must_not_be_repeated_is_answered_when_its_broker_dies() {
    let user = Home::new();
    let mut alice = named(&user, "alice");
    let id = alice.asks_tool("receive_messages", &json!({"wait_seconds": 100}));
    // The answer to a later call shows that the broker has the first.
    alice.calls("heartbeat", &json!({}));
    user.kill_broker();
    let answer = alice.answer(id);
    let error = &answer["result"]["structuredContent"];
    assert_eq!(
        (&error["code"], &error["retry_after_ms"]),
        (&json!("unavailable"), &json!(500)),
        "{answer}"
    );
    assert_eq!(alice.calls("receive_messages", &json!({}))["messages"], json!([]));
}

#[test]
fn the_front_of_a_modern_client_renews_its_subscription() {
    let user = Home::new();
    let mut alice = user.front().args(&["--name=alice"]).start();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let listen = json!({"_meta": meta, "notifications": {"resourceSubscriptions": ["broker://inbox"]}});
    alice.asks("subscriptions/listen", &listen);
    alice.notification("notifications/subscriptions/acknowledged");
    user.kill_broker();
    let mut bob = named(&user, "bob");
    bob.calls("send_message", &message("alice", "hi"));
    alice.notification("notifications/resources/updated");
    assert!(
        alice
            .others()
            .iter()
            .all(|frame| frame["method"] != "notifications/subscriptions/acknowledged")
    );
}

#[test]
fn a_remote_broker_is_reached_over_websocket_and_reached_again() {
    let user = Home::new();
    let broker = Broker::without_timeouts();
    let proxy = Proxy::to(broker.address);
    let url = format!("http://{}", proxy.address);
    let mut alice = user.front().args(&["--url", &url, "--name=alice"]).start();
    alice.initialize("x");
    let schema = json!({"type": "object"});
    alice.calls(
        "register_protocol",
        &json!({"name": "chat", "version": "1.0.0", "schema": schema}),
    );
    let session = alice.calls("register_session", &json!({"name": "alice"}))["session_id"].clone();
    proxy.cut();
    proxy.restore();
    let again = alice.calls("register_session", &json!({}));
    let [before, after] = [&session, &again["session_id"]].map(|id| listed_id(id.as_str().unwrap()));
    assert_eq!(after, before);
    let large = "x".repeat(3 << 20);
    alice.calls("send_message", &message("alice", &large));
    let received = alice.calls("receive_messages", &json!({}));
    assert_eq!(received["messages"][0]["payload"]["text"], large);
    alice.closes();
    assert!(alice.ends().0.success());
    assert!(
        !user.runtime().join("broker.json").exists(),
        "no local broker was started"
    );
}
