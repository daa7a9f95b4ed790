//! Tests of the request that a `project` command line makes.

use std::ffi::OsString;

use clap::FromArgMatches;

use super::*;
use crate::error::CliError;
use crate::usage_errors::{redact_keys, usage_error};

const KEY: &str = "admin_k1abcdef_000102030405060708090a0b0c0d0e0f1011121314151617";

fn command_in(env: &[(&str, &str)], words: &[&str]) -> ProjectCommand {
    read_words(env, words).unwrap()
}

fn read_words(env: &[(&str, &str)], words: &[&str]) -> Result<ProjectCommand, CliError> {
    let args: Vec<OsString> = ["mcp-broker", "project"]
        .iter()
        .chain(words)
        .map(OsString::from)
        .collect();
    let env: Vec<_> = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let mut program = crate::command();
    program.build();
    let matches = program.try_get_matches_from_mut(&args);
    let mut matches = matches.map_err(|error| usage_error(error, &program, &args))?;
    let project = Project::from_arg_matches(&matches.remove_subcommand().unwrap().1).unwrap();
    project.read(&env).map_err(|line| CliError::Usage(redact_keys(&line)))
}

/// Method, path and body of the request.
fn request_of(words: &[&str]) -> (String, Value) {
    let ask = command_in(&[], words).request;
    let body = ask
        .body
        .map_or(Value::Null, |body| serde_json::from_str(&body).unwrap());
    (format!("{} {}", ask.method, ask.path), body)
}

fn refusal(words: &[&str]) -> String {
    match read_words(&[], words) {
        Err(CliError::Usage(line)) => line,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it is not refused"),
    }
}

#[test]
fn only_given_flags_are_sent() {
    let (line, body) = request_of(&["create", "acme", "--name", "Acme"]);
    assert_eq!(line, "POST /api/v1/projects");
    assert_eq!(body, json!({"project_id": "acme", "name": "Acme"}));
    let (line, body) = request_of(&["update", "acme", "--description", ""]);
    assert_eq!(line, "PATCH /api/v1/projects/acme");
    assert_eq!(body, json!({"description": ""}));
    assert_eq!(request_of(&["rotate", "acme"]).1, json!({}));
    assert_eq!(request_of(&["grant", "acme", "globex"]).1, json!({}));
    assert_eq!(request_of(&["keys", "acme", "--create"]).1, json!({}));
}

#[test]
fn every_flag_of_a_project_has_its_field() {
    let (_, body) = request_of(&[
        "create",
        "acme",
        "--name=Acme",
        "--description=all of it",
        "--tag=a,b",
        "--tag",
        "c",
        "--allow-cross-project",
        "--discoverable=false",
        "--max-sessions=1",
        "--max-protocols=default",
        "--queue-capacity=3",
        "--rate-limit=0",
    ]);
    let config = json!({"allow_cross_project": true, "discoverable": false, "max_sessions": 1, "max_protocols": null,
        "queue_capacity": 3, "rate_limit": 0});
    assert_eq!(
        body,
        json!({"project_id": "acme", "name": "Acme", "description": "all of it", "tags": ["a", "b", "c"],
            "config": config})
    );
}

#[test]
fn an_update_takes_true_and_false_and_can_clear_a_list() {
    let (_, body) = request_of(&["update", "acme", "--allow-cross-project", "false", "--tag", ""]);
    assert_eq!(body, json!({"config": {"allow_cross_project": false}, "tags": []}));
    assert!(refusal(&["update", "acme"]).starts_with("nothing to change; "));
}

#[test]
fn ids_are_encoded_and_cannot_change_the_path() {
    assert_eq!(request_of(&["show", "a/b?c"]).0, "GET /api/v1/projects/a%2Fb%3Fc");
    assert_eq!(
        request_of(&["keys", "a b", "--revoke", "k/1"]).0,
        "DELETE /api/v1/projects/a%20b/keys/k%2F1"
    );
    assert_eq!(
        request_of(&["revoke", "a", "ü"]).0,
        "DELETE /api/v1/projects/a/grants/%C3%BC"
    );
    for id in ["", ".", ".."] {
        assert_eq!(
            refusal(&["show", id]),
            format!("ID = {id:?} is not allowed; allowed: an id")
        );
        assert!(refusal(&["keys", "acme", "--revoke", id]).ends_with("allowed: an id"));
    }
}

#[test]
fn list_filters_become_query_parameters() {
    assert_eq!(request_of(&["list"]).0, "GET /api/v1/projects");
    assert_eq!(
        request_of(&["list", "--include-inactive", "--tag", "a b", "--tag=c"]).0,
        "GET /api/v1/projects?include_inactive=true&tags=a%20b,c"
    );
    assert_eq!(request_of(&["audit"]).0, "GET /api/v1/audit");
    assert_eq!(
        request_of(&["audit", "acme", "--limit", "5"]).0,
        "GET /api/v1/audit?project=acme&limit=5"
    );
}

