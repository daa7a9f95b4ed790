//! Append, lease, acknowledge and release; idempotency keys.

use std::sync::Arc;

use super::{
    super::{
        Acknowledge, Append, Appended, Audience, KeyReservation, RecipientRefusal, Release, Released, SendResult,
        Storage,
    },
    world::{DELIVERY_LIMIT, World, accepted, append, depth, done, fresh_project, full},
};
use crate::model::{
    DeadLetterReason, DeliveryStatus, Headers, MessageId, Priority, SessionId, Transformed, Transforms,
};

pub async fn messages_of_equal_priority_are_leased_in_the_order_accepted(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 5).await;
    assert_eq!(world.leases(world.bob, 2).await, sent[..2]);
    assert_eq!(world.leases(world.bob, 10).await, sent[2..]);
    assert_eq!(world.leases(world.bob, 10).await, []);
}

pub async fn a_message_of_higher_priority_overtakes_waiting_ones(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let mut sent = Vec::new();
    for priority in [
        Priority::Low,
        Priority::Normal,
        Priority::High,
        Priority::Urgent,
        Priority::Low,
    ] {
        sent.push(world.sends_urgently(world.bob, priority).await);
    }
    assert_eq!(world.leases(world.bob, 1).await, [sent[3]]);
    let late = world.sends_urgently(world.bob, Priority::Urgent).await;
    assert_eq!(
        world.leases(world.bob, 10).await,
        [late, sent[2], sent[1], sent[0], sent[4]]
    );
}

pub async fn what_waits_is_read_in_its_order_and_stays(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let peeks = async |limit, bytes_max| {
        let peeked = done(world.store.peek(world.bob, limit, bytes_max)).await;
        let ids: Vec<_> = peeked.messages.iter().map(|message| message.id).collect();
        (peeked.waiting, ids)
    };
    assert_eq!(peeks(10, usize::MAX).await, (0, Vec::new()));
    let mut sent = world.sends_many(world.bob, 5).await;
    sent.insert(0, world.sends_urgently(world.bob, Priority::Urgent).await);
    for _ in 0..2 {
        assert_eq!(peeks(10, 1 << 20).await, (6, sent.clone()));
    }
    assert_eq!(peeks(2, 1 << 20).await, (6, sent[..2].to_vec()));
    assert_eq!(world.depth(world.bob).await, depth(6, 0));
    // What is leased does not wait.
    assert_eq!(world.leases(world.bob, 2).await, sent[..2]);
    assert_eq!(peeks(10, 1 << 20).await, (4, sent[2..].to_vec()));
    let unknown = done(world.store.peek(SessionId::generate(), 10, 1 << 20)).await;
    assert_eq!((unknown.waiting, unknown.messages.len()), (0, 0));
}

pub async fn a_full_inbox_refuses_messages(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    for (number, answer) in [accepted(1), accepted(2), full(&[world.bob], 2)]
        .into_iter()
        .enumerate()
    {
        let append = Append {
            queue_capacity: 2,
            ..world.direct(world.bob, &Headers::default())
        };
        assert_eq!(world.append(append).await, answer, "message {number}");
    }
    assert_eq!(world.depth(world.bob).await, depth(2, 0));
}

pub async fn leased_messages_count_against_the_capacity(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let next = || Append {
        queue_capacity: 2,
        ..world.direct(world.bob, &Headers::default())
    };
    world.sends_many(world.bob, 2).await;
    let leased = world.leases(world.bob, 2).await;
    assert_eq!(world.append(next()).await, full(&[world.bob], 2));
    world.acknowledges(world.bob, &leased[..1]).await;
    assert_eq!(world.append(next()).await, accepted(1));
}

pub async fn an_unknown_session_refuses_messages(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let unknown = SessionId::generate();
    let append = world.direct(unknown, &Headers::default());
    let refused = Appended::refused_by_all(&[unknown], RecipientRefusal::Gone);
    assert_eq!(world.append(append).await, refused);
    assert_eq!(world.leases(unknown, 1).await, []);
    assert_eq!(world.depth(unknown).await, depth(0, 0));
}

pub async fn a_message_refused_by_all_recipients_is_not_stored(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let append = Append {
        queue_capacity: 0,
        ..world.broadcast(&[world.bob, world.carol])
    };
    let id = append.message.id;
    assert_eq!(world.append(append).await, full(&[world.bob, world.carol], 0));
    assert_eq!(done(world.store.message_status(id, world.now)).await, None);
    assert_eq!(world.dead().await, []);
}

