//! Delivery reports of several replicas: a sender is told once, whichever replica reports, and also if it dies.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    cluster::BrokerCluster,
    support::{Agent, Broker, Redis, broker_program},
};

/// The messages that the reports of a session name until one of them is `last`. Each is named once.
fn told(alice: &Agent, last: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    while !named.contains(last) {
        let read = alice.reads(json!({"acknowledge": "immediate", "wait_seconds": 20}));
        assert!(!read.is_empty(), "{} messages were reported", named.len());
        for entry in read
            .iter()
            .flat_map(|report| report["payload"]["messages"].as_array().unwrap())
        {
            let id = entry["message_id"].as_str().unwrap().to_owned();
            assert!(named.insert(id), "reported twice: {entry}");
        }
    }
    named
}

/// Bob rejects a message of alice. Returns its id.
fn rejects_one(alice: &Agent, bob: &Agent) -> String {
    let sent = alice.sends("no").to(bob);
    let read = bob.reads(json!({"acknowledge": "manual", "wait_seconds": 20}));
    let ids: Vec<&Value> = read.iter().map(|message| &message["message_id"]).collect();
    bob.calls(
        "acknowledge_messages",
        json!({"message_ids": ids, "outcome": "rejected"}),
    );
    sent.id
}

#[test]
fn replicas_report_each_dead_letter_once() {
    let redis = Redis::start();
    let cluster = BrokerCluster::start(3, &redis);
    let alice = cluster.replicas[0].agent("alice");
    let mut sent = BTreeSet::new();
    for round in 0..30 {
        let bob = cluster.replicas[round % 3].agent("bob");
        sent.insert(rejects_one(&alice, &bob));
        bob.wire.disconnects();
    }
    // The last one is reported after all others.
    let last = rejects_one(&alice, &cluster.replicas[1].agent("bob"));
    sent.insert(last.clone());
    assert_eq!(told(&alice, &last), sent);
    alice.sees_nothing();
}

#[test]
fn another_replica_finishes_the_reports_of_one_that_died() {
    let redis = Redis::start();
    let mut program = broker_program();
    program.env("FAULT_STALL_AT", "reports_sent");
    let mut doomed = Broker::replica_with_program(program, &redis.url(), &[]);
    Broker::register_note_protocol(&doomed.client());
    let (alice, bob) = (doomed.agent("alice"), doomed.agent("bob"));
    let first = rejects_one(&alice, &bob);
    doomed.stalls();
    doomed.kill();
    let steady = BrokerCluster::start(1, &redis);
    let alice = steady.replicas[0].agent("alice");
    let bob = steady.replicas[0].agent("bob");
    let second = rejects_one(&alice, &bob);
    assert_eq!(told(&alice, &second), BTreeSet::from([first, second.clone()]));
    alice.sees_nothing();
}
