//! The actor of one session: it gives what happens to the parts that decide, and carries out what they decide.
//!
//! [`State`] decides about the connection, presence and the end; [`Ownership`] about the claim; [`Push`] about what the
//! connection is given; [`Receives`] about the calls of `receive_messages`; [`Waking`] about wakes. None of them knows actix,
//! tokio or a clock.
//!
//! Each file of `actor/` carries out a part: `handlers` takes the commands about connections and the nudges, `pushing` leases,
//! has lenses transform, and pushes; `owning` claims, releases and acknowledges, `receiving` serves `receive_messages`, `waking`
//! wakes the agent. The types that they pass to each other are at the end of this file.

mod handlers;
mod owning;
mod pushing;
mod receiving;
mod waking;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, SpawnHandle, Supervised, fut::wrap_future};
use tokio::sync::oneshot;

use super::{
    AgentInfo, CloseReason, MailAnswer, ReadBudget, ReadReservation, ReceiveMode, ReceiveOutcome, SessionShared,
    Speaking, UNRESERVED_BYTES_MAX,
    connections::Connections,
    ownership::{self, Ownership},
    push::Push,
    read_budget::Growth,
    receives::{self, Receives},
    speaking::Room,
    state::{Effect, Event, State},
    waking::Waking,
};
use crate::{
    clock::{fine_ns, millis, now},
    idle::{IDLE_PAUSE_MAX, while_idle},
    metrics::{METRICS, ProjectCounters, StoreOperation},
    model::{
        ActorKind, BrokerError, DeadLetterReason, MissingSession, PresenceTimeouts, ProjectEvent, ProjectId,
        SessionChange, SessionId, SessionName, SessionStatus, WakePreference,
    },
    ops::OrderedOps,
    storage::{Claim, Delivery, Depth, Lease, Op, Store, StoreError},
    supervise::ActorMetrics,
};

/// The pause before a failed operation of the store is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The actor of one session. The store has the inbox and all that must survive the actor; the connections survive a
/// restart of the actor, not its end.
pub struct Session {
    id: SessionId,
    settings: SessionSettings,
    shared: Arc<SessionShared>,
    store: Arc<dyn Store>,
    speaking: Speaking,
    metrics: Arc<ActorMetrics>,
    counters: Arc<ProjectCounters>,
    on_ended: Box<dyn Fn(SessionEnded)>,
    state: State,
    ownership: Ownership,
    push: Push,
    receives: Receives<Caller>,
    /// The incarnation for which the inbox was claimed.
    claimed_by: u32,
    waking: Waking,
    connections: Connections,
    /// The attachment for which the ways of its connection are known.
    known_attachment: Option<u64>,
    /// The hook of the client that waits for a wake.
    mail_waiter: Option<oneshot::Sender<MailAnswer>>,
    wake_timer: Option<WakeTimer>,
    /// Operations of the store. Their results are handled in the order in which they were begun, so that each says
    /// something newer of the inbox than the one before.
    ops: OrderedOps<Session>,
    translations: Translations,
    growth: Growth,
    /// Counts how often everything leased was released.
    releases: u64,
    /// The timer of the next [`Event::Ticked`].
    timer: Option<SpawnHandle>,
    /// Why connections are closed when the actor ends before the session does.
    close_reason: CloseReason,
    /// The agent gave a sign of life since the actor started or the agent left. A session that is loaded after its agent
    /// left logs nothing.
    was_agent_active: bool,
}

/// Fact for the parent: the session has ended, and its actor with it.
#[derive(Debug)]
pub struct SessionEnded {
    pub session: SessionId,
}

/// What the project decides about a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionSettings {
    pub id: SessionId,
    pub presence: PresenceTimeouts,
    /// How long the name and the inbox of a disconnected session are kept.
    pub retention: Duration,
    /// Deliveries of one message before it becomes a dead letter.
    pub delivery_limit: u32,
    /// An agent has given the session a name.
    pub named: bool,
    /// The session existed before this actor.
    pub had_predecessor: bool,
    /// Calls of callers that know another incarnation are refused.
    pub incarnation: u32,
    /// When the agent may be woken.
    pub wake: WakePreference,
}

