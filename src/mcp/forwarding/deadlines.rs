//! When a call to a backend has taken too long.

use std::time::Duration;

use actors::gateway::BackendView;
use tokio::time::Instant;

/// When a call has taken too long.
pub struct Deadlines {
    pub begun: Instant,
    /// The next moment at which a sign of life is missing.
    pub next: Instant,
    pub last: Instant,
    timeout: Duration,
}

impl Deadlines {
    /// Those of a call that began at this time.
    pub fn begin(view: &BackendView, begun: Instant) -> Self {
        let timeout = view.config.call_timeout;
        Self {
            begun,
            next: begun + timeout,
            last: begun + view.config.call_timeout_max,
            timeout,
        }
    }

    /// The backend has shown that it works on the call.
    pub fn sign_of_life(&mut self) {
        self.next = (Instant::now() + self.timeout).min(self.last);
    }

    /// Ends the call after this time at the latest.
    pub fn shorten(&mut self, drain: Duration) {
        let end = Instant::now() + drain;
        (self.next, self.last) = (self.next.min(end), self.last.min(end));
    }
}
