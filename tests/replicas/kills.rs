//! Replicas are killed and restarted, and no accepted message is lost.

use super::{cluster::BrokerCluster, ledger::Balance, roaming_client::LOAD, support::Redis};

/// Asserts that clients on one connection received new messages in the order of acceptance.
fn assert_order(balance: &Balance) {
    let late = balance
        .out_of_order
        .iter()
        .filter(|message| message.contains("listener"));
    assert_eq!(late.collect::<Vec<_>>(), [""; 0], "{balance:?}");
}

#[test]
fn nothing_accepted_is_lost_when_replicas_are_killed_in_mid_broadcast() {
    let redis = Redis::start();
    let flags = [
        "--heartbeat-interval=500ms",
        "--stale-threshold=3s",
        "--disconnect-threshold=1h",
    ];
    let mut cluster = BrokerCluster::start_with(3, &redis.url(), &flags);
    let balance = LOAD.run_while(&mut cluster, |cluster, ledger| {
        for victim in [0, 2, 1] {
            ledger.await_more_accepted(100);
            cluster.kill(victim);
        }
        ledger.await_more_accepted(100);
    });
    assert!(balance.accepted >= 400, "{balance:?}");
    assert_order(&balance);
}

#[test]
fn nothing_accepted_is_lost_in_a_rolling_restart() {
    let redis = Redis::start();
    let mut cluster = BrokerCluster::start(3, &redis);
    let balance = LOAD.run_while(&mut cluster, |cluster, ledger| {
        for at in 0..3 {
            ledger.await_more_accepted(100);
            cluster.restart(at);
        }
        ledger.await_more_accepted(100);
    });
    assert!(balance.accepted >= 400, "{balance:?}");
    assert_order(&balance);
}
