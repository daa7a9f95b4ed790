//! The instances of a backend that not all calls share. Those of a legacy one that may ask run one call at a time, because its
//! questions do not say which call they belong to, and each got the capabilities of its callers. Those of one that is not
//! shared by the whole project run the calls of one owner.

use std::sync::Arc;

use super::{call::Link, profile::Profile};
use crate::model::Sharing;

/// How long an affinity rests after an instance for it could not be started.
const REST_MS: u64 = 5_000;
/// Audiences that rest at the same time. Beyond them the one that rests for the longest time is tried again earlier.
const RESTS_LEN_MAX: usize = 64;

/// Calls that wait for an instance. Those of a pool whose instances run one call have turns, of which there are fewer.
const WAITING_LEN_MAX: usize = 1_024;

/// Which instances a pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// None: the backend does not run, or calls need none.
    #[default]
    Closed,
    /// Only the main instance, which got all capabilities and serves all callers.
    Only,
    /// At most this many in addition to the main one, each for one profile and one call at a time.
    Profiles(usize),
    /// At most this many in addition to the main one, each for one owner. The main one serves no caller.
    Owners {
        size: usize,
        /// An instance runs one call at a time.
        one_call: bool,
        /// Who the owners are.
        sharing: Sharing,
    },
}

/// Whom an instance serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// What its callers can be asked for.
    pub profile: Profile,
    /// The key, session or connection that it belongs to; `None` for the whole project.
    pub owner: Option<Arc<str>>,
}

impl From<Profile> for Affinity {
    fn from(profile: Profile) -> Self {
        Self { profile, owner: None }
    }
}

impl PoolKind {
    /// The most instances in addition to the main one, and whether each runs one call at a time; `None` if there are none.
    fn bounds(self) -> Option<(usize, bool)> {
        match self {
            Self::Closed | Self::Only => None,
            Self::Profiles(size) => Some((size, true)),
            Self::Owners { size, one_call, .. } => Some((size, one_call)),
        }
    }
}

/// The instances, in the order of their last use.
#[derive(Debug, Default)]
pub struct Pool {
    kind: PoolKind,
    instances: Vec<Pooled>,
    /// For whom calls wait, and whose calls they are.
    waiting: Vec<(Affinity, Arc<str>)>,
    last_id: u64,
    rests: Vec<Rest>,
}

#[derive(Debug)]
struct Pooled {
    id: u64,
    affinity: Affinity,
    /// Whose call used it last. Once it has learnt something of that caller, it serves no other one.
    last_caller: Option<Arc<str>>,
    state: PooledState,
}

impl Pooled {
    /// The caller of whom it has learnt something.
    fn bound_to(&self) -> Option<&Arc<str>> {
        let has_learnt = match &self.state {
            PooledState::Ready { link, .. } | PooledState::Settling(link) => link.has_learnt(),
            PooledState::Starting => false,
        };
        self.last_caller.as_ref().filter(|_| has_learnt)
    }
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
    pub affinity: Affinity,
    pub reason: String,
    /// When it is tried again, on the monotonic clock.
    pub until_ms: u64,
}

/// What a call gets that wants an instance.
#[derive(Debug)]
pub enum Wanted {
    Lent(u64, Arc<dyn Link>),
    /// It waits until the pool changes. Meanwhile these are to be done. It keeps its turn, unless it waits for room that only
    /// the calls of other owners can make.
    Wait {
        orders: Vec<PoolOrder>,
        keeps_turn: bool,
    },
    Resting(Rest),
    /// The backend does not run.
    Closed,
}

/// What the actor of the backend does for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOrder {
    /// Start an instance.
    Start { id: u64 },
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
    pub const fn id(self) -> u64 {
        match self {
            Self::Start { id } | Self::End { id } | Self::Settle { id } => id,
        }
    }
}

impl Pool {
    /// Opens an empty pool, or closes it. What was lent before does not come back to it.
    pub fn open(&mut self, kind: PoolKind) {
        self.kind = kind;
        self.instances.clear();
        self.rests.clear();
    }

    /// Adds the main instance as the only one.
    pub fn add_only(&mut self, link: Arc<dyn Link>, now_ms: u64) {
        self.last_id += 1;
        self.instances.push(Pooled {
            id: self.last_id,
            affinity: Profile::ALL.into(),
            last_caller: None,
            state: PooledState::ready(link, now_ms),
        });
    }

    /// Notes that a call waits for an instance until [`Self::leave`]. False if too many wait.
    pub fn enter(&mut self, affinity: Affinity, caller: Arc<str>) -> bool {
        let has_room = self.waiting.len() < WAITING_LEN_MAX;
        if has_room {
            self.waiting.push((affinity, caller));
        }
        has_room
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
        let Some((size, one_call)) = self.kind.bounds() else {
            return match (self.kind, self.lend(None, caller, true)) {
                (PoolKind::Closed, _) => Wanted::Closed,
                (_, Some((id, link))) => Wanted::Lent(id, link),
                (_, None) => Wanted::Wait {
                    orders: Vec::new(),
                    keeps_turn: true,
                },
            };
        };
        // The backend is shared in another way than when the call looked.
        if affinity.owner.is_some() != matches!(self.kind, PoolKind::Owners { .. }) {
            return Wanted::Closed;
        }
        if let Some((id, link)) = self.lend(Some(affinity), caller, one_call) {
            return Wanted::Lent(id, link);
        }
        if let Some(rest) = self.rest_of(affinity, now_ms) {
            return Wanted::Resting(rest.clone());
        }
        let wanted = if one_call { self.waiting_for(affinity) } else { 1 };
        let coming = self.starting(affinity);
        let mut orders = Vec::new();
        if coming < wanted {
            if self.instances.len() >= size {
                orders.extend(self.give_up_unused());
            }
            if self.instances.len() < size {
                orders.push(self.start(affinity.clone()));
            }
        }
        Wanted::Wait {
            orders,
            keeps_turn: one_call || self.is_starting(affinity),
        }
    }

