//! Lends the instances of a [`Pool`] to calls, each with a turn: together they are a [`Checkout`]. A call that gets none at
//! once waits for its turn first ([`Turns`], in rotation of the callers) and then for an instance.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot, time::timeout};

use super::{
    call::{Call, CallNumber, CallPurpose, Link, LinkRefusal},
    pool::{Affinity, Cooldown, Pool, PoolMode, PoolOrder, Wanted},
    profile::Profile,
    turns::{CallerId, Lane, TooManyWait, Turns, WAITING_LEN_MAX},
};
use crate::{clock::mono_ms, locked::Locked};

/// The instances of one backend, and the calls that wait for one.
pub struct Checkouts {
    state: Locked<State>,
    /// Tells the actor of the backend what the pool needs.
    order: Box<dyn Fn(PoolOrder) + Send + Sync>,
    this: Weak<Self>,
}

struct State {
    pool: Pool,
    /// The turns of each [`Lane`], and the calls that wait for one.
    lanes: [Turns<Waiting>; 2],
    /// The calls whose turn has come and that wait for an instance.
    called: Vec<Waiting>,
}

/// A call that waits.
struct Waiting {
    affinity: Affinity,
    /// The caller, by the name under which an instance that learns something of it knows it.
    learner: Arc<str>,
    /// The call holds a turn. It gives the turn back while it waits for room that only the calls of other owners can make.
    has_turn: bool,
    give: oneshot::Sender<Given>,
}

type Given = Result<Checkout, Cooldown>;

/// Why a call that has waited gets no instance.
#[derive(Debug)]
pub enum NotLent {
    /// An instance for its caller could not be started.
    CoolingDown(Cooldown),
    /// The instance has ended before the call could take it. The call waits again.
    Gone,
}

/// What follows from a change, once the lock is free.
enum Effect {
    Order(PoolOrder),
    Give(Waiting, Result<(u64, Arc<dyn Link>), Cooldown>),
}

impl State {
    fn lane(&mut self, lane: Lane) -> &mut Turns<Waiting> {
        &mut self.lanes[lane as usize]
    }

    /// Lets as many calls run at once where an instance runs several.
    fn limit(&mut self, concurrency: usize) {
        let mode = self.pool.mode.unwrap_or(PoolMode::SHARED);
        for lane in [Lane::Main, Lane::Others] {
            self.lane(lane).set_limit(mode.turns(lane, concurrency));
        }
    }

    /// Gives calls their turns, and lends instances to those that have one.
    fn serve(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        let mut at = 0;
        loop {
            if at == self.called.len() {
                let Some(next) = self.lanes.iter_mut().find_map(Turns::call_up) else {
                    return;
                };
                self.pool.enter(next.affinity.clone(), Arc::clone(&next.learner));
                self.called.push(Waiting { has_turn: true, ..next });
            }
            let waiting = &mut self.called[at];
            let turns = &mut self.lanes[waiting.affinity.lane() as usize];
            waiting.has_turn = waiting.has_turn || turns.try_take();
            if !waiting.has_turn {
                at += 1;
                continue;
            }
            let given = match self.pool.want(&waiting.affinity, &waiting.learner, now_ms) {
                Wanted::Lent(id, link) => Ok((id, link)),
                Wanted::CoolingDown(cooldown) => {
                    turns.give_back();
                    Err(cooldown)
                }
                Wanted::Wait { orders, keeps_turn } => {
                    effects.extend(orders.into_iter().map(Effect::Order));
                    if !keeps_turn {
                        waiting.has_turn = false;
                        turns.give_back();
                    }
                    at += 1;
                    continue;
                }
            };
            effects.push(Effect::Give(self.take_called(at), given));
        }
    }

    fn take_called(&mut self, at: usize) -> Waiting {
        let waiting = self.called.remove(at);
        self.pool.leave(&waiting.affinity, &waiting.learner);
        waiting
    }

    /// Forgets the calls that have given up.
    fn drop_abandoned(&mut self) {
        for lane in &mut self.lanes {
            lane.retain(|waiting| !waiting.give.is_closed());
        }
        while let Some(at) = self.called.iter().position(|waiting| waiting.give.is_closed()) {
            let waiting = self.take_called(at);
            if waiting.has_turn {
                self.lane(waiting.affinity.lane()).give_back();
            }
        }
    }

