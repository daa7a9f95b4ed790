//! One MCP client: a lasting connection, an HTTP session, or one stateless request. A transport gives it frames, polls
//! it, and tells it what became of its output.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use actors::{
    clock::Now,
    idle,
    model::{BrokerError, ConnectionId, MessageId, TraceContext},
    project::PreparedSend,
    router::RouteAnswer,
    session::{Connection, Member, MessagesWritten, ReadAt, Writable},
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all},
};

use super::{
    client::{Exposure, PeerKind},
    context::PeerContext,
    dispatch,
    outbox::Outbox,
    peer_queue::{Deferred, PeerQueue, RoutedBatch},
    reply::{AnswerBatch, ReplyRoute, ReplyTo, server_info_text},
    rpc::{self, INTERNAL_ERROR, Incoming, Malformed, RpcError},
    send_reply::{SendReply, ToolSend},
    service::Service,
    subscriptions::SUBSCRIPTION_ID,
    tools::{answer_send, send_cross_project},
    version::{BATCH_VERSION, RequestMeta},
};
use crate::{auth::Identity, budget::Reservation};
use common::json::frame;

/// One MCP client. Lives on the thread of its connection.
pub struct Peer {
    context: Rc<PeerContext>,
    queue: PeerQueue,
    /// The `_meta` of the next request, if the transport has parsed it.
    parsed_meta: Option<Box<RequestMeta>>,
    malformed_in_a_row: usize,
    /// A buffer for the object in an answer.
    object: Vec<u8>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOutcome {
    /// It was served or deferred.
    Handled,
    /// It was not JSON.
    Malformed {
        /// The number of such frames in a row.
        in_a_row: usize,
    },
}

impl Peer {
    /// The peer of a lasting connection.
    pub fn new(identity: Arc<Identity>, outbox: Arc<Outbox>, service: Arc<Service>, exposure: Exposure) -> Self {
        let kind = PeerKind::Connection;
        Self::with_context(PeerContext::new(identity, outbox, service, kind, exposure))
    }

    /// The peer of a connection from a program of the same machine, which may leave out the handshake, so that one line is
    /// enough to ask.
    pub fn local(identity: Arc<Identity>, outbox: Arc<Outbox>, service: Arc<Service>, exposure: Exposure) -> Self {
        let peer = Self::new(identity, outbox, service, exposure);
        peer.context.legacy.make_handshake_optional();
        peer
    }

    /// The peer of an HTTP session (2025-11-25 and before). Nothing is pushed to it before [`Self::set_push_stream`].
    pub fn for_http_session(
        identity: Arc<Identity>,
        outbox: Arc<Outbox>,
        service: Arc<Service>,
        exposure: Exposure,
    ) -> Self {
        let kind = PeerKind::HttpSession;
        Self::with_context(PeerContext::new(identity, outbox, service, kind, exposure))
    }

    /// The peer of one request without a session of MCP (2026-07-28).
    pub fn stateless(identity: Arc<Identity>, outbox: Arc<Outbox>, service: Arc<Service>, exposure: Exposure) -> Self {
        let kind = PeerKind::Stateless;
        Self::with_context(PeerContext::new(identity, outbox, service, kind, exposure))
    }

    fn with_context(context: Rc<PeerContext>) -> Self {
        Self {
            queue: PeerQueue::new(Rc::clone(&context)),
            context,
            parsed_meta: None,
            malformed_in_a_row: 0,
            object: Vec::new(),
        }
    }

    /// What the client is shown.
    pub fn exposure(&self) -> &Exposure {
        &self.context.exposure
    }

    // Frames

    /// Begins a read: the frames that follow were read at `at`.
    pub fn begin_read(&mut self, at: ReadAt, now: Now) {
        idle::mark_activity();
        self.context.set_read_at(at);
        self.queue.begin_read(now);
    }

    /// Sets the trace of the HTTP request that brought the next frame.
    pub fn set_http_trace(&mut self, trace: Option<Arc<TraceContext>>) {
        self.context.set_http_trace(trace);
    }

    /// Handles one frame. Messages that it sends are submitted by [`Peer::finish_read`].
    pub fn handle_frame(&mut self, text: &str) -> FrameOutcome {
        self.handle_parsed(text, rpc::parse(text), ReplyRoute::Connection)
    }

    /// Handles one request whose `_meta` the transport has parsed.
    pub fn handle_request(&mut self, text: &str, request: Incoming<'_>, meta: RequestMeta) {
        self.parsed_meta = Some(Box::new(meta));
        self.handle_parsed(text, Ok(request), ReplyRoute::Connection);
    }

