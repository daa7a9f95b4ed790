//! The project and the scope in which a caller acts: `X-Project-ID`, no authentication, an admin key, one project only.

use std::cell::Cell;

use serde_json::{Value, json};

use super::scopes::{
    Level::{Member, Operator},
    another_address, routes,
};
use crate::support::{ADMIN_KEY, Agent, Broker, Request, Wire};

/// The project in which a caller acts, or its refusal.
type ActingProject = Result<&'static str, (u16, &'static str)>;

/// Values of the header, the result for a key of `team`, and the result for the operator.
const HEADER_CASES: [(&[&str], ActingProject, ActingProject); 11] = [
    (&[], Ok("team"), Ok("default")),
    (&[""], Ok("team"), Ok("default")),
    (&["team"], Ok("team"), Ok("team")),
    (&["default"], Err((403, "project_mismatch")), Ok("default")),
    (&["other"], Err((403, "project_mismatch")), Ok("other")),
    (
        &["nowhere"],
        Err((403, "project_mismatch")),
        Err((404, "project_not_found")),
    ),
    (
        &["Team"],
        Err((403, "project_mismatch")),
        Err((404, "project_not_found")),
    ),
    (
        &["team,other"],
        Err((403, "project_mismatch")),
        Err((404, "project_not_found")),
    ),
    (
        &["../team"],
        Err((403, "project_mismatch")),
        Err((404, "project_not_found")),
    ),
    (
        &["team", "team"],
        Err((400, "invalid_argument")),
        Err((400, "invalid_argument")),
    ),
    (
        &["team", "other"],
        Err((400, "invalid_argument")),
        Err((400, "invalid_argument")),
    ),
];

#[test]
fn the_header_selects_a_project_for_the_operator_only() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    broker.project("other", &json!({}));
    let number = Cell::new(0);
    let status = Request::get(broker.address).with_path("/security/status");
    let with = |request: Request, key: &str, projects: &[&str]| {
        let request = request.with("X-API-Key", key);
        projects.iter().fold(request, |request, project| {
            request.with_another("X-Project-ID", *project)
        })
    };
    for (projects, of_key, of_operator) in HEADER_CASES {
        for (who, level, key) in team.valid_credentials() {
            let expected = if level == Operator { of_operator } else { of_key };
            let answer = with(status.clone(), &key, projects).answered();
            match expected {
                Ok(project) => assert_eq!(answer.json()["caller"]["project_id"], project, "{who} {projects:?}"),
                Err((status, code)) => {
                    assert_eq!(answer.problem(), (status, code.to_owned()), "{who} {projects:?}");
                }
            }
            for (request, _, status, _) in routes(&broker, &number) {
                let is_way_in = request.path == "/mcp" && status == 200 || status == 101;
                if is_way_in {
                    let answer = with(request, &key, projects).answered();
                    let expected = expected.map_or_else(|(status, _)| status, |_| status);
                    assert_eq!(answer.status, expected, "{who} {projects:?} {answer:?}");
                }
            }
        }
        // A caller that is not authenticated does not learn which projects exist.
        for (who, key) in [("a guess", "team_nosuchkey_0"), ("nonsense", "nonsense")] {
            let answer = with(status.clone(), key, projects)
                .sent_from(another_address(&number))
                .answered();
            assert_eq!(
                answer.problem(),
                (401, "authentication_failed".to_owned()),
                "{who} {projects:?}"
            );
        }
    }
}

