//! Projects of a broker: creation, deletion, limits, keys and the audit, with concurrent writers to the store, a
//! failing store and a panicking broker actor.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actix_rt::Arbiter;
use actors::{
    broker::{self, Broker, BrokerHandle, BrokerSettings, Principal},
    clock::now,
    model::{
        AuditEntry, AuditOutcome, AuditQuery, BrokerError, BudgetFull, ConfigChanges, IssuedKey, KeyId, KeyStatus,
        NewKey, ProjectChanges, ProjectConfig, ProjectId, ProjectRecord, Scope,
    },
    project::{ReceiveRequest, Registration},
    router,
    session::{CloseReason, ReceiveMode},
    storage::{Storage, memory::MemoryStorage},
    supervise::ActorMetrics,
};
use futures_util::future::{join, join_all};
use uuid::Uuid;

use crate::{
    contended_storage::ContendedStorage,
    slow_storage::SlowStorage,
    world::{
        ActorThread, CHAT, RecordingConnection, World, broker_settings, grant_of, ids, new_project, project_id, run,
        settings, within_deadline,
    },
};

/// Starts a broker on the thread of the test.
fn start_broker(storage: &Arc<impl Storage>) -> BrokerHandle {
    let arbiters = vec![Arbiter::current()];
    Broker::start(broker_settings(settings()), Arc::clone(storage) as _, arbiters, || {
        panic!("given up")
    })
}

fn default_project() -> ProjectId {
    ProjectId::default_project()
}

fn other_project_id() -> ProjectId {
    project_id("there")
}

fn rename_to(name: &str) -> ProjectChanges {
    ProjectChanges {
        name: Some(name.to_owned()),
        ..ProjectChanges::default()
    }
}

fn config_change(config: ConfigChanges) -> ProjectChanges {
    ProjectChanges {
        config,
        ..ProjectChanges::default()
    }
}

fn member_key() -> NewKey {
    NewKey {
        label: None,
        scope: Scope::Member,
        expires_at_ms: None,
    }
}

fn principal(broker: &BrokerHandle, made: &IssuedKey) -> Arc<Principal> {
    broker.keyring().find(&made.key.digest()).expect("the key is known")
}

fn is_valid(broker: &BrokerHandle, made: &IssuedKey) -> bool {
    principal(broker, made).status.is_valid(now().unix_ms)
}

fn key_ids(record: &ProjectRecord) -> BTreeSet<KeyId> {
    record.keys.iter().map(|key| key.id.clone()).collect()
}

/// Polls a condition, and yields to the actors, until it holds.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    within_deadline(what, async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

// Creation

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
        let (_, made) = broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
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

// Deletion

/// The metrics of all actors of a project, including its sessions.
fn actor_metrics(world: &World) -> Vec<Arc<ActorMetrics>> {
    let (project, registry, router) = world.project.actor_addresses();
    let mut pulses = [project.metrics(), registry.metrics(), router.metrics()]
        .map(Arc::clone)
        .to_vec();
    let sessions = world.project.directory().all();
    pulses.extend(sessions.iter().map(|member| Arc::clone(member.address.metrics())));
    pulses
}

fn lifecycle_state(pulse: &ActorMetrics) -> &'static str {
    pulse.node(Vec::new()).state
}

async fn assert_deletion_ends_actors(world: World) {
    let (_, own_line) = world.register_with_push("alice").await;
    let there = world.other_project("there", ProjectConfig::default()).await;
    let (alice, line) = there.register_with_push("alice").await;
    let bob = there.register("bob", None).await;
    let sent = there.send_many(&bob, "alice", 1).await;
    line.sees(&sent).await;
    let waiting = actix_rt::spawn({
        let (project, bob) = (there.project.clone(), Arc::clone(&bob));
        async move {
            let request = ReceiveRequest {
                limit: 1,
                wait: Duration::from_secs(100),
                mode: ReceiveMode::Manual,
                ..ReceiveRequest::default()
            };
            project.receive(&bob, request).await.map(drop)
        }
    });
    // The project has read its inbox from the store.
    assert!(there.read_inbox(&bob).await.is_empty());
    let pulses = actor_metrics(&there);
    assert_eq!(
        pulses.iter().map(|pulse| lifecycle_state(pulse)).collect::<Vec<_>>(),
        ["running"; 5]
    );

    world.broker.delete_project(there.project.id()).await.unwrap();
    line.closes_with(CloseReason::SessionEnded).await;
    let answer = within_deadline("the end of the wait", waiting).await.unwrap();
    assert_eq!(answer.map_err(|error| error.code()), Err("session_not_found"));
    let tree = world.broker.observe();
    let names: Vec<_> = tree.children.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["default"]);
    // A handle to the deleted project gets only errors.
    until("the end of the project", || lifecycle_state(&pulses[0]) == "finished").await;
    let refused = there.try_register("late", None).await.err();
    assert_eq!(refused, Some(BrokerError::unavailable()));
    drop((there, alice, bob));
    until("the end of all actors", || {
        pulses.iter().all(|pulse| lifecycle_state(pulse) == "finished")
    })
    .await;
    assert!(own_line.close_reasons().is_empty(), "of another project");
    assert!(world.project.resolve("alice").known().is_ok());
}

