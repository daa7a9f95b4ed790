//! Panics under load: only the panicking actor is restarted, and no accepted message is lost.

use std::sync::Arc;

use actors::{session, supervise::Panic};

use crate::{
    load::Load,
    slow_storage::SlowStorage,
    world::{ActorThread, World, ids, run, settings, within_deadline},
};

const ROUNDS: u32 = 8;

/// The actor that panics.
#[derive(Clone, Copy, Debug)]
enum Victim {
    /// The session of the recipient with this index.
    Session(usize),
    Router,
    Registry,
    Project,
}

impl Victim {
    fn panic(self, load: &Load) {
        let (project, registry, router) = load.world.project.actor_addresses();
        match self {
            Self::Session(at) => load.recipients[at].address.tell(Panic),
            Self::Router => router.tell(Panic),
            Self::Registry => registry.tell(Panic),
            Self::Project => project.tell(Panic),
        }
        .unwrap();
    }

    /// Waits for the answer to a command that was queued behind the panic at the same address.
    async fn await_answer(self, load: &Load, round: u32) {
        let world = &load.world;
        match self {
            Self::Session(at) => {
                within_deadline("the session", world.acknowledge(&load.recipients[at], Vec::new())).await
            }
            Self::Router => drop(within_deadline("the router", world.submit(Vec::new())).await.unwrap()),
            Self::Registry => within_deadline("the registry", world.register_protocol(&format!("more-{round}")))
                .await
                .unwrap(),
            Self::Project => drop(within_deadline("the project", world.register("late", None)).await),
        }
    }

    fn kind_and_name(self, load: &Load) -> (&'static str, String) {
        let project = load.world.project.id().to_string();
        match self {
            Self::Session(at) => ("session", load.recipients[at].record.id.to_string()),
            Self::Router => ("router", project),
            Self::Registry => ("registry", project),
            Self::Project => ("project", project),
        }
    }
}

/// Runs rounds of load, a panic, and a command behind it. At the end every accepted message has been seen, and only
/// the victim was restarted, once per round.
async fn survives_panics(world: World, victim: Victim) {
    let load = Load::start(&world).await;
    for round in 0..ROUNDS {
        load.ledger.await_more_accepted(200).await;
        victim.panic(&load);
        victim.await_answer(&load, round).await;
    }
    load.ledger.await_more_accepted(200).await;
    let (kind, name) = victim.kind_and_name(&load);
    assert_eq!(world.restarts(), [(kind, name.clone(), ROUNDS)]);
    assert_eq!(world.node(kind, &name).state, "running");
    load.finish().await;
}

fn survives_on_every_store(victim: Victim) {
    for threads in [ActorThread::Test, ActorThread::Own] {
        run(move || async move { survives_panics(World::new(settings(), threads).await, victim).await });
    }
    run(move || async move {
        let store = Arc::new(SlowStorage::default());
        survives_panics(World::on_storage(store, settings(), ActorThread::Own).await, victim).await;
    });
}

#[test]
fn a_session_that_pushes_survives_a_panic_under_load() {
    survives_on_every_store(Victim::Session(0));
}

#[test]
fn a_session_that_acknowledges_what_was_written_survives_a_panic_under_load() {
    survives_on_every_store(Victim::Session(1));
}

#[test]
fn a_session_that_is_polled_survives_a_panic_under_load() {
    survives_on_every_store(Victim::Session(2));
}

#[test]
fn a_router_survives_a_panic_under_load() {
    survives_on_every_store(Victim::Router);
}

#[test]
fn a_registry_survives_a_panic_under_load() {
    survives_on_every_store(Victim::Registry);
}

#[test]
fn a_project_survives_a_panic_under_load() {
    survives_on_every_store(Victim::Project);
}

#[test]
fn commands_queued_around_a_panic_are_all_handled_in_order() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (_bob, line) = world.register_with_push("bob").await;
        let (_, _, router) = world.project.actor_addresses();
        let mut answers = Vec::new();
        // The whole batch is in the mailbox before the router runs again.
        for round in 0..5 {
            if round > 0 {
                router.tell(Panic).unwrap();
            }
            let submission = world.direct_submission(&alice, "bob").unwrap();
            answers.push(world.project.submit(vec![submission]).unwrap());
        }
        assert_eq!(world.node("router", "default").mailbox_len, 9);
        let mut accepted = Vec::new();
        for answer in answers {
            let routed = within_deadline("an answer", answer)
                .await
                .unwrap()
                .pop()
                .unwrap()
                .unwrap();
            accepted.push(routed.result.message);
        }
        line.sees(&accepted).await;
        assert_eq!(world.node("router", "default").restarts, 4);
        assert_eq!(world.node("router", "default").mailbox_len, 0);
    });
}

#[test]
fn messages_pushed_before_a_panic_and_not_acknowledged_are_pushed_again() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        let sent = world.send_many(&alice, "bob", 3).await;
        line.sees(&sent).await;
        world.acknowledge(&bob, vec![sent[0]]).await;
        line.take_pushed();
        bob.address.tell(Panic).unwrap();
        line.sees(&sent[1..]).await;
        assert!(line.recorded().pushed.iter().all(|delivery| delivery.count == 2));
        assert!(line.close_reasons().is_empty());
    });
}

#[test]
fn a_session_that_panics_over_a_nudge_does_not_keep_the_sender_waiting() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        // The panic is in the mailbox before the nudge.
        bob.address.tell(Panic).unwrap();
        let routed = within_deadline("the answer", world.send(&alice, "bob")).await;
        line.sees(&[routed.result.message]).await;
    });
}

#[test]
fn a_registered_protocol_survives_a_panic_of_the_registry() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (_, registry, _) = world.project.actor_addresses();
        registry.tell(Panic).unwrap();
        world.register_protocol("other").await.unwrap();
        assert_eq!(world.project.protocols_len(), 2);
        registry.tell(Panic).unwrap();
        let another = serde_json::json!({"type": "object", "required": ["text"]});
        assert!(world.register_schema("other", another).await.is_err());
    });
}

#[test]
fn sessions_keep_their_names_and_inboxes_when_their_project_panics() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let bob = world.register("bob", None).await;
        let sent = world.send_many(&alice, "bob", 2).await;
        let (project, _, _) = world.project.actor_addresses();
        project.tell(Panic).unwrap();
        let again = world.try_register("bob", None).await.unwrap();
        assert!(again.resumed);
        assert_eq!(again.member.record.id, bob.record.id);
        let received = world
            .receive(
                &again.member,
                std::time::Duration::ZERO,
                session::ReceiveMode::Immediate,
            )
            .await
            .unwrap();
        assert_eq!(ids(&received.deliveries), sent);
        assert_eq!(world.sessions_len(), 2);
    });
}
