//! What is to be written to one peer: bounded, coalesced, filled from any thread, drained by one.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Waker,
    time::Duration,
};

use actors::{
    model::ConnectionId,
    session::{CloseReason, Connection, ReadReservation, UNRESERVED_BYTES_MAX},
    storage::Delivery,
};
use futures_util::task::AtomicWaker;

use super::{
    charge::OutboxCharge,
    framing::{Framing, ResponseForm, replace_line_breaks, text_frame_header},
    pending_receive::{PendingReceive, WriteMarks},
};
use crate::budget::Reservation;

/// Bytes of pushed messages that may wait for the socket. One message may go beyond it.
pub const PUSH_BYTES_MAX: usize = 512 * 1024;
/// Once this many bytes wait, no further request is read until the peer has read some answers.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// How often a transport looks for room for messages that were refused, where others have to make it.
pub const ROOM_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The response to the request of an exchange was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueuedResponse {
    /// The code of the JSON-RPC error, if it is one.
    error: Option<i32>,
    /// It is the whole body, not the last of the events.
    whole: bool,
}

/// How the response of an exchange begins.
#[derive(Debug)]
pub enum ResponseStart {
    /// With the answer, and nothing else comes. `error` is the code in it.
    Whole { body: Vec<u8>, error: Option<i32> },
    /// With a stream of events. `error` is the code in the answer, if that is there already.
    Stream { error: Option<i32> },
    /// There is none, for its request was cancelled.
    Abandoned,
}

/// The writing half of a live connection.
pub struct Outbox {
    id: ConnectionId,
    framing: Framing,
    waker: AtomicWaker,
    /// Something was queued, or happened, since the transport last looked.
    is_signalled: AtomicBool,
    /// Bytes that wait, in the queue or with the transport.
    waiting_len: AtomicUsize,
    /// The session was told that there is no room; it is to be told when there is.
    push_refused: AtomicBool,
    /// For so many bytes.
    push_refused_bytes: AtomicUsize,
    /// Another connection has the session now.
    taken_over: AtomicBool,
    /// A [`Keeper`] counts what waits.
    is_retained: AtomicBool,
    queue: Mutex<Queue>,
    charge: Option<OutboxCharge>,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// Bytes ever queued, and the marks in them: what ends at a mark is written when the bytes before it are.
    queued_bytes_total: u64,
    marks: WriteMarks,
    /// What goes around a pushed message, if the peer takes them.
    push: Option<PushFrame>,
    /// One frame for each subscription to the inbox.
    inbox_frames: Vec<Box<[u8]>>,
    /// These frames are in the queue already.
    inbox_announced: bool,
    closing: Option<CloseReason>,
    /// Nothing more may be sent.
    ended: bool,
    /// Events queued so far.
    events_len: u64,
    exchange: ExchangeState,
}

/// How far the answer of an exchange has come.
#[derive(Default)]
struct ExchangeState {
    answered: Option<QueuedResponse>,
    streaming: bool,
    interrupted: bool,
    abandoned: bool,
    reader_gone: Option<ReaderGone>,
}

/// The reader of an exchange has left.
struct ReaderGone {
    /// More bytes than these are not kept for a reader that comes back.
    bytes_max: usize,
    keeper: Weak<dyn RetentionCounter>,
}

/// Counts what waits in an outbox that has no reader, instead of the budget of what is under way.
pub trait RetentionCounter: Send + Sync {
    /// More or less waits than before.
    fn recount(&self);
}

/// The bytes before and after the message object of a push notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushFrame {
    pub before: Box<[u8]>,
    pub after: Box<[u8]>,
}

impl Queue {
    /// What was queued last is an answer that brings messages.
    fn mark_receives(&mut self, takings: impl IntoIterator<Item = PendingReceive>) {
        for taking in takings {
            self.marks.receives.push_back((self.queued_bytes_total, taking));
        }
    }
}

