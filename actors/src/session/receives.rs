//! The calls of `receive_messages` of one session: which of them wait, which read the inbox, and what the answered ones
//! returned. Pure: `C` is how the actor answers a caller.

use std::collections::VecDeque;

use super::receive_call::{ReadAt, ReceiveCall};
use crate::{
    model::{CallReceipt, MessageId},
    storage::Lease,
};

/// Calls that may wait for one session.
pub(super) const WAITERS_MAX: usize = 32;
/// How often a call that does not wait leases again because lenses failed on all that it has leased.
const READS_AGAIN_MAX: u32 = 32;
/// Answered calls that a session remembers, so that a later call acknowledges what they returned or a cancellation
/// releases it. What older ones returned stays leased until it is acknowledged by id or released.
const RETURNED_CALLS_MAX: usize = 32;
/// Messages of these calls, 16 bytes each.
const RETURNED_MESSAGES_MAX: usize = 8192;

/// The calls of one session.
#[derive(Debug)]
pub(super) struct Receives<C> {
    /// Calls of callers that know the session by another incarnation are refused.
    incarnation: u32,
    /// By number.
    waiters: VecDeque<Waiter<C>>,
    last_number: u64,
    /// Calls for which the inbox is being read.
    reads_running: usize,
    /// The inbox may have changed while it was being read.
    must_read_again: bool,
    /// What the last calls returned, the oldest first.
    returned: VecDeque<ReturnedCall>,
}

/// A call that waits, or for which the inbox is being read.
#[derive(Debug)]
pub(super) struct Waiter<C> {
    pub call: ReceiveCall,
    /// The place of the call among all calls of the session; the lowest is served first.
    pub number: u64,
    pub incarnation: u32,
    /// On the monotonic clock, in milliseconds; None for a call that does not wait.
    pub until_ms: Option<u64>,
    /// How often it has leased again.
    pub reads: u32,
    pub caller: C,
}

/// What one call returned.
#[derive(Debug)]
struct ReturnedCall {
    call: ReceiveCall,
    messages: Vec<MessageId>,
    /// The next call acknowledges it.
    is_acked_by_next: bool,
    /// It waits again, or another call has it: only its receipt acknowledges it.
    is_released: bool,
}

/// What becomes of a call for which the inbox was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// Another caller has registered the session meanwhile: the call is refused and the lease released.
    TakenOver,
    /// The next message needs so many bytes, more than the call has reserved.
    NeedsReservation(usize),
    /// The inbox is empty, and the call waits.
    Wait,
    /// Lenses failed on all that was leased: the call leases the next messages.
    Again,
    /// The call returns what was leased.
    Return,
}

/// What a receipt acknowledges and what it releases.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReceiptEffect {
    pub acknowledged: Vec<MessageId>,
    pub released: Vec<MessageId>,
}

/// What the next call acknowledges.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NextAcknowledges {
    pub messages: Vec<MessageId>,
    /// An answer was written after the call was read: its messages stay leased.
    pub is_later_answer_written: bool,
}

/// What is left of a call that its caller has cancelled.
#[derive(Debug)]
pub(super) struct CancelledCall<C> {
    /// The call, if it was waiting.
    pub waiter: Option<Waiter<C>>,
    /// What it returned, to be released.
    pub released: Vec<MessageId>,
}

impl<C> Receives<C> {
    /// Without calls.
    pub fn new(incarnation: u32) -> Self {
        Self {
            incarnation,
            waiters: VecDeque::new(),
            last_number: 0,
            reads_running: 0,
            must_read_again: false,
            returned: VecDeque::new(),
        }
    }

    /// Forgets all calls: their callers learn of the panic from the dropped replies.
    pub fn reset_after_panic(&mut self) {
        *self = Self {
            last_number: self.last_number,
            ..Self::new(self.incarnation)
        };
    }

    /// The incarnation of the session; calls of others are refused.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Another caller has registered the session. Returns the calls that were waiting, to be refused; None if nothing
    /// changed.
    pub fn fence_out(&mut self, incarnation: u32) -> Option<VecDeque<Waiter<C>>> {
        if self.incarnation == incarnation {
            return None;
        }
        self.incarnation = incarnation;
        Some(self.take_waiters())
    }

    /// Removes all waiting calls, to be answered by the actor.
    pub fn take_waiters(&mut self) -> VecDeque<Waiter<C>> {
        std::mem::take(&mut self.waiters)
    }

    /// A call of the present incarnation, behind all before it.
    pub fn admit(&mut self, call: ReceiveCall, until_ms: Option<u64>, caller: C) -> Waiter<C> {
        self.last_number += 1;
        Waiter {
            call,
            number: self.last_number,
            incarnation: self.incarnation,
            until_ms,
            reads: 0,
            caller,
        }
    }

    /// Calls that wait or for which the inbox is being read. The session learns of new messages while there are any.
    pub fn len(&self) -> usize {
        self.waiters.len() + self.reads_running
    }

    /// The waiting calls in the order in which they are served.
    pub fn waiters(&self) -> impl Iterator<Item = &Waiter<C>> {
        self.waiters.iter()
    }

    /// The call that is to be served next. None while the inbox is being read: it is read again afterwards.
    pub fn next_to_serve(&mut self) -> Option<Waiter<C>> {
        if self.reads_running > 0 {
            self.must_read_again = true;
            return None;
        }
        self.waiters.pop_front()
    }

