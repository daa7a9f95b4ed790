//! Reads that must include the changes of other replicas wait here until this replica's view is current.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::try_join_all;
use tokio::sync::oneshot;

use super::ProjectHandle;
use crate::{
    model::{BrokerError, ProjectId},
    project::messages::RequestResync,
};

/// The wait for a frame that is on its way, before the store is read instead.
const FRAME_TIMEOUT: Duration = Duration::from_millis(500);

/// The wait for a resync, which may have to queue behind another one.
const RESYNC_TIMEOUT: Duration = Duration::from_secs(2);

impl ProjectHandle {
    /// Whether other replicas work on the same project, so that the directory may be outdated.
    pub fn is_shared(&self) -> bool {
        self.0.store.is_shared()
    }

    /// Waits until this replica knows every change that any replica made before the call.
    ///
    /// # Errors
    /// `unavailable` when the store cannot tell, or takes too long.
    pub async fn wait_until_current(&self) -> Result<(), BrokerError> {
        let Some(store) = self.0.store.replicated() else {
            return Ok(());
        };
        let last_seq = store.last_frame_seq();
        let seq = last_seq.await?;
        let mut known = self.0.known_seq.subscribe();
        let arrived = known.wait_for(|known| *known >= Some(seq));
        if tokio::time::timeout(FRAME_TIMEOUT, arrived).await.is_ok() {
            return Ok(());
        }
        // The frame did not come: a resync that begins now includes the change.
        let (done, resynced) = oneshot::channel();
        self.0.project.report(RequestResync { done: Some(done) });
        match tokio::time::timeout(RESYNC_TIMEOUT, resynced).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(BrokerError::unavailable()),
        }
    }

    /// As [`Self::wait_until_current`], for this project and for those of the others to which it may send.
    ///
    /// # Errors
    /// As of [`Self::wait_until_current`].
    pub async fn wait_until_current_with(&self, others: &BTreeSet<ProjectId>) -> Result<(), BrokerError> {
        let limits = self.limits();
        let granted = others.iter().filter(|id| limits.record.grants.contains_key(*id));
        let remote: Vec<_> = granted.filter_map(|id| self.other_project(id)).collect();
        try_join_all(remote.iter().chain([self]).map(Self::wait_until_current)).await?;
        Ok(())
    }
}
