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
    project::{Crossing, Dispatch},
    router::{Answer, Routed},
    session::{Connection, Member, ReadAt, Writable, Written},
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use tokio::time::{Sleep, sleep};

use super::{
    Outbox, Service, dispatch,
    outbox::ANSWER_BYTES_MAX,
    reply::{Batch, Lane, ReplyTo, server_info_text},
    rpc::{self, INTERNAL_ERROR, Incoming, Malformed, RpcError},
    shared::{Kind, Shared, WhenStopped},
    tasks::Task,
    tools::{Prepared, SendAnswer},
    turn::{Held, RoutedBatch, Turn},
    version::{RequestMeta, WITH_BATCHES},
};
use crate::auth::Identity;

/// Batches of messages that may be with the router for one connection before it is read no further.
const ROUTES_LEN_MAX: usize = 8;
/// How long the frames of one connection may keep its worker busy in a row, and how long the connection rests then, so
/// that others are served. One frame takes at most about 20 ms; many small ones come with one read, or as a batch.
const BUSY_MAX_MS: u64 = 10;
const REST_AFTER_BUSY: Duration = Duration::from_millis(1);

/// Bytes of answers that may be reserved, or wait, for one connection before another of its frames is taken up.
const RESERVED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The MCP side of one connection. Lives on the connection's thread.
pub struct Peer {
    shared: Rc<Shared>,
    turn: Turn,
    malformed_in_a_row: usize,
    /// Nothing is read until it is over.
    rest: Option<Pin<Box<Sleep>>>,
    /// When the frames that are taken up now began to keep the worker busy, on the monotonic clock.
    busy_since_ms: u64,
    /// Where an answer is written, and the object in it.
    scratch: Vec<u8>,
    object: Vec<u8>,
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
    /// The peer of a lasting connection.
    pub fn new(identity: Arc<Identity>, outbox: Arc<Outbox>, service: Arc<Service>) -> Self {
        Self::of(Shared::new(identity, outbox, service, Kind::Lasting))
    }

    /// The peer of an HTTP session (2025-11-25 and before). Nothing is pushed to it until somebody listens.
    pub fn resumable(identity: Arc<Identity>, outbox: Arc<Outbox>, service: Arc<Service>) -> Self {
        let shared = Shared::new(identity, outbox, service, Kind::Resumable);
        shared.listening.set(false);
        Self::of(shared)
    }

    /// The peer of one request that stands for itself.
    pub fn stateless(identity: Arc<Identity>, outbox: Arc<Outbox>, service: Arc<Service>) -> Self {
        Self::of(Shared::new(identity, outbox, service, Kind::Stateless))
    }

    fn of(shared: Rc<Shared>) -> Self {
        Self {
            turn: Turn::new(Rc::clone(&shared)),
            shared,
            malformed_in_a_row: 0,
            rest: None,
            busy_since_ms: clock::mono_ms(),
            scratch: Vec::new(),
            object: Vec::new(),
        }
    }

    /// What is taken from now on was read then.
    pub fn reads(&mut self, at: ReadAt, now: Now) {
        self.shared.read_at.set(at);
        self.busy_since_ms = now.mono_ms;
    }

    /// The connection ends with an error: what was written to it last may never have arrived.
    pub fn was_reset(&self) {
        self.shared.was_reset.set(true);
    }

    /// Takes one frame. What it asks for may be done by [`Peer::end_turn`] only.
    pub fn frame(&mut self, text: &str) -> Taken {
        self.take(text, rpc::parse(text), Lane::Connection)
    }

    /// Takes one request, of which even the `_meta` has been read.
    pub fn request(&mut self, text: &str, request: Incoming<'_>, meta: RequestMeta) {
        self.turn.read_meta = Some(Box::new(meta));
        self.take(text, Ok(request), Lane::Connection);
    }

    /// Takes one frame that has been parsed; what belongs to it goes to `lane`.
    pub fn take(&mut self, text: &str, parsed: Result<Incoming<'_>, Malformed<'_>>, lane: Lane) -> Taken {
        if !self.takes_up() {
            self.turn.held.push_back(Held {
                text: text.to_owned(),
                lane,
                counted: false,
                read_at: self.shared.read_at.get(),
            });
            return Taken::Fine;
        }
        let before = self.turn.prepared.len();
        let answered_by = lane.clone();
        let dispatched = catch_unwind(AssertUnwindSafe(|| {
            self.timed(|peer| peer.dispatch(text, parsed, lane))
        }));
        dispatched.unwrap_or_else(|_| {
            self.turn.prepared.truncate(before);
            if let Ok(Incoming::Request { id, .. }) = rpc::parse(text) {
                let error = RpcError::new(INTERNAL_ERROR, "Internal error");
                answered_by.refuse(&self.shared.outbox, Some(id), &error);
            }
            Taken::Fine
        })
    }

