//! Which instances a pool lends, starts and ends.

use proptest::prelude::*;

use super::*;
use crate::gateway::FrameLink;

const FORM: Profile = Profile::FORM;
const ROOTS: Profile = Profile::ROOTS;

fn link() -> Arc<dyn Link> {
    FrameLink::new()
}

/// A caller of whom no instance learns anything.
fn anyone() -> Arc<str> {
    "anyone".into()
}

fn pool(mode: PoolMode) -> Pool {
    let mut pool = Pool {
        last_id: 1_000,
        ..Pool::default()
    };
    pool.open(mode, link(), 0);
    // That of the main instance is never used again.
    pool.last_id = 0;
    pool
}

/// Instances that run one call at a time, for the whole project.
fn profiles(others: usize) -> PoolMode {
    PoolMode::new(Sharing::Project, true, others)
}

/// Instances that run the calls of one key.
fn owners(others: usize) -> PoolMode {
    PoolMode::new(Sharing::Key, false, others)
}

/// The affinity of an instance of the pool for callers of this profile.
fn of(pool: &Pool, profile: Profile) -> Affinity {
    pool.mode.unwrap().of_project(profile)
}

fn want(pool: &mut Pool, profile: Profile, now_ms: u64) -> Wanted {
    pool.want(&of(pool, profile), &anyone(), now_ms)
}

/// The orders of a call that waits.
fn waits(pool: &mut Pool, profile: Profile) -> Vec<PoolOrder> {
    match want(pool, profile, 0) {
        Wanted::Wait { orders, .. } => orders,
        other => panic!("the call waits: {other:?}"),
    }
}

fn lent(pool: &mut Pool, profile: Profile, now_ms: u64) -> u64 {
    match want(pool, profile, now_ms) {
        Wanted::Lent(id, _) => id,
        other => panic!("an instance is lent: {other:?}"),
    }
}

#[test]
fn calls_that_wait_start_as_many_instances_as_they_need() {
    let mut pool = pool(profiles(2));
    for _ in 0..3 {
        pool.enter(of(&pool, FORM), anyone());
    }
    assert_eq!(waits(&mut pool, FORM), [PoolOrder::Start { id: 1 }]);
    assert_eq!(waits(&mut pool, FORM), [PoolOrder::Start { id: 2 }]);
    assert_eq!(waits(&mut pool, FORM), [], "there is no room");
    pool.ready(2, link(), 5);
    assert_eq!(lent(&mut pool, FORM, 5), 2);
    pool.leave(&of(&pool, FORM), &anyone());
    pool.give_back(2, 9);
    pool.ready(1, link(), 9);
    assert_eq!(lent(&mut pool, FORM, 9), 2, "the one that was used last");
}

#[test]
fn an_unused_instance_makes_room_and_a_used_one_does_not() {
    let mut pool = pool(profiles(1));
    pool.enter(of(&pool, FORM), anyone());
    waits(&mut pool, FORM);
    pool.ready(1, link(), 0);
    pool.leave(&of(&pool, FORM), &anyone());
    let id = lent(&mut pool, FORM, 0);
    pool.enter(of(&pool, ROOTS), anyone());
    assert_eq!(waits(&mut pool, ROOTS), []);
    pool.give_back(id, 0);
    let start = PoolOrder::Start { id: 2 };
    assert_eq!(waits(&mut pool, ROOTS), [PoolOrder::End { id: 1 }, start]);
    assert!(pool.affinity_of(1).is_none() && pool.affinity_of(2) == Some(of(&pool, ROOTS)));
}

#[test]
fn after_a_failed_start_its_profile_cools_down() {
    let mut pool = pool(profiles(2));
    pool.enter(of(&pool, FORM), anyone());
    waits(&mut pool, FORM);
    assert!(pool.remove(1, Some("no key".to_owned()), 100));
    let Wanted::CoolingDown(cooldown) = want(&mut pool, FORM, 100) else {
        panic!("it cools down");
    };
    assert_eq!(
        (cooldown.reason.as_str(), cooldown.until_ms),
        ("no key", 100 + COOLDOWN_MS)
    );
    pool.enter(of(&pool, ROOTS), anyone());
    assert_eq!(waits(&mut pool, ROOTS).len(), 1, "others start");
    assert!(matches!(want(&mut pool, FORM, cooldown.until_ms), Wanted::Wait { orders, .. } if orders.len() == 1));
}

