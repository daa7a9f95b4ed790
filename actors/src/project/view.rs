//! Whether this replica knows every change that other replicas have made to the project.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::sync::oneshot;

use super::resync::KnownSeq;
use crate::{
    directory::Directory,
    model::{BrokerError, SessionId},
    registry::{Catalog, LargeWork},
    session::{Member, SpokenProject},
    storage::Store,
};

/// The wait for a frame that is on its way, before the store is read instead.
const FRAME_TIMEOUT: Duration = Duration::from_millis(500);

/// The wait for a resync, which may have to queue behind another one.
const RESYNC_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests a resync; the sender gets a message when the view is complete.
pub(super) type AskForResync = Arc<dyn Fn(oneshot::Sender<()>) + Send + Sync>;

/// What this replica knows of a project, and whether that is current.
pub(super) struct View {
    pub store: Arc<dyn Store>,
    pub ask_for_resync: AskForResync,
    pub directory: Weak<Directory>,
    pub catalog: Arc<Catalog>,
    pub known_seq: KnownSeq,
    /// Frames were dropped because the mailbox of the project's actor was full, and a resync is on its way.
    pub frames_dropped: Arc<AtomicBool>,
    /// Transforms the project's large messages.
    pub large_transforms: Arc<LargeWork>,
}

impl View {
    /// Waits until this replica knows every change that any replica made before the call.
    ///
    /// # Errors
    /// `unavailable` when the store cannot tell, or takes too long.
    pub fn until_current(&self) -> impl Future<Output = Result<(), BrokerError>> + Send + 'static {
        let last_seq = self.store.replicated().map(|store| store.last_frame_seq());
        let (mut known, ask_for_resync) = (self.known_seq.subscribe(), Arc::clone(&self.ask_for_resync));
        async move {
            let Some(last_seq) = last_seq else { return Ok(()) };
            let seq = last_seq.await?;
            let arrived = known.wait_for(|known| *known >= Some(seq));
            if tokio::time::timeout(FRAME_TIMEOUT, arrived).await.is_ok() {
                return Ok(());
            }
            // The frame did not come: a resync that begins now includes the change.
            let (done, resynced) = oneshot::channel();
            ask_for_resync(done);
            match tokio::time::timeout(RESYNC_TIMEOUT, resynced).await {
                Ok(Ok(())) => Ok(()),
                _ => Err(BrokerError::unavailable()),
            }
        }
    }
}

impl SpokenProject for View {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn member(&self, session: SessionId) -> Option<Arc<Member>> {
        self.directory.upgrade()?.by_id(session)
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn is_behind(&self) -> bool {
        self.store.replicated().is_some()
            && (self.frames_dropped.load(Ordering::Acquire) || self.known_seq.borrow().is_none())
    }

    fn until_current(&self) -> BoxFuture<'static, Result<(), BrokerError>> {
        self.until_current().boxed()
    }

    fn large_transforms(&self) -> &LargeWork {
        &self.large_transforms
    }
}
