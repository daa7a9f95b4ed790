//! The configuration files of MCP clients, found by the doctor; the entries are those that `config` prints.

use test_client::{process::RunningServer, wait::free_port};

use super::User;

/// The clients, and the file of each below the home folder.
const CLIENTS: [(&str, &str, &str, &str); 9] = [
    ("claude", "Claude Code", "project/.mcp.json", "--json"),
    ("cursor", "Cursor", ".cursor/mcp.json", "--json"),
    ("vscode", "VS Code", "project/.vscode/mcp.json", "--json"),
    ("codex", "Codex", ".codex/config.toml", "--toml"),
    ("gemini", "Gemini CLI", ".gemini/settings.json", "--json"),
    ("copilot", "Copilot CLI", ".copilot/mcp-config.json", "--json"),
    ("opencode", "opencode", ".config/opencode/opencode.json", "--json"),
    ("windsurf", "Windsurf", ".codeium/windsurf/mcp_config.json", "--json"),
    ("zed", "Zed", ".config/zed/settings.json", "--json"),
];

/// The clients whose file can refer to a variable.
fn with_variables() -> impl Iterator<Item = (&'static str, &'static str, &'static str, &'static str)> {
    let has = |client: &str| !matches!(client, "vscode" | "copilot" | "zed");
    CLIENTS.into_iter().filter(move |(client, ..)| has(client))
}

/// What `mcp-broker config` prints for the file of a client.
fn entry(user: &User, words: &[&str]) -> String {
    let output = user
        .command(env!("CARGO_BIN_EXE_mcp-broker"))
        .arg("config")
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_entries_that_config_prints_lead_to_the_broker() {
    let (broker, user) = (RunningServer::broker(&[]), User::new());
    let url = format!("http://{}", broker.address);
    for (client, _, file, format) in CLIENTS {
        user.writes(file, &entry(&user, &[client, "--url", &url, format]));
    }
    let report = user.examines_port(broker.address.port(), &[]);
    report.finds_nothing();
    for (_, label, file, _) in CLIENTS {
        let words = [label, file, "where a broker answers"];
        report.finds("ok", "clients", &words);
    }
}

#[test]
fn an_entry_that_leads_to_a_broker_that_is_gone_is_found() {
    let user = User::new();
    let url = format!("http://127.0.0.1:{}", free_port());
    for (client, _, file, format) in CLIENTS {
        user.writes(file, &entry(&user, &[client, "--url", &url, format]));
    }
    let report = user.examines(&[]);
    for (_, label, _, _) in CLIENTS {
        report.finds("warning", "clients", &[label, "where no broker answers"]);
    }
}

#[test]
fn a_broken_file_is_found_and_not_quoted() {
    let user = User::new();
    user.writes(
        "project/.mcp.json",
        "{\n  \"mcpServers\": {\"broker\": {\"key\": \"hunter2\"},\n}",
    );
    user.writes(".codex/config.toml", "[mcp_servers.broker\nkey = \"hunter2\"\n");
    let report = user.examines(&[]);
    report.finds(
        "error",
        "clients",
        &["Claude Code", ".mcp.json", "not valid JSON at line 3"],
    );
    report.finds("error", "clients", &["Codex", "not valid TOML at line 1"]);
    assert!(!report.text.contains("hunter2"), "{}", report.text);
}

#[test]
fn a_key_that_is_not_set_is_found() {
    let (broker, user) = (RunningServer::broker(&[]), User::new());
    let url = format!("http://{}", broker.address);
    for (client, _, file, format) in with_variables() {
        user.writes(
            file,
            &entry(&user, &[client, "--url", &url, "--key-env", "TEAM_KEY", format]),
        );
    }
    let port = broker.address.port();
    let report = user.examines_port(port, &[]);
    for (_, label, ..) in with_variables() {
        report.finds(
            "warning",
            "clients",
            &[label, "the variable TEAM_KEY, which is not set"],
        );
    }
    user.sets("TEAM_KEY", "secret").examines_port(port, &[]).finds_nothing();
}

#[test]
fn an_entry_that_starts_a_missing_program_is_found() {
    let user = User::new();
    user.writes(
        ".cursor/mcp.json",
        r#"{"mcpServers": {"local": {"command": "/nowhere/mcp-broker", "args": ["connect"]}, "other": {"command": "npx"}}}"#,
    );
    let report = user.examines(&[]);
    report.finds(
        "error",
        "clients",
        &["the entry local", "/nowhere/mcp-broker, which is not found"],
    );
    assert!(!report.text.contains("npx"), "{}", report.text);
}

#[test]
fn an_entry_for_the_own_broker_is_checked() {
    let user = User::new();
    for (client, ..) in CLIENTS {
        user.sets_up(client);
    }
    user.sets_up("claude-desktop");
    let report = user.examines(&[]);
    report.finds_nothing();
    for label in CLIENTS.iter().map(|(_, label, ..)| *label).chain(["Claude Desktop"]) {
        report.finds("ok", "clients", &[label, "starts", "mcp-broker"]);
    }
    let program = env!("CARGO_BIN_EXE_mcp-broker");
    user.writes(
        ".cursor/mcp.json",
        &format!(r#"{{"mcpServers": {{"broker": {{"command": "{program}", "args": ["serve"]}}}}}}"#),
    );
    let report = user.examines(&[]);
    report.finds("error", "clients", &["Cursor", "without the word connect"]);
}

#[test]
fn a_client_without_an_entry_is_told_how_to_get_one() {
    let user = User::new();
    user.writes(".gemini/settings.json", "{\"theme\": \"dark\"}");
    let report = user.examines(&[]);
    let finding = report.finds("note", "clients", &["Gemini CLI", "has no entry for a broker"]);
    assert!(
        finding["cure"].as_str().unwrap().contains("mcp-broker setup gemini"),
        "{finding}"
    );
    report.finds_nothing();
}
