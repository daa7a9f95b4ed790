//! What the budget of all outboxes knows of one: what waits in it, and what is reserved for messages that are being read.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use actors::session::UNRESERVED_BYTES_MAX;

use crate::budget::{Gauge, Reservation};

/// The budget is told in steps of so many bytes, and not of less than one.
const STEP_BYTES: usize = UNRESERVED_BYTES_MAX;

pub struct OutboxCharge {
    hold: Mutex<Reservation>,
    charged_bytes: AtomicUsize,
    reserved_bytes: AtomicUsize,
    gauge: Gauge,
}

impl OutboxCharge {
    pub fn new(hold: Reservation) -> Self {
        Self {
            gauge: hold.gauge(),
            hold: Mutex::new(hold),
            charged_bytes: AtomicUsize::new(0),
            reserved_bytes: AtomicUsize::new(0),
        }
    }

    /// Tells the budget how much waits, when that has changed by much.
    pub fn update(&self, waiting: usize) {
        let differs = |charged: usize| {
            let due = due(waiting + self.reserved_bytes());
            (due > charged || due <= charged / 2).then_some(due)
        };
        let is_settled = |charged| differs(charged).is_none_or(|due| due == charged);
        if is_settled(self.charged_bytes.load(Ordering::Relaxed)) {
            return;
        }
        let mut hold = self.hold();
        if let Some(due) = differs(hold.bytes()) {
            hold.set_bytes(due);
            self.charged_bytes.store(due, Ordering::Relaxed);
        }
    }

    /// Reserves room for so many bytes beside what waits, if there is any now. What is not more than
    /// [`UNRESERVED_BYTES_MAX`] needs none unless the budget is full.
    pub fn reserve(&self, waiting: usize, bytes: usize) -> bool {
        if self.gauge.is_full() {
            return false;
        }
        if bytes <= UNRESERVED_BYTES_MAX {
            return true;
        }
        let mut hold = self.hold();
        let grows = hold.try_grow_to(due(waiting + self.reserved_bytes() + bytes));
        if grows {
            self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.charged_bytes.store(hold.bytes(), Ordering::Relaxed);
        }
        grows
    }

    /// What was reserved counts by what waits from now on.
    pub fn unreserve(&self, waiting: usize, bytes: usize) {
        self.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.update(waiting);
    }

    pub fn reserved_bytes(&self) -> usize {
        self.reserved_bytes.load(Ordering::Relaxed)
    }

    /// Whether [`Self::reserve`] may succeed, as far as can be told without asking who waits.
    pub fn may_have_room(&self, bytes: usize) -> bool {
        !self.gauge.is_full() && (bytes <= UNRESERVED_BYTES_MAX || self.gauge.has_room_for(bytes))
    }

    fn hold(&self) -> MutexGuard<'_, Reservation> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the budget is told of so many bytes.
const fn due(bytes: usize) -> usize {
    if bytes < STEP_BYTES {
        0
    } else {
        bytes.next_multiple_of(STEP_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use actors::model::ProjectId;

    use super::*;
    use crate::budget::Budget;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn what_is_reserved_is_held_until_it_waits_or_does_not_come() {
        let budget = Budget::new(8 * MIB, 4 * MIB);
        let [a, b] = [(); 2].map(|()| OutboxCharge::new(Reservation::new(&budget, &ProjectId::default_project())));
        assert!(a.reserve(0, 3 * MIB) && !b.reserve(0, 2 * MIB) && !b.may_have_room(2 * MIB));
        assert!(b.reserve(0, UNRESERVED_BYTES_MAX), "little needs no room");
        a.unreserve(3 * MIB, 3 * MIB);
        assert!(!b.reserve(0, 2 * MIB), "it waits for the socket");
        a.update(0);
        assert!(b.may_have_room(4 * MIB) && b.reserve(0, 4 * MIB));
        assert!(!a.reserve(0, 1), "nothing is pushed while the budget is full");
        b.unreserve(0, 4 * MIB);
        assert!(a.reserve(0, 4 * MIB), "nothing came");
    }
}
