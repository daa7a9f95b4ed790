//! 2026-07-28 over HTTP: streams of `subscriptions/listen`. Each is the answer to one POST.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    PUSH, UPDATED,
    push::{Era, push_client},
};
use crate::support::{Agent, Broker, HttpAgent, ResponseReader, TIMEOUTS_OFF};

const ID: &str = "io.modelcontextprotocol/subscriptionId";

fn expect_update(stream: &mut ResponseReader, caller: &HttpAgent, id: &Value) {
    assert_eq!(
        stream.next_notification(UPDATED),
        json!({"_meta": {ID: id}, "uri": caller.inbox()})
    );
}

#[test]
fn a_stream_begins_with_its_acknowledgement_and_notifies_of_each_change() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for (at, id) in [json!(7), json!("7"), json!("ünï \"q\" \\"), json!(0), json!(-3)]
        .iter()
        .enumerate()
    {
        let name = format!("bob{at}");
        let bob = broker.http_modern(&name);
        let mut stream = bob.subscribes_as(id);
        assert_eq!(stream.header("x-accel-buffering").as_deref(), Some("no"));
        assert_eq!(stream.header("mcp-session-id"), None);
        for text in ["one", "two"] {
            alice.sends(text).to(name.as_str());
            expect_update(&mut stream, &bob, id);
        }
        assert_eq!(bob.reads(json!({})).len(), 2);
    }
}

#[test]
fn messages_that_wait_already_are_announced_after_the_acknowledgement() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.http_modern("bob");
    alice.sends("early").to("bob");
    let id = json!("early");
    let mut stream = bob.subscribes_as(&id);
    expect_update(&mut stream, &bob, &id);
}

#[test]
fn events_of_this_revision_have_no_ids() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.http_modern("bob");
    let mut stream = bob.subscribes_as(&json!(1));
    alice.sends("hi").to("bob");
    let event = stream.next_event().unwrap();
    assert_eq!((event.id, event.retry), (None, None));
    drop(stream);
    // An event id in the request is ignored.
    let params = json!({"notifications": {"resourceSubscriptions": [bob.inbox()]}});
    let mut stream = bob
        .asks("subscriptions/listen", params)
        .with("Last-Event-ID", "0-1")
        .sent()
        .streams();
    assert_eq!(
        stream.next_frame()["method"],
        "notifications/subscriptions/acknowledged"
    );
}

#[test]
fn streams_of_one_session_are_all_notified() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.http_modern("bob");
    let mut first = bob.subscribes_as(&json!("first"));
    let mut second = bob.subscribes_as(&json!("second"));
    // The same id on another connection is another stream.
    let mut third = bob.subscribes_as(&json!("second"));
    alice.sends("hi").to("bob");
    expect_update(&mut first, &bob, &json!("first"));
    expect_update(&mut second, &bob, &json!("second"));
    expect_update(&mut third, &bob, &json!("second"));
    // The end of one stream does not affect the others.
    first.disconnects();
    third.disconnects();
    alice.sends("again").to("bob");
    expect_update(&mut second, &bob, &json!("second"));
    // Streams take no messages from the inbox.
    assert_eq!(bob.reads(json!({})).len(), 2);
}

#[test]
fn streams_are_notified_of_their_own_inbox_only() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let callers: Vec<_> = (0..10).map(|at| broker.http_modern(&format!("bob{at}"))).collect();
    let mut streams: Vec<_> = callers.iter().map(|caller| caller.subscribes_as(&json!(1))).collect();
    for (at, (caller, stream)) in callers.iter().zip(&mut streams).enumerate().rev() {
        alice.sends("hi").to(format!("bob{at}").as_str());
        let frame = stream.next_frame();
        assert_eq!(frame["params"], json!({"_meta": {ID: 1}, "uri": caller.inbox()}));
    }
}

#[test]
fn the_acknowledgement_names_only_what_is_offered() {
    let broker = Broker::without_timeouts();
    let bob = broker.http_modern("bob");
    let alice = broker.http_modern("alice");
    for (filter, honored) in [
        (json!({}), json!({})),
        (json!({"toolsListChanged": true, "promptsListChanged": true}), json!({})),
        (
            json!({"resourceSubscriptions": ["broker://nothing", "broker://sessions", "broker://inbox"]}),
            json!({}),
        ),
        (
            json!({"resourceSubscriptions": ["broker://nothing", bob.inbox()]}),
            json!({"resourceSubscriptions": [bob.inbox()]}),
        ),
        (
            json!({"resourceSubscriptions": ["broker://sessions/00000000-0000-4000-8000-000000000000/inbox"]}),
            json!({}),
        ),
    ] {
        let params = json!({"notifications": filter});
        let mut stream = bob.asks("subscriptions/listen", params).sent().streams();
        let frame = stream.next_frame();
        assert_eq!(frame["params"]["notifications"], honored, "{filter}");
        assert_eq!(frame["params"]["_meta"][ID], 1);
    }
    for params in [
        json!({}),
        json!({"notifications": []}),
        json!({"notifications": {"resourceSubscriptions": "x"}}),
    ] {
        let error = bob.request("subscriptions/listen", params.clone()).unwrap_err();
        assert_eq!(error["code"], -32602, "{params}");
    }
    alice.calls("heartbeat", json!({}));
}

