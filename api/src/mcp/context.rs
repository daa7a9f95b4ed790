//! What the calls of one peer share: the caller, its session, its limits, its running calls, and the way to answer.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    panic::AssertUnwindSafe,
    rc::Rc,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use actors::{
    clock,
    model::{BrokerError, Scope, SessionId, TraceContext},
    project::{ProjectHandle, Registration},
    rate::RateLimit,
    session::{AgentInfo, Connection, Member, ReadAt},
};
use futures_util::FutureExt;

use super::{
    calls::Calls,
    client::{Binding, Exposure, PeerKind},
    client_requests::ClientRequests,
    logging::Level,
    outbox::Outbox,
    pending_receive::{HandedOver, PendingReceive},
    reply::{CallResult, ReplyTo, ResultForm, ToolResult, UnreadCount},
    rpc::{INTERNAL_ERROR, PARSE_ERROR, RpcError},
    send_reply::ToolSend,
    service::Service,
    subscriptions::{Notifier, Subscriptions},
    tasks::Task,
    version::{ClientInfo, LegacyState},
};
use crate::{auth::Identity, budget::WorkerTime};
use common::{json::frame::JsonText, refusal::error_object};

/// What the calls of one peer share.
pub struct PeerContext {
    /// The caller.
    pub identity: Arc<Identity>,
    /// The caller's project.
    pub project: ProjectHandle,
    /// The output of the peer.
    pub outbox: Arc<Outbox>,
    /// What all peers share.
    pub service: Arc<Service>,
    /// How long the peer lasts.
    pub kind: PeerKind,
    /// What the client is shown.
    pub exposure: Exposure,
    /// What the project uses of the worker.
    pub worker_time: WorkerTime,
    /// The messages to submit at the end of the read.
    pub prepared: RefCell<Vec<ToolSend>>,
    /// Tells a legacy client of changed lists.
    pub list_notifier: RefCell<Option<Notifier>>,
    /// The calls that run while further frames are read.
    pub calls: Rc<Calls>,
    /// The session that the peer acts as.
    pub binding: Binding,
    /// The limits on what the peer may send.
    pub limits: Limits,
    /// What a legacy client agreed.
    pub legacy: LegacyState,
    /// The requests to the client that wait for its response.
    pub client_requests: ClientRequests,
    /// The subscriptions; after a change, [`Self::apply_subscriptions`] is due.
    pub subscriptions: RefCell<Subscriptions>,
    client: RefCell<Option<Rc<ClientInfo>>>,
    read_at: Cell<ReadAt>,
    http_trace: RefCell<Option<Arc<TraceContext>>>,
    /// The log says at level info that an agent joined by this connection.
    has_logged_agent: Cell<bool>,
}

impl PeerContext {
    /// The context of a new peer.
    pub fn new(
        identity: Arc<Identity>,
        outbox: Arc<Outbox>,
        service: Arc<Service>,
        kind: PeerKind,
        exposure: Exposure,
    ) -> Rc<Self> {
        Rc::new(Self {
            worker_time: WorkerTime::of(identity.project.id()),
            project: identity.project.clone(),
            calls: Calls::new(Arc::clone(&outbox), service.progress_interval),
            binding: Binding::new(kind),
            limits: Limits::new(Arc::clone(&identity), kind == PeerKind::Connection),
            legacy: LegacyState::default(),
            client_requests: ClientRequests::default(),
            subscriptions: RefCell::default(),
            client: RefCell::default(),
            read_at: Cell::default(),
            http_trace: RefCell::default(),
            has_logged_agent: Cell::default(),
            identity,
            outbox,
            service,
            kind,
            exposure,
            prepared: RefCell::default(),
            list_notifier: RefCell::default(),
        })
    }

    /// When the frame that is handled now was read.
    pub fn read_at(&self) -> ReadAt {
        self.read_at.get()
    }

    /// Sets when the frame that is handled next was read.
    pub fn set_read_at(&self, read_at: ReadAt) {
        self.read_at.set(read_at);
    }

    /// The trace of the HTTP request that brought the frame that is handled now.
    pub fn http_trace(&self) -> Option<Arc<TraceContext>> {
        self.http_trace.borrow().clone()
    }

