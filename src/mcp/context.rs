//! What the calls of a connection have in common, and what outlives the turn that began them.

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
    project::{ProjectHandle, Registration},
    rate::RateLimit,
    session::{AgentInfo, CloseReason, Connection, Detach, Member, ReadAt},
};
use futures_util::FutureExt;
use tokio::{
    task::AbortHandle,
    time::{Instant, timeout},
};

use super::{
    Outbox, Service,
    interactive::ClientRequests,
    logging::Level,
    pending_receive::PendingReceive,
    reply::{ReplyRoute, ReplyTo, ToolResult, UnreadCount, write_tool_result},
    rpc::{INTERNAL_ERROR, RpcError},
    subscriptions::Subscriptions,
    version::{ClientInfo, PushSettings},
};
use crate::{auth::Identity, refusal::error_object};

/// Calls of one connection that may be under way beyond the turn that brought them.
const CALLS_LEN_MAX: usize = 256;
/// Notifications of one connection for each request that it may make.
const NOTIFICATIONS_PER_REQUEST: u32 = 10;
/// How long a caller that asks for too much is not read: however soon it may ask again, for where a limit is high it would
/// be refused a thousand times in a second on each of its connections. What it may ask in that time it may ask afterwards,
/// so it loses none of it. No longer, for it may have something else to say.
const READ_PAUSE: Duration = Duration::from_millis(250);
/// And this for each byte that was read for nothing.
const READ_PAUSE_PER_BYTE: Duration = Duration::from_micros(4);
const READ_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Calls of `receive_messages` that can still be cancelled after they were answered.
const RECEIVES_LEN_MAX: usize = 16;

/// What `initialize` agreed.
#[derive(Debug)]
pub struct Initialized {
    pub version: &'static str,
    pub push: Option<PushSettings>,
    /// What the client declared, as JSON: hardly anybody asks, and as a tree it takes two KiB.
    pub capabilities: Box<str>,
}

/// A call that runs beside the turn.
struct RunningCall {
    task: AbortHandle,
    to: ReplyTo,
    on_shutdown: ShutdownBehaviour,
}

/// What becomes of a call when the broker stops.
#[derive(Debug)]
pub enum ShutdownBehaviour {
    /// It is soon over, one way or the other, and waited for.
    Finish,
    /// It waits for what may never come: its caller is to try again later.
    Refuse,
    /// It waits for more than it needs: this is its response.
    Answer(Vec<u8>),
}

/// A call that takes messages. Remembered beyond its answer, so it holds nothing of where that went: a batch is answered
/// when the last holder of its lane is dropped.
struct RecordedReceive {
    /// Of its request.
    id: Rc<str>,
    /// Where its answer goes, unless that is the connection.
    exchange_id: Option<ConnectionId>,
    receive: PendingReceive,
}

/// How long what is known of a caller lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// A connection has a session, and is told of what happens to it.
    Connection,
    /// The same for an HTTP session (2025-11-25 and before), which is not over when the broker lets go of it.
    HttpSession,
    /// One request over HTTP (2026-07-28): it names the session it acts for.
    Stateless,
}

/// What ties a peer to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionBinding {
    Unbound,
    /// The outbox is the live connection of the session.
    LiveConnection,
    /// The outbox is told of changes of the inbox, beside the connection.
    Watcher,
}

