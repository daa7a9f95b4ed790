use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::super::{
    Outcome, Retention,
    journal::{Change, Journal},
};
use crate::{
    clock::{Now, millis},
    model::SessionId,
};

pub(in super::super) type Key = (SessionId, Arc<str>);

/// The first results of keyed sends. Bounded in number and in time; the oldest go first.
#[derive(Debug)]
pub(super) struct Outcomes {
    /// Hashed with a secret: a client chooses the keys.
    first: HashMap<Key, Kept>,
    /// In the order of acceptance, with the moment from which the key is free again.
    by_age: VecDeque<(u64, Key)>,
    len_max: usize,
    window_ms: u64,
}

#[derive(Debug)]
struct Kept {
    outcome: Outcome,
    /// When the key is free again, in milliseconds since the Unix epoch: what a journal is told.
    until_unix_ms: u64,
}

impl Kept {
    fn change<'a>(&'a self, (sender, key): &'a Key) -> Change<'a> {
        Change::OutcomeKept {
            sender: *sender,
            key,
            until_unix_ms: self.until_unix_ms,
            outcome: &self.outcome,
        }
    }
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

    pub fn first(&mut self, key: &Key, now: Now, journal: &mut impl Journal) -> Option<&Outcome> {
        self.forget_old(now, journal);
        Some(&self.first.get(key)?.outcome)
    }

    /// Keeps the result of a key that [`Outcomes::first`] did not know.
    pub fn keep(&mut self, key: Key, outcome: Outcome, now: Now, journal: &mut impl Journal) {
        let until_unix_ms = now.unix_ms.saturating_add(self.window_ms);
        let kept = Kept { outcome, until_unix_ms };
        journal.note(kept.change(&key));
        self.insert(key, kept, now.mono_ms.saturating_add(self.window_ms), journal);
    }

    /// What was kept before a restart; those come first that are free first.
    pub fn restore(&mut self, key: Key, outcome: Outcome, until_unix_ms: u64, now: Now, journal: &mut impl Journal) {
        let until = now.mono_at(until_unix_ms);
        self.insert(key, Kept { outcome, until_unix_ms }, until, journal);
    }

    fn insert(&mut self, key: Key, kept: Kept, until_mono_ms: u64, journal: &mut impl Journal) {
        self.by_age.push_back((until_mono_ms, key.clone()));
        self.first.insert(key, kept);
        while self.by_age.len() > self.len_max {
            self.forget_oldest(journal);
        }
    }

    /// Does nothing for a key that was forgotten meanwhile.
    pub fn settle(&mut self, key: &Key, outcome: Outcome, journal: &mut impl Journal) {
        if let Some(kept) = self.first.get_mut(key) {
            kept.outcome = outcome;
            journal.note(kept.change(key));
        }
    }

    pub fn forget_old(&mut self, now: Now, journal: &mut impl Journal) {
        while self.by_age.front().is_some_and(|(until, _)| *until <= now.mono_ms) {
            self.forget_oldest(journal);
        }
    }

    fn forget_oldest(&mut self, journal: &mut impl Journal) {
        if let Some((_, key)) = self.by_age.pop_front() {
            journal.note(Change::OutcomeForgotten {
                sender: key.0,
                key: &key.1,
            });
            self.first.remove(&key);
        }
    }
}
