//! The delivery status of each message for each of its recipients.
//!
//! Receipts are queued in the order of acceptance. An inbox entry holds the [`ReceiptKey`] of its message, so that a
//! change of status is an array access; only a query by message id searches.

use std::sync::Arc;

use super::{
    chunked_queue::ChunkedQueue,
    journal::{Change, Journal, ReceiptKey},
};
use crate::model::{
    DeliveryStatus, MessageId, Outcome, RecipientStatus, SessionId, Transformed,
    id_map::{IdMap, IdSet},
};

/// The receipts of a project.
#[derive(Debug)]
pub struct Receipts {
    recent: ChunkedQueue<Receipt>,
    /// The number of the first receipt in `recent`.
    first_number: u64,
    /// Entries in `recent`, over all receipts, and the room of what is kept with them; at most `len_max` after each operation.
    len: usize,
    len_max: usize,
    /// The number and the id of the last receipt whose id was greater than all ids before it in `recent`.
    newest: Option<(u64, MessageId)>,
    /// Receipts in `recent` whose id is not greater than all ids before it: the id comes from another replica, or the
    /// message was redriven.
    out_of_order: IdMap<MessageId, u64>,
    /// Entries that were evicted from `recent` before they were final. Each belongs to a message in an inbox, which
    /// bounds their number.
    evicted_open: IdMap<MessageId, Vec<(ReceiptKey, RecipientStatus)>>,
}

#[derive(Debug)]
struct Receipt {
    id: MessageId,
    /// The distance back to the last receipt whose id was greater than all before it; 0 for such a receipt itself.
    back_to_ordered: u32,
    entries: Entries,
}

/// A direct message has its entry inline, so that accepting it allocates nothing.
#[derive(Debug)]
enum Entries {
    One(RecipientStatus),
    Many(Vec<RecipientStatus>),
}

impl Receipts {
    /// Receipts that keep at most `len_max` final entries.
    pub fn new(len_max: usize) -> Self {
        Self {
            recent: ChunkedQueue::new(),
            first_number: 0,
            len: 0,
            len_max,
            newest: None,
            out_of_order: IdMap::default(),
            evicted_open: IdMap::default(),
        }
    }

    /// The key that the entry at index `recipient` of the next accepted receipt will have.
    pub fn next_key(&self, recipient: usize) -> ReceiptKey {
        ReceiptKey {
            receipt: self.first_number + self.recent.len() as u64,
            recipient_index: recipient as u32,
        }
    }

    /// Accepts a direct message.
    pub fn accept_one(&mut self, id: MessageId, session: SessionId, at_ms: u64, journal: &mut impl Journal) {
        self.accept(id, Entries::One(queued(session, at_ms)), journal);
    }

    /// Accepts a broadcast; its entries have the order of `sessions`.
    pub fn accept_many(&mut self, id: MessageId, sessions: &[SessionId], at_ms: u64, journal: &mut impl Journal) {
        let entries = sessions.iter().map(|&session| queued(session, at_ms));
        self.accept(id, Entries::Many(entries.collect()), journal);
    }

    /// Sets the status of one entry. `id` is the id of its message.
    pub fn set(
        &mut self,
        key: ReceiptKey,
        id: MessageId,
        status: DeliveryStatus,
        at_ms: u64,
        journal: &mut impl Journal,
    ) {
        match key.receipt.checked_sub(self.first_number) {
            Some(at) => {
                let receipt = usize::try_from(at).ok().and_then(|at| self.recent.get_mut(at));
                if let Some(entry) = receipt.and_then(|receipt| receipt.entries.get_mut(key.recipient_index)) {
                    self.len -= set_status(entry, status, at_ms);
                    if status.is_final() {
                        let message = id;
                        journal.record(Change::ReceiptFinal { key, message, entry });
                    }
                }
            }
            None => self.set_evicted(key, id, status, at_ms),
        }
    }

    /// Adds the outcome to an entry whose status is final. One that was evicted has none. `id` is the id of its message.
    pub fn set_outcome(&mut self, key: ReceiptKey, id: MessageId, outcome: &Arc<Outcome>, journal: &mut impl Journal) {
        let at = key.receipt.checked_sub(self.first_number);
        let receipt = at.and_then(|at| self.recent.get_mut(usize::try_from(at).ok()?));
        let Some(entry) = receipt.and_then(|receipt| receipt.entries.get_mut(key.recipient_index)) else {
            return;
        };
        let len_before = entry_len(entry);
        entry.outcome = Some(Arc::clone(outcome));
        self.len += entry_len(entry) - len_before;
        let message = id;
        journal.record(Change::ReceiptFinal { key, message, entry });
        self.evict(journal);
    }

