//! When a call to a backend has taken too long.

use std::time::Duration;

use actors::model::CallTimeouts;
use tokio::time::Instant;

/// When a call has taken too long.
pub struct Deadlines {
    pub begun: Instant,
    /// When the call has taken too long without a sign of life.
    pub next: Instant,
    /// When it has taken too long in all.
    pub last: Instant,
    timeouts: CallTimeouts,
}

impl Deadlines {
    /// The deadlines of a call that began at this time.
    pub fn begin(timeouts: CallTimeouts, begun: Instant) -> Self {
        Self {
            begun,
            next: begun + timeouts.silent,
            last: begun + timeouts.total,
            timeouts,
        }
    }

    /// The backend has listed the tool of the call, and gets it: these timeouts hold from here on.
    pub fn learn(&mut self, timeouts: CallTimeouts) {
        if timeouts != self.timeouts {
            self.timeouts = timeouts;
            self.last = Instant::now() + timeouts.total;
            self.sign_of_life();
        }
    }

    /// The backend has shown that it works on the call.
    pub fn sign_of_life(&mut self) {
        self.next = (Instant::now() + self.timeouts.silent).min(self.last);
    }

    /// Ends the call after this time at the latest.
    pub fn shorten(&mut self, drain: Duration) {
        let end = Instant::now() + drain;
        (self.next, self.last) = (self.next.min(end), self.last.min(end));
    }
}
