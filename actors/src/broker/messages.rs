//! The commands and facts that the root actor takes.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::model::{BrokerError, ProjectId, ProjectRecord};

/// Where the answer to a change of a record goes.
pub(super) type Reply = oneshot::Sender<Result<Arc<ProjectRecord>, BrokerError>>;

/// A project cannot continue: its actor, its registry or its router panicked too often.
pub(super) struct ProjectFailed {
    pub project: ProjectId,
}

/// The store lost data of this project: what this process knows about it is void.
pub(super) struct StoreRolledBack {
    pub project: ProjectId,
}

/// The record of a project has this revision: another replica changed it.
pub(super) struct RecordChanged {
    pub project: ProjectId,
    pub revision: u64,
}

/// Changes of records may have been missed, of this project or of all: reads them again.
pub(super) struct ReloadRecords(pub Option<ProjectId>);

/// Creates a project.
pub(super) struct CreateProject {
    pub record: ProjectRecord,
    pub reply: Reply,
}

/// Changes the record of a project.
pub(super) struct UpdateProject {
    pub project: ProjectId,
    pub update: RecordUpdate,
    pub reply: Reply,
}

/// A change of a record. It is applied again to a newer record when another replica changed the record first.
#[derive(Clone)]
pub(super) struct RecordUpdate(Arc<UpdateFn>);

type UpdateFn = dyn Fn(&mut ProjectRecord) -> Result<(), BrokerError> + Send + Sync;

impl RecordUpdate {
    /// A change that may be applied more than once.
    pub fn new(update: impl Fn(&mut ProjectRecord) -> Result<(), BrokerError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(update))
    }

    /// Changes the record.
    ///
    /// # Errors
    /// What the change refuses; the record is then undefined and must be discarded.
    pub fn apply(&self, record: &mut ProjectRecord) -> Result<(), BrokerError> {
        (self.0)(record)
    }
}