impl Outbox {
    pub fn new(framing: Framing) -> Self {
        Self {
            id: ConnectionId::next(),
            framing,
            waker: AtomicWaker::new(),
            is_signalled: AtomicBool::new(false),
            waiting_len: AtomicUsize::new(0),
            push_refused: AtomicBool::new(false),
            push_refused_bytes: AtomicUsize::new(0),
            taken_over: AtomicBool::new(false),
            is_retained: AtomicBool::new(false),
            queue: Mutex::default(),
            charge: None,
        }
    }

    /// One whose bytes count against a budget.
    pub fn with_budget(framing: Framing, hold: Reservation) -> Self {
        Self {
            charge: Some(OutboxCharge::new(hold)),
            ..Self::new(framing)
        }
    }

    /// Bytes that wait and that no [`Keeper`] counts.
    fn charged_len(&self) -> usize {
        if self.is_retained.load(Ordering::Relaxed) {
            0
        } else {
            self.waiting_len()
        }
    }

    /// Tells the budget how much waits, when that has changed by much.
    fn update_budget(&self) {
        if let Some(charge) = &self.charge {
            charge.update(self.charged_len());
        }
    }

    /// Whether messages wait for room that others have to make.
    pub fn is_push_blocked(&self) -> bool {
        self.push_refused.load(Ordering::Acquire) && self.waiting_len() < PUSH_BYTES_MAX / 2
    }

    /// Whether messages may be pushed again, of which the session was told that there was no room. Says so once. Asked
    /// from time to time: what makes room may be far from here.
    pub fn take_unblocked(&self) -> bool {
        let bytes = self.push_refused_bytes.load(Ordering::Relaxed);
        let has_room = self.charge.as_ref().is_none_or(|charge| charge.may_have_room(bytes));
        self.is_push_blocked() && has_room && self.push_refused.swap(false, Ordering::AcqRel)
    }

    /// Queues one frame.
    pub fn send(&self, frame: &[u8]) {
        if let Framing::Exchange {
            form: ResponseForm::Whole,
            ..
        } = self.framing
        {
            return;
        }
        let mut queue = self.queue();
        self.append(&mut queue, frame.len(), |out| out.extend_from_slice(frame));
        self.after_queueing(queue);
    }

    /// Queues the response to a request; `error` is the code in it. An exchange ends with it.
    pub fn respond(&self, frame: &[u8], error: Option<i32>) {
        self.respond_with_receives(frame, error, None);
    }

    /// The same for a response that brings messages.
    pub fn respond_with_receives(
        &self,
        frame: &[u8],
        error: Option<i32>,
        takings: impl IntoIterator<Item = PendingReceive>,
    ) {
        let mut queue = self.queue();
        if queue.ended {
            return;
        }
        let Framing::Exchange { form, .. } = self.framing else {
            self.append(&mut queue, frame.len(), |out| out.extend_from_slice(frame));
            queue.mark_receives(takings);
            return self.after_queueing(queue);
        };
        let whole = match form {
            ResponseForm::Either => queue.queued_bytes_total == 0 && !queue.exchange.streaming,
            ResponseForm::Events => queue.queued_bytes_total == 0 && !queue.exchange.streaming && error.is_some(),
            ResponseForm::EventsOnly => false,
            ResponseForm::Whole => true,
        };
        if whole {
            queue.bytes.extend_from_slice(frame);
            queue.queued_bytes_total += frame.len() as u64;
            self.waiting_len.fetch_add(frame.len(), Ordering::Relaxed);
        } else {
            self.append(&mut queue, frame.len(), |out| out.extend_from_slice(frame));
        }
        queue.mark_receives(takings);
        queue.exchange.answered = Some(QueuedResponse { error, whole });
        queue.ended = true;
        self.after_queueing(queue);
    }

    /// Something was queued: wakes who writes it, or tells who keeps it for a reader that comes back.
    fn after_queueing(&self, queue: MutexGuard<'_, Queue>) {
        if queue.exchange.reader_gone.is_some() {
            self.after_queueing_unread(queue);
        } else {
            drop(queue);
            self.update_budget();
        }
        self.wake();
    }

