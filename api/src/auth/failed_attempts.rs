//! Limits failed authentications per network and per claimed key.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use actors::{clock::Now, locked::Locked, model::ApiKey, rate::RateLimit};

use super::Network;

/// Wrong secrets per minute for one key from one network. Further attempts are refused without looking at the secret.
const KEY_FAILURES_PER_MINUTE_MAX: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// Wrong keys per minute from one network. Further wrong keys are answered with a wait.
const NETWORK_FAILURES_PER_MINUTE_MAX: NonZeroU32 = NonZeroU32::new(120).unwrap();
/// Entries of each table; beyond that, entries that block no caller are dropped.
const ENTRIES_MAX: usize = 50_000;

/// Counts failed authentications per network and per claimed key. Valid keys never consult it, so callers behind one
/// address do not block each other. Known and unknown keys behave identically.
#[derive(Debug, Default)]
pub struct FailedAttempts {
    hasher: RandomState,
    networks: Locked<HashMap<Network, Arc<AttemptLimit>>>,
    /// By network and by a hash of the claimed project id and key id.
    keys: Locked<HashMap<(Network, u64), Arc<AttemptLimit>>>,
}

#[derive(Debug)]
struct AttemptLimit {
    rate: RateLimit,
    /// Time on the monotonic clock, in milliseconds.
    blocked_until_ms: AtomicU64,
}

/// One credential from one network.
pub struct Attempt<'a> {
    attempts: &'a FailedAttempts,
    network: Option<Network>,
    key: Option<u64>,
}

impl FailedAttempts {
    /// An attempt with this credential from this network.
    pub fn attempt(&self, network: Option<Network>, credential: &str) -> Attempt<'_> {
        let key = ApiKey::claimed_ids(credential).map(|claimed| self.hasher.hash_one(claimed));
        Attempt {
            attempts: self,
            network,
            key,
        }
    }
}

impl Attempt<'_> {
    /// Returns how long this network is blocked for this key.
    pub fn blocked_for(&self, now: Now) -> Option<Duration> {
        let of = (self.network?, self.key?);
        self.attempts.keys.lock().get(&of)?.blocked_for(now)
    }

    /// Counts a failed attempt.
    ///
    /// # Errors
    /// The time to wait, after too many failures.
    pub fn record_failure(&self, now: Now) -> Result<(), Duration> {
        let Some(network) = self.network else { return Ok(()) };
        limit_of(&self.attempts.networks, network, NETWORK_FAILURES_PER_MINUTE_MAX, now).count_failure(now)?;
        let Some(key) = self.key else { return Ok(()) };
        limit_of(&self.attempts.keys, (network, key), KEY_FAILURES_PER_MINUTE_MAX, now).count_failure(now)
    }
}

impl AttemptLimit {
    fn blocked_for(&self, now: Now) -> Option<Duration> {
        let left = self
            .blocked_until_ms
            .load(Ordering::Relaxed)
            .saturating_sub(now.mono_ms);
        (left > 0).then(|| Duration::from_millis(left))
    }

    fn count_failure(&self, now: Now) -> Result<(), Duration> {
        self.rate.take().inspect_err(|wait| {
            self.blocked_until_ms.store(now.mono_after(*wait), Ordering::Relaxed);
        })
    }
}

fn limit_of<K: Hash + Eq>(
    known: &Locked<HashMap<K, Arc<AttemptLimit>>>,
    who: K,
    per_minute: NonZeroU32,
    now: Now,
) -> Arc<AttemptLimit> {
    let mut known = known.lock();
    if known.len() >= ENTRIES_MAX {
        known.retain(|_, tries| tries.blocked_for(now).is_some());
    }
    if known.len() >= ENTRIES_MAX {
        known.clear();
    }
    let new = || {
        Arc::new(AttemptLimit {
            rate: RateLimit::new(per_minute),
            blocked_until_ms: AtomicU64::new(0),
        })
    };
    Arc::clone(known.entry(who).or_insert_with(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now {
        unix_ms: 0,
        mono_ms: 1000,
    };

    fn network(text: &str) -> Network {
        Network::of(text.parse().unwrap())
    }

    fn failures_counted(attempts: &FailedAttempts, from: Option<Network>, credential: &str, times: usize) -> usize {
        (0..times)
            .filter(|_| attempts.attempt(from, credential).record_failure(NOW).is_ok())
            .count()
    }

    #[test]
    fn a_network_is_blocked_for_a_key_after_ten_wrong_secrets() {
        let (attempts, here, there) = (
            FailedAttempts::default(),
            Some(network("10.0.0.1")),
            Some(network("10.0.0.2")),
        );
        assert_eq!(failures_counted(&attempts, here, "a_k1_x", 30), 10);
        let is_blocked = |from, credential| attempts.attempt(from, credential).blocked_for(NOW).is_some();
        assert!(is_blocked(here, "a_k1_right"));
        assert!(!is_blocked(there, "a_k1_right"), "other networks are not blocked");
        assert!(!is_blocked(here, "a_k2_right") && !is_blocked(here, "b_k1_right"));
        let later = Now {
            mono_ms: NOW.mono_ms + 60_000,
            ..NOW
        };
        assert!(attempts.attempt(here, "a_k1_right").blocked_for(later).is_none());
    }

    #[test]
    fn a_network_that_tries_many_keys_has_to_wait() {
        let (attempts, here) = (FailedAttempts::default(), Some(network("10.0.0.1")));
        let taken: usize = (0..300)
            .map(|n| failures_counted(&attempts, here, &format!("a_k{n}_x"), 1))
            .sum();
        assert_eq!(taken, 120);
        assert!(attempts.attempt(here, "a_right_x").blocked_for(NOW).is_none());
        assert_eq!(failures_counted(&attempts, here, "no key at all", 1), 0);
        assert_eq!(
            failures_counted(&attempts, None, "a_k1_x", 99),
            99,
            "a caller without an address is not counted"
        );
    }
}