#[test]
fn without_authentication_callers_without_credentials_are_operators() {
    let broker = Broker::start();
    let team = json!({"project_id": "team", "name": "team"});
    let made = broker.rest_with(&[], "POST", "/api/v1/projects", &team);
    assert_eq!(made.status, 201, "{made:?}");
    let key = made.json()["api_keys"][0]["api_key"].as_str().unwrap().to_owned();
    let caller = |headers: &[(&str, &str)]| broker.rest_with(headers, "GET", "/security/status", &Value::Null);
    let seen = |headers: &[(&str, &str)]| {
        let caller = caller(headers).json()["caller"].take();
        let [scope, project] = ["scope", "project_id"].map(|name| caller[name].as_str().unwrap().to_owned());
        (scope, project)
    };
    let is = |scope: &str, project: &str| (scope.to_owned(), project.to_owned());
    assert_eq!(seen(&[]), is("operator", "default"));
    assert_eq!(seen(&[("X-Project-ID", "team")]), is("operator", "team"));
    assert_eq!(
        seen(&[("X-API-Key", &key)]),
        is("admin", "team"),
        "a key decides the identity"
    );
    // Credentials for a proxy in front of the broker are ignored.
    for other in ["Basic dXNlcjpwYXNz", "Bearer of-somebody-else", "Negotiate abc"] {
        assert_eq!(seen(&[("Authorization", other)]), is("operator", "default"), "{other}");
    }
    let nowhere = caller(&[("X-Project-ID", "nowhere")]).problem();
    assert_eq!(nowhere, (404, "project_not_found".to_owned()));
    let mismatch = caller(&[("X-API-Key", &key), ("X-Project-ID", "default")]).problem();
    assert_eq!(mismatch, (403, "project_mismatch".to_owned()));
    let guess = format!("{key}0");
    for headers in [
        ("X-API-Key", guess.clone()),
        ("Authorization", format!("Bearer {guess}")),
    ] {
        let wrong = caller(&[(headers.0, &headers.1)]).problem();
        assert_eq!(wrong, (401, "authentication_failed".to_owned()), "{headers:?}");
    }
    let handshake = broker.upgrade(&[("X-API-Key", &guess)]);
    assert_eq!(handshake.status, 401, "{handshake:?}");
    // Sessions that were registered with a key belong to it, with or without authentication.
    let alice = Agent::legacy(broker.wire_with(&[("X-API-Key", &key)]), "2025-11-25", &json!({})).registered("alice");
    let guest = Agent::legacy(broker.wire_with(&[("X-Project-ID", "team")]), "2025-11-25", &json!({}));
    guest.is_refused_as("session_not_found", "heartbeat", json!({"session_id": alice.session}));
    assert_eq!(guest.presence_of("alice").as_deref(), Some("active"));
}

#[test]
fn a_broker_with_an_admin_key_asks_for_it_on_administration() {
    let broker = Broker::with_admin_key();
    let number = Cell::new(0);
    let made = broker.project("team", &json!({"max_protocols": 1000}));
    let _ = broker.project("other", &json!({}));
    for (request, needed, status, code) in routes(&broker, &number) {
        let answer = request.with("X-Project-ID", &made.id).answered();
        let expected = if needed <= Member {
            (status, code)
        } else {
            (403, "forbidden")
        };
        assert_eq!(answer.problem(), (expected.0, expected.1.to_owned()), "{answer:?}");
    }
    let visitor = Agent::legacy(Wire::open(broker.address), "2025-11-25", &json!({})).registered("visitor");
    visitor.sends("to myself").to(&visitor);
    visitor.is_refused_as("forbidden", "rotate_project_keys", json!({}));
    visitor.is_refused_as("forbidden", "create_project", json!({"project_id": "x", "name": "x"}));
    assert_eq!(broker.rest(ADMIN_KEY, "GET", "/api/v1/tree", &Value::Null).status, 200);
}

#[test]
fn a_single_project_broker_has_no_other_project() {
    let broker = Broker::start_with(&["--enable-multi-project=false"]);
    let agent = broker.agent("alice");
    let listed = agent.request("tools/list", json!({})).unwrap();
    let is_listed = |name: &str| {
        listed["tools"]
            .as_array()
            .unwrap()
            .iter()
            .any(|tool| tool["name"] == name)
    };
    for tool in [
        "create_project",
        "list_projects",
        "grant_project_access",
        "revoke_project_access",
    ] {
        assert!(!is_listed(tool), "{tool}");
        assert_eq!(
            agent.error_of("tools/call", json!({"name": tool, "arguments": {}})),
            -32602,
            "{tool}"
        );
    }
    assert!(is_listed("get_project_info") && is_listed("rotate_project_keys"));
    assert_eq!(
        agent.calls("get_project_info", json!({}))["project"]["project_id"],
        "default"
    );
    let asked = |project: &str, method: &str, path: &str, body: Value| {
        broker
            .rest_with(&[("X-Project-ID", project)], method, path, &body)
            .problem()
    };
    let new = json!({"project_id": "team", "name": "team"});
    assert_eq!(
        asked("default", "POST", "/api/v1/projects", new),
        (403, "forbidden".to_owned())
    );
    let elsewhere = asked("team", "GET", "/security/status", Value::Null);
    assert_eq!(elsewhere, (404, "project_not_found".to_owned()));
    assert_eq!(asked("default", "GET", "/security/status", Value::Null).0, 200);
}
