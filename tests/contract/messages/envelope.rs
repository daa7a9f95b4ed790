//! The promises of the envelope: order, priority, time to live, correlation, idempotency.

use serde_json::json;

use crate::support::{Broker, texts};

#[test]
fn messages_of_one_sender_arrive_in_order() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    // All of them in flight at once.
    let sent: Vec<_> = (0..300)
        .map(|at| alice.sends(&at.to_string()).begins_sending_to(&bob))
        .collect();
    for id in &sent {
        alice.finishes_call("send_message", id);
    }
    let expected: Vec<_> = (0..300).map(|at| at.to_string()).collect();
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let messages = bob.reads(json!({"limit": 37}));
        assert!(!messages.is_empty());
        seen.extend(messages);
    }
    assert_eq!(texts(&seen), expected);
    let ids: Vec<_> = seen
        .iter()
        .map(|message| message["message_id"].as_str().unwrap())
        .collect();
    assert!(ids.is_sorted(), "ids sort by acceptance");
}

#[test]
fn the_order_holds_for_every_sender_of_many() {
    let broker = Broker::start();
    let bob = broker.agent("bob");
    let senders = broker.agents("sender", 5);
    std::thread::scope(|scope| {
        for sender in senders {
            scope.spawn(move || {
                let sent: Vec<_> = (0..40)
                    .map(|at| sender.sends(&format!("{} {at}", sender.name)).begins_sending_to("bob"))
                    .collect();
                for id in sent {
                    sender.finishes_call("send_message", &id);
                }
            });
        }
    });
    let seen = bob.reads(json!({"limit": 1000}));
    assert_eq!(seen.len(), 200);
    for sender in 0..5 {
        let prefix = format!("sender{sender} ");
        let of_one: Vec<_> = texts(&seen)
            .into_iter()
            .filter(|text| text.starts_with(&prefix))
            .collect();
        let expected: Vec<_> = (0..40).map(|at| format!("{prefix}{at}")).collect();
        assert_eq!(of_one, expected);
    }
}

#[test]
fn a_message_with_higher_priority_overtakes_waiting_messages() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    for (text, priority) in [
        ("low 1", "low"),
        ("normal 1", "normal"),
        ("urgent 1", "urgent"),
        ("high 1", "high"),
        ("urgent 2", "urgent"),
        ("low 2", "low"),
        ("high 2", "high"),
    ] {
        alice.sends(text).with("priority", priority).to(&bob);
    }
    alice.sends("normal 2").to(&bob);
    bob.sees([
        "urgent 1", "urgent 2", "high 1", "high 2", "normal 1", "normal 2", "low 1", "low 2",
    ]);
}

#[test]
fn a_delivered_message_is_not_overtaken() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice.sends("first").to(&bob);
    assert_eq!(texts(&bob.reads(json!({"limit": 1}))), ["first"]);
    alice.sends("later").to(&bob);
    alice.sends("urgent").with("priority", "urgent").to(&bob);
    bob.sees(["urgent", "later"]);
}

#[test]
fn a_message_expires_after_its_ttl_and_becomes_a_dead_letter() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let late = alice.sends("late").with("ttl_seconds", 1).to(&bob);
    alice.sends("patient").with("ttl_seconds", 3600).to(&bob);
    assert_eq!(late.status, "queued");
    alice.awaits_status(&late.id, "expired");
    assert_eq!(alice.recipient_statuses(&late.id)[0]["reason"], "expired");
    bob.sees(["patient"]);
    bob.sees_nothing();
    let dead = alice.dead_letters("expired");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0]["message"]["message_id"], late.id.as_str());
    assert_eq!(dead[0]["session_id"], bob.session.as_str());
}

#[test]
fn a_message_that_was_delivered_in_time_does_not_expire() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("in time").with("ttl_seconds", 1).to(&bob);
    let read = bob.reads(json!({"acknowledge": "manual"}));
    assert_eq!(texts(&read), ["in time"]);
    // The ttl of a later message has passed, so that of the first has too.
    let witness = alice.sends("late").with("ttl_seconds", 1).to(&alice);
    alice.awaits_status(&witness.id, "expired");
    assert_eq!(alice.status_of(&sent.id), "delivered");
    bob.calls("acknowledge_messages", json!({"message_ids": [sent.id]}));
    assert_eq!(alice.status_of(&sent.id), "acknowledged");
}

#[test]
fn headers_arrive_unchanged() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice
        .sends("question")
        .with("correlation_id", "q-1 \"quoted\" é")
        .with("reply_to", "alice")
        .with("ttl_seconds", 60)
        .with("idempotency_key", "k")
        .with("priority", "high")
        .with("thread_id", "plan / é")
        .with("subject", "who goes \"first\"?")
        .with("hops", 64)
        .with("report", "none")
        .to(&bob);
    let question = bob.sees(["question"]).remove(0);
    assert_eq!(
        question["headers"],
        json!({
            "priority": "high", "ttl_seconds": 60, "correlation_id": "q-1 \"quoted\" é", "reply_to": "alice",
            "idempotency_key": "k", "thread_id": "plan / é", "subject": "who goes \"first\"?", "hops": 64,
            "report": "none",
        })
    );
    bob.sends("answer")
        .with("correlation_id", question["headers"]["correlation_id"].clone())
        .to(question["headers"]["reply_to"].as_str().unwrap());
    let answer = alice.sees(["answer"]).remove(0);
    assert_eq!(
        answer["headers"]["correlation_id"],
        question["headers"]["correlation_id"]
    );
    assert_eq!(answer["sender_name"], "bob");
}