#[test]
fn a_client_that_accepts_no_events_cannot_listen() {
    let broker = Broker::without_timeouts();
    let bob = broker.http_modern("bob");
    let params = json!({"notifications": {"resourceSubscriptions": [bob.inbox()]}});
    let listen = bob.asks("subscriptions/listen", params);
    let response = listen.clone().with("Accept", "application/json").answered();
    assert_eq!(response.status, 406, "{response:?}");
    for accept in ["text/event-stream", "*/*", "application/json, text/event-stream"] {
        listen.clone().with("Accept", accept).sent().streams();
    }
}

#[test]
fn a_silent_stream_is_kept_alive_by_comments() {
    let broker = Broker::start_with(&["--heartbeat-interval=100ms"]);
    let alice = broker.agent("alice");
    let bob = broker.http_modern("bob");
    let mut stream = bob.subscribes_as(&json!(1));
    for _ in 0..3 {
        stream.awaits_comment();
    }
    // Comments are not events, and events still come between them.
    alice.sends("hi").to("bob");
    expect_update(&mut stream, &bob, &json!(1));
    stream.awaits_comment();
}

#[test]
fn a_client_that_listens_stays_active_until_its_stream_ends() {
    let broker = Broker::with_fast_disconnect();
    let alice = broker.agent("alice");
    let bob = broker.http_modern("bob");
    let stream = bob.subscribes_as(&json!(1));
    // When another silent client counts as disconnected, this one would as well.
    let silent = broker.http_modern("silent");
    alice.awaits_presence("silent", "disconnected");
    assert_eq!(alice.presence_of("bob").as_deref(), Some("active"));
    stream.disconnects();
    alice.awaits_presence("bob", "disconnected");
    // Any call and any stream makes a silent client active again.
    silent.calls("heartbeat", json!({}));
    assert_eq!(alice.presence_of("silent").as_deref(), Some("active"));
    let _stream = bob.subscribes_as(&json!(2));
    alice.awaits_presence("bob", "active");
}

#[test]
fn a_client_that_did_not_declare_push_gets_notifications_only() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.http_modern("bob");
    let mut stream = bob.subscribes_as(&json!(1));
    assert_eq!(alice.sends("hi").to("bob").status, "queued");
    assert_eq!(stream.next_frame()["method"], UPDATED);
    alice.sends("ho").to("bob");
    assert_eq!(stream.next_frame()["method"], UPDATED);
    assert_eq!(bob.reads(json!({})).len(), 2);
}

#[test]
fn a_stateless_registration_takes_the_name_over_from_a_connection() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let older: Agent = broker.push_agent("bob", &json!({"ack": "manual"}));
    alice.sends("hi").to("bob");
    older.is_pushed(["hi"]);
    let newer = broker.http_modern("bob");
    assert_eq!(newer.listed().as_ref(), Some(&older.session));
    older.wire.closes_with(4001);
    let again = newer.reads(json!({}));
    assert_eq!(again[0]["delivery_count"], 2);
}

#[test]
fn streams_end_with_their_result_when_the_broker_stops() {
    for workers in ["--workers=1", "--workers=2"] {
        let mut broker = Broker::start_with(&[workers, "--shutdown-grace=20s", "--heartbeat-interval=100ms"]);
        let callers: Vec<_> = (0..4).map(|at| broker.http_modern(&format!("bob{at}"))).collect();
        let ids = [json!(1), json!("é \"x\""), json!(3), json!("4")];
        let wait = callers[0].call("receive_messages", json!({"wait_seconds": 100}));
        let mut waiting = wait.clone().with("Accept", "application/json").sent();
        let mut streaming = wait.sent();
        let mut streams: Vec<_> = callers
            .iter()
            .zip(&ids)
            .map(|(caller, id)| caller.subscribes_as(id))
            .collect();
        streaming.awaits_comment();
        let began = Instant::now();
        broker.terminate();
        for (stream, id) in streams.iter_mut().zip(&ids) {
            let result = stream.answer_to(id).unwrap();
            assert_eq!(result["resultType"], "complete");
            assert_eq!(result["_meta"][ID], *id);
            stream.ends();
        }
        // Calls that wait are told to retry.
        let mut waits = vec![&mut streaming];
        if workers == "--workers=1" {
            // A single thread had read this call before it answered later connections.
            waits.push(&mut waiting);
        }
        for wait in waits {
            let result = wait.answer_to(&json!(1)).unwrap();
            assert_eq!(result["structuredContent"]["code"], "unavailable", "{result}");
            assert!(result["structuredContent"]["retry_after_ms"].is_u64(), "{result}");
        }
        streaming.awaits_end();
        assert_eq!(broker.wait_for_exit().code(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(15), "the shutdown was delayed");
    }
}

#[test]
fn streams_that_come_and_go_lose_no_message() {
    let broker = Broker::start_with(&[&TIMEOUTS_OFF[..], &["--workers=2", "--delivery-limit=1000"]].concat());
    let alice = broker.agent("alice");
    let bob = push_client(&broker, Era::Modern, "bob", json!({"ack": "manual"}));
    for round in 0..50 {
        let stream = bob.subscribes_as(&json!(round));
        if round % 2 == 0 {
            alice.sends("noise").begins_sending_to("bob");
        }
        drop(stream);
    }
    let mut stream = bob.subscribes_as(&json!("last"));
    // Every accepted message is still there.
    let mut seen = std::collections::HashSet::new();
    while seen.len() < 25 {
        let message = stream.next_notification(PUSH)["message"].take();
        assert!(seen.insert(message["message_id"].to_string()), "{message}");
    }
    alice.sends("last").to("bob");
    assert_eq!(stream.next_notification(PUSH)["message"]["payload"]["text"], "last");
}
