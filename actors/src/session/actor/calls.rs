//! The calls of `receive_messages`: served, kept waiting, given back.

use std::{collections::VecDeque, time::Duration};

use actix::{AsyncContext, Context, Handler, SpawnHandle};
use tokio::sync::oneshot;

use super::{Session, hand_over, ids_of};
use crate::{
    clock::now,
    model::{BrokerError, MessageId, PAGE_BYTES_MAX},
    session::{Answered, GiveBack, ReceiveCall, ReceiveMessages, ReceiveMode, Received, state::Event},
    storage::{Acknowledge, Depth, Leased, Release, StoreError},
    supervise::Posted,
};

/// Most calls of `receive_messages` that may wait for one session.
const WAITERS_LEN_MAX: usize = 32;
/// Answered calls of `receive_messages` that are remembered, to be acknowledged by the next or given back.
const RETURNED_LEN_MAX: usize = 32;

/// What one call returned.
pub(super) struct Returned {
    pub(super) call: ReceiveCall,
    pub(super) messages: Vec<MessageId>,
    /// The next call acknowledges it.
    pub(super) on_next: bool,
}

/// A call of `receive_messages`.
pub(super) struct Waiter {
    pub(super) call: ReceiveCall,
    pub(super) limit: usize,
    pub(super) mode: ReceiveMode,
    pub(super) reply: oneshot::Sender<Result<Received, BrokerError>>,
    /// On the monotonic clock; None for a call that does not wait.
    pub(super) until_ms: Option<u64>,
    /// There while it waits.
    pub(super) deadline: Option<SpawnHandle>,
    pub(super) number: u64,
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
            if waiter.is_wanted() {
                return self.look(waiter, ctx);
            }
        }
        self.waiters_changed(ctx);
    }

    /// Reads the inbox for a call. The call counts among those that wait from before the reading on, so that the
    /// session is told of what comes meanwhile.
    fn look(&mut self, waiter: Waiter, ctx: &mut Context<Self>) {
        self.looking += 1;
        self.waiters_changed(ctx);
        let lease = self
            .store
            .lease(self.id, None, waiter.limit.max(1), PAGE_BYTES_MAX, now());
        self.in_order(lease, ctx, move |session, leased, ctx| {
            session.looking -= 1;
            session.pass_over(leased.as_ref().ok(), ctx);
            session.looked(waiter, leased, ctx);
            if std::mem::take(&mut session.look_again) {
                session.serve(ctx);
            }
        });
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
                self.return_messages(leased, waiter.call, waiter.mode, waiter.reply, ctx);
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
    fn return_messages(
        &mut self,
        leased: Leased,
        call: ReceiveCall,
        mode: ReceiveMode,
        reply: oneshot::Sender<Result<Received, BrokerError>>,
        ctx: &mut Context<Self>,
    ) {
        let Leased { deliveries, depth, .. } = leased;
        let ids = ids_of(&deliveries);
        self.vitals.set_depth(depth);
        if call.is_given_up() {
            return self.release(Release::Ids(ids), ctx);
        }
        hand_over(&deliveries);
        let sent = reply.send(Ok(Received {
            deliveries,
            remaining: depth.waiting,
        }));
        if sent.is_err() {
            return self.release(Release::Ids(ids), ctx);
        }
        self.happened(Event::Changed { depth }, ctx);
        match mode {
            _ if ids.is_empty() => {}
            ReceiveMode::Immediate => self.acknowledge(Acknowledge::Ids(ids), None, ctx),
            ReceiveMode::OnNext | ReceiveMode::Manual => {
                if self.returned.len() == RETURNED_LEN_MAX {
                    self.returned.pop_front();
                }
                self.returned.push_back(Returned {
                    call,
                    messages: ids,
                    on_next: mode == ReceiveMode::OnNext,
                });
            }
        }
    }

    /// What the calls so far returned for the next one to acknowledge.
    fn take_returned(&mut self) -> Vec<MessageId> {
        let (taken, kept) = std::mem::take(&mut self.returned)
            .into_iter()
            .partition::<VecDeque<_>, _>(|returned| returned.on_next);
        self.returned = kept;
        taken.into_iter().flat_map(|returned| returned.messages).collect()
    }

    /// The last call may have been answered by another replica.
    fn acknowledge_returned(&mut self, ctx: &mut Context<Self>) {
        let op = self.store.acknowledge_returned(self.id, now());
        self.in_order(op, ctx, |session, result, ctx| match result {
            Ok(done) if done.acknowledged > 0 => session.acknowledged(&done, ctx),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "an acknowledgement is lost: expect a repeat");
            }
        });
    }

    /// Lets a call wait, in the place that is its by age.
    fn wait(&mut self, mut waiter: Waiter, ctx: &mut Context<Self>) {
        if self.waiters.len() >= WAITERS_LEN_MAX {
            let _ = waiter.reply.send(Err(BrokerError::unavailable()));
            return self.waiters_changed(ctx);
        }
        waiter.call.begins_to_wait();
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
            let _ = waiter.reply.send(Ok(Received {
                deliveries: Vec::new(),
                remaining: self.state.depth().waiting,
            }));
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
            wait,
            mode,
            reply,
        } = message;
        if mode == ReceiveMode::OnNext && !self.returned.is_empty() {
            let returned = self.take_returned();
            self.acknowledge(Acknowledge::Ids(returned), None, ctx);
        }
        if mode == ReceiveMode::OnNext && self.store.is_shared() {
            self.acknowledge_returned(ctx);
        }
        self.waiters_counted += 1;
        let waiter = Waiter {
            call,
            limit,
            mode,
            reply,
            until_ms: (!wait.is_zero()).then(|| now().after(wait)),
            deadline: None,
            number: self.waiters_counted,
        };
        self.look(waiter, ctx);
    }
}

impl Handler<Posted<Answered>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Answered>, ctx: &mut Context<Self>) {
        let is_meant = |returned: &&Returned| returned.on_next && returned.call.is(&message.call);
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
        {
            self.release(Release::Ids(returned.messages), ctx);
        }
    }
}
