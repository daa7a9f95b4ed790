//! The instances of a backend that are lent to calls. Each serves one [`Affinity`]:
//!
//! - The main instance serves everyone: all calls that need no other instance.
//! - An instance of a legacy backend that may ask serves callers with the same capabilities, which it got in its handshake. It
//!   runs one call at a time, because a question of such a backend does not say which call it belongs to.
//! - An instance of a backend that the project does not share serves one owner: a key, a session or a connection.

use std::sync::Arc;

use super::{call::Link, profile::Profile, turns::Lane};
use crate::model::Sharing;

/// How long an affinity cools down after an instance for it could not be started.
const COOLDOWN_MS: u64 = 5_000;
/// Affinities that cool down at the same time. Beyond them the one that does so for the longest time is tried again earlier.
const COOLDOWNS_LEN_MAX: usize = 64;

/// How the instances of a backend are lent to calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolMode {
    /// Who shares an instance.
    pub sharing: Sharing,
    /// An instance that may ask runs one call at a time, for callers with the same capabilities.
    one_call: bool,
    /// The most instances in addition to the main one.
    others: usize,
}

/// Whom an instance serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// How the instances of its backend are lent.
    pub mode: PoolMode,
    /// What its callers can be asked for.
    pub profile: Profile,
    /// The key, session or connection that it belongs to; `None` for the whole project.
    pub owner: Option<Arc<str>>,
}

impl PoolMode {
    /// The main instance takes all calls.
    pub const SHARED: Self = Self {
        sharing: Sharing::Project,
        one_call: false,
        others: 0,
    };

    /// The mode of a backend. A backend that the whole project shares needs no instance but the main one, unless its instances
    /// run one call at a time.
    pub fn new(sharing: Sharing, one_call: bool, others: usize) -> Self {
        if sharing == Sharing::Project && !one_call {
            return Self::SHARED;
        }
        Self {
            sharing,
            one_call,
            others,
        }
    }

    /// The affinity of an instance for callers of this profile in the whole project.
    pub const fn of_project(self, profile: Profile) -> Affinity {
        Affinity {
            mode: self,
            profile,
            owner: None,
        }
    }

    /// The affinity of a call. `profile` is what its caller can be asked for, `may_ask` whether such a call asks, and `owner`
    /// names the owner of an instance of the caller.
    pub fn affinity(self, profile: Profile, may_ask: bool, owner: impl FnOnce(Sharing) -> Arc<str>) -> Affinity {
        let is_owned = self.sharing != Sharing::Project;
        let has_profile = self.one_call && (is_owned || (may_ask && self.others > 0));
        Affinity {
            owner: is_owned.then(|| owner(self.sharing)),
            ..self.of_project(if has_profile { profile } else { Profile::NONE })
        }
    }

    /// How many calls run at once in a lane. `concurrency` is the most where an instance runs several.
    pub fn turns(self, lane: Lane, concurrency: usize) -> usize {
        match lane {
            Lane::Others if self.one_call => self.others,
            Lane::Others | Lane::Main => concurrency,
        }
    }
}

impl Affinity {
    /// The affinity of a main instance that takes all calls, and of calls that cannot know yet which instance they need.
    pub const EVERYONE: Self = PoolMode::SHARED.of_project(Profile::NONE);

    /// Whether this is the affinity of the main instance: no owner, and no capabilities by which instances differ.
    fn is_everyone(&self) -> bool {
        self.owner.is_none() && self.profile == Profile::NONE
    }

    /// The lane of the calls that such an instance runs.
    pub fn lane(&self) -> Lane {
        let is_only = self.mode.one_call && self.mode.others == 0;
        if self.is_everyone() && !is_only {
            Lane::Main
        } else {
            Lane::Others
        }
    }

    /// Whether such an instance runs one call at a time.
    pub fn runs_one_call(&self) -> bool {
        self.mode.one_call && self.lane() == Lane::Others
    }
}

/// The instances, in the order of their last use.
#[derive(Debug, Default)]
pub struct Pool {
    /// `None` while the backend does not run.
    pub mode: Option<PoolMode>,
    instances: Vec<Pooled>,
    /// The affinity of each call that waits, and its caller.
    waiting: Vec<(Affinity, Arc<str>)>,
    last_id: u64,
    cooldowns: Vec<Cooldown>,
}

