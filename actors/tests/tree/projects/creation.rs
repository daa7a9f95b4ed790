//! Which projects exist: the default project, created and deleted ones, and those of a restarted broker.

use std::sync::Arc;

use actix_rt::Arbiter;
use actors::{
    broker::{Broker, BrokerSettings},
    model::{BrokerError, ProjectConfig, ProjectRecord},
    storage::memory::MemoryStorage,
};
use futures_util::future::{join, join_all};

use super::{
    create_other_project, default_project, is_valid, member_key, other_project_id, rename_to, start_broker, until,
};
use crate::{
    contended_storage::ContendedStorage,
    slow_storage::SlowStorage,
    world::{
        ActorThread, CHAT, World, broker_settings, grant_of, new_project, project_id, run, settings, within_deadline,
    },
};

#[test]
fn the_default_project_exists_without_being_created() {
    run(|| async {
        let broker = start_broker(&Arc::new(MemoryStorage::default()));
        let project = broker.project(&default_project()).await.unwrap();
        assert_eq!(project.record(), broker.record(&default_project()).unwrap());
        assert!(project.record().keys.is_empty() && project.record().active);
        assert_eq!(broker.open_projects().len(), 1);
        let refused = broker
            .create_project(new_project("default", ProjectConfig::default()))
            .await;
        assert_eq!(refused.unwrap_err().code(), "project_exists");
    });
}

