//! Messages to another project with an idempotency key, over several replicas and over replicas that are killed.

use std::{collections::HashSet, thread};

use serde_json::json;

use crate::support::{Broker, Redis};

const REPLICAS: usize = 3;
const SENDS: usize = 40;

fn flags(redis: &Redis) -> [String; 2] {
    ["--storage=redis".to_owned(), format!("--redis-url={}", redis.url())]
}

#[test]
fn an_idempotency_key_used_at_three_replicas_at_once_sends_one_cross_project_message() {
    let redis = Redis::start();
    let [storage, url] = flags(&redis);
    let replicas = [(); REPLICAS].map(|()| Broker::secured_with(&[&storage, &url]));
    let [here, there] = replicas[0].two_projects();
    let bob = there.agent("bob");
    let alice = here.http_modern_as(&here.key).registered("alice");
    for replica in &replicas {
        replica.awaits_key_of(&here);
    }
    for round in 0..5 {
        let arguments = json!({
            "recipient_id": "bob@there", "protocol_name": "note", "protocol_version": "1.0.0",
            "payload": {"text": "once"}, "headers": {"idempotency_key": format!("key {round}")},
        });
        let send = |at: usize| {
            let caller = alice.at_replica(replicas[at % REPLICAS].address);
            caller.calls("send_message", arguments.clone())["message_id"].to_string()
        };
        let ids: HashSet<_> = thread::scope(|scope| {
            let sends: Vec<_> = (0..SENDS).map(|at| scope.spawn(move || send(at))).collect();
            sends.into_iter().map(|send| send.join().unwrap()).collect()
        });
        assert_eq!(ids.len(), 1, "one message has one id: {ids:?}");
        bob.sees(["once"]);
        bob.sees_nothing();
    }
}

#[test]
fn a_repeat_after_a_replica_was_killed_sends_one_cross_project_message() {
    let redis = Redis::start();
    let [storage, url] = flags(&redis);
    let steady = Broker::secured_with(&[&storage, &url]);
    let [here, there] = steady.two_projects();
    let (bob, carol) = (there.agent("bob"), here.agent("carol"));
    for point in ["cross_project_reserved", "cross_project_taken"] {
        let mut doomed = Broker::secured_stalling_at(point, &[&storage, &url]);
        doomed.awaits_key_of(&here);
        let alice = here.at_broker(&doomed).agent("alice");
        alice
            .sends("once")
            .with("idempotency_key", point)
            .begins_sending_to("bob@there");
        doomed.stalls();
        doomed.kill();

        let alice = here.agent("alice");
        let letter = |text: &str| alice.sends(text).with("idempotency_key", point);
        // Whether the first message was sent is unknown here: another message under the same key might be sent twice.
        letter("another").fails_as("invalid_argument", "carol");
        let repeated = letter("once").to("bob@there");
        assert_eq!(letter("another").to("carol").id, repeated.id);
        bob.sees(["once"]);
        bob.sees_nothing();
        carol.sees_nothing();
        alice.awaits_status(&repeated.id, "acknowledged");
    }
}
