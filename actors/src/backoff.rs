//! How long to wait before the next attempt. Randomness is an argument of what decides; [`random`] brings it.

use std::time::Duration;

/// The largest part by which a wait is shortened, so that many that failed at the same moment do not try again at the same
/// moment.
const JITTER: f64 = 0.5;

/// Waits that double with each failure in a row.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// After the first failure.
    pub min: Duration,
    pub max: Duration,
}

impl Backoff {
    /// The wait after so many failures in a row; none before the first. `random` is a number from 0 to 1: 0 gives the whole
    /// wait.
    pub fn wait(self, failures: u32, random: f64) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        let wait = self.min.saturating_mul(2_u32.saturating_pow(doublings)).min(self.max);
        wait.mul_f64(1.0 - JITTER * random.clamp(0.0, 1.0))
    }
}

/// A random number from 0 to 1.
pub fn random() -> f64 {
    let mut byte = [0; 1];
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_shortened_at_random() {
        let backoff = Backoff {
            min: Duration::from_millis(250),
            max: Duration::from_secs(1),
        };
        let waits = [0, 1, 2, 3, 4, u32::MAX].map(|failures| backoff.wait(failures, 0.0).as_millis());
        assert_eq!(waits, [0, 250, 500, 1000, 1000, 1000]);
        assert_eq!(backoff.wait(9, 1.0), Duration::from_millis(500));
    }
}
