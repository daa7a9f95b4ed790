use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
    num::NonZeroU32,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use actors::{clock::Now, model::ApiKey, rate::Rate};

use super::Network;

/// Wrong secrets of one key from one network in a minute. One more is not even looked at for as long as it takes until
/// there may be another.
const OF_KEY_PER_MINUTE: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// Wrong keys of one network in a minute. One more is told to wait.
const OF_NETWORK_PER_MINUTE: NonZeroU32 = NonZeroU32::new(120).unwrap();
/// When there are more, those that nobody waits for are forgotten.
const LEN_MAX: usize = 50_000;

/// Who was wrong how often. Only who is wrong is asked about here: a whole company may be behind one address, and nobody
/// is kept out by what others guess. Whether there is such a key makes no difference to anything.
#[derive(Debug, Default)]
pub struct Guesses {
    hasher: RandomState,
    networks: Mutex<HashMap<Network, Arc<Tries>>>,
    /// By network and a hash of the project and the key that are claimed.
    keys: Mutex<HashMap<(Network, u64), Arc<Tries>>>,
}

#[derive(Debug)]
struct Tries {
    rate: Rate,
    /// On the monotonic clock.
    blocked_until_ms: AtomicU64,
}

/// One credential of one network.
pub struct Guess<'a> {
    guesses: &'a Guesses,
    network: Option<Network>,
    key: Option<u64>,
}

impl Guesses {
    pub fn of(&self, network: Option<Network>, credential: &str) -> Guess<'_> {
        let key = ApiKey::claims(credential).map(|claimed| self.hasher.hash_one(claimed));
        Guess {
            guesses: self,
            network,
            key,
        }
    }
}

impl Guess<'_> {
    /// How long this network is not listened to about this key.
    pub fn blocked(&self, now: Now) -> Option<Duration> {
        let of = (self.network?, self.key?);
        lock(&self.guesses.keys).get(&of)?.blocked(now)
    }

    /// Counts a wrong one.
    ///
    /// # Errors
    /// How long to wait, after too many.
    pub fn was_wrong(&self, now: Now) -> Result<(), Duration> {
        let Some(network) = self.network else { return Ok(()) };
        tries(&self.guesses.networks, network, OF_NETWORK_PER_MINUTE, now).count(now)?;
        let Some(key) = self.key else { return Ok(()) };
        tries(&self.guesses.keys, (network, key), OF_KEY_PER_MINUTE, now).count(now)
    }
}

impl Tries {
    fn blocked(&self, now: Now) -> Option<Duration> {
        let left = self
            .blocked_until_ms
            .load(Ordering::Relaxed)
            .saturating_sub(now.mono_ms);
        (left > 0).then(|| Duration::from_millis(left))
    }

    fn count(&self, now: Now) -> Result<(), Duration> {
        self.rate.take().inspect_err(|wait| {
            self.blocked_until_ms.store(now.after(*wait), Ordering::Relaxed);
        })
    }
}

fn tries<K: Hash + Eq>(known: &Mutex<HashMap<K, Arc<Tries>>>, who: K, per_minute: NonZeroU32, now: Now) -> Arc<Tries> {
    let mut known = lock(known);
    if known.len() >= LEN_MAX {
        known.retain(|_, tries| tries.blocked(now).is_some());
    }
    if known.len() >= LEN_MAX {
        known.clear();
    }
    let new = || {
        Arc::new(Tries {
            rate: Rate::new(per_minute),
            blocked_until_ms: AtomicU64::new(0),
        })
    };
    Arc::clone(known.entry(who).or_insert_with(new))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn wrong(guesses: &Guesses, from: Option<Network>, credential: &str, times: usize) -> usize {
        (0..times)
            .filter(|_| guesses.of(from, credential).was_wrong(NOW).is_ok())
            .count()
    }

    #[test]
    fn after_some_wrong_secrets_a_network_is_not_listened_to_about_that_key() {
        let (guesses, here, there) = (Guesses::default(), Some(network("10.0.0.1")), Some(network("10.0.0.2")));
        assert_eq!(wrong(&guesses, here, "a_k1_x", 30), 10);
        let is_blocked = |from, credential| guesses.of(from, credential).blocked(NOW).is_some();
        assert!(is_blocked(here, "a_k1_right"));
        assert!(!is_blocked(there, "a_k1_right"), "others are not kept out by it");
        assert!(!is_blocked(here, "a_k2_right") && !is_blocked(here, "b_k1_right"));
        let later = Now {
            mono_ms: NOW.mono_ms + 60_000,
            ..NOW
        };
        assert!(guesses.of(here, "a_k1_right").blocked(later).is_none());
    }

    #[test]
    fn who_tries_many_keys_is_told_to_wait() {
        let (guesses, here) = (Guesses::default(), Some(network("10.0.0.1")));
        let taken: usize = (0..300).map(|n| wrong(&guesses, here, &format!("a_k{n}_x"), 1)).sum();
        assert_eq!(taken, 120);
        assert!(guesses.of(here, "a_right_x").blocked(NOW).is_none());
        assert_eq!(wrong(&guesses, here, "no key at all", 1), 0);
        assert_eq!(
            wrong(&guesses, None, "a_k1_x", 99),
            99,
            "who has no address is not counted"
        );
    }
}
