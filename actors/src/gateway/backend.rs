//! The actor of one backend: starts its instance, ends it, and starts it again, as its [`Life`] decides. Calls do not pass
//! through it.

mod idle;
mod lists;
mod pooled;
mod reports;
mod watching;

use std::{
    any::Any,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, SpawnHandle, Supervised, fut::wrap_future,
};
use futures_util::future::join_all;
use reports::{Reported, reporter};
use tokio::{sync::oneshot, time::timeout};

use super::{
    announced_lists::AnnouncedLists,
    call::Link,
    kept_lists::{Keeping, KeptLists},
    launch::{Instance, InstanceEvent, LaunchOrder, Launcher},
    life::{BackendState, Life, LifeEffect, LifeEvent, StartReason},
    pool::{Affinity, PoolMode},
    profile::Profile,
    room::Held,
    shared::{BackendCommand, BackendOrder, BackendShared, BackendView},
};
use crate::{
    backoff::random,
    clock::now,
    model::{BackendConfig, BackendEra, RestartChoice},
    supervise::{ActorMetrics, Address, Envelope},
};

/// Bytes of the lists of all added backends of a project: the routing table, the storage and every reader of a list have them in
/// memory, and their size is the choice of servers that an administrator of the project has chosen.
pub(super) const ADDED_LISTS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long open calls may last when the configuration of their backend changes.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// The actor of one backend.
pub(super) struct Backend {
    shared: Arc<BackendShared>,
    launcher: Arc<dyn Launcher>,
    address: Address<Self>,
    metrics: Arc<ActorMetrics>,
    life: Life,
    running: Option<Launched>,
    /// The instance that is being started next to the running one.
    successor: Option<Launched>,
    /// The number of the latest instance.
    last_number: u64,
    /// Watches the files of the program until it is dropped.
    watching: Option<Box<dyn Any>>,
    known_era: Option<BackendEra>,
    failed_openings: Arc<AtomicU32>,
    keeping: Keeping,
    announced: AnnouncedLists,
    /// The bytes of its lists, which count against [`ADDED_LISTS_BYTES_MAX`] if an administrator has added it.
    list_bytes: Held,
    /// The instances of the pool, by their ids there.
    pooled: HashMap<u64, Launched>,
    /// The timer that ends unused instances of the pool.
    pool_timer: Option<SpawnHandle>,
    timer: Option<SpawnHandle>,
    /// Tells the gateway that what the backend offers, or its state, may have changed.
    changed: Box<dyn Fn(Pending)>,
    /// The backend was removed: its actor ends with its instance.
    is_removed: bool,
}

/// An instance that was started.
struct Launched {
    number: u64,
    config: Arc<BackendConfig>,
    instance: Box<dyn Instance>,
    pid: Option<u32>,
    /// Takes its calls, once it is ready.
    link: Option<Arc<dyn Link>>,
    /// How instances are lent to calls if it is the main one.
    pool_mode: PoolMode,
}

/// What a caller, an operator or the pool wants.
pub(super) struct Ordered(pub BackendOrder);

/// A caller that waits until what it has changed is served. Each backend that has to change holds a clone; its receiver ends
/// when the last one is dropped, also when the store fails or a backend panics.
pub(super) type Pending = Option<Arc<oneshot::Sender<()>>>;

/// The configuration has changed. A caller may wait until that is published.
pub(super) struct Reconfigure(pub Arc<BackendConfig>, pub Pending);

/// The backend is no longer in the configuration.
pub(super) struct Remove;

impl Backend {
    /// An actor whose instance is started by `started`, or by the first call.
    pub fn new(
        shared: Arc<BackendShared>,
        launcher: Arc<dyn Launcher>,
        (kept_lists, list_bytes): (Arc<KeptLists>, Held),
        address: Address<Self>,
        metrics: Arc<ActorMetrics>,
        changed: Box<dyn Fn(Pending)>,
    ) -> Self {
        let life = new_life(&shared.view().config);
        Self {
            shared,
            launcher,
            address,
            metrics,
            life,
            running: None,
            successor: None,
            last_number: 0,
            watching: None,
            known_era: None,
            failed_openings: Arc::default(),
            keeping: Keeping::new(kept_lists),
            list_bytes,
            announced: AnnouncedLists::default(),
            pooled: HashMap::new(),
            pool_timer: None,
            timer: None,
            changed,
            is_removed: false,
        }
    }

    /// The view of a backend that was not started yet.
    pub fn first_view(config: Arc<BackendConfig>) -> BackendView {
        BackendView {
            state: new_life(&config).state(),
            config,
            reason: None,
            since_ms: now().unix_ms,
            retry_at_ms: None,
            link: None,
            pool_mode: PoolMode::SHARED,
            pid: None,
            server: None,
            lists: None,
            list_problems: Arc::default(),
            has_announced: false,
        }
    }