    /// Adds what lenses did to a message to an entry whose status is not final. `id` is the id of the message.
    pub fn set_transformed(
        &mut self,
        key: ReceiptKey,
        id: MessageId,
        transformed: Arc<Transformed>,
        journal: &mut impl Journal,
    ) {
        let Some(at) = key.receipt.checked_sub(self.first_number) else {
            let open = self.evicted_open.get_mut(&id).into_iter().flatten();
            if let Some((_, entry)) = open.into_iter().find(|(known, _)| *known == key) {
                entry.transformed = Some(transformed);
            }
            return;
        };
        let receipt = usize::try_from(at).ok().and_then(|at| self.recent.get_mut(at));
        if let Some(entry) = receipt.and_then(|receipt| receipt.entries.get_mut(key.recipient_index)) {
            self.len -= transformed_len(entry);
            entry.transformed = Some(transformed);
            self.len += transformed_len(entry);
            self.evict(journal);
        }
    }

    /// Prepares a message for a redrive to this session: reopens the session's entry or adds one. Returns its key.
    pub fn requeue(&mut self, id: MessageId, session: SessionId, at_ms: u64, journal: &mut impl Journal) -> ReceiptKey {
        let found = self.find(id);
        let Some((at, receipt)) = found.and_then(|at| Some((at, self.recent.get_mut(at)?))) else {
            let key = self.next_key(0);
            self.accept_one(id, session, at_ms, journal);
            return key;
        };
        let len_before = receipt.entries.len();
        let key = ReceiptKey {
            receipt: self.first_number + at as u64,
            recipient_index: receipt.entries.put(queued(session, at_ms)),
        };
        self.len = self.len + receipt.entries.len() - len_before;
        journal.record(Change::ReceiptRemoved(key));
        self.evict(journal);
        key
    }

    /// The status of a message for each recipient whose entry is kept; None for an unknown message.
    pub fn get(&self, id: MessageId) -> Option<Vec<RecipientStatus>> {
        let all: Vec<_> = self.entries(id).cloned().collect();
        (!all.is_empty()).then_some(all)
    }

    /// The inboxes that contain a message: the session of each, and the key of its entry.
    pub fn open_entries(&self, id: MessageId) -> Vec<(ReceiptKey, SessionId)> {
        let evicted = self.evicted_open.get(&id).into_iter().flatten();
        let evicted = evicted.map(|(key, entry)| (*key, entry));
        let recent = self.find(id).into_iter().flat_map(|at| {
            let entries = self.recent[at].entries.as_slice().iter().enumerate();
            entries.map(move |(index, entry)| {
                let key = ReceiptKey {
                    receipt: self.first_number + at as u64,
                    recipient_index: index as u32,
                };
                (key, entry)
            })
        });
        let open = evicted.chain(recent).filter(|(_, entry)| !entry.status.is_final());
        open.map(|(key, entry)| (key, entry.session)).collect()
    }

    /// True if this message is in the inbox of this session: its entry exists and is not final.
    pub fn is_open(&self, id: MessageId, session: SessionId) -> bool {
        self.entries(id)
            .any(|entry| entry.session == session && !entry.status.is_final())
    }

    /// Restores the entries of before a restart: the final ones, and one for each message in an inbox. Final entries
    /// that no longer fit are forgotten.
    pub fn restore(&mut self, mut entries: Vec<(ReceiptKey, MessageId, RecipientStatus)>, journal: &mut impl Journal) {
        entries.sort_unstable_by_key(|(key, ..)| *key);
        let receipts: Vec<_> = entries.chunk_by(|(a, ..), (b, ..)| a.receipt == b.receipt).collect();
        let first = Self::first_to_queue(&receipts);
        let number = |receipt: &&[(ReceiptKey, _, _)]| receipt[0].0.receipt;
        let next = receipts.last().map_or(0, |last| number(last) + 1);
        self.first_number = receipts.get(first).map_or(next, number);
        for (key, id, entry) in receipts[..first].iter().copied().flatten() {
            if entry.status.is_final() {
                journal.record(Change::ReceiptRemoved(*key));
            } else {
                self.evicted_open.entry(*id).or_default().push((*key, entry.clone()));
            }
        }
        for receipt in &receipts[first..] {
            let entries = match receipt {
                [(.., only)] => Entries::One(only.clone()),
                all => Entries::Many(all.iter().map(|(.., entry)| entry.clone()).collect()),
            };
            self.accept(receipt[0].1, entries, journal);
        }
    }

    /// The index of the first receipt that goes through `recent`. From it on the receipts are complete and no message
    /// has two. The earlier receipt of a message with two had been evicted before the later one was created.
    fn first_to_queue(receipts: &[&[(ReceiptKey, MessageId, RecipientStatus)]]) -> usize {
        let mut first = receipts.len();
        let mut later_ids = IdSet::default();
        for (at, receipt) in receipts.iter().enumerate().rev() {
            let is_whole = receipt
                .iter()
                .enumerate()
                .all(|(place, (key, ..))| key.recipient_index as usize == place);
            let is_next = receipts
                .get(at + 1)
                .is_none_or(|next| receipt[0].0.receipt + 1 == next[0].0.receipt);
            let is_only = later_ids.insert(receipt[0].1);
            if !is_whole || !is_next || !is_only {
                break;
            }
            first = at;
        }
        first
    }

