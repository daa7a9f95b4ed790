//! Counts the bytes of one outbox against the budget of all outboxes: the waiting frames, and what is reserved for
//! messages that are being read from the store.

use std::sync::atomic::{AtomicUsize, Ordering};

use actors::{locked::Locked, session::UNRESERVED_BYTES_MAX};

use crate::budget::{Gauge, Reservation};

/// The charge changes in steps of this many bytes; fewer bytes are not charged.
const STEP_BYTES: usize = UNRESERVED_BYTES_MAX;

/// The share of one outbox in the budget.
pub struct OutboxCharge {
    reservation: Locked<Reservation>,
    charged_bytes: AtomicUsize,
    reserved_bytes: AtomicUsize,
    gauge: Gauge,
}

impl OutboxCharge {
    /// A charge of nothing, in the project of this reservation.
    pub fn new(reservation: Reservation) -> Self {
        Self {
            gauge: reservation.gauge(),
            reservation: Locked::new(reservation),
            charged_bytes: AtomicUsize::new(0),
            reserved_bytes: AtomicUsize::new(0),
        }
    }

    /// Charges `waiting` bytes if the charge has to grow, or may shrink to half or less.
    pub fn update(&self, waiting: usize) {
        let differs = |charged: usize| {
            let due = due(waiting + self.reserved_bytes());
            (due > charged || due <= charged / 2).then_some(due)
        };
        let is_settled = |charged| differs(charged).is_none_or(|due| due == charged);
        if is_settled(self.charged_bytes.load(Ordering::Relaxed)) {
            return;
        }
        let mut reservation = self.reservation.lock();
        if let Some(due) = differs(reservation.bytes()) {
            reservation.set_bytes(due);
            self.charged_bytes.store(due, Ordering::Relaxed);
        }
    }

    /// Reserves `bytes` in addition to the `waiting` ones; false if the budget has no room now. Up to [`UNRESERVED_BYTES_MAX`]
    /// bytes need no reservation unless the budget is full.
    pub fn reserve(&self, waiting: usize, bytes: usize) -> bool {
        if self.gauge.is_full() {
            return false;
        }
        if bytes <= UNRESERVED_BYTES_MAX {
            return true;
        }
        let mut reservation = self.reservation.lock();
        let grows = reservation.try_grow_to(due(waiting + self.reserved_bytes() + bytes));
        if grows {
            self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.charged_bytes.store(reservation.bytes(), Ordering::Relaxed);
        }
        grows
    }

    /// Ends a reservation of `bytes`. From now on they count as part of `waiting`, if they arrived.
    pub fn unreserve(&self, waiting: usize, bytes: usize) {
        self.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.update(waiting);
    }

    /// Bytes that are reserved and have not arrived.
    pub fn reserved_bytes(&self) -> usize {
        self.reserved_bytes.load(Ordering::Relaxed)
    }

    /// Whether [`Self::reserve`] may succeed. Does not consider other waiters of the budget.
    pub fn may_have_room(&self, bytes: usize) -> bool {
        !self.gauge.is_full() && (bytes <= UNRESERVED_BYTES_MAX || self.gauge.has_room_for(bytes))
    }
}

/// The charge for this many bytes.
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
    use crate::budget::ByteBudget;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn reserved_bytes_are_charged_until_they_wait_or_the_reservation_ends() {
        let budget = ByteBudget::new(8 * MIB, 4 * MIB);
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
