//! The fake backend behaves as the tests of the gateway expect.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

struct Fake {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Fake {
    fn start(flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fake-backend"))
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let output = BufReader::new(output);
        Self { child, input, output }
    }

    fn send(&mut self, id: u64, method: &str, params: Value) {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.input, "{request}").unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_first_handshake_locks_the_era() {
    let mut fake = Fake::start(&["--era", "both", "--lock"]);
    fake.send(1, "server/discover", json!({}));
    assert_eq!(fake.read()["result"]["supportedVersions"][0], "2026-07-28");
    fake.send(2, "initialize", json!({}));
    assert_eq!(fake.read()["error"]["code"], -32022);
    fake.send(3, "tools/call", json!({"name": "echo"}));
    assert_eq!(fake.read()["error"]["code"], -32602);

    let mut fake = Fake::start(&["--era", "both", "--lock"]);
    fake.send(1, "initialize", json!({}));
    assert_eq!(fake.read()["result"]["protocolVersion"], "2025-11-25");
    fake.send(2, "server/discover", json!({}));
    assert_eq!(fake.read()["error"]["code"], -32601);
}

#[test]
fn a_call_is_answered_while_another_one_sleeps() {
    let mut fake = Fake::start(&[]);
    fake.send(1, "tools/call", json!({"name": "never"}));
    fake.send(2, "tools/call", json!({"name": "echo", "arguments": {"a": 1}}));
    let answer = fake.read();
    assert_eq!(
        (&answer["id"], &answer["result"]["structuredContent"]["arguments"]["a"]),
        (&json!(2), &json!(1))
    );
}

#[test]
fn lists_come_in_pages() {
    let mut fake = Fake::start(&["--page-size", "30", "--extra-tools", "10"]);
    fake.send(1, "tools/list", json!({}));
    let first = fake.read();
    assert_eq!(first["result"]["tools"].as_array().unwrap().len(), 30);
    fake.send(2, "tools/list", json!({"cursor": first["result"]["nextCursor"]}));
    let second = fake.read();
    assert!(second["result"]["nextCursor"].is_null());
    assert_eq!(
        second["result"]["tools"].as_array().unwrap().last().unwrap()["name"],
        "extra_9"
    );
}
