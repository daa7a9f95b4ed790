//! The actor of a project: the parent of its registry, router and sessions, and the only writer of its directory.

use std::{
    collections::{HashMap, HashSet},
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Supervised, fut::wrap_future};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{
    heartbeats::Heartbeats,
    messages::{Child, ChildDown, CloseProject},
    pending_puts::PendingPuts,
    resync::{KnownSeq, Resync},
    view::View,
};
use crate::{
    clock::now,
    desk::DeskShared,
    directory::Directory,
    faults::timer_delay,
    gateway::GatewayHandle,
    idle,
    metrics::ProjectCounters,
    model::{ActorKind, DeadLetterReason, ProjectEvent, ProjectId, SessionId},
    ops::{OrderedOps, then},
    policy::{ProjectPolicy, ProjectSettings},
    registry::{Refresh, RefreshCatalog, Registry},
    session::{EndSession, KillSession, Member, SessionEnded},
    storage::{Op, Store, StoreError},
    supervise::{ActorMetrics, Address, Envelope},
};

/// Sessions of a closed project that end in one step: about 3 ms of its worker.
const ENDS_AT_ONCE: usize = 64;
/// The shortest pause between two sweeps, which expire messages and what else has outlived its time.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// The longest: of a project that is not used, and of which nothing ends before.
const SWEEP_PAUSE_MAX: Duration = idle::IDLE_PAUSE_MAX;

/// The actor of one project: the parent of its registry, its router and its sessions.
pub struct Project {
    pub(super) id: ProjectId,
    pub(super) settings: ProjectSettings,
    pub(super) address: Address<Project>,
    registry: Arc<OnceLock<Address<Registry>>>,
    gateway: Arc<OnceLock<GatewayHandle>>,
    pub(super) store: Arc<dyn Store>,
    pub(super) directory: Arc<Directory>,
    pub(super) policy: Arc<ProjectPolicy>,
    /// Questions and yaps that may have changed, and askers that have ended, are reported to the desk here.
    pub(super) desk: Arc<DeskShared>,
    metrics: Arc<ActorMetrics>,
    pub(super) counters: Arc<ProjectCounters>,
    pub(super) pending_puts: PendingPuts,
    /// Puts of this replica per session whose frames have not come back. Until they do, frames of other replicas
    /// about the session describe an older state. Empty where the store is not shared.
    pub(super) pending_own_frames: HashMap<SessionId, u32>,
    /// Reads of the whole roster that are under way.
    pub(super) refreshing: usize,
    /// Sessions that were put or have ended here during such a read, whose answer may be older.
    pub(super) changed_locally: HashSet<SessionId>,
    pub(super) heartbeats: Heartbeats,
    /// The broker ends.
    pub(super) is_stopping: bool,
    /// The effects of frames, in the order of the frames.
    pub(super) frame_effects: OrderedOps<Project>,
    pub(super) resync: Resync,
    pub(super) known_seq: KnownSeq,
    /// What the sessions are started with. Its `known_seq` is that of this actor.
    pub(super) view: Arc<View>,
    /// The project is closed, and ends with its last session.
    pub(super) closing: Option<oneshot::Sender<()>>,
    report_dead_letters: Box<dyn Fn() -> Reporting>,
    /// One such future runs.
    is_reporting: bool,
    /// Reports that the store has lost data of this project.
    on_rollback: Box<dyn Fn()>,
    on_give_up: Option<Box<dyn FnOnce()>>,
}

/// Tells the senders of messages that were given up.
pub(super) type Reporting = Pin<Box<dyn Future<Output = ()>>>;

/// What the actor of a project is started with.
pub(super) struct ProjectParts {
    pub id: ProjectId,
    pub settings: ProjectSettings,
    pub address: Address<Project>,
    /// Set when the registry has been started.
    pub registry: Arc<OnceLock<Address<Registry>>>,
    /// Set when the gateway has been started, if there is one.
    pub gateway: Arc<OnceLock<GatewayHandle>>,
    pub store: Arc<dyn Store>,
    pub directory: Arc<Directory>,
    pub policy: Arc<ProjectPolicy>,
    pub desk: Arc<DeskShared>,
    pub metrics: Arc<ActorMetrics>,
    pub counters: Arc<ProjectCounters>,
    pub view: Arc<View>,
    pub report_dead_letters: Box<dyn Fn() -> Reporting>,
    pub on_rollback: Box<dyn Fn()>,
    pub on_give_up: Box<dyn FnOnce()>,
}

