//! A memory storage that counts what actors and calls ask of it.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use actors::{
    clock::Now,
    model::{ProjectId, Question, QuestionId, SessionId},
    storage::{Op, Storage, Store, Swept, memory::MemoryStorage},
};
use futures_util::FutureExt;

use crate::intercept::{Hooks, Intercept, InterceptStore, StorageHooks, StoreHooks};

/// The storage.
pub type CountingStorage = Intercept<Counting<MemoryStorage>>;

#[derive(Default)]
pub struct Counting<I: ?Sized> {
    counts: Arc<Counts>,
    inner: Arc<I>,
}

/// What was asked, in all projects.
#[derive(Default)]
pub struct Counts {
    sweeps: AtomicUsize,
    expired_in: Mutex<Vec<SessionId>>,
    question_reads: AtomicUsize,
}

impl CountingStorage {
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.0.counts)
    }
}

impl Counts {
    pub fn sweeps(&self) -> usize {
        self.sweeps.load(Ordering::SeqCst)
    }

    /// The sessions in which a sweep found expired messages.
    pub fn expired_in(&self) -> MutexGuard<'_, Vec<SessionId>> {
        self.expired_in.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn question_reads(&self) -> usize {
        self.question_reads.load(Ordering::SeqCst)
    }
}

impl<I: ?Sized + Send + Sync + 'static> Hooks for Counting<I> {
    type Inner = I;

    fn inner(&self) -> &Arc<I> {
        &self.inner
    }
}

impl StorageHooks for Counting<MemoryStorage> {
    const NAME: &'static str = "counting";

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        Arc::new(InterceptStore(Counting {
            counts: Arc::clone(&self.counts),
            inner: self.inner.open(project),
        }))
    }
}

impl StoreHooks for Counting<dyn Store> {
    fn sweep(&self, now: Now) -> Op<Swept> {
        let swept = self.inner.sweep(now).now_or_never().expect("memory answers at once");
        let expired = swept
            .iter()
            .flat_map(|swept| swept.expired_in.iter().map(|(id, _)| *id));
        self.counts.expired_in().extend(expired);
        self.counts.sweeps.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { swept })
    }

    fn questions(&self, ids: Vec<QuestionId>) -> Op<Vec<Option<Arc<Question>>>> {
        self.counts.question_reads.fetch_add(1, Ordering::SeqCst);
        self.inner.questions(ids)
    }
}
