//! Calls over HTTP that wait, in both eras, and what happens to them when their clients disconnect.

use std::{
    io::Write,
    sync::mpsc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::EVENTS_FIRST;
use crate::support::{Broker, HttpAgent, Request, ResponseReader, TIMEOUTS_OFF, connect, texts};

/// One client of each era, named `modern` and `legacy`.
fn callers(broker: &Broker) -> [HttpAgent; 2] {
    [broker.http_modern("modern"), broker.http_legacy("legacy")]
}

fn wait(caller: &HttpAgent) -> Request {
    caller.call("receive_messages", json!({"wait_seconds": 100}))
}

/// The messages in the answer to a wait.
fn received(reply: &mut ResponseReader) -> Vec<Value> {
    let mut result = reply.answer_to(&json!(1)).unwrap();
    assert_eq!(result["isError"], false, "{result}");
    match result["structuredContent"]["messages"].take() {
        Value::Array(messages) => messages,
        other => panic!("not a list of messages: {other}"),
    }
}

#[test]
fn a_wait_ends_with_a_message() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for caller in callers(&broker) {
        for accept in [EVENTS_FIRST, "application/json, text/event-stream", "application/json"] {
            let began = Instant::now();
            let mut reply = wait(&caller).with("Accept", accept).sent();
            let sent = alice.sends("hi").to(&caller.name);
            let messages = received(&mut reply);
            // The next wait acknowledges the messages of an answer that was written completely.
            reply.awaits_end();
            assert_eq!(messages[0]["message_id"], sent.id.as_str());
            assert_eq!(messages[0]["delivery_count"], 1);
            assert!(began.elapsed() < Duration::from_secs(100));
        }
        assert_eq!(caller.reads(json!({})), [Value::Null; 0]);
    }
}

#[test]
fn a_wait_without_a_message_ends_at_its_timeout() {
    let broker = Broker::without_timeouts();
    for caller in callers(&broker) {
        let began = Instant::now();
        assert_eq!(caller.reads(json!({"wait_seconds": 0.3})), [Value::Null; 0]);
        assert!(began.elapsed() >= Duration::from_millis(290));
    }
}

#[test]
fn a_wait_with_a_progress_token_reports_progress() {
    let broker = Broker::start_with(&["--heartbeat-interval=100ms"]);
    let alice = broker.agent("alice");
    for caller in callers(&broker) {
        for token in [json!("tökén"), json!(42), json!(0)] {
            let params = |session: &Option<String>| {
                let mut arguments = json!({"wait_seconds": 100});
                if caller.name == "modern" {
                    arguments["session_id"] = json!(session);
                }
                json!({"name": "receive_messages", "arguments": arguments, "_meta": {"progressToken": token}})
            };
            let mut reply = caller.asks("tools/call", params(&caller.session)).sent().streams();
            let mut last = -1.0;
            for _ in 0..3 {
                let progress = reply.next_notification("notifications/progress");
                assert_eq!(progress["progressToken"], token);
                let now = progress["progress"].as_f64().unwrap();
                assert!(now > last, "{now} after {last}");
                last = now;
            }
            alice.sends("hi").to(&caller.name);
            assert_eq!(texts(&received(&mut reply)), ["hi"]);
            // No progress comes after the answer.
            reply.awaits_end();
        }
        // Calls without a token get no progress.
        let mut reply = wait(&caller).sent();
        reply.awaits_comment();
        alice.sends("ho").to(&caller.name);
        let frame = loop {
            let event = reply.next_event().unwrap();
            if !event.data.is_empty() {
                break event.json();
            }
        };
        assert!(frame.get("result").is_some(), "{frame}");
    }
}

#[test]
fn a_client_that_waits_stays_active() {
    let broker = Broker::with_fast_disconnect();
    let alice = broker.agent("alice");
    let waits: Vec<_> = [("events", EVENTS_FIRST), ("json", "application/json")]
        .into_iter()
        .flat_map(|(form, accept)| {
            let [modern, legacy] = ["modern", "legacy"].map(|era| format!("{era} {form}"));
            [broker.http_modern(&modern), broker.http_legacy(&legacy)].map(|caller| (caller, accept))
        })
        .map(|(caller, accept)| {
            let reply = wait(&caller).with("Accept", accept).sent();
            (caller, reply)
        })
        .collect();
    // When another silent client counts as disconnected, these would as well.
    let _silent = broker.http_modern("silent");
    alice.awaits_presence("silent", "disconnected");
    for (caller, mut reply) in waits {
        let name = &caller.name;
        assert_eq!(alice.presence_of(name).as_deref(), Some("active"), "{name}");
        alice.sends("hi").to(name);
        assert_eq!(texts(&received(&mut reply)), ["hi"]);
        // A connection that is closed before its answer is read to the end has not acknowledged it.
        reply.awaits_end();
    }
}

