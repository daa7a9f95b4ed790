//! The life of a session: registration, presence, return, takeover, and removal after the retention.

use serde_json::{Value, json};

use crate::support::{Broker, eventually, listed_id};

#[test]
fn a_name_is_an_address_that_outlives_its_connection() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    bob.wire.disconnects();
    alice.sends("while you were away").to("bob");
    let again = broker.client();
    let session = again.calls("register_session", json!({"name": "bob"}));
    assert_eq!(session["resumed"], true);
    assert_eq!(listed_id(session["session_id"].as_str().unwrap()), bob.session);
    assert_eq!(session["queue_size"], 1);
    assert_eq!(again.unread(), 1);
    again.sees(["while you were away"]);
}

#[test]
fn a_newer_connection_takes_the_session_over() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for name in ["bob", "carol"] {
        let older = broker.push_agent(name, &json!({"ack": "manual"}));
        let waiting = alice.sends("hi").to(&older);
        older.is_pushed(["hi"]);
        // By a client of the other era, too.
        let newer = if name == "bob" {
            broker.agent(name)
        } else {
            broker.modern(name)
        };
        assert_eq!(newer.session, older.session);
        assert!(!older.wire.closes_with(4001).is_empty());
        let again = newer.sees(["hi"]);
        assert_eq!(again[0]["message_id"], waiting.id.as_str());
        assert_eq!(again[0]["delivery_count"], 2);
        // The end of the older connection does not affect the newer one.
        alice.sends("still here").to(name);
        newer.sees(["still here"]);
        assert!(newer.wire.is_open());
        let listed = alice.calls("list_sessions", json!({"status": "all"}));
        let same = |session: &&Value| session["name"] == name;
        assert_eq!(listed["sessions"].as_array().unwrap().iter().filter(same).count(), 1);
    }
}

#[test]
fn registering_again_on_the_same_connection_updates_the_session() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.push_agent("bob", &json!({"ack": "manual"}));
    alice.sends("hi").to(&bob);
    bob.is_pushed(["hi"]);
    let again = bob.calls(
        "register_session",
        json!({"name": "bob", "capabilities": {"supported_features": ["new"]}}),
    );
    assert_eq!(again["resumed"], true);
    let listed = alice.calls("list_sessions", json!({"feature": "new"}));
    assert_eq!(listed["sessions"][0]["name"], "bob");
    // On the same connection nothing is delivered again, and nothing is closed.
    bob.sees_no_push();
    assert!(bob.wire.is_open());
}

#[test]
fn one_of_many_agents_that_register_a_name_keeps_it() {
    let broker = Broker::start();
    let agents: Vec<_> = (0..8).map(|_| broker.client()).collect();
    let calls: Vec<_> = agents
        .iter()
        .map(|agent| agent.begins_call("register_session", &json!({"name": "only"})))
        .collect();
    // Each is answered, or closed because another one came after it.
    let witness = broker.agent("witness");
    eventually("one connection is left", || {
        (agents.iter().filter(|agent| agent.wire.is_open()).count() == 1).then_some(())
    });
    let (winner, call) = agents
        .iter()
        .zip(calls)
        .find(|(agent, _)| agent.wire.is_open())
        .unwrap();
    winner.finishes_call("register_session", &call);
    witness.sends("hi").to("only");
    winner.sees(["hi"]);
}

#[test]
fn presence_follows_the_heartbeats() {
    let broker = Broker::with_fast_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    bob.wire.stops_answering_pings();
    alice.awaits_presence("bob", "stale");
    // Any frame is a heartbeat.
    bob.wire.sends_frame(0x8a, b"");
    alice.awaits_presence("bob", "active");
    alice.awaits_presence("bob", "disconnected");
    // Such a long silence also closes the connection.
    assert_eq!(bob.wire.awaits_close().code, Some(4002));
    // Within the retention the name brings the session back.
    let bob = broker.agent("bob");
    assert_eq!(alice.presence_of("bob").as_deref(), Some("active"));
    bob.calls("heartbeat", json!({}));
}

#[test]
fn a_client_that_answers_pings_stays_active() {
    let broker = Broker::with_fast_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    let silent = broker.agent("silent");
    silent.wire.stops_answering_pings();
    alice.awaits_end_of("silent");
    assert!(bob.wire.pings() > 0);
    assert_eq!(alice.presence_of("bob").as_deref(), Some("active"));
    assert!(bob.wire.is_open());
}

#[test]
fn after_the_retention_a_session_is_removed_and_its_messages_are_dead_letters() {
    let broker = Broker::with_fast_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.push_agent("bob", &json!({"window": 1}));
    let first = alice.sends("delivered").to(&bob);
    let second = alice.sends("waiting").to(&bob);
    bob.is_pushed(["delivered"]);
    bob.wire.disconnects();
    alice.awaits_end_of("bob");
    for sent in [&first, &second] {
        alice.awaits_status(&sent.id, "dead_lettered");
        assert_eq!(alice.recipient_statuses(&sent.id)[0]["reason"], "recipient_gone");
    }
    let dead = alice.dead_letters("recipient_gone");
    assert_eq!(dead.len(), 2);
    alice.sends("hi").fails_as("session_not_found", "bob");
    // The name is free: a client that registers it gets a new session.
    let newcomer = broker.agent("bob");
    assert_ne!(newcomer.session, bob.session);
    newcomer.sees_nothing();
    // Without a named recipient there is no session to redrive to.
    let ids = json!([first.id, second.id]);
    let redriven = alice.calls("redrive_dead_letters", json!({"message_ids": ids}));
    assert_eq!(redriven["redriven"], 0);
    assert_eq!(redriven["failures"][0]["code"], "session_not_found");
    let redriven = alice.calls(
        "redrive_dead_letters",
        json!({"message_ids": ids, "recipient_id": "bob"}),
    );
    assert_eq!(redriven["redriven"], 2);
    newcomer.sees(["delivered", "waiting"]);
}

