//! The instances of a backend that not all calls share. Those of a legacy one that may ask run one call at a time, because its
//! questions do not say which call they belong to, and each was told what its callers can answer. Those of one that is not
//! shared by the whole project run the calls of one owner.

use std::sync::Arc;

use super::{call::Link, profile::Profile};

/// How long a profile rests after an instance for it could not be started.
const REST_MS: u64 = 5_000;

/// Which instances a pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// None: the backend does not run, or calls need none.
    #[default]
    Closed,
    /// The main instance alone, which was told everything and serves all callers.
    Only,
    /// At most this many beside the main one, each for one profile and one call at a time.
    Profiles(usize),
    /// At most this many beside the main one, each for one owner. The main one serves no caller.
    Owners {
        size: usize,
        /// An instance runs one call at a time.
        one_call: bool,
    },
}

/// Whom an instance serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audience {
    /// What its callers can be asked for.
    pub profile: Profile,
    /// The key, session or connection that it belongs to; `None` for the whole project.
    pub owner: Option<Arc<str>>,
}

impl From<Profile> for Audience {
    fn from(profile: Profile) -> Self {
        Self { profile, owner: None }
    }
}

impl PoolKind {
    /// The most instances beside the main one, and whether each runs one call at a time; `None` if there are none.
    fn bounds(self) -> Option<(usize, bool)> {
        match self {
            Self::Closed | Self::Only => None,
            Self::Profiles(size) => Some((size, true)),
            Self::Owners { size, one_call } => Some((size, one_call)),
        }
    }
}

/// The instances, in the order of their last use.
#[derive(Debug, Default)]
pub struct Pool {
    kind: PoolKind,
    instances: Vec<Pooled>,
    /// For whom calls wait.
    waiting: Vec<Audience>,
    last_id: u64,
    rest: Option<Rest>,
}

#[derive(Debug)]
struct Pooled {
    id: u64,
    audience: Audience,
    state: PooledState,
}

#[derive(Debug)]
enum PooledState {
    Starting,
    Ready {
        link: Arc<dyn Link>,
        /// Calls to which it is lent.
        calls: usize,
        /// When the last of them ended, or when it became ready.
        since_ms: u64,
    },
    /// Its last call was cancelled, and may still run.
    Settling(Arc<dyn Link>),
}

/// An instance could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    pub profile: Profile,
    pub reason: String,
    /// When it is tried again, on the monotonic clock.
    pub until_ms: u64,
}

/// What a call gets that wants an instance.
#[derive(Debug)]
pub enum Wanted {
    Lent(u64, Arc<dyn Link>),
    /// It waits until the pool changes. Meanwhile these are to be done.
    Wait(Vec<PoolOrder>),
    Resting(Rest),
    /// The backend does not run.
    Closed,
}

/// What the actor of the backend does for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOrder {
    /// Start an instance for a profile.
    Start { id: u64, profile: Profile },
    /// End an instance.
    End { id: u64 },
    /// Wait until the cancelled call of an instance has ended.
    Settle { id: u64 },
}

impl PooledState {
    fn ready(link: Arc<dyn Link>, since_ms: u64) -> Self {
        Self::Ready {
            link,
            calls: 0,
            since_ms,
        }
    }

    fn is_unused(&self) -> bool {
        matches!(self, Self::Ready { calls: 0, .. })
    }
}

impl PoolOrder {
    /// The instance that it is about.
    #[must_use]
    pub const fn id(self) -> u64 {
        match self {
            Self::Start { id, .. } | Self::End { id } | Self::Settle { id } => id,
        }
    }
}

impl Pool {
    /// Opens an empty pool, or closes it. What was lent before does not come back to it.
    pub fn open(&mut self, kind: PoolKind) {
        self.kind = kind;
        self.instances.clear();
        self.rest = None;
    }

    /// Adds the main instance as the only one.
    pub fn add_only(&mut self, link: Arc<dyn Link>, now_ms: u64) {
        self.last_id += 1;
        self.instances.push(Pooled {
            id: self.last_id,
            audience: Profile::ALL.into(),
            state: PooledState::ready(link, now_ms),
        });
    }

    /// Notes that a call waits for an instance until [`Self::leave`].
    pub fn enter(&mut self, audience: Audience) {
        self.waiting.push(audience);
    }

