//! Streams of HTTP sessions up to 2025-11-25 that are resumed after a cut by the id of their last event.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{
    EVENTS_FIRST, INBOX, PUSH, UPDATED,
    push::{Era, push_client},
};
use crate::support::{Broker, Event, HttpAgent, ResponseReader, texts};

fn bob(broker: &Broker, version: &str) -> HttpAgent {
    HttpAgent::legacy(broker.address, version, json!({})).registered("bob")
}

fn resume(caller: &HttpAgent, last: &str) -> ResponseReader {
    caller.stream_request().with("Last-Event-ID", last).sent().streams()
}

/// The next event of a stream and its id, which it must have.
fn next_event_with_id(stream: &mut ResponseReader) -> (String, Event) {
    let event = stream.next_event().expect("an event");
    (event.id.clone().expect("its name"), event)
}

#[test]
fn streams_of_2025_11_25_begin_with_an_event_without_data() {
    let broker = Broker::without_timeouts();
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        let bob = bob(&broker, version);
        let mut names = HashSet::new();
        for round in 0..3 {
            let mut reply = bob
                .call("heartbeat", json!({}))
                .with("Accept", EVENTS_FIRST)
                .sent()
                .streams();
            let (name, mut event) = next_event_with_id(&mut reply);
            assert!(names.insert(name), "an event id is given twice");
            if version == "2025-11-25" {
                assert_eq!(event.data, "", "{version} {round}");
                assert!(event.retry.is_some(), "{event:?}");
                let (name, next) = next_event_with_id(&mut reply);
                assert!(names.insert(name), "an event id is given twice");
                event = next;
            }
            assert_eq!(event.json()["result"]["isError"], false, "{version}");
            reply.ends();
        }
        bob.delete_request().answered();
    }
}

#[test]
fn an_answer_that_was_read_can_be_replayed() {
    let broker = Broker::without_timeouts();
    let bob = bob(&broker, "2025-11-25");
    let alice = broker.agent("alice");
    let call = bob.call("send_message", alice.sends("once").arguments_to("alice"));
    let mut reply = call.with("Accept", EVENTS_FIRST).sent().streams();
    let (priming, _) = next_event_with_id(&mut reply);
    let answer = reply.answer_to(&json!(1)).unwrap();
    reply.ends();
    for _ in 0..2 {
        let mut again = resume(&bob, &priming);
        assert_eq!(again.answer_to(&json!(1)).unwrap(), answer);
        again.ends();
    }
    // The call was not executed again.
    alice.sees(["once"]);
    alice.sees_nothing();
}

#[test]
fn an_answer_that_came_after_the_cut_is_read_by_resuming() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = bob(&broker, "2025-11-25");
    for round in 0..20 {
        let text = round.to_string();
        let letter = alice
            .sends(&text)
            .with_argument("wait_for", "acknowledged")
            .with_argument("timeout_seconds", 60);
        let mut reply = bob
            .call("send_message", letter.arguments_to("alice"))
            .with("Accept", EVENTS_FIRST)
            .sent()
            .streams();
        let (priming, _) = next_event_with_id(&mut reply);
        // A disconnect is not a cancellation.
        reply.disconnects();
        let early = (round % 2 == 0).then(|| resume(&bob, &priming));
        alice.sees([text.as_str()]);
        alice.sees_nothing();
        let mut again = early.unwrap_or_else(|| resume(&bob, &priming));
        let result = again.answer_to(&json!(1)).unwrap();
        assert_eq!(result["structuredContent"]["status"], "acknowledged", "{result}");
        again.ends();
    }
}

