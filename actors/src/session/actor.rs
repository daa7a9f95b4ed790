mod calls;
mod pushing;

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, SpawnHandle, Supervised};
use tokio::sync::oneshot;

use calls::{ReturnedCall, Waiter};

use super::{
    AcknowledgeMessages, AgentInfo, Attach, CloseReason, Connection, Detach, Disconnect, EndSession, KillSession,
    MessagesWritten, Nudge, ResyncSession, SessionRemoved, SessionShared, Subscribe, Superseded, Unwatch, Watch,
    Writable,
    lease_sequence::LeaseSequence,
    read_budget::LeaseSizes,
    state::{AckMode, Effect, Event, PushMode, State},
};
use crate::{
    clock::{millis, now},
    model::{
        BrokerError, ConnectionId, DeadLetterReason, DeliveryStatus, MessageId, MissingSession, PresenceTimeouts,
        ProjectId, SessionId, SessionName, SessionStatus,
    },
    ops::OrderedOps,
    silence,
    storage::{Acknowledge, Acknowledged, Claim, Claimed, Delivery, Depth, Op, Release, Released, Store, StoreError},
    supervise::{ActorMetrics, Envelope},
};

/// Connections beside the live one that may watch an inbox.
const WATCHERS_MAX: usize = 32;
/// How long after a failure of the store what it left undone is put right.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The actor of one session. Its inbox is in the store, and so is all that must survive it; the link to the live
/// connection is a handle that survives a restart.
pub struct Session {
    id: SessionId,
    settings: SessionSettings,
    shared: Arc<SessionShared>,
    store: Arc<dyn Store>,
    metrics: Arc<ActorMetrics>,
    on_ended: Box<dyn Fn(SessionEnded)>,
    state: State,
    connection: Option<Arc<dyn Connection>>,
    /// Taken over, about to be closed.
    replaced_connection: Option<Arc<dyn Connection>>,
    /// Told of changes of the inbox beside the connection, by age.
    watchers: VecDeque<Arc<dyn Connection>>,
    /// Operations of the store, heard of in the order in which they were begun: what each says of the inbox is then
    /// newer than what the one before it said.
    ops: OrderedOps<Session>,
    /// What is handed over for the connection.
    sequence: LeaseSequence<Delivery>,
    /// How many bytes the leases for the connection ask for.
    lease_sizes: LeaseSizes,
    /// Under which claim, and how, the store was told to hand over unasked.
    push_started_for: Option<(Claim, PushMode)>,
    /// The last messages for many that were pushed and had not been delivered before: what is leased to many as one may
    /// come twice.
    recent_broadcasts: VecDeque<MessageId>,
    /// What is missing in the sequence is looked up in a while.
    gap_timer: Option<SpawnHandle>,
    /// Messages that were pushed and whose senders wait to hear more of them.
    tracked: HashSet<MessageId>,
    /// By number.
    waiters: VecDeque<Waiter>,
    waiter_count: u64,
    /// Calls for which the inbox is being read.
    reads_running: usize,
    /// Something came while it was being read.
    must_read_again: bool,
    /// What the last calls of `receive_messages` returned.
    returned: VecDeque<ReturnedCall>,
    timer: Option<SpawnHandle>,
    retry_timer: Option<SpawnHandle>,
    /// Mending is to put back what is leased.
    pending_release: bool,
    /// Of the claim, when the store has it.
    epoch: Option<u64>,
    /// The latest that another replica was heard to have.
    remote_epoch: u64,
    /// An actor before this start may have left messages leased.
    had_predecessor: bool,
    /// Why the connection is closed when the actor ends before the session does.
    close_reason: CloseReason,
    agent_activity: AgentActivity,
    /// Calls of any other are refused; see [`Holder`](crate::model::Holder).
    incarnation: u32,
}

/// Whether the agent was here since the actor started: a session that is loaded after its agent left logs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentActivity {
    NotSeen,
    Seen,
}

