//! What a project's memory store holds, and each operation on it. The time is an argument everywhere.
//!
//! Operations that look at waiting messages first bury those whose time is over, so that all of them see the same.
//! An acknowledgement does not: it is about what was delivered in time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use semver::Version;

use super::{
    super::{
        Acknowledge, Acknowledged, Append, Appended, Audience, Claim, Claimed, DeadLetterPage as Found,
        DeadLetterQuery, Delivery, Depth, Inserted, KeyReservation, Lease, PutOutcome, PutSession, RecipientRefusal,
        RedriveRefusal, Redriven, Release, Released, Roster, SendResult, SessionKey, Usage,
        account::{Account, StoreLimits},
        id_map::{IdMap, IdSet},
        inbox::{Disposition, Inbox, InboxEntry, NO_DEADLINE, Selection},
        journal::{Change, Journal},
        receipts::{ReceiptKey, Receipts},
    },
    cross_project::CrossProjectTargets,
    dead_letters::DeadLetters,
    expiries::{Expiries, Expiry},
    idempotency::{IdempotencyKeys, KeyUse},
};
use crate::{
    clock::Now,
    model::{
        DeadLetter, DeadLetterReason, DeliveryStatus, Message, MessageId, ProjectId, ProtocolName, ProtocolRecord,
        RecipientStatus, SessionId, SessionName, SessionRecord,
    },
};

/// `J` hears of every change; in memory nobody does.
#[derive(Debug)]
pub(in super::super) struct State<J = ()> {
    pub(in super::super) journal: J,
    project: ProjectId,
    queue_bytes_max: usize,
    sessions_bytes_max: usize,
    /// Of the records of all sessions.
    pub(super) sessions_bytes: usize,
    pub(super) sessions: IdMap<SessionId, StoredSession>,
    pub(super) names: HashMap<SessionName, SessionId>,
    /// How often a session was put or removed.
    pub(super) roster_version: u64,
    pub(super) last_epoch: u64,
    pub(super) protocols: BTreeMap<(ProtocolName, Version), Arc<ProtocolRecord>>,
    pub(super) idempotency_keys: IdempotencyKeys,
    pub(super) ledger: Ledger,
    expiries: Expiries,
    /// Up to when `expiries` was emptied. Callers read their clocks before they take the lock, so that an operation may
    /// bring an earlier time than the one before it.
    expired_until_ms: u64,
    /// Whose queues lost an expired message since the last sweep, whichever operation noticed it.
    expired_in: IdSet<SessionId>,
    pub(super) cross_project_targets: CrossProjectTargets,
}

#[derive(Debug)]
pub(super) struct StoredSession {
    pub inbox: Inbox,
    pub record: SessionRecord,
    /// See [`SessionRecord::stored_len`].
    pub record_bytes: usize,
    pub claim: Option<Claim>,
}

/// What is known of messages beside where they wait.
#[derive(Debug)]
pub(super) struct Ledger {
    pub receipts: Receipts,
    pub dead_letters: DeadLetters,
    /// Of every message in an inbox or among the dead letters.
    pub account: Account,
}

impl State {
    pub fn new(project: ProjectId, limits: &StoreLimits) -> Self {
        Self::with_journal(project, limits, ())
    }
}

impl<J: Journal> State<J> {
    pub fn with_journal(project: ProjectId, limits: &StoreLimits, journal: J) -> Self {
        let retention = &limits.retention;
        Self {
            journal,
            project,
            queue_bytes_max: retention.queue_bytes_max,
            sessions_bytes_max: retention.sessions_bytes_max,
            sessions_bytes: 0,
            sessions: IdMap::default(),
            names: HashMap::new(),
            roster_version: 0,
            last_epoch: 0,
            protocols: BTreeMap::new(),
            idempotency_keys: IdempotencyKeys::new(retention),
            ledger: Ledger {
                receipts: Receipts::new(retention.receipts_len_max),
                dead_letters: DeadLetters::new(retention),
                account: Account::new(limits),
            },
            expiries: Expiries::default(),
            expired_until_ms: 0,
            expired_in: IdSet::default(),
            cross_project_targets: CrossProjectTargets::new(retention.cross_project_targets_len_max),
        }
    }

