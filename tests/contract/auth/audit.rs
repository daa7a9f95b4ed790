//! The audit log: which administrative actions and refusals it lists, to which caller, and the same events in the log.

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Broker, Tenant, eventually, id_of_key, keys};

/// A page of the audit log as this key sees it.
fn page(broker: &Broker, key: &str, query: &str) -> Value {
    let response = broker.rest(key, "GET", &format!("/api/v1/audit{query}"), &Value::Null);
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}

fn entries(broker: &Broker, key: &str, query: &str) -> Vec<Value> {
    match page(broker, key, query)["entries"].take() {
        Value::Array(entries) => entries,
        other => panic!("not a list of entries: {other}"),
    }
}

/// The newest entry of this action. It is written concurrently with the answer to the action.
fn entry(broker: &Broker, action: &str, outcome: &str) -> Value {
    let query = format!("?action={action}&outcome={outcome}&limit=1");
    eventually(&format!("{action} is logged"), || {
        entries(broker, ADMIN_KEY, &query).pop()
    })
}

/// Asserts the fields of an entry apart from its id and its time.
fn expect_entry(entry: &Value, actor: &str, project: Option<&str>, target: Option<&str>, code: Option<&str>) {
    assert_eq!(
        keys(entry),
        [
            "action", "actor", "address", "at", "code", "id", "outcome", "project", "target"
        ]
    );
    let said = ["actor", "address", "project", "target", "code"].map(|name| &entry[name]);
    assert_eq!(
        said,
        [
            &json!(actor),
            &json!("127.0.0.1"),
            &json!(project),
            &json!(target),
            &json!(code)
        ],
        "{entry}"
    );
    let at = entry["at"].as_str().unwrap();
    assert!(at.len() >= 20 && at.ends_with('Z'), "{at}");
}

fn key_name(team: &Tenant<'_>) -> String {
    format!("key:{}/{}", team.id, id_of_key(&team.key))
}

#[test]
fn every_action_is_logged() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let done = |action: &str| entry(&broker, action, "done");
    expect_entry(&done("project.create"), "admin", Some("team"), Some("team"), None);
    let name = key_name(&team);
    let ours = |action: &str, target: Option<&str>| expect_entry(&done(action), &name, Some("team"), target, None);
    team.rest("PATCH", "", &json!({"name": "A team"}));
    ours("project.change", None);
    let key = team.new_key_with_scope("observer");
    ours("key.create", Some("observer"));
    let new = team.rotate_key(&key, 60);
    ours("key.rotate", Some(id_of_key(&key)));
    team.revoke_key(&new);
    ours("key.revoke", Some(id_of_key(&new)));
    team.allow_sending_to("other", &json!({}));
    ours("grant.create", Some("other"));
    team.rest("DELETE", "grants/other", &Value::Null);
    ours("grant.revoke", Some("other"));
    // Actions of the tools are logged too.
    let visitor = team.client();
    let granted = json!({"target_project_id": "third"});
    visitor.calls("grant_project_access", granted.clone());
    eventually("the action of the tool is logged", || {
        (done("grant.create")["target"] == "third").then_some(())
    });
    visitor.calls("revoke_project_access", granted);
    eventually("the action of the tool is logged", || {
        (done("grant.revoke")["target"] == "third").then_some(())
    });
    broker
        .client()
        .calls("create_project", json!({"project_id": "by-tool", "name": "x"}));
    eventually("the action of the tool is logged", || {
        (done("project.create")["target"] == "by-tool").then_some(())
    });
    team.delete();
    expect_entry(&done("project.delete"), "admin", Some("team"), Some("team"), None);
}

