//! What connections share. Memory budgets: bytes that all connections hold together, bounded for the process and for each
//! project. And the time of a worker (`worker_time.rs`).
//!
//! A project has at most a share of a [`ByteBudget`], so that one project cannot take the memory of the others. A
//! reservation beyond the bounds waits; within a project, waiters are served in order.

mod answer;
mod worker_time;

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use actors::{locked::Locked, model::ProjectId};

pub use answer::AnswerBudget;
pub use worker_time::{SLICE_MS, SliceWaiter, WorkerTime};

/// A bound in bytes for the process, and one for each project.
pub struct ByteBudget {
    bytes_max: usize,
    project_bytes_max: usize,
    used: AtomicUsize,
    /// Whether a reservation waits.
    has_waiters: AtomicBool,
    /// `used` and the projects' counters change under this lock.
    state: Locked<State>,
}

#[derive(Default)]
struct State {
    projects: HashMap<ProjectId, Arc<AtomicUsize>>,
    /// Waiters of each project in order; no queue is empty.
    waiters: HashMap<ProjectId, VecDeque<Waiter>>,
    tickets: u64,
}

struct Waiter {
    ticket: u64,
    waker: Waker,
}

impl ByteBudget {
    /// A budget with bounds in bytes for the process and for each project.
    pub fn new(bytes_max: usize, project_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            project_bytes_max,
            used: AtomicUsize::new(0),
            has_waiters: AtomicBool::new(false),
            state: Locked::default(),
        })
    }

    /// Whether a reservation waits for bytes.
    pub fn has_waiters(&self) -> bool {
        self.has_waiters.load(Ordering::Relaxed)
    }

    /// The project that has to free bytes after `project` set its bytes beyond the bounds: `project` itself when it
    /// exceeds its share, or the largest project when the process exceeds its bound.
    pub fn overcommitted_project(&self, project: &ProjectId) -> Option<ProjectId> {
        let state = self.state.lock();
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

    /// Wakes the first waiter of each project; bytes may be free for it.
    fn wake(&self, state: &State) {
        self.has_waiters.store(!state.waiters.is_empty(), Ordering::Relaxed);
        for queue in state.waiters.values() {
            if let Some(first) = queue.front() {
                first.waker.wake_by_ref();
            }
        }
    }
}

/// Bytes that one connection or one call holds of a budget. They are freed on drop.
pub struct Reservation {
    budget: Arc<ByteBudget>,
    project: ProjectId,
    /// Bytes that the project holds in all.
    project_used: Arc<AtomicUsize>,
    bytes: usize,
    ticket: Option<u64>,
}

impl Reservation {
    /// A reservation of 0 bytes.
    pub fn new(budget: &Arc<ByteBudget>, project: &ProjectId) -> Self {
        let project_used = Arc::clone(budget.state.lock().projects.entry(project.clone()).or_default());
        Self {
            budget: Arc::clone(budget),
            project: project.clone(),
            project_used,
            bytes: 0,
            ticket: None,
        }
    }

    /// The bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The budget of the reservation.
    pub fn budget(&self) -> &Arc<ByteBudget> {
        &self.budget
    }

    /// A gauge of the same project.
    pub fn gauge(&self) -> Gauge {
        Gauge {
            budget: Arc::clone(&self.budget),
            project_used: Arc::clone(&self.project_used),
        }
    }

    /// Sets the reservation to `bytes` without a bound: the memory is allocated already.
    pub fn set_bytes(&mut self, bytes: usize) {
        if bytes != self.bytes {
            let budget = Arc::clone(&self.budget);
            self.apply(&budget.state.lock(), bytes);
        }
    }

    /// Ready once the reservation is at least `bytes`. A reservation larger than the project's share waits until the
    /// project holds nothing else.
    pub fn poll_grow_to(&mut self, bytes: usize, cx: &Context<'_>) -> Poll<()> {
        if bytes <= self.bytes {
            self.cancel_wait();
            return Poll::Ready(());
        }
        let budget = Arc::clone(&self.budget);
        let mut state = budget.state.lock();
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

    /// Grows to at least `bytes` if they are free now and no reservation of the project waits.
    pub fn try_grow_to(&mut self, bytes: usize) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        let budget = Arc::clone(&self.budget);
        let state = budget.state.lock();
        let grows = !state.waiters.contains_key(&self.project) && self.has_room_for(bytes);
        if grows {
            self.apply(&state, bytes);
        }
        grows
    }

    /// Waits until the reservation is at least `bytes`; see [`Reservation::poll_grow_to`].
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
        // Wakes after growth too: the next waiter may need fewer bytes than the one before.
        self.budget.wake(state);
    }

    /// Stops waiting for bytes.
    pub fn cancel_wait(&mut self) {
        if self.ticket.is_some() {
            let budget = Arc::clone(&self.budget);
            let mut state = budget.state.lock();
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
        let mut state = budget.state.lock();
        self.remove_from_queue(&mut state);
        self.apply(&state, 0);
        // Only the table and this reservation refer to the project's counter.
        if Arc::strong_count(&self.project_used) <= 2 {
            state.projects.remove(&self.project);
        }
    }
}

