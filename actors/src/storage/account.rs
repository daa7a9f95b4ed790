//! How many bytes of messages a store keeps. Every storage counts in the same way, so that a message that one of them
//! refuses is refused by all.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::{Retention, id_map::IdMap};
use crate::model::{Budget, BudgetFull, Message, MessageId};

/// Bytes that each copy of a message costs beside its envelope: its places in the queue, among the receipts and among the
/// deadlines.
pub const COPY_BYTES: usize = 128;

/// The bytes of a message that every storage counts: its envelope at the first delivery.
#[must_use]
pub fn envelope_bytes(message: &Message) -> usize {
    message.encoded_len(1)
}

/// The bytes of a set of copies. The envelope of a broadcast counts once, however many copies there are.
#[derive(Debug, Default)]
pub(super) struct Tally {
    bytes: usize,
    /// Copies of each broadcast. Of any other message there is one copy.
    copies: IdMap<MessageId, u32>,
}

impl Tally {
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes that one more copy adds.
    pub fn cost_of_next(&self, message: &Message) -> usize {
        let has_envelope = message.recipient.is_none() && self.copies.contains_key(&message.id);
        COPY_BYTES + if has_envelope { 0 } else { envelope_bytes(message) }
    }

    pub fn add(&mut self, message: &Message) {
        self.bytes += self.cost_of_next(message);
        if message.recipient.is_none() {
            *self.copies.entry(message.id).or_default() += 1;
        }
    }

    /// Removes a copy that was added. Returns its bytes.
    pub fn remove(&mut self, message: &Message) -> usize {
        if message.recipient.is_none()
            && let Some(copies) = self.copies.get_mut(&message.id)
        {
            *copies -= 1;
            if *copies == 0 {
                self.copies.remove(&message.id);
            }
        }
        let bytes = self.cost_of_next(message);
        self.bytes -= bytes;
        bytes
    }
}

/// The bytes that the projects of one broker share.
#[derive(Debug)]
pub(super) struct SharedBytes {
    bytes: AtomicUsize,
    limit: usize,
}

impl SharedBytes {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicUsize::new(0),
            limit,
        })
    }

    /// Takes bytes unless there would be more than the limit.
    fn reserve(&self, bytes: usize) -> bool {
        let room_left = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room_left)
            .is_ok()
    }

    fn add_unchecked(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What the stores of one process are bound by.
#[derive(Clone, Debug)]
pub(super) struct StoreLimits {
    pub retention: Retention,
    pub pool: Arc<SharedBytes>,
}

impl StoreLimits {
    pub fn new(retention: Retention) -> Self {
        Self {
            pool: SharedBytes::new(retention.messages_bytes_max),
            retention,
        }
    }
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self::new(Retention::default())
    }
}

/// The messages that a project keeps, waiting, leased or dead. When it is dropped the pool has their bytes back.
#[derive(Debug)]
pub(super) struct Account {
    held: Tally,
    waiting_bytes_max: usize,
    pool: Arc<SharedBytes>,
}

impl Account {
    pub fn new(limits: &StoreLimits) -> Self {
        Self {
            held: Tally::default(),
            waiting_bytes_max: limits.retention.waiting_bytes_max,
            pool: Arc::clone(&limits.pool),
        }
    }

    pub const fn bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Adds a copy that is to wait. `dead_bytes` of what is held are dead letters.
    ///
    /// # Errors
    /// When the project or the pool has no room for it. Then nothing changes.
    pub fn charge(&mut self, message: &Message, dead_bytes: usize) -> Result<(), BudgetFull> {
        let bytes = self.held.cost_of_next(message);
        let full = |budget, limit| Err(BudgetFull { budget, limit });
        if self.held.bytes() + bytes > self.waiting_bytes_max.saturating_add(dead_bytes) {
            return full(Budget::ProjectBytes, self.waiting_bytes_max);
        }
        if !self.pool.reserve(bytes) {
            return full(Budget::BrokerBytes, self.pool.limit);
        }
        self.held.add(message);
        Ok(())
    }

    /// Adds a copy that was accepted before a restart, whether or not there is room.
    pub fn restore(&mut self, message: &Message) {
        self.pool.add_unchecked(self.held.cost_of_next(message));
        self.held.add(message);
    }

    /// A copy is acknowledged, or dropped from the dead letters.
    pub fn release(&mut self, message: &Message) {
        self.pool.release(self.held.remove(message));
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.pool.release(self.held.bytes());
    }
}