/// What calls that outlive their turn share with the peer.
pub struct PeerContext {
    pub identity: Arc<Identity>,
    pub project: ProjectHandle,
    pub outbox: Arc<Outbox>,
    pub service: Arc<Service>,
    pub kind: PeerKind,
    pub session: RefCell<Option<Arc<Member>>>,
    binding: Cell<SessionBinding>,
    pub legacy: RefCell<Option<Initialized>>,
    /// What the client says that it is.
    pub client: RefCell<Option<Box<ClientInfo>>>,
    pub subscriptions: RefCell<Subscriptions>,
    /// What a legacy client wants to hear of the log.
    pub log_level: Cell<Option<Level>>,
    /// Somebody reads what is sent unasked. Until then nothing is pushed, for what is pushed is nobody else's to
    /// receive.
    pub has_push_stream: Cell<bool>,
    /// The session said goodbye on this connection: none is made for it again unasked.
    pub has_left: Cell<bool>,
    /// Why none could be made for it.
    pub session_error: RefCell<Option<BrokerError>>,
    /// How many notifications are taken up, where requests are limited: they may answer as many messages.
    notifications: Option<RateLimit>,
    /// What the client has been asked.
    pub client_requests: ClientRequests,
    calls: RefCell<HashMap<Rc<str>, RunningCall>>,
    /// The last calls that took messages out of an inbox, by the ids of their requests, under way or answered.
    receives: RefCell<VecDeque<RecordedReceive>>,
    exclusive: Cell<bool>,
    /// Bytes that are reserved for the answers of calls under way.
    pub reserved_answer_bytes: Cell<usize>,
    /// Calls that are not under way yet and have a place among those that are.
    reserved_slots: Cell<usize>,
    /// The frame that is taken up was counted before.
    pub counted: Cell<bool>,
    /// How much waits for the session was asked for the frame that is taken up next.
    pub depth_is_fresh: Cell<bool>,
    /// When it was read.
    pub read_at: Cell<ReadAt>,
    /// The connection ended with an error: what was written to it may never have arrived.
    pub was_reset: Cell<bool>,
    /// Before it was taken up again, it was looked at what other replicas have done: what came of it.
    pub caught_up: RefCell<Option<Result<(), BrokerError>>>,
    /// How long nothing is to be read of a caller that asks for too much.
    read_pause: Cell<Option<Duration>>,
    /// Who polls the peer.
    waker: RefCell<Option<Waker>>,
}

/// The place of a call that is not under way yet, among those of its connection. Given up when it is dropped.
pub struct CallSlot(Rc<PeerContext>);

impl Drop for CallSlot {
    fn drop(&mut self) {
        self.0.reserved_slots.set(self.0.reserved_slots.get() - 1);
    }
}

impl PeerContext {
    pub fn new(identity: Arc<Identity>, outbox: Arc<Outbox>, service: Arc<Service>, kind: PeerKind) -> Rc<Self> {
        let limit = identity
            .request_limit()
            .map(|limit| limit.saturating_mul(NOTIFICATIONS_PER_REQUEST));
        let notifications = limit.and_then(RateLimit::from_per_minute);
        Rc::new(Self {
            project: identity.project.clone(),
            identity,
            outbox,
            service,
            kind,
            session: RefCell::default(),
            binding: Cell::new(SessionBinding::Unbound),
            legacy: RefCell::default(),
            client: RefCell::default(),
            subscriptions: RefCell::default(),
            log_level: Cell::default(),
            has_push_stream: Cell::new(true),
            has_left: Cell::default(),
            session_error: RefCell::default(),
            notifications,
            client_requests: ClientRequests::default(),
            calls: RefCell::default(),
            receives: RefCell::default(),
            exclusive: Cell::default(),
            reserved_answer_bytes: Cell::default(),
            reserved_slots: Cell::default(),
            counted: Cell::default(),
            depth_is_fresh: Cell::default(),
            read_at: Cell::default(),
            was_reset: Cell::default(),
            caught_up: RefCell::default(),
            read_pause: Cell::default(),
            waker: RefCell::default(),
        })
    }

    /// Takes one request of this lane, unless it was taken where it came in. Its frame has this many bytes.
    ///
    /// # Errors
    /// `rate_limited`. What else the caller has asked waits for a while then, and nothing more is read of it: who asks for
    /// too much is not to have the broker spend its time on telling so.
    pub fn take_request(&self, route: &ReplyRoute, len: usize) -> Result<(), BrokerError> {
        // Of a batch each counts when it is taken up, however often the whole was held back before.
        if !route.is_batch() && (self.counted.get() || self.kind != PeerKind::Connection) {
            return Ok(());
        }
        self.identity.take_request_of_len(len).map_err(|retry_after| {
            let of_bytes = READ_PAUSE_PER_BYTE.saturating_mul(u32::try_from(len).unwrap_or(u32::MAX));
            self.read_pause.set(Some((READ_PAUSE + of_bytes).min(READ_PAUSE_MAX)));
            BrokerError::RateLimited { retry_after }
        })
    }

    /// Takes one notification, which nobody can be refused: a connection with too many is not read for a while.
    pub fn take_notification(&self) {
        if self.notifications.as_ref().is_some_and(|rate| rate.take().is_err()) {
            self.read_pause.set(Some(READ_PAUSE));
        }
    }

    pub fn is_read_paused(&self) -> bool {
        self.read_pause.get().is_some()
    }

    pub fn take_read_pause(&self) -> Option<Duration> {
        self.read_pause.take()
    }