    /// Handles one parsed frame; its answer and notifications go to `route`.
    pub fn handle_parsed(
        &mut self,
        text: &str,
        mut parsed: Result<Incoming<'_>, Malformed<'_>>,
        route: ReplyRoute,
    ) -> FrameOutcome {
        if self.queue.must_defer(&parsed) {
            let frame = self.queue.defer(text, &parsed, route);
            self.queue.deferred.push_back(frame);
            return FrameOutcome::Handled;
        }
        self.handle_now(text, &mut parsed, route)
    }

    fn handle_now(
        &mut self,
        text: &str,
        parsed: &mut Result<Incoming<'_>, Malformed<'_>>,
        route: ReplyRoute,
    ) -> FrameOutcome {
        let refused_by = route.clone();
        let dispatched = self.catch_panic(|peer| {
            let outcome = peer.dispatch(text, parsed, route);
            peer.queue.charge();
            outcome
        });
        dispatched.unwrap_or_else(|()| {
            if let Ok(Incoming::Request { id, .. }) = rpc::parse(text) {
                refused_by.refuse(&self.context.outbox, Some(id), &internal_error());
            }
            FrameOutcome::Handled
        })
    }

    /// Runs the handling of one frame. If it panics, the messages that it has prepared are dropped.
    fn catch_panic<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> Result<T, ()> {
        let before = self.context.prepared.borrow().len();
        catch_unwind(AssertUnwindSafe(|| run(self))).map_err(|_| self.context.prepared.borrow_mut().truncate(before))
    }

    fn dispatch(
        &mut self,
        text: &str,
        parsed: &mut Result<Incoming<'_>, Malformed<'_>>,
        route: ReplyRoute,
    ) -> FrameOutcome {
        let is_json = match parsed {
            Ok(incoming) => self.dispatch_incoming(incoming, text, route),
            Err(Malformed { id, code, message }) => {
                // Counted like a request. The answer names the fault even if the rate is exceeded.
                let _ = self.context.limits.take_request(route.is_batch(), text.len());
                route.refuse(&self.context.outbox, *id, &RpcError::new(*code, *message));
                if *code != rpc::PARSE_ERROR {
                    return FrameOutcome::Handled;
                }
                false
            }
        };
        if is_json {
            self.malformed_in_a_row = 0;
            return FrameOutcome::Handled;
        }
        self.count_malformed()
    }

    /// Refuses a frame that the transport could not read. It counts as one that is not JSON.
    pub fn refuse_frame(&mut self, id: Option<&str>, error: &RpcError) -> FrameOutcome {
        let _ = self.context.limits.take_request(false, 0);
        ReplyRoute::Connection.refuse(&self.context.outbox, id, error);
        self.count_malformed()
    }

    fn count_malformed(&mut self) -> FrameOutcome {
        self.malformed_in_a_row += 1;
        FrameOutcome::Malformed {
            in_a_row: self.malformed_in_a_row,
        }
    }

    /// Returns false if the frame was not JSON.
    fn dispatch_incoming(&mut self, incoming: &mut Incoming<'_>, text: &str, route: ReplyRoute) -> bool {
        match incoming {
            Incoming::Request { id, method, params } => {
                let to = ReplyTo::new(id, route);
                let meta = self.parsed_meta.take();
                return dispatch::handle_request(&self.context, to, (method, params), meta, text);
            }
            Incoming::Notification { method, params } => {
                dispatch::handle_notification(&mut self.queue, method, params);
            }
            Incoming::Response { id, outcome } => self.context.client_requests.resolve(*id, *outcome),
            Incoming::Batch(frames) => self.dispatch_batch(frames, route),
        }
        true
    }

    /// Dispatches the elements of a JSON-RPC batch. After one that has to wait, the rest is deferred, ahead of other
    /// deferred frames.
    fn dispatch_batch(&mut self, frames: &[&str], route: ReplyRoute) {
        if route.is_batch() || self.version() != Some(BATCH_VERSION) {
            let error = RpcError::new(rpc::INVALID_REQUEST, "Invalid Request: batches are of 2025-03-26 only");
            return route.refuse(&self.context.outbox, None, &error);
        }
        let batch = AnswerBatch::new(
            &self.context.outbox,
            route,
            Reservation::new(&self.context.service.outbound, self.context.project.id()),
        );
        let mut waiting = Vec::new();
        for frame in frames {
            let route = ReplyRoute::Batch(Rc::clone(&batch));
            if self.queue.must_defer_element() {
                waiting.push(self.queue.defer(frame, &rpc::parse(frame), route));
            } else {
                self.dispatch(frame, &mut rpc::parse(frame), route);
                self.queue.charge();
            }
        }
        for frame in waiting.into_iter().rev() {
            self.queue.deferred.push_front(frame);
        }
    }

    /// The version that `initialize` agreed on.
    pub fn version(&self) -> Option<&'static str> {
        self.context.legacy.version()
    }

