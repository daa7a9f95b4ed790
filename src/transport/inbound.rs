//! Bounds of receiving, common to all transports.

use std::time::Duration;

/// Bytes of a frame or body that needs no reservation in the inbound budget, so that small ones pass under any load.
pub const UNRESERVED_LEN_MAX: usize = 4 * 1024;
/// Timeout for the next bytes of a body; and of a frame, while others wait for its bytes in the budget.
pub const INBOUND_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for a whole body; and for a whole message, while others wait for its bytes in the budget.
pub const INBOUND_TOTAL_TIMEOUT: Duration = Duration::from_secs(60);