#[test]
fn each_message_ends_one_of_many_waits() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for caller in callers(&broker) {
        let waits: Vec<_> = (0..8)
            .map(|_| {
                caller.call(
                    "receive_messages",
                    json!({"wait_seconds": 100, "limit": 1, "acknowledge": "manual"}),
                )
            })
            .map(|request| request.sent())
            .collect();
        let mut sent: Vec<_> = (0..8)
            .map(|at| alice.sends(&at.to_string()).to(&caller.name).id)
            .collect();
        let mut seen: Vec<_> = waits
            .into_iter()
            .map(|mut reply| received(&mut reply)[0]["message_id"].as_str().unwrap().to_owned())
            .collect();
        sent.sort();
        seen.sort();
        assert_eq!(sent, seen);
    }
}

/// Sends a request, and another one behind it that is never answered.
fn send_with_another_behind(request: &Request, other: &Request) -> ResponseReader {
    let mut socket = connect(request.address);
    socket.write_all(&[request.bytes(), other.bytes()].concat()).unwrap();
    ResponseReader::from_socket(socket)
}

/// Sends a request in chunks.
fn send_in_chunks(request: &Request) -> ResponseReader {
    let mut socket = connect(request.address);
    let head = format!("{}Transfer-Encoding: chunked\r\n\r\n", request.head());
    socket.write_all(head.as_bytes()).unwrap();
    for chunk in request.body.chunks(50) {
        socket.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).unwrap();
        socket.write_all(chunk).unwrap();
        socket.write_all(b"\r\n").unwrap();
    }
    socket.write_all(b"0\r\n\r\n").unwrap();
    ResponseReader::from_socket(socket)
}

/// Begins a wait in one of several ways. In some rounds another call is served first.
fn begin_wait(caller: &HttpAgent, round: usize) -> ResponseReader {
    let accept = ["application/json", EVENTS_FIRST, "application/json, text/event-stream"][round % 3];
    let request = wait(caller).with("Accept", accept);
    let heartbeat = caller.call("heartbeat", json!({}));
    let waiting = match round % 4 {
        0 => send_with_another_behind(&request, &heartbeat),
        1 => send_in_chunks(&request),
        _ => request.sent(),
    };
    if round % 5 < 3 {
        caller.calls("heartbeat", json!({}));
    }
    waiting
}

#[test]
fn a_client_that_closed_its_connection_gets_no_message() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for caller in callers(&broker) {
        for round in 0..30 {
            let waiting = begin_wait(&caller, round);
            waiting.half_closes();
            // The broker closes the response.
            let _ = waiting.into_response_if_complete();
            let text = round.to_string();
            let sent = alice.sends(&text).to(&caller.name);
            let read = caller.reads(json!({"wait_seconds": 20, "acknowledge": "immediate"}));
            assert_eq!(texts(&read), [text.as_str()], "{} {round}", caller.name);
            assert_eq!(read[0]["message_id"], sent.id.as_str());
            assert_eq!(read[0]["delivery_count"], 1, "{} {round}", caller.name);
        }
    }
}

#[test]
fn a_client_that_disappears_loses_no_message() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for caller in callers(&broker) {
        for round in 0..30 {
            begin_wait(&caller, round).disconnects();
            // The worker that served it knows by then.
            for _ in 0..4 {
                caller.calls("heartbeat", json!({}));
            }
            let text = round.to_string();
            let sent = alice.sends(&text).to(&caller.name);
            let read = caller.reads(json!({"wait_seconds": 20, "acknowledge": "immediate"}));
            assert_eq!(texts(&read), [text.as_str()], "{} {round}", caller.name);
            assert_eq!(read[0]["message_id"], sent.id.as_str());
        }
    }
}

