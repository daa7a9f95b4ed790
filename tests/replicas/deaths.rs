//! Replicas come and go, and nothing that was accepted is lost.

use crate::{cluster::Cluster, ledger::Balance, nomad::LOAD, support::Redis};

/// Who stays on a connection sees new messages in the order in which they were accepted.
fn is_in_order(balance: &Balance) {
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
    let mut cluster = Cluster::with(3, &redis.url(), &flags);
    let balance = LOAD.goes_on_while(&mut cluster, |cluster, ledger| {
        for victim in [0, 2, 1] {
            ledger.grows_by(100);
            cluster.kill(victim);
        }
        ledger.grows_by(100);
    });
    assert!(balance.accepted >= 400, "{balance:?}");
    is_in_order(&balance);
}

#[test]
fn nothing_accepted_is_lost_in_a_rolling_restart() {
    let redis = Redis::start();
    let mut cluster = Cluster::of(3, &redis);
    let balance = LOAD.goes_on_while(&mut cluster, |cluster, ledger| {
        for at in 0..3 {
            ledger.grows_by(100);
            cluster.restart(at);
        }
        ledger.grows_by(100);
    });
    assert!(balance.accepted >= 400, "{balance:?}");
    is_in_order(&balance);
}