/// A session is over; its parent forgets it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SessionEnded {
    pub session: SessionId,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionSettings {
    pub presence: PresenceTimeouts,
    pub retention: Duration,
    pub delivery_limit: u32,
    pub named: bool,
    /// The session was there before this actor.
    pub had_predecessor: bool,
    pub incarnation: u32,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        settings: SessionSettings,
        vitals: Arc<SessionShared>,
        store: Arc<dyn Store>,
        pulse: Arc<ActorMetrics>,
        ended: impl Fn(SessionEnded) + 'static,
    ) -> Self {
        Self {
            id,
            settings,
            shared: vitals,
            store,
            metrics: pulse,
            on_ended: Box::new(ended),
            state: State::new(settings.presence, settings.retention, settings.named),
            connection: None,
            replaced_connection: None,
            watchers: VecDeque::new(),
            ops: OrderedOps::default(),
            sequence: LeaseSequence::default(),
            lease_sizes: LeaseSizes::default(),
            push_started_for: None,
            recent_broadcasts: VecDeque::new(),
            gap_timer: None,
            tracked: HashSet::new(),
            waiters: VecDeque::new(),
            waiter_count: 0,
            reads_running: 0,
            must_read_again: false,
            returned: VecDeque::new(),
            timer: None,
            retry_timer: None,
            pending_release: false,
            epoch: None,
            remote_epoch: 0,
            had_predecessor: settings.had_predecessor,
            close_reason: CloseReason::Failed,
            agent_activity: AgentActivity::NotSeen,
            incarnation: settings.incarnation,
        }
    }

    fn apply(&mut self, event: Event, ctx: &mut Context<Self>) {
        let effects = self.state.on(event);
        self.shared.set_wants_wakeup(self.state.wants_wakeup());
        self.shared.set_connected(self.state.connection().is_some());
        self.shared.set_auto_ack_connection(self.state.auto_ack_connection());
        for effect in effects {
            self.carry_out(effect, ctx);
        }
    }

    fn carry_out(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::CloseTakenOver(id) => self.close(id, CloseReason::TakenOver),
            Effect::CloseSilent(id) => self.close(id, CloseReason::Silent),
            Effect::Claim => self.claim(ctx),
            Effect::Release => self.release_all(ctx),
            Effect::Drain { limit } => self.drain(limit, ctx),
            Effect::ServeWaiters => self.serve_waiters(ctx),
            Effect::NotifyInboxChanged => {
                let told = self.connection.as_ref().filter(|_| self.state.inbox_changes());
                for connection in told.into_iter().chain(&self.watchers) {
                    connection.notify_inbox_changed();
                }
            }
            Effect::PresenceChanged(status) => {
                tracing::debug!(session = %self.id, status = status.as_str(), "presence changed");
                if status == SessionStatus::Disconnected && self.agent_activity == AgentActivity::Seen {
                    self.agent_activity = AgentActivity::NotSeen;
                    self.log_agent_left();
                }
            }
            Effect::WakeAt { mono_ms } => self.wake_at(mono_ms, ctx),
            Effect::EndSession => self.end_silent(ctx),
        }
    }

    /// With the fields of the line that says that the agent joined.
    fn log_agent_left(&self) {
        let AgentInfo {
            project,
            name,
            client,
            client_version,
        } = self.shared.agent().clone();
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

    fn close(&mut self, id: ConnectionId, why: CloseReason) {
        for held in [&mut self.replaced_connection, &mut self.connection] {
            if let Some(connection) = held.take_if(|connection| connection.id() == id) {
                connection.close(why);
            }
        }
    }

    /// What came before this was not told, and the client, which has its answer already, counts on it.
    fn notify_if_waiting(&mut self, connection: Option<Arc<dyn Connection>>, ctx: &mut Context<Self>) {
        let op = self.store.depth(self.id);
        self.then(op, ctx, |_, depth, _| {
            if let (Ok(Depth { waiting: 1.., .. }), Some(connection)) = (depth, connection) {
                connection.notify_inbox_changed();
            }
        });
    }

    fn has_other_connection(&self, connection: &Arc<dyn Connection>) -> bool {
        let held = self.connection.as_ref();
        held.is_some_and(|held| held.id() != connection.id())
    }

    fn watchers_changed(&mut self, ctx: &mut Context<Self>) {
        let watchers = self.watchers.len();
        self.apply(Event::WatchersChanged { watchers }, ctx);
    }

    /// Nobody will ever talk again to those who do.
    fn close_all(&mut self, why: CloseReason) {
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
        self.finish_acknowledge(op, reply, ctx);
    }

    fn finish_acknowledge(
        &mut self,
        op: Op<Acknowledged>,
        reply: Option<oneshot::Sender<Result<Acknowledged, BrokerError>>>,
        ctx: &mut Context<Self>,
    ) {
        self.then(op, ctx, move |session, result, ctx| {
            if let Ok(done) = &result {
                session.acknowledged(done, ctx);
            }
            match reply {
                Some(reply) => drop(reply.send(result.map_err(Into::into))),
                None => {
                    if let Err(error) = result {
                        tracing::warn!(session = %session.id, %error, "an acknowledgement is lost: expect a repeat");
                        // Nobody acknowledges it again, and what stays leased keeps the window shut.
                        session.retry_later(true, ctx);
                    }
                }
            }
        });
    }

    fn acknowledged(&mut self, done: &Acknowledged, ctx: &mut Context<Self>) {
        for message in &done.tracked {
            message.progress.advance_to(DeliveryStatus::Acknowledged);
        }
        self.shared.set_depth(done.depth);
        self.apply(Event::DepthChanged { depth: done.depth }, ctx);
    }

    /// Takes the inbox in hand, from whoever had it: what was delivered there without acknowledgement waits again.
    fn claim(&mut self, ctx: &mut Context<Self>) {
        let claim = Claim::generate();
        self.shared.set_claim(Some(claim));
        self.epoch = None;
        self.mark_returned_released();
        self.push_started_for = None;
        self.lease_sizes = LeaseSizes::default();
        self.recent_broadcasts.clear();
        self.tracked.clear();
        self.sequence.begin_sync();
        let op = self.store.claim(self.id, claim, self.settings.delivery_limit, now());
        self.then(op, ctx, move |session, result, ctx| match result {
            Ok(Claimed { epoch, released }) => {
                session.released(released, ctx);
                if session.shared.claim() == Some(claim) {
                    session.epoch = Some(epoch);
                    session.step_down_if_superseded(ctx);
                }
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "the session cannot be claimed yet: tried again");
                session.retry_later(true, ctx);
            }
        });
    }

    /// The store knows another claim than this one.
    fn claim_refused(&mut self, ctx: &mut Context<Self>) {
        if self.epoch.is_some() {
            self.step_down(ctx);
        } else {
            // This one has not come there yet.
            self.retry_later(true, ctx);
        }
    }

    fn step_down_if_superseded(&mut self, ctx: &mut Context<Self>) {
        if self.epoch.is_some_and(|epoch| epoch < self.remote_epoch) {
            self.step_down(ctx);
        }
    }

    /// Somebody else has the inbox in hand now.
    fn step_down(&mut self, ctx: &mut Context<Self>) {
        self.shared.set_claim(None);
        self.epoch = None;
        self.push_started_for = None;
        self.apply(Event::Superseded, ctx);
    }

    fn release_all(&mut self, ctx: &mut Context<Self>) {
        self.mark_returned_released();
        // What was handed over until then is put back: it goes on when the store stands by again.
        self.push_started_for = None;
        self.recent_broadcasts.clear();
        self.tracked.clear();
        self.sequence.begin_sync();
        let which = match self.shared.claim() {
            Some(claim) => Release::Claimed(claim),
            None => Release::Silent(self.settings.presence.disconnect_after),
        };
        self.release(which, ctx);
    }

    fn release(&mut self, which: Release, ctx: &mut Context<Self>) {
        let op = self.store.release(self.id, which, self.settings.delivery_limit, now());
        self.then(op, ctx, |session, result, ctx| match result {
            Ok(released) => session.released(released, ctx),
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "what was delivered cannot be put back yet: tried again");
                session.retry_later(true, ctx);
            }
        });
    }

    fn released(&mut self, Released { dead, depth, .. }: Released, ctx: &mut Context<Self>) {
        if dead > 0 {
            tracing::warn!(session = %self.id, dead, "messages reached the delivery limit: dead-lettered");
        }
        self.shared.set_depth(depth);
        self.lease_sizes.note_arrival();
        self.apply(Event::DepthChanged { depth }, ctx);
    }

    /// Begins an operation of the store. At once when its answer is there at the first poll and none is awaited from
    /// before, which is always so in memory; else when the answers to those have been heard.
    fn then<T: 'static>(
        &mut self,
        op: Op<T>,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<T, StoreError>, &mut Context<Self>) + 'static,
    ) {
        OrderedOps::then(|session: &mut Self| &mut session.ops, op, self, ctx, then);
    }

    /// The store failed. In a while, what it left undone is done: there may be no other event that asks for it.
    fn retry_later(&mut self, release: bool, ctx: &mut Context<Self>) {
        self.pending_release |= release;
        if self.retry_timer.is_none() {
            self.retry_timer = Some(ctx.run_later(RETRY_DELAY, |session, ctx| {
                session.retry_timer = None;
                let is_claimed = session.shared.claim().is_none() || session.epoch.is_some();
                match std::mem::take(&mut session.pending_release) {
                    true if is_claimed => session.release_all(ctx),
                    true => session.claim(ctx),
                    false => {
                        session.start_push_if_due(ctx);
                        session.apply(Event::Nudged, ctx);
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
    fn recount(&mut self, ctx: &mut Context<Self>) {
        if self.store.is_synchronous() && self.state.auto_ack_connection().is_some() {
            let depth = self.store.depth(self.id);
            self.then(depth, ctx, |session, depth, ctx| {
                if let Ok(depth) = depth {
                    session.apply(Event::DepthCounted { depth }, ctx);
                }
            });
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        self.recount(ctx);
        let now = now();
        if self.waiters.iter().any(|waiter| !waiter.reply.is_closed()) {
            self.shared.touch(now);
        }
        let said_goodbye = self.shared.status(self.settings.presence, now) == SessionStatus::Disconnected;
        if !said_goodbye {
            self.agent_activity = AgentActivity::Seen;
        }
        // As if the time in which nobody listened had not been.
        let silence = silence::peer_silence(self.shared.last_seen_mono_ms(), now);
        let last_seen_mono_ms = now.mono_ms.saturating_sub(millis(silence));
        let waiting = self.shared.waiting();
        self.apply(
            Event::Ticked {
                now,
                last_seen_mono_ms,
                has_left: said_goodbye,
                waiting,
            },
            ctx,
        );
    }

    /// The session is over, for whoever is connected, waits, or registers its name meanwhile.
    fn shut_down(&mut self) {
        self.close_all(CloseReason::SessionEnded);
        for waiter in self.waiters.drain(..) {
            let _ = waiter.reply.send(Err(MissingSession::Ended.into()));
        }
        self.shared.set_wants_wakeup(false);
        self.metrics.mark_finished();
    }

    /// The retention is over, as far as this process knows.
    fn end_silent(&mut self, ctx: &mut Context<Self>) {
        let reason = DeadLetterReason::RecipientGone;
        if !self.store.is_shared() {
            return self.end(reason, ctx);
        }
        let silent_for = Some(self.settings.presence.disconnect_after);
        let op = self.store.remove_session(self.id, reason, silent_for, now());
        self.then(op, ctx, move |session, result, ctx| match result {
            // Once more, for what follows from it.
            Ok(Some(_)) => session.end(reason, ctx),
            Ok(None) => session.tick_later(ctx),
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "the session cannot be released yet: tried again");
                session.tick_later(ctx);
            }
        });
    }

    fn tick_later(&mut self, ctx: &mut Context<Self>) {
        let later = now().mono_after(self.settings.presence.stale_after);
        self.wake_at(later, ctx);
    }

    fn end(&mut self, reason: DeadLetterReason, ctx: &mut Context<Self>) {
        self.shut_down();
        let op = self.store.remove_session(self.id, reason, None, now());
        self.then(op, ctx, move |session, result, ctx| match result {
            Ok(dead) => {
                let dead = dead.unwrap_or(0);
                tracing::info!(session = %session.id, dead, "session released");
                (session.on_ended)(SessionEnded { session: session.id });
                ctx.stop();
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "the session cannot be released yet: tried again");
                ctx.run_later(Duration::from_secs(1), move |session, ctx| session.end(reason, ctx));
            }
        });
    }
}

fn message_ids(deliveries: &[Delivery]) -> Vec<MessageId> {
    deliveries.iter().map(|delivery| delivery.message.id).collect()
}

fn mark_delivered(deliveries: &[Delivery]) {
    if deliveries.is_empty() {
        return;
    }
    let at_ms = now().unix_ms;
    for delivery in deliveries {
        delivery.message.progress.mark_delivered(at_ms);
    }
}

impl Actor for Session {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if std::mem::take(&mut self.had_predecessor) {
            // What was leased when the actor panicked may never have been written: it is delivered again.
            match self.shared.claim() {
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
            .reset_after_panic(self.connection.as_ref().map(|connection| connection.id()));
        self.ops = OrderedOps::default();
        self.sequence = LeaseSequence::default();
        self.push_started_for = None;
        self.recent_broadcasts.clear();
        self.gap_timer = None;
        self.tracked.clear();
        self.waiters.clear();
        self.reads_running = 0;
        self.must_read_again = false;
        self.returned.clear();
        self.timer = None;
        self.retry_timer = None;
        self.pending_release = false;
        self.had_predecessor = true;
    }
}

impl Handler<Envelope<Nudge>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Nudge>, ctx: &mut Context<Self>) {
        if self.state.is_disconnected() {
            self.tick(ctx);
        }
        self.recount(ctx);
        self.lease_sizes.note_arrival();
        self.apply(Event::Nudged, ctx);
        drop(message.barrier);
    }
}

impl Handler<Envelope<Attach>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { mut message, .. }: Envelope<Attach>, ctx: &mut Context<Self>) {
        if message.named {
            self.state.set_named();
        }
        if let Some(incarnation) = message.incarnation {
            self.fence_out(incarnation, ctx);
        }
        match message.connection.take() {
            Some(connection) if message.is_reattach && self.has_other_connection(&connection) => {
                connection.close(CloseReason::TakenOver);
            }
            Some(connection) => {
                let id = connection.id();
                self.replaced_connection = self.connection.replace(connection).filter(|older| older.id() != id);
                self.apply(Event::Attached { connection: id }, ctx);
            }
            None if message.keeps_leases && self.connection.is_none() => {}
            None => self.apply(Event::Resumed, ctx),
        }
        self.tick(ctx);
    }
}

impl Handler<Envelope<Detach>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Detach>, ctx: &mut Context<Self>) {
        self.connection
            .take_if(|connection| connection.id() == message.connection);
        self.apply(
            Event::Detached {
                connection: message.connection,
            },
            ctx,
        );
    }
}

