//! When a project needs no sweep, because this replica does not use it and nothing ends soon.
//!
//! Each sweep costs Redis time, also of a project without traffic. What a replica adds to a project, it sweeps itself; after
//! its end the other replicas do so within [`REST_MAX`].

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use actors::locked::Locked;

/// The longest time between two sweeps.
const REST_MAX: Duration = Duration::from_secs(3);

/// Whether a sweep can be left out.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Operations of this replica so far, but for those that it carries out anyway.
    uses: AtomicU64,
    /// The uses and the end of the last rest.
    last: Locked<Option<(u64, Instant)>>,
}

impl Rest {
    /// Notes an operation, which may add what ends soon.
    pub fn end(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// The uses so far, to be read before a sweep.
    pub fn uses(&self) -> u64 {
        self.uses.load(Ordering::Relaxed)
    }

    /// Begins after a sweep that left nothing to do until this deadline.
    pub fn begin(&self, uses: u64, next_deadline: Option<Duration>, now: Instant) {
        let until = now + next_deadline.map_or(REST_MAX, |deadline| deadline.min(REST_MAX));
        *self.last.lock() = Some((uses, until));
    }

    /// Whether nothing was used since the rest began, and its end has not come.
    pub fn lasts(&self, now: Instant) -> bool {
        let last = *self.last.lock();
        last.is_some_and(|(uses, until)| uses == self.uses() && now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_lasts_until_the_next_deadline_or_an_operation() {
        let (rest, now) = (Rest::default(), Instant::now());
        assert!(!rest.lasts(now));
        rest.begin(rest.uses(), None, now);
        assert!(rest.lasts(now + REST_MAX / 2) && !rest.lasts(now + REST_MAX));
        let soon = REST_MAX / 4;
        rest.begin(rest.uses(), Some(soon), now);
        assert!(rest.lasts(now) && !rest.lasts(now + soon));
        rest.begin(rest.uses(), Some(2 * REST_MAX), now);
        assert!(!rest.lasts(now + REST_MAX));
        rest.end();
        assert!(!rest.lasts(now));
    }

    #[test]
    fn an_operation_during_the_sweep_ends_the_rest_before_it_begins() {
        let (rest, now) = (Rest::default(), Instant::now());
        let uses = rest.uses();
        rest.end();
        rest.begin(uses, None, now);
        assert!(!rest.lasts(now));
    }
}