pub async fn a_broadcast_reaches_every_recipient_that_does_not_refuse(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (unknown, waiting) = (SessionId::generate(), world.sends(world.carol).await);
    let append = world.broadcast(&[world.bob, unknown, world.carol]);
    let id = append.message.id;
    let answer = Appended::Accepted {
        queue_len: 2,
        refused: vec![unknown],
        refusal: Some(RecipientRefusal::Gone),
    };
    assert_eq!(world.append(append).await, answer);
    assert_eq!(world.leases(world.bob, 9).await, [id]);
    assert_eq!(world.leases(world.carol, 9).await, [waiting, id]);
    let mut all = vec![
        (world.bob, DeliveryStatus::Delivered),
        (world.carol, DeliveryStatus::Delivered),
    ];
    all.sort_unstable_by_key(|(session, _)| *session);
    assert_eq!(world.statuses(id).await, all);
}

pub async fn each_message_of_a_batch_is_accepted_by_itself(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let direct = |to, queue_capacity| Append {
        queue_capacity,
        ..world.direct(to, &Headers::default())
    };
    let batch = vec![
        direct(world.bob, 1),
        direct(world.bob, 1),
        direct(world.carol, 1),
        direct(world.bob, 2),
    ];
    let ids: Vec<_> = batch.iter().map(|append| append.message.id).collect();
    let answers = done(world.store.append(batch, world.now)).await;
    assert_eq!(answers, [accepted(1), full(&[world.bob], 1), accepted(1), accepted(2)]);
    assert_eq!(world.leases(world.bob, 9).await, [ids[0], ids[3]]);
}

pub async fn a_message_is_leased_once_until_it_is_released(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let id = world.sends(world.bob).await;
    let leased = done(world.store.lease(world.bob, None, 9, usize::MAX, world.now)).await;
    assert_eq!((leased.deliveries.len(), leased.depth), (1, depth(0, 1)));
    assert_eq!(world.leases(world.bob, 9).await, []);
    let released = world.releases(world.bob, Release::Ids(vec![id])).await;
    assert_eq!(released, returned(1, depth(1, 0)));
    assert_eq!(world.leases_counted(world.bob, 9).await, [(id, 2)]);
}

pub async fn a_lease_ends_before_the_first_message_beyond_its_bytes(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(world.sends(world.bob).await);
    }
    let lease = async |session, bytes_max| {
        let leased = done(world.store.lease(session, None, 9, bytes_max, world.now)).await;
        let ids: Vec<_> = leased.deliveries.iter().map(|delivery| delivery.message.id).collect();
        (ids, leased.blocked_bytes, leased.depth)
    };
    let (none, beyond, _) = lease(world.bob, 0).await;
    let len = beyond.unwrap();
    assert_eq!(none, []);
    assert_eq!(lease(world.bob, len - 1).await, (vec![], Some(len), depth(3, 0)));
    let two = sent[..2].to_vec();
    assert_eq!(lease(world.bob, 3 * len - 1).await, (two, Some(len), depth(1, 2)));
    assert_eq!(lease(world.bob, len).await, (sent[2..].to_vec(), None, depth(0, 3)));

    // The same for messages that were accepted together.
    let sent = world.sends_many(world.carol, 5).await;
    let mut taken = Vec::new();
    while taken.len() < sent.len() {
        let (ids, beyond, _) = lease(world.carol, 2 * len).await;
        assert!(matches!(ids.len(), 1 | 2), "{ids:?}");
        taken.extend(ids);
        assert_eq!(beyond.is_some(), taken.len() < sent.len());
    }
    assert_eq!(taken, sent);
}

pub async fn a_released_message_keeps_its_place_in_the_queue(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 5).await;
    world.leases(world.bob, 4).await;
    let released = world.releases(world.bob, Release::Ids(vec![sent[2], sent[0]])).await;
    assert_eq!(released, returned(2, depth(3, 2)));
    assert_eq!(world.leases(world.bob, 1).await, [sent[0]]);
    world.releases(world.bob, Release::Ids(vec![sent[1]])).await;
    assert_eq!(world.leases(world.bob, 9).await, [sent[1], sent[2], sent[4]]);
}

pub async fn released_messages_return_in_their_order_and_count_their_deliveries(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 3).await;
    let urgent = world.sends_urgently(world.bob, Priority::Urgent).await;
    world.leases(world.bob, 3).await;
    assert_eq!(world.releases_all(world.bob).await, returned(3, depth(4, 0)));
    let again = [(urgent, 2), (sent[0], 2), (sent[1], 2), (sent[2], 1)];
    assert_eq!(world.leases_counted(world.bob, 9).await, again);
}

