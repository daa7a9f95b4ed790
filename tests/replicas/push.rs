//! Messages that are handed over as they are accepted, to connections on another replica.

use serde_json::{Value, json};

use crate::{
    cluster::BrokerCluster,
    support::{Agent, Redis, TIMEOUTS_OFF, eventually},
};

fn two_replicas(redis: &Redis) -> BrokerCluster {
    BrokerCluster::start_with(2, &redis.url(), &TIMEOUTS_OFF)
}

/// What is pushed next: its text, which is a number, and its delivery count.
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
fn subscriptions_that_are_lost_change_neither_order_nor_count() {
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
    // Nothing comes after it that would show that it is missing.
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    alice.sends("300").to("bob");
    assert_eq!(next_message(&bob).0, 300);
}

#[test]
fn what_many_get_keeps_its_place_among_what_one_gets_whatever_is_lost() {
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
        // What many got just before is made bob's own by what he alone gets.
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
fn a_small_window_fills_and_opens_again() {
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
            // Now and then something is acknowledged while the next ones come.
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
fn what_was_handed_to_a_connection_that_ends_comes_again_with_the_next() {
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
    eventually("nobody has it", || {
        (alice.recipient_statuses(&id)[0]["status"] == "queued").then_some(())
    });
    let second = cluster.replicas[0].push_agent("bob", &json!({"ack": "manual"}));
    let again: Vec<_> = (0..3)
        .map(|_| next_message(&second))
        .map(|(number, count, _)| (number, count))
        .collect();
    assert_eq!(again[..2], [(1, 2), (2, 2)]);
    assert_eq!(again[2].0, 3, "handed over or not, as the connection was gone or not");
}

#[test]
fn an_acknowledgement_that_somebody_waits_for_does_not_wait_for_others() {
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
        alice.sends("and one that nobody waits for").to("bob");
    }
    let id = alice.sends("the last").to("bob").id;
    // It goes with others, but there need be none.
    alice.awaits_status(&id, "acknowledged");
}
