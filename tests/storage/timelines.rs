//! The data set of Redis goes back in time: the storage reports a loss if and only if data was lost.

use std::sync::Arc;

use actors::{
    model::{AuditQuery, ProjectId, ProjectRecord},
    storage::{PutSession, StorageHealth, Store, StoreEpoch, StoreError},
};

use crate::storage::support::{Redis, ReplicaView, block_on, record, storage};

/// A server that [`restore_snapshot`] takes back to its last `SAVE` without a restart of its process.
fn reloadable() -> Redis {
    Redis::start_with(&["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"])
}

fn restore_snapshot(redis: &Redis) {
    assert_eq!(redis.command(&["DEBUG", "RELOAD", "NOSAVE"]), "OK");
}

/// The number at the start of the epoch of a project in Redis.
fn project_epoch(redis: &Redis, project: &str) -> u64 {
    let tokens = redis.command(&["GET", &format!("{{{project}}}:epoch")]);
    tokens.split_once('-').unwrap().0.parse().unwrap()
}

async fn put_session(store: &dyn Store) -> Result<(), StoreError> {
    store.put_session(record(None), PutSession::default()).await.map(drop)
}

#[test]
fn operations_formed_before_a_loss_are_refused_and_later_ones_succeed() {
    let redis = reloadable();
    block_on(async {
        let (storage, project) = (storage(redis.url()).await, ProjectId::parse("acme").unwrap());
        let kept = Arc::new(ProjectRecord {
            id: project.clone(),
            ..ProjectRecord::default_project(1)
        });
        assert!(storage.put_project(Arc::clone(&kept)).await.unwrap());
        redis.command(&["SAVE"]);
        let mut newer = ProjectRecord::clone(&kept);
        newer.revision = 1;
        assert!(storage.put_project(Arc::new(newer.clone())).await.unwrap());
        let before = storage.epoch();
        let store = storage.open_at(&project, before);
        put_session(&*store).await.unwrap();
        assert!(!storage.has_rolled_back(&project, before));
        restore_snapshot(&redis);
        assert_eq!(put_session(&*store).await, Err(StoreError::RolledBack));
        assert!(storage.has_rolled_back(&project, before) && storage.epoch() > before);
        assert!(matches!(storage.health(), StorageHealth::Degraded(why) if why.contains("older data")));
        // An operation formed before the loss is never carried out, however often it is repeated.
        newer.revision = 2;
        let amended = storage.put_project_at(Arc::new(newer.clone()), before).await;
        assert_eq!(amended, Err(StoreError::RolledBack));
        assert_eq!(put_session(&*store).await, Err(StoreError::RolledBack));
        let after = storage.epoch();
        assert_eq!(storage.project(project.clone()).await, Ok(Some(kept)));
        newer.revision = 1;
        assert_eq!(storage.put_project_at(Arc::new(newer), after).await, Ok(true));
        let again = storage.open_at(&project, after);
        assert_eq!(again.sessions().await.unwrap().sessions, []);
        put_session(&*again).await.unwrap();
        assert_eq!(project_epoch(&redis, "acme"), 2);
        let query = AuditQuery {
            project: Some(project),
            limit: 9,
            ..AuditQuery::default()
        };
        let audit =
            crate::storage::support::eventually(async || storage.audit(query.clone()).await.unwrap().pop()).await;
        assert_eq!((&*audit.action, &*audit.actor), ("storage.went_back", "broker"));
    });
}

#[test]
fn a_loss_of_one_project_does_not_affect_another() {
    let redis = reloadable();
    block_on(async {
        let storage = storage(redis.url()).await;
        let [acme, other] = ["acme", "other"].map(|id| ProjectId::parse(id).unwrap());
        let stores = [&acme, &other].map(|id| storage.open_at(id, StoreEpoch::default()));
        for store in &stores {
            put_session(&**store).await.unwrap();
        }
        redis.command(&["SAVE"]);
        put_session(&*stores[0]).await.unwrap();
        restore_snapshot(&redis);
        assert_eq!(put_session(&*stores[0]).await, Err(StoreError::RolledBack));
        assert_eq!(put_session(&*stores[1]).await, Ok(()));
    });
}

