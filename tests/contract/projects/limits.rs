//! The limits of a project: sessions, protocols, queue capacity, and which caller may change them.

use serde_json::{Value, json};

use crate::support::Broker;

#[test]
fn the_sessions_of_a_project_are_limited() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let caller = team.http_modern_as(&team.key).registered("one");
    team.update(&json!({"config": {"max_sessions": 2}}));
    team.http_modern_as(&team.key).registered("two");
    let third = team.http_modern_as(&team.key);
    third.is_refused_as("forbidden", "register_session", json!({"name": "three"}));
    // A registered session is not affected.
    caller.calls("register_session", json!({"name": "one"}));
    // An absent limit stays as it was, null removes it.
    team.update(&json!({"config": {"discoverable": true}}));
    third.is_refused_as("forbidden", "register_session", json!({"name": "three"}));
    let project = team.update(&json!({"config": {"max_sessions": null}}));
    assert_eq!(project["config"]["max_sessions"], Value::Null);
    third.registered("three");
}

#[test]
fn the_protocols_of_a_project_are_limited() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({"max_protocols": 2}));
    let visitor = team.client();
    let protocol = |version: &str| json!({"name": "talk", "version": version, "schema": {}});
    visitor.calls("register_protocol", protocol("1.0.0"));
    visitor.is_refused_as("forbidden", "register_protocol", protocol("1.1.0"));
    team.update(&json!({"config": {"max_protocols": 3}}));
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
    team.update(&json!({"config": {"queue_capacity": 1}}));
    is_full_after(1);
    team.update(&json!({"config": {"max_sessions": 5}}));
    is_full_after(1);
    team.update(&json!({"config": {"queue_capacity": null}}));
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
        let key = team.new_key_with_scope(scope);
        let response = broker.rest(&key, "PATCH", "/api/v1/projects/team", &json!({"name": "mine"}));
        assert_eq!(response.status, 403, "{scope}");
    }
}
