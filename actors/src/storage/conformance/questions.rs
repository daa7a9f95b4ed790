//! Questions to people: bounds, compare and set, the notice to the asker, drafts, pages and what is forgotten.

use std::{sync::Arc, time::Duration};

use futures_util::future::join;
use uuid::Uuid;

use super::{
    super::{
        Append, Appended, Asked, Audience, DRAFTS_MAX, DraftPut, EventQuery, OPEN_BYTES_DIVISOR, OPEN_MAX,
        OPEN_OF_SESSION_MAX, QuestionsFull, SESSION_BYTES_DIVISOR, Storage, Updated, asked_bytes_max,
    },
    budgets::small_budgets,
    question_world::{closed_at, content, human, next, offered, question},
    world::{World, accepted, append, depth, done, full},
};
use crate::{
    clock::millis,
    model::{
        DeadLetterReason, EventKind, EventKinds, Headers, ProjectEvent, Question, QuestionChange, QuestionId,
        QuestionState, SessionId,
    },
};

pub async fn a_question_is_kept_as_it_was_asked(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let unknown = QuestionId::generate();
    let (text, other) = (content("Drop the old table?"), content("Async?"));
    let first = Arc::new(question(world.alice, &text, None));
    let second = Arc::new(question(world.bob, &other, None));
    assert_eq!(world.asks_with(&first, &text).await, Asked::New);
    assert_eq!(world.asks_with(&second, &other).await, Asked::New);
    let ids = vec![second.id, unknown, first.id];
    let found = done(world.store.questions(ids)).await;
    assert_eq!(found, [Some(Arc::clone(&second)), None, Some(Arc::clone(&first))]);
    assert_eq!(done(world.store.question_content(first.id)).await, Some(text));
    assert_eq!(
        done(world.store.question_content(second.id)).await,
        Some(Arc::clone(&other))
    );
    assert_eq!(done(world.store.question_content(unknown)).await, None);
    assert_eq!(
        done(world.store.open_questions()).await,
        [Arc::clone(&first), Arc::clone(&second)]
    );
    let again = world.asks_with(&first, &other).await;
    assert_eq!(again, Asked::Existing(first), "the id is known");
    assert_eq!(world.open().await.len(), 2);
}

pub async fn an_idempotency_key_finds_the_earlier_question(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let text = content("Drop the old table?");
    let again = |session| Arc::new(question(session, &text, Some("key:1")));
    let first = world.asks(world.alice, Some("key:1")).await;
    assert_eq!(
        world.asks_with(&again(world.alice), &text).await,
        Asked::Existing(Arc::clone(&first))
    );
    assert_eq!(
        world.asks_with(&again(world.bob), &text).await,
        Asked::New,
        "the key of another session"
    );
    let closed = world.closed(&first);
    assert_eq!(world.updates(&closed, None).await, Updated::Stored(None));
    assert_eq!(
        world.asks_with(&again(world.alice), &text).await,
        Asked::Existing(closed)
    );
    assert!(done(world.store.remove_question(first.id)).await);
    assert_eq!(
        world.asks_with(&again(world.alice), &text).await,
        Asked::New,
        "the question is forgotten"
    );
}

pub async fn an_idempotency_key_of_yesterday_asks_again(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let text = content("Drop the old table?");
    let asked_ago = |hours| {
        let at_ms = world.now.unix_ms - millis(Duration::from_hours(hours));
        let id = Uuid::from_u128(u128::from(at_ms) << 80 | u128::from(hours));
        Arc::new(Question {
            id: QuestionId::from_uuid(id),
            ..question(world.alice, &text, Some("key"))
        })
    };
    assert_eq!(world.asks_with(&asked_ago(25), &text).await, Asked::New);
    let yesterday = asked_ago(23);
    assert_eq!(world.asks_with(&yesterday, &text).await, Asked::New);
    let now = Arc::new(question(world.alice, &text, Some("key")));
    assert_eq!(world.asks_with(&now, &text).await, Asked::Existing(yesterday));
}