impl Handler<Envelope<Superseded>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Superseded>, ctx: &mut Context<Self>) {
        self.remote_epoch = self.remote_epoch.max(message.epoch);
        self.step_down_if_superseded(ctx);
    }
}

impl Handler<Envelope<Watch>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { mut message, .. }: Envelope<Watch>, ctx: &mut Context<Self>) {
        let Some(connection) = message.connection.take() else {
            return;
        };
        if self.watchers.len() == WATCHERS_MAX
            && let Some(oldest) = self.watchers.pop_front()
        {
            oldest.close(CloseReason::SessionEnded);
        }
        self.watchers.push_back(Arc::clone(&connection));
        self.watchers_changed(ctx);
        self.notify_if_waiting(Some(connection), ctx);
    }
}

impl Handler<Envelope<Unwatch>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Unwatch>, ctx: &mut Context<Self>) {
        self.watchers.retain(|connection| connection.id() != message.connection);
        self.watchers_changed(ctx);
    }
}

impl Handler<Envelope<Subscribe>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Subscribe>, ctx: &mut Context<Self>) {
        let Subscribe {
            connection,
            inbox_changes,
            push,
        } = message;
        let was_told = self.state.inbox_changes();
        self.apply(
            Event::Subscribed {
                connection,
                inbox_changes,
                push,
            },
            ctx,
        );
        if self.state.inbox_changes() && !was_told {
            self.notify_if_waiting(self.connection.clone(), ctx);
        }
    }
}

