//! The queue of one recipient: what waits, and what it has in hand but has not acknowledged.
//!
//! Pure state. It relies on its caller that a message is here once at most: of two copies, both leased, only the
//! later one can be acknowledged by its id.

use std::{collections::VecDeque, sync::Arc};

use super::{Depth, account::envelope_bytes, id_map::IdMap, receipts::ReceiptKey};
use crate::model::{Budget, BudgetFull, DeadLetterReason, Message, MessageId, Priority};

/// A deadline that never comes.
pub(super) const NO_DEADLINE: u64 = u64::MAX;

/// Above this many places an empty inbox gives its memory back: a burst long ago must not cost for ever.
const IDLE_CAPACITY_MAX: usize = 128;

/// A message on its way to this recipient.
#[derive(Debug)]
pub(super) struct InboxEntry {
    pub message: Arc<Message>,
    pub receipt: ReceiptKey,
    /// When its time to live ends, on the monotonic clock in milliseconds; [`NEVER`] without one.
    pub deadline_ms: u64,
    pub deliveries: u32,
    /// Its place among those of equal priority. It keeps it when it is released.
    seq: u64,
}

/// Which of the leased messages are meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Selection<'a> {
    All,
    Ids(&'a [MessageId]),
}

/// What becomes of a released message.
#[derive(Debug)]
pub(super) enum Disposition<'a> {
    Requeued(&'a InboxEntry),
    DeadLettered(InboxEntry, DeadLetterReason),
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// By priority; each queue ascends by `seq`.
    waiting: [VecDeque<InboxEntry>; Priority::ALL.len()],
    /// Ascends by `lease`. What has been acknowledged leaves a gap; see [`Inbox::close_gaps`].
    leased: VecDeque<LeaseSlot>,
    leased_len: usize,
    /// Bytes of the envelopes of all that waits or is leased.
    bytes: usize,
    /// Where everything is that was delivered at least once.
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
    /// Released: waiting again since that lease.
    Requeued {
        priority: Priority,
        seq: u64,
        lease: u64,
    },
}

impl Inbox {
    pub fn depth(&self) -> Depth {
        Depth {
            waiting: self.waiting_len(),
            leased: self.leased_len,
        }
    }