#[derive(Debug)]
struct Pooled {
    id: u64,
    affinity: Affinity,
    /// The caller that used it last. Once it has learnt something of that caller, it serves no other one.
    last_caller: Option<Arc<str>>,
    /// `None` while it starts.
    link: Option<Arc<dyn Link>>,
    /// Calls to which it is lent.
    calls: usize,
    /// When the last of them ended, or when it became ready.
    since_ms: u64,
}

impl Pooled {
    /// The caller of whom it has learnt something.
    fn bound_to(&self) -> Option<&Arc<str>> {
        let has_learnt = |_: &&_| self.link.as_ref().is_some_and(|link| link.has_learnt());
        self.last_caller.as_ref().filter(has_learnt)
    }

    fn is_unused(&self) -> bool {
        self.link.is_some() && self.calls == 0
    }
}

/// An affinity whose last instance could not be started: no other one is started for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cooldown {
    pub affinity: Affinity,
    pub reason: String,
    /// When it is tried again, on the monotonic clock.
    pub until_ms: u64,
}

/// The answer of the pool to a call that needs an instance.
#[derive(Debug)]
pub enum Wanted {
    Lent(u64, Arc<dyn Link>),
    /// The call waits until the pool changes. The actor carries out the orders meanwhile. The call keeps its turn, unless it
    /// waits for room that only the calls of other owners can make.
    Wait {
        orders: Vec<PoolOrder>,
        keeps_turn: bool,
    },
    CoolingDown(Cooldown),
}

/// What the actor of the backend does for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOrder {
    /// Start an instance.
    Start { id: u64 },
    /// End an instance.
    End { id: u64 },
    /// Start the backend again: its main instance does not end a cancelled call.
    Restart { id: u64 },
}

impl PoolOrder {
    /// The instance that it is about.
    pub const fn id(self) -> u64 {
        match self {
            Self::Start { id } | Self::End { id } | Self::Restart { id } => id,
        }
    }
}

impl Pool {
    /// Opens a pool with the main instance. What was lent before does not come back to it.
    pub fn open(&mut self, mode: PoolMode, main: Arc<dyn Link>, now_ms: u64) {
        self.close();
        self.mode = Some(mode);
        let id = self.add(mode.of_project(Profile::NONE));
        self.ready(id, main, now_ms);
    }

    /// Lends no instance to further calls, and forgets those that it has.
    pub fn close(&mut self) {
        self.mode = None;
        self.instances.clear();
        self.cooldowns.clear();
    }

    /// Notes that a call waits for an instance until [`Self::leave`].
    pub fn enter(&mut self, affinity: Affinity, caller: Arc<str>) {
        self.waiting.push((affinity, caller));
    }

    /// A call does not wait any longer.
    pub fn leave(&mut self, affinity: &Affinity, caller: &Arc<str>) {
        let is_it = |(waiting, of): &(Affinity, Arc<str>)| (waiting, of) == (affinity, caller);
        if let Some(at) = self.waiting.iter().position(is_it) {
            self.waiting.swap_remove(at);
        }
    }

    /// Lends an instance to a call of this caller that waits for it.
    pub fn want(&mut self, affinity: &Affinity, caller: &Arc<str>, now_ms: u64) -> Wanted {
        if let Some((id, link)) = self.lend(affinity, caller, |link| link.is_open()) {
            return Wanted::Lent(id, link);
        }
        let (mut orders, mode) = (Vec::new(), affinity.mode);
        // A call that has seen another mode has to look again. The main instance is started without the pool.
        if self.mode != Some(mode) || affinity.is_everyone() {
            return Wanted::Wait {
                orders,
                keeps_turn: true,
            };
        }
        if let Some(cooldown) = self.cooldown_of(affinity, now_ms) {
            return Wanted::CoolingDown(cooldown.clone());
        }
        let wanted = if mode.one_call { self.waiting_for(affinity) } else { 1 };
        if self.starting(affinity) < wanted {
            if self.others_len() >= mode.others {
                orders.extend(self.give_up_unused());
            }
            if self.others_len() < mode.others {
                orders.push(self.start(affinity.clone()));
            }
        }
        Wanted::Wait {
            orders,
            keeps_turn: mode.one_call || self.is_starting(affinity),
        }
    }

