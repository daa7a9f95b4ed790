//! Grants: permissions to send to other projects, as every transport shows and changes them.

use serde_json::{Value, json};

use super::{get, tool_callers};
use crate::support::{ADMIN_KEY, Broker, Tenant, keys};

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
    hidden.update(&json!({"config": {"allow_cross_project": true}}));
    assert_eq!(warned(&open, &open.key, "hidden"), [false, false]);
    // A caller that may list all projects is told that it does not exist.
    let missing = broker.rest(ADMIN_KEY, "PUT", "/api/v1/projects/open/grants/none", &json!({}));
    assert_eq!(missing.problem(), (404, "project_not_found".to_owned()));
    assert!(missing.body.contains("none"), "{missing:?}");
    // The tool returns the same.
    let agent = open.client();
    let granted = agent.calls("grant_project_access", json!({"target_project_id": "closed"}));
    assert_eq!(granted["warnings"].as_array().unwrap().len(), 1, "{granted}");
}

#[test]
fn every_transport_shows_the_same_grants() {
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
    let agent = team.client();
    let arguments = json!({"target_project_id": "one-more", "allowed_protocols": protocols});
    agent.is_refused_as("forbidden", "grant_project_access", arguments);
    // A permission may shrink, and that makes room.
    assert_eq!(puts(0, &protocols[..1]).status, 200);
    assert_eq!(puts(99, &protocols).status, 200);
    assert_eq!(team.rest("DELETE", "grants/other99", &Value::Null).status, 200);
    assert_eq!(puts(98, &protocols).status, 200);
}