#[test]
fn a_message_that_races_with_a_disconnect_is_not_lost() {
    const ROUNDS: usize = 150;
    let broker = Broker::start_with(&[&TIMEOUTS_OFF[..], &["--workers=2", "--delivery-limit=1000"]].concat());
    let alice = broker.agent("alice");
    let callers = callers(&broker);
    let (go, going) = mpsc::channel::<(String, String)>();
    let (told, sent) = mpsc::channel();
    let sender = std::thread::spawn(move || {
        for (name, text) in going {
            told.send(alice.sends(&text).to(name.as_str()).id).unwrap();
        }
    });
    let mut met = [0, 0];
    for round in 0..ROUNDS {
        for caller in &callers {
            let text = round.to_string();
            let request = wait(caller).with("Accept", ["application/json", EVENTS_FIRST][round % 2]);
            let waiting = request.sent();
            caller.calls("heartbeat", json!({}));
            go.send((caller.name.clone(), text.clone())).unwrap();
            // The disconnect moves from before the message to after it, in steps.
            let began = Instant::now();
            while began.elapsed() < Duration::from_micros(20 * round as u64) {
                std::hint::spin_loop();
            }
            waiting.half_closes();
            // Bytes that were written by then are still read.
            let had = read_to_end(waiting);
            let id = sent.recv().unwrap();
            let got = had.contains(&id);
            met[usize::from(got)] += 1;
            if got {
                let done = caller.calls("acknowledge_messages", json!({"message_ids": [id]}));
                assert_eq!(done["acknowledged"], 1, "{} {round}: {had}", caller.name);
            } else {
                let read = caller.reads(json!({"wait_seconds": 20, "acknowledge": "immediate"}));
                assert_eq!(texts(&read), [text.as_str()], "{} {round}: {had}", caller.name);
                assert_eq!(read[0]["message_id"], id.as_str());
            }
            assert_eq!(caller.reads(json!({})), [Value::Null; 0]);
        }
    }
    drop(go);
    sender.join().unwrap();
    assert!(met[0] > 0, "no client disconnected before its message came: {met:?}");
}

/// Reads everything up to the end.
fn read_to_end(waiting: ResponseReader) -> String {
    let mut text = String::new();
    let mut socket = waiting.socket();
    let _ = std::io::Read::read_to_string(&mut socket, &mut text);
    text
}

#[test]
fn unacknowledged_messages_are_redelivered_after_a_new_registration() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for (at, caller) in callers(&broker).into_iter().enumerate() {
        let sent = alice.sends("hi").to(&caller.name);
        assert_eq!(texts(&caller.reads(json!({}))), ["hi"]);
        // As after a crash: the same name, and no memory of what was read.
        let again = if at == 0 {
            broker.http_modern(&caller.name)
        } else {
            broker.http_legacy(&caller.name)
        };
        assert_eq!(again.listed(), caller.listed());
        assert_ne!(again.session, caller.session);
        let read = again.reads(json!({}));
        assert_eq!(texts(&read), ["hi"], "{}", caller.name);
        assert_eq!(read[0]["message_id"], sent.id.as_str());
        assert_eq!(read[0]["delivery_count"], 2);
    }
}