pub async fn an_acknowledged_message_is_not_delivered_again(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 3).await;
    world.leases(world.bob, 3).await;
    let answer = world.acknowledges(world.bob, &[sent[2], sent[0], sent[2]]).await;
    assert_eq!(
        (answer.acknowledged, answer.unknown, answer.depth),
        (2, vec![sent[2]], depth(0, 1))
    );
    world.releases_all(world.bob).await;
    assert_eq!(world.leases(world.bob, 9).await, [sent[1]]);
    assert_eq!(
        world.statuses(sent[0]).await,
        [(world.bob, DeliveryStatus::Acknowledged)]
    );
}

pub async fn an_acknowledgement_after_a_release_still_counts(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 3).await;
    world.leases(world.bob, 3).await;
    world.releases_all(world.bob).await;
    let answer = world.acknowledges(world.bob, &sent[1..2]).await;
    assert_eq!((answer.acknowledged, answer.depth), (1, depth(2, 0)));
    assert_eq!(world.leases(world.bob, 9).await, [sent[0], sent[2]]);
}

pub async fn what_was_not_handed_out_does_not_count_as_delivered(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 3).await;
    let returns = async |ids: &[MessageId]| world.releases(world.bob, Release::Undelivered(ids.to_vec())).await;
    world.leases(world.bob, 3).await;
    for _ in 0..=DELIVERY_LIMIT {
        assert_eq!(returns(&sent[1..]).await, returned(2, depth(2, 1)));
        assert_eq!(world.leases_counted(world.bob, 9).await, [(sent[1], 1), (sent[2], 1)]);
    }
    returns(&sent[1..]).await;
    let queued = [(world.bob, DeliveryStatus::Queued)];
    assert_eq!(world.statuses(sent[1]).await, queued);
    let answer = world.acknowledges(world.bob, &sent).await;
    assert_eq!(
        (answer.acknowledged, answer.unknown, answer.depth),
        (1, sent[1..].to_vec(), depth(2, 0))
    );
    // An earlier delivery counts.
    assert_eq!(world.leases_counted(world.bob, 1).await, [(sent[1], 1)]);
    world.releases(world.bob, Release::Ids(vec![sent[1]])).await;
    for _ in 0..=DELIVERY_LIMIT {
        assert_eq!(world.leases_counted(world.bob, 1).await, [(sent[1], 2)]);
        assert_eq!(returns(&sent[1..2]).await, returned(1, depth(2, 0)));
    }
    assert_eq!(world.leases_counted(world.bob, 9).await, [(sent[1], 2), (sent[2], 1)]);
    returns(&sent[1..2]).await;
    let up_to = world
        .store
        .acknowledge(world.bob, Acknowledge::UpTo(sent[1]), world.now);
    let answer = done(up_to).await;
    assert_eq!((answer.acknowledged, answer.depth), (1, depth(0, 1)));
}

pub async fn acknowledging_up_to_a_message_acknowledges_all_leased_before_it(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 3).await;
    world.leases(world.bob, 2).await;
    let urgent = world.sends_urgently(world.bob, Priority::Urgent).await;
    assert_eq!(world.leases(world.bob, 2).await, [urgent, sent[2]]);
    world.releases(world.bob, Release::Ids(vec![sent[0]])).await;
    let up_to = |id| world.store.acknowledge(world.bob, Acknowledge::UpTo(id), world.now);

    let answer = done(up_to(urgent)).await;
    assert_eq!(
        (answer.acknowledged, answer.unknown, answer.depth),
        (2, vec![], depth(1, 1))
    );
    let answer = done(up_to(urgent)).await;
    assert_eq!((answer.acknowledged, answer.unknown), (0, vec![urgent]));
    assert_eq!(
        world.leases(world.bob, 9).await,
        [sent[0]],
        "what was given back is not acknowledged"
    );
}

pub async fn an_undelivered_message_cannot_be_acknowledged(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (to_bob, to_carol) = (world.sends(world.bob).await, world.sends(world.carol).await);
    world.leases(world.carol, 1).await;
    let answer = world.acknowledges(world.bob, &[to_bob, to_carol]).await;
    assert_eq!((answer.acknowledged, answer.unknown), (0, vec![to_bob, to_carol]));
    assert_eq!(
        (answer.depth, world.depth(world.carol).await),
        (depth(1, 0), depth(0, 1))
    );
}

