//! What others may know of the wakes of a session without asking its actor: how its agent can be reached, what the agent
//! does, when it last read, and the last wakes.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
};

use super::waking::Turn;
use crate::{
    clock::{Now, mono_ms},
    locked::Locked,
    model::{Activity, Rung, Rungs, WakeRecord},
};

/// Wakes that are kept.
const RECORDS_MAX: usize = 8;

/// The wakes of a session in this process.
#[derive(Debug, Default)]
pub struct WakeLog {
    rungs: AtomicU8,
    activity: AtomicU8,
    /// When the agent was last given messages, in milliseconds since the Unix epoch; 0 for never.
    read_at_ms: AtomicU64,
    /// The turn that a wake has begun: its end on the monotonic clock, and the hops of what is sent in it.
    turn_until_ms: AtomicU64,
    turn_hops: AtomicU64,
    /// The last wakes, the oldest first.
    records: Locked<VecDeque<WakeRecord>>,
}

impl WakeLog {
    /// The ways in which the agent can be reached now.
    pub fn rungs(&self) -> Rungs {
        Rungs::from_bits(self.rungs.load(Ordering::Relaxed))
    }

    pub(super) fn set_rungs(&self, rungs: Rungs) {
        self.rungs.store(rungs.bits(), Ordering::Relaxed);
    }

    /// What the agent does, as far as its client tells.
    pub fn activity(&self) -> Activity {
        match self.activity.load(Ordering::Relaxed) {
            1 => Activity::Idle,
            2 => Activity::Busy,
            _ => Activity::Unknown,
        }
    }

    /// The client has reported what the agent does. An idle agent has ended its turn.
    pub fn set_activity(&self, activity: Activity) {
        let value = match activity {
            Activity::Unknown => 0,
            Activity::Idle => 1,
            Activity::Busy => 2,
        };
        self.activity.store(value, Ordering::Relaxed);
        if activity == Activity::Idle {
            self.turn_until_ms.store(0, Ordering::Relaxed);
        }
    }

    /// When the agent was last given messages, in milliseconds since the Unix epoch.
    pub fn last_read_ms(&self) -> Option<u64> {
        Some(self.read_at_ms.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    pub(super) fn note_read(&self, now: Now) {
        self.read_at_ms.store(now.unix_ms, Ordering::Relaxed);
    }

    /// The least hops of a message that the agent sends now: those of the messages that woke it, and one more.
    pub fn hops(&self) -> u64 {
        let until_ms = self.turn_until_ms.load(Ordering::Relaxed);
        // The clock is read for agents alone that were woken.
        if until_ms == 0 || until_ms <= mono_ms() {
            return 0;
        }
        self.turn_hops.load(Ordering::Relaxed)
    }

    pub(super) fn begin_turn(&self, turn: Turn) {
        self.turn_hops.store(turn.hops, Ordering::Relaxed);
        self.turn_until_ms.store(turn.until_ms, Ordering::Relaxed);
    }

    /// The last wakes between two moments, in milliseconds since the Unix epoch.
    pub fn between(&self, from_ms: u64, to_ms: u64) -> Vec<WakeRecord> {
        let is_within = |record: &&WakeRecord| (from_ms..=to_ms).contains(&record.at_ms);
        self.records.lock().iter().filter(is_within).copied().collect()
    }

    pub(super) fn add(&self, record: WakeRecord) {
        let mut records = self.records.lock();
        if records.len() == RECORDS_MAX {
            records.pop_front();
        }
        records.push_back(record);
    }
}

/// The ways of a connection, and that of a hook that waits.
pub(super) fn ways_with(connection: Rungs, has_hook: bool) -> Rungs {
    if has_hook {
        connection.with(Rung::Hook)
    } else {
        connection
    }
}
