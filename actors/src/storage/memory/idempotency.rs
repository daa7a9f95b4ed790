use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::super::{
    KeyReservation, Retention, SendResult,
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
pub(in super::super) enum KeyUse {
    /// The first result of a send.
    SendResult(SendResult),
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
pub(super) struct IdempotencyKeys {
    /// Hashed with a secret: a client chooses the keys.
    entries: HashMap<Key, Entry>,
    /// In the order in which they are free again.
    by_expiry: BTreeMap<ExpiryKey, Key>,
    /// Tells keys apart that are free at the same moment.
    last_serial: u64,
    bytes: usize,
    len_max: usize,
    bytes_max: usize,
    /// Keys that were forgotten before their time.
    dropped: u64,
    window_ms: u64,
}

/// When a key is free again, by the monotonic clock, and its serial.
type ExpiryKey = (u64, u64);

#[derive(Debug)]
struct Entry {
    key_use: KeyUse,
    /// When the key is free again, in milliseconds since the Unix epoch: what a journal is told.
    until_unix_ms: u64,
    expiry_key: ExpiryKey,
}

impl Entry {
    /// The text of the key is there once: both places of it share it.
    fn bytes(&self, (_, key): &Key) -> usize {
        let refused = match &self.key_use {
            KeyUse::SendResult(outcome) => outcome.refused.len(),
            KeyUse::Reservation { .. } => 0,
        };
        KEY_BYTES + key.len() + refused * size_of::<SessionId>()
    }

    fn change<'a>(&'a self, (sender, key): &'a Key) -> Change<'a> {
        Change::KeyPut {
            sender: *sender,
            key,
            until_unix_ms: self.until_unix_ms,
            key_use: &self.key_use,
        }
    }
}

impl IdempotencyKeys {
    pub fn new(retention: &Retention) -> Self {
        Self {
            entries: HashMap::new(),
            by_expiry: BTreeMap::new(),
            last_serial: 0,
            bytes: 0,
            bytes_max: retention.idempotency_keys_bytes_max,
            dropped: 0,
            len_max: retention.idempotency_keys_len_max,
            window_ms: millis(retention.idempotency_window),
        }
    }

    pub fn get(&mut self, key: &Key, now: Now, journal: &mut impl Journal) -> Option<&KeyUse> {
        self.remove_expired(now, journal);
        Some(&self.entries.get(key)?.key_use)
    }

    /// Takes a key for the window from now on, whatever it was taken by.
    pub fn put(&mut self, key: Key, by: KeyUse, now: Now, journal: &mut impl Journal) {
        let until_unix_ms = now.unix_ms.saturating_add(self.window_ms);
        let until_mono_ms = now.mono_ms.saturating_add(self.window_ms);
        self.insert(key.clone(), by, until_unix_ms, until_mono_ms);
        if let Some(taken) = self.entries.get(&key) {
            journal.record(taken.change(&key));
        }
        self.evict_excess(journal);
    }

    /// What was taken before a restart.
    pub fn restore(&mut self, key: Key, by: KeyUse, until_unix_ms: u64, now: Now, journal: &mut impl Journal) {
        let until_mono_ms = now.mono_at(until_unix_ms);
        self.insert(key, by, until_unix_ms, until_mono_ms);
        self.evict_excess(journal);
    }

    pub fn reserve(&mut self, key: Key, target: ProjectId, now: Now, journal: &mut impl Journal) -> KeyReservation {
        let is_repeated = match self.get(&key, now, journal) {
            Some(KeyUse::SendResult(first)) => return KeyReservation::Completed(first.clone()),
            Some(KeyUse::Reservation { target: other, .. }) if *other != target => return KeyReservation::OtherProject,
            Some(KeyUse::Reservation { .. }) => true,
            None => false,
        };
        self.put(key, KeyUse::Reservation { target, is_repeated }, now, journal);
        if is_repeated {
            KeyReservation::Repeated
        } else {
            KeyReservation::New
        }
    }

    /// Does nothing for a key that was forgotten meanwhile.
    pub fn complete(&mut self, key: &Key, outcome: SendResult, journal: &mut impl Journal) {
        if let Some(taken) = self.entries.get_mut(key) {
            self.bytes -= taken.bytes(key);
            taken.key_use = KeyUse::SendResult(outcome);
            self.bytes += taken.bytes(key);
            journal.record(taken.change(key));
            self.evict_excess(journal);
        }
    }

    /// The same only while the key is reserved.
    pub fn complete_reservation(&mut self, key: &Key, outcome: SendResult, journal: &mut impl Journal) {
        let taken = self.entries.get(key);
        if taken.is_some_and(|taken| matches!(taken.key_use, KeyUse::Reservation { .. })) {
            self.complete(key, outcome, journal);
        }
    }

    /// Frees a key that is reserved by one send alone.
    pub fn cancel_reservation(&mut self, key: &Key, journal: &mut impl Journal) {
        if let Some(taken) = self.entries.get(key)
            && let KeyUse::Reservation { is_repeated: false, .. } = taken.key_use
        {
            let place = taken.expiry_key;
            self.remove(place, journal);
        }
    }

    pub fn remove_expired(&mut self, now: Now, journal: &mut impl Journal) {
        while let Some((&place, _)) = self.by_expiry.first_key_value()
            && place.0 <= now.mono_ms
        {
            self.remove(place, journal);
        }
    }

    fn insert(&mut self, key: Key, by: KeyUse, until_unix_ms: u64, until_mono_ms: u64) {
        self.last_serial += 1;
        let place = (until_mono_ms, self.last_serial);
        let taken = Entry {
            key_use: by,
            until_unix_ms,
            expiry_key: place,
        };
        self.bytes += taken.bytes(&key);
        if let Some(before) = self.entries.insert(key.clone(), taken) {
            self.bytes -= before.bytes(&key);
            self.by_expiry.remove(&before.expiry_key);
        }
        self.by_expiry.insert(place, key);
    }

    fn evict_excess(&mut self, journal: &mut impl Journal) {
        while (self.by_expiry.len() > self.len_max || self.bytes > self.bytes_max)
            && let Some((&oldest, _)) = self.by_expiry.first_key_value()
        {
            self.remove(oldest, journal);
            self.dropped += 1;
        }
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Warns once of all keys that were forgotten before their time since the last call.
    pub fn log_dropped(&mut self, project: &ProjectId) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let (limit, bytes_max) = (self.len_max, self.bytes_max);
            tracing::warn!(%project, dropped, limit, bytes_max, "too many idempotency keys: the oldest were forgotten");
        }
    }

    fn remove(&mut self, place: ExpiryKey, journal: &mut impl Journal) {
        if let Some(key) = self.by_expiry.remove(&place) {
            journal.record(Change::KeyRemoved {
                sender: key.0,
                key: &key.1,
            });
            if let Some(taken) = self.entries.remove(&key) {
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

    fn keys(len_max: usize, bytes_max: usize) -> IdempotencyKeys {
        IdempotencyKeys::new(&Retention {
            idempotency_keys_len_max: len_max,
            idempotency_keys_bytes_max: bytes_max,
            ..Retention::default()
        })
    }

    fn key(text: &str) -> Key {
        (SessionId::from_uuid(uuid::Uuid::nil()), text.into())
    }

    fn outcome(refused: usize) -> SendResult {
        SendResult {
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

    fn reservation() -> KeyUse {
        KeyUse::Reservation {
            target: ProjectId::default_project(),
            is_repeated: false,
        }
    }

    #[test]
    fn a_key_is_counted_with_its_text_and_with_16_bytes_for_each_refusal() {
        let mut keys = keys(10, usize::MAX);
        keys.put(key("other"), reservation(), NOW, &mut ());
        assert_eq!(keys.bytes(), 128 + 5);
        let other_bytes = keys.bytes();
        keys.put(key("abc"), KeyUse::SendResult(outcome(2)), NOW, &mut ());
        assert_eq!(keys.bytes() - other_bytes, 128 + 3 + 2 * 16);
        keys.put(key("abc"), reservation(), NOW, &mut ());
        assert_eq!(keys.bytes() - other_bytes, 128 + 3, "it replaces what was there");
        keys.complete_reservation(&key("abc"), outcome(5), &mut ());
        assert_eq!(keys.bytes() - other_bytes, 128 + 3 + 5 * 16);
        keys.cancel_reservation(&key("other"), &mut ());
        assert_eq!(keys.bytes(), 128 + 3 + 5 * 16);
        let later = Now {
            mono_ms: NOW.mono_ms + keys.window_ms,
            ..NOW
        };
        keys.remove_expired(later, &mut ());
        assert_eq!((keys.bytes(), keys.dropped), (0, 0));
    }

    #[test]
    fn as_many_keys_and_bytes_as_may_be_are_kept() {
        for mut keys in [keys(2, usize::MAX), keys(usize::MAX, 2 * (128 + 1))] {
            let mut take = |text| {
                keys.put(key(text), reservation(), NOW, &mut ());
                keys.dropped
            };
            assert_eq!(["a", "b", "c", "d"].map(&mut take), [0, 0, 1, 2]);
        }
    }
}
