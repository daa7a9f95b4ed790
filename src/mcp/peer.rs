//! One caller, as MCP sees it: a lasting connection, or one stateless request.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actors::{
    clock::{self, Now},
    model::{BrokerError, ConnectionId, MessageId},
    project::{CrossProjectSend, PreparedSend},
    router::{RouteAnswer, Routed},
    session::{Connection, Member, MessagesWritten, ReadAt, Writable},
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use tokio::time::{Sleep, sleep};

use super::{
    Outbox, Service,
    context::{PeerContext, PeerKind, ShutdownBehaviour},
    dispatch,
    outbox::ANSWER_BYTES_MAX,
    read_batch::{Deferred, ReadBatch, RoutedBatch},
    reply::{AnswerBatch, ReplyRoute, ReplyTo, server_info_text},
    rpc::{self, INTERNAL_ERROR, Incoming, Malformed, RpcError},
    tasks::Task,
    tools::{SendReply, ToolSend},
    version::{BATCH_VERSION, RequestMeta},
};
use crate::auth::Identity;

/// Batches of messages that may be with the router for one connection before it is read no further.
const ROUTES_LEN_MAX: usize = 8;
/// How long the frames of one connection may keep its worker busy in a row, and how long the connection rests then, so
/// that others are served. One frame takes at most about 20 ms; many small ones come with one read, or as a batch.
const BUSY_MAX_MS: u64 = 10;
const PAUSE_AFTER_BUSY: Duration = Duration::from_millis(1);

/// Bytes of answers that may be reserved, or wait, for one connection before another of its frames is taken up.
const RESERVED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The MCP side of one connection. Lives on the connection's thread.
pub struct Peer {
    context: Rc<PeerContext>,
    batch: ReadBatch,
    malformed_in_a_row: usize,
    /// Nothing is read until it is over.
    pause: Option<Pin<Box<Sleep>>>,
    /// When the frames that are taken up now began to keep the worker busy, on the monotonic clock.
    busy_since_ms: u64,
    /// Where an answer is written, and the object in it.
    scratch: Vec<u8>,
    object: Vec<u8>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOutcome {
    Handled,
    /// Not JSON, and neither were this many before it.
    Malformed {
        in_a_row: usize,
    },
}

impl Peer {
    /// The peer of a lasting connection.
    pub fn new(identity: Arc<Identity>, outbox: Arc<Outbox>, service: Arc<Service>) -> Self {
        Self::with_context(PeerContext::new(identity, outbox, service, PeerKind::Connection))
    }

    /// The peer of an HTTP session (2025-11-25 and before). Nothing is pushed to it until somebody listens.
    pub fn for_http_session(identity: Arc<Identity>, outbox: Arc<Outbox>, service: Arc<Service>) -> Self {
        let context = PeerContext::new(identity, outbox, service, PeerKind::HttpSession);
        context.has_push_stream.set(false);
        Self::with_context(context)
    }

    /// The peer of one request that stands for itself.
    pub fn stateless(identity: Arc<Identity>, outbox: Arc<Outbox>, service: Arc<Service>) -> Self {
        Self::with_context(PeerContext::new(identity, outbox, service, PeerKind::Stateless))
    }

    fn with_context(context: Rc<PeerContext>) -> Self {
        Self {
            batch: ReadBatch::new(Rc::clone(&context)),
            context,
            malformed_in_a_row: 0,
            pause: None,
            busy_since_ms: clock::mono_ms(),
            scratch: Vec::new(),
            object: Vec::new(),
        }
    }

    /// What is taken from now on was read then.
    pub fn begin_read(&mut self, at: ReadAt, now: Now) {
        self.context.read_at.set(at);
        self.busy_since_ms = now.mono_ms;
    }

    /// The connection ends with an error: what was written to it last may never have arrived.
    pub fn mark_reset(&self) {
        self.context.was_reset.set(true);
    }

    /// Takes one frame. What it asks for may be done by [`Peer::end_turn`] only.
    pub fn handle_frame(&mut self, text: &str) -> FrameOutcome {
        self.handle_parsed(text, rpc::parse(text), ReplyRoute::Connection)
    }