    /// A call does not wait any longer.
    pub fn leave(&mut self, audience: &Audience) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting == audience) {
            self.waiting.swap_remove(at);
        }
    }

    /// Lends an instance to a call that waits for it.
    pub fn want(&mut self, audience: &Audience, now_ms: u64) -> Wanted {
        let Some((size, one_call)) = self.kind.bounds() else {
            return match (self.kind, self.lend(None, true)) {
                (PoolKind::Closed, _) => Wanted::Closed,
                (_, Some((id, link))) => Wanted::Lent(id, link),
                (_, None) => Wanted::Wait(Vec::new()),
            };
        };
        if let Some((id, link)) = self.lend(Some(audience), one_call) {
            return Wanted::Lent(id, link);
        }
        if let Some(rest) = self.rest.as_ref().filter(|rest| rest.until_ms > now_ms)
            && rest.profile == audience.profile
        {
            return Wanted::Resting(rest.clone());
        }
        let waiting = self.waiting.iter().filter(|waiting| *waiting == audience).count();
        let wanted = if one_call { waiting } else { 1 };
        let is_starting =
            |pooled: &&Pooled| pooled.audience == *audience && matches!(pooled.state, PooledState::Starting);
        let coming = self.instances.iter().filter(is_starting).count();
        let mut orders = Vec::new();
        if coming < wanted {
            if self.instances.len() >= size {
                orders.extend(self.give_up_unused());
            }
            if self.instances.len() < size {
                orders.push(self.start(audience.clone()));
            }
        }
        Wanted::Wait(orders)
    }

    /// Starts an instance for a profile that no instance for the whole project has, if there is room. Only instances that run
    /// one call at a time have profiles.
    pub fn start_first(&mut self, profile: Profile) -> Option<PoolOrder> {
        let (size, _) = self.kind.bounds().filter(|(_, one_call)| *one_call)?;
        let audience = Audience::from(profile);
        let has_none = self.instances.iter().all(|pooled| pooled.audience != audience);
        (has_none && self.instances.len() < size).then(|| self.start(audience))
    }

    fn start(&mut self, audience: Audience) -> PoolOrder {
        self.last_id += 1;
        let (id, profile) = (self.last_id, audience.profile);
        self.instances.push(Pooled {
            id,
            audience,
            state: PooledState::Starting,
        });
        PoolOrder::Start { id, profile }
    }

    /// Lends the instance for this audience that was used last, or the only one.
    fn lend(&mut self, audience: Option<&Audience>, one_call: bool) -> Option<(u64, Arc<dyn Link>)> {
        let serves = |pooled: &Pooled| audience.is_none_or(|audience| pooled.audience == *audience);
        for pooled in self.instances.iter_mut().rev().filter(|pooled| serves(pooled)) {
            if let PooledState::Ready { link, calls, .. } = &mut pooled.state
                && link.is_open()
                && (*calls == 0 || !one_call)
            {
                *calls += 1;
                return Some((pooled.id, Arc::clone(link)));
            }
        }
        None
    }

    /// Takes the instance out that was not used for the longest time.
    fn give_up_unused(&mut self) -> Option<PoolOrder> {
        let at = self.instances.iter().position(|pooled| pooled.state.is_unused())?;
        let id = self.instances.remove(at).id;
        Some(PoolOrder::End { id })
    }

    /// Whether the instance that an audience would be lent has this link.
    pub fn has_link(&self, audience: &Audience, number: u64) -> bool {
        let mut links = self.instances.iter().rev().filter_map(|pooled| match &pooled.state {
            PooledState::Ready { link, .. } if pooled.audience == *audience => Some(link),
            _ => None,
        });
        links.next().is_some_and(|link| link.number() == number)
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.instances.iter().position(|pooled| pooled.id == id)
    }

    /// An instance takes calls.
    pub fn ready(&mut self, id: u64, link: Arc<dyn Link>, now_ms: u64) {
        if let Some(at) = self.position(id) {
            self.instances[at].state = PooledState::ready(link, now_ms);
        }
    }

    /// Whether it has this instance.
    pub fn has(&self, id: u64) -> bool {
        self.position(id).is_some()
    }

    /// Takes an instance out that is gone: why, if it could not be started. Returns whether the pool had it.
    pub fn remove(&mut self, id: u64, not_started: Option<String>, now_ms: u64) -> bool {
        let Some(at) = self.position(id) else { return false };
        let profile = self.instances.remove(at).audience.profile;
        if let Some(reason) = not_started {
            self.rest = Some(Rest {
                profile,
                reason,
                until_ms: now_ms + REST_MS,
            });
        }
        true
    }

    /// A call has ended to which an instance was lent.
    pub fn give_back(&mut self, id: u64, now_ms: u64) -> Option<PoolOrder> {
        let one_call = self.kind.bounds().is_none_or(|(_, one_call)| one_call);
        let mut pooled = self.instances.remove(self.position(id)?);
        let mut order = None;
        if let PooledState::Ready { link, calls, since_ms } = &mut pooled.state {
            (*calls, *since_ms) = (calls.saturating_sub(1), now_ms);
            if one_call && link.owes_answer() {
                pooled.state = PooledState::Settling(Arc::clone(link));
                order = Some(PoolOrder::Settle { id });
            }
        }
        self.instances.push(pooled);
        order
    }

    /// The cancelled call of an instance has ended.
    pub fn settled(&mut self, id: u64, now_ms: u64) {
        if let Some(at) = self.position(id)
            && let PooledState::Settling(link) = &self.instances[at].state
        {
            let link = Arc::clone(link);
            self.instances[at].state = PooledState::ready(link, now_ms);
        }
    }

    /// The link of an instance whose cancelled call may still run.
    pub fn settling(&self, id: u64) -> Option<Arc<dyn Link>> {
        match &self.instances[self.position(id)?].state {
            PooledState::Settling(link) => Some(Arc::clone(link)),
            _ => None,
        }
    }

    /// Takes an instance out that was free for as long. Returns whether it was.
    pub fn remove_unused(&mut self, id: u64, idle_ms: u64, now_ms: u64) -> bool {
        let Some(at) = self.position(id) else { return false };
        let is_unused = match &self.instances[at].state {
            PooledState::Ready { calls: 0, since_ms, .. } => now_ms.saturating_sub(*since_ms) >= idle_ms,
            _ => false,
        };
        if is_unused {
            self.instances.remove(at);
        }
        is_unused
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gateway::{CallPurpose, FrameLink};

    const FORM: Profile = Profile::FORM;
    const ROOTS: Profile = Profile::ROOTS;

    fn link() -> Arc<dyn Link> {
        FrameLink::new()
    }

    fn pool(kind: PoolKind) -> Pool {
        let mut pool = Pool::default();
        pool.open(kind);
        pool
    }

    /// The orders of a call that waits.
    fn waits(pool: &mut Pool, profile: Profile) -> Vec<PoolOrder> {
        match pool.want(&profile.into(), 0) {
            Wanted::Wait(orders) => orders,
            other => panic!("the call waits: {other:?}"),
        }
    }

    fn lent(pool: &mut Pool, profile: Profile, now_ms: u64) -> u64 {
        match pool.want(&profile.into(), now_ms) {
            Wanted::Lent(id, _) => id,
            other => panic!("an instance is lent: {other:?}"),
        }
    }

    #[test]
    fn calls_that_wait_start_as_many_instances_as_they_need() {
        let mut pool = pool(PoolKind::Profiles(2));
        for _ in 0..3 {
            pool.enter(FORM.into());
        }
        assert_eq!(waits(&mut pool, FORM), [PoolOrder::Start { id: 1, profile: FORM }]);
        assert_eq!(waits(&mut pool, FORM), [PoolOrder::Start { id: 2, profile: FORM }]);
        assert_eq!(waits(&mut pool, FORM), [], "there is no room");
        pool.ready(2, link(), 5);
        assert_eq!(lent(&mut pool, FORM, 5), 2);
        pool.leave(&FORM.into());
        assert_eq!(pool.give_back(2, 9), None);
        pool.ready(1, link(), 9);
        assert_eq!(lent(&mut pool, FORM, 9), 2, "the one that was used last");
    }

    #[test]
    fn an_unused_instance_makes_room_and_a_used_one_does_not() {
        let mut pool = pool(PoolKind::Profiles(1));
        pool.enter(FORM.into());
        waits(&mut pool, FORM);
        pool.ready(1, link(), 0);
        pool.leave(&FORM.into());
        let id = lent(&mut pool, FORM, 0);
        pool.enter(ROOTS.into());
        assert_eq!(waits(&mut pool, ROOTS), []);
        pool.give_back(id, 0);
        let start = PoolOrder::Start { id: 2, profile: ROOTS };
        assert_eq!(waits(&mut pool, ROOTS), [PoolOrder::End { id: 1 }, start]);
        assert!(!pool.has(1) && pool.has(2));
    }

    #[test]
    fn after_a_failed_start_its_profile_rests() {
        let mut pool = pool(PoolKind::Profiles(2));
        pool.enter(FORM.into());
        waits(&mut pool, FORM);
        assert!(pool.remove(1, Some("no key".to_owned()), 100));
        let Wanted::Resting(rest) = pool.want(&FORM.into(), 100) else {
            panic!("it rests");
        };
        assert_eq!((rest.reason.as_str(), rest.until_ms), ("no key", 100 + REST_MS));
        pool.enter(ROOTS.into());
        assert_eq!(waits(&mut pool, ROOTS).len(), 1, "others start");
        assert!(matches!(pool.want(&FORM.into(), rest.until_ms), Wanted::Wait(orders) if orders.len() == 1));
    }

    #[test]
    fn an_instance_with_a_cancelled_call_is_lent_after_its_late_answer() {
        let mut pool = pool(PoolKind::Only);
        let link = FrameLink::new();
        pool.add_only(Arc::clone(&link) as Arc<dyn Link>, 0);
        pool.enter(FORM.into());
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
        assert!(matches!(pool.want(&FORM.into(), 3), Wanted::Closed));
    }

    #[test]
    fn the_calls_of_an_owner_share_its_instance_and_no_other() {
        let mut pool = pool(PoolKind::Owners {
            size: 2,
            one_call: false,
        });
        let of = |owner: &str| Audience {
            profile: Profile::NONE,
            owner: Some(owner.into()),
        };
        let (first, second, third) = (of("a"), of("b"), of("c"));
        for audience in [&first, &first, &second] {
            pool.enter(audience.clone());
        }
        let start = |id| PoolOrder::Start {
            id,
            profile: Profile::NONE,
        };
        let mut orders = |audience: &Audience| match pool.want(audience, 0) {
            Wanted::Wait(orders) => orders,
            other => panic!("the call waits: {other:?}"),
        };
        assert_eq!(orders(&first), [start(1)]);
        assert_eq!(orders(&first), [], "one is enough for all its calls");
        assert_eq!(orders(&second), [start(2)]);
        let [of_first, of_second] = [link(), link()];
        pool.ready(1, Arc::clone(&of_first), 0);
        pool.ready(2, of_second, 0);
        for _ in 0..2 {
            assert!(matches!(pool.want(&first, 0), Wanted::Lent(1, _)));
        }
        assert!(pool.has_link(&first, of_first.number()) && !pool.has_link(&second, of_first.number()));
        assert!(matches!(pool.want(&second, 0), Wanted::Lent(2, _)));
        pool.give_back(1, 5);
        pool.give_back(2, 5);
        // The first still has a call, so the second makes room.
        assert!(matches!(pool.want(&third, 5), Wanted::Wait(orders) if orders == [PoolOrder::End { id: 2 }, start(3)]));
    }

    #[test]
    fn an_instance_is_ended_once_it_was_unused_for_long() {
        let mut pool = pool(PoolKind::Profiles(1));
        assert_eq!(pool.start_first(FORM), Some(PoolOrder::Start { id: 1, profile: FORM }));
        assert_eq!(pool.start_first(ROOTS), None, "there is no room");
        assert!(!pool.remove_unused(1, 0, 10), "it starts");
        pool.ready(1, link(), 10);
        assert!(!pool.remove_unused(1, 60, 69));
        assert!(pool.remove_unused(1, 60, 70));
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
                match pool.want(&profile.into(), now_ms) {
                    Wanted::Lent(id, _) => {
                        assert!(!self.lent.contains(&id), "it is lent twice");
                        self.lent.push(id);
                        pool.leave(&profile.into());
                    }
                    Wanted::Resting(_) => pool.leave(&profile.into()),
                    Wanted::Wait(orders) => {
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
                        pool.enter(profile.into());
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
}
