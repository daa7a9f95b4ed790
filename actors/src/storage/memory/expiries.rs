use std::{cmp::Reverse, collections::BinaryHeap};

use super::super::inbox::NEVER;
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
    awaited: usize,
}

impl Expiries {
    const LEN_UNTIDIED_MAX: usize = 1024;

    /// `stands` says whether the message of an expiry is still in its inbox.
    pub fn push(&mut self, expiry: Expiry, stands: impl Fn(&Expiry) -> bool) {
        self.awaited += 1;
        self.heap.push(Reverse(expiry));
        if self.heap.len() > Self::LEN_UNTIDIED_MAX && self.heap.len() > 2 * self.awaited {
            self.heap.retain(|Reverse(expiry)| stands(expiry));
            self.heap.shrink_to(2 * self.heap.len());
        }
    }

    /// A message with this deadline has left its inbox, by whatever way.
    pub fn left(&mut self, deadline_ms: u64) {
        if deadline_ms != NEVER {
            self.awaited = self.awaited.saturating_sub(1);
        }
    }

    pub fn next_due(&mut self, now_mono_ms: u64) -> Option<Expiry> {
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
