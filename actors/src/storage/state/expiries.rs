//! The deadlines of messages with a time to live, earliest first.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::entry::NO_DEADLINE;
use crate::model::{MessageId, Priority, SessionId};

/// The deadline of a message in an inbox, and how the inbox finds the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry {
    /// In milliseconds of the monotonic clock.
    pub deadline_ms: u64,
    pub seq: u64,
    pub session: SessionId,
    pub message: MessageId,
    pub priority: Priority,
}

/// The next deadlines. A message that leaves its inbox in time leaves its expiry behind; expiries without a message are
/// removed when they are more than half.
#[derive(Debug, Default)]
pub struct Expiries {
    heap: BinaryHeap<Reverse<Expiry>>,
    /// The number of messages with a deadline in the inboxes.
    pending_len: usize,
}

impl Expiries {
    const COMPACT_LEN_MIN: usize = 1024;

    /// `is_current` tells whether the message of an expiry is still in its inbox.
    pub fn push(&mut self, expiry: Expiry, stands: impl Fn(&Expiry) -> bool) {
        self.pending_len += 1;
        self.heap.push(Reverse(expiry));
        if self.heap.len() > Self::COMPACT_LEN_MIN && self.heap.len() > 2 * self.pending_len {
            self.heap.retain(|Reverse(expiry)| stands(expiry));
            self.heap.shrink_to(2 * self.heap.len());
        }
    }

    /// Called when a message with this deadline leaves its inbox.
    pub fn message_removed(&mut self, deadline_ms: u64) {
        if deadline_ms != NO_DEADLINE {
            self.pending_len = self.pending_len.saturating_sub(1);
        }
    }

    /// Removes and returns the next expiry that is due.
    pub fn pop_due(&mut self, now_mono_ms: u64) -> Option<Expiry> {
        let Reverse(next) = self.heap.peek()?;
        if next.deadline_ms > now_mono_ms {
            return None;
        }
        self.heap.pop().map(|Reverse(expiry)| expiry)
    }

    /// The deadline that is next, of a message that may have left its inbox, in milliseconds of the monotonic clock.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(next)| next.deadline_ms)
    }

    /// The number of expiries, stale ones included.
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

    /// Adds `count` expiries, then reports that `leaving` messages have left.
    fn push(expiries: &mut Expiries, count: usize, leaving: usize) {
        for at in 0..count {
            expiries.push(expiry(at as u64), |_| panic!("cleared away at {}", at + 1));
        }
        for _ in 0..leaving {
            expiries.message_removed(1);
        }
    }

    #[test]
    fn current_expiries_are_not_compacted() {
        push(&mut Expiries::default(), 3 * MAX, 0);
    }

    #[test]
    fn few_expiries_are_not_compacted_even_if_all_are_stale() {
        let mut expiries = Expiries::default();
        push(&mut expiries, MAX - 1, MAX - 1);
        push(&mut expiries, 1, 1);
        expiries.push(expiry(7), |expiry| expiry.deadline_ms == 7);
        assert!(expiries.len() < 10, "{}", expiries.len());
    }

    #[test]
    fn expiries_are_compacted_when_more_than_half_are_stale() {
        let mut expiries = Expiries::default();
        push(&mut expiries, 2 * MAX - 1, MAX);
        // Exactly half of them.
        push(&mut expiries, 1, 1);
        expiries.push(expiry(7), |expiry| expiry.deadline_ms < 5);
        assert_eq!(expiries.len(), 5 + 1, "five at first, and one of the second push");
        assert_eq!(expiries.pop_due(0), Some(expiry(0)));
    }
}