#[test]
fn progress_of_a_call_is_resumed_without_a_gap() {
    let broker = Broker::start_with(&["--heartbeat-interval=100ms"]);
    let alice = broker.agent("alice");
    let bob = bob(&broker, "2025-11-25");
    let letter = alice
        .sends("hi")
        .with_argument("wait_for", "acknowledged")
        .with_argument("timeout_seconds", 60);
    let params = json!({
        "name": "send_message", "arguments": letter.arguments_to("alice"), "_meta": {"progressToken": "p"},
    });
    let mut reply = bob.asks("tools/call", params).sent().streams();
    let (_, _) = next_event_with_id(&mut reply);
    let mut last = 0.0;
    // The stream is cut repeatedly: each time the next event follows the last one without a gap.
    for _ in 0..4 {
        let (name, event) = next_event_with_id(&mut reply);
        let frame = event.json();
        assert_eq!(frame["method"], "notifications/progress", "{frame}");
        assert_eq!(frame["params"]["progressToken"], "p");
        let progress = frame["params"]["progress"].as_f64().unwrap();
        assert!(progress > last, "{progress} after {last}");
        let number = |name: &str| name.rsplit('-').next().unwrap().parse::<u64>().unwrap();
        reply.disconnects();
        reply = resume(&bob, &name);
        let (next, event) = next_event_with_id(&mut reply);
        assert_eq!(number(&next), number(&name) + 1, "{name} and then {next}: {event:?}");
        last = event.json()["params"]["progress"].as_f64().unwrap();
    }
    alice.sees(["hi"]);
    alice.sees_nothing();
    let result = reply.answer_to(&json!(1)).unwrap();
    assert_eq!(result["structuredContent"]["status"], "acknowledged");
    reply.ends();
}

#[test]
fn a_wait_whose_connection_was_cut_takes_no_message() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = bob(&broker, "2025-11-25");
    let mut reply = bob
        .call("receive_messages", json!({"wait_seconds": 100}))
        .with("Accept", EVENTS_FIRST)
        .sent()
        .streams();
    let (priming, _) = next_event_with_id(&mut reply);
    reply.disconnects();
    alice.sends("hi").to("bob");
    let read = bob.reads(json!({"wait_seconds": 20}));
    assert_eq!(texts(&read), ["hi"]);
    // The wait has ended, and its kept answer says so.
    let mut again = resume(&bob, &priming);
    let result = again.answer_to(&json!(1)).unwrap();
    let repeated = result["structuredContent"]["messages"].as_array();
    let repeated = repeated.is_some_and(|messages| messages[0]["message_id"] == read[0]["message_id"]);
    assert!(
        repeated || result["structuredContent"]["code"] == "unavailable",
        "{result}"
    );
    again.ends();
}

#[test]
fn missed_events_of_the_session_stream_are_replayed_in_order() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = push_client(&broker, Era::Legacy, "bob", json!({"window": 1000, "ack": "manual"}));
    let mut stream = bob.opens_stream();
    for at in 0..5 {
        alice.sends(&at.to_string()).to("bob");
    }
    let mut names = Vec::new();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let (name, event) = next_event_with_id(&mut stream);
        if event.data.is_empty() {
            continue;
        }
        let mut frame = event.json();
        assert_eq!(frame["method"], PUSH);
        names.push(name);
        seen.push(frame["params"]["message"].take());
    }
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 5);
    stream.disconnects();
    // After the second event: at least the three that followed, in order, each original or repeated.
    let mut again = resume(&bob, &names[1]);
    let mut replayed: Vec<Value> = Vec::new();
    while replayed.last().is_none_or(|last| last["payload"]["text"] != "4") {
        let (_, event) = next_event_with_id(&mut again);
        if !event.data.is_empty() {
            replayed.push(event.json()["params"]["message"].take());
        }
    }
    let of = texts(&replayed);
    assert!(of.starts_with(&["2", "3", "4"]), "{of:?}");
    // The stream then continues.
    alice.sends("5").to("bob");
    loop {
        let text = again.next_notification(PUSH)["message"]["payload"]["text"].take();
        if text == "5" {
            break;
        }
    }
}

#[test]
fn pushes_too_large_to_be_kept_are_redelivered() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for (at, len) in [100_000, 1_000_000, 3_000_000].into_iter().enumerate() {
        let bob = {
            let capabilities = json!({"experimental": {"dev.mcp-broker/push": {"window": 100, "ack": "manual"}}});
            HttpAgent::legacy(broker.address, "2025-11-25", capabilities).registered(&format!("bob{at}"))
        };
        let mut stream = bob.opens_stream();
        alice.sends("small").to(&bob.name);
        let name = loop {
            let (name, event) = next_event_with_id(&mut stream);
            if !event.data.is_empty() {
                break name;
            }
        };
        let mut sent = Vec::new();
        for _ in 0..4 {
            sent.push(alice.sends(&"x".repeat(len)).to(&bob.name).id);
        }
        alice.awaits_status(&sent[0], "delivered");
        // The client read none of it.
        stream.disconnects();
        let mut again = resume(&bob, &name);
        let mut missing: HashSet<_> = sent.into_iter().collect();
        while !missing.is_empty() {
            let message = again.next_notification(PUSH)["message"].take();
            missing.remove(message["message_id"].as_str().unwrap());
        }
    }
}