#[test]
fn a_single_instance_serves_all_callers_and_is_started_again_if_it_does_not_end_a_call() {
    let mut pool = pool(profiles(0));
    let everyone = of(&pool, Profile::NONE);
    assert_eq!(profiles(0).affinity(ROOTS, true, |_| anyone()), everyone);
    let id = lent(&mut pool, Profile::NONE, 0);
    assert_eq!(waits(&mut pool, Profile::NONE), [], "it has no other");
    pool.give_back(id, 1);
    assert_eq!(lent(&mut pool, Profile::NONE, 2), id);
    assert!(!pool.lacks_main());
    assert_eq!(pool.end(id), Some(PoolOrder::Restart { id }));
    assert!(pool.lacks_main() && pool.end(id).is_none());
    pool.give_back(id, 3);
    assert_eq!(waits(&mut pool, Profile::NONE), []);
    pool.close();
    assert!(!pool.lacks_main());
    assert!(matches!(pool.want(&everyone, &anyone(), 3), Wanted::Wait { orders, .. } if orders.is_empty()));
}

#[test]
fn an_instance_that_does_not_end_a_call_is_ended_alone() {
    let mut pool = pool(profiles(1));
    pool.enter(of(&pool, FORM), anyone());
    assert_eq!(waits(&mut pool, FORM), [PoolOrder::Start { id: 1 }]);
    pool.ready(1, link(), 0);
    assert_eq!(lent(&mut pool, FORM, 0), 1);
    assert_eq!(pool.end(1), Some(PoolOrder::End { id: 1 }));
    assert_eq!(waits(&mut pool, FORM), [PoolOrder::Start { id: 2 }]);
    assert!(!pool.lacks_main() && pool.has(Some(2)) && !pool.has(Some(1)));
}

#[test]
fn the_calls_of_an_owner_share_its_instance_and_no_other() {
    let mut pool = pool(owners(2));
    let of = |owner: &str| owners(2).affinity(Profile::NONE, true, |_| owner.into());
    let (first, second, third) = (of("a"), of("b"), of("c"));
    for affinity in [&first, &first, &second] {
        pool.enter(affinity.clone(), anyone());
    }
    let start = |id| PoolOrder::Start { id };
    let mut orders = |affinity: &Affinity| match pool.want(affinity, &anyone(), 0) {
        Wanted::Wait { orders, .. } => orders,
        other => panic!("the call waits: {other:?}"),
    };
    assert_eq!(orders(&first), [start(1)]);
    assert_eq!(orders(&first), [], "one is enough for all its calls");
    assert_eq!(orders(&second), [start(2)]);
    let [of_first, of_second] = [link(), link()];
    pool.ready(1, Arc::clone(&of_first), 0);
    pool.ready(2, of_second, 0);
    for _ in 0..2 {
        assert!(matches!(pool.want(&first, &anyone(), 0), Wanted::Lent(1, _)));
    }
    assert!(pool.has_link(&first, of_first.number()) && !pool.has_link(&second, of_first.number()));
    assert!(matches!(pool.want(&second, &anyone(), 0), Wanted::Lent(2, _)));
    pool.leave(&first, &anyone());
    pool.leave(&second, &anyone());
    pool.give_back(1, 5);
    pool.give_back(2, 5);
    // The first still has a call, so the second makes room.
    assert!(
        matches!(pool.want(&third, &anyone(), 5), Wanted::Wait { orders, .. } if orders == [PoolOrder::End { id: 2 }, start(3)])
    );
}