    /// Takes one request, of which even the `_meta` has been read.
    pub fn handle_request(&mut self, text: &str, request: Incoming<'_>, meta: RequestMeta) {
        self.batch.parsed_meta = Some(Box::new(meta));
        self.handle_parsed(text, Ok(request), ReplyRoute::Connection);
    }

    /// Takes one frame that has been parsed; what belongs to it goes to `route`.
    pub fn handle_parsed(
        &mut self,
        text: &str,
        parsed: Result<Incoming<'_>, Malformed<'_>>,
        route: ReplyRoute,
    ) -> FrameOutcome {
        if !self.accepts_frames() {
            self.batch.deferred.push_back(Deferred {
                text: text.to_owned(),
                route,
                counted: false,
                read_at: self.context.read_at.get(),
            });
            return FrameOutcome::Handled;
        }
        let before = self.batch.prepared.len();
        let answered_by = route.clone();
        let dispatched = catch_unwind(AssertUnwindSafe(|| {
            self.run_timed(|peer| peer.dispatch(text, parsed, route))
        }));
        dispatched.unwrap_or_else(|_| {
            self.batch.prepared.truncate(before);
            if let Ok(Incoming::Request { id, .. }) = rpc::parse(text) {
                let error = RpcError::new(INTERNAL_ERROR, "Internal error");
                answered_by.refuse(&self.context.outbox, Some(id), &error);
            }
            FrameOutcome::Handled
        })
    }

    /// Has the connection rest when its frames have kept the worker busy for too long.
    fn run_timed<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let result = run(self);
        if clock::mono_ms().saturating_sub(self.busy_since_ms) >= BUSY_MAX_MS {
            self.pause = Some(Box::pin(sleep(PAUSE_AFTER_BUSY)));
        }
        result
    }

    fn dispatch(&mut self, text: &str, parsed: Result<Incoming<'_>, Malformed<'_>>, route: ReplyRoute) -> FrameOutcome {
        let well_formed = match parsed {
            Ok(incoming) => self.dispatch_incoming(incoming, text, route),
            Err(Malformed { id, code, message }) => {
                // It counts like a request. The answer says what is wrong with it all the same.
                let _ = self.context.take_request(&route, text.len());
                route.refuse(&self.context.outbox, id, &RpcError::new(code, message));
                if code != rpc::PARSE_ERROR {
                    return FrameOutcome::Handled;
                }
                false
            }
        };
        if well_formed {
            self.malformed_in_a_row = 0;
            return FrameOutcome::Handled;
        }
        self.malformed_in_a_row += 1;
        FrameOutcome::Malformed {
            in_a_row: self.malformed_in_a_row,
        }
    }

    /// False when it turned out not to be JSON.
    fn dispatch_incoming(&mut self, incoming: Incoming<'_>, text: &str, route: ReplyRoute) -> bool {
        match incoming {
            Incoming::Request { id, method, params } => {
                return dispatch::handle_request(&mut self.batch, ReplyTo::new(id, route), &method, params, text);
            }
            Incoming::Notification { method, params } => {
                dispatch::handle_notification(&mut self.batch, &method, &params)
            }
            Incoming::Response { id, outcome } => self.context.client_requests.resolve(id, outcome),
            Incoming::Batch(frames) => {
                if route.is_batch() || !self.accepts_batches() {
                    let error = RpcError::new(rpc::INVALID_REQUEST, "Invalid Request: batches are of 2025-03-26 only");
                    route.refuse(&self.context.outbox, None, &error);
                    return true;
                }
                if dispatch::holds_back(&mut self.batch, text, &frames, &route) {
                    return true;
                }
                let batch = AnswerBatch::new(&self.context.outbox, route);
                for frame in frames {
                    let route = ReplyRoute::Batch(Rc::clone(&batch));
                    if self.pause.is_some() {
                        self.batch.deferred.push_back(Deferred {
                            text: frame.to_owned(),
                            route,
                            counted: false,
                            read_at: self.context.read_at.get(),
                        });
                    } else {
                        self.run_timed(|peer| peer.dispatch(frame, rpc::parse(frame), route));
                    }
                }
            }
        }
        true
    }

