//! Project records, the audit log, clearing a project, and messages to other projects.

use std::{collections::BTreeSet, sync::Arc};

use futures_util::future::join;
use semver::Version;
use serde_json::json;
use uuid::Uuid;

use super::{
    super::{DeadLetterQuery, Inserted, Storage},
    world::{CAPACITY, World, accepted, depth, done, fresh_project, record},
};
use crate::model::{
    ApiKey, AuditEntry, AuditOutcome, AuditQuery, DeadLetterReason, Grant, Headers, IssuedKey, KeyId, MessageId,
    NewKey, NewProject, ProjectConfig, ProjectId, ProjectRecord, ProtocolMetadata, ProtocolName, ProtocolRecord, Scope,
    ToolSet,
};

fn project(id: &ProjectId) -> ProjectRecord {
    let wanted = NewProject {
        id: id.clone(),
        name: "Test".to_owned(),
        description: Some("what it is for".to_owned()),
        tags: BTreeSet::from(["test".to_owned()]),
        config: ProjectConfig {
            max_sessions: Some(7),
            ..ProjectConfig::default()
        },
    };
    ProjectRecord::new(wanted, 1).expect("a valid project")
}

/// The record with the next revision and this name.
fn next(record: &ProjectRecord, name: &str) -> ProjectRecord {
    ProjectRecord {
        name: name.to_owned(),
        revision: record.revision + 1,
        ..record.clone()
    }
}

async fn put(storage: &dyn Storage, record: &ProjectRecord) -> bool {
    done(storage.put_project(Arc::new(record.clone()))).await
}

async fn kept(storage: &dyn Storage, id: &ProjectId) -> Option<ProjectRecord> {
    let record = done(storage.project(id.clone())).await;
    record.map(|record| ProjectRecord::clone(&record))
}

pub async fn an_unknown_project_has_no_record(storage: Arc<dyn Storage>) {
    let id = fresh_project();
    storage.open(&id);
    assert_eq!(kept(&*storage, &id).await, None);
    assert!(done(storage.projects()).await.iter().all(|record| record.id != id));
}

pub async fn project_revisions_start_at_0_and_are_consecutive(storage: Arc<dyn Storage>) {
    let id = fresh_project();
    let first = project(&id);
    let second = next(&first, "Second");
    assert!(!put(&*storage, &second).await, "there is nothing that it comes after");
    assert_eq!(kept(&*storage, &id).await, None);
    assert!(put(&*storage, &first).await);
    assert_eq!(kept(&*storage, &id).await, Some(first.clone()));
    assert!(put(&*storage, &second).await);
    assert_eq!(kept(&*storage, &id).await, Some(second.clone()));
    let all = done(storage.projects()).await;
    let all: Vec<_> = all.iter().filter(|record| record.id == id).collect();
    assert_eq!(all, [&Arc::new(second)]);
}

pub async fn a_record_with_another_revision_changes_nothing(storage: Arc<dyn Storage>) {
    let id = fresh_project();
    let first = project(&id);
    let second = next(&first, "Second");
    assert!(put(&*storage, &first).await && put(&*storage, &second).await);
    for revision in [0, 1, 3, u64::MAX] {
        let other = ProjectRecord {
            revision,
            ..next(&second, "Other")
        };
        assert!(!put(&*storage, &other).await, "revision {revision}");
        assert_eq!(kept(&*storage, &id).await, Some(second.clone()));
    }
}

pub async fn one_of_two_concurrent_changes_of_a_record_is_stored(storage: Arc<dyn Storage>) {
    let id = fresh_project();
    let first = project(&id);
    for base in [None, Some(&first)] {
        let [left, right] = ["Left", "Right"].map(|name| match base {
            None => first.clone(),
            Some(base) => next(base, name),
        });
        let (kept_left, kept_right) = join(put(&*storage, &left), put(&*storage, &right)).await;
        assert!(kept_left != kept_right, "{kept_left} {kept_right}");
        let winner = if kept_left { left } else { right };
        assert_eq!(kept(&*storage, &id).await, Some(winner));
    }
}

pub async fn a_project_record_is_stored_completely(storage: Arc<dyn Storage>) {
    let id = fresh_project();
    let mut record = project(&id);
    let grant = Grant {
        protocols: BTreeSet::from([ProtocolName::parse("chat").expect("a valid name")]),
        message_rate_limit: 3,
        granted_at_ms: 2,
    };
    record.grant(fresh_project(), grant).expect("a valid grant");
    let key = KeyId::generate().expect("random numbers");
    let made = IssuedKey {
        key: ApiKey::generate(&id, &key).expect("random numbers"),
        id: key,
    };
    let wanted = NewKey {
        label: Some("of the test".to_owned()),
        scope: Scope::Member,
        human: None,
        tools: Some(ToolSet::Core),
        expires_at_ms: Some(u64::MAX),
    };
    record.add_key(&made, &wanted, 1).expect("room for a key");
    assert!(put(&*storage, &record).await);
    assert_eq!(kept(&*storage, &id).await, Some(record));
}