    /// Calls that wait for an instance of their own.
    fn own_len(&self) -> usize {
        let own = |call: &&Waiting| call.affinity.lane() == Lane::Others;
        self.called.iter().filter(own).count()
    }
}

impl Checkouts {
    /// A closed pool. `order` tells the actor of the backend what it needs.
    pub(super) fn new(concurrency: usize, order: impl Fn(PoolOrder) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            state: Locked::new(State {
                pool: Pool::default(),
                lanes: [concurrency, 1].map(Turns::new),
                called: Vec::new(),
            }),
            order: Box::new(order),
            this: Weak::clone(this),
        })
    }

    /// Changes something, serves the calls that wait for it, and does what follows once the lock is free.
    fn with<T>(&self, change: impl FnOnce(&mut State, u64, &mut Vec<Effect>) -> T) -> T {
        let (mut effects, now_ms) = (Vec::new(), mono_ms());
        let mut state = self.state.lock();
        let changed = change(&mut state, now_ms, &mut effects);
        state.serve(now_ms, &mut effects);
        drop(state);
        for effect in effects {
            match effect {
                Effect::Order(order) => (self.order)(order),
                Effect::Give(Waiting { affinity, give, .. }, given) => {
                    let Some(this) = self.this.upgrade() else { continue };
                    // What a call does not take that has given up is given back.
                    drop(give.send(given.map(|lent| Checkout::new(this, lent, &affinity))));
                }
            }
        }
        changed
    }

    /// Changes the pool, and serves the calls that wait for it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Pool, u64) -> T) -> T {
        self.with(|state, now_ms, _| change(&mut state.pool, now_ms))
    }

    /// Looks at the pool.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Pool) -> T) -> T {
        look(&self.state.lock().pool)
    }

    /// Lends instances in this mode from now on, with this main one. Starts one for callers of the profile `first`, if it can:
    /// before calls take its place. `concurrency` is the number of calls that run at once where an instance runs several.
    pub(super) fn open(
        &self,
        mode: PoolMode,
        main: Arc<dyn Link>,
        first: Profile,
        concurrency: usize,
    ) -> Option<PoolOrder> {
        self.with(|state, now_ms, _| {
            state.pool.open(mode, main, now_ms);
            state.limit(concurrency);
            state.pool.start_first(mode.of_project(first), now_ms)
        })
    }

    /// Calls that wait for their turn or for an instance of their own. A call that has its turn and waits for the main instance
    /// is not among them.
    pub(super) fn waiting_len(&self) -> usize {
        let state = self.state.lock();
        state.own_len() + state.lanes.iter().map(|lane| lane.counts().1).sum::<usize>()
    }

    /// Turns that are taken in a lane.
    #[cfg(test)]
    pub fn taken(&self, lane: Lane) -> usize {
        self.state.lock().lane(lane).counts().0
    }

    /// Lets as many calls run at once where an instance runs several.
    pub(super) fn set_concurrency(&self, concurrency: usize) {
        self.with(|state, _, _| state.limit(concurrency));
    }

    /// Whether the instance that an affinity would be lent has the link of this number.
    pub fn has_link(&self, affinity: &Affinity, number: u64) -> bool {
        self.look(|pool| pool.has_link(affinity, number))
    }

    /// Starts the first instance for this affinity, if there is room for it.
    pub fn start_first(&self, affinity: Affinity) {
        let order = self.change(|pool, now_ms| pool.start_first(affinity, now_ms));
        if let Some(order) = order {
            (self.order)(order);
        }
    }

    /// Whether an instance for this affinity is being started.
    pub fn is_starting(&self, affinity: &Affinity) -> bool {
        self.look(|pool| pool.is_starting(affinity))
    }

    /// Lends an instance to a call, if that needs no wait. `learner` names the caller to an instance that learns something of
    /// it.
    pub fn try_lend(self: &Arc<Self>, affinity: &Affinity, learner: &Arc<str>) -> Option<Checkout> {
        let (lane, mut state) = (affinity.lane(), self.state.lock());
        if !state.lane(lane).try_take() {
            return None;
        }
        // One that has ended refuses the call, which then waits.
        let lent = state.pool.lend(affinity, learner, |_| true);
        if lent.is_none() {
            state.lane(lane).give_back();
        }
        drop(state);
        Some(Checkout::new(Arc::clone(self), lent?, affinity))
    }

    /// Lets a call wait for an instance, behind the earlier calls of the same caller.
    ///
    /// # Errors
    /// [`TooManyWait`].
    pub fn wait(
        self: &Arc<Self>,
        caller: CallerId,
        affinity: Affinity,
        learner: &Arc<str>,
    ) -> Result<Queued, TooManyWait> {
        let (give, given) = oneshot::channel();
        let waiting = Waiting {
            affinity: affinity.clone(),
            learner: Arc::clone(learner),
            has_turn: false,
            give,
        };
        self.with(|state, _, _| match state.own_len() {
            WAITING_LEN_MAX.. => Err(TooManyWait),
            _ => state.lane(affinity.lane()).wait(caller, waiting),
        })?;
        Ok(Queued {
            checkouts: Arc::clone(self),
            affinity,
            given: Some(given),
        })
    }

    /// Takes back an instance and a turn, where they are given.
    fn give_back(&self, instance: Option<u64>, turn: Option<Lane>) {
        self.with(|state, now_ms, _| {
            if let Some(id) = instance {
                state.pool.give_back(id, now_ms);
            }
            if let Some(lane) = turn {
                state.lane(lane).give_back();
            }
        });
    }

    /// Ends an instance.
    fn end(&self, instance: u64) {
        self.with(|state, _, effects| effects.extend(state.pool.end(instance).map(Effect::Order)));
    }
}