    /// Has the connection rest when its frames have kept the worker busy for too long.
    fn timed<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        let result = run(self);
        if clock::mono_ms().saturating_sub(self.busy_since_ms) >= BUSY_MAX_MS {
            self.rest = Some(Box::pin(sleep(REST_AFTER_BUSY)));
        }
        result
    }

    fn dispatch(&mut self, text: &str, parsed: Result<Incoming<'_>, Malformed<'_>>, lane: Lane) -> Taken {
        let well_formed = match parsed {
            Ok(incoming) => self.incoming(incoming, text, lane),
            Err(Malformed { id, code, message }) => {
                // It counts like a request. The answer says what is wrong with it all the same.
                let _ = self.shared.take_request(&lane, text.len());
                lane.refuse(&self.shared.outbox, id, &RpcError::new(code, message));
                if code != rpc::PARSE_ERROR {
                    return Taken::Fine;
                }
                false
            }
        };
        if well_formed {
            self.malformed_in_a_row = 0;
            return Taken::Fine;
        }
        self.malformed_in_a_row += 1;
        Taken::Malformed {
            in_a_row: self.malformed_in_a_row,
        }
    }

    /// False when it turned out not to be JSON.
    fn incoming(&mut self, incoming: Incoming<'_>, text: &str, lane: Lane) -> bool {
        match incoming {
            Incoming::Request { id, method, params } => {
                return dispatch::request(&mut self.turn, ReplyTo::new(id, lane), &method, params, text);
            }
            Incoming::Notification { method, params } => dispatch::notification(&mut self.turn, &method, &params),
            Incoming::Response { id, outcome } => self.shared.asked.answered(id, outcome),
            Incoming::Batch(frames) => {
                if lane.is_batch() || !self.takes_batches() {
                    let error = RpcError::new(rpc::INVALID_REQUEST, "Invalid Request: batches are of 2025-03-26 only");
                    lane.refuse(&self.shared.outbox, None, &error);
                    return true;
                }
                if dispatch::holds_back(&mut self.turn, text, &frames, &lane) {
                    return true;
                }
                let batch = Batch::new(&self.shared.outbox, lane);
                for frame in frames {
                    let lane = Lane::Batch(Rc::clone(&batch));
                    if self.rest.is_some() {
                        self.turn.held.push_back(Held {
                            text: frame.to_owned(),
                            lane,
                            counted: false,
                            read_at: self.shared.read_at.get(),
                        });
                    } else {
                        self.timed(|peer| peer.dispatch(frame, rpc::parse(frame), lane));
                    }
                }
            }
        }
        true
    }

    fn takes_batches(&self) -> bool {
        let legacy = self.shared.legacy.borrow();
        legacy.as_ref().is_some_and(|legacy| legacy.version == WITH_BATCHES)
    }

    /// The version that `initialize` agreed on.
    pub fn version(&self) -> Option<&'static str> {
        self.shared.legacy.borrow().as_ref().map(|legacy| legacy.version)
    }

    /// Whether somebody reads what is sent unasked, as on a connection of any other kind always somebody does.
    pub fn set_listening(&self, listening: bool) {
        if self.shared.listening.replace(listening) != listening {
            self.shared.subscriptions_changed();
        }
        if listening && self.shared.unread() > 0 {
            // What was told before may have been lost with whoever read it.
            self.shared.outbox.inbox_changed();
        }
    }

    /// The client is here again after the broker may have let go of it.
    pub fn come_back(&self) {
        self.shared.come_back();
    }

    /// Hands over what the turn's frames want sent.
    pub fn end_turn(&mut self, now: Now) {
        if let Some(member) = &*self.shared.session.borrow() {
            member.touch(self.shared.project.settings().presence, now);
        }
        if self.turn.prepared.is_empty() {
            return;
        }
        let (mut submissions, mut waiting) = (Vec::with_capacity(self.turn.prepared.len()), Vec::new());
        for Prepared { dispatch, answer } in self.turn.prepared.drain(..) {
            match dispatch {
                Dispatch::Home(submission) => {
                    submissions.push(submission);
                    waiting.push(Some(answer));
                }
                Dispatch::Abroad(crossing) => cross(&self.shared, *crossing, answer),
            }
        }
        if submissions.is_empty() {
            return;
        }
        match self.shared.project.submit(submissions) {
            Ok(answers) => {
                let counting = self.count_for(&waiting);
                self.turn.routes.push_back(RoutedBatch {
                    answers,
                    counting,
                    waiting,
                });
            }
            Err(error) => {
                for answer in waiting.into_iter().flatten() {
                    self.shared.refuse(&answer.to, &error);
                }
            }
        }
    }

    /// Asks how much waits for the senders of a batch, where that is not known. Nearly always there is one sender.
    fn count_for(&self, waiting: &[Option<SendAnswer>]) -> Option<BoxFuture<'static, ()>> {
        let mut senders: Vec<&Arc<Member>> = Vec::new();
        for sender in waiting.iter().flatten().map(SendAnswer::sender) {
            if !senders.iter().any(|known| Arc::ptr_eq(known, sender)) {
                senders.push(sender);
            }
        }
        let mut counts: Vec<_> = senders
            .into_iter()
            .filter_map(|sender| self.shared.project.count_if_doubtful(sender))
            .collect();
        match counts.len() {
            0 | 1 => counts.pop(),
            _ => Some(Box::pin(join_all(counts).map(drop))),
        }
    }

    /// Whether more frames should be read now. When not, a later poll of [`Peer::poll`] changes it.
    pub fn wants_frames(&self) -> bool {
        self.takes_up() && self.turn.held.is_empty() && self.turn.routes.len() < ROUTES_LEN_MAX
    }

    /// Bytes of the frames that are held back.
    pub fn held_len(&self) -> usize {
        self.turn.held.iter().map(|held| held.text.len()).sum()
    }

    /// Whether frames that were held back can be taken up now.
    pub fn can_go_on(&self) -> bool {
        self.takes_up() && !self.turn.held.is_empty()
    }

    /// Whether a frame is taken up: no call is under way that it may not overtake, the caller has not asked for too much,
    /// and reads its answers.
    fn takes_up(&self) -> bool {
        let waiting_len = match self.shared.kind {
            Kind::Lasting => self.shared.outbox.waiting_len(),
            Kind::Resumable | Kind::Stateless => 0,
        };
        let is_full = waiting_len >= ANSWER_BYTES_MAX || waiting_len + self.shared.reserved.get() >= RESERVED_BYTES_MAX;
        let rests = self.shared.rests() || self.rest.is_some();
        !self.shared.is_exclusive() && !rests && !is_full
    }

    /// Answers what the router has answered, and goes on with frames that were held back.
    pub fn poll(&mut self, cx: &mut Context<'_>, now: Now) {
        self.shared.polled_by(cx.waker());
        self.busy_since_ms = now.mono_ms;
        loop {
            self.poll_rest(cx);
            self.poll_routes(cx);
            if !self.can_go_on() {
                return;
            }
            while self.takes_up()
                && let Some(held) = self.turn.held.pop_front()
            {
                let Held {
                    text,
                    lane,
                    counted,
                    read_at,
                } = held;
                self.shared.counted.set(counted);
                self.shared.read_at.set(read_at);
                self.take(&text, rpc::parse(&text), lane);
                self.shared.counted.set(false);
                self.shared.caught_up.take();
            }
            // What it sends is with the router now, whose answer has to know whom to wake.
            self.end_turn(now);
            self.shared.outbox.wake();
        }
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) {
        if let Some(rest) = self.shared.rest() {
            self.rest = Some(Box::pin(sleep(rest)));
        }
        if self.rest.as_mut().is_some_and(|rest| rest.as_mut().poll(cx).is_ready()) {
            self.rest = None;
        }
    }

    fn poll_routes(&mut self, cx: &mut Context<'_>) {
        while let Some(batch) = self.turn.routes.front_mut() {
            if let Some(counting) = &mut batch.counting {
                if counting.as_mut().poll(cx).is_pending() {
                    break;
                }
                batch.counting = None;
            }
            let Poll::Ready(answers) = Pin::new(&mut batch.answers).poll(cx) else {
                break;
            };
            if let Some(RoutedBatch { waiting, .. }) = self.turn.routes.pop_front() {
                self.answer(waiting, answers.unwrap_or_default());
            }
        }
    }

    fn answer(&mut self, waiting: Vec<Option<SendAnswer>>, answers: Vec<Answer>) {
        let mut answers = answers.into_iter();
        for waiting in waiting {
            // None: the router panicked over the batch; what it had accepted is delivered, nothing is claimed.
            let answer = answers.next().unwrap_or(Err(BrokerError::unavailable()));
            let Some(mut waiting) = waiting else { continue };
            waiting.leaves_place();
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
            } else if waiting.lasts()
                && let Some(task) = self.shared.become_task(&waiting.to)
            {
                run_as_task(&self.shared, &task, waiting, routed);
            } else {
                let mut so_far = Vec::new();
                waiting.write(&mut so_far, &mut self.object, &routed);
                let (to, home) = (waiting.to.clone(), Rc::clone(&self.shared));
                let settling = async move { settle(&home, &waiting, routed).await };
                self.shared.spawn(&to, WhenStopped::IsAnswered(so_far), settling);
            }
        }
    }

    /// The broker ends the connection: every open `subscriptions/listen` gets its result (2026-07-28, subscriptions).
    /// False when there is none.
    pub fn say_farewell(&self) -> bool {
        let ended = self.shared.subscriptions.borrow_mut().end_all();
        if ended.is_empty() {
            return false;
        }
        for id in ended {
            let result = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"resultType\":\"complete\",\"_meta\":\
                 {{\"io.modelcontextprotocol/subscriptionId\":{id},\"io.modelcontextprotocol/serverInfo\":{}}}}}}}",
                server_info_text()
            );
            self.shared.outbox.respond(result.as_bytes(), None);
        }
        self.shared.subscriptions_changed();
        true
    }

    /// Who waits for this exchange has left before the answer was written. What was taken for it waits again, and a
    /// wait ends; what else is done goes on (2025-11-25, basic/transports: a disconnection is no cancellation).
    pub fn caller_left(&mut self, exchange: &Outbox) {
        self.turn
            .held
            .retain(|held| !(held.lane.leads_to(exchange) && dispatch::takes_messages(&held.text)));
        self.shared.caller_left(exchange);
    }

    /// The broker stops: what waits for this exchange, or at all, is answered as far as it has come. False while
    /// something is being done, which is finished first: to be asked again whenever the peer was polled.
    pub fn winds_up(&self, exchange: Option<&Outbox>) -> bool {
        // What is sent may become a wait.
        self.shared.give_up_waits(exchange) && self.turn.routes.is_empty()
    }

    /// Whether something was taken out of an inbox for one of the requests.
    pub fn has_taken(&self) -> bool {
        self.shared.has_taken()
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
        self.turn.routes.shrink_to_fit();
    }
}

