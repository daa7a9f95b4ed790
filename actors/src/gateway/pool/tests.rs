//! Which instances a pool lends, starts and ends.

use proptest::prelude::*;

use super::*;
use crate::gateway::{CallPurpose, FrameLink};

const FORM: Profile = Profile::FORM;
const ROOTS: Profile = Profile::ROOTS;

fn link() -> Arc<dyn Link> {
    FrameLink::new()
}

/// A caller of whom no instance learns anything.
fn anyone() -> Arc<str> {
    "anyone".into()
}

fn pool(kind: PoolKind) -> Pool {
    let mut pool = Pool::default();
    pool.open(kind);
    pool
}

/// The orders of a call that waits.
fn waits(pool: &mut Pool, profile: Profile) -> Vec<PoolOrder> {
    match pool.want(&profile.into(), &anyone(), 0) {
        Wanted::Wait { orders, .. } => orders,
        other => panic!("the call waits: {other:?}"),
    }
}

fn lent(pool: &mut Pool, profile: Profile, now_ms: u64) -> u64 {
    match pool.want(&profile.into(), &anyone(), now_ms) {
        Wanted::Lent(id, _) => id,
        other => panic!("an instance is lent: {other:?}"),
    }
}

#[test]
fn calls_that_wait_start_as_many_instances_as_they_need() {
    let mut pool = pool(PoolKind::Profiles(2));
    for _ in 0..3 {
        pool.enter(FORM.into(), anyone());
    }
    assert_eq!(waits(&mut pool, FORM), [PoolOrder::Start { id: 1 }]);
    assert_eq!(waits(&mut pool, FORM), [PoolOrder::Start { id: 2 }]);
    assert_eq!(waits(&mut pool, FORM), [], "there is no room");
    pool.ready(2, link(), 5);
    assert_eq!(lent(&mut pool, FORM, 5), 2);
    pool.leave(&FORM.into(), &anyone());
    assert_eq!(pool.give_back(2, 9), None);
    pool.ready(1, link(), 9);
    assert_eq!(lent(&mut pool, FORM, 9), 2, "the one that was used last");
}

#[test]
fn an_unused_instance_makes_room_and_a_used_one_does_not() {
    let mut pool = pool(PoolKind::Profiles(1));
    pool.enter(FORM.into(), anyone());
    waits(&mut pool, FORM);
    pool.ready(1, link(), 0);
    pool.leave(&FORM.into(), &anyone());
    let id = lent(&mut pool, FORM, 0);
    pool.enter(ROOTS.into(), anyone());
    assert_eq!(waits(&mut pool, ROOTS), []);
    pool.give_back(id, 0);
    let start = PoolOrder::Start { id: 2 };
    assert_eq!(waits(&mut pool, ROOTS), [PoolOrder::End { id: 1 }, start]);
    assert!(pool.affinity_of(1).is_none() && pool.affinity_of(2) == Some(ROOTS.into()));
}

#[test]
fn after_a_failed_start_its_profile_rests() {
    let mut pool = pool(PoolKind::Profiles(2));
    pool.enter(FORM.into(), anyone());
    waits(&mut pool, FORM);
    assert!(pool.remove(1, Some("no key".to_owned()), 100));
    let Wanted::Resting(rest) = pool.want(&FORM.into(), &anyone(), 100) else {
        panic!("it rests");
    };
    assert_eq!((rest.reason.as_str(), rest.until_ms), ("no key", 100 + REST_MS));
    pool.enter(ROOTS.into(), anyone());
    assert_eq!(waits(&mut pool, ROOTS).len(), 1, "others start");
    assert!(
        matches!(pool.want(&FORM.into(), &anyone(), rest.until_ms), Wanted::Wait { orders, .. } if orders.len() == 1)
    );
}

#[test]
fn an_instance_with_a_cancelled_call_is_lent_after_its_late_answer() {
    let mut pool = pool(PoolKind::Only);
    let link = FrameLink::new();
    pool.add_only(Arc::clone(&link) as Arc<dyn Link>, 0);
    pool.enter(FORM.into(), anyone());
    let id = lent(&mut pool, FORM, 0);
    let call = Arc::clone(&link).open(CallPurpose::Caller, &mut |_, _| {}).unwrap();
    let number = call.number();
    drop(call);
    assert_eq!(pool.give_back(id, 1), Some(PoolOrder::Settle { id }));
    assert_eq!(waits(&mut pool, FORM), [], "a single instance has no other");
    link.end(number, crate::gateway::CallEnd::NotSent);
    assert!(!pool.settling(id).unwrap().owes_answer());
    pool.settled(id, 2);
    assert_eq!(lent(&mut pool, ROOTS, 2), id, "it serves all callers");
    pool.open(PoolKind::Closed);
    assert_eq!(pool.give_back(id, 3), None);
    assert!(matches!(pool.want(&FORM.into(), &anyone(), 3), Wanted::Closed));
}