    /// Instances in addition to the main one.
    fn others_len(&self) -> usize {
        let is_other = |pooled: &&Pooled| !pooled.affinity.is_everyone();
        self.instances.iter().filter(is_other).count()
    }

    fn starting(&self, affinity: &Affinity) -> usize {
        let is_starting = |pooled: &&Pooled| pooled.affinity == *affinity && pooled.link.is_none();
        self.instances.iter().filter(is_starting).count()
    }

    /// Whether an instance for this affinity is being started.
    pub fn is_starting(&self, affinity: &Affinity) -> bool {
        self.starting(affinity) > 0
    }

    /// Starts the first instance for an affinity, if there is room and no start for it has just failed. Only instances that
    /// run one call at a time are for a profile of the whole project.
    pub fn start_first(&mut self, affinity: Affinity, now_ms: u64) -> Option<PoolOrder> {
        let mode = self.mode.filter(|mode| *mode == affinity.mode)?;
        let is_of_mode = affinity.owner.is_some() || mode.one_call;
        let is_wanted = is_of_mode && !self.has_any(&affinity) && self.cooldown_of(&affinity, now_ms).is_none();
        (is_wanted && self.others_len() < mode.others).then(|| self.start(affinity))
    }

    fn cooldown_of(&self, affinity: &Affinity, now_ms: u64) -> Option<&Cooldown> {
        let mut cooldowns = self.cooldowns.iter();
        cooldowns.find(|cooldown| cooldown.until_ms > now_ms && cooldown.affinity == *affinity)
    }

    fn start(&mut self, affinity: Affinity) -> PoolOrder {
        PoolOrder::Start { id: self.add(affinity) }
    }

    fn add(&mut self, affinity: Affinity) -> u64 {
        self.last_id += 1;
        self.instances.push(Pooled {
            id: self.last_id,
            affinity,
            last_caller: None,
            link: None,
            calls: 0,
            since_ms: 0,
        });
        self.last_id
    }

    /// Lends the instance for this affinity that was used last. One that knows the caller goes before others, and one that has
    /// learnt something of another caller is not lent. `takes` says whether a link is worth an attempt.
    pub fn lend(
        &mut self,
        affinity: &Affinity,
        caller: &Arc<str>,
        takes: impl Fn(&dyn Link) -> bool,
    ) -> Option<(u64, Arc<dyn Link>)> {
        let one_call = affinity.runs_one_call();
        let is_free = |pooled: &Pooled| {
            let is_ready = pooled.link.as_ref().is_some_and(|link| takes(&**link));
            pooled.affinity == *affinity && (pooled.calls == 0 || !one_call) && is_ready
        };
        // The main instance serves all callers, and so do those that run several calls at once.
        let is_anyones = affinity.is_everyone() || !one_call;
        let knows = |pooled: &Pooled| pooled.bound_to() == Some(caller);
        let may_serve = |pooled: &Pooled| is_anyones || pooled.bound_to().is_none();
        let free = |wanted: &dyn Fn(&Pooled) -> bool| {
            let mut instances = self.instances.iter().enumerate().rev();
            instances
                .find(|(_, pooled)| is_free(pooled) && wanted(pooled))
                .map(|(at, _)| at)
        };
        let at = free(&knows).or_else(|| free(&may_serve))?;
        let pooled = &mut self.instances[at];
        if !affinity.is_everyone() {
            pooled.last_caller = Some(Arc::clone(caller));
        }
        pooled.calls += 1;
        Some((pooled.id, pooled.link.clone()?))
    }

    /// Calls that wait for an instance for this affinity.
    fn waiting_for(&self, affinity: &Affinity) -> usize {
        self.waiting.iter().filter(|(waiting, _)| waiting == affinity).count()
    }

    /// Takes the instance out that was not used for the longest time. One for which a call waits stays.
    fn give_up_unused(&mut self) -> Option<PoolOrder> {
        let is_unused = |pooled: &&Pooled| pooled.is_unused() && pooled.bound_to().is_none();
        let is_spare = |pooled: &Pooled| {
            if let Some(caller) = pooled.bound_to() {
                let mut waiting = self.waiting.iter();
                let is_awaited = waiting.any(|(affinity, of)| (affinity, of) == (&pooled.affinity, caller));
                return pooled.is_unused() && !is_awaited;
            }
            let unused = self.instances.iter().filter(is_unused);
            let same = unused.filter(|other| other.affinity == pooled.affinity).count();
            pooled.is_unused() && same > self.waiting_for(&pooled.affinity)
        };
        let mut instances = self.instances.iter();
        let at = instances.position(|pooled| !pooled.affinity.is_everyone() && is_spare(pooled))?;
        let id = self.instances.remove(at).id;
        Some(PoolOrder::End { id })
    }

