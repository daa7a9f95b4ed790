//! A session outlives its connections: takeover, redelivery, presence and retention.

use std::{sync::Arc, time::Duration};

use actors::{
    model::{DeadLetterReason, DeliveryStatus, PresenceTimeouts, SessionStatus},
    project::{ProjectSettings, Registration},
    session::{CloseReason, Connection, Detach, EndSession, ReceiveMode, UnboundedReads, Writable},
};

use crate::world::{ActorThread, MANUAL, RecordingConnection, World, ids, run, settings};

/// Short presence thresholds and a retention of `retention`.
fn short_presence(retention: Duration) -> ProjectSettings {
    ProjectSettings {
        presence: PresenceTimeouts {
            stale_after: Duration::from_millis(60),
            disconnect_after: Duration::from_millis(120),
        },
        session_retention: retention,
        ..settings()
    }
}

#[test]
fn a_newer_connection_takes_over_and_receives_what_the_older_one_had_not_acknowledged() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, older) = world.register_with_push("bob").await;
        let sent = world.send_many(&alice, "bob", 3).await;
        older.sees(&sent).await;
        world.acknowledge(&bob, vec![sent[1]]).await;

        let newer = RecordingConnection::new();
        let again = world.try_register("bob", Some(&newer)).await.unwrap();
        assert!(again.resumed);
        older.closes_with(CloseReason::TakenOver).await;
        assert!(newer.recorded().pushed.is_empty(), "no push before the subscription");
        world.subscribe(&again.member, &newer, Some(MANUAL));
        newer.sees(&[sent[0], sent[2]]).await;
        assert!(newer.recorded().pushed.iter().all(|delivery| delivery.count == 2));

        // The older connection detaches late; that has no effect on the new one.
        let late = Detach { connection: older.id() };
        world.project.detach(&bob, late);
        let last = world.send(&alice, "bob").await.result.message;
        newer.sees(&[sent[0], sent[2], last]).await;
        assert_eq!(older.close_reasons(), [CloseReason::TakenOver]);
        assert!(newer.close_reasons().is_empty());
    });
}

#[test]
fn a_caller_without_a_connection_takes_over_as_well() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (_, line) = world.register_with_push("bob").await;
        let sent = world.send_many(&alice, "bob", 1).await;
        line.sees(&sent).await;
        let bob = world.register("bob", None).await;
        line.closes_with(CloseReason::TakenOver).await;
        assert_eq!(world.read_inbox(&bob).await, sent);
    });
}

#[test]
fn messages_that_a_lost_connection_had_not_acknowledged_wait_again_in_order() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        let first = world.send_many(&alice, "bob", 2).await;
        line.sees(&first).await;
        let connection = line.id();
        world.project.detach(&bob, Detach { connection });
        let second = world.send_many(&alice, "bob", 2).await;
        assert_eq!(world.read_inbox(&bob).await, [first, second].concat());
        assert!(line.close_reasons().is_empty(), "a detached connection is not closed");
    });
}

#[test]
fn a_connection_that_stops_push_releases_its_messages() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        let sent = world.send_many(&alice, "bob", 2).await;
        line.sees(&sent).await;
        world.subscribe(&bob, &line, None);
        assert_eq!(world.read_inbox(&bob).await, sent);
    });
}

#[test]
fn a_connection_is_pushed_its_window_and_more_as_it_acknowledges() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        let sent = world.send_many(&alice, "bob", MANUAL.window + 5).await;
        line.sees(&sent[..MANUAL.window]).await;
        world.acknowledge(&bob, sent[..2].to_vec()).await;
        line.sees(&sent[..MANUAL.window + 2]).await;
        world.acknowledge(&bob, sent[2..MANUAL.window].to_vec()).await;
        line.sees(&sent).await;
    });
}

#[test]
fn a_connection_without_room_receives_its_messages_once_it_reports_room() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        line.set_room(0);
        let sent = world.send_many(&alice, "bob", 3).await;
        assert!(line.recorded().pushed.is_empty());
        line.set_room(usize::MAX);
        let connection = line.id();
        world.project.writable(&bob, Writable { connection });
        line.sees(&sent).await;
    });
}

#[test]
fn a_connection_continues_with_the_session_that_it_registers_next() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let bob = world.register("bob", None).await;
        let line = RecordingConnection::new();
        let nameless = world.register_nameless(Some(&line)).await;
        let registration = Registration {
            name: bob.record.name.clone(),
            current: Some(nameless.record.id),
            connection: Some(Arc::clone(&line) as _),
            ..Registration::default()
        };
        let registered = world.project.register(registration).await.unwrap();
        assert!(registered.resumed);
        assert_eq!(registered.member.record.id, bob.record.id);
        world.subscribe(&registered.member, &line, Some(MANUAL));
        let sent = world.send_many(&alice, "bob", 1).await;
        line.sees(&sent).await;
        // The nameless session that it left has ended, because it cannot be resumed. The connection stays open.
        assert!(world.project.session(nameless.record.id).is_none());
        assert!(line.close_reasons().is_empty());
    });
}

