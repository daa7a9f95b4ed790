//! A store that answers late, or not.

use std::{sync::Arc, time::Duration};

use actors::{
    model::BrokerError,
    project::Envelope,
    router,
    session::{AckMode, Connection, Push, ReceiveMode, Written},
    storage::Acknowledge,
};

use crate::{
    agents::Load,
    laggard::Laggard,
    world::{Line, MANUAL, Threads, World, at_home, envelope, ids, run, settings, soon},
};

/// A world over a laggard, and the laggard.
async fn slow_world() -> (World, Arc<Laggard>) {
    let store = Arc::new(Laggard::default());
    let world = World::over(Arc::clone(&store) as _, settings(), Threads::One).await;
    (world, store)
}

#[test]
fn everything_arrives_however_the_answers_of_the_store_overtake_each_other() {
    run(|| async {
        let (world, _store) = slow_world().await;
        let load = Load::start(&world).await;
        load.ledger.grows_by(3000).await;
        load.settle().await;
    });
}

#[test]
fn a_window_of_one_never_gets_stuck() {
    run(|| async {
        let (world, _store) = slow_world().await;
        let alice = world.register("alice", None).await;
        let line = Line::new();
        let bob = world.register("bob", Some(&line)).await;
        let one = Push { window: 1, ..MANUAL };
        world.subscribe(&bob, &line, Some(one));
        let mut seen = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..200 {
            // The next is appended while the acknowledgement of the last is on its way.
            let submission = world.submission(&alice, "bob").unwrap();
            let answer = world.project.submit(vec![submission]).unwrap();
            sent.push(soon("the answer", answer).await.unwrap().pop().unwrap().unwrap());
            line.until("the next message", |seen| !seen.pushed.is_empty()).await;
            let messages = ids(&line.take_pushed());
            assert_eq!(messages.len(), 1);
            seen.extend_from_slice(&messages);
            world.project.acknowledge_unheard(&bob, Acknowledge::Ids(messages));
        }
        let sent: Vec<_> = sent.iter().map(|routed| routed.outcome.message).collect();
        assert_eq!(seen, sent);
    });
}

#[test]
fn a_call_that_begins_to_wait_just_as_a_message_comes_gets_it() {
    run(|| async {
        let (world, _store) = slow_world().await;
        let alice = world.register("alice", None).await;
        let bob = world.register("bob", None).await;
        for _ in 0..300 {
            let submission = world.submission(&alice, "bob").unwrap();
            let received = world.receive(&bob, Duration::from_secs(30), ReceiveMode::Immediate);
            let sent = world.submit(vec![submission]);
            let (received, sent) = soon("the message", futures_util::future::join(received, sent)).await;
            let routed = sent.unwrap().pop().unwrap().unwrap();
            assert_eq!(ids(&received.unwrap().deliveries), [routed.outcome.message]);
        }
    });
}

