//! `tail`, and output whose reader goes away.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};
use test_client::folder::Folder;

use super::golden::assert_golden;
use super::program::{RunningServer, TIMEOUTS_OFF, broker_with, objects, post, prepare, program, run, send, tool};

/// The id of an event of another log. A stream behind it begins with a gap, which shows that it is open.
const ELSEWHERE: &str = "--after=abc-1-1";

/// A running `tail`.
struct Tail {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Tail {
    /// Starts it and waits until its stream is open.
    fn start(address: SocketAddr, words: &[&str]) -> Self {
        let mut command = program(address, &[&["tail", "--json", ELSEWHERE], words].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut tail = Self { child, lines };
        assert_eq!(tail.next()["topic"], "gap");
        tail
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Waits for an accepted message with this correlation id, and returns its event.
    fn awaits(&mut self, correlation_id: &str) -> Value {
        loop {
            let event = self.next();
            if event["data"]["message"]["headers"]["correlation_id"] == correlation_id {
                return event;
            }
        }
    }

    fn ends(mut self) -> String {
        let _ = self.child.kill();
        let mut printed = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
        let _ = self.child.wait();
        printed
    }
}

fn marked(address: SocketAddr, mark: &str) {
    let message = json!({
        "from": "alice", "recipient_id": "bob", "protocol_name": "note", "protocol_version": "1.0.0",
        "payload": {"text": "x"}, "headers": {"correlation_id": mark},
    });
    post(address, "/api/v1/messages", &message);
}

#[test]
fn events_are_printed_as_they_happen() {
    let broker = broker_with(&["alice", "bob"]);
    let mut first = Tail::start(broker.address, &["--topics=message"]);
    marked(broker.address, "begin");
    let begun = first.awaits("begin")["id"].as_str().unwrap().to_owned();
    first.ends();
    tool(broker.address, "register_session", &json!({"name": "carol"}));
    let sent = send(broker.address, "alice", "carol", "hello");
    let after = format!("--after={begun}");
    let events = run(
        broker.address,
        &["tail", "--json", "--limit=2", &after, "--topics=session,message"],
    )
    .succeeds();
    let events = objects(&events);
    assert_eq!(events.len(), 2);
    let accepted = events
        .iter()
        .find(|event| event["data"]["message"]["message_id"] == sent.as_str());
    let accepted = accepted.unwrap_or_else(|| panic!("{events:?}"));
    assert_eq!(accepted["data"]["message"].get("payload"), None);
    let lines = run(
        broker.address,
        &["tail", "--limit=2", &after, "--topics=session,message"],
    )
    .succeeds();
    assert_golden("tail", &lines);
    let line = run(broker.address, &["tail", "--topics=weather"]).fails_with(1);
    assert!(line.starts_with("invalid_argument"), "{line}");
}

#[test]
fn a_tail_goes_on_where_its_broker_went_down() {
    let folder = Folder::new();
    let data = folder.data_dir();
    let flags = [&TIMEOUTS_OFF[..], &["--storage=disk", &data]].concat();
    let broker = RunningServer::broker(&flags);
    let port = broker.address.port();
    prepare(broker.address, &["alice", "bob"]);
    let mut tail = Tail::start(broker.address, &[]);
    marked(broker.address, "first");
    tail.awaits("first");
    let address = broker.address;
    broker.stop();
    let broker = RunningServer::broker_at_port(port, &flags);
    marked(address, "second");
    tail.awaits("second");
    let printed = tail.ends();
    assert!(
        printed.contains("connecting again") && printed.contains("connected again"),
        "{printed}"
    );
    broker.stop();
}

#[test]
fn a_gap_is_told() {
    let broker = broker_with(&["alice", "bob"]);
    // An event of another log: what came between is not known.
    let event = run(broker.address, &["tail", "--json", "--limit=1", "--after=abc-1-1"]).succeeds();
    let event = &objects(&event)[0];
    assert_eq!(
        (&event["topic"], &event["data"]),
        (&json!("gap"), &json!({"dropped": null}))
    );
    let line = run(broker.address, &["tail", "--limit=1", "--after=abc-1-1"]).succeeds();
    assert!(line.contains("gap") && line.contains("events are missing"), "{line}");
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let broker = broker_with(&["alice", "bob"]);
    for at in 0..50 {
        send(broker.address, "alice", "bob", &at.to_string());
    }
    let binary = env!("CARGO_BIN_EXE_mcp-broker");
    for words in [
        "sessions",
        "sessions --json",
        "messages",
        "messages --json --payload",
        "inbox bob",
        "inbox bob --json",
        "protocols --json",
        "dead-letters",
        "completions bash",
        "--help",
    ] {
        let script = format!("set -o pipefail; '{binary}' {words} | head -n 1 >/dev/null");
        let output = Command::new("bash")
            .args(["-c", &script])
            .env("MCP_BROKER_URL", format!("http://{}", broker.address))
            .output()
            .unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{words}: {output:?}"
        );
    }
}

#[test]
fn a_tail_ends_when_its_reader_has_gone() {
    let broker = RunningServer::broker(&["--heartbeat-interval=100ms"]);
    prepare(broker.address, &["alice", "bob"]);
    let mut tail = Tail::start(broker.address, &[]);
    marked(broker.address, "first");
    tail.awaits("first");
    let Tail { mut child, lines } = tail;
    drop(lines);
    // Nothing happens any longer: the heartbeats of the broker let it look.
    let status = child.wait().unwrap();
    let mut printed = String::new();
    child.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!((status.code(), printed.as_str()), (Some(0), ""));
}
