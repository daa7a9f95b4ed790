//! What the frames of one read want done at its end.

use std::{collections::VecDeque, future::Future, rc::Rc};

use super::{
    reply::{Lane, ReplyTo},
    shared::Shared,
    tools::Prepared,
    version::RequestMeta,
};

/// Collects for the end of the turn, and keeps frames back while a call is under way that none may overtake.
pub struct Turn {
    pub shared: Rc<Shared>,
    /// What is to be sent, handed to the router together.
    pub prepared: Vec<Prepared>,
    /// The `_meta` of the next request, where the transport had to read it.
    pub read_meta: Option<Box<RequestMeta>>,
    /// Frames that wait until an exclusive call is done.
    pub held: VecDeque<Held>,
}

/// A frame that waits.
pub struct Held {
    pub text: String,
    pub lane: Lane,
    /// It was taken up before, and counted against the limits of its caller.
    pub counted: bool,
}

impl Turn {
    pub fn new(shared: Rc<Shared>) -> Self {
        Self {
            shared,
            prepared: Vec::new(),
            read_meta: None,
            held: VecDeque::new(),
        }
    }

    /// Queues a message for the end of the turn.
    pub fn submit(&mut self, prepared: Prepared) {
        self.prepared.push(prepared);
    }

    /// Runs a call that no other frame of this connection may overtake; `again` is taken up again when it is done.
    pub fn exclusively(&mut self, to: &ReplyTo, call: impl Future<Output = ()> + 'static, again: Option<&str>) {
        if let Some(text) = again {
            self.held.push_front(Held {
                text: text.to_owned(),
                lane: to.lane.clone(),
                counted: true,
            });
        }
        self.shared.set_exclusive(true);
        let done = ExclusiveDone(Rc::clone(&self.shared));
        self.shared.spawn(to, async move {
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
