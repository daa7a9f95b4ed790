//! What a query shows is on the disk: a query that saw a change waits until it is written, and no other query waits.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;

use super::{SimulatedDisk, World, block_on, opened, restarted};
use crate::{
    model::{AuditQuery, Headers, ProjectId, ProjectRecord, ProtocolName, QuestionId, SessionName},
    storage::{DeadLetterQuery, EventQuery, Op, SessionKey, Storage, StoreError, Table, conformance::world::depth},
};

type Query = (&'static str, Op<()>);

fn outcome<T: Send + 'static>(query: Op<T>) -> Op<()> {
    Box::pin(async move { query.await.map(drop) })
}

/// Every query of a store that answers from memory.
fn queries(world: &World) -> Vec<Query> {
    let (store, now) = (&world.store, world.now);
    let (question, human) = (QuestionId::generate(), SessionName::parse("mara").unwrap());
    let (name, version) = (ProtocolName::parse("chat").unwrap(), semver::Version::new(1, 0, 0));
    let message = world.message(Some(world.bob), &Headers::default()).id;
    vec![
        ("usage", outcome(store.usage())),
        ("sessions", outcome(store.sessions())),
        ("kept_heartbeats", outcome(store.kept_heartbeats(now))),
        ("find_session", outcome(store.find_session(SessionKey::Id(world.bob)))),
        ("protocols", outcome(store.protocols())),
        ("protocol", outcome(store.protocol(&name, &version))),
        ("depth", outcome(store.depth(world.bob))),
        ("peek", outcome(store.peek(world.bob, 9, usize::MAX))),
        ("message_statuses", outcome(store.message_statuses(vec![message], now))),
        ("messages", outcome(store.messages(vec![message]))),
        ("cross_project_target", outcome(store.cross_project_target(message))),
        ("cross_project_targets", outcome(store.cross_project_targets())),
        ("dead_letters", outcome(store.dead_letters(DeadLetterQuery::default()))),
        ("dead_letter_count", outcome(store.dead_letter_count())),
        ("questions", outcome(store.questions(vec![question]))),
        ("question_content", outcome(store.question_content(question))),
        ("open_questions", outcome(store.open_questions())),
        ("question_page", outcome(store.question_page(None, 9))),
        ("draft", outcome(store.draft(question, human))),
        ("release_yaps", outcome(store.release_yaps(Duration::ZERO, now))),
        ("yaps", outcome(store.yaps(None, 9))),
        ("get", outcome(store.get(Table::Targets, "a".into()))),
        ("keys", outcome(store.keys(Table::BackendLists, Vec::new()))),
        ("list", outcome(store.list(Table::AddedBackends, Vec::new()))),
        ("claims", outcome(store.claims("".into(), now))),
    ]
}

/// The same of the storage.
fn system_queries(storage: &dyn Storage) -> Vec<Query> {
    let query = AuditQuery::default();
    vec![
        ("projects", outcome(storage.projects())),
        ("project", outcome(storage.project(ProjectId::default_project()))),
        ("audit", outcome(storage.audit(query))),
    ]
}

fn assert_answered_at_once(queries: Vec<Query>) {
    for (name, mut query) in queries {
        assert_eq!(query.as_mut().now_or_never(), Some(Ok(())), "{name} waits");
    }
}

/// Polls each query once: none is answered.
fn waiting(mut queries: Vec<Query>) -> Vec<Query> {
    for (name, query) in &mut queries {
        assert_eq!(
            query.as_mut().now_or_never(),
            None,
            "{name} shows what is not on the disk"
        );
    }
    queries
}

#[test]
fn a_query_waits_for_the_changes_that_it_saw_and_for_nothing_else() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let world = World::new(&storage).await;
        let other = World::new(&storage).await;
        let system = Arc::new(ProjectRecord::default_project(1));
        assert_answered_at_once(queries(&world));
        assert_answered_at_once(system_queries(&storage));

        let pause = disk.pause_commits();
        let mut append = world
            .store
            .append(vec![world.direct(world.bob, &Headers::default())], world.now);
        assert!(append.as_mut().now_or_never().is_none());
        pause.wait_for_commit();
        let mut asked = waiting(queries(&world));
        asked.extend(waiting(vec![(
            "events",
            outcome(world.store.events(EventQuery::WHOLE_LOG)),
        )]));
        assert_answered_at_once(queries(&other));
        assert_answered_at_once(system_queries(&storage));
        let mut put = storage.put_project(system);
        assert!(put.as_mut().now_or_never().is_none());
        asked.extend(waiting(system_queries(&storage)));
        assert_answered_at_once(queries(&other));
        drop(pause);

        append.await.expect("it is written");
        for (name, query) in asked {
            assert_eq!(query.await, Ok(()), "{name}");
        }
        assert_eq!(put.await, Ok(true));
        assert_answered_at_once(queries(&world));
    });
}

#[test]
fn a_query_waits_for_the_group_of_its_change_and_not_for_the_next() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let (world, other) = (World::new(&storage).await, World::new(&storage).await);
        let pause = disk.pause_commits();
        let mut first = world
            .store
            .append(vec![world.direct(world.bob, &Headers::default())], world.now);
        assert!(first.as_mut().now_or_never().is_none());
        pause.wait_for_commit();
        let mut second = other
            .store
            .append(vec![other.direct(other.bob, &Headers::default())], other.now);
        assert!(second.as_mut().now_or_never().is_none());
        let asked = waiting(queries(&world));
        let next = disk.pause_commits();
        drop(pause);
        next.wait_for_commit();
        for (name, query) in asked {
            assert_eq!(query.await, Ok(()), "{name}");
        }
        assert!(second.as_mut().now_or_never().is_none());
        drop(next);
        second.await.expect("it is written");
    });
}

#[test]
fn a_query_never_shows_a_change_that_the_disk_refuses() {
    block_on(async {
        let disk = SimulatedDisk::default();
        let storage = opened(&disk);
        let mut world = World::new(&storage).await;
        let gone = StoreError::Unreachable("the disk is gone".to_owned());
        let pause = disk.pause_commits();
        let mut append = world
            .store
            .append(vec![world.direct(world.bob, &Headers::default())], world.now);
        assert!(append.as_mut().now_or_never().is_none());
        pause.wait_for_commit();
        let asked = waiting(queries(&world));
        disk.fails_with(gone.clone());
        drop(pause);

        assert_eq!(append.await, Err(gone.clone()));
        for (name, query) in asked {
            assert_eq!(query.await, Err(gone.clone()), "{name}");
        }
        // The caller of a refused change does not find it, although the disk still fails.
        assert_eq!(world.store.depth(world.bob).now_or_never(), Some(Ok(depth(0, 0))));
        let _storage = restarted(&disk, &mut world);
        assert_eq!(world.depth(world.bob).await, depth(0, 0));
    });
}
