//! The actor of one backend: starts its instance, ends it, and starts it again, as its [`Life`] decides. Calls do not pass
//! through it.

use std::{sync::Arc, time::Duration};

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, SpawnHandle, Supervised,
    fut::wrap_future,
};
use tokio::time::timeout;

use super::{
    launch::{Instance, InstanceEvent, LaunchOrder, Launcher, ReadyInstance},
    life::{BackendState, Life, LifeEffect, LifeEvent},
    shared::{BackendCommand, BackendShared, BackendView},
};
use crate::{
    clock::now,
    model::{BackendConfig, BackendEra, RestartChoice},
    supervise::{ActorMetrics, Address, Envelope},
};

/// How long open calls may go on when the configuration of their backend changes.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// How often it is checked whether a backend has been idle for too long, as a part of that time.
const IDLE_CHECKS: u32 = 4;

/// The actor of one backend.
pub(super) struct Backend {
    shared: Arc<BackendShared>,
    launcher: Arc<dyn Launcher>,
    address: Address<Self>,
    metrics: Arc<ActorMetrics>,
    life: Life,
    instance: Option<Box<dyn Instance>>,
    /// The number of the latest instance. Events of earlier ones are ignored.
    instance_number: u64,
    known_era: Option<BackendEra>,
    /// The running instance gets one call at a time.
    takes_one_call: bool,
    timer: Option<SpawnHandle>,
    /// Tells the gateway that what the backend offers, or its state, may have changed.
    changed: Box<dyn Fn()>,
    /// The backend was removed: its actor ends with its instance.
    is_removed: bool,
}

/// What an instance has reported.
#[derive(Message)]
#[rtype(result = "()")]
struct Reported {
    instance: u64,
    event: InstanceEvent,
}

/// A command of a caller or an operator.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Commanded(pub BackendCommand);

/// The configuration has changed.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Reconfigure(pub Arc<BackendConfig>);

/// The backend is no longer in the configuration.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Remove;

/// Makes the actor panic. For tests only.
#[cfg(feature = "faults")]
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct PanicBackend;

impl Backend {
    /// An actor whose instance is started by `started`.
    pub fn new(
        shared: Arc<BackendShared>,
        launcher: Arc<dyn Launcher>,
        address: Address<Self>,
        metrics: Arc<ActorMetrics>,
        changed: Box<dyn Fn()>,
    ) -> Self {
        let life = new_life(&shared.view().config);
        Self {
            shared,
            launcher,
            address,
            metrics,
            life,
            instance: None,
            instance_number: 0,
            known_era: None,
            takes_one_call: false,
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
            pid: None,
            server: None,
            lists: None,
        }
    }

    fn on(&mut self, event: LifeEvent, ctx: &mut Context<Self>) {
        let before = self.life.state();
        match self.life.on(event, now().mono_ms) {
            Some(LifeEffect::Launch) => self.launch(),
            Some(LifeEffect::End) => {
                if let Some(instance) = &self.instance {
                    instance.end();
                }
            }
            None => {}
        }
        self.arm_timer(ctx);
        self.show();
        let state = self.life.state();
        if state != before {
            tracing::info!(
                project = %self.shared.project,
                backend = %self.shared.name,
                state = state.as_str(),
                reason = self.life.reason().unwrap_or_default(),
                "a backend has changed its state"
            );
            (self.changed)();
        }
        if self.is_removed && self.instance.is_none() {
            self.metrics.mark_finished();
            ctx.stop();
        }
    }

