//! The limits on what one connection may send: requests, notifications, and a pause of reading after too many.

use std::{cell::Cell, sync::Arc, time::Duration};

use actors::{model::BrokerError, rate::RateLimit};

use crate::auth::Identity;

/// Notifications that a connection may send for each request that it may send.
const NOTIFICATIONS_PER_REQUEST: u32 = 10;
/// How long a connection that exceeds its rate is not read. Without a pause, a caller with a high limit would be refused
/// a thousand times a second on each connection. A pause does not consume quota. It is short, because other traffic of
/// the connection waits as well.
const READ_PAUSE: Duration = Duration::from_millis(250);
/// The longer pause for each byte of a refused request.
const READ_PAUSE_PER_BYTE: Duration = Duration::from_micros(4);
const READ_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The limits of one connection.
pub struct Limits {
    identity: Arc<Identity>,
    /// Requests outside of batches are counted here, and not by the transport.
    counts_requests: bool,
    notifications: Option<RateLimit>,
    read_pause: Cell<Option<Duration>>,
}

impl Limits {
    /// The limits of this caller. `counts_requests` is false where the transport counts requests itself.
    pub fn new(identity: Arc<Identity>, counts_requests: bool) -> Self {
        let limit = identity.request_limit();
        let limit = limit.map(|limit| limit.saturating_mul(NOTIFICATIONS_PER_REQUEST));
        Self {
            notifications: limit.and_then(RateLimit::from_per_minute),
            identity,
            counts_requests,
            read_pause: Cell::default(),
        }
    }

    /// Counts a request with a frame of `len` bytes. Transports never count the elements of a JSON-RPC batch.
    ///
    /// # Errors
    /// `RateLimited`. The connection is then not read for a while: refusing has a cost, too.
    pub fn take_request(&self, is_in_batch: bool, len: usize) -> Result<(), BrokerError> {
        if !is_in_batch && !self.counts_requests {
            return Ok(());
        }
        self.identity.take_request_of_len(len).map_err(|retry_after| {
            let for_bytes = READ_PAUSE_PER_BYTE.saturating_mul(u32::try_from(len).unwrap_or(u32::MAX));
            self.read_pause.set(Some((READ_PAUSE + for_bytes).min(READ_PAUSE_MAX)));
            BrokerError::RateLimited { retry_after }
        })
    }

    /// Counts a notification. A notification cannot be refused, so too many pause the reading instead.
    pub fn take_notification(&self) {
        if self.notifications.as_ref().is_some_and(|rate| rate.take().is_err()) {
            self.read_pause.set(Some(READ_PAUSE));
        }
    }

    /// Whether the reading has to pause.
    pub fn is_read_paused(&self) -> bool {
        self.read_pause.get().is_some()
    }

    /// The pause to begin now, returned once.
    pub fn take_read_pause(&self) -> Option<Duration> {
        self.read_pause.take()
    }
}
