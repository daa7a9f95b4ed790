//! The calls of `receive_messages`: reads the inbox for them, answers them, and acknowledges what they returned.

use std::{collections::VecDeque, time::Duration};

use actix::{AsyncContext, Context, Handler};

use super::{Caller, ForCall, Reader, Session, Waiter};
use crate::{
    clock::now,
    metrics::StoreOperation,
    model::{BrokerError, CallReceipt, MessageId, PAGE_BYTES_MAX},
    ops::then,
    session::{
        AnswerWritten, CancelReceive, CloseReason, Fence, ReadAt, ReceiveMessages, ReceiveMode, ReceiveOutcome,
        ReceivedMessages, ownership::Retry, read_budget::Growth, receives::ReadOutcome, speaking::Unspoken,
        state::Event, waking,
    },
    storage::{Acknowledge, Acknowledged, Delivery, Depth, Lease, Op, Release},
    supervise::Envelope,
};

fn is_wanted(waiter: &Waiter) -> bool {
    !waiter.call.is_cancelled() && !waiter.caller.is_gone()
}

impl Session {
    /// Gives the waiting messages to the calls that wait, in their order.
    pub(super) fn serve_waiters(&mut self, ctx: &mut Context<Self>) {
        while let Some(waiter) = self.receives.next_to_serve() {
            cancel_timer(&waiter, ctx);
            if is_wanted(&waiter) && self.read_inbox(waiter, ctx) {
                return;
            }
        }
        self.waiters_changed(ctx);
    }

    /// Reads the inbox for a call. The call counts among those that wait from before the read, so that the session is
    /// woken for messages that arrive meanwhile. False when there is no budget for the read: the call has to ask again.
    fn read_inbox(&mut self, waiter: Waiter, ctx: &mut Context<Self>) -> bool {
        let bytes_max = waiter.caller.bytes_max;
        if !waiter.caller.budget.try_reserve(bytes_max) {
            waiter.caller.answer(Ok(ReceiveOutcome::NeedsReservation(bytes_max)));
            return false;
        }
        self.receives.begin_read();
        self.waiters_changed(ctx);
        match self.speaking.until_ready() {
            None => self.lease_for_call(waiter, ctx),
            // What is leased before its lenses are known could not be returned.
            Some(ready) => then(ready, self, ctx, |session, ready, ctx| match ready {
                Ok(()) => session.lease_for_call(waiter, ctx),
                Err(error) => session.finish_failed_read(waiter, error.into(), ctx),
            }),
        }
        true
    }

    fn lease_for_call(&mut self, waiter: Waiter, ctx: &mut Context<Self>) {
        let (limit, bytes_max) = (waiter.caller.limit.max(1), waiter.caller.bytes_max);
        let (begun, bytes) = (self.lease_time(), self.growth.as_sent(bytes_max));
        let op = self
            .store
            .lease_for_call(self.id, waiter.call.receipt(), limit, bytes, now());
        self.then(StoreOperation::Lease, op, ctx, move |session, lease, ctx| match lease {
            Ok(mut lease) => {
                session.skip_lease_numbers(lease.lease_numbers.clone(), ctx);
                let leased = std::mem::take(&mut lease.deliveries);
                let may_have_more =
                    bytes < bytes_max && lease.blocked_bytes.is_some_and(|blocked| blocked <= bytes_max);
                if leased.is_empty() && may_have_more {
                    session.growth = Growth::default();
                    return session.lease_for_call(waiter, ctx);
                }
                session.deliver(leased, begun, Reader::Call(ForCall { waiter, lease }), ctx);
            }
            Err(error) => {
                // What it may have leased is released, which ends push.
                session.push.stopped();
                session.finish_failed_read(waiter, error.into(), ctx);
            }
        });
    }

