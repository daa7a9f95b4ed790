//! The state of one project: its sessions, the deadlines of its messages, and everything that the operations in `delivery.rs`
//! and `tracking.rs` work on.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
};

use super::{
    account::{Account, StoreLimits},
    claims::Claims,
    cross_project::CrossProjectTargets,
    dead_letters::DeadLetters,
    event_log::EventLog,
    idempotency::IdempotencyKeys,
    inbox::{Inbox, Selection},
    journal::{Change, Journal, NO_DEADLINE},
    questions::Questions,
    receipts::Receipts,
    records::Records,
    yaps::Yaps,
};
use crate::{
    clock::Now,
    model::{
        DeadLetterReason, MessageId, Priority, ProjectEvent, ProjectId, SessionChange, SessionId, SessionName,
        SessionRecord,
        id_map::{IdMap, IdSet},
    },
    storage::{
        claim::Claim,
        replicated::Heartbeat,
        retention::Usage,
        sessions::{Claimed, KEPT_AT_ONCE_BYTES, LastSign, PutOutcome, PutSession, Roster, SessionKey},
        unswept::Unswept,
    },
};

/// The state of one project. `J` receives every change; the memory backend ignores them.
#[derive(Debug)]
pub struct ProjectState<J = ()> {
    pub journal: J,
    pub(super) project: ProjectId,
    pub(super) queue_bytes_max: usize,
    pub(super) sessions_bytes_max: usize,
    /// The bytes of all session records.
    pub sessions_bytes: usize,
    pub sessions: IdMap<SessionId, StoredSession>,
    pub names: HashMap<SessionName, SessionId>,
    /// Counts the sessions that were put or removed.
    pub roster_version: u64,
    pub last_epoch: u64,
    pub idempotency_keys: IdempotencyKeys,
    pub ledger: Ledger,
    pub(super) expiries: Expiries,
    /// The latest time, in monotonic milliseconds, up to which `expiries` was processed. Callers read their clock
    /// before they take the lock, so an operation may bring an earlier time than the one before it.
    pub(super) expired_until_ms: u64,
    /// Sessions whose inbox lost a message to expiry since the last sweep.
    pub(super) expired_in: IdSet<SessionId>,
    pub cross_project_targets: CrossProjectTargets,
    pub questions: Questions,
    pub yaps: Yaps,
    pub records: Records,
    pub claims: Claims,
    /// Whether it was used since its last sweep.
    pub unswept: Arc<Unswept>,
}

/// A session with its inbox.
#[derive(Debug)]
pub struct StoredSession {
    pub inbox: Inbox,
    pub record: SessionRecord,
    /// See [`SessionRecord::stored_len`].
    pub record_bytes: usize,
    pub claim: Option<Claim>,
    /// None in the data of a version that kept none.
    pub sign: Option<LastSign>,
}

/// What is known about messages apart from the inboxes.
#[derive(Debug)]
pub struct Ledger {
    pub receipts: Receipts,
    pub dead_letters: DeadLetters,
    /// Every message in an inbox or among the dead letters.
    pub account: Account,
    /// What happened to them, and in the project.
    pub events: EventLog,
    /// The project that counts the dead letters.
    pub project: ProjectId,
}

impl ProjectState {
    /// The empty state of a project whose changes are not recorded.
    pub fn new(project: ProjectId, limits: &StoreLimits) -> Self {
        Self::with_journal(project, limits, ())
    }
}

impl<J: Journal> ProjectState<J> {
    /// The empty state of a project.
    pub fn with_journal(project: ProjectId, limits: &StoreLimits, journal: J) -> Self {
        let retention = &limits.retention;
        Self {
            journal,
            project: project.clone(),
            queue_bytes_max: retention.queue_bytes_max,
            sessions_bytes_max: retention.sessions_bytes_max,
            sessions_bytes: 0,
            sessions: IdMap::default(),
            names: HashMap::new(),
            roster_version: 0,
            last_epoch: 0,
            idempotency_keys: IdempotencyKeys::new(retention),
            ledger: Ledger {
                receipts: Receipts::new(retention.receipts_len_max),
                dead_letters: DeadLetters::new(retention),
                account: Account::new(limits),
                events: EventLog::new(limits, J::KEEPS_EVENTS),
                project,
            },
            expiries: Expiries::default(),
            expired_until_ms: 0,
            expired_in: IdSet::default(),
            cross_project_targets: CrossProjectTargets::new(retention.cross_project_targets_len_max),
            questions: Questions::new(retention),
            yaps: Yaps::default(),
            records: Records::default(),
            claims: Claims::default(),
            unswept: Arc::default(),
        }
    }

