mod calls;
mod pushing;

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, SpawnHandle, Supervised};
use tokio::sync::oneshot;

use calls::{Returned, Waiter};

use super::{
    Abandon, AcknowledgeMessages, Agent, Attach, Closing, Connection, Detach, Disconnect, Forgotten, Nudge, Recheck,
    Retire, Subscribe, Superseded, Unwatch, Vitals, Watch, Writable, Written,
    room::LeaseSizes,
    sequence::Sequence,
    state::{AckMode, Effect, Event, Push, State},
};
use crate::{
    attention,
    clock::{millis, now},
    model::{
        BrokerError, ConnectionId, DeadLetterReason, MessageId, MissingSession, Presence, ProjectId, SessionId,
        SessionName, SessionStatus, Status,
    },
    storage::{Acknowledge, Acknowledged, Claim, Claimed, Delivery, Depth, Op, Release, Released, Store, StoreError},
    supervise::{InOrder, Posted, Pulse},
};

/// Connections beside the live one that may watch an inbox.
const WATCHERS_LEN_MAX: usize = 32;
/// How long after a failure of the store what it left undone is put right.
const MEND_AFTER: Duration = Duration::from_secs(1);

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
    /// Told of changes of the inbox beside the connection, by age.
    watchers: VecDeque<Arc<dyn Connection>>,
    /// Operations of the store, heard of in the order in which they were begun: what each says of the inbox is then
    /// newer than what the one before it said.
    ops: InOrder<Session>,
    /// What is handed over for the connection.
    sequence: Sequence<Delivery>,
    /// How many bytes the leases for the connection ask for.
    lease_sizes: LeaseSizes,
    /// Under which claim, and how, the store was told to hand over unasked.
    stands_by: Option<(Claim, Push)>,
    /// The last messages for many that were pushed and had not been delivered before: what is leased to many as one may
    /// come twice.
    shared: VecDeque<MessageId>,
    /// What is missing in the sequence is looked up in a while.
    missing: Option<SpawnHandle>,
    /// Messages that were pushed and whose senders wait to hear more of them.
    waited_for: HashSet<MessageId>,
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
    /// Of the claim, when the store has it.
    epoch: Option<u64>,
    /// The latest that another replica was heard to have.
    epoch_elsewhere: u64,
    /// An actor before this start may have left messages leased.
    resumes: bool,
    /// Why the connection is closed when the actor ends before the session does.
    farewell: Closing,
    attendance: Attendance,
    /// Calls of any other are refused; see [`Holder`](crate::model::Holder).
    incarnation: u32,
}

