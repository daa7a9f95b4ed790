//! Runs a call of a backend to its answer: it takes a turn, waits until the backend runs, sends the request, passes progress
//! on, and answers the caller once.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use actors::{
    clock::now,
    gateway::{
        BackendCommand, BackendShared, BackendState, BackendView, Call, CallEnd, CallEvent, CallerId, LinkRefusal, Turn,
    },
    model::{BackendEra, BackendFailure, BrokerError},
    session::Connection,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    request::ForwardedRequest,
    response::{translate_error, translate_progress, translate_result},
    route::{Route, awaited_name, unknown_tool},
};
use crate::json::scan;
use crate::mcp::{
    binding::PeerKind,
    calls::ShutdownBehaviour,
    context::PeerContext,
    reply::ReplyTo,
    rpc::{INTERNAL_ERROR, Params, RpcError},
};

/// Bytes of answers that may wait for a client that does not read them. A further one is refused.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of the open requests of one connection.
const HELD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes that wait for a client, from which on it gets no progress of backends.
const PROGRESS_WAITING_MAX: usize = 64 * 1024;

/// Forwards a request to its backend, and answers it beside the reading of further frames.
///
/// # Errors
/// The params are not JSON, or too many calls of the connection run.
pub fn forward(context: &Rc<PeerContext>, to: &ReplyTo, params: &Params<'_>, route: Route) -> Result<(), RpcError> {
    if !context.calls.has_free_slot() {
        return Err(RpcError::new(INTERNAL_ERROR, "too many calls are under way"));
    }
    params.text.map_or(Ok(()), scan::check)?;
    let client = context.client();
    let client = client
        .as_ref()
        .map(|client| (client.name.as_str(), client.version.as_str()));
    let request = ForwardedRequest::new(&route, params, client)?;
    let Some(held) = HeldBytes::take(context, request.len()) else {
        let failure = BackendFailure::Busy {
            backend: route.backend.name.to_string(),
            reason: "the open calls of this connection hold too many bytes",
        };
        context.refuse(to, &failure.into());
        return Ok(());
    };
    let hurry = Rc::<Notify>::default();
    let call = RunningCall {
        context: Rc::clone(context),
        to: to.clone(),
        counted: CountedCall::begin(&route.backend),
        route,
        request,
        _held: held,
        hurry: Rc::clone(&hurry),
    };
    // Sent now if that is possible, so that the requests of one read keep their order.
    let opened = call.open_now();
    // The backend's own progress is passed on instead of the broker's.
    let quiet = ReplyTo {
        progress: None,
        ..to.clone()
    };
    context
        .calls
        .spawn(&quiet, ShutdownBehaviour::Hurry(hurry), async move {
            call.run(opened).await
        });
    Ok(())
}

/// A call on its way.
struct RunningCall {
    context: Rc<PeerContext>,
    to: ReplyTo,
    route: Route,
    request: ForwardedRequest,
    _held: HeldBytes,
    /// Notified when the broker stops.
    hurry: Rc<Notify>,
    counted: CountedCall,
}

/// Bytes of the requests that a connection holds. Each is kept until its answer, because it may have to be sent again.
struct HeldBytes {
    context: Rc<PeerContext>,
    bytes: usize,
}

impl HeldBytes {
    /// `None` if the connection holds too many. A single request is never too large: transports bound it.
    fn take(context: &Rc<PeerContext>, bytes: usize) -> Option<Self> {
        let held = context.forwarded_bytes.get();
        (held == 0 || held + bytes <= HELD_BYTES_MAX).then(|| {
            context.forwarded_bytes.set(held + bytes);
            Self {
                context: Rc::clone(context),
                bytes,
            }
        })
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let held = &self.context.forwarded_bytes;
        held.set(held.get() - self.bytes);
    }
}

/// Counts a call while it is open.
struct CountedCall(Arc<BackendShared>);

