//! `inbox` and `wait`.

use std::{io::Read, process::Stdio};

use serde_json::{Value, json};
use test_client::folder::Folder;

use super::golden::assert_golden;
use super::program::{
    RunningServer, TIMEOUTS_OFF, broker_with, eventually_or, get, objects, post, prepare, program, run, send,
};

fn queue_size(broker: &RunningServer, name: &str) -> Value {
    objects(&run(broker.address, &["sessions", name, "--json"]).succeeds())[0]["queue_size"].clone()
}

#[test]
fn an_inbox_is_shown_without_taking_anything() {
    let broker = broker_with(&["alice", "bob"]);
    assert_eq!(run(broker.address, &["inbox", "bob"]).succeeds(), "no messages wait\n");
    send(broker.address, "alice", "bob", "one");
    send(broker.address, "bob", "alice", "from bob");
    let all = json!({"from": "bob", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "all"}});
    post(broker.address, "/api/v1/messages", &all);
    send(broker.address, "alice", "bob", "two");
    assert_golden("inbox", &run(broker.address, &["inbox", "bob", "--payload"]).succeeds());
    assert_golden(
        "inbox.json",
        &run(broker.address, &["inbox", "bob", "--json"]).succeeds(),
    );
    assert_eq!(queue_size(&broker, "bob"), 2, "looking takes nothing");
    let first = run(broker.address, &["inbox", "bob", "--limit=1"]).succeeds();
    assert!(first.contains("There are more messages"), "{first}");
    assert!(
        run(broker.address, &["inbox", "nemo"])
            .fails_with(1)
            .starts_with("session_not_found")
    );
}

#[test]
fn a_name_that_only_sent_a_message_is_no_agent_that_is_here() {
    let broker = broker_with(&["bob"]);
    for round in 0..2 {
        send(broker.address, "robot", "bob", "done");
        send(broker.address, "bob", "robot", "thanks");
        let shown = objects(&run(broker.address, &["sessions", "robot", "--json"]).succeeds());
        assert_eq!(shown[0]["status"], "disconnected", "{round}");
        let taken = objects(&run(broker.address, &["inbox", "robot", "--take", "--json"]).succeeds());
        assert_eq!(taken[0]["payload"]["text"], "thanks", "{round}");
    }
    // An agent that is here stays so.
    let shown = objects(&run(broker.address, &["sessions", "bob", "--json"]).succeeds());
    assert_eq!(shown[0]["status"], "active");
}

