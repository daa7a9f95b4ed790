//! What the actors record in the event log of their project.

use std::time::Duration;

use actors::{
    model::{
        ActorChange, ActorKind, AuditEntry, AuditOutcome, EventKinds, PresenceTimeouts, ProjectEvent, SessionChange,
        SessionId,
    },
    project::ProjectSettings,
    storage::{Direction, EventQuery, EventStart},
};
use uuid::Uuid;

use crate::{
    replicas::ReplicaPair,
    world::{ActorThread, CHAT, World, run, settings, within_deadline},
};

impl World {
    /// All events of the project, oldest first.
    async fn events(&self) -> Vec<ProjectEvent> {
        let store = self.broker.storage().open(self.project.id());
        let page = store.events(EventQuery {
            from: EventStart::Oldest,
            direction: Direction::Forward,
            kinds: EventKinds::ALL,
            scan_max: 10_000,
            bytes_max: 1 << 20,
        });
        let events = page.await.unwrap().events.into_iter();
        events.map(|logged| logged.event).collect()
    }

    /// What the log says of a session.
    async fn changes_of(&self, id: SessionId) -> Vec<SessionChange> {
        let changes = self.events().await.into_iter().filter_map(|event| match event {
            ProjectEvent::Session { session, change, .. } if session == id => Some(change),
            _ => None,
        });
        changes.collect()
    }

    async fn await_event(&self, what: &str, is_it: impl Fn(&ProjectEvent) -> bool) {
        within_deadline(what, async {
            while !self.events().await.iter().any(&is_it) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }
}

#[test]
fn the_log_tells_of_protocols_and_of_sessions() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let registered = ProjectEvent::Protocol {
            name: actors::model::ProtocolName::parse(CHAT).unwrap(),
            version: semver::Version::new(1, 0, 0),
            by: None,
        };
        assert_eq!(world.events().await, [registered]);
        world.register_protocol(CHAT).await.unwrap();
        assert_eq!(world.events().await.len(), 1, "the protocol was registered before");

        let bob = world.register("bob", None).await;
        let id = bob.record.id;
        assert_eq!(
            world.events().await[1..],
            [ProjectEvent::Session {
                session: id,
                name: bob.record.name.clone(),
                change: SessionChange::Registered,
            }]
        );
        world.project.disconnect(&bob).await.unwrap();
        let left = |event: &ProjectEvent| {
            matches!(
                event,
                ProjectEvent::Session {
                    change: SessionChange::Disconnected,
                    ..
                }
            )
        };
        world.await_event("bob has left", left).await;
        world.register("bob", None).await;
        let resumed = [
            SessionChange::Registered,
            SessionChange::Disconnected,
            SessionChange::Resumed,
        ];
        assert_eq!(world.changes_of(id).await[..3], resumed);
    });
}

#[test]
fn the_log_tells_of_an_actor_that_panicked() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (_, _, router) = world.project.actor_addresses();
        router.tell(actors::supervise::Panic).unwrap();
        let restarted = ProjectEvent::Actor {
            actor: ActorKind::Router,
            change: ActorChange::Restarted,
        };
        world
            .await_event("the router was restarted", |event| *event == restarted)
            .await;
    });
}

#[test]
fn the_log_of_a_project_tells_of_entries_of_its_audit_log() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let elsewhere = world.other_project("elsewhere", <_>::default()).await;
        let entry = AuditEntry {
            id: Uuid::nil(),
            at_ms: 0,
            actor: "admin".to_owned(),
            address: None,
            project: Some(world.project.id().clone()),
            action: "key.create".to_owned(),
            target: None,
            outcome: AuditOutcome::Refused,
            code: None,
        };
        world.broker.record_audit(entry).await;
        let is_audit = |event: &ProjectEvent| {
            let outcome = AuditOutcome::Refused;
            matches!(event, ProjectEvent::Audit { action, outcome: seen, entry }
                if action == "key.create" && *seen == outcome && *entry != Uuid::nil())
        };
        assert!(world.events().await.iter().any(is_audit));
        assert!(!elsewhere.events().await.iter().any(is_audit));
    });
}

#[test]
fn what_every_replica_notices_is_recorded_once() {
    run(|| async {
        let settings = ProjectSettings {
            presence: PresenceTimeouts {
                stale_after: Duration::from_millis(300),
                disconnect_after: Duration::from_millis(600),
            },
            session_retention: Duration::from_millis(300),
            ..settings()
        };
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings).await;
        let bob = here.register("bob", None).await;
        within_deadline("bob has ended at both replicas", async {
            while here.sessions_len() + there.sessions_len() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        let changes = here.changes_of(bob.record.id).await;
        let count = |change| changes.iter().filter(|seen| **seen == change).count();
        assert_eq!(count(SessionChange::Registered), 1, "{changes:?}");
        assert_eq!(count(SessionChange::Disconnected), 1, "{changes:?}");
        assert_eq!(count(SessionChange::Ended), 1, "{changes:?}");
        assert!(count(SessionChange::Stale) <= 1, "{changes:?}");
    });
}