    /// Gives a call what was leased for it. `rest` has no room in its answer, and `has_failed` says that it gets less than was
    /// leased because lenses failed.
    pub(super) fn give_to_call(
        &mut self,
        ForCall { waiter, mut lease }: ForCall,
        deliveries: Vec<Delivery>,
        rest: &[Delivery],
        has_failed: bool,
        ctx: &mut Context<Self>,
    ) {
        self.receives.end_read();
        self.growth.note(&deliveries, !rest.is_empty());
        lease.deliveries = deliveries;
        if !rest.is_empty() {
            lease.depth.waiting += rest.len();
            self.return_undelivered(rest, ctx);
        }
        self.finish_read(waiter, lease, has_failed, ctx);
        self.serve_again(ctx);
    }

    /// The versions of what was leased for a call cannot be known now.
    pub(super) fn refuse_read(
        &mut self,
        ForCall { waiter, .. }: ForCall,
        leased: &[Delivery],
        error: Unspoken,
        ctx: &mut Context<Self>,
    ) {
        self.push.stopped();
        self.return_undelivered(leased, ctx);
        let error = match error {
            Unspoken::Unknown(error) => error.into(),
            Unspoken::NoRoom => BrokerError::unavailable(),
        };
        self.finish_failed_read(waiter, error, ctx);
    }

    fn finish_failed_read(&mut self, waiter: Waiter, error: BrokerError, ctx: &mut Context<Self>) {
        self.receives.end_read();
        self.waiters_changed(ctx);
        waiter.caller.answer(Err(error));
        self.retry_later(Retry::Lease, ctx);
        self.serve_again(ctx);
    }

    fn serve_again(&mut self, ctx: &mut Context<Self>) {
        if self.receives.take_must_read_again() {
            self.serve_waiters(ctx);
        }
    }

    fn finish_read(&mut self, mut waiter: Waiter, lease: Lease, has_failed: bool, ctx: &mut Context<Self>) {
        match self.receives.outcome_of_read(&waiter, &lease, has_failed) {
            ReadOutcome::Again if is_wanted(&waiter) => {
                waiter.reads += 1;
                if !self.read_inbox(waiter, ctx) {
                    self.waiters_changed(ctx);
                }
            }
            ReadOutcome::TakenOver => {
                self.waiters_changed(ctx);
                self.return_undelivered(&lease.deliveries, ctx);
                waiter.caller.refuse(BrokerError::SessionTakenOver);
            }
            ReadOutcome::NeedsReservation(bytes) => {
                self.waiters_changed(ctx);
                waiter.caller.answer(Ok(ReceiveOutcome::NeedsReservation(bytes)));
                // This call may never ask again: the others that wait read for themselves.
                self.apply(Event::DepthChanged { depth: lease.depth }, ctx);
            }
            ReadOutcome::Wait => {
                if is_wanted(&waiter) {
                    self.enqueue_waiter(waiter, ctx);
                } else {
                    self.waiters_changed(ctx);
                }
                // Nothing can be leased now, even if the depth says that messages wait.
                let depth = Depth {
                    waiting: 0,
                    ..lease.depth
                };
                self.apply(Event::DepthChanged { depth }, ctx);
            }
            ReadOutcome::Again | ReadOutcome::Return => {
                self.waiters_changed(ctx);
                self.return_messages(lease, waiter, ctx);
            }
        }
    }

    /// Puts leased messages that were not handed out back into the inbox.
    fn return_undelivered(&mut self, leased: &[Delivery], ctx: &mut Context<Self>) {
        self.release(Release::Undelivered(message_ids(leased)), ctx);
    }

    fn waiters_changed(&mut self, ctx: &mut Context<Self>) {
        let waiters = self.receives.len();
        self.apply(Event::WaitersChanged { waiters }, ctx);
    }