impl fmt::Debug for Checkouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkouts").finish_non_exhaustive()
    }
}

/// How long a cancelled call without a late answer counts as one that runs. Servers that obey a cancellation do not answer,
/// and those that ignore it run on: their calls count among those that run at once.
const CANCELLED_TURN_MAX: Duration = Duration::from_secs(5);

/// How much longer such a call may last in an instance that runs one call at a time. Then the instance is ended: a question
/// of the call would reach the next caller.
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// An instance of a backend that is lent to a call, and the turn of the call. Dropping it after the call gives them back.
#[derive(Debug)]
pub struct Checkout {
    checkouts: Arc<Checkouts>,
    link: Arc<dyn Link>,
    instance: Option<u64>,
    turn: Option<Lane>,
    /// The instance runs one call at a time.
    is_exclusive: bool,
}

impl Checkout {
    fn new(checkouts: Arc<Checkouts>, (instance, link): (u64, Arc<dyn Link>), affinity: &Affinity) -> Self {
        Self {
            checkouts,
            link,
            instance: Some(instance),
            turn: Some(affinity.lane()),
            is_exclusive: affinity.runs_one_call(),
        }
    }

    /// The link of the instance.
    pub fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }

    /// Sends the request of a caller: see [`Link::open`].
    ///
    /// # Errors
    /// [`LinkRefusal`]: the frame was not sent.
    pub fn open(self, write: &mut dyn FnMut(CallNumber, &mut Vec<u8>)) -> Result<LentCall, LinkRefusal> {
        let call = Arc::clone(&self.link).open(CallPurpose::Caller, write)?;
        Ok(LentCall {
            call,
            checkout: Some(self),
        })
    }

    /// Keeps the turn of a cancelled call until its late answer, and the instance if it runs no other call meanwhile.
    async fn settle(mut self, cancelled: CallNumber) {
        let mut answered = Arc::clone(&self.link).wait_until_answered(cancelled);
        if timeout(CANCELLED_TURN_MAX, &mut answered).await.is_ok() {
            return;
        }
        self.checkouts.give_back(None, self.turn.take());
        if let Some(instance) = self.instance
            && timeout(SETTLE_MAX, answered).await.is_err()
        {
            self.checkouts.end(instance);
        }
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        self.checkouts.give_back(self.instance, self.turn);
    }
}

/// A call in the instance that is lent to it.
#[derive(Debug)]
pub struct LentCall {
    call: Call,
    checkout: Option<Checkout>,
}

