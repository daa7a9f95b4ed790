//! Who is in a project, and who has whose inbox in hand.

use std::{sync::Arc, time::Duration};

use super::{
    super::{Append, Appended, Audience, Claim, Heartbeat, PutOutcome, PutSession, Release, SessionKey, Storage},
    world::{CAPACITY, World, accepted, depth, done, record},
};
use crate::model::{DeadLetterReason, Headers, SessionId, SessionName, SessionRecord};

fn named(name: &str) -> SessionRecord {
    SessionRecord {
        name: Some(SessionName::parse(name).expect("a good name")),
        ..record(SessionId::generate())
    }
}

fn resumes() -> PutSession {
    PutSession {
        must_exist: true,
        ..PutSession::default()
    }
}

pub async fn a_name_belongs_to_one_session(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (first, second) = (named("dora"), named("dora"));
    world.puts_session(first.clone()).await;
    let before = done(world.store.sessions()).await;
    let seated = done(world.store.put_session(second.clone(), PutSession::default())).await;
    assert_eq!(seated, PutOutcome::NameTaken);
    assert_eq!(
        done(world.store.sessions()).await.version,
        before.version,
        "nothing changed"
    );
    let name = first.name.clone().expect("it has one");
    let found = done(world.store.find_session(SessionKey::Name(name.clone()))).await;
    assert_eq!(found, Some(first.clone()));

    let renamed = SessionRecord {
        name: named("emil").name,
        ..first.clone()
    };
    world.puts_session(renamed.clone()).await;
    assert_eq!(
        done(world.store.find_session(SessionKey::Name(name.clone()))).await,
        None
    );
    world.puts_session(second.clone()).await;
    world.removes(second.id, DeadLetterReason::RecipientGone).await;
    assert_eq!(
        done(world.store.find_session(SessionKey::Name(name))).await,
        None,
        "it is free again"
    );
    assert_eq!(
        done(world.store.find_session(SessionKey::Id(first.id))).await,
        Some(renamed)
    );
}

pub async fn what_is_gone_cannot_be_resumed(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world.removes(world.bob, DeadLetterReason::RecipientGone).await;
    let seated = done(world.store.put_session(record(world.bob), resumes())).await;
    assert_eq!(seated, PutOutcome::Gone);
    let seated = done(world.store.put_session(record(world.carol), resumes())).await;
    assert_eq!(seated, PutOutcome::Stored);
    assert_eq!(done(world.store.find_session(SessionKey::Id(world.bob))).await, None);
}

pub async fn a_full_project_takes_no_new_session(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let full = PutSession {
        must_exist: false,
        sessions_len_max: Some(3),
    };
    let seated = done(world.store.put_session(record(SessionId::generate()), full)).await;
    assert_eq!(seated, PutOutcome::TooManySessions);
    let seated = done(world.store.put_session(record(world.bob), full)).await;
    assert_eq!(seated, PutOutcome::Stored, "it is there already");
}

pub async fn the_roster_has_a_new_version_with_each_change(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let version = async || done(world.store.sessions()).await.version;
    let first = version().await;
    assert_eq!(version().await, first, "nobody came or went");
    world.puts_session(record(world.bob)).await;
    assert_eq!(version().await, first + 1);
    world.removes(world.bob, DeadLetterReason::RecipientGone).await;
    assert_eq!(version().await, first + 2);
    world.removes(world.bob, DeadLetterReason::RecipientGone).await;
    assert_eq!(version().await, first + 2, "it was gone already");
}

pub async fn who_claims_a_session_has_all_that_was_leased(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends_many(world.bob, 3).await;
    let (first, second) = (Claim::generate(), Claim::generate());
    let claimed = world.claims(world.bob, first).await;
    assert!(claimed.epoch > 0);
    assert_eq!(claimed.released.depth, depth(3, 0));
    let lease = async |by| done(world.store.lease(world.bob, Some(by), 2, usize::MAX, world.now)).await;
    assert_eq!(lease(first).await.deliveries.len(), 2);

    let claimed_again = world.claims(world.bob, second).await;
    assert!(claimed_again.epoch > claimed.epoch);
    assert_eq!(
        (claimed_again.released.returned, claimed_again.released.depth),
        (2, depth(3, 0))
    );
    let leased = lease(first).await;
    assert!(leased.superseded && leased.deliveries.is_empty());
    assert_eq!(world.releases(world.bob, Release::Claimed(first)).await.returned, 0);
    let leased = lease(second).await;
    assert!(!leased.superseded);
    let counts: Vec<_> = leased.deliveries.iter().map(|delivery| delivery.count).collect();
    assert_eq!(counts, [2, 2]);
    assert_eq!(
        world.releases(world.bob, Release::Claimed(first)).await.returned,
        0,
        "not its own"
    );
    assert_eq!(world.acknowledges(world.bob, &sent[..1]).await.acknowledged, 1);
    assert_eq!(world.releases(world.bob, Release::Claimed(second)).await.returned, 1);
}

pub async fn a_session_that_is_not_known_cannot_be_claimed(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let claimed = world.claims(SessionId::generate(), Claim::generate()).await;
    assert_eq!(claimed.epoch, 0);
}