impl CountedCall {
    fn begin(backend: &Arc<BackendShared>) -> Self {
        backend.counters.open.fetch_add(1, Ordering::Relaxed);
        backend.counters.last_call_ms.store(now().mono_ms, Ordering::Relaxed);
        Self(Arc::clone(backend))
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        self.0.counters.open.fetch_sub(1, Ordering::Relaxed);
        self.0.counters.last_call_ms.store(now().mono_ms, Ordering::Relaxed);
    }
}

/// A call that was sent.
struct OpenCall {
    call: Call,
    era: BackendEra,
    _turn: Turn,
}

/// Why a call was not sent.
enum NotOpened {
    Failed(BackendFailure),
    /// The backend has told what it offers, and this is not among it.
    Unknown,
}

impl From<BackendFailure> for NotOpened {
    fn from(failure: BackendFailure) -> Self {
        Self::Failed(failure)
    }
}

/// When a call has taken too long.
struct Deadlines {
    begun: Instant,
    /// The next moment at which a sign of life is missing.
    next: Instant,
    last: Instant,
    timeout: Duration,
}

impl Deadlines {
    fn begin(view: &BackendView) -> Self {
        let begun = Instant::now();
        let timeout = view.config.call_timeout;
        Self {
            begun,
            next: begun + timeout,
            last: begun + view.config.call_timeout_max,
            timeout,
        }
    }

    fn sign_of_life(&mut self) {
        self.next = (Instant::now() + self.timeout).min(self.last);
    }

    fn shorten(&mut self, drain: Duration) {
        let end = Instant::now() + drain;
        (self.next, self.last) = (self.next.min(end), self.last.min(end));
    }
}

impl RunningCall {
    fn backend(&self) -> &Arc<BackendShared> {
        &self.route.backend
    }

    /// Sends the call if the backend runs and a turn is free.
    fn open_now(&self) -> Option<OpenCall> {
        if self.route.awaited.is_some() {
            return None;
        }
        let link = self.backend().view().link.clone()?;
        let turn = self.backend().turns.try_take()?;
        let era = link.era();
        let call = link
            .open(&mut |number, out| self.request.write(era, number, out))
            .ok()?;
        Some(OpenCall { call, era, _turn: turn })
    }

    async fn run(self, opened: Option<OpenCall>) {
        let mut deadlines = Deadlines::begin(&self.backend().view());
        let mut opened = opened;
        let mut is_stopping = false;
        loop {
            let mut open = match opened.take() {
                Some(open) => open,
                None => match self.open(&mut deadlines, &mut is_stopping).await {
                    Ok(open) => open,
                    Err(NotOpened::Failed(failure)) => return self.fail(failure),
                    Err(NotOpened::Unknown) => return self.refuse_unknown(),
                },
            };
            match self.follow(&mut open, &mut deadlines, &mut is_stopping).await {
                // The backend ended before it got a byte of the call, which goes to the next instance.
                Ok(CallEnd::NotSent) => {}
                Ok(end) => return self.answer(end, open.era),
                Err(failure) => return self.fail(failure),
            }
        }
    }

    /// Sends the call once it is its turn and the backend runs.
    async fn open(&self, deadlines: &mut Deadlines, is_stopping: &mut bool) -> Result<OpenCall, NotOpened> {
        let opening = self.wait_and_open();
        tokio::pin!(opening);
        loop {
            tokio::select! {
                opened = timeout_at(deadlines.next, &mut opening) => {
                    return opened.unwrap_or_else(|_| Err(self.not_running(*is_stopping).into()));
                }
                () = self.hurry.notified(), if !*is_stopping => {
                    *is_stopping = true;
                    deadlines.shorten(self.context.service.call_drain);
                }
            }
        }
    }

