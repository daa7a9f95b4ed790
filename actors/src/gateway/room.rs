//! A bound that several sets share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How much several sets have together, of at most so much.
#[derive(Debug)]
pub(super) struct Room {
    used: AtomicUsize,
    max: usize,
}

impl Room {
    /// Room for so much.
    pub const fn new(max: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            max,
        }
    }

    /// Takes so much. Returns false, and takes nothing, if there is less left.
    pub fn take(&self, amount: usize) -> bool {
        let fits = |used: usize| used.checked_add(amount).filter(|used| *used <= self.max);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }

    /// Takes so much in place of what was taken before. Returns false, and changes nothing, if there is less left.
    pub fn replace(&self, before: usize, amount: usize) -> bool {
        if let Some(more) = amount.checked_sub(before) {
            return self.take(more);
        }
        self.give_back(before - amount);
        true
    }

    /// Gives back what was taken.
    pub fn give_back(&self, amount: usize) {
        self.used.fetch_sub(amount, Ordering::Relaxed);
    }
}
