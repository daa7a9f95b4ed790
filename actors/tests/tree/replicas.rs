//! Several replicas over one store: every replica gives the same answers.

use std::{future::Future, sync::Arc, time::Duration};

use actors::{
    clock::now,
    model::{BrokerError, BudgetFull, DeadLetterReason, DeliveryStatus, PresenceTimeouts, SessionStatus},
    project::{ProjectSettings, ReceiveRequest},
    session::{CloseReason, ReadAt, ReceiveCall, ReceiveMode, UnboundedReads},
    storage::{Storage, conformance::SHARED_CASES},
};
use futures_util::future::{Either, select};

use crate::{
    load::Load,
    replicated_memory::{ReplicaConnection, ReplicaStorage, ReplicatedMemory, Unanswered},
    world::{ActorThread, CHAT, World, ids, run, settings, within_deadline},
};

/// Two replicas that share a store, with the connection of each to it.
struct ReplicaPair {
    here: World,
    there: World,
    here_connection: Arc<ReplicaConnection>,
    there_connection: Arc<ReplicaConnection>,
}

impl ReplicaPair {
    async fn new(settings: ProjectSettings) -> Self {
        let cluster = Arc::<ReplicatedMemory>::default();
        let (here_twin, there_twin) = (cluster.connect_replica(), cluster.connect_replica());
        let storage = |twin: &Arc<ReplicaConnection>| Arc::new(ReplicaStorage(Arc::clone(twin)));
        let here = World::on_storage(storage(&here_twin) as _, settings, ActorThread::Test).await;
        let there = World::on_shared_storage(storage(&there_twin) as _, settings, ActorThread::Test).await;
        Self {
            here,
            there,
            here_connection: here_twin,
            there_connection: there_twin,
        }
    }
}

#[test]
fn the_test_double_passes_the_conformance_suite_of_shared_stores() {
    for (name, case) in SHARED_CASES {
        run(move || async move {
            println!("{name}");
            let cluster = Arc::<ReplicatedMemory>::default();
            case(Arc::new(ReplicaStorage(cluster.connect_replica()))).await;
        });
    }
}

#[test]
fn a_session_registered_at_one_replica_is_found_at_the_other() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let alice = here.register("alice", None).await;
        there.project.wait_until_current().await.unwrap();
        let found = there.project.resolve("alice").known().unwrap();
        assert_eq!(found.record, alice.record);
        assert_eq!(there.project.status(&found), SessionStatus::Active);
        assert!(there.project.protocol(CHAT, "1.0.0").is_ok());
    });
}

/// Asserts that the resync ends only after the roster has been read, and that `alice` is known then.
async fn waits_for_the_roster(
    there: &World,
    twin: &ReplicaConnection,
    mut caught_up: impl Future<Output = CaughtUp> + Unpin,
) {
    let early = tokio::time::timeout(Duration::from_millis(50), &mut caught_up).await;
    assert!(early.is_err(), "the resync must not end yet");
    twin.rosters_held.send_replace(false);
    caught_up.await.unwrap();
    assert!(there.project.resolve("alice").known().is_ok());
}

type CaughtUp = Result<(), BrokerError>;

