//! What the audit records, and what it keeps apart.

use std::sync::Arc;

use actors::{
    clock::now,
    model::{AuditEntry, AuditOutcome, AuditQuery, ProjectConfig},
    project::Registration,
    storage::memory::MemoryStorage,
};
use uuid::Uuid;

use super::{other_project_id, start_broker};
use crate::world::{ActorThread, World, run, settings};

#[test]
fn administrative_actions_are_audited_with_their_time() {
    run(|| async {
        let broker = start_broker(&Arc::new(MemoryStorage::default()));
        let before_ms = now().unix_ms;
        for action in ["project.create", "key.add"] {
            let entry = AuditEntry {
                id: Uuid::nil(),
                at_ms: 0,
                actor: "admin".to_owned(),
                address: None,
                project: Some(other_project_id()),
                action: action.to_owned(),
                target: None,
                outcome: AuditOutcome::Done,
                code: None,
            };
            broker.record_audit(entry).await;
        }
        let query = AuditQuery {
            project: Some(other_project_id()),
            limit: 9,
            ..AuditQuery::default()
        };
        let entries = broker.audit(query).await.unwrap();
        let actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
        assert_eq!(actions, ["key.add", "project.create"]);
        assert!(entries[1].at_ms >= before_ms && entries[0].at_ms >= entries[1].at_ms);
        assert!(entries[0].id > entries[1].id && entries[1].id > Uuid::nil());
    });
}

#[test]
fn a_registration_in_one_project_is_invisible_in_another() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let there = world.other_project("there", ProjectConfig::default()).await;
        let here = world.register("bob", None).await;
        let registered = there.project.register(Registration {
            name: here.record.name.clone(),
            current: Some(here.record.id),
            ..Registration::default()
        });
        let registered = registered.await.unwrap();
        assert!(!registered.resumed);
        assert_ne!(registered.member.record.id, here.record.id);
        assert!(there.project.session(here.record.id).is_none());
        assert_eq!((world.sessions_len(), there.sessions_len()), (1, 1));
    });
}
