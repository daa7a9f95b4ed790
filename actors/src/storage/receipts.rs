//! Where each message stands for each of its recipients.
//!
//! Receipts lie in a ring in the order of acceptance, and whoever holds a message holds the place of its entry: to move
//! a status on is an access to an array. Only a question by message id searches.

mod chunked_queue;

use self::chunked_queue::ChunkedQueue;
use super::{
    id_map::{IdMap, IdSet},
    journal::{Change, Journal},
};
use crate::model::{DeliveryStatus, MessageId, RecipientStatus, SessionId};

/// The place of one recipient's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ReceiptKey {
    pub receipt: u64,
    pub recipient_index: u32,
}

#[derive(Debug)]
pub(super) struct Receipts {
    recent: ChunkedQueue<Receipt>,
    /// Number of the first receipt in the ring.
    first_number: u64,
    /// Entries in the ring, of all receipts together; at most `len_max` after each operation.
    len: usize,
    len_max: usize,
    /// The last receipt, and its id, that was greater than all before it in the ring.
    newest: Option<(u64, MessageId)>,
    /// Those in the ring whose id is not greater than all before it: of another generator, or redriven.
    out_of_order: IdMap<MessageId, u64>,
    /// Entries that had to leave the ring while they were not final. Each stands for a message in an inbox, which
    /// bounds them.
    evicted_open: IdMap<MessageId, Vec<(ReceiptKey, RecipientStatus)>>,
}

#[derive(Debug)]
struct Receipt {
    id: MessageId,
    /// How many receipts before it the last one stands whose id was greater than all before it; 0 for such a one.
    back_to_ordered: u32,
    entries: Entries,
}

/// A direct message has its entry inline: accepting one allocates nothing.
#[derive(Debug)]
enum Entries {
    One(RecipientStatus),
    Many(Vec<RecipientStatus>),
}

impl Receipts {
    /// Keeps at most `len_max` entries of what is settled.
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

    /// The place that the entry number `recipient` of the receipt accepted next will have.
    pub fn next_key(&self, recipient: usize) -> ReceiptKey {
        ReceiptKey {
            receipt: self.first_number + self.recent.len() as u64,
            recipient_index: recipient as u32,
        }
    }

    pub fn accept_one(&mut self, id: MessageId, session: SessionId, at_ms: u64, journal: &mut impl Journal) {
        self.accept(id, Entries::One(queued(session, at_ms)), journal);
    }

    /// The entries have the order of `sessions`.
    pub fn accept_many(&mut self, id: MessageId, sessions: &[SessionId], at_ms: u64, journal: &mut impl Journal) {
        let entries = sessions.iter().map(|&session| queued(session, at_ms));
        self.accept(id, Entries::Many(entries.collect()), journal);
    }

    /// Moves one entry on. `id` is that of its message.
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
                    (entry.status, entry.at_ms) = (status, at_ms);
                    if status.is_final() {
                        let message = id;
                        journal.record(Change::ReceiptFinal { key, message, entry });
                    }
                }
            }
            None => self.set_evicted(key, id, status, at_ms),
        }
    }

    /// A place for a message that is sent again to this session: the entry that it had, or a new one.
    pub fn requeue(&mut self, id: MessageId, session: SessionId, at_ms: u64, journal: &mut impl Journal) -> ReceiptKey {
        let found = self.find(id);
        let Some((at, receipt)) = found.and_then(|at| Some((at, self.recent.get_mut(at)?))) else {
            let key = self.next_key(0);
            self.accept_one(id, session, at_ms, journal);
            return key;
        };
        let entries_before = receipt.entries.as_slice().len();
        let key = ReceiptKey {
            receipt: self.first_number + at as u64,
            recipient_index: receipt.entries.put(queued(session, at_ms)),
        };
        self.len += receipt.entries.as_slice().len() - entries_before;
        journal.record(Change::ReceiptRemoved(key));
        self.evict(journal);
        key
    }

    /// Where a message stands for each recipient that is not forgotten; None when it is not known at all.
    pub fn get(&self, id: MessageId) -> Option<Vec<RecipientStatus>> {
        let all: Vec<_> = self.entries(id).copied().collect();
        (!all.is_empty()).then_some(all)
    }

    /// Whether this message is still on its way to this session, which is to say: in its inbox.
    pub fn is_open(&self, id: MessageId, session: SessionId) -> bool {
        self.entries(id)
            .any(|entry| entry.session == session && !entry.status.is_final())
    }

    /// Puts back what was here before a restart: the entries that are final, and one for each message in an inbox.
    /// Of those that cannot be in the ring any more the final ones are forgotten.
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
                self.evicted_open.entry(*id).or_default().push((*key, *entry));
            }
        }
        for receipt in &receipts[first..] {
            let entries = match receipt {
                [(.., only)] => Entries::One(*only),
                all => Entries::Many(all.iter().map(|(.., entry)| *entry).collect()),
            };
            self.accept(receipt[0].1, entries, journal);
        }
    }

    /// The first of the receipts that go through the ring, which evicts those that are too many: from it on nothing is
    /// missing, and no message has two. The earlier one of two had left the ring before the later one was made.
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
        let elders = self.evicted_open.get(&id).into_iter().flatten().map(|(_, entry)| entry);
        let ring = self.find(id).map_or(&[][..], |at| self.recent[at].entries.as_slice());
        elders.chain(ring)
    }

    fn accept(&mut self, id: MessageId, entries: Entries, journal: &mut impl Journal) {
        let number = self.first_number + self.recent.len() as u64;
        let stray = match self.newest {
            Some((newest, newest_id)) if id <= newest_id && newest >= self.first_number => {
                self.out_of_order.insert(id, number);
                (number - newest) as u32
            }
            _ => {
                self.newest = Some((number, id));
                0
            }
        };
        self.len += entries.as_slice().len();
        self.recent.push_back(Receipt {
            id,
            back_to_ordered: stray,
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
            self.len -= entries.len();
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
                self.evicted_open.entry(receipt.id).or_default().push((key, *entry));
            }
        }
    }

    fn set_evicted(&mut self, key: ReceiptKey, id: MessageId, status: DeliveryStatus, at_ms: u64) {
        let Some(elders) = self.evicted_open.get_mut(&id) else {
            return;
        };
        let Ok(at) = elders.binary_search_by_key(&key, |(key, _)| *key) else {
            return;
        };
        if !status.is_final() {
            (elders[at].1.status, elders[at].1.at_ms) = (status, at_ms);
            return;
        }
        elders.remove(at);
        if elders.is_empty() {
            self.evicted_open.remove(&id);
        }
    }

    /// The place in the ring of the receipt with this id.
    fn find(&self, id: MessageId) -> Option<usize> {
        if let Some(&number) = self.out_of_order.get(&id) {
            return usize::try_from(number - self.first_number).ok();
        }
        // Without the strays the ids ascend: each of them stands for the last one before it that is none.
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

    /// Sets the entry of its session, or appends it. Returns its place.
    fn put(&mut self, entry: RecipientStatus) -> u32 {
        let known = self.as_slice().iter().position(|known| known.session == entry.session);
        if let Self::One(first) = *self {
            *self = Self::Many(vec![first]);
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
    }
}

#[cfg(test)]
mod tests;
