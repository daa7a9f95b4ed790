//! Sessions that are known at, and move between, several replicas.

use std::{sync::Arc, time::Duration};

use actors::{
    clock::now,
    model::{PresenceTimeouts, SessionStatus},
    project::{ProjectSettings, Registration},
    session::CloseReason,
};

use super::{ReplicaPair, until};
use crate::{
    replicated_memory::Unanswered,
    world::{CHAT, MANUAL, RecordingConnection, run, settings, within_deadline},
};

#[test]
fn a_session_registered_at_one_replica_is_found_at_the_other() {
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

#[test]
fn a_name_registered_at_two_replicas_at_once_is_one_session() {
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
fn a_registration_at_the_other_replica_takes_the_session_over() {
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
fn a_claim_that_failed_is_not_repeated_once_the_session_is_registered_elsewhere() {
    run(|| async {
        let pair = ReplicaPair::new(settings()).await;
        let refusals = pair.here_connection.refusals.subscribe();
        pair.here_connection.set_unanswered(Some(Unanswered::Claims));
        let (_, old) = pair.here.register_with_push("bob").await;
        within_deadline("a claim that fails", refusals.clone().wait_for(|count| *count > 0))
            .await
            .unwrap();
        pair.here_connection.set_unanswered(None);
        let (bob, new) = pair.there.register_with_push("bob").await;
        old.closes_with(CloseReason::TakenOver).await;
        let sent = pair.here.send_many(&bob, "bob", 3).await;
        new.sees(&sent).await;
        assert!(new.close_reasons().is_empty());
    });
}

/// The same caller comes back at another replica: it registers again by its id, or only listens.
#[test]
fn a_claim_that_failed_is_not_repeated_once_the_session_has_a_newer_connection_elsewhere() {
    for registers in [true, false] {
        run(move || async move {
            let pair = ReplicaPair::new(settings()).await;
            let refusals = pair.here_connection.refusals.subscribe();
            pair.here_connection.set_unanswered(Some(Unanswered::Claims));
            let (first, old) = pair.here.register_with_push("bob").await;
            within_deadline("a claim that fails", refusals.clone().wait_for(|count| *count > 0))
                .await
                .unwrap();
            pair.here_connection.set_unanswered(None);
            pair.there.project.wait_until_current().await.unwrap();
            let mut bob = pair.there.project.resolve("bob").known().unwrap();
            let new = RecordingConnection::new();
            if registers {
                let registration = Registration {
                    current: Some(bob.record.id),
                    connection: Some(Arc::clone(&new) as _),
                    ..Registration::default()
                };
                bob = pair.there.project.register(registration).await.unwrap().member;
            } else {
                pair.there.project.attach(&bob, Arc::clone(&new) as _);
            }
            pair.there.subscribe(&bob, &new, Some(MANUAL));
            assert_eq!(bob.record.holder_id(), first.record.holder_id(), "it is the holder");
            old.closes_with(CloseReason::TakenOver).await;
            let sent = pair.here.send_many(&bob, "bob", 3).await;
            new.sees(&sent).await;
            assert!(new.close_reasons().is_empty());
        });
    }
}

#[test]
fn one_of_two_connections_that_race_for_a_session_stays_open() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        for number in 0..30 {
            let name = format!("agent-{number}");
            let ((_, one), (_, other)) =
                futures_util::future::join(here.register_with_push(&name), there.register_with_push(&name)).await;
            let closed_len = || one.close_reasons().len() + other.close_reasons().len();
            until("one connection is closed", || closed_len() > 0).await;
            here.project.wait_until_current().await.unwrap();
            there.project.wait_until_current().await.unwrap();
            assert_eq!(closed_len(), 1, "the other stays open");
        }
    });
}

#[test]
fn presence_follows_the_last_heartbeat_at_any_replica() {
    run(|| async {
        let settings = ProjectSettings {
            presence: PresenceTimeouts {
                stale_after: Duration::from_millis(1500),
                disconnect_after: Duration::from_secs(3),
            },
            ..settings()
        };
        let presence = settings.presence;
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
                bob_there.touch(presence, now());
                tokio::time::sleep(Duration::from_millis(20)).await;
                assert_eq!(
                    here.project.status(&bob),
                    SessionStatus::Active,
                    "active at the other replica"
                );
            }
        })
        .await;
    });
}

/// Heartbeats are exchanged often, and silence never disconnects a session.
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
fn a_disconnect_is_known_at_every_replica() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(never_disconnecting()).await;
        let bob = here.register("bob", None).await;
        there.project.wait_until_current().await.unwrap();
        let bob_there = there.project.resolve("bob").known().unwrap();
        here.project.disconnect(&bob).await.unwrap();
        until("the session is disconnected", || {
            there.project.status(&bob_there) == SessionStatus::Disconnected
        })
        .await;
    });
}

/// Heartbeats come from the store and sessions from frames, in either order.
#[test]
fn a_disconnect_is_known_although_the_frame_of_the_session_arrives_late() {
    run(|| async {
        let ReplicaPair {
            here,
            there,
            there_connection,
            ..
        } = ReplicaPair::new(never_disconnecting()).await;
        for name in ["bob", "carol", "dave", "erin"] {
            there_connection.frames_held.send_replace(true);
            let member = here.register(name, None).await;
            here.project.disconnect(&member).await.unwrap();
            // The heartbeats, exchanged every 100 ms, may have arrived by now or not.
            tokio::time::sleep(Duration::from_millis(50)).await;
            there_connection.frames_held.send_replace(false);
            until("the new session is disconnected", || {
                let found = there.project.resolve(name).known();
                found.is_ok_and(|member| there.project.status(&member) == SessionStatus::Disconnected)
            })
            .await;
        }
    });
}
