//! The timer of the decisions about wakes.

use actix::SpawnHandle;

/// The timer that is set, and its moment on the monotonic clock in milliseconds.
pub(super) struct WakeTimer {
    pub at_ms: u64,
    pub handle: SpawnHandle,
}
