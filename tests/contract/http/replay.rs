//! 2025-11-25 and before over HTTP: streams that are read on after they were cut, and what is pushed on them.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::{Broker, Caller, Event, Reply, texts};

const INBOX: &str = "broker://inbox";
const UPDATED: &str = "notifications/resources/updated";
const PUSH: &str = "notifications/dev.mcp-broker/message";
const EVENTS_FIRST: &str = "text/event-stream, application/json";

fn bob(broker: &Broker, version: &str) -> Caller {
    Caller::legacy(broker.address, version, json!({})).registered("bob")
}

/// One to whom messages are pushed.
fn pushed(broker: &Broker, settings: Value) -> Caller {
    let capabilities = json!({"experimental": {"dev.mcp-broker/push": settings}});
    Caller::legacy(broker.address, "2025-11-25", capabilities).registered("bob")
}

fn resumed(caller: &Caller, last: &str) -> Reply {
    caller.stream().with("Last-Event-ID", last).sent().streams()
}

/// The next event of a stream that must have a name.
fn named(stream: &mut Reply) -> (String, Event) {
    let event = stream.next_event().expect("an event");
    (event.id.clone().expect("its name"), event)
}

fn is_pushed<const N: usize>(stream: &mut Reply, expected: [&str; N]) -> Vec<Value> {
    let pushed: Vec<_> = expected.iter().map(|_| stream.told(PUSH)["message"].take()).collect();
    assert_eq!(texts(&pushed), expected);
    pushed
}

#[test]
fn streams_begin_with_an_event_without_data_for_who_knows_what_that_means() {
    let broker = Broker::timeless();
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        let bob = bob(&broker, version);
        let mut names = HashSet::new();
        for round in 0..3 {
            let mut reply = bob
                .call("heartbeat", json!({}))
                .with("Accept", EVENTS_FIRST)
                .sent()
                .streams();
            let (name, mut event) = named(&mut reply);
            assert!(names.insert(name), "given twice");
            if version == "2025-11-25" {
                assert_eq!(event.data, "", "{version} {round}");
                assert!(event.retry.is_some(), "{event:?}");
                let (name, next) = named(&mut reply);
                assert!(names.insert(name), "given twice");
                event = next;
            }
            assert_eq!(event.json()["result"]["isError"], false, "{version}");
            reply.ends();
        }
        bob.delete().answered();
    }
}

#[test]
fn an_answer_that_was_read_can_be_asked_for_again() {
    let broker = Broker::timeless();
    let bob = bob(&broker, "2025-11-25");
    let alice = broker.agent("alice");
    let call = bob.call("send_message", alice.sends("once").arguments_to("alice"));
    let mut reply = call.with("Accept", EVENTS_FIRST).sent().streams();
    let (priming, _) = named(&mut reply);
    let answer = reply.answer_to(&json!(1)).unwrap();
    reply.ends();
    for _ in 0..2 {
        let mut again = resumed(&bob, &priming);
        assert_eq!(again.answer_to(&json!(1)).unwrap(), answer);
        again.ends();
    }
    // It was not done again.
    alice.sees(["once"]);
    alice.sees_nothing();
}

#[test]
fn an_answer_that_came_too_late_is_read_on() {
    let broker = Broker::timeless();
    let alice = broker.agent("alice");
    let bob = bob(&broker, "2025-11-25");
    for round in 0..20 {
        let text = round.to_string();
        let letter = alice
            .sends(&text)
            .and("wait_for", "acknowledged")
            .and("timeout_seconds", 60);
        let mut reply = bob
            .call("send_message", letter.arguments_to("alice"))
            .with("Accept", EVENTS_FIRST)
            .sent()
            .streams();
        let (priming, _) = named(&mut reply);
        // A connection that goes is no cancellation.
        reply.leaves();
        let early = (round % 2 == 0).then(|| resumed(&bob, &priming));
        alice.sees([text.as_str()]);
        alice.sees_nothing();
        let mut again = early.unwrap_or_else(|| resumed(&bob, &priming));
        let result = again.answer_to(&json!(1)).unwrap();
        assert_eq!(result["structuredContent"]["status"], "acknowledged", "{result}");
        again.ends();
    }
}

