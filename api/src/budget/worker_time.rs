//! The time of a worker, which the projects whose connections it serves share.
//!
//! A project that has used its slice of a worker waits until the worker has served everything else that is ready: its
//! sockets are polled, and what they bring runs first. So another project waits for one request of it and not for one of
//! each of its callers. A worker that has nothing else to do continues at once.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use actors::{clock::mono_ms, model::ProjectId};
use tokio::task::yield_now;

/// The slice: milliseconds that requests of a project keep a worker busy before others are served. The clock has the
/// resolution of the kernel's tick, so a slice is at least one tick.
pub const SLICE_MS: u64 = 5;
/// Projects of a worker that are kept without a holder.
const IDLE_LEN_MAX: usize = 256;

thread_local! {
    static PROJECTS: RefCell<HashMap<ProjectId, Rc<Slice>>> = RefCell::default();
}

/// What a project uses of the worker of this thread.
#[derive(Clone)]
pub struct WorkerTime(Rc<Slice>);

#[derive(Default)]
struct Slice {
    /// Milliseconds used of the project's slice.
    used_ms: Cell<u64>,
    /// In order.
    waiters: RefCell<VecDeque<Rc<SliceWaiter>>>,
    /// A task gives slices to the waiters.
    is_served: Cell<bool>,
}

/// The place of one waiter.
#[derive(Default)]
pub struct SliceWaiter {
    /// Present while it waits.
    waker: RefCell<Option<Waker>>,
}

impl WorkerTime {
    /// The time of this project at the worker of this thread.
    pub fn of(project: &ProjectId) -> Self {
        PROJECTS.with_borrow_mut(|projects| {
            if let Some(known) = projects.get(project) {
                return Self(Rc::clone(known));
            }
            if projects.len() >= IDLE_LEN_MAX {
                projects.retain(|_, slice| Rc::strong_count(slice) > 1);
            }
            let slice = Rc::<Slice>::default();
            projects.insert(project.clone(), Rc::clone(&slice));
            Self(slice)
        })
    }

    /// Whether the project has used its slice.
    pub fn is_used_up(&self) -> bool {
        self.0.used_ms.get() >= SLICE_MS
    }

    /// Charges time that a request of the project kept the worker busy.
    pub fn charge(&self, ms: u64) {
        if ms > 0 {
            self.0.used_ms.set(self.0.used_ms.get().saturating_add(ms));
        }
    }

    /// Ready if the project has not used its slice; else the task is woken when a new slice has begun and those before it have run.
    pub fn poll_slice(&self, waiter: &Rc<SliceWaiter>, cx: &Context<'_>) -> Poll<()> {
        if !self.is_used_up() {
            return Poll::Ready(());
        }
        if waiter.waker.replace(Some(cx.waker().clone())).is_none() {
            self.0.waiters.borrow_mut().push_back(Rc::clone(waiter));
        }
        if !self.0.is_served.replace(true) {
            actix_rt::spawn(Rc::clone(&self.0).serve());
        }
        Poll::Pending
    }

    /// Runs a future whose steps are charged, and wait for a slice of the project.
    pub async fn charged<F: Future>(self, future: F) -> F::Output {
        let waiter = Rc::default();
        let mut future = pin!(future);
        poll_fn(|cx| {
            ready!(self.poll_slice(&waiter, cx));
            let (since_ms, used_ms) = (mono_ms(), self.0.used_ms.get());
            let polled = future.as_mut().poll(cx);
            // The future may have charged a part of it.
            let charged_ms = self.0.used_ms.get().saturating_sub(used_ms);
            self.charge(mono_ms().saturating_sub(since_ms).saturating_sub(charged_ms));
            polled
        })
        .await
    }
}

