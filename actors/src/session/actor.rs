use std::{collections::VecDeque, sync::Arc, time::Duration};

use actix::{Actor, AsyncContext, Context, Handler, Message, SpawnHandle, Supervised};
use tokio::sync::oneshot;

use super::{
    AcknowledgeMessages, Attach, Closing, Connection, Detach, Disconnect, Nudge, ReceiveMessages, ReceiveMode,
    Received, Retire, Subscribe, Vitals, Writable, Written,
    state::{AckMode, Effect, Event, State},
};
use crate::{
    clock::now,
    model::{BrokerError, ConnectionId, DeadLetterReason, MessageId, Presence, SessionId, SessionStatus, Status},
    storage::{Acknowledge, Acknowledged, Delivery, Leased, Release, Released, Store, StoreError},
    supervise::{Posted, Pulse, settle},
};

/// Most messages one lease asks for: what one turn of the actor may take.
const LEASE_LEN_MAX: usize = 1024;
/// Most bytes of messages one call of `receive_messages` returns, unless a single one is larger.
const RECEIVE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most calls of `receive_messages` that may wait for one session.
const WAITERS_LEN_MAX: usize = 32;

/// The actor of one session. Its inbox is in the store, and so is all that must survive it; the link to the live
/// connection is a handle that survives a restart.
pub struct Session {
    id: SessionId,
    settings: SessionSettings,
    vitals: Arc<Vitals>,
    store: Arc<dyn Store>,
    pulse: Arc<Pulse>,
    ended: Box<dyn Fn(Ended)>,
    state: State,
    connection: Option<Arc<dyn Connection>>,
    /// Taken over, about to be closed.
    older: Option<Arc<dyn Connection>>,
    waiters: VecDeque<Waiter>,
    waiters_counted: u64,
    /// What the last `receive_messages` in mode `on_next` returned.
    returned: Vec<MessageId>,
    timer: Option<SpawnHandle>,
    restarted: bool,
}

/// A session is over; its parent forgets it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Ended {
    pub session: SessionId,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionSettings {
    pub presence: Presence,
    pub retention: Duration,
    pub delivery_limit: u32,
    pub named: bool,
}

