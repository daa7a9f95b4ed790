//! `mcp-broker config CLIENT` and `mcp-broker setup CLIENT`: what they print is pinned by golden files, parses, and
//! connects; what `setup` does to files.
//!
//! `UPDATE_GOLDEN=1` writes the golden files.

mod hooks;
mod setup;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use test_client::{golden::assert_golden, process::RunningServer};

/// All clients, and the pointer to an entry in the file of each.
const CLIENTS: [(&str, &str); 10] = [
    ("claude", "/mcpServers/broker"),
    ("cursor", "/mcpServers/broker"),
    ("vscode", "/servers/broker"),
    ("codex", "/mcp_servers/broker"),
    ("gemini", "/mcpServers/broker"),
    ("copilot", "/mcpServers/broker"),
    ("opencode", "/mcp/broker"),
    ("windsurf", "/mcpServers/broker"),
    ("zed", "/context_servers/broker"),
    ("claude-desktop", "/mcpServers/broker"),
];
/// Clients whose file cannot refer to a variable.
const WITHOUT_VARIABLES: [&str; 3] = ["copilot", "zed", "claude-desktop"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mcp-broker"))
        .env_clear()
        .arg("config")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn printed(words: &[&str]) -> String {
    let output = run(words);
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn refused(words: &[&str]) -> String {
    let output = run(words);
    assert_eq!(output.status.code(), Some(2), "{words:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

fn format_of(client: &str) -> &'static str {
    if client == "codex" { "--toml" } else { "--json" }
}

/// The file that a client would read, parsed.
fn entry(client: &str, words: &[&str]) -> Value {
    let text = printed(&[&[client, format_of(client)][..], words].concat());
    match client {
        "codex" => toml::from_str(&text).unwrap(),
        _ => serde_json::from_str(&text).unwrap(),
    }
}

fn golden(name: &str, text: &str) {
    // The program of this test is not on the PATH.
    let text = text.replace(env!("CARGO_BIN_EXE_mcp-broker"), "/opt/mcp-broker");
    let path = root().join("tests/config_entry/golden").join(name);
    assert_golden(&path, &text);
}

#[test]
fn every_client_gets_its_entry_and_is_told_where_to_put_it() {
    for (client, _) in CLIENTS {
        golden(&format!("{client}.txt"), &printed(&[client]));
        let with_url = [client, "--url", "http://127.0.0.1:8000"];
        golden(&format!("{client}-with-url.txt"), &printed(&with_url));
        let url = "https://ops.example.com/broker/";
        let with_key = [client, "--url", url, "--name", "team", "--key-env", "TEAM_KEY"];
        if WITHOUT_VARIABLES.contains(&client) {
            assert!(refused(&with_key).contains("cannot refer to a variable"));
        } else {
            golden(&format!("{client}-with-key.txt"), &printed(&with_key));
        }
    }
}

#[test]
fn every_entry_parses_and_has_the_url() {
    for (client, pointer) in CLIENTS.into_iter().filter(|(client, _)| *client != "claude-desktop") {
        let member = match client {
            "gemini" => "httpUrl",
            "windsurf" => "serverUrl",
            _ => "url",
        };
        for words in [&["--url", "http://127.0.0.1:8000"][..], &["--key-env"]] {
            let has_key = words == ["--key-env"];
            if has_key && WITHOUT_VARIABLES.contains(&client) {
                continue;
            }
            let file = entry(client, words);
            let url = &file.pointer(pointer).unwrap()[member];
            assert_eq!(url, "http://127.0.0.1:8000/mcp", "{client}");
            assert_eq!(
                file.to_string().contains("MCP_BROKER_API_KEY"),
                has_key && client != "vscode",
                "{file}"
            );
        }
    }
}

#[test]
fn every_entry_for_the_own_broker_starts_the_front() {
    for (client, pointer) in CLIENTS {
        let file = entry(client, &["--instance", "dev/shop"]);
        let entry = file.pointer(pointer).unwrap();
        let words: Vec<&str> = match &entry["command"] {
            Value::Array(words) => words.iter().map(|word| word.as_str().unwrap()).collect(),
            program => {
                let args = entry["args"].as_array().unwrap().iter();
                std::iter::once(program)
                    .chain(args)
                    .map(|word| word.as_str().unwrap())
                    .collect()
            }
        };
        let expected = [
            env!("CARGO_BIN_EXE_mcp-broker"),
            "connect",
            "--auto-name",
            "--instance",
            "dev/shop",
        ];
        assert_eq!(words, expected, "{client}");
    }
}

#[test]
fn the_address_comes_from_the_flag_or_the_variable() {
    let output = Command::new(env!("CARGO_BIN_EXE_mcp-broker"))
        .env_clear()
        .env("MCP_BROKER_URL", "http://10.0.0.1:80/")
        .env("MCP_BROKER_API_KEY", "acme_k1_swordfish")
        .args(["config", "cursor", "--key-env"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("\"http://10.0.0.1:80/mcp\"") && !text.contains("swordfish"),
        "{text}"
    );
    assert!(printed(&["cursor", "--url", "http://[::1]:1"]).contains("http://[::1]:1/mcp"));
}

#[test]
fn a_wrong_argument_says_what_is_allowed() {
    assert!(
        refused(&["emacs"]).contains(
            "allowed: claude, cursor, vscode, codex, gemini, copilot, opencode, windsurf, zed, claude-desktop"
        )
    );
    assert!(refused(&["claude", "--url", "nonsense"]).contains("is not allowed"));
    assert!(refused(&["claude", "--name", "two words"]).contains("1 to 32 letters, digits, - and _"));
    assert!(refused(&["claude", "--key-env", "$(id)"]).contains("the name of an environment variable"));
    assert!(refused(&["claude", "--toml"]).contains("use --json"));
    assert!(refused(&["codex", "--json"]).contains("use --toml"));
    assert!(refused(&["codex", "--instance", "Two Words"]).contains("a name of 1 to 32 characters"));
    assert!(refused(&["codex", "--instance", "x", "--url", "http://a"]).contains("--url"));
}

/// The commands that a shell would run are single lines whose words are as they should be.
#[test]
fn a_command_line_is_safe_in_a_shell() {
    let text = printed(&["claude", "--url", "http://127.0.0.1:1/a;id"]);
    let line = text.lines().find(|line| line.contains("claude mcp add")).unwrap();
    let output = Command::new("bash")
        .args(["-c", &line.replace("claude mcp add", "printf '%s\\n'")])
        .output()
        .unwrap();
    let words = String::from_utf8(output.stdout).unwrap();
    assert!(
        words.lines().any(|word| word == "http://127.0.0.1:1/a;id/mcp"),
        "{words}"
    );
}

/// A client that reads the same form as Claude Code and Cursor connects with what is printed for them.
#[test]
#[ignore = "needs FastMCP: scripts/test installs it"]
fn a_client_connects_with_the_printed_entry() {
    let python = root().join("target/clients/python-v2/bin/python");
    assert!(python.exists(), "FastMCP is not installed: run scripts/test");
    let broker = RunningServer::broker(&[]);
    let url = format!("http://{}", broker.address);
    for client in ["claude", "cursor"] {
        let output = Command::new(&python)
            .arg(script())
            .arg(printed(&[client, "--json", "--url", &url]))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains("send_message"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn script() -> PathBuf {
    root().join("tests/config_entry/connect.py")
}