    fn accepts_batches(&self) -> bool {
        let legacy = self.context.legacy.borrow();
        legacy.as_ref().is_some_and(|legacy| legacy.version == BATCH_VERSION)
    }

    /// The version that `initialize` agreed on.
    pub fn version(&self) -> Option<&'static str> {
        self.context.legacy.borrow().as_ref().map(|legacy| legacy.version)
    }

    /// Whether somebody reads what is sent unasked, as on a connection of any other kind always somebody does.
    pub fn set_push_stream(&self, listening: bool) {
        if self.context.has_push_stream.replace(listening) != listening {
            self.context.apply_subscriptions();
        }
        if listening && self.context.unread() > 0 {
            // What was told before may have been lost with whoever read it.
            self.context.outbox.notify_inbox_changed();
        }
    }

    /// The client is here again after the broker may have let go of it.
    pub fn resume(&self) {
        self.context.resume();
    }

    /// Hands over what the turn's frames want sent.
    pub fn finish_read(&mut self, now: Now) {
        if let Some(member) = &*self.context.session.borrow() {
            member.touch(self.context.project.settings().presence, now);
        }
        if self.batch.prepared.is_empty() {
            return;
        }
        let (mut submissions, mut waiting) = (Vec::with_capacity(self.batch.prepared.len()), Vec::new());
        for ToolSend {
            dispatch,
            reply: answer,
        } in self.batch.prepared.drain(..)
        {
            match dispatch {
                PreparedSend::Local(submission) => {
                    submissions.push(submission);
                    waiting.push(Some(answer));
                }
                PreparedSend::CrossProject(crossing) => send_cross_project(&self.context, *crossing, answer),
            }
        }
        if submissions.is_empty() {
            return;
        }
        match self.context.project.submit(submissions) {
            Ok(answers) => {
                let counting = self.count_senders(&waiting);
                self.batch.routed.push_back(RoutedBatch {
                    answers,
                    counting,
                    waiting,
                });
            }
            Err(error) => {
                for answer in waiting.into_iter().flatten() {
                    self.context.refuse(&answer.to, &error);
                }
            }
        }
    }

    /// Asks how much waits for the senders of a batch, where that is not known. Nearly always there is one sender.
    fn count_senders(&self, waiting: &[Option<SendReply>]) -> Option<BoxFuture<'static, ()>> {
        let mut senders: Vec<&Arc<Member>> = Vec::new();
        for sender in waiting.iter().flatten().map(SendReply::sender) {
            if !senders.iter().any(|known| Arc::ptr_eq(known, sender)) {
                senders.push(sender);
            }
        }
        let mut counts: Vec<_> = senders
            .into_iter()
            .filter_map(|sender| self.context.project.refresh_waiting_if_unknown(sender))
            .collect();
        match counts.len() {
            0 | 1 => counts.pop(),
            _ => Some(Box::pin(join_all(counts).map(drop))),
        }
    }

    /// Whether more frames should be read now. When not, a later poll of [`Peer::poll`] changes it.
    pub fn wants_frames(&self) -> bool {
        self.accepts_frames() && self.batch.deferred.is_empty() && self.batch.routed.len() < ROUTES_LEN_MAX
    }

    /// Bytes of the frames that are held back.
    pub fn deferred_len(&self) -> usize {
        self.batch.deferred.iter().map(|held| held.text.len()).sum()
    }

    /// Whether frames that were held back can be taken up now.
    pub fn can_resume_deferred(&self) -> bool {
        self.accepts_frames() && !self.batch.deferred.is_empty()
    }

    /// Whether a frame is taken up: no call is under way that it may not overtake, the caller has not asked for too much,
    /// and reads its answers.
    fn accepts_frames(&self) -> bool {
        let waiting_len = match self.context.kind {
            PeerKind::Connection => self.context.outbox.waiting_len(),
            PeerKind::HttpSession | PeerKind::Stateless => 0,
        };
        let is_full = waiting_len >= ANSWER_BYTES_MAX
            || waiting_len + self.context.reserved_answer_bytes.get() >= RESERVED_BYTES_MAX;
        let rests = self.context.is_read_paused() || self.pause.is_some();
        !self.context.is_exclusive() && !rests && !is_full
    }

    /// Answers what the router has answered, and goes on with frames that were held back.
    pub fn poll(&mut self, cx: &mut Context<'_>, now: Now) {
        self.context.set_waker(cx.waker());
        self.busy_since_ms = now.mono_ms;
        loop {
            self.poll_pause(cx);
            self.poll_routed(cx);
            if !self.can_resume_deferred() {
                return;
            }
            while self.accepts_frames()
                && let Some(held) = self.batch.deferred.pop_front()
            {
                let Deferred {
                    text,
                    route,
                    counted,
                    read_at,
                } = held;
                self.context.counted.set(counted);
                self.context.read_at.set(read_at);
                self.handle_parsed(&text, rpc::parse(&text), route);
                self.context.counted.set(false);
                self.context.caught_up.take();
            }
            // What it sends is with the router now, whose answer has to know whom to wake.
            self.finish_read(now);
            self.context.outbox.wake();
        }
    }

    fn poll_pause(&mut self, cx: &mut Context<'_>) {
        if let Some(rest) = self.context.take_read_pause() {
            self.pause = Some(Box::pin(sleep(rest)));
        }
        if self
            .pause
            .as_mut()
            .is_some_and(|rest| rest.as_mut().poll(cx).is_ready())
        {
            self.pause = None;
        }
    }

    fn poll_routed(&mut self, cx: &mut Context<'_>) {
        while let Some(batch) = self.batch.routed.front_mut() {
            if let Some(counting) = &mut batch.counting {
                if counting.as_mut().poll(cx).is_pending() {
                    break;
                }
                batch.counting = None;
            }
            let Poll::Ready(answers) = Pin::new(&mut batch.answers).poll(cx) else {
                break;
            };
            if let Some(RoutedBatch { waiting, .. }) = self.batch.routed.pop_front() {
                self.answer_sends(waiting, answers.unwrap_or_default());
            }
        }
    }

    fn answer_sends(&mut self, waiting: Vec<Option<SendReply>>, answers: Vec<RouteAnswer>) {
        let mut answers = answers.into_iter();
        for waiting in waiting {
            // None: the router panicked over the batch; what it had accepted is delivered, nothing is claimed.
            let answer = answers.next().unwrap_or(Err(BrokerError::unavailable()));
            let Some(mut waiting) = waiting else { continue };
            waiting.release_slot();
            let routed = match answer {
                Ok(routed) => routed,
                Err(error) => {
                    self.context.refuse(&waiting.to, &error);
                    continue;
                }
            };
            if waiting.is_complete(&routed) {
                self.scratch.clear();
                waiting.write(&mut self.scratch, &mut self.object, &routed);
                waiting.to.send(&self.context.outbox, &self.scratch);
            } else if waiting.may_wait()
                && let Some(task) = self.context.become_task(&waiting.to)
            {
                run_send_as_task(&self.context, &task, waiting, routed);
            } else {
                let mut so_far = Vec::new();
                waiting.write(&mut so_far, &mut self.object, &routed);
                let (to, context) = (waiting.to.clone(), Rc::clone(&self.context));
                let settling = async move { await_send_outcome(&context, &waiting, routed).await };
                self.context.spawn(&to, ShutdownBehaviour::Answer(so_far), settling);
            }
        }
    }

    /// The broker ends the connection: every open `subscriptions/listen` gets its result (2026-07-28, subscriptions).
    /// False when there is none.
    pub fn end_subscriptions(&self) -> bool {
        let ended = self.context.subscriptions.borrow_mut().end_all_listens();
        if ended.is_empty() {
            return false;
        }
        for id in ended {
            let result = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"resultType\":\"complete\",\"_meta\":\
                 {{\"io.modelcontextprotocol/subscriptionId\":{id},\"io.modelcontextprotocol/serverInfo\":{}}}}}}}",
                server_info_text()
            );
            self.context.outbox.respond(result.as_bytes(), None);
        }
        self.context.apply_subscriptions();
        true
    }

    /// Who waits for this exchange has left before the answer was written. What was taken for it waits again, and a
    /// wait ends; what else is done goes on (2025-11-25, basic/transports: a disconnection is no cancellation).
    pub fn drop_exchange(&mut self, exchange: &Outbox) {
        self.batch
            .deferred
            .retain(|held| !(held.route.leads_to(exchange) && dispatch::takes_messages(&held.text)));
        self.context.drop_exchange(exchange);
    }

    /// The broker stops: what waits for this exchange, or at all, is answered as far as it has come. False while
    /// something is being done, which is finished first: to be asked again whenever the peer was polled.
    pub fn is_drained(&self, exchange: Option<&Outbox>) -> bool {
        // What is sent may become a wait.
        self.context.end_waiting_calls(exchange) && self.batch.routed.is_empty()
    }

    /// Whether something was taken out of an inbox for one of the requests.
    pub fn has_receives(&self) -> bool {
        self.context.has_receives()
    }

    /// Messages that were written to the socket.
    pub fn messages_written(&self, messages: Vec<MessageId>) {
        if let Some(member) = &*self.context.session.borrow() {
            self.context.project.flushed(
                member,
                MessagesWritten {
                    connection: self.connection(),
                    messages,
                },
            );
        }
    }

    /// The outbox has room for pushed messages again.
    pub fn writable(&self) {
        if let Some(member) = &*self.context.session.borrow() {
            self.context.project.writable(
                member,
                Writable {
                    connection: self.connection(),
                },
            );
        }
    }

    /// A sign of life that is no frame.
    pub fn touch(&self, now: Now) {
        if let Some(member) = &*self.context.session.borrow() {
            member.touch(self.context.project.settings().presence, now);
        }
    }

    fn connection(&self) -> ConnectionId {
        self.context.outbox.id()
    }

    /// Gives back what buffers have grown to: the connection is idle.
    pub fn shrink_buffers(&mut self) {
        self.scratch = Vec::new();
        self.batch.prepared = Vec::new();
        self.batch.routed.shrink_to_fit();
    }
}