#[test]
fn a_replay_contains_events_of_its_own_stream_only() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = bob(&broker, "2025-11-25");
    bob.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    let mut first = bob
        .call("list_sessions", json!({}))
        .with("Accept", EVENTS_FIRST)
        .sent()
        .streams();
    let (of_first, _) = next_event_with_id(&mut first);
    let answer = first.answer_to(&json!(1)).unwrap();
    let mut second = bob
        .call("heartbeat", json!({}))
        .with("Accept", EVENTS_FIRST)
        .sent()
        .streams();
    let (of_second, _) = next_event_with_id(&mut second);
    second.answer_to(&json!(1)).unwrap();
    alice.sends("hi").to("bob");
    let mut main = bob.opens_stream();
    let (of_main, _) = next_event_with_id(&mut main);
    let names = [&of_first, &of_second, &of_main].map(|name| name.split('-').next().unwrap());
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 3, "{names:?}");
    let mut again = resume(&bob, &of_first);
    assert_eq!(again.answer_to(&json!(1)).unwrap(), answer);
    again.ends();
    // The event id means nothing in another session.
    let carol = HttpAgent::legacy(broker.address, "2025-11-25", json!({}));
    let mut stream = carol
        .stream_request()
        .with("Last-Event-ID", of_first.as_str())
        .sent()
        .streams();
    carol.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    let carol = carol.registered("carol");
    alice.sends("for carol").to("carol");
    let frame = stream.awaits_frame("the first frame", |_| true);
    assert_eq!(frame["method"], UPDATED);
    carol.calls("heartbeat", json!({}));
}

#[test]
fn an_unknown_event_id_starts_a_new_stream() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = bob(&broker, "2025-11-25");
    bob.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    for last in [
        "nonsense",
        "",
        "0-99999",
        "17-1",
        "-",
        "0-",
        "-1-1",
        "99999999999999999999-1",
        "0-18446744073709551615",
    ] {
        let mut stream = resume(&bob, last);
        alice.sends("hi").to("bob");
        assert_eq!(stream.next_notification(UPDATED), json!({"uri": INBOX}), "{last:?}");
        assert_eq!(bob.reads(json!({"acknowledge": "immediate"})).len(), 1);
    }
}

#[test]
fn a_newer_stream_replaces_the_older_one() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = bob(&broker, "2025-11-25");
    bob.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    let mut older = bob.opens_stream();
    for _ in 0..5 {
        let mut newer = bob.opens_stream();
        older.awaits_end();
        alice.sends("hi").to("bob");
        assert_eq!(newer.next_notification(UPDATED), json!({"uri": INBOX}));
        assert_eq!(bob.reads(json!({"acknowledge": "immediate"})).len(), 1);
        older = newer;
    }
}

#[test]
fn a_client_that_reconnects_often_gets_every_message_at_least_once() {
    const MESSAGES: usize = 200;
    let broker = Broker::start_with(
        &[
            &crate::support::TIMEOUTS_OFF[..],
            &["--workers=2", "--delivery-limit=1000"],
        ]
        .concat(),
    );
    let alice = broker.agent("alice");
    let bob = push_client(&broker, Era::Legacy, "bob", json!({"ack": "manual", "window": 20}));
    let sender = std::thread::spawn(move || {
        let ids: Vec<_> = (0..MESSAGES)
            .map(|at| alice.sends(&at.to_string()).to("bob").id)
            .collect();
        (alice, ids)
    });
    let mut seen = HashSet::new();
    let mut last: Option<String> = None;
    for round in 0.. {
        // In every other round the client names its last event.
        let mut request = bob.stream_request();
        if let Some(last) = last.as_deref().filter(|_| round % 2 == 0) {
            request = request.with("Last-Event-ID", last);
        }
        let mut stream = request.sent().streams();
        let wanted = (seen.len() + round % 7 + 1).min(MESSAGES);
        while seen.len() < wanted {
            let event = stream.next_event().expect("an event");
            last = event.id.clone().or(last);
            if !event.data.is_empty() {
                let frame = event.json();
                let id = &frame["params"]["message"]["message_id"];
                seen.insert(id.as_str().unwrap().to_owned());
                bob.notifies("notifications/dev.mcp-broker/ack", json!({"message_ids": [id]}));
            }
        }
        if seen.len() == MESSAGES {
            break;
        }
    }
    let (alice, ids) = sender.join().unwrap();
    for id in &ids {
        assert!(seen.contains(id));
        alice.awaits_status(id, "acknowledged");
    }
}