#[test]
fn every_refusal_is_logged() {
    let broker = Broker::secured();
    let open = json!({"allow_cross_project": true});
    let (team, other) = (broker.project("team", &open), broker.project("other", &json!({})));
    let refused = |action: &str| entry(&broker, action, "refused");
    let member = team.new_key_with_scope("member");
    let name = format!("key:team/{}", id_of_key(&member));
    let path = "/api/v1/projects/team/keys";
    assert_eq!(broker.rest(&member, "POST", path, &json!({})).status, 403);
    expect_entry(
        &refused("key.create"),
        &name,
        Some("team"),
        Some("member"),
        Some("forbidden"),
    );
    // Another project, a limit that only the operator may lift, an id that is in use.
    let stranger = key_name(&other);
    assert_eq!(broker.rest(&other.key, "GET", path, &Value::Null).status, 404);
    let entry = refused("key.list");
    expect_entry(
        &entry,
        &stranger,
        Some("other"),
        Some("team"),
        Some("project_not_found"),
    );
    assert!(
        entries(&broker, &team.key, "?action=key.list").is_empty(),
        "the caller that tried is not told"
    );
    assert_eq!(
        team.rest("PATCH", "", &json!({"config": {"rate_limit": 0}})).status,
        403
    );
    let own = key_name(&team);
    expect_entry(&refused("project.change"), &own, Some("team"), None, Some("forbidden"));
    let taken = json!({"project_id": "team", "name": "x"});
    assert_eq!(broker.rest(ADMIN_KEY, "POST", "/api/v1/projects", &taken).status, 409);
    let entry = refused("project.create");
    expect_entry(&entry, "admin", Some("team"), Some("team"), Some("project_exists"));
    // A tool that needs a larger scope.
    let visitor = team.client_as(&member);
    visitor.is_refused_as("forbidden", "rotate_project_keys", json!({}));
    expect_entry(&refused("key.rotate"), &name, Some("team"), None, Some("forbidden"));
    // A message to another project that was refused.
    visitor
        .registered("alice")
        .sends("hi")
        .fails_as("cross_project_disabled", "bob@other");
    let entry = refused("message.cross");
    expect_entry(
        &entry,
        &name,
        Some("team"),
        Some("other"),
        Some("cross_project_disabled"),
    );
}

#[test]
fn every_failed_authentication_is_logged() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let refused = |action: &str| entry(&broker, action, "refused");
    let member = team.new_key_with_scope("member");
    for (way, headers, code) in [
        ("/mcp", &[][..], "authentication_failed"),
        ("/mcp", &[("X-API-Key", "team_k_nonsense")], "authentication_failed"),
        (
            "/api/v1/projects",
            &[("X-API-Key", member.as_str()), ("X-Project-ID", "other")],
            "project_mismatch",
        ),
    ] {
        let response = broker.rest_with(headers, "POST", way, &json!({}));
        assert!([401, 403].contains(&response.status), "{response:?}");
        eventually("the entry is logged", || {
            let entry = refused("authenticate");
            (entry["code"] == code && entry["target"] == way)
                .then(|| expect_entry(&entry, "unknown", None, Some(way), Some(code)))
        });
    }
    broker.upgrade(&[("X-API-Key", "team_k_nonsense")]);
    eventually("the entry is logged", || {
        (refused("authenticate")["target"] == "/ws").then_some(())
    });
}

#[test]
fn no_secret_is_logged() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let secret = |key: &str| key.rsplit('_').next().unwrap().to_owned();
    let mut secrets = vec![secret(&team.key), secret(ADMIN_KEY)];
    let key = team.new_key_with_scope("admin");
    secrets.push(secret(&key));
    secrets.push(secret(&team.rotate_key(&key, 0)));
    let guess = "team_kguess_5ec2e75ec2e75ec2e7";
    secrets.push(secret(guess));
    let path = format!("/api/v1/projects/{guess}/{guess}?api_key={guess}");
    for headers in [
        &[("X-API-Key", guess)][..],
        &[("Authorization", guess), ("X-Project-ID", guess)],
    ] {
        for path in ["/api/v1/projects", &path, &format!("/{guess}")] {
            assert_ne!(broker.rest_with(headers, "GET", path, &Value::Null).status, 200);
        }
    }
    // An id that the caller mistyped is shown to it, without the secret part of a key.
    team.rest("DELETE", &format!("keys/{guess}"), &Value::Null);
    let marker = json!({"target_project_id": "marker"});
    team.client().calls("grant_project_access", marker);
    eventually("all entries are logged", || {
        (entry(&broker, "grant.create", "done")["target"] == "marker").then_some(())
    });
    let listed = page(&broker, ADMIN_KEY, "?limit=1000").to_string();
    let log = broker.log();
    for secret in secrets {
        assert!(!listed.contains(&secret), "{secret} in {listed}");
        assert!(!log.contains(&secret), "{secret} in {log}");
    }
}

#[test]
fn an_admin_sees_the_entries_of_its_project() {
    let broker = Broker::secured();
    let (team, other) = (broker.project("team", &json!({})), broker.project("other", &json!({})));
    team.allow_sending_to("x", &json!({}));
    other.allow_sending_to("y", &json!({}));
    entry(&broker, "grant.create", "done");
    let own = eventually("both entries are logged", || {
        let own = entries(&broker, &team.key, "");
        let all = entries(&broker, ADMIN_KEY, "?action=grant.create");
        (all.len() == 2 && own.iter().any(|entry| entry["action"] == "grant.create")).then_some(own)
    });
    assert!(own.iter().all(|entry| entry["project"] == "team"), "{own:?}");
    assert_eq!(entries(&broker, &team.key, "?project=team"), own);
    assert_eq!(entries(&broker, ADMIN_KEY, "?project=team"), own);
    for id in ["other", "default", "nowhere"] {
        let path = format!("/api/v1/audit?project={id}");
        let response = broker.rest(&team.key, "GET", &path, &Value::Null);
        assert_eq!(
            (response.status, &response.json()["code"]),
            (404, &json!("project_not_found")),
            "{id}"
        );
    }
    for scope in ["member", "observer"] {
        let response = broker.rest(&team.new_key_with_scope(scope), "GET", "/api/v1/audit", &Value::Null);
        assert_eq!(response.status, 403, "{scope}");
    }
}

