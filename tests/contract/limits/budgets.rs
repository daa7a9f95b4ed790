//! Stored bytes: each budget is filled, the refusal names it, and freed bytes can be used again.

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Agent, Broker, FAST_TIMEOUTS, eventually};

const MB: u64 = 1024 * 1024;

/// Few messages of this length fill a budget of a few MB.
fn long_text() -> String {
    "x".repeat(400 * 1024)
}

/// The budget that a refusal names, and its limit.
fn budget(error: &Value) -> (&str, u64) {
    assert_eq!(error["detail"]["unit"], "bytes", "{error}");
    let limit = error["detail"]["limit"].as_u64().unwrap();
    assert!(
        error["message"].as_str().unwrap().contains(&limit.to_string()),
        "{error}"
    );
    (error["detail"]["budget"].as_str().unwrap(), limit)
}

/// The object that a tool returns, or its error.
fn outcome(agent: &Agent, tool: &str, arguments: Value) -> Result<Value, Value> {
    let params = json!({"name": tool, "arguments": arguments});
    let result = agent.request("tools/call", params).unwrap();
    let object = result["structuredContent"].clone();
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    if result["isError"] == true {
        Err(serde_json::from_str(text).unwrap())
    } else {
        Ok(object)
    }
}

fn acknowledge(agent: &Agent, messages: &[Value]) {
    let ids: Vec<_> = messages.iter().map(|message| &message["message_id"]).collect();
    agent.calls("acknowledge_messages", json!({"message_ids": ids}));
}

#[test]
fn a_full_inbox_names_its_budget_and_accepts_messages_after_an_acknowledgement() {
    let broker = Broker::start_with(&["--max-payload-mb=1", "--queue-max-mb=2"]);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let text = long_text();
    for _ in 0..5 {
        alice.sends(&text).to(&bob);
    }
    let error = alice.sends(&text).fails_as("queue_full", &bob);
    assert_eq!(budget(&error), ("queue_bytes", 2 * MB));
    // A short message still fits.
    alice.sends("short").to(&bob);
    // A message that was read and not acknowledged is still counted.
    let read = bob.reads(json!({"acknowledge": "manual", "limit": 1}));
    assert_eq!(read.len(), 1);
    alice.sends(&text).fails_as("queue_full", &bob);
    acknowledge(&bob, &read);
    alice.sends(&text).to(&bob);
    let sent = alice.sends(&text).to_everyone();
    assert_eq!(
        (&sent["failed"], &sent["failures"][0]["code"]),
        (&json!(1), &json!("queue_full"))
    );
}

#[test]
fn a_full_project_does_not_affect_other_projects() {
    let broker = Broker::secured_with(&["--max-payload-mb=1", "--waiting-max-mb=2"]);
    let [full, other] = ["full", "other"].map(|id| broker.project(id, &json!({})));
    let (alice, text) = (full.agent("alice"), long_text());
    let readers: Vec<_> = (0..6).map(|at| full.agent(&format!("reader-{at}"))).collect();
    // A broadcast is stored once.
    assert_eq!(alice.sends(&text).to_everyone()["failed"], 0);
    for reader in &readers[..4] {
        alice.sends(&text).to(reader);
    }
    let error = alice.sends(&text).fails_as("queue_full", &readers[5]);
    assert_eq!(budget(&error), ("project_bytes", 2 * MB));
    let (carol, dave) = (other.agent("carol"), other.agent("dave"));
    carol.sends(&text).to(&dave);
    for _ in 0..2 {
        acknowledge(
            &readers[0],
            &readers[0].reads(json!({"acknowledge": "manual", "limit": 1})),
        );
    }
    alice.sends(&text).to(&readers[5]);
}

#[test]
fn the_oldest_dead_letters_are_dropped_and_logged() {
    let broker = Broker::start_with(&["--max-payload-mb=1", "--dead-letters-max-mb=2", "--delivery-limit=1"]);
    let (alice, text) = (broker.agent("alice"), long_text());
    let mut sent = Vec::new();
    for _ in 0..7 {
        let bob = broker.agent("bob");
        sent.push(alice.sends(&text).to(&bob).id);
        assert_eq!(bob.reads(json!({"acknowledge": "manual"})).len(), 1);
        bob.wire.disconnects();
    }
    broker.agent("bob").sees_nothing();
    assert_eq!(dead_letters(&alice), sent[2..]);
    // Its receipt still says that it is dead.
    assert_eq!(alice.status_of(&sent[0]), "dead_lettered");
    eventually("the drop is logged", || {
        broker.log().contains("the oldest were dropped").then_some(())
    });
}