    pub fn put_session(&mut self, record: SessionRecord, seat: PutSession) -> PutOutcome {
        let id = record.id;
        let holder = record.name.as_ref().and_then(|name| self.names.get(name));
        if holder.is_some_and(|holder| *holder != id) {
            return PutOutcome::NameTaken;
        }
        let len = self.sessions.len();
        let bytes = record.stored_len();
        let before = self.sessions.get(&id).map(|known| known.record_bytes);
        if before.is_none() && seat.must_exist {
            return PutOutcome::Gone;
        }
        if before.is_none() && seat.sessions_len_max.is_some_and(|max| len >= max) {
            return PutOutcome::TooManySessions;
        }
        let limit = self.sessions_bytes_max;
        let sessions_bytes = self.sessions_bytes - before.unwrap_or(0) + bytes;
        // A record that does not grow is kept though there be too much, as after a change of the limit.
        if sessions_bytes > limit && before.is_none_or(|before| bytes > before) {
            return PutOutcome::TooManyBytes { limit };
        }
        self.sessions_bytes = sessions_bytes;
        if let Some(known) = self.sessions.get_mut(&id) {
            known.record_bytes = bytes;
            if let Some(before) = std::mem::replace(&mut known.record, record.clone()).name {
                self.names.remove(&before);
            }
        } else {
            let participant = StoredSession {
                inbox: Inbox::default(),
                record: record.clone(),
                record_bytes: bytes,
                claim: None,
            };
            self.sessions.insert(id, participant);
        }
        if let Some(name) = record.name {
            self.names.insert(name, id);
        }
        self.roster_version += 1;
        self.journal.record(Change::SessionPut(&self.sessions[&id].record));
        PutOutcome::Stored
    }

    pub fn sessions(&self) -> Roster {
        let records = self.sessions.values().map(|participant| participant.record.clone());
        Roster {
            version: self.roster_version,
            sessions: records.collect(),
        }
    }

    pub fn find_session(&self, wanted: &SessionKey) -> Option<SessionRecord> {
        let id = match wanted {
            SessionKey::Id(id) => id,
            SessionKey::Name(name) => self.names.get(name)?,
        };
        Some(self.sessions.get(id)?.record.clone())
    }