#[test]
fn every_replica_learns_of_a_detected_loss_and_it_counts_once() {
    let redis = reloadable();
    block_on(async {
        let project = ProjectId::parse("acme").unwrap();
        let (first, second) = (storage(redis.url()).await, storage(redis.url()).await);
        let stores = [&first, &second].map(|storage| storage.open_at(&project, storage.epoch()));
        for store in &stores {
            store.replicated().unwrap().last_frame_seq().await.unwrap();
        }
        redis.command(&["SAVE"]);
        put_session(&*stores[0]).await.unwrap();
        restore_snapshot(&redis);
        // The second store had never read the lost data.
        for store in stores {
            assert_eq!(
                store.replicated().unwrap().last_frame_seq().await,
                Err(StoreError::RolledBack)
            );
        }
        assert_eq!(project_epoch(&redis, "acme"), 2);
    });
}

#[test]
fn later_writes_of_others_do_not_hide_a_loss() {
    let redis = reloadable();
    block_on(async {
        let project = ProjectId::parse("acme").unwrap();
        let storage_of = async || storage(redis.url()).await;
        let first = storage_of().await;
        let store = first.open_at(&project, first.epoch());
        put_session(&*store).await.unwrap();
        redis.command(&["SAVE"]);
        put_session(&*store).await.unwrap();
        restore_snapshot(&redis);
        // Removes what the process of the server remembers.
        redis.command(&["FUNCTION", "FLUSH"]);
        let newcomer = ReplicaView::of(&*storage_of().await, "acme");
        for _ in 0..20 {
            newcomer.join().await;
        }
        assert_eq!(
            store.replicated().unwrap().last_frame_seq().await,
            Err(StoreError::RolledBack)
        );
    });
}

#[test]
fn a_lost_change_of_an_inbox_is_a_loss() {
    let redis = reloadable();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let bob = view.join().await;
        let store = storage.open_at(&view.project, storage.epoch());
        let sent = view.send(bob).await;
        redis.command(&["SAVE"]);
        // Neither store publishes a frame.
        assert_eq!(view.lease_ids(bob).await, [(sent, 1)]);
        assert_eq!(view.acknowledge(bob, &[sent]).await.unwrap().acknowledged, 1);
        restore_snapshot(&redis);
        assert_eq!(store.depth(bob).await, Err(StoreError::RolledBack));
        assert_eq!(view.lease_ids(bob).await, [(sent, 1)], "the message was not delivered");
    });
}

#[test]
fn a_restore_without_lost_data_is_no_loss() {
    let redis = reloadable();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let store = storage.open_at(&view.project, storage.epoch());
        let bob = view.join().await;
        // More losses than timelines are remembered, for stores that take part in each.
        for round in 0..70 {
            let sent = view.send(bob).await;
            match round % 3 {
                0 => assert_eq!(redis.command(&["DEBUG", "RELOAD"]), "OK"),
                1 => assert_eq!(redis.command(&["FUNCTION", "FLUSH"]), "OK"),
                _ => assert_eq!(redis.command(&["SCRIPT", "FLUSH"]), "OK"),
            }
            assert_eq!(view.lease_ids(bob).await, [(sent, 1)]);
            assert_eq!(view.acknowledge(bob, &[sent]).await.unwrap().acknowledged, 1);
        }
        assert_eq!(store.depth(bob).await.map(|depth| depth.waiting), Ok(0));
        assert_eq!(
            (project_epoch(&redis, "acme"), storage.health()),
            (1, StorageHealth::Healthy)
        );
        let remembered: u64 = redis.command(&["LLEN", "{acme}:forks"]).parse().unwrap();
        assert!(remembered <= 64, "{remembered}");
        // The next server does not load the functions again.
        let tokens = redis.command(&["GET", "{acme}:epoch"]);
        let another = crate::storage::support::storage(redis.url()).await;
        ReplicaView::of(&*another, "acme").depth(bob).await;
        assert_eq!(redis.command(&["GET", "{acme}:epoch"]), tokens);
    });
}