pub async fn what_was_seen_in_another_way_leaves_the_inbox(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let seen = |ids: &[MessageId]| {
        world
            .store
            .acknowledge(world.bob, Acknowledge::Seen(ids.to_vec()), world.now)
    };
    let sent = world.sends_many(world.bob, 12).await;
    let urgent = world.sends_urgently(world.bob, Priority::Urgent).await;
    let to_carol = world.sends(world.carol).await;
    let answer = done(seen(&[sent[11], to_carol, urgent])).await;
    assert_eq!((answer.acknowledged, answer.unknown), (2, vec![to_carol]));
    assert_eq!(answer.depth, depth(11, 0));
    assert_eq!(
        world.statuses(sent[11]).await,
        [(world.bob, DeliveryStatus::Acknowledged)]
    );
    // Delivered, and returned after a delivery.
    assert_eq!(world.leases(world.bob, 2).await, [sent[0], sent[1]]);
    world.releases(world.bob, Release::Ids(vec![sent[1]])).await;
    let answer = done(seen(&sent[..2])).await;
    assert_eq!((answer.acknowledged, answer.depth), (2, depth(9, 0)));
    // The last ones leave a short queue.
    assert_eq!(done(seen(&sent[3..])).await.acknowledged, 8);
    let answer = done(seen(&sent)).await;
    assert_eq!((answer.acknowledged, answer.depth), (1, depth(0, 0)));
    assert_eq!(done(seen(&sent)).await.acknowledged, 0);
}

pub async fn an_acknowledgement_reports_tracked_messages(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let tracked = world.seal(world.alice, Some(world.bob), &Headers::default(), true);
    let id = tracked.id;
    world.append(append(tracked, Audience::One(world.bob))).await;
    let other = world.sends(world.bob).await;
    world.leases(world.bob, 2).await;
    let answer = world.acknowledges(world.bob, &[id, other]).await;
    let named: Vec<MessageId> = answer.tracked.iter().map(|message| message.id).collect();
    assert_eq!((answer.acknowledged, named), (2, vec![id]));
}

pub async fn a_message_released_too_often_is_dead_lettered(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let message = world.seal(world.alice, Some(world.bob), &Headers::default(), true);
    let (id, progress) = (
        message.id,
        message.progress.subscribe().expect("the message is tracked"),
    );
    world.append(append(message, Audience::One(world.bob))).await;
    for count in 1..DELIVERY_LIMIT {
        assert_eq!(world.leases_counted(world.bob, 1).await, [(id, count)]);
        assert_eq!(world.releases_all(world.bob).await, returned(1, depth(1, 0)));
    }
    world.leases(world.bob, 1).await;
    let dead = Released {
        returned: 0,
        dead: 1,
        depth: depth(0, 0),
    };
    assert_eq!(world.releases_all(world.bob).await, dead);
    assert_eq!(world.dead().await, [(id, world.bob, DeadLetterReason::DeliveryLimit)]);
    assert_eq!(world.dead_letters().await[0].deliveries, DELIVERY_LIMIT);
    let status = DeliveryStatus::DeadLettered(DeadLetterReason::DeliveryLimit);
    assert_eq!(world.statuses(id).await, [(world.bob, status)]);
    assert_eq!(*progress.borrow(), status, "the sender in this process sees it");
    assert_eq!(world.acknowledges(world.bob, &[id]).await.unknown, [id]);
}

pub async fn a_repeated_idempotency_key_answers_the_first_result(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let again = || keyed(world.direct(world.bob, &Headers::default()), "k");
    let batch = vec![again(), again()];
    let id = batch[0].message.id;
    let first = SendResult::accepted(id, 1, 1, vec![]);
    let answers = done(world.store.append(batch, world.now)).await;
    assert_eq!(answers, [accepted(1), Appended::Duplicate(first.clone())]);
    assert_eq!(world.append(again()).await, Appended::Duplicate(first.clone()));

    let settled = SendResult {
        delivered: 1,
        queued: 0,
        delivered_at_ms: Some(5),
        transforms: Some(transforms()),
        ..first
    };
    done(
        world
            .store
            .update_send_result(world.alice, "k".to_owned(), settled.clone()),
    )
    .await;
    assert_eq!(world.append(again()).await, Appended::Duplicate(settled));
    assert_eq!(world.leases(world.bob, 9).await, [id], "it was sent once");
}