    fn on(&mut self, event: LifeEvent, ctx: &mut Context<Self>) {
        let before = self.life.state();
        match self.life.on(event, now().mono_ms) {
            Some(LifeEffect::Launch) => self.running = Some(self.launch_main(self.known_era)),
            Some(LifeEffect::End) => {
                self.successor = None;
                self.end_pool();
                if let Some(running) = &self.running {
                    running.instance.end();
                }
            }
            // Another version of the program may speak another era.
            Some(LifeEffect::LaunchSuccessor) => self.successor = Some(self.launch_main(None)),
            Some(LifeEffect::Replace) => self.replace(ctx),
            Some(LifeEffect::EndSuccessor) => self.successor = None,
            Some(LifeEffect::Drain) => self.drain(ctx),
            None => {}
        }
        self.arm_timer(ctx);
        self.show();
        let state = self.life.state();
        if state != before {
            self.log_state(state);
            (self.changed)(None);
        }
        if self.is_removed && self.running.is_none() {
            self.metrics.mark_finished();
            ctx.stop();
        }
    }

    fn log_state(&self, state: BackendState) {
        let (project, backend, name) = (&self.shared.project, &self.shared.name, state.as_str());
        let reason = self.life.reason().unwrap_or_default();
        match state {
            BackendState::Failed => {
                tracing::error!(%project, %backend, state = name, reason, "a backend has changed its state");
            }
            BackendState::Backoff => {
                tracing::warn!(%project, %backend, state = name, reason, "a backend has changed its state");
            }
            _ => tracing::info!(%project, %backend, state = name, reason, "a backend has changed its state"),
        }
    }

    fn launch_main(&mut self, known_era: Option<BackendEra>) -> Launched {
        self.shared.counters.starts.add(self.life.start_reason(), 1);
        let config = Arc::clone(&self.shared.view().config);
        let known_era = config.era.or(known_era);
        self.launch(config, known_era, None)
    }

    fn launch(
        &mut self,
        config: Arc<BackendConfig>,
        known_era: Option<BackendEra>,
        affinity: Option<Affinity>,
    ) -> Launched {
        self.last_number += 1;
        let subscribed = match &affinity {
            None => Some(self.shared.subscribed.of(None)),
            Some(affinity) => affinity
                .owner
                .as_ref()
                .map(|owner| self.shared.subscribed.of(Some(owner))),
        };
        let (address, number) = (self.address.clone(), self.last_number);
        let order = LaunchOrder {
            project: self.shared.project.clone(),
            config: Arc::clone(&config),
            profile: affinity.map(|affinity| affinity.profile),
            known_era,
            failed_openings: Arc::clone(&self.failed_openings),
            known_lists: self.shared.view().lists.clone(),
            log: Arc::clone(&self.shared.log),
            subscribed,
            urls: Arc::clone(&self.shared.urls),
            counters: Arc::clone(&self.shared.counters),
            report: reporter(number, move |reported| address.report(reported)),
        };
        Launched {
            number,
            config,
            instance: self.launcher.launch(order),
            pid: None,
            link: None,
            pool_mode: PoolMode::SHARED,
        }
    }

    /// Lets the successor take the place of the running instance, which may continue its open calls for at most
    /// [`DRAIN_MAX`].
    fn replace(&mut self, ctx: &mut Context<Self>) {
        let Some(successor) = self.successor.take() else {
            return;
        };
        let before = self.running.replace(successor);
        self.show_running(ctx);
        if let Some(before) = before {
            before.end_once_idle(ctx);
        }
    }

    /// Starts what is started from changed files or a changed configuration.
    fn renew(&mut self, why: StartReason, ctx: &mut Context<Self>) {
        if self.is_removed || self.shared.view().config.is_disabled {
            return;
        }
        self.failed_openings.store(0, Ordering::Relaxed);
        let hands_over = self.shared.view().config.hands_over;
        let event = if hands_over {
            LifeEvent::Changed(why)
        } else {
            LifeEvent::RestartOnceIdle(why)
        };
        self.on(event, ctx);
    }

    /// Wakes the actor at the next deadline of the life.
    fn arm_timer(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(due) = self.life.deadline_ms() {
            let pause = Duration::from_millis(due.saturating_sub(now().mono_ms));
            self.timer = Some(ctx.run_later(pause, |backend, ctx| {
                backend.timer = None;
                backend.on(LifeEvent::Deadline, ctx);
            }));
        }
    }

