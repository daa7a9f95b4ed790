//! Sessions and routers over a store that answers late, out of order, or not at all.

use std::{sync::Arc, time::Duration};

use actors::{
    model::BrokerError,
    project::SendRequest,
    router,
    session::{AckMode, Connection, MessagesWritten, PushMode, ReceiveMode},
    storage::Acknowledge,
};

use crate::{
    load::Load,
    slow_storage::SlowStorage,
    world::{
        ActorThread, MANUAL, RecordingConnection, World, envelope, ids, local_submission, run, settings,
        within_deadline,
    },
};

/// A world on a slow storage, and that storage.
async fn world_on_slow_storage() -> (World, Arc<SlowStorage>) {
    let store = Arc::new(SlowStorage::default());
    let world = World::on_storage(Arc::clone(&store) as _, settings(), ActorThread::Test).await;
    (world, store)
}

#[test]
fn every_message_arrives_although_answers_of_the_store_overtake_each_other() {
    run(|| async {
        let (world, _store) = world_on_slow_storage().await;
        let load = Load::start(&world).await;
        load.ledger.await_more_accepted(3000).await;
        load.finish().await;
    });
}

#[test]
fn a_window_of_one_never_gets_stuck() {
    run(|| async {
        let (world, _store) = world_on_slow_storage().await;
        let alice = world.register("alice", None).await;
        let line = RecordingConnection::new();
        let bob = world.register("bob", Some(&line)).await;
        let one = PushMode { window: 1, ..MANUAL };
        world.subscribe(&bob, &line, Some(one));
        let mut seen = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..200 {
            // The next message is appended while the acknowledgement of the previous one is in flight.
            let submission = world.direct_submission(&alice, "bob").unwrap();
            let answer = world.project.submit(vec![submission]).unwrap();
            sent.push(
                within_deadline("the answer", answer)
                    .await
                    .unwrap()
                    .pop()
                    .unwrap()
                    .unwrap(),
            );
            line.await_recorded("the next message", |seen| !seen.pushed.is_empty())
                .await;
            let messages = ids(&line.take_pushed());
            assert_eq!(messages.len(), 1);
            seen.extend_from_slice(&messages);
            world
                .project
                .acknowledge_without_reply(&bob, Acknowledge::Ids(messages));
        }
        let sent: Vec<_> = sent.iter().map(|routed| routed.result.message).collect();
        assert_eq!(seen, sent);
    });
}

#[test]
fn a_call_that_starts_waiting_just_as_a_message_arrives_receives_it() {
    run(|| async {
        let (world, _store) = world_on_slow_storage().await;
        let alice = world.register("alice", None).await;
        let bob = world.register("bob", None).await;
        for _ in 0..300 {
            let submission = world.direct_submission(&alice, "bob").unwrap();
            let received = world.receive(&bob, Duration::from_secs(30), ReceiveMode::Immediate);
            let sent = world.submit(vec![submission]);
            let (received, sent) = within_deadline("the message", futures_util::future::join(received, sent)).await;
            let routed = sent.unwrap().pop().unwrap().unwrap();
            assert_eq!(ids(&received.unwrap().deliveries), [routed.result.message]);
        }
    });
}

#[test]
fn a_connection_that_disconnects_and_returns_is_pushed_at_most_its_window() {
    run(|| async {
        let (world, _store) = world_on_slow_storage().await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        let sent = world.send_many(&alice, "bob", 100).await;
        for _ in 0..20 {
            // Disconnects, returns and subscribes while leases are in flight.
            let left = world.project.disconnect(&bob);
            let back = world.try_register("bob", Some(&line));
            let (left, back) = futures_util::future::join(left, back).await;
            left.unwrap();
            let bob = back.unwrap().member;
            world.subscribe(&bob, &line, Some(MANUAL));
        }
        // The answer comes after everything that was sent to the session before.
        world.acknowledge(&bob, Vec::new()).await;
        line.take_pushed();
        let mut left = sent.len();
        while left > 0 {
            let which = Acknowledge::UpTo(sent[sent.len() - left]);
            let done = world.project.acknowledge(&bob, which).await.unwrap();
            assert!(done.depth.leased < MANUAL.window, "{:?}", done.depth);
            left -= 1;
        }
    });
}

