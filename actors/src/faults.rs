//! Faults that a test injects into a broker process from outside.
//!
//! Only builds with the feature `faults` have them: in others the functions do nothing.

/// What is added to the readings of the clocks, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    pub wall_ms: i64,
    pub mono_ms: i64,
}

/// The offsets of the clocks of this process: two numbers in the file that the environment variable `FAULT_CLOCK_FILE`
/// names. The file is read each time, so that a change holds from the next reading of a clock.
#[cfg(feature = "faults")]
pub fn clock_offset() -> ClockOffset {
    static FILE: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    let Some(file) = FILE.get_or_init(|| std::env::var_os("FAULT_CLOCK_FILE")) else {
        return ClockOffset::default();
    };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    ClockOffset {
        wall_ms: numbers.next().unwrap_or(0),
        mono_ms: numbers.next().unwrap_or(0),
    }
}

/// No offset.
#[cfg(not(feature = "faults"))]
pub const fn clock_offset() -> ClockOffset {
    ClockOffset { wall_ms: 0, mono_ms: 0 }
}

/// How long a timer of the clock is to wait that may fire early: at most 50 ms where a test moves the clocks, so that a
/// moment that a move has reached is noticed.
#[cfg(feature = "faults")]
pub fn timer_delay(delay: std::time::Duration) -> std::time::Duration {
    if std::env::var_os("FAULT_CLOCK_FILE").is_some() {
        return delay.min(std::time::Duration::from_millis(50));
    }
    delay
}

/// The delay itself.
#[cfg(not(feature = "faults"))]
pub const fn timer_delay(delay: std::time::Duration) -> std::time::Duration {
    delay
}

/// Logs and waits for ever if the environment variable `FAULT_STALL_AT` names this point, so that a test can kill the
/// process exactly here.
#[cfg(feature = "faults")]
pub async fn point(name: &str) {
    static STALL_AT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let stall_at = STALL_AT.get_or_init(|| std::env::var("FAULT_STALL_AT").ok());
    if stall_at.as_deref() == Some(name) {
        tracing::warn!("a fault stalls {name}");
        std::future::pending::<()>().await;
    }
}

/// Does nothing.
#[cfg(not(feature = "faults"))]
#[allow(clippy::unused_async, reason = "it stalls in builds with the feature `faults`")]
pub async fn point(_: &str) {}

/// Waits as many milliseconds as the file says that the environment variable `FAULT_COMMIT_DELAY_FILE` names, before a
/// group is written to the disk. The file is read each time.
#[cfg(feature = "faults")]
pub fn delay_commit() {
    static FILE: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    let Some(file) = FILE.get_or_init(|| std::env::var_os("FAULT_COMMIT_DELAY_FILE")) else {
        return;
    };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    if let Ok(ms) = text.trim().parse() {
        std::thread::sleep(std::time::Duration::from_millis(ms));
    }
}

/// Does nothing.
#[cfg(not(feature = "faults"))]
pub const fn delay_commit() {}

/// Blocks the thread at this point, if the environment variable `FAULT_DELAY_AT` names it: a name and milliseconds. So may
/// a busy machine.
#[cfg(feature = "faults")]
pub fn delay_at(name: &str) {
    static DELAY_AT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let delay_at = DELAY_AT.get_or_init(|| std::env::var("FAULT_DELAY_AT").ok());
    let ms = delay_at
        .as_ref()
        .and_then(|text| text.strip_prefix(name)?.trim().parse().ok());
    if let Some(ms) = ms {
        std::thread::sleep(std::time::Duration::from_millis(ms));
    }
}

/// Does nothing.
#[cfg(not(feature = "faults"))]
pub const fn delay_at(_: &str) {}

/// The value of an environment variable of tests, whose name begins with `FAULT_`.
#[cfg(feature = "faults")]
pub fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// None.
#[cfg(not(feature = "faults"))]
pub const fn text(_: &str) -> Option<String> {
    None
}

/// Whether a process that this one starts inherits an environment variable because tests inject faults with it.
#[cfg(feature = "faults")]
pub fn is_inherited(name: &str) -> bool {
    name.starts_with("FAULT_")
}

/// No.
#[cfg(not(feature = "faults"))]
pub const fn is_inherited(_: &str) -> bool {
    false
}