impl Session {
    /// `on_ended` reports the end of the session to the parent.
    pub(crate) fn new(
        settings: SessionSettings,
        shared: Arc<SessionShared>,
        store: Arc<dyn Store>,
        speaking: Speaking,
        metrics: Arc<ActorMetrics>,
        counters: Arc<ProjectCounters>,
        on_ended: impl Fn(SessionEnded) + 'static,
    ) -> Self {
        Self {
            id: settings.id,
            settings,
            store,
            speaking,
            metrics,
            counters,
            on_ended: Box::new(on_ended),
            state: State::new(settings.presence, settings.retention, settings.named)
                .found(shared.status(settings.presence, now())),
            ownership: Ownership::new(shared.claim(), settings.had_predecessor),
            shared,
            push: Push::default(),
            receives: Receives::new(settings.incarnation),
            claimed_by: settings.incarnation,
            waking: Waking::new(settings.wake),
            connections: Connections::default(),
            known_attachment: None,
            mail_waiter: None,
            wake_timer: None,
            ops: OrderedOps::default(),
            translations: Translations::default(),
            growth: Growth::default(),
            releases: 0,
            timer: None,
            close_reason: CloseReason::Failed,
            was_agent_active: false,
        }
    }

    fn apply(&mut self, event: Event, ctx: &mut Context<Self>) {
        let effects = self.state.on(event);
        self.set_wants_wakeup();
        self.shared.set_connected(self.state.connection().is_some());
        for effect in effects {
            self.carry_out(effect, ctx);
        }
        let is_here = self.state.connection().is_some() && self.connections.live_ends_with_client();
        if self.shared.set_here(is_here) {
            self.tick(ctx);
        }
        if self.state.attachment_number() != self.known_attachment {
            self.known_attachment = self.state.attachment_number();
            self.ways_changed(ctx);
        }
        self.attention_changed(ctx);
    }

