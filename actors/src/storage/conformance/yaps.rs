//! Yaps: their order, how long they are held, and what is kept of them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use uuid::Uuid;

use super::{
    super::{HELD_YAPS_BYTES_MAX, HELD_YAPS_MAX, ReleasedYaps, Storage, YAP_BACKDATE_MAX, YAPS_MAX, YapHeld},
    world::{World, done},
};
use crate::{
    clock::millis,
    model::{SessionId, SessionName, ShownYap, Yap},
};

/// Longer than any test takes.
const LONG: Duration = Duration::from_mins(10);

fn yap(sender: SessionId, message: &str, sent_at_ms: Option<u64>) -> Yap {
    Yap {
        id: Uuid::now_v7(),
        sender,
        sender_name: Some(SessionName::parse("alice \u{e4}").expect("a valid name")),
        message: message.to_owned(),
        mode: Some("status".to_owned()),
        category: None,
        task_context: Some("\"quoted\"\n\u{1f980}".to_owned()),
        sent_at_ms,
        folded: 2,
    }
}

impl World {
    async fn yaps(&self, sender: SessionId, message: &str, sent_at_ms: Option<u64>) -> YapHeld {
        let yap = Arc::new(yap(sender, message, sent_at_ms));
        done(self.store.hold_yap(yap, self.now)).await
    }

    async fn releases_yaps(&self, delay: Duration) -> ReleasedYaps {
        done(self.store.release_yaps(delay, self.now)).await
    }

    /// Releases all that are due. A store may do so in several parts.
    async fn releases_all_yaps(&self, delay: Duration) -> Vec<Arc<ShownYap>> {
        let mut all = Vec::new();
        loop {
            let part = self.releases_yaps(delay).await;
            if part.released.is_empty() {
                return all;
            }
            all.extend(part.released);
        }
    }

    async fn shown(&self, after: Option<u64>, limit: usize) -> Vec<(u64, String)> {
        let shown = done(self.store.yaps(after, limit)).await;
        shown
            .iter()
            .map(|shown| (shown.seq, shown.yap.message.clone()))
            .collect()
    }
}

fn messages(shown: &[Arc<ShownYap>]) -> Vec<&str> {
    shown.iter().map(|shown| &*shown.yap.message).collect()
}

pub async fn yaps_are_shown_in_the_order_in_which_they_were_written(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let second_ago = world.now.unix_ms - 1_000;
    let later = yap(world.alice, "later", Some(second_ago + 2));
    assert_eq!(
        done(world.store.hold_yap(Arc::new(later.clone()), world.now)).await,
        YapHeld::Held
    );
    assert_eq!(world.yaps(world.bob, "earlier", Some(second_ago)).await, YapHeld::Held);
    assert_eq!(
        world.yaps(world.carol, "between", Some(second_ago + 1)).await,
        YapHeld::Held
    );
    assert_eq!(world.shown(None, 9).await, [], "they are held");
    let shown = world.releases_all_yaps(Duration::ZERO).await;
    assert_eq!(messages(&shown), ["earlier", "between", "later"]);
    let expected = ShownYap {
        seq: 3,
        at_ms: second_ago + 2,
        is_late: false,
        yap: later,
    };
    assert_eq!(*shown[2], expected);
    assert_eq!(done(world.store.yaps(None, 9)).await, shown);
    assert_eq!(world.releases_yaps(Duration::ZERO).await, ReleasedYaps::default());
}

pub async fn a_yap_is_held_for_the_delay(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    world.yaps(world.alice, "one", None).await;
    let released = world.releases_yaps(LONG).await;
    assert_eq!(released.released, []);
    let next_in = released.next_in.expect("it is held");
    assert!(next_in <= LONG && next_in > LONG / 2, "{next_in:?}");
    let released = world.releases_yaps(Duration::ZERO).await;
    assert_eq!((messages(&released.released), released.next_in), (vec!["one"], None));
}

pub async fn a_sender_is_never_overtaken_by_itself(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let at_ms = world.now.unix_ms - 1_000;
    for (message, sent_at_ms) in [
        ("a", Some(at_ms)),
        ("b", Some(at_ms - 900)),
        ("c", Some(at_ms)),
        ("d", None),
    ] {
        world.yaps(world.alice, message, sent_at_ms).await;
    }
    world.yaps(world.bob, "between", Some(at_ms - 1)).await;
    let shown = world.releases_all_yaps(Duration::ZERO).await;
    assert_eq!(messages(&shown), ["between", "a", "b", "c", "d"]);
    assert_eq!(
        (shown[2].at_ms, shown[2].is_late),
        (at_ms, false),
        "at the time of the one before"
    );
    // What was shown counts too.
    world.yaps(world.alice, "e", Some(at_ms)).await;
    let shown = world.releases_all_yaps(Duration::ZERO).await;
    assert!(shown[0].at_ms > at_ms && !shown[0].is_late, "{shown:?}");
}

pub async fn the_time_of_a_sender_is_taken_only_as_far_as_it_is_credible(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let hour_ms = 3_600_000;
    world
        .yaps(world.alice, "future", Some(world.now.unix_ms + hour_ms))
        .await;
    world.yaps(world.bob, "past", Some(world.now.unix_ms - hour_ms)).await;
    world.yaps(world.carol, "none", None).await;
    let shown = world.releases_all_yaps(Duration::ZERO).await;
    let at = |message| {
        let found = shown.iter().find(|shown| shown.yap.message == message);
        found.expect("it is shown").at_ms
    };
    assert_eq!(shown.len(), 3);
    assert_eq!(messages(&shown)[0], "past");
    assert!(at("future") < world.now.unix_ms + hour_ms / 2, "not after its arrival");
    let backdated_ms = at("none") - at("past");
    let max_ms = millis(YAP_BACKDATE_MAX);
    assert!(
        backdated_ms >= max_ms && backdated_ms < max_ms + hour_ms / 2,
        "{backdated_ms}"
    );
    assert_eq!(
        shown[0].yap.sent_at_ms,
        Some(world.now.unix_ms - hour_ms),
        "what it said is kept"
    );
}

