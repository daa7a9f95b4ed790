//! Budgets in bytes: of inboxes, of the project, of dead letters, idempotency keys and session records.

use std::sync::Arc;

use serde_json::{Map, json};

use super::{
    super::{
        Append, Appended, Audience, COPY_BYTES, PutOutcome, PutSession, RecipientRefusal, RedriveRefusal, Retention,
        Storage, Usage,
    },
    world::{CAPACITY, World, accepted, append, done, record},
};
use crate::model::{Budget, BudgetFull, DeadLetterReason, Headers, MessageId, SessionId, SessionRecord};

/// Budgets for a few large messages.
pub fn small_budgets() -> Retention {
    Retention {
        queue_bytes_max: 3 * LARGE,
        waiting_bytes_max: 7 * LARGE,
        dead_letters_bytes_max: 3 * LARGE,
        idempotency_keys_bytes_max: 4_000,
        sessions_bytes_max: 4_000,
        questions_bytes_max: 160_000,
        closed_questions_len_max: 20,
        ..Retention::default()
    }
}

/// Two large messages fit into three times as many bytes, and five of them into seven times as many.
const LARGE: usize = 4_000;
const TEXT_BYTES: usize = 4_500;

fn large() -> Headers {
    Headers {
        correlation_id: Some("x".repeat(TEXT_BYTES)),
        ..Headers::default()
    }
}

fn full(to: SessionId, budget: Budget, limit: usize) -> Appended {
    Appended::refused_by_all(&[to], RecipientRefusal::Full(BudgetFull { budget, limit }))
}

impl World {
    async fn sends_large(&self, to: SessionId) -> (MessageId, Appended) {
        let append = self.direct(to, &large());
        (append.message.id, self.append(append).await)
    }

    async fn usage(&self) -> Usage {
        done(self.store.usage()).await
    }
}

pub async fn an_inbox_is_full_by_its_bytes(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let full = full(world.bob, Budget::QueueBytes, small_budgets().queue_bytes_max);
    let (first, answer) = world.sends_large(world.bob).await;
    assert_eq!(answer, accepted(1));
    assert_eq!(world.sends_large(world.bob).await.1, accepted(2));
    assert_eq!(world.sends_large(world.bob).await.1, full);
    // A small message still fits, and other inboxes are not affected.
    world.sends(world.bob).await;
    assert_eq!(world.sends_large(world.carol).await.1, accepted(1));
    // Leased and released messages count; acknowledged ones do not.
    assert_eq!(world.leases(world.bob, 1).await, [first]);
    assert_eq!(world.sends_large(world.bob).await.1, full);
    world.releases_all(world.bob).await;
    assert_eq!(world.sends_large(world.bob).await.1, full);
    world.acknowledges(world.bob, &[first]).await;
    assert_eq!(world.sends_large(world.bob).await.1, accepted(3));
}

pub async fn a_small_message_fits_after_a_larger_one_was_refused(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let [large, small] = [large(), Headers::default()];
    let headers = [&large, &large, &large, &small];
    let batch: Vec<_> = headers.map(|headers| world.direct(world.bob, headers)).into();
    let full = full(world.bob, Budget::QueueBytes, small_budgets().queue_bytes_max);
    let ids: Vec<_> = batch.iter().map(|append| append.message.id).collect();
    let answers = done(world.store.append(batch, world.now)).await;
    assert_eq!(answers, [accepted(1), accepted(2), full, accepted(3)]);
    assert_eq!(world.leases(world.bob, 9).await, [ids[0], ids[1], ids[3]]);
}

pub async fn a_project_is_full_by_the_bytes_of_its_waiting_messages(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let project_full = full(world.alice, Budget::ProjectBytes, small_budgets().waiting_bytes_max);
    let queue_full = full(world.carol, Budget::QueueBytes, small_budgets().queue_bytes_max);
    let mut sent = Vec::new();
    for to in [world.bob, world.bob, world.carol, world.carol, world.alice] {
        let (id, answer) = world.sends_large(to).await;
        assert!(matches!(answer, Appended::Accepted { refusal: None, .. }));
        sent.push(id);
    }
    assert_eq!(world.sends_large(world.alice).await.1, project_full);
    // A dead letter does not count as waiting.
    world.removes(world.bob, DeadLetterReason::RecipientGone).await;
    assert_eq!(world.sends_large(world.alice).await.1, accepted(2));
    assert_eq!(world.sends_large(world.carol).await.1, queue_full);
    world.leases(world.carol, 2).await;
    world.acknowledges(world.carol, &sent[2..4]).await;
    assert_eq!(world.sends_large(world.carol).await.1, accepted(1));
}

