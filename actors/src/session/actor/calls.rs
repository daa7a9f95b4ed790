//! The calls of `receive_messages`: served, kept waiting, given back.

use std::{sync::Arc, time::Duration};

use actix::{AsyncContext, Context, Handler, SpawnHandle};
use tokio::sync::oneshot;

use super::{Session, hand_over, ids_of};
use crate::{
    clock::now,
    model::{BrokerError, CallReceipt, MessageId, PAGE_BYTES_MAX},
    session::{
        Answered, Closing, Fence, GiveBack, ReadAt, ReadRoom, ReceiveCall, ReceiveMessages, ReceiveMode, Received,
        Served, state::Event,
    },
    storage::{Acknowledge, Acknowledged, Depth, Leased, Op, Release, StoreError},
    supervise::Posted,
};

/// Most calls of `receive_messages` that may wait for one session.
const WAITERS_LEN_MAX: usize = 32;
/// Answered calls of `receive_messages` that a session remembers, to be acknowledged by a later one or given back. What
/// an older one returned stays leased until it is acknowledged by id or released.
const RETURNED_LEN_MAX: usize = 32;
/// Messages in these, 16 bytes each.
const RETURNED_MESSAGES_MAX: usize = 8192;

/// What one call returned.
pub(super) struct Returned {
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
    pub(super) room: Arc<dyn ReadRoom>,
    pub(super) mode: ReceiveMode,
    pub(super) reply: oneshot::Sender<Result<Served, BrokerError>>,
    /// On the monotonic clock; None for a call that does not wait.
    pub(super) until_ms: Option<u64>,
    /// There while it waits.
    pub(super) deadline: Option<SpawnHandle>,
    pub(super) number: u64,
    pub(super) incarnation: u32,
}

impl Waiter {
    /// Whether somebody still wants the answer.
    fn is_wanted(&self) -> bool {
        !self.call.is_given_up() && !self.reply.is_closed()
    }
}

impl Session {
    /// Hands what waits to the calls that wait, in their order.
    pub(super) fn serve(&mut self, ctx: &mut Context<Self>) {
        if self.looking > 0 {
            self.look_again = true;
            return;
        }
        while let Some(waiter) = self.waiters.pop_front() {
            if let Some(deadline) = waiter.deadline {
                ctx.cancel_future(deadline);
            }
            if waiter.is_wanted() && self.look(waiter, ctx) {
                return;
            }
        }
        self.waiters_changed(ctx);
    }

    /// Reads the inbox for a call. The call counts among those that wait from before the reading on, so that the
    /// session is told of what comes meanwhile. False when there is no room for what it would read: the call asks again.
    fn look(&mut self, waiter: Waiter, ctx: &mut Context<Self>) -> bool {
        let (receipt, limit, bytes_max) = (waiter.call.receipt(), waiter.limit.max(1), waiter.bytes_max);
        if !waiter.room.try_reserve(bytes_max) {
            let _ = waiter.reply.send(Ok(Served::NeedsRoom(bytes_max)));
            return false;
        }
        self.looking += 1;
        self.waiters_changed(ctx);
        let lease = self.store.lease_for_call(self.id, receipt, limit, bytes_max, now());
        self.in_order(lease, ctx, move |session, leased, ctx| {
            session.looking -= 1;
            session.pass_over(leased.as_ref().ok(), ctx);
            session.looked(waiter, leased, ctx);
            if std::mem::take(&mut session.look_again) {
                session.serve(ctx);
            }
        });
        true
    }

    /// What a call leased is in nobody's turn.
    fn pass_over(&mut self, leased: Option<&Leased>, ctx: &mut Context<Self>) {
        match leased {
            Some(leased) => {
                self.push_in_turn(leased.numbers.clone(), Vec::new(), ctx);
            }
            // Whatever it leased is given back.
            None => self.stands_by = None,
        }
    }