    #[cold]
    fn after_queueing_unread(&self, mut queue: MutexGuard<'_, Queue>) {
        self.drop_unread(&mut queue);
        let keeper = queue
            .exchange
            .reader_gone
            .as_ref()
            .and_then(|left| left.keeper.upgrade());
        drop(queue);
        self.update_budget();
        if let Some(keeper) = keeper {
            keeper.recount();
        }
    }

    /// How the response of an exchange begins, as soon as that can be said; `events_at_once` begins a stream before
    /// there is anything in it. What is said here holds: whatever is queued from now on fits it.
    pub fn response_start(&self, events_at_once: bool) -> Option<ResponseStart> {
        let mut queue = self.queue();
        if let Some(QueuedResponse { error, whole: true }) = queue.exchange.answered {
            let body = std::mem::take(&mut queue.bytes);
            return Some(ResponseStart::Whole { body, error });
        }
        if queue.exchange.abandoned {
            return Some(ResponseStart::Abandoned);
        }
        let begins = events_at_once || queue.queued_bytes_total > 0 || queue.exchange.interrupted;
        if begins {
            queue.exchange.streaming = true;
            let error = queue.exchange.answered.and_then(|answered| answered.error);
            return Some(ResponseStart::Stream { error });
        }
        None
    }

    /// The answers of an exchange that bring messages and that [`Outbox::take`] has not handed out.
    pub fn take_receives(&self) -> impl Iterator<Item = PendingReceive> {
        std::mem::take(&mut self.queue().marks.receives)
            .into_iter()
            .map(|(_, taking)| taking)
    }

    /// Whether the response is queued and was taken to its end.
    pub fn is_done(&self) -> bool {
        let queue = self.queue();
        queue.exchange.answered.is_some() && queue.bytes.is_empty()
    }

    /// Begins a stream of events before there is any (SSE, a comment), or keeps an idle one alive.
    pub fn send_comment(&self) {
        self.send_raw(b": keep-alive\n\n");
    }

    /// Whether its events have numbers.
    pub fn is_numbered(&self) -> bool {
        matches!(
            self.framing,
            Framing::Events { stream: Some(_) } | Framing::Exchange { stream: Some(_), .. }
        )
    }

    /// How many events were queued so far.
    pub fn events_len(&self) -> u64 {
        self.queue().events_len
    }

    /// Ends the HTTP response that carries an exchange, and not the exchange: the peer comes back for the rest.
    pub fn interrupt(&self) {
        self.queue().exchange.interrupted = true;
        self.wake();
    }

    /// There will be no answer: the caller has cancelled its request.
    pub fn abandon(&self) {
        let mut queue = self.queue();
        queue.exchange.abandoned = true;
        queue.ended = true;
        drop(queue);
        self.wake();
    }

    /// The reader of an exchange has left. At most so many bytes of it are kept for one who comes back: with more of them
    /// there will be no answer. The keeper counts them from now on.
    pub fn detach_reader(&self, bytes_max: usize, keeper: Weak<dyn RetentionCounter>) {
        let mut queue = self.queue();
        queue.exchange.reader_gone = Some(ReaderGone { bytes_max, keeper });
        self.is_retained.store(true, Ordering::Relaxed);
        self.drop_unread(&mut queue);
        drop(queue);
        self.update_budget();
    }

    /// Somebody reads it again.
    pub fn attach_reader(&self) {
        self.queue().exchange.reader_gone = None;
        self.is_retained.store(false, Ordering::Relaxed);
        self.update_budget();
    }

    fn drop_unread(&self, queue: &mut Queue) {
        let bytes_max = queue.exchange.reader_gone.as_ref().map(|left| left.bytes_max);
        if bytes_max.is_some_and(|max| queue.bytes.len() > max) {
            let dropped = std::mem::take(&mut queue.bytes);
            queue.exchange.abandoned = true;
            queue.exchange.answered = None;
            queue.ended = true;
            self.waiting_len.fetch_sub(dropped.len(), Ordering::Relaxed);
            self.update_budget();
        }
    }

    pub fn is_abandoned(&self) -> bool {
        self.queue().exchange.abandoned
    }

    /// Whether nothing was ever queued.
    pub fn is_unused(&self) -> bool {
        self.queue().queued_bytes_total == 0
    }

