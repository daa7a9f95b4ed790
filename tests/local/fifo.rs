//! The pair of FIFOs: what one writes to a file is answered in another.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::PathBuf,
};

use serde_json::{Value, json};
use test_client::folder::Folder;

use super::{
    idle::{IDLE, awaits_an_idle_end},
    places::refusal,
    support::{Agent, Broker, Wire, eventually},
};

/// A broker with a pair of FIFOs.
struct FifoBroker {
    broker: Broker,
    folder: Folder,
}

impl FifoBroker {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(flags: &[&str]) -> Self {
        let folder = Folder::of_broker().unwrap();
        let broker = Broker::start_with(&[&[flag(&folder).as_str()], flags].concat());
        Self { broker, folder }
    }

    /// Opens the FIFO for requests and sends nothing.
    fn writer(&self) -> File {
        OpenOptions::new().write(true).open(self.path("in")).unwrap()
    }

    fn path(&self, which: &str) -> PathBuf {
        self.folder.join(format!("f-{which}"))
    }

    /// Writes as `echo > f-in` does: opens, writes and closes.
    fn echo(&self, text: &str) {
        self.writer().write_all(text.as_bytes()).unwrap();
    }

    /// Reads one line as `head -1 f-out` does, but no byte more: opens, reads and closes.
    fn line(&self) -> Value {
        let file = OpenOptions::new().read(true).open(self.path("out")).unwrap();
        line_of(file)
    }
}

fn flag(folder: &Folder) -> String {
    format!("--local-fifo={}", folder.join("f").display())
}

/// Reads byte by byte, so that the next line stays in the FIFO.
fn line_of(mut file: impl Read) -> Value {
    let (mut line, mut byte) = (Vec::new(), [0]);
    loop {
        file.read_exact(&mut byte).unwrap();
        if byte == *b"\n" {
            return serde_json::from_slice(&line).unwrap();
        }
        line.extend_from_slice(&byte);
    }
}

fn call(id: u32, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string() + "\n"
}

#[test]
fn each_writer_and_each_reader_is_served_one_after_another() {
    let fifo = FifoBroker::start();
    for id in 1..=2 {
        fifo.echo(&call(id, "list_sessions", &json!({})));
        let answer = fifo.line();
        assert_eq!(
            (&answer["id"], &answer["result"]["isError"]),
            (&json!(id), &json!(false)),
            "{answer}"
        );
    }
    fifo.echo(&(call(3, "list_sessions", &json!({})) + &call(4, "list_sessions", &json!({}))));
    assert_eq!(fifo.line()["id"], 3);
    assert_eq!(fifo.line()["id"], 4);
}

