//! What is pushed to the connection of a session: in which order, how many bytes at once, and which of it the store
//! acknowledges at once. Pure.
//!
//! Messages come in two ways, which may overtake each other: as answers to the leases of this session, and as leases
//! that a shared store grants and sends by itself once push is started.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashSet, VecDeque},
    ops::Range,
};

use super::{PushMode, UNRESERVED_BYTES_MAX, read_budget::LeaseSizes, state::AckMode};
use crate::{
    model::MessageId,
    storage::{Claim, Delivery, PrefetchLimit},
};

/// Windows of at most so many messages close soon: what is written is acknowledged at once, so that they open again.
const SMALL_WINDOW_MAX: usize = 16;
/// Broadcasts that are remembered, to recognize those that the store sends a second time. The second one comes soon.
const RECENT_BROADCASTS_MAX: usize = 32;

/// What was pushed to the live connection and what is next.
#[derive(Debug, Default)]
pub(super) struct Push {
    sequence: LeaseSequence<Delivery>,
    lease_sizes: LeaseSizes,
    /// The claim and the mode for which the store was asked to start push. None: it must be asked again.
    started_for: Option<(Claim, PushMode)>,
    /// The last broadcasts that were pushed at their first delivery. A group lease comes again when it becomes a lease
    /// of this session's own.
    recent_broadcasts: VecDeque<MessageId>,
    /// Messages that were pushed and whose senders wait for their acknowledgement.
    tracked: HashSet<MessageId>,
    is_gap_check_scheduled: bool,
}

/// How the store is asked to start push.
#[derive(Debug)]
pub(super) struct Start {
    pub sync: SyncRequest,
    /// The number of the first lease that has not arrived.
    pub from: u64,
    pub limit: PrefetchLimit,
}

impl Push {
    /// The session has a new claim: leases under the one before are released.
    pub fn claimed(&mut self) {
        self.released();
        self.lease_sizes = LeaseSizes::default();
    }

    /// Everything leased until now is released, and comes again when push is started again.
    pub fn released(&mut self) {
        self.started_for = None;
        self.recent_broadcasts.clear();
        self.tracked.clear();
        self.sequence.begin_sync();
    }

    /// Forgets what a panic may have left inconsistent. The timers of the actor are gone.
    pub fn reset_after_panic(&mut self) {
        *self = Self {
            lease_sizes: std::mem::take(&mut self.lease_sizes),
            ..Self::default()
        };
    }

    /// The store no longer pushes for this session.
    pub fn stopped(&mut self) {
        self.started_for = None;
    }

    /// Whether the store must be asked to start push, or to stop it.
    pub fn is_start_due(&self, claim: Option<Claim>, mode: Option<PushMode>) -> bool {
        self.started_for != claim.zip(mode)
    }

    /// Begins to start push. What arrives is held back until the store has answered with what it leased before.
    pub fn start(&mut self, claim: Claim, mode: PushMode) -> Start {
        self.started_for = Some((claim, mode));
        Start {
            sync: self.sequence.begin_sync(),
            from: self.sequence.next_number(),
            limit: PrefetchLimit {
                messages: mode.window,
                bytes: UNRESERVED_BYTES_MAX,
                auto_ack: mode.ack == AckMode::Auto && mode.window > SMALL_WINDOW_MAX,
            },
        }
    }

    /// The store has started push and answered with all leases from [`Start::from`] up to `next`. Returns what is to be
    /// pushed; None when a later start was begun, whose answer has all of it.
    pub fn started(&mut self, sync: SyncRequest, next: u64, deliveries: Vec<Delivery>) -> Option<Vec<Delivery>> {
        self.sequence.finish_sync(sync, next, deliveries)
    }

    /// Leases arrived. Returns what is to be pushed now. A store that does not push gives them no numbers.
    pub fn leased(&mut self, numbers: Range<u64>, deliveries: Vec<Delivery>) -> Vec<Delivery> {
        if numbers.is_empty() {
            deliveries
        } else {
            self.sequence.insert(numbers, deliveries)
        }
    }

    /// Deliveries of a group lease arrived. They come before the lease of this number. Returns what is to be pushed now.
    pub fn group_leased(&mut self, before: u64, deliveries: Vec<Delivery>) -> Vec<Delivery> {
        self.sequence.insert_group_lease(before, deliveries)
    }

    /// These messages waited and were leased on request: they are to be pushed even if they were pushed before.
    pub fn forget_broadcasts(&mut self, deliveries: &[Delivery]) {
        self.recent_broadcasts
            .retain(|known| deliveries.iter().all(|delivery| delivery.message.id != *known));
    }

    /// Removes broadcasts that were pushed already, and notes what is pushed now. Needed where the store pushes and
    /// what is written is acknowledged.
    pub fn note_pushed(&mut self, deliveries: &mut Vec<Delivery>) {
        deliveries.retain(|delivery| self.is_first_push(delivery));
        let tracked = deliveries.iter().filter(|delivery| delivery.message.is_tracked());
        self.tracked.extend(tracked.map(|delivery| delivery.message.id));
    }

    fn is_first_push(&mut self, Delivery { message, count }: &Delivery) -> bool {
        if message.recipient.is_some() || *count > 1 {
            return true;
        }
        if self.recent_broadcasts.contains(&message.id) {
            return false;
        }
        if self.recent_broadcasts.len() == RECENT_BROADCASTS_MAX {
            self.recent_broadcasts.pop_front();
        }
        self.recent_broadcasts.push_back(message.id);
        true
    }

