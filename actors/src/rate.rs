//! How much in how much time: a minute's worth may come at once, and then as much as the rate gives back.

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

/// A limit of so many per minute, shared by whoever holds it.
pub struct RateLimit {
    per_minute: NonZeroU32,
    limiter: RateLimiter<NotKeyed, InMemoryState, GovernorClock, NoOpMiddleware<Nanos>>,
    /// What was used before its cost was known, and is taken with the next.
    debt: AtomicU32,
}

impl RateLimit {
    #[must_use]
    pub fn new(per_minute: NonZeroU32) -> Self {
        Self {
            per_minute,
            limiter: RateLimiter::direct_with_clock(Quota::per_minute(per_minute), GovernorClock),
            debt: AtomicU32::new(0),
        }
    }

    /// None for 0, which is no limit.
    #[must_use]
    pub fn from_per_minute(count: u32) -> Option<Self> {
        NonZeroU32::new(count).map(Self::new)
    }

    /// Takes one.
    ///
    /// # Errors
    /// When there will be one again.
    pub fn take(&self) -> Result<(), Duration> {
        self.take_many(1)
    }

    /// Takes several at once, or all that there can be where that is less.
    ///
    /// # Errors
    /// When there will be as many.
    pub fn take_many(&self, count: u32) -> Result<(), Duration> {
        let owed = self.debt.load(Ordering::Relaxed);
        let count = count.saturating_add(owed);
        let count = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN).min(self.per_minute);
        let taken = self.limiter.check_n(count);
        // There is room for as many as come in a minute, and it is not more.
        let Ok(taken) = taken else { return Ok(()) };
        if taken.is_ok() && owed > 0 {
            self.debt.fetch_sub(owed, Ordering::Relaxed);
        }
        taken.map_err(|not_until| {
            not_until
                .wait_time_from(GovernorClock.now())
                .max(Duration::from_millis(1))
        })
    }

    /// Several were used whose cost was not known before: they are taken with the next.
    pub fn add_debt(&self, count: u32) {
        let add = |owed: u32| Some(owed.saturating_add(count).min(self.per_minute.get()));
        let _ = self.debt.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    #[must_use]
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
    fn a_minutes_worth_may_come_at_once_and_no_more() {
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
    fn what_is_owed_is_taken_with_the_next() {
        let rate = RateLimit::from_per_minute(10).unwrap();
        rate.add_debt(7);
        assert!(rate.take().is_ok() && rate.take_many(2).is_ok(), "8 and 2 are 10");
        assert!(rate.take().is_err());
        let rate = RateLimit::from_per_minute(10).unwrap();
        rate.add_debt(1000);
        assert!(rate.take().is_ok(), "no more is owed than comes in a minute");
        assert!(rate.take().is_err());
    }

    #[test]
    fn several_are_taken_at_once_or_none_of_them() {
        let rate = RateLimit::from_per_minute(10).unwrap();
        assert!(rate.take_many(6).is_ok() && rate.take_many(6).is_err() && rate.take_many(4).is_ok());
        let rate = RateLimit::from_per_minute(10).unwrap();
        assert!(
            rate.take_many(1000).is_ok(),
            "who wants more than there can be gets that"
        );
        assert!(rate.take().is_err());
    }
}