/// Waits as a task for the status that the sender wants.
fn run_send_as_task(context: &PeerContext, task: &Arc<Task>, waiting: SendReply, routed: Routed) {
    let project = context.project.clone();
    let call = async move {
        let settled = waiting.await_outcome(&project, routed).await;
        Ok(waiting.to_result(&settled))
    };
    context.run_as_task(task, None, call);
}

/// Has another project take a message, and answers its sender. Several of one connection are begun in their order.
fn send_cross_project(context: &Rc<PeerContext>, crossing: CrossProjectSend, mut waiting: SendReply) {
    waiting.release_slot();
    if !context.has_free_slot() {
        return context.refuse(&waiting.to, &BrokerError::unavailable());
    }
    let (shared, to) = (Rc::clone(context), waiting.to.clone());
    let project = context.project.clone();
    // It goes on without its sender, who may try again with the same idempotency key.
    let crossing = actix_rt::spawn(async move { project.send_cross_project(crossing).await });
    context.spawn(&to, ShutdownBehaviour::Finish, async move {
        let routed = match crossing.await.unwrap_or(Err(BrokerError::unavailable())) {
            Ok(routed) => routed,
            Err(error) => return shared.refuse(&waiting.to, &error),
        };
        let mut so_far = Vec::new();
        waiting.write(&mut so_far, &mut Vec::new(), &routed);
        if waiting.is_complete(&routed) {
            waiting.to.send(&shared.outbox, &so_far);
        } else if waiting.may_wait()
            && let Some(task) = shared.become_task(&waiting.to)
        {
            run_send_as_task(&shared, &task, waiting, routed);
        } else {
            shared.answer_on_shutdown(&waiting.to, so_far);
            await_send_outcome(&shared, &waiting, routed).await;
        }
    });
}

/// Waits for the status that the sender wants, and answers it.
async fn await_send_outcome(context: &PeerContext, waiting: &SendReply, routed: Routed) {
    let settled = waiting.await_outcome(&context.project, routed).await;
    let mut out = Vec::new();
    waiting.write(&mut out, &mut Vec::new(), &settled);
    waiting.to.send(&context.outbox, &out);
}

impl Drop for Peer {
    /// The connection is over: calls are given up, and what was not acknowledged waits again.
    fn drop(&mut self) {
        self.context.abort_calls();
        self.context.unbind();
    }
}