/// Waits as a task for the status that the sender wants.
fn run_as_task(shared: &Shared, task: &Arc<Task>, waiting: SendAnswer, routed: Routed) {
    let project = shared.project.clone();
    let call = async move {
        let settled = waiting.settle(&project, routed).await;
        Ok(waiting.answer(&settled))
    };
    shared.run_as_task(task, None, call);
}

/// Has another project take a message, and answers its sender. Several of one connection are begun in their order.
fn cross(shared: &Rc<Shared>, crossing: Crossing, mut waiting: SendAnswer) {
    waiting.leaves_place();
    if !shared.has_room_for_calls() {
        return shared.refuse(&waiting.to, &BrokerError::unavailable());
    }
    let (home, to) = (Rc::clone(shared), waiting.to.clone());
    let project = shared.project.clone();
    // It goes on without its sender, who may try again with the same idempotency key.
    let crossing = actix_rt::spawn(async move { project.cross(crossing).await });
    shared.spawn(&to, WhenStopped::Finishes, async move {
        let routed = match crossing.await.unwrap_or(Err(BrokerError::unavailable())) {
            Ok(routed) => routed,
            Err(error) => return home.refuse(&waiting.to, &error),
        };
        let mut so_far = Vec::new();
        waiting.write(&mut so_far, &mut Vec::new(), &routed);
        if waiting.is_settled_by(&routed) {
            waiting.to.send(&home.outbox, &so_far);
        } else if waiting.lasts()
            && let Some(task) = home.become_task(&waiting.to)
        {
            run_as_task(&home, &task, waiting, routed);
        } else {
            home.can_be_answered(&waiting.to, so_far);
            settle(&home, &waiting, routed).await;
        }
    });
}

/// Waits for the status that the sender wants, and answers it.
async fn settle(shared: &Shared, waiting: &SendAnswer, routed: Routed) {
    let settled = waiting.settle(&shared.project, routed).await;
    let mut out = Vec::new();
    waiting.write(&mut out, &mut Vec::new(), &settled);
    waiting.to.send(&shared.outbox, &out);
}

impl Drop for Peer {
    /// The connection is over: calls are given up, and what was not acknowledged waits again.
    fn drop(&mut self) {
        self.shared.give_up_calls();
        self.shared.untie();
    }
}
