//! Push over HTTP: the same promises on a stream of `subscriptions/listen` and on the stream of a session.

use serde_json::{Value, json};

use super::PUSH;
use crate::support::{Broker, HttpAgent, ResponseReader, texts};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The two ways to receive pushes over HTTP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Era {
    /// 2026-07-28: a stream is the answer to `subscriptions/listen`.
    Modern,
    /// 2025-11-25: a stream is the answer to `GET` in a session.
    Legacy,
}

/// Each era with the name of its client.
const ERAS: [(Era, &str); 2] = [(Era::Modern, "modern"), (Era::Legacy, "legacy")];

/// A registered client to which messages are pushed with these settings, as soon as it opens a stream.
pub(super) fn push_client(broker: &Broker, era: Era, name: &str, settings: Value) -> HttpAgent {
    let push = json!({"dev.mcp-broker/push": settings});
    let client = match era {
        Era::Modern => HttpAgent::modern(broker.address, json!({"extensions": push})),
        Era::Legacy => HttpAgent::legacy(broker.address, "2025-11-25", json!({"experimental": push})),
    };
    client.registered(name)
}

/// Expects the next pushes to have these texts.
pub(super) fn expect_pushes<const N: usize>(stream: &mut ResponseReader, expected: [&str; N]) -> Vec<Value> {
    let pushed: Vec<_> = expected
        .iter()
        .map(|_| stream.next_notification(PUSH)["message"].take())
        .collect();
    assert_eq!(texts(&pushed), expected);
    pushed
}

impl Era {
    /// Opens a stream of this client. The id names the subscription, where there is one.
    fn opens(self, client: &HttpAgent, id: &Value) -> ResponseReader {
        match self {
            Self::Modern => client.subscribes_as(id),
            Self::Legacy => client.opens_stream(),
        }
    }

    /// Acknowledges pushes by a notification with these params.
    fn acknowledges(self, client: &HttpAgent, mut params: Value) {
        if self == Self::Modern {
            params["session_id"] = json!(client.session);
        }
        client.notifies("notifications/dev.mcp-broker/ack", params);
    }
}

#[test]
fn messages_are_pushed_within_the_window_while_a_stream_is_open() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for (era, name) in ERAS {
        let bob = push_client(&broker, era, name, json!({"window": 2, "ack": "manual"}));
        let early = alice.sends("early").to(name);
        assert_eq!(early.status, "queued");
        let mut stream = era.opens(&bob, &json!("é"));
        let first = stream.next_notification(PUSH);
        if era == Era::Modern {
            assert_eq!(first["_meta"][SUBSCRIPTION], "é");
        }
        assert_eq!(first["message"]["message_id"], early.id.as_str());
        assert_eq!(first["message"]["delivery_count"], 1);
        alice.awaits_status(&early.id, "delivered");

        let second = alice.sends("second").to(name);
        expect_pushes(&mut stream, ["second"]);
        let third = alice.sends("third").to(name);
        assert_eq!(third.status, "queued");
        // An acknowledgement by notification or by tool makes room in the window.
        era.acknowledges(&bob, json!({"up_to": early.id}));
        expect_pushes(&mut stream, ["third"]);
        alice.awaits_status(&early.id, "acknowledged");
        alice.sends("fourth").to(name);
        let done = bob.calls("acknowledge_messages", json!({"message_ids": [second.id]}));
        assert_eq!(done["acknowledged"], 1);
        expect_pushes(&mut stream, ["fourth"]);
        stream.disconnects();

        // A message that was pushed and not acknowledged is queued again, and pushed to the next stream.
        alice.awaits_status(&third.id, "queued");
        let mut stream = era.opens(&bob, &json!(2));
        let again = expect_pushes(&mut stream, ["third", "fourth"]);
        assert_eq!(again[0]["delivery_count"], 2);
    }
}

