//! Several brokers on one server of Redis, each in a database of its own: none notices what happens to the others.

use std::sync::Arc;

use actors::{
    model::ProjectId,
    storage::{Storage, StorageHealth, StoreEpoch, StoreError},
};
use deadpool_redis::redis::{Client, cmd};

use crate::storage::support::{Redis, ReplicaView, block_on, storage};

/// A broker in a database, with one project of the same name as in all others.
struct Tenant {
    storage: Arc<dyn Storage>,
    view: ReplicaView,
}

impl Tenant {
    async fn start(redis: &Redis, database: usize) -> Self {
        let storage = storage(format!("{}/{database}", redis.url())).await;
        let view = ReplicaView::of(&*storage, "acme");
        Self { storage, view }
    }

    /// Joins a session, sends it messages and acknowledges them.
    async fn works(&self) {
        let bob = self.view.join().await;
        for _ in 0..3 {
            let sent = self.view.send(bob).await;
            assert_eq!(self.view.lease_ids(bob).await, [(sent, 1)]);
            assert_eq!(self.view.acknowledge(bob, &[sent]).await.unwrap().acknowledged, 1);
        }
    }

    async fn sessions(&self) -> usize {
        self.view.store.sessions().await.unwrap().sessions.len()
    }

    /// Nothing is lost here, as far as the broker knows.
    fn is_well(&self) {
        let project = ProjectId::parse("acme").unwrap();
        assert!(!self.storage.has_rolled_back(&project, StoreEpoch::default()));
        assert_eq!(self.storage.health(), StorageHealth::Healthy);
    }
}

/// What a project has in a database.
fn value(redis: &Redis, database: usize, command: &[&str]) -> String {
    let client = Client::open(format!("{}/{database}", redis.url())).unwrap();
    let mut connection = client.get_connection().unwrap();
    let mut asked = cmd(command[0]);
    for part in &command[1..] {
        asked.arg(*part);
    }
    let value: Option<String> = asked.query(&mut connection).unwrap();
    value.unwrap_or_default()
}

/// The number at the start of the epoch, and the timelines that have ended.
fn history(redis: &Redis, database: usize) -> (String, u64) {
    let epoch = value(redis, database, &["GET", "{acme}:epoch"]);
    let ended = value(redis, database, &["LLEN", "{acme}:forks"]);
    (epoch.split_once('-').unwrap().0.to_owned(), ended.parse().unwrap())
}

#[test]
fn brokers_in_two_databases_that_work_at_once_lose_nothing() {
    let redis = Redis::start();
    block_on(async {
        let both = [Tenant::start(&redis, 0).await, Tenant::start(&redis, 1).await];
        for round in 1..=20 {
            for tenant in &both {
                tenant.works().await;
                assert_eq!(tenant.sessions().await, round);
            }
        }
        for (database, tenant) in both.iter().enumerate() {
            tenant.is_well();
            assert_eq!(history(&redis, database), ("1".to_owned(), 0));
        }
    });
}

#[test]
fn a_broker_that_starts_later_in_another_database_disturbs_none() {
    let redis = Redis::start();
    block_on(async {
        let first = Tenant::start(&redis, 0).await;
        for _ in 0..10 {
            first.works().await;
        }
        for database in 1..4 {
            let later = Tenant::start(&redis, database).await;
            later.works().await;
            first.works().await;
            later.is_well();
            assert_eq!(
                (later.sessions().await, history(&redis, database)),
                (1, ("1".to_owned(), 0))
            );
        }
        first.is_well();
        assert_eq!((first.sessions().await, history(&redis, 0)), (13, ("1".to_owned(), 0)));
    });
}

#[test]
fn a_loss_in_one_database_is_none_in_another() {
    let redis = Redis::start();
    block_on(async {
        let both = [Tenant::start(&redis, 0).await, Tenant::start(&redis, 1).await];
        for tenant in &both {
            tenant.works().await;
        }
        assert_eq!(value(&redis, 0, &["FLUSHDB"]), "OK");
        let read = both[0].view.store.sessions().await;
        assert!(matches!(read, Err(StoreError::RolledBack)), "{read:?}");
        both[1].works().await;
        both[1].is_well();
        assert_eq!((both[1].sessions().await, history(&redis, 1)), (2, ("1".to_owned(), 0)));
    });
}

#[test]
fn a_broker_that_moves_to_another_database_with_its_data_keeps_them() {
    let redis = Redis::start();
    block_on(async {
        let first = Tenant::start(&redis, 0).await;
        for _ in 0..5 {
            first.works().await;
        }
        for key in redis.command(&["KEYS", "*"]).lines() {
            assert_eq!(redis.command(&["COPY", key, key, "DB", "5"]), "1", "{key}");
        }
        let moved = Tenant::start(&redis, 5).await;
        assert_eq!(moved.sessions().await, 5);
        // What is done here is more than what there was, and then less.
        for _ in 0..5 {
            moved.works().await;
            first.works().await;
        }
        for _ in 0..3 {
            first.works().await;
        }
        moved.works().await;
        for (tenant, sessions) in [(&first, 13), (&moved, 11)] {
            tenant.is_well();
            assert_eq!(tenant.sessions().await, sessions);
        }
        assert_eq!(history(&redis, 5).0, "1");
        assert_eq!(history(&redis, 0), ("1".to_owned(), 0));
    });
}

#[test]
fn a_restore_of_the_functions_loses_nothing() {
    let redis = Redis::start();
    block_on(async {
        let both = [Tenant::start(&redis, 0).await, Tenant::start(&redis, 1).await];
        for round in 1..=3 {
            for tenant in &both {
                tenant.works().await;
            }
            let mut connection = Client::open(redis.url()).unwrap().get_connection().unwrap();
            let dump: Vec<u8> = cmd("FUNCTION").arg("DUMP").query(&mut connection).unwrap();
            let mut restore = cmd("FUNCTION");
            restore.arg("RESTORE").arg(dump).arg("FLUSH");
            let () = restore.query(&mut connection).unwrap();
            for (database, tenant) in both.iter().enumerate() {
                assert_eq!(tenant.sessions().await, round);
                tenant.is_well();
                assert_eq!(history(&redis, database).0, "1");
            }
        }
    });
}