    /// Why the connection is to be closed, if it is.
    pub fn closing(&self) -> Option<CloseReason> {
        self.queue().closing
    }

    /// Whether the response is to be ended now; says so once.
    pub fn take_interrupt(&self) -> bool {
        std::mem::take(&mut self.queue().exchange.interrupted)
    }

    /// Takes back that the connection is to be closed, and says why it was to be. For a peer that is not gone with a
    /// connection, and came back.
    pub fn reopen(&self) -> Option<CloseReason> {
        let given_up = |why: &mut CloseReason| {
            let released = matches!(
                why,
                CloseReason::SessionEnded | CloseReason::Failed | CloseReason::StoreRolledBack
            );
            released || *why == CloseReason::Silent
        };
        self.queue().closing.take_if(given_up)
    }

    /// This connection has a session again.
    pub fn clear_taken_over(&self) {
        self.taken_over.store(false, Ordering::Release);
        self.queue().closing.take_if(|why| *why == CloseReason::TakenOver);
    }

    /// Somebody whose credential is good reads from here on, whatever became of the one before.
    pub fn clear_unauthorized(&self) {
        self.queue().closing.take_if(|why| *why == CloseReason::Unauthorized);
    }

    /// Queues the last bytes of the connection, as the transport has encoded them. What comes after is dropped: after a
    /// close frame nothing may be sent (RFC 6455, section 5.5.1).
    pub fn send_last(&self, bytes: &[u8]) {
        self.send_raw(bytes);
        self.queue().ended = true;
    }

    /// Queues a frame that is not text, as the transport has encoded it.
    pub fn send_raw(&self, bytes: &[u8]) {
        let mut queue = self.queue();
        if queue.ended {
            return;
        }
        queue.bytes.extend_from_slice(bytes);
        queue.queued_bytes_total += bytes.len() as u64;
        self.waiting_len.fetch_add(bytes.len(), Ordering::Relaxed);
        drop(queue);
        self.wake();
    }

    /// How messages are to be pushed from now on, and what tells of changes of the inbox.
    pub fn configure(&self, push: Option<PushFrame>, inbox_frames: Vec<Box<[u8]>>) {
        let mut queue = self.queue();
        queue.push = push;
        queue.inbox_frames = inbox_frames;
    }

