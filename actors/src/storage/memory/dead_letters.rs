use std::collections::BTreeMap;

use super::super::{
    BlockedDeadLetter, DeadLetterPage as Found, DeadLetterQuery, Retention,
    account::{Account, Tally, envelope_bytes},
    journal::{Change, Journal},
};
use crate::model::{DeadLetter, Message, MessageId, ProjectId, SessionId};

type Key = (MessageId, SessionId);

/// What was given up, until it is redriven or there is too much of it.
///
/// Listed in the order of message ids, so that a cursor stays good when its dead letter is gone; forgotten in the
/// order in which it died, so that the long inbox of a removed session is not the first to go.
#[derive(Debug)]
pub(super) struct DeadLetters {
    by_key: BTreeMap<Key, Entry>,
    by_sequence: BTreeMap<u64, Key>,
    next_sequence: u64,
    tally: Tally,
    len_max: usize,
    bytes_max: usize,
    dropped: u64,
    dropped_logged: u64,
}

#[derive(Debug)]
struct Entry {
    dead_letter: DeadLetter,
    sequence: u64,
}

impl DeadLetters {
    pub fn new(retention: &Retention) -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_sequence: BTreeMap::new(),
            next_sequence: 0,
            tally: Tally::default(),
            len_max: retention.dead_letters_len_max,
            bytes_max: retention.dead_letters_bytes_max,
            dropped: 0,
            dropped_logged: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub const fn bytes(&self) -> usize {
        self.tally.bytes()
    }

    /// Keeps a letter whose message is in the account. What is dropped leaves it.
    pub fn insert(&mut self, letter: DeadLetter, account: &mut Account, journal: &mut impl Journal) {
        let death = self.next_sequence;
        if let Some(earlier) = self.take((letter.message.id, letter.recipient)) {
            journal.record(Change::DeadLetterRemoved(&earlier));
            account.release(&earlier.message);
        }
        journal.record(Change::DeadLetterKept {
            dead_letter: &letter,
            sequence: death,
        });
        self.restore(letter, death, account, journal);
    }

    /// What was kept before a restart.
    pub fn restore(&mut self, letter: DeadLetter, death: u64, account: &mut Account, journal: &mut impl Journal) {
        let key = (letter.message.id, letter.recipient);
        self.next_sequence = self.next_sequence.max(death + 1);
        self.tally.add(&letter.message);
        self.by_key.insert(
            key,
            Entry {
                dead_letter: letter,
                sequence: death,
            },
        );
        self.by_sequence.insert(death, key);
        while self.by_key.len() > self.len_max || self.tally.bytes() > self.bytes_max {
            let oldest = self.by_sequence.first_key_value().map(|(_, key)| *key);
            let Some(dropped) = oldest.and_then(|oldest| self.take(oldest)) else {
                return;
            };
            journal.record(Change::DeadLetterRemoved(&dropped));
            account.release(&dropped.message);
            self.dropped += 1;
        }
    }

    pub fn take(&mut self, key: Key) -> Option<DeadLetter> {
        let kept = self.by_key.remove(&key)?;
        self.by_sequence.remove(&kept.sequence);
        self.tally.remove(&kept.dead_letter.message);
        Some(kept.dead_letter)
    }

    pub fn message(&self, key: Key) -> Option<&Message> {
        Some(&self.by_key.get(&key)?.dead_letter.message)
    }

    /// For whom this message was given up.
    pub fn recipients(&self, message: MessageId) -> Vec<SessionId> {
        self.by_key
            .range((message, SESSION_MIN)..)
            .take_while(|((id, _), _)| *id == message)
            .map(|((_, recipient), _)| *recipient)
            .collect()
    }

    pub fn list(&self, query: &DeadLetterQuery) -> Found {
        use std::ops::Bound::{Excluded, Unbounded};
        let mut found = Found::default();
        let mut room = query.bytes_max;
        let fitting = self
            .by_key
            .range((query.after.map_or(Unbounded, Excluded), Unbounded))
            .map(|(_, kept)| &kept.dead_letter)
            .filter(|letter| query.matches(letter));
        for letter in fitting.take(query.limit) {
            let bytes = envelope_bytes(&letter.message);
            if bytes > room {
                found.blocked = Some(BlockedDeadLetter {
                    message: letter.message.id,
                    recipient: letter.recipient,
                    bytes,
                });
                break;
            }
            room -= bytes;
            found.dead_letters.push(letter.clone());
        }
        found
    }

    /// Warns once of all that were dropped since the last time, so that a flood of them does not flood the log.
    pub fn log_dropped(&mut self, project: &ProjectId) {
        if self.dropped > self.dropped_logged {
            let dropped = self.dropped - self.dropped_logged;
            let (total, limit, bytes_max) = (self.dropped, self.len_max, self.bytes_max);
            tracing::warn!(%project, dropped, total, limit, bytes_max, "too many dead letters: the oldest were dropped");
            self.dropped_logged = self.dropped;
        }
    }
}

const SESSION_MIN: SessionId = SessionId::from_uuid(uuid::Uuid::nil());