#[test]
fn a_silent_connection_is_closed_and_its_session_kept() {
    run(|| async {
        let world = World::new(short_presence(Duration::from_hours(1)), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        let sent = world.send_many(&alice, "bob", 2).await;
        line.sees(&sent).await;
        line.closes_with(CloseReason::Silent).await;
        assert_eq!(world.project.status(&bob), SessionStatus::Disconnected);
        let again = world.try_register("bob", None).await.unwrap();
        assert!(again.resumed);
        assert_eq!(world.project.status(&again.member), SessionStatus::Active);
        assert_eq!(world.read_inbox(&again.member).await, sent);
    });
}

#[test]
fn a_call_that_waits_is_a_sign_of_life() {
    run(|| async {
        let world = World::new(short_presence(Duration::ZERO), ActorThread::Test).await;
        let bob = world.register("bob", None).await;
        let wait = Duration::from_millis(500);
        let received = world.receive(&bob, wait, ReceiveMode::Manual).await.unwrap();
        assert!(received.deliveries.is_empty());
        assert!(world.project.session(bob.record.id).is_some());
    });
}

#[test]
fn after_the_retention_the_messages_are_dead_letters_and_the_name_is_free() {
    run(|| async {
        let world = World::new(short_presence(Duration::from_millis(100)), ActorThread::Test).await;
        let bob = world.register("bob", None).await;
        let alice = world.register_nameless(None).await;
        let routed = world.send(&alice, "bob").await;
        let end = DeliveryStatus::DeadLettered(DeadLetterReason::RecipientGone);
        let status = routed.status.unwrap();
        let reached = world
            .project
            .wait_for_status(status, DeliveryStatus::Acknowledged, crate::world::TEST_TIMEOUT);
        assert_eq!(reached.await, end);
        let dead = world
            .project
            .dead_letters(
                actors::storage::DeadLetterQuery {
                    limit: 10,
                    ..actors::storage::DeadLetterQuery::default()
                },
                &UnboundedReads,
            )
            .await
            .unwrap();
        assert_eq!(dead.items.len(), 1);
        assert_eq!(dead.items[0].reason, DeadLetterReason::RecipientGone);
        assert_eq!(dead.items[0].recipient, bob.record.id);
        let again = world.try_register("bob", None).await.unwrap();
        assert!(!again.resumed);
        assert_ne!(again.member.record.id, bob.record.id);
        let redriven = world
            .project
            .redrive(actors::project::RedriveRequest {
                messages: vec![routed.result.message],
                recipient: Some(again.member.record.id),
            })
            .await
            .unwrap();
        assert_eq!(redriven.sent.len(), 1);
        assert_eq!(world.read_inbox(&again.member).await, [routed.result.message]);
    });
}

#[test]
fn a_name_whose_session_ends_at_this_moment_can_be_registered() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let bob = world.register("bob", None).await;
        let reason = DeadLetterReason::RecipientGone;
        // The project handles the registration before it knows that the session has ended.
        bob.address.tell(EndSession { reason }).unwrap();
        let again = world.try_register("bob", None).await.unwrap();
        assert!(!again.resumed);
        assert_ne!(again.member.record.id, bob.record.id);
        assert!(world.read_inbox(&again.member).await.is_empty());
        let found = world.project.resolve("bob").known().unwrap();
        assert_eq!(found.record.id, again.member.record.id);
        assert_eq!(world.sessions_len(), 1);
    });
}

#[test]
fn a_session_without_a_name_is_kept_for_the_messages_that_wait_for_it() {
    run(|| async {
        let world = World::new(short_presence(Duration::from_hours(1)), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let nameless = world.register_nameless(None).await;
        let forgotten = world.register_nameless(None).await;
        let routed = world.send(&alice, &nameless.record.id.to_string()).await;
        // Long after both sessions were disconnected.
        let status = routed.status.unwrap();
        let reached = world
            .project
            .wait_for_status(status, DeliveryStatus::Acknowledged, Duration::from_millis(400));
        assert_eq!(reached.await, DeliveryStatus::Queued);
        assert_eq!(world.read_inbox(&nameless).await, [routed.result.message]);
        assert!(world.project.session(forgotten.record.id).is_none());
    });
}

#[test]
fn a_session_that_disconnects_is_disconnected_immediately_and_keeps_its_inbox() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        let sent = world.send_many(&alice, "bob", 2).await;
        line.sees(&sent).await;
        assert_eq!(world.project.disconnect(&bob).await.unwrap(), 2);
        assert_eq!(world.project.status(&bob), SessionStatus::Disconnected);
        assert!(line.close_reasons().is_empty(), "the connection may register again");
        let again = world.register("bob", Some(&line)).await;
        line.take_pushed();
        world.subscribe(&again, &line, Some(MANUAL));
        line.sees(&sent).await;
    });
}

#[test]
fn waiting_calls_are_served_in_order_each_with_its_own_limit() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let bob = world.register("bob", None).await;
        let mut calls = Vec::new();
        for _ in 0..3 {
            let (world, bob) = (world.clone(), Arc::clone(&bob));
            calls.push(actix_rt::spawn(async move {
                let request = actors::project::ReceiveRequest {
                    limit: 1,
                    wait: Duration::from_secs(30),
                    mode: ReceiveMode::Manual,
                    ..Default::default()
                };
                ids(&world.project.receive(&bob, request).await.unwrap().deliveries)
            }));
        }
        // Both calls wait before the first message is sent.
        tokio::task::yield_now().await;
        let sent = world.send_many(&alice, "bob", 3).await;
        for (call, message) in calls.into_iter().zip(sent) {
            assert_eq!(crate::world::within_deadline("a call", call).await.unwrap(), [message]);
        }
    });
}

#[test]
fn messages_for_a_caller_that_went_away_stay_in_the_inbox() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let bob = world.register("bob", None).await;
        let wait = Duration::from_secs(30);
        let gave_up = tokio::time::timeout(
            Duration::from_millis(20),
            world.receive(&bob, wait, ReceiveMode::Immediate),
        );
        assert!(gave_up.await.is_err());
        let sent = world.send_many(&alice, "bob", 2).await;
        assert_eq!(world.read_inbox(&bob).await, sent);
    });
}
