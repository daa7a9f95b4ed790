//! The messages of one peer that the router has not answered yet, and its frames that may not be handled yet. Calls wait in
//! [`Calls`](super::calls::Calls), and messages of the present read in [`PeerContext::prepared`].

use std::{collections::VecDeque, rc::Rc};

use actors::{router::RouteAnswer, session::ReadAt};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::{
    calls::Resource, context::PeerContext, outbox::Outbox, owned_frame::OwnedFrame, reply::ReplyRoute,
    send_reply::SendReply,
};

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
        }
    }

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
    pub fn has_deferred(&self, exchange: Option<&Outbox>) -> bool {
        let mut deferred = self.deferred.iter();
        deferred.any(|frame| exchange.is_none_or(|exchange| frame.route.leads_to(exchange)))
    }

    /// Bytes of the frames that wait.
    pub fn deferred_len(&self) -> usize {
        let deferred = self.deferred.iter().map(|deferred| deferred.frame.text().len());
        deferred.sum::<usize>() + self.context.calls.held(Resource::FrameBytes)
    }
}
