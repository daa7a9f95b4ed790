//! `POST /api/v1/messages`.

use std::{sync::Barrier, thread};

use serde_json::{Value, json};

use super::{assert_refused, note, stranger};
use crate::support::{Broker, Request, Response};

/// A message with an `Idempotency-Key` header.
fn post_with_key(broker: &Broker, api_key: &str, idempotency_key: &str, message: &Value) -> Response {
    let headers = [("X-API-Key", api_key), ("Idempotency-Key", idempotency_key)];
    broker.rest_with(&headers, "POST", "/api/v1/messages", message)
}

#[test]
fn a_message_is_sent_in_the_name_of_a_session_that_the_caller_makes() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let bob = team.agent("bob");
    let mut message = note("reporter", Some("bob"), "hi");
    message["headers"] = json!({"priority": "high", "correlation_id": "c1", "thread_id": "t1", "subject": "s1"});
    let answer = team.posts(&team.key, &message);
    assert_eq!(
        (&answer["status"], &answer["queue_size"]),
        (&json!("queued"), &json!(1))
    );
    let seen = bob.sees(["hi"]);
    assert_eq!(seen[0]["message_id"], answer["message_id"]);
    assert_eq!(seen[0]["sender_name"], "reporter");
    assert_eq!(seen[0]["headers"], message["headers"]);
    // The second message comes from the same session.
    team.posts(&team.key, &note("reporter", Some("bob"), "again"));
    assert_eq!(bob.sees(["again"])[0]["sender_id"], seen[0]["sender_id"]);
    bob.sends("an answer").to("reporter");
    assert_eq!(team.gets("sessions/reporter")["queue_size"], 1);
}

#[test]
fn a_message_without_a_protocol_is_a_text() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let bob = team.agent("bob");
    for payload in [json!("hello"), json!({"text": "hello"})] {
        team.posts(
            &team.key,
            &json!({"from": "reporter", "recipient_id": "bob", "payload": payload}),
        );
        let seen = bob.sees(["hello"]);
        assert_eq!(
            (&seen[0]["protocol_name"], &seen[0]["protocol_version"]),
            (&json!("text"), &json!("1.0.0"))
        );
    }
    team.posts(&team.key, &json!({"from": "reporter", "payload": "to all"}));
    bob.sees(["to all"]);
    let found = team.gets("protocols/text/1.0.0");
    assert_eq!(found["schema"]["required"], json!(["text"]), "{found}");
}

#[test]
fn sending_leaves_the_connection_of_the_sender_alone() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let alice = team.agent("alice");
    let bob = team.agent("bob");
    let before = team.gets("sessions/alice");
    for from in ["alice", alice.held.as_str()] {
        team.posts(&team.key, &note(from, Some("bob"), from));
    }
    let seen = bob.sees(["alice", alice.held.as_str()]);
    assert!(seen.iter().all(|message| message["sender_id"] == before["session_id"]));
    alice.calls("heartbeat", json!({}));
    assert!(alice.wire.is_open());
}

#[test]
fn a_broadcast_has_no_recipient() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let agents = [team.agent("one"), team.agent("two")];
    let answer = team.posts(&team.key, &note("reporter", None, "to all"));
    assert_eq!(
        (&answer["recipients"], &answer["failed"]),
        (&json!(2), &json!(0)),
        "{answer}"
    );
    for agent in &agents {
        agent.sees(["to all"]);
    }
    let mut message = note("reporter", None, "to some");
    message["capability_filter"] = json!({"features": ["none has it"]});
    let answer = team.posts(&team.key, &message);
    assert_eq!(
        (&answer["recipients"], &answer["skipped"]),
        (&json!(0), &json!(2)),
        "{answer}"
    );
}

#[test]
fn a_sender_waits_for_the_acknowledgement() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let bob = team.push_agent_as(&team.key, "bob", &json!({"ack": "manual"}));
    let mut message = note("reporter", Some("bob"), "now");
    message["wait_for"] = json!("acknowledged");
    let answer = thread::scope(|scope| {
        let answer = scope.spawn(|| team.posts(&team.key, &message));
        let pushed = bob.is_pushed(["now"]);
        bob.acknowledges(&pushed);
        answer.join().unwrap()
    });
    assert_eq!(answer["status"], "acknowledged", "{answer}");
    message["timeout_seconds"] = json!(0.05);
    let answer = team.posts(&team.key, &message);
    assert_ne!(answer["status"], "acknowledged", "{answer}");
}

#[test]
fn a_waiting_sender_is_answered_when_the_broker_stops() {
    let mut broker = Broker::secured();
    let (key, address) = {
        let team = broker.project("team", &json!({}));
        let _bob = team.agent("bob");
        (team.key.clone(), broker.address)
    };
    let mut message = note("reporter", Some("bob"), "later");
    message["wait_for"] = json!("acknowledged");
    message["timeout_seconds"] = json!(100);
    let request = Request::post(address, message.to_string())
        .with_path("/api/v1/messages")
        .with("X-API-Key", &key);
    let answer = request.sent();
    let observer = broker.rest(&key, "GET", "/api/v1/sessions/bob", &Value::Null);
    assert_eq!(observer.status, 200);
    crate::support::eventually("the message waits", || {
        let bob = broker.rest(&key, "GET", "/api/v1/sessions/bob", &Value::Null).json();
        (bob["queue_size"] == 1).then_some(())
    });
    broker.terminate();
    let answer = answer.into_response();
    assert_eq!(
        (answer.status, &answer.json()["status"]),
        (201, &json!("queued")),
        "{answer:?}"
    );
    assert!(broker.wait_for_exit().success());
}

