//! Call receipts: which messages a receipt of `receive_messages` acknowledges, and for how long.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};
use test_client::mcp;

use crate::support::{Agent, Broker, HttpAgent, TIMEOUTS_OFF, exchange, texts};

/// The messages and the receipt of a read.
fn read(agent: &Agent, arguments: Value) -> (Vec<Value>, String) {
    split(agent.calls("receive_messages", arguments))
}

fn split(mut received: Value) -> (Vec<Value>, String) {
    let receipt = received["receipt"].as_str().unwrap().to_owned();
    assert!(!receipt.is_empty() && receipt.len() <= 128, "{receipt}");
    match received["messages"].take() {
        Value::Array(messages) => (messages, receipt),
        other => panic!("not a list of messages: {other}"),
    }
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

fn send_all(alice: &Agent, to: &str, count: usize) -> Vec<String> {
    let send = |text: String| alice.sends(&text).to(to).id;
    numbers(count).into_iter().map(send).collect()
}

#[test]
fn calls_sent_together_do_not_acknowledge_each_other() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = send_all(&alice, "bob", 10);
    let call = |id: usize| {
        let params = json!({"name": "receive_messages", "arguments": {"limit": 1}});
        json!({"jsonrpc": "2.0", "id": format!("read {id}"), "method": "tools/call", "params": params})
    };
    bob.wire.sends_together(&(0..10).map(call).collect::<Vec<_>>());
    let mut seen: Vec<_> = (0..10)
        .map(|id| {
            let answer = bob.wire.answer_to(&json!(format!("read {id}"))).unwrap();
            answer["structuredContent"]["messages"][0]["message_id"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    seen.sort();
    assert_eq!(seen, sent);
    for id in &sent {
        assert_eq!(alice.status_of(id), "delivered", "no call was made after the answer");
    }
    bob.wire.disconnects();
    let again = broker.agent("bob");
    let counts: Vec<_> = again.reads(json!({"wait_seconds": 20}));
    assert_eq!(counts.len(), 10);
    assert!(counts.iter().all(|message| message["delivery_count"] == 2));
}

#[test]
fn a_receipt_acknowledges_only_its_messages() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = send_all(&alice, "bob", 4);
    let (first, receipt) = read(&bob, json!({"limit": 1}));
    // Another worker of the same agent that did not wait for the first answer.
    let (second, _) = read(&bob, json!({"limit": 1, "acknowledge": "manual"}));
    let (_, last) = read(&bob, json!({"limit": 1, "receipt": receipt}));
    assert_eq!((texts(&first), texts(&second)), (vec!["0"], vec!["1"]));
    assert_eq!(alice.status_of(&sent[0]), "acknowledged");
    // A message that was read with `acknowledge: manual` is not acknowledged by it.
    assert_eq!(alice.status_of(&sent[1]), "delivered");
    // The receipt before the last names nothing now: messages of the last answer may have been lost with it.
    let (again, newest) = read(&bob, json!({"receipt": receipt}));
    assert_eq!(texts(&again), ["2", "3"]);
    assert_eq!([&again[0]["delivery_count"], &again[1]["delivery_count"]], [2, 1]);
    assert_eq!(alice.status_of(&sent[2]), "delivered");
    // This receipt also named message 2, which is leased to another read now.
    let (rest, _) = read(&bob, json!({"receipt": last}));
    assert_eq!(texts(&rest), ["3"]);
    assert_eq!(alice.status_of(&sent[2]), "acknowledged");
    let (rest, _) = read(&bob, json!({"receipt": newest}));
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(alice.status_of(&sent[3]), "acknowledged");
    bob.calls("acknowledge_messages", json!({"message_ids": [sent[1]]}));
    assert_eq!(alice.status_of(&sent[1]), "acknowledged");
}

#[test]
fn two_readers_of_one_session_with_receipts_read_everything() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = send_all(&alice, "bob", 12);
    let mut receipts = [None, None];
    for _ in 0..40 {
        for receipt in &mut receipts {
            let arguments = json!({"limit": 1, "receipt": receipt});
            *receipt = Some(read(&bob, arguments).1);
        }
    }
    for id in &sent {
        assert_eq!(alice.status_of(id), "acknowledged");
    }
}

#[test]
fn a_foreign_or_invalid_receipt_is_refused_without_effect() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let carol = broker.http_modern("carol");
    alice.sends("for bob").to(&bob);
    let of_carol = alice.sends("for carol").to("carol").id;
    let (read, receipt) = split(carol.calls("receive_messages", json!({})));
    assert_eq!(texts(&read), ["for carol"]);
    let mut mistyped = receipt.clone().into_bytes();
    mistyped[3] = if mistyped[3] == b'0' { b'1' } else { b'0' };
    let mistyped = String::from_utf8(mistyped).unwrap();
    for bad in [receipt.as_str(), &mistyped, "nonsense", &"f".repeat(5000), "\u{1f4e8}"] {
        let error = bob.is_refused_as("invalid_argument", "receive_messages", json!({"receipt": bad}));
        assert!(error["message"].as_str().unwrap().starts_with("receipt: "), "{error}");
    }
    assert_eq!(alice.status_of(&of_carol), "delivered");
    // A null or empty receipt counts as none.
    for none in [json!(null), json!("")] {
        bob.calls("receive_messages", json!({"receipt": none}));
    }
    let (rest, _) = split(carol.calls("receive_messages", json!({"receipt": receipt})));
    assert!(rest.is_empty());
    assert_eq!(alice.status_of(&of_carol), "acknowledged");
}