#[test]
fn an_instance_that_has_learnt_of_a_caller_serves_no_other_and_makes_room() {
    let mut pool = pool(profiles(1));
    let [first, second] = ["first", "second"].map(Arc::<str>::from);
    let lent_to = |pool: &mut Pool, caller: &Arc<str>, now_ms| pool.want(&of(pool, FORM), caller, now_ms);
    pool.enter(of(&pool, FORM), Arc::clone(&first));
    assert!(matches!(lent_to(&mut pool, &first, 0), Wanted::Wait { orders, .. } if orders.len() == 1));
    let link = link();
    pool.ready(1, Arc::clone(&link), 0);
    assert!(matches!(lent_to(&mut pool, &first, 0), Wanted::Lent(1, _)));
    pool.leave(&of(&pool, FORM), &first);
    pool.give_back(1, 1);
    assert!(
        matches!(lent_to(&mut pool, &second, 1), Wanted::Lent(1, _)),
        "it knows nothing"
    );
    pool.give_back(1, 2);

    link.note_learnt();
    assert!(matches!(lent_to(&mut pool, &second, 2), Wanted::Lent(1, _)));
    pool.give_back(1, 3);
    pool.enter(of(&pool, FORM), Arc::clone(&first));
    let orders = match lent_to(&mut pool, &first, 3) {
        Wanted::Wait { orders, .. } => orders,
        other => panic!("it waits for an instance of its own: {other:?}"),
    };
    assert_eq!(orders, [PoolOrder::End { id: 1 }, PoolOrder::Start { id: 2 }]);
}

#[test]
fn an_instance_is_ended_once_it_was_unused_for_long() {
    let mut pool = pool(profiles(1));
    assert_eq!(pool.start_first(of(&pool, FORM), 0), Some(PoolOrder::Start { id: 1 }));
    assert_eq!(pool.start_first(of(&pool, ROOTS), 0), None, "there is no room");
    assert_eq!(pool.take_unused(60, 10), (vec![], Some(60)), "it starts");
    pool.ready(1, link(), 10);
    assert_eq!(pool.take_unused(60, 69), (vec![], Some(1)));
    assert_eq!(pool.take_unused(60, 70), (vec![1], None));
    assert!(pool.affinity_of(1).is_none());
    pool.open(profiles(0), link(), 70);
    assert_eq!(pool.take_unused(60, 200), (vec![], None), "the main one stays");
    lent(&mut pool, Profile::NONE, 200);
}

#[test]
fn an_instance_is_not_ended_for_another_call_while_one_waits_for_it() {
    let mut pool = pool(owners(1));
    let [first, second] = ["a", "b"].map(|owner| owners(1).affinity(Profile::NONE, true, |_| owner.into()));
    pool.enter(first.clone(), anyone());
    pool.enter(second.clone(), anyone());
    assert!(matches!(pool.want(&first, &anyone(), 0), Wanted::Wait { orders, .. } if orders.len() == 1));
    pool.ready(1, link(), 0);
    let waits = pool.want(&second, &anyone(), 0);
    assert!(matches!(waits, Wanted::Wait { orders, keeps_turn: false } if orders.is_empty()));
    assert!(matches!(pool.want(&first, &anyone(), 0), Wanted::Lent(1, _)));
    assert!(
        matches!(pool.want(&profiles(1).of_project(FORM), &anyone(), 0), Wanted::Wait { orders, .. } if orders.is_empty()),
        "it has no owner: the call has to look again"
    );
}

/// What happens to the pool in a test.
#[derive(Clone, Debug)]
enum Step {
    Call(u8),
    Ready(usize),
    Fails(usize),
    Ends(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0_u8..3).prop_map(Step::Call),
        3 => (0_usize..4).prop_map(Step::Ready),
        1 => (0_usize..4).prop_map(Step::Fails),
        3 => (0_usize..4).prop_map(Step::Ends),
    ];
    proptest::collection::vec(step, 0..60)
}