#[test]
fn durations_are_sent_in_seconds() {
    let (line, body) = request_of(&[
        "keys",
        "acme",
        "--create",
        "--label=ci",
        "--scope=observer",
        "--expires-in=30d",
    ]);
    assert_eq!(line, "POST /api/v1/projects/acme/keys");
    assert_eq!(
        body,
        json!({"label": "ci", "scope": "observer", "expires_in_seconds": 2_592_000})
    );
    let (line, body) = request_of(&["rotate", "acme", "--key-id=k1", "--grace", "1h"]);
    assert_eq!(line, "POST /api/v1/projects/acme/keys/rotate");
    assert_eq!(body, json!({"key_id": "k1", "grace_period_seconds": 3600}));
    assert_eq!(
        request_of(&["rotate", "acme", "--grace=1500ms"]).1,
        json!({"grace_period_seconds": 2})
    );
    let line = refusal(&["keys", "acme", "--create", "--expires-in", "soon"]);
    assert!(
        line.starts_with("expires_in = \"soon\" (--expires-in) is not allowed; allowed: a time from 1s to 3650d"),
        "{line}"
    );
}

#[test]
fn the_error_for_a_value_lists_the_allowed_ones() {
    for (words, line) in [
        (
            &["update", "a", "--allow-cross-project", "maybe"][..],
            "allow_cross_project = \"maybe\" (--allow-cross-project) is not allowed; allowed: true, false",
        ),
        (
            &["keys", "a", "--create", "--scope", "root"],
            "scope = \"root\" (--scope) is not allowed; allowed: admin, member, answer, observer",
        ),
        (
            &["update", "a", "--max-sessions", "0"],
            "max_sessions = \"0\" (--max-sessions) is not allowed; allowed: default, or a whole number from 1 to \
             4294967295",
        ),
        (
            &["audit", "--limit=-1"],
            "limit = \"-1\" (--limit) is not allowed; allowed: a whole number from 1 to 4294967295",
        ),
    ] {
        assert_eq!(refusal(words), line);
    }
}

#[test]
fn common_flags_may_precede_or_follow_the_command() {
    for words in [
        &["--url=http://localhost:1", "--json", "list"][..],
        &["list", "--url=http://localhost:1", "--json"],
    ] {
        let order = command_in(&[], words);
        assert!(order.json);
        assert_eq!(order.access.url.text, "http://localhost:1");
    }
}

#[test]
fn flags_override_the_environment_and_empty_variables_are_unset() {
    let key = |env: &[(&str, &str)], words: &[&str]| {
        let access = command_in(env, &[&["list"], words].concat()).access;
        access.key.map(|key| (key.expose().to_owned(), key.source))
    };
    let both = [("MCP_BROKER_API_KEY", "one"), ("MCP_BROKER_ADMIN_KEY", "two")];
    assert_eq!(key(&both, &[]), Some(("one".to_owned(), "MCP_BROKER_API_KEY")));
    assert_eq!(key(&both[1..], &[]), Some(("two".to_owned(), "MCP_BROKER_ADMIN_KEY")));
    assert_eq!(key(&both, &["--key", "three"]), Some(("three".to_owned(), "--key")));
    let empty = [
        ("MCP_BROKER_API_KEY", ""),
        ("MCP_BROKER_ADMIN_KEY", "two"),
        ("MCP_BROKER_URL", ""),
    ];
    assert_eq!(key(&empty, &[]), Some(("two".to_owned(), "MCP_BROKER_ADMIN_KEY")));
    assert_eq!(key(&[], &[]), None);
    let url = |env: &[(&str, &str)], words: &[&str]| command_in(env, words).access.url.text;
    assert_eq!(url(&[], &["list"]), "http://127.0.0.1:8000");
    assert_eq!(
        url(&[("MCP_BROKER_URL", "https://b.example/")], &["list"]),
        "https://b.example"
    );
    assert_eq!(
        url(&[("MCP_BROKER_URL", "nonsense")], &["list", "--url=http://[::1]"]),
        "http://[::1]"
    );
}

#[test]
fn a_key_is_sent_in_clear_text_only_with_insecure() {
    let env = [("MCP_BROKER_API_KEY", KEY), ("MCP_BROKER_URL", "http://broker.example")];
    assert!(command_in(&env, &["list", "--insecure"]).access.key.is_some());
    assert!(command_in(&env[1..], &["list"]).access.key.is_none());
    let line = refusal(&["list", "--url=http://broker.example", "--key", KEY]);
    assert!(
        line.starts_with("url = \"http://broker.example\" (--url) is not allowed with a key: "),
        "{line}"
    );
}

#[test]
fn debug_output_hides_the_key() {
    let order = command_in(&[("MCP_BROKER_API_KEY", KEY)], &["list"]);
    let shown = format!("{:?}", order.access);
    assert!(!shown.contains(KEY), "{shown}");
}

#[test]
fn a_deletion_asks_for_confirmation() {
    let question = command_in(&[], &["delete", "acme"]).question.unwrap();
    assert!(question.starts_with("Delete the project acme with"), "{question}");
    assert_eq!(command_in(&[], &["delete", "acme", "--yes"]).question, None);
}
