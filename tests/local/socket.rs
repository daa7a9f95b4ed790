//! The Unix socket as a way into MCP: plain clients, both eras, and clients that break the rules or do not read.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    places::LocalBroker,
    support::{Agent, FAST_TIMEOUTS, Wire, eventually},
};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_sessions"}}"#;

fn lines(stream: &UnixStream) -> impl Iterator<Item = Value> + '_ {
    BufReader::new(stream)
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

fn ping(id: usize) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string()
}

#[test]
fn two_plain_clients_are_served_at_once_without_a_handshake() {
    let local = LocalBroker::start();
    let (mut one, mut other) = (local.stream(), local.stream());
    for id in 0..3 {
        writeln!(one, "{}", ping(id)).unwrap();
        writeln!(other, "{}", ping(10 + id)).unwrap();
        assert_eq!(lines(&other).next().unwrap()["id"], 10 + id);
        assert_eq!(lines(&one).next().unwrap()["id"], id);
    }
    writeln!(one, "{LIST}").unwrap();
    let answer = lines(&one).next().unwrap();
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    let tools = local.wire().request("tools/list", Value::Null).unwrap();
    assert!(tools["tools"].as_array().unwrap().len() > 5);
}

#[test]
fn lines_do_not_depend_on_the_writes_that_bring_them() {
    let local = LocalBroker::start();
    let mut stream = local.stream();
    let three = format!("{}\n{}\r\n\n{}\n", ping(1), ping(2), ping(3));
    stream.write_all(three.as_bytes()).unwrap();
    let ids: Vec<_> = lines(&stream).take(3).map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [1, 2, 3]);
    let text = ping(4);
    for part in [&text[..7], &text[7..20], &text[20..], "\n"] {
        stream.write_all(part.as_bytes()).unwrap();
        // An answer on another connection shows that the broker has read the part.
        local.wire().syncs();
    }
    assert_eq!(lines(&stream).next().unwrap()["id"], 4);
}

#[test]
fn both_eras_are_served_on_the_socket() {
    let local = LocalBroker::start();
    let alice = Agent::legacy(local.wire(), "2025-06-18", &json!({})).registered("alice");
    let bob = Agent::modern(local.wire(), json!({})).registered("bob");
    alice.sends("hi").to(&bob);
    bob.sees(["hi"]);
    bob.sends("yo").to(&alice);
    alice.sees(["yo"]);
    // A program of the same machine is the same owner as a caller over HTTP without a key.
    let registered = local
        .broker
        .client()
        .calls("register_session", json!({"name": "alice"}));
    assert_eq!(registered["resumed"], true, "{registered}");
    alice.wire.closes_with(4001);
}

#[test]
fn messages_are_pushed_over_the_socket() {
    let local = LocalBroker::start();
    let capabilities = json!({"experimental": {"dev.mcp-broker/push": {"ack": "auto"}}});
    let bob = Agent::legacy(local.wire(), "2025-11-25", &capabilities).registered("bob");
    bob.syncs();
    let alice = local.broker.agent("alice");
    let sent = alice.sends("hi").to(&bob);
    bob.is_pushed(["hi"]);
    alice.awaits_status(&sent.id, "acknowledged");
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_connection_lives_on() {
    let local = LocalBroker::start_with(&["--max-payload-mb=1"]);
    let before = local.broker.peak_kib();
    let wire = local.wire();
    let long = vec![b'x'; 48 * 1024 * 1024];
    wire.sends_bytes(&long);
    wire.sends_bytes(b"\n");
    let refused = wire.awaits_frame("the refusal", |frame| frame["id"].is_null());
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    wire.syncs();
    let grown = local.broker.peak_kib() - before;
    assert!(grown < 16 * 1024, "the line is not buffered as a whole: {grown} KiB");
}

#[test]
fn lines_that_are_no_json_are_refused_and_many_in_a_row_end_the_connection() {
    let local = LocalBroker::start();
    let wire = local.wire();
    for bad in [&b"\xff\n"[..], b"{\n", b"nonsense\n"] {
        wire.sends_bytes(bad);
        let refused = wire.awaits_frame("the refusal", |frame| frame["id"].is_null());
        assert_eq!(refused["error"]["code"], -32700, "{refused}");
        wire.syncs();
    }
    wire.sends_bytes(&b"\xff\n".repeat(10));
    assert!(wire.closes_with(1008).contains("in a row"));
}

#[test]
fn a_client_that_ends_its_output_gets_the_answers_to_what_it_sent() {
    let local = LocalBroker::start();
    let alice = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("alice");
    let mut stream = local.stream();
    let arguments = json!({"recipient_id": "alice", "protocol_name": "note", "protocol_version": "1.0.0",
        "payload": {"text": "hi"}, "wait_for": "acknowledged"});
    let send = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "send_message", "arguments": arguments}});
    // The last line has no line break.
    write!(stream, "{}\n{send}", ping(0)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answers = lines(&stream);
    assert_eq!(answers.next().unwrap()["id"], 0);
    let received = alice.sees(["hi"]);
    alice.acknowledges(&received);
    let answer = answers.next().unwrap();
    assert_eq!(
        answer["result"]["structuredContent"]["status"], "acknowledged",
        "{answer}"
    );
    assert_eq!(answers.next(), None, "the connection ends after the last answer");
}

