//! How many calls run in a backend at the same time, and whose turn is next: callers that wait are served in rotation, so
//! that one with many calls does not hold up the others.

use std::{collections::VecDeque, sync::Arc};

use crate::locked::Locked;

use tokio::sync::oneshot;

/// Calls that may wait for their turn: of all callers, and of one.
const WAITING_LEN_MAX: usize = 1_024;
const WAITING_OF_CALLER_MAX: usize = 256;

/// The callers that share turns: a number for each.
pub type CallerId = u64;

/// The turns of one backend.
#[derive(Debug)]
pub struct Turns(Locked<State>);

#[derive(Debug)]
struct State {
    limit: usize,
    running: usize,
    /// The callers that wait, the next one first, each with its waiting calls.
    waiting: VecDeque<(CallerId, VecDeque<oneshot::Sender<Turn>>)>,
    waiting_len: usize,
}

/// The permission to run one call. Dropping it gives the turn to the next.
#[derive(Debug)]
pub struct Turn(Option<Arc<Turns>>);

/// Too many calls wait already.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyWait;

impl Turns {
    /// Turns for this many calls at the same time.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self(Locked::new(State {
            limit: limit.max(1),
            running: 0,
            waiting: VecDeque::new(),
            waiting_len: 0,
        })))
    }

    /// Changes how many calls may run. Those that run continue, and those that wait get the turns that are free now.
    pub fn set_limit(self: &Arc<Self>, limit: usize) {
        self.0.lock().limit = limit.max(1);
        loop {
            let mut state = self.0.lock();
            if state.running >= state.limit || state.waiting.is_empty() {
                return;
            }
            state.running += 1;
            drop(state);
            self.release();
        }
    }

    /// Takes a turn if one is free now.
    pub fn try_take(self: &Arc<Self>) -> Option<Turn> {
        let mut state = self.0.lock();
        (state.running < state.limit).then(|| {
            state.running += 1;
            Turn(Some(Arc::clone(self)))
        })
    }

    /// Takes a turn, or waits for one behind the earlier calls of the same caller.
    ///
    /// # Errors
    /// [`TooManyWait`].
    pub fn take(self: &Arc<Self>, caller: CallerId) -> Result<oneshot::Receiver<Turn>, TooManyWait> {
        let (give, turn) = oneshot::channel();
        let mut state = self.0.lock();
        if state.running < state.limit {
            state.running += 1;
            let _ = give.send(Turn(Some(Arc::clone(self))));
            return Ok(turn);
        }
        if state.waiting_len >= WAITING_LEN_MAX {
            state.drop_abandoned();
            if state.waiting_len >= WAITING_LEN_MAX {
                return Err(TooManyWait);
            }
        }
        let of_caller = state.waiting.iter_mut().find(|(known, _)| *known == caller);
        match of_caller {
            Some((_, calls)) if calls.len() >= WAITING_OF_CALLER_MAX => return Err(TooManyWait),
            Some((_, calls)) => calls.push_back(give),
            None => state.waiting.push_back((caller, VecDeque::from([give]))),
        }
        state.waiting_len += 1;
        Ok(turn)
    }

    /// Calls that run, and calls that wait.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.running, state.waiting_len)
    }

    /// Gives a turn that has become free to the caller that is next.
    fn release(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.0.lock();
                // The limit may have become lower.
                let next = if state.running > state.limit {
                    None
                } else {
                    state.next_waiting()
                };
                if next.is_none() {
                    state.running -= 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(Turn(Some(Arc::clone(self)))) {
                Ok(()) => return,
                // The caller has given up. Its turn goes to the next one here, and not by its drop.
                Err(mut turn) => drop(turn.0.take()),
            }
        }
    }
}

impl State {
    fn next_waiting(&mut self) -> Option<oneshot::Sender<Turn>> {
        let (caller, mut calls) = self.waiting.pop_front()?;
        let next = calls.pop_front();
        self.waiting_len -= usize::from(next.is_some());
        if !calls.is_empty() {
            self.waiting.push_back((caller, calls));
        }
        next
    }

    fn drop_abandoned(&mut self) {
        for (_, calls) in &mut self.waiting {
            calls.retain(|call| !call.is_closed());
        }
        self.waiting.retain(|(_, calls)| !calls.is_empty());
        self.waiting_len = self.waiting.iter().map(|(_, calls)| calls.len()).sum();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_that_wait_are_served_in_rotation() {
        let turns = Turns::new(1);
        let mut running = Some(turns.try_take().unwrap());
        assert!(turns.try_take().is_none());
        let mut waiting: Vec<_> = [1, 1, 1, 2, 3, 2]
            .into_iter()
            .map(|caller| (caller, turns.take(caller).unwrap()))
            .collect();
        let mut served = Vec::new();
        while !waiting.is_empty() {
            drop(running.take());
            let next = waiting.iter_mut().position(|(_, turn)| match turn.try_recv() {
                Ok(turn) => {
                    running = Some(turn);
                    true
                }
                Err(_) => false,
            });
            served.push(waiting.remove(next.unwrap()).0);
        }
        assert_eq!(served, [1, 2, 3, 1, 2, 1]);
        drop(running);
        assert_eq!(turns.counts(), (0, 0));
    }

    #[test]
    fn a_new_limit_holds_from_the_next_turn_on() {
        let turns = Turns::new(2);
        let (first, second) = (turns.try_take().unwrap(), turns.try_take().unwrap());
        turns.set_limit(1);
        let mut waiting = turns.take(1).unwrap();
        drop(first);
        assert!(waiting.try_recv().is_err(), "one runs already");
        drop(second);
        let third = waiting.try_recv().unwrap();
        turns.set_limit(2);
        assert!(turns.try_take().is_some());
        drop(third);
    }

    #[test]
    fn a_higher_limit_serves_the_calls_that_wait() {
        let turns = Turns::new(1);
        let _running = turns.try_take().unwrap();
        drop(turns.take(1).unwrap());
        let mut waiting = [1, 1, 2].map(|caller| turns.take(caller).unwrap());
        turns.set_limit(3);
        assert_eq!(turns.counts(), (3, 1));
        assert!(turns.try_take().is_none(), "a new call does not overtake");
        let served = waiting.each_mut().map(|turn| turn.try_recv().ok());
        assert_eq!(served.each_ref().map(Option::is_some), [true, false, true]);
    }

    #[test]
    fn a_caller_that_has_given_up_is_passed_over() {
        let turns = Turns::new(1);
        let running = turns.try_take().unwrap();
        drop(turns.take(1).unwrap());
        let mut second = turns.take(2).unwrap();
        drop(running);
        assert!(second.try_recv().is_ok());
    }

    #[test]
    fn the_number_of_waiting_calls_is_bounded() {
        let turns = Turns::new(1);
        let _running = turns.try_take().unwrap();
        let of_one: Vec<_> = (0..WAITING_OF_CALLER_MAX).map(|_| turns.take(0).unwrap()).collect();
        assert_eq!(turns.take(0).unwrap_err(), TooManyWait);
        let others = (WAITING_OF_CALLER_MAX..WAITING_LEN_MAX).map(|at| turns.take(at as CallerId).unwrap());
        let mut waiting: Vec<_> = of_one.into_iter().chain(others).collect();
        assert_eq!(turns.take(1).unwrap_err(), TooManyWait);
        waiting.pop();
        assert!(turns.take(1).is_ok(), "one has given up");
    }
}