    /// Whether these messages, which were written to the socket, are to be acknowledged at once: a sender waits for one
    /// of them, or the window is small. Others may be acknowledged together with later ones.
    pub fn is_ack_urgent(&mut self, written: &[MessageId], window: usize) -> bool {
        let is_tracked = !self.tracked.is_empty() && written.iter().filter(|id| self.tracked.remove(id)).count() > 0;
        is_tracked || window <= SMALL_WINDOW_MAX
    }

    /// Whether the actor has to report [`Self::is_gap_left`] after the retry delay: a lease has arrived before one
    /// that precedes it. True once until then.
    pub fn must_schedule_gap_check(&mut self) -> bool {
        let is_due = self.sequence.has_gap() && !self.is_gap_check_scheduled;
        self.is_gap_check_scheduled |= is_due;
        is_due
    }

    /// The timer of the gap check went off: whether a lease that should have arrived is lost.
    pub fn is_gap_left(&mut self) -> bool {
        self.is_gap_check_scheduled = false;
        self.sequence.has_gap()
    }

    /// Messages may have been appended, or released.
    pub fn note_arrival(&mut self) {
        self.lease_sizes.note_arrival();
    }

    /// A lease for the connection ended before a message of `blocked_bytes`, for lack of bytes.
    pub fn note_lease_end(&mut self, blocked_bytes: Option<usize>, are_messages_left: bool) {
        self.lease_sizes.note_lease_end(blocked_bytes, are_messages_left);
    }

    /// The sizes in bytes that the next lease may have, the best first.
    pub fn lease_sizes(&mut self) -> impl Iterator<Item = usize> + use<> {
        self.lease_sizes.candidates()
    }
}

/// The order of the leases under one claim. Some arrive as answers to the session's own requests, others as pushes of the
/// store, and the two may overtake each other on their way. Their numbers have no gaps; an item is returned once all before it have been.
#[derive(Debug)]
struct LeaseSequence<T> {
    /// The number of the next lease that is to arrive.
    next_number: u64,
    /// The last sync that was begun and has no answer yet. Everything that arrives is kept until then.
    pending_sync: Option<SyncRequest>,
    sync_count: u64,
    /// What arrived early, by its first number, with the number after its last. A group lease takes no number: it comes
    /// before the lease of its number.
    early: BTreeMap<(u64, EntryKind), (u64, Vec<T>)>,
}

/// Whether a number is that of a lease, or of the lease before which a group lease comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EntryKind {
    GroupLease,
    Lease,
}

/// A question to the store for the number of the next lease, and for the leases before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyncRequest(u64);

impl<T> Default for LeaseSequence<T> {
    /// A sequence whose next number is unknown: a sync has to be begun.
    fn default() -> Self {
        Self {
            next_number: 0,
            pending_sync: Some(SyncRequest(0)),
            sync_count: 0,
            early: BTreeMap::new(),
        }
    }
}

impl<T> LeaseSequence<T> {
    /// Begins a sync: the store is asked for the next number, now or later. It replaces one begun before.
    pub fn begin_sync(&mut self) -> SyncRequest {
        self.sync_count += 1;
        let sync = SyncRequest(self.sync_count);
        self.pending_sync = Some(sync);
        sync
    }

    /// The store has answered a sync: `next` is the next number, and `known` are the leases before it that had not
    /// arrived. Returns these and what arrived meanwhile and follows them; None when a later sync was begun.
    pub fn finish_sync(&mut self, sync: SyncRequest, next: u64, mut known: Vec<T>) -> Option<Vec<T>> {
        self.pending_sync.take_if(|last| *last == sync)?;
        self.next_number = next;
        self.early = self.early.split_off(&(next, EntryKind::GroupLease));
        known.extend(self.take_ready());
        Some(known)
    }

    /// The number of the first lease that has not arrived.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Whether something arrived early: a lease before it is on its way, or lost.
    pub fn has_gap(&self) -> bool {
        !self.early.is_empty()
    }

    /// Leases arrived. Returns all items that are next now; nothing if they had arrived before.
    pub fn insert(&mut self, numbers: Range<u64>, items: Vec<T>) -> Vec<T> {
        if self.pending_sync.is_none() {
            if numbers.start < self.next_number {
                return Vec::new();
            }
            if numbers.start == self.next_number && self.early.is_empty() {
                // The usual case.
                self.next_number = numbers.end;
                return items;
            }
        }
        if !numbers.is_empty() {
            self.early
                .insert((numbers.start, EntryKind::Lease), (numbers.end, items));
        }
        self.take_ready()
    }

    /// As [`Self::insert`], for a group lease: it comes before the lease of this number and after all earlier ones.
    pub fn insert_group_lease(&mut self, before: u64, items: Vec<T>) -> Vec<T> {
        if self.pending_sync.is_none() {
            match before.cmp(&self.next_number) {
                // It became a lease of its own and arrived as such, or it was released.
                Ordering::Less => return Vec::new(),
                Ordering::Equal => return items,
                Ordering::Greater => {}
            }
        }
        let kept = self.early.entry((before, EntryKind::GroupLease));
        kept.or_insert_with(|| (before, Vec::new())).1.extend(items);
        Vec::new()
    }

    fn take_ready(&mut self) -> Vec<T> {
        let mut taken = Vec::new();
        while self.pending_sync.is_none()
            && let Some(first) = self.early.first_entry()
            && first.key().0 == self.next_number
        {
            let (end, items) = first.remove();
            self.next_number = end;
            taken.extend(items);
        }
        taken
    }
}

#[cfg(test)]
mod tests;