#[test]
fn a_lookup_of_a_project_is_answered_after_the_store_has_been_read() {
    run(|| async {
        let store = Arc::new(SlowStorage::default());
        let earlier = start_broker(&store);
        earlier.project(&default_project()).await.unwrap();
        earlier
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
        store.set_paused(true);
        let broker = start_broker(&store);
        let asked = [default_project(), other_project_id(), project_id("nowhere")].map(|id| {
            let broker = broker.clone();
            actix_rt::spawn(async move { broker.project(&id).await.map(|project| project.id().clone()) })
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(asked.iter().all(|answer| !answer.is_finished()));
        store.set_paused(false);
        let answers: Vec<_> = within_deadline("the answers", join_all(asked))
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let expected = [
            Ok(default_project()),
            Ok(other_project_id()),
            Err(BrokerError::ProjectNotFound),
        ];
        assert_eq!(answers, expected);
    });
}

#[test]
fn the_default_project_exists_when_another_replica_creates_it_at_the_same_time() {
    run(|| async {
        let store = Arc::new(ContendedStorage::default());
        let theirs = ProjectRecord {
            name: "Theirs".to_owned(),
            ..ProjectRecord::default_project(7)
        };
        store.replace_before_next_put(theirs.clone());
        let broker = start_broker(&store);
        let project = within_deadline("the default project", broker.project(&default_project()))
            .await
            .unwrap();
        assert_eq!(*project.record(), theirs);
        assert!(store.has_no_pending_event());
    });
}

#[test]
fn the_default_project_is_created_when_the_store_has_room_again() {
    run(|| async {
        let store = Arc::new(ContendedStorage::default());
        store.fail_next_put_as_full();
        let broker = start_broker(&store);
        within_deadline("the default project", broker.project(&default_project()))
            .await
            .unwrap();
    });
}

#[test]
fn a_deleted_project_is_refused_like_one_that_never_existed() {
    run(|| async {
        let broker = start_broker(&Arc::new(MemoryStorage::default()));
        broker.project(&default_project()).await.unwrap();
        let made = create_other_project(&broker).await;
        broker
            .grant(&other_project_id(), default_project(), grant_of(&[], 0))
            .await
            .unwrap();
        broker.delete_project(&other_project_id()).await.unwrap();
        let mut answers = Vec::new();
        for id in [other_project_id(), project_id("nowhere")] {
            let key = made.id.clone();
            answers.push(vec![
                broker.project(&id).await.map(drop),
                broker.change_project(&id, rename_to("Again")).await.map(drop),
                broker.delete_project(&id).await,
                broker.add_key(&id, member_key()).await.map(drop),
                broker.revoke_key(&id, key.clone()).await.map(drop),
                broker.rotate_keys(&id, None, 0).await.map(drop),
                broker.rotate_keys(&id, Some(&key), 0).await.map(drop),
                broker.grant(&id, default_project(), grant_of(&[], 0)).await,
            ]);
        }
        assert_eq!(answers[0], vec![Err(BrokerError::ProjectNotFound); 8]);
        assert_eq!(answers[0], answers[1]);
        assert!(
            broker
                .open_projects()
                .iter()
                .all(|project| *project.id() != other_project_id())
        );
        // The record of a deleted project stays visible to the administrator of the broker.
        let record = broker.record(&other_project_id()).unwrap();
        assert!(!record.active && record.grants.is_empty());
        assert!(broker.records().contains(&record));
        assert!(!is_valid(&broker, &made));
    });
}

#[test]
fn a_project_id_is_used_only_once() {
    run(|| async {
        let broker = start_broker(&Arc::new(SlowStorage::default()));
        let create = || broker.create_project(new_project("there", ProjectConfig::default()));
        let exists = BrokerError::ProjectExists {
            id: other_project_id().to_string(),
        };
        let (left, right) = join(create(), create()).await;
        let (made, refused) = if left.is_ok() { (left, right) } else { (right, left) };
        let (record, made) = made.unwrap();
        assert_eq!(refused.unwrap_err(), exists);
        assert_eq!(broker.record(&other_project_id()), Some(record));
        assert!(is_valid(&broker, &made), "the key of the created project");
        assert_eq!(create().await.unwrap_err(), exists);
        broker.delete_project(&other_project_id()).await.unwrap();
        assert_eq!(create().await.unwrap_err(), exists);
    });
}

#[test]
fn a_project_above_the_limits_is_not_created() {
    run(|| async {
        let broker = start_broker(&Arc::new(MemoryStorage::default()));
        for reserved in ["system", "admin", "root"] {
            let refused = broker
                .create_project(new_project(reserved, ProjectConfig::default()))
                .await;
            assert_eq!(refused.unwrap_err().code(), "invalid_argument");
            assert!(broker.project(&project_id(reserved)).await.is_err());
        }
        broker.project(&default_project()).await.unwrap();
        let refused = broker.delete_project(&default_project()).await;
        assert_eq!(refused.unwrap_err().code(), "forbidden");
        let refused = broker.change_project(&default_project(), rename_to("")).await;
        assert_eq!(refused.unwrap_err().code(), "invalid_argument");
        assert_eq!(broker.record(&default_project()).unwrap().name, "Default");
    });
}

#[test]
fn a_broker_for_one_project_opens_no_other() {
    run(|| async {
        let store = Arc::new(MemoryStorage::default());
        let world = World::on_storage(Arc::clone(&store) as _, settings(), ActorThread::Test).await;
        world.other_project("there", ProjectConfig::default()).await;
        let settings = BrokerSettings {
            multi_project: false,
            ..broker_settings(settings())
        };
        let broker = Broker::start(settings, store, vec![Arbiter::current()], || ());
        assert!(broker.project(&default_project()).await.is_ok());
        assert_eq!(
            broker.project(&other_project_id()).await.err(),
            Some(BrokerError::ProjectNotFound)
        );
    });
}

#[test]
fn a_project_is_open_again_after_a_restart_with_its_keys_sessions_and_protocols() {
    run(|| async {
        let store = Arc::new(SlowStorage::default());
        let world = World::on_storage(Arc::clone(&store) as _, settings(), ActorThread::Test).await;
        let (record, made) = world
            .broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
        let project = world.broker.project(&other_project_id()).await.unwrap();
        let before = world.with_project(project);
        before.register_protocol(CHAT).await.unwrap();
        let bob = before.register("bob", None).await;
        let gone = world.other_project("gone", ProjectConfig::default()).await;
        gone.register("bob", None).await;
        world.broker.delete_project(gone.project.id()).await.unwrap();

        let broker = start_broker(&store);
        let project = broker.project(&other_project_id()).await.unwrap();
        assert_eq!(project.record(), record);
        assert!(is_valid(&broker, &made));
        let is_loaded = || project.protocols_len() == 1 && project.resolve("bob").known().is_ok();
        until("the state of the store", is_loaded).await;
        assert_eq!(project.resolve("bob").known().unwrap().record, bob.record);
        let refused = broker.project(gone.project.id()).await;
        assert_eq!(refused.err(), Some(BrokerError::ProjectNotFound));
        let refused = broker
            .create_project(new_project("gone", ProjectConfig::default()))
            .await;
        assert_eq!(refused.unwrap_err().code(), "project_exists");
    });
}