#[test]
fn a_call_is_cancelled_by_another_post() {
    let broker = Broker::start_with(&["--workers=2", "--heartbeat-interval=100ms"]);
    let alice = broker.agent("alice");
    for version in ["2025-11-25", "2025-03-26"] {
        let bob = bob(&broker, version);
        for accept in [EVENTS_FIRST, "application/json, text/event-stream"] {
            let id = json!("wait");
            let params = json!({"name": "receive_messages", "arguments": {"wait_seconds": 100}});
            let mut waiting = bob.asks_as(&id, "tools/call", params).with("Accept", accept).sent();
            // The wait has begun.
            waiting.awaits_comment();
            bob.cancels(&id);
            let sent = alice.sends("after").to("bob");
            let read = bob.reads(json!({"wait_seconds": 20, "acknowledge": "immediate"}));
            assert_eq!(read[0]["message_id"], sent.id.as_str());
            // The call gets no answer, and its response ends.
            while let Some(event) = waiting.next_event() {
                assert_eq!(event.data, "", "{event:?}");
            }
        }
        bob.delete_request().answered();
    }
}

#[test]
fn what_was_answered_stays_when_the_call_is_cancelled_or_its_connection_closed() {
    let broker = Broker::start_with(&["--workers=2"]);
    let alice = broker.agent("alice");
    let legacy = bob(&broker, "2025-11-25");
    let modern = HttpAgent::modern(broker.address, json!({})).registered("ben");
    for caller in [&legacy, &modern] {
        for accept in [EVENTS_FIRST, "application/json, text/event-stream"] {
            // More rounds than a message may be delivered.
            for round in 0..7 {
                let sent = alice.sends("hi").to(&caller.name);
                let call = caller.call("receive_messages", json!({"wait_seconds": 20}));
                let mut response = call.with("Accept", accept).sent();
                let received = response.answer_to(&json!(1)).unwrap();
                while response.next_event().is_some() {}
                drop(response);
                let messages = &received["structuredContent"]["messages"];
                assert_eq!(
                    messages[0]["message_id"],
                    sent.id.as_str(),
                    "{accept} {round}: {messages}"
                );
                assert_eq!(messages[0]["delivery_count"], 1);
                // The connection is closed by now. A modern client cancels a call by closing it.
                if caller.name == legacy.name {
                    legacy.cancels(&json!(1));
                }
                caller.calls("acknowledge_messages", json!({"message_ids": []}));
                assert_eq!(alice.status_of(&sent.id), "delivered", "{accept} {round}");
                assert_eq!(caller.reads(json!({})), [json!(null); 0]);
                alice.awaits_status(&sent.id, "acknowledged");
            }
        }
    }
}

#[test]
fn a_cancelled_call_ends_for_a_client_that_accepts_no_events() {
    let broker = Broker::without_timeouts();
    let bob = bob(&broker, "2025-11-25");
    let id = json!("wait");
    let params = json!({"name": "receive_messages", "arguments": {"wait_seconds": 100}});
    let waiting = bob
        .asks_as(&id, "tools/call", params)
        .with("Accept", "application/json")
        .sent();
    let has_begun_to_answer = || {
        waiting.socket().set_nonblocking(true).unwrap();
        waiting.socket().peek(&mut [0]).is_ok()
    };
    crate::support::eventually("the wait is over", || {
        // The broker may learn of the wait later than of a cancellation; one of these comes after it.
        bob.cancels(&id);
        has_begun_to_answer().then_some(())
    });
}