    /// Gives a caller its messages, or releases them if it is gone.
    fn return_messages(&mut self, lease: Lease, Waiter { call, caller, .. }: Waiter, ctx: &mut Context<Self>) {
        let Lease { deliveries, depth, .. } = lease;
        let ids = message_ids(&deliveries);
        self.shared.set_depth(depth);
        if call.is_cancelled() || caller.is_gone() {
            return self.return_undelivered(&deliveries, ctx);
        }
        let spans = self.begin_spans(&deliveries);
        self.mark_delivered(&deliveries);
        let sent = caller.reply.send(Ok(ReceiveOutcome::Messages(ReceivedMessages {
            deliveries,
            remaining: depth.waiting,
        })));
        if sent.is_err() {
            return self.release(Release::Undelivered(ids), ctx);
        }
        drop(spans);
        self.apply(Event::DepthChanged { depth }, ctx);
        if !ids.is_empty() {
            self.apply_waking(waking::Event::Read { waiting: depth.waiting }, ctx);
        }
        match caller.mode {
            _ if ids.is_empty() => {}
            ReceiveMode::Immediate => self.acknowledge(Acknowledge::Ids(ids), None, ctx),
            mode => self.receives.remember(call, ids, mode == ReceiveMode::OnNext),
        }
    }

    /// Acknowledges what answers returned that were written before this call was read, here or at another replica.
    fn acknowledge_by_next(&mut self, read_at: ReadAt, ctx: &mut Context<Self>) {
        let next = self.receives.acknowledge_by_next(read_at);
        if !next.messages.is_empty() {
            self.acknowledge(Acknowledge::Ids(next.messages), None, ctx);
        }
        // The store cannot tell answers that were written after the call was read: if there are any, it acknowledges
        // none.
        let store = self.store.replicated().filter(|_| !next.is_later_answer_written);
        if let Some(store) = store {
            let op = store.acknowledge_returned(self.id, now());
            self.acknowledge_remote(op, ctx);
        }
    }

    /// Acknowledges what the receipt names, here or at another replica, and releases everything else that the next
    /// call would acknowledge.
    fn acknowledge_receipt(&mut self, receipt: CallReceipt, ctx: &mut Context<Self>) {
        let effect = self.receives.acknowledge_receipt(receipt);
        if !effect.acknowledged.is_empty() {
            self.acknowledge(Acknowledge::Ids(effect.acknowledged), None, ctx);
        }
        if !effect.released.is_empty() {
            self.release(Release::Ids(effect.released), ctx);
        }
        if let Some(store) = self.store.replicated() {
            let delivery_limit = self.settings.delivery_limit;
            let op = store.acknowledge_receipt(self.id, receipt, delivery_limit, now());
            self.acknowledge_remote(op, ctx);
        }
    }

    fn acknowledge_remote(&mut self, op: Op<Acknowledged>, ctx: &mut Context<Self>) {
        self.then(
            StoreOperation::Acknowledge,
            op,
            ctx,
            |session, result, ctx| match result {
                Ok(done) => session.acknowledged(&done, ctx),
                Err(error) => {
                    tracing::warn!(session = %session.id, %error, "an acknowledgement is lost: expect a repeat");
                }
            },
        );
    }

    /// Another caller has registered the session: refuses the calls that wait and closes the watchers.
    pub(super) fn fence_out(&mut self, incarnation: u32, ctx: &mut Context<Self>) {
        let Some(waiters) = self.receives.fence_out(incarnation) else {
            return;
        };
        Self::refuse_all(waiters, ctx);
        self.waiters_changed(ctx);
        self.connections.close_watchers(CloseReason::TakenOver);
        self.watchers_changed(ctx);
    }

    fn refuse_all(waiters: VecDeque<Waiter>, ctx: &mut Context<Self>) {
        for waiter in waiters {
            cancel_timer(&waiter, ctx);
            waiter.caller.refuse(BrokerError::SessionTakenOver);
        }
    }

    fn enqueue_waiter(&mut self, mut waiter: Waiter, ctx: &mut Context<Self>) {
        if self.receives.is_full() {
            waiter.caller.refuse(BrokerError::unavailable());
            return self.waiters_changed(ctx);
        }
        if self.shared.has_left() {
            self.answer_with_none(waiter);
            return self.waiters_changed(ctx);
        }
        waiter.call.mark_waiting();
        waiter.caller.budget.release();
        // The call may have asked for more bytes than a page, for a long message that another call has taken.
        waiter.caller.bytes_max = waiter.caller.bytes_max.min(PAGE_BYTES_MAX);
        let number = waiter.number;
        let wait_ms = waiter.until_ms.unwrap_or(0).saturating_sub(now().mono_ms);
        let expire = move |session: &mut Self, ctx: &mut Context<Self>| session.expire_waiter(number, ctx);
        waiter.caller.timer = Some(ctx.run_later(Duration::from_millis(wait_ms), expire));
        self.receives.enqueue(waiter);
        self.waiters_changed(ctx);
    }