pub async fn a_reserved_key_sends_nothing_in_its_own_project(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (here, there) = (
        || keyed(world.direct(world.bob, &Headers::default()), "k"),
        fresh_project(),
    );
    assert_eq!(world.reserves(world.alice, "k", &there).await, KeyReservation::New);
    assert_eq!(world.append(here()).await, Appended::KeyReserved);
    assert_eq!(world.leases(world.bob, 9).await, []);
    // Keys belong to their sender.
    assert_eq!(world.reserves(world.bob, "k", &there).await, KeyReservation::New);

    let first = SendResult::accepted(world.message(None, &Headers::default()).id, 1, 1, vec![]);
    done(
        world
            .store
            .complete_reservation(world.alice, "k".to_owned(), first.clone()),
    )
    .await;
    assert_eq!(world.append(here()).await, Appended::Duplicate(first.clone()));
    assert_eq!(
        world.reserves(world.alice, "k", &there).await,
        KeyReservation::Completed(first.clone())
    );
    // The first result stays.
    let second = SendResult {
        queue_len: 2,
        ..first.clone()
    };
    done(world.store.complete_reservation(world.alice, "k".to_owned(), second)).await;
    assert_eq!(world.append(here()).await, Appended::Duplicate(first));
}

pub async fn a_key_is_reserved_for_one_project(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (there, elsewhere) = (fresh_project(), fresh_project());
    assert_eq!(world.reserves(world.alice, "k", &there).await, KeyReservation::New);
    assert_eq!(
        world.reserves(world.alice, "k", &elsewhere).await,
        KeyReservation::OtherProject
    );
    assert_eq!(world.reserves(world.alice, "k", &there).await, KeyReservation::Repeated);
    assert_eq!(
        world.reserves(world.alice, "k", &elsewhere).await,
        KeyReservation::OtherProject
    );
}

pub async fn a_reservation_is_cancelled_unless_another_send_has_found_it(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (there, elsewhere) = (fresh_project(), fresh_project());
    let free = |key: &str| done(world.store.cancel_reservation(world.alice, key.to_owned()));
    free("k").await;
    assert_eq!(world.reserves(world.alice, "k", &there).await, KeyReservation::New);
    free("k").await;
    assert_eq!(world.reserves(world.alice, "k", &elsewhere).await, KeyReservation::New);
    assert_eq!(
        world.reserves(world.alice, "k", &elsewhere).await,
        KeyReservation::Repeated
    );
    free("k").await;
    assert_eq!(
        world.reserves(world.alice, "k", &there).await,
        KeyReservation::OtherProject
    );
    // A key with a result is not a reservation.
    let first = keyed(world.direct(world.bob, &Headers::default()), "sent");
    let result = SendResult::accepted(first.message.id, 1, 1, vec![]);
    assert_eq!(world.append(first).await, accepted(1));
    free("sent").await;
    assert_eq!(
        world.reserves(world.alice, "sent", &there).await,
        KeyReservation::Completed(result)
    );
}

pub async fn an_idempotency_key_belongs_to_its_sender(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let from = |sender| {
        let message = world.seal(sender, Some(world.bob), &Headers::default(), false);
        keyed(append(message, Audience::One(world.bob)), "k")
    };
    assert_eq!(world.append(from(world.alice)).await, accepted(1));
    assert_eq!(world.append(from(world.carol)).await, accepted(2));
}

pub async fn a_refused_send_leaves_its_idempotency_key_free(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let refused = Append {
        queue_capacity: 0,
        ..keyed(world.direct(world.bob, &Headers::default()), "k")
    };
    assert_eq!(world.append(refused).await, full(&[world.bob], 0));
    let again = keyed(world.direct(world.bob, &Headers::default()), "k");
    assert_eq!(world.append(again).await, accepted(1));
}

/// What lenses do to a message that one recipient gets in another version and that fails for another one.
fn transforms() -> Arc<Transforms> {
    let [from, to] = ["1.0.0", "2.0.0"].map(|version| version.parse().expect("it is a version"));
    let transformed = Transformed::new(from, to, vec!["/a b,c".to_owned()], Vec::new(), true);
    Arc::new(Transforms {
        versions: vec![(Arc::new(transformed), 1)],
        failed: vec![SessionId::generate()],
    })
}

fn keyed(append: Append, key: &str) -> Append {
    Append {
        idempotency_key: Some(key.to_owned()),
        ..append
    }
}

fn returned(returned: usize, depth: super::super::Depth) -> Released {
    Released {
        returned,
        dead: 0,
        depth,
    }
}
