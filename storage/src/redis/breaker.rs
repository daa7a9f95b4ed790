//! The circuit breaker: while Redis fails, operations fail at once instead of waiting for their deadline.

use std::time::{Duration, Instant};

use actors::{locked::Locked, metrics::METRICS, storage::StoreError};

use super::error::Failure;

/// Consecutive failures that open the breaker.
const FAILURES_MAX: u32 = 3;
/// How often an open breaker admits one attempt. Its result decides.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Refuses operations after [`FAILURES_MAX`] consecutive failures of the server, and admits one attempt every
/// [`RETRY_INTERVAL`] until one succeeds.
#[derive(Debug, Default)]
pub(super) struct CircuitBreaker(Locked<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    reason: String,
    /// When the next attempt is admitted; None while the breaker is closed.
    open_until: Option<Instant>,
}

impl CircuitBreaker {
    /// # Errors
    /// `Unreachable` with the reason of the last failure while the breaker is open.
    pub fn admit(&self) -> Result<(), StoreError> {
        self.admit_at(Instant::now()).map_err(StoreError::Unreachable)
    }

    /// Counts an answer. Only faults of the server open the breaker: an operation that the server refuses is a success.
    pub fn record<T>(&self, answer: &Result<T, Failure>) {
        match answer {
            Err(failure) if failure.is_server_fault() => {
                self.failed(failure.reason(), Instant::now());
            }
            _ => self.succeeded(),
        }
    }

    fn admit_at(&self, now: Instant) -> Result<(), String> {
        let mut state = self.0.lock();
        match state.open_until {
            Some(until) if now < until => Err(state.reason.clone()),
            Some(_) => {
                // This caller tries. The others are refused until it succeeds or the next interval begins.
                state.open_until = Some(now + RETRY_INTERVAL);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn succeeded(&self) {
        let mut state = self.0.lock();
        if state.failures > 0 {
            *state = State::default();
        }
    }

    fn failed(&self, reason: &str, now: Instant) {
        let mut state = self.0.lock();
        state.failures = state.failures.saturating_add(1);
        reason.clone_into(&mut state.reason);
        if state.failures >= FAILURES_MAX {
            if state.open_until.is_none() {
                METRICS.breaker_openings.increment();
            }
            state.open_until = Some(now + RETRY_INTERVAL);
        }
    }

    /// The reason of the last failure, while the breaker is open.
    pub fn open_reason(&self) -> Option<String> {
        let state = self.0.lock();
        state.open_until.is_some().then(|| state.reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_breaker_admits_one_attempt_per_interval() {
        let (breaker, start) = (CircuitBreaker::default(), Instant::now());
        for _ in 1..FAILURES_MAX {
            breaker.failed("gone", start);
            assert_eq!((breaker.admit_at(start), breaker.open_reason()), (Ok(()), None));
        }
        breaker.failed("gone", start);
        assert_eq!(breaker.admit_at(start), Err("gone".to_owned()));
        let later = start + RETRY_INTERVAL;
        assert_eq!(breaker.admit_at(later), Ok(()), "one attempt");
        assert_eq!(breaker.admit_at(later), Err("gone".to_owned()), "no second attempt");
        assert_eq!(
            breaker.admit_at(later + RETRY_INTERVAL),
            Ok(()),
            "another interval, another attempt"
        );
        breaker.succeeded();
        assert_eq!((breaker.admit_at(later), breaker.open_reason()), (Ok(()), None));
    }
}