#[test]
fn a_broadcast_can_be_redriven_to_a_session_that_has_received_it() {
    let broker = Broker::with_fast_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.push_agent("bob", &json!({"ack": "auto", "window": 1000}));
    let carol = broker.agent("carol");
    let id = alice.sends("for all").to_everyone()["message_id"].clone();
    bob.is_pushed(["for all"]);
    carol.wire.disconnects();
    alice.awaits_end_of("carol");
    assert_eq!(alice.dead_letters("recipient_gone").len(), 1);
    let again = json!({"message_ids": [id], "recipient_id": "bob"});
    assert_eq!(alice.calls("redrive_dead_letters", again)["redriven"], 1);
    bob.is_pushed(["for all"]);
    assert_eq!(alice.dead_letters("recipient_gone"), [Value::Null; 0]);
}

#[test]
fn a_session_that_disconnects_is_removed_after_the_retention() {
    let broker = Broker::with_fast_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    bob.calls("disconnect_session", json!({}));
    assert_eq!(alice.presence_of("bob").as_deref(), Some("disconnected"));
    let listed = alice.calls("list_sessions", json!({"status": "disconnected"}));
    assert_eq!(listed["sessions"][0]["name"], "bob");
    alice.awaits_end_of("bob");
    // The connection itself stays open.
    bob.wire.syncs();
}

#[test]
fn disconnect_session_is_not_undone_by_later_frames() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for round in 0..40 {
        let name = format!("bob{round}");
        let bob = broker.agent(&name);
        let call = bob.begins_call("disconnect_session", &json!({}));
        for _ in 0..5 {
            bob.wire.sends_frame(0x8a, b"");
        }
        bob.finishes_call("disconnect_session", &call);
        bob.wire.syncs();
        assert_eq!(
            alice.presence_of(&name).as_deref(),
            Some("disconnected"),
            "round {round}"
        );
    }
}

#[test]
fn a_session_that_leaves_while_a_call_waits_is_disconnected() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let call = bob.begins_call("receive_messages", &json!({"wait_seconds": 50}));
    bob.calls("disconnect_session", json!({}));
    let received = bob.finishes_call("receive_messages", &call);
    assert_eq!(received["messages"], json!([]));
    assert_eq!(alice.presence_of("bob").as_deref(), Some("disconnected"));
}

#[test]
fn a_long_poll_keeps_a_session_alive() {
    let broker = Broker::with_fast_timeouts();
    let alice = broker.agent("alice");
    // The poll uses the connection of another agent, so that it is the only heartbeat.
    let bob = broker.agent("bob");
    let carrier = broker.agent("carrier");
    bob.wire.disconnects();
    let poll = carrier.begins_call(
        "receive_messages",
        &json!({"session_id": bob.held, "wait_seconds": 100}),
    );
    let silent = broker.agent("silent");
    silent.wire.stops_answering_pings();
    // Longer than it takes to be removed.
    alice.awaits_end_of("silent");
    assert!(alice.presence_of("bob").is_some());
    alice.sends("still there").to("bob");
    let received = carrier.finishes_call("receive_messages", &poll);
    assert_eq!(received["messages"][0]["payload"]["text"], "still there");
}

#[test]
fn a_session_without_a_name_ends_with_its_connection() {
    let broker = Broker::with_fast_timeouts();
    let alice = broker.agent("alice");
    let nameless = broker.client();
    let session = nameless.calls("register_session", json!({}))["session_id"].take();
    nameless.wire.disconnects();
    eventually("the session is removed", || {
        let listed = alice.calls("list_sessions", json!({"status": "all"}));
        let sessions = listed["sessions"].as_array().unwrap();
        sessions
            .iter()
            .all(|other| other["session_id"] != session)
            .then_some(())
    });
}

#[test]
fn names_are_compared_exactly() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let names = [
        "Alice",
        "ALICE",
        "alice b",
        "älice",
        "a/b",
        "\"quoted\\\"",
        "😀",
        "default",
        "null",
    ];
    let others: Vec<_> = names.into_iter().map(|name| broker.agent(name)).collect();
    for other in &others {
        alice.sends(&other.name).to(other);
    }
    for other in &others {
        other.sees([other.name.as_str()]);
        other.sees_nothing();
    }
    for name in [
        "a\u{0}b",
        "a\nb",
        "a\u{1b}[31mb",
        "\u{7f}",
        "\u{9b}31m",
        " a",
        "a ",
        "\t",
        &alice.session,
    ] {
        broker
            .client()
            .is_refused_as("invalid_argument", "register_session", json!({"name": name}));
    }
}
