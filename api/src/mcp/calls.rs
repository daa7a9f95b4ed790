//! The calls of one connection that run while further frames are read: bounded in number, cancelled by the id of their
//! request, and ended when the broker stops.
//!
//! It must not know methods, tools or sessions.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    future::Future,
    panic::AssertUnwindSafe,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::Waker,
    time::Duration,
};

use actors::{
    model::{BrokerError, ConnectionId},
    session::Connection,
};
use futures_util::FutureExt;
use tokio::{
    sync::Notify,
    task::AbortHandle,
    time::{Instant, timeout},
};

use super::{
    outbox::Outbox,
    pending_receive::HandedOver,
    reply::ReplyTo,
    rpc::{INTERNAL_ERROR, RpcError},
};

/// Calls of one connection that may run at once.
const CALLS_LEN_MAX: usize = 256;
/// Receives that can still be cancelled, running or answered.
const RECEIVES_LEN_MAX: usize = 16;

/// The calls of one connection.
pub struct Calls {
    outbox: Arc<Outbox>,
    progress_interval: Duration,
    running: RefCell<HashMap<RequestKey, RunningCall>>,
    /// The latest receives, running or answered, oldest first.
    receives: RefCell<VecDeque<RecordedReceive>>,
    /// What its calls hold, by [`Resource`].
    held: [Cell<usize>; 5],
    was_reset: Cell<bool>,
    /// The task that polls the peer.
    waker: RefCell<Option<Waker>>,
}

/// The address of the id of a request, unique as long as its call keeps the id. The id itself does not do: a client may
/// reuse it before its first call has ended, although it should not, and each of these calls counts.
type RequestKey = *const u8;

fn key_of(id: &Rc<str>) -> RequestKey {
    Rc::as_ptr(id).cast()
}

/// A call that runs while further frames are read.
struct RunningCall {
    task: AbortHandle,
    to: ReplyTo,
    on_shutdown: ShutdownBehaviour,
    /// The reader of its exchange has left.
    is_unread: bool,
}

/// What the calls of a connection hold together.
#[derive(Clone, Copy, Debug)]
pub enum Resource {
    /// Places of calls that start once the router has answered.
    Slots,
    /// Bytes that are reserved for answers.
    AnswerBytes,
    /// Bytes of open requests to backends. Each is kept until its answer, because it may have to be sent again.
    RequestBytes,
    /// Bytes of frames whose calls have not begun.
    FrameBytes,
    /// Calls that no frame may overtake.
    Order,
}

/// A part of a [`Resource`]. Dropping it gives the part back, and wakes the peer, whose frames may wait for it.
pub struct Share {
    calls: Rc<Calls>,
    of: Resource,
    amount: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let held = &self.calls.held[self.of as usize];
        held.set(held.get() - self.amount);
        self.calls.wake();
    }
}

/// What the broker does with a call when it stops.
#[derive(Debug)]
pub enum ShutdownBehaviour {
    /// Waits for its end, which comes soon.
    Finish,
    /// Refuses it: it waits for an event that may never come.
    Refuse,
    /// Sends this result: the call has it and waits for more.
    Answer(Vec<u8>),
    /// Notifies it: it ends its wait and answers with what it knows.
    Notify(Rc<Notify>),
}

/// A receive that can be cancelled. It outlives its answer and holds no route: the answer of a JSON-RPC batch is sent
/// when the last route to it is dropped.
struct RecordedReceive {
    /// The id of the request.
    id: Rc<str>,
    /// The exchange of the answer; `None` for the connection.
    exchange_id: Option<ConnectionId>,
    receive: HandedOver,
}

impl Calls {
    /// No calls yet. Callers that wait get progress every `progress_interval`: their call still runs.
    pub fn new(outbox: Arc<Outbox>, progress_interval: Duration) -> Rc<Self> {
        Rc::new(Self {
            outbox,
            progress_interval,
            running: RefCell::default(),
            receives: RefCell::default(),
            held: Default::default(),
            was_reset: Cell::default(),
            waker: RefCell::default(),
        })
    }