#[test]
fn a_receipt_outlives_its_connection() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    let sent = send_all(&alice, "bob", 2);
    let (_, receipt) = read(&bob, json!({"limit": 1}));
    bob.wire.disconnects();
    alice.awaits_status(&sent[0], "queued");
    let bob = broker.agent("bob");
    let (read, _) = read(&bob, json!({"receipt": receipt}));
    assert_eq!(texts(&read), ["1"]);
    assert_eq!(alice.status_of(&sent[0]), "acknowledged");
}

#[test]
fn stateless_callers_use_receipts_on_any_connection() {
    let broker = Broker::start_with(&TIMEOUTS_OFF);
    let alice = broker.agent("alice");
    for caller in [broker.http_modern("modern"), broker.http_legacy("legacy")] {
        let sent = send_all(&alice, &caller.name, 3);
        let (read, first) = split(caller.calls("receive_messages", json!({"limit": 1})));
        assert_eq!(texts(&read), ["0"]);
        let (read, second) = split(caller.calls("receive_messages", json!({"limit": 1, "receipt": first})));
        assert_eq!(texts(&read), ["1"]);
        // The same call again: its answer was lost.
        let (read, third) = split(caller.calls("receive_messages", json!({"limit": 1, "receipt": first})));
        assert_eq!((texts(&read), &read[0]["delivery_count"]), (vec!["1"], &json!(2)));
        let _ = second;
        let (read, last) = split(caller.calls("receive_messages", json!({"receipt": third})));
        assert_eq!(texts(&read), ["2"]);
        caller.calls("receive_messages", json!({"receipt": last}));
        for id in &sent {
            assert_eq!(alice.status_of(id), "acknowledged");
        }
    }
}

/// The bytes of a read over HTTP on a connection that stays open.
fn http_read(caller: &HttpAgent, arguments: Value) -> Vec<u8> {
    let mut arguments = arguments;
    arguments["session_id"] = json!(caller.session);
    let params = json!({"name": "receive_messages", "arguments": arguments});
    mcp::modern(&json!(1), "tools/call", params).encode(caller.address)
}

