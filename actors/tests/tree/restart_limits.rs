//! Past the limit of panics, the parent takes over.

use std::time::{Duration, Instant};

use actors::{
    model::SessionId,
    project, registry, router,
    session::{self, CloseReason, Member},
    supervise::RestartPolicy,
};

use crate::world::{ActorThread, RecordingConnection, World, run, settings, within_deadline};

/// Two panics are borne, the second after a pause; the third is one too many.
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

/// One panic more than is borne.
fn panic_past_limit(member: &Member) {
    for _ in 0..3 {
        member.address.tell(session::PanicSession).unwrap();
    }
}

#[test]
fn a_session_given_up_closes_its_connection_and_is_opened_anew_with_its_inbox() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(1)), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        let sent = world.send_many(&alice, "bob", 3).await;
        line.sees(&sent).await;
        panic_past_limit(&bob);
        line.closes_with(CloseReason::Failed).await;

        let (anew, new_line) = world.register_with_push("bob").await;
        assert_eq!(anew.record.id, bob.record.id);
        new_line.sees(&sent).await;
        let node = world.session_node(&anew);
        assert_eq!((node.state, node.restarts), ("running", 0));
        // Whoever still holds the old address is told so, and its siblings did not notice.
        assert!(bob.address.tell(session::Nudge { barrier: None }).is_err());
        assert_eq!(world.restarts(), []);
    });
}

#[test]
fn what_a_session_had_handed_out_when_it_was_given_up_waits_again_unasked() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(1)), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let line = RecordingConnection::new();
        let bob = world.register("bob", Some(&line)).await;
        let sent = world.send_many(&alice, "bob", 3).await;
        assert_eq!(world.read_inbox(&bob).await, sent);
        panic_past_limit(&bob);
        line.closes_with(CloseReason::Failed).await;
        // Answered after the project has opened the session anew.
        world.register("carol", None).await;
        let anew = world.project.resolve("bob").known().unwrap();
        assert_eq!(world.read_inbox(&anew).await, sent);
    });
}

#[test]
fn a_connection_on_its_way_to_a_session_that_is_given_up_is_closed() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(200)), ActorThread::Test).await;
        let bob = world.register("bob", None).await;
        panic_past_limit(&bob);
        let line = RecordingConnection::new();
        // Registered while the session pauses before its third panic.
        let registered = world.try_register("bob", Some(&line)).await.unwrap();
        assert!(registered.resumed);
        line.closes_with(CloseReason::Failed).await;
    });
}

#[test]
fn a_message_on_its_way_to_a_session_that_is_given_up_reaches_its_successor() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(1)), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        let to_the_old_one = world.direct_submission(&alice, "bob").unwrap();
        panic_past_limit(&bob);
        line.closes_with(CloseReason::Failed).await;
        let (_anew, new_line) = world.register_with_push("bob").await;
        let mut answers = world.submit(vec![to_the_old_one]).await.unwrap();
        let routed = answers.pop().unwrap().unwrap();
        new_line.sees(&[routed.result.message]).await;
    });
}

#[test]
fn a_session_given_up_while_its_project_is_flooded_is_opened_anew_all_the_same() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(300)), ActorThread::Test).await;
        let (bob, line) = world.register_with_push("bob").await;
        panic_past_limit(&bob);
        // So that the session gives up in the middle of the project's pause.
        tokio::time::sleep(Duration::from_millis(150)).await;
        let (project, _, _) = world.project.actor_addresses();
        for _ in 0..2 {
            project.tell(project::Panic).unwrap();
        }
        while world.node("project", "default").restarts < 2 {
            tokio::task::yield_now().await;
        }
        let nobody = SessionId::generate();
        while project.tell(session::SessionEnded { session: nobody }).is_ok() {}
        line.closes_with(CloseReason::Failed).await;
        let (anew, _line) = loop {
            let line = RecordingConnection::new();
            if let Ok(registered) = world.try_register("bob", Some(&line)).await {
                break (registered.member, line);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(anew.record.id, bob.record.id);
        within_deadline("the new actor", world.read_inbox(&anew)).await;
    });
}

#[test]
fn a_project_whose_router_registry_or_self_is_given_up_is_opened_anew_with_all_that_it_had() {
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
                        "router" => router.tell(router::PanicRouter),
                        "registry" => registry.tell(registry::PanicRegistry),
                        _ => project.tell(project::Panic),
                    }
                    .unwrap();
                }
                // Its connections come back by name.
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
fn a_project_that_is_given_up_takes_no_other_with_it() {
    run(|| async {
        let world = World::new(two_restarts_allowed(Duration::from_millis(1)), ActorThread::Own).await;
        let other = world
            .other_project("other", actors::model::ProjectConfig::default())
            .await;
        let (carol, line) = other.register_with_push("carol").await;
        for _ in 0..3 {
            // Again and again, each time with the actors that it has now.
            let current = world.current_project().await;
            let (_, _, router) = current.actor_addresses();
            for _ in 0..3 {
                let _ = router.tell(router::PanicRouter);
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
fn a_broker_that_gives_up_says_so_to_the_outside() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        for _ in 0..12 {
            let _ = world.broker.address().tell(actors::broker::Panic);
        }
        world.await_giving_up().await;
    });
}

#[test]
fn the_first_restart_is_immediate_and_the_next_ones_wait_longer_and_longer() {
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
            router.tell(router::PanicRouter).unwrap();
            let answer = world.project.submit(Vec::new()).unwrap();
            tokio::task::yield_now().await;
            if at_least > 0 {
                assert_eq!(world.node("router", "default").state, "restarting");
            }
            within_deadline("the restart", answer).await.unwrap();
            let took = began.elapsed().as_millis();
            assert!(took >= at_least, "took {took} ms, at least {at_least} expected");
            // Not asserted as tightly: the machine may be busy.
            assert!(took < below + 2000, "took {took} ms, about {at_least} expected");
            assert_eq!(world.node("router", "default").state, "running");
        }
    });
}

#[test]
fn panics_that_are_long_past_do_not_count() {
    run(|| async {
        let mut settings = two_restarts_allowed(Duration::from_millis(1));
        settings.restarts.window = Duration::from_millis(50);
        let world = World::new(settings, ActorThread::Test).await;
        let (_, _, router) = world.project.actor_addresses();
        for _ in 0..5 {
            router.tell(router::PanicRouter).unwrap();
            within_deadline("the restart", world.submit(Vec::new())).await.unwrap();
            tokio::time::sleep(Duration::from_millis(80)).await;
        }
        let node = world.node("router", "default");
        assert_eq!((node.state, node.restarts), ("running", 5));
    });
}

#[test]
fn observe_tells_the_whole_tree() {
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
            ("session", alice.record.id.to_string(), "running", 0),
            ("session", bob.record.id.to_string(), "running", 0),
        ];
        assert_eq!(children, expected);
        let text = serde_json::to_value(&tree).unwrap();
        assert_eq!(text["children"][0]["children"][2]["restarts"], 0);
    });
}
