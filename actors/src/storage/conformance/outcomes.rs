//! Outcomes: what a recipient says of a message is kept with its receipt, and a rejected message is a dead letter.

use std::sync::Arc;

use super::{
    super::{Acknowledge, Acknowledged, Storage},
    world::{World, depth, done},
};
use crate::model::{
    DeadLetterReason, DeliveryStatus, Headers, MessageId, NOTE_CHARACTERS_MAX, Outcome, OutcomeKind, SessionId,
};

async fn concludes(world: &World, session: SessionId, ids: &[MessageId], outcome: &Arc<Outcome>) -> Acknowledged {
    let which = Acknowledge::Concluded(ids.to_vec(), Arc::clone(outcome));
    done(world.store.acknowledge(session, which, world.now)).await
}

async fn outcomes(world: &World, id: MessageId) -> Vec<(SessionId, DeliveryStatus, Option<Arc<Outcome>>)> {
    let statuses = done(world.store.message_status(id, world.now))
        .await
        .unwrap_or_default();
    let outcomes = statuses
        .into_iter()
        .map(|recipient| (recipient.session, recipient.status, recipient.outcome));
    outcomes.collect()
}

pub async fn an_outcome_is_kept_with_its_receipt(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 3).await;
    world.leases(world.bob, 3).await;
    let done = Outcome::new(OutcomeKind::Done, "");
    let longest = Outcome::new(OutcomeKind::Blocked, &"! \u{1f980}".repeat(NOTE_CHARACTERS_MAX / 3));
    let answer = concludes(&world, world.bob, &sent[..1], &done).await;
    assert_eq!((answer.acknowledged, answer.dead, answer.depth), (1, 0, depth(0, 2)));
    let unknown = world.message(None, &Headers::default()).id;
    let answer = concludes(&world, world.bob, &[sent[1], unknown, sent[1]], &longest).await;
    assert_eq!((answer.acknowledged, answer.unknown), (1, vec![unknown, sent[1]]));
    let answer = concludes(&world, world.bob, &sent[..1], &longest).await;
    assert_eq!(answer.unknown, [sent[0]], "the first outcome stays");
    let acknowledged = |outcome| vec![(world.bob, DeliveryStatus::Acknowledged, outcome)];
    assert_eq!(outcomes(&world, sent[0]).await, acknowledged(Some(done)));
    assert_eq!(outcomes(&world, sent[1]).await, acknowledged(Some(longest)));
    world.acknowledges(world.bob, &sent[2..]).await;
    assert_eq!(outcomes(&world, sent[2]).await, acknowledged(None));
}

pub async fn each_recipient_of_a_broadcast_has_its_own_outcome(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let append = world.broadcast(&[world.bob, world.carol]);
    let id = append.message.id;
    world.append(append).await;
    world.leases(world.bob, 1).await;
    world.leases(world.carol, 1).await;
    let outcome = Outcome::new(OutcomeKind::Blocked, "no access");
    concludes(&world, world.bob, &[id], &outcome).await;
    world.acknowledges(world.carol, &[id]).await;
    let mut found = outcomes(&world, id).await;
    found.sort_unstable_by_key(|(session, ..)| *session != world.bob);
    let status = DeliveryStatus::Acknowledged;
    assert_eq!(found, [(world.bob, status, Some(outcome)), (world.carol, status, None)]);
}

pub async fn a_rejected_message_becomes_a_dead_letter(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 3).await;
    world.leases(world.bob, 2).await;
    // One that waits again can be rejected as well; one that was never delivered cannot.
    world.releases_all(world.bob).await;
    world.leases(world.bob, 1).await;
    let outcome = Outcome::new(OutcomeKind::Rejected, "not mine");
    let answer = concludes(&world, world.bob, &sent, &outcome).await;
    assert_eq!((answer.acknowledged, answer.dead), (2, 2));
    assert_eq!((answer.unknown, answer.depth), (vec![sent[2]], depth(1, 0)));
    let reason = DeadLetterReason::Rejected;
    let expected: Vec<_> = sent[..2].iter().map(|&id| (id, world.bob, reason)).collect();
    assert_eq!(world.dead().await, expected);
    let rejected = (
        world.bob,
        DeliveryStatus::DeadLettered(reason),
        Some(Arc::clone(&outcome)),
    );
    assert_eq!(outcomes(&world, sent[0]).await, [rejected]);

    // A redriven message is open again and has no outcome until there is a new one.
    done(world.store.redrive(vec![sent[0]], None, 10, world.now)).await;
    assert_eq!(
        outcomes(&world, sent[0]).await,
        [(world.bob, DeliveryStatus::Queued, None)]
    );
    assert_eq!(world.leases(world.bob, 9).await, [sent[2], sent[0]]);
    world.acknowledges(world.bob, &[sent[0]]).await;
    assert_eq!(
        outcomes(&world, sent[0]).await,
        [(world.bob, DeliveryStatus::Acknowledged, None)]
    );
}

pub async fn a_message_that_cannot_be_transformed_becomes_a_dead_letter(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 2).await;
    world.leases(world.bob, 1).await;
    let outcome = Outcome::new(OutcomeKind::TransformFailed, "the result does not fit");
    let answer = concludes(&world, world.bob, &sent[..1], &outcome).await;
    assert_eq!((answer.acknowledged, answer.dead, answer.depth), (1, 1, depth(1, 0)));
    let reason = DeadLetterReason::TransformFailed;
    assert_eq!(world.dead().await, [(sent[0], world.bob, reason)]);
    let failed = (world.bob, DeliveryStatus::DeadLettered(reason), Some(outcome));
    assert_eq!(outcomes(&world, sent[0]).await, [failed]);
    assert_eq!(world.leases(world.bob, 9).await, [sent[1]]);
}