    /// Whether another connection has the session now: nothing is done for this one any more.
    pub fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Acquire)
    }

    /// Bytes that wait for the socket.
    pub fn waiting_len(&self) -> usize {
        self.waiting_len.load(Ordering::Relaxed)
    }

    /// Moves what is queued to `into`, which must be empty, and its marks to `marks`. Returns why the connection
    /// is to be closed after that, if it is.
    pub fn take(&self, into: &mut Vec<u8>, marks: &mut WriteMarks) -> Option<CloseReason> {
        self.is_signalled.store(false, Ordering::Release);
        let mut queue = self.queue();
        std::mem::swap(&mut queue.bytes, into);
        marks.append(&mut queue.marks);
        queue.inbox_announced = false;
        queue.closing
    }

    /// Says that this many bytes went to the socket. True when the session waits for room and there is some now.
    pub fn note_written(&self, len: usize) -> bool {
        let before = self.waiting_len.fetch_sub(len, Ordering::Relaxed);
        self.update_budget();
        before.saturating_sub(len) < PUSH_BYTES_MAX / 2 && self.push_refused.swap(false, Ordering::AcqRel)
    }

    /// Wakes the transport, as if something had been queued.
    pub fn wake(&self) {
        self.is_signalled.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// The transport is awake: nobody has to be woken until it calls [`Outbox::sleep`].
    pub fn set_awake(&self) {
        drop(self.waker.take());
    }

    /// The task to wake from now on. False when something was queued meanwhile, and is to be written first.
    pub fn register_waker(&self, waker: &Waker) -> bool {
        self.waker.register(waker);
        !self.is_signalled.swap(false, Ordering::AcqRel)
    }

    fn append(&self, queue: &mut Queue, len: usize, write: impl FnOnce(&mut Vec<u8>)) {
        if queue.ended {
            return;
        }
        let before = queue.bytes.len();
        match self.framing {
            Framing::WebSocket => {
                text_frame_header(&mut queue.bytes, len);
                write(&mut queue.bytes);
            }
            Framing::Line => {
                write(&mut queue.bytes);
                replace_line_breaks(&mut queue.bytes[before..]);
                queue.bytes.push(b'\n');
            }
            Framing::Events { stream } | Framing::Exchange { stream, .. } => {
                queue.events_len += 1;
                if let Some(stream) = stream {
                    let number = queue.events_len;
                    queue
                        .bytes
                        .extend_from_slice(format!("id: {stream}-{number}\n").as_bytes());
                }
                queue.bytes.extend_from_slice(b"event: message\ndata: ");
                let data = queue.bytes.len();
                write(&mut queue.bytes);
                replace_line_breaks(&mut queue.bytes[data..]);
                queue.bytes.extend_from_slice(b"\n\n");
            }
        }
        let added = queue.bytes.len() - before;
        queue.queued_bytes_total += added as u64;
        self.waiting_len.fetch_add(added, Ordering::Relaxed);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection for Outbox {
    fn id(&self) -> ConnectionId {
        self.id
    }

    fn reserve(self: Arc<Self>, bytes: usize) -> Option<ReadReservation> {
        let waiting = self.waiting_len();
        let reserves = waiting < PUSH_BYTES_MAX
            && self
                .charge
                .as_ref()
                .is_none_or(|charge| charge.reserve(self.charged_len(), bytes));
        if !reserves {
            self.push_refused_bytes.store(bytes, Ordering::Relaxed);
            self.push_refused.store(true, Ordering::Release);
            // Of room that others make, the transport hears only when it looks.
            self.wake();
            return None;
        }
        if self.push_refused.load(Ordering::Relaxed) {
            self.push_refused.store(false, Ordering::Release);
        }
        if bytes <= UNRESERVED_BYTES_MAX || self.charge.is_none() {
            return Some(ReadReservation::default());
        }
        Some(ReadReservation::with_guard(ReservedBytes { outbox: self, bytes }))
    }

    fn push(&self, deliveries: &[Delivery]) {
        if deliveries.is_empty() {
            return;
        }
        let mut queue = self.queue();
        // Asked not to push any more since the lease: what is lost here was leased, and waits again with the next
        // release.
        let Some(frame) = queue.push.take() else { return };
        for Delivery { message, count } in deliveries {
            let len = frame.before.len() + message.encoded_len(*count) + frame.after.len();
            self.append(&mut queue, len, |out| {
                out.extend_from_slice(&frame.before);
                message.write(out, *count);
                out.extend_from_slice(&frame.after);
            });
            if !queue.ended {
                let end = queue.queued_bytes_total;
                queue.marks.messages.push_back((end, message.id));
            }
        }
        queue.push = Some(frame);
        drop(queue);
        // What was reserved for them stands for them until it is given back.
        if self.charge.as_ref().is_some_and(|charge| charge.reserved_bytes() == 0) {
            self.update_budget();
        }
        self.wake();
    }

    fn notify_inbox_changed(&self) {
        let mut queue = self.queue();
        if queue.inbox_frames.is_empty() || std::mem::replace(&mut queue.inbox_announced, true) {
            return;
        }
        let frames = std::mem::take(&mut queue.inbox_frames);
        for frame in &frames {
            self.append(&mut queue, frame.len(), |out| out.extend_from_slice(frame));
        }
        queue.inbox_frames = frames;
        drop(queue);
        self.update_budget();
        self.wake();
    }

    fn close(&self, why: CloseReason) {
        if why == CloseReason::TakenOver {
            self.taken_over.store(true, Ordering::Release);
        }
        self.queue().closing.get_or_insert(why);
        self.wake();
    }
}

/// Bytes that an outbox has reserved for messages that are being read.
struct ReservedBytes {
    outbox: Arc<Outbox>,
    bytes: usize,
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        if let Some(charge) = &self.outbox.charge {
            charge.unreserve(self.outbox.charged_len(), self.bytes);
        }
    }
}