#[test]
fn a_connection_that_leaves_and_comes_back_is_pushed_no_more_than_its_window() {
    run(|| async {
        let (world, _store) = slow_world().await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.listener("bob").await;
        let sent = world.send_many(&alice, "bob", 100).await;
        for _ in 0..20 {
            // It leaves, comes back and subscribes while its leases are under way.
            let left = world.project.disconnect(&bob);
            let back = world.try_register("bob", Some(&line));
            let (left, back) = futures_util::future::join(left, back).await;
            left.unwrap();
            let bob = back.unwrap().member;
            world.subscribe(&bob, &line, Some(MANUAL));
        }
        // Everything before this answer has been done.
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
fn what_a_router_had_gathered_when_it_panicked_is_accepted() {
    run(|| async {
        let (world, store) = slow_world().await;
        let alice = world.register("alice", None).await;
        let (_bob, line) = world.listener("bob").await;
        store.set_held(true);
        let (_, _, router) = world.project.addresses();
        // The first is under way, the second gathered, when the router panics.
        let mut answers = Vec::new();
        for _ in 0..2 {
            let submission = world.submission(&alice, "bob").unwrap();
            answers.push(world.project.submit(vec![submission]).unwrap());
        }
        router.tell(router::Panic).unwrap();
        while world.node("router", "default").restarts == 0 {
            tokio::task::yield_now().await;
        }
        store.set_held(false);
        let gathered = soon("the second answer", answers.pop().unwrap()).await.unwrap();
        let accepted = gathered[0].as_ref().unwrap().outcome.message;
        assert!(soon("the first answer", answers.pop().unwrap()).await.is_err());
        line.until("the second message", |seen| ids(&seen.pushed).contains(&accepted))
            .await;
    });
}

#[test]
fn what_waits_for_a_slow_store_is_bounded_in_bytes() {
    const LEN: usize = 1024 * 1024;
    run(|| async {
        let (world, store) = slow_world().await;
        let alice = world.register("alice", None).await;
        let bob = world.register("bob", None).await;
        let payload = format!("{{\"text\":\"{}\"}}", "x".repeat(LEN));
        let long = || {
            let envelope = Envelope {
                payload: &payload,
                ..envelope(false)
            };
            at_home(world.project.direct(&alice, "bob", &envelope).unwrap())
        };
        store.set_held(true);
        let mut answers = Vec::new();
        for _ in 0..2 * router::BYTES_MAX / LEN {
            answers.push(world.project.submit(vec![long()]).unwrap());
        }
        // Refused at once, though the store says nothing yet.
        let last = soon("a refusal", answers.pop().unwrap()).await.unwrap();
        assert!(matches!(last[0], Err(BrokerError::Unavailable { .. })));
        store.set_held(false);
        let mut accepted = 0;
        for answer in answers {
            let answer = soon("an answer", answer).await.unwrap().pop().unwrap();
            accepted += usize::from(answer.is_ok());
        }
        assert!((1..=router::BYTES_MAX / LEN).contains(&accepted), "{accepted}");
        let received = world.receive(&bob, Duration::ZERO, ReceiveMode::Immediate).await;
        assert!(!received.unwrap().deliveries.is_empty());
        assert!(world.submit(vec![long()]).await.unwrap()[0].is_ok());
    });
}

#[test]
fn what_came_while_the_store_was_down_is_delivered_when_it_is_back() {
    run(|| async {
        let (world, store) = slow_world().await;
        let alice = world.register("alice", None).await;
        let line = Line::new();
        let bob = world.register("bob", Some(&line)).await;
        let sent = world.send_many(&alice, "bob", 3).await;
        store.set_down(true);
        // The lease that this asks for fails, and no other event will come.
        world.subscribe(&bob, &line, Some(MANUAL));
        assert!(
            world
                .submit(vec![world.submission(&alice, "bob").unwrap()])
                .await
                .unwrap()[0]
                .is_err()
        );
        assert!(world.receive(&bob, Duration::ZERO, ReceiveMode::Manual).await.is_err());
        store.set_down(false);
        line.sees(&sent).await;
    });
}

#[test]
fn an_acknowledgement_that_the_store_lost_does_not_keep_the_window_shut() {
    run(|| async {
        let (world, store) = slow_world().await;
        let alice = world.register("alice", None).await;
        let line = Line::new();
        let bob = world.register("bob", Some(&line)).await;
        let one = Push {
            window: 1,
            ack: AckMode::Auto,
        };
        world.subscribe(&bob, &line, Some(one));
        let sent = world.send_many(&alice, "bob", 2).await;
        line.sees(&sent[..1]).await;
        let written = |message| Written {
            connection: line.id(),
            messages: vec![message],
        };
        store.set_down(true);
        world.project.written(&bob, written(sent[0]));
        assert!(world.receive(&bob, Duration::ZERO, ReceiveMode::Manual).await.is_err());
        store.set_down(false);
        // A repeat, as was said; and after it the next.
        line.sees(&[sent[0], sent[0]]).await;
        world.project.written(&bob, written(sent[0]));
        line.sees(&[sent[0], sent[0], sent[1]]).await;
    });
}