#[test]
fn twice_at_once_with_one_key_is_one_message() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let bob = team.agent("bob");
    for round in 0..5 {
        let (key, text) = (format!("\"key-{round}\""), format!("round {round}"));
        let message = note("reporter", Some("bob"), &text);
        let start = Barrier::new(2);
        let post = || {
            start.wait();
            post_with_key(&broker, &team.key, &key, &message)
        };
        let [one, two] = thread::scope(|scope| [scope.spawn(post), scope.spawn(post)].map(|it| it.join().unwrap()));
        let mut statuses = [one.status, two.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 201], "{one:?} {two:?}");
        assert_eq!(one.json()["message_id"], two.json()["message_id"]);
        bob.sees([text.as_str()]);
        bob.sees_nothing();
    }
    // The header and the member of the body are the same key.
    let mut message = note("reporter", Some("bob"), "round 0");
    message["headers"] = json!({"idempotency_key": "key-0"});
    assert_eq!(team.api("POST", "messages", &message).status, 200);
    let refused = post_with_key(&broker, &team.key, "another", &message);
    assert_refused(&refused, 400, "invalid_argument");
}

#[test]
fn a_foreign_session_cannot_be_sent_from() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let bob = team.agent("bob");
    let member = team.new_key_with_scope("member");
    let refused = team.api_as(&member, "POST", "messages", &note("bob", Some("bob"), "hi"));
    assert_refused(&refused, 403, "forbidden");
    let refused = team.api_as(&member, "POST", "messages", &note(&bob.session, Some("bob"), "hi"));
    assert_refused(&refused, 404, "session_not_found");
    let other = stranger(&broker);
    let refused = team.api_as(&other, "POST", "messages", &note(&bob.session, Some("bob"), "hi"));
    assert_refused(&refused, 404, "session_not_found");
    let refused = team.api_as(&other, "POST", "messages", &note("me", Some("bob"), "hi"));
    assert_refused(&refused, 404, "session_not_found");
    let observer = team.new_key_with_scope("observer");
    let refused = team.api_as(&observer, "POST", "messages", &note("me", Some("bob"), "hi"));
    assert_refused(&refused, 403, "forbidden");
    bob.sees_nothing();
}

#[test]
fn bad_messages_are_refused_and_send_nothing() {
    let broker = Broker::secured_with(&["--max-payload-mb=1"]);
    let team = broker.project("team", &json!({}));
    let bob = team.agent("bob");
    let with = |member: &str, value: Value| {
        let mut message = note("reporter", Some("bob"), "hi");
        message[member] = value;
        message
    };
    for (message, status, code) in [
        (with("from", Value::Null), 400, "invalid_argument"),
        (with("from", json!("")), 400, "invalid_argument"),
        (with("from", json!("a@b")), 400, "invalid_argument"),
        (with("from", json!(7)), 400, "invalid_argument"),
        (with("recipient_id", json!("nobody")), 404, "session_not_found"),
        (with("recipient_id", json!("")), 404, "session_not_found"),
        (with("recipient_id", json!({})), 400, "invalid_argument"),
        (with("protocol_name", json!("none")), 404, "protocol_not_found"),
        (with("protocol_version", json!("9.0.0")), 404, "protocol_not_found"),
        (with("payload", json!({"text": 7})), 400, "payload_invalid"),
        (with("payload", json!([])), 400, "payload_invalid"),
        (with("payload", Value::Null), 400, "invalid_argument"),
        (
            with("payload", json!({"text": "x".repeat(1024 * 1024)})),
            413,
            "payload_too_large",
        ),
        (
            with("payload", json!({"text": "x".repeat(2 * 1024 * 1024)})),
            413,
            "payload_too_large",
        ),
        (with("headers", json!([])), 400, "invalid_argument"),
        (with("headers", json!({"priority": "most"})), 400, "invalid_argument"),
        (with("headers", json!({"ttl_seconds": 0})), 400, "invalid_argument"),
        (
            with("headers", json!({"correlation_id": "x".repeat(257)})),
            400,
            "invalid_argument",
        ),
        (with("headers", json!({"hops": -1})), 400, "invalid_argument"),
        (with("headers", json!({"report": "all"})), 400, "invalid_argument"),
        (with("wait_for", json!("read")), 400, "invalid_argument"),
        (with("timeout_seconds", json!(111)), 400, "invalid_argument"),
        (with("capability_filter", json!({})), 400, "invalid_argument"),
        (with("more", json!(1)), 400, "invalid_argument"),
    ] {
        let refused = team.api("POST", "messages", &message);
        assert_refused(&refused, status, code);
    }
    for key in ["x".repeat(257), "\u{e9}".to_owned()] {
        let refused = post_with_key(&broker, &team.key, &key, &note("reporter", Some("bob"), "hi"));
        assert_refused(&refused, 400, "invalid_argument");
    }
    for body in [
        "",
        "{",
        "[]",
        "{} {}",
        r#"{"from": "a", "from": "b"}"#,
        &"[".repeat(1000),
    ] {
        let request = Request::post(broker.address, body)
            .with_path("/api/v1/messages")
            .with("X-API-Key", &team.key);
        assert_refused(&request.answered(), 400, "invalid_argument");
    }
    bob.sees_nothing();
}