struct Waiter {
    limit: usize,
    mode: ReceiveMode,
    reply: oneshot::Sender<Result<Received, BrokerError>>,
    /// On the monotonic clock.
    until_ms: u64,
    deadline: SpawnHandle,
    number: u64,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        settings: SessionSettings,
        vitals: Arc<Vitals>,
        store: Arc<dyn Store>,
        pulse: Arc<Pulse>,
        ended: impl Fn(Ended) + 'static,
    ) -> Self {
        Self {
            id,
            settings,
            vitals,
            store,
            pulse,
            ended: Box::new(ended),
            state: State::new(settings.presence, settings.retention, settings.named),
            connection: None,
            older: None,
            waiters: VecDeque::new(),
            waiters_counted: 0,
            returned: Vec::new(),
            timer: None,
            restarted: false,
        }
    }

    fn happened(&mut self, event: Event, ctx: &mut Context<Self>) {
        let effects = self.state.on(event);
        self.vitals.set_attentive(self.state.attentive());
        for effect in effects {
            self.act(effect, ctx);
        }
    }

    fn act(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::CloseTakenOver(id) => self.close(id, Closing::TakenOver),
            Effect::CloseSilent(id) => self.close(id, Closing::Silent),
            Effect::Release => self.release(Release::All, ctx),
            Effect::Drain { limit } => self.drain(limit, ctx),
            Effect::Serve => self.serve(ctx),
            Effect::Announce => {
                if let Some(connection) = &self.connection {
                    connection.inbox_changed();
                }
            }
            Effect::Became(status) => {
                tracing::debug!(session = %self.id, status = status.as_str(), "presence changed");
            }
            Effect::WakeAt { mono_ms } => self.wake_at(mono_ms, ctx),
            Effect::Retire => self.retire(DeadLetterReason::RecipientGone, ctx),
        }
    }

    fn close(&mut self, id: ConnectionId, why: Closing) {
        for held in [&mut self.older, &mut self.connection] {
            if let Some(connection) = held.take_if(|connection| connection.id() == id) {
                connection.close(why);
            }
        }
    }

    fn drain(&mut self, limit: usize, ctx: &mut Context<Self>) {
        let Some(connection) = self.connection.clone() else {
            return;
        };
        let room = connection.room();
        if room == 0 {
            let depth = self.state.depth();
            return self.happened(Event::Drained { depth, handed_over: 0 }, ctx);
        }
        let lease = self.store.lease(self.id, limit.min(LEASE_LEN_MAX), room, now());
        settle(lease, self, ctx, move |session, leased, ctx| {
            session.drained(&connection, leased, ctx)
        });
    }

    fn drained(
        &mut self,
        connection: &Arc<dyn Connection>,
        leased: Result<Leased, StoreError>,
        ctx: &mut Context<Self>,
    ) {
        let Leased { deliveries, depth } = match leased {
            Ok(leased) => leased,
            Err(error) => {
                tracing::warn!(session = %self.id, %error, "the inbox cannot be read; tried again at the next event");
                let depth = self.state.depth();
                return self.happened(Event::Drained { depth, handed_over: 0 }, ctx);
            }
        };
        if self.state.connection() != Some(connection.id()) {
            // Taken for a connection that is gone: its successor gets them.
            return self.release(Release::Ids(ids_of(&deliveries)), ctx);
        }
        hand_over(&deliveries);
        connection.push(&deliveries);
        self.vitals.set_depth(depth);
        self.happened(
            Event::Drained {
                depth,
                handed_over: deliveries.len(),
            },
            ctx,
        );
    }

    /// Hands what waits to the calls that wait, in their order.
    fn serve(&mut self, ctx: &mut Context<Self>) {
        while let Some(waiter) = self.waiters.pop_front() {
            ctx.cancel_future(waiter.deadline);
            if waiter.reply.is_closed() {
                continue;
            }
            self.happened(
                Event::WaitersChanged {
                    waiters: self.waiters.len(),
                },
                ctx,
            );
            let lease = self.store.lease(self.id, waiter.limit, RECEIVE_BYTES_MAX, now());
            return settle(lease, self, ctx, move |session, leased, ctx| {
                session.serve_one(waiter, leased, ctx)
            });
        }
        self.happened(Event::WaitersChanged { waiters: 0 }, ctx);
    }

    fn serve_one(&mut self, waiter: Waiter, leased: Result<Leased, StoreError>, ctx: &mut Context<Self>) {
        match leased {
            Ok(leased) if leased.deliveries.is_empty() => {
                // The connection, or another call, was quicker.
                self.happened(Event::Changed { depth: leased.depth }, ctx);
                self.wait(waiter.limit, waiter.until_ms, waiter.mode, waiter.reply, ctx);
            }
            Ok(leased) => {
                let more = leased.depth.waiting > 0;
                self.return_messages(leased, waiter.mode, waiter.reply, ctx);
                if more {
                    self.serve(ctx);
                }
            }
            Err(error) => {
                let _ = waiter.reply.send(Err(error.into()));
            }
        }
    }

    /// Gives a caller its messages, or puts them back if it has gone.
    fn return_messages(
        &mut self,
        leased: Leased,
        mode: ReceiveMode,
        reply: oneshot::Sender<Result<Received, BrokerError>>,
        ctx: &mut Context<Self>,
    ) {
        let Leased { deliveries, depth } = leased;
        let ids = ids_of(&deliveries);
        self.vitals.set_depth(depth);
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
            ReceiveMode::OnNext => self.returned = ids,
            ReceiveMode::Manual => {}
            ReceiveMode::Immediate if ids.is_empty() => {}
            ReceiveMode::Immediate => self.acknowledge(Acknowledge::Ids(ids), None, ctx),
        }
    }

    fn wait(
        &mut self,
        limit: usize,
        until_ms: u64,
        mode: ReceiveMode,
        reply: oneshot::Sender<Result<Received, BrokerError>>,
        ctx: &mut Context<Self>,
    ) {
        self.waiters_counted += 1;
        let number = self.waiters_counted;
        let wait = Duration::from_millis(until_ms.saturating_sub(now().mono_ms));
        let deadline = ctx.run_later(wait, move |session, ctx| session.give_up_waiting(number, ctx));
        self.waiters.push_back(Waiter {
            limit,
            mode,
            reply,
            until_ms,
            deadline,
            number,
        });
        self.happened(
            Event::WaitersChanged {
                waiters: self.waiters.len(),
            },
            ctx,
        );
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
        self.happened(
            Event::WaitersChanged {
                waiters: self.waiters.len(),
            },
            ctx,
        );
    }

    fn acknowledge(
        &mut self,
        which: Acknowledge,
        reply: Option<oneshot::Sender<Result<Acknowledged, BrokerError>>>,
        ctx: &mut Context<Self>,
    ) {
        let op = self.store.acknowledge(self.id, which, now());
        settle(op, self, ctx, move |session, result, ctx| {
            if let Ok(done) = &result {
                for message in &done.watched {
                    message.progress.reach(Status::Acknowledged);
                }
                session.vitals.set_depth(done.depth);
                session.happened(Event::Changed { depth: done.depth }, ctx);
            }
            match reply {
                Some(reply) => drop(reply.send(result.map_err(Into::into))),
                None => {
                    if let Err(error) = result {
                        tracing::warn!(session = %session.id, %error, "an acknowledgement is lost: expect a repeat");
                    }
                }
            }
        });
    }

    fn release(&mut self, which: Release, ctx: &mut Context<Self>) {
        if which == Release::All {
            self.returned.clear();
        }
        let op = self.store.release(self.id, which, self.settings.delivery_limit, now());
        settle(op, self, ctx, |session, result, ctx| match result {
            Ok(Released { dead, depth, .. }) => {
                if dead > 0 {
                    tracing::warn!(session = %session.id, dead, "messages reached the delivery limit: dead-lettered");
                }
                session.vitals.set_depth(depth);
                session.happened(Event::Changed { depth }, ctx);
                if depth.waiting > 0 && !session.waiters.is_empty() {
                    session.serve(ctx);
                }
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "what was delivered cannot be put back yet: tried again");
                ctx.run_later(Duration::from_secs(1), |session, ctx| {
                    session.release(Release::All, ctx)
                });
            }
        });
    }

    fn wake_at(&mut self, mono_ms: u64, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        let delay = Duration::from_millis(mono_ms.saturating_sub(now().mono_ms));
        self.timer = Some(ctx.run_later(delay, |session, ctx| {
            session.timer = None;
            session.tick(ctx);
        }));
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        let now = now();
        if self.waiters.iter().any(|waiter| !waiter.reply.is_closed()) {
            self.vitals.touch(now);
        }
        let said_goodbye = self.vitals.status(self.settings.presence, now) == SessionStatus::Disconnected;
        let last_seen_mono_ms = self.vitals.last_seen_mono_ms();
        let waiting = self.vitals.waiting();
        self.happened(
            Event::Ticked {
                now,
                last_seen_mono_ms,
                said_goodbye,
                waiting,
            },
            ctx,
        );
    }

    fn retire(&mut self, reason: DeadLetterReason, ctx: &mut Context<Self>) {
        if let Some(connection) = self.connection.take() {
            connection.close(Closing::Released);
        }
        for waiter in self.waiters.drain(..) {
            let _ = waiter.reply.send(Err(BrokerError::SessionNotFound));
        }
        self.vitals.set_attentive(false);
        // From now on, for whoever registers its name meanwhile.
        self.pulse.finish();
        let op = self.store.remove_session(self.id, reason, now());
        settle(op, self, ctx, move |session, result, ctx| match result {
            Ok(dead) => {
                tracing::info!(session = %session.id, dead, "session released");
                (session.ended)(Ended { session: session.id });
                actix::ActorContext::stop(ctx);
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "the session cannot be released yet: tried again");
                ctx.run_later(Duration::from_secs(1), move |session, ctx| session.retire(reason, ctx));
            }
        });
    }
}

