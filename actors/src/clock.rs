//! The only module that reads a clock. Code that decides takes [`Now`] as an argument.

use std::time::Duration;

/// One reading of both clocks. Durations are measured on `mono_ms`, so that a jump of the wall clock changes neither
/// presence nor expiry; `unix_ms` is for people and for ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Monotonic milliseconds, counted from a year before the process began: what other replicas saw before it began has
    /// a value as well.
    pub mono_ms: u64,
}

const YEAR_MS: u64 = 366 * 86_400_000;

impl Now {
    /// The time since `mono_ms`; zero for a moment in the future.
    pub const fn since(&self, mono_ms: u64) -> Duration {
        Duration::from_millis(self.mono_ms.saturating_sub(mono_ms))
    }

    /// The monotonic clock at a future moment of the wall clock; now for one in the past.
    pub const fn mono_at(&self, unix_ms: u64) -> u64 {
        self.mono_ms.saturating_add(unix_ms.saturating_sub(self.unix_ms))
    }

    /// The monotonic clock after `delay`, in milliseconds.
    pub fn mono_after(&self, delay: Duration) -> u64 {
        self.mono_ms.saturating_add(millis(delay))
    }
}

/// The monotonic clock, for the rate limits of the crate `governor`.
#[derive(Clone, Copy, Debug)]
pub struct GovernorClock;

impl governor::clock::Clock for GovernorClock {
    type Instant = governor::nanos::Nanos;

    fn now(&self) -> Self::Instant {
        Duration::from_millis(now().mono_ms).into()
    }
}

/// A duration in whole milliseconds, saturating.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads both clocks. In builds with the feature `faults` a test may offset them.
pub fn now() -> Now {
    let (read, offset) = (read_clocks(), crate::faults::clock_offset());
    Now {
        unix_ms: read.unix_ms.saturating_add_signed(offset.wall_ms),
        mono_ms: read.mono_ms.saturating_add_signed(offset.mono_ms),
    }
}

/// Nanoseconds since some moment before the first call, exact and never 0: for histograms, which need more than the
/// resolution of [`now`]. Costs several times as much as [`now`]: read it once for a batch.
pub fn fine_ns() -> u64 {
    static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let origin = ORIGIN.get_or_init(std::time::Instant::now);
    u64::try_from(origin.elapsed().as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

/// The monotonic clock alone, as in [`Now::mono_ms`].
pub fn mono_ms() -> u64 {
    read_mono_ms().saturating_add_signed(crate::faults::clock_offset().mono_ms)
}

/// The wall clock in nanoseconds since the Unix epoch, for the spans of a trace. Reading it takes longer than [`now`].
pub fn unix_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Reads both clocks with the resolution of the kernel's tick, 1 to 10 ms. This is cheap, for a broker reads them several
/// times for each message, and no decision needs more.
#[cfg(target_os = "linux")]
fn read_clocks() -> Now {
    Now {
        unix_ms: read_clock(rustix::time::ClockId::RealtimeCoarse),
        mono_ms: read_mono_ms(),
    }
}

#[cfg(target_os = "linux")]
fn read_mono_ms() -> u64 {
    static ORIGIN_MS: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let mono_ms = read_clock(rustix::time::ClockId::MonotonicCoarse);
    YEAR_MS + mono_ms.saturating_sub(*ORIGIN_MS.get_or_init(|| mono_ms))
}

#[cfg(target_os = "linux")]
fn read_clock(clock: rustix::time::ClockId) -> u64 {
    let rustix::time::Timespec { tv_sec, tv_nsec } = rustix::time::clock_gettime(clock);
    u64::try_from(tv_sec).unwrap_or(0) * 1000 + u64::try_from(tv_nsec).unwrap_or(0) / 1_000_000
}

/// Reads both clocks.
#[cfg(not(target_os = "linux"))]
fn read_clocks() -> Now {
    Now {
        unix_ms: std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, millis),
        mono_ms: read_mono_ms(),
    }
}

#[cfg(not(target_os = "linux"))]
fn read_mono_ms() -> u64 {
    static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    YEAR_MS + millis(ORIGIN.get_or_init(std::time::Instant::now).elapsed())
}

/// RFC 3339 in UTC with milliseconds: always 24 bytes until the year 9999.
pub fn rfc3339(unix_ms: u64) -> [u8; 24] {
    let (days, in_day) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let (year, month, day) = civil_from_days(days);
    let mut out = *b"0000-00-00T00:00:00.000Z";
    let mut put = |at: usize, width: usize, mut value: u64| {
        for digit in out[at..at + width].iter_mut().rev() {
            *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
            value /= 10;
        }
    };
    put(0, 4, year);
    put(5, 2, month);
    put(8, 2, day);
    put(11, 2, in_day / 3_600_000);
    put(14, 2, in_day / 60_000 % 60);
    put(17, 2, in_day / 1000 % 60);
    put(20, 3, in_day % 1000);
    out
}

/// [`rfc3339`] as text.
pub fn rfc3339_text(unix_ms: u64) -> String {
    String::from_utf8_lossy(&rfc3339(unix_ms)).into_owned()
}

/// Days since 1970-01-01 to a date of the proleptic Gregorian calendar (Howard Hinnant's algorithm).
const fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + (month <= 2) as u64;
    (year, month, day)
}

/// How long a timer is to wait that may fire before its time.
pub fn timer_delay(delay: Duration) -> Duration {
    crate::faults::timer_delay(delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_rfc_3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_790_000_000_123, "2026-09-21T14:13:20.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339_text(ms), text);
        }
    }
}
