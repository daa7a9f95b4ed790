//! Times to live and the idempotency window.

use std::{sync::Arc, time::Duration};

use super::{
    super::{Append, Appended, Audience, KeyReservation, Released, Retention, SendResult, Storage},
    world::{CAPACITY, World, accepted, append, depth, done, fresh_project, record},
};
use crate::model::{DeadLetterReason, DeliveryStatus, Headers, SessionName, SessionRecord};

const TTL: u64 = 10;
const LONG: Duration = Duration::from_secs(TTL);
const SHORT: Duration = Duration::from_secs(TTL - 1);

pub async fn an_expired_message_is_dead_lettered_instead_of_delivered(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let name = SessionName::parse("bob").ok();
    world
        .puts_session(SessionRecord {
            name: name.clone(),
            ..record(world.bob)
        })
        .await;
    let short_lived = Headers {
        ttl_seconds: Some(TTL),
        ..Headers::default()
    };
    let message = world.seal(world.alice, Some(world.bob), &short_lived, true);
    let (id, progress) = (
        message.id,
        message.progress.subscribe().expect("the message is tracked"),
    );
    world.append(append(message, Audience::One(world.bob))).await;
    let lasting = world.sends(world.bob).await;
    world.pass(LONG);
    let leased = done(world.store.lease(world.bob, None, 1, usize::MAX, world.now)).await;
    assert_eq!((leased.deliveries[0].message.id, leased.depth), (lasting, depth(0, 1)));
    assert_eq!(world.dead().await, [(id, world.bob, DeadLetterReason::Expired)]);
    assert_eq!(world.dead_letters().await[0].recipient_name, name);
    assert_eq!(
        *progress.borrow(),
        DeliveryStatus::Expired,
        "the sender in this process sees it"
    );
}

pub async fn an_expired_message_frees_its_place_in_the_queue(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    world.sends_for(world.bob, TTL).await;
    world.pass(LONG);
    let next = Append {
        queue_capacity: 1,
        ..world.direct(world.bob, &Headers::default())
    };
    assert_eq!(world.append(next).await, accepted(1));
}

pub async fn a_receipt_shows_the_expiry_at_once(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let id = world.sends_for(world.bob, TTL).await;
    world.pass(SHORT);
    assert_eq!(world.statuses(id).await, [(world.bob, DeliveryStatus::Queued)]);
    world.pass(LONG);
    assert_eq!(world.statuses(id).await, [(world.bob, DeliveryStatus::Expired)]);
    assert_eq!(world.dead().await, [(id, world.bob, DeadLetterReason::Expired)]);
}

pub async fn a_sweep_reports_the_inboxes_that_lost_a_message(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let id = world.sends_for(world.bob, TTL).await;
    world.sends_many(world.bob, 2).await;
    world.sends(world.carol).await;
    world.pass(SHORT);
    let swept = done(world.store.sweep(world.now)).await;
    assert_eq!(swept.expired_in, []);
    assert!(swept.next_within <= LONG, "the next sweep finds the expired message");
    world.pass(LONG);
    assert_eq!(done(world.store.sweep(world.now)).await.expired_in, [(world.bob, 2)]);
    assert_eq!(done(world.store.sweep(world.now)).await.expired_in, []);
    assert_eq!(world.statuses(id).await, [(world.bob, DeliveryStatus::Expired)]);
}

pub async fn a_message_delivered_in_time_can_be_acknowledged_late(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let id = world.sends_for(world.bob, TTL).await;
    world.leases(world.bob, 1).await;
    world.pass(LONG);
    assert_eq!(done(world.store.sweep(world.now)).await.expired_in, []);
    assert_eq!(world.statuses(id).await, [(world.bob, DeliveryStatus::Delivered)]);
    assert_eq!(world.acknowledges(world.bob, &[id]).await.acknowledged, 1);
    assert_eq!(world.dead().await, []);
}

pub async fn a_message_released_after_its_deadline_is_dead_lettered(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let early = world.sends_for(world.bob, TTL).await;
    let late = world.sends_for(world.bob, 3 * TTL).await;
    world.leases(world.bob, 2).await;
    world.pass(LONG);
    let released = Released {
        returned: 1,
        dead: 1,
        depth: depth(1, 0),
    };
    assert_eq!(world.releases_all(world.bob).await, released);
    assert_eq!(world.statuses(early).await, [(world.bob, DeliveryStatus::Expired)]);
    world.pass(2 * LONG);
    assert_eq!(world.leases(world.bob, 9).await, []);
    let expected = [early, late].map(|id| (id, world.bob, DeadLetterReason::Expired));
    assert_eq!(world.dead().await, expected);
}

pub async fn a_redriven_message_has_a_new_time_to_live(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let id = world.sends_for(world.bob, TTL).await;
    world.pass(LONG);
    done(world.store.sweep(world.now)).await;
    let redriven = done(world.store.redrive(vec![id], None, CAPACITY, world.now)).await;
    assert_eq!(redriven.sent, [(id, world.bob, 1)]);
    world.pass(SHORT);
    assert_eq!(world.statuses(id).await, [(world.bob, DeliveryStatus::Queued)]);
    world.pass(SHORT);
    assert_eq!(world.statuses(id).await, [(world.bob, DeliveryStatus::Expired)]);
}

pub async fn an_idempotency_key_is_free_after_its_window(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let keyed = |world: &World| Append {
        idempotency_key: Some("k".to_owned()),
        ..world.direct(world.bob, &Headers::default())
    };
    let first = keyed(&world);
    let result = SendResult::accepted(first.message.id, 1, 1, vec![]);
    assert_eq!(world.append(first).await, accepted(1));
    let window = Retention::default().idempotency_window;
    world.pass(window.saturating_sub(Duration::from_secs(1)));
    assert_eq!(world.append(keyed(&world)).await, Appended::Duplicate(result));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.append(keyed(&world)).await, accepted(2));
}

pub async fn a_reservation_ends_one_window_after_it_was_last_found(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let (there, elsewhere) = (fresh_project(), fresh_project());
    let almost = Retention::default()
        .idempotency_window
        .saturating_sub(Duration::from_secs(1));
    assert_eq!(world.reserves(world.alice, "k", &there).await, KeyReservation::New);
    world.pass(almost);
    assert_eq!(world.reserves(world.alice, "k", &there).await, KeyReservation::Repeated);
    world.pass(almost);
    assert_eq!(
        world.reserves(world.alice, "k", &elsewhere).await,
        KeyReservation::OtherProject
    );
    world.pass(Duration::from_secs(1));
    assert_eq!(world.reserves(world.alice, "k", &elsewhere).await, KeyReservation::New);
}
