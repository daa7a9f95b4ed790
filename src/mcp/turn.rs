//! What the frames of one read want done at its end, and what they sent.

use std::{collections::VecDeque, future::Future, rc::Rc};

use actors::{router::Answer, session::ReadAt};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::{
    reply::{Lane, ReplyTo},
    shared::{Shared, WhenStopped},
    tools::{Prepared, SendAnswer},
    version::RequestMeta,
};

/// Collects for the end of the turn, knows what was sent and is not answered, and keeps frames back while a call is under
/// way that none may overtake.
pub struct Turn {
    pub shared: Rc<Shared>,
    /// What is to be sent, handed to the router together.
    pub prepared: Vec<Prepared>,
    /// What the router has not answered yet, in the order of its answers.
    pub routes: VecDeque<RoutedBatch>,
    /// The `_meta` of the next request, where the transport had to read it.
    pub read_meta: Option<Box<RequestMeta>>,
    /// Frames that wait until an exclusive call is done.
    pub held: VecDeque<Held>,
}

/// What was handed to the router together.
pub struct RoutedBatch {
    pub answers: oneshot::Receiver<Vec<Answer>>,
    /// How much waits for the senders is being asked.
    pub counting: Option<BoxFuture<'static, ()>>,
    /// Who waits for each of them; None where the request was cancelled.
    pub waiting: Vec<Option<SendAnswer>>,
}

/// A frame that waits.
pub struct Held {
    pub text: String,
    pub lane: Lane,
    /// It was taken up before, and counted against the limits of its caller.
    pub counted: bool,
    pub read_at: ReadAt,
}

impl Turn {
    pub fn new(shared: Rc<Shared>) -> Self {
        Self {
            shared,
            prepared: Vec::new(),
            routes: VecDeque::new(),
            read_meta: None,
            held: VecDeque::new(),
        }
    }

    /// Queues a message for the end of the turn.
    pub fn submit(&mut self, prepared: Prepared) {
        self.prepared.push(prepared);
    }

    /// The request to send a message was cancelled. What the router has is sent all the same; nothing is answered.
    pub fn withdraw(&mut self, id: &str) {
        let prepared = self.prepared.iter().rposition(|sending| *sending.answer.to.id == *id);
        let withdrawn = if let Some(at) = prepared {
            Some(self.prepared.remove(at).answer)
        } else {
            let mut routed = self.routes.iter_mut().flat_map(|batch| &mut batch.waiting).rev();
            routed.find_map(|waiting| waiting.take_if(|sending| *sending.to.id == *id))
        };
        if let Some(withdrawn) = withdrawn {
            withdrawn.to.lane.abandon();
        }
    }

    /// Runs a call that no other frame of this connection may overtake; `again` is taken up again when it is done.
    pub fn exclusively(&mut self, to: &ReplyTo, call: impl Future<Output = ()> + 'static, again: Option<&str>) {
        if let Some(text) = again {
            self.held.push_front(Held {
                text: text.to_owned(),
                lane: to.lane.clone(),
                counted: true,
                read_at: self.shared.read_at.get(),
            });
        }
        self.shared.set_exclusive(true);
        let done = ExclusiveDone(Rc::clone(&self.shared));
        self.shared.spawn(to, WhenStopped::Finishes, async move {
            call.await;
            drop(done);
        });
    }
}

/// Lets the next frame in, however the exclusive call ended.
struct ExclusiveDone(Rc<Shared>);

impl Drop for ExclusiveDone {
    fn drop(&mut self) {
        self.0.set_exclusive(false);
        self.0.wake();
    }
}
