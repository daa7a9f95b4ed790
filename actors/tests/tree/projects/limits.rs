//! Changes of the limits of a project apply to its running actors.

use std::sync::Arc;

use actors::{
    model::{BrokerError, BudgetFull, ConfigChanges, ProjectConfig},
    storage::memory::MemoryStorage,
};
use futures_util::future::join_all;

use super::{change, config_change, default_project, member_key, other_project_id, rename_to, start_broker};
use crate::{
    slow_storage::SlowStorage,
    world::{ActorThread, CHAT, World, grant_of, new_project, project_id, run, settings, within_deadline},
};

#[test]
fn a_changed_queue_capacity_applies_from_the_next_message() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (alice, bob) = (world.register("alice", None).await, world.register("bob", None).await);
        let limit = async |capacity: Option<usize>| {
            let config = ConfigChanges {
                queue_capacity: Some(capacity),
                ..ConfigChanges::default()
            };
            change(&world, config_change(config)).await;
        };
        let refusal = async || {
            let submission = world.direct_submission(&alice, "bob").unwrap();
            world.submit(vec![submission]).await.unwrap().remove(0).err()
        };
        limit(Some(2)).await;
        assert_eq!((refusal().await, refusal().await), (None, None));
        assert_eq!(
            refusal().await,
            Some(BrokerError::QueueFull(BudgetFull::queue_messages(2)))
        );
        limit(Some(3)).await;
        assert_eq!(refusal().await, None);
        assert_eq!(
            refusal().await,
            Some(BrokerError::QueueFull(BudgetFull::queue_messages(3)))
        );
        limit(Some(1)).await;
        assert_eq!(world.read_inbox(&bob).await.len(), 3, "accepted messages stay");
        assert_eq!(
            refusal().await,
            Some(BrokerError::QueueFull(BudgetFull::queue_messages(1)))
        );
        limit(None).await;
        assert_eq!(refusal().await, None, "the default of the broker");
    });
}

#[test]
fn a_changed_session_limit_applies_to_the_next_session() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let limit = async |most: Option<usize>| {
            let config = ConfigChanges {
                max_sessions: Some(most),
                ..ConfigChanges::default()
            };
            change(&world, config_change(config)).await;
        };
        let code = async |name: &str| world.try_register(name, None).await.err().map(|error| error.code());
        for name in ["alice", "bob"] {
            assert_eq!(code(name).await, None);
        }
        limit(Some(2)).await;
        assert_eq!(code("carol").await, Some("forbidden"));
        assert_eq!(code("bob").await, None, "an existing session is resumed");
        limit(Some(1)).await;
        assert_eq!((world.sessions_len(), code("bob").await), (2, None));
        limit(Some(3)).await;
        assert_eq!((code("carol").await, code("dave").await), (None, Some("forbidden")));
        limit(None).await;
        assert_eq!(code("dave").await, None);
    });
}

#[test]
fn concurrent_registrations_do_not_exceed_the_session_limit() {
    run(|| async {
        let world = World::on_storage(Arc::new(SlowStorage::default()), settings(), ActorThread::Test).await;
        let config = ProjectConfig {
            max_sessions: Some(3),
            ..ProjectConfig::default()
        };
        let there = world.other_project("there", config).await;
        let names = ["a", "b", "c", "d", "e", "f"];
        let registered = join_all(names.map(|name| there.try_register(name, None))).await;
        assert_eq!(registered.iter().filter(|registered| registered.is_ok()).count(), 3);
        assert_eq!(there.sessions_len(), 3);
    });
}

#[test]
fn a_changed_protocol_limit_applies_to_the_next_protocol() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let limit = async |most: Option<usize>| {
            let config = ConfigChanges {
                max_protocols: Some(most),
                ..ConfigChanges::default()
            };
            change(&world, config_change(config)).await;
        };
        let code = async |name: &str| world.register_protocol(name).await.err().map(|error| error.code());
        limit(Some(2)).await;
        assert_eq!((code("call").await, code("mail").await), (None, Some("forbidden")));
        assert_eq!(code(CHAT).await, None, "an existing protocol is not counted again");
        limit(Some(3)).await;
        assert_eq!(code("mail").await, None);
        limit(None).await;
        assert_eq!(code("news").await, None);
    });
}

#[test]
fn concurrent_registrations_do_not_exceed_the_protocol_limit() {
    run(|| async {
        let world = World::on_storage(Arc::new(SlowStorage::default()), settings(), ActorThread::Test).await;
        let config = ProjectConfig {
            max_protocols: Some(3),
            ..ProjectConfig::default()
        };
        let there = world.other_project("there", config).await;
        let names = ["aa", "bb", "cc", "dd", "ee"];
        let registered = join_all(names.map(|name| there.register_protocol(name))).await;
        assert_eq!(registered.iter().filter(|registered| registered.is_ok()).count(), 2);
        assert_eq!(there.project.protocols_len(), 3);
    });
}

#[test]
fn an_unchanged_rate_limit_keeps_its_count_and_a_changed_one_starts_at_zero() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let limited = |rate_limit| ConfigChanges {
            rate_limit: Some(rate_limit),
            ..ConfigChanges::default()
        };
        let takes = |count| (0..count).filter(|_| world.project.take_requests(1).is_ok()).count();
        assert_eq!(takes(100), 100);
        change(&world, config_change(limited(3))).await;
        assert_eq!(takes(2), 2);
        change(&world, rename_to("Limited")).await;
        assert_eq!(takes(9), 1);
        change(&world, config_change(limited(4))).await;
        assert_eq!(takes(9), 4);
        change(&world, config_change(limited(0))).await;
        assert_eq!(takes(100), 100);
    });
}

#[test]
fn a_grant_holds_until_it_is_withdrawn() {
    run(|| async {
        let broker = start_broker(&Arc::new(MemoryStorage::default()));
        let own = default_project();
        broker.project(&own).await.unwrap();
        let nowhere = project_id("nowhere");
        broker
            .grant(&own, other_project_id(), grant_of(&[CHAT], 5))
            .await
            .unwrap();
        broker.grant(&own, nowhere.clone(), grant_of(&[], 0)).await.unwrap();
        broker.grant(&own, other_project_id(), grant_of(&[], 7)).await.unwrap();
        let grants = || broker.record(&own).unwrap().grants.clone();
        assert_eq!(
            grants().into_iter().collect::<Vec<_>>(),
            [(nowhere, grant_of(&[], 0)), (other_project_id(), grant_of(&[], 7))]
        );
        assert_eq!(broker.revoke_grant(&own, &other_project_id()).await, Ok(true));
        assert_eq!(broker.revoke_grant(&own, &other_project_id()).await, Ok(false));
        assert_eq!(grants().len(), 1);
        let refused = broker.grant(&own, own.clone(), grant_of(&[], 0)).await;
        assert_eq!(refused.unwrap_err().code(), "invalid_argument");
    });
}

#[test]
fn a_watcher_receives_every_change_of_a_project() {
    run(|| async {
        let broker = start_broker(&Arc::new(MemoryStorage::default()));
        broker.project(&default_project()).await.unwrap();
        let mut changes = broker.changes();
        let mut heard = async || {
            within_deadline("a change", changes.changed()).await.unwrap();
            *changes.borrow_and_update()
        };
        let first = heard().await;
        broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
        let second = heard().await;
        broker.add_key(&other_project_id(), member_key()).await.unwrap();
        let third = heard().await;
        broker.delete_project(&other_project_id()).await.unwrap();
        assert!(first < second && second < third && third < heard().await);
    });
}
