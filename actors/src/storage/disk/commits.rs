//! Group commit: while one group is written and synced, the next one gathers.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::engine::Record;
use crate::storage::{StorageHealth, StoreError, local::Need};

type Waiter = oneshot::Sender<Result<(), StoreError>>;

/// Resolves when a change is on the disk, or with an error if it will not be.
pub type Durable = oneshot::Receiver<Result<(), StoreError>>;

/// Waits until a change is on the disk.
///
/// # Errors
/// The error of the disk; [`StoreError::Unreachable`] if the storage is closed.
pub async fn wait_durable(durable: Option<Durable>) -> Result<(), StoreError> {
    match durable {
        None => Ok(()),
        Some(durable) => durable
            .await
            .unwrap_or_else(|_| Err(StoreError::Unreachable("the storage is closed".to_owned()))),
    }
}

/// The changes of one owner of records: a project, or the system.
#[derive(Debug, Default)]
pub struct Changes {
    /// The records that are in no group yet.
    pub records: Vec<Record>,
    /// The number of the last recorded change.
    last: u64,
}

/// The queue between the operations and the writer thread.
#[derive(Debug, Default)]
pub struct Commits {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Pending {
    records: Vec<Record>,
    /// Each with the number of the change that it waits for.
    waiters: Vec<(u64, Waiter)>,
    /// The number of recorded changes, and how many of them are on the disk.
    recorded: u64,
    durable: u64,
    mode: DiskMode,
    /// Spaces whose records are to be removed.
    purges: Vec<u32>,
    is_closing: bool,
}

/// What the disk accepts now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DiskMode {
    #[default]
    Normal,
    /// Free space is below the reserve: operations that add data are refused. The reason.
    LowSpace(String),
    /// Nothing can be written.
    Failed(StoreError),
}

/// The records that are written together.
#[derive(Debug)]
pub struct Group {
    pub records: Vec<Record>,
    last_recorded: u64,
}

/// The next task of the writer thread.
#[derive(Debug)]
pub enum Work {
    Commit(Group),
    Purge(u32),
    Idle,
    Stop,
}

impl Commits {
    /// Checks an operation before it changes anything.
    ///
    /// # Errors
    /// The error of a failed disk, except for [`Need::Read`]; [`StoreError::Full`] for [`Need::Space`] while space is low.
    pub fn check(&self, need: Need) -> Result<(), StoreError> {
        match &self.pending().mode {
            _ if need == Need::Read => Ok(()),
            DiskMode::Failed(error) => Err(error.clone()),
            DiskMode::LowSpace(why) if need == Need::Space => Err(StoreError::Full(why.clone())),
            _ => Ok(()),
        }
    }

    /// Adds the records to the next group. Returns what to wait for until the last change of their owner is on the disk;
    /// None if it is there.
    ///
    /// # Errors
    /// The error of a failed disk; the records are not written.
    pub fn submit(&self, changes: &mut Changes) -> Result<Option<Durable>, StoreError> {
        let mut pending = self.pending();
        let waits = pending.add(changes);
        if let DiskMode::Failed(error) = &pending.mode {
            let error = error.clone();
            pending.records.clear();
            return Err(error);
        }
        self.changed.notify_one();
        Ok(waits.then(|| pending.wait_for(changes.last)))
    }

    /// As [`Self::submit`], for a query, which a failed disk does not refuse. Its records then stay with their owner:
    /// either the state is replaced, or they are written with the next change.
    ///
    /// # Errors
    /// The error of a failed disk, if the query may have seen a change that is not on it.
    pub fn settle(&self, changes: &mut Changes) -> Result<Option<Durable>, StoreError> {
        let mut pending = self.pending();
        match &pending.mode {
            DiskMode::Failed(error) if changes.last > pending.durable => Err(error.clone()),
            DiskMode::Failed(_) => Ok(None),
            _ => {
                self.changed.notify_one();
                Ok(pending.add(changes).then(|| pending.wait_for(changes.last)))
            }
        }
    }

