//! One lasting connection, as MCP sees it.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actors::{
    clock::Now,
    model::{BrokerError, ConnectionId, MessageId, Status},
    project::{ProjectHandle, Registration},
    router::{Answer as Routed, Submission},
    session::{Connection, Detach, Member, Writable, Written},
};
use futures_util::FutureExt;
use tokio::{sync::oneshot, task::AbortHandle};

use super::{
    CALLS_LEN_MAX, Limits, Outbox,
    dispatch::{self, Legacy},
    outbox::ANSWER_BYTES_MAX,
    reply::{Answer, Batch, ReplyTo, error_object, server_info, write_tool_result},
    rpc::{self, INTERNAL_ERROR, Incoming, RpcError},
    scan,
    subscriptions::Subscriptions,
    tools::{Prepared, SendAnswer, Taking},
    version::WITH_BATCHES,
};

/// Batches of messages that may be with the router for one connection before it is read no further.
const ROUTES_LEN_MAX: usize = 8;
/// Calls of `receive_messages` that can still be cancelled after they were answered.
const TAKINGS_LEN_MAX: usize = 16;

/// The MCP side of one connection. Lives on the connection's thread.
pub struct Peer {
    shared: Rc<Shared>,
    /// What this turn's frames want sent, handed to the router together.
    turn: Vec<Prepared>,
    routes: VecDeque<RoutedBatch>,
    /// Frames that wait until an exclusive call is done.
    held: VecDeque<String>,
    malformed_in_a_row: usize,
    /// Where an answer is written, and the object in it.
    scratch: Vec<u8>,
    object: Vec<u8>,
}

struct RoutedBatch {
    answers: oneshot::Receiver<Vec<Routed>>,
    waiting: Vec<SendAnswer>,
}