#[test]
fn no_message_is_lost_however_often_clients_disconnect() {
    const MESSAGES: usize = 200;
    let broker = Broker::start_with(&[&TIMEOUTS_OFF[..], &["--workers=2", "--delivery-limit=1000"]].concat());
    let readers: Vec<_> = callers(&broker)
        .into_iter()
        .map(|mut caller| {
            let alice = broker.agent(&format!("to {}", caller.name));
            let name = caller.name.clone();
            let sender = std::thread::spawn(move || {
                let sent: Vec<_> = (0..MESSAGES)
                    .map(|at| alice.sends(&at.to_string()).to(name.as_str()).id)
                    .collect();
                (alice, sent)
            });
            let address = broker.address;
            std::thread::spawn(move || {
                let mut seen = std::collections::HashSet::new();
                let mut id = 0;
                for round in 0.. {
                    id += 1;
                    let mut arguments = json!({"wait_seconds": 5, "limit": 3, "acknowledge": "manual"});
                    if caller.name == "modern" {
                        arguments["session_id"] = json!(caller.session);
                    }
                    let params = json!({"name": "receive_messages", "arguments": arguments});
                    let waiting = caller
                        .asks_as(&json!(id), "tools/call", params)
                        .with("Accept", ["application/json", EVENTS_FIRST][round % 2]);
                    let mut waiting = waiting.sent();
                    match round % 5 {
                        // A client that disconnects silently, and comes back as a new client.
                        0 => {
                            waiting.disconnects();
                            caller = match caller.name.as_str() {
                                "modern" => HttpAgent::modern(address, json!({})),
                                _ => HttpAgent::legacy(address, "2025-11-25", json!({})),
                            }
                            .registered(&caller.name);
                        }
                        1 => {
                            waiting.half_closes();
                            let _ = waiting.into_response_if_complete();
                        }
                        _ => {
                            let result = waiting.answer_to(&json!(id)).unwrap();
                            let messages = result["structuredContent"]["messages"].as_array().unwrap();
                            let ids: Vec<_> = messages.iter().map(|message| &message["message_id"]).collect();
                            let done = caller.calls("acknowledge_messages", json!({"message_ids": ids}));
                            assert_eq!(done["acknowledged"], ids.len());
                            for id in ids {
                                // An acknowledged message is never delivered again.
                                assert!(seen.insert(id.as_str().unwrap().to_owned()), "{id}");
                            }
                        }
                    }
                    if seen.len() == MESSAGES {
                        break;
                    }
                }
                let (alice, sent) = sender.join().unwrap();
                assert!(sent.iter().all(|id| seen.contains(id)));
                for id in &sent {
                    assert_eq!(alice.status_of(id), "acknowledged");
                }
            })
        })
        .collect();
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn an_answer_that_was_not_read_has_delivered_nothing() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let text = "x".repeat(5_000_000);
    for caller in callers(&broker) {
        for accept in ["application/json", EVENTS_FIRST] {
            // More than any socket buffers.
            let sent: Vec<_> = (0..3).map(|_| alice.sends(&text).to(&caller.name).id).collect();
            let request = caller.call("receive_messages", json!({})).with("Accept", accept);
            let mut cut = request.sent();
            // The answer has begun, and the rest is not read.
            assert_eq!(cut.status(), 200);
            cut.disconnects();
            // These reads do not acknowledge what the next one returns.
            let mut seen = Vec::new();
            while seen.len() < sent.len() {
                let read = caller.reads(json!({"wait_seconds": 20, "limit": 1, "acknowledge": "immediate"}));
                assert!(
                    !read.is_empty(),
                    "{} {accept}: {} of {}",
                    caller.name,
                    seen.len(),
                    sent.len()
                );
                seen.extend(
                    read.iter()
                        .map(|message| message["message_id"].as_str().unwrap().to_owned()),
                );
            }
            // The broker may have noticed the cut only after the first of these reads.
            seen.sort_unstable();
            assert_eq!(seen, sent, "{} {accept}", caller.name);
        }
    }
}

#[test]
fn an_incomplete_body_has_no_effect() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for caller in callers(&broker) {
        let request = caller.call("send_message", alice.sends("half").arguments_to("alice"));
        let bytes = request.bytes();
        let head = bytes.len() - request.body.len();
        for len in [head / 2, head, head + 1, head + request.body.len() / 2, bytes.len() - 1] {
            let mut socket = connect(broker.address);
            socket.write_all(&bytes[..len]).unwrap();
            drop(socket);
            // Half a body whose length says it is whole, and a chunk that is cut.
            let mut socket = connect(broker.address);
            let head = format!("{}Transfer-Encoding: chunked\r\n\r\n", request.head());
            let chunk = format!("{head}{:x}\r\n", request.body.len());
            socket.write_all(chunk.as_bytes()).unwrap();
            socket.write_all(&request.body[..request.body.len() - 1]).unwrap();
            drop(socket);
        }
        let socket = connect(broker.address);
        let mut half = &socket;
        half.write_all(&bytes[..bytes.len() - 1]).unwrap();
        let reply = ResponseReader::from_socket(socket);
        reply.half_closes();
        if let Some(response) = reply.into_response_if_complete() {
            assert!(response.status >= 400, "{response:?}");
        }
        caller.calls("heartbeat", json!({}));
    }
    alice.sends("whole").to("alice");
    alice.sees(["whole"]);
    alice.sees_nothing();
}

