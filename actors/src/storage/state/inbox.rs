//! The inbox of one recipient: the messages that wait, and those that are leased and not acknowledged.
//!
//! Pure state. The caller guarantees that a message is here at most once: of two leased copies only the later one could
//! be acknowledged by its id.

use std::{collections::VecDeque, sync::Arc};

use super::journal::{InboxEntry, ReceiptKey};
use crate::{
    model::{Budget, BudgetFull, DeadLetterReason, Message, MessageId, Priority, id_map::IdMap},
    storage::{inboxes::Depth, retention::envelope_bytes},
};

/// An empty inbox with more capacity than this, in messages, frees its memory, so that a burst does not cost memory for
/// ever.
const IDLE_CAPACITY_MAX: usize = 128;

/// Which leased messages an operation is about.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'a> {
    All,
    Ids(&'a [MessageId]),
    /// These, whose lease does not count as a delivery.
    Undelivered(&'a [MessageId]),
}

/// What a release did with a message.
#[derive(Debug)]
pub enum Disposition<'a> {
    Requeued(&'a InboxEntry),
    DeadLettered(InboxEntry, DeadLetterReason),
}

/// The inbox of one recipient.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Indexed by priority; each queue ascends by `seq`.
    waiting: [VecDeque<InboxEntry>; Priority::ALL.len()],
    /// Ascends by `lease`. An acknowledged message leaves an empty slot; see [`Inbox::compact`].
    leased: VecDeque<LeaseSlot>,
    leased_len: usize,
    /// Bytes of the envelopes of all waiting and leased messages.
    bytes: usize,
    /// The location of every message that has been delivered at least once.
    delivered: IdMap<MessageId, Location>,
    next_seq: u64,
    next_lease: u64,
}

#[derive(Debug)]
struct LeaseSlot {
    lease: u64,
    entry: Option<InboxEntry>,
}

#[derive(Clone, Copy, Debug)]
enum Location {
    Leased(u64),
    /// Released: it waits again. `lease` is the number of its last lease.
    Requeued {
        priority: Priority,
        seq: u64,
        lease: u64,
    },
}

impl Inbox {
    /// The lengths of the inbox.
    pub fn depth(&self) -> Depth {
        Depth {
            waiting: self.waiting_len(),
            leased: self.leased_len,
        }
    }

    /// The number of waiting messages.
    pub fn waiting_len(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    /// Checks that one more message fits, with at most `capacity` messages and `bytes_max` bytes in the inbox. Leased
    /// messages count, so that a recipient that reads and never acknowledges fills its inbox like one that never reads.
    ///
    /// # Errors
    /// [`BudgetFull`] with the exhausted budget: messages or bytes.
    pub fn check_room(&self, message: &Message, capacity: usize, bytes_max: usize) -> Result<(), BudgetFull> {
        let full = |budget, limit| Err(BudgetFull { budget, limit });
        if self.waiting_len() + self.leased_len >= capacity {
            return full(Budget::QueueMessages, capacity);
        }
        if self.bytes + envelope_bytes(message) > bytes_max {
            return full(Budget::QueueBytes, bytes_max);
        }
        Ok(())
    }

    /// The `seq` of the next message.
    pub const fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Appends a message to the queue of its priority, without a check of the capacity. Returns its `seq`, with which
    /// [`Inbox::expire`] finds it.
    pub fn push(&mut self, message: Arc<Message>, receipt: ReceiptKey, deadline_ms: u64) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.bytes += envelope_bytes(&message);
        self.waiting[message.priority as usize].push_back(InboxEntry {
            message,
            receipt,
            deadline_ms,
            deliveries: 0,
            seq,
        });
        seq
    }

    /// Adds a message that was here before a restart. It waits, even if it was leased, and can still be acknowledged if
    /// it was delivered. Messages are restored by ascending `seq`.
    pub fn restore(&mut self, message: Arc<Message>, seq: u64, receipt: ReceiptKey, deadline_ms: u64, deliveries: u32) {
        let priority = message.priority;
        self.bytes += envelope_bytes(&message);
        self.next_seq = self.next_seq.max(seq + 1);
        if deliveries > 0 {
            // Lower than every lease to come, so that `acknowledge_up_to` this message acknowledges it alone.
            let location = Location::Requeued {
                priority,
                seq,
                lease: 0,
            };
            self.delivered.insert(message.id, location);
            self.next_lease = self.next_lease.max(1);
        }
        self.waiting[priority as usize].push_back(InboxEntry {
            message,
            receipt,
            deadline_ms,
            deliveries,
            seq,
        });
    }