#[test]
fn messages_without_an_open_stream_wait_for_a_read() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for (era, name) in ERAS {
        let bob = push_client(&broker, era, name, json!({"window": 5, "ack": "manual"}));
        assert_eq!(alice.sends("1").to(name).status, "queued");
        let mut stream = era.opens(&bob, &json!(1));
        let first = expect_pushes(&mut stream, ["1"]);
        let second = alice.sends("2").to(name);
        expect_pushes(&mut stream, ["2"]);
        era.acknowledges(&bob, json!({"message_ids": [first[0]["message_id"]]}));
        alice.awaits_status(first[0]["message_id"].as_str().unwrap(), "acknowledged");
        stream.disconnects();
        // Unacknowledged pushes are queued again; new messages wait for a read.
        alice.awaits_status(&second.id, "queued");
        assert_eq!(alice.sends("3").to(name).status, "queued");
        let read = bob.reads(json!({}));
        assert_eq!(texts(&read), ["2", "3"]);
        assert_eq!(read[0]["delivery_count"], 2);
        // `subscriptions/listen` takes the session over, which releases what was read. The stream of a session does not.
        if era == Era::Modern {
            let ids: Vec<_> = read.iter().map(|message| &message["message_id"]).collect();
            bob.calls("acknowledge_messages", json!({"message_ids": ids}));
        }
        // On the next stream new messages are pushed again.
        let mut stream = era.opens(&bob, &json!(2));
        alice.sends("4").to(name);
        expect_pushes(&mut stream, ["4"]);
        alice.sends("5").to(name);
        expect_pushes(&mut stream, ["5"]);
    }
}

#[test]
fn unacknowledged_pushes_are_repeated_on_each_new_stream() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for (era, name) in ERAS {
        let bob = push_client(&broker, era, name, json!({"ack": "manual"}));
        let mut stream = era.opens(&bob, &json!(0));
        let sent = alice.sends("hi").to(name);
        expect_pushes(&mut stream, ["hi"]);
        for id in 1..=3 {
            stream.disconnects();
            stream = era.opens(&bob, &json!(id));
            let again = expect_pushes(&mut stream, ["hi"]);
            assert_eq!(again[0]["message_id"], sent.id.as_str());
        }
        let done = bob.calls("acknowledge_messages", json!({"message_ids": [sent.id]}));
        assert_eq!(done["acknowledged"], 1);
    }
}

#[test]
fn written_messages_are_acknowledged_with_ack_auto() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for (era, name) in ERAS {
        let bob = push_client(&broker, era, name, json!({"window": 4, "ack": "auto"}));
        let early = alice.sends("early").to(name);
        let mut stream = era.opens(&bob, &json!(1));
        expect_pushes(&mut stream, ["early"]);
        alice.awaits_status(&early.id, "acknowledged");
        let sent: Vec<_> = (0..50).map(|at| alice.sends(&at.to_string()).to(name).id).collect();
        for id in &sent {
            assert_eq!(stream.next_notification(PUSH)["message"]["message_id"], id.as_str());
        }
        for id in &sent {
            alice.awaits_status(id, "acknowledged");
        }
        for at in 0..20 {
            let text = at.to_string();
            let sent = alice.sends(&text).with_argument("wait_for", "acknowledged").to(name);
            assert_eq!(sent.status, "acknowledged");
            expect_pushes(&mut stream, [text.as_str()]);
        }
    }
}

#[test]
fn the_newest_of_two_streams_gets_the_messages() {
    let broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    for (era, name) in ERAS {
        let bob = push_client(&broker, era, name, json!({"ack": "manual"}));
        let mut older = era.opens(&bob, &json!("older"));
        let sent = alice.sends("hi").to(name);
        expect_pushes(&mut older, ["hi"]);
        // The broker does not know whether the older stream is dead, as when the network drops all packets.
        let mut newer = era.opens(&bob, &json!("newer"));
        let again = expect_pushes(&mut newer, ["hi"]);
        assert_eq!(again[0]["message_id"], sent.id.as_str());
        assert_eq!(again[0]["delivery_count"], 2);
        older.awaits_end();
        alice.sends("ho").to(name);
        expect_pushes(&mut newer, ["ho"]);
    }
}
