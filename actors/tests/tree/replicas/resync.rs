//! A resync: which reads and frames complete it, and when it fails.

use std::{future::Future, sync::Arc, time::Duration};

use actors::{model::BrokerError, session::CloseReason};
use futures_util::future::{Either, select};

use super::{ReplicaPair, await_session, until};
use crate::{
    replicated_memory::{ReplicaConnection, ReplicatedMemory, Unanswered},
    world::{ActorThread, World, run, settings, within_deadline},
};

/// Asserts that the resync ends only after the roster has been read, and that `alice` is known then.
async fn waits_for_the_roster(
    there: &World,
    connection: &ReplicaConnection,
    mut caught_up: impl Future<Output = CaughtUp> + Unpin,
) {
    let early = tokio::time::timeout(Duration::from_millis(50), &mut caught_up).await;
    assert!(early.is_err(), "the resync must not end yet");
    connection.rosters_held.send_replace(false);
    caught_up.await.unwrap();
    assert!(there.project.resolve("alice").known().is_ok());
}

type CaughtUp = Result<(), BrokerError>;

#[test]
fn a_resync_fails_while_the_store_does_not_answer() {
    for unanswered in [Unanswered::Sessions, Unanswered::Protocols] {
        run(move || async move {
            let ReplicaPair {
                here,
                there,
                there_connection,
                ..
            } = ReplicaPair::new(settings()).await;
            there_connection.frame_filter.lose_one_in(1);
            here.register("alice", None).await;
            here.register_protocol("news").await.unwrap();
            there_connection.set_unanswered(Some(unanswered));
            let refused = there.project.wait_until_current().await;
            assert!(matches!(refused, Err(BrokerError::Unavailable { .. })), "{refused:?}");
            there_connection.set_unanswered(None);
            there.project.wait_until_current().await.unwrap();
            assert!(there.project.resolve("alice").known().is_ok());
            assert!(there.project.protocol("news", "1.0.0").is_ok());
        });
    }
}

#[test]
fn a_failed_resync_of_protocols_is_retried() {
    run(|| async {
        let ReplicaPair {
            here,
            there,
            there_connection,
            ..
        } = ReplicaPair::new(settings()).await;
        there.project.wait_until_current().await.unwrap();
        there_connection.set_unanswered(Some(Unanswered::Protocols));
        here.register_protocol("news").await.unwrap();
        let refused = there.project.wait_until_current().await;
        assert!(matches!(refused, Err(BrokerError::Unavailable { .. })), "{refused:?}");
        there_connection.set_unanswered(None);
        // The resync runs by itself, and its result is visible to a synchronous read.
        until("the protocol is known", || {
            there.project.protocol("news", "1.0.0").is_ok()
        })
        .await;
    });
}

#[test]
fn a_resync_waits_for_the_first_roster() {
    run(|| async {
        let cluster = Arc::<ReplicatedMemory>::default();
        let (here_connection, there_connection) = (cluster.connect_replica(), cluster.connect_replica());
        let here = World::on_storage(here_connection.storage(), settings(), ActorThread::Test).await;
        here.register("alice", None).await;
        there_connection.rosters_held.send_replace(true);
        let there = World::on_shared_storage(there_connection.storage(), settings(), ActorThread::Test).await;
        here.register("bob", None).await;
        await_session(&there, "bob").await;
        waits_for_the_roster(&there, &there_connection, Box::pin(there.project.wait_until_current())).await;
    });
}

#[test]
fn a_frame_after_a_lost_one_does_not_complete_a_resync() {
    run(|| async {
        let ReplicaPair {
            here,
            there,
            there_connection,
            ..
        } = ReplicaPair::new(settings()).await;
        there.project.wait_until_current().await.unwrap();
        there_connection.frame_filter.lose_one_in(1);
        here.register("alice", None).await;
        there_connection.frame_filter.lose_one_in(0);
        there_connection.rosters_held.send_replace(true);
        here.register("bob", None).await;
        await_session(&there, "bob").await;
        waits_for_the_roster(&there, &there_connection, Box::pin(there.project.wait_until_current())).await;
    });
}