    /// The task to wake when a frame that was held back can be taken up.
    pub fn set_waker(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Whether a call is under way that no frame may overtake.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive.get()
    }

    pub fn set_exclusive(&self, exclusive: bool) {
        self.exclusive.set(exclusive);
    }

    /// The connection is over: calls are given up, and what they took for other sessions than its own waits again, unless
    /// the answer was written and the connection has come to its end in order.
    pub fn abort_calls(&self) {
        for (_, RunningCall { task, .. }) in self.calls.borrow_mut().drain() {
            task.abort();
        }
        for RecordedReceive { receive, .. } in self.receives.borrow_mut().drain(..) {
            if self.was_reset.get() || !receive.call.is_written() {
                receive.release();
            }
        }
    }

    /// Runs a call beside the turn. It can be cancelled by the id of its request, tells its caller from time to time
    /// that it still runs, and answers -32603 if it panics.
    pub fn spawn(
        self: &Rc<Self>,
        to: &ReplyTo,
        when_stopped: ShutdownBehaviour,
        call: impl Future<Output = ()> + 'static,
    ) {
        let context = Rc::clone(self);
        let to = to.clone();
        let answered = to.clone();
        let mut calls = self.calls.borrow_mut();
        let task = actix_rt::spawn(async move {
            let call = AssertUnwindSafe(call).catch_unwind();
            let ended = if to.progress.is_some() {
                context.with_progress(&to, call).await
            } else {
                call.await
            };
            if ended.is_err() {
                to.error(&context.outbox, &RpcError::new(INTERNAL_ERROR, "Internal error"));
            }
            context.detach_call(&to);
            // Somebody may wait for the last call.
            context.wake();
        });
        let task = task.abort_handle();
        let underway = RunningCall {
            task,
            to: answered,
            on_shutdown: when_stopped,
        };
        calls.insert(Rc::clone(&underway.to.id), underway);
    }

    async fn with_progress<T>(&self, to: &ReplyTo, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        let started = Instant::now();
        loop {
            match timeout(self.service.progress_interval, &mut call).await {
                Ok(ended) => return ended,
                Err(_) => to.notify_progress(&self.outbox, started.elapsed().as_secs_f64(), None, Some("waiting")),
            }
        }
    }

    /// Holds on to what a call takes, in case it is cancelled.
    pub fn record_receive(&self, to: &ReplyTo, receive: PendingReceive) {
        let mut receives = self.receives.borrow_mut();
        if receives.len() >= RECEIVES_LEN_MAX {
            // Of those under way there are no more than calls, and none of them may fall out.
            let calls = self.calls.borrow();
            if let Some(at) = receives.iter().position(|known| !calls.contains_key(&known.id)) {
                receives.remove(at);
            }
        }
        receives.push_back(RecordedReceive {
            id: Rc::clone(&to.id),
            exchange_id: to.route.exchange_id(),
            receive,
        });
    }

    /// A call is cancelled: what it took waits again, even when the answer is on its way. Who cancels does not look at
    /// an answer that crosses the cancellation (2025-11-25 and 2026-07-28, cancellation).
    pub fn release_receive(&self, id: &str) {
        let mut receives = self.receives.borrow_mut();
        let at = receives.iter().rposition(|known| &*known.id == id);
        if let Some(RecordedReceive { receive, .. }) = at.and_then(|at| receives.remove(at)) {
            receive.release();
        }
    }

    pub fn has_receives(&self) -> bool {
        !self.receives.borrow().is_empty()
    }

    /// Who waits for this exchange has left. A wait for messages ends, with an answer for whoever comes to look for
    /// one.
    pub fn drop_exchange(&self, exchange: &Outbox) {
        let left: VecDeque<_> = {
            let mut receives = self.receives.borrow_mut();
            let (left, others) = receives
                .drain(..)
                .partition(|known| known.exchange_id == Some(exchange.id()));
            *receives = others;
            left
        };
        for RecordedReceive { id, receive, .. } in left {
            receive.release();
            if let Some(RunningCall { task, to, .. }) = self.remove_call(&id) {
                task.abort();
                self.refuse(&to, &BrokerError::unavailable());
            }
        }
    }