    fn carry_out(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::CloseTakenOver(id) => self.connections.close(id, CloseReason::TakenOver),
            Effect::CloseSilent(id) => self.connections.close(id, CloseReason::Silent),
            Effect::Claim => self.claim(ctx),
            Effect::Release => self.release_all(ctx),
            Effect::Drain { limit } => self.drain(limit, ctx),
            Effect::ServeWaiters => self.serve_waiters(ctx),
            Effect::NotifyInboxChanged => self.connections.notify_inbox_changed(self.state.inbox_changes()),
            Effect::PresenceChanged(status) => {
                tracing::debug!(session = %self.id, status = status.as_str(), "presence changed");
                self.record_presence(status);
                if status == SessionStatus::Disconnected && std::mem::take(&mut self.was_agent_active) {
                    self.log_agent_left();
                }
            }
            Effect::WakeAt { mono_ms } => self.wake_at(mono_ms, ctx),
            Effect::EndSession => self.end_silent(ctx),
        }
    }

    /// Records a change of presence. Every replica notices it; the one that owns the session records it.
    fn record_presence(&self, status: SessionStatus) {
        if self.store.is_shared() && !self.shared.is_claimed() {
            return;
        }
        let event = ProjectEvent::Session {
            session: self.id,
            name: self.shared.agent().name.clone(),
            change: match status {
                SessionStatus::Active => SessionChange::Active,
                SessionStatus::Stale => SessionChange::Stale,
                SessionStatus::Disconnected => SessionChange::Disconnected,
            },
        };
        self.store.record(event, now());
    }

    /// Logs the fields of the line that says that the agent joined.
    fn log_agent_left(&self) {
        let AgentInfo {
            project,
            name,
            client,
            client_version,
        } = self.shared.agent().clone();
        // Clients choose these texts: escaped, no character in them acts on a terminal.
        tracing::info!(
            project = project.as_ref().map_or("", ProjectId::as_str),
            session = %self.id,
            name = %name.as_ref().map_or("", SessionName::as_str).escape_debug(),
            client = %client.escape_debug(),
            client_version = %client_version.escape_debug(),
            "an agent left"
        );
    }

    /// Begins an operation of the store. `on_result` runs at once if the result is there at the first poll and no
    /// earlier one is awaited, which is always so in memory. An operation of a store in memory is too short to be timed.
    fn then<T: 'static>(
        &mut self,
        kind: StoreOperation,
        op: Op<T>,
        ctx: &mut Context<Self>,
        on_result: impl FnOnce(&mut Self, Result<T, StoreError>, &mut Context<Self>) + 'static,
    ) {
        let begun_ns = (!self.store.is_synchronous()).then(fine_ns);
        OrderedOps::then(
            |session: &mut Self| &mut session.ops,
            op,
            self,
            ctx,
            move |session, result: Result<T, StoreError>, ctx| {
                if let Some(begun_ns) = begun_ns {
                    METRICS.store_operation(kind, fine_ns().saturating_sub(begun_ns), result.is_ok());
                }
                on_result(session, result, ctx);
            },
        );
    }

    fn wake_at(&mut self, mono_ms: u64, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        let delay = Duration::from_millis(mono_ms.saturating_sub(now().mono_ms));
        // The presence of a client that is here does not change with time.
        let rest_max = if self.shared.is_here() {
            IDLE_PAUSE_MAX
        } else {
            Duration::ZERO
        };
        let pause = async move {
            tokio::time::sleep(delay).await;
            while_idle(rest_max).await;
        };
        self.timer = Some(ctx.spawn(wrap_future(pause).map(|(), session: &mut Self, ctx| {
            session.timer = None;
            session.tick(ctx);
        })));
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        let now = now();
        if self.receives.waiters().any(|waiter| !waiter.caller.is_gone()) {
            self.shared.touch(now);
        }
        let has_left = self.shared.status(self.settings.presence, now) == SessionStatus::Disconnected;
        self.was_agent_active |= !has_left;
        // Time in which this process read no sockets is not silence of the peer.
        let silence = self.shared.silence(self.settings.presence, now);
        let event = Event::Ticked {
            now,
            last_seen_mono_ms: now.mono_ms.saturating_sub(millis(silence)),
            has_left,
            waiting: self.shared.waiting(),
        };
        self.apply(event, ctx);
    }

    /// Closes the connections and answers the calls that wait. The next stop of the actor is its end.
    fn shut_down(&mut self) {
        self.connections.close_all(CloseReason::SessionEnded);
        for waiter in self.receives.take_waiters() {
            waiter.caller.refuse(MissingSession::Ended.into());
        }
        self.shared.set_wants_wakeup(false);
        self.metrics.mark_finished();
    }

    /// The session is over as far as this replica knows, which may not have heard of a message: the store decides.
    fn end_silent(&mut self, ctx: &mut Context<Self>) {
        if !self.state.is_disposable() {
            return self.remove_silent(ctx);
        }
        let op = self.store.depth(self.id);
        self.then(StoreOperation::Other, op, ctx, |session, depth, ctx| match depth {
            Ok(depth) if depth == Depth::default() => session.remove_silent(ctx),
            Ok(depth) => {
                session.shared.set_depth(depth);
                session.apply(Event::DepthChanged { depth }, ctx);
                session.tick(ctx);
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "the messages of the session cannot be counted; retrying");
                session.tick_later(ctx);
            }
        });
    }

    /// Ends the session, unless another replica has seen a sign of life.
    fn remove_silent(&mut self, ctx: &mut Context<Self>) {
        let reason = DeadLetterReason::RecipientGone;
        if !self.store.is_shared() {
            return self.end(reason, ctx);
        }
        let silent_for = Some(self.settings.presence.disconnect_after);
        let op = self.store.remove_session(self.id, reason, silent_for, now());
        self.then(StoreOperation::Other, op, ctx, move |session, result, ctx| match result {
            // The session is removed. Removing it again is harmless, and ends the actor as well.
            Ok(Some(_)) => session.end(reason, ctx),
            Ok(None) => session.tick_later(ctx),
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "the session cannot be removed from the store; retrying");
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
        self.then(StoreOperation::Other, op, ctx, move |session, result, ctx| match result {
            Ok(dead) => {
                let dead = dead.unwrap_or(0);
                if dead > 0 {
                    tracing::info!(session = %session.id, dead, "session released: its messages are dead letters");
                } else {
                    tracing::debug!(session = %session.id, "session released");
                }
                (session.on_ended)(SessionEnded { session: session.id });
                ctx.stop();
            }
            Err(error) => {
                tracing::warn!(session = %session.id, %error, "the session cannot be removed from the store; retrying");
                ctx.run_later(RETRY_DELAY, move |session, ctx| session.end(reason, ctx));
            }
        });
    }
}

impl Actor for Session {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let is_store_shared = self.store.is_shared();
        self.apply_ownership(ownership::Event::Started { is_store_shared }, ctx);
        if is_store_shared && self.shared.status(self.settings.presence, now()) == SessionStatus::Disconnected {
            // A replica that has died may have left messages leased.
            self.release_all(ctx);
        }
        self.tick(ctx);
    }
}

impl Supervised for Session {
    fn restarting(&mut self, ctx: &mut Context<Self>) {
        self.state.reset_after_panic(self.connections.live_id());
        self.push.reset_after_panic();
        self.receives.reset_after_panic();
        self.waking = Waking::new(self.settings.wake);
        self.known_attachment = None;
        self.wake_timer = None;
        self.ops = OrderedOps::default();
        self.translations = Translations::default();
        self.timer = None;
        self.store.record(ProjectEvent::restarted(ActorKind::Session), now());
        self.apply_ownership(ownership::Event::Panicked, ctx);
    }
}

