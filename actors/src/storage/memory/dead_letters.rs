use std::collections::BTreeMap;

use super::super::{
    DeadLetterQuery, DeadLetters as Found, LetterBeyond, Retention,
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
    letters: BTreeMap<Key, Kept>,
    by_death: BTreeMap<u64, Key>,
    deaths: u64,
    tally: Tally,
    len_max: usize,
    bytes_max: usize,
    dropped: u64,
    dropped_told: u64,
}

#[derive(Debug)]
struct Kept {
    letter: DeadLetter,
    death: u64,
}

impl DeadLetters {
    pub fn new(retention: &Retention) -> Self {
        Self {
            letters: BTreeMap::new(),
            by_death: BTreeMap::new(),
            deaths: 0,
            tally: Tally::default(),
            len_max: retention.dead_letters_len_max,
            bytes_max: retention.dead_letters_bytes_max,
            dropped: 0,
            dropped_told: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.letters.len()
    }

    pub const fn bytes(&self) -> usize {
        self.tally.bytes()
    }

    /// Keeps a letter whose message is in the account. What is dropped leaves it.
    pub fn keep(&mut self, letter: DeadLetter, account: &mut Account, journal: &mut impl Journal) {
        let death = self.deaths;
        if let Some(earlier) = self.take((letter.message.id, letter.recipient)) {
            journal.note(Change::LetterForgotten(&earlier));
            account.release(&earlier.message);
        }
        journal.note(Change::LetterKept { letter: &letter, death });
        self.restore(letter, death, account, journal);
    }

    /// What was kept before a restart.
    pub fn restore(&mut self, letter: DeadLetter, death: u64, account: &mut Account, journal: &mut impl Journal) {
        let key = (letter.message.id, letter.recipient);
        self.deaths = self.deaths.max(death + 1);
        self.tally.add(&letter.message);
        self.letters.insert(key, Kept { letter, death });
        self.by_death.insert(death, key);
        while self.letters.len() > self.len_max || self.tally.bytes() > self.bytes_max {
            let oldest = self.by_death.first_key_value().map(|(_, key)| *key);
            let Some(dropped) = oldest.and_then(|oldest| self.take(oldest)) else {
                return;
            };
            journal.note(Change::LetterForgotten(&dropped));
            account.release(&dropped.message);
            self.dropped += 1;
        }
    }

    pub fn take(&mut self, key: Key) -> Option<DeadLetter> {
        let kept = self.letters.remove(&key)?;
        self.by_death.remove(&kept.death);
        self.tally.remove(&kept.letter.message);
        Some(kept.letter)
    }

    pub fn message(&self, key: Key) -> Option<&Message> {
        Some(&self.letters.get(&key)?.letter.message)
    }

    /// For whom this message was given up.
    pub fn recipients(&self, message: MessageId) -> Vec<SessionId> {
        self.letters
            .range((message, FIRST)..)
            .take_while(|((id, _), _)| *id == message)
            .map(|((_, recipient), _)| *recipient)
            .collect()
    }

    pub fn list(&self, query: &DeadLetterQuery) -> Found {
        use std::ops::Bound::{Excluded, Unbounded};
        let mut found = Found::default();
        let mut room = query.bytes_max;
        let fitting = self
            .letters
            .range((query.after.map_or(Unbounded, Excluded), Unbounded))
            .map(|(_, kept)| &kept.letter)
            .filter(|letter| query.fits(letter));
        for letter in fitting.take(query.limit) {
            let bytes = envelope_bytes(&letter.message);
            if bytes > room {
                found.beyond = Some(LetterBeyond {
                    message: letter.message.id,
                    recipient: letter.recipient,
                    bytes,
                });
                break;
            }
            room -= bytes;
            found.letters.push(letter.clone());
        }
        found
    }

    /// Warns once of all that were dropped since the last time, so that a flood of them does not flood the log.
    pub fn tell_dropped(&mut self, project: &ProjectId) {
        if self.dropped > self.dropped_told {
            let dropped = self.dropped - self.dropped_told;
            let (total, limit, bytes_max) = (self.dropped, self.len_max, self.bytes_max);
            tracing::warn!(%project, dropped, total, limit, bytes_max, "too many dead letters: the oldest were dropped");
            self.dropped_told = self.dropped;
        }
    }
}

const FIRST: SessionId = SessionId::from_uuid(uuid::Uuid::nil());