    /// The broker stops: answers the calls of this exchange, or of all, that wait, as far as they have come. What they
    /// took waits again. True when none is left.
    pub fn end_waiting_calls(&self, exchange: Option<&Outbox>) -> bool {
        let belongs = |call: &RunningCall| exchange.is_none_or(|exchange| call.to.route.leads_to(exchange));
        let given_up: Vec<_> = {
            let mut calls = self.calls.borrow_mut();
            let waits = |call: &RunningCall| !matches!(call.on_shutdown, ShutdownBehaviour::Finish);
            calls.extract_if(|_, call| belongs(call) && waits(call)).collect()
        };
        let none_waited = given_up.is_empty();
        for (
            id,
            RunningCall {
                task,
                to,
                on_shutdown: when_stopped,
            },
        ) in given_up
        {
            task.abort();
            self.release_receive(&id);
            match when_stopped {
                ShutdownBehaviour::Answer(response) => to.send(&self.outbox, &response),
                ShutdownBehaviour::Refuse | ShutdownBehaviour::Finish => self.refuse(&to, &BrokerError::unavailable()),
            }
        }
        if !none_waited {
            // The answer of a batch goes out when the last of its calls has been dropped, which comes before the next look.
            self.wake();
        }
        none_waited && !self.calls.borrow().values().any(belongs)
    }

    /// A call under way has come so far that it waits for more than it needs.
    pub fn answer_on_shutdown(&self, to: &ReplyTo, response: Vec<u8>) {
        if let Some(call) = self.calls.borrow_mut().get_mut(&to.id)
            && call.to.is_same_request(to)
        {
            call.on_shutdown = ShutdownBehaviour::Answer(response);
        }
    }

    /// A call goes on without its request: neither its end nor that of the peer ends it.
    pub fn detach_call(&self, to: &ReplyTo) -> Option<AbortHandle> {
        self.remove_call(&to.id).map(|call| call.task)
    }

    /// The call of this very request: a client may use an id again, though it should not, before the first call of that id
    /// is over.
    fn remove_call(&self, id: &Rc<str>) -> Option<RunningCall> {
        let mut calls = self.calls.borrow_mut();
        let known = calls.get(id)?;
        if !Rc::ptr_eq(&known.to.id, id) {
            return None;
        }
        calls.remove(id)
    }

    pub fn has_free_slot(&self) -> bool {
        self.calls.borrow().len() + self.reserved_slots.get() < CALLS_LEN_MAX
    }

    /// A place for a call that will wait once the router has answered.
    ///
    /// # Errors
    /// `unavailable` when too many calls are under way.
    pub fn reserve_slot(self: &Rc<Self>) -> Result<CallSlot, BrokerError> {
        if !self.has_free_slot() {
            return Err(BrokerError::unavailable());
        }
        self.reserved_slots.set(self.reserved_slots.get() + 1);
        Ok(CallSlot(Rc::clone(self)))
    }

    /// Gives a call up; nothing is answered to it. False when it is not known, or no longer.
    pub fn cancel_call(&self, id: &str) -> bool {
        let call = self.calls.borrow_mut().remove(id);
        call.inspect(|RunningCall { task, to, .. }| {
            task.abort();
            to.route.abandon();
        })
        .is_some()
    }

    /// Answers a `tools/call`.
    pub fn answer(&self, to: &ReplyTo, result: Result<ToolResult, BrokerError>) {
        self.answer_receive(to, result, None);
    }

    /// The same where a result may bring messages.
    pub fn answer_receive(
        &self,
        to: &ReplyTo,
        result: Result<ToolResult, BrokerError>,
        receive: Option<PendingReceive>,
    ) {
        match result {
            Ok(ToolResult(object)) => self.send_tool_result(to, &object, false, receive),
            Err(error) => self.refuse(to, &error),
        }
    }

    /// Answers a `tools/call` that failed inside the tool.
    pub fn refuse(&self, to: &ReplyTo, error: &BrokerError) {
        let object = error_object(error);
        to.log(&self.outbox, Level::Warning, "tools", &object);
        let ToolResult(object) = object.into();
        self.send_tool_result(to, &object, true, None);
    }

    fn send_tool_result(&self, to: &ReplyTo, object: &[u8], is_error: bool, receive: Option<PendingReceive>) {
        self.identity.charge_answer(object.len());
        let mut out = Vec::with_capacity(object.len() * 2 + 256);
        let session = self.session.borrow();
        let unread = match to.acts_as.as_ref().or(session.as_ref()) {
            Some(member) => UnreadCount::Of(member.shared.waiting()),
            None => UnreadCount::NoSession,
        };
        write_tool_result(&mut out, to, object, is_error, unread);
        to.send_with_receive(&self.outbox, &out, receive);
    }

