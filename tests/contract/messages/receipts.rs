//! Receipts: the sender is told what became of its message, and never more than happened.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Broker, eventually, texts};

#[test]
fn a_message_for_a_disconnected_session_is_queued() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    broker.agent("bob").calls("disconnect_session", json!({}));
    let sent = alice.sends("hi").to("bob");
    assert_eq!(sent.status, "queued");
    assert_eq!(sent.object["queue_size"], 1);
    assert_eq!(sent.object["delivered_at"], Value::Null);
    assert_eq!(alice.status_of(&sent.id), "queued");
    let bob = broker.agent("bob");
    bob.sees(["hi"]);
    assert_eq!(alice.status_of(&sent.id), "delivered");
}

#[test]
fn a_message_for_a_session_that_does_not_read_is_queued() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    assert_eq!(alice.sends("hi").to(&bob).status, "queued");
}

#[test]
fn a_pushed_message_is_delivered_and_then_acknowledged() {
    let broker = Broker::start();
    let (alice, bob) = (
        broker.agent("alice"),
        broker.push_agent("bob", &json!({"ack": "manual"})),
    );
    let sent = alice.sends("hi").to(&bob);
    if broker.answers_after_delivery() {
        assert_eq!(sent.status, "delivered");
        assert!(sent.object["delivered_at"].is_string());
    }
    let pushed = bob.is_pushed(["hi"]);
    assert_eq!(alice.status_of(&sent.id), "delivered");
    bob.acknowledges(&pushed);
    alice.awaits_status(&sent.id, "acknowledged");
}

#[test]
fn the_time_of_a_status_is_when_it_was_reached() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("hi").to(&bob);
    let at = |id: &str| alice.recipient_statuses(id)[0]["at"].as_str().unwrap().to_owned();
    let queued = at(&sent.id);
    assert_eq!(at(&sent.id), queued);
    bob.sees(["hi"]);
    let delivered = at(&sent.id);
    assert!(queued <= delivered, "{queued} {delivered}");
}

#[test]
fn a_sender_can_wait_until_its_message_is_delivered() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let arguments = alice
        .sends("hi")
        .with_argument("wait_for", "delivered")
        .arguments_to(&bob);
    let call = alice.begins_call("send_message", &arguments);
    // `list_sessions` counts the waiting messages; a heartbeat returns the last count.
    eventually("the message is queued", || {
        (!bob.calls("list_sessions", json!({})).is_null() && bob.unread() == 1).then_some(())
    });
    assert_eq!(alice.wire.answer_so_far(&call), None);
    bob.sees(["hi"]);
    let told = alice.finishes_call("send_message", &call);
    assert_eq!(told["status"], "delivered");
    assert!(told["delivered_at"].is_string());
    assert_eq!(told["queue_size"], 0);
}

#[test]
fn a_sender_can_wait_until_its_message_is_acknowledged() {
    let broker = Broker::start();
    let (alice, bob) = (
        broker.agent("alice"),
        broker.push_agent("bob", &json!({"ack": "manual"})),
    );
    let arguments = alice
        .sends("hi")
        .with_argument("wait_for", "acknowledged")
        .arguments_to(&bob);
    let call = alice.begins_call("send_message", &arguments);
    let pushed = bob.is_pushed(["hi"]);
    assert_eq!(alice.wire.answer_so_far(&call), None);
    bob.acknowledges(&pushed);
    assert_eq!(alice.finishes_call("send_message", &call)["status"], "acknowledged");
}

#[test]
fn a_sender_whose_wait_times_out_is_told_the_status() {
    let broker = Broker::start();
    let (alice, bob) = (
        broker.agent("alice"),
        broker.push_agent("bob", &json!({"ack": "manual"})),
    );
    let began = Instant::now();
    let sent = alice
        .sends("hi")
        .with_argument("wait_for", "acknowledged")
        .with_argument("timeout_seconds", 1)
        .to(&bob);
    assert!(began.elapsed() >= Duration::from_millis(990));
    assert_eq!(sent.status, "delivered");
    let carol = broker.agent("carol");
    let sent = alice
        .sends("hi")
        .with_argument("wait_for", "delivered")
        .with_argument("timeout_seconds", 0.2)
        .to(&carol);
    assert_eq!(sent.status, "queued");
    // The message was sent.
    carol.sees(["hi"]);
}

