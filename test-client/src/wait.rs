//! Waits for events, and the times of brokers under test.

use std::{
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

/// The time limit of every wait. Far more than it takes, so that a slow machine changes nothing.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// No timer of a broker fires during a test: a missing wake-up is not hidden by the next heartbeat.
pub const TIMEOUTS_OFF: [&str; 3] = [
    "--heartbeat-interval=1h",
    "--stale-threshold=2h",
    "--disconnect-threshold=3h",
];

/// Polls until `look` returns a value.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    eventually_or(|| what.to_owned(), look)
}

/// Polls until `look` returns a value. `what` says what was awaited, and may say what there is instead.
pub fn eventually_or<T>(what: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "timed out: {}", what());
        thread::sleep(Duration::from_millis(10));
    }
}

/// A port of the loopback address at which nothing listens now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
