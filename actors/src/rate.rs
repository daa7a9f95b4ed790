//! A rate limit: the quota of one minute may be used at once, and comes back evenly over the minute.

use std::{
    fmt,
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use governor::{
    Quota, RateLimiter,
    clock::Clock,
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{InMemoryState, NotKeyed},
};

use crate::clock::GovernorClock;

/// A limit of so many units per minute, shared by all that hold it.
pub struct RateLimit {
    per_minute: NonZeroU32,
    limiter: RateLimiter<NotKeyed, InMemoryState, GovernorClock, NoOpMiddleware<Nanos>>,
    /// Units that were used before their number was known. The next take pays for them.
    debt: AtomicU32,
}

impl RateLimit {
    /// A limit whose whole quota is available.
    pub fn new(per_minute: NonZeroU32) -> Self {
        Self {
            per_minute,
            limiter: RateLimiter::direct_with_clock(Quota::per_minute(per_minute), GovernorClock),
            debt: AtomicU32::new(0),
        }
    }

    /// As [`Self::new`]; None for 0, which means no limit.
    pub fn from_per_minute(count: u32) -> Option<Self> {
        NonZeroU32::new(count).map(Self::new)
    }

    /// Takes one unit.
    ///
    /// # Errors
    /// The time until a unit is available.
    pub fn take(&self) -> Result<(), Duration> {
        self.take_many(1)
    }

    /// Takes several units at once, but at most the quota of a minute; on an error it takes none.
    ///
    /// # Errors
    /// The time until as many units are available.
    pub fn take_many(&self, count: u32) -> Result<(), Duration> {
        let debt = self.debt.load(Ordering::Relaxed);
        let count = count.saturating_add(debt);
        let count = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN).min(self.per_minute);
        let taken = self.limiter.check_n(count);
        // An error: more than the quota. It cannot happen, since `count` is at most that.
        let Ok(taken) = taken else { return Ok(()) };
        if taken.is_ok() && debt > 0 {
            self.debt.fetch_sub(debt, Ordering::Relaxed);
        }
        taken.map_err(|not_until| {
            not_until
                .wait_time_from(GovernorClock.now())
                .max(Duration::from_millis(1))
        })
    }

    /// Notes units that were used before their number was known: the next take pays for them. At most the quota of a
    /// minute is noted.
    pub fn add_debt(&self, count: u32) {
        let add = |debt: u32| Some(debt.saturating_add(count).min(self.per_minute.get()));
        let _ = self.debt.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Units per minute.
    pub const fn limit_per_minute(&self) -> u32 {
        self.per_minute.get()
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rate({} per minute)", self.per_minute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_of_a_minute_may_be_used_at_once() {
        let rate = RateLimit::from_per_minute(3).unwrap();
        assert_eq!(
            (0..4).map(|_| rate.take().is_ok()).collect::<Vec<_>>(),
            [true, true, true, false]
        );
        let wait = rate.take().unwrap_err();
        assert!(
            wait > Duration::from_secs(10) && wait <= Duration::from_secs(20),
            "{wait:?}"
        );
        assert!(RateLimit::from_per_minute(0).is_none());
    }

    #[test]
    fn the_next_take_pays_a_debt() {
        let rate = RateLimit::from_per_minute(10).unwrap();
        rate.add_debt(7);
        assert!(rate.take().is_ok() && rate.take_many(2).is_ok(), "8 and 2 are 10");
        assert!(rate.take().is_err());
        let rate = RateLimit::from_per_minute(10).unwrap();
        rate.add_debt(1000);
        assert!(rate.take().is_ok(), "the debt is at most the quota of a minute");
        assert!(rate.take().is_err());
    }

    #[test]
    fn units_are_taken_together_or_not_at_all() {
        let rate = RateLimit::from_per_minute(10).unwrap();
        assert!(rate.take_many(6).is_ok() && rate.take_many(6).is_err() && rate.take_many(4).is_ok());
        let rate = RateLimit::from_per_minute(10).unwrap();
        assert!(
            rate.take_many(1000).is_ok(),
            "a take of more than the quota takes the quota"
        );
        assert!(rate.take().is_err());
    }
}
