//! Supervision that survives panics.
//!
//! actix's own supervisor loses an actor that panics: the panic unwinds through its future and takes the mailbox
//! along. Here the actor's future is polled inside `catch_unwind`, and `restart` keeps the same address and the
//! queued commands; the actor's `restarting` drops suspect state, and its `started` runs again. After too many panics in
//! a short time the actor is given up and its parent is notified instead ([`RestartPolicy`]).
//!
//! Mailboxes are bounded here as well, and [`ActorMetrics`] shows an actor from outside, even when it is stuck.

use std::{
    collections::VecDeque,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering},
    },
    task::{Context as TaskContext, Poll, ready},
    time::Duration,
};

use actix::{
    Actor, Addr, Context, Handler, Message, Supervised,
    dev::{ContextFut, channel},
};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::{
    backoff::Backoff,
    clock,
    metrics::{ActorKind, METRICS},
    model::BrokerError,
};

/// A command in the mailbox of an actor. It counts in [`ActorMetrics`] until it has been handled or dropped.
pub struct Envelope<M> {
    pub message: M,
    _slot: MailboxSlot,
}

/// A command that has an answer carries where to send it: see [`Address::request`].
impl<M: 'static> Message for Envelope<M> {
    type Result = ();
}

/// Makes an actor panic. Compiled in for tests only.
#[cfg(feature = "faults")]
pub struct Panic;

/// Lets an actor panic at a `Panic`.
macro_rules! panics {
    ($actor:ty) => {
        #[cfg(feature = "faults")]
        impl actix::Handler<$crate::supervise::Envelope<$crate::supervise::Panic>> for $actor {
            type Result = ();

            fn handle(&mut self, _: $crate::supervise::Envelope<$crate::supervise::Panic>, _: &mut Self::Context) {
                panic!("a fault was injected");
            }
        }
    };
}
pub(crate) use panics;

/// Counts one command of a mailbox until it is dropped.
struct MailboxSlot(Arc<ActorMetrics>);

impl Drop for MailboxSlot {
    fn drop(&mut self) {
        self.0.mailbox_len.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The address of a supervised actor. It stays valid across restarts.
///
/// The bound of the mailbox holds for all clones of the address together.
pub struct Address<A: Actor> {
    addr: Addr<A>,
    metrics: Arc<ActorMetrics>,
}

impl<A: Actor> Clone for Address<A> {
    fn clone(&self) -> Self {
        Self {
            addr: self.addr.clone(),
            metrics: Arc::clone(&self.metrics),
        }
    }
}

impl<A: Actor<Context = Context<A>>> Address<A> {
    /// Puts a command into the mailbox.
    ///
    /// # Errors
    /// `unavailable` when the mailbox is full or the actor is gone; the command is dropped.
    pub fn tell<M>(&self, message: M) -> Result<(), BrokerError>
    where
        A: Handler<Envelope<M>>,
        M: Send + 'static,
    {
        let slot = self.reserve_slot()?;
        self.addr
            .try_send(Envelope { message, _slot: slot })
            .map_err(|_| BrokerError::unavailable())
    }

    /// Puts a fact about a child into the mailbox of its parent, even into a full one: children report few facts, and a
    /// lost one would leave the parent with a dead child. A fact is small; what may be large waits elsewhere, once
    /// (`gateway/backend/reports.rs`). Does nothing if the parent is gone.
    pub fn report<M>(&self, fact: M)
    where
        A: Handler<Envelope<M>>,
        M: Send + 'static,
    {
        let (slot, _) = self.take_slot();
        self.addr.do_send(Envelope {
            message: fact,
            _slot: slot,
        });
    }

    /// Puts a command into the mailbox that carries where to send the reply, and waits for the reply. The
    /// actor may reply after its handler has returned.
    ///
    /// # Errors
    /// The error that the actor replies; `unavailable` as for [`Address::tell`], and when the actor drops the command
    /// without a reply, as after a panic.
    pub async fn request<M, T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, BrokerError>>) -> M,
    ) -> Result<T, BrokerError>
    where
        A: Handler<Envelope<M>>,
        M: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.tell(command(reply))?;
        answer.await.unwrap_or(Err(BrokerError::unavailable()))
    }

    /// What can be seen of the actor from outside.
    pub fn metrics(&self) -> &Arc<ActorMetrics> {
        &self.metrics
    }

    fn reserve_slot(&self) -> Result<MailboxSlot, BrokerError> {
        match self.take_slot() {
            (slot, len) if len < MAILBOX_LEN_MAX => Ok(slot),
            _ => Err(BrokerError::unavailable()),
        }
    }

    /// Takes a slot, and returns how many were taken before it.
    fn take_slot(&self) -> (MailboxSlot, usize) {
        let len = self.metrics.mailbox_len.fetch_add(1, Ordering::Relaxed);
        (MailboxSlot(Arc::clone(&self.metrics)), len)
    }
}

