//! Room for messages that are read from the store: reserved before they are read, so that what is read for all callers
//! together is bounded, wherever the messages are.

use std::{any::Any, future::Future, pin::Pin};

/// Bytes of messages that may be read, or handed over, for one connection without a reservation. Small messages cost no
/// look at the room of others.
pub const UNRESERVED_BYTES_MAX: usize = 64 * 1024;

/// Most bytes that one lease for a connection asks for, unless a single message is larger.
const LEASE_BYTES_MAX: usize = 512 * 1024;

/// How many bytes the leases for a connection ask for: few, for which no room has to be reserved, until a lease ends for
/// lack of bytes; many from then on, until nothing waits.
#[derive(Debug, Default)]
pub(super) struct LeaseSizes {
    /// There while it is many: the bytes of the message before which the last lease ended for lack of them, or 0.
    blocked_bytes: Option<usize>,
    /// Something may have come since the last lease began.
    may_have_arrived: bool,
}

impl LeaseSizes {
    pub fn note_arrival(&mut self) {
        self.may_have_arrived = true;
    }

    pub fn note_lease_end(&mut self, beyond: Option<usize>, is_something_left: bool) {
        let goes_on = self.blocked_bytes.filter(|_| is_something_left).map(|_| 0);
        self.blocked_bytes = beyond.or(goes_on);
    }

    /// The sizes that the next lease may have, the best first: it has the first that there is room for. Where there is none
    /// for the message that comes next, another that needs none may have come before it.
    pub fn candidates(&mut self) -> impl Iterator<Item = usize> + use<> {
        let has_news = std::mem::take(&mut self.may_have_arrived);
        let next = self.blocked_bytes.map(|bytes| bytes.max(UNRESERVED_BYTES_MAX));
        let many = next.map(|bytes| bytes.max(LEASE_BYTES_MAX));
        let few = (next.is_none() || has_news).then_some(UNRESERVED_BYTES_MAX);
        [many, next, few].into_iter().flatten()
    }
}

/// Room that a connection has reserved for messages that are being read for it. Given back when it is dropped, after they
/// are pushed: from then on they count as what waits for the socket.
#[must_use]
#[derive(Default)]
pub struct ReadReservation {
    _guard: Option<Box<dyn Any + Send>>,
}

impl ReadReservation {
    /// The room is given back when `guard` is dropped.
    pub fn with_guard(guard: impl Any + Send) -> Self {
        Self {
            _guard: Some(Box::new(guard)),
        }
    }
}

/// Room for the messages that a call reads, until its answer is written.
pub trait ReadBudget: Send + Sync {
    /// Reserves room for so many bytes of messages in all. False, and nothing changes, when there is none now.
    fn try_reserve(&self, bytes: usize) -> bool;

    /// Returns when room for so many bytes of messages in all is reserved. What was reserved before is given back first:
    /// calls that hold on to a part while they wait for the rest would wait for one another.
    fn reserve(&self, bytes: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// The call waits for messages, and holds no room meanwhile.
    fn release(&self);
}

/// The room of a caller that bounds by itself what it holds.
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
    fn leases_are_small_until_one_ends_for_lack_of_bytes_and_again_when_nothing_waits() {
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
        assert_eq!(
            next(&mut sizes),
            [MANY, FEW + 1],
            "no room, and nothing else to look for"
        );
        sizes.note_arrival();
        assert_eq!(next(&mut sizes), [MANY, FEW + 1, FEW]);
        assert_eq!(next(&mut sizes), [MANY, FEW + 1]);
        sizes.note_lease_end(Some(2 * MANY), true);
        assert_eq!(next(&mut sizes), [2 * MANY, 2 * MANY]);
        sizes.note_lease_end(None, false);
        assert_eq!(next(&mut sizes), [FEW]);
    }
}
