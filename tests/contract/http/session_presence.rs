//! HTTP sessions up to 2025-11-25 and the presence of their clients: silence, return, takeover, removal.

use serde_json::json;

use super::{INBOX, UPDATED, open_session};
use crate::support::{Broker, FAST_TIMEOUTS, eventually, listed_id};

const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

#[test]
fn a_client_can_take_its_session_back() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = open_session(&broker, LEGACY[0]).registered("bob");
    let newer = broker.agent("bob");
    assert_eq!(Some(&newer.session), bob.listed().as_ref());
    eventually("the older client is told", || {
        let result = bob
            .request("tools/call", json!({"name": "heartbeat", "arguments": {}}))
            .unwrap();
        (result["structuredContent"]["code"] == "session_taken_over").then_some(())
    });
    bob.is_refused_as("session_taken_over", "receive_messages", json!({}));
    alice.sends("for the newer").to("bob");
    newer.sees(["for the newer"]);
    // The newer connection has not acknowledged it.
    let back = bob.calls("register_session", json!({"name": "bob"}));
    assert_eq!(back["resumed"], true);
    assert_eq!(Some(listed_id(back["session_id"].as_str().unwrap())), bob.listed());
    newer.wire.closes_with(4001);
    let again = bob.reads(json!({}));
    assert_eq!(again[0]["delivery_count"], 2);
    // The older client may also register under another name.
    let newest = broker.agent("bob");
    let other = bob.calls("register_session", json!({"name": "robert"}));
    assert_ne!(listed_id(other["session_id"].as_str().unwrap()), newest.session);
    alice.sends("hi").to("robert");
    assert_eq!(bob.reads(json!({}))[0]["payload"]["text"], "hi");
    newest.calls("heartbeat", json!({}));
}

#[test]
fn the_stream_of_a_session_that_was_taken_over_ends_and_can_be_reopened() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = open_session(&broker, LEGACY[0]).registered("bob");
    bob.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    for _ in 0..3 {
        let mut stream = bob.opens_stream();
        let newer = open_session(&broker, LEGACY[0]).registered("bob");
        stream.awaits_end();
        alice.sends("hi").to("bob");
        assert_eq!(newer.reads(json!({"acknowledge": "immediate"})).len(), 1);
        bob.calls("register_session", json!({"name": "bob"}));
        let mut stream = bob.opens_stream();
        alice.sends("ho").to("bob");
        assert_eq!(stream.next_notification(UPDATED), json!({"uri": INBOX}));
        assert_eq!(bob.reads(json!({"acknowledge": "immediate"})).len(), 1);
    }
}

#[test]
fn a_client_that_disconnected_gets_its_session_back_by_registering() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let bob = open_session(&broker, LEGACY[0]).registered("bob");
    bob.calls("disconnect_session", json!({}));
    bob.is_refused_as("session_required", "heartbeat", json!({}));
    assert_eq!(alice.presence_of("bob").as_deref(), Some("disconnected"));
    alice.sends("while away").to("bob");
    let back = bob.calls("register_session", json!({"name": "bob"}));
    assert_eq!((&back["resumed"], &back["queue_size"]), (&json!(true), &json!(1)));
    assert_eq!(bob.reads(json!({}))[0]["payload"]["text"], "while away");
}

#[test]
fn a_silent_client_becomes_active_with_any_request() {
    let broker = Broker::with_fast_disconnect();
    let alice = broker.agent("alice");
    let bob = open_session(&broker, LEGACY[0]).registered("bob");
    bob.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    for round in 0..2 {
        alice.awaits_presence("bob", "disconnected");
        let text = round.to_string();
        let sent = alice.sends(&text).to("bob");
        assert_eq!(sent.status, "queued");
        let read = bob.reads(json!({"acknowledge": "immediate"}));
        assert_eq!(read[0]["message_id"], sent.id.as_str());
        assert_eq!(alice.presence_of("bob").as_deref(), Some("active"));
        // Its subscription still notifies.
        let mut stream = bob.opens_stream();
        alice.sends("more").to("bob");
        assert_eq!(stream.next_notification(UPDATED), json!({"uri": INBOX}));
        assert_eq!(bob.reads(json!({"acknowledge": "immediate"})).len(), 1);
    }
}

#[test]
fn a_silent_client_becomes_active_by_opening_its_stream() {
    let broker = Broker::with_fast_disconnect();
    let alice = broker.agent("alice");
    let bob = open_session(&broker, LEGACY[0]).registered("bob");
    bob.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    alice.awaits_presence("bob", "disconnected");
    alice.sends("while away").to("bob");
    let mut stream = bob.opens_stream();
    assert_eq!(stream.next_notification(UPDATED), json!({"uri": INBOX}));
    alice.awaits_presence("bob", "active");
    assert_eq!(bob.reads(json!({"acknowledge": "immediate"})).len(), 1);
    alice.sends("here").to("bob");
    assert_eq!(stream.next_notification(UPDATED), json!({"uri": INBOX}));
}

#[test]
fn a_client_that_reads_its_stream_stays_active() {
    let broker = Broker::start_with(&FAST_TIMEOUTS);
    let alice = broker.agent("alice");
    let bob = open_session(&broker, LEGACY[0]).registered("bob");
    let mut stream = bob.opens_stream();
    bob.request("resources/subscribe", json!({"uri": INBOX})).unwrap();
    // Another client that sends nothing is forgotten meanwhile, with its HTTP session.
    let silent = open_session(&broker, LEGACY[0]).registered("silent");
    alice.awaits_end_of("silent");
    assert_eq!(silent.call("heartbeat", json!({})).answered().status, 404);
    assert_eq!(alice.presence_of("bob").as_deref(), Some("active"));
    alice.sends("hi").to("bob");
    assert_eq!(stream.next_notification(UPDATED), json!({"uri": INBOX}));
    assert_eq!(bob.reads(json!({})).len(), 1);
}

#[test]
fn a_client_that_is_silent_for_too_long_is_forgotten() {
    let broker = Broker::start_with(&FAST_TIMEOUTS);
    let alice = broker.agent("alice");
    let bob = open_session(&broker, LEGACY[0]).registered("bob");
    // The HTTP session ends after the retention; its end makes the session disconnected, which is then removed.
    alice.awaits_end_of("bob");
    assert_eq!(bob.call("heartbeat", json!({})).answered().status, 404);
}

#[test]
fn a_request_of_a_silent_client_does_not_take_its_name_back() {
    let broker = Broker::with_fast_disconnect();
    let alice = broker.agent("alice");
    let older = open_session(&broker, LEGACY[0]).registered("bob");
    alice.awaits_presence("bob", "disconnected");
    let newer = broker.agent("bob");
    assert_eq!(Some(&newer.session), older.listed().as_ref());
    // Any request of the older client is a heartbeat, and not a registration.
    eventually("the older client is told", || {
        older.request("ping", json!({})).unwrap();
        let result = older
            .request("tools/call", json!({"name": "heartbeat", "arguments": {}}))
            .unwrap();
        (result["structuredContent"]["code"] == "session_taken_over").then_some(())
    });
    newer.calls("heartbeat", json!({}));
    // A registration takes the session over again.
    older.calls("register_session", json!({"name": "bob"}));
    newer.wire.closes_with(4001);
}