/// Commands that may wait in one mailbox at most.
pub const MAILBOX_LEN_MAX: usize = 16_384;

/// What can be seen of an actor from outside, without asking it: its state, the length of its mailbox, its restarts.
#[derive(Debug)]
pub struct ActorMetrics {
    kind: &'static str,
    name: String,
    mailbox_len: AtomicUsize,
    restarts: AtomicU32,
    state: AtomicU8,
}

const RUNNING: u8 = 0;
const RESTARTING: u8 = 1;
const FINISHED: u8 = 2;
const GAVE_UP: u8 = 3;

/// One actor and the actors that it owns, as `GET /api/v1/tree` shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActorNode {
    pub kind: &'static str,
    pub name: String,
    /// `running`, `restarting`, `finished` or `gave_up`.
    pub state: &'static str,
    pub mailbox_len: usize,
    pub restarts: u32,
    pub children: Vec<ActorNode>,
}

impl ActorMetrics {
    /// The metrics of a running actor. `kind` and `name` identify it in the tree and in the log.
    pub fn new(kind: &'static str, name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            kind,
            name: name.into(),
            mailbox_len: AtomicUsize::new(0),
            restarts: AtomicU32::new(0),
            state: AtomicU8::new(RUNNING),
        })
    }

    /// The node of the tree for this actor, with these children.
    pub fn node(&self, children: Vec<ActorNode>) -> ActorNode {
        ActorNode {
            kind: self.kind,
            name: self.name.clone(),
            state: match self.state.load(Ordering::Relaxed) {
                RUNNING => "running",
                RESTARTING => "restarting",
                FINISHED => "finished",
                _ => "gave_up",
            },
            mailbox_len: self.mailbox_len.load(Ordering::Relaxed),
            restarts: self.restarts.load(Ordering::Relaxed),
            children,
        }
    }

    /// Commands that wait in the mailbox.
    pub fn mailbox_len(&self) -> usize {
        self.mailbox_len.load(Ordering::Relaxed)
    }

    /// Makes the next stop of the actor its end. Otherwise the supervisor restarts an actor that stops.
    pub fn mark_finished(&self) {
        self.state.store(FINISHED, Ordering::Relaxed);
    }

    /// Whether the actor has ended or will end at its next stop.
    pub(crate) fn is_finished(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FINISHED
    }
}

/// How many panics an actor may have before it is given up, and how long the pause before a restart is.
#[derive(Clone, Copy, Debug)]
pub struct RestartPolicy {
    /// Restarts within `window`; one panic more and the actor is given up.
    pub restarts_max: usize,
    pub window: Duration,
    /// The pause before the second restart in the window, doubled with each further one. The first is immediate.
    pub backoff: Duration,
    pub backoff_max: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            restarts_max: 10,
            window: Duration::from_secs(60),
            backoff: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
        }
    }
}

/// Starts an actor under supervision, on the arbiter of this thread. `make` builds it with its own address;
/// `on_give_up` runs once if the actor panics more often than the policy allows.
pub fn start<A>(
    metrics: Arc<ActorMetrics>,
    policy: RestartPolicy,
    on_give_up: impl FnOnce() + 'static,
    make: impl FnOnce(Address<A>) -> A,
) -> Address<A>
where
    A: Supervised + Actor<Context = Context<A>>,
{
    /// [`Address`] keeps the bound: that of actix lets every clone of an address put in one more.
    const UNBOUNDED: usize = 0;
    let (sender, receiver) = channel::channel(UNBOUNDED);
    let address = Address {
        addr: Addr::new(sender),
        metrics: Arc::clone(&metrics),
    };
    let actor = make(address.clone());
    let running = Context::with_receiver(receiver).into_future(actor);
    actix_rt::spawn(Supervision {
        running,
        was_polled: false,
        metrics,
        policy,
        panics_ms: VecDeque::new(),
        pause: None,
        on_give_up: Some(Box::new(on_give_up)),
    });
    address
}