    fn entries(&self, id: MessageId) -> impl Iterator<Item = &RecipientStatus> {
        let open = self.evicted_open.get(&id).into_iter().flatten().map(|(_, entry)| entry);
        let recent = self.find(id).map_or(&[][..], |at| self.recent[at].entries.as_slice());
        open.chain(recent)
    }

    fn accept(&mut self, id: MessageId, entries: Entries, journal: &mut impl Journal) {
        let number = self.first_number + self.recent.len() as u64;
        let back_to_ordered = match self.newest {
            Some((newest, newest_id)) if id <= newest_id && newest >= self.first_number => {
                self.out_of_order.insert(id, number);
                (number - newest) as u32
            }
            _ => {
                self.newest = Some((number, id));
                0
            }
        };
        self.len += entries.len();
        self.recent.push_back(Receipt {
            id,
            back_to_ordered,
            entries,
        });
        self.evict(journal);
    }

    fn evict(&mut self, journal: &mut impl Journal) {
        while self.len > self.len_max {
            let Some(receipt) = self.recent.pop_front() else { return };
            let number = self.first_number;
            self.first_number += 1;
            let entries = receipt.entries.as_slice();
            self.len -= entries.iter().map(entry_len).sum::<usize>();
            if receipt.back_to_ordered > 0 {
                self.out_of_order.remove(&receipt.id);
            }
            for (place, entry) in entries.iter().enumerate() {
                let key = ReceiptKey {
                    receipt: number,
                    recipient_index: place as u32,
                };
                if entry.status.is_final() {
                    journal.record(Change::ReceiptRemoved(key));
                    continue;
                }
                self.evicted_open
                    .entry(receipt.id)
                    .or_default()
                    .push((key, entry.clone()));
            }
        }
    }

    fn set_evicted(&mut self, key: ReceiptKey, id: MessageId, status: DeliveryStatus, at_ms: u64) {
        let Some(open) = self.evicted_open.get_mut(&id) else {
            return;
        };
        let Ok(at) = open.binary_search_by_key(&key, |(key, _)| *key) else {
            return;
        };
        if !status.is_final() {
            set_status(&mut open[at].1, status, at_ms);
            return;
        }
        open.remove(at);
        if open.is_empty() {
            self.evicted_open.remove(&id);
        }
    }

    /// The index in `recent` of the receipt with this id.
    fn find(&self, id: MessageId) -> Option<usize> {
        if let Some(&number) = self.out_of_order.get(&id) {
            return usize::try_from(number - self.first_number).ok();
        }
        // Without the out-of-order receipts the ids ascend; each of those refers to the last ordered one before it.
        let (mut low, mut high) = (0, self.recent.len());
        while low < high {
            let middle = low.midpoint(high);
            let in_order = middle.checked_sub(self.recent[middle].back_to_ordered as usize);
            if in_order.is_some_and(|at| self.recent[at].id >= id) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.recent
            .get(low)
            .is_some_and(|receipt| receipt.id == id)
            .then_some(low)
    }
}

impl Entries {
    /// What they count in [`Receipts::len`].
    fn len(&self) -> usize {
        self.as_slice().iter().map(entry_len).sum()
    }

    fn as_slice(&self) -> &[RecipientStatus] {
        match self {
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Many(entries) => entries,
        }
    }

    fn get_mut(&mut self, recipient: u32) -> Option<&mut RecipientStatus> {
        match self {
            Self::One(entry) => (recipient == 0).then_some(entry),
            Self::Many(entries) => entries.get_mut(recipient as usize),
        }
    }

    /// Sets the entry of its session, or appends it. Returns its index.
    fn put(&mut self, entry: RecipientStatus) -> u32 {
        let known = self.as_slice().iter().position(|known| known.session == entry.session);
        if let Self::One(first) = self {
            *self = Self::Many(vec![first.clone()]);
        }
        let Self::Many(entries) = self else { return 0 };
        let place = known.unwrap_or(entries.len());
        if place == entries.len() {
            entries.push(entry);
        } else {
            entries[place] = entry;
        }
        place as u32
    }
}

const fn queued(session: SessionId, at_ms: u64) -> RecipientStatus {
    RecipientStatus {
        session,
        status: DeliveryStatus::Queued,
        at_ms,
        outcome: None,
        transformed: None,
    }
}

/// Sets the status of an entry. A new delivery forgets what lenses did for the one before. Returns the room that this frees.
fn set_status(entry: &mut RecipientStatus, status: DeliveryStatus, at_ms: u64) -> usize {
    (entry.status, entry.at_ms) = (status, at_ms);
    if status != DeliveryStatus::Delivered {
        return 0;
    }
    let freed = transformed_len(entry);
    entry.transformed = None;
    freed
}

/// What an entry counts: itself, and the room of its outcome and of what lenses did.
fn entry_len(entry: &RecipientStatus) -> usize {
    1 + entry.outcome.as_ref().map_or(0, |outcome| outcome.receipts_len()) + transformed_len(entry)
}

fn transformed_len(entry: &RecipientStatus) -> usize {
    entry
        .transformed
        .as_ref()
        .map_or(0, |transformed| transformed.receipts_len())
}

#[cfg(test)]
mod tests;