    /// Answers a call whose waiting time is over with no messages.
    fn expire_waiter(&mut self, number: u64, ctx: &mut Context<Self>) {
        if let Some(waiter) = self.receives.expire(number) {
            self.answer_with_none(waiter);
        }
        self.waiters_changed(ctx);
    }

    /// Answers all calls that wait with no messages, because the session leaves: a call that waits is a sign of life.
    pub(super) fn end_waiting(&mut self, ctx: &mut Context<Self>) {
        for waiter in self.receives.take_waiters() {
            cancel_timer(&waiter, ctx);
            self.answer_with_none(waiter);
        }
        self.waiters_changed(ctx);
    }

    fn answer_with_none(&self, waiter: Waiter) {
        waiter.caller.answer(Ok(ReceiveOutcome::Messages(ReceivedMessages {
            deliveries: Vec::new(),
            remaining: self.state.depth().waiting,
        })));
    }
}

fn cancel_timer(waiter: &Waiter, ctx: &mut Context<Session>) {
    if let Some(timer) = waiter.caller.timer {
        ctx.cancel_future(timer);
    }
}

fn message_ids(deliveries: &[Delivery]) -> Vec<MessageId> {
    deliveries.iter().map(|delivery| delivery.message.id).collect()
}

impl Handler<Envelope<ReceiveMessages>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<ReceiveMessages>, ctx: &mut Context<Self>) {
        let ReceiveMessages {
            call,
            limit,
            bytes_max,
            budget,
            until_ms,
            is_retry,
            mode,
            receipt,
            read_at,
            incarnation,
            reply,
        } = message;
        let caller = Caller {
            limit,
            bytes_max,
            budget,
            mode,
            reply,
            timer: None,
        };
        if incarnation != self.receives.incarnation() {
            return caller.refuse(BrokerError::SessionTakenOver);
        }
        match receipt {
            _ if is_retry => {}
            Some(receipt) => self.acknowledge_receipt(receipt, ctx),
            None if mode == ReceiveMode::OnNext => self.acknowledge_by_next(read_at, ctx),
            None => {}
        }
        let waiter = self.receives.admit(call, until_ms, caller);
        if is_wanted(&waiter) && !self.read_inbox(waiter, ctx) {
            self.waiters_changed(ctx);
        }
    }
}

impl Handler<Envelope<AnswerWritten>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<AnswerWritten>, ctx: &mut Context<Self>) {
        let Some(messages) = self.receives.acked_by_next(&message.call) else {
            return;
        };
        // In one process the session itself knows what it has returned.
        let Some(store) = self.store.replicated() else { return };
        let op = store.mark_returned(self.id, messages.to_vec());
        self.then(StoreOperation::Other, op, ctx, |session, marked, _| {
            if let Err(error) = marked {
                tracing::warn!(session = %session.id, %error, "returned messages may be returned again");
            }
        });
    }
}

impl Handler<Envelope<CancelReceive>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<CancelReceive>, ctx: &mut Context<Self>) {
        let cancelled = self.receives.cancel(&message.call);
        if let Some(waiter) = cancelled.waiter {
            cancel_timer(&waiter, ctx);
            self.waiters_changed(ctx);
        }
        if !cancelled.released.is_empty() {
            let which = if message.call.may_be_read() {
                Release::Ids(cancelled.released)
            } else {
                Release::Undelivered(cancelled.released)
            };
            self.release(which, ctx);
        }
    }
}

impl Handler<Envelope<Fence>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Fence>, ctx: &mut Context<Self>) {
        self.fence_out(message.incarnation, ctx);
    }
}
