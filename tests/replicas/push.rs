//! Messages that are pushed on acceptance to connections of another replica.

use std::{collections::BTreeSet, thread};

use serde_json::{Value, json};

use super::{
    cluster::BrokerCluster,
    support::{Agent, Redis, TIMEOUTS_OFF, eventually},
};

fn two_replicas(redis: &Redis) -> BrokerCluster {
    BrokerCluster::start_with(2, &redis.url(), &TIMEOUTS_OFF)
}

/// The next pushed message: its text (a number), its delivery count, and the message.
fn next_message(agent: &Agent) -> (usize, u64, Value) {
    let message = agent.next_push();
    let text = message["payload"]["text"].as_str().unwrap();
    (
        text.parse().unwrap(),
        message["delivery_count"].as_u64().unwrap(),
        message,
    )
}

#[test]
fn lost_subscriptions_change_neither_order_nor_delivery_count() {
    const MESSAGES: usize = 300;
    let redis = Redis::start();
    let cluster = two_replicas(&redis);
    let alice = cluster.replicas[0].agent("alice");
    let bob = cluster.replicas[1].push_agent("bob", &json!({"ack": "auto", "window": 1000}));
    for number in 0..MESSAGES {
        alice.sends(&number.to_string()).to("bob");
        if number % 25 == 0 {
            redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        }
    }
    for number in 0..MESSAGES {
        let (found, count, _) = next_message(&bob);
        assert_eq!((found, count), (number, 1));
    }
    bob.sees_no_push();
    // No later message would reveal that this one was lost.
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    alice.sends("300").to("bob");
    assert_eq!(next_message(&bob).0, 300);
}

#[test]
fn broadcasts_and_direct_messages_stay_in_order_despite_lost_subscriptions() {
    const MESSAGES: usize = 240;
    let redis = Redis::start();
    let cluster = two_replicas(&redis);
    let alice = cluster.replicas[0].agent("alice");
    let reads = json!({"ack": "auto", "window": 1000});
    let bob = cluster.replicas[1].push_agent("bob", &reads);
    let others = [("carol", 1), ("dave", 1), ("erin", 0)]
        .map(|(name, replica)| cluster.replicas[replica].push_agent(name, &reads));
    let is_for_many = |number: &usize| number % 3 < 2;
    for number in 0..MESSAGES {
        let message = alice.sends(&number.to_string());
        if is_for_many(&number) {
            message.begins_broadcast();
            continue;
        }
        // A direct message turns bob's part of the preceding group lease into a lease of his own.
        message.begins_sending_to("bob");
        if number % 25 == 0 {
            redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        }
        for number in number - 2..=number {
            let (found, count, _) = next_message(&bob);
            assert_eq!((found, count), (number, 1));
        }
    }
    bob.sees_no_push();
    for reader in &others {
        for number in (0..MESSAGES).filter(is_for_many) {
            let (found, count, _) = next_message(reader);
            assert_eq!((found, count), (number, 1));
        }
        reader.sees_no_push();
    }
}

#[test]
fn a_small_window_fills_and_empties_again() {
    const MESSAGES: usize = 60;
    let redis = Redis::start();
    let cluster = two_replicas(&redis);
    let alice = cluster.replicas[0].agent("alice");
    for window in [1, 3] {
        let name = format!("window{window}");
        let bob = cluster.replicas[1].push_agent(&name, &json!({"ack": "manual", "window": window}));
        let mut taken = 0;
        for number in 0..MESSAGES {
            alice.sends(&number.to_string()).to(&name);
            // Acknowledges some messages while the next ones arrive.
            if number % 3 == 1 {
                let (found, count, message) = next_message(&bob);
                assert_eq!((found, count), (taken, 1));
                bob.acknowledges(&[message]);
                taken += 1;
            }
        }
        while taken < MESSAGES {
            let ahead = window.min(MESSAGES - taken);
            let pushed: Vec<_> = (0..ahead).map(|_| next_message(&bob)).collect();
            bob.sees_no_push();
            for (at, (found, count, message)) in pushed.into_iter().enumerate() {
                assert_eq!((found, count), (taken + at, 1));
                bob.acknowledges(&[message]);
            }
            taken += ahead;
        }
        bob.sees_no_push();
    }
}