async fn until(what: &str, is_so: impl Fn() -> bool) {
    within_deadline(what, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

async fn await_session(of: &World, name: &str) {
    until("the session is known", || of.project.resolve(name).known().is_ok()).await;
}

#[test]
fn a_resync_fails_while_the_store_does_not_answer() {
    for unanswered in [Unanswered::Sessions, Unanswered::Protocols] {
        run(move || async move {
            let ReplicaPair {
                here,
                there,
                there_connection: there_twin,
                ..
            } = ReplicaPair::new(settings()).await;
            there_twin.frame_filter.lose_one_in(1);
            here.register("alice", None).await;
            here.register_protocol("news").await.unwrap();
            there_twin.set_unanswered(Some(unanswered));
            let refused = there.project.wait_until_current().await;
            assert!(matches!(refused, Err(BrokerError::Unavailable { .. })), "{refused:?}");
            there_twin.set_unanswered(None);
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
            there_connection: there_twin,
            ..
        } = ReplicaPair::new(settings()).await;
        there.project.wait_until_current().await.unwrap();
        there_twin.set_unanswered(Some(Unanswered::Protocols));
        here.register_protocol("news").await.unwrap();
        let refused = there.project.wait_until_current().await;
        assert!(matches!(refused, Err(BrokerError::Unavailable { .. })), "{refused:?}");
        there_twin.set_unanswered(None);
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
        let (here_twin, there_twin) = (cluster.connect_replica(), cluster.connect_replica());
        let here = World::on_storage(Arc::new(ReplicaStorage(here_twin)), settings(), ActorThread::Test).await;
        here.register("alice", None).await;
        there_twin.rosters_held.send_replace(true);
        let there = World::on_shared_storage(
            Arc::new(ReplicaStorage(Arc::clone(&there_twin))),
            settings(),
            ActorThread::Test,
        )
        .await;
        here.register("bob", None).await;
        await_session(&there, "bob").await;
        waits_for_the_roster(&there, &there_twin, Box::pin(there.project.wait_until_current())).await;
    });
}

#[test]
fn a_frame_after_a_lost_one_does_not_complete_a_resync() {
    run(|| async {
        let ReplicaPair {
            here,
            there,
            there_connection: there_twin,
            ..
        } = ReplicaPair::new(settings()).await;
        there.project.wait_until_current().await.unwrap();
        there_twin.frame_filter.lose_one_in(1);
        here.register("alice", None).await;
        there_twin.frame_filter.lose_one_in(0);
        there_twin.rosters_held.send_replace(true);
        here.register("bob", None).await;
        await_session(&there, "bob").await;
        waits_for_the_roster(&there, &there_twin, Box::pin(there.project.wait_until_current())).await;
    });
}

#[test]
fn a_frame_does_not_complete_a_resync_in_progress() {
    run(|| async {
        let ReplicaPair {
            here,
            there,
            there_connection: there_twin,
            ..
        } = ReplicaPair::new(settings()).await;
        there.project.wait_until_current().await.unwrap();
        there_twin.frame_filter.lose_one_in(1);
        here.register("alice", None).await;
        there_twin.rosters_held.send_replace(true);
        let mut asked = there_twin.roster_reads.subscribe();
        let before = *asked.borrow_and_update();
        let mut caught_up = Box::pin(there.project.wait_until_current());
        // No frame has told of her: the replica reads the roster from the store.
        let looks = Box::pin(asked.wait_for(|asked| *asked > before));
        let first = select(&mut caught_up, looks).await;
        assert!(matches!(first, Either::Right(_)), "the resync must not end yet");
        drop(first);
        there_twin.frame_filter.lose_one_in(0);
        here.register("bob", None).await;
        await_session(&there, "bob").await;
        waits_for_the_roster(&there, &there_twin, caught_up).await;
    });
}

/// A roster that was requested before a frame arrived does not undo the change in the frame.
#[test]
fn a_session_announced_during_a_resync_is_kept() {
    run(|| async {
        let cluster = Arc::<ReplicatedMemory>::default();
        let (here_twin, there_twin) = (cluster.connect_replica(), cluster.connect_replica());
        let here = World::on_storage(Arc::new(ReplicaStorage(here_twin)), settings(), ActorThread::Test).await;
        here.register("alice", None).await;
        there_twin.rosters_held.send_replace(true);
        let mut asked = there_twin.roster_reads.subscribe();
        let there = World::on_shared_storage(
            Arc::new(ReplicaStorage(Arc::clone(&there_twin))),
            settings(),
            ActorThread::Test,
        )
        .await;
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
        there_twin.rosters_held.send_replace(false);
        await_session(&there, "alice").await;
        let same = there.project.resolve("bob").known().unwrap();
        assert!(Arc::ptr_eq(&bob, &same), "the session did not end");
    });
}

#[test]
fn a_message_is_delivered_from_one_replica_to_the_other() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let (bob, line) = there.register_with_push("bob").await;
        let alice = here.register("alice", None).await;
        here.project.wait_until_current().await.unwrap();
        let sent = here.send_many(&alice, "bob", 20).await;
        let (first, rest) = sent.split_at(16);
        line.sees(first).await;
        line.take_pushed();
        there.acknowledge(&bob, first.to_vec()).await;
        line.sees(rest).await;
    });
}