impl LentCall {
    /// Takes out what is lent to it: its instance has ended.
    pub fn vacate(&mut self) -> Option<Checkout> {
        self.checkout.take()
    }
}

impl Deref for LentCall {
    type Target = Call;

    fn deref(&self) -> &Call {
        &self.call
    }
}

impl DerefMut for LentCall {
    fn deref_mut(&mut self) -> &mut Call {
        &mut self.call
    }
}

impl Drop for LentCall {
    fn drop(&mut self) {
        if self.call.cancel()
            && let Some(mut checkout) = self.checkout.take()
            && let Ok(runtime) = Handle::try_current()
        {
            if !checkout.is_exclusive {
                checkout.checkouts.give_back(checkout.instance.take(), None);
            }
            runtime.spawn(checkout.settle(self.call.number()));
        }
    }
}

/// A call that waits for an instance, until this is dropped.
pub struct Queued {
    checkouts: Arc<Checkouts>,
    /// The affinity that the call waits for.
    pub affinity: Affinity,
    /// `None` once the call has waited long enough.
    given: Option<oneshot::Receiver<Given>>,
}

impl Queued {
    /// Waits for the instance. After that nothing else is lent.
    ///
    /// # Errors
    /// [`NotLent`].
    pub async fn lent(&mut self) -> Result<Checkout, NotLent> {
        let given = self.given.as_mut().ok_or(NotLent::Gone)?.await;
        self.given = None;
        let checkout = given.map_err(|_| NotLent::Gone)?.map_err(NotLent::CoolingDown)?;
        // It may have been replaced until this task ran.
        let is_lent = self.checkouts.look(|pool| pool.has(checkout.instance));
        is_lent.then_some(checkout).ok_or(NotLent::Gone)
    }
}

