//! What is counted of one backend. A call takes no lock for it and allocates nothing.

use std::{
    collections::HashMap,
    marker::PhantomData,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crate::{
    locked::Locked,
    metrics::{Histogram, Labelled, label},
    model::BackendFailure,
};

label! {
    /// How a call of a backend ended.
    CallStatus {
        /// The backend has answered with a result, or asks its caller.
        Ok = "ok",
        /// The backend has answered with a result that says that its tool failed.
        ToolError = "tool_error",
        /// The backend has answered with an error, or with something that cannot be passed on.
        Error = "error",
        TimedOut = "timeout",
        /// Its caller has gone or wants no answer, an operator has ended it, or the broker stops.
        Cancelled = "cancelled",
        Died = "died",
        /// It was not sent to the backend.
        Refused = "refused",
    }
}

impl CallStatus {
    /// The outcome of a call that fails in the gateway.
    pub const fn of(failure: &BackendFailure) -> Self {
        match failure {
            BackendFailure::NotFound { .. }
            | BackendFailure::Exists { .. }
            | BackendFailure::CommandNotAllowed { .. }
            | BackendFailure::Unavailable { .. }
            | BackendFailure::Busy { .. }
            | BackendFailure::TooManyCalls { .. } => Self::Refused,
            BackendFailure::Died { .. } => Self::Died,
            BackendFailure::TimedOut { .. } => Self::TimedOut,
            BackendFailure::ShuttingDown { .. }
            | BackendFailure::Cancelled { .. }
            | BackendFailure::GivenUp { .. }
            | BackendFailure::NoRoom { .. } => Self::Cancelled,
            BackendFailure::Http { .. } | BackendFailure::Protocol { .. } | BackendFailure::TooLarge { .. } => {
                Self::Error
            }
        }
    }
}

label! {
    /// Why an instance of a backend was started.
    StartReason {
        /// A call needs it, it starts with the broker, or it is not known what it offers.
        Wanted = "wanted",
        /// The one before has crashed, or could not be started.
        Crash = "crash",
        /// The files of its program have changed.
        Change = "change",
        /// Its configuration has changed.
        Config = "config",
        /// An operator has it started.
        Operator = "operator",
        /// A caller needs an instance in addition to the main one: it can be asked, or does not share that of others.
        Asking = "asking",
        /// A cancelled call went on, and could have asked the next caller.
        Cancelled = "cancelled",
    }
}

label! {
    /// The way of bytes.
    Direction {
        /// To the backend.
        Sent = "sent",
        Received = "received",
    }
}

/// A number for each value of a label. It has no shards, because a project may have many backends.
#[derive(Debug)]
pub struct Counts<L, const N: usize>([AtomicU64; N], PhantomData<fn(L)>);

impl<L: Labelled, const N: usize> Counts<L, N> {
    /// Adds to the number of one value.
    pub fn add(&self, value: L, count: u64) {
        self.0[value.index()].fetch_add(count, Ordering::Relaxed);
    }

    /// The number of one value.
    pub fn get(&self, value: L) -> u64 {
        self.0[value.index()].load(Ordering::Relaxed)
    }

    /// The sum of the numbers of these values.
    pub fn sum(&self, values: &[L]) -> u64 {
        values.iter().map(|value| self.get(*value)).sum()
    }
}

impl<L, const N: usize> Default for Counts<L, N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N], PhantomData)
    }
}

/// What is counted of one backend.
#[derive(Debug, Default)]
pub struct BackendCounters {
    /// Calls that have ended.
    pub calls: Counts<CallStatus, { CallStatus::LEN }>,
    /// From the arrival of a call until its end.
    pub call_time: Histogram<1>,
    /// Calls that are open, waiting ones included.
    pub open: AtomicUsize,
    /// When the last call began or ended, on the monotonic clock.
    pub last_call_ms: AtomicU64,
    /// Starts of instances.
    pub starts: Counts<StartReason, { StartReason::LEN }>,
    /// Processes that run.
    pub processes: AtomicUsize,
    /// Bytes of messages.
    pub bytes: Counts<Direction, { Direction::LEN }>,
    /// How often it offered something else than before.
    pub list_changes: AtomicU64,
    dropped: Locked<HashMap<&'static str, u64>>,
}

impl BackendCounters {
    /// Counts a message of the backend that reached no caller: why.
    pub fn note_dropped(&self, why: &'static str) {
        *self.dropped.lock().entry(why).or_default() += 1;
    }

    /// Messages of the backend that reached no caller, by reason.
    pub fn dropped(&self) -> Vec<(&'static str, u64)> {
        let mut counts: Vec<_> = self.dropped.lock().iter().map(|(why, count)| (*why, *count)).collect();
        counts.sort_unstable();
        counts
    }

    /// Calls that ended with a result of the backend.
    pub fn answered(&self) -> u64 {
        self.calls.sum(&[CallStatus::Ok, CallStatus::ToolError])
    }

    /// Calls that ended with an error, of the backend or of the gateway.
    pub fn failed(&self) -> u64 {
        use CallStatus::{Died, Error, Refused, TimedOut};
        self.calls.sum(&[Error, TimedOut, Died, Refused])
    }

    /// Starts of instances, for all reasons.
    pub fn starts(&self) -> u64 {
        self.starts.sum(StartReason::ALL)
    }
}