/// Of a store that other replicas share.
pub async fn a_broadcast_to_an_old_roster_is_not_sent(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let everyone = [world.bob, world.carol];
    let broadcast = |roster| Append {
        roster_version: Some(roster),
        ..world.broadcast(&everyone)
    };
    let version = done(world.store.sessions()).await.version;
    world.puts_session(record(SessionId::generate())).await;
    let direct = || world.direct(world.bob, &Headers::default());
    let batch = vec![direct(), broadcast(version), direct()];
    let answers = done(world.store.append(batch, world.now)).await;
    let outdated = Appended::RosterOutdated;
    assert_eq!(answers, [accepted(1), outdated.clone(), outdated]);
    let answers = done(world.store.append(vec![broadcast(version + 1)], world.now)).await;
    assert_eq!(answers, [accepted(2)]);
}

/// Of a store that other replicas share.
pub async fn signs_of_life_are_told_to_the_others(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sign = |session, goodbye| Heartbeat {
        session,
        ago: Duration::ZERO,
        has_left: goodbye,
    };
    done(world.store.exchange_heartbeats(vec![sign(world.carol, true)])).await;
    // Opened anew, as another replica does, it hears of all.
    let other = storage.open(&world.project);
    let heard = done(other.exchange_heartbeats(Vec::new())).await.heartbeats;
    let of = |session| heard.iter().find(|sign| sign.session == session).copied();
    let bob = of(world.bob).expect("it was put");
    assert!(bob.ago < Duration::from_secs(30) && !bob.has_left);
    assert!(of(world.carol).expect("it was told").has_left);

    done(world.store.exchange_heartbeats(vec![sign(world.bob, false)])).await;
    let heard = done(other.exchange_heartbeats(Vec::new())).await;
    assert_eq!(heard.frame_seq, done(other.last_frame_seq()).await);
    let bob = heard.heartbeats.iter().find(|sign| sign.session == world.bob);
    assert!(bob.expect("it is news").ago < Duration::from_secs(30));
}

/// Of a store that other replicas share.
pub async fn who_was_seen_elsewhere_is_not_taken_for_silent(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world.sends(world.bob).await;
    world.leases(world.bob, 1).await;
    let seen = Heartbeat {
        session: world.bob,
        ago: Duration::ZERO,
        has_left: false,
    };
    done(world.store.exchange_heartbeats(vec![seen])).await;
    let (long, short) = (Duration::from_secs(60), Duration::ZERO);
    assert_eq!(world.releases(world.bob, Release::Silent(long)).await.returned, 0);
    assert_eq!(world.releases(world.bob, Release::Silent(short)).await.returned, 1);
    let reason = DeadLetterReason::RecipientGone;
    let removed = |silent_for| {
        world
            .store
            .remove_session(world.bob, reason, Some(silent_for), world.now)
    };
    assert_eq!(done(removed(long)).await, None);
    assert_eq!(done(removed(short)).await, Some(1));
}

/// Of a store that other replicas share: who has just come, or come back, is there.
pub async fn who_is_put_has_been_seen(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let reason = DeadLetterReason::RecipientGone;
    let removed = |session, seconds| {
        let silent_for = Some(Duration::from_secs(seconds));
        world.store.remove_session(session, reason, silent_for, world.now)
    };
    assert_eq!(done(removed(world.carol, 60)).await, None);
    let long_ago = Heartbeat {
        session: world.bob,
        ago: Duration::from_secs(90),
        has_left: false,
    };
    done(world.store.exchange_heartbeats(vec![long_ago])).await;
    assert_eq!(done(removed(world.bob, 60)).await, None, "an older sign is no news");
    assert_eq!(done(removed(world.bob, 0)).await, Some(0));
}

/// Of a store that other replicas share: both work on the same.
pub async fn what_one_replica_appends_another_leases(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let other = storage.open(&world.project);
    let sent = world.sends(world.bob).await;
    let leased = done(other.lease(world.bob, None, 9, usize::MAX, world.now)).await;
    let ids: Vec<_> = leased.deliveries.iter().map(|delivery| delivery.message.id).collect();
    assert_eq!(ids, [sent]);
    let append = Append {
        queue_capacity: CAPACITY,
        audience: Audience::One(world.bob),
        ..world.direct(world.bob, &Headers::default())
    };
    assert_eq!(done(other.append(vec![append], world.now)).await, [accepted(1)]);
    assert_eq!(world.depth(world.bob).await, depth(1, 1));
}

/// Of a store that other replicas share: whoever asks next may ask another.
pub async fn what_was_returned_is_acknowledged_anywhere(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let other = storage.open(&world.project);
    let sent = world.sends_many(world.bob, 4).await;
    assert_eq!(world.leases(world.bob, 3).await, sent[..3]);
    done(world.store.mark_returned(world.bob, sent[..2].to_vec())).await;
    let acknowledged = done(other.acknowledge_returned(world.bob, world.now)).await;
    assert_eq!((acknowledged.acknowledged, acknowledged.depth), (2, depth(1, 1)));
    let again = done(other.acknowledge_returned(world.bob, world.now)).await;
    assert_eq!((again.acknowledged, again.depth), (0, depth(1, 1)));

    done(world.store.mark_returned(world.bob, vec![sent[2]])).await;
    world.releases(world.bob, Release::Ids(vec![sent[2]])).await;
    assert_eq!(world.leases(world.bob, 1).await, sent[2..3]);
    let again = done(other.acknowledge_returned(world.bob, world.now)).await;
    assert_eq!(again.acknowledged, 0, "it was given back");
}