impl Handler<Envelope<MessagesWritten>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<MessagesWritten>, ctx: &mut Context<Self>) {
        let auto = self.state.push().filter(|push| push.ack == AckMode::Auto);
        if self.state.connection() == Some(message.connection)
            && let Some(push) = auto
        {
            self.acknowledge_written(message.messages, push.window, ctx);
        }
    }
}

impl Handler<Envelope<Writable>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Writable>, ctx: &mut Context<Self>) {
        self.apply(
            Event::Writable {
                connection: message.connection,
            },
            ctx,
        );
    }
}

impl Handler<Envelope<AcknowledgeMessages>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<AcknowledgeMessages>, ctx: &mut Context<Self>) {
        self.acknowledge(message.which, message.reply, ctx);
    }
}

impl Handler<Envelope<Disconnect>> for Session {
    type Result = usize;

    fn handle(&mut self, _: Envelope<Disconnect>, ctx: &mut Context<Self>) -> Self::Result {
        self.shared.leave(now());
        if let Some(connection) = self.state.connection() {
            // The connection itself stays: it may register again.
            self.connection = None;
            self.apply(Event::Detached { connection }, ctx);
        }
        self.tick(ctx);
        self.state.depth().waiting
    }
}

impl Handler<Envelope<EndSession>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<EndSession>, ctx: &mut Context<Self>) {
        self.end(message.reason, ctx);
    }
}