#[test]
fn a_sender_can_wait_for_the_delivery_of_its_message() {
    let broker = Broker::without_timeouts();
    let bob = broker.agent("bob");
    let alice = broker.agent("alice");
    for caller in callers(&broker) {
        for accept in [EVENTS_FIRST, "application/json"] {
            for status in ["delivered", "acknowledged"] {
                let letter = alice
                    .sends("hi")
                    .with_argument("wait_for", status)
                    .with_argument("timeout_seconds", 60);
                let request = caller.call("send_message", letter.arguments_to("bob"));
                let mut reply = request.with("Accept", accept).sent();
                let read = bob.reads(json!({"wait_seconds": 20}));
                assert_eq!(texts(&read), ["hi"]);
                if status == "acknowledged" {
                    bob.acknowledges(&read);
                }
                let result = reply.answer_to(&json!(1)).unwrap();
                assert_eq!(result["structuredContent"]["status"], status);
                bob.sees_nothing();
            }
            let letter = alice
                .sends("in vain")
                .with_argument("wait_for", "acknowledged")
                .with_argument("timeout_seconds", 0.2);
            let sent = caller.calls("send_message", letter.arguments_to("bob"));
            assert_eq!(sent["status"], "queued");
            bob.sees(["in vain"]);
            bob.sees_nothing();
        }
    }
}

#[test]
fn a_sender_that_disconnects_has_sent_its_message() {
    let broker = Broker::without_timeouts();
    let bob = broker.agent("bob");
    let alice = broker.agent("alice");
    for caller in callers(&broker) {
        for accept in [EVENTS_FIRST, "application/json"] {
            let letter = alice
                .sends("hi")
                .with_argument("wait_for", "acknowledged")
                .with_argument("timeout_seconds", 60);
            let request = caller.call("send_message", letter.arguments_to("bob"));
            let reply = request.with("Accept", accept).sent();
            assert_eq!(texts(&bob.reads(json!({"wait_seconds": 20}))), ["hi"]);
            reply.disconnects();
            bob.sees_nothing();
            caller.calls("heartbeat", json!({}));
        }
    }
}

#[test]
fn a_wait_that_is_abandoned_among_many_reads_ends() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for caller in callers(&broker) {
        let waiting = read_with_id(&caller, 1000, json!({"wait_seconds": 100})).sent();
        for at in 0..20 {
            let mut reply = read_with_id(&caller, at, json!({"wait_seconds": 0.01})).sent();
            assert_eq!(reply.answer_to(&json!(at)).unwrap()["isError"], false);
        }
        waiting.half_closes();
        let _ = waiting.into_response_if_complete();
        let sent = alice.sends("hi").to(&caller.name);
        let mut reply = read_with_id(&caller, 2000, json!({"wait_seconds": 20})).sent();
        let result = reply.answer_to(&json!(2000)).unwrap();
        let read = &result["structuredContent"]["messages"][0];
        assert_eq!(read["message_id"], sent.id.as_str(), "{} {result}", caller.name);
    }
}

/// A read with its own request id, as the requests of a session must have.
fn read_with_id(caller: &HttpAgent, id: u64, mut arguments: Value) -> Request {
    if caller.name == "modern" {
        arguments["session_id"] = json!(caller.session);
    }
    let params = json!({"name": "receive_messages", "arguments": arguments});
    caller.asks_as(&json!(id), "tools/call", params)
}

#[test]
fn many_abandoned_waits_do_not_block_later_reads() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for caller in callers(&broker) {
        let mut ids = 1000..;
        let mut next = || read_with_id(&caller, ids.next().unwrap(), json!({"wait_seconds": 100}));
        // More than one connection may have in flight.
        for _ in 0..3 {
            let waits: Vec<_> = (0..150).map(|_| next().sent()).collect();
            caller.calls("heartbeat", json!({}));
            for wait in waits {
                wait.half_closes();
                let _ = wait.into_response_if_complete();
            }
        }
        let text = caller.name.as_str();
        let sent = alice.sends(text).to(text);
        let read = caller.reads(json!({"wait_seconds": 20}));
        assert_eq!(read[0]["message_id"], sent.id.as_str());
    }
}
