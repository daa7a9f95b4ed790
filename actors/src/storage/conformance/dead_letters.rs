//! Dead letters: how they arise, are listed and redriven.

use std::sync::Arc;

use super::{
    super::{
        Acknowledge, BlockedDeadLetter, DeadLetterQuery, REPORT_LEN_MAX, RedriveRefusal, Redriven, Storage, Unreported,
        envelope_bytes,
    },
    world::{CAPACITY, World, depth, done, record},
};
use crate::model::{
    DeadLetter, DeadLetterReason, DeliveryStatus, MessageId, Outcome, OutcomeKind, SessionId, SessionName,
    SessionRecord,
};

pub async fn the_messages_of_a_removed_session_become_dead_letters(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 3).await;
    let elsewhere = world.sends(world.carol).await;
    world.leases(world.bob, 1).await;
    let reason = DeadLetterReason::RecipientGone;
    assert_eq!(world.removes(world.bob, reason).await, 3);
    let expected: Vec<_> = sent.iter().map(|&id| (id, world.bob, reason)).collect();
    assert_eq!(world.dead().await, expected);
    assert_eq!(done(world.store.dead_letter_count()).await, 3);
    let deliveries: Vec<_> = world.dead_letters().await.iter().map(|dead| dead.deliveries).collect();
    assert_eq!(deliveries, [1, 0, 0]);
    assert_eq!(
        world.statuses(sent[2]).await,
        [(world.bob, DeliveryStatus::DeadLettered(reason))]
    );
    assert_eq!(world.leases(world.carol, 9).await, [elsewhere]);
}

pub async fn a_dead_letter_keeps_the_name_that_its_recipient_had(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let name = |text: &str| SessionName::parse(text).ok();
    let named = |text: &str| SessionRecord {
        name: name(text),
        ..record(world.bob)
    };
    world.puts_session(named("bob")).await;
    let tried_too_often = world.sends_dead_letter(world.bob).await;
    let rejected = world.sends(world.bob).await;
    world.leases(world.bob, 1).await;
    let outcome = Outcome::new(OutcomeKind::Rejected, "");
    let rejects = Acknowledge::Concluded(vec![rejected], outcome);
    done(world.store.acknowledge(world.bob, rejects, world.now)).await;
    world.puts_session(named("robert")).await;
    let waiting = world.sends(world.bob).await;
    let of_unnamed = world.sends(world.carol).await;
    for session in [world.bob, world.carol] {
        world.removes(session, DeadLetterReason::RecipientGone).await;
    }
    let expected = [
        (tried_too_often, name("bob")),
        (rejected, name("bob")),
        (waiting, name("robert")),
        (of_unnamed, None),
    ];
    let names = |dead: Vec<DeadLetter>| -> Vec<_> {
        let named = dead.into_iter().map(|dead| (dead.message.id, dead.recipient_name));
        named.collect()
    };
    assert_eq!(names(world.dead_letters().await), expected);
    let unreported = done(world.store.unreported()).await;
    assert_eq!(names(unreported.dead_letters), expected);

    // A redriven message is given up for its new recipient.
    world
        .puts_session(SessionRecord {
            name: name("heir"),
            ..record(world.carol)
        })
        .await;
    redrive(&world, &[waiting, of_unnamed], Some(world.carol)).await;
    world.removes(world.carol, DeadLetterReason::RecipientGone).await;
    let expected = [
        (tried_too_often, name("bob")),
        (rejected, name("bob")),
        (waiting, name("heir")),
        (of_unnamed, name("heir")),
    ];
    assert_eq!(names(world.dead_letters().await), expected);
}

pub async fn dead_letters_are_listed_in_pages(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world.append(world.broadcast(&[world.bob, world.carol])).await;
    world.sends_many(world.bob, 3).await;
    for session in [world.carol, world.bob] {
        world.removes(session, DeadLetterReason::Rejected).await;
    }
    let all: Vec<_> = world
        .dead()
        .await
        .into_iter()
        .map(|(message, session, _)| (message, session))
        .collect();
    assert!(all.len() == 5 && all.is_sorted(), "{all:?}");

    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = done(world.store.dead_letters(DeadLetterQuery {
            after,
            limit: 2,
            ..DeadLetterQuery::default()
        }))
        .await
        .dead_letters;
        assert!(page.len() <= 2);
        seen.extend(page.iter().map(|dead| (dead.message.id, dead.recipient)));
        after = seen.last().copied();
        if page.is_empty() {
            break;
        }
    }
    assert_eq!(seen, all);
    assert_eq!(
        done(world.store.dead_letters(DeadLetterQuery::default()))
            .await
            .dead_letters
            .len(),
        0
    );
}

