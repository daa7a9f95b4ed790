//! The thread of the Redis connections.

use std::{future::Future, io, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task::JoinHandle,
};

/// A thread with a runtime, on which everything that talks to Redis runs: a busy worker does not delay the answers of
/// others, and a connection does not end with the worker that opened it. The thread and its tasks end when this is
/// dropped.
#[derive(Debug)]
pub(super) struct RedisThread {
    handle: Handle,
    _until_dropped: oneshot::Sender<()>,
}

impl RedisThread {
    /// # Errors
    /// When no thread can be started.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (until_dropped, dropped) = oneshot::channel();
        thread::Builder::new().name("redis".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let _ = dropped.await;
            });
            // Does not wait for a name lookup that is running.
            runtime.shutdown_background();
        })?;
        Ok(Self {
            handle,
            _until_dropped: until_dropped,
        })
    }

    /// Runs a future on the thread.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.handle.spawn(future)
    }
}
