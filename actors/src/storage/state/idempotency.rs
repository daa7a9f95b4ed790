//! The idempotency keys of a project: results of sends, and reservations for messages to other projects.

use std::collections::{BTreeMap, HashMap};

use super::journal::{Change, Journal, Key, KeyUse};
use crate::{
    clock::{Now, millis},
    model::{ProjectId, SessionId},
    storage::{
        retention::Retention,
        tracking::{KeyReservation, SendResult},
    },
};

/// Bytes that a key costs in addition to its text, its refused recipients and what lenses do for the others.
const KEY_BYTES: usize = 128;

/// The idempotency keys in use, bounded in number, bytes and time. At the limit the oldest are forgotten: a repeat
/// usually comes soon after the first send, and refusing new keys would stop a project for a day.
#[derive(Debug)]
pub struct IdempotencyKeys {
    /// Hashed with a secret, because clients choose the keys.
    entries: HashMap<Key, Entry>,
    /// By the time at which they become free.
    by_expiry: BTreeMap<ExpiryKey, Key>,
    /// Distinguishes keys that become free at the same moment.
    last_serial: u64,
    bytes: usize,
    len_max: usize,
    bytes_max: usize,
    /// Keys that were forgotten before their time, since the last log entry.
    dropped: u64,
    window_ms: u64,
}

/// When a key becomes free, in monotonic milliseconds, and its serial.
type ExpiryKey = (u64, u64);

#[derive(Debug)]
struct Entry {
    key_use: KeyUse,
    /// When the key becomes free, in milliseconds since the Unix epoch; this is what the journal receives.
    until_unix_ms: u64,
    expiry_key: ExpiryKey,
}

impl Entry {
    /// The text of the key counts once: both maps share it.
    fn bytes(&self, (_, key): &Key) -> usize {
        let result = match &self.key_use {
            KeyUse::SendResult(result) => {
                let transforms = result.transforms.as_ref();
                result.refused.len() * size_of::<SessionId>() + transforms.map_or(0, |all| all.bytes_len())
            }
            KeyUse::Reservation { .. } => 0,
        };
        KEY_BYTES + key.len() + result
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
    /// No keys, with the limits of `retention`.
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

    /// The use of a key; None if the key is free.
    pub fn get(&mut self, key: &Key, now: Now, journal: &mut impl Journal) -> Option<&KeyUse> {
        self.remove_expired(now, journal);
        Some(&self.entries.get(key)?.key_use)
    }

    /// Sets a key for one window from now on, replacing its former use.
    pub fn put(&mut self, key: Key, by: KeyUse, now: Now, journal: &mut impl Journal) {
        let until_unix_ms = now.unix_ms.saturating_add(self.window_ms);
        let until_mono_ms = now.mono_ms.saturating_add(self.window_ms);
        self.insert(key.clone(), by, until_unix_ms, until_mono_ms);
        if let Some(entry) = self.entries.get(&key) {
            journal.record(entry.change(&key));
        }
        self.evict_excess(journal);
    }

    /// Adds a key that was in use before a restart.
    pub fn restore(&mut self, key: Key, by: KeyUse, until_unix_ms: u64, now: Now, journal: &mut impl Journal) {
        let until_mono_ms = now.mono_at(until_unix_ms);
        self.insert(key, by, until_unix_ms, until_mono_ms);
        self.evict_excess(journal);
    }

    /// See [`TrackingStore::reserve_key`](crate::storage::TrackingStore::reserve_key).
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

    /// Replaces the use of a key by a result. Does nothing for a forgotten key.
    pub fn complete(&mut self, key: &Key, result: SendResult, journal: &mut impl Journal) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.bytes -= entry.bytes(key);
            entry.key_use = KeyUse::SendResult(result);
            self.bytes += entry.bytes(key);
            journal.record(entry.change(key));
            self.evict_excess(journal);
        }
    }

    /// Stores the result of a key, if it is reserved.
    pub fn complete_reservation(&mut self, key: &Key, result: SendResult, journal: &mut impl Journal) {
        let entry = self.entries.get(key);
        if entry.is_some_and(|entry| matches!(entry.key_use, KeyUse::Reservation { .. })) {
            self.complete(key, result, journal);
        }
    }

    /// Removes a reservation that only one send has found.
    pub fn cancel_reservation(&mut self, key: &Key, journal: &mut impl Journal) {
        if let Some(entry) = self.entries.get(key)
            && let KeyUse::Reservation { is_repeated: false, .. } = entry.key_use
        {
            let place = entry.expiry_key;
            self.remove(place, journal);
        }
    }

    /// Frees the keys whose window is over.
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
        let entry = Entry {
            key_use: by,
            until_unix_ms,
            expiry_key: place,
        };
        self.bytes += entry.bytes(&key);
        if let Some(before) = self.entries.insert(key.clone(), entry) {
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

    /// The bytes of the keys with their results.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Logs one warning for all keys that were forgotten before their time since the last call.
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
            if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= entry.bytes(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MessageId, Transforms};

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

    fn result(refused: usize) -> SendResult {
        SendResult {
            message: MessageId::from_uuid(uuid::Uuid::nil()),
            delivered: 0,
            queued: 0,
            skipped: 0,
            queue_len: 0,
            refused: vec![key("").0; refused],
            delivered_at_ms: None,
            status: None,
            transforms: None,
        }
    }

    fn reservation() -> KeyUse {
        KeyUse::Reservation {
            target: ProjectId::default_project(),
            is_repeated: false,
        }
    }

    #[test]
    fn a_key_counts_128_bytes_its_text_and_16_bytes_for_each_refusal() {
        let mut keys = keys(10, usize::MAX);
        keys.put(key("other"), reservation(), NOW, &mut ());
        assert_eq!(keys.bytes(), 128 + 5);
        let other_bytes = keys.bytes();
        keys.put(key("abc"), KeyUse::SendResult(result(2)), NOW, &mut ());
        assert_eq!(keys.bytes() - other_bytes, 128 + 3 + 2 * 16);
        keys.put(key("abc"), reservation(), NOW, &mut ());
        assert_eq!(keys.bytes() - other_bytes, 128 + 3, "it replaces what was there");
        keys.complete_reservation(&key("abc"), result(5), &mut ());
        assert_eq!(keys.bytes() - other_bytes, 128 + 3 + 5 * 16);
        let transforms = Transforms {
            versions: Vec::new(),
            failed: vec![key("").0; 3],
        };
        let transformed = SendResult {
            transforms: Some(transforms.into()),
            ..result(0)
        };
        keys.complete(&key("abc"), transformed, &mut ());
        assert_eq!(keys.bytes() - other_bytes, 128 + 3 + 3 * 16);
        keys.complete(&key("abc"), result(5), &mut ());
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
    fn keys_are_kept_up_to_both_limits() {
        for mut keys in [keys(2, usize::MAX), keys(usize::MAX, 2 * (128 + 1))] {
            let mut take = |text| {
                keys.put(key(text), reservation(), NOW, &mut ());
                keys.dropped
            };
            assert_eq!(["a", "b", "c", "d"].map(&mut take), [0, 0, 1, 2]);
        }
    }
}
