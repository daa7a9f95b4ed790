//! A project's state as it was before a restart, from what a journal kept of it.

use std::sync::Arc;

use super::{
    super::{
        account::StoreLimits,
        inbox::{Inbox, NO_DEADLINE},
        journal::Journal,
        receipts::ReceiptKey,
    },
    expiries::Expiry,
    idempotency::{Key, KeyUse},
    state::{Ledger, State, StoredSession},
};
use crate::{
    clock::Now,
    model::{
        DeadLetter, DeliveryStatus, Message, MessageId, ProjectId, ProtocolRecord, RecipientStatus, SessionId,
        SessionRecord,
    },
};

/// What is kept of a project, in any order.
#[derive(Debug, Default)]
pub(in super::super) struct StoredProject {
    pub sessions: Vec<SessionRecord>,
    pub protocols: Vec<Arc<ProtocolRecord>>,
    pub queued: Vec<StoredEntry>,
    /// Those that are final.
    pub receipts: Vec<(ReceiptKey, MessageId, RecipientStatus)>,
    /// Each with its place in the order in which they died.
    pub dead_letters: Vec<(u64, DeadLetter)>,
    /// Each with when it is free again, in milliseconds since the Unix epoch.
    pub idempotency_keys: Vec<(Key, u64, KeyUse)>,
    pub cross_project_targets: Vec<(MessageId, ProjectId)>,
}

/// A message in an inbox.
#[derive(Debug)]
pub(in super::super) struct StoredEntry {
    pub session: SessionId,
    pub seq: u64,
    pub message: Arc<Message>,
    pub receipt: ReceiptKey,
    /// Milliseconds since the Unix epoch.
    pub accepted_at_ms: u64,
    /// When its time to live ends, on the same clock.
    pub deadline_unix_ms: Option<u64>,
    pub deliveries: u32,
}

impl<J: Journal> State<J> {
    /// What was leased waits again, with its deliveries counted. The journal hears of what is too much for the
    /// retention by now.
    pub fn restore(mut kept: StoredProject, project: ProjectId, limits: &StoreLimits, now: Now, journal: J) -> Self {
        let mut state = Self::with_journal(project, limits, journal);
        // Above all claims of before.
        state.last_epoch = now.unix_ms;
        for record in kept.sessions {
            if let Some(name) = &record.name {
                state.names.insert(name.clone(), record.id);
            }
            let record_bytes = record.stored_len();
            state.sessions_bytes += record_bytes;
            let participant = StoredSession {
                record_bytes,
                inbox: Inbox::default(),
                record,
                claim: None,
            };
            state.sessions.insert(participant.record.id, participant);
        }
        for record in kept.protocols {
            let key = (record.name.clone(), record.version.clone());
            state.protocols.insert(key, record);
        }
        let mut receipts = kept.receipts;
        kept.queued.sort_unstable_by_key(|queued| (queued.session, queued.seq));
        for queued in kept.queued {
            receipts.push((queued.receipt, queued.message.id, queued.receipt_entry()));
            state.restore_queued(queued, now);
        }
        let State {
            journal,
            ledger,
            idempotency_keys: taken_keys,
            cross_project_targets: crossings,
            ..
        } = &mut state;
        ledger.receipts.restore(receipts, journal);
        kept.dead_letters.sort_unstable_by_key(|(death, _)| *death);
        for (death, letter) in kept.dead_letters {
            let Ledger {
                dead_letters, account, ..
            } = ledger;
            account.restore(&letter.message);
            dead_letters.restore(letter, death, account, journal);
        }
        kept.idempotency_keys
            .sort_by_key(|(_, until_unix_ms, _)| *until_unix_ms);
        for (key, until_unix_ms, by) in kept.idempotency_keys {
            taken_keys.restore(key, by, until_unix_ms, now, journal);
        }
        kept.cross_project_targets.sort_unstable_by_key(|(message, _)| *message);
        for (message, target) in kept.cross_project_targets {
            crossings.restore(message, target, journal);
        }
        state
    }

    /// The claims of the state that this one takes the place of: who has a session in hand keeps it.
    pub fn adopt_claims(&mut self, before: &Self) {
        for (id, participant) in &mut self.sessions {
            participant.claim = before.sessions.get(id).and_then(|before| before.claim);
        }
        self.last_epoch = self.last_epoch.max(before.last_epoch);
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
    const fn receipt_entry(&self) -> RecipientStatus {
        RecipientStatus {
            session: self.session,
            status: DeliveryStatus::Queued,
            at_ms: self.accepted_at_ms,
        }
    }
}
