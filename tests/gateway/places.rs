//! Projects and keys: whose backends a caller reaches.

use serde_json::json;

use super::{
    harness::{Calls, Gateway, Plan, tool_names},
    support::Agent,
};

#[test]
fn a_process_belongs_to_one_project() {
    let gateway = Plan::new()
        .table("projects.team-a.backends.fake", &[], "")
        .table("projects.team-b.backends.fake", &[], "")
        .start_secured();
    let team_a = gateway.project("team-a", &json!({}));
    let team_b = gateway.project("team-b", &json!({}));
    let none = gateway.project("team-c", &json!({}));
    let pids: Vec<_> = [&team_a, &team_b]
        .map(|team| team.client().gets("fake__pid", json!({}))["pid"].clone())
        .into();
    assert_ne!(pids[0], pids[1]);
    assert_eq!(none.client().code_of("fake__pid", json!({})), -32602);
    assert!(!tool_names(&none.client()).iter().any(|name| name.starts_with("fake")));
}

#[test]
fn an_observer_neither_sees_nor_calls_tools_of_backends() {
    let gateway = Gateway::of_team();
    let team = gateway.project("team", &json!({}));
    team.client().gets("fake__echo", json!({}));
    let observer = team.new_key_with_scope("observer");
    let client: Agent = team.client_as(&observer);
    assert!(!tool_names(&client).iter().any(|name| name.starts_with("fake")));
    let denied = client.result_of("fake__echo", json!({})).unwrap_err();
    assert_eq!(denied, json!({"code": -32602, "message": "Unknown tool: fake__echo"}));
}

#[test]
fn the_backends_of_a_deleted_project_end() {
    let gateway = Gateway::of_team();
    let team = gateway.project("team", &json!({}));
    team.client().gets("fake__echo", json!({}));
    assert_eq!(gateway.programs().len(), 1);
    team.delete();
    gateway.awaits_no_processes();
}