    fn launch(&mut self) {
        self.instance_number += 1;
        let (address, instance) = (self.address.clone(), self.instance_number);
        let config = Arc::clone(&self.shared.view().config);
        self.shared
            .counters
            .starts
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let order = LaunchOrder {
            project: self.shared.project.clone(),
            known_era: config.era.or(self.known_era),
            known_lists: self.shared.view().lists.clone(),
            config,
            log: Arc::clone(&self.shared.log),
            counters: Arc::clone(&self.shared.counters),
            report: Arc::new(move |event| address.report(Reported { instance, event })),
        };
        self.instance = Some(self.launcher.launch(order));
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
            InstanceEvent::Ready(ReadyInstance {
                link,
                server,
                takes_one_call,
            }) => {
                self.known_era = Some(link.era());
                self.takes_one_call = takes_one_call;
                self.apply_concurrency();
                self.shared.change_view(|view| {
                    (view.link, view.server) = (Some(link), Some(server));
                });
                self.on(LifeEvent::Ready, ctx);
                self.check_idle(ctx);
            }
            InstanceEvent::Lists(lists) => {
                self.shared.change_view(|view| view.lists = Some(Arc::new(lists)));
                (self.changed)();
            }
            InstanceEvent::ListsFailed(reason) => {
                tracing::warn!(
                    project = %self.shared.project,
                    backend = %self.shared.name,
                    %reason,
                    "the lists of a backend could not be read"
                );
                self.shared.change_view(|view| {
                    view.reason = Some(reason);
                    view.lists.get_or_insert_default();
                });
                (self.changed)();
            }
            InstanceEvent::Ended(ended) => {
                let reason = ended.to_string();
                if self.life.state() == BackendState::Starting {
                    // Another version of the program may speak another era.
                    self.known_era = None;
                }
                self.instance_gone();
                let jitter = jitter();
                self.on(LifeEvent::Ended { reason, jitter }, ctx);
            }
            InstanceEvent::NotStarted(reason) => {
                self.instance_gone();
                self.on(LifeEvent::NotStarted { reason }, ctx);
            }
        }
    }

    /// Lets the open calls end, for at most [`DRAIN_MAX`], and goes on with an event. New calls wait for what comes then.
    fn drain_then(&mut self, event: LifeEvent, ctx: &mut Context<Self>) {
        let Some(link) = self.shared.view().link.clone() else {
            return self.on(event, ctx);
        };
        self.shared.change_view(|view| view.link = None);
        let instance = self.instance_number;
        let drained = async move {
            let _ = timeout(DRAIN_MAX, link.wait_until_idle()).await;
        };
        ctx.spawn(wrap_future(drained).map(move |(), backend: &mut Self, ctx| {
            if backend.instance_number == instance {
                backend.on(event, ctx);
            }
        }));
    }

    /// Lets as many calls run at once as the configuration and the running instance allow.
    fn apply_concurrency(&self) {
        let configured = self.shared.view().config.concurrency;
        self.shared
            .turns
            .set_limit(if self.takes_one_call { 1 } else { configured });
    }

    fn instance_gone(&mut self) {
        self.instance = None;
        self.shared.change_view(|view| (view.link, view.pid) = (None, None));
    }

    /// Ends the instance once it has had no call for as long as the configuration allows.
    fn check_idle(&mut self, ctx: &mut Context<Self>) {
        let Some(idle_max) = self.shared.view().config.stop_when_idle else {
            return;
        };
        let instance = self.instance_number;
        ctx.run_later(idle_max / IDLE_CHECKS, move |backend, ctx| {
            if backend.instance_number != instance {
                return;
            }
            if backend.is_idle(idle_max) {
                backend.on(LifeEvent::IdleTooLong, ctx);
            } else {
                backend.check_idle(ctx);
            }
        });
    }

    fn is_idle(&self, idle_max: Duration) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        let view = self.shared.view();
        let idle_ms = now()
            .mono_ms
            .saturating_sub(self.shared.counters.last_call_ms.load(Relaxed));
        let since_ready = now().unix_ms.saturating_sub(view.since_ms);
        self.shared.counters.open.load(Relaxed) == 0 && u128::from(idle_ms.min(since_ready)) >= idle_max.as_millis()
    }
}

fn new_life(config: &BackendConfig) -> Life {
    let restarts = config.restart == RestartChoice::Always;
    Life::new(config.start_timeout, restarts, config.is_disabled, now().mono_ms)
}

/// The parts of a configuration that hold from the next start on.
fn what_starts(config: &BackendConfig) -> impl PartialEq + use<'_> {
    let BackendConfig {
        address,
        era,
        limits,
        is_disabled,
        asks,
        ..
    } = config;
    (address, era, limits, is_disabled, asks)
}

/// A random number from 0 to 1.
fn jitter() -> f64 {
    let mut byte = [0; 1];
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}

impl Actor for Backend {
    type Context = Context<Self>;

    /// Starts the backend: its tools are not known yet.
    fn started(&mut self, ctx: &mut Context<Self>) {
        self.on(LifeEvent::Wanted, ctx);
    }
}

impl Supervised for Backend {
    /// The instance ends with its handle, and its calls are answered by its link.
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.instance_gone();
        self.instance_number += 1;
        self.timer = None;
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
        if message.instance == self.instance_number {
            self.reported(message.event, ctx);
        }
    }
}

impl Handler<Envelope<Commanded>> for Backend {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<Commanded>, ctx: &mut Context<Self>) {
        let event = match message.0 {
            BackendCommand::Want => LifeEvent::Wanted,
            BackendCommand::Restart => LifeEvent::Restart,
            BackendCommand::Stop => LifeEvent::Disable,
        };
        self.on(event, ctx);
    }
}

impl Handler<Envelope<Reconfigure>> for Backend {
    type Result = ();

    /// A change of what is started starts it again; other changes hold from the next call on.
    fn handle(&mut self, Envelope { message, .. }: Envelope<Reconfigure>, ctx: &mut Context<Self>) {
        let (before, after) = (Arc::clone(&self.shared.view().config), message.0);
        let starts_differently = what_starts(&before) != what_starts(&after);
        let is_disabled = after.is_disabled;
        self.shared.change_view(|view| view.config = after);
        self.apply_concurrency();
        if starts_differently {
            self.known_era = None;
            let event = if is_disabled {
                LifeEvent::Disable
            } else {
                LifeEvent::Restart
            };
            self.drain_then(event, ctx);
        }
        (self.changed)();
    }
}

impl Handler<Envelope<Remove>> for Backend {
    type Result = ();

    fn handle(&mut self, _: Envelope<Remove>, ctx: &mut Context<Self>) {
        self.is_removed = true;
        self.drain_then(LifeEvent::Disable, ctx);
    }
}

#[cfg(feature = "faults")]
impl Handler<Envelope<PanicBackend>> for Backend {
    type Result = ();

    fn handle(&mut self, _: Envelope<PanicBackend>, _: &mut Context<Self>) {
        panic!("a fault was injected");
    }
}