struct Supervision<A: Supervised + Actor<Context = Context<A>>> {
    running: ContextFut<A, Context<A>>,
    was_polled: bool,
    metrics: Arc<ActorMetrics>,
    policy: RestartPolicy,
    /// When the panics in the window happened, on the monotonic clock.
    panics_ms: VecDeque<u64>,
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
    on_give_up: Option<Box<dyn FnOnce()>>,
}

impl<A: Supervised + Actor<Context = Context<A>>> Unpin for Supervision<A> {}

impl<A: Supervised + Actor<Context = Context<A>>> Drop for Supervision<A> {
    /// actix polls an actor once more when it is dropped. That must not be its first poll, which starts it: timers and
    /// tasks need the runtime, which has ended.
    fn drop(&mut self) {
        if !self.was_polled {
            actix::ActorContext::terminate(self.running.ctx());
        }
    }
}

impl<A: Supervised + Actor<Context = Context<A>>> Future for Supervision<A> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let this = &mut *self;
        this.was_polled = true;
        loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(cx));
                this.pause = None;
                if !this.restart() {
                    if this.handle_panic() {
                        return Poll::Ready(());
                    }
                    continue;
                }
            }
            match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut this.running).poll(cx))) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(())) => {
                    if this.metrics.is_finished() || !this.running.restart() {
                        this.metrics.mark_finished();
                        return Poll::Ready(());
                    }
                }
                Err(_) => {
                    if this.handle_panic() {
                        return Poll::Ready(());
                    }
                }
            }
        }
    }
}

impl<A: Supervised + Actor<Context = Context<A>>> Supervision<A> {
    /// Schedules the restart after a panic, or gives the actor up. Returns true if it is given up.
    fn handle_panic(&mut self) -> bool {
        let now = clock::now();
        let window = self.policy.window;
        self.panics_ms.retain(|&at| now.since(at) < window);
        self.panics_ms.push_back(now.mono_ms);
        let (kind, name) = (self.metrics.kind, &self.metrics.name);
        if self.panics_ms.len() > self.policy.restarts_max {
            tracing::error!(kind, %name, "actor panicked too often: given up");
            if let Some(kind) = ActorKind::of(kind) {
                METRICS.actors_given_up.of(kind).increment();
            }
            self.metrics.state.store(GAVE_UP, Ordering::Relaxed);
            actix::ActorContext::terminate(self.running.ctx());
            if let Some(gave_up) = self.on_give_up.take() {
                gave_up();
            }
            return true;
        }
        tracing::error!(kind, %name, restarts = self.panics_ms.len(), "actor panicked: restarting");
        self.metrics.restarts.fetch_add(1, Ordering::Relaxed);
        if let Some(kind) = ActorKind::of(kind) {
            METRICS.actor_restarts.of(kind).increment();
        }
        self.metrics.state.store(RESTARTING, Ordering::Relaxed);
        let backoff = Backoff {
            min: self.policy.backoff,
            max: self.policy.backoff_max,
        };
        let before = self.panics_ms.len().saturating_sub(1);
        // No other process waits for the same: nothing is random.
        let pause = backoff.wait(u32::try_from(before).unwrap_or(u32::MAX), 0.0);
        self.pause = Some(Box::pin(tokio::time::sleep(pause)));
        false
    }

    /// Returns false if the restart itself panicked.
    fn restart(&mut self) -> bool {
        let restarted = catch_unwind(AssertUnwindSafe(|| self.running.restart())).is_ok();
        if restarted {
            self.metrics.state.store(RUNNING, Ordering::Relaxed);
        }
        restarted
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use actix::AsyncContext;

    use super::*;

    struct Clockwork {
        was_started: Rc<Cell<bool>>,
    }

    impl Actor for Clockwork {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Context<Self>) {
            self.was_started.set(true);
            ctx.run_interval(Duration::from_secs(1), |_, _| {});
        }
    }

    impl Supervised for Clockwork {}

    #[test]
    fn an_actor_whose_runtime_ends_before_it_runs_is_not_started() {
        let was_started = Rc::<Cell<bool>>::default();
        let in_actor = Rc::clone(&was_started);
        let system = actix_rt::System::new();
        let address = system.block_on(async {
            let metrics = ActorMetrics::new("test", "");
            start(
                metrics,
                RestartPolicy::default(),
                || {},
                |_| Clockwork { was_started: in_actor },
            )
        });
        drop(system);
        assert!(!was_started.get());
        drop(address);
    }
}