pub async fn a_page_of_dead_letters_ends_before_the_first_beyond_its_bytes(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world.sends_many(world.bob, 5).await;
    world.removes(world.bob, DeadLetterReason::Rejected).await;
    let all = world.dead_letters().await;
    let lens: Vec<_> = all.iter().map(|dead| envelope_bytes(&dead.message)).collect();
    // The bytes allowed, and the number of dead letters that fit.
    for (bytes_max, len) in [
        (0, 0),
        (lens[0] - 1, 0),
        (lens[0] + lens[1] - 1, 1),
        (lens[0] + lens[1], 2),
        (lens.iter().sum(), 5),
    ] {
        let page = done(world.store.dead_letters(DeadLetterQuery {
            limit: 9,
            bytes_max,
            ..DeadLetterQuery::default()
        }))
        .await;
        assert_eq!(page.dead_letters.len(), len, "{bytes_max}");
        let beyond = all.get(len).map(|dead| BlockedDeadLetter {
            message: dead.message.id,
            recipient: dead.recipient,
            bytes: lens[len],
        });
        assert_eq!(page.blocked, beyond, "{bytes_max}");
    }
}

fn because(reason: DeadLetterReason) -> DeadLetterQuery {
    DeadLetterQuery {
        reason: Some(reason),
        limit: 9,
        ..DeadLetterQuery::default()
    }
}

pub async fn dead_letters_are_filtered_by_reason(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let tried = world.sends_dead_letter(world.bob).await;
    world.sends(world.carol).await;
    world.removes(world.carol, DeadLetterReason::RecipientGone).await;
    let found = done(world.store.dead_letters(because(DeadLetterReason::DeliveryLimit)))
        .await
        .dead_letters;
    assert_eq!(found.iter().map(|dead| dead.message.id).collect::<Vec<_>>(), [tried]);
    assert_eq!(
        done(world.store.dead_letters(because(DeadLetterReason::Expired)))
            .await
            .dead_letters
            .len(),
        0
    );
}

pub async fn a_redriven_message_is_new_at_the_end_of_its_queue(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (dead, unknown) = (
        world.sends_dead_letter(world.bob).await,
        world.message(None, &<_>::default()).id,
    );
    let waiting = world.sends(world.bob).await;
    let answer = redrive(&world, &[unknown, dead], None).await;
    assert_eq!(
        (answer.sent, answer.unknown, answer.refused),
        (vec![(dead, world.bob, 2)], vec![unknown], vec![])
    );
    assert_eq!(world.statuses(dead).await, [(world.bob, DeliveryStatus::Queued)]);
    assert_eq!(world.leases_counted(world.bob, 9).await, [(waiting, 1), (dead, 1)]);
    assert_eq!(
        (world.dead().await, done(world.store.dead_letter_count()).await),
        (vec![], 0)
    );
    assert_eq!(world.acknowledges(world.bob, &[dead]).await.acknowledged, 1);
    assert_eq!(world.statuses(dead).await, [(world.bob, DeliveryStatus::Acknowledged)]);
}

pub async fn a_redriven_message_may_go_to_another_session(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let dead = world.sends_dead_letter(world.bob).await;
    let answer = redrive(&world, &[dead], Some(world.carol)).await;
    assert_eq!(answer.sent, [(dead, world.carol, 1)]);
    let leased = done(world.store.lease(world.carol, None, 9, usize::MAX, world.now)).await;
    assert_eq!(leased.deliveries[0].message.recipient, Some(world.carol));
    assert_eq!(world.depth(world.bob).await, depth(0, 0));
    let mut all = vec![
        (world.bob, DeliveryStatus::DeadLettered(DeadLetterReason::DeliveryLimit)),
        (world.carol, DeliveryStatus::Delivered),
    ];
    all.sort_unstable_by_key(|(session, _)| *session);
    assert_eq!(world.statuses(dead).await, all);
}

