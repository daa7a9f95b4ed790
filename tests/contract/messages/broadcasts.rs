//! Broadcasts: one message for every session that the filter selects.

use serde_json::{Value, json};

use crate::support::{Agent, Broker};

fn counts(sent: &Value) -> [u64; 5] {
    ["recipients", "delivered", "queued", "failed", "skipped"].map(|key| sent[key].as_u64().unwrap())
}

fn agent_with(broker: &Broker, name: &str, protocols: &Value, features: &Value) -> Agent {
    let capabilities = json!({"supported_protocols": protocols, "supported_features": features});
    broker
        .client()
        .registered_with(&json!({"name": name, "capabilities": capabilities}))
}

#[test]
fn every_session_but_the_sender_gets_it() {
    let broker = Broker::start();
    let agents = broker.agents("agent", 5);
    let sent = agents[0].sends("all").to_everyone();
    assert_eq!(counts(&sent), [4, 0, 4, 0, 0]);
    assert_eq!(sent["failures"], json!([]));
    for agent in &agents[1..] {
        let read = agent.sees(["all"]);
        assert_eq!(read[0]["message_id"], sent["message_id"]);
        assert_eq!(read[0]["recipient_id"], Value::Null);
    }
    agents[0].sees_nothing();
}

#[test]
fn the_counts_say_how_many_sessions_were_reached() {
    let broker = Broker::start_with(&["--queue-capacity=1"]);
    let alice = broker.agent("alice");
    let pushed = broker.push_agent("pushed", &json!({}));
    let polling = broker.agent("polling");
    let poll = polling.begins_call("receive_messages", &json!({"wait_seconds": 100}));
    polling.syncs();
    broker.agent("absent").calls("disconnect_session", json!({}));
    let full = broker.agent("full");
    alice.sends("first").to(&full);
    let foreign = agent_with(&broker, "foreign", &json!({"lettre": ["1.0.0"]}), &json!([]));

    let sent = alice.sends("all").to_everyone();
    if broker.answers_after_delivery() {
        assert_eq!(counts(&sent), [4, 2, 1, 1, 1], "{sent}");
    } else {
        // The answer does not wait for deliveries here, so both reachable sessions may count as delivered.
        let [recipients, delivered, queued, rest @ ..] = counts(&sent);
        assert_eq!((recipients, delivered + queued, rest), (4, 3, [1, 1]), "{sent}");
        assert!(delivered <= 2, "{sent}");
    }
    assert_eq!(
        sent["failures"],
        json!([{"session_id": full.session, "code": "queue_full"}])
    );
    pushed.is_pushed(["all"]);
    assert_eq!(
        polling.finishes_call("receive_messages", &poll)["messages"][0]["payload"]["text"],
        "all"
    );
    broker.agent("absent").sees(["all"]);
    foreign.sees_nothing();
    full.sees(["first"]);
    full.sees_nothing();
}

#[test]
fn a_filter_chooses_by_protocol_and_feature() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let any = broker.agent("any");
    let old = agent_with(&broker, "old", &json!({"note": ["1.0.0"]}), &json!(["fast"]));
    let new = agent_with(&broker, "new", &json!({"note": ["1.2.0"]}), &json!(["fast", "kind"]));
    let all = [&any, &old, &new];
    for (filter, expected) in [
        (json!({}), vec!["any", "old", "new"]),
        (json!({"features": ["fast"]}), vec!["old", "new"]),
        (json!({"features": ["fast", "kind"]}), vec!["new"]),
        (json!({"features": ["none"]}), vec![]),
        (json!({"protocols": {"note": "^1.0"}}), vec!["old", "new"]),
        (json!({"protocols": {"note": ">=1.1"}}), vec!["new"]),
        (json!({"protocols": {"note": "*"}, "features": ["kind"]}), vec!["new"]),
        (json!({"protocols": {"other": "*"}}), vec![]),
    ] {
        let text = filter.to_string();
        let sent = alice
            .sends(&text)
            .with_argument("capability_filter", filter)
            .to_everyone();
        let len = expected.len() as u64;
        assert_eq!(counts(&sent), [len, 0, len, 0, 3 - len], "{text}");
        for agent in all {
            let read = agent.reads(json!({"acknowledge": "immediate"}));
            assert_eq!(
                read.len(),
                usize::from(expected.contains(&agent.name.as_str())),
                "{text} {}",
                agent.name
            );
        }
    }
}

#[test]
fn a_broadcast_without_recipients_succeeds() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let sent = alice.sends("hello?").to_everyone();
    assert_eq!(counts(&sent), [0, 0, 0, 0, 0]);
    assert!(sent["message_id"].is_string());
}

#[test]
fn broadcasts_have_a_priority_and_a_ttl() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let late = alice.sends("late").with("ttl_seconds", 1).to_everyone();
    alice.sends("normal").to(&bob);
    alice.sends("urgent").with("priority", "urgent").to_everyone();
    alice.awaits_status(late["message_id"].as_str().unwrap(), "expired");
    bob.sees(["urgent", "normal"]);
}

#[test]
fn broadcasts_and_direct_messages_of_one_sender_stay_in_order() {
    let broker = Broker::start();
    let (alice, bob) = (
        broker.agent("alice"),
        broker.push_agent("bob", &json!({"window": 1000})),
    );
    let calls: Vec<_> = (0..60)
        .map(|at| {
            let letter = alice.sends(&at.to_string());
            if at % 3 == 0 {
                let mut arguments = letter.arguments_to("");
                arguments.as_object_mut().unwrap().remove("recipient_id");
                ("broadcast_message", alice.begins_call("broadcast_message", &arguments))
            } else {
                ("send_message", letter.begins_sending_to(&bob))
            }
        })
        .collect();
    for (tool, call) in calls {
        alice.finishes_call(tool, &call);
    }
    for at in 0..60 {
        assert_eq!(bob.next_push()["payload"]["text"], at.to_string());
    }
}