pub async fn open_questions_are_bounded_for_a_session_and_a_project(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let text = content("?");
    let sessions: Vec<_> = (0..OPEN_MAX / OPEN_OF_SESSION_MAX)
        .map(|_| SessionId::generate())
        .collect();
    let of = |session| Arc::new(question(session, &text, None));
    let first: Vec<_> = (0..OPEN_OF_SESSION_MAX).map(|_| of(sessions[0])).collect();
    let asked = world
        .each(first.len(), async |at| world.asks_with(&first[at], &text).await)
        .await;
    assert!(asked.iter().all(|asked| *asked == Asked::New));
    let refused = world.asks_with(&of(sessions[0]), &text).await;
    assert_eq!(refused, Asked::Full(QuestionsFull::Session));
    assert_eq!(world.updates(&offered(&first[0]), None).await, Updated::Stored(None));
    let refused = world.asks_with(&of(sessions[0]), &text).await;
    assert_eq!(
        refused,
        Asked::Full(QuestionsFull::Session),
        "an offered question is open"
    );
    world.updates(&world.closed(&offered(&first[0])), None).await;
    assert_eq!(world.asks_with(&of(sessions[0]), &text).await, Asked::New);

    let others = OPEN_MAX - OPEN_OF_SESSION_MAX;
    let asked = world
        .each(others, async |at| {
            let session = sessions[1 + at / OPEN_OF_SESSION_MAX];
            world.asks_with(&of(session), &text).await
        })
        .await;
    assert!(asked.iter().all(|asked| *asked == Asked::New));
    assert_eq!(world.open().await.len(), OPEN_MAX);
    assert_eq!(
        world.asks_with(&of(world.bob), &text).await,
        Asked::Full(QuestionsFull::Project)
    );
    assert!(done(world.store.remove_question(first[1].id)).await);
    assert_eq!(world.asks_with(&of(world.bob), &text).await, Asked::New);
    done(storage.clear_project(world.project)).await;
}

pub async fn a_change_is_stored_only_as_the_next_revision(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let first = world.asks(world.alice, None).await;
    let second = offered(&first);
    let skipping = Arc::new(Question {
        revision: 2,
        ..(*second).clone()
    });
    for stale in [&first, &skipping] {
        assert_eq!(world.updates(stale, None).await, Updated::Changed(Arc::clone(&first)));
    }
    assert_eq!(world.updates(&second, None).await, Updated::Stored(None));
    assert_eq!(world.record(first.id).await, Some(Arc::clone(&second)));
    assert_eq!(
        world.updates(&second, None).await,
        Updated::Changed(Arc::clone(&second))
    );
    let waiting = next(&second, QuestionState::Waiting);
    assert_eq!(world.updates(&waiting, None).await, Updated::Stored(None));
    assert_eq!(world.open().await, [first.id]);
    let stranger = Arc::new(question(world.alice, &content("?"), None));
    assert_eq!(world.updates(&offered(&stranger), None).await, Updated::Unknown);
    assert_eq!(world.record(stranger.id).await, None);
}

pub async fn of_two_closings_exactly_one_is_stored_and_told(storage: Arc<dyn Storage>) {
    const RACES: usize = 1_000;
    let world = World::new(&*storage).await;
    for race in 0..RACES {
        let question = world.asks(world.alice, None).await;
        let notice = || world.direct(world.bob, &Headers::default());
        let ends = ["mara", "lena"].map(|by| closed_at(&question, world.now.unix_ms, by));
        let notices = [notice(), notice()];
        let told = [notices[0].message.id, notices[1].message.id];
        let [first, second] = notices.map(Some);
        let (first, second) = join(world.updates(&ends[0], first), world.updates(&ends[1], second)).await;
        let winner = match (first, second) {
            (Updated::Stored(Some(notice)), Updated::Changed(record)) if record == ends[0] => {
                assert_eq!(notice, accepted(1));
                0
            }
            (Updated::Changed(record), Updated::Stored(Some(notice))) if record == ends[1] => {
                assert_eq!(notice, accepted(1));
                1
            }
            other => panic!("race {race}: {other:?}"),
        };
        assert_eq!(world.record(question.id).await, Some(Arc::clone(&ends[winner])));
        assert_eq!(world.leases(world.bob, 9).await, [told[winner]]);
        world.acknowledges(world.bob, &[told[winner]]).await;
    }
    assert_eq!(world.open().await, []);
}