/// Whether the agent was here since the actor started: a session that is loaded after its agent left logs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attendance {
    NotSeen,
    Seen,
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
    pub incarnation: u32,
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
            watchers: VecDeque::new(),
            ops: InOrder::default(),
            sequence: Sequence::default(),
            lease_sizes: LeaseSizes::default(),
            stands_by: None,
            shared: VecDeque::new(),
            missing: None,
            waited_for: HashSet::new(),
            waiters: VecDeque::new(),
            waiters_counted: 0,
            looking: 0,
            look_again: false,
            returned: VecDeque::new(),
            timer: None,
            mending: None,
            release_owed: false,
            epoch: None,
            epoch_elsewhere: 0,
            resumes: settings.resumes,
            farewell: Closing::Failed,
            attendance: Attendance::NotSeen,
            incarnation: settings.incarnation,
        }
    }

    fn happened(&mut self, event: Event, ctx: &mut Context<Self>) {
        let effects = self.state.on(event);
        self.vitals.set_attentive(self.state.attentive());
        self.vitals.set_connected(self.state.connection().is_some());
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
            Effect::Claim => self.claim(ctx),
            Effect::Release => self.release_all(ctx),
            Effect::Drain { limit } => self.drain(limit, ctx),
            Effect::Serve => self.serve(ctx),
            Effect::Announce => {
                let told = self.connection.as_ref().filter(|_| self.state.inbox_changes());
                for connection in told.into_iter().chain(&self.watchers) {
                    connection.inbox_changed();
                }
            }
            Effect::Became(status) => {
                tracing::debug!(session = %self.id, status = status.as_str(), "presence changed");
                if status == SessionStatus::Disconnected && self.attendance == Attendance::Seen {
                    self.attendance = Attendance::NotSeen;
                    self.log_left();
                }
            }
            Effect::WakeAt { mono_ms } => self.wake_at(mono_ms, ctx),
            Effect::Retire => self.retire_silent(ctx),
        }
    }

    /// With the fields of the line that says that the agent joined.
    fn log_left(&self) {
        let Agent {
            project,
            name,
            client,
            client_version,
        } = self.vitals.agent().clone();
        // Callers choose these texts: no character in them acts on a terminal.
        tracing::info!(
            project = project.as_ref().map_or("", ProjectId::as_str),
            session = %self.id,
            name = %name.as_ref().map_or("", SessionName::as_str).escape_debug(),
            client = %client.escape_debug(),
            client_version = %client_version.escape_debug(),
            "an agent left"
        );
    }

    fn close(&mut self, id: ConnectionId, why: Closing) {
        for held in [&mut self.older, &mut self.connection] {
            if let Some(connection) = held.take_if(|connection| connection.id() == id) {
                connection.close(why);
            }
        }
    }

    /// What came before this was not told, and the client, which has its answer already, counts on it.
    fn tell_of_waiting(&mut self, connection: Option<Arc<dyn Connection>>, ctx: &mut Context<Self>) {
        let op = self.store.depth(self.id);
        self.in_order(op, ctx, |_, depth, _| {
            if let (Ok(Depth { waiting: 1.., .. }), Some(connection)) = (depth, connection) {
                connection.inbox_changed();
            }
        });
    }

    fn is_held_by_another(&self, connection: &Arc<dyn Connection>) -> bool {
        let held = self.connection.as_ref();
        held.is_some_and(|held| held.id() != connection.id())
    }

    fn watchers_changed(&mut self, ctx: &mut Context<Self>) {
        let watchers = self.watchers.len();
        self.happened(Event::WatchersChanged { watchers }, ctx);
    }

    /// Nobody will ever talk again to those who do.
    fn close_all(&mut self, why: Closing) {
        for connection in self.connection.take().into_iter().chain(self.watchers.drain(..)) {
            connection.close(why);
        }
    }

    fn acknowledge(
        &mut self,
        which: Acknowledge,
        reply: Option<oneshot::Sender<Result<Acknowledged, BrokerError>>>,
        ctx: &mut Context<Self>,
    ) {
        let op = self.store.acknowledge(self.id, which, now());
        self.settle_acknowledged(op, reply, ctx);
    }

    fn settle_acknowledged(
        &mut self,
        op: Op<Acknowledged>,
        reply: Option<oneshot::Sender<Result<Acknowledged, BrokerError>>>,
        ctx: &mut Context<Self>,
    ) {
        self.in_order(op, ctx, move |session, result, ctx| {
            if let Ok(done) = &result {
                session.acknowledged(done, ctx);
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

    fn acknowledged(&mut self, done: &Acknowledged, ctx: &mut Context<Self>) {
        for message in &done.watched {
            message.progress.reach(Status::Acknowledged);
        }
        self.vitals.set_depth(done.depth);
        self.happened(Event::Changed { depth: done.depth }, ctx);
    }

    /// Takes the inbox in hand, from whoever had it: what was delivered there without acknowledgement waits again.
    fn claim(&mut self, ctx: &mut Context<Self>) {
        let claim = Claim::generate();
        self.vitals.set_claim(Some(claim));
        self.epoch = None;
        self.returned_are_released();
        self.stands_by = None;
        self.lease_sizes = LeaseSizes::default();
        self.shared.clear();
        self.waited_for.clear();
        self.sequence.ask();
        let op = self.store.claim(self.id, claim, self.settings.delivery_limit, now());
        self.in_order(op, ctx, move |session, result, ctx| match result {
            Ok(Claimed { epoch, released }) => {
                session.released(released, ctx);
                if session.vitals.claim() == Some(claim) {
                    session.epoch = Some(epoch);
                    session.yield_to_elsewhere(ctx);
                }
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "the session cannot be claimed yet: tried again");
                session.mend_later(true, ctx);
            }
        });
    }

    /// The store knows another claim than this one.
    fn refused(&mut self, ctx: &mut Context<Self>) {
        if self.epoch.is_some() {
            self.give_way(ctx);
        } else {
            // This one has not come there yet.
            self.mend_later(true, ctx);
        }
    }

    fn yield_to_elsewhere(&mut self, ctx: &mut Context<Self>) {
        if self.epoch.is_some_and(|epoch| epoch < self.epoch_elsewhere) {
            self.give_way(ctx);
        }
    }

    /// Somebody else has the inbox in hand now.
    fn give_way(&mut self, ctx: &mut Context<Self>) {
        self.vitals.set_claim(None);
        self.epoch = None;
        self.stands_by = None;
        self.happened(Event::Superseded, ctx);
    }

    fn release_all(&mut self, ctx: &mut Context<Self>) {
        self.returned_are_released();
        // What was handed over until then is put back: it goes on when the store stands by again.
        self.stands_by = None;
        self.shared.clear();
        self.waited_for.clear();
        self.sequence.ask();
        let which = match self.vitals.claim() {
            Some(claim) => Release::Claimed(claim),
            None => Release::Silent(self.settings.presence.disconnect_after),
        };
        self.release(which, ctx);
    }

    fn release(&mut self, which: Release, ctx: &mut Context<Self>) {
        let op = self.store.release(self.id, which, self.settings.delivery_limit, now());
        self.in_order(op, ctx, |session, result, ctx| match result {
            Ok(released) => session.released(released, ctx),
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "what was delivered cannot be put back yet: tried again");
                session.mend_later(true, ctx);
            }
        });
    }

    fn released(&mut self, Released { dead, depth, .. }: Released, ctx: &mut Context<Self>) {
        if dead > 0 {
            tracing::warn!(session = %self.id, dead, "messages reached the delivery limit: dead-lettered");
        }
        self.vitals.set_depth(depth);
        self.lease_sizes.something_came();
        self.happened(Event::Changed { depth }, ctx);
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
                let is_claimed = session.vitals.claim().is_none() || session.epoch.is_some();
                match std::mem::take(&mut session.release_owed) {
                    true if is_claimed => session.release_all(ctx),
                    true => session.claim(ctx),
                    false => {
                        session.stand_by_if_due(ctx);
                        session.happened(Event::Nudged, ctx);
                    }
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
        if !said_goodbye {
            self.attendance = Attendance::Seen;
        }
        // As if the time in which nobody listened had not been.
        let silence = attention::silence(self.vitals.last_seen_mono_ms(), now);
        let last_seen_mono_ms = now.mono_ms.saturating_sub(millis(silence));
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

    /// The session is over, for whoever is connected, waits, or registers its name meanwhile.
    fn take_leave(&mut self) {
        self.close_all(Closing::Released);
        for waiter in self.waiters.drain(..) {
            let _ = waiter.reply.send(Err(MissingSession::Ended.into()));
        }
        self.vitals.set_attentive(false);
        self.pulse.finish();
    }

    /// The retention is over, as far as this process knows.
    fn retire_silent(&mut self, ctx: &mut Context<Self>) {
        let reason = DeadLetterReason::RecipientGone;
        if !self.store.is_shared() {
            return self.retire(reason, ctx);
        }
        let silent_for = Some(self.settings.presence.disconnect_after);
        let op = self.store.remove_session(self.id, reason, silent_for, now());
        self.in_order(op, ctx, move |session, result, ctx| match result {
            // Once more, for what follows from it.
            Ok(Some(_)) => session.retire(reason, ctx),
            Ok(None) => session.look_again_later(ctx),
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "the session cannot be released yet: tried again");
                session.look_again_later(ctx);
            }
        });
    }

    fn look_again_later(&mut self, ctx: &mut Context<Self>) {
        let later = now().after(self.settings.presence.stale_after);
        self.wake_at(later, ctx);
    }

    fn retire(&mut self, reason: DeadLetterReason, ctx: &mut Context<Self>) {
        self.take_leave();
        let op = self.store.remove_session(self.id, reason, None, now());
        self.in_order(op, ctx, move |session, result, ctx| match result {
            Ok(dead) => {
                let dead = dead.unwrap_or(0);
                tracing::info!(session = %session.id, dead, "session released");
                (session.ended)(Ended { session: session.id });
                ctx.stop();
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
            match self.vitals.claim() {
                Some(_) if self.epoch.is_some() => self.release_all(ctx),
                None if self.store.is_shared() => {}
                _ => self.claim(ctx),
            }
        }
        self.tick(ctx);
    }
}

impl Supervised for Session {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.state
            .reload(self.connection.as_ref().map(|connection| connection.id()));
        self.ops = InOrder::default();
        self.sequence = Sequence::default();
        self.stands_by = None;
        self.shared.clear();
        self.missing = None;
        self.waited_for.clear();
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
        self.lease_sizes.something_came();
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
        if let Some(incarnation) = message.incarnation {
            self.fence(incarnation, ctx);
        }
        match message.connection.take() {
            Some(connection) if message.reclaims && self.is_held_by_another(&connection) => {
                connection.close(Closing::TakenOver);
            }
            Some(connection) => {
                let id = connection.id();
                self.older = self.connection.replace(connection).filter(|older| older.id() != id);
                self.happened(Event::Attached { connection: id }, ctx);
            }
            None if message.renews && self.connection.is_none() => {}
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

impl Handler<Posted<Superseded>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Superseded>, ctx: &mut Context<Self>) {
        self.epoch_elsewhere = self.epoch_elsewhere.max(message.epoch);
        self.yield_to_elsewhere(ctx);
    }
}

impl Handler<Posted<Watch>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { mut message, .. }: Posted<Watch>, ctx: &mut Context<Self>) {
        let Some(connection) = message.connection.take() else {
            return;
        };
        if self.watchers.len() == WATCHERS_LEN_MAX
            && let Some(oldest) = self.watchers.pop_front()
        {
            oldest.close(Closing::Released);
        }
        self.watchers.push_back(Arc::clone(&connection));
        self.watchers_changed(ctx);
        self.tell_of_waiting(Some(connection), ctx);
    }
}