fn taken(list: &mut Vec<u64>, at: usize) -> Option<u64> {
    (!list.is_empty()).then(|| list.remove(at % list.len()))
}

/// The calls and instances of a test.
#[derive(Default)]
struct World {
    starting: Vec<u64>,
    lent: Vec<u64>,
    waiting: Vec<Profile>,
}

impl World {
    /// Lets each call that waits want an instance.
    fn serve(&mut self, pool: &mut Pool, now_ms: u64) {
        for profile in std::mem::take(&mut self.waiting) {
            match want(pool, profile, now_ms) {
                Wanted::Lent(id, _) => {
                    assert!(!self.lent.contains(&id), "it is lent twice");
                    self.lent.push(id);
                    pool.leave(&of(pool, profile), &anyone());
                }
                Wanted::CoolingDown(_) => pool.leave(&of(pool, profile), &anyone()),
                Wanted::Wait { orders, .. } => {
                    self.starting.extend(orders.into_iter().filter_map(|order| match order {
                        PoolOrder::Start { id, .. } => Some(id),
                        _ => None,
                    }));
                    self.waiting.push(profile);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn each_call_gets_an_instance_of_its_own_and_none_waits_for_ever(size in 1_usize..4, steps in steps()) {
        let (mut pool, mut world) = (pool(profiles(size)), World::default());
        for (at, step) in steps.into_iter().enumerate() {
            let now_ms = at as u64 * COOLDOWN_MS / 2;
            match step {
                Step::Call(profile) if world.lent.len() + world.waiting.len() < size => {
                    let profile = [FORM, ROOTS, Profile::ALL][usize::from(profile)];
                    pool.enter(of(&pool, profile), anyone());
                    world.waiting.push(profile);
                }
                Step::Call(_) => {}
                Step::Ready(at) => if let Some(id) = taken(&mut world.starting, at) {
                    pool.ready(id, link(), now_ms);
                },
                Step::Fails(at) => if let Some(id) = taken(&mut world.starting, at) {
                    pool.remove(id, Some("it failed".to_owned()), now_ms);
                },
                Step::Ends(at) => if let Some(id) = taken(&mut world.lent, at) {
                    pool.give_back(id, now_ms);
                },
            }
            world.serve(&mut pool, now_ms);
            prop_assert!(pool.others_len() <= size);
            // A call waits for a start that is under way; its turn says that an instance is left for it.
            prop_assert!(world.waiting.is_empty() || !world.starting.is_empty());
        }
    }
}

#[test]
fn the_affinity_of_a_call_follows_from_the_mode() {
    let of = |mode: PoolMode, profile, may_ask| {
        let affinity = mode.affinity(profile, may_ask, |_| "owner".into());
        let (lane, one_call) = (affinity.lane(), affinity.runs_one_call());
        (
            affinity.profile,
            affinity.owner.as_deref() == Some("owner"),
            lane,
            one_call,
        )
    };
    let (none, shared) = (Profile::NONE, PoolMode::new(Sharing::Project, false, 3));
    assert_eq!(shared, PoolMode::SHARED, "it needs no other instance");
    assert_eq!(of(shared, FORM, true), (none, false, Lane::Main, false));
    assert_eq!(of(profiles(0), FORM, true), (none, false, Lane::Others, true));
    assert_eq!(of(profiles(2), FORM, true), (FORM, false, Lane::Others, true));
    assert_eq!(of(profiles(2), FORM, false), (none, false, Lane::Main, false));
    assert_eq!(of(profiles(2), none, true), (none, false, Lane::Main, false));
    assert_eq!(of(owners(2), FORM, false), (none, true, Lane::Others, false));
    let asking = PoolMode::new(Sharing::Key, true, 2);
    assert_eq!(of(asking, FORM, false), (FORM, true, Lane::Others, true));
    let turns =
        [profiles(2), owners(2), asking].map(|mode| [Lane::Main, Lane::Others].map(|lane| mode.turns(lane, 64)));
    assert_eq!(turns, [[64, 2], [64, 64], [64, 2]]);
}