    async fn wait_and_open(&self) -> Result<OpenCall, NotOpened> {
        let backend = self.backend();
        let busy = |reason| BackendFailure::Busy {
            backend: backend.name.to_string(),
            reason,
        };
        let turn = backend.turns.take(self.caller());
        let turn = turn.map_err(|_| busy("too many calls wait for their turn"))?;
        let turn = turn.await.map_err(|_| busy("the turn was lost"))?;
        let mut views = backend.views();
        let mut waits_for_name = self.route.awaited.is_some();
        loop {
            let view = Arc::clone(&views.borrow_and_update());
            if waits_for_name && view.lists.is_some() {
                self.find_name().await?;
                waits_for_name = false;
            }
            if let Some(link) = view.link.clone().filter(|_| !waits_for_name) {
                let era = link.era();
                match link.open(&mut |number, out| self.request.write(era, number, out)) {
                    Ok(call) => return Ok(OpenCall { call, era, _turn: turn }),
                    Err(LinkRefusal::Busy) => return Err(busy("it does not read its input").into()),
                    Err(LinkRefusal::Closed) => {}
                }
            }
            match view.state {
                BackendState::Idle => backend.command(BackendCommand::Want),
                BackendState::Starting | BackendState::Ready | BackendState::Stopping => {}
                BackendState::Backoff | BackendState::Failed | BackendState::Disabled => {
                    return Err(unavailable(backend, &view).into());
                }
            }
            if views.changed().await.is_err() {
                return Err(unavailable(backend, &view).into());
            }
        }
    }

    /// Waits for the catalog that has what the backend offers, and looks the called name up.
    async fn find_name(&self) -> Result<(), NotOpened> {
        let (Some(called), Some(gateway)) = (&self.route.awaited, self.context.project.gateway()) else {
            return Ok(());
        };
        let found = gateway
            .shared()
            .wait_for(|| awaited_name(&self.context, &self.route, called));
        match found.await {
            Some(Ok(name)) => {
                self.request.set_replaced(name);
                Ok(())
            }
            Some(Err(())) | None => Err(NotOpened::Unknown),
        }
    }

    /// Passes progress on until the call has ended or has taken too long.
    async fn follow(
        &self,
        open: &mut OpenCall,
        deadlines: &mut Deadlines,
        is_stopping: &mut bool,
    ) -> Result<CallEnd, BackendFailure> {
        loop {
            let next = deadlines.next;
            tokio::select! {
                event = open.call.next() => match event {
                    CallEvent::Ended(end) => return Ok(end),
                    CallEvent::Log(_) => {}
                    CallEvent::Progress(params) => {
                        deadlines.sign_of_life();
                        self.pass_progress(&params);
                    }
                },
                () = sleep_until(next) => {
                    let backend = self.backend().name.to_string();
                    return Err(if *is_stopping {
                        BackendFailure::ShuttingDown { backend }
                    } else {
                        BackendFailure::TimedOut { backend, after: deadlines.begun.elapsed() }
                    });
                }
                () = self.hurry.notified(), if !*is_stopping => {
                    *is_stopping = true;
                    deadlines.shorten(self.context.service.call_drain);
                }
            }
        }
    }

    fn pass_progress(&self, params: &[u8]) {
        let (Some(token), Ok(params)) = (&self.to.progress, str::from_utf8(params)) else {
            return;
        };
        if self.to.route.outbox(&self.context.outbox).waiting_len() > PROGRESS_WAITING_MAX {
            return;
        }
        let mut frame = Vec::from(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":");
        frame.extend_from_slice(&translate_progress(params, token));
        frame.push(b'}');
        self.to.notify(&self.context.outbox, &frame);
    }

    fn answer(&self, end: CallEnd, era: BackendEra) {
        let backend = || self.backend().name.to_string();
        match end {
            CallEnd::Result(result) => self.answer_result(&result, era),
            CallEnd::Error(error) => {
                let text = str::from_utf8(&error).map_err(|_| "it is not UTF-8".to_owned());
                match text.and_then(|text| translate_error(text, self.to.modern)) {
                    Ok(error) => {
                        self.count(true);
                        self.to.trace_failure("json_rpc_error");
                        self.to.raw_error(&self.context.outbox, &error);
                    }
                    Err(reason) => self.fail(BackendFailure::Protocol {
                        backend: backend(),
                        reason,
                    }),
                }
            }
            CallEnd::TooLarge { limit } => self.fail(BackendFailure::TooLarge {
                backend: backend(),
                limit,
            }),
            CallEnd::HttpError {
                status,
                reason,
                retry_after,
            } => self.fail(BackendFailure::Http {
                backend: backend(),
                status,
                reason,
                retry_after,
            }),
            CallEnd::Died(ended) => self.fail(BackendFailure::Died {
                backend: backend(),
                how: ended.to_string(),
            }),
            CallEnd::NotSent => self.fail(self.not_running(false)),
        }
    }

