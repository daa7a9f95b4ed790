//! The bytes that a project's messages take, against the budgets of the project and of the broker.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{
    model::{Budget, BudgetFull, Message, MessageId, id_map::IdMap},
    storage::retention::{COPY_BYTES, Retention, envelope_bytes},
};

/// The bytes of a set of copies. The envelope of a broadcast counts once.
#[derive(Debug, Default)]
pub struct Tally {
    bytes: usize,
    /// The number of copies of each broadcast. Every other message has one copy.
    copies: IdMap<MessageId, u32>,
}

impl Tally {
    /// The sum in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes that one more copy adds.
    pub fn cost_of_next(&self, message: &Message) -> usize {
        let has_envelope = message.recipient.is_none() && self.copies.contains_key(&message.id);
        COPY_BYTES + if has_envelope { 0 } else { envelope_bytes(message) }
    }

    /// Adds a copy.
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

/// The bytes that all projects of one broker share.
#[derive(Debug)]
pub struct SharedBytes {
    bytes: AtomicUsize,
    limit: usize,
}

impl SharedBytes {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicUsize::new(0),
            limit,
        })
    }

    /// Adds bytes unless the sum would exceed the limit. Returns false in that case.
    fn reserve(&self, bytes: usize) -> bool {
        let room_left = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room_left)
            .is_ok()
    }

    /// Adds bytes without a check.
    pub fn add_unchecked(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether the sum exceeds the limit.
    pub fn is_exceeded(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.limit
    }

    /// Subtracts bytes that were added.
    pub fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The limits of all stores of one process.
#[derive(Clone, Debug)]
pub struct StoreLimits {
    pub retention: Retention,
    pub pool: Arc<SharedBytes>,
    /// The bytes of the event logs of all projects.
    pub events_pool: Arc<SharedBytes>,
}

impl StoreLimits {
    /// Limits with new budgets for all stores.
    pub fn new(retention: Retention) -> Self {
        Self {
            pool: SharedBytes::new(retention.messages_bytes_max),
            events_pool: SharedBytes::new(retention.all_events_bytes_max),
            retention,
        }
    }
}

impl StoreLimits {
    /// The limits of stores whose event logs are not in memory.
    pub fn with_logs_elsewhere(retention: Retention) -> Self {
        Self {
            events_pool: SharedBytes::new(usize::MAX),
            ..Self::new(retention)
        }
    }
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self::new(Retention::default())
    }
}

/// The messages of a project: waiting, leased and dead. Returns their bytes to the broker's budget when it is dropped.
#[derive(Debug)]
pub struct Account {
    held: Tally,
    waiting_bytes_max: usize,
    pool: Arc<SharedBytes>,
}

impl Account {
    /// An empty account.
    pub fn new(limits: &StoreLimits) -> Self {
        Self {
            held: Tally::default(),
            waiting_bytes_max: limits.retention.waiting_bytes_max,
            pool: Arc::clone(&limits.pool),
        }
    }

    /// The sum in bytes.
    pub const fn bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Adds a copy that is going to wait. `dead_bytes` is the share of dead letters in what the account holds.
    ///
    /// # Errors
    /// [`BudgetFull`] if the project or the broker has no room; nothing changes then.
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

    /// Adds a copy that was accepted before a restart, even beyond the limits.
    pub fn restore(&mut self, message: &Message) {
        self.pool.add_unchecked(self.held.cost_of_next(message));
        self.held.add(message);
    }

    /// Removes a copy that was acknowledged, or dropped from the dead letters.
    pub fn release(&mut self, message: &Message) {
        self.pool.release(self.held.remove(message));
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.pool.release(self.held.bytes());
    }
}