#[test]
fn headers_of_a_thread_have_bounds() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let thread_id = "at most 128 bytes, without control characters";
    let subject = "one line of at most 200 characters, without control characters";
    for (name, largest, beyond, reason) in [
        (
            "thread_id",
            json!("é".repeat(64)),
            json!("é".repeat(64) + "x"),
            thread_id,
        ),
        ("thread_id", json!(" "), json!("a\u{7f}"), thread_id),
        ("subject", json!("😀".repeat(200)), json!("x".repeat(201)), subject),
        ("subject", json!("a b"), json!("a\nb"), subject),
        ("subject", json!("a\u{2027}b"), json!("a\u{2028}b"), subject),
        ("hops", json!(0), json!(65), "at most 64"),
        ("hops", json!(64), json!(u64::MAX), "at most 64"),
    ] {
        alice.sends("hi").with(name, largest.clone()).to("alice");
        assert_eq!(alice.sees(["hi"])[0]["headers"][name], largest);
        let error = alice
            .sends("hi")
            .with(name, beyond)
            .fails_as("invalid_argument", "alice");
        assert_eq!(error["message"], format!("headers.{name}: {reason}"));
    }
    for (name, other) in [("hops", json!(-1)), ("hops", json!("a")), ("report", json!("all"))] {
        let error = alice
            .sends("hi")
            .with(name, other)
            .fails_as("invalid_argument", "alice");
        assert_eq!(error["detail"]["argument"], "headers", "{error}");
    }
    alice.sees_nothing();
}

#[test]
fn payloads_arrive_unchanged() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.modern("bob"));
    let payload = json!({
        "text": "\u{0}\u{1f}\"\\/\u{7f}é\u{2028}😀",
        "numbers": [0, -1, 1.5e300, 9_007_199_254_740_993_u64, 18_446_744_073_709_551_615_u64],
        "nested": {"": [[], {}, null, true]},
    });
    alice.sends("").with_argument("payload", payload.clone()).to(&bob);
    assert_eq!(bob.reads(json!({}))[0]["payload"], payload);
}

#[test]
fn the_digits_of_a_large_number_survive() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let number = "123456789012345678901234567890.000000000000000000001";
    alice.wire.sends_text(&format!(
        r#"{{"jsonrpc":"2.0","id":"n","method":"tools/call","params":{{"name":"send_message","arguments":{{"recipient_id":"alice","protocol_name":"note","protocol_version":"1.0.0","payload":{{"text":"n","n":{number}}}}}}}}}"#
    ));
    let result = alice.wire.answer_to(&json!("n")).unwrap();
    assert_eq!(result["isError"], false, "{result}");
    let id = alice.begins_call("receive_messages", &json!({}));
    let result = alice.wire.answer_to(&id).unwrap();
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(&format!("\"n\":{number}")), "{text}");
}

#[test]
fn an_idempotency_key_sends_once_and_returns_the_same_result() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let first = alice.sends("once").with("idempotency_key", "k").to(&bob);
    for text in ["once", "something else"] {
        let again = alice.sends(text).with("idempotency_key", "k").to(&bob);
        assert_eq!(again, first);
    }
    // The key is valid for its sender only.
    let other = bob.sends("of bob").with("idempotency_key", "k").to(&bob);
    assert_ne!(other.id, first.id);
    bob.sees(["once", "of bob"]);
    bob.sees_nothing();
    // Also after the message was read, and from another connection of the same session.
    let alice = broker.agent("alice");
    assert_eq!(alice.sends("once").with("idempotency_key", "k").to(&bob), first);
    bob.sees_nothing();
}

#[test]
fn concurrent_sends_with_one_idempotency_key_send_once() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent: Vec<_> = (0..20)
        .map(|_| alice.sends("once").with("idempotency_key", "k").begins_sending_to(&bob))
        .collect();
    let ids: Vec<_> = sent
        .iter()
        .map(|id| alice.finishes_call("send_message", id)["message_id"].take())
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    bob.sees(["once"]);
    bob.sees_nothing();
}

#[test]
fn a_refused_message_does_not_use_up_its_idempotency_key() {
    let broker = Broker::start_with(&["--queue-capacity=1"]);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice.sends("full").to(&bob);
    alice
        .sends("later")
        .with("idempotency_key", "k")
        .fails_as("queue_full", &bob);
    bob.sees(["full"]);
    bob.sees_nothing();
    alice.sends("later").with("idempotency_key", "k").to(&bob);
    bob.sees(["later"]);
}

#[test]
fn a_broadcast_with_the_same_idempotency_key_is_sent_once() {
    let broker = Broker::start();
    let agents = broker.agents("agent", 3);
    let first = agents[0].sends("once").with("idempotency_key", "k").to_everyone();
    assert_eq!(first["recipients"], 2);
    // Even when more sessions could receive it now.
    let late = broker.agent("late");
    let again = agents[0].sends("once").with("idempotency_key", "k").to_everyone();
    assert_eq!(again, first);
    for agent in &agents[1..] {
        agent.sees(["once"]);
        agent.sees_nothing();
    }
    late.sees_nothing();
}

#[test]
fn the_result_of_an_idempotency_key_outlives_the_recipient() {
    let broker = Broker::with_fast_timeouts();
    let alice = broker.agent("alice");
    let bob = broker.agent("bob");
    let first = alice.sends("once").with("idempotency_key", "k").to(&bob);
    bob.wire.disconnects();
    alice.awaits_end_of("bob");
    assert_eq!(alice.sends("once").with("idempotency_key", "k").to("bob"), first);
}

#[test]
fn an_agent_can_send_to_itself() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    alice.sends("remember").to(&alice);
    alice.sees(["remember"]);
}
