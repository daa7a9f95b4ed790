//! A child that panics more often than its restart limit allows: the parent takes over.

use std::time::{Duration, Instant};

use actors::{
    model::SessionId,
    project,
    session::{self, CloseReason, Member},
    supervise::RestartPolicy,
};

use crate::world::{ActorThread, RecordingConnection, World, run, settings, within_deadline};

/// Allows two panics in a minute, with this pause before each restart. The third panic exceeds the limit.
fn two_restarts_allowed(backoff: Duration) -> project::ProjectSettings {
    project::ProjectSettings {
        restarts: RestartPolicy {
            restarts_max: 2,
            window: Duration::from_mins(1),
            backoff,
            backoff_max: backoff,
        },
        ..settings()
    }
}

/// Sends one panic more than [`two_restarts_allowed`] allows.
fn panic_past_limit(member: &Member) {
    for _ in 0..3 {
        member.address.tell(actors::supervise::Panic).unwrap();
    }
}

#[test]
fn a_session_past_its_restart_limit_closes_its_connection_and_is_restarted_with_its_inbox() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(1)), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        let sent = world.send_many(&alice, "bob", 3).await;
        line.sees(&sent).await;
        panic_past_limit(&bob);
        line.closes_with(CloseReason::Failed).await;

        let (restarted, new_line) = world.register_with_push("bob").await;
        assert_eq!(restarted.record.id, bob.record.id);
        new_line.sees(&sent).await;
        let node = world.session_node(&restarted);
        assert_eq!((node.state, node.restarts), ("running", 0));
        // The old address reports that its actor has ended, and no sibling was restarted.
        assert!(bob.address.tell(session::Nudge { barrier: None }).is_err());
        assert_eq!(world.restarts(), []);
    });
}

#[test]
fn messages_leased_by_a_session_past_its_restart_limit_wait_again_without_a_request() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(1)), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let line = RecordingConnection::new();
        let bob = world.register("bob", Some(&line)).await;
        let sent = world.send_many(&alice, "bob", 3).await;
        assert_eq!(world.read_inbox(&bob).await, sent);
        panic_past_limit(&bob);
        line.closes_with(CloseReason::Failed).await;
        // The project answers only after it has restarted the session.
        world.register("carol", None).await;
        let restarted = world.project.resolve("bob").known().unwrap();
        assert_eq!(world.read_inbox(&restarted).await, sent);
    });
}

#[test]
fn a_connection_that_attaches_to_a_session_past_its_restart_limit_is_closed() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(200)), ActorThread::Test).await;
        let bob = world.register("bob", None).await;
        panic_past_limit(&bob);
        let line = RecordingConnection::new();
        // Registers while the session pauses before its third panic.
        let registered = world.try_register("bob", Some(&line)).await.unwrap();
        assert!(registered.resumed);
        line.closes_with(CloseReason::Failed).await;
    });
}

#[test]
fn a_message_in_flight_to_a_session_past_its_restart_limit_reaches_the_new_actor() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(1)), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        let to_the_old_one = world.direct_submission(&alice, "bob").unwrap();
        panic_past_limit(&bob);
        line.closes_with(CloseReason::Failed).await;
        let (_restarted, new_line) = world.register_with_push("bob").await;
        let mut answers = world.submit(vec![to_the_old_one]).await.unwrap();
        let routed = answers.pop().unwrap().unwrap();
        new_line.sees(&[routed.result.message]).await;
    });
}

#[test]
fn a_session_past_its_restart_limit_is_restarted_although_its_project_is_flooded() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(300)), ActorThread::Test).await;
        let (bob, line) = world.register_with_push("bob").await;
        panic_past_limit(&bob);
        // The session then gives up while the project pauses.
        tokio::time::sleep(Duration::from_millis(150)).await;
        let (project, _, _) = world.project.actor_addresses();
        for _ in 0..2 {
            project.tell(actors::supervise::Panic).unwrap();
        }
        while world.node("project", "default").restarts < 2 {
            tokio::task::yield_now().await;
        }
        let unknown = SessionId::generate();
        while project.tell(session::SessionEnded { session: unknown }).is_ok() {}
        line.closes_with(CloseReason::Failed).await;
        let (restarted, _line) = loop {
            let line = RecordingConnection::new();
            if let Ok(registered) = world.try_register("bob", Some(&line)).await {
                break (registered.member, line);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(restarted.record.id, bob.record.id);
        within_deadline("the new actor", world.read_inbox(&restarted)).await;
    });
}

