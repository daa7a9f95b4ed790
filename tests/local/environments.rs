//! Clients of one user whose environments lead to different runtime folders.

use std::{fs, path::PathBuf, process::Command};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::home::{Done, Home, kill};

/// A command with another runtime folder, as a client has that drops variables.
fn elsewhere(user: &Home, words: &str) -> Command {
    let mut command = user.command(words);
    command.env("XDG_RUNTIME_DIR", other_runtime(user));
    command
}

fn other_runtime(user: &Home) -> PathBuf {
    let folder = user.path.join("elsewhere");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn json_of(mut command: Command) -> Value {
    let done = Done::of(command.output().unwrap());
    assert_eq!(done.code, 0, "{done:?}");
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn a_client_with_another_runtime_folder_finds_the_broker_of_its_user() {
    let user = Home::new();
    user.start_broker();
    let status = json_of(elsewhere(&user, "status --json"));
    assert_eq!(
        (&status["running"], &status["socket"]),
        (&json!(true), &json!(user.socket()))
    );
    let started = json_of(elsewhere(&user, "local start --json"));
    assert_eq!(started["pid"], status["pid"], "it runs already");
    let mut front = user
        .front()
        .args(&["--name=alice"])
        .env("XDG_RUNTIME_DIR", other_runtime(&user).to_str().unwrap())
        .start();
    front.initialize("x");
    front.calls("heartbeat", &json!({}));
    assert_eq!(user.json("status --json")["agents"][0]["name"], "alice");
    assert_eq!(user.brokers().len(), 1);

    // The front finds the next broker, wherever another client has started it.
    user.kill_broker();
    let next = json_of(elsewhere(&user, "local start --json"));
    let socket = other_runtime(&user).join("mcp-broker/broker.sock");
    assert_eq!(next["socket"], json!(socket));
    assert_eq!(user.json("status --json")["socket"], json!(socket));
    front.calls("heartbeat", &json!({}));
    assert_eq!(user.brokers().len(), 1);
}

#[test]
fn status_and_doctor_name_each_broker_of_the_user_that_lives() {
    let user = Home::new();
    user.start_broker();
    let first = user.json("status --json");
    assert_eq!(first.get("others"), None, "{first}");
    user.does("local start --instance team");
    let status = user.json("status --json");
    assert_eq!(status["others"][0]["name"], "team", "{status}");
    assert!(user.does("status").contains("also runs"));
    user.does("local stop --instance team");

    // With other data, so that it is another broker of the same name.
    let mut other = elsewhere(&user, "local start --json");
    let second = json_of({
        other.env("XDG_STATE_HOME", user.path.join("other-state"));
        other
    });
    assert_ne!(second["pid"], first["pid"]);
    let status = json_of(elsewhere(&user, "status --json"));
    assert_eq!(
        (&status["pid"], &status["others"][0]["pid"]),
        (&second["pid"], &first["pid"]),
        "{status}"
    );
    let report = elsewhere(&user, "doctor --json --connections-max=100 --port=0")
        .output()
        .unwrap();
    let report = Done::of(report);
    assert!(report.stdout.contains("runs more than once"), "{report:?}");
    kill(i32::try_from(second["pid"].as_i64().unwrap()).unwrap(), Signal::TERM);
}
