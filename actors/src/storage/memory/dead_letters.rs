use std::collections::BTreeMap;

use super::super::{
    DeadLetterQuery,
    journal::{Change, Journal},
};
use crate::model::{DeadLetter, MessageId, ProjectId, SessionId};

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
    len_max: usize,
    dropped: u64,
    dropped_told: u64,
}

#[derive(Debug)]
struct Kept {
    letter: DeadLetter,
    death: u64,
}

impl DeadLetters {
    pub fn new(len_max: usize) -> Self {
        Self {
            letters: BTreeMap::new(),
            by_death: BTreeMap::new(),
            deaths: 0,
            len_max,
            dropped: 0,
            dropped_told: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.letters.len()
    }

    pub fn keep(&mut self, letter: DeadLetter, journal: &mut impl Journal) {
        let death = self.deaths;
        if let Some(earlier) = self.take((letter.message.id, letter.recipient)) {
            journal.note(Change::LetterForgotten(&earlier));
        }
        journal.note(Change::LetterKept { letter: &letter, death });
        self.restore(letter, death, journal);
    }

    /// What was kept before a restart.
    pub fn restore(&mut self, letter: DeadLetter, death: u64, journal: &mut impl Journal) {
        let key = (letter.message.id, letter.recipient);
        self.deaths = self.deaths.max(death + 1);
        self.letters.insert(key, Kept { letter, death });
        self.by_death.insert(death, key);
        while self.letters.len() > self.len_max {
            let Some((_, oldest)) = self.by_death.pop_first() else {
                return;
            };
            if let Some(oldest) = self.letters.remove(&oldest) {
                journal.note(Change::LetterForgotten(&oldest.letter));
            }
            self.dropped += 1;
        }
    }

    pub fn take(&mut self, key: Key) -> Option<DeadLetter> {
        let kept = self.letters.remove(&key)?;
        self.by_death.remove(&kept.death);
        Some(kept.letter)
    }

    /// For whom this message was given up.
    pub fn recipients(&self, message: MessageId) -> Vec<SessionId> {
        self.letters
            .range((message, FIRST)..)
            .take_while(|((id, _), _)| *id == message)
            .map(|((_, recipient), _)| *recipient)
            .collect()
    }

    pub fn list(&self, query: &DeadLetterQuery) -> Vec<DeadLetter> {
        use std::ops::Bound::{Excluded, Unbounded};
        let mut letters = Vec::new();
        let mut bytes = 0;
        let fitting = self
            .letters
            .range((query.after.map_or(Unbounded, Excluded), Unbounded))
            .map(|(_, kept)| &kept.letter)
            .filter(|letter| query.fits(letter));
        for letter in fitting.take(query.limit) {
            bytes += letter.message.stored_len();
            letters.push(letter.clone());
            if bytes > query.bytes_max && letters.len() > 1 {
                break;
            }
        }
        letters
    }

    /// Warns once of all that were dropped since the last time, so that a flood of them does not flood the log.
    pub fn tell_dropped(&mut self, project: &ProjectId) {
        if self.dropped > self.dropped_told {
            let dropped = self.dropped - self.dropped_told;
            let (total, limit) = (self.dropped, self.len_max);
            tracing::warn!(%project, dropped, total, limit, "too many dead letters: the oldest were dropped");
            self.dropped_told = self.dropped;
        }
    }
}

const FIRST: SessionId = SessionId::from_uuid(uuid::Uuid::nil());