fn ids_of(deliveries: &[Delivery]) -> Vec<MessageId> {
    deliveries.iter().map(|delivery| delivery.message.id).collect()
}

fn hand_over(deliveries: &[Delivery]) {
    if deliveries.is_empty() {
        return;
    }
    let at_ms = now().unix_ms;
    for delivery in deliveries {
        delivery.message.progress.hand_over(at_ms);
    }
}

impl Actor for Session {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.tick(ctx);
        if std::mem::take(&mut self.restarted) {
            // What was leased when the actor panicked may never have been written: it is delivered again.
            self.release(Release::All, ctx);
        }
    }
}

impl Supervised for Session {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.state.reload();
        self.waiters.clear();
        self.returned.clear();
        self.timer = None;
        self.restarted = true;
    }
}

impl Handler<Posted<Nudge>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Nudge>, ctx: &mut Context<Self>) {
        if self.state.is_away() {
            self.tick(ctx);
        }
        self.happened(Event::Nudged, ctx);
        drop(message.until_handled);
    }
}

impl Handler<Posted<Attach>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { mut message, .. }: Posted<Attach>, ctx: &mut Context<Self>) {
        if message.named {
            self.state.set_named();
        }
        match message.connection.take() {
            Some(connection) => {
                let id = connection.id();
                self.older = self.connection.replace(connection).filter(|older| older.id() != id);
                self.happened(Event::Attached { connection: id }, ctx);
            }
            None => self.happened(Event::Resumed, ctx),
        }
        self.tick(ctx);
    }
}