#[test]
fn a_deleted_project_closes_its_connections_and_stops_its_actors() {
    for threads in [ActorThread::Test, ActorThread::Own] {
        run(move || async move { assert_deletion_ends_actors(World::new(settings(), threads).await).await });
        run(move || async move {
            let store = Arc::new(SlowStorage::default());
            assert_deletion_ends_actors(World::on_storage(store, settings(), threads).await).await;
        });
    }
}

#[test]
fn a_deleted_project_leaves_nothing_in_the_store() {
    run(|| async {
        let store = Arc::new(MemoryStorage::default());
        let world = World::on_storage(Arc::clone(&store) as _, settings(), ActorThread::Test).await;
        let there = world.other_project("there", ProjectConfig::default()).await;
        let bob = there.register("bob", None).await;
        there.send_many(&bob, "bob", 3).await;
        world.broker.delete_project(there.project.id()).await.unwrap();
        let left = store.open(there.project.id());
        assert!(left.sessions().await.unwrap().sessions.is_empty() && left.protocols().await.unwrap().is_empty());
    });
}

#[test]
fn a_project_that_panics_during_its_deletion_is_still_deleted() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let there = world.other_project("there", ProjectConfig::default()).await;
        let (_, line) = there.register_with_push("bob").await;
        let (project, _, router) = there.project.actor_addresses();
        for _ in 0..3 {
            project.tell(actors::project::Panic).unwrap();
            router.tell(router::PanicRouter).unwrap();
        }
        world.broker.delete_project(there.project.id()).await.unwrap();
        line.closes_with(CloseReason::SessionEnded).await;
        assert!(world.broker.project(there.project.id()).await.is_err());
    });
}

// Limits

async fn change(world: &World, changes: ProjectChanges) {
    let changed = world.broker.change_project(world.project.id(), changes);
    changed.await.unwrap();
}

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

// Keys

#[test]
fn a_key_is_valid_from_its_creation_until_it_is_revoked() {
    run(|| async {
        let broker = start_broker(&Arc::new(SlowStorage::default()));
        let (_, first) = broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
        let second = broker.add_key(&other_project_id(), member_key()).await.unwrap();
        let [administers, takes_part] = [&first, &second].map(|made| principal(&broker, made));
        assert_eq!((administers.scope, takes_part.scope), (Scope::Admin, Scope::Member));
        assert_eq!(takes_part.only_project, Some(other_project_id()));
        assert_ne!(administers.owner, takes_part.owner);
        let ended_ms = broker.revoke_key(&other_project_id(), second.id.clone()).await.unwrap();
        assert!(ended_ms <= now().unix_ms);
        assert!(
            !takes_part.status.is_valid(now().unix_ms),
            "a live connection sees the revocation"
        );
        assert!(is_valid(&broker, &first));
        let again = broker.revoke_key(&other_project_id(), second.id).await;
        assert_eq!(again, Ok(ended_ms));
        let refused = broker
            .revoke_key(&other_project_id(), KeyId::parse("nobody").unwrap())
            .await;
        assert_eq!(refused.unwrap_err().code(), "invalid_argument");
        let late = NewKey {
            expires_at_ms: Some(1),
            ..member_key()
        };
        let refused = broker.add_key(&other_project_id(), late).await;
        assert_eq!(refused.unwrap_err().code(), "invalid_argument");
    });
}

