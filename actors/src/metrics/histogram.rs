//! Histograms of durations, sharded like the counters.
//!
//! A slot is a bucket of a native histogram of Prometheus (schema 3: eight buckets to each power of two), cut in two
//! where a bound of the classic buckets lies in it. Both kinds of histogram are exact sums of slots, and an observation
//! adds to one slot.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "exponents and numbers of buckets are small"
)]

use std::sync::atomic::{AtomicU64, Ordering};

use super::counter::{SHARDS, shard};

/// The upper bounds of the classic buckets, in seconds. One more bucket has what is longer than all of them.
pub const CLASSIC_BOUNDS: &[f64] = &[
    0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0, 30.0, 60.0,
];

/// The schema of the native buckets: the bounds are powers of 2^(1/8) seconds.
pub const NATIVE_SCHEMA: i32 = 3;
const BUCKETS_PER_OCTAVE: usize = 8;

/// Durations up to 2^-24 s, about 60 ns, are in the zero bucket; those over 2^17 s, about 36 hours, in the last one.
const EXPONENT_MIN: i32 = -24;
const EXPONENT_MAX: i32 = 17;

/// The bound of the zero bucket of native histograms, in seconds.
pub const NATIVE_ZERO_THRESHOLD: f64 = 1.0 / (1u64 << -EXPONENT_MIN) as f64;
const DURATION_MAX: f64 = (1u64 << EXPONENT_MAX) as f64;

/// The zero bucket and all others.
const NATIVE_LEN: usize = (EXPONENT_MAX - EXPONENT_MIN) as usize * BUCKETS_PER_OCTAVE + 1;
const SLOTS: usize = NATIVE_LEN + CLASSIC_BOUNDS.len();

const MANTISSA_BITS: u32 = 52;
const EXPONENT_BIAS: i32 = 1023;

/// 2^(0/8) to 2^(7/8), as Prometheus has them.
const OCTAVE: [f64; BUCKETS_PER_OCTAVE] = [
    1.0,
    2.0 * 0.545_253_866_332_628_8,
    2.0 * 0.594_603_557_501_360_5,
    2.0 * 0.648_419_777_325_504_8,
    2.0 * 0.707_106_781_186_547_5,
    2.0 * 0.771_105_412_703_970_4,
    2.0 * 0.840_896_415_253_714_4,
    2.0 * 0.917_004_043_204_671_1,
];

/// The native bucket of a duration: 0 is the zero bucket.
const fn native_bucket(seconds: f64) -> usize {
    if seconds <= NATIVE_ZERO_THRESHOLD {
        return 0;
    }
    if seconds >= DURATION_MAX {
        return NATIVE_LEN - 1;
    }
    let bits = seconds.to_bits();
    let exponent = (bits >> MANTISSA_BITS) as i32 - EXPONENT_BIAS;
    let fraction = bits & ((1 << MANTISSA_BITS) - 1);
    let (mut above, mut at) = (0, 0);
    while at < BUCKETS_PER_OCTAVE {
        above += (fraction > OCTAVE[at].to_bits() & ((1 << MANTISSA_BITS) - 1)) as usize;
        at += 1;
    }
    (exponent - EXPONENT_MIN) as usize * BUCKETS_PER_OCTAVE + above
}

/// Where the slots of each native bucket are.
struct Layout {
    first_slot: [u16; NATIVE_LEN],
    /// The classic bound in a native bucket; infinite where there is none.
    cut: [f64; NATIVE_LEN],
}

static LAYOUT: Layout = Layout::new();

impl Layout {
    const fn new() -> Self {
        let mut layout = Self {
            first_slot: [0; NATIVE_LEN],
            cut: [f64::INFINITY; NATIVE_LEN],
        };
        let mut bound = 0;
        while bound < CLASSIC_BOUNDS.len() {
            let bucket = native_bucket(CLASSIC_BOUNDS[bound]);
            assert!(
                layout.cut[bucket].is_infinite(),
                "a native bucket has one classic bound at most"
            );
            layout.cut[bucket] = CLASSIC_BOUNDS[bound];
            bound += 1;
        }
        let (mut bucket, mut slot) = (0, 0);
        while bucket < NATIVE_LEN {
            layout.first_slot[bucket] = slot;
            slot += if layout.cut[bucket].is_infinite() { 1 } else { 2 };
            bucket += 1;
        }
        layout
    }

    fn slot(&self, seconds: f64) -> usize {
        let bucket = native_bucket(seconds);
        self.first_slot[bucket] as usize + usize::from(seconds > self.cut[bucket])
    }
}

#[repr(align(128))]
#[derive(Debug)]
struct Shard {
    /// The sum in seconds, as the bits of a float: a sum of nanoseconds would overflow within seconds while a long queue
    /// is drained.
    sum: AtomicU64,
    slots: [AtomicU64; SLOTS],
}

/// A histogram of durations, with this many shards.
#[derive(Debug)]
pub struct Histogram<const N: usize = SHARDS>([Shard; N]);

/// The state of a histogram at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramSnapshot {
    pub count: u64,
    /// The sum of all durations, in seconds.
    pub sum: f64,
    /// The number of durations in each classic bucket, not cumulative.
    pub classic: Vec<u64>,
    /// The number of durations up to [`NATIVE_ZERO_THRESHOLD`].
    pub zero: u64,
    /// The native buckets that have durations: index and number, by ascending index.
    pub native: Vec<(i32, u64)>,
}

impl<const N: usize> Histogram<N> {
    /// A histogram without durations.
    #[allow(clippy::large_stack_arrays, reason = "evaluated by the compiler, for a static")]
    pub const fn new() -> Self {
        Self(
            [const {
                Shard {
                    sum: AtomicU64::new(0),
                    slots: [const { AtomicU64::new(0) }; SLOTS],
                }
            }; N],
        )
    }