    pub fn unread(&self) -> usize {
        self.session
            .borrow()
            .as_ref()
            .map_or(0, |member| member.shared.waiting())
    }

    /// The connection by which a session that registers here is reached.
    pub fn connection(&self) -> Option<Arc<dyn Connection>> {
        (self.kind != PeerKind::Stateless).then(|| Arc::clone(&self.outbox) as _)
    }

    /// Makes a session without a name for this connection.
    pub async fn register_unnamed_session(&self) -> Result<(), BrokerError> {
        let registration = Registration {
            owner: self.identity.owner().clone(),
            connection: self.connection(),
            ..Registration::default()
        };
        let registered = self.project.register(registration).await?;
        self.log_joined(&registered.member, registered.resumed);
        self.bind_session(registered.member);
        Ok(())
    }

    /// Says in the log which agent acts as a session from now on. Its actor says the same when the agent left.
    pub fn log_joined(&self, member: &Member, resumed: bool) {
        let name = member.record.name.as_ref().map_or("", |name| name.as_str());
        let client = self.client.borrow();
        let (client, version) = client
            .as_ref()
            .map_or(("", ""), |client| (&client.name, &client.version));
        *member.shared.agent() = AgentInfo {
            project: Some(self.project.id().clone()),
            name: member.record.name.clone(),
            client: (*client).into(),
            client_version: (*version).into(),
        };
        // Callers choose these texts: no character in them acts on a terminal.
        tracing::info!(
            project = %self.project.id(),
            session = %member.record.id,
            name = %name.escape_debug(),
            client = %client.escape_debug(),
            client_version = %version.escape_debug(),
            resumed,
            "an agent joined"
        );
    }

    /// This connection's session is that one from now on.
    pub fn bind_session(&self, member: Arc<Member>) {
        *self.session.borrow_mut() = Some(member);
        if self.kind != PeerKind::Stateless {
            self.binding.set(SessionBinding::LiveConnection);
        }
        self.has_left.set(false);
        self.apply_subscriptions();
    }

    /// A stateless subscription begins: messages are pushed to the one live connection that a session has, while of
    /// changes of its inbox any number may be told. True when it is tied now and was not.
    pub fn bind(&self, pushes: bool) -> bool {
        if self.kind != PeerKind::Stateless || self.binding.get() != SessionBinding::Unbound {
            return false;
        }
        let session = self.session.borrow();
        if let Some(member) = &*session {
            let connection = Arc::clone(&self.outbox) as Arc<dyn Connection>;
            if pushes {
                self.binding.set(SessionBinding::LiveConnection);
                self.project.attach(member, connection);
            } else {
                self.binding.set(SessionBinding::Watcher);
                self.project.watch(member, connection);
            }
        }
        session.is_some()
    }

    /// The client is here again after the broker had let go of it.
    pub fn resume(&self) {
        match self.outbox.reopen() {
            None | Some(CloseReason::TakenOver | CloseReason::ShuttingDown | CloseReason::Unauthorized) => {}
            Some(CloseReason::Silent) => {
                if let Some(member) = self.session.borrow().as_ref() {
                    self.project.reattach(member, Arc::clone(&self.outbox) as _);
                }
                self.apply_subscriptions();
            }
            Some(CloseReason::SessionEnded | CloseReason::Failed | CloseReason::StoreRolledBack) => self.unbind(),
        }
    }

    /// The peer is gone: what was pushed to it and not acknowledged waits again.
    pub fn unbind(&self) {
        if let Some(member) = self.session.borrow_mut().take() {
            let connection = self.outbox.id();
            match self.binding.replace(SessionBinding::Unbound) {
                SessionBinding::Unbound => {}
                SessionBinding::LiveConnection => self.project.detach(&member, Detach { connection }),
                SessionBinding::Watcher => self.project.unwatch(&member, connection),
            }
        }
    }

    /// Tells the outbox and the session what the peer wants to hear of.
    pub fn apply_subscriptions(&self) {
        let legacy_push = self.legacy.borrow().as_ref().and_then(|legacy| legacy.push);
        let wanted = self
            .subscriptions
            .borrow()
            .effective(legacy_push.filter(|_| self.has_push_stream.get()));
        let message = wanted.to_subscribe(self.outbox.id());
        self.outbox.configure(wanted.push_frame, wanted.inbox_frames);
        if self.binding.get() == SessionBinding::LiveConnection
            && let Some(member) = &*self.session.borrow()
        {
            self.project.subscribe(member, message);
        }
    }
}