impl Handler<Posted<Unwatch>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Unwatch>, ctx: &mut Context<Self>) {
        self.watchers.retain(|connection| connection.id() != message.connection);
        self.watchers_changed(ctx);
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
            self.tell_of_waiting(self.connection.clone(), ctx);
        }
    }
}

impl Handler<Posted<Written>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Written>, ctx: &mut Context<Self>) {
        let auto = self.state.push().filter(|push| push.ack == AckMode::Auto);
        if self.state.connection() == Some(message.connection)
            && let Some(push) = auto
        {
            self.acknowledge_written(message.messages, push.window, ctx);
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

impl Handler<Posted<Disconnect>> for Session {
    type Result = usize;

    fn handle(&mut self, _: Posted<Disconnect>, ctx: &mut Context<Self>) -> Self::Result {
        self.vitals.say_goodbye(now());
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

impl Handler<Posted<Recheck>> for Session {
    type Result = ();

    fn handle(&mut self, _: Posted<Recheck>, ctx: &mut Context<Self>) {
        if self.store.hands_over() && self.state.push().is_some() {
            self.stand_by(ctx);
        } else if let Some(claim) = self.vitals.claim() {
            let op = self.store.lease(self.id, Some(claim), 0, 0, now());
            self.in_order(op, ctx, |session, leased, ctx| {
                if leased.is_ok_and(|leased| leased.superseded) {
                    session.refused(ctx);
                }
            });
        }
        self.happened(Event::Nudged, ctx);
    }
}

impl Handler<Posted<Forgotten>> for Session {
    type Result = ();

    fn handle(&mut self, _: Posted<Forgotten>, ctx: &mut Context<Self>) {
        self.take_leave();
        ctx.stop();
    }
}

impl Handler<Posted<Abandon>> for Session {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Abandon>, ctx: &mut Context<Self>) {
        self.farewell = message.why;
        self.pulse.finish();
        ctx.stop();
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
        self.close_all(self.farewell);
    }
}
