//! `gateway run`: which file it takes, and what it says of one that it cannot use.

use std::{fs, path::PathBuf, process::Output};

use serde_json::json;

use super::{
    harness::{Calls, MARKER, Plan, fake_backend, replace_file, tool_names},
    running::program,
    support::eventually,
};

/// A folder for files of other programs, and the marker of the processes that they start.
struct Files {
    plan: Plan,
}

impl Files {
    fn new() -> Self {
        Self { plan: Plan::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.plan.file(name).into()
    }

    /// Writes a file in which MARKER and PROGRAM stand for the marker and the fake backend.
    fn with(self, name: &str, text: &str) -> Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, filled(text, self.plan.marker())).unwrap();
        self
    }
}

fn filled(text: &str, marker: &str) -> String {
    let program = fake_backend().display().to_string();
    text.replace("MARKER", &format!("{MARKER}: {marker}"))
        .replace("PROGRAM", &program)
}

const MCPMON: &str = "\
# The servers of a project.
servers:
  one:
    command: PROGRAM
    args: [--tool, fresh]
    watch: src
    extensions: py
    env: {MARKER}
  two:
    cmd: PROGRAM
    env: {MARKER}
settings:
  log_level: info
  notify_on_change: true
";

#[test]
fn the_file_of_mcpmon_is_found_in_the_working_directory_and_followed() {
    let files = Files::new().with(".mcpmon.yaml", MCPMON);
    let file = files.path(".mcpmon.yaml");
    let before = fs::read_to_string(&file).unwrap();
    let mut gateway = files.plan.run_with(&[]);
    let client = gateway.legacy();
    assert!(tool_names(&client).contains(&"one__fresh".to_owned()));
    assert_eq!(client.gets("two::echo", json!({"a": 1}))["arguments"], json!({"a": 1}));
    let log = gateway.log();
    assert!(
        log.contains(&format!("serving 2 backends of {}", file.display())),
        "{log}"
    );
    assert!(!log.contains("is left out"), "{log}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);

    let third = "servers:\n  third: {command: PROGRAM, env: {MARKER}}\n";
    replace_file(&file, &filled(third, gateway.marker()));
    eventually("the only server has its own names", || {
        tool_names(&client).contains(&"echo".to_owned()).then_some(())
    });
    replace_file(&file, "servers: [");
    eventually("the wrong file is named in the log", || {
        gateway.log().contains("is wrong and was ignored").then_some(())
    });
    assert_eq!(client.gets("third__echo", json!({}))["name"], "echo");
}

#[test]
fn the_level_of_the_log_is_that_of_the_file_unless_a_flag_names_another() {
    let files = |level: &str| {
        let text = MCPMON.replace("log_level: info", &format!("log_level: {level}"));
        Files::new().with(".mcpmon.yaml", &text)
    };
    let is_logged = |level: &str, args: &[&str]| {
        let files = files(level);
        let file = files.path(".mcpmon.yaml");
        let mut gateway = files.plan.run_with(args);
        let client = gateway.legacy();
        client.gets("one__echo", json!({}));
        replace_file(&file, "servers: [");
        eventually("a later line is logged", || {
            gateway.log().contains("is wrong and was ignored").then_some(())
        });
        gateway.log().contains("a backend has changed its state")
    };
    assert!(is_logged("INFO", &[]));
    assert!(!is_logged("warning", &[]));
    assert!(is_logged("ERROR", &["--debug"]));
    let files = files("loud");
    let output = run(&files, &[]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("settings.log_level: loud is none of DEBUG, INFO, WARNING, WARN, ERROR, CRITICAL"),
        "{error}"
    );
}

#[test]
fn the_files_are_looked_for_in_the_order_of_mcpmon() {
    let one = "servers:\n  NAME: {command: PROGRAM, env: {MARKER}}\n";
    let named = |name: &str| one.replace("NAME", name);
    for (wanted, files) in [
        (
            "dot",
            vec![
                (".mcpmon.yml", "dot"),
                ("mcpmon.yaml", "plain"),
                (".config/mcpmon/config.yaml", "home"),
            ],
        ),
        (
            "plain",
            vec![("mcpmon.yml", "plain"), (".config/mcpmon/config.yaml", "home")],
        ),
        ("home", vec![(".config/mcpmon/config.yaml", "home")]),
    ] {
        let written = |all: Files, (file, name): &(&str, &str)| all.with(file, &named(name));
        let mut gateway = files.iter().fold(Files::new(), written).plan.run_with(&[]);
        let client = gateway.legacy();
        assert_eq!(client.gets(&format!("{wanted}__echo"), json!({}))["name"], "echo");
    }
}

#[test]
fn files_of_other_clients_are_read_unchanged() {
    let claude = r#"{ // comments are allowed
        "mcpServers": {
            "My Server": {"command": "PROGRAM", "args": ["--tool", "fresh"], "env": {"MARKER"}},
            "broker": {"command": "mcp-broker", "args": ["gateway", "run"]},
        }}"#;
    let claude = claude.replace("\"MARKER\"", "\"FAKE_BACKEND_OF\": \"THE_MARKER\"");
    let files = Files::new();
    let text = claude.replace("THE_MARKER", files.plan.marker());
    let mut gateway = files.with(".mcp.json", &text).plan.run_with(&["-c", ".mcp.json"]);
    let client = gateway.legacy();
    assert!(tool_names(&client).contains(&"fresh".to_owned()));
    assert_eq!(client.gets("my-server__echo", json!({}))["name"], "echo");
    let log = gateway.log();
    assert!(
        log.contains("its name becomes my-server") && log.contains("this broker itself"),
        "{log}"
    );

    let code = r#"{"inputs": [{"id": "tool", "type": "promptString"}], "servers": {
        "one": {"command": "PROGRAM", "args": ["--tool", "${input:tool}"], "env": {"FAKE_BACKEND_OF": "THE_MARKER"}}}}"#;
    let files = Files::new();
    let text = code.replace("THE_MARKER", files.plan.marker());
    let args = ["--config", ".vscode/mcp.json", "--input", "tool=asked"];
    let mut gateway = files.with(".vscode/mcp.json", &text).plan.run_with(&args);
    assert!(tool_names(&gateway.legacy()).contains(&"asked".to_owned()));
}

