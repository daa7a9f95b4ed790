use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::super::{Outcome, Retention};
use crate::{
    clock::{Now, millis},
    model::SessionId,
};

pub(super) type Key = (SessionId, Arc<str>);

/// The first results of keyed sends. Bounded in number and in time; the oldest go first.
#[derive(Debug)]
pub(super) struct Outcomes {
    /// Hashed with a secret: a client chooses the keys.
    first: HashMap<Key, Outcome>,
    /// In the order of acceptance, with the moment from which the key is free again.
    by_age: VecDeque<(u64, Key)>,
    len_max: usize,
    window_ms: u64,
}

impl Outcomes {
    pub fn new(retention: &Retention) -> Self {
        Self {
            first: HashMap::new(),
            by_age: VecDeque::new(),
            len_max: retention.idempotency_keys_len_max,
            window_ms: millis(retention.idempotency_window),
        }
    }

    pub fn first(&mut self, key: &Key, now: Now) -> Option<&Outcome> {
        self.forget_old(now);
        self.first.get(key)
    }

    /// Keeps the result of a key that [`Outcomes::first`] did not know.
    pub fn keep(&mut self, key: Key, outcome: Outcome, now: Now) {
        self.by_age
            .push_back((now.mono_ms.saturating_add(self.window_ms), key.clone()));
        self.first.insert(key, outcome);
        while self.by_age.len() > self.len_max {
            self.forget_oldest();
        }
    }

    /// Does nothing for a key that was forgotten meanwhile.
    pub fn settle(&mut self, key: &Key, outcome: Outcome) {
        if let Some(kept) = self.first.get_mut(key) {
            *kept = outcome;
        }
    }

    pub fn forget_old(&mut self, now: Now) {
        while self.by_age.front().is_some_and(|(until, _)| *until <= now.mono_ms) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.by_age.pop_front() {
            self.first.remove(&key);
        }
    }
}