pub async fn a_deleted_project_is_still_listed(storage: Arc<dyn Storage>) {
    let id = fresh_project();
    let record = project(&id);
    let mut deleted = next(&record, "Test");
    deleted.close(2);
    assert!(put(&*storage, &record).await && put(&*storage, &deleted).await);
    done(storage.clear_project(id.clone())).await;
    assert_eq!(kept(&*storage, &id).await, Some(deleted.clone()));
    assert!(done(storage.projects()).await.contains(&Arc::new(deleted)));
    assert!(!put(&*storage, &record).await, "its id is not given away again");
}

pub async fn a_cleared_project_is_empty_when_it_is_opened_again(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let name = ProtocolName::parse("chat").expect("a valid name");
    let protocol = ProtocolRecord {
        name: name.clone(),
        version: Version::new(1, 0, 0),
        schema: json!(true),
        capabilities: BTreeSet::new(),
        metadata: ProtocolMetadata::default(),
        registered_at_ms: 7,
        registered_by: None,
        owner: None,
    };
    done(world.store.insert_protocol(&protocol, None)).await;
    let dead = world.sends_dead_letter(world.bob).await;
    let (leased, waiting) = (world.sends(world.bob).await, world.sends(world.carol).await);
    world.leases(world.bob, 1).await;
    done(world.store.put_cross_project_target(waiting, fresh_project())).await;
    let mut keyed = world.direct(world.carol, &Headers::default());
    keyed.idempotency_key = Some("once".to_owned());
    world.append(keyed.clone()).await;

    done(storage.clear_project(world.project.clone())).await;
    done(storage.clear_project(world.project.clone())).await;
    world.store = storage.open(&world.project);
    assert_eq!(world.sessions().await, []);
    assert_eq!(done(world.store.protocols()).await, []);
    assert_eq!(done(world.store.protocol(&name, &Version::new(1, 0, 0))).await, None);
    assert_eq!(world.dead().await, []);
    assert_eq!(done(world.store.dead_letter_count()).await, 0);
    assert_eq!(done(world.store.cross_project_target(waiting)).await, None);
    for id in [dead, leased, waiting] {
        assert_eq!(done(world.store.message_status(id, world.now)).await, None);
    }
    // A session that registers again finds nothing of its former state.
    for id in [world.bob, world.carol] {
        world.puts_session(record(id)).await;
        assert_eq!(world.depth(id).await, depth(0, 0));
        assert_eq!(world.leases(id, 9).await, []);
    }
    let inserted = done(world.store.insert_protocol(&protocol, Some(1))).await;
    assert_eq!(inserted, Inserted::New);
    assert_eq!(world.append(keyed).await, accepted(1));
}

pub async fn clearing_a_project_leaves_other_projects_unchanged(storage: Arc<dyn Storage>) {
    let (here, there) = (World::new(&*storage).await, World::new(&*storage).await);
    let sent = here.sends(here.bob).await;
    done(storage.clear_project(there.project.clone())).await;
    done(storage.clear_project(fresh_project())).await;
    assert_eq!(here.sessions().await.len(), 3);
    assert_eq!(here.leases(here.bob, 9).await, [sent]);
}

fn entry(project: &ProjectId, action: &str, outcome: AuditOutcome) -> AuditEntry {
    let is_refused = outcome == AuditOutcome::Refused;
    AuditEntry {
        id: Uuid::now_v7(),
        at_ms: 1_790_000_000_000,
        actor: "admin".to_owned(),
        address: Some("127.0.0.1".to_owned()),
        project: Some(project.clone()),
        action: action.to_owned(),
        target: Some("k1".to_owned()),
        outcome,
        code: is_refused.then(|| "forbidden".to_owned()),
    }
}

/// Appends entries of a project, alternately done and refused; returns them in order.
async fn recorded(storage: &dyn Storage, project: &ProjectId, count: usize) -> Vec<AuditEntry> {
    let mut entries = Vec::new();
    for at in 0..count {
        let outcome = [AuditOutcome::Done, AuditOutcome::Refused][at % 2];
        let entry = entry(project, ["project.create", "key.add", "key.revoke"][at % 3], outcome);
        done(storage.append_audit(entry.clone())).await;
        entries.push(entry);
    }
    entries
}

fn of(project: &ProjectId) -> AuditQuery {
    AuditQuery {
        project: Some(project.clone()),
        limit: 100,
        ..AuditQuery::default()
    }
}

