//! Projects and their keys: created, shown, changed and deleted, by tools and by REST.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Agent, Broker, Caller, Tenant, eventually, id_of_key, keys};

type ToolCall = Box<dyn Fn(&str, Value) -> Value>;

/// The tools on every transport, called with this key.
fn tool_callers(broker: &Broker, key: &str) -> [ToolCall; 4] {
    let headers = [("X-API-Key", key)];
    let legacy = Agent::legacy(broker.wire_with(&headers), "2025-11-25", &json!({}));
    let modern = Agent::modern(broker.wire_with(&headers), json!({}));
    let stateless = Caller::modern_with(broker.address, json!({}), &headers);
    let resumable = Caller::legacy_with(broker.address, "2025-11-25", json!({}), &headers);
    [
        Box::new(move |tool, arguments| legacy.calls(tool, arguments)),
        Box::new(move |tool, arguments| modern.calls(tool, arguments)),
        Box::new(move |tool, arguments| stateless.calls(tool, arguments)),
        Box::new(move |tool, arguments| resumable.calls(tool, arguments)),
    ]
}

fn operator(broker: &Broker) -> Agent {
    broker.visitor()
}

fn get(broker: &Broker, key: &str, path: &str) -> (u16, Value) {
    let response = broker.rest(key, "GET", path, &Value::Null);
    (response.status, response.json())
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

/// Whether a key is accepted.
fn is_accepted(broker: &Broker, key: &str) -> bool {
    match get(broker, key, "/api/v1/projects").0 {
        200 => true,
        401 => false,
        other => panic!("{other}"),
    }
}

/// The listed record of the key with this id.
fn listed_key(team: &Tenant<'_>, id: &str) -> Value {
    let listed = team.rest("GET", "keys", &Value::Null).json();
    let mut keys = listed["keys"].as_array().unwrap().iter();
    let found = keys.find(|key| key["key_id"] == id);
    found.cloned().unwrap_or_else(|| panic!("{id}: {listed}"))
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
fn a_grant_warns_of_what_still_prevents_messages() {
    let broker = Broker::secured();
    let [closed, open, hidden] = [("closed", false), ("open", true), ("hidden", false)]
        .map(|(id, is_open)| broker.project(id, &json!({"allow_cross_project": is_open})));
    let warned = |team: &Tenant, key: &str, target: &str| -> Vec<bool> {
        let path = format!("/api/v1/projects/{}/grants/{target}", team.id);
        let answer = broker.rest(key, "PUT", &path, &json!({})).json();
        let warnings: Vec<_> = answer["warnings"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"))
            .iter()
            .collect();
        let speaks_of = |whom: &str| {
            warnings
                .iter()
                .any(|warning| warning.as_str().unwrap().starts_with(whom))
        };
        assert_eq!(
            warnings.len(),
            usize::from(speaks_of("this project")) + usize::from(speaks_of("the other"))
        );
        vec![speaks_of("this project"), speaks_of("the other")]
    };
    // The operator is told of both sides.
    assert_eq!(warned(&open, ADMIN_KEY, "closed"), [false, true]);
    assert_eq!(warned(&closed, ADMIN_KEY, "open"), [true, false]);
    assert_eq!(warned(&closed, ADMIN_KEY, "hidden"), [true, true]);
    // Others are told of the other side only what sending would reveal, the same as for a project that does not exist.
    assert_eq!(warned(&closed, &closed.key, "open"), [true, false]);
    assert_eq!(warned(&closed, &closed.key, "none"), [true, false]);
    let answers = ["hidden", "nowhere"].map(|target| {
        let answer = open.rest("PUT", &format!("grants/{target}"), &json!({})).json();
        assert_eq!(answer["permission"]["target_project_id"], target);
        answer["warnings"].clone()
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].as_array().unwrap().len(), 1);
    hidden.is_changed(&json!({"config": {"allow_cross_project": true}}));
    assert_eq!(warned(&open, &open.key, "hidden"), [false, false]);
    // A caller that may list all projects is told that it does not exist.
    let missing = broker.rest(ADMIN_KEY, "PUT", "/api/v1/projects/open/grants/none", &json!({}));
    assert_eq!(missing.problem(), (404, "project_not_found".to_owned()));
    assert!(missing.body.contains("none"), "{missing:?}");
    // The tool returns the same.
    let agent = open.visitor();
    let granted = agent.calls("grant_project_access", json!({"target_project_id": "closed"}));
    assert_eq!(granted["warnings"].as_array().unwrap().len(), 1, "{granted}");
}

#[test]
fn every_transport_shows_and_grants_the_same() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let (_, listed) = get(&broker, &team.key, "/api/v1/projects");
    for way in tool_callers(&broker, &team.key) {
        assert_eq!(way("list_projects", json!({})), listed);
        let grant = json!({"target_project_id": "other", "allowed_protocols": ["note"], "message_rate_limit": 5});
        let granted = way("grant_project_access", grant);
        let grants = team.rest("GET", "grants", &Value::Null).json();
        assert_eq!(grants, json!({"grants": [granted["permission"]]}));
        let shown = team.rest("GET", "", &Value::Null).json();
        assert_eq!(keys(&shown), ["counts", "permissions", "project"]);
        assert_eq!(shown["permissions"], grants["grants"]);
        assert_eq!(way("get_project_info", json!({})), shown);
        assert_eq!(way("get_project_info", json!({"project_id": "team"})), shown);
        for revoked in [true, false] {
            let done = way("revoke_project_access", json!({"target_project_id": "other"}));
            assert_eq!(done, json!({"revoked": revoked}));
        }
    }
    let put = team.rest("PUT", "grants/other", &json!({})).json();
    assert_eq!(put["permission"]["allowed_protocols"], json!([]));
    for revoked in [true, false] {
        let done = team.rest("DELETE", "grants/other", &Value::Null).json();
        assert_eq!(done, json!({"revoked": revoked}));
    }
}

#[test]
fn every_transport_rotates_keys_the_same() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let spare = team.new_key(&json!({"label": "spare"}));
    let mut spare = id_of_key(&spare).to_owned();
    for way in tool_callers(&broker, &team.key) {
        let done = way("rotate_project_keys", json!({"key_id": spare}));
        assert_eq!(keys(&done), ["api_keys", "revoked"]);
        assert_eq!(done["revoked"][0]["key_id"], spare.as_str());
        assert_eq!(listed_key(&team, &spare)["status"], "revoked");
        done["api_keys"][0]["key_id"].as_str().unwrap().clone_into(&mut spare);
        let new = listed_key(&team, &spare);
        assert_eq!((&new["status"], &new["label"]), (&json!("active"), &json!("spare")));
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
    found.is_changed(&json!({"tags": ["a", "b"]}));
    hidden.is_changed(&json!({"tags": ["a"]}));
    assert_eq!(visible_projects(&broker, &own.key, ""), ["found", "own"]);
    assert_eq!(visible_projects(&broker, &own.key_of("observer"), ""), ["found", "own"]);
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
    found.is_deleted();
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
    let (visitor, stateless) = (own.visitor(), own.stateless_as(&own.key));
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
fn the_sessions_of_a_project_are_limited() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let caller = team.stateless_as(&team.key).registered("one");
    team.is_changed(&json!({"config": {"max_sessions": 2}}));
    team.stateless_as(&team.key).registered("two");
    let third = team.stateless_as(&team.key);
    third.is_refused_as("forbidden", "register_session", json!({"name": "three"}));
    // A registered session is not affected.
    caller.calls("register_session", json!({"name": "one"}));
    // An absent limit stays as it was, null removes it.
    team.is_changed(&json!({"config": {"discoverable": true}}));
    third.is_refused_as("forbidden", "register_session", json!({"name": "three"}));
    let project = team.is_changed(&json!({"config": {"max_sessions": null}}));
    assert_eq!(project["config"]["max_sessions"], Value::Null);
    third.registered("three");
}

#[test]
fn the_protocols_of_a_project_are_limited() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({"max_protocols": 2}));
    let visitor = team.visitor();
    let protocol = |version: &str| json!({"name": "talk", "version": version, "schema": {}});
    visitor.calls("register_protocol", protocol("1.0.0"));
    visitor.is_refused_as("forbidden", "register_protocol", protocol("1.1.0"));
    team.is_changed(&json!({"config": {"max_protocols": 3}}));
    visitor.calls("register_protocol", protocol("1.1.0"));
    visitor.is_refused_as("forbidden", "register_protocol", protocol("1.2.0"));
    let known = visitor.calls("register_protocol", protocol("1.1.0"));
    assert_eq!(known["existed"], true, "a registered protocol needs no room");
}