    /// Sets the trace of the HTTP request that brought the frame that is handled next.
    pub fn set_http_trace(&self, trace: Option<Arc<TraceContext>>) {
        self.http_trace.replace(trace);
    }

    /// The client's name and version, if it has sent them.
    pub fn client(&self) -> Option<Rc<ClientInfo>> {
        self.client.borrow().clone()
    }

    /// Sets the client's name and version.
    pub fn set_client(&self, client: Option<ClientInfo>) {
        self.client.replace(client.map(Rc::new));
    }

    /// Charges the project for the time that this keeps the worker busy.
    pub fn charged<T>(&self, run: impl FnOnce() -> T) -> T {
        let began_ms = clock::mono_ms();
        let result = run();
        self.worker_time.charge(clock::mono_ms().saturating_sub(began_ms));
        result
    }

    /// As [`Calls::run_exclusively`], for a call that may be ready at once: it is polled here, unless messages that were read
    /// before it have yet to be submitted, and becomes a task only if it waits.
    pub fn run_in_order(&self, to: &ReplyTo, bytes: usize, call: impl Future<Output = ()> + 'static) {
        let mut call = Box::pin(call);
        let mut poll = || call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if !self.prepared.borrow().is_empty() || poll().is_pending() {
            self.calls.run_exclusively(to, bytes, call);
        }
    }

    // Answers

    /// Answers a request that fails with a JSON-RPC error.
    pub fn fail(&self, to: &ReplyTo, error: &RpcError) {
        to.trace_failure("json_rpc_error");
        let is_json = error.code != PARSE_ERROR;
        to.route.refuse(&self.outbox, is_json.then_some(&*to.id), error);
    }

    /// Answers a `tools/call`.
    pub fn answer(&self, to: &ReplyTo, result: Result<ToolResult, BrokerError>) {
        self.answer_receive(to, result, None);
    }

    /// As [`Self::answer`]; the response completes a receive if one is given.
    pub fn answer_receive(
        &self,
        to: &ReplyTo,
        result: Result<ToolResult, BrokerError>,
        receive: Option<PendingReceive>,
    ) {
        match result {
            Ok(result) => self.send_result(to, result, receive),
            Err(error) => self.refuse(to, &error),
        }
    }

    fn send_result(&self, to: &ReplyTo, result: ToolResult, receive: Option<PendingReceive>) {
        let ToolResult { text, form, notices } = result;
        let notices = notices.map(|notices| HandedOver::Notices(Arc::new(notices)));
        if let Some(notices) = &notices {
            // A transport looks closely at the fate of answers that are recorded.
            self.calls.record_receive(to, notices.clone());
        }
        let handed_over = receive.map(HandedOver::Received).or(notices);
        match form {
            ResultForm::Whole => to.result_with_receive(&self.outbox, &*text, handed_over),
            form => self.send_tool_result(to, &text, form, false, handed_over),
        }
    }

    /// Answers a `tools/call` that failed inside the tool.
    pub fn refuse(&self, to: &ReplyTo, error: &BrokerError) {
        to.trace_failure(error.code());
        let object = error_object(error);
        to.log(&self.outbox, Level::Warning, "tools", &object);
        let ToolResult { text, form, .. } = object.into();
        self.send_tool_result(to, &text, form, true, None);
    }

    fn send_tool_result(
        &self,
        to: &ReplyTo,
        object: &[u8],
        form: ResultForm,
        is_error: bool,
        receive: Option<HandedOver>,
    ) {
        self.identity.charge_answer(object.len());
        let waiting = |member: &Arc<Member>| UnreadCount::Of(member.shared.waiting());
        let unread = match &to.acts_as {
            Some(member) => Some(waiting(member)),
            None => self.binding.with_member(waiting),
        };
        let unread = match unread.unwrap_or(UnreadCount::NoSession) {
            UnreadCount::Of(unread) if form == ResultForm::ExactText => UnreadCount::BesideText(unread),
            unread => unread,
        };
        let result = CallResult {
            modern: to.modern,
            object,
            is_error,
            unread,
        };
        to.result_with_receive(&self.outbox, result, receive);
    }

    // The end of calls