#[test]
fn a_call_of_a_client_that_has_gone_is_not_waited_for() {
    let local = LocalBroker::start();
    let mut stream = local.stream();
    let call = |id: usize, name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    writeln!(stream, "{}", call(1, "register_session", json!({}))).unwrap();
    writeln!(stream, "{}", call(2, "receive_messages", json!({"wait_seconds": 100}))).unwrap();
    let watcher = local.wire();
    let clients = || {
        let status = watcher.request("dev.mcp-broker/status", Value::Null).unwrap();
        status["connections"].as_array().unwrap().clone()
    };
    eventually("the call has a session", || {
        clients()
            .iter()
            .any(|client| client["session_id"].is_string())
            .then_some(())
    });
    stream.shutdown(Shutdown::Write).unwrap();
    watcher.syncs();
    assert_eq!(clients().len(), 2, "it may still read the answer");
    drop(stream);
    eventually("the connection ends", || (clients().len() == 1).then_some(()));
}

#[test]
fn a_megabyte_reaches_a_slow_reader_whole() {
    let local = LocalBroker::start();
    let text = "y".repeat(1024 * 1024);
    let alice = local.broker.agent("alice");
    let bob = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("bob");
    alice.sends(&text).to(&bob);
    let mut stream = local.stream();
    let id = bob.held.clone();
    let receive = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "receive_messages", "arguments": {"session_id": id}}});
    writeln!(stream, "{receive}").unwrap();
    let mut answer = Vec::new();
    let mut chunk = [0; 777];
    while answer.last() != Some(&b'\n') {
        let len = stream.read(&mut chunk).unwrap();
        assert!(len > 0);
        answer.extend_from_slice(&chunk[..len]);
    }
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let messages = &answer["result"]["structuredContent"]["messages"];
    assert_eq!(messages[0]["payload"]["text"], text);
}

#[test]
fn an_answer_that_its_reader_has_not_taken_is_withdrawn_when_its_call_is_cancelled() {
    let local = LocalBroker::start();
    let alice = local.broker.agent("alice");
    let carol = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("carol");
    let stream = local.stream();
    let mut answers = lines(&stream);
    let sends = |frame: Value| writeln!(&mut &stream, "{frame}").unwrap();
    let calls = |id: usize, name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        sends(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    };
    calls(1, "register_session", json!({"name": "bob"}));
    assert_eq!(answers.next().unwrap()["id"], 1);
    calls(2, "receive_messages", json!({"wait_seconds": 100}));
    // More than the socket takes: what is answered next waits in the broker.
    let large = alice.sends(&"y".repeat(300 * 1024)).to(&carol);
    calls(3, "receive_messages", json!({"session_id": carol.held}));
    alice.awaits_status(&large.id, "delivered");
    let sent = alice.sends("hi").to("bob");
    alice.awaits_status(&sent.id, "delivered");
    sends(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}));
    calls(4, "receive_messages", json!({"wait_seconds": 100}));
    assert_eq!(answers.next().unwrap()["id"], 3);
    let answer = answers.next().unwrap();
    assert_eq!(answer["id"], 4, "the cancelled call has no answer: {answer}");
    let received = &answer["result"]["structuredContent"]["messages"];
    assert_eq!(received[0]["message_id"], sent.id, "{received}");
    calls(5, "receive_messages", json!({}));
    let answer = answers.next().unwrap();
    assert_eq!(answer["id"], 5, "{answer}");
    assert_eq!(answer["result"]["structuredContent"]["messages"], json!([]));
}