#[test]
fn a_sender_learns_the_status_of_its_message_from_another_replica() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let (bob, line) = there.register_with_push("bob").await;
        let alice = here.register("alice", None).await;
        here.project.wait_until_current().await.unwrap();
        let routed = here.send(&alice, "bob").await;
        line.sees(&[routed.result.message]).await;
        there.acknowledge(&bob, vec![routed.result.message]).await;
        let status = routed.status.expect("a tracked message");
        let reached = here
            .project
            .wait_for_status(status, DeliveryStatus::Acknowledged, Duration::from_secs(30))
            .await;
        assert_eq!(reached, DeliveryStatus::Acknowledged);
    });
}

#[test]
fn a_long_poll_at_one_replica_is_answered_by_a_message_from_the_other() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let bob = here.register("bob", None).await;
        let alice = here.register("alice", None).await;
        there.project.wait_until_current().await.unwrap();
        let bob_there = there.project.resolve("bob").known().unwrap();
        let waits = there.receive(&bob_there, Duration::from_secs(30), ReceiveMode::Immediate);
        let sends = async { here.send(&alice, "bob").await };
        let (received, sent) = futures_util::future::join(waits, sends).await;
        assert_eq!(ids(&received.unwrap().deliveries), [sent.result.message]);
        assert!(here.read_inbox(&bob).await.is_empty());
    });
}

#[test]
fn the_next_call_at_any_replica_acknowledges_the_previous_one() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let bob = here.register("bob", None).await;
        let alice = here.register("alice", None).await;
        there.project.wait_until_current().await.unwrap();
        let bob_there = there.project.resolve("bob").known().unwrap();
        let sent = here.send_many(&alice, "bob", 3).await;
        let request = |limit| ReceiveRequest {
            limit,
            wait: Duration::ZERO,
            mode: ReceiveMode::OnNext,
            read_at: ReadAt::now(),
            ..ReceiveRequest::default()
        };
        let call = ReceiveCall::default();
        let first = here
            .project
            .receive_for_call(&call, &bob, request(1), Arc::new(UnboundedReads))
            .await
            .unwrap();
        assert_eq!(ids(&first.deliveries), sent[..1]);
        here.project.note_answered(&bob, &call);
        let second = there.project.receive(&bob_there, request(9)).await.unwrap();
        assert_eq!(ids(&second.deliveries), sent[1..]);
        let statuses = here.project.message_status(sent[0]).await.unwrap().unwrap();
        assert_eq!(statuses[0].status, DeliveryStatus::Acknowledged);
        // The answer to the second call counts as not received.
        let third = here.project.receive(&bob, request(9)).await.unwrap();
        assert!(third.deliveries.is_empty());
        let statuses = here.project.message_status(sent[1]).await.unwrap().unwrap();
        assert_eq!(statuses[0].status, DeliveryStatus::Delivered);
    });
}

#[test]
fn a_broadcast_reaches_all_sessions_registered_before_at_any_replica() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let alice = here.register("alice", None).await;
        for number in 0..20 {
            // Registered at one replica, then immediately the target of a broadcast from the other.
            there.register(&format!("bob-{number}"), None).await;
            let broadcast = here.broadcast_submission(&alice).unwrap();
            let answer = here.submit(vec![broadcast]).await.unwrap().pop().unwrap().unwrap();
            assert_eq!(answer.result.queued + answer.result.delivered, number + 1);
        }
    });
}

#[test]
fn a_broadcast_is_refused_while_the_roster_is_unknown() {
    run(|| async {
        let ReplicaPair {
            here,
            there,
            here_connection: here_twin,
            ..
        } = ReplicaPair::new(settings()).await;
        let alice = here.register("alice", None).await;
        here_twin.frame_filter.lose_one_in(1);
        there.register("bob", None).await;
        here_twin.set_unanswered(Some(Unanswered::Sessions));
        let sent = here.submit(vec![here.broadcast_submission(&alice).unwrap()]).await;
        let refused = sent.and_then(|mut answers| answers.pop().unwrap());
        assert!(matches!(refused.map(drop), Err(BrokerError::Unavailable { .. })));
        here_twin.set_unanswered(None);
        let sent = here.submit(vec![here.broadcast_submission(&alice).unwrap()]).await;
        let outcome = sent.unwrap().pop().unwrap().unwrap().result;
        assert_eq!(outcome.queued + outcome.delivered, 1);
    });
}