#[test]
fn entries_are_filtered_and_come_in_pages() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let member = team.new_key_with_scope("member");
    for at in 0..7 {
        team.allow_sending_to(&format!("p{at}"), &json!({}));
        broker.rest(&member, "PUT", "/api/v1/projects/team/grants/x", &json!({}));
    }
    let all = eventually("all entries are logged", || {
        let all = entries(&broker, ADMIN_KEY, "?action=grant.create");
        (all.len() == 14).then_some(all)
    });
    // The newest come first.
    assert!(all.is_sorted_by(|a, b| a["id"].as_str() > b["id"].as_str()), "{all:?}");
    assert!(all.is_sorted_by(|a, b| a["at"].as_str() >= b["at"].as_str()), "{all:?}");
    for outcome in ["done", "refused"] {
        let some = entries(&broker, &team.key, &format!("?action=grant.create&outcome={outcome}"));
        let fits = |entry: &&Value| entry["outcome"] == outcome;
        assert_eq!(some, all.iter().filter(fits).cloned().collect::<Vec<_>>());
        assert_eq!(some.len(), 7);
    }
    assert!(entries(&broker, ADMIN_KEY, "?action=no.such").is_empty());
    let mut paged = Vec::new();
    let mut cursor = String::new();
    loop {
        let query = format!("?project=team&action=grant.create&limit=4{cursor}");
        let page = page(&broker, &team.key, &query);
        let entries = page["entries"].as_array().unwrap();
        paged.extend(entries.iter().cloned());
        let Some(next) = page.get("next_cursor") else { break };
        assert_eq!(entries.len(), 4);
        cursor = format!("&cursor={}", next.as_str().unwrap());
    }
    assert_eq!(paged, all);
    for query in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "cursor=x",
        "outcome=x",
        "project=NO",
        "unheard_of=1",
    ] {
        let response = broker.rest(ADMIN_KEY, "GET", &format!("/api/v1/audit?{query}"), &Value::Null);
        assert_eq!(response.status, 400, "{query}");
    }
}

#[test]
fn the_log_has_the_same_entries_as_events() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let member = team.new_key_with_scope("member");
    broker.rest(&member, "PATCH", "/api/v1/projects/team", &json!({"name": "x"}));
    team.allow_sending_to("other", &json!({}));
    let (mut listed, logged) = eventually("all entries are logged", || {
        let listed = entries(&broker, ADMIN_KEY, "");
        let log = broker.log();
        let logged: Vec<Value> = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|event: &Value| event["target"] == "audit")
            .collect();
        (listed.len() == 4 && logged.len() == 4).then_some((listed, logged))
    });
    listed.reverse();
    for (entry, event) in listed.iter().zip(&logged) {
        for name in ["actor", "address", "project", "action", "outcome", "code"] {
            assert_eq!(entry[name], event[name], "{entry} {event}");
        }
        assert_eq!(entry["target"], event["on"]);
        assert_eq!(event["level"], "INFO");
    }
}

#[test]
fn many_refusals_do_not_displace_actions() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    team.allow_sending_to("other", &json!({}));
    entry(&broker, "grant.create", "done");
    let visitor = team.client_as(&team.new_key_with_scope("member"));
    let calls: Vec<_> = (0..1000)
        .map(|_| visitor.begins_call("rotate_project_keys", &json!({})))
        .collect();
    for call in &calls {
        assert_eq!(visitor.wire.answer_to(call).unwrap()["isError"], true);
    }
    // Far from all of them are logged, and the earlier action still is.
    let refused = entries(&broker, ADMIN_KEY, "?outcome=refused&limit=1000").len();
    assert!(refused < 900, "{refused}");
    assert_eq!(
        entries(&broker, ADMIN_KEY, "?action=grant.create&outcome=done").len(),
        1
    );
    let log = broker.log();
    assert!(log.lines().filter(|line| line.contains("\"audit\"")).count() < 900);
    // Later actions are logged too.
    team.allow_sending_to("third", &json!({}));
    eventually("the entry is logged", || {
        (entry(&broker, "grant.create", "done")["target"] == "third").then_some(())
    });
}
