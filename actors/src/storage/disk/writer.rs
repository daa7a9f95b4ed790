//! The thread that has the disk.

use std::{sync::Arc, time::Duration};

use super::{
    Core,
    commits::{DiskMode, Group, Work},
    engine::{DiskSpace, Engine, Record},
    load::load,
};
use crate::{clock::now, storage::StoreError};

/// How often it is looked whether there is room, or whether a disk that failed works again.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1000 });

/// Most records of a cleared project that one group removes.
const PURGE_LEN_MAX: usize = 4096;

pub struct DiskWriter<E> {
    pub core: Arc<Core>,
    pub engine: E,
    /// Something was removed since room was made.
    pub has_removed: bool,
    /// When that was, on the monotonic clock in milliseconds.
    pub reclaimed_at_ms: u64,
    /// How long after it is tried again though nothing was removed since: what it is made of may have come too late.
    pub reclaim_backoff: Duration,
    /// Bytes that stay free for what is removed and for the housekeeping of the store beneath.
    pub reserve_bytes: u64,
}

/// Whoever waits when the thread ends, for whatever reason, is told.
struct FailWaitersOnDrop(Arc<Core>);

impl Drop for FailWaitersOnDrop {
    fn drop(&mut self) {
        let error = StoreError::Unreachable("the storage is closed".to_owned());
        self.0.commits.fail(&error, None);
    }
}

impl<E: Engine> DiskWriter<E> {
    pub fn run(mut self) {
        let _farewell = FailWaitersOnDrop(Arc::clone(&self.core));
        let mut mode = self.check_space(DiskMode::Normal);
        loop {
            let written = match self.core.commits.next_work(CHECK_INTERVAL) {
                Work::Commit(group) => self.commit(group),
                Work::Purge(space) => self.purge(space).map_err(|error| (error, None)),
                Work::Idle => Ok(()),
                Work::Stop => return,
            };
            if let Err((error, group)) = written {
                tracing::error!(%error, "the disk refused to be written: nothing is accepted until it is well again");
                self.core.commits.fail(&error, group);
                if !self.recover() {
                    return;
                }
                mode = DiskMode::Normal;
            }
            mode = self.check_space(mode);
        }
    }

    fn commit(&mut self, mut group: Group) -> Result<(), (StoreError, Option<Group>)> {
        let records = sort_and_dedup(std::mem::take(&mut group.records));
        self.has_removed |= records.iter().any(|record| record.value.is_none());
        if !records.is_empty()
            && let Err(error) = self.engine.commit(records)
        {
            return Err((error, Some(group)));
        }
        self.core.commits.complete(group);
        Ok(())
    }

    /// Removes some of what is in a space, and comes back for the rest.
    fn purge(&mut self, space: u32) -> Result<(), StoreError> {
        let mut records = Vec::new();
        self.engine.scan(&space.to_be_bytes(), &mut |key, _| {
            records.push(Record {
                key: key.to_vec(),
                value: None,
            });
            records.len() < PURGE_LEN_MAX
        })?;
        if records.is_empty() {
            return Ok(());
        }
        self.has_removed = true;
        self.engine.commit(records)?;
        self.core.commits.purge([space]);
        Ok(())
    }

    /// What is in memory is made what is on the disk, at once and when the disk can be written again. False when the
    /// storage was closed before.
    fn recover(&mut self) -> bool {
        self.reload();
        while !self.core.commits.wait_for_close(CHECK_INTERVAL) {
            match self.engine.reopen() {
                Ok(()) if self.reload() => {
                    tracing::info!("the disk can be written again");
                    return true;
                }
                Ok(()) => {}
                Err(error) => tracing::debug!(%error, "the disk is not well yet"),
            }
        }
        false
    }

    fn reload(&mut self) -> bool {
        match load(&mut self.engine, &self.core.limits, now()) {
            Ok(loaded) => {
                self.core.install(loaded);
                true
            }
            Err(error) => {
                tracing::error!(%error, "what is on the disk cannot be read back");
                false
            }
        }
    }

    /// Notices when room becomes scarce, and when there is enough again.
    fn check_space(&mut self, before: DiskMode) -> DiskMode {
        let room = self.engine.space().unwrap_or(DiskSpace {
            free: u64::MAX,
            total: u64::MAX,
        });
        let reserve = self.reserve_bytes.min(room.total / 2);
        let mode = if room.free < reserve {
            DiskMode::LowSpace(format!("less than {} MiB are free on the disk", reserve >> 20))
        } else {
            DiskMode::Normal
        };
        if mode != before {
            if let DiskMode::LowSpace(why) = &mode {
                tracing::error!("nothing new is accepted: {why}");
            } else {
                tracing::info!("there is room on the disk again");
            }
        }
        let wait = if self.has_removed {
            CHECK_INTERVAL
        } else {
            self.reclaim_backoff
        };
        if mode != DiskMode::Normal && now().since(self.reclaimed_at_ms) >= wait {
            self.reclaim_backoff = (2 * wait).min(64 * CHECK_INTERVAL);
            self.has_removed = false;
            self.reclaimed_at_ms = now().mono_ms;
            self.engine.reclaim_space();
        }
        self.core.commits.set_mode(mode.clone());
        mode
    }
}

/// Ascending, and of each key only what was said last.
fn sort_and_dedup(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by(|a, b| a.key.cmp(&b.key));
    records.dedup_by(|later, kept| {
        let is_same = later.key == kept.key;
        if is_same {
            std::mem::swap(later, kept);
        }
        is_same
    });
    records
}
