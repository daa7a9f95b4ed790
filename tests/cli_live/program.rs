//! Runs of the program, and brokers for them.

use std::{
    io::Write,
    net::SocketAddr,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use test_client::{http::Request, mcp};
pub use test_client::{
    process::RunningServer,
    wait::{TIMEOUTS_OFF, eventually_or},
};

/// A broker in which no timer fires, with the protocol `note` 1.0.0 and sessions of these names.
pub fn broker_with(names: &[&str]) -> RunningServer {
    let broker = RunningServer::broker(&TIMEOUTS_OFF);
    prepare(broker.address, names);
    broker
}

/// Registers the protocol `note` and sessions of these names.
pub fn prepare(address: SocketAddr, names: &[&str]) {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let metadata = json!({"description": "a short text", "tags": ["test"]});
    let note = json!({"name": "note", "version": "1.0.0", "schema": schema, "metadata": metadata});
    post(address, "/api/v1/protocols", &note);
    for name in names {
        tool(address, "register_session", &json!({"name": name}));
    }
}

/// Calls a tool as a stateless client and returns its object.
pub fn tool(address: SocketAddr, tool: &str, arguments: &Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    let answer = mcp::modern(&json!(1), "tools/call", params).ask(address).unwrap();
    let answer = answer.message();
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    answer["result"]["structuredContent"].clone()
}

pub fn get(address: SocketAddr, path: &str) -> Value {
    rest(address, &Request::get(path))
}

pub fn post(address: SocketAddr, path: &str, body: &Value) -> Value {
    let mut request = Request::with_json("POST", path, body);
    // With blanks between the members, which a payload keeps.
    request.body = serde_json::to_vec_pretty(body).unwrap();
    rest(address, &request)
}

pub fn delete(address: SocketAddr, path: &str) -> Value {
    rest(address, &Request::new("DELETE", path, &[], ""))
}

fn rest(address: SocketAddr, request: &Request) -> Value {
    let answer = request.ask(address).unwrap();
    assert!(answer.status < 300, "{answer:?}");
    answer.json()
}

/// A note to send.
pub fn note(from: &str, to: &str, text: &str) -> Value {
    json!({"from": from, "recipient_id": to, "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": text}})
}

/// Sends a note and returns the id of the message.
pub fn send(address: SocketAddr, from: &str, to: &str, text: &str) -> String {
    let sent = post(address, "/api/v1/messages", &note(from, to, text));
    sent["message_id"].as_str().unwrap().to_owned()
}

/// The program with an empty environment but for the address of the broker.
pub fn program(address: SocketAddr, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-broker"));
    command
        .env_clear()
        .env("MCP_BROKER_URL", format!("http://{address}"))
        .env("TZ", "UTC")
        .args(words)
        .stdin(Stdio::null());
    command
}

/// What a run printed, and how it ended.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        Self {
            code: output.status.code(),
            stdout,
            stderr,
        }
    }

    /// The output of a run that succeeded.
    pub fn succeeds(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// The error line of a run that ended with this code.
    pub fn fails_with(self, code: i32) -> String {
        assert_eq!((self.code, self.stderr.lines().count()), (Some(code), 1), "{self:?}");
        let line = self.stderr.strip_prefix("error: ");
        line.unwrap_or_else(|| panic!("{self:?}")).trim_end().to_owned()
    }
}

/// Runs the program to its end.
pub fn run(address: SocketAddr, words: &[&str]) -> Run {
    Run::of(&mut program(address, words))
}

/// Runs the program with this text on stdin.
pub fn run_with_input(address: SocketAddr, words: &[&str], input: &str) -> Run {
    let mut child = program(address, words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Run {
        code: output.status.code(),
        stdout,
        stderr,
    }
}

/// The JSON objects of an output, one a line.
pub fn objects(text: &str) -> Vec<Value> {
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    lines.collect()
}
