//! `send`.

use std::{fs, path::PathBuf};

use serde_json::json;

use super::golden::assert_golden;
use super::program::{broker_with, objects, run, run_with_input, tool};

const NOTE: [&str; 3] = ["send", "--protocol=note", "--version=1.0.0"];

#[test]
fn a_message_is_sent_to_one_or_to_all() {
    let broker = broker_with(&["bob", "carol"]);
    let send = |words: &[&str]| run(broker.address, &[&NOTE, words].concat());
    assert_golden(
        "send",
        &send(&["--from=alice", "--to=bob", r#"{"text": "hi"}"#]).succeeds(),
    );
    assert_golden(
        "send.json",
        &send(&["--from=alice", "--to=bob", "--json", r#"{"text": "hi"}"#]).succeeds(),
    );
    assert_golden(
        "broadcast",
        &send(&["--from=alice", "--broadcast", r#"{"text": "hi"}"#]).succeeds(),
    );
    let line = send(&["--from=alice", "--to=bbo", r#"{"text": "hi"}"#]).fails_with(1);
    assert_eq!(
        line,
        "session_not_found: no session \"bbo\", did you mean \"bob\"?; mcp-broker sessions --status all lists the \
         sessions; --keep keeps a message for one that is still to come"
    );
    send(&["--from=alice", "--to=nemo", "--keep", r#"{"text": "hi"}"#]).succeeds();
    let kept = objects(&run(broker.address, &["inbox", "nemo", "--take", "--json"]).succeeds());
    assert_eq!(kept[0]["payload"]["text"], "hi");
    let line = send(&["--from=alice", "--to=bob", r#"{"text": 5}"#]).fails_with(1);
    assert!(
        line.starts_with("payload_invalid: ") && line.contains("/text ") && line.contains("string"),
        "{line}"
    );
    let unregistered = [
        "send",
        "--protocol=chat",
        "--version=1.0.0",
        "--from=alice",
        "--to=bob",
        "{}",
    ];
    let line = run(broker.address, &unregistered).fails_with(1);
    assert!(
        line.ends_with("; mcp-broker protocols lists the protocols, mcp-broker protocols register FILE adds one"),
        "{line}"
    );
}

#[test]
fn a_message_without_a_protocol_is_a_text() {
    let broker = broker_with(&["bob"]);
    let send = |words: &[&str]| run(broker.address, &[&["send", "--to=bob"], words].concat());
    send(&["hello"]).succeeds();
    send(&["--from=alice", r#"{"text": "an object", "mood": "fine"}"#]).succeeds();
    run_with_input(broker.address, &["send", "--to=bob", "-"], "two\nlines\n").succeeds();
    run(broker.address, &["send", "--broadcast", "to all"]).succeeds();
    let waiting = objects(&run(broker.address, &["inbox", "bob", "--json", "--payload"]).succeeds());
    let payloads: Vec<_> = waiting.iter().map(|message| &message["payload"]).collect();
    let expected = [
        json!({"text": "hello"}),
        json!({"text": "an object", "mood": "fine"}),
        json!({"text": "two\nlines"}),
        json!({"text": "to all"}),
    ];
    assert_eq!(payloads, expected.iter().collect::<Vec<_>>());
    assert!(waiting.iter().all(|message| message["protocol_name"] == "text"));
    // The environment of these runs names no user.
    let senders: Vec<_> = waiting
        .iter()
        .map(|message| message["sender_name"].as_str().unwrap())
        .collect();
    assert_eq!(senders, ["human", "alice", "human", "human"]);
    let line = send(&["--protocol=note", "hello"]).fails_with(2);
    assert!(line.contains("--version"), "{line}");
    let line = send(&["--version=1.0.0", "hello"]).fails_with(2);
    assert!(line.contains("--protocol"), "{line}");
}

#[test]
fn a_payload_comes_from_the_command_line_a_file_or_stdin() {
    let broker = broker_with(&["bob"]);
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("payload-{}.json", std::process::id()));
    fs::write(&file, r#"{"text": "from a file"}"#).unwrap();
    let from_file = format!("@{}", file.display());
    let words = [&NOTE[..], &["--from=alice", "--to=bob", &from_file]].concat();
    run(broker.address, &words).succeeds();
    fs::remove_file(file).unwrap();
    let words = [&NOTE[..], &["--from=alice", "--to=bob", "-"]].concat();
    run_with_input(broker.address, &words, "{\"text\": \"from stdin\"}\n").succeeds();
    assert!(
        run_with_input(broker.address, &words, "")
            .fails_with(2)
            .starts_with("stdin is not a JSON object")
    );
    assert!(
        run(
            broker.address,
            &[&NOTE[..], &["--from=a", "--to=bob", "@/nowhere"]].concat()
        )
        .fails_with(1)
        .contains("cannot be read")
    );
    let waiting = objects(&run(broker.address, &["inbox", "bob", "--json", "--payload"]).succeeds());
    let texts: Vec<_> = waiting
        .iter()
        .map(|message| message["payload"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["from a file", "from stdin"]);
}

#[test]
fn headers_and_idempotency_keys_are_sent() {
    let broker = broker_with(&["bob"]);
    let words = [
        &NOTE[..],
        &[
            "--from=alice",
            "--to=bob",
            "--priority=urgent",
            "--ttl=3600",
            "--thread=deploy-7",
            "--subject=The deploy",
            "--correlation-id=q1",
            "--reply-to=alice",
            "--idempotency-key=once",
            "--json",
            r#"{"text": "hi"}"#,
        ],
    ]
    .concat();
    let first = objects(&run(broker.address, &words).succeeds());
    let again = objects(&run(broker.address, &words).succeeds());
    assert_eq!(first[0]["message_id"], again[0]["message_id"], "a repeat sends nothing");
    let waiting = objects(&run(broker.address, &["inbox", "bob", "--json"]).succeeds());
    assert_eq!(waiting.len(), 1);
    let headers = &waiting[0]["headers"];
    assert_eq!(
        (&headers["priority"], &headers["ttl_seconds"]),
        (&json!("urgent"), &json!(3600))
    );
    assert_eq!(
        (&headers["correlation_id"], &headers["reply_to"]),
        (&json!("q1"), &json!("alice"))
    );
    assert_eq!(
        (&headers["thread_id"], &headers["subject"]),
        (&json!("deploy-7"), &json!("The deploy"))
    );
}

#[test]
fn the_exit_code_says_whether_a_status_was_reached() {
    let broker = broker_with(&["bob"]);
    let words = [
        &NOTE[..],
        &[
            "--from=alice",
            "--to=bob",
            "--wait",
            "--timeout=0s",
            r#"{"text": "hi"}"#,
        ],
    ]
    .concat();
    let waited = run(broker.address, &words);
    assert!(waited.stdout.contains("queued"), "{waited:?}");
    let line = waited.fails_with(3);
    assert!(line.contains("not acknowledged after 0 s"), "{line}");
    let bob = tool(broker.address, "register_session", &json!({"name": "bob"}));
    let address = broker.address;
    let receiver = std::thread::spawn(move || {
        let take = json!({"session_id": bob["session_id"], "acknowledge": "immediate", "wait_seconds": 100});
        // The first call takes what waits already, the second waits for the next message.
        tool(address, "receive_messages", &take);
        tool(address, "receive_messages", &take)
    });
    let words = [
        &NOTE[..],
        &[
            "--from=alice",
            "--to=bob",
            "--wait=delivered",
            "--timeout=100s",
            r#"{"text": "hi"}"#,
        ],
    ]
    .concat();
    run(broker.address, &words).succeeds();
    receiver.join().unwrap();
    let bob = tool(broker.address, "register_session", &json!({"name": "bob"}));
    let receiver = std::thread::spawn(move || {
        let take = json!({"session_id": bob["session_id"], "acknowledge": "manual", "wait_seconds": 100});
        let received = tool(address, "receive_messages", &take);
        let conclude = json!({
            "session_id": bob["session_id"], "message_ids": [received["messages"][0]["message_id"]],
            "outcome": "blocked", "note": "no access",
        });
        tool(address, "acknowledge_messages", &conclude);
    });
    let words = [
        &NOTE[..],
        &[
            "--from=alice",
            "--to=bob",
            "--wait",
            "--timeout=100s",
            r#"{"text": "hi"}"#,
        ],
    ]
    .concat();
    let answered = run(broker.address, &words).succeeds();
    receiver.join().unwrap();
    assert!(
        answered.contains("outcome        blocked") && answered.contains("note           no access"),
        "{answered}"
    );
    let words = [&NOTE[..], &["--from=a", "--to=bob", "--wait", "--timeout=111s", "{}"]].concat();
    assert!(run(broker.address, &words).fails_with(2).contains("110s"));
}
