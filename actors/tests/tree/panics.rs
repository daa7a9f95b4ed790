//! A panic under load: nobody but its actor notices, and nothing that was accepted is lost.

use std::sync::Arc;

use actors::{project, registry, router, session};

use crate::{
    agents::Load,
    laggard::Laggard,
    world::{Threads, World, ids, run, settings, soon},
};

const ROUNDS: u32 = 8;

/// Which actor panics.
#[derive(Clone, Copy, Debug)]
enum Victim {
    /// The recipient at this place.
    Session(usize),
    Router,
    Registry,
    Project,
}

impl Victim {
    fn panics(self, load: &Load) {
        let (project, registry, router) = load.world.project.addresses();
        match self {
            Self::Session(at) => load.recipients[at].address.tell(session::Panic),
            Self::Router => router.tell(router::Panic),
            Self::Registry => registry.tell(registry::Panic),
            Self::Project => project.tell(project::Panic),
        }
        .unwrap();
    }

    /// A command that was queued behind the panic is answered, by the same address.
    async fn answers(self, load: &Load, round: u32) {
        let world = &load.world;
        match self {
            Self::Session(at) => soon("the session", world.acknowledge(&load.recipients[at], Vec::new())).await,
            Self::Router => drop(soon("the router", world.submit(Vec::new())).await.unwrap()),
            Self::Registry => soon("the registry", world.register_protocol(&format!("more-{round}")))
                .await
                .unwrap(),
            Self::Project => drop(soon("the project", world.register("late", None)).await),
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

/// Round after round: some load, a panic, a command behind it. Then everybody must have what was accepted, and the
/// victim alone was restarted, once per round.
async fn survives(world: World, victim: Victim) {
    let load = Load::start(&world).await;
    for round in 0..ROUNDS {
        load.ledger.grows_by(200).await;
        victim.panics(&load);
        victim.answers(&load, round).await;
    }
    load.ledger.grows_by(200).await;
    let (kind, name) = victim.kind_and_name(&load);
    assert_eq!(world.restarts(), [(kind, name.clone(), ROUNDS)]);
    assert_eq!(world.node(kind, &name).state, "running");
    load.settle().await;
}

fn everywhere(victim: Victim) {
    for threads in [Threads::One, Threads::Two] {
        run(move || async move { survives(World::new(settings(), threads).await, victim).await });
    }
    run(move || async move {
        let store = Arc::new(Laggard::default());
        survives(World::over(store, settings(), Threads::Two).await, victim).await;
    });
}

#[test]
fn a_session_that_pushes_survives_a_panic_under_load() {
    everywhere(Victim::Session(0));
}

#[test]
fn a_session_that_acknowledges_what_was_written_survives_a_panic_under_load() {
    everywhere(Victim::Session(1));
}

#[test]
fn a_session_that_is_polled_survives_a_panic_under_load() {
    everywhere(Victim::Session(2));
}

#[test]
fn a_router_survives_a_panic_under_load() {
    everywhere(Victim::Router);
}

#[test]
fn a_registry_survives_a_panic_under_load() {
    everywhere(Victim::Registry);
}

#[test]
fn a_project_survives_a_panic_under_load() {
    everywhere(Victim::Project);
}

#[test]
fn commands_queued_around_a_panic_are_all_handled_in_their_order() {
    run(|| async {
        let world = World::new(settings(), Threads::One).await;
        let alice = world.register("alice", None).await;
        let (_bob, line) = world.listener("bob").await;
        let (_, _, router) = world.project.addresses();
        let mut answers = Vec::new();
        // All of it is in the mailbox before the router runs again.
        for round in 0..5 {
            if round > 0 {
                router.tell(router::Panic).unwrap();
            }
            let submission = world.submission(&alice, "bob").unwrap();
            answers.push(world.project.submit(vec![submission]).unwrap());
        }
        assert_eq!(world.node("router", "default").mailbox_len, 9);
        let mut accepted = Vec::new();
        for answer in answers {
            let routed = soon("an answer", answer).await.unwrap().pop().unwrap().unwrap();
            accepted.push(routed.outcome.message);
        }
        line.sees(&accepted).await;
        assert_eq!(world.node("router", "default").restarts, 4);
        assert_eq!(world.node("router", "default").mailbox_len, 0);
    });
}

#[test]
fn what_was_pushed_before_a_panic_and_not_acknowledged_is_pushed_again() {
    run(|| async {
        let world = World::new(settings(), Threads::One).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.listener("bob").await;
        let sent = world.send_many(&alice, "bob", 3).await;
        line.sees(&sent).await;
        world.acknowledge(&bob, vec![sent[0]]).await;
        line.take_pushed();
        bob.address.tell(session::Panic).unwrap();
        line.sees(&sent[1..]).await;
        assert!(line.seen().pushed.iter().all(|delivery| delivery.count == 2));
        assert!(line.closed().is_empty());
    });
}

#[test]
fn a_session_that_panics_over_a_nudge_does_not_keep_the_sender_waiting() {
    run(|| async {
        let world = World::new(settings(), Threads::One).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.listener("bob").await;
        // The panic is in the mailbox before the nudge.
        bob.address.tell(session::Panic).unwrap();
        let routed = soon("the answer", world.send(&alice, "bob")).await;
        line.sees(&[routed.outcome.message]).await;
    });
}

#[test]
fn a_protocol_that_was_registered_is_there_after_a_panic_of_the_registry() {
    run(|| async {
        let world = World::new(settings(), Threads::One).await;
        let (_, registry, _) = world.project.addresses();
        registry.tell(registry::Panic).unwrap();
        world.register_protocol("other").await.unwrap();
        assert_eq!(world.project.protocols_len(), 2);
        registry.tell(registry::Panic).unwrap();
        let another = serde_json::json!({"type": "object", "required": ["text"]});
        assert!(world.register_schema("other", another).await.is_err());
    });
}

#[test]
fn sessions_keep_their_names_and_inboxes_when_their_project_panics() {
    run(|| async {
        let world = World::new(settings(), Threads::One).await;
        let alice = world.register("alice", None).await;
        let bob = world.register("bob", None).await;
        let sent = world.send_many(&alice, "bob", 2).await;
        let (project, _, _) = world.project.addresses();
        project.tell(project::Panic).unwrap();
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
