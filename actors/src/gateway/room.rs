//! A bound that several holders share, and the part that each of them holds.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How much all holders have together, of at most so much.
#[derive(Debug)]
pub(super) struct Room {
    used: AtomicUsize,
    max: usize,
}

/// The part of one holder. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    room: Arc<Room>,
    amount: usize,
}

impl Room {
    /// Room for so much.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            max,
        })
    }

    /// A holder of nothing yet.
    pub fn holder(self: &Arc<Self>) -> Held {
        Held {
            room: Arc::clone(self),
            amount: 0,
        }
    }

    /// Holds so much. `None` if there is less left.
    pub fn hold(self: &Arc<Self>, amount: usize) -> Option<Held> {
        let mut held = self.holder();
        held.set(amount).then_some(held)
    }
}

impl Held {
    /// Holds so much in place of what it held. Returns false, and changes nothing, if there is less left.
    pub fn set(&mut self, amount: usize) -> bool {
        let before = self.amount;
        let fits = |used: usize| {
            (used - before)
                .checked_add(amount)
                .filter(|used| *used <= self.room.max)
        };
        let used = &self.room.used;
        let is_set = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if is_set {
            self.amount = amount;
        }
        is_set
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_holder_gives_back_another_can_take() {
        let room = Room::new(100);
        let (mut first, mut second) = (room.hold(99).unwrap(), room.holder());
        assert!(room.hold(2).is_none());
        assert!(second.set(1));
        assert!(first.set(99), "its own part is free for it");
        assert!(!first.set(100) && first.set(98), "a refusal changes nothing");
        assert!(second.set(2));
        drop(second);
        assert!(first.set(100));
        assert!(!first.set(usize::MAX));
        drop(first);
        assert!(room.hold(100).is_some());
    }
}
