//! Lends the instances of a [`Pool`] to calls. Callers that wait are served in rotation.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::watch;

use super::{
    call::{Link, Occupied},
    pool::{Affinity, Pool, PoolKind, PoolOrder, Rest, Wanted},
    turns::{CallerId, Turn, Turns},
};
use crate::clock::mono_ms;
use crate::locked::Locked;

/// The instances of one backend that are lent to calls.
pub struct Checkouts {
    pool: Locked<Pool>,
    /// Where an instance runs one call, as many turns as instances, so that each call with a turn gets one.
    turns: Arc<Turns>,
    /// Counts the changes of the pool.
    changed: watch::Sender<u64>,
    /// Calls that wait for a turn or an instance.
    waiting: AtomicUsize,
    /// Tells the actor of the backend what the pool needs.
    order: Box<dyn Fn(PoolOrder) + Send + Sync>,
}

/// An instance that is lent to a call. Dropping it after the call gives it back.
pub struct Checkout {
    checkouts: Arc<Checkouts>,
    id: u64,
    link: Arc<dyn Link>,
    // Given to the next call after the instance was given back.
    turn: Option<Turn>,
}

/// Why a call gets no instance.
#[derive(Debug, PartialEq, Eq)]
pub enum NotLent {
    TooManyWait,
    /// An instance for its caller could not be started.
    Resting(Rest),
    /// The backend does not run.
    NotRunning,
}

/// What a call occupies in its backend until it ends.
#[derive(Debug)]
pub enum Place {
    /// A part of the main instance.
    Turn(Turn),
    /// An instance of the pool.
    Checkout(Checkout),
}

impl Occupied for Place {
    fn into_turn(self: Box<Self>) -> Option<Turn> {
        match *self {
            Self::Turn(turn) => Some(turn),
            Self::Checkout(mut checkout) => checkout.turn.take(),
        }
    }
}

impl Checkouts {
    /// A closed pool. `order` tells the actor of the backend what it needs.
    pub(super) fn new(order: impl Fn(PoolOrder) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            pool: Locked::default(),
            turns: Turns::new(1),
            changed: watch::Sender::default(),
            waiting: AtomicUsize::new(0),
            order: Box::new(order),
        })
    }

    /// Changes the pool, and wakes the calls that wait for it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Pool, u64) -> T) -> T {
        let changed = change(&mut self.pool.lock(), mono_ms());
        self.changed.send_modify(|count| *count += 1);
        changed
    }

    /// Opens a pool of this kind. `main` is the link of the main instance, and `concurrency` the number of calls that run at
    /// once where an instance runs several.
    pub(super) fn open(&self, kind: PoolKind, main: &Arc<dyn Link>, concurrency: usize) {
        self.change(|pool, now_ms| {
            pool.open(kind);
            if kind == PoolKind::Only {
                pool.add_only(Arc::clone(main), now_ms);
            }
        });
        match kind {
            PoolKind::Closed => {}
            PoolKind::Only => self.turns.set_limit(1),
            PoolKind::Profiles(size)
            | PoolKind::Owners {
                size, one_call: true, ..
            } => self.turns.set_limit(size),
            PoolKind::Owners { one_call: false, .. } => self.turns.set_limit(concurrency),
        }
    }

    /// Closes the pool: calls that wait learn that the backend does not run.
    pub(super) fn close(&self) {
        self.change(|pool, _| pool.open(PoolKind::Closed));
    }

    /// The link of an instance whose cancelled call may still run.
    pub(super) fn settling(&self, id: u64) -> Option<Arc<dyn Link>> {
        self.pool.lock().settling(id)
    }

    /// For whom the instance of this id is, if the pool has it.
    pub(super) fn affinity_of(&self, id: u64) -> Option<Affinity> {
        self.pool.lock().affinity_of(id)
    }

    /// Calls that wait for an instance.
    pub(super) fn waiting_len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Lets as many calls run at once where an instance runs several.
    pub(super) fn set_concurrency(&self, concurrency: usize) {
        if self.pool.lock().runs_several() {
            self.turns.set_limit(concurrency);
        }
    }

    /// Whether the instance that an affinity would be lent has the link of this number.
    pub fn has_link(&self, affinity: &Affinity, number: u64) -> bool {
        self.pool.lock().has_link(affinity, number)
    }

    /// Starts the first instance for this affinity, if there is room for it.
    pub fn start_first(&self, affinity: Affinity) {
        let order = self.pool.lock().start_first(affinity, mono_ms());
        if let Some(order) = order {
            (self.order)(order);
        }
    }

    /// Whether an instance for this affinity is being started.
    pub fn is_starting(&self, affinity: &Affinity) -> bool {
        self.pool.lock().is_starting(affinity)
    }

    /// Lends an instance for this affinity to a caller, `learner`, of whom the instance may learn something. Waits for one,
    /// behind the earlier calls of the same caller, as long as there is room for the instance.
    ///
    /// # Errors
    /// [`NotLent`].
    pub async fn lend(
        self: &Arc<Self>,
        caller: CallerId,
        affinity: &Affinity,
        learner: &Arc<str>,
    ) -> Result<Checkout, NotLent> {
        // A call without a turn keeps no instance from those with one.
        let _counted = Counted::new(&self.waiting);
        let mut turn = Some(self.take_turn(caller).await?);
        let _waiting = Waiting::enter(self, affinity, learner).ok_or(NotLent::TooManyWait)?;
        let mut changes = self.changed.subscribe();
        loop {
            let has_turn = match turn.take() {
                Some(turn) => turn,
                None => self.take_turn(caller).await?,
            };
            changes.borrow_and_update();
            let wanted = self.pool.lock().want(affinity, learner, mono_ms());
            match wanted {
                Wanted::Lent(id, link) => {
                    let checkouts = Arc::clone(self);
                    return Ok(Checkout {
                        checkouts,
                        id,
                        link,
                        turn: Some(has_turn),
                    });
                }
                Wanted::Resting(rest) => return Err(NotLent::Resting(rest)),
                Wanted::Closed => return Err(NotLent::NotRunning),
                Wanted::Wait { orders, keeps_turn } => {
                    for order in orders {
                        (self.order)(order);
                    }
                    turn = keeps_turn.then_some(has_turn);
                }
            }
            changes.changed().await.map_err(|_| NotLent::NotRunning)?;
        }
    }

    async fn take_turn(&self, caller: CallerId) -> Result<Turn, NotLent> {
        let turn = self.turns.take(caller).map_err(|_| NotLent::TooManyWait)?;
        turn.await.map_err(|_| NotLent::NotRunning)
    }
}

/// A call that waits for an instance, until it is dropped.
struct Waiting<'a>(&'a Checkouts, &'a Affinity, &'a Arc<str>);

impl<'a> Waiting<'a> {
    fn enter(checkouts: &'a Checkouts, affinity: &'a Affinity, learner: &'a Arc<str>) -> Option<Self> {
        let enters = checkouts.pool.lock().enter(affinity.clone(), Arc::clone(learner));
        enters.then_some(Self(checkouts, affinity, learner))
    }
}

impl Drop for Waiting<'_> {
    /// What waited for this call may make room for another one.
    fn drop(&mut self) {
        self.0.change(|pool, _| pool.leave(self.1, self.2));
    }
}

/// Counts a call until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Checkout {
    /// Takes the call.
    pub fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let order = self.checkouts.change(|pool, now_ms| pool.give_back(self.id, now_ms));
        if let Some(order) = order {
            (self.checkouts.order)(order);
        }
    }
}

impl fmt::Debug for Checkout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkout").field("id", &self.id).finish_non_exhaustive()
    }
}
