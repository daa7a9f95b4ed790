//! The two traits that a backend implements: [`Storage`] for the broker, [`Store`] for one project.
//!
//! A backend that several broker processes share implements [`ReplicatedStorage`] and [`ReplicatedStore`] as well, one
//! that delivers messages by itself [`PushStore`]. Callers ask for these parts; a backend that lacks one implements
//! nothing of it.

use std::sync::Arc;

use super::{
    dead_letters::DeadLetterStore,
    error::{Op, StorageHealth},
    inboxes::{Acknowledge, Acknowledged, InboxStore, Lease},
    protocols::ProtocolStore,
    replicated::{PushStore, ReplicaDirectory, ReplicatedStorage, ReplicatedStore, StoreEpoch},
    retention::Usage,
    sessions::SessionStore,
    tracking::TrackingStore,
};
use crate::{
    bridge::Bridge,
    clock::Now,
    model::{AuditEntry, AuditQuery, CallReceipt, MessageId, ProjectId, ProjectRecord, SessionId},
};

/// The storage of the whole broker: the records of projects, the audit log, and a [`Store`] for each project.
pub trait Storage: Send + Sync + 'static {
    /// `memory`, `redis` or `disk`, as `/health` shows it.
    fn name(&self) -> &'static str;

    /// Which accepted messages a restart of the process or of the server can lose, as `/health` shows it.
    fn durability(&self) -> String;

    /// The present health. Called often; answers from memory.
    fn health(&self) -> StorageHealth;

    /// What a storage offers that several broker processes share; None for a storage of one process.
    fn replicated(&self) -> Option<&dyn ReplicatedStorage>;

    /// The store of a project. Every handle on a project sees the same data.
    fn open(&self, project: &ProjectId) -> Arc<dyn Store>;

    /// The records of all projects, deleted ones included.
    fn projects(&self) -> Op<Vec<Arc<ProjectRecord>>>;
    /// The record of a project; None for an id that has never been used.
    fn project(&self, project: ProjectId) -> Op<Option<Arc<ProjectRecord>>>;
    /// Compare and set: stores the record if its revision is one above that of the stored record, or 0 when there is
    /// none. Returns false, and changes nothing, for any other revision: another writer came first.
    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool>;
    /// Removes the data of a project: sessions, protocols, messages. Its record stays.
    fn clear_project(&self, project: ProjectId) -> Op<()>;

    /// Appends to the audit log. Each project has a bounded log for what was done and one for what was refused, so that
    /// a flood of refusals evicts no action.
    fn append_audit(&self, entry: AuditEntry) -> Op<()>;
    /// Entries of the audit log, newest first.
    fn audit(&self, query: AuditQuery) -> Op<Vec<Arc<AuditEntry>>>;
}

impl dyn Storage {
    /// [`ReplicatedStorage::bridge`]; None for a storage of one process.
    #[must_use]
    pub fn bridge(&self) -> Option<Arc<dyn Bridge>> {
        self.replicated().map(ReplicatedStorage::bridge)
    }

    /// [`ReplicatedStorage::replicas`]; None for a storage of one process.
    #[must_use]
    pub fn replicas(&self) -> Option<Arc<dyn ReplicaDirectory>> {
        self.replicated().map(ReplicatedStorage::replicas)
    }

    /// [`ReplicatedStorage::epoch`]; the data of a storage of one process never roll back, so its epoch stays 0.
    #[must_use]
    pub fn epoch(&self) -> StoreEpoch {
        self.replicated()
            .map_or_else(StoreEpoch::default, ReplicatedStorage::epoch)
    }

    /// [`ReplicatedStorage::has_rolled_back`]; always false for a storage of one process.
    #[must_use]
    pub fn has_rolled_back(&self, project: &ProjectId, since: StoreEpoch) -> bool {
        self.replicated()
            .is_some_and(|shared| shared.has_rolled_back(project, since))
    }

    /// [`ReplicatedStorage::open_at`], or [`Storage::open`].
    #[must_use]
    pub fn open_at(&self, project: &ProjectId, epoch: StoreEpoch) -> Arc<dyn Store> {
        match self.replicated() {
            Some(shared) => shared.open_at(project, epoch),
            None => self.open(project),
        }
    }

    /// [`ReplicatedStorage::put_project_at`], or [`Storage::put_project`].
    pub fn put_project_at(&self, record: Arc<ProjectRecord>, epoch: StoreEpoch) -> Op<bool> {
        match self.replicated() {
            Some(shared) => shared.put_project_at(record, epoch),
            None => self.put_project(record),
        }
    }
}

/// The store of one project.
///
/// Each operation is atomic. Operations on one session take effect in the order of their first poll; their answers may
/// arrive in another order. For each recipient, a message that `append` accepted is waiting, leased, acknowledged or a
/// dead letter: in exactly one of these states at any time.
pub trait Store:
    SessionStore + ProtocolStore + InboxStore + TrackingStore + DeadLetterStore + Send + Sync + 'static
{
    /// True if every operation is ready at its first poll, on any thread, and cannot fail.
    fn is_synchronous(&self) -> bool;

    /// What a store offers that several broker processes share; None for a store of one process.
    fn replicated(&self) -> Option<&dyn ReplicatedStore>;

    /// Push delivery, for a store that leases messages as it accepts them; None if sessions must ask.
    fn push(&self) -> Option<&dyn PushStore>;

    /// The bytes that the project keeps, by kind.
    fn usage(&self) -> Op<Usage>;
}

impl dyn Store {
    /// True if other replicas change the same data: what this process remembers of the project may be out of date.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.replicated().is_some()
    }

    /// True if the store delivers by push.
    #[must_use]
    pub fn supports_push(&self) -> bool {
        self.push().is_some()
    }

    /// [`ReplicatedStore::lease_for_call`], or a plain lease: in one process the session knows which call took what.
    pub fn lease_for_call(
        &self,
        session: SessionId,
        receipt: CallReceipt,
        limit: usize,
        bytes_max: usize,
        now: Now,
    ) -> Op<Lease> {
        match self.replicated() {
            Some(shared) => shared.lease_for_call(session, receipt, limit, bytes_max, now),
            None => self.lease(session, None, limit, bytes_max, now),
        }
    }

    /// [`PushStore::acknowledge_written`], or a plain acknowledgement.
    pub fn acknowledge_written(&self, session: SessionId, messages: Vec<MessageId>, now: Now) -> Op<Acknowledged> {
        match self.push() {
            Some(push) => push.acknowledge_written(session, messages, now),
            None => self.acknowledge(session, Acknowledge::Ids(messages), now),
        }
    }
}
