//! Lists come in pages: complete, in one order, each item once.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Agent, Broker, eventually};

/// Follows the cursors to the end. Returns the entries of all pages.
fn all_pages(agent: &Agent, tool: &str, key: &str, mut arguments: Value, limit: usize) -> Vec<Value> {
    arguments["limit"] = json!(limit);
    let mut entries = Vec::new();
    for _ in 0..1000 {
        let mut page = agent.calls(tool, arguments.clone());
        let Value::Array(found) = page[key].take() else {
            panic!("no list: {page}")
        };
        assert!(found.len() <= limit);
        entries.extend(found);
        let Some(cursor) = page.get("next_cursor") else {
            return entries;
        };
        arguments["cursor"] = cursor.clone();
    }
    panic!("the pages never end");
}

fn distinct(entries: &[Value], key: impl Fn(&Value) -> String) -> BTreeSet<String> {
    let keys: BTreeSet<_> = entries.iter().map(key).collect();
    assert_eq!(keys.len(), entries.len(), "an entry came twice");
    keys
}

#[test]
fn pages_of_sessions_are_complete_and_ordered() {
    let broker = Broker::start();
    let agents = broker.agents("agent", 11);
    for limit in [1, 2, 3, 5, 11, 12] {
        let sessions = all_pages(&agents[0], "list_sessions", "sessions", json!({}), limit);
        let names: Vec<_> = sessions
            .iter()
            .map(|session| session["name"].as_str().unwrap())
            .collect();
        let expected: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names, expected, "in pages of {limit}");
    }
}

#[test]
fn a_cursor_outlives_the_session_it_names() {
    let broker = Broker::start();
    let agents = broker.agents("agent", 6);
    let first = agents[0].calls("list_sessions", json!({"limit": 3}));
    // The session at which the page ended leaves: the cursor stays valid.
    agents[2].calls("disconnect_session", json!({}));
    let rest = agents[0].calls("list_sessions", json!({"limit": 3, "cursor": first["next_cursor"]}));
    let names: Vec<_> = rest["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|session| &session["name"])
        .collect();
    assert_eq!(names, ["agent3", "agent4", "agent5"]);
}

#[test]
fn pages_of_protocols_are_complete_and_ordered() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for name in ["zebra", "apple", "mango"] {
        for version in ["1.0.0", "1.10.0", "1.9.0", "2.0.0-rc.1"] {
            let tags = json!({"tags": ["fruit"]});
            alice.calls(
                "register_protocol",
                json!({"name": name, "version": version, "schema": {}, "metadata": tags}),
            );
        }
    }
    let key = |protocol: &Value| format!("{}/{}", protocol["name"], protocol["version"]);
    let whole = all_pages(
        &alice,
        "discover_protocols",
        "protocols",
        json!({"tags": ["fruit"]}),
        1000,
    );
    assert_eq!(distinct(&whole, key).len(), 12);
    for limit in [1, 2, 5, 12] {
        let found = all_pages(
            &alice,
            "discover_protocols",
            "protocols",
            json!({"tags": ["fruit"]}),
            limit,
        );
        assert_eq!(found, whole, "in pages of {limit}");
    }
}

#[test]
fn pages_of_dead_letters_are_complete_and_ordered() {
    let broker = Broker::start();
    let agents = broker.agents("agent", 3);
    // One direct message and one broadcast each: a broadcast is a dead letter for two recipients.
    for at in 0..4 {
        agents[0]
            .sends(&format!("direct {at}"))
            .with("ttl_seconds", 1)
            .to(&agents[1]);
        agents[0]
            .sends(&format!("all {at}"))
            .with("ttl_seconds", 1)
            .to_everyone();
    }
    let whole = eventually("all messages are dead letters", || {
        let listed = agents[0].calls("list_dead_letters", json!({"limit": 100}))["dead_letters"].take();
        let letters = listed.as_array().unwrap().clone();
        (letters.len() == 12).then_some(letters)
    });
    let key = |letter: &Value| format!("{}/{}", letter["message"]["message_id"], letter["session_id"]);
    assert_eq!(distinct(&whole, key).len(), 12);
    for limit in [1, 2, 5, 12, 13] {
        let found = all_pages(&agents[0], "list_dead_letters", "dead_letters", json!({}), limit);
        assert_eq!(found, whole, "in pages of {limit}");
    }
    let other = all_pages(
        &agents[0],
        "list_dead_letters",
        "dead_letters",
        json!({"reason": "rejected"}),
        2,
    );
    assert_eq!(other, [Value::Null; 0]);
}
