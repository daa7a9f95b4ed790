//! The dead letters of a project, bounded in number and bytes.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    account::{Account, Tally},
    journal::{Change, Journal, ReportProgress},
};
use crate::{
    model::{DeadLetter, Message, MessageId, ProjectId, SessionId},
    storage::{
        dead_letters::{
            BlockedDeadLetter, DeadLetterPage, DeadLetterQuery, REPORT_BYTES_MAX, REPORT_LEN_MAX, Unreported,
        },
        retention::{Retention, envelope_bytes},
    },
};

type Key = (MessageId, SessionId);

/// Messages that were given up, until they are redriven or dropped.
///
/// They are listed in the order of message ids, so that a cursor stays valid when its dead letter is gone. They are
/// dropped in the order in which they were given up, so that the long inbox of a removed session is not dropped first.
#[derive(Debug)]
pub struct DeadLetters {
    by_key: BTreeMap<Key, Entry>,
    by_sequence: BTreeMap<u64, Key>,
    next_sequence: u64,
    tally: Tally,
    len_max: usize,
    bytes_max: usize,
    dropped: u64,
    dropped_logged: u64,
    progress: ReportProgress,
    /// The journal has received `progress`.
    is_progress_recorded: bool,
}

#[derive(Debug)]
struct Entry {
    dead_letter: DeadLetter,
    sequence: u64,
}

impl DeadLetters {
    /// No dead letters, with the limits of `retention`.
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
            progress: ReportProgress::default(),
            is_progress_recorded: false,
        }
    }

    /// The number of dead letters.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The bytes of the dead letters.
    pub const fn bytes(&self) -> usize {
        self.tally.bytes()
    }

    /// Adds a dead letter whose message is in the account already. Dropped ones leave the account.
    pub fn insert(&mut self, dead_letter: DeadLetter, account: &mut Account, journal: &mut impl Journal) {
        let sequence = self.next_sequence;
        if !self.is_progress_recorded {
            self.record_progress(journal);
        }
        if let Some(earlier) = self.take((dead_letter.message.id, dead_letter.recipient)) {
            journal.record(Change::DeadLetterRemoved(&earlier));
            account.release(&earlier.message);
        }
        journal.record(Change::DeadLetterKept {
            dead_letter: &dead_letter,
            sequence,
        });
        self.restore(dead_letter, sequence, account, journal);
    }

    /// Adds a dead letter that was kept before a restart.
    pub fn restore(
        &mut self,
        dead_letter: DeadLetter,
        sequence: u64,
        account: &mut Account,
        journal: &mut impl Journal,
    ) {
        let key = (dead_letter.message.id, dead_letter.recipient);
        self.next_sequence = self.next_sequence.max(sequence + 1);
        self.tally.add(&dead_letter.message);
        self.by_key.insert(key, Entry { dead_letter, sequence });
        self.by_sequence.insert(sequence, key);
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

    /// Takes over which dead letters were reported before a restart. Called once all of them are restored; where the
    /// journal says nothing, they are of an earlier version, and none of them is reported.
    pub fn restore_progress(&mut self, progress: Option<ReportProgress>) {
        self.is_progress_recorded = progress.is_some();
        self.progress = progress.unwrap_or(ReportProgress {
            reported: self.next_sequence,
            claimed: None,
        });
        let last = self.progress.claimed.unwrap_or(self.progress.reported);
        self.next_sequence = self.next_sequence.max(last);
    }

    /// Whether [`Self::unreported`] gives something.
    pub const fn has_unreported(&self) -> bool {
        self.next_sequence != self.progress.reported
    }

    /// See [`DeadLetterStore::unreported`](crate::storage::DeadLetterStore::unreported).
    pub fn unreported(&mut self, journal: &mut impl Journal) -> Unreported {
        if !self.has_unreported() {
            return Unreported::default();
        }
        let until = self.progress.claimed.unwrap_or_else(|| {
            let until = self.end_of_next_report();
            self.progress.claimed = Some(until);
            self.record_progress(journal);
            until
        });
        let dead_letters = self.by_sequence.range(self.progress.reported..until);
        let dead_letters = dead_letters.filter_map(|(_, key)| Some(self.by_key.get(key)?.dead_letter.clone()));
        Unreported {
            until: Some(until),
            dead_letters: dead_letters.collect(),
        }
    }

    /// The sequence behind the dead letters that are reported together.
    fn end_of_next_report(&self) -> u64 {
        let mut bytes = 0;
        for (len, (sequence, key)) in self.by_sequence.range(self.progress.reported..).enumerate() {
            bytes += self
                .by_key
                .get(key)
                .map_or(0, |entry| envelope_bytes(&entry.dead_letter.message));
            if len == REPORT_LEN_MAX || len > 0 && bytes > REPORT_BYTES_MAX {
                return *sequence;
            }
        }
        self.next_sequence
    }

    /// See [`DeadLetterStore::mark_reported`](crate::storage::DeadLetterStore::mark_reported).
    pub fn mark_reported(&mut self, until: u64, journal: &mut impl Journal) {
        if self.progress.claimed == Some(until) {
            self.progress = ReportProgress {
                reported: until,
                claimed: None,
            };
            self.record_progress(journal);
        }
    }

    fn record_progress(&mut self, journal: &mut impl Journal) {
        self.is_progress_recorded = true;
        journal.record(Change::ReportProgress(self.progress));
    }

    /// Removes a dead letter.
    pub fn take(&mut self, key: Key) -> Option<DeadLetter> {
        let kept = self.by_key.remove(&key)?;
        self.by_sequence.remove(&kept.sequence);
        self.tally.remove(&kept.dead_letter.message);
        Some(kept.dead_letter)
    }

    /// The message of a dead letter.
    pub fn message(&self, key: Key) -> Option<&Message> {
        Some(&self.by_key.get(&key)?.dead_letter.message)
    }

    /// The message of one of the dead letters with this id.
    pub fn any_message(&self, id: MessageId) -> Option<Arc<Message>> {
        let (_, entry) = self.by_key.range((id, SESSION_MIN)..).next()?;
        let message = &entry.dead_letter.message;
        (message.id == id).then(|| Arc::clone(message))
    }

    /// The recipients for which this message was given up.
    pub fn recipients(&self, message: MessageId) -> Vec<SessionId> {
        self.by_key
            .range((message, SESSION_MIN)..)
            .take_while(|((id, _), _)| *id == message)
            .map(|((_, recipient), _)| *recipient)
            .collect()
    }

    /// A page of dead letters.
    pub fn list(&self, query: &DeadLetterQuery) -> DeadLetterPage {
        use std::ops::Bound::{Excluded, Unbounded};
        let mut found = DeadLetterPage::default();
        let mut room = query.bytes_max;
        let fitting = self
            .by_key
            .range((query.after.map_or(Unbounded, Excluded), Unbounded))
            .map(|(_, kept)| &kept.dead_letter)
            .filter(|dead_letter| query.matches(dead_letter));
        for dead_letter in fitting.take(query.limit) {
            let bytes = envelope_bytes(&dead_letter.message);
            if bytes > room {
                found.blocked = Some(BlockedDeadLetter {
                    message: dead_letter.message.id,
                    recipient: dead_letter.recipient,
                    bytes,
                });
                break;
            }
            room -= bytes;
            found.dead_letters.push(dead_letter.clone());
        }
        found
    }

    /// Logs one warning for all dead letters dropped since the last call, so that a flood of them does not flood the
    /// log.
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