    /// Sets the task to wake when a deferred frame can be handled.
    pub fn set_waker(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    /// Wakes the task that polls the peer.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// How much its calls hold.
    pub fn held(&self, of: Resource) -> usize {
        self.held[of as usize].get()
    }

    /// Takes so much until the result is dropped.
    pub fn hold(self: &Rc<Self>, of: Resource, amount: usize) -> Share {
        self.held[of as usize].set(self.held(of) + amount);
        Share {
            calls: Rc::clone(self),
            of,
            amount,
        }
    }

    /// Whether a call runs that no frame may overtake.
    pub fn is_exclusive(&self) -> bool {
        self.held(Resource::Order) > 0
    }

    /// Runs a call that no other frame of the connection may overtake, and which keeps `bytes` of its frame.
    pub fn run_exclusively(self: &Rc<Self>, to: &ReplyTo, bytes: usize, call: impl Future<Output = ()> + 'static) {
        let held = [(Resource::Order, 1), (Resource::FrameBytes, bytes)].map(|(of, amount)| self.hold(of, amount));
        // What follows may be a call of the same request, which is known by its own id.
        self.spawn(&to.with_new_id(), ShutdownBehaviour::Finish, async move {
            call.await;
            drop(held);
        });
    }

    /// Runs a call while further frames are read. It can be cancelled by the id of its request, sends progress
    /// notifications, and answers [`INTERNAL_ERROR`] if it panics.
    pub fn spawn(
        self: &Rc<Self>,
        to: &ReplyTo,
        on_shutdown: ShutdownBehaviour,
        call: impl Future<Output = ()> + 'static,
    ) {
        let calls = Rc::clone(self);
        let (to, answered) = (to.clone(), to.clone());
        let mut running = self.running.borrow_mut();
        let task = actix_rt::spawn(async move {
            let call = AssertUnwindSafe(call).catch_unwind();
            let ended = if to.progress.is_some() {
                calls.with_progress(&to, call).await
            } else {
                call.await
            };
            if ended.is_err() {
                to.error(&calls.outbox, &RpcError::new(INTERNAL_ERROR, "Internal error"));
            }
            calls.detach(&to);
            // A shutdown may wait for the last call.
            calls.wake();
        });
        let call = RunningCall {
            task: task.abort_handle(),
            to: answered,
            on_shutdown,
            is_unread: false,
        };
        running.insert(key_of(&call.to.id), call);
    }

    async fn with_progress<T>(&self, to: &ReplyTo, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        let started = Instant::now();
        loop {
            match timeout(self.progress_interval, &mut call).await {
                Ok(ended) => return ended,
                Err(_) => to.notify_progress(&self.outbox, started.elapsed().as_secs_f64(), None, Some("waiting")),
            }
        }
    }

    /// Whether another call may run. Those that no frame may overtake have been admitted, and start the call that they hold.
    pub fn has_free_slot(&self) -> bool {
        self.running.borrow().len() + self.held(Resource::Slots) < CALLS_LEN_MAX + self.held(Resource::Order)
    }

    /// Reserves a place for a call that starts once the router has answered.
    ///
    /// # Errors
    /// `Unavailable` if too many calls run.
    pub fn reserve_slot(self: &Rc<Self>) -> Result<Share, BrokerError> {
        if !self.has_free_slot() {
            return Err(BrokerError::unavailable());
        }
        Ok(self.hold(Resource::Slots, 1))
    }

    /// Sets the result that a running call gets if the broker stops: it waits for more. Wakes the peer, because the broker
    /// may be stopping already.
    pub fn answer_on_shutdown(&self, to: &ReplyTo, result: Vec<u8>) {
        if let Some(call) = self.running.borrow_mut().get_mut(&key_of(&to.id)) {
            call.on_shutdown = ShutdownBehaviour::Answer(result);
            self.wake();
        }
    }

    /// Detaches a call from its request: neither a cancellation nor the end of the peer ends it.
    pub fn detach(&self, to: &ReplyTo) -> Option<AbortHandle> {
        self.remove(&to.id).map(|call| call.task)
    }

    /// Removes the call of exactly this request.
    fn remove(&self, id: &Rc<str>) -> Option<RunningCall> {
        let mut running = self.running.borrow_mut();
        let call = running.remove(&key_of(id));
        if running.is_empty() {
            // Most connections run no call most of the time.
            running.shrink_to_fit();
        }
        call
    }

    /// Cancels the running calls of this id without an answer. Calls that have only reserved a slot are cancelled by
    /// `PeerQueue::withdraw`.
    pub fn cancel(&self, id: &str) {
        let has_id = |call: &RunningCall| *call.to.id == *id;
        let cancelled: Vec<_> = self.running.borrow_mut().extract_if(|_, call| has_id(call)).collect();
        for (_, RunningCall { task, to, .. }) in &cancelled {
            task.abort();
            to.route.abandon();
        }
    }

    /// Records a receive, so that a cancellation before its answer returns its messages to the inbox.
    pub fn record_receive(&self, to: &ReplyTo, receive: HandedOver) {
        let mut receives = self.receives.borrow_mut();
        if receives.len() >= RECEIVES_LEN_MAX {
            // Evicts the oldest that has been answered; running ones stay.
            let running = self.running.borrow();
            if let Some(at) = receives
                .iter()
                .position(|known| !running.contains_key(&key_of(&known.id)))
            {
                receives.remove(at);
            }
        }
        receives.push_back(RecordedReceive {
            id: Rc::clone(&to.id),
            exchange_id: to.route.exchange_id(),
            receive,
        });
    }

    /// Returns the messages of a cancelled receive to the inbox, unless its answer is written: some clients cancel every
    /// call after they have its answer, and a cancellation of what has ended is ignored (2025-11-25 and 2026-07-28,
    /// cancellation).
    pub fn release_receive(&self, id: &str) {
        let mut receives = self.receives.borrow_mut();
        let at = receives.iter().rposition(|known| &*known.id == id);
        if let Some(RecordedReceive { receive, .. }) = at.and_then(|at| receives.remove(at)) {
            // Its messages come again from the inbox.
            self.outbox.withdraw(&receive);
            receive.release_unless_written();
        }
    }

    /// Whether any receive is recorded.
    pub fn has_receives(&self) -> bool {
        !self.receives.borrow().is_empty()
    }

    /// The reader of this exchange has left: its receives end, and return their messages unless their answer is written.
    /// Returns the requests whose calls were still running, to be refused.
    pub fn end_receives_of(&self, exchange: &Outbox) -> Vec<ReplyTo> {
        let (ended, others): (VecDeque<_>, _) = self
            .receives
            .take()
            .into_iter()
            .partition(|known| known.exchange_id == Some(exchange.id()));
        self.receives.replace(others);
        for call in self.running.borrow_mut().values_mut() {
            call.is_unread |= call.belongs_to(Some(exchange));
        }
        let end = |RecordedReceive { id, receive, .. }| {
            receive.release_unless_written();
            let RunningCall { task, to, .. } = self.remove(&id)?;
            task.abort();
            Some(to)
        };
        ended.into_iter().filter_map(end).collect()
    }

    /// Whether the reader of an exchange has left while a call of this request ran.
    pub fn is_unread(&self, id: &str) -> bool {
        self.running
            .borrow()
            .values()
            .any(|call| call.is_unread && *call.to.id == *id)
    }

    /// Ends the waiting calls of this exchange, or of the whole connection, because the broker stops. Their receives
    /// return their messages. Returns each request with its result, or `None` if it is to be refused.
    pub fn end_waiting(&self, exchange: Option<&Outbox>) -> Vec<(ReplyTo, Option<Vec<u8>>)> {
        let waits = |call: &RunningCall| {
            if let ShutdownBehaviour::Notify(shutdown) = &call.on_shutdown {
                shutdown.notify_one();
                return false;
            }
            !matches!(call.on_shutdown, ShutdownBehaviour::Finish)
        };
        let ended: Vec<_> = self
            .running
            .borrow_mut()
            .extract_if(|_, call| call.belongs_to(exchange) && waits(call))
            .collect();
        let end = |(
            _,
            RunningCall {
                task, to, on_shutdown, ..
            },
        ): (RequestKey, RunningCall)| {
            task.abort();
            self.release_receive(&to.id);
            match on_shutdown {
                ShutdownBehaviour::Answer(result) => (to, Some(result)),
                ShutdownBehaviour::Refuse | ShutdownBehaviour::Finish | ShutdownBehaviour::Notify(_) => (to, None),
            }
        };
        ended.into_iter().map(end).collect()
    }

    /// Whether a call of this exchange, or of the whole connection, runs.
    pub fn is_running(&self, exchange: Option<&Outbox>) -> bool {
        self.running.borrow().values().any(|call| call.belongs_to(exchange))
    }

    /// Notes that the connection ended with an error: what was written last may not have arrived.
    pub fn mark_reset(&self) {
        self.was_reset.set(true);
    }

    /// The connection has ended: aborts all calls. Receives return their messages, unless their answer was written and
    /// the connection was closed in order.
    pub fn abort_all(&self) {
        for (_, RunningCall { task, .. }) in self.running.borrow_mut().drain() {
            task.abort();
        }
        for RecordedReceive { receive, .. } in self.receives.borrow_mut().drain(..) {
            if self.was_reset.get() {
                receive.release();
            } else {
                receive.release_unless_written();
            }
        }
    }
}

impl RunningCall {
    /// Whether its answer goes to this exchange; always true for the whole connection (`None`).
    fn belongs_to(&self, exchange: Option<&Outbox>) -> bool {
        exchange.is_none_or(|exchange| self.to.route.leads_to(exchange))
    }
}