#[test]
fn progress_of_a_call_is_read_on_without_a_gap() {
    let broker = Broker::with(&["--heartbeat-interval=100ms"]);
    let alice = broker.agent("alice");
    let bob = bob(&broker, "2025-11-25");
    let letter = alice
        .sends("hi")
        .and("wait_for", "acknowledged")
        .and("timeout_seconds", 60);
    let params = json!({
        "name": "send_message", "arguments": letter.arguments_to("alice"), "_meta": {"progressToken": "p"},
    });
    let mut reply = bob.asks("tools/call", params).sent().streams();
    let (_, _) = named(&mut reply);
    let mut last = 0.0;
    // Cut again and again: each time what comes next is the very next.
    for _ in 0..4 {
        let (name, event) = named(&mut reply);
        let frame = event.json();
        assert_eq!(frame["method"], "notifications/progress", "{frame}");
        assert_eq!(frame["params"]["progressToken"], "p");
        let progress = frame["params"]["progress"].as_f64().unwrap();
        assert!(progress > last, "{progress} after {last}");
        let number = |name: &str| name.rsplit('-').next().unwrap().parse::<u64>().unwrap();
        reply.leaves();
        reply = resumed(&bob, &name);
        let (next, event) = named(&mut reply);
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
fn a_wait_for_messages_that_was_cut_takes_none() {
    let broker = Broker::timeless();
    let alice = broker.agent("alice");
    let bob = bob(&broker, "2025-11-25");
    let mut reply = bob
        .call("receive_messages", json!({"wait_seconds": 100}))
        .with("Accept", EVENTS_FIRST)
        .sent()
        .streams();
    let (priming, _) = named(&mut reply);
    reply.leaves();
    alice.sends("hi").to("bob");
    let read = bob.reads(json!({"wait_seconds": 20}));
    assert_eq!(texts(&read), ["hi"]);
    // It has ended, and says so to who comes back for its answer.
    let mut again = resumed(&bob, &priming);
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
fn what_was_missed_on_the_stream_of_the_session_comes_again_in_order() {
    let broker = Broker::timeless();
    let alice = broker.agent("alice");
    let bob = pushed(&broker, json!({"window": 1000, "ack": "manual"}));
    let mut stream = bob.reads_stream();
    for at in 0..5 {
        alice.sends(&at.to_string()).to("bob");
    }
    let mut names = Vec::new();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let (name, event) = named(&mut stream);
        if event.data.is_empty() {
            continue;
        }
        let mut frame = event.json();
        assert_eq!(frame["method"], PUSH);
        names.push(name);
        seen.push(frame["params"]["message"].take());
    }
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 5);
    stream.leaves();
    // After the second: at least the three that followed, in their order, each as it was or as a repeat.
    let mut again = resumed(&bob, &names[1]);
    let mut replayed: Vec<Value> = Vec::new();
    while replayed.last().is_none_or(|last| last["payload"]["text"] != "4") {
        let (_, event) = named(&mut again);
        if !event.data.is_empty() {
            replayed.push(event.json()["params"]["message"].take());
        }
    }
    let of = texts(&replayed);
    assert!(of.starts_with(&["2", "3", "4"]), "{of:?}");
    // And it goes on from there.
    alice.sends("5").to("bob");
    loop {
        let text = again.told(PUSH)["message"]["payload"]["text"].take();
        if text == "5" {
            break;
        }
    }
}

#[test]
fn what_is_too_large_to_be_kept_for_a_replay_comes_again_too() {
    let broker = Broker::timeless();
    let alice = broker.agent("alice");
    for (at, len) in [100_000, 1_000_000, 3_000_000].into_iter().enumerate() {
        let bob = {
            let capabilities = json!({"experimental": {"dev.mcp-broker/push": {"window": 100, "ack": "manual"}}});
            Caller::legacy(broker.address, "2025-11-25", capabilities).registered(&format!("bob{at}"))
        };
        let mut stream = bob.reads_stream();
        alice.sends("small").to(&bob.name);
        let name = loop {
            let (name, event) = named(&mut stream);
            if !event.data.is_empty() {
                break name;
            }
        };
        let mut sent = Vec::new();
        for _ in 0..4 {
            sent.push(alice.sends(&"x".repeat(len)).to(&bob.name).id);
        }
        alice.learns(&sent[0], "delivered");
        // It read none of it.
        stream.leaves();
        let mut again = resumed(&bob, &name);
        let mut missing: HashSet<_> = sent.into_iter().collect();
        while !missing.is_empty() {
            let message = again.told(PUSH)["message"].take();
            missing.remove(message["message_id"].as_str().unwrap());
        }
    }
}

#[test]
fn what_belongs_to_one_stream_never_comes_on_another() {
    let broker = Broker::timeless();
    let alice = broker.agent("alice");
    let bob = bob(&broker, "2025-11-25");
    bob.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    let mut first = bob
        .call("list_sessions", json!({}))
        .with("Accept", EVENTS_FIRST)
        .sent()
        .streams();
    let (of_first, _) = named(&mut first);
    let answer = first.answer_to(&json!(1)).unwrap();
    let mut second = bob
        .call("heartbeat", json!({}))
        .with("Accept", EVENTS_FIRST)
        .sent()
        .streams();
    let (of_second, _) = named(&mut second);
    second.answer_to(&json!(1)).unwrap();
    alice.sends("hi").to("bob");
    let mut main = bob.reads_stream();
    let (of_main, _) = named(&mut main);
    let names = [&of_first, &of_second, &of_main].map(|name| name.split('-').next().unwrap());
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 3, "{names:?}");
    let mut again = resumed(&bob, &of_first);
    assert_eq!(again.answer_to(&json!(1)).unwrap(), answer);
    again.ends();
    // The other session knows nothing of it.
    let carol = Caller::legacy(broker.address, "2025-11-25", json!({}));
    let mut stream = carol.stream().with("Last-Event-ID", of_first.as_str()).sent().streams();
    carol.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    let carol = carol.registered("carol");
    alice.sends("for carol").to("carol");
    let frame = stream.hears("the first frame", |_| true);
    assert_eq!(frame["method"], UPDATED);
    carol.calls("heartbeat", json!({}));
}

