//! The bounds of what is being received.

use std::time::Duration;

/// Bytes of a frame or a body that needs no room in the budget of what is being received: so a small one gets through
/// whatever others send.
pub const UNRESERVED_LEN_MAX: usize = 4 * 1024;
/// How long the next bytes of a body are waited for, and of a frame while others wait for its room.
pub const INBOUND_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a whole body may take, and a whole message while others wait for its room.
pub const INBOUND_TOTAL_TIMEOUT: Duration = Duration::from_secs(60);