impl Drop for Session {
    /// Closes the connections of an actor that ends before its session does: the client may come back.
    fn drop(&mut self) {
        self.connections.close_all(self.close_reason);
    }
}

/// A call, and how it is answered.
pub(super) type Waiter = receives::Waiter<Caller>;

/// A call for which the inbox was read, and its lease without the messages.
pub(super) struct ForCall {
    pub waiter: Waiter,
    pub lease: Lease,
}

impl ForCall {
    /// The room of its answer.
    pub fn room(&self) -> Room {
        let Caller { budget, bytes_max, .. } = &self.waiter.caller;
        Room::Call(Arc::clone(budget), *bytes_max)
    }

    /// The inbox after the lease.
    pub fn depth_mut(&mut self) -> &mut Depth {
        &mut self.lease.depth
    }
}

/// What a caller asks for, and how it is answered.
pub(super) struct Caller {
    pub limit: usize,
    pub bytes_max: usize,
    pub budget: Arc<dyn ReadBudget>,
    pub mode: ReceiveMode,
    pub reply: oneshot::Sender<Result<ReceiveOutcome, BrokerError>>,
    /// The timer of the end of the waiting time, while the call waits.
    pub timer: Option<SpawnHandle>,
}

impl Caller {
    /// Whether the caller has dropped the other end of the reply.
    pub fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    /// Answers the call with an error.
    pub fn refuse(self, error: BrokerError) {
        self.answer(Err(error));
    }

    /// Answers the call. A caller that is gone does not need the answer.
    pub fn answer(self, answer: Result<ReceiveOutcome, BrokerError>) {
        let _ = self.reply.send(answer);
    }
}

/// The timer that is set, and its moment on the monotonic clock in milliseconds.
pub(super) struct WakeTimer {
    pub at_ms: u64,
    pub handle: SpawnHandle,
}

/// When a lease was begun. A lease of another time has ended, or is for another caller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseTime {
    pub claim: Option<Claim>,
    pub releases: u64,
    pub attachment: Option<u64>,
    pub incarnation: u32,
}

impl LeaseTime {
    /// Whether what was leased then is still leased now, for the same caller or for another one.
    pub fn is_leased(self, now: Self) -> bool {
        (self.claim, self.releases) == (now.claim, now.releases)
    }

    /// Whether what was leased then is for the connection that is live now.
    pub fn is_attached(self, now: Self) -> bool {
        self.attachment == now.attachment
    }
}

/// Who gets leased messages.
pub(super) enum Reader {
    Connection(ForConnection),
    Call(ForCall),
}

/// Messages for the live connection.
pub(super) struct ForConnection {
    /// Bytes that the connection has reserved for them.
    pub reserved: usize,
    pub reservation: ReadReservation,
    /// How many of the messages were pushed already.
    pub pushed: usize,
    pub after: After,
}

/// What the state of the session learns when the messages are pushed.
#[derive(Clone, Copy)]
pub(super) enum After {
    Nothing,
    Drained {
        depth: Depth,
        delivered: usize,
    },
    /// The store has leased and sent them by itself.
    PushedByStore {
        is_group_lease: bool,
    },
}

impl ForConnection {
    /// What was not leased by a drain: the connection gets [`UNRESERVED_BYTES_MAX`] of it without a reservation.
    pub fn unreserved(after: After) -> Self {
        Self {
            reserved: UNRESERVED_BYTES_MAX,
            reservation: ReadReservation::default(),
            pushed: 0,
            after,
        }
    }
}

/// The messages that wait, in order. The first are being translated.
#[derive(Default)]
pub(super) struct Translations {
    pub queue: VecDeque<Translation>,
    /// The first could not be translated, and is tried again later.
    pub is_held: bool,
    /// The timer of the next try, where the connection does not report it.
    pub retry: Option<SpawnHandle>,
}

/// Messages of one lease.
pub(super) struct Translation {
    pub begun: LeaseTime,
    pub leased: Vec<Delivery>,
    /// None while they are given to it.
    pub to: Option<Reader>,
}

impl Reader {
    /// What the lease said of the inbox, if the state has not learned it.
    pub fn depth_mut(&mut self) -> Option<&mut Depth> {
        match self {
            Self::Call(call) => Some(call.depth_mut()),
            Self::Connection(ForConnection {
                after: After::Drained { depth, .. },
                ..
            }) => Some(depth),
            Self::Connection(_) => None,
        }
    }
}