    /// See [`SessionStore::put_session`](crate::storage::SessionStore::put_session).
    pub fn put_session(&mut self, record: SessionRecord, condition: PutSession) -> PutOutcome {
        let id = record.id;
        let is_of_other = |name| self.names.get(name).is_some_and(|holder| *holder != id);
        if record.names().any(is_of_other) {
            return PutOutcome::NameTaken;
        }
        let len = self.sessions.len();
        let bytes = record.stored_len();
        let before = self.sessions.get(&id).map(|known| known.record_bytes);
        if before.is_none() && condition.must_exist {
            return PutOutcome::Gone;
        }
        if before.is_none() && condition.sessions_len_max.is_some_and(|max| len >= max) {
            return PutOutcome::TooManySessions;
        }
        let limit = self.sessions_bytes_max;
        let sessions_bytes = self.sessions_bytes - before.unwrap_or(0) + bytes;
        // A record that does not grow is accepted beyond the limit, for example after the limit was lowered.
        if sessions_bytes > limit && before.is_none_or(|before| bytes > before) {
            return PutOutcome::TooManyBytes { limit };
        }
        self.sessions_bytes = sessions_bytes;
        if let Some(known) = self.sessions.get_mut(&id) {
            known.record_bytes = bytes;
            known.sign = condition.sign.or(known.sign);
            for before in std::mem::replace(&mut known.record, record.clone()).names() {
                self.names.remove(before);
            }
        } else {
            let stored = StoredSession {
                inbox: Inbox::default(),
                record: record.clone(),
                record_bytes: bytes,
                claim: None,
                sign: condition.sign,
            };
            self.sessions.insert(id, stored);
        }
        for name in record.names() {
            self.names.insert(name.clone(), id);
        }
        self.roster_version += 1;
        self.record_session(id);
        PutOutcome::Stored
    }

    fn record_session(&mut self, id: SessionId) {
        let StoredSession { record, sign, .. } = &self.sessions[&id];
        self.journal.record(Change::SessionPut { record, sign: *sign });
    }

    /// See [`SessionStore::keep_heartbeats`](crate::storage::SessionStore::keep_heartbeats).
    pub fn keep_heartbeats(&mut self, heartbeats: &[Heartbeat], now: Now) -> usize {
        let (mut count, mut bytes) = (0, 0);
        for heartbeat in heartbeats {
            if bytes >= KEPT_AT_ONCE_BYTES {
                break;
            }
            count += 1;
            let Some(stored) = self.sessions.get_mut(&heartbeat.session) else {
                continue;
            };
            stored.sign = Some(LastSign::of(heartbeat, now));
            bytes += stored.record_bytes;
            self.record_session(heartbeat.session);
        }
        count
    }

    /// See [`SessionStore::kept_heartbeats`](crate::storage::SessionStore::kept_heartbeats).
    pub fn kept_heartbeats(&self, now: Now) -> Vec<Heartbeat> {
        let kept = self.sessions.iter();
        kept.filter_map(|(id, stored)| Some(stored.sign?.heartbeat(*id, now)))
            .collect()
    }

    /// See [`SessionStore::sessions`](crate::storage::SessionStore::sessions).
    pub fn sessions(&self) -> Roster {
        let records = self.sessions.values().map(|stored| stored.record.clone());
        Roster {
            version: self.roster_version,
            sessions: records.collect(),
        }
    }

    /// See [`SessionStore::find_session`](crate::storage::SessionStore::find_session).
    pub fn find_session(&self, wanted: &SessionKey) -> Option<SessionRecord> {
        let id = match wanted {
            SessionKey::Id(id) => id,
            SessionKey::Name(name) => self.names.get(name)?,
        };
        Some(self.sessions.get(id)?.record.clone())
    }

