//! Yaps: shown in one order at all consoles, and folded above the rate.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use actors::{
    clock::now,
    desk::{DeskEvent, DeskFeed, NewYap},
    model::ShownYap,
};

use crate::{
    replicas::ReplicaPair,
    world::{ActorThread, World, run, settings, within_deadline},
};

fn yap(message: &str, ago_ms: u64) -> NewYap {
    NewYap {
        message: message.to_owned(),
        sent_at_ms: Some(now().unix_ms - ago_ms),
        ..NewYap::default()
    }
}

async fn next_yap(feed: &mut DeskFeed) -> Arc<ShownYap> {
    within_deadline("a yap", async {
        loop {
            if let DeskEvent::Yap(yap) = feed.next().await.unwrap() {
                return yap;
            }
        }
    })
    .await
}

#[test]
fn yaps_are_shown_in_the_order_of_their_times() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let mut feed = world.project.watch_desk().unwrap();
        let [alice, bob] = [world.register("alice", None).await, world.register("bob", None).await];
        let begun = Instant::now();
        world.project.yap(&alice, yap("second", 10)).await.unwrap();
        world.project.yap(&bob, yap("first", 100)).await.unwrap();
        let shown = [next_yap(&mut feed).await, next_yap(&mut feed).await];
        assert_eq!(
            shown.each_ref().map(|yap| yap.yap.message.as_str()),
            ["first", "second"]
        );
        assert_eq!(
            shown.each_ref().map(|yap| (yap.seq, yap.is_late)),
            [(1, false), (2, false)]
        );
        let passed = begun.elapsed();
        assert!(
            passed >= Duration::from_millis(190) && passed < Duration::from_secs(2),
            "{passed:?}"
        );
        let kept = world.project.yaps(Some(1), 10).await.unwrap();
        assert_eq!(kept.len(), 1);
    });
}

#[test]
fn all_replicas_show_the_same_order() {
    run(|| async {
        let ReplicaPair { here, there, .. } = ReplicaPair::new(settings()).await;
        let alice = here.register("alice", None).await;
        let bob = there.register("bob", None).await;
        let (mut at_here, mut at_there) = (here.project.watch_desk().unwrap(), there.project.watch_desk().unwrap());
        for number in 0..20 {
            here.project
                .yap(&alice, yap(&format!("a{number}"), 50 - number))
                .await
                .unwrap();
            there
                .project
                .yap(&bob, yap(&format!("b{number}"), 60 - number))
                .await
                .unwrap();
        }
        for seq in 1..=40 {
            let (one, other) = (next_yap(&mut at_here).await, next_yap(&mut at_there).await);
            assert_eq!(one, other);
            assert_eq!(one.seq, seq);
        }
    });
}

#[test]
fn a_flood_is_folded() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let mut feed = world.project.watch_desk().unwrap();
        let alice = world.register("alice", None).await;
        for number in 0..80 {
            world.project.yap(&alice, yap(&number.to_string(), 0)).await.unwrap();
        }
        for number in 0..50 {
            assert_eq!(next_yap(&mut feed).await.yap.message, number.to_string());
        }
        let folded = next_yap(&mut feed).await;
        assert_eq!((folded.yap.message.as_str(), folded.yap.folded), ("79", 29));
    });
}
