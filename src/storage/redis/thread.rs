use std::{future::Future, io, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task::JoinHandle,
};

/// The thread on which everything that talks to Redis runs, so that no broker thread that is busy delays another's
/// answers, and no connection goes with the thread that happened to make it. It ends when this is dropped, and what
/// runs on it ends with it.
#[derive(Debug)]
pub(super) struct RedisThread {
    handle: Handle,
    _until_dropped: oneshot::Sender<()>,
}

impl RedisThread {
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (until_dropped, dropped) = oneshot::channel();
        thread::Builder::new().name("redis".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let _ = dropped.await;
            });
            // A name that is being looked up may hold it up; nobody waits for that.
            runtime.shutdown_background();
        })?;
        Ok(Self {
            handle,
            _until_dropped: until_dropped,
        })
    }

    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.handle.spawn(future)
    }
}