    /// Leases up to `limit` messages of at most `bytes_max` bytes together, high priority first and old before new.
    /// Counts the delivery of each and passes it to `leased`. Returns the bytes of the first message that did not fit,
    /// if the bytes ended the lease.
    pub fn lease(&mut self, limit: usize, bytes_max: usize, mut leased: impl FnMut(&InboxEntry)) -> Option<usize> {
        let (mut left, mut room) = (limit, bytes_max);
        for queue in self.waiting.iter_mut().rev() {
            while left > 0
                && let Some(first) = queue.front()
            {
                let bytes = envelope_bytes(&first.message);
                if bytes > room {
                    return Some(bytes);
                }
                let Some(mut entry) = queue.pop_front() else { break };
                left -= 1;
                room -= bytes;
                let lease = self.next_lease;
                self.next_lease += 1;
                entry.deliveries = entry.deliveries.saturating_add(1);
                self.delivered.insert(entry.message.id, Location::Leased(lease));
                leased(&entry);
                self.leased.push_back(LeaseSlot {
                    lease,
                    entry: Some(entry),
                });
                self.leased_len += 1;
            }
        }
        None
    }

    /// The messages that wait, in the order in which they are leased.
    pub fn waiting(&self) -> impl Iterator<Item = &InboxEntry> {
        self.waiting.iter().rev().flatten()
    }

    /// Removes a delivered message, whether it is leased or waits again.
    pub fn acknowledge(&mut self, id: MessageId) -> Option<InboxEntry> {
        let entry = match self.delivered.remove(&id)? {
            Location::Leased(lease) => self.take_leased(lease),
            Location::Requeued { priority, seq, .. } => self.take_waiting(priority, seq),
        };
        self.subtract_bytes(entry.as_ref());
        self.compact();
        entry
    }

    /// Removes a message, also one that was never delivered.
    pub fn remove(&mut self, id: MessageId) -> Option<InboxEntry> {
        if self.delivered.contains_key(&id) {
            return self.acknowledge(id);
        }
        // The newest first: what its recipient got in another way has just come.
        let entry = self
            .waiting
            .iter()
            .flat_map(|queue| queue.iter().rev())
            .find(|entry| entry.message.id == id)?;
        let (priority, seq) = (entry.message.priority, entry.seq);
        self.expire(id, priority, seq)
    }

    /// Removes this message and all that are still leased under an earlier lease. Messages released in between stay.
    /// Returns false, and changes nothing, if the message was never delivered.
    pub fn acknowledge_up_to(&mut self, id: MessageId, mut done: impl FnMut(InboxEntry)) -> bool {
        let Some(&(Location::Leased(last) | Location::Requeued { lease: last, .. })) = self.delivered.get(&id) else {
            return false;
        };
        while self.leased.front().is_some_and(|slot| slot.lease < last) {
            if let Some(entry) = self.leased.pop_front().and_then(|slot| slot.entry) {
                self.leased_len -= 1;
                self.delivered.remove(&entry.message.id);
                self.subtract_bytes(Some(&entry));
                done(entry);
            }
        }
        if let Some(entry) = self.acknowledge(id) {
            done(entry);
        }
        true
    }