#[test]
fn a_rotation_with_a_grace_period_keeps_the_old_keys_valid_during_it() {
    run(|| async {
        let broker = start_broker(&Arc::new(MemoryStorage::default()));
        let (_, first) = broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
        let second = broker.add_key(&other_project_id(), member_key()).await.unwrap();
        let hour_ms = 3_600_000;
        let before_ms = now().unix_ms;
        let rotated = broker.rotate_keys(&other_project_id(), None, hour_ms).await.unwrap();
        let after_ms = now().unix_ms;
        let retired: Vec<_> = rotated.retired.iter().map(|(id, _)| id).collect();
        assert_eq!(retired, [&first.id, &second.id]);
        for (old, (new, (_, end_ms))) in [&first, &second]
            .into_iter()
            .zip(rotated.issued.iter().zip(&rotated.retired))
        {
            assert!((before_ms + hour_ms..=after_ms + hour_ms).contains(end_ms));
            let (old, new) = (principal(&broker, old), principal(&broker, new));
            assert_eq!((old.owner.clone(), old.scope), (new.owner.clone(), new.scope));
            assert_eq!(old.status.valid_until_ms(), *end_ms);
            assert!(new.status.is_valid(u64::MAX - 1));
        }
        // A second rotation does not rotate the keys that are already being replaced.
        let again = broker.rotate_keys(&other_project_id(), None, hour_ms).await.unwrap();
        let retired: Vec<_> = again.retired.iter().map(|(id, _)| id).collect();
        assert_eq!(retired, [&rotated.issued[0].id, &rotated.issued[1].id]);
        let refused = broker.rotate_keys(&other_project_id(), Some(&first.id), 0).await;
        assert_eq!(refused.unwrap_err().code(), "invalid_argument");
        let cut_short = broker.revoke_key(&other_project_id(), first.id.clone()).await.unwrap();
        assert!(cut_short <= now().unix_ms && !is_valid(&broker, &first));
    });
}

#[test]
fn a_rotation_without_a_grace_period_ends_only_the_rotated_key_and_immediately() {
    run(|| async {
        let broker = start_broker(&Arc::new(MemoryStorage::default()));
        let (_, first) = broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
        let second = broker.add_key(&other_project_id(), member_key()).await.unwrap();
        let rotated = broker
            .rotate_keys(&other_project_id(), Some(&first.id), 0)
            .await
            .unwrap();
        assert_eq!((rotated.issued.len(), rotated.retired.len()), (1, 1));
        assert_eq!(
            [&first, &second, &rotated.issued[0]].map(|made| is_valid(&broker, made)),
            [false, true, true]
        );
        let record = broker.record(&other_project_id()).unwrap();
        let status = |id: &KeyId| {
            let key = record.keys.iter().find(|key| key.id == *id).unwrap();
            key.status(now().unix_ms)
        };
        assert_eq!(status(&first.id), KeyStatus::Revoked);
        assert_eq!(status(&rotated.issued[0].id), KeyStatus::Active);
    });
}

#[test]
fn the_last_use_of_a_key_is_stored_with_the_next_change() {
    run(|| async {
        let store = Arc::new(MemoryStorage::default());
        let broker = start_broker(&store);
        let (_, made) = broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
        let last_used = |broker: &BrokerHandle| broker.record(&other_project_id()).unwrap().keys[0].last_used_at_ms;
        principal(&broker, &made).status.record_use(123_456_789);
        assert_eq!(last_used(&broker), None);
        broker
            .change_project(&other_project_id(), rename_to("Used"))
            .await
            .unwrap();
        assert_eq!(last_used(&broker), Some(123_420_000), "to the minute");

        // Another process has seen no use of the key, or an earlier one: it does not move the time back.
        let broker = start_broker(&store);
        broker.project(&other_project_id()).await.unwrap();
        assert_eq!(last_used(&broker), Some(123_420_000));
        principal(&broker, &made).status.record_use(60_000);
        broker
            .change_project(&other_project_id(), rename_to("Not used"))
            .await
            .unwrap();
        assert_eq!(last_used(&broker), Some(123_420_000));
        broker.rotate_keys(&other_project_id(), None, 1_000_000).await.unwrap();
        let record = broker.record(&other_project_id()).unwrap();
        let used: Vec<_> = record.keys.iter().map(|key| key.last_used_at_ms).collect();
        assert_eq!(used, [Some(123_420_000), None]);
    });
}

// Concurrent changes

