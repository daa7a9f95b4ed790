//! Decides whether two kinds of events take the same time.

use std::fmt;

/// The fastest samples of both kinds that are compared, in percent: the slower ones were interrupted.
const KEPT_PERCENT: usize = 90;
/// Both statistics above this value mean a difference; chance alone reaches it once in 150,000 runs.
const SIGNIFICANT: f64 = 4.5;
/// Half the width of a confidence interval of 99 %, in standard deviations.
const CONFIDENCE_99: f64 = 2.576;

/// Random numbers that may be predictable (Marsaglia's xorshift).
pub struct Dice(u64);

impl Dice {
    pub fn new() -> Self {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).unwrap();
        Self(u64::from_ne_bytes(seed) | 1)
    }

    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % sides
    }

    pub fn shuffle<T>(&mut self, of: &mut [T]) {
        for at in (1..of.len()).rev() {
            of.swap(at, self.roll(at + 1));
        }
    }
}

/// The difference between the second kind and the first.
pub struct Comparison {
    pub samples: usize,
    pub median: f64,
    /// The difference of the medians, in ns.
    pub difference: f64,
    /// The 99 % confidence interval of `difference`, in ns.
    pub interval: (f64, f64),
    /// Welch's t of the means of the compared samples.
    pub t: f64,
    /// The z of the ranks (Mann and Whitney).
    pub z: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Any difference is smaller than the floor.
    Same,
    Differs,
    /// Needs more samples, or a machine with less other work.
    Unclear,
}

impl Comparison {
    pub fn of(first: &[f64], second: &[f64]) -> Self {
        let mut pooled: Vec<(f64, bool)> = first.iter().map(|&ns| (ns, false)).collect();
        pooled.extend(second.iter().map(|&ns| (ns, true)));
        pooled.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let z = rank_z(&pooled);
        let limit = pooled[pooled.len() * KEPT_PERCENT / 100].0;
        let kept = |of: &[f64]| {
            let mut kept: Vec<f64> = of.iter().copied().filter(|&ns| ns <= limit).collect();
            kept.sort_unstable_by(f64::total_cmp);
            kept
        };
        let (first, second) = (kept(first), kept(second));
        let (a, b) = (Moments::of(&first), Moments::of(&second));
        let (middle, deviation) = median(&first);
        let (other, other_deviation) = median(&second);
        let difference = other - middle;
        let half = CONFIDENCE_99 * deviation.hypot(other_deviation);
        Self {
            samples: second.len(),
            median: other,
            difference,
            interval: (difference - half, difference + half),
            t: (b.mean - a.mean) / (a.variance / a.n + b.variance / b.n).sqrt().max(f64::MIN_POSITIVE),
            z,
        }
    }

    /// `floor` is the smallest difference that counts, in ns.
    pub fn verdict(&self, floor: f64) -> Verdict {
        let (low, high) = self.interval;
        if low > -floor && high < floor {
            Verdict::Same
        } else if (low > 0.0 || high < 0.0) && self.t.abs() > SIGNIFICANT && self.z.abs() > SIGNIFICANT {
            Verdict::Differs
        } else {
            Verdict::Unclear
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.interval;
        write!(
            f,
            "{:>8} {:>10.0} {:>+10.1}  [{low:>+8.1}, {high:>+8.1}] {:>8.2} {:>8.2}",
            self.samples, self.median, self.difference, self.t, self.z
        )
    }
}

struct Moments {
    n: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Self {
        let n = count(values.len());
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            n,
            mean,
            variance: squares / (n - 1.0),
        }
    }
}

/// The median of sorted values and its standard deviation: half the width of the ranks that are one deviation on both
/// sides, because the rank of the median of a resample is binomial. At least half a tick of the clock.
fn median(sorted: &[f64]) -> (f64, f64) {
    let middle = sorted.len() / 2;
    let step = sorted.len().isqrt() / 2 + 1;
    let (low, high) = (
        sorted[middle.saturating_sub(step)],
        sorted[(middle + step).min(sorted.len() - 1)],
    );
    let tick = sorted.windows(2).map(|pair| pair[1] - pair[0]).filter(|&gap| gap > 0.0);
    let tick = tick.fold(f64::INFINITY, f64::min);
    let tick = if tick.is_finite() { tick } else { 0.0 };
    (sorted[middle], ((high - low) / 2.0).max(tick / 2.0))
}

/// The distance of the ranks of the second kind from their expected value, in standard deviations.
fn rank_z(sorted: &[(f64, bool)]) -> f64 {
    let total = count(sorted.len());
    let second = count(sorted.iter().filter(|(_, is_second)| *is_second).count());
    let first = total - second;
    let (mut ranks, mut ties, mut at) = (0.0, 0.0, 0);
    while at < sorted.len() {
        let equal = sorted[at..].iter().take_while(|(ns, _)| *ns <= sorted[at].0).count();
        let rank = count(at) + f64::midpoint(count(equal), 1.0);
        let seconds = sorted[at..at + equal].iter().filter(|(_, is_second)| *is_second);
        ranks += rank * count(seconds.count());
        ties += count(equal).powi(3) - count(equal);
        at += equal;
    }
    let expected = second * (total + 1.0) / 2.0;
    let variance = first * second / 12.0 * ((total + 1.0) - ties / (total * (total - 1.0)));
    (ranks - expected) / variance.sqrt().max(f64::MIN_POSITIVE)
}

/// Counts here stay far below 2^53, where the conversion becomes inexact.
#[expect(clippy::cast_precision_loss)]
fn count(of: usize) -> f64 {
    of as f64
}