    /// Returns leased messages to their place in the queue. A message whose deadline has passed, or that has been
    /// delivered `delivery_limit` times, is removed. Passes the disposition of each message to `each`.
    pub fn release(
        &mut self,
        which: Selection<'_>,
        delivery_limit: u32,
        now_mono_ms: u64,
        mut each: impl FnMut(Disposition<'_>),
    ) {
        let is_undelivered = matches!(which, Selection::Undelivered(_));
        // Newest first, so that almost every insertion is a push to the front.
        for (mut lease, mut entry) in self.take_leases(which).into_iter().rev() {
            if is_undelivered {
                // As after `restore`: `acknowledge_up_to` this message acknowledges it alone.
                (lease, entry.deliveries) = (0, entry.deliveries - 1);
            }
            let reason = if entry.deadline_ms <= now_mono_ms {
                DeadLetterReason::Expired
            } else if entry.deliveries >= delivery_limit {
                DeadLetterReason::DeliveryLimit
            } else {
                each(Disposition::Requeued(&entry));
                self.requeue(entry, lease);
                continue;
            };
            self.delivered.remove(&entry.message.id);
            self.subtract_bytes(Some(&entry));
            each(Disposition::DeadLettered(entry, reason));
        }
        self.compact();
    }

    /// Removes a waiting message, found by the `seq` that [`Inbox::push`] returned. None if it is leased or has left
    /// the inbox.
    pub fn expire(&mut self, id: MessageId, priority: Priority, seq: u64) -> Option<InboxEntry> {
        // The id is compared because the inbox of a session that was removed and created again starts at 0.
        let deliveries = self
            .find_waiting(priority, seq)
            .filter(|entry| entry.message.id == id)?
            .deliveries;
        if deliveries > 0 {
            self.delivered.remove(&id);
        }
        let entry = self.take_waiting(priority, seq);
        self.subtract_bytes(entry.as_ref());
        self.compact();
        entry
    }

    /// True if the message of exactly this push is still here, waiting or leased.
    pub fn contains(&self, id: MessageId, priority: Priority, seq: u64) -> bool {
        let entry = match self.delivered.get(&id) {
            Some(Location::Leased(_)) => self.leased(id).filter(|entry| entry.seq == seq),
            _ => self.find_waiting(priority, seq),
        };
        entry.is_some_and(|entry| entry.message.id == id)
    }

    /// The entry of a message that is leased.
    pub fn leased(&self, id: MessageId) -> Option<&InboxEntry> {
        match self.delivered.get(&id) {
            Some(&Location::Leased(lease)) => self.leased[self.find_leased(lease)?].entry.as_ref(),
            _ => None,
        }
    }

    /// A message with the key of its receipt. Looks at one entry after the other, at most `search_max` of them, if the
    /// message is not in the order of the receipts: one that was redriven is not.
    pub fn find(&self, id: MessageId, receipt: ReceiptKey, search_max: &mut usize) -> Option<Arc<Message>> {
        let location = match self.delivered.get(&id) {
            Some(Location::Leased(_)) => return self.leased(id).map(|entry| Arc::clone(&entry.message)),
            Some(&Location::Requeued { priority, seq, .. }) => self.find_waiting(priority, seq),
            None => self.waiting.iter().find_map(|queue| {
                let at = queue.binary_search_by_key(&receipt, |entry| entry.receipt).ok()?;
                queue.get(at)
            }),
        };
        let found = location.or_else(|| {
            let entries = self.waiting.iter().flatten();
            let mut looked_at = entries.take_while(|_| {
                search_max.checked_sub(1).is_some_and(|left| {
                    *search_max = left;
                    true
                })
            });
            looked_at.find(|entry| entry.receipt == receipt)
        });
        found.map(|entry| Arc::clone(&entry.message))
    }

    /// All messages in the order of their arrival.
    pub fn into_entries(self) -> Vec<InboxEntry> {
        let leased = self.leased.into_iter().filter_map(|slot| slot.entry);
        let mut entries: Vec<_> = self.waiting.into_iter().flatten().chain(leased).collect();
        entries.sort_unstable_by_key(|entry| entry.seq);
        entries
    }

    /// Removes the selected leased messages, each with its lease number, oldest first.
    fn take_leases(&mut self, which: Selection<'_>) -> Vec<(u64, InboxEntry)> {
        let mut taken: Vec<_> = match which {
            Selection::All => {
                self.leased_len = 0;
                self.leased
                    .drain(..)
                    .filter_map(|slot| Some((slot.lease, slot.entry?)))
                    .collect()
            }
            Selection::Ids(ids) | Selection::Undelivered(ids) => ids
                .iter()
                .filter_map(|id| match self.delivered.get(id) {
                    Some(&Location::Leased(lease)) => Some((lease, self.take_leased(lease)?)),
                    _ => None,
                })
                .collect(),
        };
        taken.sort_unstable_by_key(|(_, entry)| entry.seq);
        taken
    }

    fn requeue(&mut self, entry: InboxEntry, lease: u64) {
        let (id, priority, seq) = (entry.message.id, entry.message.priority, entry.seq);
        if entry.deliveries > 0 {
            self.delivered.insert(id, Location::Requeued { priority, seq, lease });
        } else {
            self.delivered.remove(&id);
        }
        let queue = &mut self.waiting[priority as usize];
        let at = queue.partition_point(|other| other.seq < seq);
        queue.insert(at, entry);
    }

    fn take_leased(&mut self, lease: u64) -> Option<InboxEntry> {
        let at = self.find_leased(lease)?;
        let entry = self.leased[at].entry.take()?;
        self.leased_len -= 1;
        Some(entry)
    }

    fn find_leased(&self, lease: u64) -> Option<usize> {
        let first = self.leased.front()?.lease;
        // Correct unless the slots were compacted since.
        let guess = usize::try_from(lease.checked_sub(first)?).ok()?;
        if self.leased.get(guess).is_some_and(|slot| slot.lease == lease) {
            return Some(guess);
        }
        self.leased.binary_search_by_key(&lease, |slot| slot.lease).ok()
    }

    fn take_waiting(&mut self, priority: Priority, seq: u64) -> Option<InboxEntry> {
        let queue = &mut self.waiting[priority as usize];
        let at = queue.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
        queue.remove(at)
    }

    fn find_waiting(&self, priority: Priority, seq: u64) -> Option<&InboxEntry> {
        let queue = &self.waiting[priority as usize];
        let at = queue.binary_search_by_key(&seq, |entry| entry.seq).ok()?;
        queue.get(at)
    }

    /// Subtracts the bytes of an entry that was removed.
    fn subtract_bytes(&mut self, entry: Option<&InboxEntry>) {
        self.bytes -= entry.map_or(0, |entry| envelope_bytes(&entry.message));
    }

    /// Keeps at most half of the slots empty, and an empty inbox small.
    fn compact(&mut self) {
        while self.leased.front().is_some_and(|slot| slot.entry.is_none()) {
            self.leased.pop_front();
        }
        if self.leased.len() > 2 * self.leased_len + 32 {
            self.leased.retain(|slot| slot.entry.is_some());
        }
        if self.leased.is_empty() && self.waiting.iter().all(VecDeque::is_empty) {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        for queue in &mut self.waiting {
            if queue.capacity() > IDLE_CAPACITY_MAX {
                *queue = VecDeque::new();
            }
        }
        if self.leased.capacity() > IDLE_CAPACITY_MAX {
            self.leased = VecDeque::new();
            self.delivered = IdMap::default();
        }
    }
}

#[cfg(test)]
mod tests;