/// The dead letters of all pages. Each page is bounded in bytes.
fn dead_letters(agent: &Agent) -> Vec<String> {
    let (mut messages, mut arguments) = (Vec::new(), json!({}));
    loop {
        let page = agent.calls("list_dead_letters", arguments);
        let letters = page["dead_letters"].as_array().unwrap().iter();
        messages.extend(letters.map(|arguments| arguments["message"]["message_id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => arguments = json!({"cursor": cursor}),
            None => return messages,
        }
    }
}

#[test]
fn the_number_of_sessions_is_bounded() {
    let broker = Broker::start_with(&[&FAST_TIMEOUTS[..], &["--sessions-max=5"]].concat());
    let mut registered = Vec::new();
    let refused = loop {
        let caller = broker.client();
        let arguments = json!({"name": format!("agent-{}", registered.len())});
        match outcome(&caller, "register_session", arguments) {
            Ok(_) => registered.push(caller),
            Err(error) => break error,
        }
        assert!(registered.len() <= 5, "more than five sessions are registered");
    };
    assert_eq!(refused["code"], "forbidden");
    assert!(
        refused["message"].as_str().unwrap().contains("sessions_max"),
        "{refused}"
    );
    drop(registered);
    eventually("a session can register again", || {
        outcome(&broker.client(), "register_session", json!({"name": "late"})).ok()
    });
}

#[test]
fn the_descriptions_of_sessions_are_bounded_in_bytes() {
    let broker = Broker::start_with(&["--sessions-max-mb=1"]);
    let mut registered = Vec::new();
    let refused = loop {
        let caller = broker.client();
        let metadata = json!({"text": "x".repeat(15 * 1024)});
        let arguments = json!({"name": format!("agent-{}", registered.len()), "metadata": metadata});
        match outcome(&caller, "register_session", arguments) {
            Ok(_) => registered.push(caller),
            Err(error) => break error,
        }
    };
    assert_eq!(refused["code"], "forbidden");
    let text = refused["message"].as_str().unwrap();
    assert!(text.contains("metadata") && text.contains(&MB.to_string()), "{refused}");
    assert!(
        (50..=MB as usize / (15 * 1024)).contains(&registered.len()),
        "{}",
        registered.len()
    );
    broker.agent("one-that-says-little");
}

#[test]
fn idempotency_keys_are_bounded_in_bytes_and_the_newest_stay() {
    const KEYS: usize = 4_000;
    let broker = Broker::start_with(&["--idempotency-max-mb=1"]);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let key = |number: usize| format!("{number:0>256}");
    let first = alice.sends("first").with("idempotency_key", key(0)).to(&bob);
    assert_eq!(alice.sends("first").with("idempotency_key", key(0)).to(&bob), first);
    let mut last = None;
    for from in (1..=KEYS).step_by(200) {
        for number in from..from + 200 {
            let sent = alice.sends("next").with("idempotency_key", key(number));
            if number == KEYS {
                last = Some(sent.to(&bob));
            } else {
                alice.begins_call("send_message", &sent.arguments_to(&bob));
            }
        }
        alice.syncs();
        let read = bob.reads(json!({"acknowledge": "immediate", "limit": 1000}));
        assert!(!read.is_empty());
    }
    assert_eq!(
        Some(alice.sends("next").with("idempotency_key", key(KEYS)).to(&bob)),
        last
    );
    assert_ne!(alice.sends("first").with("idempotency_key", key(0)).to(&bob), first);
}

/// With the defaults, one member with the largest messages fits in a container of 512 MiB.
#[test]
fn a_member_with_the_largest_messages_is_held_to_the_default_budgets() {
    let broker = Broker::start();
    let (alice, readers) = (broker.agent("alice"), broker.agents("reader", 6));
    let text = "x".repeat(9 * 1024 * 1024);
    for reader in &readers[..4] {
        alice.sends(&text).with("ttl_seconds", 1).to(reader);
    }
    for reader in &readers {
        eventually("the unread messages have expired", || {
            (reader.calls("heartbeat", json!({}))["queue_size"] == 0).then_some(())
        });
    }
    let mut accepted = 0;
    let refused = loop {
        let arguments = alice.sends(&text).arguments_to(&readers[accepted / 2]);
        match outcome(&alice, "send_message", arguments) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((accepted, budget(&refused)), (10, ("project_bytes", 96 * MB)));
    let held = broker.anonymous_kib();
    assert!(held < 320 * 1024, "{held} KiB");
}

#[test]
fn the_number_of_projects_is_bounded() {
    let broker = Broker::secured_with(&["--projects-max=3"]);
    let create = |id: &str| {
        let wanted = json!({"project_id": id, "name": id});
        broker.rest(ADMIN_KEY, "POST", "/api/v1/projects", &wanted)
    };
    // The default project counts as one.
    assert_eq!([create("one").status, create("two").status], [201; 2]);
    let refused = create("three");
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("forbidden")));
    assert!(
        refused.json()["detail"].as_str().unwrap().contains("projects_max"),
        "{refused:?}"
    );
    broker.rest(ADMIN_KEY, "DELETE", "/api/v1/projects/one", &Value::Null);
    assert_eq!(create("three").status, 201);
}