#[test]
fn messages_pushed_to_a_connection_that_ends_are_pushed_to_the_next() {
    let redis = Redis::start();
    let cluster = two_replicas(&redis);
    let alice = cluster.replicas[0].agent("alice");
    let first = cluster.replicas[1].push_agent("bob", &json!({"ack": "manual"}));
    for number in 0..3 {
        alice.sends(&number.to_string()).to("bob");
    }
    let (_, _, message) = next_message(&first);
    first.acknowledges(&[message]);
    assert_eq!(next_message(&first).0, 1);
    drop(first);
    let id = alice.sends("3").to("bob").id;
    eventually("the message waits again", || {
        (alice.recipient_statuses(&id)[0]["status"] == "queued").then_some(())
    });
    let second = cluster.replicas[0].push_agent("bob", &json!({"ack": "manual"}));
    let again: Vec<_> = (0..3)
        .map(|_| next_message(&second))
        .map(|(number, count, _)| (number, count))
        .collect();
    assert_eq!(again[..2], [(1, 2), (2, 2)]);
    assert_eq!(
        again[2].0, 3,
        "pushed or not, depending on when the end of the connection was noticed"
    );
}

#[test]
fn the_acknowledgement_of_a_tracked_message_does_not_wait_for_others() {
    let redis = Redis::start();
    let cluster = two_replicas(&redis);
    let alice = cluster.replicas[0].agent("alice");
    let _bob = cluster.replicas[1].push_agent("bob", &json!({"ack": "auto", "window": 1000}));
    for number in 0..20 {
        let waiting = alice
            .sends(&number.to_string())
            .with_argument("wait_for", "acknowledged")
            .begins_sending_to("bob");
        assert_eq!(alice.finishes_call("send_message", &waiting)["status"], "acknowledged");
        alice.sends("and an untracked one").to("bob");
    }
    let id = alice.sends("the last").to("bob").id;
    // The acknowledgement is sent with others, but does not wait for others.
    alice.awaits_status(&id, "acknowledged");
}

/// Drops all connections of the replicas to Redis.
fn drop_connections(redis: &Redis) {
    for kind in ["normal", "pubsub"] {
        redis.command(&["CLIENT", "KILL", "TYPE", kind]);
    }
}

/// Sends a number, again and again until it is accepted.
fn sends_number(alice: &Agent, number: usize, to: &str) {
    eventually("the message is accepted", || {
        let message = alice.sends(&number.to_string());
        let message = message.with("idempotency_key", format!("{to} {number}"));
        let sent = message.begins_sending_to(to);
        (alice.wire.answer_to(&sent).unwrap()["isError"] == false).then_some(())
    });
}

/// Registers a session, again and again until the replica reaches Redis.
fn joins(agent: Agent, name: &str) -> Agent {
    eventually("the session is registered", || {
        let call = agent.begins_call("register_session", &json!({"name": name}));
        (agent.wire.answer_to(&call).unwrap()["isError"] == false).then_some(())
    });
    agent
}

#[test]
fn a_backlog_comes_before_what_is_sent_meanwhile_despite_lost_connections() {
    const ROUNDS: usize = 8;
    const BACKLOG: usize = 100;
    const MESSAGES: usize = 200;
    let push = json!({"experimental": {"dev.mcp-broker/push": {"ack": "auto", "window": 1000}}});
    let redis = Redis::start();
    let cluster = two_replicas(&redis);
    let mut alice = cluster.replicas[0].agent("alice");
    for round in 0..ROUNDS {
        let name = format!("bob{round}");
        drop(joins(cluster.replicas[1].client(), &name));
        for number in 0..BACKLOG {
            sends_number(&alice, number, &name);
        }
        alice = thread::scope(|scope| {
            let (redis, name) = (&redis, name.as_str());
            let sender = scope.spawn(move || {
                for number in BACKLOG..MESSAGES {
                    if number % 12 == round {
                        drop_connections(redis);
                    }
                    sends_number(&alice, number, name);
                }
                alice
            });
            let client = Agent::legacy(cluster.replicas[1].wire(), "2025-11-25", &push);
            let bob = joins(client, name);
            let mut seen = BTreeSet::new();
            while seen.len() < MESSAGES {
                let (number, _, _) = next_message(&bob);
                if seen.insert(number) {
                    let last = seen.last().copied();
                    assert_eq!(last, Some(number), "round {round}: {number} came after {last:?}");
                }
            }
            sender.join().unwrap()
        });
    }
}
