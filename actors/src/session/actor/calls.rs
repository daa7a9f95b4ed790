//! The calls of `receive_messages`: served, kept waiting, given back.

use std::{sync::Arc, time::Duration};

use actix::{AsyncContext, Context, Handler, SpawnHandle};
use tokio::sync::oneshot;

use super::{Session, mark_delivered, message_ids};
use crate::{
    clock::now,
    model::{BrokerError, CallReceipt, MessageId, PAGE_BYTES_MAX},
    session::{
        AnswerWritten, CancelReceive, CloseReason, Fence, ReadAt, ReadBudget, ReceiveCall, ReceiveMessages,
        ReceiveMode, ReceiveOutcome, ReceivedMessages, state::Event,
    },
    storage::{Acknowledge, Acknowledged, Depth, Lease, Op, Release, StoreError},
    supervise::Envelope,
};

/// Most calls of `receive_messages` that may wait for one session.
const WAITERS_MAX: usize = 32;
/// Answered calls of `receive_messages` that a session remembers, to be acknowledged by a later one or given back. What
/// an older one returned stays leased until it is acknowledged by id or released.
const RETURNED_CALLS_MAX: usize = 32;
/// Messages in these, 16 bytes each.
const RETURNED_MESSAGES_MAX: usize = 8192;

/// What one call returned.
pub(super) struct ReturnedCall {
    pub(super) call: ReceiveCall,
    pub(super) messages: Vec<MessageId>,
    /// The next call acknowledges it.
    on_next: bool,
    /// It waits again, or another call has it: only its receipt acknowledges it.
    released: bool,
}

/// A call of `receive_messages`.
pub(super) struct Waiter {
    pub(super) call: ReceiveCall,
    pub(super) limit: usize,
    pub(super) bytes_max: usize,
    pub(super) budget: Arc<dyn ReadBudget>,
    pub(super) mode: ReceiveMode,
    pub(super) reply: oneshot::Sender<Result<ReceiveOutcome, BrokerError>>,
    /// On the monotonic clock; None for a call that does not wait.
    pub(super) until_ms: Option<u64>,
    /// There while it waits.
    pub(super) timer: Option<SpawnHandle>,
    pub(super) number: u64,
    pub(super) incarnation: u32,
}

impl Waiter {
    /// Whether somebody still wants the answer.
    fn is_wanted(&self) -> bool {
        !self.call.is_cancelled() && !self.reply.is_closed()
    }
}

impl Session {
    /// Hands what waits to the calls that wait, in their order.
    pub(super) fn serve_waiters(&mut self, ctx: &mut Context<Self>) {
        if self.reads_running > 0 {
            self.must_read_again = true;
            return;
        }
        while let Some(waiter) = self.waiters.pop_front() {
            if let Some(deadline) = waiter.timer {
                ctx.cancel_future(deadline);
            }
            if waiter.is_wanted() && self.read_inbox(waiter, ctx) {
                return;
            }
        }
        self.waiters_changed(ctx);
    }

    /// Reads the inbox for a call. The call counts among those that wait from before the reading on, so that the
    /// session is told of what comes meanwhile. False when there is no room for what it would read: the call asks again.
    fn read_inbox(&mut self, waiter: Waiter, ctx: &mut Context<Self>) -> bool {
        let (receipt, limit, bytes_max) = (waiter.call.receipt(), waiter.limit.max(1), waiter.bytes_max);
        if !waiter.budget.try_reserve(bytes_max) {
            let _ = waiter.reply.send(Ok(ReceiveOutcome::NeedsReservation(bytes_max)));
            return false;
        }
        self.reads_running += 1;
        self.waiters_changed(ctx);
        let lease = self.store.lease_for_call(self.id, receipt, limit, bytes_max, now());
        self.then(lease, ctx, move |session, leased, ctx| {
            session.reads_running -= 1;
            session.skip_call_lease(leased.as_ref().ok(), ctx);
            session.finish_read(waiter, leased, ctx);
            if std::mem::take(&mut session.must_read_again) {
                session.serve_waiters(ctx);
            }
        });
        true
    }

    /// What a call leased is in nobody's turn.
    fn skip_call_lease(&mut self, leased: Option<&Lease>, ctx: &mut Context<Self>) {
        match leased {
            Some(leased) => {
                self.push_in_order(leased.lease_numbers.clone(), Vec::new(), ctx);
            }
            // Whatever it leased is given back.
            None => self.push_started_for = None,
        }
    }