#[test]
fn concurrent_changes_are_all_applied() {
    run(|| async {
        let broker = start_broker(&Arc::new(SlowStorage::default()));
        let (_, first) = broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
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
        let (_, first) = broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
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
        let (_, made) = broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
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
        let (_, made) = earlier
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
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

// Panics

#[test]
fn a_panic_of_the_broker_actor_loses_no_project_key_or_connection() {
    for threads in [ActorThread::Test, ActorThread::Own] {
        run(move || async move {
            let world = World::on_storage(Arc::new(SlowStorage::default()), settings(), threads).await;
            let there = world.other_project("there", ProjectConfig::default()).await;
            let made = world.broker.add_key(there.project.id(), member_key()).await.unwrap();
            let (bob, line) = there.register_with_push("bob").await;
            let mut keys = world.broker.record(there.project.id()).unwrap().keys.len();
            for round in 1..=5 {
                world.broker.address().tell(broker::Panic).unwrap();
                // Queued behind the panic.
                let more = within_deadline("a key", world.broker.add_key(there.project.id(), member_key()));
                assert!(is_valid(&world.broker, &more.await.unwrap()));
                keys += 1;
                assert_eq!(world.broker.observe().restarts, round);
                assert_eq!(world.broker.record(there.project.id()).unwrap().keys.len(), keys);
                assert!(is_valid(&world.broker, &made));
                let sent = there.send(&bob, "bob").await.result.message;
                line.await_recorded("a message", |seen| ids(&seen.pushed).contains(&sent))
                    .await;
            }
            assert_eq!(world.restarts(), [("broker", String::new(), 5)]);
            assert!(line.close_reasons().is_empty());
            let again = world.broker.project(there.project.id()).await.unwrap();
            assert_eq!(again.resolve("bob").known().unwrap().record, bob.record);
        });
    }
}

#[test]
fn a_change_stored_during_a_panic_of_the_broker_actor_is_kept_by_the_next_change() {
    run(|| async {
        let store = Arc::new(SlowStorage::default());
        let broker = start_broker(&store);
        let id = default_project();
        broker.project(&id).await.unwrap();
        store.set_paused(true);
        let adding = actix_rt::spawn({
            let (broker, id) = (broker.clone(), id.clone());
            async move { broker.add_key(&id, member_key()).await.map(drop) }
        });
        tokio::task::yield_now().await;
        until("the start of the change", || broker.observe().mailbox_len == 0).await;
        broker.address().tell(broker::Panic).unwrap();
        until("the restart", || broker.observe().restarts == 1).await;
        store.set_paused(false);
        // The change was stored, and the actor panicked before it could answer.
        let answer = within_deadline("the answer", adding).await.unwrap();
        assert_eq!(answer, Err(BrokerError::unavailable()));
        let record = broker.change_project(&id, rename_to("After")).await.unwrap();
        assert_eq!((record.name.as_str(), record.keys.len()), ("After", 1));
        assert_eq!(broker.record(&id), Some(record));
    });
}

#[test]
fn a_broker_actor_past_its_restart_limit_gives_up() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        // One panic more than the restart policy allows.
        for _ in 0..=10 {
            world.broker.address().tell(broker::Panic).unwrap();
        }
        world.await_giving_up().await;
        let refused = world.broker.add_key(&default_project(), member_key()).await;
        assert_eq!(refused.err(), Some(BrokerError::unavailable()));
        // Actors below the broker run until the process ends.
        let line = RecordingConnection::new();
        let bob = world.register("bob", Some(&line)).await;
        assert_eq!(world.send_many(&bob, "bob", 1).await, world.read_inbox(&bob).await);
    });
}

// The audit

#[test]
fn administrative_actions_are_audited_with_their_time() {
    run(|| async {
        let broker = start_broker(&Arc::new(MemoryStorage::default()));
        let before_ms = now().unix_ms;
        for action in ["project.create", "key.add"] {
            let entry = AuditEntry {
                id: Uuid::nil(),
                at_ms: 0,
                actor: "admin".to_owned(),
                address: None,
                project: Some(other_project_id()),
                action: action.to_owned(),
                target: None,
                outcome: AuditOutcome::Done,
                code: None,
            };
            broker.record_audit(entry).await;
        }
        let query = AuditQuery {
            project: Some(other_project_id()),
            limit: 9,
            ..AuditQuery::default()
        };
        let entries = broker.audit(query).await.unwrap();
        let actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
        assert_eq!(actions, ["key.add", "project.create"]);
        assert!(entries[1].at_ms >= before_ms && entries[0].at_ms >= entries[1].at_ms);
        assert!(entries[0].id > entries[1].id && entries[1].id > Uuid::nil());
    });
}

#[test]
fn a_registration_in_one_project_is_invisible_in_another() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let there = world.other_project("there", ProjectConfig::default()).await;
        let here = world.register("bob", None).await;
        let registered = there.project.register(Registration {
            name: here.record.name.clone(),
            current: Some(here.record.id),
            ..Registration::default()
        });
        let registered = registered.await.unwrap();
        assert!(!registered.resumed);
        assert_ne!(registered.member.record.id, here.record.id);
        assert!(there.project.session(here.record.id).is_none());
        assert_eq!((world.sessions_len(), there.sessions_len()), (1, 1));
    });
}
