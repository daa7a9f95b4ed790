//! Supervision that survives panics.
//!
//! actix's own supervisor loses an actor that panics: the panic unwinds through its future and takes the mailbox
//! along. Here the actor's future is polled inside `catch_unwind`, and `restart` keeps the same address and the
//! queued commands; the actor's `restarting` throws suspect state away, and its `started` runs again. Too many
//! panics in a short time, and the parent is told instead ([`Policy`]).

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
    Actor, ActorFuture, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, Supervised, WrapFuture,
    dev::{ContextFut, channel},
};
use futures_util::{StreamExt, stream::FuturesOrdered};
use serde::Serialize;

use crate::{
    clock,
    model::BrokerError,
    storage::{Op, StoreError},
};

/// What an actor's mailbox holds: a command, and the place it takes until it has been handled or dropped.
pub struct Envelope<M> {
    pub message: M,
    _slot: MailboxSlot,
}

impl<M: Message> Message for Envelope<M> {
    type Result = M::Result;
}

struct MailboxSlot(Arc<ActorMetrics>);

impl Drop for MailboxSlot {
    fn drop(&mut self) {
        self.0.mailbox_len.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The address of a supervised actor. It stays valid across restarts.
///
/// Every producer is held to the mailbox's bound, however many clones of the address there are.
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
        M: Message<Result = ()> + Send + 'static,
    {
        let place = self.reserve_slot()?;
        self.addr
            .try_send(Envelope { message, _slot: place })
            .map_err(|_| BrokerError::unavailable())
    }

    /// Tells a parent a fact about its child, full mailbox or not: a child has few to tell, and if one were lost the
    /// parent would keep a child that is dead. To a parent that is gone it says nothing.
    pub fn report<M>(&self, fact: M)
    where
        A: Handler<Envelope<M>>,
        M: Message<Result = ()> + Send + 'static,
    {
        let (place, _) = self.take_slot();
        self.addr.do_send(Envelope {
            message: fact,
            _slot: place,
        });
    }

    /// Puts a command into the mailbox and waits for the answer.
    ///
    /// # Errors
    /// `unavailable` as for [`Address::tell`], and when the actor panicked over the command.
    pub async fn ask<M>(&self, message: M) -> Result<M::Result, BrokerError>
    where
        A: Handler<Envelope<M>>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let place = self.reserve_slot()?;
        self.addr
            .send(Envelope { message, _slot: place })
            .await
            .map_err(|_| BrokerError::unavailable())
    }

    pub fn metrics(&self) -> &Arc<ActorMetrics> {
        &self.metrics
    }

    fn reserve_slot(&self) -> Result<MailboxSlot, BrokerError> {
        match self.take_slot() {
            (place, len) if len < MAILBOX_LEN_MAX => Ok(place),
            _ => Err(BrokerError::unavailable()),
        }
    }

    /// A place in the mailbox, and how many were taken before it.
    fn take_slot(&self) -> (MailboxSlot, usize) {
        let len = self.metrics.mailbox_len.fetch_add(1, Ordering::Relaxed);
        (MailboxSlot(Arc::clone(&self.metrics)), len)
    }
}

/// Commands that may wait in one mailbox.
pub const MAILBOX_LEN_MAX: usize = 16_384;

/// What can be seen of an actor from outside, without asking it.
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

/// One actor and those it owns, as `observe` tells it.
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
    pub fn new(kind: &'static str, name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            kind,
            name: name.into(),
            mailbox_len: AtomicUsize::new(0),
            restarts: AtomicU32::new(0),
            state: AtomicU8::new(RUNNING),
        })
    }

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

    /// The next stop of the actor is its end, not a restart.
    pub fn mark_finished(&self) {
        self.state.store(FINISHED, Ordering::Relaxed);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FINISHED
    }
}