#[test]
fn a_client_that_initializes_follows_the_one_before() {
    let fifo = FifoBroker::start();
    let initialize = |id: u32| {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "a test", "version": "1"}});
        json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params}).to_string() + "\n"
    };
    fifo.echo(&(initialize(1) + &call(2, "register_session", &json!({"name": "first"}))));
    assert_eq!(fifo.line()["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(fifo.line()["result"]["structuredContent"]["name"], "first");
    // What the first client has sent is answered before the second one begins.
    let wait = call(3, "receive_messages", &json!({"wait_seconds": 100}));
    fifo.echo(&(wait + &initialize(4) + &call(5, "register_session", &json!({"name": "second"}))));
    assert_eq!(fifo.line()["id"], 3);
    assert_eq!(fifo.line()["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(fifo.line()["result"]["structuredContent"]["name"], "second");
}

#[test]
fn the_pair_serves_on_when_the_session_of_its_client_is_taken_over() {
    let folder = Folder::of_broker().unwrap();
    let socket = format!("--local-socket={}", folder.socket().display());
    let broker = Broker::start_with(&[&socket, &flag(&folder), "--local-connections-max=1"]);
    let fifo = FifoBroker { broker, folder };
    fifo.echo(&call(1, "register_session", &json!({"name": "bob"})));
    assert_eq!(fifo.line()["id"], 1);
    // The pair takes no place among the connections of the socket.
    let bob = Agent::legacy(Wire::open_local(&fifo.folder.socket()), "2025-11-25", &json!({})).registered("bob");
    assert_eq!(fifo.line()["params"]["code"], 4001);
    fifo.echo(&call(2, "list_sessions", &json!({})));
    assert_eq!(fifo.line()["id"], 2);
    bob.syncs();
}

#[test]
fn a_megabyte_reaches_a_slow_reader_whole() {
    let fifo = FifoBroker::start();
    let text = "z".repeat(1024 * 1024);
    let alice = fifo.broker.agent("alice");
    fifo.echo(&call(1, "register_session", &json!({"name": "bob"})));
    let bob = fifo.line()["result"]["structuredContent"]["session_id"].clone();
    alice.sends(&text).to(bob.as_str().unwrap());
    fifo.echo(&(call(2, "receive_messages", &json!({})) + &call(3, "list_sessions", &json!({}))));
    alice.wire.syncs();
    let answers = OpenOptions::new().read(true).open(fifo.path("out")).unwrap();
    let mut answers = BufReader::with_capacity(701, answers);
    let mut next = || {
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    // The answers to independent calls may overtake each other.
    let mut both = [next(), next()];
    both.sort_by_key(|answer| answer["id"].as_u64());
    let text_of = |answer: &Value| answer["result"]["structuredContent"]["messages"][0]["payload"]["text"].clone();
    assert!(text_of(&both[0]) == text.as_str());
    assert_eq!(both[1]["id"], 3);
}

#[test]
fn the_pair_is_private_and_removed_at_the_end() {
    let mut fifo = FifoBroker::start();
    for which in ["in", "out"] {
        let file = fs::symlink_metadata(fifo.path(which)).unwrap();
        assert!(file.file_type().is_fifo());
        assert_eq!(file.mode() & 0o7777, 0o600);
    }
    let text = refusal(&[&flag(&fifo.folder)]);
    assert!(text.contains("is used by another program"), "{text}");
    fifo.echo(&call(1, "list_sessions", &json!({})));
    assert_eq!(fifo.line()["id"], 1, "the refused broker changed nothing");
    fifo.broker.kill();
    assert_eq!(fifo.folder.names().len(), 2, "a killed broker leaves them");
    fifo.broker = Broker::start_with(&[&flag(&fifo.folder)]);
    fifo.echo(&call(2, "list_sessions", &json!({})));
    assert_eq!(fifo.line()["id"], 2);
    fifo.broker.terminate();
    assert!(fifo.broker.wait_for_exit().success());
    eventually("both are removed", || fifo.folder.names().is_empty().then_some(()));
}

#[test]
fn a_pair_without_a_program_that_writes_does_not_keep_its_broker() {
    let mut fifo = FifoBroker::start_with(&[IDLE]);
    fifo.echo(&call(1, "register_session", &json!({"name": "bob"})));
    assert_eq!(fifo.line()["id"], 1);
    assert!(fifo.broker.wait_for_exit().success());
    assert_eq!(fifo.folder.names(), [""; 0]);
    // Nor does one that was never used.
    let mut fifo = FifoBroker::start_with(&[IDLE]);
    assert!(fifo.broker.wait_for_exit().success());
}

#[test]
fn a_pair_keeps_its_broker_while_a_program_writes_or_an_answer_is_awaited() {
    let mut fifo = FifoBroker::start_with(&[IDLE]);
    let mut silent = fifo.writer();
    for _ in 0..2 {
        awaits_an_idle_end();
        assert_eq!(fifo.broker.get("/livez").status, 200);
    }
    // A look at the writers takes none of their bytes, and ends no session.
    silent
        .write_all(call(1, "register_session", &json!({"name": "bob"})).as_bytes())
        .unwrap();
    assert_eq!(fifo.line()["id"], 1);
    let wait = call(2, "receive_messages", &json!({"wait_seconds": 100}));
    silent.write_all(wait.as_bytes()).unwrap();
    drop(silent);
    for _ in 0..2 {
        awaits_an_idle_end();
        assert_eq!(fifo.broker.get("/livez").status, 200);
    }
    fifo.echo(&call(3, "list_sessions", &json!({})));
    let answer = fifo.line();
    assert_eq!(
        (
            &answer["id"],
            &answer["result"]["structuredContent"]["sessions"][0]["name"]
        ),
        (&json!(3), &json!("bob")),
        "{answer}"
    );
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    fifo.echo(&format!("{cancel}\n"));
    assert!(fifo.broker.wait_for_exit().success());
}
