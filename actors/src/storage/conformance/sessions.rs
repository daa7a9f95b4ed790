//! Sessions, the roster and claims.

use std::{sync::Arc, time::Duration};

use super::{
    super::{Claim, Heartbeat, KEPT_AT_ONCE_BYTES, LastSign, PutOutcome, PutSession, Release, SessionKey, Storage},
    world::{World, depth, done, record},
};
use crate::{
    clock::Now,
    model::{DeadLetterReason, SessionId, SessionName, SessionRecord},
};

fn named(name: &str) -> SessionRecord {
    SessionRecord {
        name: Some(SessionName::parse(name).expect("a valid name")),
        ..record(SessionId::generate())
    }
}

fn must_exist() -> PutSession {
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
    let outcome = done(world.store.put_session(second.clone(), PutSession::default())).await;
    assert_eq!(outcome, PutOutcome::NameTaken);
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

pub async fn an_alias_belongs_to_one_session(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let aliased = |name: &str, aliases: &[&str]| SessionRecord {
        aliases: aliases.iter().filter_map(|alias| named(alias).name).collect(),
        ..named(name)
    };
    let puts =
        async |record: &SessionRecord| done(world.store.put_session(record.clone(), PutSession::default())).await;
    let holder = async |name: &str| {
        let key = SessionKey::Name(named(name).name.expect("it has one"));
        done(world.store.find_session(key)).await.map(|record| record.id)
    };
    let first = aliased("dora", &["reviewer", "the \u{1f980} \"one\""]);
    world.puts_session(first.clone()).await;
    assert_eq!(holder("the \u{1f980} \"one\"").await, Some(first.id));
    for taken in [
        named("reviewer"),
        aliased("emil", &["free", "reviewer"]),
        aliased("emil", &["dora"]),
        aliased("dora", &["free"]),
    ] {
        assert_eq!(puts(&taken).await, PutOutcome::NameTaken, "{taken:?}");
    }
    assert_eq!(holder("free").await, None, "a refused record changes nothing");

    // The name and an alias are exchanged, and the other alias is given up.
    let second = SessionRecord {
        id: first.id,
        ..aliased("reviewer", &["dora"])
    };
    world.puts_session(second.clone()).await;
    assert_eq!(holder("reviewer").await, Some(first.id));
    assert_eq!(holder("dora").await, Some(first.id));
    assert_eq!(holder("the \u{1f980} \"one\"").await, None);
    assert!(done(world.store.sessions()).await.sessions.contains(&second));
    let other = aliased("emil", &["the \u{1f980} \"one\""]);
    world.puts_session(other).await;

    world.removes(first.id, DeadLetterReason::RecipientGone).await;
    assert_eq!((holder("reviewer").await, holder("dora").await), (None, None));
    assert_eq!(puts(&aliased("fritz", &["dora", "reviewer"])).await, PutOutcome::Stored);
}

pub async fn a_removed_session_cannot_be_resumed(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world.removes(world.bob, DeadLetterReason::RecipientGone).await;
    let outcome = done(world.store.put_session(record(world.bob), must_exist())).await;
    assert_eq!(outcome, PutOutcome::Gone);
    let outcome = done(world.store.put_session(record(world.carol), must_exist())).await;
    assert_eq!(outcome, PutOutcome::Stored);
    assert_eq!(done(world.store.find_session(SessionKey::Id(world.bob))).await, None);
}

pub async fn a_full_project_refuses_new_sessions(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let full = PutSession {
        sessions_len_max: Some(3),
        ..PutSession::default()
    };
    let outcome = done(world.store.put_session(record(SessionId::generate()), full)).await;
    assert_eq!(outcome, PutOutcome::TooManySessions);
    let outcome = done(world.store.put_session(record(world.bob), full)).await;
    assert_eq!(outcome, PutOutcome::Stored, "it exists already");
}

/// A shared store exchanges heartbeats instead.
pub async fn the_last_sign_of_life_of_a_session_is_kept(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    if world.store.is_shared() {
        return;
    }
    let kept = async |now| done(world.store.kept_heartbeats(now)).await;
    assert_eq!(kept(world.now).await, [], "none was given");
    let seen = |session, seconds, has_left| Heartbeat {
        session,
        ago: Duration::from_secs(seconds),
        has_left,
        is_connected: !has_left,
    };
    let signs = vec![
        seen(world.bob, 5, false),
        seen(SessionId::generate(), 1, false),
        seen(world.carol, 7, true),
    ];
    assert_eq!(done(world.store.keep_heartbeats(signs, world.now)).await, 3);
    let later = Now {
        unix_ms: world.now.unix_ms + 10_000,
        mono_ms: world.now.mono_ms + 10_000,
    };
    let mut found = kept(later).await;
    found.sort_by_key(|heartbeat| heartbeat.ago);
    assert_eq!(found, [seen(world.bob, 15, false), seen(world.carol, 17, true)]);

    // A put that is no sign of life leaves the one before; one that is replaces it.
    world.puts_session(record(world.bob)).await;
    let put = PutSession {
        sign: Some(LastSign {
            at_ms: world.now.unix_ms,
            has_left: true,
            is_connected: false,
        }),
        ..PutSession::default()
    };
    done(world.store.put_session(record(world.carol), put)).await;
    let mut found = kept(world.now).await;
    found.sort_by_key(|heartbeat| heartbeat.ago);
    assert_eq!(found, [seen(world.carol, 0, true), seen(world.bob, 5, false)]);
}

/// See [`KEPT_AT_ONCE_BYTES`].
pub async fn signs_of_life_are_kept_in_bounded_steps(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    if world.store.is_shared() {
        return;
    }
    let text = "x".repeat(KEPT_AT_ONCE_BYTES / 2);
    let large = SessionRecord {
        metadata: serde_json::Map::from_iter([("text".to_owned(), text.into())]),
        ..record(world.bob)
    };
    let outcome = done(world.store.put_session(large, PutSession::default())).await;
    if matches!(outcome, PutOutcome::TooManyBytes { .. }) {
        // The budget of this suite has no room for it.
        return;
    }
    let sign = Heartbeat {
        session: world.bob,
        ago: Duration::ZERO,
        has_left: false,
        is_connected: false,
    };
    assert_eq!(done(world.store.keep_heartbeats(vec![sign; 5], world.now)).await, 2);
}

pub async fn the_roster_version_grows_with_each_change(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let version = async || done(world.store.sessions()).await.version;
    let first = version().await;
    assert_eq!(version().await, first, "no session changed");
    world.puts_session(record(world.bob)).await;
    assert_eq!(version().await, first + 1);
    world.removes(world.bob, DeadLetterReason::RecipientGone).await;
    assert_eq!(version().await, first + 2);
    world.removes(world.bob, DeadLetterReason::RecipientGone).await;
    assert_eq!(version().await, first + 2, "it was gone already");
}

pub async fn a_claim_releases_everything_that_is_leased(storage: Arc<dyn Storage>) {
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

pub async fn an_unknown_session_cannot_be_claimed(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let claimed = world.claims(SessionId::generate(), Claim::generate()).await;
    assert_eq!(claimed.epoch, 0);
}
