//! Faults that a test injects into a broker process from outside.
//!
//! Only builds with the feature `faults` have them: in others the functions do nothing.

use std::{ffi::OsString, fs, sync::OnceLock, thread, time::Duration};

const HAS_FAULTS: bool = cfg!(feature = "faults");

/// What is added to the readings of the clocks, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    pub wall_ms: i64,
    pub mono_ms: i64,
}

/// The offsets of the clocks of this process: two numbers in the file that the environment variable `FAULT_CLOCK_FILE`
/// names. The file is read each time, so that a change holds from the next reading of a clock.
pub fn clock_offset() -> ClockOffset {
    static FILE: OnceLock<Option<OsString>> = OnceLock::new();
    if !HAS_FAULTS {
        return ClockOffset::default();
    }
    let Some(file) = FILE.get_or_init(|| std::env::var_os("FAULT_CLOCK_FILE")) else {
        return ClockOffset::default();
    };
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    ClockOffset {
        wall_ms: numbers.next().unwrap_or(0),
        mono_ms: numbers.next().unwrap_or(0),
    }
}

/// How long a timer of the clock is to wait that may fire early: at most 50 ms where a test moves the clocks, so that a
/// moment that a move has reached is noticed.
pub fn timer_delay(delay: Duration) -> Duration {
    if HAS_FAULTS && std::env::var_os("FAULT_CLOCK_FILE").is_some() {
        return delay.min(Duration::from_millis(50));
    }
    delay
}

/// Logs and waits for ever if the environment variable `FAULT_STALL_AT` names this point, so that a test can kill the
/// process exactly here.
pub async fn point(name: &str) {
    static STALL_AT: OnceLock<Option<String>> = OnceLock::new();
    if HAS_FAULTS && STALL_AT.get_or_init(|| text("FAULT_STALL_AT")).as_deref() == Some(name) {
        tracing::warn!("a fault stalls {name}");
        std::future::pending::<()>().await;
    }
}

/// Waits as many milliseconds as the file says that the environment variable `FAULT_COMMIT_DELAY_FILE` names, before a
/// group is written to the disk. The file is read each time.
pub fn delay_commit() {
    static FILE: OnceLock<Option<OsString>> = OnceLock::new();
    if HAS_FAULTS && let Some(file) = FILE.get_or_init(|| std::env::var_os("FAULT_COMMIT_DELAY_FILE")) {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Ok(ms) = text.trim().parse() {
            thread::sleep(Duration::from_millis(ms));
        }
    }
}

/// Blocks the thread at this point, if the environment variable `FAULT_DELAY_AT` names it: a name and milliseconds. So may
/// a busy machine.
pub fn delay_at(name: &str) {
    static DELAY_AT: OnceLock<Option<String>> = OnceLock::new();
    if HAS_FAULTS && let Some(named) = DELAY_AT.get_or_init(|| text("FAULT_DELAY_AT")) {
        let ms = named.strip_prefix(name).and_then(|ms| ms.trim().parse().ok());
        if let Some(ms) = ms {
            thread::sleep(Duration::from_millis(ms));
        }
    }
}

/// Whether this process reads nothing of the end of a connection, if the environment variable `FAULT_HIDE_CLOSED` is set.
/// So may a busy machine, for a moment.
pub fn hides_closed() -> bool {
    static HIDES: OnceLock<bool> = OnceLock::new();
    HAS_FAULTS && *HIDES.get_or_init(|| text("FAULT_HIDE_CLOSED").is_some())
}

/// The value of an environment variable of tests, whose name begins with `FAULT_`.
pub fn text(name: &str) -> Option<String> {
    if HAS_FAULTS { std::env::var(name).ok() } else { None }
}

/// Whether a process that this one starts inherits an environment variable because tests inject faults with it.
pub fn is_inherited(name: &str) -> bool {
    HAS_FAULTS && name.starts_with("FAULT_")
}
