//! Messages and broadcasts between sessions of different replicas.

use std::{sync::Arc, time::Duration};

use actors::{
    clock::now,
    model::{BrokerError, BudgetFull, DeadLetterReason, DeliveryStatus},
    project::ReceiveRequest,
    session::{ReadAt, ReceiveCall, ReceiveMode, UnboundedReads},
    storage::Storage,
};

use super::ReplicaPair;
use crate::{
    load::Load,
    replicated_memory::Unanswered,
    world::{ids, run, settings},
};

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
            here_connection,
            ..
        } = ReplicaPair::new(settings()).await;
        let alice = here.register("alice", None).await;
        here_connection.frame_filter.lose_one_in(1);
        there.register("bob", None).await;
        here_connection.set_unanswered(Some(Unanswered::Sessions));
        let sent = here.submit(vec![here.broadcast_submission(&alice).unwrap()]).await;
        let refused = sent.and_then(|mut answers| answers.pop().unwrap());
        assert!(matches!(refused.map(drop), Err(BrokerError::Unavailable { .. })));
        here_connection.set_unanswered(None);
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
            here_connection,
            there_connection,
        } = ReplicaPair::new(settings()).await;
        let alice = here.register("alice", None).await;
        let bob = there.register("bob", None).await;
        there.register("carol", None).await;
        here.project.wait_until_current().await.unwrap();
        here_connection.frames_held.send_replace(true);
        let store = there_connection.storage().open(there.project.id());
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
