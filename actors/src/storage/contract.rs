//! The storage of the whole broker, and what it offers when several broker processes share it.

use std::{net::SocketAddr, sync::Arc};

use uuid::Uuid;

use super::{
    error::{Op, StorageHealth},
    store::Store,
};
use crate::{
    bridge::Bridge,
    model::{AuditEntry, AuditQuery, ProjectId, ProjectRecord, ReplicaId},
};

/// The storage of the whole broker: the records of projects, the audit log, and a [`Store`] for each project.
pub trait Storage: Send + Sync + 'static {
    /// `memory`, `redis` or `disk`, as `/health` shows it.
    fn name(&self) -> &'static str;

    /// Which accepted messages a restart of the process or of the server can lose, as `/health` shows it.
    fn durability(&self) -> String;

    /// The present health. Called often; answers from memory.
    fn health(&self) -> StorageHealth;

    /// Present figures for operators. Answers from memory.
    fn figures(&self) -> StorageFigures {
        StorageFigures::default()
    }

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

/// Present figures of a storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageFigures {
    /// The figures of the server; None for a storage without one.
    pub server: Option<ServerFigures>,
}

/// Present figures of the connection to a server, and of the operations that wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerFigures {
    /// The connection that all operations share is open.
    pub is_connected: bool,
    /// Breakers that are open.
    pub open_breakers: usize,
    /// Operations that wait in all pipelines, and in the fullest one.
    pub queued: usize,
    pub queued_max: usize,
    /// Bytes of these operations.
    pub queued_bytes: usize,
}

impl dyn Storage {
    /// [`ReplicatedStorage::bridge`]; None for a storage of one process.
    pub fn bridge(&self) -> Option<Arc<dyn Bridge>> {
        self.replicated().map(ReplicatedStorage::bridge)
    }

    /// [`ReplicatedStorage::replicas`]; None for a storage of one process.
    pub fn replicas(&self) -> Option<Arc<dyn ReplicaDirectory>> {
        self.replicated().map(ReplicatedStorage::replicas)
    }

    /// [`ReplicatedStorage::epoch`]; the data of a storage of one process never roll back, so its epoch stays 0.
    pub fn epoch(&self) -> StoreEpoch {
        self.replicated()
            .map_or_else(StoreEpoch::default, ReplicatedStorage::epoch)
    }

    /// [`ReplicatedStorage::has_rolled_back`]; always false for a storage of one process.
    pub fn has_rolled_back(&self, project: &ProjectId, since: StoreEpoch) -> bool {
        self.replicated()
            .is_some_and(|shared| shared.has_rolled_back(project, since))
    }

    /// [`ReplicatedStorage::open_at`], or [`Storage::open`].
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

/// A storage that several broker processes, the replicas, share. It outlives each of them, and its server can lose
/// writes: the epoch tells data read before such a loss from data read after it.
pub trait ReplicatedStorage {
    /// The channel on which replicas publish frames to each other.
    fn bridge(&self) -> Arc<dyn Bridge>;

    /// The replicas that share this storage.
    fn replicas(&self) -> Arc<dyn ReplicaDirectory>;

    /// Writes the events that this process has recorded and not written yet. Called when the process ends.
    fn flush_events(&self) -> Op<()>;

    /// The epoch of everything that is read from now on, until the next detected rollback.
    fn epoch(&self) -> StoreEpoch;

    /// True if the data of this project have rolled back since this epoch.
    fn has_rolled_back(&self, project: &ProjectId, since: StoreEpoch) -> bool;

    /// Opens a store for a caller that read the project's record at `epoch`. Once the data have rolled back, each of its
    /// operations fails with [`StoreError::RolledBack`](super::StoreError::RolledBack).
    fn open_at(&self, project: &ProjectId, epoch: StoreEpoch) -> Arc<dyn Store>;

    /// [`Storage::put_project`](super::Storage::put_project) for a record that was derived from one read at `epoch`. Fails
    /// with [`StoreError::RolledBack`](super::StoreError::RolledBack) once the data have rolled back.
    fn put_project_at(&self, record: Arc<ProjectRecord>, epoch: StoreEpoch) -> Op<bool>;
}

/// The number of rollbacks that a storage had detected when something was read from it. After a later rollback of a
/// project, everything that was read of it at an earlier epoch is void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreEpoch(pub u64);

/// The replicas that share a storage, and the addresses at which they serve HTTP.
pub trait ReplicaDirectory: Send + Sync + 'static {
    /// The id of this process.
    fn own_id(&self) -> ReplicaId;

    /// The id of the broker that all replicas are together. It is stored with the data.
    fn broker_id(&self) -> Uuid;

    /// The address of a replica; None for a replica that has stopped or has published no address. A replica that was
    /// killed keeps its address until its heartbeats have been missing for a while.
    fn address_of(&self, replica: ReplicaId) -> Op<Option<SocketAddr>>;

    /// The replicas that have an address, as [`Self::address_of`] returns it.
    fn addresses(&self) -> Op<Vec<(ReplicaId, SocketAddr)>>;
}
