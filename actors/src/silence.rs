//! How long a peer has been silent, without the time in which this process did not read its sockets.
//!
//! While the process is frozen, or a thread that reads sockets is busy, what peers send is not read: that time is not
//! silence of theirs. Each such thread runs [`beat_forever`]. A late beat begins a gap, and [`peer_silence`] leaves gaps
//! out: it does not grow in a gap, and never shrinks. A thread of an idle process does not beat, and counts as one that
//! reads.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    clock::{Now, millis, now},
    idle,
    locked::Locked,
};

/// Time between two beats of a thread.
const BEAT_INTERVAL: Duration = Duration::from_millis(250);
/// A gap begins this long after the last beat.
const BEAT_TIMEOUT: Duration = Duration::from_secs(1);
/// Gaps that are remembered. A silence that began before the oldest of them may be reported as longer than it was.
const GAPS_LEN_MAX: usize = 16;

/// The beat of a thread that does not beat for now.
const SUSPENDED: u64 = u64::MAX;

static SILENCE_CLOCK: SilenceClock = SilenceClock::new();

/// The beats of the threads of a process, and the gaps between them. Times are of the monotonic clock, in milliseconds.
struct SilenceClock {
    /// The oldest of the last beats of all threads; `u64::MAX` without threads.
    oldest_beat_ms: AtomicU64,
    /// The end of the last gap.
    gap_end_ms: AtomicU64,
    state: Locked<State>,
}

struct State {
    beats: Vec<Weak<AtomicU64>>,
    /// Beginning and end of each gap, in their order; they do not touch.
    gaps: Vec<(u64, u64)>,
}

impl SilenceClock {
    const fn new() -> Self {
        Self {
            oldest_beat_ms: AtomicU64::new(u64::MAX),
            gap_end_ms: AtomicU64::new(0),
            state: Locked::new(State {
                beats: Vec::new(),
                gaps: Vec::new(),
            }),
        }
    }

    fn register_thread(&self, now: Now) -> Arc<AtomicU64> {
        let beat = Arc::new(AtomicU64::new(now.mono_ms));
        let mut state = self.state.lock();
        state.beats.push(Arc::downgrade(&beat));
        self.update_oldest_beat(&mut state);
        beat
    }

    /// The thread pauses its beats. Until the next one it counts as a thread that reads its sockets.
    fn suspend(&self, beat: &AtomicU64) {
        beat.store(SUSPENDED, Ordering::Relaxed);
        self.update_oldest_beat(&mut self.state.lock());
    }

    fn record_beat(&self, beat: &AtomicU64, now: Now) {
        let mut state = self.state.lock();
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
            for &(from, to) in &self.state.lock().gaps {
                silent_ms -= to.min(until_ms).saturating_sub(from.max(last_seen_ms));
            }
        }
        Duration::from_millis(silent_ms)
    }
}

impl State {
    /// All threads of a frozen process miss their beats at once: gaps that overlap become one.
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

/// Beats for the thread that it runs on, until it is dropped.
pub async fn beat_forever() {
    let beat = SILENCE_CLOCK.register_thread(now());
    loop {
        tokio::time::sleep(BEAT_INTERVAL).await;
        SILENCE_CLOCK.record_beat(&beat, now());
        if idle::is_idle() {
            SILENCE_CLOCK.suspend(&beat);
            idle::while_idle(idle::IDLE_PAUSE_MAX).await;
            SILENCE_CLOCK.record_beat(&beat, now());
        }
    }
}

/// How long a peer has been silent that was heard last at `last_seen_mono_ms` of the monotonic clock.
pub fn peer_silence(last_seen_mono_ms: u64, now: Now) -> Duration {
    SILENCE_CLOCK.silence(last_seen_mono_ms, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono_ms: u64) -> Now {
        Now { unix_ms: 0, mono_ms }
    }

    fn silence_ms(clock: &SilenceClock, last_seen_ms: u64, now_ms: u64) -> u64 {
        millis(clock.silence(last_seen_ms, at(now_ms)))
    }

    #[test]
    fn a_gap_does_not_count_as_silence() {
        let clock = SilenceClock::new();
        assert_eq!(silence_ms(&clock, 1_000, 91_000), 90_000, "no thread beats");
        let beat = clock.register_thread(at(10_000));
        clock.record_beat(&beat, at(10_250));
        assert_eq!(silence_ms(&clock, 9_000, 10_300), 1_300);
        // The thread misses its beats: the silence stops growing, even before the late beat.
        assert_eq!(silence_ms(&clock, 9_000, 11_250), 2_250);
        assert_eq!(silence_ms(&clock, 9_000, 70_000), 2_250);
        assert_eq!(silence_ms(&clock, 10_250, 70_000), 1_000);
        clock.record_beat(&beat, at(80_250));
        assert_eq!(silence_ms(&clock, 9_000, 80_250), 2_250);
        assert_eq!(silence_ms(&clock, 9_000, 80_750), 2_750);
        assert_eq!(silence_ms(&clock, 20_000, 80_750), 500, "last heard during the gap");
        assert_eq!(silence_ms(&clock, 80_500, 80_750), 250);
        drop(beat);
        clock.register_thread(at(81_000));
        clock.update_oldest_beat(&mut clock.state.lock());
        assert_eq!(silence_ms(&clock, 80_500, 90_500), 10_000, "no thread is left");
    }

    #[test]
    fn the_time_in_which_a_thread_is_suspended_is_silence() {
        let clock = SilenceClock::new();
        let beat = clock.register_thread(at(10_000));
        clock.suspend(&beat);
        assert_eq!(silence_ms(&clock, 9_000, 70_000), 61_000);
        clock.record_beat(&beat, at(80_000));
        assert_eq!(
            silence_ms(&clock, 9_000, 80_500),
            71_500,
            "the end of the pause begins no gap"
        );
        assert_eq!(
            silence_ms(&clock, 9_000, 95_000),
            72_000,
            "from then on a missed beat does"
        );
    }

    #[test]
    fn threads_that_miss_their_beats_together_make_one_gap() {
        let clock = SilenceClock::new();
        let beats = [10_000, 10_100].map(|from| clock.register_thread(at(from)));
        for beat in &beats {
            clock.record_beat(beat, at(70_000));
        }
        assert_eq!(clock.state.lock().gaps, [(11_000, 70_000)]);
        assert_eq!(silence_ms(&clock, 9_000, 70_500), 2_500);
    }

    #[test]
    fn one_busy_thread_is_enough_for_a_gap() {
        let clock = SilenceClock::new();
        let [busy, other] = [10_000, 10_000].map(|from| clock.register_thread(at(from)));
        clock.record_beat(&other, at(40_000));
        clock.record_beat(&other, at(40_250));
        assert_eq!(silence_ms(&clock, 9_000, 40_250), 2_000);
        clock.record_beat(&busy, at(40_300));
        assert_eq!(silence_ms(&clock, 9_000, 40_300), 2_000);
        assert_eq!(silence_ms(&clock, 9_000, 41_000), 2_700);
    }
}