#[test]
fn an_inbox_is_taken_once() {
    let broker = broker_with(&["alice", "bob"]);
    for text in ["one", "two", "three"] {
        send(broker.address, "alice", "bob", text);
    }
    let line = run(broker.address, &["inbox", "bob", "--take"]).fails_with(1);
    assert!(line.contains("bob is active") && line.contains("--force"), "{line}");
    assert_eq!(queue_size(&broker, "bob"), 3, "nothing was taken");
    let taken = run(
        broker.address,
        &["inbox", "bob", "--take", "--force", "--json", "--limit=2"],
    )
    .succeeds();
    let taken = objects(&taken);
    let texts: Vec<_> = taken
        .iter()
        .map(|message| message["payload"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["one", "two"]);
    // The command has left the session, as an agent does.
    assert_golden(
        "inbox-take",
        &run(broker.address, &["inbox", "bob", "--take"]).succeeds(),
    );
    assert_eq!(
        run(broker.address, &["inbox", "bob", "--take"]).succeeds(),
        "no messages wait\n"
    );
    assert_eq!(queue_size(&broker, "bob"), 0);
    let acknowledged = run(broker.address, &["messages", "--status=acknowledged", "--json"]).succeeds();
    assert_eq!(objects(&acknowledged).len(), 3);
}

#[test]
fn messages_are_acknowledged_with_an_outcome() {
    let broker = broker_with(&["alice", "bob"]);
    let take = |words: &[&str]| {
        run(
            broker.address,
            &[&["inbox", "bob", "--force", "--json"], words].concat(),
        )
    };
    let life = |words: &[&str], id: &str| run(broker.address, &[&["messages", id], words].concat()).succeeds();
    let done = send(broker.address, "alice", "bob", "one");
    let taken = take(&["--ack", "--outcome=done", "--note=as you asked"]).succeeds();
    assert_eq!(objects(&taken)[0]["message_id"], *done);
    let told = &objects(&life(&["--json"], &done))[0]["recipients"][0];
    assert_eq!(
        (&told["outcome"], &told["note"]),
        (&json!("done"), &json!("as you asked"))
    );
    let shown = life(&[], &done);
    let last = shown.lines().last().unwrap_or_default();
    assert_eq!(last, "bob        done     as you asked", "{shown}");
    let rejected = send(broker.address, "alice", "bob", "two");
    take(&["--take", "--outcome=rejected"]).succeeds();
    let dead = run(broker.address, &["dead-letters", "--reason=rejected", "--json"]).succeeds();
    assert_eq!(objects(&dead).len(), 1, "{dead}");
    assert_eq!(objects(&dead)[0]["message"]["message_id"], *rejected, "{dead}");
    // The broker takes an outcome for 100 messages at once.
    for _ in 0..101 {
        send(broker.address, "alice", "bob", "many");
    }
    let taken = take(&["--ack", "--outcome=blocked", "--limit=1000"]).succeeds();
    assert_eq!(objects(&taken).len(), 101);
    assert_eq!(queue_size(&broker, "bob"), 0);
    // What cannot be an outcome is refused before a message is taken.
    send(broker.address, "alice", "bob", "last");
    let long = format!("--note={}", "x".repeat(1001));
    for words in [
        &["--ack", "--outcome=lost"][..],
        &["--ack", "--note=alone"],
        &["--ack", "--outcome=done", &long],
    ] {
        take(words).fails_with(2);
    }
    let without = run(broker.address, &["inbox", "bob", "--outcome=done"]).fails_with(2);
    assert!(without.contains("--take"), "{without}");
    assert_eq!(queue_size(&broker, "bob"), 1);
}

#[test]
fn what_cannot_be_printed_is_not_acknowledged() {
    let broker = broker_with(&["alice", "bob"]);
    send(broker.address, "alice", "bob", "precious");
    let mut command = program(broker.address, &["inbox", "bob", "--take", "--force"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    child.wait().unwrap();
    let taken = run(broker.address, &["inbox", "bob", "--take", "--json"]).succeeds();
    assert_eq!(objects(&taken)[0]["payload"]["text"], "precious");
}

#[test]
fn wait_ends_when_a_message_comes() {
    let broker = broker_with(&["alice", "bob"]);
    let mut command = program(broker.address, &["wait", "bob", "--timeout=100s"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Messages to others do not end it.
    send(broker.address, "bob", "alice", "not for bob");
    send(broker.address, "alice", "bob", "hello");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1 message waits for bob\n");
    assert_golden("wait.json", &run(broker.address, &["wait", "bob", "--json"]).succeeds());
    assert_eq!(queue_size(&broker, "bob"), 1, "waiting takes nothing");
}

#[test]
fn wait_ends_with_a_code_of_its_own_after_the_timeout() {
    let broker = broker_with(&["bob"]);
    for timeout in ["--timeout=0s", "--timeout=1s"] {
        let line = run(broker.address, &["wait", "bob", timeout]).fails_with(3);
        assert!(line.starts_with("no message waits for bob after"), "{line}");
    }
    assert!(
        run(broker.address, &["wait", "nemo"])
            .fails_with(1)
            .starts_with("session_not_found")
    );
}

#[test]
fn wait_survives_a_restart_of_the_broker() {
    let folder = Folder::new();
    let data = folder.data_dir();
    let flags = [&TIMEOUTS_OFF[..], &["--storage=disk", &data]].concat();
    let broker = RunningServer::broker(&flags);
    let port = broker.address.port();
    prepare(broker.address, &["alice", "bob"]);
    let mut command = program(broker.address, &["wait", "bob", "--timeout=100s", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let address = broker.address;
    eventually_or(
        || "the command follows the events".to_owned(),
        || {
            let stats = get(address, "/api/v1/stats");
            (stats["connections"]["http"] == 1).then_some(())
        },
    );
    broker.stop();
    assert!(child.try_wait().unwrap().is_none(), "it ended with its broker");
    let broker = RunningServer::broker_at_port(port, &flags);
    send(broker.address, "alice", "bob", "hello");
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(objects(&printed)[0]["queue_size"], 1);
    broker.stop();
}
