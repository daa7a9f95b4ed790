//! Several replicas over one store: each is as good as the other.

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

/// Two replicas, the second with the way it hears.
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
fn the_double_keeps_the_promises_of_a_store_that_is_shared() {
    for (name, case) in SHARED_CASES {
        run(move || async move {
            println!("{name}");
            let cluster = Arc::<ReplicatedMemory>::default();
            case(Arc::new(ReplicaStorage(cluster.connect_replica()))).await;
        });
    }
}

#[test]
fn who_registers_here_is_found_there() {
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

/// While the roster does not come, not everything is known; when it has, alice is.
async fn waits_for_the_roster(
    there: &World,
    twin: &ReplicaConnection,
    mut caught_up: impl Future<Output = CaughtUp> + Unpin,
) {
    let early = tokio::time::timeout(Duration::from_millis(50), &mut caught_up).await;
    assert!(early.is_err(), "not everything is known");
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
    until("it is heard", || of.project.resolve(name).known().is_ok()).await;
}

#[test]
fn nothing_is_known_while_the_store_does_not_say_who_is_there() {
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
fn a_protocol_that_could_not_be_looked_up_is_when_it_can() {
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
        // By itself, and heard by who only reads.
        until("it is looked up", || there.project.protocol("news", "1.0.0").is_ok()).await;
    });
}

#[test]
fn not_everything_is_known_before_the_first_roster() {
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
fn a_frame_after_a_lost_one_does_not_make_everything_known() {
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
fn a_frame_is_not_taken_for_the_end_of_a_look() {
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
        // Nobody has told of her: the store is looked at.
        let looks = Box::pin(asked.wait_for(|asked| *asked > before));
        let first = select(&mut caught_up, looks).await;
        assert!(matches!(first, Either::Right(_)), "it is not over");
        drop(first);
        there_twin.frame_filter.lose_one_in(0);
        here.register("bob", None).await;
        await_session(&there, "bob").await;
        waits_for_the_roster(&there, &there_twin, caught_up).await;
    });
}

/// A roster that is asked for before a frame comes does not undo what the frame tells.
#[test]
fn who_is_heard_of_during_a_look_stays() {
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
        // The roster that is under way has none of them, and their frames are no successors of what is known there.
        for name in ["bob", "carol"] {
            here.register(name, None).await;
            await_session(&there, name).await;
        }
        let bob = there.project.resolve("bob").known().unwrap();
        there_twin.rosters_held.send_replace(false);
        await_session(&there, "alice").await;
        let same = there.project.resolve("bob").known().unwrap();
        assert!(Arc::ptr_eq(&bob, &same), "he was never gone");
    });
}

#[test]
fn a_message_crosses_from_one_replica_to_the_other() {
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
fn a_sender_follows_its_message_across_replicas() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let (bob, line) = there.register_with_push("bob").await;
        let alice = here.register("alice", None).await;
        here.project.wait_until_current().await.unwrap();
        let routed = here.send(&alice, "bob").await;
        line.sees(&[routed.result.message]).await;
        there.acknowledge(&bob, vec![routed.result.message]).await;
        let status = routed.status.expect("it is watched");
        let reached = here
            .project
            .wait_for_status(status, DeliveryStatus::Acknowledged, Duration::from_secs(30))
            .await;
        assert_eq!(reached, DeliveryStatus::Acknowledged);
    });
}

#[test]
fn a_long_poll_there_is_answered_by_a_message_from_here() {
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
fn the_next_call_acknowledges_wherever_it_is_made() {
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
        // Of the second call nobody knows that it was answered.
        let third = here.project.receive(&bob, request(9)).await.unwrap();
        assert!(third.deliveries.is_empty());
        let statuses = here.project.message_status(sent[1]).await.unwrap().unwrap();
        assert_eq!(statuses[0].status, DeliveryStatus::Delivered);
    });
}

#[test]
fn a_broadcast_reaches_those_who_registered_anywhere_before() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let alice = here.register("alice", None).await;
        for number in 0..20 {
            // Registered there, and at once broadcast to from here.
            there.register(&format!("bob-{number}"), None).await;
            let broadcast = here.broadcast_submission(&alice).unwrap();
            let answer = here.submit(vec![broadcast]).await.unwrap().pop().unwrap().unwrap();
            assert_eq!(answer.result.queued + answer.result.delivered, number + 1);
        }
    });
}

#[test]
fn a_broadcast_is_refused_while_it_is_not_known_who_is_there() {
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
fn who_has_ended_elsewhere_is_not_called_full() {
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
fn a_name_is_given_once_though_both_replicas_are_asked() {
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
fn who_registers_there_takes_the_session_over() {
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
fn of_connections_that_race_for_a_session_one_is_left() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        for number in 0..30 {
            let name = format!("agent-{number}");
            let ((_, one), (_, other)) =
                futures_util::future::join(here.register_with_push(&name), there.register_with_push(&name)).await;
            let closed_len = || one.close_reasons().len() + other.close_reasons().len();
            until("one of them to be closed", || closed_len() > 0).await;
            here.project.wait_until_current().await.unwrap();
            there.project.wait_until_current().await.unwrap();
            assert_eq!(closed_len(), 1, "and one is not");
        }
    });
}

#[test]
fn everything_arrives_though_frames_are_lost() {
    run(|| async {
        let pair = ReplicaPair::new(settings()).await;
        pair.there_connection.frame_filter.lose_one_in(7);
        pair.here_connection.frame_filter.lose_one_in(5);
        let load = Load::across(&pair.here, &pair.there).await;
        load.ledger.await_more_accepted(2000).await;
        pair.there_connection.frame_filter.lose_one_in(0);
        pair.here_connection.frame_filter.lose_one_in(0);
        // What was lost last shows with the next frame.
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
        // It looks at everything, because something may have been missed.
        here_twin.heal();
        within_deadline("all sessions are asked for", asked.wait_for(|asked| *asked > before))
            .await
            .unwrap();
        here.register("alice", None).await;
        here_twin.rosters_held.send_replace(false);
        // The answer is heard before these are.
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
fn presence_is_that_of_the_replica_where_somebody_was_seen() {
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
                assert_eq!(here.project.status(&bob), SessionStatus::Active, "he is seen there");
            }
        })
        .await;
    });
}

/// Signs of life are exchanged often, and silence alone disconnects nobody.
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
fn a_goodbye_is_heard_everywhere() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(never_disconnecting()).await;
        let bob = here.register("bob", None).await;
        there.project.wait_until_current().await.unwrap();
        let bob_there = there.project.resolve("bob").known().unwrap();
        here.project.disconnect(&bob).await.unwrap();
        until("he is gone", || {
            there.project.status(&bob_there) == SessionStatus::Disconnected
        })
        .await;
    });
}

/// The store tells who was seen, and the frames who has come: whichever is heard first.
#[test]
fn a_goodbye_is_heard_though_the_frame_of_the_session_comes_late() {
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
            // What is exchanged every 100 ms may be heard by now, or not.
            tokio::time::sleep(Duration::from_millis(50)).await;
            there_twin.frames_held.send_replace(false);
            until("who has come is gone", || {
                let found = there.project.resolve(name).known();
                found.is_ok_and(|member| there.project.status(&member) == SessionStatus::Disconnected)
            })
            .await;
        }
    });
}

#[test]
fn a_project_that_is_made_here_is_open_there() {
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