#[test]
fn the_queue_capacity_of_a_project_is_enforced() {
    let broker = Broker::secured_with(&["--queue-capacity=3"]);
    let team = broker.project("team", &json!({}));
    let (alice, bob) = (team.agent("alice"), team.agent("bob"));
    let is_full_after = |len: usize| {
        for at in 0..len {
            alice.sends(&at.to_string()).to(&bob);
        }
        let error = alice.sends("too many").fails_as("queue_full", &bob);
        assert_eq!(error["detail"]["limit"], len);
        while !bob.reads(json!({"acknowledge": "immediate"})).is_empty() {}
    };
    is_full_after(3);
    team.is_changed(&json!({"config": {"queue_capacity": 1}}));
    is_full_after(1);
    team.is_changed(&json!({"config": {"max_sessions": 5}}));
    is_full_after(1);
    team.is_changed(&json!({"config": {"queue_capacity": null}}));
    is_full_after(3);
}

#[test]
fn an_admin_cannot_change_the_limits_of_its_project() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({"max_sessions": 5}));
    let before = team.rest("GET", "", &Value::Null).json()["project"].take();
    for config in [
        json!({"max_sessions": 6}),
        json!({"max_sessions": null}),
        json!({"max_sessions": 1}),
        json!({"max_protocols": 5}),
        json!({"queue_capacity": null}),
        json!({"rate_limit": 0}),
        json!({"discoverable": true, "rate_limit": 9}),
    ] {
        let response = team.rest("PATCH", "", &json!({"name": "changed", "config": config}));
        assert_eq!(
            (response.status, &response.json()["code"]),
            (403, &json!("forbidden")),
            "{config}"
        );
    }
    assert_eq!(team.rest("GET", "", &Value::Null).json()["project"], before);
    let wanted = json!({
        "name": "changed", "description": "new", "tags": ["x"],
        "config": {"allow_cross_project": true, "discoverable": true},
    });
    let changed = team.rest("PATCH", "", &wanted).json()["project"].take();
    for (name, value) in wanted.as_object().unwrap().iter().filter(|(name, _)| *name != "config") {
        assert_eq!(changed[name], *value);
    }
    assert_eq!(
        (&changed["config"]["discoverable"], &changed["config"]["max_sessions"]),
        (&json!(true), &json!(5))
    );
    // Null removes the description, and an absent field stays as it was.
    let bare = team.rest("PATCH", "", &json!({"description": null})).json();
    assert_eq!(
        (&bare["project"]["description"], &bare["project"]["name"]),
        (&Value::Null, &json!("changed"))
    );
    // Other scopes may change nothing.
    for scope in ["member", "observer"] {
        let key = team.key_of(scope);
        let response = broker.rest(&key, "PATCH", "/api/v1/projects/team", &json!({"name": "mine"}));
        assert_eq!(response.status, 403, "{scope}");
    }
}

