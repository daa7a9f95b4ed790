//! What the frames of one read want done at its end, and what they sent.

use std::{collections::VecDeque, future::Future, rc::Rc};

use actors::{router::RouteAnswer, session::ReadAt};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::{
    context::{PeerContext, ShutdownBehaviour},
    reply::{ReplyRoute, ReplyTo},
    tools::{SendReply, ToolSend},
    version::RequestMeta,
};

/// Collects for the end of the turn, knows what was sent and is not answered, and keeps frames back while a call is under
/// way that none may overtake.
pub struct ReadBatch {
    pub context: Rc<PeerContext>,
    /// What is to be sent, handed to the router together.
    pub prepared: Vec<ToolSend>,
    /// What the router has not answered yet, in the order of its answers.
    pub routed: VecDeque<RoutedBatch>,
    /// The `_meta` of the next request, where the transport had to read it.
    pub parsed_meta: Option<Box<RequestMeta>>,
    /// Frames that wait until an exclusive call is done.
    pub deferred: VecDeque<Deferred>,
}

/// What was handed to the router together.
pub struct RoutedBatch {
    pub answers: oneshot::Receiver<Vec<RouteAnswer>>,
    /// How much waits for the senders is being asked.
    pub counting: Option<BoxFuture<'static, ()>>,
    /// Who waits for each of them; None where the request was cancelled.
    pub waiting: Vec<Option<SendReply>>,
}

/// A frame that waits.
pub struct Deferred {
    pub text: String,
    pub route: ReplyRoute,
    /// It was taken up before, and counted against the limits of its caller.
    pub counted: bool,
    pub read_at: ReadAt,
}

impl ReadBatch {
    pub fn new(context: Rc<PeerContext>) -> Self {
        Self {
            context,
            prepared: Vec::new(),
            routed: VecDeque::new(),
            parsed_meta: None,
            deferred: VecDeque::new(),
        }
    }

    /// Queues a message for the end of the turn.
    pub fn prepare(&mut self, prepared: ToolSend) {
        self.prepared.push(prepared);
    }

    /// The request to send a message was cancelled. What the router has is sent all the same; nothing is answered.
    pub fn withdraw(&mut self, id: &str) {
        let prepared = self.prepared.iter().rposition(|sending| *sending.reply.to.id == *id);
        let withdrawn = if let Some(at) = prepared {
            Some(self.prepared.remove(at).reply)
        } else {
            let mut routed = self.routed.iter_mut().flat_map(|batch| &mut batch.waiting).rev();
            routed.find_map(|waiting| waiting.take_if(|sending| *sending.to.id == *id))
        };
        if let Some(withdrawn) = withdrawn {
            withdrawn.to.route.abandon();
        }
    }

    /// Runs a call that no other frame of this connection may overtake; `again` is taken up again when it is done.
    pub fn run_exclusively(&mut self, to: &ReplyTo, call: impl Future<Output = ()> + 'static, again: Option<&str>) {
        if let Some(text) = again {
            self.deferred.push_front(Deferred {
                text: text.to_owned(),
                route: to.route.clone(),
                counted: true,
                read_at: self.context.read_at.get(),
            });
        }
        self.context.set_exclusive(true);
        let done = ExclusiveGuard(Rc::clone(&self.context));
        self.context.spawn(to, ShutdownBehaviour::Finish, async move {
            call.await;
            drop(done);
        });
    }
}

/// Lets the next frame in, however the exclusive call ended.
struct ExclusiveGuard(Rc<PeerContext>);

impl Drop for ExclusiveGuard {
    fn drop(&mut self) {
        self.0.set_exclusive(false);
        self.0.wake();
    }
}