    /// Ends the waiting calls of this exchange, or of all, because the broker stops: each gets the response it has so
    /// far, or a refusal. True once no call is left.
    pub fn end_waiting_calls(&self, exchange: Option<&Outbox>) -> bool {
        let ended = self.calls.end_waiting(exchange);
        if ended.is_empty() {
            return !self.calls.is_running(exchange);
        }
        for (to, result) in ended {
            match result {
                Some(result) => to.result(&self.outbox, &*result),
                None => self.refuse(&to, &BrokerError::unavailable()),
            }
        }
        // The answer of a JSON-RPC batch is sent when its last call is dropped, which the next poll observes.
        self.calls.wake();
        false
    }

    /// The reader of this exchange has left: its receives end, and a client that reconnects for their answers gets a
    /// refusal.
    pub fn drop_exchange(&self, exchange: &Outbox) {
        for to in self.calls.end_receives_of(exchange) {
            self.refuse(&to, &BrokerError::unavailable());
        }
    }

    // The session

    /// The connection that a session registered by this peer gets.
    pub fn connection(&self) -> Option<Arc<dyn Connection>> {
        (self.kind != PeerKind::Stateless).then(|| Arc::clone(&self.outbox) as _)
    }

    /// Whether a session has to be registered before a call that acts as one. Callers that may only observe get none.
    pub fn needs_session(&self) -> bool {
        self.binding.needs_session() && self.identity.check_scope(Scope::Member).is_ok()
    }

    /// Registers a session without a name if one is needed.
    pub async fn ensure_session(&self) {
        if self.needs_session() {
            self.register_unnamed_session().await;
        }
    }

    /// Registers a session without a name for this connection. If that fails, the calls of the connection are served without
    /// a session, and those that need one report the error.
    pub async fn register_unnamed_session(&self) {
        let registration = Registration {
            owner: self.identity.owner().clone(),
            connection: self.connection(),
            ..Registration::default()
        };
        match self.project.register(registration).await {
            Ok(registered) => {
                self.log_joined(&registered.member, registered.resumed);
                self.bind_session(registered.member);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection got no session of its own");
                self.binding.set_error(error);
            }
        }
    }

    /// Registers a session without a name for this stateless request, whose connection it has until the response has ended.
    ///
    /// # Errors
    /// As [`ProjectHandle::register`].
    pub async fn register_for_request(&self) -> Result<Arc<Member>, BrokerError> {
        let registration = Registration {
            owner: self.identity.owner().clone(),
            ..Registration::default()
        };
        let member = self.project.register(registration).await?.member;
        self.log_joined(&member, false);
        self.binding.set_member(Arc::clone(&member));
        self.binding.bind_stateless(&self.project, &self.outbox, true);
        Ok(member)
    }

    /// Acts as this session, which has been registered for this connection.
    pub fn bind_session(&self, member: Arc<Member>) {
        self.binding.bind_registered(member);
        self.apply_subscriptions();
    }

    /// Logs which agent acts as a session from now on. The session's actor logs the same agent when it leaves.
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
        if self.has_logged_agent.replace(true) {
            // One connection may register any number of sessions.
            tracing::debug!(session = %member.record.id, resumed, "the agent registered another session");
            return;
        }
        // Callers choose these texts; escaping keeps control characters away from terminals.
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

    /// Restores the binding of a client that has returned after the broker closed its outbox.
    pub fn resume(&self) {
        if self.binding.resume(&self.project, &self.outbox) {
            self.apply_subscriptions();
        } else {
            // Its session may have ended meanwhile.
            self.subscriptions.borrow().acts_as(self.session_id());
        }
    }

    /// The session that the peer acts as.
    pub fn session_id(&self) -> Option<SessionId> {
        self.binding.with_member(|member| member.record.id)
    }

    /// Applies the current subscriptions to the outbox and the session.
    pub fn apply_subscriptions(&self) {
        self.subscriptions.borrow().acts_as(self.session_id());
        let legacy_push = self.legacy.push().filter(|_| self.binding.has_push_stream());
        let effective = self.subscriptions.borrow().effective(legacy_push);
        let message = effective.to_subscribe(self.outbox.id());
        self.outbox.configure(effective.push_frame, effective.inbox_frames);
        self.binding.subscribe(&self.project, message);
    }

    // Tasks

