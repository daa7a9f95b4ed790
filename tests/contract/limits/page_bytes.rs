//! A page of a list is bounded in bytes, whichever limit is asked for, and a cursor leads to the next page.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Agent, Broker};

/// Bytes of the items of one page and of the object around them.
const PAGE_BYTES_MAX: usize = 384 * 1024 + 1024;

/// Follows the cursors to the end. Returns the items of each page: several pages, none of them too long.
fn pages(key: &str, mut next_page: impl FnMut(Option<&Value>) -> Value) -> Vec<Vec<Value>> {
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let mut page = next_page(cursor.as_ref());
        let len = page.to_string().len();
        let items = page[key]
            .as_array_mut()
            .unwrap_or_else(|| panic!("no list"))
            .split_off(0);
        assert!(len <= PAGE_BYTES_MAX || items.len() == 1, "a page of {len} bytes");
        assert!(!items.is_empty());
        pages.push(items);
        match page.get("next_cursor") {
            Some(next) => cursor = Some(next.clone()),
            None => break,
        }
    }
    assert!(pages.len() > 1, "one page of all");
    pages
}

fn tool_pages(agent: &Agent, tool: &str, key: &str, arguments: &Value) -> Vec<Vec<Value>> {
    pages(key, |cursor| {
        let mut arguments = arguments.clone();
        if let Some(cursor) = cursor {
            arguments["cursor"] = cursor.clone();
        }
        agent.calls(tool, arguments)
    })
}

/// The number of items, of which none may come twice.
fn distinct(pages: &[Vec<Value>], key: impl Fn(&Value) -> String) -> usize {
    let keys: Vec<_> = pages.iter().flatten().map(key).collect();
    let distinct: BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len(), "an item came twice");
    keys.len()
}

#[test]
fn pages_of_dead_letters_are_bounded_in_bytes() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sends = |len: usize| alice.sends(&"x".repeat(len)).with("ttl_seconds", 1).to(&bob).id;
    let mut sent: Vec<_> = (0..10).map(|_| sends(100 * 1024)).collect();
    // An item larger than a page comes alone.
    let large = sends(2 * 1024 * 1024);
    sent.extend([large.clone(), sends(10), sends(10)]);
    for message in &sent {
        alice.awaits_status(message, "expired");
    }
    let all = tool_pages(&alice, "list_dead_letters", "dead_letters", &json!({"limit": 500}));
    assert_eq!(
        distinct(&all, |letter| letter["message"]["message_id"].to_string()),
        sent.len()
    );
    let with_large = all.iter().find(|page| {
        page.iter()
            .any(|letter| letter["message"]["message_id"] == large.as_str())
    });
    assert_eq!(with_large.unwrap().len(), 1);
}

#[test]
fn pages_of_sessions_are_bounded_in_bytes() {
    let broker = Broker::start();
    let metadata = json!({"notes": "x".repeat(15_000)});
    let agents: Vec<_> = (0..40)
        .map(|at| {
            let arguments = json!({"name": format!("agent{at}"), "metadata": metadata});
            broker.client().registered_with(&arguments)
        })
        .collect();
    let arguments = json!({"limit": 1000, "include_capabilities": true});
    let all = tool_pages(&agents[0], "list_sessions", "sessions", &arguments);
    assert_eq!(distinct(&all, |session| session["name"].to_string()), 40);
}

#[test]
fn pages_of_protocols_are_bounded_in_bytes() {
    let broker = Broker::start();
    let agent = broker.agent("alice");
    for at in 0..45 {
        let arguments = json!({
            "name": format!("protocol{at}"), "version": "1.0.0",
            "schema": {"type": "object", "description": "x".repeat(30_000)},
            "metadata": {"description": "x".repeat(15_000)},
        });
        agent.calls("register_protocol", arguments);
    }
    let name = |protocol: &Value| protocol["name"].to_string();
    let arguments = json!({"limit": 1000, "include_schema": true});
    let all = tool_pages(&agent, "discover_protocols", "protocols", &arguments);
    // Includes the protocol that all brokers of the tests have.
    assert_eq!(distinct(&all, name), 46);
    let all = pages("protocols", |cursor| {
        let cursor = cursor.map_or_else(String::new, |cursor| format!("?cursor={}", cursor.as_str().unwrap()));
        let uri = format!("broker://protocols{cursor}");
        let read = agent.request("resources/read", json!({"uri": uri})).unwrap();
        serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap()
    });
    assert_eq!(distinct(&all, name), 46);
    assert_eq!(
        agent.error_of("resources/read", json!({"uri": "broker://protocols?cursor=x"})),
        -32002
    );
}

#[test]
fn pages_of_projects_and_permissions_are_bounded_in_bytes() {
    let broker = Broker::secured();
    let tags: Vec<_> = (0..32).map(|at| format!("{at}{}", "\u{1f600}".repeat(60))).collect();
    for at in 0..45 {
        let body = json!({
            "project_id": format!("project{at}"), "name": "x", "tags": tags, "description": "\u{1f600}".repeat(1024),
        });
        let response = broker.rest(ADMIN_KEY, "POST", "/api/v1/projects", &body);
        assert_eq!(response.status, 201, "{response:?}");
    }
    let all = pages("projects", |cursor| {
        let cursor = cursor.map_or_else(String::new, |cursor| format!("?cursor={}", cursor.as_str().unwrap()));
        broker
            .rest(ADMIN_KEY, "GET", &format!("/api/v1/projects{cursor}"), &Value::Null)
            .json()
    });
    let ids = distinct(&all, |project| project["project_id"].to_string());
    let admin = Agent::legacy(broker.wire(), "2025-11-25", &json!({}));
    assert_eq!(
        distinct(
            &tool_pages(&admin, "list_projects", "projects", &json!({})),
            |project| project["project_id"].to_string()
        ),
        ids
    );

    let team = broker.project("team", &json!({}));
    let protocols: Vec<_> = (0..1000).map(|at| format!("p{at:0>60}x")).collect();
    // More than a page, and within the bounds of a project.
    for at in 0..7 {
        team.allow_sending_to(&format!("project{at}"), &json!({"allowed_protocols": protocols}));
    }
    let all = pages("grants", |cursor| {
        let cursor = cursor.map_or_else(String::new, |cursor| format!("?cursor={}", cursor.as_str().unwrap()));
        team.rest("GET", &format!("grants{cursor}"), &Value::Null).json()
    });
    assert_eq!(distinct(&all, |grant| grant["target_project_id"].to_string()), 7);
    let info = team.client().calls("get_project_info", json!({}));
    assert!(info.to_string().len() <= PAGE_BYTES_MAX);
    assert_eq!(info["more_permissions"], true);
}