pub async fn a_yap_that_comes_too_late_is_due_at_once_and_marked(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let at_ms = world.now.unix_ms - 1_000;
    world.yaps(world.alice, "shown", Some(at_ms)).await;
    world.releases_all_yaps(Duration::ZERO).await;
    assert_eq!(
        world.yaps(world.carol, "held", Some(at_ms)).await,
        YapHeld::Held,
        "not before what was shown"
    );
    assert_eq!(world.yaps(world.bob, "late 2", Some(at_ms - 1)).await, YapHeld::Late);
    assert_eq!(world.yaps(world.bob, "late 3", Some(at_ms - 1)).await, YapHeld::Late);
    assert_eq!(
        world.yaps(SessionId::generate(), "late 1", Some(at_ms - 2)).await,
        YapHeld::Late
    );
    let shown = world.releases_all_yaps(LONG).await;
    assert_eq!(messages(&shown), ["late 1", "late 2", "late 3"]);
    assert!(shown.iter().all(|shown| shown.is_late));
    let shown = world.releases_all_yaps(Duration::ZERO).await;
    assert_eq!((messages(&shown), shown[0].is_late), (vec!["held"], false));
}

pub async fn the_numbers_of_yaps_have_no_gaps(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    for at in 1..=5 {
        world.yaps(world.alice, &at.to_string(), None).await;
        let shown = world.releases_all_yaps(Duration::ZERO).await;
        assert_eq!(shown[0].seq, at);
    }
    let numbered = |from: u64, to: u64| (from..=to).map(|at| (at, at.to_string())).collect::<Vec<_>>();
    assert_eq!(world.shown(None, 2).await, numbered(4, 5), "the last");
    assert_eq!(world.shown(None, 9).await, numbered(1, 5));
    assert_eq!(world.shown(Some(0), 2).await, numbered(1, 2));
    assert_eq!(world.shown(Some(3), 9).await, numbered(4, 5));
    assert_eq!(world.shown(Some(5), 9).await, []);
    assert_eq!(world.shown(Some(99), 9).await, []);
    assert_eq!(world.shown(None, 0).await, []);
}

pub async fn held_and_shown_yaps_are_bounded(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let mut held = 0;
    while held < HELD_YAPS_MAX {
        let some = (0..500).map(|_| world.yaps(world.alice, "x", None));
        held += join_all(some)
            .await
            .iter()
            .filter(|answer| **answer == YapHeld::Held)
            .count();
    }
    assert_eq!(world.yaps(world.bob, "one more", None).await, YapHeld::Full);
    assert_eq!(world.releases_all_yaps(Duration::ZERO).await.len(), HELD_YAPS_MAX);
    let kept = done(world.store.yaps(None, usize::MAX)).await;
    assert_eq!(kept.len(), YAPS_MAX);
    let last = HELD_YAPS_MAX as u64;
    assert_eq!(
        (kept[0].seq, kept[YAPS_MAX - 1].seq),
        (last - YAPS_MAX as u64 + 1, last)
    );

    let large = "x".repeat(HELD_YAPS_BYTES_MAX / 4);
    for _ in 0..3 {
        assert_eq!(world.yaps(world.alice, &large, None).await, YapHeld::Held);
    }
    assert_eq!(world.yaps(world.bob, &large, None).await, YapHeld::Full);
    assert_eq!(world.yaps(world.bob, "small", None).await, YapHeld::Held);
    assert_eq!(world.releases_all_yaps(Duration::ZERO).await.len(), 4);
    let kept = done(world.store.yaps(None, usize::MAX)).await;
    assert_eq!(messages(&kept[kept.len() - 1..]), ["small"]);
    assert!(kept.len() <= 2, "large ones are forgotten: {}", kept.len());
    assert_eq!(world.yaps(world.bob, "room again", None).await, YapHeld::Held);
    done(storage.clear_project(world.project)).await;
}

pub async fn a_cleared_project_has_no_yaps(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    world.yaps(world.alice, "shown", None).await;
    world.releases_all_yaps(Duration::ZERO).await;
    world.yaps(world.alice, "held", None).await;
    done(storage.clear_project(world.project.clone())).await;
    world.store = storage.open(&world.project);
    assert_eq!(world.shown(None, 9).await, []);
    assert_eq!(world.releases_yaps(Duration::ZERO).await, ReleasedYaps::default());
    world.yaps(world.alice, "new", None).await;
    assert_eq!(world.releases_all_yaps(Duration::ZERO).await[0].seq, 1);
}

pub async fn two_stores_of_a_project_share_its_yaps(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let other = storage.open(&world.project);
    world.yaps(world.alice, "one", None).await;
    let released = done(other.release_yaps(Duration::ZERO, world.now)).await.released;
    assert_eq!(messages(&released), ["one"]);
    assert_eq!(world.releases_yaps(Duration::ZERO).await.released, []);
    assert_eq!(done(world.store.yaps(None, 9)).await, released);
}
