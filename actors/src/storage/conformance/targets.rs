//! The places of the targets to which events are sent, and the events that changes of questions leave in the log.

use std::{sync::Arc, time::Duration};

use super::{
    super::{EventPosition, EventQuery, Storage, TargetCursor, TargetId, Updated},
    question_world::{content, offered, question},
    world::{World, done},
};
use crate::model::{EventKind, EventKinds, ProjectEvent, QuestionChange};

const TTL: Duration = Duration::from_secs(30);

fn cursor(block: u64, failures: u32) -> TargetCursor {
    TargetCursor {
        position: Some(EventPosition {
            incarnation: u64::MAX,
            block,
            index: 7,
        }),
        failures,
        retry_at_ms: 1_790_000_000_000,
    }
}

pub async fn each_target_has_a_place(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (one, two) = (TargetId::of_address("https://a/1"), TargetId::of_address("https://a/2"));
    let claim = async |target| done(world.store.claim_target(target, TTL)).await;
    let moved = async |target, cursor| done(world.store.move_target(target, cursor, TTL)).await;
    assert_eq!(claim(one).await, Some(TargetCursor::default()), "a new target");
    assert!(moved(one, cursor(1, 0)).await);
    assert!(
        moved(two, cursor(2, 3)).await,
        "a cursor is stored without a claim before"
    );
    assert!(moved(one, cursor(3, 1)).await);
    assert_eq!(
        (claim(one).await, claim(two).await),
        (Some(cursor(3, 1)), Some(cursor(2, 3)))
    );
    let again = storage.open(&world.project);
    assert_eq!(done(again.claim_target(one, TTL)).await, Some(cursor(3, 1)));
    let other = World::new(&*storage).await;
    assert_eq!(
        done(other.store.claim_target(one, TTL)).await,
        Some(TargetCursor::default()),
        "another project"
    );
    done(storage.clear_project(world.project.clone())).await;
    let cleared = storage.open(&world.project);
    assert_eq!(
        done(cleared.claim_target(one, TTL)).await,
        Some(TargetCursor::default())
    );
}

/// The changes of questions in the log, in their order.
async fn changes(world: &World) -> Vec<(QuestionChange, Option<String>)> {
    let kinds = EventKinds::of(&[EventKind::Question]);
    let page = world
        .reads(EventQuery {
            kinds,
            ..EventQuery::WHOLE_LOG
        })
        .await;
    page.events
        .into_iter()
        .filter_map(|logged| match logged.event {
            ProjectEvent::Question { change, human, .. } => Some((change, human.map(|name| name.to_string()))),
            _ => None,
        })
        .collect()
}

pub async fn the_event_log_has_each_stored_change_of_a_question(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let asked = world.asks(world.alice, Some("key")).await;
    let text = content("Drop the old table?");
    let again = Arc::new(question(world.alice, &text, Some("key")));
    world.asks_with(&again, &text).await;
    let next = offered(&asked);
    let event = ProjectEvent::of_question(
        &asked,
        QuestionChange::Offered,
        Some(super::question_world::human("mara \u{e4}")),
    );
    let update = async |event| done(world.store.update_question(Arc::clone(&next), event, None, world.now)).await;
    assert_eq!(update(Some(event.clone())).await, Updated::Stored(None));
    assert!(
        matches!(update(Some(event)).await, Updated::Changed(_)),
        "nothing is stored"
    );
    let closed = world.closed(&next);
    assert_eq!(
        world.updates(&closed, None).await,
        Updated::Stored(None),
        "without an event"
    );
    assert_eq!(
        changes(&world).await,
        [
            (QuestionChange::Asked, None),
            (QuestionChange::Offered, Some("mara \u{e4}".to_owned())),
        ]
    );
}
