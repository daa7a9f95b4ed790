//! How long a peer has been silent, as far as somebody listened.
//!
//! While the process is frozen, or a thread that reads sockets is busy, nobody hears what peers say: that time is no silence
//! of theirs. Each such thread keeps a [`pulse`]. When a beat is late, a gap begins, and [`silence`] leaves gaps out: it
//! stands still in one, and never becomes less than it was.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::clock::{Now, millis, now};

/// Time between two beats of a pulse.
const BEAT_INTERVAL: Duration = Duration::from_millis(250);
/// A beat that comes so long after the one before is late; the gap begins here.
const BEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// Gaps that are remembered; of what lies before them a silence may be told as longer than it was.
const GAPS_LEN_MAX: usize = 16;

static SILENCE_CLOCK: SilenceClock = SilenceClock::new();

/// The pulses of a process, and when they stood still. Times are of the monotonic clock, in milliseconds.
struct SilenceClock {
    /// The oldest of the last beats of all pulses; the end of time while there are none.
    oldest_beat_ms: AtomicU64,
    /// The end of the last gap.
    gap_end_ms: AtomicU64,
    state: Mutex<State>,
}

struct State {
    beats: Vec<Weak<AtomicU64>>,
    /// From when to when, in their order; none touches another.
    gaps: Vec<(u64, u64)>,
}

impl SilenceClock {
    const fn new() -> Self {
        Self {
            oldest_beat_ms: AtomicU64::new(u64::MAX),
            gap_end_ms: AtomicU64::new(0),
            state: Mutex::new(State {
                beats: Vec::new(),
                gaps: Vec::new(),
            }),
        }
    }

    fn register_thread(&self, now: Now) -> Arc<AtomicU64> {
        let beat = Arc::new(AtomicU64::new(now.mono_ms));
        let mut state = self.state();
        state.beats.push(Arc::downgrade(&beat));
        self.update_oldest_beat(&mut state);
        beat
    }

    fn record_beat(&self, beat: &AtomicU64, now: Now) {
        let mut state = self.state();
        let before = beat.swap(now.mono_ms, Ordering::Relaxed);
        if now.mono_ms.saturating_sub(before) >= millis(BEAT_TIMEOUT) {
            state.add_gap(before + millis(BEAT_TIMEOUT), now.mono_ms);
            self.gap_end_ms.fetch_max(now.mono_ms, Ordering::Relaxed);
        }
        self.update_oldest_beat(&mut state);
    }

    fn update_oldest_beat(&self, state: &mut State) {
        state.beats.retain(|beat| beat.strong_count() > 0);
        let beats = state.beats.iter().filter_map(Weak::upgrade);
        let oldest = beats.map(|beat| beat.load(Ordering::Relaxed)).min();
        self.oldest_beat_ms.store(oldest.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn silence(&self, last_seen_ms: u64, now: Now) -> Duration {
        let oldest_beat_ms = self.oldest_beat_ms.load(Ordering::Relaxed);
        let until_ms = now.mono_ms.min(oldest_beat_ms.saturating_add(millis(BEAT_TIMEOUT)));
        let mut silent_ms = until_ms.saturating_sub(last_seen_ms);
        if silent_ms > 0 && last_seen_ms < self.gap_end_ms.load(Ordering::Relaxed) {
            for &(from, to) in &self.state().gaps {
                silent_ms -= to.min(until_ms).saturating_sub(from.max(last_seen_ms));
            }
        }
        Duration::from_millis(silent_ms)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Several pulses stand still at once when the process does: what they miss together is one gap.
    fn add_gap(&mut self, mut from: u64, to: u64) {
        while let Some(&(earlier, end)) = self.gaps.last()
            && end >= from
        {
            from = from.min(earlier);
            self.gaps.pop();
        }
        if self.gaps.len() == GAPS_LEN_MAX {
            self.gaps.remove(0);
        }
        self.gaps.push((from, to));
    }
}

/// Beats for as long as its thread goes on, on which it is to run.
pub async fn beat_forever() {
    let beat = SILENCE_CLOCK.register_thread(now());
    loop {
        tokio::time::sleep(BEAT_INTERVAL).await;
        SILENCE_CLOCK.record_beat(&beat, now());
    }
}

/// How long a peer has been silent that was heard last then.
#[must_use]
pub fn peer_silence(last_seen_mono_ms: u64, now: Now) -> Duration {
    SILENCE_CLOCK.silence(last_seen_mono_ms, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono_ms: u64) -> Now {
        Now { unix_ms: 0, mono_ms }
    }

    fn silence_ms(attention: &SilenceClock, last_seen_ms: u64, now_ms: u64) -> u64 {
        millis(attention.silence(last_seen_ms, at(now_ms)))
    }

    #[test]
    fn a_gap_is_nobodys_silence() {
        let attention = SilenceClock::new();
        assert_eq!(silence_ms(&attention, 1_000, 91_000), 90_000, "there is no pulse");
        let beat = attention.register_thread(at(10_000));
        attention.record_beat(&beat, at(10_250));
        assert_eq!(silence_ms(&attention, 9_000, 10_300), 1_300);
        // It stands still: the silence grows no longer, and nobody has to have noticed.
        assert_eq!(silence_ms(&attention, 9_000, 11_250), 2_250);
        assert_eq!(silence_ms(&attention, 9_000, 70_000), 2_250);
        assert_eq!(silence_ms(&attention, 10_250, 70_000), 1_000);
        attention.record_beat(&beat, at(80_250));
        assert_eq!(silence_ms(&attention, 9_000, 80_250), 2_250);
        assert_eq!(silence_ms(&attention, 9_000, 80_750), 2_750);
        assert_eq!(silence_ms(&attention, 20_000, 80_750), 500, "heard in mid-gap");
        assert_eq!(silence_ms(&attention, 80_500, 80_750), 250);
        drop(beat);
        attention.register_thread(at(81_000));
        attention.update_oldest_beat(&mut attention.state());
        assert_eq!(silence_ms(&attention, 80_500, 90_500), 10_000, "no pulse is left");
    }

    #[test]
    fn pulses_that_stand_still_together_make_one_gap() {
        let attention = SilenceClock::new();
        let beats = [10_000, 10_100].map(|from| attention.register_thread(at(from)));
        for beat in &beats {
            attention.record_beat(beat, at(70_000));
        }
        assert_eq!(attention.state().gaps, [(11_000, 70_000)]);
        assert_eq!(silence_ms(&attention, 9_000, 70_500), 2_500);
    }

    #[test]
    fn one_thread_that_is_busy_is_enough() {
        let attention = SilenceClock::new();
        let [busy, other] = [10_000, 10_000].map(|from| attention.register_thread(at(from)));
        attention.record_beat(&other, at(40_000));
        attention.record_beat(&other, at(40_250));
        assert_eq!(silence_ms(&attention, 9_000, 40_250), 2_000);
        attention.record_beat(&busy, at(40_300));
        assert_eq!(silence_ms(&attention, 9_000, 40_300), 2_000);
        assert_eq!(silence_ms(&attention, 9_000, 41_000), 2_700);
    }
}