    /// Submits the messages of the read to the router, and notes a sign of life of the session.
    pub fn finish_read(&mut self, now: Now) {
        self.queue.end_read();
        self.touch(now);
        let mut prepared = self.context.prepared.borrow_mut();
        if prepared.is_empty() {
            return;
        }
        let (mut submissions, mut replies) = (Vec::with_capacity(prepared.len()), Vec::new());
        for ToolSend { dispatch, reply } in prepared.drain(..) {
            match dispatch {
                PreparedSend::Local(submission) => {
                    submissions.push(submission);
                    replies.push(Some(reply));
                }
                PreparedSend::CrossProject(send) => send_cross_project(&self.context, *send, reply),
            }
        }
        if submissions.is_empty() {
            return;
        }
        match self.context.project.submit(submissions) {
            Ok(answers) => {
                let refreshing = self.refresh_senders(&replies);
                self.queue.routed.push_back(RoutedBatch {
                    answers,
                    refreshing,
                    replies,
                });
            }
            Err(error) => {
                for reply in replies.into_iter().flatten() {
                    self.context.refuse(&reply.to, &error);
                }
            }
        }
    }

    /// Refreshes the number of messages that wait for the senders of a batch, usually a single one. `None` if it is
    /// current.
    fn refresh_senders(&self, replies: &[Option<SendReply>]) -> Option<BoxFuture<'static, ()>> {
        let mut senders: Vec<&Arc<Member>> = Vec::new();
        for sender in replies.iter().flatten().map(SendReply::sender) {
            if !senders.iter().any(|known| Arc::ptr_eq(known, sender)) {
                senders.push(sender);
            }
        }
        let mut refreshing: Vec<_> = senders
            .into_iter()
            .filter_map(|sender| self.context.project.refresh_waiting_if_unknown(sender))
            .collect();
        match refreshing.len() {
            0 | 1 => refreshing.pop(),
            _ => Some(Box::pin(join_all(refreshing).map(drop))),
        }
    }

    // Polling

    /// Answers what the router has answered, handles deferred frames, and submits what calls have prepared after a wait.
    pub fn poll(&mut self, cx: &mut Context<'_>, now: Now) {
        self.context.calls.set_waker(cx.waker());
        self.queue.begin_poll(now);
        loop {
            // Woken when frames are accepted again.
            let _ = self.queue.poll_slice(cx);
            self.queue.poll_pause(cx);
            self.poll_routed(cx);
            if !self.queue.can_resume_deferred() && self.context.prepared.borrow().is_empty() {
                return;
            }
            while let Some(Deferred {
                frame, route, read_at, ..
            }) = self.queue.take_deferred()
            {
                self.context.set_read_at(read_at);
                self.context.set_http_trace(frame.http_trace());
                self.handle_now(frame.text(), &mut frame.parsed(), route);
                self.queue.earlier_len = usize::MAX;
            }
            // Submits the messages and polls the router's answer, so that it wakes this task.
            self.finish_read(now);
            self.context.outbox.wake();
        }
    }

    /// Ready if the project has a slice of the worker left; else the task is woken when it has.
    pub fn poll_slice(&self, cx: &Context<'_>) -> Poll<()> {
        self.queue.poll_slice(cx)
    }

    /// Whether more frames should be read now. If not, a later [`Peer::poll`] changes it.
    pub fn wants_frames(&self) -> bool {
        self.queue.wants_frames()
    }

    /// Whether deferred frames can be handled now.
    pub fn can_resume_deferred(&self) -> bool {
        self.queue.can_resume_deferred()
    }

    /// Bytes of the deferred frames.
    pub fn deferred_len(&self) -> usize {
        self.queue.deferred_len()
    }

    fn poll_routed(&mut self, cx: &mut Context<'_>) {
        while let Some(batch) = self.queue.routed.front_mut() {
            if let Some(refreshing) = &mut batch.refreshing {
                if refreshing.as_mut().poll(cx).is_pending() {
                    break;
                }
                batch.refreshing = None;
            }
            let Poll::Ready(answers) = batch.answers.poll_unpin(cx) else {
                break;
            };
            if let Some(RoutedBatch { replies, .. }) = self.queue.routed.pop_front() {
                self.answer_sends(replies, answers.unwrap_or_default());
            }
        }
    }

    fn answer_sends(&mut self, replies: Vec<Option<SendReply>>, answers: Vec<RouteAnswer>) {
        let mut answers = answers.into_iter();
        for reply in replies {
            // The router has no answer if it panicked: its messages may have been accepted or not.
            let answer = answers.next().unwrap_or(Err(BrokerError::unavailable()));
            let Some(mut reply) = reply else { continue };
            reply.release_slot();
            match answer {
                Ok(routed) => answer_send(&self.context, reply, routed, &mut self.object),
                Err(error) => self.context.refuse(&reply.to, &error),
            }
        }
    }

    // The connection

    /// Sets whether the client reads pushed messages. Clients on a lasting connection always do.
    pub fn set_push_stream(&self, has_push_stream: bool) {
        if self.context.binding.set_push_stream(has_push_stream) {
            self.context.apply_subscriptions();
        }
        let waiting = self.context.binding.with_member(|member| member.shared.waiting());
        if has_push_stream && waiting.is_some_and(|waiting| waiting > 0) {
            // An earlier notification may have been lost with the stream that carried it.
            self.context.outbox.notify_inbox_changed();
        }
    }

    /// Notes that the client has returned; the broker may have closed its session or its outbox in between.
    pub fn resume(&self) {
        self.context.resume();
    }

    /// Ends every open `subscriptions/listen` with its result (2026-07-28, subscriptions), because the broker closes the
    /// connection. Returns false if none was open.
    pub fn end_subscriptions(&self) -> bool {
        let ended = self.context.subscriptions.borrow_mut().end_all_listens();
        if ended.is_empty() {
            return false;
        }
        for id in ended {
            let result = format_args!(
                "{{\"resultType\":\"complete\",\"_meta\":{{{SUBSCRIPTION_ID}:{id},\
                 \"io.modelcontextprotocol/serverInfo\":{}}}}}",
                server_info_text()
            );
            self.context.outbox.respond(frame::result(&*id, result), None, None);
        }
        self.context.apply_subscriptions();
        true
    }

    /// Notes that the reader of this exchange left before the answer was written: its receives end and return their
    /// messages. Other calls continue (2025-11-25, basic/transports: a disconnection is no cancellation).
    pub fn drop_exchange(&mut self, exchange: &Outbox) {
        self.queue
            .deferred
            .retain(|it| !(it.route.leads_to(exchange) && dispatch::receives_messages(&it.frame.parsed())));
        self.context.drop_exchange(exchange);
    }

    /// Ends the waiting calls of this exchange, or of all, because the broker stops. True once nothing is in progress;
    /// call it again after each poll until then.
    pub fn is_drained(&self, exchange: Option<&Outbox>) -> bool {
        self.context.end_waiting_calls(exchange)
            && self.context.prepared.borrow().is_empty()
            && self.queue.is_drained(exchange)
    }

    /// Whether every frame that was read is served: no call is in progress, and no `subscriptions/listen` is open.
    pub fn is_idle(&self) -> bool {
        !self.context.calls.is_running(None)
            && self.context.subscriptions.borrow().listens_len() == 0
            && self.queue.is_empty()
            && self.context.prepared.borrow().is_empty()
    }

    /// Calls `f` with the session that the client acts as, if there is one.
    pub fn with_session<T>(&self, f: impl FnOnce(&Arc<Member>) -> T) -> Option<T> {
        self.context.binding.with_member(f)
    }

    /// Whether any request has received messages.
    pub fn has_receives(&self) -> bool {
        self.context.calls.has_receives()
    }

    /// Notes that these pushed messages were written to the socket.
    pub fn messages_written(&self, messages: Vec<MessageId>) {
        let connection = self.connection();
        self.context.binding.with_member(|member| {
            let written = MessagesWritten { connection, messages };
            self.context.project.messages_written(member, written);
        });
    }

    /// Notes that the outbox has room for pushed messages again.
    pub fn writable(&self) {
        let connection = self.connection();
        self.context
            .binding
            .with_member(|member| self.context.project.writable(member, Writable { connection }));
    }

    /// Notes a sign of life of the client.
    pub fn touch(&self, now: Now) {
        self.context
            .binding
            .with_member(|member| member.touch(self.context.project.settings().presence, now));
    }

    /// Notes that the connection ended with an error: what was written last may not have arrived.
    pub fn mark_reset(&self) {
        self.context.calls.mark_reset();
    }

    fn connection(&self) -> ConnectionId {
        self.context.outbox.id()
    }

    /// Frees the buffers of an idle connection.
    pub fn shrink_buffers(&mut self) {
        self.object = Vec::new();
        self.context.prepared.borrow_mut().shrink_to_fit();
        self.queue.routed.shrink_to_fit();
    }
}

fn internal_error() -> RpcError {
    RpcError::new(INTERNAL_ERROR, "Internal error")
}

impl Drop for Peer {
    /// The connection has ended: its calls are aborted, and messages that were not acknowledged return to the inbox.
    fn drop(&mut self) {
        self.context.calls.abort_all();
        self.context.binding.unbind(&self.context.project, &self.context.outbox);
    }
}
