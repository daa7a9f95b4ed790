//! A storm of reconnecting clients.

use serde_json::json;

use super::{cluster::BrokerCluster, roaming_client::LOAD, support::Redis};

/// Connections that are reset together.
const CONNECTIONS: usize = 300;

#[test]
fn a_reconnect_storm_does_not_affect_other_clients() {
    let redis = Redis::start();
    let mut cluster = BrokerCluster::start_with(
        2,
        &redis.url(),
        &[
            "--stale-threshold=5s",
            "--heartbeat-interval=1s",
            "--disconnect-threshold=1h",
            // These clients read nothing: on a slow machine their full queues must not end the load.
            "--queue-capacity=1000000",
            "--queue-max-mb=4096",
            "--waiting-max-mb=4096",
        ],
    );
    LOAD.run_while(&mut cluster, |cluster, ledger| {
        ledger.await_more_accepted(50);
        let arrive = |replica: usize| -> Vec<_> {
            let name = |at: usize| format!("crowd{at}");
            (0..CONNECTIONS)
                .map(|at| cluster.replicas[replica].agent(&name(at)))
                .collect()
        };
        let crowd = arrive(0);
        let sessions: Vec<_> = crowd.iter().map(|agent| agent.session.clone()).collect();
        for agent in &crowd {
            agent.wire.disconnects();
        }
        // All of them reconnect at the other replica under their names.
        let crowd = arrive(1);
        for (agent, session) in crowd.iter().zip(&sessions) {
            assert_eq!(agent.session, *session);
            agent.calls("heartbeat", json!({}));
        }
        ledger.await_more_accepted(50);
    });
}
