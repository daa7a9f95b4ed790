//! `context`: names for brokers, in all commands that ask one.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use super::{
    home::{Done, Home},
    support::Broker,
};

/// All sessions of a broker.
const LIST: &str = "sessions --status all --json";

/// Runs a command with this variable.
fn runs_with(home: &Home, (name, value): (&str, &str), words: &str) -> Done {
    Done::of(home.command(words).env(name, value).output().unwrap())
}

/// The names of the sessions that a command lists.
fn names(done: &Done) -> Vec<String> {
    assert_eq!(done.code, 0, "{done:?}");
    let sessions = done
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    sessions
        .map(|session| session["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_context_names_a_broker_with_its_key_and_its_project() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let carol = team.client();
    carol.calls("register_session", json!({"name": "carol"}));
    let home = Home::new();
    home.does("start");
    home.does("call register_session name=ada");
    let key = home.path.join("team.key");
    fs::write(&key, format!("{}\n", team.key)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let add = format!(
        "context add team --url {} --key-file {} --project team",
        broker.address,
        key.display()
    );
    assert!(
        home.does(&add)
            .contains("the context team is added; mcp-broker context use team uses it")
    );

    let own = || names(&home.runs(LIST));
    let teams = |done: &Done| assert_eq!(names(done), ["carol"]);
    assert_eq!(own(), ["ada"], "a context is used once it is named");
    teams(&home.runs(&format!("{LIST} --context team")));
    teams(&home.runs(&format!("--context team {LIST}")));
    teams(&runs_with(&home, ("MCP_BROKER_CONTEXT", "team"), LIST));
    let listed = home.runs("call --context team list_sessions status=all");
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(listed.stdout.contains("carol"), "{listed:?}");
    home.does("healthcheck --context team");
    assert!(
        home.does("context use team")
            .contains(&format!("http://{}", broker.address))
    );
    teams(&home.runs(LIST));
    // What is nearer counts: a flag, then a variable with an address.
    assert_eq!(names(&home.runs(&format!("{LIST} --context local"))), ["ada"]);
    let own_url = home.json("status --json")["http"].as_str().unwrap().to_owned();
    assert_eq!(names(&runs_with(&home, ("MCP_BROKER_URL", &own_url), LIST)), ["ada"]);
    let listed: Vec<Value> = home
        .does("context list --json")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["current"]),
        (&json!("team"), &json!(true))
    );
    assert_eq!(listed[0]["project"], "team");
    assert!(home.does("context list").contains("*  team"));
    home.does("context use local");
    assert_eq!(own(), ["ada"]);

    // The file is private and holds no key.
    let file = home.path.join(".config/mcp-broker/contexts.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&file).unwrap().contains(&team.key));
    let missing = home.runs("sessions --context taem");
    assert_eq!(missing.refusal(2), "error: no context \"taem\"; did you mean team?");
    home.does("context remove team");
    assert!(
        home.runs("sessions --context team")
            .refusal(2)
            .contains("no context \"team\"")
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(
        home.runs("sessions")
            .refusal(2)
            .contains("others may change it; run chmod 600")
    );
}

/// The entry of an agent decides which broker it uses, not what a person uses at the moment.
#[test]
fn the_current_context_does_not_lead_an_agent_elsewhere() {
    let home = Home::new();
    home.does("context add gone --url http://127.0.0.1:1 --use");
    assert!(
        home.runs("sessions")
            .refusal(1)
            .contains("cannot reach http://127.0.0.1:1")
    );
    let mut agent = home.front().start();
    agent.initialize("x");
    agent.calls("register_session", &json!({"name": "ada"}));
    assert_eq!(names(&home.runs("sessions --json --context local")), ["ada"]);
    let printed = home.does("setup claude --print");
    assert!(!printed.contains("127.0.0.1:1"), "{printed}");
    let printed = home.does("setup claude --print --context gone");
    assert!(printed.contains("http://127.0.0.1:1/mcp"), "{printed}");
}