    fn answer_result(&self, result: &[u8], era: BackendEra) {
        let text = str::from_utf8(result).map_err(|_| "it is not UTF-8");
        let translated = text.and_then(|text| translate_result(text, self.route.method, era, self.to.modern));
        match translated {
            Ok(result) => {
                let waiting = self.to.route.outbox(&self.context.outbox).waiting_len();
                let is_full = waiting > 0 && waiting + result.len() > WAITING_BYTES_MAX;
                if is_full || self.to.route.check_room().is_err() {
                    return self.fail(BackendFailure::GivenUp {
                        backend: self.backend().name.to_string(),
                    });
                }
                self.count(true);
                self.context.identity.charge_answer(result.len());
                self.to.raw_result(&self.context.outbox, &result);
            }
            Err(reason) => self.fail(BackendFailure::Protocol {
                backend: self.backend().name.to_string(),
                reason: reason.to_owned(),
            }),
        }
    }

    fn fail(&self, failure: BackendFailure) {
        self.refuse(&failure.into());
    }

    fn refuse(&self, error: &BrokerError) {
        self.count(false);
        if self.route.method == "tools/call" {
            self.context.refuse(&self.to, error);
        } else {
            self.to.trace_failure(error.code());
            self.to.error(&self.context.outbox, &RpcError::refused(error));
        }
    }

    fn refuse_unknown(&self) {
        let name = self.route.awaited.as_deref().unwrap_or_default();
        let error = match self.route.method {
            "prompts/get" => RpcError::invalid_params(format!("Unknown prompt: {name}")),
            _ => unknown_tool(name),
        };
        self.to.error(&self.context.outbox, &error);
    }

    fn count(&self, is_answered: bool) {
        let counters = &self.counted.0.counters;
        let counter = if is_answered {
            &counters.calls
        } else {
            &counters.failures
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn not_running(&self, is_stopping: bool) -> BackendFailure {
        if is_stopping {
            return BackendFailure::ShuttingDown {
                backend: self.backend().name.to_string(),
            };
        }
        let view = self.backend().view();
        if view.state == BackendState::Ready {
            return BackendFailure::Busy {
                backend: self.backend().name.to_string(),
                reason: "calls of others take all its turns",
            };
        }
        unavailable(self.backend(), &view)
    }

    /// The caller whose calls wait behind each other: its connection, because agents may share a key. Requests without a
    /// connection belong to their key.
    fn caller(&self) -> CallerId {
        if self.context.kind != PeerKind::Stateless {
            return self.context.outbox.id().get();
        }
        let mut hasher = DefaultHasher::new();
        self.context.identity.owner_path().hash(&mut hasher);
        hasher.finish()
    }
}

fn unavailable(backend: &BackendShared, view: &BackendView) -> BackendFailure {
    let is_tried_again = matches!(view.state, BackendState::Backoff | BackendState::Failed);
    let wait_ms = view.retry_at_ms.map(|at| at.saturating_sub(now().mono_ms));
    let retry_after = match view.state {
        BackendState::Starting => Some(Duration::from_secs(1)),
        _ => wait_ms.filter(|_| is_tried_again).map(Duration::from_millis),
    };
    BackendFailure::Unavailable {
        backend: backend.name.to_string(),
        state: view.state.as_str(),
        reason: view.reason.clone(),
        retry_after,
    }
}
