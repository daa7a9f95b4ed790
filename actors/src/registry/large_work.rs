//! Work that a worker has no time for, such as checks of large payloads: one of a project at a time, and few of the process.

use std::sync::Arc;

use tokio::{
    sync::{Mutex, Semaphore},
    task::{JoinError, spawn_blocking},
};

/// Bytes of a payload that a worker works on. More take milliseconds.
pub(crate) const ON_WORKER_BYTES_MAX: usize = 256 * 1024;
/// Large messages that are checked at once in this process.
static CHECKS: Semaphore = Semaphore::const_new(2);
/// Large payloads that are transformed for a delivery at once in this process.
static TRANSFORMS: Semaphore = Semaphore::const_new(2);
/// Lenses that are compiled at once in this process, after other replicas have changed them.
static LENSES: Semaphore = Semaphore::const_new(1);

/// One kind of large work of one project.
#[derive(Debug)]
pub(crate) struct LargeWork {
    own: Arc<Mutex<()>>,
    all: &'static Semaphore,
}

impl LargeWork {
    /// Checks of messages that are sent.
    pub fn checks() -> Self {
        Self::of(&CHECKS)
    }

    /// Transformations of messages that are delivered.
    pub fn transforms() -> Self {
        Self::of(&TRANSFORMS)
    }

    /// Compilations of lenses that other replicas have changed.
    pub fn lenses() -> Self {
        Self::of(&LENSES)
    }

    fn of(all: &'static Semaphore) -> Self {
        Self {
            own: Arc::default(),
            all,
        }
    }

    /// Runs work on a blocking thread.
    ///
    /// # Errors
    /// It panicked, or the runtime shuts down.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        // Each project waits with one message at most, so that others need not wait for all of its messages.
        let _own = self.own.lock().await;
        let _all = self.all.acquire().await;
        spawn_blocking(work).await
    }

    /// Keeps further work of the project waiting. For tests only.
    #[cfg(feature = "faults")]
    pub async fn hold(&self) -> tokio::sync::OwnedMutexGuard<()> {
        Arc::clone(&self.own).lock_owned().await
    }
}
