//! What `mcp-broker setup` writes starts a front that answers.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::home::{Home, Running};

#[test]
fn an_entry_starts_a_front_whose_tools_work() {
    let home = Home::new();
    for words in ["setup claude", "setup claude --name work --instance work"] {
        home.does(words);
    }
    let text = fs::read_to_string(home.path.join(".claude.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    for (name, entry) in file["mcpServers"].as_object().unwrap() {
        let words: Vec<&str> = entry["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap())
            .collect();
        assert_eq!(entry["command"], env!("CARGO_BIN_EXE_mcp-broker"));
        let mut command: Command = home.command("");
        let mut front = Running(
            command
                .args(words)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let mut input = front.0.stdin.take().unwrap();
        let mut output = BufReader::new(front.0.stdout.take().unwrap());
        let mut ask = |id: u64, method: &str, params: Value| -> Value {
            let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            input.write_all(format!("{request}\n").as_bytes()).unwrap();
            loop {
                let mut line = String::new();
                assert!(
                    output.read_line(&mut line).unwrap() > 0,
                    "the front of {name} has ended"
                );
                let frame: Value = serde_json::from_str(&line).unwrap();
                if frame["id"] == id {
                    return frame;
                }
            }
        };
        let client = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        assert!(ask(1, "initialize", hello)["result"]["serverInfo"].is_object());
        let listed = ask(2, "tools/call", json!({"name": "list_sessions", "arguments": {}}));
        assert!(listed["result"]["structuredContent"]["sessions"].is_array(), "{listed}");
    }
    assert_eq!(home.json("local status --instance work --json")["running"], true);
}