#[test]
fn a_batch_gathered_before_a_panic_of_the_router_is_accepted() {
    run(|| async {
        let (world, store) = world_on_slow_storage().await;
        let alice = world.register("alice", None).await;
        let (_bob, line) = world.register_with_push("bob").await;
        store.set_paused(true);
        let (_, _, router) = world.project.actor_addresses();
        // The first batch is in flight and the second is gathered when the router panics.
        let mut answers = Vec::new();
        for _ in 0..2 {
            let submission = world.direct_submission(&alice, "bob").unwrap();
            answers.push(world.project.submit(vec![submission]).unwrap());
        }
        router.tell(actors::supervise::Panic).unwrap();
        while world.node("router", "default").restarts == 0 {
            tokio::task::yield_now().await;
        }
        store.set_paused(false);
        let gathered = within_deadline("the second answer", answers.pop().unwrap())
            .await
            .unwrap();
        let accepted = gathered[0].as_ref().unwrap().result.message;
        assert!(
            within_deadline("the first answer", answers.pop().unwrap())
                .await
                .is_err()
        );
        line.await_recorded("the second message", |seen| ids(&seen.pushed).contains(&accepted))
            .await;
    });
}

#[test]
fn batches_that_wait_for_a_slow_store_are_bounded_in_bytes() {
    const LEN: usize = 1024 * 1024;
    run(|| async {
        let (world, store) = world_on_slow_storage().await;
        let alice = world.register("alice", None).await;
        let bob = world.register("bob", None).await;
        let payload = format!("{{\"text\":\"{}\"}}", "x".repeat(LEN));
        let long = async || {
            let envelope = SendRequest {
                payload: &payload,
                ..envelope(false)
            };
            local_submission(
                world
                    .project
                    .prepare_direct(&alice, "bob", &envelope)
                    .answer()
                    .await
                    .unwrap(),
            )
        };
        store.set_paused(true);
        let mut answers = Vec::new();
        for _ in 0..2 * router::ROUTER_BYTES_MAX / LEN {
            answers.push(world.project.submit(vec![long().await]).unwrap());
        }
        // The router refuses immediately, while the store has not answered.
        let last = within_deadline("a refusal", answers.pop().unwrap()).await.unwrap();
        assert!(matches!(last[0], Err(BrokerError::Unavailable { .. })));
        store.set_paused(false);
        let mut accepted = 0;
        for answer in answers {
            let answer = within_deadline("an answer", answer).await.unwrap().pop().unwrap();
            accepted += usize::from(answer.is_ok());
        }
        assert!((1..=router::ROUTER_BYTES_MAX / LEN).contains(&accepted), "{accepted}");
        let received = world.receive(&bob, Duration::ZERO, ReceiveMode::Immediate).await;
        assert!(!received.unwrap().deliveries.is_empty());
        assert!(world.submit(vec![long().await]).await.unwrap()[0].is_ok());
    });
}

#[test]
fn a_message_accepted_before_the_store_failed_is_delivered_after_it_recovers() {
    run(|| async {
        let (world, store) = world_on_slow_storage().await;
        let alice = world.register("alice", None).await;
        let line = RecordingConnection::new();
        let bob = world.register("bob", Some(&line)).await;
        let sent = world.send_many(&alice, "bob", 3).await;
        store.set_unreachable(true);
        // The lease that this requests fails, and no other event triggers one.
        world.subscribe(&bob, &line, Some(MANUAL));
        assert!(
            world
                .submit(vec![world.direct_submission(&alice, "bob").unwrap()])
                .await
                .unwrap()[0]
                .is_err()
        );
        assert!(world.receive(&bob, Duration::ZERO, ReceiveMode::Manual).await.is_err());
        store.set_unreachable(false);
        line.sees(&sent).await;
    });
}

#[test]
fn an_acknowledgement_that_the_store_lost_does_not_block_the_window() {
    run(|| async {
        let (world, store) = world_on_slow_storage().await;
        let alice = world.register("alice", None).await;
        let line = RecordingConnection::new();
        let bob = world.register("bob", Some(&line)).await;
        let one = PushMode {
            window: 1,
            ack: AckMode::Auto,
        };
        world.subscribe(&bob, &line, Some(one));
        let sent = world.send_many(&alice, "bob", 2).await;
        line.sees(&sent[..1]).await;
        let written = |message| MessagesWritten {
            connection: line.id(),
            messages: vec![message],
        };
        store.set_unreachable(true);
        world.project.messages_written(&bob, written(sent[0]));
        assert!(world.receive(&bob, Duration::ZERO, ReceiveMode::Manual).await.is_err());
        store.set_unreachable(false);
        // The first message is delivered twice, as expected, and then the second.
        line.sees(&[sent[0], sent[0]]).await;
        world.project.messages_written(&bob, written(sent[0]));
        line.sees(&[sent[0], sent[0], sent[1]]).await;
    });
}
