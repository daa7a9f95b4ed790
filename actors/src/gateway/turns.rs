//! How many calls run in a backend at the same time, and whose turn is next: callers that wait are served in rotation, so
//! that one with many calls does not hold up the others. Pure.

use std::collections::VecDeque;

/// Calls that may wait for their turn: of all callers, and of one.
pub(super) const WAITING_LEN_MAX: usize = 1_024;
const WAITING_OF_CALLER_MAX: usize = 256;

/// The number of a caller, by which turns rotate.
pub type CallerId = u64;

/// A group of calls that share turns. A backend has one limit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The calls of a main instance that runs several at once.
    Main,
    /// The calls of all other instances, and of a main instance that runs one call at a time.
    Others,
}

/// Turns that are taken by calls, and calls that wait for one.
#[derive(Debug)]
pub struct Turns<T> {
    limit: usize,
    taken: usize,
    /// The callers that wait, the next one first, each with its waiting calls.
    waiting: VecDeque<(CallerId, VecDeque<T>)>,
    waiting_len: usize,
}

/// Too many calls wait already.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyWait;

impl<T> Turns<T> {
    /// Turns for this many calls at the same time.
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            taken: 0,
            waiting: VecDeque::new(),
            waiting_len: 0,
        }
    }

    /// Changes how many calls may run. Those that run continue.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
    }

    /// Takes a turn if one is free now.
    pub fn try_take(&mut self) -> bool {
        let is_free = self.taken < self.limit;
        self.taken += usize::from(is_free);
        is_free
    }

    /// Gives a turn back.
    pub fn give_back(&mut self) {
        self.taken -= 1;
    }

    /// Lets a call wait for a turn behind the earlier calls of the same caller.
    ///
    /// # Errors
    /// [`TooManyWait`].
    pub fn wait(&mut self, caller: CallerId, call: T) -> Result<(), TooManyWait> {
        if self.waiting_len >= WAITING_LEN_MAX {
            return Err(TooManyWait);
        }
        let of_caller = self.waiting.iter_mut().find(|(known, _)| *known == caller);
        match of_caller {
            Some((_, calls)) if calls.len() >= WAITING_OF_CALLER_MAX => return Err(TooManyWait),
            Some((_, calls)) => calls.push_back(call),
            None => self.waiting.push_back((caller, VecDeque::from([call]))),
        }
        self.waiting_len += 1;
        Ok(())
    }

    /// Gives a free turn to the next call: the first of the caller that has waited longest.
    pub fn call_up(&mut self) -> Option<T> {
        if self.waiting.is_empty() || !self.try_take() {
            return None;
        }
        let (caller, mut calls) = self.waiting.pop_front()?;
        let next = calls.pop_front();
        self.waiting_len -= usize::from(next.is_some());
        if !calls.is_empty() {
            self.waiting.push_back((caller, calls));
        }
        next
    }

    /// Keeps those waiting calls for which this is true.
    pub fn retain(&mut self, stays: impl Fn(&T) -> bool) {
        for (_, calls) in &mut self.waiting {
            calls.retain(&stays);
        }
        self.waiting.retain(|(_, calls)| !calls.is_empty());
        self.waiting_len = self.waiting.iter().map(|(_, calls)| calls.len()).sum();
    }

    /// Turns that are taken, and calls that wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.taken, self.waiting_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_that_wait_are_served_in_rotation() {
        let mut turns = Turns::new(1);
        assert!(turns.try_take());
        assert!(!turns.try_take());
        for caller in [1, 1, 1, 2, 3, 2] {
            turns.wait(caller, caller).unwrap();
        }
        let mut served = Vec::new();
        for _ in 0..6 {
            assert_eq!(turns.call_up(), None, "one runs already");
            turns.give_back();
            served.extend(turns.call_up());
        }
        assert_eq!(served, [1, 2, 3, 1, 2, 1]);
        turns.give_back();
        assert_eq!(turns.counts(), (0, 0));
    }

    #[test]
    fn a_new_limit_holds_from_the_next_turn_on() {
        let mut turns = Turns::new(2);
        assert!(turns.try_take() && turns.try_take());
        turns.set_limit(1);
        turns.wait(1, "third").unwrap();
        turns.give_back();
        assert_eq!(turns.call_up(), None, "one runs already");
        turns.give_back();
        assert_eq!(turns.call_up(), Some("third"));
        turns.set_limit(2);
        assert!(turns.try_take());
    }

    #[test]
    fn a_higher_limit_serves_the_calls_that_wait() {
        let mut turns = Turns::new(1);
        assert!(turns.try_take());
        turns.wait(1, "given up").unwrap();
        for (caller, call) in [(1, "a"), (1, "b"), (2, "c")] {
            turns.wait(caller, call).unwrap();
        }
        turns.retain(|call| *call != "given up");
        turns.set_limit(3);
        let served = [turns.call_up(), turns.call_up(), turns.call_up()];
        assert_eq!(served, [Some("a"), Some("c"), None]);
        assert_eq!(turns.counts(), (3, 1));
        assert!(!turns.try_take(), "a new call does not overtake");
    }

    #[test]
    fn a_caller_that_has_given_up_is_passed_over() {
        let mut turns = Turns::new(1);
        assert!(turns.try_take());
        turns.wait(1, "first").unwrap();
        turns.wait(2, "second").unwrap();
        turns.retain(|call| *call != "first");
        turns.give_back();
        assert_eq!(turns.call_up(), Some("second"));
        assert_eq!(turns.counts(), (1, 0));
    }

    #[test]
    fn the_number_of_waiting_calls_is_bounded() {
        let mut turns = Turns::new(1);
        assert!(turns.try_take());
        for at in 0..WAITING_OF_CALLER_MAX {
            turns.wait(0, at).unwrap();
        }
        assert_eq!(turns.wait(0, 0).unwrap_err(), TooManyWait);
        for at in WAITING_OF_CALLER_MAX..WAITING_LEN_MAX {
            turns.wait(at as CallerId, at).unwrap();
        }
        assert_eq!(turns.wait(1, 0).unwrap_err(), TooManyWait);
        turns.retain(|call| *call != 7);
        assert!(turns.wait(1, 0).is_ok(), "one has given up");
    }
}
