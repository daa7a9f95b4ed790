//! Claims: the right of one holder to one thing.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use super::{
    super::{ClaimEpoch, HeldClaim, Storage},
    world::{World, done},
};

const LONG: Duration = Duration::from_secs(3_600);

async fn claims(world: &World, thing: &str, holder: Uuid, note: &str) -> Option<ClaimEpoch> {
    claims_for(world, thing, holder, LONG, note).await
}

async fn claims_for(world: &World, thing: &str, holder: Uuid, ttl: Duration, note: &str) -> Option<ClaimEpoch> {
    done(world.store.claim(thing.into(), holder, ttl, note.into(), world.now)).await
}

async fn live(world: &World, prefix: &str) -> Vec<HeldClaim> {
    done(world.store.claims(prefix.into(), world.now)).await
}

fn held(epoch: Option<ClaimEpoch>, thing: &str, holder: Uuid, note: &str) -> HeldClaim {
    HeldClaim {
        epoch: epoch.expect("it was claimed"),
        thing: thing.into(),
        holder,
        note: note.into(),
    }
}

fn holders() -> (Uuid, Uuid) {
    (Uuid::new_v4(), Uuid::now_v7())
}

pub async fn a_thing_has_one_holder_until_it_is_settled(storage: Arc<dyn Storage>) {
    let (world, other) = (World::new(&*storage).await, World::new(&*storage).await);
    let (one, two) = holders();
    let first = claims(&world, "deploy prod", one, "").await;
    assert!(first.is_some());
    assert_eq!(claims(&world, "deploy prod", two, "").await, None);
    assert_eq!(
        claims(&world, "deploy prod", one, "\u{e4} {\"a\":\n1}").await,
        first,
        "it is kept"
    );
    assert_eq!(
        live(&world, "deploy").await,
        [held(first, "deploy prod", one, "\u{e4} {\"a\":\n1}")]
    );
    assert!(
        claims(&other, "deploy prod", two, "").await.is_some(),
        "another project"
    );
    assert!(done(world.store.settle(first.unwrap())).await);
    assert!(!done(world.store.settle(first.unwrap())).await, "once");
    assert_eq!(live(&world, "").await, []);
    assert!(claims(&world, "deploy prod", two, "").await.is_some());
}

pub async fn the_epochs_of_a_project_grow_and_an_older_one_settles_nothing(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (one, two) = holders();
    let mut before = None;
    for (thing, holder) in [("a", one), ("b", one), ("a", two), ("c", two), ("a", one)] {
        for claim in live(&world, thing).await {
            done(world.store.settle(claim.epoch)).await;
        }
        let epoch = claims(&world, thing, holder, "").await;
        assert!(epoch > before, "{epoch:?} {before:?}");
        before = epoch;
    }
    let [a, b, c] = &live(&world, "").await[..] else {
        panic!("three things are claimed")
    };
    assert!(!done(world.store.settle(ClaimEpoch(b.epoch.0 - 1))).await);
    assert_eq!((&*a.thing, a.holder, &*c.thing), ("a", one, "c"), "sorted by thing");
    done(storage.clear_project(world.project.clone())).await;
    let mut world = world;
    world.store = storage.open(&world.project);
    assert_eq!(live(&world, "").await, []);
}

pub async fn claims_are_listed_by_the_beginning_of_their_things(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (one, two) = holders();
    for thing in ["@b:2", "@a", "@b:1", "b"] {
        claims(&world, thing, if thing == "b" { two } else { one }, "").await;
    }
    let things = async |prefix: &str| -> Vec<Arc<str>> {
        let live = live(&world, prefix).await;
        live.into_iter().map(|claim| claim.thing).collect()
    };
    assert_eq!(things("@b:").await, ["@b:1".into(), "@b:2".into()]);
    assert_eq!(things("@").await.len(), 3);
    assert_eq!(things("c").await, []);
}

pub async fn a_claim_whose_time_is_over_is_free(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let (one, two) = holders();
    let first = claims_for(&world, "a", one, Duration::ZERO, "x").await;
    let silent = claims_for(&world, "b", one, Duration::ZERO, "y").await;
    claims(&world, "c", one, "").await;
    assert_eq!(live(&world, "").await.len(), 1);
    let second = claims(&world, "a", two, "").await;
    assert!(second > silent, "{second:?} {silent:?}");
    assert!(
        !done(world.store.settle(first.unwrap())).await,
        "another claim followed"
    );
    assert_eq!(
        done(world.store.end_silent(world.now)).await,
        [held(silent, "b", one, "y")]
    );
    assert_eq!(done(world.store.end_silent(world.now)).await, []);
    assert_eq!(live(&world, "").await.len(), 2);
}

pub async fn a_claim_lasts_for_its_time_since_it_was_claimed_last(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let (one, two) = holders();
    let epoch = claims(&world, "a", one, "").await;
    for _ in 0..3 {
        world.pass(LONG.saturating_sub(Duration::from_millis(1)));
        assert_eq!(claims(&world, "a", two, "").await, None);
        assert_eq!(done(world.store.end_silent(world.now)).await, []);
        assert_eq!(claims(&world, "a", one, "").await, epoch);
    }
    world.pass(LONG);
    assert_eq!(live(&world, "").await, []);
    assert!(claims(&world, "a", two, "").await > epoch);
}