#[test]
fn a_deleted_project_is_gone_permanently() {
    let broker = Broker::secured_with(&crate::support::TIMELESS);
    let (team, other) = (
        broker.project("team", &json!({"discoverable": true})),
        broker.project("other", &json!({})),
    );
    let member = team.key_of("member");
    let (alice, bystander) = (team.agent_as(&member, "alice"), other.agent("bystander"));
    let (visitor, guest) = (team.visitor(), {
        let headers = [("X-API-Key", ADMIN_KEY), ("X-Project-ID", "team")];
        Agent::legacy(broker.wire_with(&headers), "2025-11-25", &json!({}))
    });
    for (method, body) in [("PATCH", json!({"name": "x"})), ("DELETE", Value::Null)] {
        // Other projects may not touch it, and it may not delete itself.
        let response = broker.rest(&other.key, method, "/api/v1/projects/team", &body);
        assert_eq!(response.status, 404, "{method}");
    }
    assert_eq!(team.rest("DELETE", "", &Value::Null).status, 403);
    team.is_deleted();
    for agent in [&alice, &visitor, &guest] {
        agent.wire.is_closed_with(4004);
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
fn a_key_is_shown_once_and_listed_with_its_label() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let response = team.rest(
        "POST",
        "keys",
        &json!({"label": "for the robots", "expires_in_seconds": 3600}),
    );
    assert_eq!(response.status, 201, "{response:?}");
    let made = response.json();
    assert_eq!(keys(&made), ["api_key", "key"]);
    let key = made["api_key"].as_str().unwrap();
    let id = made["key"]["key_id"].as_str().unwrap();
    assert_eq!((id_of_key(key), key.split('_').count()), (id, 3));
    assert!(key.starts_with("team_") && key.rsplit('_').next().unwrap().len() >= 32);
    let listed = listed_key(&team, id);
    assert_eq!(listed, made["key"]);
    assert_eq!(
        (&listed["label"], &listed["scope"], &listed["status"]),
        (&json!("for the robots"), &json!("member"), &json!("active"))
    );
    assert!(listed["expires_at"].as_str().unwrap() > listed["created_at"].as_str().unwrap());
    assert_eq!(listed["last_used_at"], Value::Null);
    let secret = key.rsplit('_').next().unwrap();
    for path in [
        "/api/v1/projects/team/keys",
        "/api/v1/projects/team",
        "/api/v1/projects",
    ] {
        let shown = broker.rest(&team.key, "GET", path, &Value::Null);
        assert!(!shown.body.contains(secret), "{shown:?}");
    }
    // The time of its last use is shown with a low resolution.
    team.visitor_as(key);
    let used = listed_key(&team, id)["last_used_at"].clone();
    let (used, made) = (
        used.as_str().unwrap().to_owned(),
        listed["created_at"].as_str().unwrap(),
    );
    assert_eq!(&used[..11], &made[..11], "{used}");
    for wanted in [
        json!({"label": ""}),
        json!({"label": "a\u{1b}b"}),
        json!({"scope": "operator"}),
        json!({"scope": ""}),
        json!({"expires_in_seconds": 0}),
        json!({"expires_in_seconds": 1_000_000_000_000_u64}),
        json!({"key_id": "mine"}),
    ] {
        assert_eq!(team.rest("POST", "keys", &wanted).status, 400, "{wanted}");
    }
}

#[test]
fn a_revoked_key_is_refused() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let key = team.key_of("member");
    assert!(is_accepted(&broker, &key));
    let path = format!("keys/{}", id_of_key(&key));
    let first = team.rest("DELETE", &path, &Value::Null).json();
    assert_eq!(keys(&first), ["revoked"]);
    assert!(!is_accepted(&broker, &key) && is_accepted(&broker, &team.key));
    // A second revocation changes nothing, not even its time.
    assert_eq!(team.rest("DELETE", &path, &Value::Null).json(), first);
    let listed = listed_key(&team, id_of_key(&key));
    assert_eq!(
        (&listed["status"], &listed["expires_at"]),
        (&json!("revoked"), &first["revoked"][0]["at"])
    );
    for unknown in ["kunknown", "NO"] {
        assert_eq!(
            team.rest("DELETE", &format!("keys/{unknown}"), &Value::Null).status,
            404
        );
    }
}