impl Handler<Posted<Detach>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Detach>, ctx: &mut Context<Self>) {
        self.connection
            .take_if(|connection| connection.id() == message.connection);
        self.happened(
            Event::Detached {
                connection: message.connection,
            },
            ctx,
        );
    }
}

impl Handler<Posted<Subscribe>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Subscribe>, ctx: &mut Context<Self>) {
        let Subscribe {
            connection,
            inbox_changes,
            push,
        } = message;
        self.happened(
            Event::Subscribed {
                connection,
                inbox_changes,
                push,
            },
            ctx,
        );
    }
}

impl Handler<Posted<Written>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Written>, ctx: &mut Context<Self>) {
        let auto = self.state.push().is_some_and(|push| push.ack == AckMode::Auto);
        if self.state.connection() == Some(message.connection) && auto {
            self.acknowledge(Acknowledge::Ids(message.messages), None, ctx);
        }
    }
}

impl Handler<Posted<Writable>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Writable>, ctx: &mut Context<Self>) {
        self.happened(
            Event::Writable {
                connection: message.connection,
            },
            ctx,
        );
    }
}

impl Handler<Posted<AcknowledgeMessages>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<AcknowledgeMessages>, ctx: &mut Context<Self>) {
        self.acknowledge(message.which, message.reply, ctx);
    }
}

impl Handler<Posted<ReceiveMessages>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<ReceiveMessages>, ctx: &mut Context<Self>) {
        let ReceiveMessages {
            limit,
            wait,
            mode,
            reply,
        } = message;
        let returned = std::mem::take(&mut self.returned);
        if mode == ReceiveMode::OnNext && !returned.is_empty() {
            self.acknowledge(Acknowledge::Ids(returned), None, ctx);
        }
        let lease = self.store.lease(self.id, limit, RECEIVE_BYTES_MAX, now());
        settle(lease, self, ctx, move |session, leased, ctx| match leased {
            Ok(leased) if leased.deliveries.is_empty() && !wait.is_zero() => {
                session.happened(Event::Changed { depth: leased.depth }, ctx);
                if session.waiters.len() < WAITERS_LEN_MAX {
                    session.wait(limit, now().after(wait), mode, reply, ctx);
                } else {
                    let _ = reply.send(Err(BrokerError::unavailable()));
                }
            }
            Ok(leased) => session.return_messages(leased, mode, reply, ctx),
            Err(error) => drop(reply.send(Err(error.into()))),
        });
    }
}

impl Handler<Posted<Disconnect>> for Session {
    type Result = usize;

    fn handle(&mut self, _: Posted<Disconnect>, ctx: &mut Context<Self>) -> Self::Result {
        self.vitals.say_goodbye();
        if let Some(connection) = self.state.connection() {
            // The connection itself stays: it may register again.
            self.connection = None;
            self.happened(Event::Detached { connection }, ctx);
        }
        self.tick(ctx);
        self.state.depth().waiting
    }
}

impl Handler<Posted<Retire>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Retire>, ctx: &mut Context<Self>) {
        self.retire(message.reason, ctx);
    }
}

#[cfg(feature = "faults")]
impl Handler<Posted<super::messages::Panic>> for Session {
    type Result = ();

    fn handle(&mut self, _: Posted<super::messages::Panic>, _: &mut Context<Self>) {
        panic!("a fault was injected");
    }
}

impl Drop for Session {
    /// A session that was given up leaves nobody to talk to its connection; the client may come back.
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close(Closing::Failed);
        }
    }
}
