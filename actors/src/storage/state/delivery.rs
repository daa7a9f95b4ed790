//! Append, lease, acknowledge, release and expiry.
//!
//! Operations that look at waiting messages first move expired ones to the dead letters, so that all of them agree. An
//! acknowledgement does not: the message was delivered in time.

use std::{sync::Arc, time::Duration};

use super::{
    inbox::{Disposition, Inbox, Selection},
    journal::{Change, InboxEntry, Journal, KeyUse, NO_DEADLINE, ReceiptKey},
    project::{Expiry, Ledger, ProjectState, StoredSession},
};
use crate::{
    clock::Now,
    model::{DeadLetterReason, DeliveryStatus, Message, MessageId, Outcome, SessionId},
    storage::{
        claim::Claim,
        inboxes::{
            Acknowledge, Acknowledged, Append, Appended, Audience, Delivery, Depth, Lease, Peeked, RecipientRefusal,
            Release, Released, Swept,
        },
        tracking::SendResult,
    },
};

impl<J: Journal> ProjectState<J> {
    /// See [`InboxStore::append`](crate::storage::InboxStore::append).
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
            let result = SendResult::accepted(id, audience_len, queue_len, refused.clone());
            let by = KeyUse::SendResult(result);
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
        if let Err(refusal) = self.charge(&message, to, capacity) {
            return (0, vec![to], Some(refusal));
        }
        self.ledger.events.accepted(&message, &[to], now);
        let queue_len = self.enqueue(message, to, receipt, now);
        self.ledger.receipts.accept_one(id, to, now.unix_ms, &mut self.journal);
        (queue_len, Vec::new(), None)
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
            match self.charge(message, session, capacity) {
                Ok(()) => {
                    longest = longest.max(self.enqueue(Arc::clone(message), session, receipt, now));
                    accepted.push(session);
                }
                Err(why) => {
                    refused.push(session);
                    refusal = Some(why);
                }
            }
        }
        if !accepted.is_empty() {
            self.ledger.events.accepted(message, &accepted, now);
            self.ledger
                .receipts
                .accept_many(message.id, &accepted, now.unix_ms, &mut self.journal);
        }
        (longest, refused, refusal)
    }

    /// Takes the room that a new message needs in an inbox.
    ///
    /// # Errors
    /// [`RecipientRefusal`]: the session is unknown, or a budget is full.
    fn charge(&mut self, message: &Message, to: SessionId, capacity: usize) -> Result<(), RecipientRefusal> {
        let inbox = &self.sessions.get(&to).ok_or(RecipientRefusal::Gone)?.inbox;
        let dead_bytes = self.ledger.dead_letters.bytes();
        inbox
            .check_room(message, capacity, self.queue_bytes_max)
            .and_then(|()| self.ledger.account.charge(message, dead_bytes))
            .map_err(RecipientRefusal::Full)
    }

    /// Adds a message to an inbox without a check. Returns the number of messages that wait there; 0 for an unknown
    /// session.
    pub(super) fn enqueue(&mut self, message: Arc<Message>, to: SessionId, receipt: ReceiptKey, now: Now) -> usize {
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

    /// Adds the deadline of a message in an inbox, if it has one.
    pub fn schedule_expiry(&mut self, expiry: Expiry) {
        if expiry.deadline_ms == NO_DEADLINE {
            return;
        }
        let sessions = &self.sessions;
        self.expiries.push(expiry, |expiry| {
            sessions
                .get(&expiry.session)
                .is_some_and(|stored| stored.inbox.contains(expiry.message, expiry.priority, expiry.seq))
        });
    }

    /// See [`InboxStore::lease`](crate::storage::InboxStore::lease).
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
        let Ledger { receipts, events, .. } = &mut self.ledger;
        let journal = &mut self.journal;
        let mut deliveries = Vec::with_capacity(limit.min(inbox.waiting_len()));
        let blocked_bytes = inbox.lease(limit, bytes_max, |entry| {
            receipts.set(
                entry.receipt,
                entry.message.id,
                DeliveryStatus::Delivered,
                now.unix_ms,
                journal,
            );
            events.delivered(entry.message.id, session, entry.deliveries, now);
            journal.record(Change::MessageDelivered(entry));
            deliveries.push(Delivery {
                message: entry.message.clone(),
                count: entry.deliveries,
            });
        });
        Lease {
            deliveries,
            depth: inbox.depth(),
            blocked_bytes,
            ..Lease::default()
        }
    }

    /// See [`InboxStore::acknowledge`](crate::storage::InboxStore::acknowledge).
    pub fn acknowledge(&mut self, session: SessionId, which: Acknowledge, now: Now) -> Acknowledged {
        let (which, take): (_, fn(&mut Inbox, MessageId) -> Option<InboxEntry>) = match which {
            Acknowledge::Concluded(ids, outcome) => return self.conclude(session, ids, &outcome, now),
            Acknowledge::Ids(ids) => (Ok(ids), Inbox::acknowledge),
            Acknowledge::Seen(ids) => (Ok(ids), Inbox::remove),
            Acknowledge::UpTo(id) => (Err(id), Inbox::acknowledge),
        };
        let mut answer = Acknowledged::default();
        let Some(StoredSession { inbox, .. }) = self.sessions.get_mut(&session) else {
            answer.unknown = which.unwrap_or_else(|id| vec![id]);
            return answer;
        };
        let mut done = |entry: InboxEntry| {
            self.expiries.message_removed(entry.deadline_ms);
            let (receipts, journal) = (&mut self.ledger.receipts, &mut self.journal);
            let status = DeliveryStatus::Acknowledged;
            receipts.set(entry.receipt, entry.message.id, status, now.unix_ms, journal);
            self.ledger.events.acknowledged(entry.message.id, session, now);
            journal.record(Change::MessageRemoved(&entry));
            answer.acknowledged += 1;
            self.ledger.account.release(&entry.message);
            if entry.message.progress.subscribe().is_some() {
                answer.tracked.push(entry.message);
            }
        };
        match which {
            Ok(ids) => {
                for id in ids {
                    match take(inbox, id) {
                        Some(entry) => done(entry),
                        None => answer.unknown.push(id),
                    }
                }
            }
            Err(id) => {
                if !inbox.acknowledge_up_to(id, done) {
                    answer.unknown.push(id);
                }
            }
        }
        answer.depth = inbox.depth();
        answer
    }

    /// Acknowledges or rejects messages with an outcome.
    fn conclude(&mut self, session: SessionId, ids: Vec<MessageId>, outcome: &Arc<Outcome>, now: Now) -> Acknowledged {
        let mut answer = Acknowledged::default();
        let Some(StoredSession { inbox, record, .. }) = self.sessions.get_mut(&session) else {
            answer.unknown = ids;
            return answer;
        };
        for id in ids {
            let Some(entry) = inbox.acknowledge(id) else {
                answer.unknown.push(id);
                continue;
            };
            answer.acknowledged += 1;
            self.expiries.message_removed(entry.deadline_ms);
            let (ledger, journal) = (&mut self.ledger, &mut self.journal);
            let receipt = entry.receipt;
            if let Some(reason) = outcome.kind.dead_letter_reason() {
                answer.dead += 1;
                ledger.dead_letter(entry, record, reason, now, journal);
            } else {
                let status = DeliveryStatus::Acknowledged;
                ledger.receipts.set(receipt, id, status, now.unix_ms, journal);
                ledger.events.acknowledged(id, session, now);
                journal.record(Change::MessageRemoved(&entry));
                ledger.account.release(&entry.message);
                if entry.message.progress.subscribe().is_some() {
                    answer.tracked.push(entry.message);
                }
            }
            ledger.receipts.set_outcome(receipt, id, outcome, journal);
        }
        answer.depth = inbox.depth();
        answer
    }

    /// See [`InboxStore::release`](crate::storage::InboxStore::release).
    pub fn release(&mut self, session: SessionId, which: &Release, delivery_limit: u32, now: Now) -> Released {
        self.expire(now);
        let held_by_another =
            |claim| matches!(self.sessions.get(&session), Some(stored) if stored.claim != Some(claim));
        let which = match which {
            Release::Claimed(claim) if held_by_another(*claim) => Selection::Ids(&[]),
            // In one process the caller knows every heartbeat and has checked them.
            Release::Claimed(_) | Release::Silent(_) => Selection::All,
            Release::Ids(ids) => Selection::Ids(ids),
            Release::Undelivered(ids) => Selection::Undelivered(ids),
        };
        self.release_selected(session, which, delivery_limit, now)
    }

    /// Releases the selected leases.
    pub(super) fn release_selected(
        &mut self,
        session: SessionId,
        which: Selection<'_>,
        delivery_limit: u32,
        now: Now,
    ) -> Released {
        let Some(StoredSession { inbox, record, .. }) = self.sessions.get_mut(&session) else {
            return Released::default();
        };
        let is_undelivered = matches!(which, Selection::Undelivered(_));
        let (mut returned, mut dead) = (0, 0);
        inbox.release(
            which,
            delivery_limit,
            self.expired_until_ms,
            |disposition| match disposition {
                Disposition::Requeued(entry) => {
                    returned += 1;
                    let (receipts, journal) = (&mut self.ledger.receipts, &mut self.journal);
                    if is_undelivered {
                        journal.record(Change::DeliveryUndone(entry));
                    }
                    receipts.set(
                        entry.receipt,
                        entry.message.id,
                        DeliveryStatus::Queued,
                        now.unix_ms,
                        journal,
                    );
                    self.ledger.events.released(entry.message.id, session, now);
                }
                Disposition::DeadLettered(entry, reason) => {
                    dead += 1;
                    if is_undelivered {
                        self.journal.record(Change::DeliveryUndone(&entry));
                    }
                    self.expiries.message_removed(entry.deadline_ms);
                    self.ledger.dead_letter(entry, record, reason, now, &mut self.journal);
                }
            },
        );
        Released {
            returned,
            dead,
            depth: inbox.depth(),
        }
    }

    /// See [`InboxStore::depth`](crate::storage::InboxStore::depth).
    pub fn depth(&self, session: SessionId) -> Depth {
        self.sessions
            .get(&session)
            .map_or_else(Depth::default, |stored| stored.inbox.depth())
    }

    /// See [`InboxStore::peek`](crate::storage::InboxStore::peek).
    pub fn peek(&self, session: SessionId, limit: usize) -> Peeked {
        let Some(session) = self.sessions.get(&session) else {
            return Peeked::default();
        };
        let first = session.inbox.waiting().take(limit);
        Peeked {
            waiting: session.inbox.waiting_len(),
            messages: first.map(|entry| Arc::clone(&entry.message)).collect(),
        }
    }

    /// See [`InboxStore::sweep`](crate::storage::InboxStore::sweep).
    pub fn sweep(&mut self, now: Now) -> Swept {
        self.unswept.clear();
        self.expire(now);
        self.ledger.events.sweep(now);
        self.idempotency_keys.remove_expired(now, &mut self.journal);
        self.questions.forget_old(now, &mut self.journal);
        self.yaps.forget_old(now, &mut self.journal);
        self.idempotency_keys.log_dropped(&self.project);
        self.ledger.dead_letters.log_dropped(&self.project);
        let expired_in = std::mem::take(&mut self.expired_in);
        let waiting_len = |session| self.sessions.get(&session).map(|stored| stored.inbox.waiting_len());
        let expired_in = expired_in
            .into_iter()
            .filter_map(|session| Some((session, waiting_len(session)?)))
            .collect();
        let left = |deadline_ms: u64| Duration::from_millis(deadline_ms.saturating_sub(now.mono_ms));
        Swept {
            expired_in,
            has_unreported: self.ledger.dead_letters.has_unreported(),
            next_within: self.expiries.next_deadline_ms().map_or(Duration::MAX, left),
        }
    }

    /// Moves expired messages to the dead letters.
    pub(super) fn expire(&mut self, now: Now) {
        self.expired_until_ms = self.expired_until_ms.max(now.mono_ms);
        while let Some(expiry) = self.expiries.pop_due(now.mono_ms) {
            let Some(StoredSession { inbox, record, .. }) = self.sessions.get_mut(&expiry.session) else {
                continue;
            };
            // None if the message was acknowledged, or is leased: its release checks the deadline.
            if let Some(entry) = inbox.expire(expiry.message, expiry.priority, expiry.seq) {
                self.expiries.message_removed(entry.deadline_ms);
                let reason = DeadLetterReason::Expired;
                self.ledger.dead_letter(entry, record, reason, now, &mut self.journal);
                self.expired_in.insert(expiry.session);
            }
        }
    }
}
