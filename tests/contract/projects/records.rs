//! The records of projects: created, shown, changed and deleted, by tools and by REST.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::{get, is_accepted, tool_callers};
use crate::support::{ADMIN_KEY, Agent, Broker, id_of_key, keys};

fn operator(broker: &Broker) -> Agent {
    broker.client()
}

/// The ids of the projects that a key sees.
fn visible_projects(broker: &Broker, key: &str, query: &str) -> Vec<String> {
    let (status, listed) = get(broker, key, &format!("/api/v1/projects{query}"));
    assert_eq!(status, 200, "{listed}");
    ids(&listed)
}

fn ids(listed: &Value) -> Vec<String> {
    let projects = listed["projects"].as_array().unwrap().iter();
    projects
        .map(|project| project["project_id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_agents_of_a_new_project_exchange_messages() {
    let broker = Broker::secured();
    let team = broker.project("team-a", &json!({}));
    let (alice, bob) = (team.agent("alice"), team.agent("bob"));
    alice.sends("hello").to(&bob);
    bob.sees(["hello"]);
    let shown = team.rest("GET", "", &Value::Null).json();
    assert_eq!(shown["counts"]["sessions"], 2);
    let all = broker.rest(ADMIN_KEY, "GET", "/api/v1/projects", &Value::Null).json();
    assert_eq!(all["projects"].as_array().unwrap().len(), 2);
}

#[test]
fn every_transport_creates_the_same_project() {
    let broker = Broker::secured();
    let config = json!({
        "allow_cross_project": true, "discoverable": false, "max_sessions": 7, "max_protocols": null,
        "queue_capacity": 9, "rate_limit": 0,
    });
    let wanted = |id: &str| {
        json!({
            "project_id": id, "name": "A team", "description": "of testers", "tags": ["b", "a"], "config": config,
        })
    };
    let response = broker.rest(ADMIN_KEY, "POST", "/api/v1/projects", &wanted("by-rest"));
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.header("location"), Some("/api/v1/projects/by-rest"));
    let mut made = vec![response.json()];
    for (at, way) in tool_callers(&broker, ADMIN_KEY).iter().enumerate() {
        made.push(way("create_project", wanted(&format!("by-tool{at}"))));
    }
    for created in made {
        assert_eq!(keys(&created), ["api_keys", "project"]);
        let project = &created["project"];
        let id = project["project_id"].as_str().unwrap();
        assert_eq!(
            (&project["name"], &project["description"], &project["tags"]),
            (&json!("A team"), &json!("of testers"), &json!(["a", "b"]))
        );
        assert_eq!((&project["active"], &project["config"]), (&json!(true), &config));
        let new = &created["api_keys"];
        assert_eq!(new.as_array().unwrap().len(), 1);
        assert_eq!(keys(&new[0]), ["api_key", "key_id"]);
        let key = new[0]["api_key"].as_str().unwrap();
        assert!(key.starts_with(&format!("{id}_{}_", new[0]["key_id"].as_str().unwrap())));
        let (status, shown) = get(&broker, key, &format!("/api/v1/projects/{id}"));
        assert_eq!((status, &shown["project"]), (200, project));
    }
}

#[test]
fn an_invalid_project_id_is_refused() {
    let broker = Broker::secured();
    let operator = operator(&broker);
    let long = "a".repeat(64);
    let make = |id: &str| {
        let body = json!({"project_id": id, "name": "x"});
        let response = broker.rest(ADMIN_KEY, "POST", "/api/v1/projects", &body);
        (response.status, response.json()["code"].clone())
    };
    for id in [
        "system", "admin", "root", "", "A", "a_b", "-a", "a-", "a.b", "a b", "\u{e9}", "a/b", &long,
    ] {
        assert_eq!(make(id), (400, json!("invalid_argument")), "{id}");
        let arguments = json!({"project_id": id, "name": "x"});
        let error = operator.is_refused_as("invalid_argument", "create_project", arguments);
        assert_eq!(error["detail"]["argument"], "project_id");
    }
    for id in ["0", "a", "a--b", &long[1..]] {
        assert_eq!(make(id).0, 201, "{id}");
    }
    for id in ["a", "default"] {
        assert_eq!(make(id), (409, json!("project_exists")), "{id}");
        let arguments = json!({"project_id": id, "name": "x"});
        let error = operator.is_refused_as("project_exists", "create_project", arguments);
        assert_eq!(error["detail"]["project_id"], id);
    }
}

#[test]
fn an_invalid_project_is_refused_and_not_created() {
    let broker = Broker::secured();
    for body in [
        json!({"project_id": "a"}),
        json!({"project_id": "a", "name": ""}),
        json!({"project_id": "a", "name": "x\n"}),
        json!({"project_id": "a", "name": "x", "tags": ["\u{7}"]}),
        json!({"project_id": "a", "name": "x", "tags": "a"}),
        json!({"project_id": "a", "name": "x", "secret": true}),
        json!({"project_id": "a", "name": "x", "config": {"max_sessions": 0}}),
        json!({"project_id": "a", "name": "x", "config": {"max_sessions": -1}}),
        json!({"project_id": "a", "name": "x", "config": {"queue_capacity": 1.5}}),
        json!({"project_id": "a", "name": "x", "config": {"rate_limit": null}}),
        json!({"project_id": "a", "name": "x", "config": {"unheard_of": 1}}),
        json!([]),
    ] {
        let response = broker.rest(ADMIN_KEY, "POST", "/api/v1/projects", &body);
        assert_eq!(
            (response.status, &response.json()["code"]),
            (400, &json!("invalid_argument")),
            "{body}"
        );
        if body.is_object() {
            operator(&broker).is_refused_as("invalid_argument", "create_project", body);
        }
    }
    assert_eq!(
        visible_projects(&broker, ADMIN_KEY, "?include_inactive=true"),
        ["default"]
    );
}

#[test]
fn a_key_lists_its_own_project_and_discoverable_ones() {
    let broker = Broker::secured();
    let own = broker.project("own", &json!({}));
    let found = broker.project("found", &json!({"discoverable": true, "max_sessions": 3}));
    let hidden = broker.project("hidden", &json!({}));
    found.update(&json!({"tags": ["a", "b"]}));
    hidden.update(&json!({"tags": ["a"]}));
    assert_eq!(visible_projects(&broker, &own.key, ""), ["found", "own"]);
    assert_eq!(
        visible_projects(&broker, &own.new_key_with_scope("observer"), ""),
        ["found", "own"]
    );
    assert_eq!(
        visible_projects(&broker, ADMIN_KEY, ""),
        ["default", "found", "hidden", "own"]
    );
    for (tags, there) in [
        ("a", &["found", "hidden"][..]),
        ("b,a", &["found"]),
        ("c", &[]),
        ("", &["default", "found", "hidden", "own"]),
    ] {
        assert_eq!(
            visible_projects(&broker, ADMIN_KEY, &format!("?tags={tags}")),
            there,
            "{tags}"
        );
        let words: Vec<_> = tags.split(',').filter(|tag| !tag.is_empty()).collect();
        let listed = operator(&broker).calls("list_projects", json!({"tags": words}));
        assert_eq!(ids(&listed), there);
    }
    // A discoverable project shows only its name and configuration.
    let (_, listed) = get(&broker, &own.key, "/api/v1/projects?tags=a");
    let outside = json!({"allow_cross_project": false, "discoverable": true});
    assert_eq!(listed["projects"][0]["config"], outside);
    // A deleted project is seen by the operator alone, and only on request.
    found.delete();
    assert_eq!(visible_projects(&broker, &own.key, "?include_inactive=true"), ["own"]);
    assert_eq!(visible_projects(&broker, ADMIN_KEY, ""), ["default", "hidden", "own"]);
    assert_eq!(
        visible_projects(&broker, ADMIN_KEY, "?include_inactive=true"),
        ["default", "found", "hidden", "own"]
    );
}

#[test]
fn a_discoverable_project_shows_its_public_part_only() {
    let broker = Broker::secured();
    let own = broker.project("own", &json!({}));
    broker.project("found", &json!({"discoverable": true}));
    broker.project("hidden", &json!({}));
    let (visitor, stateless) = (own.client(), own.http_modern_as(&own.key));
    let shown = visitor.calls("get_project_info", json!({"project_id": "found"}));
    assert_eq!(keys(&shown), ["project"]);
    assert_eq!(
        shown["project"]["config"],
        json!({"allow_cross_project": false, "discoverable": true})
    );
    let arguments = json!({"project_id": "found"});
    assert_eq!(stateless.calls("get_project_info", arguments), shown);
    assert_eq!(get(&broker, &own.key, "/api/v1/projects/found"), (200, shown));
    let mut refusals = HashSet::new();
    for id in ["hidden", "nowhere", "system", "default"] {
        let error = visitor.is_refused_as("project_not_found", "get_project_info", json!({"project_id": id}));
        let (status, problem) = get(&broker, &own.key, &format!("/api/v1/projects/{id}"));
        refusals.insert((error.to_string(), status, problem.to_string()));
    }
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert_eq!(get(&broker, &own.key, "/api/v1/projects/NOT%20AN%20ID").0, 404);
}

#[test]
fn a_deleted_project_is_gone_permanently() {
    let broker = Broker::secured_with(&crate::support::TIMEOUTS_OFF);
    let (team, other) = (
        broker.project("team", &json!({"discoverable": true})),
        broker.project("other", &json!({})),
    );
    let member = team.new_key_with_scope("member");
    let (alice, bystander) = (team.agent_as(&member, "alice"), other.agent("bystander"));
    let (visitor, guest) = (team.client(), {
        let headers = [("X-API-Key", ADMIN_KEY), ("X-Project-ID", "team")];
        Agent::legacy(broker.wire_with(&headers), "2025-11-25", &json!({}))
    });
    for (method, body) in [("PATCH", json!({"name": "x"})), ("DELETE", Value::Null)] {
        // Other projects may not touch it, and it may not delete itself.
        let response = broker.rest(&other.key, method, "/api/v1/projects/team", &body);
        assert_eq!(response.status, 404, "{method}");
    }
    assert_eq!(team.rest("DELETE", "", &Value::Null).status, 403);
    team.delete();
    for agent in [&alice, &visitor, &guest] {
        agent.wire.closes_with(4004);
    }
    for key in [&team.key, &member] {
        assert!(!is_accepted(&broker, key));
    }
    let named = [("X-API-Key", ADMIN_KEY), ("X-Project-ID", "team")];
    let response = broker.rest_with(&named, "GET", "/api/v1/projects", &Value::Null);
    assert_eq!(
        (response.status, &response.json()["code"]),
        (404, &json!("project_not_found"))
    );
    for (method, path) in [
        ("DELETE", ""),
        ("PATCH", ""),
        ("GET", "/keys"),
        ("POST", "/keys"),
        ("POST", "/keys/rotate"),
        ("GET", "/grants"),
        ("PUT", "/grants/other"),
    ] {
        let body = if method == "GET" { Value::Null } else { json!({}) };
        let response = broker.rest(ADMIN_KEY, method, &format!("/api/v1/projects/team{path}"), &body);
        assert_eq!(response.status, 404, "{method} {path}");
    }
    // Its id cannot be used again.
    let again = json!({"project_id": "team", "name": "another"});
    assert_eq!(broker.rest(ADMIN_KEY, "POST", "/api/v1/projects", &again).status, 409);
    let (status, shown) = get(&broker, ADMIN_KEY, "/api/v1/projects/team");
    assert_eq!((status, &shown["project"]["active"]), (200, &json!(false)), "{shown}");
    assert!(bystander.wire.is_open());
    bystander.calls("heartbeat", json!({}));
}

#[test]
fn the_default_project_cannot_be_deleted() {
    let broker = Broker::secured();
    let response = broker.rest(ADMIN_KEY, "DELETE", "/api/v1/projects/default", &Value::Null);
    assert_eq!((response.status, &response.json()["code"]), (403, &json!("forbidden")));
    broker.agent("alice").calls("heartbeat", json!({}));
}

#[test]
fn the_same_names_in_two_projects_are_separate() {
    let broker = Broker::secured();
    let (here, there) = (broker.project("here", &json!({})), broker.project("there", &json!({})));
    let agents = [&here, &there].map(|team| [team.agent("alice"), team.agent("bob")]);
    let protocol = |schema: Value| json!({"name": "talk", "version": "1.0.0", "schema": schema});
    for ([alice, bob], kind) in agents.iter().zip(["string", "number"]) {
        alice.calls(
            "register_protocol",
            protocol(json!({"type": "object", "properties": {"a": {"type": kind}}})),
        );
        alice.sends(kind).with("idempotency_key", "the same").to(bob);
        assert_eq!(alice.presence_of("bob").as_deref(), Some("active"));
    }
    let [[_, bob_here], [alice_there, bob_there]] = &agents;
    assert_ne!(bob_here.session, bob_there.session);
    // A session id is unknown in the other project.
    alice_there.sends("hi").fails_as("session_not_found", &bob_here.session);
    let message = bob_here.sees(["string"])[0]["message_id"].clone();
    bob_there.sees(["number"]);
    alice_there.is_refused("get_message_status", json!({"message_id": message}));
    let acknowledged = bob_there.calls("acknowledge_messages", json!({"message_ids": [message]}));
    assert_eq!(acknowledged["unknown"], json!([message]));
    let listed = alice_there.calls("list_sessions", json!({"status": "all"}));
    let projects = listed["sessions"].as_array().unwrap();
    assert!(projects.iter().all(|session| session["project_id"] == "there"));
    let letter = json!({"recipient_id": "bob", "protocol_name": "talk", "protocol_version": "1.0.0"});
    for ([alice, _], payload) in agents.iter().zip([json!({"a": "x"}), json!({"a": 1})]) {
        let mut letter = letter.clone();
        letter["payload"] = payload;
        alice.calls("send_message", letter);
    }
}

#[test]
fn a_single_project_broker_offers_no_project_tools() {
    let broker = Broker::secured_with(&["--enable-multi-project=false"]);
    let operator = operator(&broker);
    let listed = operator.request("tools/list", json!({})).unwrap();
    let tools: Vec<_> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert!(tools.iter().all(|name| **name != "create_project"), "{tools:?}");
    let arguments = json!({"name": "create_project", "arguments": {"project_id": "a", "name": "a"}});
    assert_eq!(operator.error_of("tools/call", arguments), -32602);
    let body = json!({"project_id": "a", "name": "a"});
    assert_eq!(broker.rest(ADMIN_KEY, "POST", "/api/v1/projects", &body).status, 403);
    assert_eq!(
        visible_projects(&broker, ADMIN_KEY, "?include_inactive=true"),
        ["default"]
    );
    // Its keys can be administered.
    let made = broker.rest(ADMIN_KEY, "POST", "/api/v1/projects/default/keys", &json!({}));
    assert_eq!(made.status, 201, "{made:?}");
    let key = made.json()["api_key"].as_str().unwrap().to_owned();
    let alice = Agent::legacy(broker.wire_with(&[("X-API-Key", &key)]), "2025-11-25", &json!({})).registered("alice");
    alice.sends("hi").to("alice");
    alice.sees(["hi"]);
    let named = [("X-API-Key", ADMIN_KEY), ("X-Project-ID", "other")];
    let response = broker.rest_with(&named, "GET", "/api/v1/projects", &Value::Null);
    assert_eq!(response.status, 404);
}

/// How often each status is returned when several threads ask at once.
fn all_at_once(ask: impl Fn() -> u16 + Sync) -> BTreeMap<u16, usize> {
    let answers = std::thread::scope(|scope| {
        let asked = [(); 12].map(|()| scope.spawn(&ask));
        asked.map(|asked| asked.join().unwrap())
    });
    answers.iter().fold(BTreeMap::new(), |mut counts, &status| {
        *counts.entry(status).or_default() += 1;
        counts
    })
}

#[test]
fn one_of_many_concurrent_requests_for_the_same_succeeds() {
    let broker = Broker::secured_with(&["--workers=2"]);
    let wanted = json!({"project_id": "same", "name": "x"});
    let made = all_at_once(|| broker.rest(ADMIN_KEY, "POST", "/api/v1/projects", &wanted).status);
    assert_eq!(made, BTreeMap::from([(201, 1), (409, 11)]));
    let team = broker.project("team", &json!({}));
    let key = team.new_key_with_scope("member");
    let rotate = json!({"key_id": id_of_key(&key), "grace_period_seconds": 60});
    let rotated = all_at_once(|| team.rest("POST", "keys/rotate", &rotate).status);
    assert_eq!(rotated, BTreeMap::from([(200, 1), (400, 11)]));
    // Requests that do not exclude each other all succeed.
    let added = all_at_once(|| team.rest("POST", "keys", &json!({})).status);
    assert_eq!(added, BTreeMap::from([(201, 12)]));
    let shown = team.rest("GET", "", &Value::Null).json();
    assert_eq!(shown["counts"]["keys"], 1 + 2 + 12);
    let deleted = all_at_once(|| {
        let path = "/api/v1/projects/team";
        broker.rest(ADMIN_KEY, "DELETE", path, &Value::Null).status
    });
    assert_eq!(deleted, BTreeMap::from([(204, 1), (404, 11)]));
}