    fn finish_read(&mut self, waiter: Waiter, leased: Result<Lease, StoreError>, ctx: &mut Context<Self>) {
        match leased {
            Ok(leased) if waiter.incarnation != self.incarnation => {
                self.waiters_changed(ctx);
                self.release(Release::Ids(message_ids(&leased.deliveries)), ctx);
                let _ = waiter.reply.send(Err(BrokerError::SessionTakenOver));
            }
            Ok(Lease {
                deliveries,
                depth,
                blocked_bytes: Some(bytes),
                ..
            }) if deliveries.is_empty() => {
                self.waiters_changed(ctx);
                let _ = waiter.reply.send(Ok(ReceiveOutcome::NeedsReservation(bytes)));
                // It may never ask again: the others that wait look for themselves.
                self.apply(Event::DepthChanged { depth }, ctx);
            }
            Ok(leased) if leased.deliveries.is_empty() && waiter.until_ms.is_some() => {
                if waiter.is_wanted() {
                    self.enqueue_waiter(waiter, ctx);
                } else {
                    self.waiters_changed(ctx);
                }
                // Whatever the depth says: there is nothing to be had now.
                let depth = Depth {
                    waiting: 0,
                    ..leased.depth
                };
                self.apply(Event::DepthChanged { depth }, ctx);
            }
            Ok(leased) => {
                self.waiters_changed(ctx);
                self.return_messages(leased, waiter, ctx);
            }
            Err(error) => {
                self.waiters_changed(ctx);
                let _ = waiter.reply.send(Err(error.into()));
                self.retry_later(false, ctx);
            }
        }
    }

    pub(super) fn waiters_changed(&mut self, ctx: &mut Context<Self>) {
        let waiters = self.waiters.len() + self.reads_running;
        self.apply(Event::WaitersChanged { waiters }, ctx);
    }

    /// Gives a caller its messages, or puts them back if it has gone.
    fn return_messages(&mut self, leased: Lease, Waiter { call, mode, reply, .. }: Waiter, ctx: &mut Context<Self>) {
        let Lease { deliveries, depth, .. } = leased;
        let ids = message_ids(&deliveries);
        self.shared.set_depth(depth);
        if call.is_cancelled() {
            return self.release(Release::Ids(ids), ctx);
        }
        mark_delivered(&deliveries);
        let sent = reply.send(Ok(ReceiveOutcome::Messages(ReceivedMessages {
            deliveries,
            remaining: depth.waiting,
        })));
        if sent.is_err() {
            return self.release(Release::Ids(ids), ctx);
        }
        self.apply(Event::DepthChanged { depth }, ctx);
        match mode {
            _ if ids.is_empty() => {}
            ReceiveMode::Immediate => self.acknowledge(Acknowledge::Ids(ids), None, ctx),
            ReceiveMode::OnNext | ReceiveMode::Manual => self.remember_returned(ReturnedCall {
                call,
                messages: ids,
                on_next: mode == ReceiveMode::OnNext,
                released: false,
            }),
        }
    }

    fn remember_returned(&mut self, returned: ReturnedCall) {
        let mut messages_len = returned.messages.len();
        messages_len += self.returned.iter().map(|known| known.messages.len()).sum::<usize>();
        while self.returned.len() >= RETURNED_CALLS_MAX || messages_len > RETURNED_MESSAGES_MAX {
            let Some(oldest) = self.returned.pop_front() else { break };
            messages_len -= oldest.messages.len();
        }
        self.returned.push_back(returned);
    }

    /// Everything that is leased is released: what calls returned waits again, and is acknowledged by its receipt alone.
    pub(super) fn mark_returned_released(&mut self) {
        for returned in &mut self.returned {
            returned.released = true;
        }
    }

    /// A call acknowledges what answers returned that were written before it was read, here or at another replica.
    fn acknowledge_on_next(&mut self, read_at: ReadAt, ctx: &mut Context<Self>) {
        let (mut messages, mut is_later_written) = (Vec::new(), false);
        self.returned.retain_mut(|returned| {
            if !returned.on_next || returned.released {
                return true;
            }
            let acknowledges = returned.call.is_written_before(read_at);
            if acknowledges {
                messages.append(&mut returned.messages);
            } else {
                is_later_written |= returned.call.is_written();
            }
            !acknowledges
        });
        if !messages.is_empty() {
            self.acknowledge(Acknowledge::Ids(messages), None, ctx);
        }
        // The store does not know which answers were written after the call was read: then it acknowledges none.
        if self.store.is_shared() && !is_later_written {
            let op = self.store.acknowledge_returned(self.id, now());
            self.acknowledge_remote(op, ctx);
        }
    }

    /// Acknowledges exactly what a receipt names. Whatever else the next call would acknowledge waits again.
    fn acknowledge_receipt(&mut self, receipt: CallReceipt, ctx: &mut Context<Self>) {
        let is_named = |returned: &ReturnedCall| returned.call.receipt() == receipt;
        let named = self.returned.iter().position(is_named);
        if let Some(named) = named.and_then(|at| self.returned.remove(at)) {
            self.acknowledge(Acknowledge::Ids(named.messages), None, ctx);
        }
        let mut others = Vec::new();
        for returned in &mut self.returned {
            if returned.on_next && !returned.released {
                returned.released = true;
                others.extend_from_slice(&returned.messages);
            }
        }
        if !others.is_empty() {
            self.release(Release::Ids(others), ctx);
        }
        if self.store.is_shared() {
            let delivery_limit = self.settings.delivery_limit;
            let op = self.store.acknowledge_receipt(self.id, receipt, delivery_limit, now());
            self.acknowledge_remote(op, ctx);
        }
    }

