//! What is kept with the receipt of a message: what its recipient says of it, and what lenses did to it. A rejected message
//! is a dead letter.

use std::sync::Arc;

use semver::Version;

use super::{
    super::{Acknowledge, Acknowledged, Storage},
    world::{World, depth, done},
};
use crate::model::{
    DeadLetterReason, DeliveryStatus, Headers, MessageId, NOTE_CHARACTERS_MAX, Outcome, OutcomeKind, SessionId,
    Transformed,
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

fn transformed(to: u64, defaulted: &[&str]) -> Arc<Transformed> {
    let defaulted = defaulted.iter().map(ToString::to_string).collect();
    let (from, to) = (Version::new(1, 0, 0), Version::new(to, 0, 0));
    Arc::new(Transformed::new(from, to, vec!["/a/*".to_owned()], defaulted, false))
}

impl World {
    async fn notes(&self, session: SessionId, id: MessageId, transformed: &Arc<Transformed>) {
        let notes = vec![(id, Arc::clone(transformed))];
        done(self.store.note_transformed(session, notes)).await;
    }

    /// Of a message to one recipient.
    async fn form(&self, id: MessageId) -> (DeliveryStatus, Option<Arc<Transformed>>) {
        let statuses = done(self.store.message_status(id, self.now)).await.unwrap_or_default();
        assert_eq!(statuses.len(), 1);
        (statuses[0].status, statuses[0].transformed.clone())
    }
}

pub async fn what_lenses_did_at_the_last_delivery_is_kept_with_the_receipt(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 3).await;
    world.leases(world.bob, 3).await;
    let (first, second) = (transformed(2, &[]), transformed(3, &["/size"]));
    let notes = sent.iter().map(|&id| (id, Arc::clone(&first))).collect();
    done(world.store.note_transformed(world.bob, notes)).await;
    let delivered = (DeliveryStatus::Delivered, Some(Arc::clone(&first)));
    assert_eq!(world.form(sent[0]).await, delivered);
    world.acknowledges(world.bob, &sent[..1]).await;
    let outcome = Outcome::new(OutcomeKind::Done, "late");
    concludes(&world, world.bob, &sent[1..2], &outcome).await;
    let acknowledged = (DeliveryStatus::Acknowledged, Some(Arc::clone(&first)));
    assert_eq!(world.form(sent[0]).await, acknowledged);
    assert_eq!(world.form(sent[1]).await, acknowledged);
    assert_eq!(outcomes(&world, sent[1]).await[0].2, Some(outcome));

    // The next delivery is as sent, the one after it in another version.
    world.releases_all(world.bob).await;
    assert_eq!(world.form(sent[2]).await, (DeliveryStatus::Queued, Some(first)));
    world.leases(world.bob, 1).await;
    assert_eq!(world.form(sent[2]).await, (DeliveryStatus::Delivered, None));
    world.releases_all(world.bob).await;
    world.leases(world.bob, 1).await;
    world.notes(world.bob, sent[2], &second).await;
    let outcome = Outcome::new(OutcomeKind::Rejected, "");
    concludes(&world, world.bob, &sent[2..], &outcome).await;
    let rejected = DeliveryStatus::DeadLettered(DeadLetterReason::Rejected);
    assert_eq!(world.form(sent[2]).await, (rejected, Some(second)));
    done(world.store.redrive(vec![sent[2]], None, 10, world.now)).await;
    assert_eq!(world.form(sent[2]).await, (DeliveryStatus::Queued, None));
}

pub async fn each_recipient_of_a_broadcast_has_its_own_form(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let append = world.broadcast(&[world.bob, world.carol, world.alice]);
    let id = append.message.id;
    world.append(append).await;
    for session in [world.bob, world.carol, world.alice] {
        world.leases(session, 1).await;
    }
    let (to_bob, to_carol) = (transformed(2, &[]), transformed(3, &["/size"]));
    world.notes(world.bob, id, &to_bob).await;
    world.notes(world.carol, id, &to_carol).await;
    world.acknowledges(world.bob, &[id]).await;
    let statuses = done(world.store.message_status(id, world.now))
        .await
        .unwrap_or_default();
    let form = |session| {
        let row = statuses.iter().find(|row| row.session == session);
        row.and_then(|row| row.transformed.clone())
    };
    assert_eq!(
        (form(world.bob), form(world.carol), form(world.alice)),
        (Some(to_bob), Some(to_carol), None)
    );
}