/// How many panics are borne, and how long the pause before a restart is.
#[derive(Clone, Copy, Debug)]
pub struct RestartPolicy {
    pub restarts_max: usize,
    pub window: Duration,
    /// Doubled with each restart in the window; the first is immediate.
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

/// Starts an actor under supervision, on this thread's arbiter. `gave_up` runs once if the policy is exhausted.
pub fn start<A>(
    metrics: Arc<ActorMetrics>,
    policy: RestartPolicy,
    on_give_up: impl FnOnce() + 'static,
    make: impl FnOnce(Address<A>) -> A,
) -> Address<A>
where
    A: Supervised + Actor<Context = Context<A>>,
{
    /// The bound is kept by [`Address`]: actix's own lets every clone of an address put one more in.
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
    metrics: Arc<ActorMetrics>,
    policy: RestartPolicy,
    /// When the panics in the window happened, on the monotonic clock.
    panics_ms: VecDeque<u64>,
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
    on_give_up: Option<Box<dyn FnOnce()>>,
}

impl<A: Supervised + Actor<Context = Context<A>>> Unpin for Supervision<A> {}

impl<A: Supervised + Actor<Context = Context<A>>> Future for Supervision<A> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let this = &mut *self;
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
    /// Arranges the restart after a panic, or ends the actor. True when it has ended.
    fn handle_panic(&mut self) -> bool {
        let now = clock::now();
        let window = self.policy.window;
        self.panics_ms.retain(|&at| now.since(at) < window);
        self.panics_ms.push_back(now.mono_ms);
        let (kind, name) = (self.metrics.kind, &self.metrics.name);
        if self.panics_ms.len() > self.policy.restarts_max {
            tracing::error!(kind, %name, "panicked too often: given up");
            self.metrics.state.store(GAVE_UP, Ordering::Relaxed);
            actix::ActorContext::terminate(self.running.ctx());
            if let Some(gave_up) = self.on_give_up.take() {
                gave_up();
            }
            return true;
        }
        tracing::error!(kind, %name, restarts = self.panics_ms.len(), "panicked: restarting");
        self.metrics.restarts.fetch_add(1, Ordering::Relaxed);
        self.metrics.state.store(RESTARTING, Ordering::Relaxed);
        let doublings = u32::try_from(self.panics_ms.len())
            .unwrap_or(u32::MAX)
            .saturating_sub(2)
            .min(16);
        let pause = match self.panics_ms.len() {
            1 => Duration::ZERO,
            _ => (self.policy.backoff * 2_u32.pow(doublings)).min(self.policy.backoff_max),
        };
        self.pause = Some(Box::pin(tokio::time::sleep(pause)));
        false
    }

    /// False when the restart itself panicked.
    fn restart(&mut self) -> bool {
        let restarted = catch_unwind(AssertUnwindSafe(|| self.running.restart())).is_ok();
        if restarted {
            self.metrics.state.store(RUNNING, Ordering::Relaxed);
        }
        restarted
    }
}

/// Runs an operation of the store for an actor: at once when its answer is there at the first poll, which is
/// always so in memory, else beside the actor's other work.
pub fn then<A, T>(
    mut op: Op<T>,
    actor: &mut A,
    ctx: &mut Context<A>,
    then: impl FnOnce(&mut A, Result<T, StoreError>, &mut Context<A>) + 'static,
) where
    A: Actor<Context = Context<A>>,
    T: 'static,
{
    let mut no_wake = TaskContext::from_waker(std::task::Waker::noop());
    match op.as_mut().poll(&mut no_wake) {
        Poll::Ready(result) => then(actor, result, ctx),
        Poll::Pending => {
            ctx.spawn(op.into_actor(actor).map(|result, actor, ctx| then(actor, result, ctx)));
        }
    }
}

/// Operations of the store whose answers an actor hears in the order in which it began them. [`settle`] promises none,
/// and an actor that keeps what the last answer said would be left with what an older one said.
pub struct OrderedOps<A: Actor<Context = Context<A>>> {
    /// There while a [`Driver`] is at work, which with a store in memory is never.
    pending: Option<Box<FuturesOrdered<PendingCompletion<A>>>>,
}

type PendingCompletion<A> = Pin<Box<dyn Future<Output = Completion<A>>>>;
/// What is left to do when an operation has been answered.
type Completion<A> = Box<dyn FnOnce(&mut A, &mut Context<A>)>;

impl<A: Actor<Context = Context<A>>> Default for OrderedOps<A> {
    fn default() -> Self {
        Self { pending: None }
    }
}

impl<A: Actor<Context = Context<A>>> OrderedOps<A> {
    /// As [`settle`]; at once only when no answer is awaited from before. `of` finds it in its actor.
    pub fn then<T: 'static>(
        of: fn(&mut A) -> &mut Self,
        mut op: Op<T>,
        actor: &mut A,
        ctx: &mut Context<A>,
        then: impl FnOnce(&mut A, Result<T, StoreError>, &mut Context<A>) + 'static,
    ) {
        let polled = op.as_mut().poll(&mut TaskContext::from_waker(std::task::Waker::noop()));
        let awaited = &mut of(actor).pending;
        match polled {
            Poll::Ready(result) if awaited.as_ref().is_none_or(|awaited| awaited.is_empty()) => {
                then(actor, result, ctx);
            }
            polled => {
                if awaited.is_none() {
                    ctx.spawn(OrderedOpsDriver(of));
                }
                awaited.get_or_insert_default().push_back(Box::pin(async move {
                    let result = match polled {
                        Poll::Ready(result) => result,
                        Poll::Pending => op.await,
                    };
                    Box::new(move |actor: &mut A, ctx: &mut Context<A>| then(actor, result, ctx)) as Completion<A>
                }));
            }
        }
    }
}

/// Hears the answers; `.0` finds what is awaited.
struct OrderedOpsDriver<A: Actor<Context = Context<A>>>(fn(&mut A) -> &mut OrderedOps<A>);

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for OrderedOpsDriver<A> {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Self::Output> {
        while let Some(awaited) = &mut (self.0)(actor).pending {
            match ready!(awaited.poll_next_unpin(task)) {
                Some(then) => then(actor, ctx),
                None => (self.0)(actor).pending = None,
            }
        }
        Poll::Ready(())
    }
}