#[test]
fn a_key_is_rotated_at_once_or_with_a_grace_period() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let old = team.new_key(&json!({"scope": "observer", "label": "eyes"}));
    let new = team.rotates(&old, 3600);
    assert!(is_accepted(&broker, &old) && is_accepted(&broker, &new));
    let (was, is) = (listed_key(&team, id_of_key(&old)), listed_key(&team, id_of_key(&new)));
    assert_eq!((&was["status"], &is["status"]), (&json!("retiring"), &json!("active")));
    assert!(was["expires_at"].is_string() && is["expires_at"].is_null());
    assert_eq!((&is["scope"], &is["label"]), (&json!("observer"), &json!("eyes")));
    // A key that is being rotated cannot be rotated again.
    let again = json!({"key_id": id_of_key(&old)});
    assert_eq!(team.rest("POST", "keys/rotate", &again).status, 400);
    // A revocation ends the grace period.
    team.revokes(&old);
    assert!(!is_accepted(&broker, &old) && is_accepted(&broker, &new));
    let newest = team.rotates(&new, 0);
    assert!(!is_accepted(&broker, &new) && is_accepted(&broker, &newest));
    // All of them, including the key that is used for it.
    let all = team.rest("POST", "keys/rotate", &json!({})).json();
    assert_eq!(all["api_keys"].as_array().unwrap().len(), 2, "{all}");
    assert!(!is_accepted(&broker, &team.key) && !is_accepted(&broker, &newest));
    for new in all["api_keys"].as_array().unwrap() {
        assert!(is_accepted(&broker, new["api_key"].as_str().unwrap()));
    }
    let too_long = json!({"grace_period_seconds": 365 * 24 * 3600});
    let response = broker.rest(ADMIN_KEY, "POST", "/api/v1/projects/team/keys/rotate", &too_long);
    assert_eq!(response.status, 400);
}