#[test]
fn a_configuration_file_of_a_broker_is_served_without_its_server() {
    let lines = "port = 1\nstorage = \"redis\"\nredis_url = \"redis://127.0.0.1:1\"\nenable_multi_project = true\n\
                 gateway_separator = \"-\"";
    let plan = Plan::new().lines(lines).backend("one", &[]).backend("two", &[]);
    let mut gateway = plan.run(&[]);
    assert_eq!(gateway.legacy().gets("one-echo", json!({}))["name"], "echo");
}

fn run(files: &Files, args: &[&str]) -> Output {
    let folder = files.path("");
    program(&folder, "run", args).output().unwrap()
}

#[test]
fn what_cannot_be_used_is_named_before_a_client_is_served() {
    for (name, text, reason) in [
        ("broker.toml", "[backends.one]\ncomand = \"x\"", "backends.one"),
        ("broker.toml", "[backends.one", "line 1"),
        ("broker.toml", "quota = 1", "quota"),
        ("own.yaml", "backends: {one: {}}", "needs a command or a url"),
        (".mcpmon.yaml", "servers: [", ".mcpmon.yaml cannot be used"),
        (
            ".mcpmon.yaml",
            "servers: {one: {watch: src}}",
            "one: left out, because it has neither a command nor a url",
        ),
        ("mcp.json", "{\"mcpServers\": {", "not valid JSON at line 1"),
        ("mcp.json", "{}", "neither mcpServers nor servers"),
        (
            "mcp.json",
            "{\"servers\": {\"a\": {\"url\": \"${input:it}\"}}}",
            "--input it=VALUE",
        ),
        (
            "mcp.json",
            "{\"servers\": {\"a\": {\"url\": \"http://me:pw@a/\"}}}",
            "a user or a password",
        ),
    ] {
        let files = Files::new().with(name, text);
        let output = run(&files, &["--config", name]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}: {stderr}");
        assert!(
            stderr.contains(reason) && stderr.lines().count() == 1,
            "{text}: {stderr}"
        );
        assert!(output.stdout.is_empty(), "stdout is for MCP");
        fs::remove_dir_all(files.path("")).unwrap();
    }
}

#[test]
fn without_a_file_it_says_what_it_has_looked_for() {
    let files = Files::new();
    for (args, reason) in [
        (&[][..], ".mcpmon.yaml, .mcpmon.yml, mcpmon.yaml, mcpmon.yml in "),
        (&[], ".config/mcpmon/config.yaml"),
        (&["--config", "missing.toml"], "missing.toml"),
        (&["--config", "missing.json"], "there is no such file"),
        (&["--name", ""], "1 to 64 characters"),
        (&["--url", "http://127.0.0.1:1"], "--url is not known here"),
    ] {
        let output = run(&files, args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
    }
    fs::remove_dir_all(files.path("")).unwrap();
}

#[test]
fn a_file_that_wants_no_news_of_tools_is_obeyed() {
    let text = "servers:\n  one:\n    command: PROGRAM\n    env: {MARKER}\nsettings: {notify_on_change: false}\n";
    let files = Files::new().with(".mcpmon.yaml", text);
    let mut gateway = files.plan.run_with(&[]);
    let client = gateway.legacy();
    client.gets("add_tool", json!({"name": "fresh"}));
    eventually("the new tool is listed", || {
        tool_names(&client).contains(&"fresh".to_owned()).then_some(())
    });
    assert_eq!(client.wire.notifications_so_far("notifications/tools/list_changed"), 0);
}
