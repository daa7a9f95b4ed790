//! Concurrent changes of a project by this broker and by other replicas.

use std::{collections::BTreeSet, sync::Arc};

use actors::{
    model::{BrokerError, ProjectConfig},
    session::CloseReason,
    storage::Storage,
};
use futures_util::future::{join, join_all};

use super::{
    create_other_project, default_project, is_valid, key_ids, member_key, other_project_id, rename_to, start_broker,
    until,
};
use crate::{
    contended_storage::ContendedStorage,
    slow_storage::SlowStorage,
    world::{ActorThread, World, grant_of, new_project, run, settings, within_deadline},
};

#[test]
fn concurrent_changes_are_all_applied() {
    run(|| async {
        let broker = start_broker(&Arc::new(SlowStorage::default()));
        let first = create_other_project(&broker).await;
        let id = other_project_id();
        let keys = join_all((0..4).map(|_| broker.add_key(&id, member_key())));
        let (keys, (named, granted)) = within_deadline(
            "the changes",
            join(
                keys,
                join(
                    broker.change_project(&id, rename_to("Changed")),
                    broker.grant(&id, default_project(), grant_of(&[], 0)),
                ),
            ),
        )
        .await;
        assert!(named.is_ok() && granted.is_ok());
        let made: BTreeSet<_> = keys
            .into_iter()
            .map(|made| made.unwrap().id)
            .chain([first.id])
            .collect();
        let record = broker.record(&id).unwrap();
        assert_eq!(key_ids(&record), made);
        assert_eq!((record.name.as_str(), record.grants.len()), ("Changed", 1));
        assert_eq!(record.revision, 6);
    });
}

#[test]
fn many_concurrent_changes_are_all_applied() {
    run(|| async {
        let store = Arc::new(SlowStorage::default());
        let broker = start_broker(&store);
        let id = default_project();
        broker.project(&id).await.unwrap();
        // All changes start from the same record.
        store.set_paused(true);
        let adding = (0..90).map(|_| {
            let (broker, id) = (broker.clone(), id.clone());
            actix_rt::spawn(async move { broker.add_key(&id, member_key()).await.map(drop) })
        });
        let adding = join_all(adding.collect::<Vec<_>>());
        tokio::task::yield_now().await;
        until("both requests", || broker.observe().mailbox_len == 0).await;
        store.set_paused(false);
        let added = within_deadline("the keys", adding).await;
        assert!(added.into_iter().all(|added| added.unwrap() == Ok(())));
        assert_eq!(broker.record(&id).unwrap().keys.len(), 90);
    });
}

#[test]
fn a_change_of_this_replica_keeps_the_change_of_another_replica() {
    run(|| async {
        let store = Arc::new(ContendedStorage::default());
        let broker = start_broker(&store);
        let first = create_other_project(&broker).await;
        for round in 0..3_u8 {
            store.amend_before_next_put(move |record| {
                record.tags.insert(round.to_string());
            });
        }
        let second = broker.add_key(&other_project_id(), member_key()).await.unwrap();
        assert!(store.has_no_pending_event());
        let record = broker.record(&other_project_id()).unwrap();
        assert_eq!(record.tags.len(), 3);
        assert_eq!(key_ids(&record), BTreeSet::from([first.id, second.id.clone()]));
        assert_eq!(record.revision, 4);
        assert_eq!(store.project(other_project_id()).await.unwrap(), Some(record));
        assert!(is_valid(&broker, &second));
    });
}

#[test]
fn a_revocation_by_another_replica_applies_as_soon_as_the_record_is_read() {
    run(|| async {
        let store = Arc::new(ContendedStorage::default());
        let broker = start_broker(&store);
        let made = create_other_project(&broker).await;
        let revoked = made.id.clone();
        store.amend_before_next_put(move |record| {
            record.revoke_key(&revoked, 1).unwrap();
        });
        let refused = broker.rotate_keys(&other_project_id(), Some(&made.id), 1000).await;
        assert_eq!(refused.unwrap_err().code(), "invalid_argument", "the key is revoked");
        assert!(!is_valid(&broker, &made));
        assert_eq!(broker.record(&other_project_id()).unwrap().keys.len(), 1);
    });
}

#[test]
fn a_project_that_another_replica_has_deleted_is_not_found_and_is_closed() {
    run(|| async {
        let store = Arc::new(ContendedStorage::default());
        let world = World::on_storage(Arc::clone(&store) as _, settings(), ActorThread::Test).await;
        let there = world.other_project("there", ProjectConfig::default()).await;
        let (_, line) = there.register_with_push("bob").await;
        store.amend_before_next_put(|record| record.close(1));
        let refused = world.broker.add_key(there.project.id(), member_key()).await;
        assert_eq!(refused.err(), Some(BrokerError::ProjectNotFound));
        line.closes_with(CloseReason::SessionEnded).await;
        assert!(world.broker.project(there.project.id()).await.is_err());
    });
}

#[test]
fn a_change_that_is_always_overtaken_is_refused_with_unavailable() {
    run(|| async {
        let store = Arc::new(ContendedStorage::default());
        let broker = start_broker(&store);
        let id = default_project();
        broker.project(&id).await.unwrap();
        for round in 0..1000_u16 {
            store.amend_before_next_put(move |record| record.name = round.to_string());
        }
        let refused = broker.change_project(&id, rename_to("Ours")).await;
        assert_eq!(refused.unwrap_err(), BrokerError::unavailable());
        assert!(!store.has_no_pending_event(), "the broker gave up the change");
    });
}

#[test]
fn a_change_that_the_store_refuses_is_not_applied() {
    run(|| async {
        let store = Arc::new(ContendedStorage::default());
        let broker = start_broker(&store);
        let (before, made) = broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
        store.fail_next_put_as_full();
        let refused = broker.revoke_key(&other_project_id(), made.id.clone()).await;
        assert_eq!(refused.unwrap_err().code(), "unavailable");
        assert_eq!(broker.record(&other_project_id()), Some(before));
        assert!(is_valid(&broker, &made));
        store.fail_next_put_as_full();
        let refused = broker
            .create_project(new_project("more", ProjectConfig::default()))
            .await;
        assert_eq!(refused.unwrap_err().code(), "unavailable");
        assert!(
            broker
                .create_project(new_project("more", ProjectConfig::default()))
                .await
                .is_ok()
        );
    });
}

#[test]
fn a_change_requested_before_the_store_was_read_is_applied() {
    run(|| async {
        let store = Arc::new(SlowStorage::default());
        let earlier = start_broker(&store);
        let made = create_other_project(&earlier).await;
        store.set_paused(true);
        let broker = start_broker(&store);
        let asked = [
            actix_rt::spawn({
                let broker = broker.clone();
                async move {
                    broker
                        .change_project(&other_project_id(), rename_to("Early"))
                        .await
                        .map(drop)
                }
            }),
            actix_rt::spawn({
                let broker = broker.clone();
                async move { broker.rotate_keys(&other_project_id(), None, 0).await.map(drop) }
            }),
        ];
        until("both requests", || broker.observe().mailbox_len == 0).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        store.set_paused(false);
        let answers = within_deadline("the answers", join_all(asked)).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap() == Ok(())));
        let record = broker.record(&other_project_id()).unwrap();
        assert_eq!((record.name.as_str(), record.keys.len()), ("Early", 2));
        assert!(!is_valid(&broker, &made));
    });
}
