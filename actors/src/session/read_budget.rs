//! The byte budget of messages that are read from the store. Bytes are reserved before messages are read, so that the
//! memory of all reads together is bounded.

use std::{any::Any, future::Future, pin::Pin};

use crate::{model::Message, storage::Delivery};

/// Bytes of messages that may be read or pushed for one connection without a reservation, so that small messages do not
/// touch the common budget.
pub const UNRESERVED_BYTES_MAX: usize = 64 * 1024;

/// Bytes that one lease for a connection asks for at most, unless a single message is larger.
const LEASE_BYTES_MAX: usize = 512 * 1024;

/// How many bytes the leases for a connection ask for: [`UNRESERVED_BYTES_MAX`] until a lease ends for lack of bytes,
/// [`LEASE_BYTES_MAX`] from then on until nothing waits.
#[derive(Debug, Default)]
pub(super) struct LeaseSizes {
    /// None while leases are small. The bytes of the message before which the last lease ended, or 0 if it had enough.
    blocked_bytes: Option<usize>,
    /// Messages may have arrived since the last lease began.
    may_have_arrived: bool,
}

impl LeaseSizes {
    /// Messages may have been appended, or released.
    pub fn note_arrival(&mut self) {
        self.may_have_arrived = true;
    }

    /// A lease ended before a message of `blocked_bytes` for lack of bytes; None if it had enough.
    pub fn note_lease_end(&mut self, blocked_bytes: Option<usize>, are_messages_left: bool) {
        let still_large = self.blocked_bytes.filter(|_| are_messages_left).map(|_| 0);
        self.blocked_bytes = blocked_bytes.or(still_large);
    }

    /// The sizes in bytes that the next lease may have, the best first: take the first that can be reserved. If none is
    /// large enough for the next message, a small message may have arrived before it.
    pub fn candidates(&mut self) -> impl Iterator<Item = usize> + use<> {
        let has_news = std::mem::take(&mut self.may_have_arrived);
        let next = self.blocked_bytes.map(|bytes| bytes.max(UNRESERVED_BYTES_MAX));
        let many = next.map(|bytes| bytes.max(LEASE_BYTES_MAX));
        let few = (next.is_none() || has_news).then_some(UNRESERVED_BYTES_MAX);
        [many, next, few].into_iter().flatten()
    }
}

/// How much larger messages are as they are delivered than as they were sent, after lenses have made them. A call leases
/// so much less that its answer has room for all of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    percent: usize,
}

impl Default for Growth {
    fn default() -> Self {
        Self { percent: 100 }
    }
}

impl Growth {
    /// Bytes to lease, of messages as they were sent, for so many as they are delivered.
    pub fn as_sent(self, bytes: usize) -> usize {
        (bytes / self.percent)
            .saturating_mul(100)
            .saturating_add(bytes % self.percent * 100 / self.percent)
    }

    /// These messages are delivered; `has_rest` says that others had no room.
    pub fn note(&mut self, deliveries: &[Delivery], has_rest: bool) {
        if !has_rest && self.percent == 100 {
            return;
        }
        let len = |of: fn(&Message) -> &Message| {
            let lens = deliveries.iter().map(|delivery| of(&delivery.message).body().len());
            lens.sum::<usize>().max(1)
        };
        let percent = len(|message| message) * 100 / len(Message::as_sent);
        let least = if has_rest { self.percent } else { 100 };
        self.percent = percent.max(least);
    }
}

/// Bytes that a connection has reserved for messages that are being read for it. Drop it after they are pushed: from
/// then on they count as output of the connection.
#[must_use]
#[derive(Default)]
pub struct ReadReservation {
    _guard: Option<Box<dyn Any + Send>>,
}

impl ReadReservation {
    /// The reservation ends when `guard` is dropped.
    pub fn with_guard(guard: impl Any + Send) -> Self {
        Self {
            _guard: Some(Box::new(guard)),
        }
    }
}

/// The bytes of the messages that a call reads, until its answer is written.
pub trait ReadBudget: Send + Sync {
    /// Reserves this many bytes in all. Returns false, and changes nothing, when they are not available now.
    fn try_reserve(&self, bytes: usize) -> bool;

    /// Completes when this many bytes in all are reserved. It releases what was reserved before: calls that kept a part
    /// while they wait for the rest would wait for each other.
    fn reserve(&self, bytes: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Releases what is reserved: the call waits for messages.
    fn release(&self);
}

/// The budget of a caller that bounds its memory by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnboundedReads;

impl ReadBudget for UnboundedReads {
    fn try_reserve(&self, _: usize) -> bool {
        true
    }

    fn reserve(&self, _: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    fn release(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_leases_less_where_messages_grow() {
        assert_eq!(Growth::default().as_sent(1000), 1000);
        assert_eq!(Growth { percent: 250 }.as_sent(1000), 400);
        assert_eq!(Growth { percent: 300 }.as_sent(1001), 333);
        let mut growth = Growth { percent: 250 };
        growth.note(&[], false);
        assert_eq!(growth.as_sent(1000), 1000);
    }

    #[test]
    fn leases_are_large_from_when_one_ends_for_lack_of_bytes_until_nothing_waits() {
        const FEW: usize = UNRESERVED_BYTES_MAX;
        const MANY: usize = LEASE_BYTES_MAX;
        let mut sizes = LeaseSizes::default();
        let next = |sizes: &mut LeaseSizes| sizes.candidates().collect::<Vec<_>>();
        assert_eq!(next(&mut sizes), [FEW]);
        sizes.note_lease_end(None, true);
        assert_eq!(next(&mut sizes), [FEW]);
        sizes.note_lease_end(Some(10), true);
        assert_eq!(next(&mut sizes), [MANY, FEW]);
        sizes.note_lease_end(None, true);
        assert_eq!(next(&mut sizes), [MANY, FEW]);
        sizes.note_lease_end(Some(FEW + 1), true);
        assert_eq!(next(&mut sizes), [MANY, FEW + 1], "a small lease would find nothing");
        sizes.note_arrival();
        assert_eq!(next(&mut sizes), [MANY, FEW + 1, FEW]);
        assert_eq!(next(&mut sizes), [MANY, FEW + 1]);
        sizes.note_lease_end(Some(2 * MANY), true);
        assert_eq!(next(&mut sizes), [2 * MANY, 2 * MANY]);
        sizes.note_lease_end(None, false);
        assert_eq!(next(&mut sizes), [FEW]);
    }
}
