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

/// Bytes that a key costs beside its text and the sessions that refused.
const KEY_BYTES: usize = 128;

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

/// The idempotency keys that are taken. Bounded in number, bytes and time. When there are too many the oldest go, because
/// a repeat comes soon after the first send, and a project whose keys were refused could send nothing for a day.
#[derive(Debug)]
pub(super) struct TakenKeys {
    /// Hashed with a secret: a client chooses the keys.
    taken: HashMap<Key, Taken>,
    /// In the order in which they are free again.
    by_age: BTreeMap<Place, Key>,
    /// Tells keys apart that are free at the same moment.
    serial: u64,
    bytes: usize,
    len_max: usize,
    bytes_max: usize,
    /// Keys that were forgotten before their time.
    dropped: u64,
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
    /// The text of the key is there once: both places of it share it.
    fn bytes(&self, (_, key): &Key) -> usize {
        let refused = match &self.by {
            TakenBy::Outcome(outcome) => outcome.refused.len(),
            TakenBy::Reservation { .. } => 0,
        };
        KEY_BYTES + key.len() + refused * size_of::<SessionId>()
    }

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
            bytes: 0,
            bytes_max: retention.outcomes_bytes_max,
            dropped: 0,
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
            self.bytes -= taken.bytes(key);
            taken.by = TakenBy::Outcome(outcome);
            self.bytes += taken.bytes(key);
            journal.note(taken.change(key));
            self.forget_excess(journal);
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
        self.bytes += taken.bytes(&key);
        if let Some(before) = self.taken.insert(key.clone(), taken) {
            self.bytes -= before.bytes(&key);
            self.by_age.remove(&before.place);
        }
        self.by_age.insert(place, key);
    }

    fn forget_excess(&mut self, journal: &mut impl Journal) {
        while (self.by_age.len() > self.len_max || self.bytes > self.bytes_max)
            && let Some((&oldest, _)) = self.by_age.first_key_value()
        {
            self.forget(oldest, journal);
            self.dropped += 1;
        }
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Warns once of all keys that were forgotten before their time since the last call.
    pub fn tell_dropped(&mut self, project: &ProjectId) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let (limit, bytes_max) = (self.len_max, self.bytes_max);
            tracing::warn!(%project, dropped, limit, bytes_max, "too many idempotency keys: the oldest were forgotten");
        }
    }

    fn forget(&mut self, place: Place, journal: &mut impl Journal) {
        if let Some(key) = self.by_age.remove(&place) {
            journal.note(Change::KeyFreed {
                sender: key.0,
                key: &key.1,
            });
            if let Some(taken) = self.taken.remove(&key) {
                self.bytes -= taken.bytes(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MessageId;

    const NOW: Now = Now {
        unix_ms: 1_790_000_000_000,
        mono_ms: 5_000,
    };

    fn keys(len_max: usize, bytes_max: usize) -> TakenKeys {
        TakenKeys::new(&Retention {
            idempotency_keys_len_max: len_max,
            outcomes_bytes_max: bytes_max,
            ..Retention::default()
        })
    }

    fn key(text: &str) -> Key {
        (SessionId::from_uuid(uuid::Uuid::nil()), text.into())
    }

    fn outcome(refused: usize) -> Outcome {
        Outcome {
            message: MessageId::from_uuid(uuid::Uuid::nil()),
            delivered: 0,
            queued: 0,
            skipped: 0,
            queue_len: 0,
            refused: vec![key("").0; refused],
            delivered_at_ms: None,
            status: None,
        }
    }

    fn reservation() -> TakenBy {
        TakenBy::Reservation {
            target: ProjectId::default_project(),
            is_repeated: false,
        }
    }

    #[test]
    fn a_key_is_counted_with_its_text_and_with_16_bytes_for_each_refusal() {
        let mut keys = keys(10, usize::MAX);
        keys.take(key("other"), reservation(), NOW, &mut ());
        assert_eq!(keys.bytes(), 128 + 5);
        let other_bytes = keys.bytes();
        keys.take(key("abc"), TakenBy::Outcome(outcome(2)), NOW, &mut ());
        assert_eq!(keys.bytes() - other_bytes, 128 + 3 + 2 * 16);
        keys.take(key("abc"), reservation(), NOW, &mut ());
        assert_eq!(keys.bytes() - other_bytes, 128 + 3, "it replaces what was there");
        keys.settle_reserved(&key("abc"), outcome(5), &mut ());
        assert_eq!(keys.bytes() - other_bytes, 128 + 3 + 5 * 16);
        keys.free_reserved(&key("other"), &mut ());
        assert_eq!(keys.bytes(), 128 + 3 + 5 * 16);
        let later = Now {
            mono_ms: NOW.mono_ms + keys.window_ms,
            ..NOW
        };
        keys.forget_old(later, &mut ());
        assert_eq!((keys.bytes(), keys.dropped), (0, 0));
    }

    #[test]
    fn as_many_keys_and_bytes_as_may_be_are_kept() {
        for mut keys in [keys(2, usize::MAX), keys(usize::MAX, 2 * (128 + 1))] {
            let mut take = |text| {
                keys.take(key(text), reservation(), NOW, &mut ());
                keys.dropped
            };
            assert_eq!(["a", "b", "c", "d"].map(&mut take), [0, 0, 1, 2]);
        }
    }
}