/// Reads how much of a budget is in use, without a reservation.
pub struct Gauge {
    budget: Arc<ByteBudget>,
    project_used: Arc<AtomicUsize>,
}

impl Gauge {
    /// Whether the project or the process has used up its bound.
    pub fn is_full(&self) -> bool {
        self.project_used.load(Ordering::Relaxed) >= self.budget.project_bytes_max
            || self.budget.used.load(Ordering::Relaxed) >= self.budget.bytes_max
    }

    /// Whether `bytes` more are free. Waiters are not considered.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        fits(&self.project_used, 0, bytes, self.budget.project_bytes_max)
            && fits(&self.budget.used, 0, bytes, self.budget.bytes_max)
    }
}

/// Whether `bytes` instead of `own` stay within `max`; more than `max` counts as `max`.
fn fits(used: &AtomicUsize, own: usize, bytes: usize, max: usize) -> bool {
    used.load(Ordering::Relaxed) - own + bytes.min(max) <= max
}

/// Leaves the queue when the waiting future is dropped.
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

    fn grows(reservation: &mut Reservation, bytes: usize) -> bool {
        reservation
            .poll_grow_to(bytes, &Context::from_waker(&noop_waker()))
            .is_ready()
    }

    #[test]
    fn a_project_gets_at_most_its_share() {
        let budget = ByteBudget::new(100, 50);
        let [mut a, mut b, mut c] = ["one", "one", "two"].map(|id| Reservation::new(&budget, &project(id)));
        assert!(grows(&mut a, 30) && grows(&mut b, 20));
        assert!(a.gauge().is_full() && !c.gauge().is_full());
        assert!(!grows(&mut a, 31) && budget.has_waiters());
        assert!(grows(&mut c, 50), "the other project has its share");
        b.set_bytes(10);
        assert!(grows(&mut a, 31) && !budget.has_waiters());
        drop((a, b, c));
        assert!(budget.state.lock().projects.is_empty());
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_project_over_its_share_frees_bytes_or_else_the_largest_one() {
        let budget = ByteBudget::new(100, 50);
        let ids = ["one", "two", "three"].map(project);
        let mut reservations = [0, 1, 2].map(|at| Reservation::new(&budget, &ids[at]));
        reservations[0].set_bytes(50);
        reservations[1].set_bytes(50);
        assert_eq!(budget.overcommitted_project(&ids[0]), None);
        reservations[1].set_bytes(51);
        assert_eq!(budget.overcommitted_project(&ids[0]).as_ref(), Some(&ids[1]));
        reservations[1].set_bytes(40);
        reservations[2].set_bytes(11);
        assert_eq!(budget.overcommitted_project(&ids[2]).as_ref(), Some(&ids[0]));
        reservations[0].set_bytes(51);
        assert_eq!(budget.overcommitted_project(&ids[0]).as_ref(), Some(&ids[0]));
    }

    #[test]
    fn waiters_of_a_project_are_served_in_order() {
        let budget = ByteBudget::new(100, 50);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Reservation::new(&budget, &project("one")));
        assert!(grows(&mut a, 40) && !grows(&mut b, 20) && !grows(&mut c, 5));
        a.set_bytes(10);
        assert!(!grows(&mut c, 5) && grows(&mut b, 20) && grows(&mut c, 5));
    }

    #[test]
    fn try_grow_does_not_overtake_waiters() {
        let budget = ByteBudget::new(100, 50);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Reservation::new(&budget, &project("one")));
        assert!(a.try_grow_to(40) && !b.try_grow_to(20) && !budget.has_waiters());
        assert!(c.gauge().has_room_for(10) && !c.gauge().has_room_for(11));
        assert!(!grows(&mut b, 20) && !c.try_grow_to(5));
        assert!(c.gauge().has_room_for(10), "waiters are not considered");
        a.set_bytes(10);
        assert!(grows(&mut b, 20) && c.try_grow_to(5));
    }

    #[test]
    fn a_reservation_beyond_the_share_waits_until_the_project_holds_nothing_else() {
        let budget = ByteBudget::new(100, 50);
        let [mut a, mut b] = [(); 2].map(|()| Reservation::new(&budget, &project("one")));
        assert!(grows(&mut a, 1) && !grows(&mut b, 1000));
        drop(a);
        assert!(grows(&mut b, 1000));
    }

    #[test]
    fn a_cancelled_waiter_blocks_no_other() {
        let budget = ByteBudget::new(100, 50);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Reservation::new(&budget, &project("one")));
        a.set_bytes(50);
        assert!(b.grow_to(10).now_or_never().is_none());
        a.set_bytes(45);
        assert!(grows(&mut c, 5));
    }
}
