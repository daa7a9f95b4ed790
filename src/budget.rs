//! Bytes that the connections of a process hold together, bounded for all of them and for each project.
//!
//! A project has at most a share of a [`Budget`], so that no project takes the room of the others. Who asks for more than
//! there is room for waits, in the order of asking within its project.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use actors::model::ProjectId;

/// So many bytes for the process, and so many of them for a project.
pub struct Budget {
    bytes_max: usize,
    project_bytes_max: usize,
    used: AtomicUsize,
    /// Somebody waits for room.
    has_waiters: AtomicBool,
    /// Changes of what is used are made under this lock.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    projects: HashMap<ProjectId, Arc<AtomicUsize>>,
    /// Those of each project that wait, in their order; no queue is empty.
    waiters: HashMap<ProjectId, VecDeque<Waiter>>,
    tickets: u64,
}

struct Waiter {
    ticket: u64,
    waker: Waker,
}

impl Budget {
    pub fn new(bytes_max: usize, project_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            project_bytes_max,
            used: AtomicUsize::new(0),
            has_waiters: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// Whether somebody waits for room.
    pub fn has_waiters(&self) -> bool {
        self.has_waiters.load(Ordering::Relaxed)
    }

    /// The project that is to give something back, for one whose bytes were set whether there was room or not: this one
    /// when it holds more than its share; the one that holds most when all hold more than there is; else none.
    pub fn overcommitted_project(&self, project: &ProjectId) -> Option<ProjectId> {
        let state = self.state();
        let held = |used: &Arc<AtomicUsize>| used.load(Ordering::Relaxed);
        if state.projects.get(project).map_or(0, held) > self.project_bytes_max {
            return Some(project.clone());
        }
        if self.used.load(Ordering::Relaxed) <= self.bytes_max {
            return None;
        }
        let most = state.projects.iter().max_by_key(|(_, used)| held(used));
        most.map(|(id, _)| id.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets those at the head of the queues look again, of which some may have room now.
    fn wake(&self, state: &State) {
        self.has_waiters.store(!state.waiters.is_empty(), Ordering::Relaxed);
        for queue in state.waiters.values() {
            if let Some(first) = queue.front() {
                first.waker.wake_by_ref();
            }
        }
    }
}

/// What one connection, or one call, holds of a budget. Given back when it is dropped.
pub struct Reservation {
    budget: Arc<Budget>,
    project: ProjectId,
    /// Of the project as a whole.
    project_used: Arc<AtomicUsize>,
    bytes: usize,
    ticket: Option<u64>,
}

impl Reservation {
    /// Holds nothing yet.
    pub fn new(budget: &Arc<Budget>, project: &ProjectId) -> Self {
        let of_project = Arc::clone(budget.state().projects.entry(project.clone()).or_default());
        Self {
            budget: Arc::clone(budget),
            project: project.clone(),
            project_used: of_project,
            bytes: 0,
            ticket: None,
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    pub fn gauge(&self) -> Gauge {
        Gauge {
            budget: Arc::clone(&self.budget),
            project_used: Arc::clone(&self.project_used),
        }
    }

    /// Holds so many bytes from now on, whether there is room or not: they are there already.
    pub fn set_bytes(&mut self, bytes: usize) {
        if bytes != self.bytes {
            let budget = Arc::clone(&self.budget);
            self.apply(&budget.state(), bytes);
        }
    }

    /// Ready when it holds at least so many bytes. What is more than a project may hold waits until the project holds
    /// nothing else.
    pub fn poll_grow_to(&mut self, bytes: usize, cx: &Context<'_>) -> Poll<()> {
        if bytes <= self.bytes {
            self.cancel_wait();
            return Poll::Ready(());
        }
        let budget = Arc::clone(&self.budget);
        let mut state = budget.state();
        let first = state.waiters.get(&self.project).and_then(VecDeque::front);
        let is_next = first.is_none_or(|first| Some(first.ticket) == self.ticket);
        if is_next && self.has_room_for(bytes) {
            self.remove_from_queue(&mut state);
            self.apply(&state, bytes);
            return Poll::Ready(());
        }
        let ticket = *self.ticket.get_or_insert_with(|| {
            state.tickets += 1;
            state.tickets
        });
        let queue = state.waiters.entry(self.project.clone()).or_default();
        match queue.iter_mut().find(|waiting| waiting.ticket == ticket) {
            Some(waiting) => waiting.waker.clone_from(cx.waker()),
            None => queue.push_back(Waiter {
                ticket,
                waker: cx.waker().clone(),
            }),
        }
        budget.has_waiters.store(true, Ordering::Relaxed);
        Poll::Pending
    }

    /// Holds at least so many bytes if there is room for them now, and nobody in the project waits for room.
    pub fn try_grow_to(&mut self, bytes: usize) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        let budget = Arc::clone(&self.budget);
        let state = budget.state();
        let grows = !state.waiters.contains_key(&self.project) && self.has_room_for(bytes);
        if grows {
            self.apply(&state, bytes);
        }
        grows
    }

    /// Returns when it holds at least so many bytes; see [`Hold::poll_grow`].
    pub async fn grow_to(&mut self, bytes: usize) {
        let growing = CancelWaitOnDrop(self);
        poll_fn(move |cx| growing.0.poll_grow_to(bytes, cx)).await;
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        fits(&self.project_used, self.bytes, bytes, self.budget.project_bytes_max)
            && fits(&self.budget.used, self.bytes, bytes, self.budget.bytes_max)
    }

    fn apply(&mut self, state: &State, bytes: usize) {
        for used in [&self.project_used, &self.budget.used] {
            let others = used.load(Ordering::Relaxed) - self.bytes;
            used.store(others + bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        // Whether it grew or not: who is next may have room for less than the one before.
        self.budget.wake(state);
    }

    /// It no longer waits for room.
    pub fn cancel_wait(&mut self) {
        if self.ticket.is_some() {
            let budget = Arc::clone(&self.budget);
            let mut state = budget.state();
            self.remove_from_queue(&mut state);
            budget.wake(&state);
        }
    }

    fn remove_from_queue(&mut self, state: &mut State) {
        let Some(ticket) = self.ticket.take() else { return };
        if let Some(queue) = state.waiters.get_mut(&self.project) {
            queue.retain(|waiting| waiting.ticket != ticket);
            if queue.is_empty() {
                state.waiters.remove(&self.project);
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let budget = Arc::clone(&self.budget);
        let mut state = budget.state();
        self.remove_from_queue(&mut state);
        self.apply(&state, 0);
        // The table and this one are the only ones that know it.
        if Arc::strong_count(&self.project_used) <= 2 {
            state.projects.remove(&self.project);
        }
    }
}

/// How much is held, without holding anything.
pub struct Gauge {
    budget: Arc<Budget>,
    project_used: Arc<AtomicUsize>,
}

impl Gauge {
    /// Whether the project, or the process, holds all it may.
    pub fn is_full(&self) -> bool {
        self.project_used.load(Ordering::Relaxed) >= self.budget.project_bytes_max
            || self.budget.used.load(Ordering::Relaxed) >= self.budget.bytes_max
    }

    /// Whether so many bytes more may be held, as far as can be told without asking who waits.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        fits(&self.project_used, 0, bytes, self.budget.project_bytes_max)
            && fits(&self.budget.used, 0, bytes, self.budget.bytes_max)
    }
}

/// Whether `bytes` instead of `own` are within `max`, or alone when they are more than that.
fn fits(used: &AtomicUsize, own: usize, bytes: usize, max: usize) -> bool {
    used.load(Ordering::Relaxed) - own + bytes.min(max) <= max
}

/// Gives its place in the queue up when it is no longer waited for.
struct CancelWaitOnDrop<'a>(&'a mut Reservation);

impl Drop for CancelWaitOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel_wait();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, task::noop_waker};

    use super::*;

    fn project(id: &str) -> ProjectId {
        ProjectId::parse(id).unwrap()
    }

    fn grows(hold: &mut Reservation, bytes: usize) -> bool {
        hold.poll_grow_to(bytes, &Context::from_waker(&noop_waker())).is_ready()
    }

    #[test]
    fn a_project_has_half_and_the_others_the_rest() {
        let budget = Budget::new(100, 50);
        let [mut a, mut b, mut c] = ["one", "one", "two"].map(|id| Reservation::new(&budget, &project(id)));
        assert!(grows(&mut a, 30) && grows(&mut b, 20));
        assert!(a.gauge().is_full() && !c.gauge().is_full());
        assert!(!grows(&mut a, 31) && budget.has_waiters());
        assert!(grows(&mut c, 50), "the other project has its half");
        b.set_bytes(10);
        assert!(grows(&mut a, 31) && !budget.has_waiters());
        drop((a, b, c));
        assert!(budget.state().projects.is_empty());
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_holds_more_than_its_share_gives_back_and_else_who_holds_most() {
        let budget = Budget::new(100, 50);
        let ids = ["one", "two", "three"].map(project);
        let mut holds = [0, 1, 2].map(|at| Reservation::new(&budget, &ids[at]));
        holds[0].set_bytes(50);
        holds[1].set_bytes(50);
        assert_eq!(budget.overcommitted_project(&ids[0]), None);
        holds[1].set_bytes(51);
        assert_eq!(budget.overcommitted_project(&ids[0]).as_ref(), Some(&ids[1]));
        holds[1].set_bytes(40);
        holds[2].set_bytes(11);
        assert_eq!(budget.overcommitted_project(&ids[2]).as_ref(), Some(&ids[0]));
        holds[0].set_bytes(51);
        assert_eq!(budget.overcommitted_project(&ids[0]).as_ref(), Some(&ids[0]));
    }

    #[test]
    fn who_asked_first_is_served_first_however_much_it_wants() {
        let budget = Budget::new(100, 50);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Reservation::new(&budget, &project("one")));
        assert!(grows(&mut a, 40) && !grows(&mut b, 20) && !grows(&mut c, 5));
        a.set_bytes(10);
        assert!(!grows(&mut c, 5) && grows(&mut b, 20) && grows(&mut c, 5));
    }

    #[test]
    fn who_does_not_wait_comes_after_those_who_do() {
        let budget = Budget::new(100, 50);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Reservation::new(&budget, &project("one")));
        assert!(a.try_grow_to(40) && !b.try_grow_to(20) && !budget.has_waiters());
        assert!(c.gauge().has_room_for(10) && !c.gauge().has_room_for(11));
        assert!(!grows(&mut b, 20) && !c.try_grow_to(5));
        assert!(c.gauge().has_room_for(10), "whoever waits is not looked at");
        a.set_bytes(10);
        assert!(grows(&mut b, 20) && c.try_grow_to(5));
    }

    #[test]
    fn what_is_more_than_a_project_may_hold_waits_until_it_holds_nothing_else() {
        let budget = Budget::new(100, 50);
        let [mut a, mut b] = [(); 2].map(|()| Reservation::new(&budget, &project("one")));
        assert!(grows(&mut a, 1) && !grows(&mut b, 1000));
        drop(a);
        assert!(grows(&mut b, 1000));
    }

    #[test]
    fn who_no_longer_waits_holds_nobody_up() {
        let budget = Budget::new(100, 50);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Reservation::new(&budget, &project("one")));
        a.set_bytes(50);
        assert!(b.grow_to(10).now_or_never().is_none());
        a.set_bytes(45);
        assert!(grows(&mut c, 5));
    }
}
