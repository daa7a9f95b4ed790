//! The messages of one peer that the router has not answered yet, and its frames that may not be handled yet. It decides which
//! frames are handled now, which are deferred, and whether more are read. Calls wait in
//! [`Calls`](super::calls::Calls), and messages of the present read in [`PeerContext::prepared`].

use std::{
    collections::VecDeque,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use actors::{
    clock::{self, Now},
    router::RouteAnswer,
    session::ReadAt,
};
use futures_util::future::BoxFuture;
use tokio::{
    sync::oneshot,
    time::{Sleep, sleep},
};

use super::{
    calls::Resource,
    client::PeerKind,
    context::PeerContext,
    outbox::{ANSWER_BYTES_MAX, Outbox},
    owned_frame::OwnedFrame,
    reply::ReplyRoute,
    rpc::{Incoming, Malformed},
    send_reply::SendReply,
};
use crate::budget::{SLICE_MS, SliceWaiter};

/// Submitted batches of messages that the router has not answered; with more, the connection is not read.
const ROUTED_LEN_MAX: usize = 8;
/// Bytes of answers that may be reserved, or wait, before further frames of the connection are deferred.
const RESERVED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of open requests to backends from which on lines wait. A connection may hold twice as many.
const FORWARDED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Requests that wait for the end of calls, and their bytes; with more, the connection is not read. One read may exceed it.
const WAITING_LEN_MAX: usize = 256;
const WAITING_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The frames and messages of one peer that wait. It lasts as long as the peer. The messages of one read go to the router
/// together and in order. While a call runs exclusively, later frames are deferred, so that no frame overtakes it.
pub struct PeerQueue {
    /// What the calls of the peer share.
    pub context: Rc<PeerContext>,
    /// The submitted messages, in the order of the router's answers.
    pub routed: VecDeque<RoutedBatch>,
    /// Frames that wait until they may be handled.
    pub deferred: VecDeque<Deferred>,
    /// How many of them are earlier than the frame that is handled now; all, unless it was deferred itself.
    pub earlier_len: usize,
    /// Frames are deferred until it has elapsed.
    pause: Option<Pin<Box<Sleep>>>,
    /// Since when frames have kept the worker busy without being charged, in milliseconds of the monotonic clock.
    busy_since_ms: u64,
    /// Milliseconds that the frames of this read have kept the worker busy; `None` between reads.
    read_busy_ms: Option<u64>,
    /// The place among the waiters of the project, while it has used its slice of the worker.
    slice_waiter: Rc<SliceWaiter>,
}

/// Messages that were submitted together.
pub struct RoutedBatch {
    /// The router's answers, in the order of the messages.
    pub answers: oneshot::Receiver<Vec<RouteAnswer>>,
    /// Refreshes the number of messages that wait for the senders, which their answers report.
    pub refreshing: Option<BoxFuture<'static, ()>>,
    /// The replies to the senders; `None` if the request was cancelled.
    pub replies: Vec<Option<SendReply>>,
}

/// A frame that waits.
pub struct Deferred {
    /// The frame.
    pub frame: OwnedFrame,
    /// It waits while too many calls run. Other frames are handled before it then.
    pub may_wait_for_calls: bool,
    /// Where its answer goes.
    pub route: ReplyRoute,
    /// When it was read.
    pub read_at: ReadAt,
}

impl PeerQueue {
    /// Nothing waits.
    pub fn new(context: Rc<PeerContext>) -> Self {
        Self {
            context,
            routed: VecDeque::new(),
            deferred: VecDeque::new(),
            earlier_len: usize::MAX,
            pause: None,
            busy_since_ms: clock::mono_ms(),
            read_busy_ms: None,
            slice_waiter: Rc::default(),
        }
    }

    // The time of the worker

    /// Begins a read.
    pub fn begin_read(&mut self, now: Now) {
        self.busy_since_ms = now.mono_ms;
        self.read_busy_ms = (!self.context.worker_time.is_used_up()).then_some(0);
    }

    /// Ends the read.
    pub fn end_read(&mut self) {
        self.read_busy_ms = None;
    }

    /// Charges the project for the time that the handling of a frame has taken. One frame takes at most about 20 ms; one read,
    /// or one JSON-RPC batch, may bring many small ones.
    pub fn charge(&mut self) {
        let now_ms = clock::mono_ms();
        let spent_ms = now_ms.saturating_sub(self.busy_since_ms);
        if spent_ms > 0 {
            self.busy_since_ms = now_ms;
            self.context.worker_time.charge(spent_ms);
            self.read_busy_ms = self.read_busy_ms.map(|busy_ms| busy_ms + spent_ms);
        }
    }

    /// Begins a poll: the task is woken when frames are accepted again.
    pub fn begin_poll(&mut self, now: Now) {
        self.busy_since_ms = now.mono_ms;
    }

    /// Ready if the project has a slice of the worker left; else the task is woken when it has.
    pub fn poll_slice(&self, cx: &Context<'_>) -> Poll<()> {
        self.context.worker_time.poll_slice(&self.slice_waiter, cx)
    }

    /// Begins or ends the pause of a connection that exceeds its rate.
    pub fn poll_pause(&mut self, cx: &mut Context<'_>) {
        if let Some(pause) = self.context.limits.take_read_pause() {
            self.pause = Some(Box::pin(sleep(pause)));
        }
        let pause = self.pause.as_mut();
        if pause.is_some_and(|pause| pause.as_mut().poll(cx).is_ready()) {
            self.pause = None;
        }
    }

    /// Whether the project has a slice of the worker left. A read that has begun has a slice of its own, so that frames that have
    /// been read need not be copied.
    fn has_slice(&self) -> bool {
        self.read_busy_ms.is_some_and(|busy_ms| busy_ms < SLICE_MS) || !self.context.worker_time.is_used_up()
    }

    // Which frames are handled

    /// Whether more frames should be read now. If not, a later poll of the peer changes it.
    pub fn wants_frames(&self) -> bool {
        let has_room = || {
            self.waits_for_calls() && self.deferred.len() < WAITING_LEN_MAX && self.deferred_len() < WAITING_BYTES_MAX
        };
        self.accepts_frames() && self.routed.len() < ROUTED_LEN_MAX && (self.deferred.is_empty() || has_room())
    }

    /// Whether deferred frames can be handled now.
    pub fn can_resume_deferred(&self) -> bool {
        self.accepts_frames() && self.next_deferred().is_some()
    }

    /// Takes the deferred frame that can be handled now.
    pub fn take_deferred(&mut self) -> Option<Deferred> {
        let at = self.next_deferred().filter(|_| self.accepts_frames())?;
        self.earlier_len = at;
        self.deferred.remove(at)
    }

    /// The place of the deferred frame that is next: the first, or the first that waits for no calls.
    fn next_deferred(&self) -> Option<usize> {
        if self.deferred.is_empty() || !self.waits_for_calls() {
            return (!self.deferred.is_empty()).then_some(0);
        }
        self.deferred.iter().position(|frame| !frame.may_wait_for_calls)
    }

    /// A frame that is kept until it can be handled.
    pub fn defer(&self, text: &str, parsed: &Result<Incoming<'_>, Malformed<'_>>, route: ReplyRoute) -> Deferred {
        Deferred {
            frame: OwnedFrame::new(text, parsed.as_ref()).with_http_trace(self.context.http_trace()),
            may_wait_for_calls: may_begin_call(parsed),
            route,
            read_at: self.context.read_at(),
        }
    }

    /// Whether this frame, which was read now, is deferred. A request is not handled before those that wait for calls.
    pub fn must_defer(&self, parsed: &Result<Incoming<'_>, Malformed<'_>>) -> bool {
        let is_behind_calls =
            || self.waits_for_calls() || (self.context.outbox.has_lines() && !self.deferred.is_empty());
        !self.accepts_frames() || (may_begin_call(parsed) && is_behind_calls())
    }

    /// Whether this element of a JSON-RPC batch is deferred, while the frame of the batch is handled.
    pub fn must_defer_element(&self) -> bool {
        !self.has_slice() || self.context.calls.is_exclusive()
    }

    /// Whether a frame is handled now: no call blocks it, the connection does not pause, its client reads answers, and its
    /// project has a slice of the worker left. Requests may also have to wait for calls.
    fn accepts_frames(&self) -> bool {
        let waiting_len = match self.context.kind {
            PeerKind::Connection => self.context.outbox.waiting_len(),
            PeerKind::HttpSession | PeerKind::Stateless => 0,
        };
        let reserved = self.context.calls.held(Resource::AnswerBytes);
        let is_full = waiting_len >= ANSWER_BYTES_MAX || waiting_len + reserved >= RESERVED_BYTES_MAX;
        let is_paused = self.context.limits.is_read_paused() || self.pause.is_some();
        !self.context.calls.is_exclusive() && !is_paused && !is_full && self.has_slice()
    }

    /// Whether further calls have to wait for the end of others. Over lines they wait; over other transports each call is
    /// refused, so that it fails at once.
    fn waits_for_calls(&self) -> bool {
        let PeerContext { outbox, calls, .. } = &*self.context;
        let has_room = || calls.has_free_slot() && calls.held(Resource::RequestBytes) < FORWARDED_BYTES_MAX;
        outbox.has_lines() && !has_room()
    }

    /// Whether nothing that was submitted or deferred waits.
    pub fn is_empty(&self) -> bool {
        self.routed.is_empty() && self.deferred.is_empty()
    }

    /// Whether everything of this exchange, or of the whole connection, is served, as far as it does not run as a call: a
    /// submitted message may become a waiting call, and a frame behind a call of another exchange is handled soon.
    pub fn is_drained(&self, exchange: Option<&Outbox>) -> bool {
        let waits_for_calls = self.context.calls.is_exclusive() || self.waits_for_calls();
        self.routed.is_empty() && !(waits_for_calls && self.has_deferred(exchange))
    }

    // What is withdrawn

    /// Cancels the requests of this id to send messages, and a deferred one. A message that was submitted is sent; its
    /// request gets no answer and waits for no status.
    pub fn withdraw(&mut self, id: &str) {
        let has_id = |reply: &SendReply| *reply.to.id == *id;
        let mut prepared = self.context.prepared.borrow_mut();
        let prepared = prepared.extract_if(.., |send| has_id(&send.reply));
        let prepared = prepared.map(|send| send.reply);
        let replies = self.routed.iter_mut().flat_map(|batch| &mut batch.replies);
        let submitted = replies.filter_map(|reply| reply.take_if(|reply| has_id(reply)));
        for withdrawn in prepared.chain(submitted) {
            withdrawn.to.route.abandon();
        }
        let mut earlier = self.deferred.iter().take(self.earlier_len);
        let at = earlier.position(|deferred| deferred.frame.id() == Some(id));
        if let Some(deferred) = at.and_then(|at| self.deferred.remove(at)) {
            deferred.route.abandon();
        }
    }

    /// Whether a frame of this exchange, or of the whole connection, waits.
    fn has_deferred(&self, exchange: Option<&Outbox>) -> bool {
        let mut deferred = self.deferred.iter();
        deferred.any(|frame| exchange.is_none_or(|exchange| frame.route.leads_to(exchange)))
    }

    /// Bytes of the frames that wait.
    pub fn deferred_len(&self) -> usize {
        let deferred = self.deferred.iter().map(|deferred| deferred.frame.text().len());
        deferred.sum::<usize>() + self.context.calls.held(Resource::FrameBytes)
    }
}

/// Whether this frame may begin a call. What ends calls does not wait for their end: the client's answers to questions and its
/// cancellations; nor does a ping.
fn may_begin_call(parsed: &Result<Incoming<'_>, Malformed<'_>>) -> bool {
    match parsed {
        Ok(Incoming::Request { method, .. }) => method != "ping",
        Ok(Incoming::Batch(_)) => true,
        Ok(Incoming::Notification { .. } | Incoming::Response { .. }) | Err(_) => false,
    }
}