async fn audit(storage: &dyn Storage, query: AuditQuery) -> Vec<AuditEntry> {
    let entries = done(storage.audit(query)).await;
    entries.iter().map(|entry| AuditEntry::clone(entry)).collect()
}

pub async fn the_audit_log_is_listed_newest_first(storage: Arc<dyn Storage>) {
    let (here, there) = (fresh_project(), fresh_project());
    let mut expected = recorded(&*storage, &here, 7).await;
    recorded(&*storage, &there, 2).await;
    expected.reverse();
    assert_eq!(audit(&*storage, of(&here)).await, expected);
    let newest = AuditQuery { limit: 3, ..of(&here) };
    assert_eq!(audit(&*storage, newest).await, expected[..3]);
    let none = AuditQuery { limit: 0, ..of(&here) };
    assert_eq!(audit(&*storage, none).await, []);
}

pub async fn the_audit_log_is_filtered_by_all_given_criteria(storage: Arc<dyn Storage>) {
    let project = fresh_project();
    let all = recorded(&*storage, &project, 12).await;
    let check = async |query: AuditQuery, fits: fn(&AuditEntry) -> bool| {
        let expected: Vec<_> = all.iter().rev().filter(|entry| fits(entry)).cloned().collect();
        assert!(!expected.is_empty());
        assert_eq!(audit(&*storage, query).await, expected);
    };
    let action = Some("key.add".to_owned());
    let by_action = AuditQuery {
        action: action.clone(),
        ..of(&project)
    };
    check(by_action, |entry| entry.action == "key.add").await;
    for outcome in [AuditOutcome::Done, AuditOutcome::Refused] {
        let by_outcome = AuditQuery {
            outcome: Some(outcome),
            ..of(&project)
        };
        match outcome {
            AuditOutcome::Done => check(by_outcome, |entry| entry.outcome == AuditOutcome::Done).await,
            AuditOutcome::Refused => check(by_outcome, |entry| entry.outcome == AuditOutcome::Refused).await,
        }
    }
    let by_both = AuditQuery {
        action,
        outcome: Some(AuditOutcome::Refused),
        ..of(&project)
    };
    check(by_both, |entry| {
        entry.action == "key.add" && entry.outcome == AuditOutcome::Refused
    })
    .await;
    assert_eq!(audit(&*storage, of(&fresh_project())).await, []);
}

pub async fn the_audit_log_contains_entries_without_a_project(storage: Arc<dyn Storage>) {
    let action = format!("test.{}", Uuid::new_v4().simple());
    let entry = AuditEntry {
        project: None,
        target: None,
        address: None,
        ..entry(&fresh_project(), &action, AuditOutcome::Refused)
    };
    done(storage.append_audit(entry.clone())).await;
    let query = AuditQuery {
        action: Some(action),
        limit: 9,
        ..AuditQuery::default()
    };
    assert_eq!(audit(&*storage, query).await, [entry]);
}

/// Reads the whole audit log that matches a query in pages of `limit` entries.
async fn read_in_pages(storage: &dyn Storage, query: AuditQuery, limit: usize) -> Vec<AuditEntry> {
    let mut seen = Vec::<AuditEntry>::new();
    loop {
        let before = seen.last().map(|entry| entry.id);
        let page = audit(
            storage,
            AuditQuery {
                before,
                limit,
                ..query.clone()
            },
        )
        .await;
        assert!(page.len() <= limit);
        let is_further = |entry: &AuditEntry| before.is_none_or(|before| entry.id < before);
        assert!(page.iter().all(is_further), "a page continues where the last one ended");
        if page.is_empty() {
            return seen;
        }
        seen.extend(page);
    }
}

pub async fn pages_of_the_audit_log_neither_lose_nor_repeat_entries(storage: Arc<dyn Storage>) {
    let project = fresh_project();
    let mut all = recorded(&*storage, &project, 23).await;
    all.reverse();
    for limit in [1, 2, 5, 100] {
        assert_eq!(read_in_pages(&*storage, of(&project), limit).await, all);
    }
    let refused = AuditQuery {
        outcome: Some(AuditOutcome::Refused),
        ..of(&project)
    };
    all.retain(|entry| entry.outcome == AuditOutcome::Refused);
    assert_eq!(read_in_pages(&*storage, refused, 3).await, all);
}

pub async fn entries_added_while_pages_are_read_do_not_shift_them(storage: Arc<dyn Storage>) {
    let project = fresh_project();
    let mut all = recorded(&*storage, &project, 6).await;
    all.reverse();
    let first = audit(
        &*storage,
        AuditQuery {
            limit: 3,
            ..of(&project)
        },
    )
    .await;
    recorded(&*storage, &project, 4).await;
    let before = first.last().map(|entry| entry.id);
    let rest = audit(&*storage, AuditQuery { before, ..of(&project) }).await;
    assert_eq!([first, rest].concat(), all);
}

