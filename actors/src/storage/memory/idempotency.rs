use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::super::{
    Outcome, Reserved, Retention,
    journal::{Change, Journal},
};
use crate::{
    clock::{Now, millis},
    model::{ProjectId, SessionId},
};

pub(in super::super) type Key = (SessionId, Arc<str>);

/// By what an idempotency key is taken.
#[derive(Clone, Debug)]
pub(in super::super) enum TakenBy {
    /// The first result of a send.
    Outcome(Outcome),
    /// A message to another project, which may have taken it: that project knows.
    Reservation {
        target: ProjectId,
        /// More than one send has found the key reserved: that one of them was refused does not free it.
        is_repeated: bool,
    },
}

/// The idempotency keys that are taken. Bounded in number and in time; the oldest go first.
#[derive(Debug)]
pub(super) struct TakenKeys {
    /// Hashed with a secret: a client chooses the keys.
    taken: HashMap<Key, Taken>,
    /// In the order in which they are free again.
    by_age: BTreeMap<Place, Key>,
    /// Tells keys apart that are free at the same moment.
    serial: u64,
    len_max: usize,
    window_ms: u64,
}

/// When a key is free again, by the monotonic clock, and its serial.
type Place = (u64, u64);

#[derive(Debug)]
struct Taken {
    by: TakenBy,
    /// When the key is free again, in milliseconds since the Unix epoch: what a journal is told.
    until_unix_ms: u64,
    place: Place,
}

impl Taken {
    fn change<'a>(&'a self, (sender, key): &'a Key) -> Change<'a> {
        Change::KeyTaken {
            sender: *sender,
            key,
            until_unix_ms: self.until_unix_ms,
            by: &self.by,
        }
    }
}

impl TakenKeys {
    pub fn new(retention: &Retention) -> Self {
        Self {
            taken: HashMap::new(),
            by_age: BTreeMap::new(),
            serial: 0,
            len_max: retention.idempotency_keys_len_max,
            window_ms: millis(retention.idempotency_window),
        }
    }

    pub fn get(&mut self, key: &Key, now: Now, journal: &mut impl Journal) -> Option<&TakenBy> {
        self.forget_old(now, journal);
        Some(&self.taken.get(key)?.by)
    }

    /// Takes a key for the window from now on, whatever it was taken by.
    pub fn take(&mut self, key: Key, by: TakenBy, now: Now, journal: &mut impl Journal) {
        let until_unix_ms = now.unix_ms.saturating_add(self.window_ms);
        let until_mono_ms = now.mono_ms.saturating_add(self.window_ms);
        self.insert(key.clone(), by, until_unix_ms, until_mono_ms);
        if let Some(taken) = self.taken.get(&key) {
            journal.note(taken.change(&key));
        }
        self.forget_excess(journal);
    }

    /// What was taken before a restart.
    pub fn restore(&mut self, key: Key, by: TakenBy, until_unix_ms: u64, now: Now, journal: &mut impl Journal) {
        let until_mono_ms = now.mono_at(until_unix_ms);
        self.insert(key, by, until_unix_ms, until_mono_ms);
        self.forget_excess(journal);
    }

    pub fn reserve(&mut self, key: Key, target: ProjectId, now: Now, journal: &mut impl Journal) -> Reserved {
        let is_repeated = match self.get(&key, now, journal) {
            Some(TakenBy::Outcome(first)) => return Reserved::Settled(first.clone()),
            Some(TakenBy::Reservation { target: other, .. }) if *other != target => return Reserved::Elsewhere,
            Some(TakenBy::Reservation { .. }) => true,
            None => false,
        };
        self.take(key, TakenBy::Reservation { target, is_repeated }, now, journal);
        if is_repeated { Reserved::Again } else { Reserved::First }
    }

    /// Does nothing for a key that was forgotten meanwhile.
    pub fn settle(&mut self, key: &Key, outcome: Outcome, journal: &mut impl Journal) {
        if let Some(taken) = self.taken.get_mut(key) {
            taken.by = TakenBy::Outcome(outcome);
            journal.note(taken.change(key));
        }
    }

    /// The same only while the key is reserved.
    pub fn settle_reserved(&mut self, key: &Key, outcome: Outcome, journal: &mut impl Journal) {
        let taken = self.taken.get(key);
        if taken.is_some_and(|taken| matches!(taken.by, TakenBy::Reservation { .. })) {
            self.settle(key, outcome, journal);
        }
    }

    /// Frees a key that is reserved by one send alone.
    pub fn free_reserved(&mut self, key: &Key, journal: &mut impl Journal) {
        if let Some(taken) = self.taken.get(key)
            && let TakenBy::Reservation { is_repeated: false, .. } = taken.by
        {
            let place = taken.place;
            self.forget(place, journal);
        }
    }

    pub fn forget_old(&mut self, now: Now, journal: &mut impl Journal) {
        while let Some((&place, _)) = self.by_age.first_key_value()
            && place.0 <= now.mono_ms
        {
            self.forget(place, journal);
        }
    }

    fn insert(&mut self, key: Key, by: TakenBy, until_unix_ms: u64, until_mono_ms: u64) {
        self.serial += 1;
        let place = (until_mono_ms, self.serial);
        let taken = Taken {
            by,
            until_unix_ms,
            place,
        };
        if let Some(before) = self.taken.insert(key.clone(), taken) {
            self.by_age.remove(&before.place);
        }
        self.by_age.insert(place, key);
    }

    fn forget_excess(&mut self, journal: &mut impl Journal) {
        while self.by_age.len() > self.len_max
            && let Some((&oldest, _)) = self.by_age.first_key_value()
        {
            self.forget(oldest, journal);
        }
    }

    fn forget(&mut self, place: Place, journal: &mut impl Journal) {
        if let Some(key) = self.by_age.remove(&place) {
            journal.note(Change::KeyFreed {
                sender: key.0,
                key: &key.1,
            });
            self.taken.remove(&key);
        }
    }
}