#[test]
fn a_grace_period_does_not_outlast_the_key() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let key = team.new_key(&json!({"expires_in_seconds": 100}));
    let before = listed_key(&team, id_of_key(&key))["expires_at"].clone();
    let rotate = json!({"key_id": id_of_key(&key), "grace_period_seconds": 1000});
    let done = team.rest("POST", "keys/rotate", &rotate).json();
    assert_eq!(done["revoked"], json!([{"key_id": id_of_key(&key), "at": before}]));
    assert_eq!(listed_key(&team, id_of_key(&key))["expires_at"], before);
    // The new key gets the lifetime that the old one had.
    let new = listed_key(&team, done["api_keys"][0]["key_id"].as_str().unwrap());
    assert!(new["expires_at"].as_str() >= before.as_str(), "{new}");
}

#[test]
fn grace_periods_and_lifetimes_end() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let brief = team.new_key(&json!({"expires_in_seconds": 1}));
    let old = team.key_of("member");
    team.rotates(&old, 1);
    for (key, status) in [(brief, "expired"), (old, "revoked")] {
        eventually("the key is refused", || (!is_accepted(&broker, &key)).then_some(()));
        assert_eq!(listed_key(&team, id_of_key(&key))["status"], status);
    }
}

#[test]
fn two_brokers_create_different_keys() {
    let (one, two) = (Broker::secured(), Broker::secured());
    let (here, there) = (one.project("team", &json!({})), two.project("team", &json!({})));
    assert_ne!(here.key, there.key);
    assert!(!is_accepted(&one, &there.key) && !is_accepted(&two, &here.key));
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
fn a_rotated_key_keeps_the_sessions_of_the_old_one() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let (old, other) = (team.key_of("member"), team.key_of("member"));
    let (alice, bob) = (team.agent("alice"), team.agent_as(&old, "bob"));
    let caller = team.stateless_as(&old).registered("carol");
    alice.sends("waits").to(&bob);
    alice.sends("too").to("carol");
    let new = team.rotates(&old, 0);
    // Meanwhile no other key can take the name.
    for key in [&other, &team.key] {
        team.visitor_as(key)
            .is_refused_as("forbidden", "register_session", json!({"name": "bob"}));
    }
    let again = team.agent_as(&new, "bob");
    assert_eq!(again.session, bob.session);
    again.sees(["waits"]);
    let session = caller.session.unwrap();
    let arguments = json!({"session_id": session});
    let read = team.stateless_as(&new).calls("receive_messages", arguments.clone());
    assert_eq!(read["messages"][0]["payload"]["text"], "too");
    team.stateless_as(&other)
        .is_refused_as("session_not_found", "receive_messages", arguments);
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
    let key = team.key_of("member");
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

#[test]
fn the_permissions_of_a_project_are_bounded_in_bytes() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let protocols: Vec<_> = (0..1000).map(|at| format!("p{at:0>60}x")).collect();
    let puts = |at: usize, protocols: &[String]| {
        let body = json!({"allowed_protocols": protocols});
        team.rest("PUT", &format!("grants/other{at}"), &body)
    };
    let refused = (0..100)
        .map(|at| puts(at, &protocols))
        .find(|answer| answer.status != 200);
    let refused = refused.expect("a refusal");
    assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
    assert!(refused.body.contains("revoke a permission"), "{refused:?}");
    // The tool is refused too.
    let agent = team.visitor();
    let arguments = json!({"target_project_id": "one-more", "allowed_protocols": protocols});
    agent.is_refused_as("forbidden", "grant_project_access", arguments);
    // A permission may shrink, and that makes room.
    assert_eq!(puts(0, &protocols[..1]).status, 200);
    assert_eq!(puts(99, &protocols).status, 200);
    assert_eq!(team.rest("DELETE", "grants/other99", &Value::Null).status, 200);
    assert_eq!(puts(98, &protocols).status, 200);
}