    fn looked(&mut self, waiter: Waiter, leased: Result<Leased, StoreError>, ctx: &mut Context<Self>) {
        match leased {
            Ok(leased) if waiter.incarnation != self.incarnation => {
                self.waiters_changed(ctx);
                self.release(Release::Ids(ids_of(&leased.deliveries)), ctx);
                let _ = waiter.reply.send(Err(BrokerError::SessionTakenOver));
            }
            Ok(Leased {
                deliveries,
                depth,
                beyond: Some(bytes),
                ..
            }) if deliveries.is_empty() => {
                self.waiters_changed(ctx);
                let _ = waiter.reply.send(Ok(Served::NeedsRoom(bytes)));
                // It may never ask again: the others that wait look for themselves.
                self.happened(Event::Changed { depth }, ctx);
            }
            Ok(leased) if leased.deliveries.is_empty() && waiter.until_ms.is_some() => {
                if waiter.is_wanted() {
                    self.wait(waiter, ctx);
                } else {
                    self.waiters_changed(ctx);
                }
                // Whatever the depth says: there is nothing to be had now.
                let depth = Depth {
                    waiting: 0,
                    ..leased.depth
                };
                self.happened(Event::Changed { depth }, ctx);
            }
            Ok(leased) => {
                self.waiters_changed(ctx);
                self.return_messages(leased, waiter, ctx);
            }
            Err(error) => {
                self.waiters_changed(ctx);
                let _ = waiter.reply.send(Err(error.into()));
                self.mend_later(false, ctx);
            }
        }
    }

    pub(super) fn waiters_changed(&mut self, ctx: &mut Context<Self>) {
        let waiters = self.waiters.len() + self.looking;
        self.happened(Event::WaitersChanged { waiters }, ctx);
    }

    /// Gives a caller its messages, or puts them back if it has gone.
    fn return_messages(&mut self, leased: Leased, Waiter { call, mode, reply, .. }: Waiter, ctx: &mut Context<Self>) {
        let Leased { deliveries, depth, .. } = leased;
        let ids = ids_of(&deliveries);
        self.vitals.set_depth(depth);
        if call.is_given_up() {
            return self.release(Release::Ids(ids), ctx);
        }
        hand_over(&deliveries);
        let sent = reply.send(Ok(Served::Messages(Received {
            deliveries,
            remaining: depth.waiting,
        })));
        if sent.is_err() {
            return self.release(Release::Ids(ids), ctx);
        }
        self.happened(Event::Changed { depth }, ctx);
        match mode {
            _ if ids.is_empty() => {}
            ReceiveMode::Immediate => self.acknowledge(Acknowledge::Ids(ids), None, ctx),
            ReceiveMode::OnNext | ReceiveMode::Manual => self.remember(Returned {
                call,
                messages: ids,
                on_next: mode == ReceiveMode::OnNext,
                released: false,
            }),
        }
    }

    fn remember(&mut self, returned: Returned) {
        let mut messages_len = returned.messages.len();
        messages_len += self.returned.iter().map(|known| known.messages.len()).sum::<usize>();
        while self.returned.len() >= RETURNED_LEN_MAX || messages_len > RETURNED_MESSAGES_MAX {
            let Some(oldest) = self.returned.pop_front() else { break };
            messages_len -= oldest.messages.len();
        }
        self.returned.push_back(returned);
    }