pub async fn a_notice_that_is_refused_does_not_keep_a_question_open(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world.sends_many(world.bob, 2).await;
    let notice = |to| Append {
        queue_capacity: 2,
        ..world.direct(to, &Headers::default())
    };
    let question = world.asks(world.bob, None).await;
    let updated = world.updates(&world.closed(&question), Some(notice(world.bob))).await;
    assert_eq!(updated, Updated::Stored(Some(full(&[world.bob], 2))));
    assert!(
        world
            .record(question.id)
            .await
            .is_some_and(|question| !question.is_open())
    );
    assert_eq!(world.depth(world.bob).await, depth(2, 0));

    let question = world.asks(world.carol, None).await;
    world.removes(world.carol, DeadLetterReason::RecipientGone).await;
    let updated = world.updates(&world.closed(&question), Some(notice(world.carol))).await;
    let gone = super::super::RecipientRefusal::Gone;
    assert_eq!(
        updated,
        Updated::Stored(Some(Appended::refused_by_all(&[world.carol], gone)))
    );
    assert_eq!(world.open().await, []);
}

pub async fn a_notice_comes_only_with_the_end_of_a_question(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let question = world.asks(world.alice, None).await;
    let notice = || Some(world.direct(world.bob, &Headers::default()));
    let offered = offered(&question);
    assert_eq!(
        world.updates(&offered, notice()).await,
        Updated::Stored(None),
        "it is open"
    );
    let closed = world.closed(&offered);
    assert_eq!(
        world.updates(&closed, notice()).await,
        Updated::Stored(Some(accepted(1)))
    );
    let read = Arc::new(Question {
        revision: closed.revision + 1,
        ..(*closed).clone()
    });
    assert_eq!(
        world.updates(&read, notice()).await,
        Updated::Stored(None),
        "it was closed before"
    );
    assert_eq!(
        world.updates(&read, notice()).await,
        Updated::Changed(Arc::clone(&read))
    );
    assert_eq!(world.depth(world.bob).await, depth(1, 0));
}

pub async fn a_notice_is_a_message_as_any_other(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let question = world.asks(world.bob, None).await;
    let headers = Headers {
        correlation_id: Some(question.id.to_string()),
        ..Headers::default()
    };
    let tracked = world.seal(world.alice, Some(world.bob), &headers, true);
    let notice = append(tracked, Audience::One(world.bob));
    let id = notice.message.id;
    world.updates(&world.closed(&question), Some(notice)).await;
    assert_eq!(world.leases(world.bob, 9).await, [id]);
    assert_eq!(world.releases_all(world.bob).await.returned, 1);
    assert_eq!(world.leases_counted(world.bob, 9).await, [(id, 2)]);
    let acknowledged = world.acknowledges(world.bob, &[id]).await;
    assert_eq!((acknowledged.acknowledged, acknowledged.tracked.len()), (1, 1));
}

pub async fn each_person_has_one_draft_for_a_question(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let question = world.asks(world.alice, None).await;
    let unknown = QuestionId::generate();
    assert_eq!(world.drafts(unknown, "mara", "x").await, DraftPut::Unknown);
    assert_eq!(world.drafts(unknown, "mara", "").await, DraftPut::Unknown);
    for text in ["but dump it first\nto s3", "ask Lena \u{1f980}"] {
        assert_eq!(world.drafts(question.id, "mara", text).await, DraftPut::Stored);
        assert_eq!(world.draft(question.id, "mara").await, text);
    }
    assert_eq!(world.draft(question.id, "lena").await, "");
    assert_eq!(world.drafts(question.id, "lena", "no").await, DraftPut::Stored);
    world.updates(&world.closed(&question), None).await;
    assert_eq!(
        world.draft(question.id, "mara").await,
        "ask Lena \u{1f980}",
        "drafts outlive the end"
    );
    assert_eq!(world.drafts(question.id, "mara", "").await, DraftPut::Stored);
    assert_eq!(world.draft(question.id, "mara").await, "");
    assert_eq!(world.draft(question.id, "lena").await, "no");
    assert_eq!(world.draft(unknown, "lena").await, "");
}