    /// Shows readers the present state.
    fn show(&self) {
        let (state, reason) = (self.life.state(), self.life.reason().map(str::to_owned));
        let now = now();
        let age_ms = now.mono_ms.saturating_sub(self.life.since_ms());
        let retry_at_ms = self.life.deadline_ms();
        self.shared.change_view(|view| {
            if (view.state, &view.reason) != (state, &reason) {
                view.since_ms = now.unix_ms.saturating_sub(age_ms);
            }
            (view.state, view.reason, view.retry_at_ms) = (state, reason, retry_at_ms);
        });
    }

    fn reported(&mut self, event: InstanceEvent, ctx: &mut Context<Self>) {
        match event {
            InstanceEvent::Running { pid } => self.shared.change_view(|view| view.pid = Some(pid)),
            InstanceEvent::Ready(ready) => {
                self.known_era = Some(ready.link.era());
                if let Some(running) = &mut self.running {
                    let server = running.agreed(ready);
                    self.shared.change_view(|view| view.server = Some(server));
                }
                self.show_running(ctx);
                self.on(LifeEvent::Ready, ctx);
                self.check_idle(ctx);
            }
            InstanceEvent::Lists(read) => self.main_told(read, ctx),
            InstanceEvent::Ended(ended) => {
                let reason = ended.to_string();
                if self.life.state() == BackendState::Starting {
                    // Another version of the program may speak another era.
                    self.known_era = None;
                }
                self.instance_gone(ctx);
                let jitter = random();
                self.on(LifeEvent::Ended { reason, jitter }, ctx);
            }
            InstanceEvent::NotStarted(reason) => {
                self.instance_gone(ctx);
                self.on(LifeEvent::NotStarted { reason }, ctx);
            }
        }
    }

    /// Takes what the instance reports that is being started next to the running one.
    fn successor_reported(&mut self, event: InstanceEvent, ctx: &mut Context<Self>) {
        let Some(successor) = &mut self.successor else {
            return;
        };
        let reason = match event {
            InstanceEvent::Running { pid } => {
                successor.pid = Some(pid);
                return;
            }
            InstanceEvent::Ready(ready) => {
                self.known_era = Some(ready.link.era());
                let server = successor.agreed(ready);
                self.shared.change_view(|view| view.server = Some(server));
                self.on(LifeEvent::SuccessorReady, ctx);
                return self.check_idle(ctx);
            }
            InstanceEvent::Lists(_) => return,
            InstanceEvent::Ended(ended) => ended.to_string(),
            InstanceEvent::NotStarted(reason) => reason,
        };
        self.successor = None;
        self.on(LifeEvent::SuccessorEnded { reason }, ctx);
    }

    /// Shows callers the running instance, with a pool of its own.
    fn show_running(&mut self, ctx: &mut Context<Self>) {
        let Some(Launched {
            link: Some(link),
            pool_mode,
            pid,
            ..
        }) = &self.running
        else {
            return;
        };
        let (link, mode, pid) = (Arc::clone(link), *pool_mode, *pid);
        self.announced = AnnouncedLists::new(self.shared.view().lists.clone());
        self.retire_pool(ctx);
        let (checkouts, concurrency) = (&self.shared.checkouts, self.shared.view().config.concurrency);
        let asker = checkouts.open(mode, Arc::clone(&link), Profile::ALL, concurrency);
        self.await_lists_of(asker, ctx);
        self.shared.change_view(|view| {
            view.pid = pid.or(view.pid);
            (view.link, view.pool_mode) = (Some(link), mode);
        });
    }

    /// Lets the open calls end, for at most [`DRAIN_MAX`]. New calls wait for what comes then.
    fn drain(&mut self, ctx: &mut Context<Self>) {
        self.successor = None;
        let Some(link) = self.shared.view().link.clone() else {
            return self.on(LifeEvent::Drained, ctx);
        };
        self.shared
            .change_view(|view| (view.link, view.pool_mode) = (None, PoolMode::SHARED));
        let links = self.close_pool().into_iter().chain([link]);
        let idle = join_all(links.map(Link::wait_until_idle));
        let number = self.running_number();
        let drained = async move {
            let _ = timeout(DRAIN_MAX, idle).await;
        };
        ctx.spawn(wrap_future(drained).map(move |(), backend: &mut Self, ctx| {
            if backend.running_number() == number {
                backend.on(LifeEvent::Drained, ctx);
            }
        }));
    }

    fn running_number(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.number)
    }

    /// Gives callers no further instance. Those of the pool continue their calls.
    fn hide_running(&mut self, ctx: &mut Context<Self>) {
        self.shared
            .change_view(|view| (view.link, view.pool_mode) = (None, PoolMode::SHARED));
        self.retire_pool(ctx);
    }

    fn instance_gone(&mut self, ctx: &mut Context<Self>) {
        self.running = None;
        self.hide_running(ctx);
        self.shared.change_view(|view| view.pid = None);
    }
}

