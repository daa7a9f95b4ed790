//! A replica that is frozen for longer than the presence thresholds.

use std::time::Duration;

use serde_json::json;

use super::{cluster::BrokerCluster, support::Redis};

/// Longer than every presence threshold of this test.
const FROZEN_FOR: Duration = Duration::from_secs(6);
const SETTINGS: [&str; 4] = [
    "--heartbeat-interval=100ms",
    "--stale-threshold=2s",
    "--disconnect-threshold=3s",
    "--session-retention=1h",
];

#[test]
fn a_thawed_replica_disconnects_no_session_and_the_others_work_without_it() {
    let redis = Redis::start();
    let cluster = BrokerCluster::start_with(2, &redis.url(), &SETTINGS);
    let [frozen, other] = &cluster.replicas[..] else {
        panic!()
    };
    let bob = frozen.push_agent("bob", &json!({"ack": "manual"}));
    let carol = other.push_agent("carol", &json!({"ack": "manual"}));
    let alice = other.agent("alice");
    alice.sends("one").to("bob");
    bob.is_pushed(["one"]);
    // The decision of the other replicas holds: bob is disconnected, and his leased messages wait again.
    frozen.freeze();
    alice.awaits_presence("bob", "disconnected");
    std::thread::sleep(FROZEN_FOR);
    alice.sends("two").to("bob");
    frozen.thaw();
    // The thawed replica disconnects neither its own peers nor those of others, although their heartbeats are as old.
    let dora = frozen.agent("dora");
    assert_ne!(dora.presence_of("carol").as_deref(), Some("disconnected"));
    dora.sends("hi").to("carol");
    carol.is_pushed(["hi"]);
    alice.awaits_presence("bob", "active");
    let mut seen = Vec::new();
    while !seen.contains(&"two".to_owned()) {
        seen.push(bob.next_push()["payload"]["text"].as_str().unwrap().to_owned());
    }
    assert!(bob.wire.is_open() && carol.wire.is_open() && alice.wire.is_open());
}
