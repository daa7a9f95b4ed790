//! Group commit: while one group is written and synced, the next one gathers.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::engine::Record;
use crate::storage::{StorageHealth, StoreError};

type Waiter = oneshot::Sender<Result<(), StoreError>>;

/// Resolves when everything recorded until then is on the disk, or with an error if it will not be.
pub type Durable = oneshot::Receiver<Result<(), StoreError>>;

/// Waits until the recorded changes are on the disk.
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

/// What an operation needs of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The operation adds data.
    Space,
    /// The operation adds almost nothing, or frees space.
    Access,
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
    waiters: Vec<Waiter>,
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
    waiters: Vec<Waiter>,
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
    /// The error of a failed disk; [`StoreError::Full`] for [`Need::Space`] while space is low.
    pub fn check(&self, need: Need) -> Result<(), StoreError> {
        match &self.pending().mode {
            DiskMode::Failed(error) => Err(error.clone()),
            DiskMode::LowSpace(why) if need == Need::Space => Err(StoreError::Full(why.clone())),
            _ => Ok(()),
        }
    }

    /// Adds records to the next group. None if everything recorded so far is on the disk already.
    ///
    /// # Errors
    /// The error of a failed disk; the records are not written.
    pub fn submit(&self, records: Vec<Record>) -> Result<Option<Durable>, StoreError> {
        let mut pending = self.pending();
        if let DiskMode::Failed(error) = &pending.mode {
            return Err(error.clone());
        }
        pending.add(records);
        if pending.durable == pending.recorded {
            return Ok(None);
        }
        let (waiter, durable) = oneshot::channel();
        pending.waiters.push(waiter);
        self.changed.notify_one();
        Ok(Some(durable))
    }

    /// Adds records to the next group without waiting. While the disk fails the records stay with the caller: either
    /// its state is replaced, or they are written with the next change.
    pub fn record(&self, records: &mut Vec<Record>) {
        if records.is_empty() {
            return;
        }
        let mut pending = self.pending();
        if !matches!(pending.mode, DiskMode::Failed(_)) {
            pending.add(std::mem::take(records));
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
        let is_idle = |pending: &mut Pending| {
            pending.records.is_empty() && pending.waiters.is_empty() && pending.purges.is_empty() && !pending.is_closing
        };
        let waited = self.changed.wait_timeout_while(self.pending(), time_max, is_idle);
        let (mut pending, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !pending.records.is_empty() || !pending.waiters.is_empty() {
            return Work::Commit(pending.take());
        }
        match pending.purges.pop() {
            Some(space) => Work::Purge(space),
            None if pending.is_closing => Work::Stop,
            None => Work::Idle,
        }
    }

    /// Reports a group as written.
    pub fn complete(&self, group: Group) {
        self.pending().durable = group.last_recorded;
        for waiter in group.waiters {
            let _ = waiter.send(Ok(()));
        }
    }

    /// Refuses all operations from now on, and fails those that wait for `group` or for pending records.
    pub fn fail(&self, error: &StoreError, group: Option<Group>) {
        let mut pending = self.pending();
        pending.mode = DiskMode::Failed(error.clone());
        let rest = pending.take();
        pending.durable = pending.recorded;
        drop(pending);
        let groups = group.into_iter().chain([rest]);
        for waiter in groups.flat_map(|group| group.waiters) {
            let _ = waiter.send(Err(error.clone()));
        }
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
    fn add(&mut self, records: Vec<Record>) {
        if !records.is_empty() {
            self.records.extend(records);
            self.recorded += 1;
        }
    }

    fn take(&mut self) -> Group {
        Group {
            records: std::mem::take(&mut self.records),
            waiters: std::mem::take(&mut self.waiters),
            last_recorded: self.recorded,
        }
    }
}