    fn starting(&self, affinity: &Affinity) -> usize {
        let is_starting =
            |pooled: &&Pooled| pooled.affinity == *affinity && matches!(pooled.state, PooledState::Starting);
        self.instances.iter().filter(is_starting).count()
    }

    /// Whether an instance for this affinity is being started.
    pub fn is_starting(&self, affinity: &Affinity) -> bool {
        self.starting(affinity) > 0
    }

    /// Starts the first instance for an affinity, if there is room and no start for it has just failed. Only instances that
    /// run one call at a time are for a profile of the whole project.
    pub fn start_first(&mut self, affinity: Affinity, now_ms: u64) -> Option<PoolOrder> {
        let (size, one_call) = self.kind.bounds()?;
        let is_of_kind = match affinity.owner {
            Some(_) => matches!(self.kind, PoolKind::Owners { .. }),
            None => one_call,
        };
        let is_wanted = is_of_kind && !self.has_any(&affinity) && self.rest_of(&affinity, now_ms).is_none();
        (is_wanted && self.instances.len() < size).then(|| self.start(affinity))
    }

    fn rest_of(&self, affinity: &Affinity, now_ms: u64) -> Option<&Rest> {
        let mut rests = self.rests.iter();
        rests.find(|rest| rest.until_ms > now_ms && rest.affinity == *affinity)
    }

    fn start(&mut self, affinity: Affinity) -> PoolOrder {
        self.last_id += 1;
        let id = self.last_id;
        self.instances.push(Pooled {
            id,
            affinity,
            last_caller: None,
            state: PooledState::Starting,
        });
        PoolOrder::Start { id }
    }

    /// Lends the instance for this affinity that was used last, or the only one. One that knows the caller goes before others,
    /// and one that has learnt something of another caller is not lent.
    fn lend(&mut self, affinity: Option<&Affinity>, caller: &Arc<str>, one_call: bool) -> Option<(u64, Arc<dyn Link>)> {
        let is_free = |pooled: &Pooled| {
            let serves = affinity.is_none_or(|affinity| pooled.affinity == *affinity);
            let is_ready = matches!(&pooled.state, PooledState::Ready { link, calls, .. }
                if link.is_open() && (*calls == 0 || !one_call));
            serves && is_ready
        };
        // The only instance serves all callers, and so do those that run several calls at once.
        let is_anyones = affinity.is_none() || !one_call;
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
        pooled.last_caller = Some(Arc::clone(caller));
        match &mut pooled.state {
            PooledState::Ready { link, calls, .. } => {
                *calls += 1;
                Some((pooled.id, Arc::clone(link)))
            }
            PooledState::Starting | PooledState::Settling(_) => None,
        }
    }

    /// Calls that wait for an instance for this affinity.
    fn waiting_for(&self, affinity: &Affinity) -> usize {
        self.waiting.iter().filter(|(waiting, _)| waiting == affinity).count()
    }

    /// Whether an instance runs several calls at once.
    pub fn runs_several(&self) -> bool {
        self.kind.bounds().is_some_and(|(_, one_call)| !one_call)
    }

    /// Takes the instance out that was not used for the longest time. One for which a call waits stays.
    fn give_up_unused(&mut self) -> Option<PoolOrder> {
        let is_unused = |pooled: &&Pooled| pooled.state.is_unused() && pooled.bound_to().is_none();
        let is_spare = |pooled: &Pooled| {
            if let Some(caller) = pooled.bound_to() {
                let mut waiting = self.waiting.iter();
                let is_awaited = waiting.any(|(affinity, of)| (affinity, of) == (&pooled.affinity, caller));
                return pooled.state.is_unused() && !is_awaited;
            }
            let unused = self.instances.iter().filter(is_unused);
            let same = unused.filter(|other| other.affinity == pooled.affinity).count();
            pooled.state.is_unused() && same > self.waiting_for(&pooled.affinity)
        };
        let at = self.instances.iter().position(is_spare)?;
        let id = self.instances.remove(at).id;
        Some(PoolOrder::End { id })
    }

    /// Whether the instance that an affinity would be lent has this link.
    pub fn has_link(&self, affinity: &Affinity, number: u64) -> bool {
        let mut links = self.instances.iter().rev().filter_map(|pooled| match &pooled.state {
            PooledState::Ready { link, .. } if pooled.affinity == *affinity => Some(link),
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

    /// For whom the instance of this id is.
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
            self.rests
                .retain(|rest| rest.until_ms > now_ms && rest.affinity != affinity);
            if self.rests.len() >= RESTS_LEN_MAX {
                self.rests.remove(0);
            }
            self.rests.push(Rest {
                affinity,
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

    /// Takes out the instances other than the main one that were unused for as long. Returns their ids, and when the next one may
    /// be, in milliseconds.
    pub fn take_unused(&mut self, idle_ms: u64, now_ms: u64) -> (Vec<u64>, Option<u64>) {
        let (mut ids, mut next_ms) = (Vec::new(), None);
        if self.kind.bounds().is_none() {
            return (ids, next_ms);
        }
        self.instances.retain(|pooled| {
            let left_ms = match &pooled.state {
                PooledState::Ready { calls: 0, since_ms, .. } => {
                    idle_ms.saturating_sub(now_ms.saturating_sub(*since_ms))
                }
                _ => idle_ms.max(1),
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