pub async fn a_refused_redrive_keeps_the_dead_letter(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let dead = world.sends_dead_letter(world.bob).await;
    let to = |recipient, capacity| world.store.redrive(vec![dead], recipient, capacity, world.now);
    let gone = done(to(Some(SessionId::generate()), CAPACITY)).await;
    assert_eq!(
        (gone.sent, gone.refused),
        (vec![], vec![(dead, RedriveRefusal::RecipientGone)])
    );
    let full = done(to(None, 0)).await;
    assert_eq!(
        (full.sent, full.refused),
        (vec![], vec![(dead, RedriveRefusal::QueueFull)])
    );
    assert_eq!(world.dead().await, [(dead, world.bob, DeadLetterReason::DeliveryLimit)]);
    assert_eq!(world.depth(world.bob).await, depth(0, 0));
}

pub async fn a_redrive_gives_no_session_a_second_copy(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let append = world.broadcast(&[world.bob, world.carol]);
    let id = append.message.id;
    world.append(append).await;
    world.removes(world.bob, DeadLetterReason::RecipientGone).await;
    redrive(&world, &[id], Some(world.carol)).await;
    assert_eq!(world.dead().await, []);
    assert_eq!(world.leases(world.carol, 9).await, [id]);
}

/// What is to be reported: its number and the messages.
async fn unreported(world: &World) -> (Option<u64>, Vec<MessageId>) {
    let Unreported { until, dead_letters } = done(world.store.unreported()).await;
    (until, dead_letters.iter().map(|dead| dead.message.id).collect())
}

async fn has_unreported(world: &World) -> bool {
    done(world.store.sweep(world.now)).await.has_unreported
}

pub async fn a_dead_letter_is_given_until_it_is_reported(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    assert_eq!(
        (unreported(&world).await, has_unreported(&world).await),
        ((None, vec![]), false)
    );
    let (first, second) = (
        world.sends_dead_letter(world.carol).await,
        world.sends_dead_letter(world.bob).await,
    );
    assert!(has_unreported(&world).await);
    let (until, given) = unreported(&world).await;
    assert_eq!(given, [first, second], "in the order in which they were given up");
    let until = until.expect("there are dead letters");
    let third = world.sends_dead_letter(world.bob).await;
    let again = (Some(until), vec![first, second]);
    assert_eq!(
        (unreported(&world).await, has_unreported(&world).await),
        (again.clone(), true)
    );
    done(world.store.mark_reported(until + 1)).await;
    assert_eq!(unreported(&world).await, again, "another number");
    done(world.store.mark_reported(until)).await;
    assert!(has_unreported(&world).await);
    let (next, given) = unreported(&world).await;
    assert_eq!(given, [third]);
    assert!(next > Some(until), "no number is used twice");
    done(world.store.mark_reported(next.unwrap_or_default())).await;
    assert_eq!(
        (unreported(&world).await, has_unreported(&world).await),
        ((None, vec![]), false)
    );
    assert_eq!(done(world.store.dead_letter_count()).await, 3, "they stay dead letters");
}

pub async fn a_dead_letter_that_waits_again_is_not_reported(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (first, second) = (
        world.sends_dead_letter(world.bob).await,
        world.sends_dead_letter(world.bob).await,
    );
    redrive(&world, &[second], None).await;
    let (until, given) = unreported(&world).await;
    assert_eq!(given, [first]);
    done(world.store.mark_reported(until.unwrap_or_default())).await;
    while let (Some(until), given) = unreported(&world).await {
        assert_eq!(given, [], "only a number without a dead letter may be left");
        done(world.store.mark_reported(until)).await;
    }
    assert!(!has_unreported(&world).await);
}

pub async fn many_dead_letters_are_given_in_parts(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (len, mut given) = (REPORT_LEN_MAX + 20, Vec::new());
    let mut sent = world.sends_many(world.bob, len / 2).await;
    sent.extend(world.sends_many(world.carol, len - len / 2).await);
    for session in [world.bob, world.carol] {
        world.removes(session, DeadLetterReason::RecipientGone).await;
    }
    let mut parts = Vec::new();
    while let (Some(until), part) = unreported(&world).await {
        parts.push(part.len());
        given.extend(part);
        done(world.store.mark_reported(until)).await;
    }
    assert_eq!((parts, given), (vec![REPORT_LEN_MAX, 20], sent));
}

async fn redrive(world: &World, messages: &[MessageId], recipient: Option<SessionId>) -> Redriven {
    done(world.store.redrive(messages.into(), recipient, CAPACITY, world.now)).await
}