fn new_life(config: &BackendConfig) -> Life {
    let (is_disabled, now_ms) = (config.is_disabled, now().mono_ms);
    Life::new(config.start_timeout, restarts_by_itself(config), is_disabled, now_ms)
}

fn restarts_by_itself(config: &BackendConfig) -> bool {
    config.restart == RestartChoice::Always
}

/// The parts of a configuration that hold from the next start on.
fn what_starts(config: &BackendConfig) -> impl PartialEq + use<'_> {
    let BackendConfig {
        address,
        era,
        limits,
        is_disabled,
        asks,
        instances_max,
        sharing,
        ..
    } = config;
    (address, era, limits, is_disabled, asks, instances_max, sharing)
}

impl Actor for Backend {
    type Context = Context<Self>;

    /// Starts the backend now, or as soon as it turns out that it is not known what it offers.
    fn started(&mut self, ctx: &mut Context<Self>) {
        self.watch();
        let view = self.shared.view();
        if view.lists.is_none() {
            self.load_lists(ctx);
        }
        let was_started_before = self.last_number > 0;
        if was_started_before || view.config.starts_with_broker() {
            self.on(LifeEvent::Wanted, ctx);
        }
    }
}

impl Supervised for Backend {
    /// The instance ends with its handle, and its calls are answered by its link.
    fn restarting(&mut self, ctx: &mut Context<Self>) {
        self.end_pool();
        self.instance_gone(ctx);
        (self.successor, self.timer, self.pool_timer) = (None, None, None);
        self.keeping.is_writing = false;
        let was_disabled = self.life.state() == BackendState::Disabled;
        self.life = new_life(&self.shared.view().config);
        if was_disabled || self.is_removed {
            self.life.on(LifeEvent::Disable, now().mono_ms);
        }
    }
}

impl Handler<Envelope<Reported>> for Backend {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Reported>, ctx: &mut Context<Self>) {
        let instance = message.instance;
        let Some(event) = message.into_event() else { return };
        // Events of earlier instances come too late.
        if self.running_number() == Some(instance) {
            self.reported(event, ctx);
        } else if self.successor.as_ref().map(|successor| successor.number) == Some(instance) {
            self.successor_reported(event, ctx);
        } else {
            self.pooled_reported(instance, event, ctx);
        }
    }
}

impl Handler<Envelope<Ordered>> for Backend {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Ordered>, ctx: &mut Context<Self>) {
        let command = match message.0 {
            BackendOrder::Command(command) => command,
            BackendOrder::Pool(order) => return self.carry_out(order, ctx),
        };
        let event = match command {
            BackendCommand::Want => LifeEvent::Wanted,
            BackendCommand::Restart => LifeEvent::Restart(StartReason::Operator),
            BackendCommand::Stop => LifeEvent::Disable,
        };
        self.on(event, ctx);
    }
}

impl Handler<Envelope<Reconfigure>> for Backend {
    type Result = ();

    /// A change of what is started is handed over to another instance; other changes hold from the next call on.
    fn handle(&mut self, Envelope { message, .. }: Envelope<Reconfigure>, ctx: &mut Context<Self>) {
        let Reconfigure(after, pending) = message;
        let before = Arc::clone(&self.shared.view().config);
        let starts_differently = what_starts(&before) != what_starts(&after);
        self.life.configure(after.start_timeout, restarts_by_itself(&after));
        self.shared.change_view(|view| view.config = Arc::clone(&after));
        self.shared.checkouts.set_concurrency(after.concurrency);
        if starts_differently {
            self.known_era = None;
            match (before.is_disabled, after.is_disabled) {
                (_, true) => self.on(LifeEvent::DisableOnceIdle, ctx),
                // Its open calls have not ended yet.
                (true, false) if self.life.state() == BackendState::Ready => {
                    self.on(LifeEvent::RestartOnceIdle(StartReason::Config), ctx);
                }
                (true, false) => self.on(LifeEvent::Restart(StartReason::Config), ctx),
                (false, false) => self.renew(StartReason::Config, ctx),
            }
        }
        if starts_differently || before.watch != after.watch {
            self.watch();
        }
        if after.starts_with_broker() && !before.starts_with_broker() {
            self.on(LifeEvent::Wanted, ctx);
        }
        (self.changed)(pending);
    }
}

impl Handler<Envelope<Remove>> for Backend {
    type Result = ();

    fn handle(&mut self, _: Envelope<Remove>, ctx: &mut Context<Self>) {
        self.is_removed = true;
        self.watching = None;
        self.on(LifeEvent::DisableOnceIdle, ctx);
    }
}

crate::supervise::panics!(Backend);
