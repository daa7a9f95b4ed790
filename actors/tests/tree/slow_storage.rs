//! A storage that behaves like a server on the network: operations take effect in order but later, on another thread;
//! answers may overtake each other; and the server may be unreachable.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use actors::{
    model::ProjectId,
    storage::{Op, Storage, Store, StoreError, memory::MemoryStorage},
};
use futures_util::FutureExt;
use tokio::sync::oneshot;

use crate::intercept::{Hooks, Intercept, InterceptStore, StorageHooks, StoreHooks};

type Work = Box<dyn FnOnce() + Send>;

/// Memory storage whose operations run on a thread of their own.
pub type SlowStorage = Intercept<Slow<MemoryStorage>>;

#[derive(Default)]
pub struct Slow<I: ?Sized> {
    inner: Arc<I>,
    worker: Arc<StorageWorker>,
}

impl<I: ?Sized + Send + Sync + 'static> Hooks for Slow<I> {
    type Inner = I;

    fn inner(&self) -> &Arc<I> {
        &self.inner
    }

    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&I) -> Op<T> + Send + 'static) -> Op<T> {
        let inner = Arc::clone(&self.inner);
        self.worker.enqueue(move || operation(&inner))
    }
}

impl StoreHooks for Slow<dyn Store> {}

impl StorageHooks for Slow<MemoryStorage> {
    const NAME: &'static str = "slow";

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        Arc::new(InterceptStore(Slow {
            inner: self.inner.open(project),
            worker: Arc::clone(&self.worker),
        }))
    }
}

impl SlowStorage {
    /// Holds all operations back, or lets them run.
    pub fn set_paused(&self, held: bool) {
        *self.0.worker.paused.0.lock().unwrap_or_else(PoisonError::into_inner) = held;
        self.0.worker.paused.1.notify_all();
    }

    /// Makes every operation fail, or succeed again.
    pub fn set_unreachable(&self, down: bool) {
        self.0.worker.unreachable.store(down, Ordering::SeqCst);
    }
}

/// The queue of the thread. Operations run in the order in which they are enqueued, across all projects.
pub struct StorageWorker {
    work: Mutex<mpsc::Sender<Work>>,
    paused: Arc<(Mutex<bool>, Condvar)>,
    unreachable: AtomicBool,
    dice: AtomicU64,
}

impl Default for StorageWorker {
    fn default() -> Self {
        let (work, queue) = mpsc::channel::<Work>();
        let held = Arc::<(Mutex<bool>, Condvar)>::default();
        let holds = Arc::clone(&held);
        thread::spawn(move || {
            for work in queue {
                let held_now = holds.0.lock().unwrap_or_else(PoisonError::into_inner);
                drop(holds.1.wait_while(held_now, |held| *held));
                work();
            }
        });
        Self {
            work: Mutex::new(work),
            paused: held,
            unreachable: AtomicBool::default(),
            dice: AtomicU64::new(1),
        }
    }
}

impl StorageWorker {
    fn enqueue<T: Send + 'static>(&self, operation: impl FnOnce() -> Op<T> + Send + 'static) -> Op<T> {
        if self.unreachable.load(Ordering::SeqCst) {
            return Box::pin(async {
                tokio::task::yield_now().await;
                Err(StoreError::Unreachable("it is down".to_owned()))
            });
        }
        let (reply, answer) = oneshot::channel();
        let work = Box::new(move || {
            let result = operation().now_or_never().expect("memory answers at once");
            let _ = reply.send(result);
        });
        let queue = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        queue.send(work).expect("the thread runs as long as the storage exists");
        // A cheap random number: it only has to make answers overtake each other.
        let roll = self
            .dice
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 62;
        Box::pin(async move {
            let result = answer.await.expect("the thread answers everything");
            match roll {
                0 => tokio::time::sleep(Duration::from_millis(1)).await,
                1 => tokio::task::yield_now().await,
                _ => {}
            }
            result
        })
    }
}
