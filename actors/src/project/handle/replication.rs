//! Reads that must include the changes of other replicas wait here until this replica's view is current.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;

use super::ProjectHandle;
use crate::model::{BrokerError, ProjectId};

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
        self.0.view.until_current().await
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
