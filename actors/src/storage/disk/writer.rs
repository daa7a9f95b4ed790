//! The thread that owns the disk.

use std::{sync::Arc, time::Duration};

use super::{
    commits::{DiskMode, Group, Work},
    disk_state::DiskState,
    engine::{DiskSpace, Engine, Record},
    load::load,
};
use crate::{
    clock::{fine_ns, now},
    idle::{self, IDLE_PAUSE_MAX},
    metrics::METRICS,
    storage::StoreError,
};

/// How often the thread checks the free space, or whether a failed disk works again. The free space is checked after each
/// commit as well, so the thread of an idle process may rest.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1000 });

/// The largest number of records of a cleared project that one group removes.
const PURGE_LEN_MAX: usize = 4096;

/// The writer thread and its disk.
pub struct DiskWriter<E> {
    pub shared: Arc<DiskState>,
    pub engine: E,
    /// Records were removed since space was last reclaimed.
    pub has_removed: bool,
    /// When space was last reclaimed, in monotonic milliseconds.
    pub reclaimed_at_ms: u64,
    /// How long to wait before space is reclaimed again although no record was removed since: an earlier attempt may
    /// have come too early.
    pub reclaim_backoff: Duration,
    /// Bytes that stay free for removals and for the housekeeping of the key-value store.
    pub reserve_bytes: u64,
}

/// Fails every waiting operation when the thread ends for any reason.
struct FailWaitersOnDrop(Arc<DiskState>);

impl Drop for FailWaitersOnDrop {
    fn drop(&mut self) {
        let error = StoreError::Unreachable("the storage is closed".to_owned());
        self.0.commits.refuse(&error);
        self.0.commits.fail_waiting(&error);
    }
}

impl<E: Engine> DiskWriter<E> {
    /// Writes until the storage is closed.
    pub fn run(mut self) {
        let _farewell = FailWaitersOnDrop(Arc::clone(&self.shared));
        let mut mode = self.check_space(DiskMode::Normal);
        loop {
            let pause = if idle::is_idle() {
                IDLE_PAUSE_MAX
            } else {
                CHECK_INTERVAL
            };
            let written = match self.shared.commits.next_work(pause) {
                Work::Commit(group) => self.commit(group),
                Work::Purge(space) => self.purge(space),
                Work::Idle => Ok(()),
                Work::Stop => return,
            };
            if let Err(error) = written {
                tracing::error!(%error, "writing to the disk failed: operations are refused until it works again");
                self.shared.commits.refuse(&error);
                // Before the answers: who gets one reads what is on the disk.
                self.reload();
                self.shared.commits.fail_waiting(&error);
                if !self.recover() {
                    return;
                }
                mode = DiskMode::Normal;
            }
            mode = self.check_space(mode);
        }
    }

    fn commit(&mut self, mut group: Group) -> Result<(), StoreError> {
        let records = sort_and_dedup(std::mem::take(&mut group.records));
        let (len, begun_ns) = (records.len() as u64, fine_ns());
        self.has_removed |= records.iter().any(|record| record.value.is_none());
        if !records.is_empty() {
            if let Err(error) = self.engine.commit(records) {
                METRICS.disk_failures.increment();
                return Err(error);
            }
            METRICS.disk_commits.observe(fine_ns().saturating_sub(begun_ns));
            METRICS.disk_records.add(len);
        }
        self.shared.commits.complete(&group);
        Ok(())
    }

    /// Removes some records of a space, and schedules the rest.
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
        self.shared.commits.purge([space]);
        Ok(())
    }

    /// Waits until the disk works, and replaces the state in memory by what is on it. False if the storage was closed
    /// first.
    fn recover(&mut self) -> bool {
        while !self.shared.commits.wait_for_close(CHECK_INTERVAL) {
            match self.engine.reopen() {
                Ok(()) if self.reload() => {
                    tracing::info!("the disk works again");
                    return true;
                }
                Ok(()) => {}
                Err(error) => tracing::debug!(%error, "the disk does not work yet"),
            }
        }
        false
    }

    /// Replaces the state in memory by what is on the disk. False if that cannot be read.
    fn reload(&mut self) -> bool {
        match load(&mut self.engine, &self.shared.limits, now()) {
            Ok(loaded) => {
                self.shared.install(loaded);
                true
            }
            Err(error) => {
                tracing::error!(%error, "the records on the disk cannot be read");
                false
            }
        }
    }

    /// Checks the free space; logs when it becomes low and when it is sufficient again.
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
                tracing::info!("enough space is free on the disk again");
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
        self.shared.commits.set_mode(mode.clone());
        mode
    }
}

/// Sorts records by key and keeps the last one for each key.
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
