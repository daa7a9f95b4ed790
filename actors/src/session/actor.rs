use std::{collections::VecDeque, sync::Arc, time::Duration};

use actix::{Actor, AsyncContext, Context, Handler, Message, SpawnHandle, Supervised};
use tokio::sync::oneshot;

use super::{
    AcknowledgeMessages, Attach, Closing, Connection, Detach, Disconnect, GiveBack, Nudge, ReceiveCall,
    ReceiveMessages, ReceiveMode, Received, Retire, Subscribe, Vitals, Writable, Written,
    state::{AckMode, Effect, Event, State},
};
use crate::{
    clock::now,
    model::{BrokerError, ConnectionId, DeadLetterReason, MessageId, Presence, SessionId, SessionStatus, Status},
    storage::{Acknowledge, Acknowledged, Delivery, Depth, Leased, Op, Release, Released, Store, StoreError},
    supervise::{InOrder, Posted, Pulse},
};

/// Most messages one lease asks for: what one turn of the actor may take.
const LEASE_LEN_MAX: usize = 1024;
/// Most bytes of messages one call of `receive_messages` returns, unless a single one is larger. An answer has them
/// twice, and common WebSocket clients take no frame of more than 1 MiB.
const RECEIVE_BYTES_MAX: usize = 384 * 1024;
/// Most calls of `receive_messages` that may wait for one session.
const WAITERS_LEN_MAX: usize = 32;
/// How long after a failure of the store what it left undone is put right.
const MEND_AFTER: Duration = Duration::from_secs(1);
/// Answered calls of `receive_messages` that are remembered, to be acknowledged by the next or given back.
const RETURNED_LEN_MAX: usize = 32;

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
    /// Operations of the store, heard of in the order in which they were begun: what each says of the inbox is then
    /// newer than what the one before it said.
    ops: InOrder<Session>,
    /// By number.
    waiters: VecDeque<Waiter>,
    waiters_counted: u64,
    /// Calls for which the inbox is being read.
    looking: usize,
    /// Something came while it was being read.
    look_again: bool,
    /// What the last calls of `receive_messages` returned.
    returned: VecDeque<Returned>,
    timer: Option<SpawnHandle>,
    mending: Option<SpawnHandle>,
    /// Mending is to put back what is leased.
    release_owed: bool,
    /// An actor before this start may have left messages leased.
    resumes: bool,
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
    /// The session was there before this actor.
    pub resumes: bool,
}

/// What one call returned.
struct Returned {
    call: ReceiveCall,
    messages: Vec<MessageId>,
    /// The next call acknowledges it.
    on_next: bool,
}

/// A call of `receive_messages`.
struct Waiter {
    call: ReceiveCall,
    limit: usize,
    mode: ReceiveMode,
    reply: oneshot::Sender<Result<Received, BrokerError>>,
    /// On the monotonic clock; None for a call that does not wait.
    until_ms: Option<u64>,
    /// There while it waits.
    deadline: Option<SpawnHandle>,
    number: u64,
}

