//! Everybody comes back at once.

use serde_json::json;

use crate::{cluster::Cluster, nomad::LOAD, support::Redis};

/// Connections that are reset together.
const CROWD: usize = 300;

#[test]
fn a_reconnect_storm_takes_nothing_from_those_who_stay() {
    let redis = Redis::start();
    let mut cluster = Cluster::with(
        2,
        &redis.url(),
        &[
            "--stale-threshold=5s",
            "--heartbeat-interval=1s",
            "--disconnect-threshold=1h",
            // The crowd reads nothing: on a slow machine it must not be its full queues that end the load.
            "--queue-capacity=1000000",
            "--queue-max-mb=4096",
            "--waiting-max-mb=4096",
        ],
    );
    LOAD.goes_on_while(&mut cluster, |cluster, ledger| {
        ledger.grows_by(50);
        let arrive = |replica: usize| -> Vec<_> {
            let name = |at: usize| format!("crowd{at}");
            (0..CROWD)
                .map(|at| cluster.replicas[replica].agent(&name(at)))
                .collect()
        };
        let crowd = arrive(0);
        let sessions: Vec<_> = crowd.iter().map(|agent| agent.session.clone()).collect();
        for agent in &crowd {
            agent.wire.dies();
        }
        // All of them at the other replica, under their names.
        let crowd = arrive(1);
        for (agent, session) in crowd.iter().zip(&sessions) {
            assert_eq!(agent.session, *session);
            agent.calls("heartbeat", json!({}));
        }
        ledger.grows_by(50);
    });
}
