//! Group commit: while one group is written and made sure of, the next one gathers.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::engine::Record;
use crate::storage::{StorageHealth, StoreError};

type Waiter = oneshot::Sender<Result<(), StoreError>>;

/// Becomes ready when everything that was recorded until then is on the disk, or will not be.
pub type Durable = oneshot::Receiver<Result<(), StoreError>>;

/// What an operation needs of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It adds to what is kept.
    Space,
    /// It adds next to nothing, or makes room.
    Access,
}

/// Between those who have something to be written and the one who writes.
#[derive(Debug, Default)]
pub struct Commits {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Pending {
    records: Vec<Record>,
    waiters: Vec<Waiter>,
    /// How often something was recorded, and how much of that is on the disk.
    recorded: u64,
    durable: u64,
    mode: DiskMode,
    /// Spaces to be emptied.
    purges: Vec<u32>,
    is_closing: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DiskMode {
    #[default]
    Normal,
    /// There is so little room left that nothing is added.
    LowSpace(String),
    /// Nothing can be written.
    Failed(StoreError),
}

/// What there is to write at once.
#[derive(Debug)]
pub struct Group {
    pub records: Vec<Record>,
    waiters: Vec<Waiter>,
    last_recorded: u64,
}

/// What is to be done next.
#[derive(Debug)]
pub enum Work {
    Commit(Group),
    Purge(u32),
    Idle,
    Stop,
}

impl Commits {
    /// # Errors
    /// Why an operation is refused, before it changes anything.
    pub fn check(&self, need: Need) -> Result<(), StoreError> {
        match &self.pending().mode {
            DiskMode::Failed(error) => Err(error.clone()),
            DiskMode::LowSpace(why) if need == Need::Space => Err(StoreError::Full(why.clone())),
            _ => Ok(()),
        }
    }

    /// Has records written with the next group. None: nothing that was recorded is not on the disk yet.
    ///
    /// # Errors
    /// The records are not written.
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

    /// Has records written with the next group, for which nobody waits. While nothing can be written they stay where
    /// they are: either the state that they belong to is given up with them, or they are written with what comes next.
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

    pub fn purge(&self, spaces: impl IntoIterator<Item = u32>) {
        self.pending().purges.extend(spaces);
        self.changed.notify_one();
    }

    pub fn health(&self) -> StorageHealth {
        match &self.pending().mode {
            DiskMode::Normal => StorageHealth::Healthy,
            DiskMode::LowSpace(why) => StorageHealth::Degraded(format!("nothing new is accepted: {why}")),
            DiskMode::Failed(error) => StorageHealth::Unavailable(error.to_string()),
        }
    }

    /// What is pending is written, and then the writer ends.
    pub fn close(&self) {
        self.pending().is_closing = true;
        self.changed.notify_one();
    }

    /// Waits for something to do, at most for so long.
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

    /// A group is on the disk.
    pub fn complete(&self, group: Group) {
        self.pending().durable = group.last_recorded;
        for waiter in group.waiters {
            let _ = waiter.send(Ok(()));
        }
    }

    /// Nothing is written from now on, and nothing of what is pending will be.
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

    pub fn set_mode(&self, mode: DiskMode) {
        self.pending().mode = mode;
    }

    /// Waits for the end, at most for so long. True when it has come.
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