#[test]
fn a_session_that_ended_at_another_replica_is_not_reported_as_full() {
    run(|| async {
        let ReplicaPair {
            here,
            there,
            here_connection: here_twin,
            there_connection: there_twin,
        } = ReplicaPair::new(settings()).await;
        let alice = here.register("alice", None).await;
        let bob = there.register("bob", None).await;
        there.register("carol", None).await;
        here.project.wait_until_current().await.unwrap();
        here_twin.frames_held.send_replace(true);
        let store = ReplicaStorage(there_twin).open(there.project.id());
        let gone = store.remove_session(bob.record.id, DeadLetterReason::RecipientGone, None, now());
        gone.await.unwrap();
        let refusal = async |to| {
            let answers = here.submit(vec![here.direct_submission(&alice, to).unwrap()]).await;
            answers.unwrap().remove(0).map(drop).unwrap_err()
        };
        assert_eq!(refusal("bob").await.code(), "session_not_found");
        here.send_many(&alice, "carol", 1000).await;
        assert_eq!(
            refusal("carol").await,
            BrokerError::QueueFull(BudgetFull::queue_messages(1000))
        );
    });
}

#[test]
fn a_name_registered_at_two_replicas_at_once_is_one_session() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        for number in 0..20 {
            let name = format!("agent-{number}");
            let (one, other) =
                futures_util::future::join(here.try_register(&name, None), there.try_register(&name, None)).await;
            let (one, other) = (one.unwrap(), other.unwrap());
            assert_eq!(
                one.member.record.id, other.member.record.id,
                "the second resumes what the first made"
            );
            assert!(one.resumed != other.resumed);
        }
    });
}

#[test]
fn a_registration_at_the_other_replica_takes_the_session_over() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let (_, old) = here.register_with_push("bob").await;
        let alice = here.register("alice", None).await;
        let sent = here.send_many(&alice, "bob", 3).await;
        old.sees(&sent).await;
        let (_, new) = there.register_with_push("bob").await;
        old.closes_with(CloseReason::TakenOver).await;
        new.sees(&sent).await;
        assert!(new.recorded().pushed.iter().all(|delivery| delivery.count == 2));
        assert!(new.close_reasons().is_empty());
    });
}

#[test]
fn one_of_two_connections_that_race_for_a_session_stays_open() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        for number in 0..30 {
            let name = format!("agent-{number}");
            let ((_, one), (_, other)) =
                futures_util::future::join(here.register_with_push(&name), there.register_with_push(&name)).await;
            let closed_len = || one.close_reasons().len() + other.close_reasons().len();
            until("one connection is closed", || closed_len() > 0).await;
            here.project.wait_until_current().await.unwrap();
            there.project.wait_until_current().await.unwrap();
            assert_eq!(closed_len(), 1, "the other stays open");
        }
    });
}

#[test]
fn every_message_arrives_although_frames_are_lost() {
    run(|| async {
        let pair = ReplicaPair::new(settings()).await;
        pair.there_connection.frame_filter.lose_one_in(7);
        pair.here_connection.frame_filter.lose_one_in(5);
        let load = Load::across(&pair.here, &pair.there).await;
        load.ledger.await_more_accepted(2000).await;
        pair.there_connection.frame_filter.lose_one_in(0);
        pair.here_connection.frame_filter.lose_one_in(0);
        // The next frame reveals that the last one was lost.
        let late = pair.here.register("late", None).await;
        for _ in 0..20 {
            pair.here.send_many(&late, "late", 1).await;
        }
        load.finish().await;
    });
}