    /// Everything that is leased is released: what calls returned waits again, and is acknowledged by its receipt alone.
    pub(super) fn returned_are_released(&mut self) {
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
            self.acknowledged_elsewhere(op, ctx);
        }
    }

    /// Acknowledges exactly what a receipt names. Whatever else the next call would acknowledge waits again.
    fn settle_receipt(&mut self, receipt: CallReceipt, ctx: &mut Context<Self>) {
        let is_named = |returned: &Returned| returned.call.receipt() == receipt;
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
            let op = self.store.settle_receipt(self.id, receipt, delivery_limit, now());
            self.acknowledged_elsewhere(op, ctx);
        }
    }

    fn acknowledged_elsewhere(&mut self, op: Op<Acknowledged>, ctx: &mut Context<Self>) {
        self.in_order(op, ctx, |session, result, ctx| match result {
            Ok(done) => session.acknowledged(&done, ctx),
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "an acknowledgement is lost: expect a repeat");
            }
        });
    }

    /// Another caller has the session: the calls of those that had it before are refused, those that wait at once.
    pub(super) fn fence(&mut self, incarnation: u32, ctx: &mut Context<Self>) {
        if self.incarnation == incarnation {
            return;
        }
        self.incarnation = incarnation;
        for waiter in std::mem::take(&mut self.waiters) {
            if let Some(deadline) = waiter.deadline {
                ctx.cancel_future(deadline);
            }
            let _ = waiter.reply.send(Err(BrokerError::SessionTakenOver));
        }
        self.waiters_changed(ctx);
        for watcher in self.watchers.drain(..) {
            watcher.close(Closing::TakenOver);
        }
        self.watchers_changed(ctx);
    }

    /// Lets a call wait, in the place that is its by age.
    fn wait(&mut self, mut waiter: Waiter, ctx: &mut Context<Self>) {
        if self.waiters.len() >= WAITERS_LEN_MAX {
            let _ = waiter.reply.send(Err(BrokerError::unavailable()));
            return self.waiters_changed(ctx);
        }
        waiter.call.begins_to_wait();
        waiter.room.give_back();
        // It asked for a longer message before, and what comes may be short.
        waiter.bytes_max = waiter.bytes_max.min(PAGE_BYTES_MAX);
        let number = waiter.number;
        let wait_ms = waiter.until_ms.unwrap_or(0).saturating_sub(now().mono_ms);
        let give_up = move |session: &mut Self, ctx: &mut Context<Self>| session.give_up_waiting(number, ctx);
        waiter.deadline = Some(ctx.run_later(Duration::from_millis(wait_ms), give_up));
        let at = self.waiters.partition_point(|other| other.number < number);
        self.waiters.insert(at, waiter);
        self.waiters_changed(ctx);
    }

    fn give_up_waiting(&mut self, number: u64, ctx: &mut Context<Self>) {
        if let Some(at) = self.waiters.iter().position(|waiter| waiter.number == number)
            && let Some(waiter) = self.waiters.remove(at)
        {
            let _ = waiter.reply.send(Ok(Served::Messages(Received {
                deliveries: Vec::new(),
                remaining: self.state.depth().waiting,
            })));
        }
        self.waiters_changed(ctx);
    }
}

impl Handler<Posted<ReceiveMessages>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<ReceiveMessages>, ctx: &mut Context<Self>) {
        let ReceiveMessages {
            call,
            limit,
            bytes_max,
            room,
            until_ms,
            asks_again,
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
            Some(receipt) => self.settle_receipt(receipt, ctx),
            None if mode == ReceiveMode::OnNext => self.acknowledge_on_next(read_at, ctx),
            None => {}
        }
        self.waiters_counted += 1;
        let waiter = Waiter {
            call,
            limit,
            bytes_max,
            room,
            mode,
            reply,
            until_ms,
            deadline: None,
            number: self.waiters_counted,
            incarnation,
        };
        if !self.look(waiter, ctx) {
            self.waiters_changed(ctx);
        }
    }
}

impl Handler<Posted<Answered>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Answered>, ctx: &mut Context<Self>) {
        let is_meant = |returned: &&Returned| returned.on_next && !returned.released && returned.call.is(&message.call);
        let Some(returned) = self.returned.iter().find(is_meant) else {
            return;
        };
        let op = self.store.mark_returned(self.id, returned.messages.clone());
        self.in_order(op, ctx, |session, marked, _| {
            if let Err(error) = marked {
                tracing::warn!(session = %session.id, %error, "what was returned may be returned again");
            }
        });
    }
}

impl Handler<Posted<GiveBack>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<GiveBack>, ctx: &mut Context<Self>) {
        let GiveBack { call } = message;
        if let Some(at) = self.waiters.iter().position(|waiter| waiter.call.is(&call))
            && let Some(waiter) = self.waiters.remove(at)
        {
            if let Some(deadline) = waiter.deadline {
                ctx.cancel_future(deadline);
            }
            self.waiters_changed(ctx);
        }
        if let Some(at) = self.returned.iter().position(|returned| returned.call.is(&call))
            && let Some(returned) = self.returned.remove(at)
            && !returned.released
        {
            self.release(Release::Ids(returned.messages), ctx);
        }
    }
}

impl Handler<Posted<Fence>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Fence>, ctx: &mut Context<Self>) {
        self.fence(message.incarnation, ctx);
    }
}