pub async fn the_drafts_of_a_question_are_bounded(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let question = world.asks(world.alice, None).await;
    for at in 0..DRAFTS_MAX {
        assert_eq!(
            world.drafts(question.id, &format!("human {at}"), "x").await,
            DraftPut::Stored
        );
    }
    assert_eq!(world.drafts(question.id, "one more", "x").await, DraftPut::Full);
    assert_eq!(world.drafts(question.id, "human 3", "longer").await, DraftPut::Stored);
    assert_eq!(world.drafts(question.id, "human 4", "").await, DraftPut::Stored);
    assert_eq!(world.drafts(question.id, "one more", "x").await, DraftPut::Stored);
}

pub async fn pages_of_questions_neither_lose_nor_repeat_any(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    assert_eq!(world.page(None, 10).await, []);
    let mut asked = Vec::new();
    for at in 0..7 {
        let question = world.asks(world.alice, None).await;
        if at % 2 == 0 {
            world.updates(&world.closed(&question), None).await;
        }
        asked.push(question.id);
    }
    asked.reverse();
    assert_eq!(world.page(None, 10).await, asked);
    assert_eq!(world.page(None, 3).await, asked[..3]);
    assert_eq!(world.page(Some(asked[2]), 3).await, asked[3..6]);
    // The page continues after a question that is forgotten.
    assert!(done(world.store.remove_question(asked[5])).await);
    assert_eq!(world.page(Some(asked[5]), 3).await, asked[6..]);
    assert_eq!(world.page(Some(asked[6]), 3).await, []);
    assert_eq!(world.page(None, 0).await, []);
}

pub async fn old_closed_questions_are_forgotten(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let retention_ms = millis(super::super::Retention::default().questions_retention);
    let closed_ago = async |session, key, ago_ms| {
        let question = world.asks(session, key).await;
        let closed = closed_at(&question, world.now.unix_ms - ago_ms, "mara");
        assert_eq!(world.updates(&closed, None).await, Updated::Stored(None));
        question.id
    };
    let old = closed_ago(world.alice, Some("key"), retention_ms + 60_000).await;
    world.drafts(old, "mara", "x").await;
    assert!(world.record(old).await.is_some(), "it is forgotten with the next one");
    let younger = closed_ago(world.bob, None, retention_ms - 60_000).await;
    assert_eq!(world.record(old).await, None);
    assert_eq!(done(world.store.question_content(old)).await, None);
    assert_eq!(world.draft(old, "mara").await, "");
    let again = world.asks(world.alice, Some("key")).await;
    assert!(
        world.record(younger).await.is_some(),
        "it is kept for the whole retention"
    );
    assert_eq!(world.page(None, 9).await, [again.id, younger]);
}

pub async fn closed_questions_are_bounded_in_number(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let len_max = small_budgets().closed_questions_len_max;
    let mut asked = Vec::new();
    for at in 0..len_max + 3 {
        let question = world.asks(world.alice, None).await;
        // Those that are asked first are closed last.
        let closed = closed_at(&question, world.now.unix_ms - at as u64, "mara");
        assert_eq!(world.updates(&closed, None).await, Updated::Stored(None));
        asked.push(question.id);
    }
    // Of those beyond the bound each has pushed out the one before it, which was closed before the others.
    let kept = [&asked[..len_max - 1], &asked[len_max + 2..]].concat();
    let page = world.page(None, usize::MAX).await;
    assert_eq!(page.into_iter().rev().collect::<Vec<_>>(), kept);
    // What was closed first is forgotten first, but not what has just changed.
    let question = world.asks(world.alice, None).await;
    let first = closed_at(&question, world.now.unix_ms - 1_000_000, "mara");
    world.updates(&first, None).await;
    assert!(world.record(question.id).await.is_some());
    let other = world.asks(world.alice, None).await;
    world.updates(&world.closed(&other), None).await;
    assert_eq!(world.record(question.id).await, None);
    assert!(world.record(other.id).await.is_some());
}

