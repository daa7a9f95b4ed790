//! The thread that has the disk.

use std::{sync::Arc, time::Duration};

use super::{
    Core,
    commits::{Group, Mode, Next},
    engine::{Engine, Record, Room},
    load::load,
};
use crate::{clock::now, storage::StoreError};

/// How often it is looked whether there is room, or whether a disk that failed works again.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1000 });

/// Most records of a cleared project that one group removes.
const PURGE_LEN_MAX: usize = 4096;

pub struct Writer<E> {
    pub core: Arc<Core>,
    pub engine: E,
    /// Something was removed since room was made.
    pub has_removed: bool,
    /// When that was, on the monotonic clock in milliseconds.
    pub made_room_at: u64,
    /// How long after it is tried again though nothing was removed since: what it is made of may have come too late.
    pub make_room_after: Duration,
    /// Bytes that stay free for what is removed and for the housekeeping of the store beneath.
    pub reserve_bytes: u64,
}

/// Whoever waits when the thread ends, for whatever reason, is told.
struct Farewell(Arc<Core>);

impl Drop for Farewell {
    fn drop(&mut self) {
        let error = StoreError::Unreachable("the storage is closed".to_owned());
        self.0.commits.fail(&error, None);
    }
}

impl<E: Engine> Writer<E> {
    pub fn run(mut self) {
        let _farewell = Farewell(Arc::clone(&self.core));
        let mut mode = self.look(Mode::Open);
        loop {
            let written = match self.core.commits.next(LOOK_INTERVAL) {
                Next::Commit(group) => self.commit(group),
                Next::Purge(space) => self.purge(space).map_err(|error| (error, None)),
                Next::Nothing => Ok(()),
                Next::End => return,
            };
            if let Err((error, group)) = written {
                tracing::error!(%error, "the disk refused to be written: nothing is accepted until it is well again");
                self.core.commits.fail(&error, group);
                if !self.recover() {
                    return;
                }
                mode = Mode::Open;
            }
            mode = self.look(mode);
        }
    }

    fn commit(&mut self, mut group: Group) -> Result<(), (StoreError, Option<Group>)> {
        let records = in_order(std::mem::take(&mut group.records));
        self.has_removed |= records.iter().any(|record| record.value.is_none());
        if !records.is_empty()
            && let Err(error) = self.engine.commit(records)
        {
            return Err((error, Some(group)));
        }
        self.core.commits.done(group);
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
        while !self.core.commits.ends_within(LOOK_INTERVAL) {
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
                self.core.take(loaded);
                true
            }
            Err(error) => {
                tracing::error!(%error, "what is on the disk cannot be read back");
                false
            }
        }
    }

    /// Notices when room becomes scarce, and when there is enough again.
    fn look(&mut self, before: Mode) -> Mode {
        let room = self.engine.room().unwrap_or(Room {
            free: u64::MAX,
            total: u64::MAX,
        });
        let reserve = self.reserve_bytes.min(room.total / 2);
        let mode = if room.free < reserve {
            Mode::Short(format!("less than {} MiB are free on the disk", reserve >> 20))
        } else {
            Mode::Open
        };
        if mode != before {
            if let Mode::Short(why) = &mode {
                tracing::error!("nothing new is accepted: {why}");
            } else {
                tracing::info!("there is room on the disk again");
            }
        }
        let wait = if self.has_removed {
            LOOK_INTERVAL
        } else {
            self.make_room_after
        };
        if mode != Mode::Open && now().since(self.made_room_at) >= wait {
            self.make_room_after = (2 * wait).min(64 * LOOK_INTERVAL);
            self.has_removed = false;
            self.made_room_at = now().mono_ms;
            self.engine.make_room();
        }
        self.core.commits.set_mode(mode.clone());
        mode
    }
}

/// Ascending, and of each key only what was said last.
fn in_order(mut records: Vec<Record>) -> Vec<Record> {
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
