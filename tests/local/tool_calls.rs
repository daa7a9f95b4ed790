//! `mcp-broker call` and `repl`: tools of a broker from a script, a pipe and a terminal. `dev call` and `dev repl` are their
//! former names for brokers for development.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;

use super::{
    home::{Done, Home, kill},
    screen::Screen,
};

/// Calls a tool of the broker `default` for development.
fn calls(home: &Home, words: &[&str]) -> Done {
    calls_by(home, "dev call", words)
}

fn calls_by(home: &Home, command: &str, words: &[&str]) -> Done {
    Done::of(home.command(command).args(words).output().unwrap())
}

fn answer(done: &Done, code: i32) -> Value {
    assert_eq!((done.code, done.stdout.lines().count()), (code, 1), "{done:?}");
    serde_json::from_str(&done.stdout).unwrap()
}

/// The prompt of the broker `default` for development with these lines from a pipe.
fn pipes(home: &Home, lines: &str) -> Done {
    pipes_into(home.command("dev repl"), lines)
}

fn pipes_into(mut command: Command, lines: &str) -> Done {
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A prompt that refuses a line does not read the rest of it.
    let _ = process.stdin.take().unwrap().write_all(lines.as_bytes());
    Done::of(process.wait_with_output().unwrap())
}

#[test]
fn a_call_prints_the_answer_and_its_exit_code_says_whether_the_tool_refused() {
    let home = Home::new();
    assert!(
        calls(&home, &["list_sessions"])
            .refusal(3)
            .contains("mcp-broker dev start")
    );
    home.does("dev start");
    let session = answer(&calls(&home, &["register_session", "name=ada"]), 0);
    assert_eq!(session["name"], "ada");
    let schema = r#"schema={"type": "object", "properties": {"text": {"type": "string"}}}"#;
    let protocol = [
        "register_protocol",
        "name=note",
        "version=1.0.0",
        schema,
        "metadata.description=a note",
    ];
    assert_eq!(answer(&calls(&home, &protocol), 0)["name"], "note");
    let found = answer(
        &calls(&home, &["discover_protocols", "--json", r#"{"name": "note"}"#]),
        0,
    );
    assert_eq!(found["protocols"][0]["version"], "1.0.0", "{found}");
    let message = [
        "send_message",
        "recipient_id=ghost",
        "protocol_name=note",
        "protocol_version=1.0.0",
    ];
    let refused = answer(&calls(&home, &[&message[..], &["payload.text=5"]].concat()), 1);
    assert_eq!(refused["code"], "session_not_found", "{refused}");
    assert!(
        calls(&home, &["list_session"])
            .refusal(2)
            .contains("did you mean list_sessions")
    );
    assert!(
        calls(&home, &["list_sessions", "word"])
            .refusal(2)
            .contains("an argument is key=value")
    );
    assert!(
        calls(&home, &["list_sessions", "--json", "[]"])
            .refusal(2)
            .contains("one JSON object")
    );
    assert!(
        calls(&home, &["--name", "other", "list_sessions"])
            .refusal(3)
            .contains("dev start --name other")
    );
}

#[test]
fn a_call_reaches_the_broker_of_the_user_one_for_development_and_one_at_a_url() {
    let home = Home::new();
    let done = calls_by(&home, "call --instance team", &["list_sessions"]);
    assert!(done.refusal(3).contains("mcp-broker start --instance team"), "{done:?}");
    home.does("start");
    let session = answer(&calls_by(&home, "call", &["register_session", r#"{"name": "ada"}"#]), 0);
    assert_eq!(session["name"], "ada");
    let http = home.json("status --json")["http"].as_str().unwrap().to_owned();
    let address = http.strip_prefix("http://").unwrap();
    for url in [
        http.as_str(),
        address,
        &format!("ws://{address}/ws"),
        &format!("{http}/mcp"),
    ] {
        let listed = answer(
            &calls_by(
                &home,
                &format!("call --url {url}"),
                &["list_sessions", r#"{"status": "all"}"#],
            ),
            0,
        );
        assert_eq!(listed["sessions"][0]["name"], "ada", "{url}: {listed}");
    }
    home.does("dev start --name try");
    let listed = answer(&calls_by(&home, "call --dev=try", &["list_sessions", "status=all"]), 0);
    assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(0), "{listed}");
    // A refusal is the answer on stdout, and one line on stderr.
    let refused = calls_by(&home, "call", &["heartbeat", r#"{"session_id": "nemo"}"#]);
    let object = answer(&refused, 1);
    let line = format!("error: {}: ", object["code"].as_str().unwrap());
    assert!(
        refused.stderr.starts_with(&line) && refused.stderr.lines().count() == 1,
        "{refused:?}"
    );
    let done = calls_by(&home, "call --url http://127.0.0.1:1", &["list_sessions"]);
    assert!(done.refusal(1).starts_with("error: http://127.0.0.1:1: "), "{done:?}");
}

#[test]
fn the_prompt_takes_json_and_rows_of_a_guide_at_any_broker() {
    let home = Home::new();
    home.does("start");
    let http = home.json("status --json")["http"].as_str().unwrap().to_owned();
    let rows = r#"| who | tool | arguments |
|---|---|---|
| alice | `register_session` | `{"name": "alice"}` |
| alice | `register_protocol` | `{"name": "chat", "version": "1.0.0", "schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}` |
register_session {"name": "bob"}
send_message {"recipient_id": "alice", "protocol_name": "chat", "protocol_version": "1.0.0", "payload": {"text": "who = me?"}}
"#;
    for (command, names) in [
        ("repl".to_owned(), ["alice", "bob"]),
        (format!("repl --url {http}"), ["carol", "dora"]),
    ] {
        let rows = rows.replace("alice", names[0]).replace("bob", names[1]);
        let done = pipes_into(home.command(&command), &rows);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{command}: {done:?}");
        let answers: Vec<Value> = done
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(answers.len(), 4, "{done:?}");
        assert_eq!(
            (&answers[0]["name"], &answers[2]["name"]),
            (&names[0].into(), &names[1].into())
        );
        assert_eq!(answers[3]["status"], "queued", "{done:?}");
    }
    let done = pipes_into(home.command("repl"), "register_session {\"name\": alice}\n");
    assert!(
        done.refusal(1)
            .contains("the JSON object is not valid at its character 10"),
        "{done:?}"
    );
}

#[test]
fn a_pipe_runs_lines_on_one_connection_without_a_prompt() {
    let home = Home::new();
    home.does("dev start");
    let done = pipes(
        &home,
        "# a comment with 'one quote\n\nregister_session name=\"two words\" metadata={\"team\": \"a b\"}\nheartbeat\nsession\ntools\nhistory\nexit\nlist_sessions\n",
    );
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let mut lines = done.stdout.lines();
    let session: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(session["name"], "two words");
    let beat: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert!(beat.is_object(), "{beat}");
    let rest: Vec<&str> = lines.collect();
    assert!(
        rest.iter()
            .any(|line| line.starts_with("session") && line.contains("two words")),
        "{rest:?}"
    );
    assert!(rest.iter().any(|line| line.starts_with("send_message")), "{rest:?}");
    assert_eq!(rest.last(), Some(&"history"), "nothing follows exit: {rest:?}");
}

#[test]
fn a_line_of_a_pipe_that_fails_is_told_and_the_next_ones_run() {
    let home = Home::new();
    home.does("dev start");
    let done = pipes(&home, "nothing\nheartbeat\nlist_sessions limit=\"x\nlist_sessions\n");
    assert_eq!(done.code, 1, "{done:?}");
    assert_eq!(done.stderr.lines().count(), 2, "{done:?}");
    assert!(
        done.stderr.contains("no tool") && done.stderr.contains("not closed"),
        "{done:?}"
    );
    let last: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert!(last["sessions"].is_array(), "{last}");
    let long = format!("list_sessions x={}\n", "x".repeat(5 << 20));
    assert!(pipes(&home, &long).refusal(1).contains("more than 4 MiB"));
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn a_terminal_has_a_prompt_completion_history_and_finds_a_broker_that_was_restarted() {
    let home = Home::new();
    let pid = home.pid("dev start --json");
    let path = home.path.display();
    let environment = format!("HOME={path} XDG_RUNTIME_DIR={path}/run XDG_STATE_HOME={path}/state");
    let screen = Screen::start((100, 30), &environment, "dev repl");
    screen.shows("dev/default>");
    screen.presses(&["-l", "register_se"]);
    screen.presses(&["Tab"]);
    screen.shows("register_session");
    screen.presses(&["-l", " na"]);
    screen.presses(&["Tab"]);
    screen.presses(&["-l", "ada"]);
    screen.presses(&["Enter"]);
    screen.shows("\"name\": \"ada\"");
    screen.presses(&["-l", "help heartbeat"]);
    screen.presses(&["Enter"]);
    screen.shows("ARGUMENT");
    kill(pid, Signal::KILL);
    home.awaits_status("dev status", 4);
    screen.presses(&["-l", "heartbeat"]);
    screen.presses(&["Enter"]);
    screen.shows("closed the connection");
    screen.presses(&["-l", "tools"]);
    screen.presses(&["Enter"]);
    screen.shows("does not run");
    home.does("dev start");
    screen.presses(&["-l", "session"]);
    screen.presses(&["Enter"]);
    screen.shows("closed");
    screen.presses(&["-l", "list_sessions"]);
    screen.presses(&["Enter"]);
    screen.shows("connected again");
    screen.shows("\"sessions\": []");
    screen.presses(&["C-d"]);
    assert_eq!(screen.ends(), 0);
    let file = home.state().join("dev/default/repl-history");
    let history = fs::read_to_string(&file).unwrap();
    assert!(history.contains("register_session name=ada"), "{history}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_words_of_an_earlier_tool_work_and_stay_hidden() {
    let home = Home::new();
    home.does("mcp dev-start --experimental --transport pipe");
    assert_eq!(home.json("mcp dev-status --json")["transport"], "fifo");
    home.does("mcp dev-restart");
    assert_eq!(home.json("dev status --json")["transport"], "fifo");
    let repl = home.command("mcp dev-repl --experimental").output().unwrap();
    assert!(repl.status.success());
    home.does("mcp dev-stop");
    assert_eq!(home.runs("mcp dev-status").code, 3);
    home.does("mcp dev-cleanup");
    let help = home.does("--help");
    assert!(
        !help.lines().any(|line| line.trim_start().starts_with("mcp ")),
        "{help}"
    );
    assert!(!home.runs("nonsense").refusal(2).contains("mcp,"));
}