    /// See [`SessionStore::claim_session`](crate::storage::SessionStore::claim_session).
    pub fn claim_session(&mut self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Claimed {
        self.expire(now);
        let Some(stored) = self.sessions.get_mut(&session) else {
            return Claimed::default();
        };
        stored.claim = Some(claim);
        self.last_epoch += 1;
        Claimed {
            epoch: self.last_epoch,
            released: self.release_selected(session, Selection::All, delivery_limit, now),
        }
    }

    /// See [`SessionStore::remove_session`](crate::storage::SessionStore::remove_session).
    pub fn remove_session(&mut self, session: SessionId, reason: DeadLetterReason, now: Now) -> usize {
        self.expire(now);
        let Some(stored) = self.sessions.remove(&session) else {
            return 0;
        };
        for name in stored.record.names() {
            self.names.remove(name);
        }
        self.roster_version += 1;
        self.sessions_bytes -= stored.record_bytes;
        let entries = stored.inbox.into_entries();
        let count = entries.len();
        for entry in entries {
            self.expiries.message_removed(entry.deadline_ms);
            self.ledger
                .dead_letter(entry, &stored.record, reason, now, &mut self.journal);
        }
        self.journal.record(Change::SessionRemoved(session));
        let event = ProjectEvent::Session {
            session,
            name: stored.record.name,
            change: SessionChange::Ended,
        };
        self.ledger.events.record(&event, now);
        count
    }

    /// Reports to the journal what the event log has not written.
    pub fn flush_events(&mut self) {
        self.ledger.events.flush(&mut self.journal);
    }

    /// See [`Store::usage`](crate::storage::Store::usage).
    pub fn usage(&self) -> Usage {
        Usage {
            messages: self.ledger.account.bytes(),
            dead_letters: self.ledger.dead_letters.bytes(),
            sessions: self.sessions_bytes,
            idempotency_keys: self.idempotency_keys.bytes(),
            questions: self.questions.bytes(),
        }
    }

    /// The number of expiries, stale ones included.
    #[cfg(test)]
    pub fn expiries_len(&self) -> usize {
        self.expiries.len()
    }
}

/// The deadline of a message in an inbox, and how the inbox finds the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry {
    /// In milliseconds of the monotonic clock.
    pub deadline_ms: u64,
    pub seq: u64,
    pub session: SessionId,
    pub message: MessageId,
    pub priority: Priority,
}

/// The next deadlines. A message that leaves its inbox in time leaves its expiry behind; expiries without a message are
/// removed when they are more than half.
#[derive(Debug, Default)]
pub struct Expiries {
    heap: BinaryHeap<Reverse<Expiry>>,
    /// The number of messages with a deadline in the inboxes.
    pending_len: usize,
}

impl Expiries {
    const COMPACT_LEN_MIN: usize = 1024;

    /// `is_current` tells whether the message of an expiry is still in its inbox.
    pub fn push(&mut self, expiry: Expiry, stands: impl Fn(&Expiry) -> bool) {
        self.pending_len += 1;
        self.heap.push(Reverse(expiry));
        if self.heap.len() > Self::COMPACT_LEN_MIN && self.heap.len() > 2 * self.pending_len {
            self.heap.retain(|Reverse(expiry)| stands(expiry));
            self.heap.shrink_to(2 * self.heap.len());
        }
    }

    /// Called when a message with this deadline leaves its inbox.
    pub fn message_removed(&mut self, deadline_ms: u64) {
        if deadline_ms != NO_DEADLINE {
            self.pending_len = self.pending_len.saturating_sub(1);
        }
    }

    /// Removes and returns the next expiry that is due.
    pub fn pop_due(&mut self, now_mono_ms: u64) -> Option<Expiry> {
        let Reverse(next) = self.heap.peek()?;
        if next.deadline_ms > now_mono_ms {
            return None;
        }
        self.heap.pop().map(|Reverse(expiry)| expiry)
    }

    /// The deadline that is next, of a message that may have left its inbox, in milliseconds of the monotonic clock.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(next)| next.deadline_ms)
    }

    /// The number of expiries, stale ones included.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const MAX: usize = Expiries::COMPACT_LEN_MIN;

    fn expiry(deadline_ms: u64) -> Expiry {
        Expiry {
            deadline_ms,
            seq: deadline_ms,
            session: SessionId::from_uuid(Uuid::nil()),
            message: MessageId::from_uuid(Uuid::nil()),
            priority: Priority::Normal,
        }
    }

    /// Adds `count` expiries, then reports that `leaving` messages have left.
    fn push(expiries: &mut Expiries, count: usize, leaving: usize) {
        for at in 0..count {
            expiries.push(expiry(at as u64), |_| panic!("cleared away at {}", at + 1));
        }
        for _ in 0..leaving {
            expiries.message_removed(1);
        }
    }

    #[test]
    fn current_expiries_are_not_compacted() {
        push(&mut Expiries::default(), 3 * MAX, 0);
    }

    #[test]
    fn few_expiries_are_not_compacted_even_if_all_are_stale() {
        let mut expiries = Expiries::default();
        push(&mut expiries, MAX - 1, MAX - 1);
        push(&mut expiries, 1, 1);
        expiries.push(expiry(7), |expiry| expiry.deadline_ms == 7);
        assert!(expiries.len() < 10, "{}", expiries.len());
    }

    #[test]
    fn expiries_are_compacted_when_more_than_half_are_stale() {
        let mut expiries = Expiries::default();
        push(&mut expiries, 2 * MAX - 1, MAX);
        // Exactly half of them.
        push(&mut expiries, 1, 1);
        expiries.push(expiry(7), |expiry| expiry.deadline_ms < 5);
        assert_eq!(expiries.len(), 5 + 1, "five at first, and one of the second push");
        assert_eq!(expiries.pop_due(0), Some(expiry(0)));
    }
}