    /// Whether the instance that an affinity would be lent has this link.
    pub fn has_link(&self, affinity: &Affinity, number: u64) -> bool {
        let serves = |pooled: &&Pooled| pooled.affinity == *affinity;
        let mut links = self
            .instances
            .iter()
            .rev()
            .filter(serves)
            .filter_map(|pooled| pooled.link.as_ref());
        links.next().is_some_and(|link| link.number() == number)
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.instances.iter().position(|pooled| pooled.id == id)
    }

    /// An instance takes calls.
    pub fn ready(&mut self, id: u64, link: Arc<dyn Link>, now_ms: u64) {
        if let Some(at) = self.position(id) {
            let pooled = &mut self.instances[at];
            (pooled.link, pooled.since_ms) = (Some(link), now_ms);
        }
    }

    /// The affinity of the instance with this id.
    pub fn affinity_of(&self, id: u64) -> Option<Affinity> {
        Some(self.instances[self.position(id)?].affinity.clone())
    }

    /// Whether it has an instance for this affinity.
    fn has_any(&self, affinity: &Affinity) -> bool {
        self.instances.iter().any(|pooled| pooled.affinity == *affinity)
    }

    /// Takes an instance out that is gone: why, if it could not be started. Returns whether the pool had it.
    pub fn remove(&mut self, id: u64, not_started: Option<String>, now_ms: u64) -> bool {
        let Some(at) = self.position(id) else { return false };
        let affinity = self.instances.remove(at).affinity;
        if let Some(reason) = not_started {
            self.cooldowns
                .retain(|cooldown| cooldown.until_ms > now_ms && cooldown.affinity != affinity);
            if self.cooldowns.len() >= COOLDOWNS_LEN_MAX {
                self.cooldowns.remove(0);
            }
            self.cooldowns.push(Cooldown {
                affinity,
                reason,
                until_ms: now_ms + COOLDOWN_MS,
            });
        }
        true
    }

    /// Whether it has this instance.
    pub fn has(&self, id: Option<u64>) -> bool {
        id.is_some_and(|id| self.position(id).is_some())
    }

    /// Whether it is open and the main instance was taken out.
    pub fn lacks_main(&self) -> bool {
        self.mode.is_some() && !self.instances.iter().any(|pooled| pooled.affinity.is_everyone())
    }

    /// Takes an instance out that does not end a cancelled call.
    pub fn end(&mut self, id: u64) -> Option<PoolOrder> {
        let pooled = self.instances.remove(self.position(id)?);
        Some(if pooled.affinity.is_everyone() {
            PoolOrder::Restart { id }
        } else {
            PoolOrder::End { id }
        })
    }

    /// A call has ended to which an instance was lent.
    pub fn give_back(&mut self, id: u64, now_ms: u64) {
        if let Some(at) = self.position(id) {
            let mut pooled = self.instances.remove(at);
            (pooled.calls, pooled.since_ms) = (pooled.calls.saturating_sub(1), now_ms);
            self.instances.push(pooled);
        }
    }

    /// Takes out the instances other than the main one that were unused for as long. Returns their ids, and when the next one may
    /// be, in milliseconds.
    pub fn take_unused(&mut self, idle_ms: u64, now_ms: u64) -> (Vec<u64>, Option<u64>) {
        let (mut ids, mut next_ms) = (Vec::new(), None);
        self.instances.retain(|pooled| {
            if pooled.affinity.is_everyone() {
                return true;
            }
            let left_ms = if pooled.is_unused() {
                idle_ms.saturating_sub(now_ms.saturating_sub(pooled.since_ms))
            } else {
                idle_ms.max(1)
            };
            if left_ms == 0 {
                ids.push(pooled.id);
            } else {
                next_ms = Some(next_ms.map_or(left_ms, |next: u64| next.min(left_ms)));
            }
            left_ms > 0
        });
        (ids, next_ms)
    }
}

#[cfg(test)]
mod tests;