#[test]
fn a_sender_that_waits_is_told_that_its_message_expired() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice
        .sends("late")
        .with("ttl_seconds", 1)
        .with_argument("wait_for", "acknowledged")
        .with_argument("timeout_seconds", 30)
        .to(&bob);
    assert_eq!(sent.status, "expired");
    assert_eq!(sent.object["delivered_at"], Value::Null);
}

#[test]
fn a_wait_for_queued_returns_at_once() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let sent = alice.sends("hi").with_argument("wait_for", "queued").to(&bob);
    assert_eq!(sent.status, "queued");
}

#[test]
fn a_cancelled_wait_has_sent_its_message() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let arguments = alice
        .sends("hi")
        .with_argument("wait_for", "acknowledged")
        .arguments_to(&bob);
    let call = alice.begins_call("send_message", &arguments);
    eventually("the message is queued", || {
        (!bob.calls("list_sessions", json!({})).is_null() && bob.unread() == 1).then_some(())
    });
    alice.wire.syncs();
    alice.wire.cancels(&call);
    alice.wire.syncs();
    bob.sees(["hi"]);
    bob.sees_nothing();
    assert_eq!(alice.wire.answer_so_far(&call), None);
}

#[test]
fn a_call_that_is_cancelled_in_the_same_read_is_not_answered() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let message = |text: &str| alice.sends(text).arguments_to(&bob);
    let mut everyone = message("all");
    everyone.as_object_mut().unwrap().remove("recipient_id");
    let calls = [
        ("send_message", message("plain")),
        (
            "send_message",
            alice
                .sends("watched")
                .with_argument("wait_for", "acknowledged")
                .arguments_to(&bob),
        ),
        ("broadcast_message", everyone),
    ];
    for (tool, arguments) in calls {
        let call = json!({
            "jsonrpc": "2.0", "id": tool, "method": "tools/call", "params": {"name": tool, "arguments": arguments},
        });
        let cancel = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": tool},
        });
        alice.wire.sends_together(&[call, cancel]);
        // If the call had been executed, its answer would precede that of the next call.
        alice.sends("next").to(&bob);
        bob.reads(json!({"acknowledge": "immediate"}));
        assert_eq!(alice.wire.answer_so_far(&tool.into()), None);
    }
}

#[test]
fn the_result_of_a_wait_is_returned_for_its_idempotency_key() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.push_agent("bob", &json!({"ack": "auto"})));
    let letter = || {
        alice
            .sends("hi")
            .with("idempotency_key", "k")
            .with_argument("wait_for", "acknowledged")
            .to(&bob)
    };
    let first = letter();
    assert_eq!(first.status, "acknowledged");
    assert_eq!(letter(), first);
    bob.is_pushed(["hi"]);
    bob.sees_no_push();
}

#[test]
fn a_broadcast_has_a_status_for_each_recipient() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let (bob, carol) = (broker.agent("bob"), broker.agent("carol"));
    let id = alice.sends("all").to_everyone()["message_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(texts(&bob.reads(json!({"acknowledge": "immediate"}))), ["all"]);
    let status = |session: &str| {
        let recipients = alice.recipient_statuses(&id);
        assert_eq!(recipients.len(), 2);
        let of = |recipient: &&Value| recipient["session_id"] == session;
        recipients.iter().find(of).unwrap()["status"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    eventually("bob has acknowledged it", || {
        (status(&bob.session) == "acknowledged").then_some(())
    });
    assert_eq!(status(&carol.session), "queued");
}
