//! Whether the process has anything to do. While it has not, its periodic upkeep rests, so that an idle broker on a laptop
//! does not wake the processor.
//!
//! The process rests when no [`AwakeGuard`] is held and [`mark_activity`] was not called for [`REST_AFTER`]. Periodic work
//! calls [`while_idle`] between two rounds.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

use crate::clock::{millis, now};

/// The longest time between two rounds of upkeep of an idle process.
pub const IDLE_PAUSE_MAX: Duration = Duration::from_secs(300);
/// How long nothing must have happened before the process rests.
const REST_AFTER: Duration = Duration::from_secs(5);

static ACTIVITY: Activity = Activity::new();

/// What happened in the process.
struct Activity {
    /// Something happened since the last check.
    has_happened: AtomicBool,
    /// The check that last found activity, in milliseconds of the monotonic clock.
    found_at_ms: AtomicU64,
    guards: AtomicUsize,
    /// Wakes what rests.
    resumed: Notify,
}

impl Activity {
    const fn new() -> Self {
        Self {
            has_happened: AtomicBool::new(true),
            found_at_ms: AtomicU64::new(0),
            guards: AtomicUsize::new(0),
            resumed: Notify::const_new(),
        }
    }

    fn mark(&self) {
        if !self.has_happened.load(Ordering::Relaxed) && !self.has_happened.swap(true, Ordering::SeqCst) {
            self.resumed.notify_waiters();
        }
    }

    /// Checks for activity since the last check.
    fn is_idle(&self, mono_ms: u64) -> bool {
        if self.guards.load(Ordering::SeqCst) > 0 || self.has_happened.swap(false, Ordering::SeqCst) {
            self.found_at_ms.fetch_max(mono_ms, Ordering::SeqCst);
            return false;
        }
        mono_ms.saturating_sub(self.found_at_ms.load(Ordering::SeqCst)) >= millis(REST_AFTER)
    }
}

/// Keeps the process awake until it is dropped.
#[derive(Debug)]
pub struct AwakeGuard(());

/// Keeps the process awake, for example while a connection is open that needs pings.
#[must_use]
pub fn keep_awake() -> AwakeGuard {
    ACTIVITY.guards.fetch_add(1, Ordering::SeqCst);
    ACTIVITY.mark();
    AwakeGuard(())
}

impl Drop for AwakeGuard {
    fn drop(&mut self) {
        ACTIVITY.mark();
        ACTIVITY.guards.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether an [`AwakeGuard`] is held: a connection, a request or a task is under way.
pub fn is_kept_awake() -> bool {
    ACTIVITY.guards.load(Ordering::SeqCst) > 0
}

/// Notes that the process was given something to do. Costs a load in a process that is not idle.
pub fn mark_activity() {
    ACTIVITY.mark();
}

/// Whether upkeep may rest now.
pub fn is_idle() -> bool {
    ACTIVITY.is_idle(now().mono_ms)
}

/// How long the process has been idle, counted from the last check that found activity: never longer than in truth.
pub fn quiet_for() -> Duration {
    let now = now();
    ACTIVITY.is_idle(now.mono_ms);
    now.since(ACTIVITY.found_at_ms.load(Ordering::SeqCst))
}

/// Waits while the process is idle, for `time_max` and for [`IDLE_PAUSE_MAX`] at most; returns at once if it is not. Returns
/// whether it waited.
pub async fn while_idle(time_max: Duration) -> bool {
    let resumed = ACTIVITY.resumed.notified();
    let mut resumed = std::pin::pin!(resumed);
    // From here on a mark wakes this task: a mark between the check and the wait is not missed.
    resumed.as_mut().enable();
    if time_max.is_zero() || !is_idle() {
        return false;
    }
    let _ = timeout(time_max.min(IDLE_PAUSE_MAX), resumed).await;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_idle_some_time_after_the_last_activity() {
        let activity = Activity::new();
        assert!(!activity.is_idle(1_000), "it has just begun");
        assert!(!activity.is_idle(5_999));
        assert!(activity.is_idle(6_000));
        activity.mark();
        assert!(!activity.is_idle(7_000));
        assert!(!activity.is_idle(11_999));
        assert!(activity.is_idle(12_000));
    }

    #[test]
    fn a_guard_keeps_the_process_awake() {
        let activity = Activity::new();
        activity.guards.fetch_add(1, Ordering::SeqCst);
        assert!(!activity.is_idle(1_000));
        assert!(!activity.is_idle(90_000));
        activity.guards.fetch_sub(1, Ordering::SeqCst);
        assert!(!activity.is_idle(91_000), "the guard was held lately");
        assert!(!activity.is_idle(94_999));
        assert!(activity.is_idle(96_000));
    }
}