    /// Makes a task of a request and answers the request with it. `None` if the caller accepts no tasks or there is no
    /// room.
    pub fn become_task(&self, to: &ReplyTo) -> Option<Arc<Task>> {
        if !to.takes_tasks {
            return None;
        }
        let task = self.service.tasks.create(&self.identity)?;
        to.result(&self.outbox, &*task.created_result());
        Some(task)
    }

    /// Runs a call as a task. The messages of `receive` return to the inbox unless the result is fetched.
    pub fn run_as_task(
        &self,
        task: &Arc<Task>,
        receive: Option<PendingReceive>,
        call: impl Future<Output = Result<ToolResult, BrokerError>> + 'static,
    ) {
        if let Some(receive) = &receive {
            self.service.tasks.add_receive(task, receive.clone());
        }
        let running = Arc::clone(task);
        let runner = actix_rt::spawn(async move {
            let (object, is_error) = match AssertUnwindSafe(call).catch_unwind().await {
                Ok(Ok(answer)) => (answer.text, false),
                Ok(Err(error)) => (ToolResult::from(error_object(&error)).text, true),
                Err(_) => return running.fail(RpcError::new(INTERNAL_ERROR, "Internal error")),
            };
            let result = CallResult {
                modern: true,
                object: &object,
                is_error,
                unread: UnreadCount::Unknown,
            };
            // The client may have read that the task is complete.
            if let Some(receive) = receive {
                receive.call.mark_taken();
            }
            running.complete(result.into_bytes());
        });
        task.set_runner(runner.abort_handle());
    }
}

/// Notifications that a connection may send for each request that it may send.
const NOTIFICATIONS_PER_REQUEST: u32 = 10;
/// How long a connection that exceeds its rate is not read. Without a pause, a caller with a high limit would be refused
/// a thousand times a second on each connection. A pause does not consume quota. It is short, because other traffic of
/// the connection waits as well.
const READ_PAUSE: Duration = Duration::from_millis(250);
/// The longer pause for each byte of a refused request.
const READ_PAUSE_PER_BYTE: Duration = Duration::from_micros(4);
const READ_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The limits of one connection.
pub struct Limits {
    identity: Arc<Identity>,
    /// Requests outside of batches are counted here, and not by the transport.
    counts_requests: bool,
    notifications: Option<RateLimit>,
    read_pause: Cell<Option<Duration>>,
}

impl Limits {
    /// The limits of this caller. `counts_requests` is false where the transport counts requests itself.
    pub fn new(identity: Arc<Identity>, counts_requests: bool) -> Self {
        let limit = identity.request_limit();
        let limit = limit.map(|limit| limit.saturating_mul(NOTIFICATIONS_PER_REQUEST));
        Self {
            notifications: limit.and_then(RateLimit::from_per_minute),
            identity,
            counts_requests,
            read_pause: Cell::default(),
        }
    }

    /// Counts a request with a frame of `len` bytes. Transports never count the elements of a JSON-RPC batch.
    ///
    /// # Errors
    /// `RateLimited`. The connection is then not read for a while: refusing has a cost, too.
    pub fn take_request(&self, is_in_batch: bool, len: usize) -> Result<(), BrokerError> {
        if !is_in_batch && !self.counts_requests {
            return Ok(());
        }
        self.identity.take_request_of_len(len).map_err(|retry_after| {
            let for_bytes = READ_PAUSE_PER_BYTE.saturating_mul(u32::try_from(len).unwrap_or(u32::MAX));
            self.read_pause.set(Some((READ_PAUSE + for_bytes).min(READ_PAUSE_MAX)));
            BrokerError::RateLimited { retry_after }
        })
    }

    /// Counts a notification. A notification cannot be refused, so too many pause the reading instead.
    pub fn take_notification(&self) {
        if self.notifications.as_ref().is_some_and(|rate| rate.take().is_err()) {
            self.read_pause.set(Some(READ_PAUSE));
        }
    }

    /// Whether the reading has to pause.
    pub fn is_read_paused(&self) -> bool {
        self.read_pause.get().is_some()
    }

    /// The pause to begin now, returned once.
    pub fn take_read_pause(&self) -> Option<Duration> {
        self.read_pause.take()
    }
}