impl Handler<Envelope<ResyncSession>> for Session {
    type Result = ();

    fn handle(&mut self, _: Envelope<ResyncSession>, ctx: &mut Context<Self>) {
        if self.store.supports_push() && self.state.push().is_some() {
            self.start_push(ctx);
        } else if let Some(claim) = self.shared.claim() {
            let op = self.store.lease(self.id, Some(claim), 0, 0, now());
            self.then(op, ctx, |session, leased, ctx| {
                if leased.is_ok_and(|leased| leased.superseded) {
                    session.claim_refused(ctx);
                }
            });
        }
        self.apply(Event::Nudged, ctx);
    }
}

impl Handler<Envelope<SessionRemoved>> for Session {
    type Result = ();

    fn handle(&mut self, _: Envelope<SessionRemoved>, ctx: &mut Context<Self>) {
        self.shut_down();
        ctx.stop();
    }
}

impl Handler<Envelope<KillSession>> for Session {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<KillSession>, ctx: &mut Context<Self>) {
        self.close_reason = message.why;
        self.metrics.mark_finished();
        ctx.stop();
    }
}

#[cfg(feature = "faults")]
impl Handler<Envelope<super::messages::PanicSession>> for Session {
    type Result = ();

    fn handle(&mut self, _: Envelope<super::messages::PanicSession>, _: &mut Context<Self>) {
        panic!("a fault was injected");
    }
}

impl Drop for Session {
    /// A session that was given up leaves nobody to talk to its connection; the client may come back.
    fn drop(&mut self) {
        self.close_all(self.close_reason);
    }
}
