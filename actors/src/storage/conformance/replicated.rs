//! What replicas share: frames and heartbeats, the inbox, and the record of returned messages.

use std::{sync::Arc, time::Duration};

use super::{
    super::{Append, Appended, Audience, Heartbeat, Release, ReplicatedStore, Storage, Store},
    world::{CAPACITY, World, accepted, depth, done, record},
};
use crate::model::{DeadLetterReason, Headers, SessionId};

/// The replicated part of a store that several replicas share.
fn replicated(store: &Arc<dyn Store>) -> &dyn ReplicatedStore {
    store.replicated().expect("these cases are for shared stores")
}

pub async fn a_broadcast_to_an_outdated_roster_is_not_sent(storage: Arc<dyn Storage>) {
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

pub async fn heartbeats_reach_other_replicas(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let heartbeat = |session, has_left| Heartbeat {
        session,
        ago: Duration::ZERO,
        has_left,
        is_connected: false,
    };
    done(replicated(&world.store).exchange_heartbeats(vec![heartbeat(world.carol, true)])).await;
    // Another replica that opens the project for the first time receives all heartbeats.
    let other = storage.open(&world.project);
    let exchanged = done(replicated(&other).exchange_heartbeats(Vec::new()))
        .await
        .heartbeats;
    let of = |session| exchanged.iter().find(|heartbeat| heartbeat.session == session).copied();
    let bob = of(world.bob).expect("bob was put");
    assert!(bob.ago < Duration::from_secs(30) && !bob.has_left);
    assert!(of(world.carol).expect("carol has left").has_left);

    done(replicated(&world.store).exchange_heartbeats(vec![heartbeat(world.bob, false)])).await;
    let exchanged = done(replicated(&other).exchange_heartbeats(Vec::new())).await;
    assert_eq!(exchanged.frame_seq, done(replicated(&other).last_frame_seq()).await);
    let bob = exchanged
        .heartbeats
        .iter()
        .find(|heartbeat| heartbeat.session == world.bob);
    assert!(bob.expect("bob has a new heartbeat").ago < Duration::from_secs(30));
}

pub async fn a_session_active_at_another_replica_is_not_silent(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world.sends(world.bob).await;
    world.leases(world.bob, 1).await;
    let seen = Heartbeat {
        session: world.bob,
        ago: Duration::ZERO,
        has_left: false,
        is_connected: false,
    };
    done(replicated(&world.store).exchange_heartbeats(vec![seen])).await;
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

/// Putting a session counts as a heartbeat.
pub async fn putting_a_session_counts_as_a_heartbeat(storage: Arc<dyn Storage>) {
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
        is_connected: false,
    };
    done(replicated(&world.store).exchange_heartbeats(vec![long_ago])).await;
    assert_eq!(
        done(removed(world.bob, 60)).await,
        None,
        "an older heartbeat does not count"
    );
    assert_eq!(done(removed(world.bob, 0)).await, Some(0));
}

/// Both work on the same inbox.
pub async fn one_replica_leases_what_another_appended(storage: Arc<dyn Storage>) {
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

/// The next call may arrive at another replica.
pub async fn returned_messages_are_acknowledged_at_any_replica(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let other = storage.open(&world.project);
    let sent = world.sends_many(world.bob, 4).await;
    assert_eq!(world.leases(world.bob, 3).await, sent[..3]);
    done(replicated(&world.store).mark_returned(world.bob, sent[..2].to_vec())).await;
    let acknowledged = done(replicated(&other).acknowledge_returned(world.bob, world.now)).await;
    assert_eq!((acknowledged.acknowledged, acknowledged.depth), (2, depth(1, 1)));
    let again = done(replicated(&other).acknowledge_returned(world.bob, world.now)).await;
    assert_eq!((again.acknowledged, again.depth), (0, depth(1, 1)));

    done(replicated(&world.store).mark_returned(world.bob, vec![sent[2]])).await;
    world.releases(world.bob, Release::Ids(vec![sent[2]])).await;
    assert_eq!(world.leases(world.bob, 1).await, sent[2..3]);
    let again = done(replicated(&other).acknowledge_returned(world.bob, world.now)).await;
    assert_eq!(again.acknowledged, 0, "it was released");
}