impl Slice {
    /// Gives slices until none waits.
    async fn serve(self: Rc<Self>) {
        loop {
            // The first returns once the sockets have been polled, the second once what they brought has run.
            yield_now().await;
            yield_now().await;
            self.used_ms.set(0);
            while self.used_ms.get() < SLICE_MS {
                let next = self.waiters.borrow_mut().pop_front();
                let Some(waiter) = next else {
                    return self.is_served.set(false);
                };
                let waker = waiter.waker.take();
                if let Some(waker) = waker {
                    waker.wake();
                }
                // It has run when this returns. So the next one keeps its place if this one uses up the slice.
                yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller whose every request uses the whole slice.
    async fn sends(project: &str, requests: usize, log: Rc<RefCell<Vec<String>>>) {
        let time = WorkerTime::of(&ProjectId::parse(project).unwrap());
        for _ in 0..requests {
            let request = {
                let (time, log) = (time.clone(), Rc::clone(&log));
                async move {
                    log.borrow_mut().push(project.to_owned());
                    time.charge(SLICE_MS);
                }
            };
            time.clone().charged(request).await;
            // The next request arrives with the next poll of the sockets.
            yield_now().await;
        }
    }

    #[actix_rt::test]
    async fn a_project_waits_for_one_request_of_another_however_many_callers_that_has() {
        let log = Rc::<RefCell<Vec<String>>>::default();
        let mut callers: Vec<_> = (0..8)
            .map(|_| actix_rt::spawn(sends("many", 20, Rc::clone(&log))))
            .collect();
        callers.push(actix_rt::spawn(sends("one", 20, Rc::clone(&log))));
        for caller in callers {
            caller.await.unwrap();
        }
        let log = log.borrow();
        let ends_at = log.iter().rposition(|project| project == "one").unwrap();
        let others = log[..ends_at].iter().filter(|project| *project == "many").count();
        assert!((10..=45).contains(&others), "{others} beside 20 of the other project");
        assert_eq!(log.len(), 9 * 20, "all are served");
    }

    #[actix_rt::test]
    async fn callers_of_a_project_take_turns() {
        let log = Rc::<RefCell<Vec<String>>>::default();
        let time = WorkerTime::of(&ProjectId::parse("same").unwrap());
        let heavy = Rc::clone(&log);
        let heavy = actix_rt::spawn(async move {
            for _ in 0..10 {
                time.clone()
                    .charged(async { heavy.borrow_mut().push("heavy".to_owned()) })
                    .await;
                time.charge(SLICE_MS);
            }
        });
        let callers: Vec<_> = (0..3)
            .map(|_| actix_rt::spawn(sends("same", 1, Rc::clone(&log))))
            .collect();
        for caller in callers.into_iter().chain([heavy]) {
            caller.await.unwrap();
        }
        let last = log.borrow().iter().rposition(|caller| caller == "same").unwrap();
        assert!(
            last < 8,
            "they waited for each other and not for all of one: {:?}",
            log.borrow()
        );
    }

    #[actix_rt::test]
    async fn time_that_a_future_charges_itself_same_once() {
        let time = WorkerTime::of(&ProjectId::parse("once").unwrap());
        let began_ms = mono_ms();
        let same = time.clone();
        let works = async move {
            let began_ms = mono_ms();
            while mono_ms() < began_ms + SLICE_MS {}
            same.charge(mono_ms() - began_ms);
        };
        time.clone().charged(works).await;
        let (used_ms, passed_ms) = (time.0.used_ms.get(), mono_ms() - began_ms);
        assert!((SLICE_MS..=passed_ms).contains(&used_ms), "{used_ms} of {passed_ms} ms");
    }

    #[actix_rt::test]
    async fn all_waiters_have_their_turn_in_order() {
        let (time, log) = (
            WorkerTime::of(&ProjectId::parse("ordered").unwrap()),
            Rc::<RefCell<Vec<usize>>>::default(),
        );
        time.charge(SLICE_MS);
        let waiters = (0..100).map(|at| {
            let log = Rc::clone(&log);
            actix_rt::spawn(time.clone().charged(async move { log.borrow_mut().push(at) }))
        });
        for waiter in waiters.collect::<Vec<_>>() {
            waiter.await.unwrap();
        }
        assert!(log.borrow().is_sorted() && !time.is_used_up());
    }
}