    /// Adds one duration, in nanoseconds.
    pub fn observe(&self, duration_ns: u64) {
        self.observe_many(duration_ns, 1);
    }

    /// Adds `count` equal durations, in nanoseconds.
    pub fn observe_many(&self, duration_ns: u64, count: u64) {
        // A product would put 60 s beyond the bound of 60 s.
        let seconds = duration_ns as f64 / 1e9;
        let shard = &self.0[shard() % N];
        shard.slots[LAYOUT.slot(seconds)].fetch_add(count, Ordering::Relaxed);
        let add = |sum| Some((f64::from_bits(sum) + seconds * count as f64).to_bits());
        let _ = shard.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Reads all shards.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut slots = [0; SLOTS];
        let mut sum = 0.0;
        for shard in &self.0 {
            let bits = shard.sum.load(Ordering::Relaxed);
            sum += f64::from_bits(bits);
            for (slot, count) in slots.iter_mut().zip(&shard.slots) {
                *slot += count.load(Ordering::Relaxed);
            }
        }
        let mut snapshot = HistogramSnapshot {
            sum,
            classic: vec![0; CLASSIC_BOUNDS.len() + 1],
            ..HistogramSnapshot::default()
        };
        let mut bound = 0;
        for bucket in 0..NATIVE_LEN {
            let slot = LAYOUT.first_slot[bucket] as usize;
            let mut count = slots[slot];
            snapshot.classic[bound] += count;
            if LAYOUT.cut[bucket].is_finite() {
                bound += 1;
                snapshot.classic[bound] += slots[slot + 1];
                count += slots[slot + 1];
            }
            snapshot.count += count;
            if bucket == 0 {
                snapshot.zero = count;
            } else if count > 0 {
                let index = bucket as i32 + EXPONENT_MIN * BUCKETS_PER_OCTAVE as i32;
                snapshot.native.push((index, count));
            }
        }
        snapshot
    }
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl HistogramSnapshot {
    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.zero += other.zero;
        self.classic.resize(CLASSIC_BOUNDS.len() + 1, 0);
        for (count, more) in self.classic.iter_mut().zip(&other.classic) {
            *count += more;
        }
        for &(index, count) in &other.native {
            match self.native.binary_search_by_key(&index, |(index, _)| *index) {
                Ok(at) => self.native[at].1 += count,
                Err(at) => self.native.insert(at, (index, count)),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss, clippy::float_cmp)]
mod tests {
    use super::*;

    fn of(durations_ns: &[u64]) -> HistogramSnapshot {
        let histogram = Box::new(<Histogram>::new());
        for &duration in durations_ns {
            histogram.observe(duration);
        }
        histogram.snapshot()
    }

    #[test]
    fn a_duration_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for (ns, classic) in [
            (0, 0),
            (25_000, 0),
            (25_001, 1),
            (1_000_000, 5),
            (1_000_001, 6),
            (1_000_000_000, 14),
            (60_000_000_000, 19),
            (60_000_000_001, 20),
            (u64::MAX, 20),
        ] {
            let found = of(&[ns]).classic.iter().position(|&count| count == 1);
            assert_eq!(found, Some(classic), "{ns} ns");
        }
    }

    #[test]
    fn a_histogram_with_one_shard_has_the_durations_of_all_threads() {
        let histogram = Histogram::<1>::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| histogram.observe(1_000));
            }
        });
        assert_eq!(histogram.snapshot(), of(&[1_000; 4]));
    }

    #[test]
    fn native_buckets_are_those_of_prometheus() {
        // The upper bound of bucket i is 2^(i/8) seconds.
        for (ns, index) in [
            (1_000_000_000, 0),
            (1_000_000_001, 1),
            (500_000_000, -8),
            (500_000_001, -7),
            (2_000_000_000, 8),
            (3_000_000_000, 13),
            (1_000, -159),
            (u64::MAX, EXPONENT_MAX * 8),
        ] {
            let snapshot = of(&[ns]);
            assert_eq!(snapshot.native, [(index, 1)], "{ns} ns");
            let (seconds, bound) = (ns as f64 / 1e9, 2f64.powf(f64::from(index) / 8.0));
            assert!(ns == u64::MAX || seconds <= bound * (1.0 + 1e-12), "{ns} ns");
        }
        assert_eq!(of(&[0, 59]).zero, 2);
    }

    #[test]
    fn both_kinds_of_buckets_have_every_duration() {
        let durations: Vec<_> = (0..200).map(|at| 1_u64 << (at % 50) | at).collect();
        let snapshot = of(&durations);
        assert_eq!(snapshot.count, 200);
        assert_eq!(snapshot.classic.iter().sum::<u64>(), 200);
        let native: u64 = snapshot.native.iter().map(|(_, count)| count).sum();
        assert_eq!(native + snapshot.zero, 200);
        let sum = durations.iter().map(|&ns| ns as f64 * 1e-9).sum::<f64>();
        assert!((snapshot.sum - sum).abs() < 1e-6 * sum);
        let mut twice = snapshot.clone();
        twice.merge(&snapshot);
        assert_eq!((twice.count, twice.native.len()), (400, snapshot.native.len()));
    }

    #[test]
    fn the_sum_of_a_drained_queue_does_not_overflow() {
        let histogram = Box::new(<Histogram>::new());
        let day_ns = 86_400_000_000_000;
        for _ in 0..1000 {
            histogram.observe_many(day_ns, 1_000_000);
        }
        assert_eq!(histogram.snapshot().sum, 86_400.0 * 1e9);
    }
}