impl Project {
    /// An actor without sessions; `started` loads them.
    pub(super) fn new(parts: ProjectParts) -> Self {
        let ProjectParts {
            id,
            settings,
            address,
            registry,
            gateway,
            store,
            directory,
            policy,
            desk,
            metrics,
            counters,
            view,
            report_dead_letters,
            on_rollback,
            on_give_up,
        } = parts;
        Self {
            id,
            settings,
            address,
            registry,
            gateway,
            store,
            directory,
            policy,
            desk,
            metrics,
            counters,
            pending_puts: PendingPuts::default(),
            pending_own_frames: HashMap::new(),
            refreshing: 0,
            changed_locally: HashSet::new(),
            heartbeats: Heartbeats::default(),
            is_stopping: false,
            frame_effects: OrderedOps::default(),
            resync: Resync::default(),
            known_seq: KnownSeq::clone(&view.known_seq),
            view,
            closing: None,
            report_dead_letters,
            is_reporting: false,
            on_rollback,
            on_give_up: Some(on_give_up),
        }
    }

    /// Ends a closed project that has no sessions left.
    pub(super) fn end_if_empty(&mut self, ctx: &mut Context<Self>) {
        if self.directory.is_empty()
            && self.pending_puts.is_empty()
            && let Some(done) = self.closing.take()
        {
            let _ = done.send(());
            self.metrics.mark_finished();
            ctx.stop();
        }
    }

    /// Ends these sessions in steps: those of a step, and what else waits on this worker, have their turn before the next
    /// one. A restart of the actor begins again.
    fn end_sessions(mut members: std::vec::IntoIter<Arc<Member>>, ctx: &mut Context<Self>) {
        for member in members.by_ref().take(ENDS_AT_ONCE) {
            end_session(&member);
        }
        if members.len() > 0 {
            let turn = tokio::task::yield_now();
            ctx.spawn(wrap_future(turn).map(|(), _: &mut Self, ctx| Self::end_sessions(members, ctx)));
        }
    }

    /// Opens the sessions that the store has and the directory lacks: all after a start, none after a panic.
    fn load_sessions(&mut self, ctx: &mut Context<Self>) {
        self.refresh_directory(ctx, |project, refreshed, ctx| {
            if let Err(error) = refreshed {
                tracing::warn!(project = %project.id, %error, "sessions cannot be loaded; retrying");
                ctx.run_later(Duration::from_secs(1), Self::load_sessions);
            }
        });
    }

    pub(super) fn refresh_catalog(&self, what: Refresh) -> Op<()> {
        let (done, is_learnt) = oneshot::channel();
        if let Some(registry) = self.registry.get() {
            registry.report(RefreshCatalog { what, done });
        }
        Box::pin(async {
            let is_unknown = |_| StoreError::Unreachable("the protocols cannot be read".to_owned());
            is_learnt.await.map_err(is_unknown)
        })
    }

    /// Another replica has changed the added backends, or may have.
    pub(super) fn added_backends_changed(&self) {
        if let Some(gateway) = self.gateway.get() {
            gateway.added_changed();
        }
    }

    /// A tenth of `stale_after`, so that a session seen at another replica never looks stale here.
    fn heartbeat_exchange_interval(&self) -> Duration {
        let tenth = self.settings.presence.stale_after / 10;
        tenth.clamp(Duration::from_millis(50), Duration::from_secs(3))
    }

    /// Sweeps after a pause: when the store has something to do, or once it is used.
    fn sweep_later(&self, next_within: Duration, ctx: &mut Context<Self>) {
        let (unswept, left) = (self.store.unswept(), next_within.saturating_sub(SWEEP_INTERVAL));
        let pause = async move {
            sleep(SWEEP_INTERVAL).await;
            let _ = timeout(timer_delay(left.min(SWEEP_PAUSE_MAX)), unswept.wait()).await;
        };
        ctx.spawn(wrap_future(pause).map(|(), project: &mut Self, ctx| project.sweep(ctx)));
    }