    /// Adds records to the next group without waiting. While the disk fails they stay with their owner.
    pub fn record(&self, changes: &mut Changes) {
        let mut pending = self.pending();
        if !changes.records.is_empty() && !matches!(pending.mode, DiskMode::Failed(_)) {
            pending.add(changes);
            self.changed.notify_one();
        }
    }

    /// Schedules the removal of all records in these spaces.
    pub fn purge(&self, spaces: impl IntoIterator<Item = u32>) {
        self.pending().purges.extend(spaces);
        self.changed.notify_one();
    }

    /// The health of the storage.
    pub fn health(&self) -> StorageHealth {
        match &self.pending().mode {
            DiskMode::Normal => StorageHealth::Healthy,
            DiskMode::LowSpace(why) => StorageHealth::Degraded(format!("nothing new is accepted: {why}")),
            DiskMode::Failed(error) => StorageHealth::Unavailable(error.to_string()),
        }
    }

    /// Lets the writer write what is pending and then stop.
    pub fn close(&self) {
        self.pending().is_closing = true;
        self.changed.notify_one();
    }

    /// Waits at most `time_max` for a task.
    pub fn next_work(&self, time_max: Duration) -> Work {
        let is_idle =
            |pending: &mut Pending| pending.records.is_empty() && pending.purges.is_empty() && !pending.is_closing;
        let waited = self.changed.wait_timeout_while(self.pending(), time_max, is_idle);
        let (mut pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !pending.records.is_empty() {
            return Work::Commit(pending.take());
        }
        match pending.purges.pop() {
            Some(space) => Work::Purge(space),
            None if pending.is_closing => Work::Stop,
            None => Work::Idle,
        }
    }

    /// Reports a group as written.
    pub fn complete(&self, group: &Group) {
        let mut pending = self.pending();
        pending.durable = group.last_recorded;
        let all = std::mem::take(&mut pending.waiters);
        let (written, rest) = all.into_iter().partition(|(change, _)| *change <= group.last_recorded);
        pending.waiters = rest;
        drop(pending);
        answer(written, &Ok(()));
    }

    /// Refuses all operations from now on, and drops the records that are in no group. Operations that wait keep waiting
    /// until [`Self::fail_waiting`].
    pub fn refuse(&self, error: &StoreError) {
        let mut pending = self.pending();
        pending.mode = DiskMode::Failed(error.clone());
        pending.records.clear();
    }

    /// Fails every operation that waits.
    pub fn fail_waiting(&self, error: &StoreError) {
        let waiters = std::mem::take(&mut self.pending().waiters);
        answer(waiters, &Err(error.clone()));
    }

    /// Every state has been replaced by what is on the disk: no query can see a change that is not there.
    pub fn replaced(&self) {
        let mut pending = self.pending();
        pending.durable = pending.recorded;
    }

    /// Sets what the disk accepts from now on.
    pub fn set_mode(&self, mode: DiskMode) {
        self.pending().mode = mode;
    }

    /// Waits at most `time_max` for [`Self::close`]. True if it was called.
    pub fn wait_for_close(&self, time_max: Duration) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.pending(), time_max, |pending| !pending.is_closing);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_closing
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// Takes the records over. True if the last change of their owner is not on the disk.
    fn add(&mut self, changes: &mut Changes) -> bool {
        if !changes.records.is_empty() {
            self.records.append(&mut changes.records);
            self.recorded += 1;
            changes.last = self.recorded;
        }
        changes.last > self.durable
    }

    fn wait_for(&mut self, change: u64) -> Durable {
        let (waiter, durable) = oneshot::channel();
        self.waiters.push((change, waiter));
        durable
    }

    fn take(&mut self) -> Group {
        Group {
            records: std::mem::take(&mut self.records),
            last_recorded: self.recorded,
        }
    }
}

fn answer(waiters: Vec<(u64, Waiter)>, result: &Result<(), StoreError>) {
    for (_, waiter) in waiters {
        let _ = waiter.send(result.clone());
    }
}