#[test]
fn requests_sent_together_over_http_do_not_acknowledge_each_other() {
    let broker = Broker::start_with(&TIMEOUTS_OFF);
    let alice = broker.agent("alice");
    let caller = broker.http_modern("bob");
    let sent = send_all(&alice, "bob", 10);
    let mut socket = TcpStream::connect(caller.address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
        .write_all(&http_read(&caller, json!({"limit": 1})).repeat(10))
        .unwrap();
    let mut text = String::new();
    while text.matches("\"structuredContent\"").count() < 10 {
        let mut bytes = [0; 4096];
        let len = socket.read(&mut bytes).unwrap();
        assert!(len > 0, "{text}");
        text.push_str(std::str::from_utf8(&bytes[..len]).unwrap());
    }
    for id in &sent {
        assert_eq!(alice.status_of(id), "delivered");
    }
    // This read acknowledges what has been read.
    caller.calls("receive_messages", json!({}));
    for id in &sent {
        assert_eq!(alice.status_of(id), "acknowledged");
    }
}

#[test]
fn messages_written_to_a_connection_that_was_reset_are_redelivered() {
    let broker = Broker::start_with(&TIMEOUTS_OFF);
    let alice = broker.agent("alice");
    let caller = broker.http_modern("bob");
    let sent = alice.sends("hi").to("bob").id;
    let mut socket = TcpStream::connect(caller.address).unwrap();
    socket.write_all(&http_read(&caller, json!({}))).unwrap();
    // The answer has arrived, and its reader dies before reading it: the kernel sends a reset (RFC 1122, 4.2.2.13).
    assert_eq!(socket.peek(&mut [0; 1]).unwrap(), 1);
    alice.awaits_status(&sent, "delivered");
    drop(socket);
    alice.awaits_status(&sent, "queued");
    let read = caller.reads(json!({}));
    assert_eq!((texts(&read), &read[0]["delivery_count"]), (vec!["hi"], &json!(2)));
}

/// Sends a batch and returns its answers.
type SendBatch<'a> = Box<dyn Fn(&Value) -> Value + 'a>;

#[test]
fn a_receipt_in_a_batch_acknowledges_only_its_messages() {
    let broker = Broker::start_with(&TIMEOUTS_OFF);
    let alice = broker.agent("alice");
    let connected = Agent::legacy(broker.wire(), "2025-03-26", &json!({})).registered("connected");
    let posting = HttpAgent::legacy(broker.address, "2025-03-26", json!({})).registered("posting");
    let ways: [(&str, SendBatch<'_>); 2] = [
        (
            "connected",
            Box::new(|batch| {
                connected.wire.sends(batch);
                connected.wire.awaits_frame("the answers", Value::is_array)
            }),
        ),
        ("posting", Box::new(|batch| posting.post(batch).answered().json())),
    ];
    for (name, answer) in ways {
        let sent = send_all(&alice, name, 3);
        let reads = |reads: &[Value]| -> Vec<(Vec<Value>, String)> {
            let calls = reads.iter().enumerate().map(|(id, arguments)| {
                let params = json!({"name": "receive_messages", "arguments": arguments});
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
            });
            let mut answers = answer(&calls.collect());
            let answers = answers.as_array_mut().unwrap();
            answers.sort_by_key(|answer| answer["id"].as_u64());
            let results = answers
                .iter_mut()
                .map(|answer| answer["result"]["structuredContent"].take());
            results.map(split).collect()
        };
        let first = reads(&[json!({"limit": 1}), json!({"limit": 1})]);
        assert_eq!(
            (texts(&first[0].0), texts(&first[1].0)),
            (vec!["0"], vec!["1"]),
            "{name}"
        );
        assert_eq!(alice.status_of(&sent[0]), "delivered", "{name}");
        // The message that the other call of the batch returned is queued again.
        let second = reads(&[json!({"receipt": first[0].1})]);
        assert_eq!(texts(&second[0].0), ["1", "2"], "{name}");
        assert_eq!(second[0].0[0]["delivery_count"], 2, "{name}");
        assert_eq!(alice.status_of(&sent[0]), "acknowledged", "{name}");
        assert_eq!(alice.status_of(&sent[1]), "delivered", "{name}");
        let third = reads(&[json!({"receipt": second[0].1}), json!({"receipt": second[0].1})]);
        assert!(third.iter().all(|(messages, _)| messages.is_empty()), "{name}");
        for id in &sent {
            assert_eq!(alice.status_of(id), "acknowledged", "{name}");
        }
    }
}

#[test]
fn a_receipt_expires_after_many_later_calls() {
    /// The receipts of this many calls of a session stay valid on every storage.
    const NAMED_AT_LEAST: usize = 32;
    // A shared store remembers calls for all replicas, up to twice as many.
    let is_shared = std::env::var("TEST_STORAGE").is_ok_and(|kind| kind == "redis");
    let kept = NAMED_AT_LEAST * if is_shared { 2 } else { 1 };
    let broker = Broker::start_with(&TIMEOUTS_OFF);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = send_all(&alice, "bob", kept + 1);
    let arguments = json!({"limit": 1, "acknowledge": "manual"});
    let receipts: Vec<_> = sent.iter().map(|_| read(&bob, arguments.clone()).1).collect();
    for receipt in &receipts {
        read(&bob, json!({"receipt": receipt}));
    }
    assert_eq!(alice.status_of(&sent[0]), "delivered");
    for id in sent.iter().rev().take(NAMED_AT_LEAST) {
        assert_eq!(alice.status_of(id), "acknowledged");
    }
    // It can still be acknowledged by its id.
    bob.calls("acknowledge_messages", json!({"message_ids": [sent[0]]}));
    assert_eq!(alice.status_of(&sent[0]), "acknowledged");
}

#[test]
fn a_receipt_expires_after_many_later_messages() {
    /// Messages that the receipts of one session name together.
    const NAMED_MAX: usize = 8192;
    // A shared store bounds the number of calls only.
    if std::env::var("TEST_STORAGE").is_ok_and(|kind| kind == "redis") {
        return;
    }
    let broker = Broker::start_with(&[&TIMEOUTS_OFF[..], &["--queue-capacity=20000"]].concat());
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    for _ in 0..10 {
        let answers: Vec<_> = (0..1000).map(|_| alice.sends("x").begins_sending_to("bob")).collect();
        for answer in answers {
            assert_eq!(alice.finishes_call("send_message", &answer)["status"], "queued");
        }
    }
    let mut calls = Vec::new();
    let mut named = 0;
    while named <= NAMED_MAX {
        let (messages, receipt) = read(&bob, json!({"limit": 1000, "acknowledge": "manual"}));
        named += messages.len();
        calls.push((messages, receipt));
    }
    assert!(calls.len() < 32, "the number of calls is another bound");
    for (_, receipt) in &calls {
        read(&bob, json!({"receipt": receipt, "limit": 1, "acknowledge": "manual"}));
    }
    let status = |call: &(Vec<Value>, String)| alice.status_of(call.0[0]["message_id"].as_str().unwrap());
    assert_eq!(status(&calls[0]), "delivered");
    for call in &calls[1..] {
        assert_eq!(status(call), "acknowledged");
    }
}

#[test]
fn a_connection_that_is_reset_returns_its_last_answers() {
    /// Answers with messages that a connection remembers.
    const REMEMBERED: usize = 16;
    let broker = Broker::start_with(&TIMEOUTS_OFF);
    let alice = broker.agent("alice");
    let caller = broker.http_modern("bob");
    let sent = send_all(&alice, "bob", REMEMBERED + 1);
    let socket = TcpStream::connect(caller.address).unwrap();
    for _ in &sent {
        let read = http_read(&caller, json!({"limit": 1, "acknowledge": "manual"}));
        assert_eq!(exchange(&socket, &read).status, 200);
    }
    for id in &sent {
        alice.awaits_status(id, "delivered");
    }
    // A reset, although all answers were read.
    socket2::SockRef::from(&socket)
        .set_linger(Some(std::time::Duration::ZERO))
        .unwrap();
    drop(socket);
    for id in sent[1..].iter().rev() {
        alice.awaits_status(id, "queued");
    }
    assert_eq!(
        alice.status_of(&sent[0]),
        "delivered",
        "only the last answers are returned"
    );
}
