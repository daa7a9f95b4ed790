//! The bytes that one call reads from the store for its answer.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
};

use actors::{locked::Locked, session::ReadBudget};

use super::Reservation;

/// The share of a call in the budget for outgoing bytes.
pub struct AnswerBudget {
    reservation: Locked<Reservation>,
    /// Bytes of the answer for each byte that is read.
    answer_per_object: usize,
}

impl AnswerBudget {
    /// A budget whose bytes are in `reservation`, which is empty at first; an answer has at most `answer_per_object`
    /// bytes for each byte that is read.
    pub fn new(reservation: Reservation, answer_per_object: usize) -> Self {
        Self {
            reservation: Locked::new(reservation),
            answer_per_object,
        }
    }

    fn answer_bytes(&self, object_len: usize) -> usize {
        object_len.saturating_mul(self.answer_per_object)
    }
}

impl ReadBudget for AnswerBudget {
    fn try_reserve(&self, bytes: usize) -> bool {
        self.reservation.lock().try_grow_to(self.answer_bytes(bytes))
    }

    fn reserve(&self, bytes: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let bytes = self.answer_bytes(bytes);
        Box::pin(async move {
            {
                let mut reservation = self.reservation.lock();
                if bytes > reservation.bytes() {
                    reservation.set_bytes(0);
                }
            }
            let waiting = QueueGuard(self);
            poll_fn(|cx| waiting.0.reservation.lock().poll_grow_to(bytes, cx)).await;
        })
    }

    fn release(&self) {
        self.reservation.lock().set_bytes(0);
    }
}

/// Leaves the queue of the budget when a wait is dropped.
struct QueueGuard<'a>(&'a AnswerBudget);

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.0.reservation.lock().cancel_wait();
    }
}