/// What calls that outlive their turn share with the peer.
pub struct Shared {
    pub project: ProjectHandle,
    pub outbox: Arc<Outbox>,
    pub limits: Limits,
    pub session: RefCell<Option<Arc<Member>>>,
    pub(super) legacy: RefCell<Option<Legacy>>,
    pub(super) subscriptions: RefCell<Subscriptions>,
    /// The session said goodbye on this connection: none is made for it again unasked.
    pub said_goodbye: Cell<bool>,
    calls: RefCell<HashMap<Rc<str>, AbortHandle>>,
    /// The last calls that took messages out of an inbox, by the ids of their requests, under way or answered.
    takings: RefCell<VecDeque<(Rc<str>, Taking)>>,
    exclusive: Cell<bool>,
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
        let shared = Shared {
            project,
            outbox,
            limits,
            session: RefCell::default(),
            legacy: RefCell::default(),
            subscriptions: RefCell::default(),
            said_goodbye: Cell::default(),
            calls: RefCell::default(),
            takings: RefCell::default(),
            exclusive: Cell::default(),
        };
        Self {
            shared: Rc::new(shared),
            turn: Vec::new(),
            routes: VecDeque::new(),
            held: VecDeque::new(),
            malformed_in_a_row: 0,
            scratch: Vec::new(),
            object: Vec::new(),
        }
    }

    /// Takes one frame. What it asks for may be done by [`Peer::end_turn`] only.
    pub fn frame(&mut self, text: &str) -> Taken {
        if self.shared.exclusive.get() {
            self.held.push_back(text.to_owned());
            return Taken::Fine;
        }
        let before = self.turn.len();
        catch_unwind(AssertUnwindSafe(|| self.dispatch(text, None))).unwrap_or_else(|_| {
            self.turn.truncate(before);
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
                return dispatch::request(self, to, &method, params, text);
            }
            Incoming::Notification { method, params } => dispatch::notification(self, &method, &params),
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
                if frames.iter().any(|frame| dispatch::acts_as_session(frame)) && dispatch::opens_session(self, text) {
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
        if self.turn.is_empty() {
            return;
        }
        let (submissions, waiting): (Vec<Submission>, Vec<SendAnswer>) = self
            .turn
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

    /// Queues a message for the end of the turn.
    pub(super) fn submit(&mut self, prepared: Prepared) {
        self.turn.push(prepared);
    }

    pub(super) fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }

    /// Whether more frames should be read now. When not, a later poll of [`Peer::poll`] changes it.
    pub fn wants_frames(&self) -> bool {
        !self.shared.exclusive.get()
            && self.held.is_empty()
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
        if self.shared.exclusive.get() || self.held.is_empty() {
            return;
        }
        while !self.shared.exclusive.get()
            && let Some(text) = self.held.pop_front()
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

    /// Runs a call that no other frame of this connection may overtake; `text` is taken up again when it is done
    /// and `again` is set.
    pub(super) fn exclusively(
        &mut self,
        to_id: Rc<str>,
        call: impl Future<Output = ()> + 'static,
        again: Option<&str>,
    ) {
        if let Some(text) = again {
            self.held.push_front(text.to_owned());
        }
        self.shared.exclusive.set(true);
        let shared = Rc::clone(&self.shared);
        let done = ExclusiveDone(Rc::clone(&shared));
        shared.spawn(to_id, async move {
            call.await;
            drop(done);
        });
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
        self.turn = Vec::new();
        self.routes.shrink_to_fit();
    }
}

impl Drop for Peer {
    /// The connection is over: calls are given up, and what was not acknowledged waits again.
    fn drop(&mut self) {
        for (_, call) in self.shared.calls.borrow_mut().drain() {
            call.abort();
        }
        // Those of other sessions, for which this connection acted: its own session puts back all.
        for (_, Taking { member, call }) in self.shared.takings.borrow_mut().drain(..) {
            self.shared.project.give_back(&member, &call);
        }
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

/// Lets the next frame in, however the exclusive call ended.
struct ExclusiveDone(Rc<Shared>);

impl Drop for ExclusiveDone {
    fn drop(&mut self) {
        self.0.exclusive.set(false);
        self.0.outbox.wake();
    }
}

impl Shared {
    /// Runs a call beside the turn. It can be cancelled by the id of its request, and answers -32603 if it panics.
    pub fn spawn(self: &Rc<Self>, id: Rc<str>, call: impl Future<Output = ()> + 'static) {
        let shared = Rc::clone(self);
        let key = id.clone();
        let mut calls = self.calls.borrow_mut();
        let task = actix_rt::spawn(async move {
            if AssertUnwindSafe(call).catch_unwind().await.is_err() {
                let mut out = Vec::new();
                rpc::write_error(&mut out, Some(&key), &RpcError::new(INTERNAL_ERROR, "Internal error"));
                shared.outbox.send(&out);
            }
            shared.calls.borrow_mut().remove(&key);
        });
        calls.insert(id, task.abort_handle());
    }

    /// Holds on to what a call takes, in case it is cancelled.
    pub fn remember(&self, id: Rc<str>, taking: Taking) {
        let mut takings = self.takings.borrow_mut();
        if takings.len() == TAKINGS_LEN_MAX {
            takings.pop_front();
        }
        takings.push_back((id, taking));
    }

    /// A call is cancelled: what it took waits again, even when the answer is on its way. Who cancels does not look at
    /// an answer that crosses the cancellation (2025-11-25 and 2026-07-28, cancellation).
    pub fn give_back(&self, id: &str) {
        let mut takings = self.takings.borrow_mut();
        if let Some(at) = takings.iter().rposition(|(known, _)| &**known == id)
            && let Some((_, Taking { member, call })) = takings.remove(at)
        {
            self.project.give_back(&member, &call);
        }
    }

    pub fn has_room_for_calls(&self) -> bool {
        self.calls.borrow().len() < CALLS_LEN_MAX
    }

    /// Gives a call up; nothing is answered to it. False when it is not known, or no longer.
    pub fn cancel(&self, id: &str) -> bool {
        let call = self.calls.borrow_mut().remove(id);
        call.inspect(AbortHandle::abort).is_some()
    }

    /// Answers a `tools/call`.
    pub fn answer(&self, to: &ReplyTo, result: Result<Answer, BrokerError>) {
        match result {
            Ok(Answer(object)) => self.tool_result(to, &object, false),
            Err(error) => self.refuse(to, &error),
        }
    }

    /// Answers a `tools/call` that failed inside the tool.
    pub fn refuse(&self, to: &ReplyTo, error: &BrokerError) {
        let Answer(object) = error_object(error).into();
        self.tool_result(to, &object, true);
    }

    fn tool_result(&self, to: &ReplyTo, object: &[u8], is_error: bool) {
        let mut out = Vec::with_capacity(object.len() * 2 + 256);
        write_tool_result(&mut out, to, object, is_error, self.unread());
        to.send(&self.outbox, &out);
    }

    pub fn unread(&self) -> usize {
        self.session
            .borrow()
            .as_ref()
            .map_or(0, |member| member.vitals.waiting())
    }

    /// Makes a session without a name for this connection.
    pub async fn open_session(&self) -> Result<(), BrokerError> {
        let connection = Arc::clone(&self.outbox) as _;
        let registration = Registration {
            connection: Some(connection),
            ..Registration::default()
        };
        let registered = self.project.register(registration).await?;
        self.settle_session(registered.member);
        Ok(())
    }

    /// This connection's session is that one from now on.
    pub fn settle_session(&self, member: Arc<Member>) {
        *self.session.borrow_mut() = Some(member);
        self.said_goodbye.set(false);
        self.subscriptions_changed();
    }

    /// Tells the outbox and the session what the peer wants to hear of.
    pub fn subscriptions_changed(&self) {
        let legacy_push = self.legacy.borrow().as_ref().and_then(|legacy| legacy.push);
        let wanted = self.subscriptions.borrow().wanted(legacy_push);
        let message = wanted.message(self.outbox.id());
        self.outbox.configure(wanted.push_frame, wanted.inbox_frames);
        if let Some(member) = &*self.session.borrow() {
            self.project.subscribe(member, message);
        }
    }
}

/// Longest wait for a status, on which clients and proxies still keep a call alive.
pub const WAIT_MAX: Duration = Duration::from_secs(110);

pub(super) fn as_status(word: &str) -> Option<Status> {
    match word {
        "queued" => Some(Status::Queued),
        "delivered" => Some(Status::Delivered),
        "acknowledged" => Some(Status::Acknowledged),
        _ => None,
    }
}

/// Whether a text that could not be served was JSON at all.
pub(super) fn is_json(text: &str) -> bool {
    scan::check(text).is_ok()
}