impl Waiter {
    /// Whether somebody still wants the answer.
    fn is_wanted(&self) -> bool {
        !self.call.is_given_up() && !self.reply.is_closed()
    }
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
            ops: InOrder::default(),
            waiters: VecDeque::new(),
            waiters_counted: 0,
            looking: 0,
            look_again: false,
            returned: VecDeque::new(),
            timer: None,
            mending: None,
            release_owed: false,
            resumes: settings.resumes,
        }
    }

    fn happened(&mut self, event: Event, ctx: &mut Context<Self>) {
        let effects = self.state.on(event);
        self.vitals.set_attentive(self.state.attentive());
        self.vitals
            .set_acknowledged_by_writes_of(self.state.acknowledging_connection());
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
        let room = self.connection.as_ref().map_or(0, |connection| connection.room());
        if room == 0 {
            return self.drained_nothing(ctx);
        }
        let link = self.state.link_number();
        let lease = self.store.lease(self.id, limit.min(LEASE_LEN_MAX), room, now());
        self.in_order(lease, ctx, move |session, leased, ctx| {
            session.drained(link, leased, ctx)
        });
    }

    fn drained(&mut self, link: Option<u64>, leased: Result<Leased, StoreError>, ctx: &mut Context<Self>) {
        let current = self.state.link_number() == link;
        let Leased { deliveries, depth } = match leased {
            Ok(leased) => leased,
            Err(error) => {
                tracing::warn!(session = %self.id, %error, "the inbox cannot be read yet: tried again");
                self.mend_later(false, ctx);
                if current {
                    self.drained_nothing(ctx);
                }
                return;
            }
        };
        let Some(connection) = self.connection.clone().filter(|_| current) else {
            // Taken for a link that is gone: its successor gets them.
            return self.release(Release::Ids(ids_of(&deliveries)), ctx);
        };
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

    /// Nothing could be leased for the connection, for reasons of its own or of the store's.
    fn drained_nothing(&mut self, ctx: &mut Context<Self>) {
        let depth = self.state.depth();
        self.happened(Event::Drained { depth, handed_over: 0 }, ctx);
    }

    /// Hands what waits to the calls that wait, in their order.
    fn serve(&mut self, ctx: &mut Context<Self>) {
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

    /// Reads the inbox for a call. The call counts among those that wait from before the reading on, so that the session
    /// is told of what comes meanwhile.
    fn look(&mut self, waiter: Waiter, ctx: &mut Context<Self>) {
        self.looking += 1;
        self.waiters_changed(ctx);
        let lease = self.store.lease(self.id, waiter.limit.max(1), RECEIVE_BYTES_MAX, now());
        self.in_order(lease, ctx, move |session, leased, ctx| {
            session.looking -= 1;
            session.looked(waiter, leased, ctx);
            if std::mem::take(&mut session.look_again) {
                session.serve(ctx);
            }
        });
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

    fn waiters_changed(&mut self, ctx: &mut Context<Self>) {
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
        let Leased { deliveries, depth } = leased;
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

    /// What came before this was not told, and the client, which has its answer already, counts on it.
    fn tell_of_waiting(&mut self, ctx: &mut Context<Self>) {
        let op = self.store.depth(self.id);
        self.in_order(op, ctx, |session, depth, _| {
            if let (Ok(Depth { waiting: 1.., .. }), Some(connection)) = (depth, &session.connection) {
                connection.inbox_changed();
            }
        });
    }

    /// Lets a call wait, in the place that is its by age.
    fn wait(&mut self, mut waiter: Waiter, ctx: &mut Context<Self>) {
        if self.waiters.len() >= WAITERS_LEN_MAX {
            let _ = waiter.reply.send(Err(BrokerError::unavailable()));
            return self.waiters_changed(ctx);
        }
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

    fn acknowledge(
        &mut self,
        which: Acknowledge,
        reply: Option<oneshot::Sender<Result<Acknowledged, BrokerError>>>,
        ctx: &mut Context<Self>,
    ) {
        let op = self.store.acknowledge(self.id, which, now());
        self.in_order(op, ctx, move |session, result, ctx| {
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
                        // Nobody acknowledges it again, and what stays leased keeps the window shut.
                        session.mend_later(true, ctx);
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
        self.in_order(op, ctx, |session, result, ctx| match result {
            Ok(Released { dead, depth, .. }) => {
                if dead > 0 {
                    tracing::warn!(session = %session.id, dead, "messages reached the delivery limit: dead-lettered");
                }
                session.vitals.set_depth(depth);
                session.happened(Event::Changed { depth }, ctx);
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "what was delivered cannot be put back yet: tried again");
                session.mend_later(true, ctx);
            }
        });
    }

    /// Begins an operation of the store. At once when its answer is there at the first poll and none is awaited from
    /// before, which is always so in memory; else when the answers to those have been heard.
    fn in_order<T: 'static>(
        &mut self,
        op: Op<T>,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<T, StoreError>, &mut Context<Self>) + 'static,
    ) {
        InOrder::settle(|session: &mut Self| &mut session.ops, op, self, ctx, then);
    }

    /// The store failed. In a while, what it left undone is done: there may be no other event that asks for it.
    fn mend_later(&mut self, release: bool, ctx: &mut Context<Self>) {
        self.release_owed |= release;
        if self.mending.is_none() {
            self.mending = Some(ctx.run_later(MEND_AFTER, |session, ctx| {
                session.mending = None;
                if std::mem::take(&mut session.release_owed) {
                    session.release(Release::All, ctx);
                } else {
                    session.happened(Event::Nudged, ctx);
                }
            }));
        }
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

    /// Learns what the connection has acknowledged by writing it, which it does beside this actor
    /// ([`ProjectHandle::written`](crate::project::ProjectHandle::written)).
    fn count(&mut self, ctx: &mut Context<Self>) {
        if self.store.answers_at_once() && self.state.acknowledging_connection().is_some() {
            let depth = self.store.depth(self.id);
            self.in_order(depth, ctx, |session, depth, ctx| {
                if let Ok(depth) = depth {
                    session.happened(Event::Counted { depth }, ctx);
                }
            });
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        self.count(ctx);
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
        self.in_order(op, ctx, move |session, result, ctx| match result {
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
        if std::mem::take(&mut self.resumes) {
            // What was leased when the actor panicked may never have been written: it is delivered again.
            self.release(Release::All, ctx);
        }
        self.tick(ctx);
    }
}

impl Supervised for Session {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.state
            .reload(self.connection.as_ref().map(|connection| connection.id()));
        self.ops = InOrder::default();
        self.waiters.clear();
        self.looking = 0;
        self.look_again = false;
        self.returned.clear();
        self.timer = None;
        self.mending = None;
        self.release_owed = false;
        self.resumes = true;
    }
}

impl Handler<Posted<Nudge>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Nudge>, ctx: &mut Context<Self>) {
        if self.state.is_away() {
            self.tick(ctx);
        }
        self.count(ctx);
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
        let was_told = self.state.inbox_changes();
        self.happened(
            Event::Subscribed {
                connection,
                inbox_changes,
                push,
            },
            ctx,
        );
        if self.state.inbox_changes() && !was_told {
            self.tell_of_waiting(ctx);
        }
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