#[test]
fn the_calls_of_an_owner_share_its_instance_and_no_other() {
    let mut pool = pool(PoolKind::Owners {
        size: 2,
        one_call: false,
        sharing: Sharing::Key,
    });
    let of = |owner: &str| Affinity {
        profile: Profile::NONE,
        owner: Some(owner.into()),
    };
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
    let mut pool = pool(PoolKind::Profiles(1));
    let [first, second] = ["first", "second"].map(Arc::<str>::from);
    let lent_to = |pool: &mut Pool, caller: &Arc<str>, now_ms| pool.want(&FORM.into(), caller, now_ms);
    assert!(pool.enter(FORM.into(), Arc::clone(&first)));
    assert!(matches!(lent_to(&mut pool, &first, 0), Wanted::Wait { orders, .. } if orders.len() == 1));
    let link = link();
    pool.ready(1, Arc::clone(&link), 0);
    assert!(matches!(lent_to(&mut pool, &first, 0), Wanted::Lent(1, _)));
    pool.leave(&FORM.into(), &first);
    pool.give_back(1, 1);
    assert!(
        matches!(lent_to(&mut pool, &second, 1), Wanted::Lent(1, _)),
        "it knows nothing"
    );
    pool.give_back(1, 2);

    link.note_learnt();
    assert!(matches!(lent_to(&mut pool, &second, 2), Wanted::Lent(1, _)));
    pool.give_back(1, 3);
    assert!(pool.enter(FORM.into(), Arc::clone(&first)));
    let orders = match lent_to(&mut pool, &first, 3) {
        Wanted::Wait { orders, .. } => orders,
        other => panic!("it waits for an instance of its own: {other:?}"),
    };
    assert_eq!(orders, [PoolOrder::End { id: 1 }, PoolOrder::Start { id: 2 }]);
}

#[test]
fn an_instance_is_ended_once_it_was_unused_for_long() {
    let mut pool = pool(PoolKind::Profiles(1));
    assert_eq!(pool.start_first(FORM.into(), 0), Some(PoolOrder::Start { id: 1 }));
    assert_eq!(pool.start_first(ROOTS.into(), 0), None, "there is no room");
    assert_eq!(pool.take_unused(60, 10), (vec![], Some(60)), "it starts");
    pool.ready(1, link(), 10);
    assert_eq!(pool.take_unused(60, 69), (vec![], Some(1)));
    assert_eq!(pool.take_unused(60, 70), (vec![1], None));
    assert!(pool.affinity_of(1).is_none());
    pool.open(PoolKind::Only);
    pool.add_only(link(), 70);
    assert_eq!(pool.take_unused(60, 200), (vec![], None), "the main one stays");
    lent(&mut pool, FORM, 200);
}

#[test]
fn an_instance_is_not_ended_for_another_call_while_one_waits_for_it() {
    let owners = PoolKind::Owners {
        size: 1,
        one_call: false,
        sharing: Sharing::Key,
    };
    let mut pool = pool(owners);
    let [first, second] = ["a", "b"].map(|owner| Affinity {
        profile: Profile::NONE,
        owner: Some(owner.into()),
    });
    pool.enter(first.clone(), anyone());
    pool.enter(second.clone(), anyone());
    assert!(matches!(pool.want(&first, &anyone(), 0), Wanted::Wait { orders, .. } if orders.len() == 1));
    pool.ready(1, link(), 0);
    let waits = pool.want(&second, &anyone(), 0);
    assert!(matches!(waits, Wanted::Wait { orders, keeps_turn: false } if orders.is_empty()));
    assert!(matches!(pool.want(&first, &anyone(), 0), Wanted::Lent(1, _)));
    assert!(
        matches!(pool.want(&FORM.into(), &anyone(), 0), Wanted::Closed),
        "it has no owner"
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
            match pool.want(&profile.into(), &anyone(), now_ms) {
                Wanted::Lent(id, _) => {
                    assert!(!self.lent.contains(&id), "it is lent twice");
                    self.lent.push(id);
                    pool.leave(&profile.into(), &anyone());
                }
                Wanted::Resting(_) => pool.leave(&profile.into(), &anyone()),
                Wanted::Wait { orders, .. } => {
                    self.starting.extend(orders.into_iter().filter_map(|order| match order {
                        PoolOrder::Start { id, .. } => Some(id),
                        _ => None,
                    }));
                    self.waiting.push(profile);
                }
                Wanted::Closed => unreachable!(),
            }
        }
    }
}

proptest! {
    #[test]
    fn each_call_gets_an_instance_of_its_own_and_none_waits_for_ever(size in 1_usize..4, steps in steps()) {
        let (mut pool, mut world) = (pool(PoolKind::Profiles(size)), World::default());
        for (at, step) in steps.into_iter().enumerate() {
            let now_ms = at as u64 * REST_MS / 2;
            match step {
                Step::Call(profile) if world.lent.len() + world.waiting.len() < size => {
                    let profile = [FORM, ROOTS, Profile::ALL][usize::from(profile)];
                    pool.enter(profile.into(), anyone());
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
            prop_assert!(pool.instances.len() <= size);
            // A call waits for a start that is under way; its turn says that an instance is left for it.
            prop_assert!(world.waiting.is_empty() || !world.starting.is_empty());
        }
    }
}