    pub fn claim(&mut self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Claimed {
        self.expire(now);
        let Some(participant) = self.sessions.get_mut(&session) else {
            return Claimed::default();
        };
        participant.claim = Some(claim);
        self.last_epoch += 1;
        Claimed {
            epoch: self.last_epoch,
            released: self.release_selected(session, Selection::All, delivery_limit, now),
        }
    }

    pub fn remove_session(&mut self, session: SessionId, reason: DeadLetterReason, now: Now) -> usize {
        self.expire(now);
        let Some(participant) = self.sessions.remove(&session) else {
            return 0;
        };
        if let Some(name) = &participant.record.name {
            self.names.remove(name);
        }
        self.roster_version += 1;
        self.sessions_bytes -= participant.record_bytes;
        let items = participant.inbox.into_entries();
        let count = items.len();
        for item in items {
            self.expiries.message_removed(item.deadline_ms);
            self.ledger.dead_letter(item, session, reason, now, &mut self.journal);
        }
        self.journal.record(Change::SessionRemoved(session));
        count
    }

    pub fn insert_protocol(&mut self, record: Arc<ProtocolRecord>, len_max: Option<usize>) -> Inserted {
        use std::collections::btree_map::Entry::{Occupied, Vacant};
        let is_full = len_max.is_some_and(|max| self.protocols.len() >= max);
        match self.protocols.entry((record.name.clone(), record.version.clone())) {
            Occupied(there) => Inserted::Exists(Arc::clone(there.get())),
            Vacant(_) if is_full => Inserted::Full,
            Vacant(place) => {
                self.journal.record(Change::ProtocolInserted(&record));
                place.insert(record);
                Inserted::New
            }
        }
    }

    pub fn protocols(&self) -> Vec<Arc<ProtocolRecord>> {
        self.protocols.values().cloned().collect()
    }

    pub fn protocol(&self, name: ProtocolName, version: Version) -> Option<Arc<ProtocolRecord>> {
        self.protocols.get(&(name, version)).cloned()
    }

    pub fn append(&mut self, batch: Vec<Append>, now: Now) -> Vec<Appended> {
        self.expire(now);
        batch.into_iter().map(|append| self.append_one(append, now)).collect()
    }

    fn append_one(&mut self, append: Append, now: Now) -> Appended {
        let (id, audience_len) = (append.message.id, append.audience.ids().len());
        let key = append
            .idempotency_key
            .map(|key| (append.message.sender, Arc::from(key)));
        if let Some(by) = key
            .as_ref()
            .and_then(|key| self.idempotency_keys.get(key, now, &mut self.journal))
        {
            return match by {
                KeyUse::SendResult(first) => Appended::Duplicate(first.clone()),
                KeyUse::Reservation { .. } => Appended::KeyReserved,
            };
        }
        let (queue_len, refused, refusal) = match append.audience {
            Audience::One(to) => self.append_direct(append.message, to, append.queue_capacity, now),
            Audience::Many(to) => self.append_broadcast(&append.message, &to, append.queue_capacity, now),
        };
        if let Some(key) = key.filter(|_| refused.len() < audience_len) {
            let outcome = SendResult::accepted(id, audience_len, queue_len, refused.clone());
            let by = KeyUse::SendResult(outcome);
            self.idempotency_keys.put(key, by, now, &mut self.journal);
        }
        Appended::Accepted {
            queue_len,
            refused,
            refusal,
        }
    }

    fn append_direct(
        &mut self,
        message: Arc<Message>,
        to: SessionId,
        capacity: usize,
        now: Now,
    ) -> (usize, Vec<SessionId>, Option<RecipientRefusal>) {
        let (id, receipt) = (message.id, self.ledger.receipts.next_key(0));
        match self.accept(message, to, capacity, receipt, now) {
            Ok(queue_len) => {
                self.ledger.receipts.accept_one(id, to, now.unix_ms, &mut self.journal);
                (queue_len, Vec::new(), None)
            }
            Err(refusal) => (0, vec![to], Some(refusal)),
        }
    }

    fn append_broadcast(
        &mut self,
        message: &Arc<Message>,
        to: &[SessionId],
        capacity: usize,
        now: Now,
    ) -> (usize, Vec<SessionId>, Option<RecipientRefusal>) {
        let mut accepted = Vec::with_capacity(to.len());
        let (mut longest, mut refused, mut refusal) = (0, Vec::new(), None);
        for &session in to {
            let receipt = self.ledger.receipts.next_key(accepted.len());
            match self.accept(message.clone(), session, capacity, receipt, now) {
                Ok(queue_len) => {
                    longest = longest.max(queue_len);
                    accepted.push(session);
                }
                Err(why) => {
                    refused.push(session);
                    refusal = Some(why);
                }
            }
        }
        if !accepted.is_empty() {
            self.ledger
                .receipts
                .accept_many(message.id, &accepted, now.unix_ms, &mut self.journal);
        }
        (longest, refused, refusal)
    }

    /// Has a new message wait for a session where there is room for it. Returns how many wait for the session then.
    fn accept(
        &mut self,
        message: Arc<Message>,
        to: SessionId,
        capacity: usize,
        receipt: ReceiptKey,
        now: Now,
    ) -> Result<usize, RecipientRefusal> {
        let inbox = &self.sessions.get(&to).ok_or(RecipientRefusal::Gone)?.inbox;
        let dead_bytes = self.ledger.dead_letters.bytes();
        inbox
            .check_room(&message, capacity, self.queue_bytes_max)
            .and_then(|()| self.ledger.account.charge(&message, dead_bytes))
            .map_err(RecipientRefusal::Full)?;
        Ok(self.enqueue(message, to, receipt, now))
    }

    /// Returns how many wait for the session then; 0 for one that is not known.
    fn enqueue(&mut self, message: Arc<Message>, to: SessionId, receipt: ReceiptKey, now: Now) -> usize {
        let Some(StoredSession { inbox, .. }) = self.sessions.get_mut(&to) else {
            return 0;
        };
        let deadline_ms = message.ttl.map_or(NO_DEADLINE, |ttl| now.mono_after(ttl));
        let (id, priority) = (message.id, message.priority);
        self.journal.record(Change::MessageQueued {
            session: to,
            seq: inbox.next_seq(),
            message: &message,
            receipt,
            now,
        });
        let seq = inbox.push(message, receipt, deadline_ms);
        let queue_len = inbox.waiting_len();
        self.schedule_expiry(Expiry {
            deadline_ms,
            seq,
            session: to,
            message: id,
            priority,
        });
        queue_len
    }

    pub(super) fn schedule_expiry(&mut self, expiry: Expiry) {
        if expiry.deadline_ms == NO_DEADLINE {
            return;
        }
        let participants = &self.sessions;
        self.expiries.push(expiry, |expiry| {
            participants
                .get(&expiry.session)
                .is_some_and(|participant| participant.inbox.contains(expiry.message, expiry.priority, expiry.seq))
        });
    }

    pub fn update_send_result(&mut self, sender: SessionId, key: String, outcome: SendResult) {
        let key = (sender, key.into());
        self.idempotency_keys.complete(&key, outcome, &mut self.journal);
    }

    pub fn reserve_key(&mut self, sender: SessionId, key: String, target: ProjectId, now: Now) -> KeyReservation {
        let key = (sender, key.into());
        self.idempotency_keys.reserve(key, target, now, &mut self.journal)
    }

    pub fn complete_reservation(&mut self, sender: SessionId, key: String, outcome: SendResult) {
        let key = (sender, key.into());
        self.idempotency_keys
            .complete_reservation(&key, outcome, &mut self.journal);
    }

    pub fn cancel_reservation(&mut self, sender: SessionId, key: String) {
        let key = (sender, key.into());
        self.idempotency_keys.cancel_reservation(&key, &mut self.journal);
    }

    pub fn lease(&mut self, session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Lease {
        self.expire(now);
        let Some(StoredSession { inbox, claim, .. }) = self.sessions.get_mut(&session) else {
            return Lease::default();
        };
        if by.is_some() && by != *claim {
            return Lease {
                depth: inbox.depth(),
                superseded: true,
                ..Lease::default()
            };
        }
        let (receipts, journal) = (&mut self.ledger.receipts, &mut self.journal);
        let mut deliveries = Vec::with_capacity(limit.min(inbox.waiting_len()));
        let beyond = inbox.lease(limit, bytes_max, |item| {
            receipts.set(
                item.receipt,
                item.message.id,
                DeliveryStatus::Delivered,
                now.unix_ms,
                journal,
            );
            journal.record(Change::MessageDelivered(item));
            deliveries.push(Delivery {
                message: item.message.clone(),
                count: item.deliveries,
            });
        });
        Lease {
            deliveries,
            depth: inbox.depth(),
            blocked_bytes: beyond,
            ..Lease::default()
        }
    }

    pub fn acknowledge(&mut self, session: SessionId, which: Acknowledge, now: Now) -> Acknowledged {
        let mut answer = Acknowledged::default();
        let Some(StoredSession { inbox, .. }) = self.sessions.get_mut(&session) else {
            answer.unknown = match which {
                Acknowledge::Ids(ids) => ids,
                Acknowledge::UpTo(id) => vec![id],
            };
            return answer;
        };
        let mut done = |item: InboxEntry| {
            self.expiries.message_removed(item.deadline_ms);
            let (receipts, journal) = (&mut self.ledger.receipts, &mut self.journal);
            let status = DeliveryStatus::Acknowledged;
            receipts.set(item.receipt, item.message.id, status, now.unix_ms, journal);
            journal.record(Change::MessageRemoved(&item));
            answer.acknowledged += 1;
            self.ledger.account.release(&item.message);
            if item.message.progress.subscribe().is_some() {
                answer.tracked.push(item.message);
            }
        };
        match which {
            Acknowledge::Ids(ids) => {
                for id in ids {
                    match inbox.acknowledge(id) {
                        Some(item) => done(item),
                        None => answer.unknown.push(id),
                    }
                }
            }
            Acknowledge::UpTo(id) => {
                if !inbox.acknowledge_up_to(id, done) {
                    answer.unknown.push(id);
                }
            }
        }
        answer.depth = inbox.depth();
        answer
    }

    pub fn release(&mut self, session: SessionId, which: &Release, delivery_limit: u32, now: Now) -> Released {
        self.expire(now);
        let held_by_another =
            |claim| matches!(self.sessions.get(&session), Some(participant) if participant.claim != Some(claim));
        let which = match which {
            Release::Claimed(claim) if held_by_another(*claim) => Selection::Ids(&[]),
            // This process alone knows of signs of life, and has looked.
            Release::Claimed(_) | Release::Silent(_) => Selection::All,
            Release::Ids(ids) => Selection::Ids(ids),
        };
        self.release_selected(session, which, delivery_limit, now)
    }

    fn release_selected(
        &mut self,
        session: SessionId,
        which: Selection<'_>,
        delivery_limit: u32,
        now: Now,
    ) -> Released {
        let Some(StoredSession { inbox, .. }) = self.sessions.get_mut(&session) else {
            return Released::default();
        };
        let (mut returned, mut dead) = (0, 0);
        inbox.release(which, delivery_limit, self.expired_until_ms, |fate| match fate {
            Disposition::Requeued(item) => {
                returned += 1;
                let (receipts, journal) = (&mut self.ledger.receipts, &mut self.journal);
                receipts.set(
                    item.receipt,
                    item.message.id,
                    DeliveryStatus::Queued,
                    now.unix_ms,
                    journal,
                );
            }
            Disposition::DeadLettered(item, reason) => {
                dead += 1;
                self.expiries.message_removed(item.deadline_ms);
                self.ledger.dead_letter(item, session, reason, now, &mut self.journal);
            }
        });
        Released {
            returned,
            dead,
            depth: inbox.depth(),
        }
    }

    pub fn depth(&self, session: SessionId) -> Depth {
        self.sessions
            .get(&session)
            .map_or_else(Depth::default, |participant| participant.inbox.depth())
    }

    pub fn sweep(&mut self, now: Now) -> Vec<(SessionId, usize)> {
        self.expire(now);
        self.idempotency_keys.remove_expired(now, &mut self.journal);
        self.idempotency_keys.log_dropped(&self.project);
        self.ledger.dead_letters.log_dropped(&self.project);
        let thinned = std::mem::take(&mut self.expired_in);
        let waiting_len = |session| {
            self.sessions
                .get(&session)
                .map(|participant| participant.inbox.waiting_len())
        };
        thinned
            .into_iter()
            .filter_map(|session| Some((session, waiting_len(session)?)))
            .collect()
    }

    pub fn message_status(&mut self, message: MessageId, now: Now) -> Option<Vec<RecipientStatus>> {
        self.expire(now);
        self.ledger.receipts.get(message)
    }

    pub fn dead_letters(&self, query: &DeadLetterQuery) -> Found {
        self.ledger.dead_letters.list(query)
    }

    pub fn put_cross_project_target(&mut self, message: MessageId, target: ProjectId) {
        self.cross_project_targets.put(message, target, &mut self.journal);
    }

    pub fn cross_project_target(&self, message: MessageId) -> Option<ProjectId> {
        self.cross_project_targets.get(message).cloned()
    }

    pub fn cross_project_targets(&self) -> Vec<ProjectId> {
        self.cross_project_targets.targets()
    }

    pub fn dead_letter_count(&self) -> usize {
        self.ledger.dead_letters.len()
    }

    pub fn usage(&self) -> Usage {
        Usage {
            messages: self.ledger.account.bytes(),
            dead_letters: self.ledger.dead_letters.bytes(),
            sessions: self.sessions_bytes,
            idempotency_keys: self.idempotency_keys.bytes(),
        }
    }

    pub fn redrive(
        &mut self,
        messages: Vec<MessageId>,
        recipient: Option<SessionId>,
        capacity: usize,
        now: Now,
    ) -> Redriven {
        self.expire(now);
        let mut answer = Redriven::default();
        for message in messages {
            let given_up_for = self.ledger.dead_letters.recipients(message);
            if given_up_for.is_empty() {
                answer.unknown.push(message);
            }
            for from in given_up_for {
                let to = recipient.unwrap_or(from);
                match self.redrive_one((message, from), to, capacity, now) {
                    Ok(queue_len) => answer.sent.push((message, to, queue_len)),
                    Err(refusal) => answer.refused.push((message, refusal)),
                }
            }
        }
        answer
    }

    #[cfg(test)]
    pub fn expiries_len(&self) -> usize {
        self.expiries.len()
    }

    fn redrive_one(
        &mut self,
        letter: (MessageId, SessionId),
        to: SessionId,
        capacity: usize,
        now: Now,
    ) -> Result<usize, RedriveRefusal> {
        let inbox = &self.sessions.get(&to).ok_or(RedriveRefusal::RecipientGone)?.inbox;
        if self.ledger.receipts.is_open(letter.0, to) {
            // It has its own copy: of a broadcast, or of a redrive just before. A second one would be a repeat.
            if let Some(letter) = self.ledger.dead_letters.take(letter) {
                self.journal.record(Change::DeadLetterRemoved(&letter));
                self.ledger.account.release(&letter.message);
            }
            return Ok(inbox.waiting_len());
        }
        let waiting_len = inbox.waiting_len();
        let Some(message) = self.ledger.dead_letters.message(letter) else {
            return Ok(waiting_len);
        };
        // The project keeps the message already: its own budget says nothing.
        inbox
            .check_room(message, capacity, self.queue_bytes_max)
            .map_err(|_| RedriveRefusal::QueueFull)?;
        let Some(letter) = self.ledger.dead_letters.take(letter) else {
            return Ok(waiting_len);
        };
        self.journal.record(Change::DeadLetterRemoved(&letter));
        let DeadLetter { message, recipient, .. } = letter;
        let message = if to == recipient || message.recipient.is_none() {
            message
        } else {
            Arc::new(message.readdressed(to))
        };
        let receipt = self
            .ledger
            .receipts
            .requeue(message.id, to, now.unix_ms, &mut self.journal);
        Ok(self.enqueue(message, to, receipt, now))
    }

    /// Buries what has waited beyond its time.
    fn expire(&mut self, now: Now) {
        self.expired_until_ms = self.expired_until_ms.max(now.mono_ms);
        while let Some(expiry) = self.expiries.pop_due(now.mono_ms) {
            let Some(StoredSession { inbox, .. }) = self.sessions.get_mut(&expiry.session) else {
                continue;
            };
            // None when it was acknowledged, or is leased: then its release sees that it is too late.
            if let Some(item) = inbox.expire(expiry.message, expiry.priority, expiry.seq) {
                self.expiries.message_removed(item.deadline_ms);
                let (session, reason) = (expiry.session, DeadLetterReason::Expired);
                self.ledger.dead_letter(item, session, reason, now, &mut self.journal);
                self.expired_in.insert(expiry.session);
            }
        }
    }
}

impl Ledger {
    /// Makes a dead letter of a message that has left its inbox. Tells the waiting sender, as nobody else sees it.
    fn dead_letter(
        &mut self,
        item: InboxEntry,
        recipient: SessionId,
        reason: DeadLetterReason,
        now: Now,
        journal: &mut impl Journal,
    ) {
        let status = match reason {
            DeadLetterReason::Expired => DeliveryStatus::Expired,
            reason => DeliveryStatus::DeadLettered(reason),
        };
        self.receipts
            .set(item.receipt, item.message.id, status, now.unix_ms, journal);
        item.message.progress.advance_to(status);
        let letter = DeadLetter {
            message: Arc::clone(&item.message),
            recipient,
            reason,
            at_ms: now.unix_ms,
            deliveries: item.deliveries,
        };
        self.dead_letters.insert(letter, &mut self.account, journal);
        journal.record(Change::MessageRemoved(&item));
    }
}