pub async fn a_removed_question_is_forgotten(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let question = world.asks(world.alice, Some("key")).await;
    world.drafts(question.id, "mara", "x").await;
    let kept = world.asks(world.alice, None).await;
    let before = done(world.store.usage()).await.questions;
    assert!(done(world.store.remove_question(question.id)).await);
    assert!(!done(world.store.remove_question(question.id)).await);
    assert_eq!(world.record(question.id).await, None);
    assert_eq!(done(world.store.question_content(question.id)).await, None);
    assert_eq!(world.draft(question.id, "mara").await, "");
    assert_eq!(
        (world.open().await, world.page(None, 9).await),
        (vec![kept.id], vec![kept.id])
    );
    assert_eq!(world.updates(&offered(&question), None).await, Updated::Unknown);
    assert!(done(world.store.usage()).await.questions < before);
    assert!(done(world.store.remove_question(kept.id)).await);
    assert_eq!(done(world.store.usage()).await.questions, 0);
}

pub async fn a_cleared_project_has_no_questions(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let open = world.asks(world.alice, Some("key")).await;
    let closed = world.asks(world.alice, None).await;
    world.updates(&world.closed(&closed), None).await;
    world.drafts(open.id, "mara", "x").await;
    done(storage.clear_project(world.project.clone())).await;
    world.store = storage.open(&world.project);
    assert_eq!((world.open().await, world.page(None, 9).await), (vec![], vec![]));
    for id in [open.id, closed.id] {
        assert_eq!(world.record(id).await, None);
        assert_eq!(done(world.store.question_content(id)).await, None);
        assert_eq!(world.draft(id, "mara").await, "");
    }
    assert_eq!(done(world.store.usage()).await.questions, 0);
    world.asks(world.alice, Some("key")).await;
}

pub async fn questions_are_bounded_in_bytes(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let limit = small_budgets().questions_bytes_max;
    let (open_max, session_max) = (limit / OPEN_BYTES_DIVISOR, limit / SESSION_BYTES_DIVISOR);
    let asked_max = asked_bytes_max(limit);
    // One fits for a session, and three for all that are open.
    let large = content(&"x".repeat(session_max - 1000));
    let ask_as = async |session| {
        let question = Arc::new(question(session, &large, None));
        (Arc::clone(&question), world.asks_with(&question, &large).await)
    };
    let mut asked = Vec::new();
    for _ in 0..3 {
        let (question, answer) = ask_as(SessionId::generate()).await;
        assert_eq!(answer, Asked::New);
        asked.push(question);
    }
    assert_eq!(
        ask_as(asked[0].asker.session).await.1,
        Asked::Full(QuestionsFull::SessionBytes(session_max))
    );
    let used = done(world.store.usage()).await.questions;
    assert!(used > 3 * (session_max - 1000) && used <= asked_max, "{used}");
    assert_eq!(
        ask_as(SessionId::generate()).await.1,
        Asked::Full(QuestionsFull::Bytes(asked_max))
    );
    let draft = "x".repeat(open_max - used);
    assert_eq!(world.drafts(asked[0].id, "mara", &draft).await, DraftPut::Full);
    assert_eq!(
        world.drafts(asked[0].id, "mara", &draft[..draft.len() - 4]).await,
        DraftPut::Stored
    );
    assert_eq!(done(world.store.usage()).await.questions, open_max);
    assert_eq!(
        world.drafts(asked[0].id, "mara", &draft[..draft.len() - 3]).await,
        DraftPut::Full
    );
    assert_eq!(world.drafts(asked[0].id, "mara", "short").await, DraftPut::Stored);

    // A session may ask again when its question is closed. Closed questions make room, the one that was closed first first.
    for at in 3..9 {
        let before = &asked[at - 3];
        let closed = closed_at(before, world.now.unix_ms + at as u64, "mara");
        assert_eq!(world.updates(&closed, None).await, Updated::Stored(None));
        let (question, answer) = ask_as(before.asker.session).await;
        assert_eq!(answer, Asked::New);
        asked.push(question);
    }
    assert_eq!(world.record(asked[0].id).await, None);
    assert!(world.record(asked[5].id).await.is_some());
    assert!(done(world.store.usage()).await.questions <= limit);
    assert_eq!(world.open().await, [asked[6].id, asked[7].id, asked[8].id]);
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
    let event = ProjectEvent::of_question(&asked, QuestionChange::Offered, Some(human("mara \u{e4}")));
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