#[test]
fn a_roster_that_is_older_than_a_registration_does_not_undo_it() {
    run(|| async {
        let ReplicaPair {
            here,
            here_connection: here_twin,
            ..
        } = ReplicaPair::new(settings()).await;
        here_twin.frame_filter.lose_one_in(1);
        here_twin.rosters_held.send_replace(true);
        let mut asked = here_twin.roster_reads.subscribe();
        let before = *asked.borrow_and_update();
        // After a reconnect the replica reads everything again, because frames may have been missed.
        here_twin.heal();
        within_deadline("all sessions are asked for", asked.wait_for(|asked| *asked > before))
            .await
            .unwrap();
        here.register("alice", None).await;
        here_twin.rosters_held.send_replace(false);
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
            there_connection: there_twin,
            ..
        } = ReplicaPair::new(settings()).await;
        let (_, line) = there.register_with_push("bob").await;
        let (_, taken) = there.register_with_push("carol").await;
        let alice = here.register("alice", None).await;
        here.project.wait_until_current().await.unwrap();
        there_twin.cut();
        let refused = there.try_register("dora", None).await;
        assert!(matches!(refused.map(drop), Err(BrokerError::Unavailable { .. })));
        let sent = here.send_many(&alice, "bob", 3).await;
        here.register("carol", None).await;
        here.register_protocol("news").await.unwrap();
        assert!(
            line.recorded().pushed.is_empty() && line.close_reasons().is_empty(),
            "it is kept"
        );
        there_twin.heal();
        line.sees(&sent).await;
        taken.closes_with(CloseReason::TakenOver).await;
        there.project.wait_until_current().await.unwrap();
        assert!(there.project.protocol("news", "1.0.0").is_ok());
    });
}

#[test]
fn presence_follows_the_last_heartbeat_at_any_replica() {
    run(|| async {
        let settings = ProjectSettings {
            presence: PresenceTimeouts {
                stale_after: Duration::from_millis(1500),
                disconnect_after: Duration::from_secs(3),
            },
            ..settings()
        };
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings).await;
        let bob = here.register("bob", None).await;
        there.project.wait_until_current().await.unwrap();
        let bob_there = there.project.resolve("bob").known().unwrap();
        let carol = here.register("carol", None).await;
        there.project.wait_until_current().await.unwrap();
        let carol_there = there.project.resolve("carol").known().unwrap();
        within_deadline("carol is gone for both", async {
            while here.project.status(&carol) != SessionStatus::Disconnected
                || there.project.status(&carol_there) != SessionStatus::Disconnected
            {
                bob_there.touch(settings.presence, now());
                tokio::time::sleep(Duration::from_millis(20)).await;
                assert_eq!(
                    here.project.status(&bob),
                    SessionStatus::Active,
                    "active at the other replica"
                );
            }
        })
        .await;
    });
}

/// Heartbeats are exchanged often, and silence never disconnects a session.
fn never_disconnecting() -> ProjectSettings {
    ProjectSettings {
        presence: PresenceTimeouts {
            stale_after: Duration::from_secs(1),
            disconnect_after: Duration::from_secs(600),
        },
        ..settings()
    }
}

#[test]
fn a_disconnect_is_known_at_every_replica() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(never_disconnecting()).await;
        let bob = here.register("bob", None).await;
        there.project.wait_until_current().await.unwrap();
        let bob_there = there.project.resolve("bob").known().unwrap();
        here.project.disconnect(&bob).await.unwrap();
        until("the session is disconnected", || {
            there.project.status(&bob_there) == SessionStatus::Disconnected
        })
        .await;
    });
}

/// Heartbeats come from the store and sessions from frames, in either order.
#[test]
fn a_disconnect_is_known_although_the_frame_of_the_session_arrives_late() {
    run(|| async {
        let ReplicaPair {
            here,
            there,
            there_connection: there_twin,
            ..
        } = ReplicaPair::new(never_disconnecting()).await;
        for name in ["bob", "carol", "dave", "erin"] {
            there_twin.frames_held.send_replace(true);
            let member = here.register(name, None).await;
            here.project.disconnect(&member).await.unwrap();
            // The heartbeats, exchanged every 100 ms, may have arrived by now or not.
            tokio::time::sleep(Duration::from_millis(50)).await;
            there_twin.frames_held.send_replace(false);
            until("the new session is disconnected", || {
                let found = there.project.resolve(name).known();
                found.is_ok_and(|member| there.project.status(&member) == SessionStatus::Disconnected)
            })
            .await;
        }
    });
}

#[test]
fn a_project_created_at_one_replica_is_open_at_the_other() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let acme = here
            .other_project("acme", actors::model::ProjectConfig::default())
            .await;
        let there = within_deadline("it is opened there", async {
            loop {
                match there.broker.project(acme.project.id()).await {
                    Ok(project) => return there.with_project(project),
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        })
        .await;
        there.project.wait_until_current().await.unwrap();
        assert!(there.project.protocol(CHAT, "1.0.0").is_ok());
        here.broker.delete_project(acme.project.id()).await.unwrap();
        within_deadline("it is closed there", async {
            while there.broker.project(acme.project.id()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    });
}
