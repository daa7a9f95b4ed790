//! The statuses of messages, and dead letters.

use std::sync::Arc;

use super::{
    journal::{Change, InboxEntry, Journal},
    project::{Ledger, ProjectState},
};
use crate::{
    clock::Now,
    metrics,
    model::{
        DeadLetter, DeadLetterReason, DeliveryStatus, Message, MessageId, RecipientStatus, SessionId, SessionRecord,
        Transformed,
    },
    storage::dead_letters::{RedriveRefusal, Redriven},
};

/// Inbox entries that one call looks at, at most, for messages whose place is not known: a message that was redriven is not
/// where its receipt says.
const MESSAGE_SEARCH_MAX: usize = 500_000;

impl<J: Journal> ProjectState<J> {
    /// See [`TrackingStore::message_statuses`](crate::storage::TrackingStore::message_statuses).
    pub fn message_statuses(&mut self, messages: &[MessageId], now: Now) -> Vec<Option<Vec<RecipientStatus>>> {
        self.expire(now);
        let statuses = messages.iter().map(|message| self.ledger.receipts.get(*message));
        statuses.collect()
    }

    /// See [`TrackingStore::note_transformed`](crate::storage::TrackingStore::note_transformed).
    pub fn note_transformed(&mut self, session: SessionId, messages: Vec<(MessageId, Arc<Transformed>)>) {
        let Some(stored) = self.sessions.get(&session) else {
            return;
        };
        for (message, transformed) in messages {
            let Some(entry) = stored.inbox.leased(message) else {
                continue;
            };
            let change = Change::MessageTransformed(entry, &transformed);
            self.journal.record(change);
            let receipts = &mut self.ledger.receipts;
            receipts.set_transformed(entry.receipt, message, transformed, &mut self.journal);
        }
    }

    /// See [`TrackingStore::messages`](crate::storage::TrackingStore::messages).
    pub fn messages(&self, messages: &[MessageId]) -> Vec<Option<Arc<Message>>> {
        let mut search_max = MESSAGE_SEARCH_MAX;
        let found = messages.iter().map(|message| self.message(*message, &mut search_max));
        found.collect()
    }

    fn message(&self, id: MessageId, search_max: &mut usize) -> Option<Arc<Message>> {
        let waiting = self
            .ledger
            .receipts
            .open_entries(id)
            .into_iter()
            .find_map(|(key, session)| {
                let inbox = &self.sessions.get(&session)?.inbox;
                inbox.find(id, key, search_max)
            });
        waiting.or_else(|| self.ledger.dead_letters.any_message(id))
    }

    /// See [`DeadLetterStore::redrive`](crate::storage::DeadLetterStore::redrive).
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

    fn redrive_one(
        &mut self,
        dead_letter: (MessageId, SessionId),
        to: SessionId,
        capacity: usize,
        now: Now,
    ) -> Result<usize, RedriveRefusal> {
        let inbox = &self.sessions.get(&to).ok_or(RedriveRefusal::RecipientGone)?.inbox;
        if self.ledger.receipts.is_open(dead_letter.0, to) {
            // The session has a copy already: of the broadcast, or of an earlier redrive. A second one would be a
            // duplicate.
            if let Some(dead_letter) = self.ledger.dead_letters.take(dead_letter) {
                self.journal.record(Change::DeadLetterRemoved(&dead_letter));
                self.ledger.account.release(&dead_letter.message);
            }
            return Ok(inbox.waiting_len());
        }
        let waiting_len = inbox.waiting_len();
        let Some(message) = self.ledger.dead_letters.message(dead_letter) else {
            return Ok(waiting_len);
        };
        // The project keeps the message already, so its budget does not apply.
        inbox
            .check_room(message, capacity, self.queue_bytes_max)
            .map_err(|_| RedriveRefusal::QueueFull)?;
        let Some(dead_letter) = self.ledger.dead_letters.take(dead_letter) else {
            return Ok(waiting_len);
        };
        self.journal.record(Change::DeadLetterRemoved(&dead_letter));
        let DeadLetter { message, recipient, .. } = dead_letter;
        let message = if to == recipient || message.recipient.is_none() {
            message
        } else {
            Arc::new(message.readdressed(to))
        };
        self.ledger.events.redriven(message.id, to, recipient, now);
        let receipt = self
            .ledger
            .receipts
            .requeue(message.id, to, now.unix_ms, &mut self.journal);
        Ok(self.enqueue(message, to, receipt, now))
    }
}

impl Ledger {
    /// Makes a dead letter of a message that has left its inbox, and notifies a sender that waits for it.
    pub(super) fn dead_letter(
        &mut self,
        entry: InboxEntry,
        recipient: &SessionRecord,
        reason: DeadLetterReason,
        now: Now,
        journal: &mut impl Journal,
    ) {
        if let Some(counters) = metrics::open_project(&self.project) {
            counters.dead_lettered(reason, 1);
        }
        let status = match reason {
            DeadLetterReason::Expired => DeliveryStatus::Expired,
            reason => DeliveryStatus::DeadLettered(reason),
        };
        self.receipts
            .set(entry.receipt, entry.message.id, status, now.unix_ms, journal);
        entry.message.progress.advance_to(status);
        self.events
            .dead_lettered(entry.message.id, recipient.id, reason, entry.deliveries, now);
        let dead_letter = DeadLetter {
            message: Arc::clone(&entry.message),
            recipient: recipient.id,
            recipient_name: recipient.name.clone(),
            reason,
            at_ms: now.unix_ms,
            deliveries: entry.deliveries,
        };
        self.dead_letters.insert(dead_letter, &mut self.account, journal);
        journal.record(Change::MessageRemoved(&entry));
    }
}