#[test]
fn a_project_is_reopened_from_the_store_when_an_actor_of_it_exceeds_its_restart_limit() {
    for kind in ["router", "registry", "project"] {
        for threads in [ActorThread::Test, ActorThread::Own] {
            run(move || async move {
                let world = World::new(two_restarts_allowed(Duration::from_millis(1)), threads).await;
                let alice = world.register("alice", None).await;
                let (_bob, line) = world.register_with_push("bob").await;
                let sent = world.send_many(&alice, "bob", 3).await;
                line.sees(&sent).await;
                let (project, registry, router) = world.project.actor_addresses();
                for _ in 0..3 {
                    match kind {
                        "router" => router.tell(actors::supervise::Panic),
                        "registry" => registry.tell(actors::supervise::Panic),
                        _ => project.tell(actors::supervise::Panic),
                    }
                    .unwrap();
                }
                // The connections resume by name.
                line.closes_with(CloseReason::Failed).await;
                let world = world.reopened().await;
                let (bob, new_line) = world.register_with_push("bob").await;
                new_line.sees(&sent).await;
                new_line.take_pushed();
                let alice = world.register("alice", None).await;
                let more = world.send_many(&alice, "bob", 1).await;
                new_line.sees(&more).await;
                world.acknowledge(&bob, sent).await;
                assert_eq!(world.restarts(), [], "{kind}");
            });
        }
    }
}

#[test]
fn a_project_past_its_restart_limit_does_not_affect_other_projects() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(1)), ActorThread::Own).await;
        let other = world
            .other_project("other", actors::model::ProjectConfig::default())
            .await;
        let (carol, line) = other.register_with_push("carol").await;
        for _ in 0..3 {
            // Each round uses the actors that the project has at that moment.
            let current = world.current_project().await;
            let (_, _, router) = current.actor_addresses();
            for _ in 0..3 {
                let _ = router.tell(actors::supervise::Panic);
            }
            within_deadline("it is given up", async {
                while !current.is_killed() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
        let sent = other.send_many(&carol, "carol", 1).await;
        line.sees(&sent).await;
        assert!(!world.has_given_up());
    });
}

#[test]
fn a_broker_past_its_restart_limit_reports_it() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        for _ in 0..12 {
            let _ = world.broker.address().tell(actors::supervise::Panic);
        }
        world.await_giving_up().await;
    });
}

#[test]
fn the_first_restart_is_immediate_and_later_ones_back_off() {
    run(|| async {
        let restarts = RestartPolicy {
            restarts_max: 10,
            window: Duration::from_mins(1),
            backoff: Duration::from_millis(40),
            backoff_max: Duration::from_millis(100),
        };
        let settings = project::ProjectSettings { restarts, ..settings() };
        let world = World::new(settings, ActorThread::Test).await;
        let (_, _, router) = world.project.actor_addresses();
        for (at_least, below) in [(0, 40), (40, 80), (80, 100), (100, 1000), (100, 1000)] {
            let began = Instant::now();
            router.tell(actors::supervise::Panic).unwrap();
            let answer = world.project.submit(Vec::new()).unwrap();
            tokio::task::yield_now().await;
            if at_least > 0 {
                assert_eq!(world.node("router", "default").state, "restarting");
            }
            within_deadline("the restart", answer).await.unwrap();
            let took = began.elapsed().as_millis();
            assert!(took >= at_least, "took {took} ms, at least {at_least} expected");
            // The upper bound is loose because the machine may be busy.
            assert!(took < below + 2000, "took {took} ms, about {at_least} expected");
            assert_eq!(world.node("router", "default").state, "running");
        }
    });
}

#[test]
fn panics_outside_the_window_do_not_count() {
    run(|| async {
        let mut settings = two_restarts_allowed(Duration::from_millis(1));
        settings.restarts.window = Duration::from_millis(50);
        let world = World::new(settings, ActorThread::Test).await;
        let (_, _, router) = world.project.actor_addresses();
        for _ in 0..5 {
            router.tell(actors::supervise::Panic).unwrap();
            within_deadline("the restart", world.submit(Vec::new())).await.unwrap();
            tokio::time::sleep(Duration::from_millis(80)).await;
        }
        let node = world.node("router", "default");
        assert_eq!((node.state, node.restarts), ("running", 5));
    });
}

#[test]
fn observe_shows_the_whole_tree() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Own).await;
        let alice = world.register("alice", None).await;
        let (bob, _line) = world.register_with_push("bob").await;
        let tree = world.broker.observe();
        assert_eq!((tree.kind, tree.children.len()), ("broker", 1));
        let project = &tree.children[0];
        assert_eq!((project.kind, project.name.as_str()), ("project", "default"));
        let children: Vec<_> = project
            .children
            .iter()
            .map(|node| (node.kind, node.name.clone(), node.state, node.children.len()))
            .collect();
        let expected = [
            ("registry", "default".to_owned(), "running", 0),
            ("router", "default".to_owned(), "running", 0),
            ("desk", "default".to_owned(), "running", 0),
            ("session", alice.record.id.to_string(), "running", 0),
            ("session", bob.record.id.to_string(), "running", 0),
        ];
        assert_eq!(children, expected);
        let text = serde_json::to_value(&tree).unwrap();
        assert_eq!(text["children"][0]["children"][2]["restarts"], 0);
    });
}
