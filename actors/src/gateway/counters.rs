//! What is counted of one backend.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// What is counted of one backend.
#[derive(Debug, Default)]
pub struct BackendCounters {
    /// Calls that were answered by the backend.
    pub calls: AtomicU64,
    /// Calls that ended with an error of the gateway.
    pub failures: AtomicU64,
    /// Calls that are open, waiting ones included.
    pub open: AtomicUsize,
    /// When the last call began, on the monotonic clock.
    pub last_call_ms: AtomicU64,
    /// Starts of instances.
    pub starts: AtomicU64,
    dropped: Mutex<HashMap<&'static str, u64>>,
}

impl BackendCounters {
    fn dropped_map(&self) -> MutexGuard<'_, HashMap<&'static str, u64>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a message of the backend that reached no caller: why.
    pub fn note_dropped(&self, why: &'static str) {
        *self.dropped_map().entry(why).or_default() += 1;
    }

    /// Messages of the backend that reached no caller, by reason.
    pub fn dropped(&self) -> Vec<(&'static str, u64)> {
        let mut counts: Vec<_> = self.dropped_map().iter().map(|(why, count)| (*why, *count)).collect();
        counts.sort_unstable();
        counts
    }

    /// The number of calls that have been answered by the backend.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}