#[test]
fn a_name_that_nobody_gave_begins_anew() {
    let broker = Broker::timeless();
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
        let mut stream = resumed(&bob, last);
        alice.sends("hi").to("bob");
        assert_eq!(stream.told(UPDATED), json!({"uri": INBOX}), "{last:?}");
        assert_eq!(bob.reads(json!({"acknowledge": "immediate"})).len(), 1);
    }
}

#[test]
fn who_reads_the_stream_last_reads_it_alone() {
    let broker = Broker::timeless();
    let alice = broker.agent("alice");
    let bob = bob(&broker, "2025-11-25");
    bob.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    let mut older = bob.reads_stream();
    for _ in 0..5 {
        let mut newer = bob.reads_stream();
        older.is_over();
        alice.sends("hi").to("bob");
        assert_eq!(newer.told(UPDATED), json!({"uri": INBOX}));
        assert_eq!(bob.reads(json!({"acknowledge": "immediate"})).len(), 1);
        older = newer;
    }
}

#[test]
fn messages_are_pushed_only_while_the_stream_is_read() {
    let broker = Broker::timeless();
    let alice = broker.agent("alice");
    let bob = pushed(&broker, json!({"window": 5, "ack": "manual"}));
    assert_eq!(alice.sends("1").to("bob").status, "queued");
    let mut stream = bob.reads_stream();
    let first = is_pushed(&mut stream, ["1"]);
    let second = alice.sends("2").to("bob");
    is_pushed(&mut stream, ["2"]);
    bob.notifies(
        "notifications/dev.mcp-broker/ack",
        json!({"message_ids": [first[0]["message_id"]]}),
    );
    alice.learns(first[0]["message_id"].as_str().unwrap(), "acknowledged");
    stream.leaves();
    // What was pushed and not acknowledged waits again; what comes now waits for who asks.
    alice.learns(&second.id, "queued");
    assert_eq!(alice.sends("3").to("bob").status, "queued");
    let read = bob.reads(json!({}));
    assert_eq!(texts(&read), ["2", "3"]);
    assert_eq!(read[0]["delivery_count"], 2);
    // And is pushed again when somebody reads once more.
    let mut stream = bob.reads_stream();
    alice.sends("4").to("bob");
    is_pushed(&mut stream, ["4"]);
    alice.sends("5").to("bob");
    is_pushed(&mut stream, ["5"]);
}