#[test]
fn a_client_that_stops_reading_is_closed_and_others_are_served() {
    let local = LocalBroker::start_with(&FAST_TIMEOUTS);
    let wire = local.wire();
    let mut stalled = local.stream();
    stalled.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string() + "\n";
    // Until the broker reads nothing further, because its answers are not read.
    while stalled.write_all(list.repeat(100).as_bytes()).is_ok() {}
    wire.syncs();
    eventually("the stalled client is closed", || {
        let status = wire.request("dev.mcp-broker/status", Value::Null).unwrap();
        (status["connections"].as_array().unwrap().len() == 1).then_some(())
    });
    let mut rest = Vec::new();
    let _ = stalled.read_to_end(&mut rest);
    assert!(rest.starts_with(b"{\"jsonrpc\""));
}

#[test]
fn a_client_that_says_nothing_is_closed_and_an_idle_one_is_kept() {
    let local = LocalBroker::start_with(&FAST_TIMEOUTS);
    let idle = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("idle");
    let silent = local.wire();
    assert!(silent.closes_with(4002).contains("no sign of life"));
    // By now the idle client has sent nothing for as long as ends a connection over a network.
    let other = local.broker.client();
    let listed = other.calls("list_sessions", json!({"status": "all"}));
    let listed = listed["sessions"].as_array().unwrap();
    let idle_row = listed.iter().find(|session| session["name"] == "idle").unwrap();
    assert_eq!(idle_row["status"], "active", "{idle_row}");
    idle.wire.syncs();
}

#[test]
fn one_client_too_many_is_refused_with_a_line() {
    let local = LocalBroker::start();
    let mut clients: Vec<_> = (0..256).map(|_| local.stream()).collect();
    writeln!(clients[255], "{}", ping(1)).unwrap();
    assert_eq!(
        lines(&clients[255]).next().unwrap()["id"],
        1,
        "the last of 256 is served"
    );
    let refused = local.stream();
    let mut said = lines(&refused);
    let refusal = said.next().unwrap();
    assert_eq!(refusal["error"]["code"], -32000, "{refusal}");
    assert_eq!(refusal.get("id"), Some(&Value::Null), "{refusal}");
    assert!(
        refusal["error"]["message"]
            .as_str()
            .unwrap()
            .contains("local_connections_max")
    );
    assert_eq!(said.next(), None);
    let metrics = local.broker.get("/metrics").body;
    assert!(
        metrics.contains("mcp_broker_connections{transport=\"local\"} 256"),
        "{metrics}"
    );
    clients.pop();
    eventually("there is room again", || {
        let mut stream = local.stream();
        writeln!(stream, "{}", ping(2)).ok()?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).ok()?;
        line.contains("result").then_some(())
    });
}

#[test]
fn a_later_connection_takes_the_session_over_and_the_earlier_one_is_told() {
    let local = LocalBroker::start();
    let first = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("alice");
    let second = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("alice");
    first.wire.closes_with(4001);
    assert_eq!(first.session.len(), second.session.len());
    second.syncs();
}

#[test]
fn the_end_of_the_broker_answers_open_calls_and_removes_the_name() {
    let mut local = LocalBroker::start();
    let alice = Agent::legacy(local.wire(), "2025-11-25", &json!({})).registered("alice");
    let waiting = alice.begins_call("receive_messages", &json!({"wait_seconds": 100}));
    alice.wire.syncs();
    local.broker.terminate();
    let answer = alice.wire.answer_to(&waiting).unwrap();
    assert_eq!(answer["structuredContent"]["code"], "unavailable", "{answer}");
    assert!(alice.wire.closes_with(1012).contains("retry in"));
    assert!(local.broker.wait_for_exit().success());
    assert_eq!(local.folder.names(), [""; 0]);
}

#[test]
fn a_socket_that_replaced_the_own_one_is_not_removed() {
    let mut local = LocalBroker::start();
    std::fs::remove_file(local.folder.socket()).unwrap();
    let other = std::os::unix::net::UnixListener::bind(local.folder.socket()).unwrap();
    local.broker.terminate();
    assert!(local.broker.wait_for_exit().success());
    assert_eq!(local.folder.names(), ["s"]);
    drop(other);
}

#[test]
fn a_hundred_frames_of_one_write_are_answered_in_order() {
    let local = LocalBroker::start();
    let wire: Wire = local.wire();
    let frames: Vec<_> = (0..100)
        .map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "ping"}))
        .collect();
    wire.sends_together(&frames);
    for id in 0..100 {
        let next = wire.awaits_frame("an answer", |_| true);
        assert_eq!(next["id"], id);
    }
}
