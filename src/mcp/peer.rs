//! One lasting connection, as MCP sees it.

use std::{
    collections::VecDeque,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use actors::{
    clock::Now,
    model::{BrokerError, ConnectionId, MessageId},
    project::ProjectHandle,
    router::{Answer as Routed, Submission},
    session::{Connection, Detach, Writable, Written},
};
use tokio::sync::oneshot;

use super::{
    Limits, Outbox, dispatch,
    outbox::ANSWER_BYTES_MAX,
    reply::{Batch, ReplyTo, server_info},
    rpc::{self, INTERNAL_ERROR, Incoming, RpcError},
    shared::Shared,
    tools::{Prepared, SendAnswer},
    turn::Turn,
    version::WITH_BATCHES,
};

/// Batches of messages that may be with the router for one connection before it is read no further.
const ROUTES_LEN_MAX: usize = 8;

/// The MCP side of one connection. Lives on the connection's thread.
pub struct Peer {
    shared: Rc<Shared>,
    turn: Turn,
    routes: VecDeque<RoutedBatch>,
    malformed_in_a_row: usize,
    /// Where an answer is written, and the object in it.
    scratch: Vec<u8>,
    object: Vec<u8>,
}

struct RoutedBatch {
    answers: oneshot::Receiver<Vec<Routed>>,
    waiting: Vec<SendAnswer>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Fine,
    /// Not JSON, and neither were this many before it.
    Malformed {
        in_a_row: usize,
    },
}

impl Peer {
    pub fn new(project: ProjectHandle, outbox: Arc<Outbox>, limits: Limits) -> Self {
        let shared = Shared::new(project, outbox, limits);
        Self {
            turn: Turn::new(Rc::clone(&shared)),
            shared,
            routes: VecDeque::new(),
            malformed_in_a_row: 0,
            scratch: Vec::new(),
            object: Vec::new(),
        }
    }

    /// Takes one frame. What it asks for may be done by [`Peer::end_turn`] only.
    pub fn frame(&mut self, text: &str) -> Taken {
        if self.shared.is_exclusive() {
            self.turn.held.push_back(text.to_owned());
            return Taken::Fine;
        }
        let before = self.turn.prepared.len();
        catch_unwind(AssertUnwindSafe(|| self.dispatch(text, None))).unwrap_or_else(|_| {
            self.turn.prepared.truncate(before);
            if let Ok(Incoming::Request { id, .. }) = rpc::parse(text) {
                let mut out = Vec::new();
                rpc::write_error(&mut out, Some(id), &RpcError::new(INTERNAL_ERROR, "Internal error"));
                self.shared.outbox.send(&out);
            }
            Taken::Fine
        })
    }

    fn dispatch(&mut self, text: &str, batch: Option<&Rc<Batch>>) -> Taken {
        match rpc::parse(text) {
            Ok(incoming) => {
                if self.incoming(incoming, text, batch) {
                    self.malformed_in_a_row = 0;
                    return Taken::Fine;
                }
                self.malformed_in_a_row += 1;
                Taken::Malformed {
                    in_a_row: self.malformed_in_a_row,
                }
            }
            Err(malformed) => {
                let mut out = Vec::new();
                rpc::write_error(
                    &mut out,
                    malformed.id,
                    &RpcError::new(malformed.code, malformed.message),
                );
                match batch {
                    Some(_) => ReplyTo {
                        id: "null".into(),
                        modern: false,
                        batch: batch.cloned(),
                    }
                    .send(&self.shared.outbox, &out),
                    None => self.shared.outbox.send(&out),
                }
                if malformed.code != rpc::PARSE_ERROR {
                    return Taken::Fine;
                }
                self.malformed_in_a_row += 1;
                Taken::Malformed {
                    in_a_row: self.malformed_in_a_row,
                }
            }
        }
    }

    /// False when it turned out not to be JSON.
    fn incoming(&mut self, incoming: Incoming<'_>, text: &str, batch: Option<&Rc<Batch>>) -> bool {
        match incoming {
            Incoming::Request { id, method, params } => {
                let to = ReplyTo {
                    id: id.into(),
                    modern: false,
                    batch: batch.cloned(),
                };
                return dispatch::request(&mut self.turn, to, &method, params, text);
            }
            Incoming::Notification { method, params } => dispatch::notification(&self.turn, &method, &params),
            Incoming::Response => {}
            Incoming::Batch(frames) => {
                let accepted = self
                    .shared
                    .legacy
                    .borrow()
                    .as_ref()
                    .is_some_and(|legacy| legacy.version == WITH_BATCHES);
                if batch.is_some() || !accepted {
                    let mut out = Vec::new();
                    let error = RpcError::new(rpc::INVALID_REQUEST, "Invalid Request: batches are of 2025-03-26 only");
                    rpc::write_error(&mut out, None, &error);
                    self.shared.outbox.send(&out);
                    return true;
                }
                // One element of a batch cannot be taken up again later, the whole can.
                if frames.iter().any(|frame| dispatch::acts_as_session(frame))
                    && dispatch::opens_session(&mut self.turn, text)
                {
                    return true;
                }
                let batch = Batch::new(Arc::clone(&self.shared.outbox));
                for frame in frames {
                    self.dispatch(frame, Some(&batch));
                }
            }
        }
        true
    }

    /// Hands over what the turn's frames want sent.
    pub fn end_turn(&mut self, now: Now) {
        if let Some(member) = &*self.shared.session.borrow() {
            member.touch(self.shared.project.settings().presence, now);
        }
        if self.turn.prepared.is_empty() {
            return;
        }
        let (submissions, waiting): (Vec<Submission>, Vec<SendAnswer>) = self
            .turn
            .prepared
            .drain(..)
            .map(|Prepared { submission, answer }| (submission, answer))
            .unzip();
        match self.shared.project.submit(submissions) {
            Ok(answers) => self.routes.push_back(RoutedBatch { answers, waiting }),
            Err(error) => {
                for answer in waiting {
                    self.shared.refuse(&answer.to, &error);
                }
            }
        }
    }

    /// Whether more frames should be read now. When not, a later poll of [`Peer::poll`] changes it.
    pub fn wants_frames(&self) -> bool {
        !self.shared.is_exclusive()
            && self.turn.held.is_empty()
            && self.routes.len() < ROUTES_LEN_MAX
            && self.shared.outbox.waiting_len() < ANSWER_BYTES_MAX
    }

    /// Answers what the router has answered, and goes on with frames that were held back.
    pub fn poll(&mut self, cx: &mut Context<'_>, now: Now) {
        while let Some(batch) = self.routes.front_mut() {
            let Poll::Ready(answers) = Pin::new(&mut batch.answers).poll(cx) else {
                break;
            };
            if let Some(RoutedBatch { waiting, .. }) = self.routes.pop_front() {
                self.answer(waiting, answers.unwrap_or_default());
            }
        }
        if self.shared.is_exclusive() || self.turn.held.is_empty() {
            return;
        }
        while !self.shared.is_exclusive()
            && let Some(text) = self.turn.held.pop_front()
        {
            self.frame(&text);
        }
        self.end_turn(now);
        self.shared.outbox.wake();
    }

    fn answer(&mut self, waiting: Vec<SendAnswer>, answers: Vec<Routed>) {
        let mut answers = answers.into_iter();
        for waiting in waiting {
            // None: the router panicked over the batch; what it had accepted is delivered, nothing is claimed.
            let answer = answers.next().unwrap_or(Err(BrokerError::unavailable()));
            let routed = match answer {
                Ok(routed) => routed,
                Err(error) => {
                    self.shared.refuse(&waiting.to, &error);
                    continue;
                }
            };
            if waiting.is_settled_by(&routed) {
                self.scratch.clear();
                waiting.write(&mut self.scratch, &mut self.object, &routed);
                waiting.to.send(&self.shared.outbox, &self.scratch);
            } else {
                let (shared, project) = (Rc::clone(&self.shared), self.shared.project.clone());
                let id = waiting.to.id.clone();
                let outbox = Arc::clone(&self.shared.outbox);
                shared.spawn(id, async move {
                    let mut out = Vec::new();
                    let settled = waiting.settle(&project, routed).await;
                    waiting.write(&mut out, &mut Vec::new(), &settled);
                    waiting.to.send(&outbox, &out);
                });
            }
        }
    }

    /// The broker ends the connection: every open `subscriptions/listen` gets its result (2026-07-28, subscriptions).
    pub fn say_farewell(&self) {
        let ended = self.shared.subscriptions.borrow_mut().end_all();
        if ended.is_empty() {
            return;
        }
        for id in ended {
            let result = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"resultType\":\"complete\",\"_meta\":\
                 {{\"io.modelcontextprotocol/subscriptionId\":{id},\"io.modelcontextprotocol/serverInfo\":{}}}}}}}",
                server_info()
            );
            self.shared.outbox.send(result.as_bytes());
        }
        self.shared.subscriptions_changed();
    }

    /// Messages that were written to the socket.
    pub fn written(&self, messages: Vec<MessageId>) {
        if let Some(member) = &*self.shared.session.borrow() {
            self.shared.project.written(
                member,
                Written {
                    connection: self.connection(),
                    messages,
                },
            );
        }
    }

    /// The outbox has room for pushed messages again.
    pub fn writable(&self) {
        if let Some(member) = &*self.shared.session.borrow() {
            self.shared.project.writable(
                member,
                Writable {
                    connection: self.connection(),
                },
            );
        }
    }

    /// A sign of life that is no frame.
    pub fn touch(&self, now: Now) {
        if let Some(member) = &*self.shared.session.borrow() {
            member.touch(self.shared.project.settings().presence, now);
        }
    }

    fn connection(&self) -> ConnectionId {
        self.shared.outbox.id()
    }

    /// Gives back what buffers have grown to: the connection is idle.
    pub fn shrink(&mut self) {
        self.scratch = Vec::new();
        self.turn.prepared = Vec::new();
        self.routes.shrink_to_fit();
    }
}

impl Drop for Peer {
    /// The connection is over: calls are given up, and what was not acknowledged waits again.
    fn drop(&mut self) {
        self.shared.give_up_calls();
        if let Some(member) = self.shared.session.borrow_mut().take() {
            self.shared.project.detach(
                &member,
                Detach {
                    connection: self.shared.outbox.id(),
                },
            );
        }
    }
}
