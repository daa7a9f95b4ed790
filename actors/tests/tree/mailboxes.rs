//! Every mailbox is bounded, for every producer.

use std::time::Duration;

use actors::{
    model::BrokerError,
    project,
    session::{self, Nudge},
    supervise::{MAILBOX_LEN_MAX, RestartPolicy},
};

use crate::world::{ActorThread, World, run, settings, within_deadline};

/// Settings with a pause after the second panic that is long enough to flood the actor.
fn slow_restarts() -> project::ProjectSettings {
    project::ProjectSettings {
        restarts: RestartPolicy {
            restarts_max: 10,
            window: Duration::from_mins(1),
            backoff: Duration::from_millis(500),
            backoff_max: Duration::from_millis(500),
        },
        ..settings()
    }
}

#[test]
fn a_flooded_router_refuses_with_unavailable_and_later_answers_the_commands_that_it_accepted() {
    run(|| async {
        let world = World::new(slow_restarts(), ActorThread::Test).await;
        let (_, _, router) = world.project.actor_addresses();
        for _ in 0..2 {
            router.tell(actors::supervise::Panic).unwrap();
        }
        let mut answers = Vec::new();
        let refused = loop {
            match world.project.submit(Vec::new()) {
                Ok(answer) => answers.push(answer),
                Err(error) => break error,
            }
        };
        assert_eq!(answers.len(), MAILBOX_LEN_MAX - 2);
        assert!(matches!(refused, BrokerError::Unavailable { .. }));
        // A fresh clone of the address does not evade the bound, and a refused message reserves no slot.
        for _ in 0..100 {
            assert!(router.clone().tell(actors::supervise::Panic).is_err());
        }
        assert_eq!(world.node("router", "default").mailbox_len, MAILBOX_LEN_MAX);
        for answer in answers {
            within_deadline("an answer", answer).await.unwrap();
        }
        assert_eq!(world.node("router", "default").mailbox_len, 0);
        world.submit(Vec::new()).await.unwrap();
    });
}

#[test]
fn a_message_for_a_session_with_a_full_mailbox_is_accepted_and_delivered() {
    run(|| async {
        let world = World::new(slow_restarts(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        for _ in 0..2 {
            bob.address.tell(actors::supervise::Panic).unwrap();
        }
        while world.session_node(&bob).restarts < 2 {
            tokio::task::yield_now().await;
        }
        while bob.address.tell(Nudge { barrier: None }).is_ok() {}
        // The router answers immediately: no nudge is pending.
        let routed = within_deadline("the answer", world.send(&alice, "bob")).await;
        line.sees(&[routed.result.message]).await;
    });
}

#[test]
fn a_call_to_a_flooded_session_is_refused_immediately() {
    run(|| async {
        let world = World::new(slow_restarts(), ActorThread::Test).await;
        let bob = world.register("bob", None).await;
        for _ in 0..2 {
            bob.address.tell(actors::supervise::Panic).unwrap();
        }
        while bob.address.tell(Nudge { barrier: None }).is_ok() {}
        let refused = world.project.disconnect(&bob).await;
        assert!(matches!(refused, Err(BrokerError::Unavailable { .. })));
        let wait = Duration::from_secs(30);
        let refused = world.receive(&bob, wait, session::ReceiveMode::Manual).await;
        assert!(matches!(refused, Err(BrokerError::Unavailable { .. })));
    });
}