#[test]
fn a_frame_does_not_complete_a_resync_in_progress() {
    run(|| async {
        let ReplicaPair {
            here,
            there,
            there_connection,
            ..
        } = ReplicaPair::new(settings()).await;
        there.project.wait_until_current().await.unwrap();
        there_connection.frame_filter.lose_one_in(1);
        here.register("alice", None).await;
        there_connection.rosters_held.send_replace(true);
        let mut asked = there_connection.roster_reads.subscribe();
        let before = *asked.borrow_and_update();
        let mut caught_up = Box::pin(there.project.wait_until_current());
        // No frame has told of her: the replica reads the roster from the store.
        let looks = Box::pin(asked.wait_for(|asked| *asked > before));
        let first = select(&mut caught_up, looks).await;
        assert!(matches!(first, Either::Right(_)), "the resync must not end yet");
        drop(first);
        there_connection.frame_filter.lose_one_in(0);
        here.register("bob", None).await;
        await_session(&there, "bob").await;
        waits_for_the_roster(&there, &there_connection, caught_up).await;
    });
}

/// A roster that was requested before a frame arrived does not undo the change in the frame.
#[test]
fn a_session_announced_during_a_resync_is_kept() {
    run(|| async {
        let cluster = Arc::<ReplicatedMemory>::default();
        let (here_connection, there_connection) = (cluster.connect_replica(), cluster.connect_replica());
        let here = World::on_storage(here_connection.storage(), settings(), ActorThread::Test).await;
        here.register("alice", None).await;
        there_connection.rosters_held.send_replace(true);
        let mut asked = there_connection.roster_reads.subscribe();
        let there = World::on_shared_storage(there_connection.storage(), settings(), ActorThread::Test).await;
        within_deadline("all sessions are asked for", asked.wait_for(|asked| *asked > 0))
            .await
            .unwrap();
        // The roster being read contains none of these sessions, and their frames do not follow the version that this
        // replica has.
        for name in ["bob", "carol"] {
            here.register(name, None).await;
            await_session(&there, name).await;
        }
        let bob = there.project.resolve("bob").known().unwrap();
        there_connection.rosters_held.send_replace(false);
        await_session(&there, "alice").await;
        let same = there.project.resolve("bob").known().unwrap();
        assert!(Arc::ptr_eq(&bob, &same), "the session did not end");
    });
}

#[test]
fn a_roster_that_is_older_than_a_registration_does_not_undo_it() {
    run(|| async {
        let ReplicaPair {
            here, here_connection, ..
        } = ReplicaPair::new(settings()).await;
        here_connection.frame_filter.lose_one_in(1);
        here_connection.rosters_held.send_replace(true);
        let mut asked = here_connection.roster_reads.subscribe();
        let before = *asked.borrow_and_update();
        // After a reconnect the replica reads everything again, because frames may have been missed.
        here_connection.heal();
        within_deadline("all sessions are asked for", asked.wait_for(|asked| *asked > before))
            .await
            .unwrap();
        here.register("alice", None).await;
        here_connection.rosters_held.send_replace(false);
        // The answer arrives before the frames of these sessions.
        for name in ["bob", "carol", "dora"] {
            here.register(name, None).await;
        }
        assert!(here.project.resolve("alice").known().is_ok());
    });
}

#[test]
fn a_replica_that_was_cut_off_catches_up() {
    run(|| async {
        let ReplicaPair {
            here,
            there,
            there_connection,
            ..
        } = ReplicaPair::new(settings()).await;
        let (_, line) = there.register_with_push("bob").await;
        let (_, taken) = there.register_with_push("carol").await;
        let alice = here.register("alice", None).await;
        here.project.wait_until_current().await.unwrap();
        there_connection.cut();
        let refused = there.try_register("dora", None).await;
        assert!(matches!(refused.map(drop), Err(BrokerError::Unavailable { .. })));
        let sent = here.send_many(&alice, "bob", 3).await;
        here.register("carol", None).await;
        here.register_protocol("news").await.unwrap();
        assert!(
            line.recorded().pushed.is_empty() && line.close_reasons().is_empty(),
            "it is kept"
        );
        there_connection.heal();
        line.sees(&sent).await;
        taken.closes_with(CloseReason::TakenOver).await;
        there.project.wait_until_current().await.unwrap();
        assert!(there.project.protocol("news", "1.0.0").is_ok());
    });
}
