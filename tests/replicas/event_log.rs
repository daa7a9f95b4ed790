//! The event log outlives the replicas that write it.

use std::collections::HashSet;

use actors::{
    model::{EventKind, EventKinds, ProjectEvent, ProjectId},
    storage::{Direction, EventQuery, EventStart, Storage},
};
use storage::redis::{RedisSettings, RedisStorage};
use tokio::runtime::{Builder, Runtime};

use super::{
    cluster::BrokerCluster,
    roaming_client::LOAD,
    support::{Redis, eventually},
};

/// A reader beside the brokers.
struct LogReader {
    runtime: Runtime,
    storage: RedisStorage,
}

impl LogReader {
    fn connect(redis: &Redis) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let storage = runtime.block_on(RedisStorage::connect(RedisSettings::new(redis.url())));
        let storage = storage.unwrap();
        Self { runtime, storage }
    }

    /// The ids of the accepted messages in the log.
    fn accepted(&self) -> HashSet<String> {
        let store = self.storage.open(&ProjectId::default_project());
        let mut query = EventQuery {
            from: EventStart::Oldest,
            direction: Direction::Forward,
            kinds: EventKinds::of(&[EventKind::Accepted]),
            scan_max: 100_000,
            bytes_max: 8 << 20,
        };
        let mut ids = HashSet::new();
        loop {
            let page = self.runtime.block_on(store.events(query)).unwrap();
            assert!(!page.gap, "the log is whole");
            ids.extend(page.events.iter().filter_map(|logged| match &logged.event {
                ProjectEvent::Accepted(accepted) => Some(accepted.message.to_string()),
                _ => None,
            }));
            if !page.more {
                return ids;
            }
            query.from = EventStart::After(page.next.unwrap());
        }
    }
}

#[test]
fn a_killed_replica_loses_no_message_and_only_the_events_that_it_had_not_written() {
    let redis = Redis::start();
    let flags = [
        "--heartbeat-interval=500ms",
        "--stale-threshold=3s",
        "--disconnect-threshold=1h",
    ];
    let mut cluster = BrokerCluster::start_with(3, &redis.url(), &flags);
    let reader = LogReader::connect(&redis);
    // Messages in the log, and those that were accepted shortly before a replica was killed.
    let (mut logged, mut uncertain) = (HashSet::new(), HashSet::new());
    let balance = LOAD.run_while(&mut cluster, |cluster, ledger| {
        for victim in [0, 2, 1] {
            ledger.await_more_accepted(100);
            let accepted = ledger.accepted();
            eventually("what was accepted is in the log", || {
                logged = reader.accepted();
                let is_written = accepted.difference(&logged).all(|id| uncertain.contains(id));
                is_written.then_some(())
            });
            cluster.kill(victim);
            // A sender may still have an answer of the dead replica to read, or repeat its message at another one.
            ledger.await_one_more_of_each(LOAD.senders);
            uncertain.extend(ledger.accepted().difference(&logged).cloned());
        }
        ledger.await_more_accepted(100);
    });
    assert!(balance.accepted >= 400, "{balance:?}");
    let kept = reader.accepted();
    assert!(logged.is_subset(&kept), "what was written stays");
    assert!(logged.len() >= 300, "{} of {}", logged.len(), balance.accepted);
}

#[test]
fn a_replica_that_is_stopped_writes_its_last_events() {
    let redis = Redis::start();
    let mut cluster = BrokerCluster::start(3, &redis);
    let reader = LogReader::connect(&redis);
    LOAD.run_while(&mut cluster, |cluster, ledger| {
        for at in 0..3 {
            ledger.await_more_accepted(50);
            cluster.restart(at);
        }
        ledger.await_more_accepted(50);
        let accepted = ledger.accepted();
        eventually("every accepted message is in the log", || {
            accepted.is_subset(&reader.accepted()).then_some(())
        });
    });
}
