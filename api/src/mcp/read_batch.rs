//! What the frames of one read have prepared, what the router has not answered yet, and the frames and calls that wait
//! for their turn.

use std::{cell::Cell, collections::VecDeque, future::Future, rc::Rc, sync::Arc};

use actors::{model::TraceContext, router::RouteAnswer, session::ReadAt};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::{
    context::PeerContext,
    outbox::Outbox,
    reply::{ReplyRoute, ReplyTo},
    send_reply::{SendReply, ToolSend},
    version::RequestMeta,
};

/// Gathers the messages of one read, so that the router gets them together and in order. While a call runs exclusively,
/// later frames are deferred, so that no frame overtakes it.
pub struct ReadBatch {
    /// What the calls of the peer share.
    pub context: Rc<PeerContext>,
    /// The messages to submit at the end of the read.
    pub prepared: Vec<ToolSend>,
    /// The submitted messages, in the order of the router's answers.
    pub routed: VecDeque<RoutedBatch>,
    /// The `_meta` of the next request, if the transport has parsed it.
    pub parsed_meta: Option<Box<RequestMeta>>,
    /// Frames that wait until they may be handled.
    pub deferred: VecDeque<Deferred>,
    /// How many of them are earlier than the frame that is handled now; all, unless it was deferred itself.
    pub earlier_len: usize,
    suspended: Option<Suspended>,
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
    pub text: String,
    /// The id of its request.
    pub id: Option<Box<str>>,
    /// It waits while too many calls run. Other frames are handled before it then.
    pub may_wait_for_calls: bool,
    /// Where its answer goes.
    pub route: ReplyRoute,
    /// When it was read.
    pub read_at: ReadAt,
    /// The trace of the HTTP request that brought it.
    pub http_trace: Option<Arc<TraceContext>>,
}

/// A call that continues when an exclusive future has ended.
struct Suspended {
    to: ReplyTo,
    receives_messages: bool,
    bytes: usize,
    resume: Box<dyn FnOnce(&mut ReadBatch)>,
}

/// The call to suspend.
pub struct Suspension<'a> {
    /// Its request.
    pub to: &'a ReplyTo,
    /// It is dropped when the reader of its exchange leaves, as every receive is.
    pub receives_messages: bool,
    /// Bytes of the frame that it keeps.
    pub bytes: usize,
}

impl ReadBatch {
    /// An empty batch.
    pub fn new(context: Rc<PeerContext>) -> Self {
        Self {
            context,
            prepared: Vec::new(),
            routed: VecDeque::new(),
            parsed_meta: None,
            deferred: VecDeque::new(),
            earlier_len: usize::MAX,
            suspended: None,
        }
    }

    /// Adds a message to submit at the end of the read.
    pub fn prepare(&mut self, send: ToolSend) {
        self.prepared.push(send);
    }

    /// Cancels the requests of this id to send messages, and a deferred one. A message that was submitted is sent; its
    /// request gets no answer and waits for no status.
    pub fn withdraw(&mut self, id: &str) {
        let has_id = |reply: &SendReply| *reply.to.id == *id;
        let prepared = self
            .prepared
            .extract_if(.., |send| has_id(&send.reply))
            .map(|send| send.reply);
        let replies = self.routed.iter_mut().flat_map(|batch| &mut batch.replies);
        let submitted = replies.filter_map(|reply| reply.take_if(|reply| has_id(reply)));
        for withdrawn in prepared.chain(submitted) {
            withdrawn.to.route.abandon();
        }
        let mut earlier = self.deferred.iter().take(self.earlier_len);
        let at = earlier.position(|frame| frame.id.as_deref() == Some(id));
        if let Some(frame) = at.and_then(|at| self.deferred.remove(at)) {
            frame.route.abandon();
        }
    }

    /// Suspends a call while `wait` runs, and continues it with the output. No other frame of the connection overtakes
    /// it. A cancelled call does not continue.
    pub fn suspend<T: 'static>(
        &mut self,
        call: &Suspension<'_>,
        wait: impl Future<Output = T> + 'static,
        resume: impl FnOnce(&mut Self, T) + 'static,
    ) {
        let output = Rc::new(Cell::new(None));
        let set_output = Rc::clone(&output);
        self.suspended = Some(Suspended {
            to: call.to.clone(),
            receives_messages: call.receives_messages,
            bytes: call.bytes,
            resume: Box::new(move |batch| {
                if let Some(output) = output.take() {
                    resume(batch, output);
                }
            }),
        });
        self.context.calls.run_exclusively(call.to, async move {
            set_output.set(Some(wait.await));
        });
    }

    /// Whether a call is suspended, or has yet to continue.
    pub fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// The suspended call that can continue now: its request, and its continuation.
    #[allow(clippy::type_complexity, reason = "the continuation is called at once")]
    pub fn take_resumable(&mut self) -> Option<(ReplyTo, Box<dyn FnOnce(&mut Self)>)> {
        if self.context.calls.is_exclusive() {
            return None;
        }
        let Suspended { to, resume, .. } = self.suspended.take()?;
        Some((to, resume))
    }

    /// Drops the suspended call if it is a receive for this exchange, whose reader has left.
    pub fn drop_suspended_receive(&mut self, exchange: &Outbox) {
        self.suspended
            .take_if(|call| call.receives_messages && call.to.route.leads_to(exchange));
    }

    /// Whether a frame of this exchange, or of the whole connection, waits.
    pub fn has_deferred(&self, exchange: Option<&Outbox>) -> bool {
        let mut deferred = self.deferred.iter();
        deferred.any(|frame| exchange.is_none_or(|exchange| frame.route.leads_to(exchange)))
    }

    /// Bytes of the frames that wait.
    pub fn deferred_len(&self) -> usize {
        let suspended = self.suspended.as_ref().map_or(0, |call| call.bytes);
        self.deferred.iter().map(|frame| frame.text.len()).sum::<usize>() + suspended
    }
}