pub async fn a_broadcast_counts_its_envelope_once(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let before = world.usage().await;
    assert_eq!((before.messages, before.dead_letters), (0, 0));
    let message = world.message(None, &large());
    let (id, envelope) = (message.id, message.encoded_len(1));
    let all = [world.alice, world.bob, world.carol];
    world.append(append(message, Audience::Many(all.into()))).await;
    assert_eq!(world.usage().await.messages, envelope + 3 * COPY_BYTES);
    for (left, session) in [(2, world.alice), (1, world.bob)] {
        assert_eq!(world.leases(session, 1).await, [id]);
        world.acknowledges(session, &[id]).await;
        assert_eq!(world.usage().await.messages, envelope + left * COPY_BYTES);
    }
    world.removes(world.carol, DeadLetterReason::RecipientGone).await;
    let usage = world.usage().await;
    assert_eq!(usage.messages, envelope + COPY_BYTES);
    assert_eq!(usage.dead_letters, usage.messages);
    done(world.store.redrive(vec![id], Some(world.bob), CAPACITY, world.now)).await;
    let usage = world.usage().await;
    assert_eq!((usage.messages, usage.dead_letters), (envelope + COPY_BYTES, 0));
    world.leases(world.bob, 1).await;
    world.acknowledges(world.bob, &[id]).await;
    assert_eq!(world.usage().await.messages, 0);
}

pub async fn the_oldest_dead_letters_are_dropped_for_new_ones(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let mut dead = Vec::new();
    for _ in 0..3 {
        let (id, answer) = world.sends_large(world.bob).await;
        assert_eq!(answer, accepted(1));
        while world.releases_all(world.bob).await.dead == 0 {
            world.leases(world.bob, 1).await;
        }
        dead.push(id);
    }
    let kept: Vec<_> = world.dead().await.into_iter().map(|(id, ..)| id).collect();
    assert_eq!(kept, dead[1..]);
    let usage = world.usage().await;
    assert_eq!(usage.messages, usage.dead_letters);
    assert!(
        usage.dead_letters <= small_budgets().dead_letters_bytes_max,
        "{usage:?}"
    );
}

pub async fn a_dead_letter_is_redriven_only_into_free_space(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (dead, _) = world.sends_large(world.bob).await;
    world.removes(world.bob, DeadLetterReason::RecipientGone).await;
    for _ in 0..2 {
        world.sends_large(world.carol).await;
    }
    let redriven = || done(world.store.redrive(vec![dead], Some(world.carol), CAPACITY, world.now));
    assert_eq!(redriven().await.refused, [(dead, RedriveRefusal::QueueFull)]);
    let leased = world.leases(world.carol, 1).await;
    world.acknowledges(world.carol, &leased).await;
    assert_eq!(redriven().await.sent, [(dead, world.carol, 2)]);
}

pub async fn the_oldest_idempotency_keys_are_forgotten_for_new_ones(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let keyed = |number: usize| Append {
        idempotency_key: Some(format!("{number:0>100}")),
        ..world.direct(world.bob, &Headers::default())
    };
    for number in 0..40 {
        assert!(matches!(world.append(keyed(number)).await, Appended::Accepted { .. }));
        assert!(matches!(world.append(keyed(number)).await, Appended::Duplicate(_)));
        let leased = world.leases(world.bob, 1).await;
        world.acknowledges(world.bob, &leased).await;
        let usage = world.usage().await;
        assert!((100..=4_000).contains(&usage.idempotency_keys), "{usage:?}");
    }
    assert!(matches!(world.append(keyed(0)).await, Appended::Accepted { .. }));
}

fn with_metadata(id: SessionId, bytes: usize) -> SessionRecord {
    SessionRecord {
        metadata: Map::from_iter([("text".to_owned(), json!("x".repeat(bytes)))]),
        ..record(id)
    }
}

pub async fn session_records_are_bounded_in_bytes(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let before = world.usage().await.sessions;
    assert_eq!(before, 3 * record(world.alice).stored_len());
    let [first, second] = [(); 2].map(|()| SessionId::generate());
    let put = |id, bytes| done(world.store.put_session(with_metadata(id, bytes), PutSession::default()));
    let no_room = PutOutcome::TooManyBytes { limit: 4_000 };
    assert_eq!(put(first, 2_000).await, PutOutcome::Stored);
    assert_eq!(put(second, 2_000).await, no_room);
    assert_eq!(put(world.bob, 2_000).await, no_room);
    assert_eq!(world.sessions().await.len(), 4);
    assert!(world.sessions().await.contains(&record(world.bob)));
    assert_eq!(put(first, 1_000).await, PutOutcome::Stored);
    assert_eq!(put(second, 1_000).await, PutOutcome::Stored);
    for session in [first, second] {
        world.removes(session, DeadLetterReason::RecipientGone).await;
    }
    assert_eq!(world.usage().await.sessions, before);
}

pub async fn a_cleared_project_uses_no_bytes(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    world.sends_large(world.bob).await;
    world.sends_large(world.carol).await;
    world.removes(world.bob, DeadLetterReason::RecipientGone).await;
    assert!(world.usage().await.dead_letters > LARGE);
    done(storage.clear_project(world.project.clone())).await;
    world.store = storage.open(&world.project);
    assert_eq!(world.usage().await, Usage::default());
}