impl Drop for Queued {
    /// What waited for this call may make room for another one.
    fn drop(&mut self) {
        if let Some(mut given) = self.given.take() {
            given.close();
            self.checkouts.with(|state, _, _| state.drop_abandoned());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::{
        gateway::{CallEnd, FrameLink},
        model::Sharing,
    };

    fn learner() -> Arc<str> {
        "learner".into()
    }

    fn checkouts(concurrency: usize) -> Arc<Checkouts> {
        Checkouts::new(concurrency, |_| {})
    }

    fn open(checkouts: &Arc<Checkouts>, mode: PoolMode, concurrency: usize) -> Arc<FrameLink> {
        let link = FrameLink::new();
        checkouts.open(mode, Arc::clone(&link) as Arc<dyn Link>, Profile::ALL, concurrency);
        link
    }

    fn waits(checkouts: &Arc<Checkouts>, caller: CallerId) -> Queued {
        checkouts.wait(caller, Affinity::EVERYONE, &learner()).unwrap()
    }

    fn lent(queued: &mut Queued) -> Option<Checkout> {
        Some(queued.lent().now_or_never()?.unwrap())
    }

    #[test]
    fn calls_that_wait_for_the_start_are_served_once_it_is_over() {
        let checkouts = checkouts(2);
        assert!(checkouts.try_lend(&Affinity::EVERYONE, &learner()).is_none());
        let [mut first, mut second, mut third] = [1, 1, 2].map(|caller| waits(&checkouts, caller));
        assert_eq!(checkouts.waiting_len(), 1, "two have their turn");
        open(&checkouts, PoolMode::SHARED, 2);
        let [first, third] = [&mut first, &mut third].map(lent);
        assert!(first.is_some() && third.is_none());
        let second = lent(&mut second).unwrap();
        assert!(
            checkouts.try_lend(&Affinity::EVERYONE, &learner()).is_none(),
            "no turn is free"
        );
        drop((first, second));
        assert!(checkouts.try_lend(&Affinity::EVERYONE, &learner()).is_some());
    }

    #[test]
    fn an_instance_that_a_call_does_not_take_goes_to_the_next_one() {
        let checkouts = checkouts(1);
        open(&checkouts, PoolMode::SHARED, 1);
        let running = checkouts.try_lend(&Affinity::EVERYONE, &learner());
        let [given_up, first, mut second] = [1, 1, 2].map(|caller| waits(&checkouts, caller));
        drop(given_up);
        drop(running);
        assert!(lent(&mut second).is_none(), "it is lent to the first");
        drop(first);
        assert!(lent(&mut second).is_some());
        assert_eq!((checkouts.taken(Lane::Main), checkouts.waiting_len()), (0, 0));
    }

    #[test]
    fn turns_outlast_the_instance_and_a_lent_one_that_was_replaced_is_not_used() {
        let checkouts = checkouts(1);
        open(&checkouts, PoolMode::SHARED, 1);
        let old = checkouts.try_lend(&Affinity::EVERYONE, &learner()).unwrap();
        let mut waiting = waits(&checkouts, 1);
        checkouts.change(|pool, _| pool.close());
        open(&checkouts, PoolMode::SHARED, 1);
        assert!(lent(&mut waiting).is_none(), "the call of the one before has the turn");
        drop(old);
        open(&checkouts, PoolMode::SHARED, 1);
        assert!(matches!(waiting.lent().now_or_never(), Some(Err(NotLent::Gone))));
        assert!(checkouts.try_lend(&Affinity::EVERYONE, &learner()).is_some());
    }

    #[test]
    fn a_call_that_has_to_look_again_is_not_served() {
        let checkouts = checkouts(64);
        let mut waiting = waits(&checkouts, 1);
        let mode = PoolMode::new(Sharing::Project, true, 0);
        open(&checkouts, mode, 64);
        assert!(lent(&mut waiting).is_none());
        let affinity = mode.affinity(Profile::ALL, true, |_| learner());
        let [mut first, mut second] =
            [1, 2].map(|caller| checkouts.wait(caller, affinity.clone(), &learner()).unwrap());
        let running = lent(&mut first).unwrap();
        assert!(lent(&mut second).is_none(), "it runs one call at a time");
        assert_eq!(checkouts.waiting_len(), 1);
        drop(running);
        assert!(lent(&mut second).is_some());
    }

    #[tokio::test]
    async fn an_instance_with_a_cancelled_call_is_lent_after_its_late_answer() {
        let (checkouts, mode) = (checkouts(64), PoolMode::new(Sharing::Project, true, 0));
        let link = open(&checkouts, mode, 64);
        let affinity = mode.affinity(Profile::ALL, true, |_| learner());
        let checkout = checkouts.try_lend(&affinity, &learner()).unwrap();
        let call = checkout.open(&mut |_, _| {}).unwrap();
        let number = call.number();
        drop(call);
        let mut waiting = checkouts.wait(1, affinity.clone(), &learner()).unwrap();
        tokio::task::yield_now().await;
        assert!(lent(&mut waiting).is_none());
        link.end(number, CallEnd::NotSent);
        drop(waiting.lent().await.unwrap());
        assert_eq!(checkouts.taken(Lane::Others), 0);
    }

    #[test]
    fn no_waiting_call_is_lent_an_instance_that_has_ended() {
        let checkouts = checkouts(64);
        let link = open(&checkouts, PoolMode::SHARED, 64);
        link.close(&Arc::default());
        let mut waiting = waits(&checkouts, 1);
        assert!(lent(&mut waiting).is_none());
        checkouts.change(|pool, _| pool.close());
        open(&checkouts, PoolMode::SHARED, 64);
        assert!(lent(&mut waiting).is_some());
    }

    #[test]
    fn the_calls_that_have_their_turn_and_wait_are_bounded() {
        let checkouts = checkouts(usize::MAX);
        let mode = PoolMode::new(Sharing::Key, false, 1);
        open(&checkouts, mode, usize::MAX);
        let wait = |caller: usize| {
            let affinity = mode.affinity(Profile::NONE, false, |_| learner());
            checkouts.wait(caller as CallerId, affinity, &learner())
        };
        let all: Vec<_> = (0..WAITING_LEN_MAX).map(|caller| wait(caller).unwrap()).collect();
        assert_eq!(wait(1).err(), Some(TooManyWait));
        drop(all);
        assert_eq!((checkouts.taken(Lane::Others), checkouts.waiting_len()), (0, 0));
    }
}