    /// The inbox is being read for a call.
    pub fn begin_read(&mut self) {
        self.reads_running += 1;
    }

    /// The read of the inbox was answered.
    pub fn end_read(&mut self) {
        self.reads_running -= 1;
    }

    /// Whether the waiters have to be served once more. True once.
    pub fn take_must_read_again(&mut self) -> bool {
        std::mem::take(&mut self.must_read_again)
    }

    /// What becomes of a call for which the inbox was read with this result. `has_failed` says that lenses failed on messages
    /// that were leased.
    pub fn outcome_of_read(&self, waiter: &Waiter<C>, lease: &Lease, has_failed: bool) -> ReadOutcome {
        let is_empty = lease.deliveries.is_empty();
        let may_lease_again = waiter.until_ms.is_none() && waiter.reads < READS_AGAIN_MAX;
        match lease.blocked_bytes {
            _ if waiter.incarnation != self.incarnation => ReadOutcome::TakenOver,
            _ if is_empty && has_failed && may_lease_again => ReadOutcome::Again,
            Some(bytes) if is_empty => ReadOutcome::NeedsReservation(bytes),
            None if is_empty && waiter.until_ms.is_some() => ReadOutcome::Wait,
            _ => ReadOutcome::Return,
        }
    }

    /// Whether as many calls wait as may.
    pub fn is_full(&self) -> bool {
        self.waiters.len() >= WAITERS_MAX
    }

    /// Lets a call wait, behind those before it and ahead of those after it.
    pub fn enqueue(&mut self, waiter: Waiter<C>) {
        let at = self.waiters.partition_point(|other| other.number < waiter.number);
        self.waiters.insert(at, waiter);
    }

    /// The waiting time of this call is over.
    pub fn expire(&mut self, number: u64) -> Option<Waiter<C>> {
        let at = self.waiters.iter().position(|waiter| waiter.number == number)?;
        self.waiters.remove(at)
    }

    /// Forgets a call that its caller has cancelled.
    pub fn cancel(&mut self, call: &ReceiveCall) -> CancelledCall<C> {
        let waiter = self.waiters.iter().position(|waiter| waiter.call.is_same_call(call));
        let waiter = waiter.and_then(|at| self.waiters.remove(at));
        let returned = self
            .returned
            .iter()
            .position(|returned| returned.call.is_same_call(call));
        let returned = returned.and_then(|at| self.returned.remove(at));
        let released = returned.filter(|returned| !returned.is_released);
        CancelledCall {
            waiter,
            released: released.map_or_else(Vec::new, |returned| returned.messages),
        }
    }

    /// Remembers what a call has returned, and forgets the oldest beyond the bounds.
    pub fn remember(&mut self, call: ReceiveCall, messages: Vec<MessageId>, is_acked_by_next: bool) {
        let mut messages_len = messages.len();
        messages_len += self.returned.iter().map(|known| known.messages.len()).sum::<usize>();
        while self.returned.len() >= RETURNED_CALLS_MAX || messages_len > RETURNED_MESSAGES_MAX {
            let Some(oldest) = self.returned.pop_front() else { break };
            messages_len -= oldest.messages.len();
        }
        self.returned.push_back(ReturnedCall {
            call,
            messages,
            is_acked_by_next,
            is_released: false,
        });
    }

    /// Everything leased is released: what calls returned waits again, and only its receipt acknowledges it.
    pub fn mark_released(&mut self) {
        for returned in &mut self.returned {
            returned.is_released = true;
        }
    }

    /// What a call acknowledges: what answers returned that were written before it was read.
    pub fn acknowledge_by_next(&mut self, read_at: ReadAt) -> NextAcknowledges {
        let mut next = NextAcknowledges::default();
        self.returned.retain_mut(|returned| {
            if !returned.is_acked_by_next || returned.is_released {
                return true;
            }
            if returned.call.is_written_before(read_at) {
                next.messages.append(&mut returned.messages);
                return false;
            }
            next.is_later_answer_written |= returned.call.is_written();
            true
        });
        next
    }

    /// Acknowledges what the receipt names, and releases everything else that the next call would acknowledge.
    pub fn acknowledge_receipt(&mut self, receipt: CallReceipt) -> ReceiptEffect {
        let named = self
            .returned
            .iter()
            .position(|returned| returned.call.receipt() == receipt);
        let named = named.and_then(|at| self.returned.remove(at));
        let mut released = Vec::new();
        for returned in &mut self.returned {
            if returned.is_acked_by_next && !returned.is_released {
                returned.is_released = true;
                released.extend_from_slice(&returned.messages);
            }
        }
        ReceiptEffect {
            acknowledged: named.map_or_else(Vec::new, |named| named.messages),
            released,
        }
    }

    /// The messages that the next call acknowledges because this call returned them. None if it returned none, or they
    /// are released.
    pub fn acked_by_next(&self, call: &ReceiveCall) -> Option<&[MessageId]> {
        let is_meant = |returned: &&ReturnedCall| {
            returned.is_acked_by_next && !returned.is_released && returned.call.is_same_call(call)
        };
        self.returned.iter().find(is_meant).map(|returned| &*returned.messages)
    }
}

#[cfg(test)]
mod tests;