/// Entries are created where something happens and may arrive out of order.
pub async fn a_late_audit_entry_is_inserted_in_order(storage: Arc<dyn Storage>) {
    let project = fresh_project();
    let made: Vec<_> = (0..4).map(|_| entry(&project, "key.add", AuditOutcome::Done)).collect();
    for at in [1, 3, 0, 2] {
        done(storage.append_audit(made[at].clone())).await;
    }
    let expected: Vec<_> = made.into_iter().rev().collect();
    assert_eq!(audit(&*storage, of(&project)).await, expected);
    assert_eq!(read_in_pages(&*storage, of(&project), 1).await, expected);
}

pub async fn the_sending_project_remembers_the_target_of_a_message(storage: Arc<dyn Storage>) {
    let (here, there) = (World::new(&*storage).await, World::new(&*storage).await);
    let [first, second, unknown] = [(); 3].map(|()| here.message(None, &Headers::default()).id);
    let elsewhere = fresh_project();
    done(here.store.put_cross_project_target(first, there.project.clone())).await;
    done(here.store.put_cross_project_target(second, elsewhere.clone())).await;
    assert_eq!(
        done(here.store.cross_project_target(first)).await,
        Some(there.project.clone())
    );
    assert_eq!(
        done(here.store.cross_project_target(second)).await,
        Some(elsewhere.clone())
    );
    let mut targets = done(here.store.cross_project_targets()).await;
    targets.sort_unstable();
    let mut expected = vec![there.project.clone(), elsewhere];
    expected.sort_unstable();
    assert_eq!(targets, expected);
    assert_eq!(done(there.store.cross_project_targets()).await, []);
    assert_eq!(done(here.store.cross_project_target(unknown)).await, None);
    assert_eq!(done(there.store.cross_project_target(first)).await, None);
    // It is not a message of this project, although it was sent from it.
    assert_eq!(done(here.store.message_status(first, here.now)).await, None);
}

fn from(origin: &ProjectId) -> DeadLetterQuery {
    DeadLetterQuery {
        origin: Some(origin.clone()),
        limit: 9,
        ..DeadLetterQuery::default()
    }
}

async fn dead_from(world: &World, query: DeadLetterQuery) -> Vec<MessageId> {
    let page = done(world.store.dead_letters(query)).await.dead_letters;
    page.iter().map(|dead| dead.message.id).collect()
}

pub async fn dead_letters_are_filtered_by_origin(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (near, far) = (fresh_project(), fresh_project());
    let own = world.sends(world.bob).await;
    let mut from_near = Vec::new();
    for _ in 0..3 {
        from_near.push(world.sends_from(&near, world.bob).await);
    }
    let from_far = world.sends_from(&far, world.bob).await;
    world.removes(world.bob, DeadLetterReason::RecipientGone).await;
    assert_eq!(dead_from(&world, from(&near)).await, from_near);
    assert_eq!(dead_from(&world, from(&far)).await, [from_far]);
    assert_eq!(dead_from(&world, from(&world.project)).await, [], "it has no origin");
    assert_eq!(dead_from(&world, from(&fresh_project())).await, []);
    let all = DeadLetterQuery {
        limit: 9,
        ..DeadLetterQuery::default()
    };
    let everything = [vec![own], from_near.clone(), vec![from_far]].concat();
    assert_eq!(dead_from(&world, all).await, everything);

    let page = DeadLetterQuery {
        after: Some((from_near[0], world.bob)),
        limit: 1,
        ..from(&near)
    };
    assert_eq!(dead_from(&world, page).await, from_near[1..2]);
    let because = |reason| DeadLetterQuery {
        reason: Some(reason),
        ..from(&near)
    };
    assert_eq!(dead_from(&world, because(DeadLetterReason::Rejected)).await, []);
    assert_eq!(
        dead_from(&world, because(DeadLetterReason::RecipientGone)).await,
        from_near
    );
}

pub async fn a_redriven_message_keeps_its_origin(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let origin = fresh_project();
    let id = world.sends_from(&origin, world.bob).await;
    let reason = DeadLetterReason::RecipientGone;
    world.removes(world.bob, reason).await;
    let redriven = done(world.store.redrive(vec![id], Some(world.carol), CAPACITY, world.now)).await;
    assert_eq!(redriven.sent, [(id, world.carol, 1)]);
    world.removes(world.carol, reason).await;
    assert_eq!(dead_from(&world, from(&origin)).await, [id]);
}
