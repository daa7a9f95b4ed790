//! Rebuilds the state of a project from what a journal has persisted.

use std::sync::Arc;

use super::{
    account::StoreLimits,
    event_log::StoredEvents,
    inbox::Inbox,
    journal::{Journal, Key, KeyUse, NO_DEADLINE, ReceiptKey, ReportProgress},
    project::{Expiry, Ledger, ProjectState, StoredSession},
    questions::StoredQuestion,
    records::Records,
    yaps::StoredYaps,
};
use crate::{
    clock::Now,
    model::{
        DeadLetter, DeliveryStatus, Message, MessageId, ProjectId, RecipientStatus, SessionId, SessionRecord,
        Transformed,
    },
    storage::sessions::LastSign,
};

/// Everything that is persisted of a project, in any order.
#[derive(Debug, Default)]
pub struct StoredProject {
    /// Each with its last sign of life; None in the data of a version that kept none.
    pub sessions: Vec<(SessionRecord, Option<LastSign>)>,
    pub queued: Vec<StoredEntry>,
    /// The final ones.
    pub receipts: Vec<(ReceiptKey, MessageId, RecipientStatus)>,
    /// Each with its sequence, which orders them by the time at which they were given up.
    pub dead_letters: Vec<(u64, DeadLetter)>,
    /// Which of them are reported; None in the data of a version that reported none.
    pub report_progress: Option<ReportProgress>,
    /// Each with the time at which it becomes free, in milliseconds since the Unix epoch.
    pub idempotency_keys: Vec<(Key, u64, KeyUse)>,
    pub cross_project_targets: Vec<(MessageId, ProjectId)>,
    pub questions: Vec<StoredQuestion>,
    pub yaps: StoredYaps,
    pub records: Records,
    pub events: StoredEvents,
}

/// A message in an inbox.
#[derive(Debug)]
pub struct StoredEntry {
    pub session: SessionId,
    pub seq: u64,
    pub message: Arc<Message>,
    pub receipt: ReceiptKey,
    /// In milliseconds since the Unix epoch.
    pub accepted_at_ms: u64,
    /// When its time to live ends, in milliseconds since the Unix epoch.
    pub deadline_unix_ms: Option<u64>,
    pub deliveries: u32,
    /// What lenses did to it at the last delivery.
    pub transformed: Option<Arc<Transformed>>,
}

impl<J: Journal> ProjectState<J> {
    /// The state after a restart. Leased messages wait again with their deliveries counted. The journal receives the
    /// removal of what no longer fits the retention.
    pub fn restore(mut stored: StoredProject, project: ProjectId, limits: &StoreLimits, now: Now, journal: J) -> Self {
        let mut state = Self::with_journal(project, limits, journal);
        state.records = stored.records;
        // Higher than every epoch of before.
        state.last_epoch = now.unix_ms;
        for (record, sign) in stored.sessions {
            for name in record.names() {
                state.names.insert(name.clone(), record.id);
            }
            let record_bytes = record.stored_len();
            state.sessions_bytes += record_bytes;
            let session = StoredSession {
                record_bytes,
                inbox: Inbox::default(),
                record,
                claim: None,
                sign,
            };
            state.sessions.insert(session.record.id, session);
        }
        let mut receipts = stored.receipts;
        stored
            .queued
            .sort_unstable_by_key(|queued| (queued.session, queued.seq));
        for queued in stored.queued {
            receipts.push((queued.receipt, queued.message.id, queued.receipt_entry()));
            state.restore_queued(queued, now);
        }
        let ProjectState {
            journal,
            ledger,
            idempotency_keys,
            cross_project_targets,
            questions,
            yaps,
            ..
        } = &mut state;
        ledger.receipts.restore(receipts, journal);
        ledger.events.restore(stored.events, now);
        stored.dead_letters.sort_unstable_by_key(|(sequence, _)| *sequence);
        for (sequence, dead_letter) in stored.dead_letters {
            let Ledger {
                dead_letters, account, ..
            } = ledger;
            account.restore(&dead_letter.message);
            dead_letters.restore(dead_letter, sequence, account, journal);
        }
        ledger.dead_letters.restore_progress(stored.report_progress);
        stored
            .idempotency_keys
            .sort_by_key(|(_, until_unix_ms, _)| *until_unix_ms);
        for (key, until_unix_ms, key_use) in stored.idempotency_keys {
            idempotency_keys.restore(key, key_use, until_unix_ms, now, journal);
        }
        stored
            .cross_project_targets
            .sort_unstable_by_key(|(message, _)| *message);
        for (message, target) in stored.cross_project_targets {
            cross_project_targets.restore(message, target, journal);
        }
        questions.restore(stored.questions, now, journal);
        yaps.restore(stored.yaps, now, journal);
        state
    }

    /// Takes over the claims of the state that this one replaces, so that owners of sessions stay owners, and its open
    /// stores, which are swept again.
    pub fn adopt(&mut self, before: &Self) {
        for (id, stored) in &mut self.sessions {
            stored.claim = before.sessions.get(id).and_then(|before| before.claim);
        }
        self.last_epoch = self.last_epoch.max(before.last_epoch);
        self.claims = before.claims.clone();
        self.unswept = Arc::clone(&before.unswept);
        self.unswept.mark();
        self.roster_version = before.roster_version + 1;
    }

    fn restore_queued(&mut self, queued: StoredEntry, now: Now) {
        let Some(StoredSession { inbox, .. }) = self.sessions.get_mut(&queued.session) else {
            return;
        };
        self.ledger.account.restore(&queued.message);
        let deadline_ms = queued.deadline_unix_ms.map_or(NO_DEADLINE, |at| now.mono_at(at));
        let expiry = Expiry {
            deadline_ms,
            seq: queued.seq,
            session: queued.session,
            message: queued.message.id,
            priority: queued.message.priority,
        };
        inbox.restore(
            queued.message,
            queued.seq,
            queued.receipt,
            deadline_ms,
            queued.deliveries,
        );
        self.schedule_expiry(expiry);
    }
}

impl StoredEntry {
    fn receipt_entry(&self) -> RecipientStatus {
        RecipientStatus {
            session: self.session,
            status: DeliveryStatus::Queued,
            at_ms: self.accepted_at_ms,
            outcome: None,
            transformed: self.transformed.clone(),
        }
    }
}