    pub fn waiting_len(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    /// Whether this message may come, when at most `capacity` messages and `bytes_max` bytes may be here. What is leased
    /// counts: a recipient that reads and never acknowledges fills its queue like one that never reads.
    ///
    /// # Errors
    /// Which of the two is full.
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

    /// The `seq` that the next message will have.
    pub const fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Appends to the queue of its priority. Returns its `seq`, by which [`Inbox::expire`] finds it. Checks no
    /// capacity.
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

    /// Puts a message back that was here before a restart: it waits, whether it was leased or not, and what was
    /// delivered can still be acknowledged. They come by ascending `seq`.
    pub fn restore(&mut self, message: Arc<Message>, seq: u64, receipt: ReceiptKey, deadline_ms: u64, deliveries: u32) {
        let priority = message.priority;
        self.bytes += envelope_bytes(&message);
        self.next_seq = self.next_seq.max(seq + 1);
        if deliveries > 0 {
            // Before all leases to come: who acknowledges up to it means it alone.
            let place = Location::Requeued {
                priority,
                seq,
                lease: 0,
            };
            self.delivered.insert(message.id, place);
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

    /// Leases up to `limit` messages of `bytes_max` bytes together, urgent before low and old before new, and shows each,
    /// its delivery counted. Returns the bytes of the message that did not fit, if one ended the lease.
    pub fn lease(&mut self, limit: usize, bytes_max: usize, mut handed: impl FnMut(&InboxEntry)) -> Option<usize> {
        let (mut left, mut room) = (limit, bytes_max);
        for queue in self.waiting.iter_mut().rev() {
            while left > 0
                && let Some(first) = queue.front()
            {
                let bytes = envelope_bytes(&first.message);
                if bytes > room {
                    return Some(bytes);
                }
                let Some(mut item) = queue.pop_front() else { break };
                left -= 1;
                room -= bytes;
                let lease = self.next_lease;
                self.next_lease += 1;
                item.deliveries = item.deliveries.saturating_add(1);
                self.delivered.insert(item.message.id, Location::Leased(lease));
                handed(&item);
                self.leased.push_back(LeaseSlot {
                    lease,
                    entry: Some(item),
                });
                self.leased_len += 1;
            }
        }
        None
    }

    /// Takes out a message that was delivered, whether it is still leased or waits again.
    pub fn acknowledge(&mut self, id: MessageId) -> Option<InboxEntry> {
        let item = match self.delivered.remove(&id)? {
            Location::Leased(lease) => self.take_leased(lease),
            Location::Requeued { priority, seq, .. } => self.take_waiting(priority, seq),
        };
        self.subtract_bytes(item.as_ref());
        self.compact();
        item
    }

    /// Takes out this message, and all that are still leased and were leased before it. What was released before
    /// stays: giving back is not acknowledging. False, and nothing done, when the message was not delivered.
    pub fn acknowledge_up_to(&mut self, id: MessageId, mut done: impl FnMut(InboxEntry)) -> bool {
        let Some(&(Location::Leased(last) | Location::Requeued { lease: last, .. })) = self.delivered.get(&id) else {
            return false;
        };
        while self.leased.front().is_some_and(|slot| slot.lease < last) {
            if let Some(item) = self.leased.pop_front().and_then(|slot| slot.entry) {
                self.leased_len -= 1;
                self.delivered.remove(&item.message.id);
                self.subtract_bytes(Some(&item));
                done(item);
            }
        }
        if let Some(item) = self.acknowledge(id) {
            done(item);
        }
        true
    }

    /// Puts leased messages back where they were in the queue, but for those that have outlived their time or were
    /// delivered `delivery_limit` times. Shows what becomes of each.
    pub fn release(
        &mut self,
        which: Selection<'_>,
        delivery_limit: u32,
        now_mono_ms: u64,
        mut each: impl FnMut(Disposition<'_>),
    ) {
        // The newest first, so that putting back is nearly always a push to the front.
        for (lease, item) in self.take_leases(which).into_iter().rev() {
            let reason = if item.deadline_ms <= now_mono_ms {
                DeadLetterReason::Expired
            } else if item.deliveries >= delivery_limit {
                DeadLetterReason::DeliveryLimit
            } else {
                each(Disposition::Requeued(&item));
                self.requeue(item, lease);
                continue;
            };
            self.delivered.remove(&item.message.id);
            self.subtract_bytes(Some(&item));
            each(Disposition::DeadLettered(item, reason));
        }
        self.compact();
    }

    /// Takes out a message that waits, found by what [`Inbox::push`] returned. None when it is leased or gone.
    pub fn expire(&mut self, id: MessageId, priority: Priority, seq: u64) -> Option<InboxEntry> {
        // The id is compared because an inbox that was made anew counts from zero again.
        let deliveries = self
            .find_waiting(priority, seq)
            .filter(|item| item.message.id == id)?
            .deliveries;
        if deliveries > 0 {
            self.delivered.remove(&id);
        }
        let item = self.take_waiting(priority, seq);
        self.subtract_bytes(item.as_ref());
        self.compact();
        item
    }

    /// Whether exactly this push is still here, waiting or leased.
    pub fn contains(&self, id: MessageId, priority: Priority, seq: u64) -> bool {
        let item = match self.delivered.get(&id) {
            Some(&Location::Leased(lease)) => self
                .find_leased(lease)
                .and_then(|at| self.leased[at].entry.as_ref())
                .filter(|item| item.seq == seq),
            _ => self.find_waiting(priority, seq),
        };
        item.is_some_and(|item| item.message.id == id)
    }

    /// Everything that is here, in the order in which it came.
    pub fn into_entries(self) -> Vec<InboxEntry> {
        let leased = self.leased.into_iter().filter_map(|slot| slot.entry);
        let mut items: Vec<_> = self.waiting.into_iter().flatten().chain(leased).collect();
        items.sort_unstable_by_key(|item| item.seq);
        items
    }

    /// The leased messages that are meant, each with its lease, oldest first.
    fn take_leases(&mut self, which: Selection<'_>) -> Vec<(u64, InboxEntry)> {
        let mut given: Vec<_> = match which {
            Selection::All => {
                self.leased_len = 0;
                self.leased
                    .drain(..)
                    .filter_map(|slot| Some((slot.lease, slot.entry?)))
                    .collect()
            }
            Selection::Ids(ids) => ids
                .iter()
                .filter_map(|id| match self.delivered.get(id) {
                    Some(&Location::Leased(lease)) => Some((lease, self.take_leased(lease)?)),
                    _ => None,
                })
                .collect(),
        };
        given.sort_unstable_by_key(|(_, item)| item.seq);
        given
    }

    fn requeue(&mut self, item: InboxEntry, lease: u64) {
        let (priority, seq) = (item.message.priority, item.seq);
        self.delivered
            .insert(item.message.id, Location::Requeued { priority, seq, lease });
        let queue = &mut self.waiting[priority as usize];
        let at = queue.partition_point(|other| other.seq < seq);
        queue.insert(at, item);
    }

    fn take_leased(&mut self, lease: u64) -> Option<InboxEntry> {
        let at = self.find_leased(lease)?;
        let item = self.leased[at].entry.take()?;
        self.leased_len -= 1;
        Some(item)
    }

    fn find_leased(&self, lease: u64) -> Option<usize> {
        let first = self.leased.front()?.lease;
        // Right unless gaps were closed since.
        let guess = usize::try_from(lease.checked_sub(first)?).ok()?;
        if self.leased.get(guess).is_some_and(|slot| slot.lease == lease) {
            return Some(guess);
        }
        self.leased.binary_search_by_key(&lease, |slot| slot.lease).ok()
    }

    fn take_waiting(&mut self, priority: Priority, seq: u64) -> Option<InboxEntry> {
        let queue = &mut self.waiting[priority as usize];
        let at = queue.binary_search_by_key(&seq, |item| item.seq).ok()?;
        queue.remove(at)
    }

    fn find_waiting(&self, priority: Priority, seq: u64) -> Option<&InboxEntry> {
        let queue = &self.waiting[priority as usize];
        let at = queue.binary_search_by_key(&seq, |item| item.seq).ok()?;
        queue.get(at)
    }

    /// This item is in this inbox no more.
    fn subtract_bytes(&mut self, item: Option<&InboxEntry>) {
        self.bytes -= item.map_or(0, |item| envelope_bytes(&item.message));
    }

    /// Keeps the leases at most half gaps, and an empty inbox small.
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
