use std::{cmp::Reverse, collections::BinaryHeap};

use super::super::inbox::NO_DEADLINE;
use crate::model::{MessageId, Priority, SessionId};

/// When a message in an inbox outlives its time, and how it is found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Expiry {
    /// On the monotonic clock, in milliseconds.
    pub deadline_ms: u64,
    pub seq: u64,
    pub session: SessionId,
    pub message: MessageId,
    pub priority: Priority,
}

/// What expires next. A message that leaves its inbox in time leaves its expiry behind; these are cleared away when
/// they are more than half.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    heap: BinaryHeap<Reverse<Expiry>>,
    /// How many messages with a deadline are in the inboxes.
    pending_len: usize,
}

impl Expiries {
    const COMPACT_LEN_MIN: usize = 1024;

    /// `stands` says whether the message of an expiry is still in its inbox.
    pub fn push(&mut self, expiry: Expiry, stands: impl Fn(&Expiry) -> bool) {
        self.pending_len += 1;
        self.heap.push(Reverse(expiry));
        if self.heap.len() > Self::COMPACT_LEN_MIN && self.heap.len() > 2 * self.pending_len {
            self.heap.retain(|Reverse(expiry)| stands(expiry));
            self.heap.shrink_to(2 * self.heap.len());
        }
    }

    /// A message with this deadline has left its inbox, by whatever way.
    pub fn message_removed(&mut self, deadline_ms: u64) {
        if deadline_ms != NO_DEADLINE {
            self.pending_len = self.pending_len.saturating_sub(1);
        }
    }

    pub fn pop_due(&mut self, now_mono_ms: u64) -> Option<Expiry> {
        let Reverse(next) = self.heap.peek()?;
        if next.deadline_ms > now_mono_ms {
            return None;
        }
        self.heap.pop().map(|Reverse(expiry)| expiry)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const MAX: usize = Expiries::COMPACT_LEN_MIN;

    fn expiry(deadline_ms: u64) -> Expiry {
        Expiry {
            deadline_ms,
            seq: deadline_ms,
            session: SessionId::from_uuid(Uuid::nil()),
            message: MessageId::from_uuid(Uuid::nil()),
            priority: Priority::Normal,
        }
    }

    /// Pushes so many, and lets so many of all leave their inboxes.
    fn push(expiries: &mut Expiries, count: usize, leaving: usize) {
        for at in 0..count {
            expiries.push(expiry(at as u64), |_| panic!("cleared away at {}", at + 1));
        }
        for _ in 0..leaving {
            expiries.message_removed(1);
        }
    }

    #[test]
    fn expiries_of_messages_that_are_all_in_their_inboxes_are_not_looked_through() {
        push(&mut Expiries::default(), 3 * MAX, 0);
    }

    #[test]
    fn few_expiries_are_not_looked_through_even_when_no_message_stands() {
        let mut expiries = Expiries::default();
        push(&mut expiries, MAX - 1, MAX - 1);
        push(&mut expiries, 1, 1);
        expiries.push(expiry(7), |expiry| expiry.deadline_ms == 7);
        assert!(expiries.len() < 10, "{}", expiries.len());
    }

    #[test]
    fn expiries_are_looked_through_when_more_than_half_stand_for_nothing() {
        let mut expiries = Expiries::default();
        push(&mut expiries, 2 * MAX - 1, MAX);
        // Half of them.
        push(&mut expiries, 1, 1);
        expiries.push(expiry(7), |expiry| expiry.deadline_ms < 5);
        assert_eq!(expiries.len(), 5 + 1, "five at first, and one of the second push");
        assert_eq!(expiries.pop_due(0), Some(expiry(0)));
    }
}
