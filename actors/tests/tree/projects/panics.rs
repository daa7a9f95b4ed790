//! Panics of the broker actor.

use std::sync::Arc;

use actors::model::{BrokerError, ProjectConfig};

use super::{default_project, is_valid, member_key, rename_to, start_broker, until};
use crate::{
    slow_storage::SlowStorage,
    world::{ActorThread, RecordingConnection, World, ids, run, settings, within_deadline},
};

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
                world.broker.address().tell(actors::supervise::Panic).unwrap();
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
        broker.address().tell(actors::supervise::Panic).unwrap();
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
            world.broker.address().tell(actors::supervise::Panic).unwrap();
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