#[test]
fn what_was_pushed_to_a_reader_that_went_is_pushed_to_the_next() {
    let broker = Broker::timeless();
    let alice = broker.agent("alice");
    let bob = pushed(&broker, json!({"ack": "manual"}));
    let mut stream = bob.reads_stream();
    let sent = alice.sends("hi").to("bob");
    is_pushed(&mut stream, ["hi"]);
    for _ in 0..3 {
        stream.leaves();
        stream = bob.reads_stream();
        let again = is_pushed(&mut stream, ["hi"]);
        assert_eq!(again[0]["message_id"], sent.id.as_str());
    }
    let done = bob.calls("acknowledge_messages", json!({"message_ids": [sent.id]}));
    assert_eq!(done["acknowledged"], 1);
}

#[test]
fn what_was_written_to_the_stream_is_acknowledged_for_who_wants_that() {
    let broker = Broker::timeless();
    let alice = broker.agent("alice");
    let bob = pushed(&broker, json!({"window": 2, "ack": "auto"}));
    let early = alice.sends("early").to("bob");
    let mut stream = bob.reads_stream();
    is_pushed(&mut stream, ["early"]);
    alice.learns(&early.id, "acknowledged");
    for at in 0..20 {
        let text = at.to_string();
        let sent = alice.sends(&text).and("wait_for", "acknowledged").to("bob");
        assert_eq!(sent.status, "acknowledged");
        is_pushed(&mut stream, [text.as_str()]);
    }
}

#[test]
fn what_was_pushed_to_a_reader_is_pushed_to_the_one_who_takes_its_place() {
    let broker = Broker::timeless();
    let alice = broker.agent("alice");
    let bob = pushed(&broker, json!({"ack": "manual"}));
    let mut older = bob.reads_stream();
    let sent = alice.sends("hi").to("bob");
    is_pushed(&mut older, ["hi"]);
    // The broker does not know of the older one that it has gone, as when the network between drops everything.
    let mut newer = bob.reads_stream();
    let again = is_pushed(&mut newer, ["hi"]);
    assert_eq!(again[0]["message_id"], sent.id.as_str());
    older.is_over();
}

#[test]
fn a_client_that_comes_and_goes_is_told_everything_at_least_once() {
    const MESSAGES: usize = 200;
    let broker = Broker::with(&[&crate::support::TIMELESS[..], &["--workers=2", "--delivery-limit=1000"]].concat());
    let alice = broker.agent("alice");
    let bob = pushed(&broker, json!({"ack": "manual", "window": 20}));
    let sender = std::thread::spawn(move || {
        let ids: Vec<_> = (0..MESSAGES)
            .map(|at| alice.sends(&at.to_string()).to("bob").id)
            .collect();
        (alice, ids)
    });
    let mut seen = HashSet::new();
    let mut last: Option<String> = None;
    for round in 0.. {
        // In every other round it says where it was.
        let mut request = bob.stream();
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
        alice.learns(id, "acknowledged");
    }
}

#[test]
fn a_call_is_cancelled_by_another_post() {
    let broker = Broker::with(&["--workers=2", "--heartbeat-interval=100ms"]);
    let alice = broker.agent("alice");
    for version in ["2025-11-25", "2025-03-26"] {
        let bob = bob(&broker, version);
        for accept in [EVENTS_FIRST, "application/json, text/event-stream"] {
            let id = json!("wait");
            let params = json!({"name": "receive_messages", "arguments": {"wait_seconds": 100}});
            let mut waiting = bob.asks_as(&id, "tools/call", params).with("Accept", accept).sent();
            // It has begun.
            waiting.is_kept_alive();
            bob.cancels(&id);
            let sent = alice.sends("after").to("bob");
            let read = bob.reads(json!({"wait_seconds": 20, "acknowledge": "immediate"}));
            assert_eq!(read[0]["message_id"], sent.id.as_str());
            // Nothing is answered to it, and nobody is left waiting.
            while let Some(event) = waiting.next_event() {
                assert_eq!(event.data, "", "{event:?}");
            }
        }
        bob.delete().answered();
    }
}

#[test]
fn who_takes_no_events_hears_of_the_end_of_a_cancelled_call_too() {
    let broker = Broker::timeless();
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
        // Whenever it comes to be known, one of these comes after that.
        bob.cancels(&id);
        has_begun_to_answer().then_some(())
    });
}