    fn sweep(&mut self, ctx: &mut Context<Self>) {
        if self.closing.is_some() {
            // Another replica may have ended the last session.
            self.sweep_later(Duration::ZERO, ctx);
            return self.end_if_empty(ctx);
        }
        let op = self.store.sweep(now());
        then(op, self, ctx, |project, swept, ctx| {
            let mut next_within = Duration::ZERO;
            match swept {
                Ok(swept) => {
                    if !swept.has_unreported {
                        next_within = swept.next_within;
                    } else if !std::mem::replace(&mut project.is_reporting, true) {
                        let reporting = wrap_future((project.report_dead_letters)());
                        ctx.spawn(reporting.map(|(), project: &mut Self, _| project.is_reporting = false));
                    }
                    for (session, waiting) in swept.expired_in {
                        if let Some(member) = project.directory.by_id(session) {
                            member.shared.set_waiting(waiting);
                        }
                    }
                }
                Err(StoreError::RolledBack) => (project.on_rollback)(),
                Err(error) => tracing::warn!(project = %project.id, %error, "the store could not be swept"),
            }
            project.sweep_later(next_within, ctx);
        });
    }
}

/// Ends a session for good.
pub(super) fn end_session(member: &Member) {
    let reason = DeadLetterReason::RecipientGone;
    member.address.report(EndSession { reason });
}

impl Actor for Project {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if self.store.is_shared() {
            ctx.run_interval(self.heartbeat_exchange_interval(), Self::exchange_heartbeats);
            self.request_resync(None, ctx);
        } else {
            self.load_sessions(ctx);
            self.keep_heartbeats_later(ctx);
        }
        if self.closing.is_some() {
            Self::end_sessions(self.directory.all().into_iter(), ctx);
        }
        self.sweep_later(Duration::ZERO, ctx);
    }
}

impl Handler<Envelope<CloseProject>> for Project {
    type Result = ();

    /// Ends the sessions, discards their messages, and closes their connections. The registry and the router end with
    /// the last handle of the project.
    fn handle(&mut self, Envelope { message, .. }: Envelope<CloseProject>, ctx: &mut Context<Self>) {
        self.closing = Some(message.done);
        Self::end_sessions(self.directory.all().into_iter(), ctx);
        self.end_if_empty(ctx);
    }
}

impl Handler<Envelope<KillSession>> for Project {
    type Result = ();

    fn handle(&mut self, _: Envelope<KillSession>, ctx: &mut Context<Self>) {
        self.metrics.mark_finished();
        ctx.stop();
    }
}

/// The directory and the addresses of the children stay valid across a restart.
impl Supervised for Project {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.pending_puts = PendingPuts::default();
        self.pending_own_frames.clear();
        self.refreshing = 0;
        self.changed_locally.clear();
        self.frame_effects = OrderedOps::default();
        self.resync = Resync::default();
        self.is_reporting = false;
        self.store.record(ProjectEvent::restarted(ActorKind::Project), now());
    }
}

impl Handler<Envelope<SessionEnded>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<SessionEnded>, ctx: &mut Context<Self>) {
        self.directory.remove(message.session);
        self.heartbeats.remove(message.session);
        self.desk.asker_gone(message.session);
        self.note_local_change(message.session);
        self.end_if_empty(ctx);
    }
}

impl Handler<Envelope<ChildDown>> for Project {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<ChildDown>, _: &mut Context<Self>) {
        let actor = match message.child {
            Child::Session(_) => ActorKind::Session,
            Child::Registry => ActorKind::Registry,
            Child::Router => ActorKind::Router,
            Child::Desk => ActorKind::Desk,
            Child::Gateway => ActorKind::Gateway,
        };
        self.store.record(ProjectEvent::gave_up(actor), now());
        match message.child {
            // A new actor continues from the inbox in the store. The connection was closed with the old one.
            Child::Session(id) => {
                if let Some(before) = self.directory.by_id(id) {
                    tracing::error!(session = %id, "session actor failed too often; restarting it from the store");
                    let member = self.start_session(before.record.clone(), Arc::clone(&before.shared), true);
                    self.directory.put(&Arc::new(member));
                }
            }
            child @ (Child::Registry | Child::Router | Child::Desk | Child::Gateway) => {
                tracing::error!(project = %self.id, ?child, "child failed too often; restarting the project");
                if let Some(gave_up) = self.on_give_up.take() {
                    gave_up();
                }
            }
        }
    }
}

crate::supervise::panics!(Project);
