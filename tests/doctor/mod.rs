//! `mcp-broker doctor`: it finds each prepared fault, and nothing on a healthy machine.

mod clients;
mod machine;
mod redis_faults;
mod running_broker;

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use test_client::{process::RunningServer, wait::free_port};

use crate::support::redis;

/// So few connections that the limit of open files of a machine for builds is enough.
const FEW_CONNECTIONS: &str = "--connections-max=100";

/// A user of this machine, with a home folder and the folder of a project, removed when dropped.
struct User {
    home: PathBuf,
    variables: Vec<(String, String)>,
}

impl User {
    fn new() -> Self {
        let home = std::env::temp_dir().join(format!("mcp-broker-doctor-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir_all(home.join("project")).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let variables = [("HOME", home.to_str().unwrap()), ("PATH", &path)];
        let variables = variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        Self { home, variables }
    }

    fn sets(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes a file below the home folder and returns its path.
    fn writes(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.home.join("project"))
            .stdin(Stdio::null());
        command
    }

    /// Writes the entry of a client for the own broker.
    fn sets_up(&self, client: &str) {
        let mut command = self.command(env!("CARGO_BIN_EXE_mcp-broker"));
        let output = command.args(["setup", client]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs the doctor with these arguments, at a port that is free.
    fn examines(&self, words: &[&str]) -> Report {
        let port = free_port();
        self.examines_port(port, words)
    }

    fn examines_port(&self, port: u16, words: &[&str]) -> Report {
        let mut command = self.command(env!("CARGO_BIN_EXE_mcp-broker"));
        command
            .args(["doctor", "--json", FEW_CONNECTIONS, &format!("--port={port}")])
            .args(words);
        Report::of(command)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// What the doctor found.
struct Report {
    code: Option<i32>,
    findings: Vec<Value>,
    text: String,
}

impl Report {
    fn of(mut command: Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let (text, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert_eq!(stderr, "", "{text}");
        let findings = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let code = status.code();
        Self { code, findings, text }
    }

    /// Asserts that a check has a finding of this severity with these words. It has a cure if something needs fixing.
    fn finds(&self, severity: &str, check: &str, words: &[&str]) -> &Value {
        let fits = |finding: &&Value| {
            let found = finding["found"].as_str().unwrap();
            finding["check"] == check
                && finding["severity"] == severity
                && words.iter().all(|word| found.contains(word))
        };
        let finding = self.findings.iter().find(fits);
        let finding = finding.unwrap_or_else(|| panic!("no {severity} of {check} with {words:?}:\n{}", self.text));
        if ["warning", "error"].contains(&severity) {
            let cure = finding["cure"].as_str().unwrap();
            assert!(cure.len() > 10, "{finding}");
            assert_eq!(self.code, Some(1), "{}", self.text);
        }
        finding
    }

    /// Asserts that nothing needs fixing.
    fn finds_nothing(&self) {
        for finding in &self.findings {
            assert!(
                ["ok", "note"].contains(&finding["severity"].as_str().unwrap()),
                "{}",
                self.text
            );
        }
        assert_eq!(self.code, Some(0), "{}", self.text);
    }
}

#[test]
fn a_healthy_machine_has_nothing_to_mend() {
    let report = User::new().examines(&[]);
    report.finds_nothing();
    for check in [
        "configuration",
        "ports",
        "storage",
        "open files",
        "clock",
        "certificates",
        "round trip",
        "clients",
    ] {
        assert!(
            report.findings.iter().any(|finding| finding["check"] == check),
            "{check}: {}",
            report.text
        );
    }
    for trip in [
        "HTTP, MCP 2026-07-28",
        "WebSocket, MCP 2026-07-28",
        "HTTP, MCP 2025-11-25",
        "WebSocket, MCP 2025-11-25",
    ] {
        report.finds("ok", "round trip", &[trip, "answered in"]);
    }
}

#[test]
fn a_healthy_machine_with_a_data_folder_has_nothing_to_mend_and_keeps_it_as_it_is() {
    let user = User::new();
    let folder = user.home.join("data");
    let flag = format!("--data-dir={}", folder.display());
    let report = user.examines(&["--storage=disk", &flag]);
    report.finds_nothing();
    report.finds("ok", "storage", &["the first start creates it"]);
    assert!(!folder.exists());

    let broker = RunningServer::broker(&["--storage=disk", &flag]);
    let report = user.examines(&["--storage=disk", &flag]);
    report.finds("ok", "storage", &["belongs to a running broker"]);
    report.finds_nothing();
    broker.stop();
    let report = user.examines(&["--storage=disk", &flag]);
    report.finds("ok", "storage", &["no process uses it"]);
    report.finds("ok", "storage", &["which this build reads"]);
    report.finds_nothing();
    let names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "only the lock and the records are there: {names:?}");
}

#[test]
fn a_person_gets_a_table_with_the_cure_and_a_summary() {
    let user = User::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let output = user
        .command(env!("CARGO_BIN_EXE_mcp-broker"))
        .args(["doctor", FEW_CONNECTIONS, &format!("--port={port}")])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ports          error    127.0.0.1:"), "{text}");
    assert!(
        text.contains("\n                        to fix it: stop that program"),
        "{text}"
    );
    assert!(text.ends_with("\nFound: errors: 1, warnings: 0.\n"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_place_of_each_value_is_shown_and_no_secret() {
    let user = User::new()
        .sets("MCP_BROKER_ADMIN_KEY", "an-admin-key-of-some-length")
        .sets("MCP_BROKER_REDIS_URL", "redis://ada:hunter2@127.0.0.1:1")
        .sets("MCP_BROKER_API_KEY", "acme_k1_0123456789abcdef0123456789abcdef");
    let file = user.writes("broker.toml", "queue_capacity = 50\nstorage = \"redis\"\n");
    user.writes(
        ".cursor/mcp.json",
        r#"{"mcpServers": {"broker": {"url": "http://127.0.0.1:1/mcp", "headers": {"X-API-Key": "acme_k2_swordfish"}}}}"#,
    );
    let report = user.examines(&["--config", file.to_str().unwrap(), "--log-level=warn"]);
    let place = file.to_str().unwrap();
    report.finds("ok", "configuration", &["queue_capacity = 50", place]);
    report.finds("ok", "configuration", &["log_level = warn", "--log-level"]);
    report.finds("ok", "configuration", &["admin_key = ***", "MCP_BROKER_ADMIN_KEY"]);
    report.finds("note", "clients", &["Cursor", "a key in clear text"]);
    for secret in ["an-admin-key", "hunter2", "0123456789abcdef", "swordfish"] {
        assert!(!report.text.contains(secret), "{secret}: {}", report.text);
    }
}

#[test]
fn a_wrong_command_line_is_told_from_a_fault() {
    let user = User::new();
    for words in [
        &["--wrong"][..],
        &["--url", "nonsense"],
        &["--key-file", "/does/not/exist"],
    ] {
        let output = user
            .command(env!("CARGO_BIN_EXE_mcp-broker"))
            .arg("doctor")
            .args(words)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(
            output.stdout.is_empty() && output.stderr.starts_with(b"error: "),
            "{words:?}"
        );
    }
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doctor").join(name);
    path.to_str().unwrap().to_owned()
}