    fn acknowledge_remote(&mut self, op: Op<Acknowledged>, ctx: &mut Context<Self>) {
        self.then(op, ctx, |session, result, ctx| match result {
            Ok(done) => session.acknowledged(&done, ctx),
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "an acknowledgement is lost: expect a repeat");
            }
        });
    }

    /// Another caller has the session: the calls of those that had it before are refused, those that wait at once.
    pub(super) fn fence_out(&mut self, incarnation: u32, ctx: &mut Context<Self>) {
        if self.incarnation == incarnation {
            return;
        }
        self.incarnation = incarnation;
        for waiter in std::mem::take(&mut self.waiters) {
            if let Some(deadline) = waiter.timer {
                ctx.cancel_future(deadline);
            }
            let _ = waiter.reply.send(Err(BrokerError::SessionTakenOver));
        }
        self.waiters_changed(ctx);
        for watcher in self.watchers.drain(..) {
            watcher.close(CloseReason::TakenOver);
        }
        self.watchers_changed(ctx);
    }

    /// Lets a call wait, in the place that is its by age.
    fn enqueue_waiter(&mut self, mut waiter: Waiter, ctx: &mut Context<Self>) {
        if self.waiters.len() >= WAITERS_MAX {
            let _ = waiter.reply.send(Err(BrokerError::unavailable()));
            return self.waiters_changed(ctx);
        }
        waiter.call.mark_waiting();
        waiter.budget.release();
        // It asked for a longer message before, and what comes may be short.
        waiter.bytes_max = waiter.bytes_max.min(PAGE_BYTES_MAX);
        let number = waiter.number;
        let wait_ms = waiter.until_ms.unwrap_or(0).saturating_sub(now().mono_ms);
        let give_up = move |session: &mut Self, ctx: &mut Context<Self>| session.expire_waiter(number, ctx);
        waiter.timer = Some(ctx.run_later(Duration::from_millis(wait_ms), give_up));
        let at = self.waiters.partition_point(|other| other.number < number);
        self.waiters.insert(at, waiter);
        self.waiters_changed(ctx);
    }

    fn expire_waiter(&mut self, number: u64, ctx: &mut Context<Self>) {
        if let Some(at) = self.waiters.iter().position(|waiter| waiter.number == number)
            && let Some(waiter) = self.waiters.remove(at)
        {
            let _ = waiter.reply.send(Ok(ReceiveOutcome::Messages(ReceivedMessages {
                deliveries: Vec::new(),
                remaining: self.state.depth().waiting,
            })));
        }
        self.waiters_changed(ctx);
    }
}

impl Handler<Envelope<ReceiveMessages>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<ReceiveMessages>, ctx: &mut Context<Self>) {
        let ReceiveMessages {
            call,
            limit,
            bytes_max,
            budget: room,
            until_ms,
            is_retry: asks_again,
            mode,
            receipt,
            read_at,
            incarnation,
            reply,
        } = message;
        if incarnation != self.incarnation {
            let _ = reply.send(Err(BrokerError::SessionTakenOver));
            return;
        }
        match receipt {
            _ if asks_again => {}
            Some(receipt) => self.acknowledge_receipt(receipt, ctx),
            None if mode == ReceiveMode::OnNext => self.acknowledge_on_next(read_at, ctx),
            None => {}
        }
        self.waiter_count += 1;
        let waiter = Waiter {
            call,
            limit,
            bytes_max,
            budget: room,
            mode,
            reply,
            until_ms,
            timer: None,
            number: self.waiter_count,
            incarnation,
        };
        if !self.read_inbox(waiter, ctx) {
            self.waiters_changed(ctx);
        }
    }
}

impl Handler<Envelope<AnswerWritten>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<AnswerWritten>, ctx: &mut Context<Self>) {
        let is_meant = |returned: &&ReturnedCall| {
            returned.on_next && !returned.released && returned.call.is_same_call(&message.call)
        };
        let Some(returned) = self.returned.iter().find(is_meant) else {
            return;
        };
        let op = self.store.mark_returned(self.id, returned.messages.clone());
        self.then(op, ctx, |session, marked, _| {
            if let Err(error) = marked {
                tracing::warn!(session = %session.id, %error, "what was returned may be returned again");
            }
        });
    }
}

impl Handler<Envelope<CancelReceive>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<CancelReceive>, ctx: &mut Context<Self>) {
        let CancelReceive { call } = message;
        if let Some(at) = self.waiters.iter().position(|waiter| waiter.call.is_same_call(&call))
            && let Some(waiter) = self.waiters.remove(at)
        {
            if let Some(deadline) = waiter.timer {
                ctx.cancel_future(deadline);
            }
            self.waiters_changed(ctx);
        }
        if let Some(at) = self
            .returned
            .iter()
            .position(|returned| returned.call.is_same_call(&call))
            && let Some(returned) = self.returned.remove(at)
            && !returned.released
        {
            self.release(Release::Ids(returned.messages), ctx);
        }
    }
}

impl Handler<Envelope<Fence>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Fence>, ctx: &mut Context<Self>) {
        self.fence_out(message.incarnation, ctx);
    }
}
