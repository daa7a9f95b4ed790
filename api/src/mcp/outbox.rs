//! The output queue of one peer. It is bounded, any thread may fill it, one task drains it.
//!
//! It knows framing and budgets; it must not know what a frame means.

mod connection;
pub mod exchange;

use std::{
    sync::{
        MutexGuard, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    task::Waker,
    time::Duration,
};

use actors::{
    locked::Locked,
    model::{ConnectionId, Rungs},
    session::{CloseReason, UNRESERVED_BYTES_MAX},
};
use futures_util::task::AtomicWaker;

use super::{
    lines::replace_line_breaks,
    pending_receive::{AnswerMark, HandedOver, WriteMarks},
};
use crate::budget::{Gauge, Reservation};
use common::json::frame::JsonText;

/// Bytes of pushed messages that may wait for the socket. One message may exceed it.
pub const PUSH_BYTES_MAX: usize = 512 * 1024;
/// While this many bytes wait, no further request is read from the peer.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Bytes from which on a frame is large.
const LARGE_LEN: usize = 64 * 1024;
/// Bytes that surround a frame, at most a few more in a long stream.
const FRAMING_LEN: usize = 128;

/// How often a transport checks whether refused messages have room in the shared budget.
pub const ROOM_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// How frames are separated in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// RFC 6455, unmasked text frames.
    WebSocket,
    /// One frame per line.
    Line,
    /// One server-sent event per frame (HTML, section 9.2). `stream` is the id of the stream; with it, events are
    /// numbered so that a client can resume.
    Events { stream: Option<u64> },
    /// The answer to one request over HTTP.
    Exchange { stream: Option<u64>, form: ResponseForm },
}

/// The body that the answer to a request over HTTP may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseForm {
    /// A response that comes first is the whole body; anything else begins a stream of events.
    Either,
    /// A stream of events, even for a single one; an error that comes first is the whole body.
    Events,
    /// Always a stream of events.
    EventsOnly,
    /// The response only: the client accepts no events, so notifications are dropped.
    Whole,
}

/// The response to the request of an exchange, once queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueuedResponse {
    /// The code of the JSON-RPC error, if it is one.
    error: Option<i32>,
    /// The response is the whole body, as opposed to the last event of a stream.
    whole: bool,
}

/// The writing half of a live connection.
pub struct Outbox {
    id: ConnectionId,
    framing: Framing,
    waker: AtomicWaker,
    /// Something was queued or happened since the transport last looked.
    is_signalled: AtomicBool,
    /// Bytes in the queue and with the transport.
    waiting_len: AtomicUsize,
    /// The session was refused a reservation and must be notified when there is room.
    push_refused: AtomicBool,
    /// The bytes of the refused reservation.
    push_refused_bytes: AtomicUsize,
    /// Another connection has taken the session over.
    taken_over: AtomicBool,
    /// How the peer can wake its agent.
    rungs: AtomicU8,
    /// A [`RetentionCounter`] counts the waiting bytes.
    is_retained: AtomicBool,
    queue: Locked<Queue>,
    charge: Option<OutboxCharge>,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// Bytes queued since the start. A mark at `n` is reached when the first `n` bytes have been written.
    queued_bytes_total: u64,
    marks: WriteMarks,
    /// The frame around a pushed message, if the peer subscribed to messages.
    push: Option<PushFrame>,
    /// One frame per subscription to changes of the inbox.
    inbox_frames: Vec<Box<[u8]>>,
    /// The queue contains `inbox_frames` already.
    inbox_announced: bool,
    closing: Option<CloseReason>,
    /// Further frames are dropped.
    ended: bool,
    /// Events queued since the start.
    events_len: u64,
    exchange: ExchangeState,
}

/// The state of the answer to one HTTP request.
#[derive(Default)]
struct ExchangeState {
    answered: Option<QueuedResponse>,
    streaming: bool,
    interrupted: bool,
    abandoned: bool,
    reader_gone: Option<ReaderGone>,
}

/// What holds while an exchange has no reader.
struct ReaderGone {
    /// Bytes kept for a returning reader; a longer answer is discarded.
    bytes_max: usize,
    retention_counter: Weak<dyn RetentionCounter>,
}

/// Counts the bytes of outboxes without a reader, in place of the budget for outgoing bytes.
pub trait RetentionCounter: Send + Sync {
    /// The number of waiting bytes has changed.
    fn recount(&self);
}

/// The bytes before and after the message object of a push notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushFrame {
    /// The bytes before the message object.
    pub before: Box<[u8]>,
    /// The bytes before the members of the message's trace, which are followed by [`MESSAGE_MEMBER`]: instead of `before`
    /// for a message that has a trace.
    pub before_trace: Box<[u8]>,
    /// The bytes after it.
    pub after: Box<[u8]>,
}

/// The bytes between the trace of a pushed message and the message object.
pub const MESSAGE_MEMBER: &[u8] = b",\"message\":";

impl PushFrame {
    /// The parts before the object of a message with this `_meta`.
    fn before<'a>(&'a self, meta: Option<&'a [u8]>) -> [&'a [u8]; 3] {
        match meta {
            None => [&self.before, b"", b""],
            // The opening brace is part of `before_trace`.
            Some(meta) => [&self.before_trace, meta.get(1..).unwrap_or_default(), MESSAGE_MEMBER],
        }
    }
}

impl Queue {
    /// Marks the response that was queued last, from `start` on: writing it completes these receives.
    fn mark_receives(&mut self, start: u64, receives: impl IntoIterator<Item = HandedOver>) {
        for receive in receives {
            let range = start..self.queued_bytes_total;
            self.marks.receives.push_back(AnswerMark { range, receive });
        }
    }
}

impl Outbox {
    /// An outbox without a budget.
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
            rungs: AtomicU8::new(0),
            is_retained: AtomicBool::new(false),
            queue: Locked::default(),
            charge: None,
        }
    }

    /// An outbox whose bytes count against a budget.
    pub fn with_budget(framing: Framing, reservation: Reservation) -> Self {
        Self {
            charge: Some(OutboxCharge::new(reservation)),
            ..Self::new(framing)
        }
    }

    /// Waiting bytes, except those that a [`RetentionCounter`] counts.
    fn charged_len(&self) -> usize {
        if self.is_retained.load(Ordering::Relaxed) {
            0
        } else {
            self.waiting_len()
        }
    }

    /// Adapts the charge of the budget to the waiting bytes.
    fn update_budget(&self) {
        if let Some(charge) = &self.charge {
            charge.update(self.charged_len());
        }
    }

    /// Whether pushes wait for room in the shared budget only.
    pub fn is_push_blocked(&self) -> bool {
        self.push_refused.load(Ordering::Acquire) && self.waiting_len() < PUSH_BYTES_MAX / 2
    }

    /// Whether refused pushes have room now; true once per refusal. Transports poll it, because the room is made by
    /// other connections.
    pub fn take_unblocked(&self) -> bool {
        let bytes = self.push_refused_bytes.load(Ordering::Relaxed);
        let has_room = self.charge.as_ref().is_none_or(|charge| charge.may_have_room(bytes));
        self.is_push_blocked() && has_room && self.push_refused.swap(false, Ordering::AcqRel)
    }

    /// Queues one frame, which writes itself into the queue.
    pub fn send(&self, frame: impl JsonText) {
        if let Framing::Exchange {
            form: ResponseForm::Whole,
            ..
        } = self.framing
        {
            return;
        }
        let mut queue = self.queue.lock();
        self.append(&mut queue, frame);
        self.after_queueing(queue);
    }

    /// Queues the response to a request, which ends an exchange. `error` is its JSON-RPC error code, and `receives` are
    /// completed when it has been written.
    pub fn respond(&self, frame: impl JsonText, error: Option<i32>, receives: impl IntoIterator<Item = HandedOver>) {
        let mut queue = self.queue.lock();
        if queue.ended {
            return;
        }
        let start = queue.queued_bytes_total;
        let Framing::Exchange { form, .. } = self.framing else {
            self.append(&mut queue, frame);
            queue.mark_receives(start, receives);
            return self.after_queueing(queue);
        };
        let whole = match form {
            ResponseForm::Either => queue.queued_bytes_total == 0 && !queue.exchange.streaming,
            ResponseForm::Events => queue.queued_bytes_total == 0 && !queue.exchange.streaming && error.is_some(),
            ResponseForm::EventsOnly => false,
            ResponseForm::Whole => true,
        };
        if whole {
            self.append_with(&mut queue, |bytes| {
                bytes.reserve(frame.len_hint());
                frame.write_to(bytes);
            });
        } else {
            self.append(&mut queue, frame);
        }
        queue.mark_receives(start, receives);
        queue.exchange.answered = Some(QueuedResponse { error, whole });
        queue.ended = true;
        self.after_queueing(queue);
    }

    /// Wakes the transport, or updates the count of an exchange without a reader.
    fn after_queueing(&self, queue: MutexGuard<'_, Queue>) {
        if queue.exchange.reader_gone.is_some() {
            self.after_queueing_unread(queue);
        } else {
            drop(queue);
            self.update_budget();
        }
        self.wake();
    }

    /// Removes the response that hands this over, unless the transport has taken it: its caller has cancelled, and the
    /// messages return to the inbox. Only of a connection, whose frames are independent of each other.
    pub fn withdraw(&self, receive: &HandedOver) {
        if !matches!(self.framing, Framing::WebSocket | Framing::Line) {
            return;
        }
        let mut queue = self.queue.lock();
        let first = queue.queued_bytes_total - queue.bytes.len() as u64;
        let Some(range) = queue.marks.withdraw(receive, first) else {
            return;
        };
        let len = (range.end - range.start) as usize;
        let from = (range.start - first) as usize;
        queue.bytes.drain(from..from + len);
        queue.queued_bytes_total -= len as u64;
        drop(queue);
        self.waiting_len.fetch_sub(len, Ordering::Relaxed);
        self.update_budget();
    }

    /// The reason to close the connection, if it is to be closed.
    pub fn closing(&self) -> Option<CloseReason> {
        self.queue.lock().closing
    }

    /// Withdraws a close as taken over: this connection has registered a session again.
    pub fn clear_taken_over(&self) {
        self.taken_over.store(false, Ordering::Release);
        self.queue.lock().closing.take_if(|why| *why == CloseReason::TakenOver);
    }

    /// Queues the last bytes of the connection, already encoded. Later frames are dropped: a close frame must be the
    /// last (RFC 6455, section 5.5.1).
    pub fn send_last(&self, bytes: &[u8]) {
        self.send_raw(bytes);
        self.queue.lock().ended = true;
    }

    /// The peer has said how it can wake its agent. Call it before the peer registers a session.
    pub fn set_rungs(&self, rungs: Rungs) {
        self.rungs.store(rungs.bits(), Ordering::Relaxed);
    }

    /// Queues a frame that is not text, already encoded.
    pub fn send_raw(&self, bytes: &[u8]) {
        let mut queue = self.queue.lock();
        if queue.ended {
            return;
        }
        self.append_with(&mut queue, |queued| queued.extend_from_slice(bytes));
        drop(queue);
        self.wake();
    }

    /// Sets the frame around pushed messages and the frames that announce changes of the inbox.
    pub fn configure(&self, push: Option<PushFrame>, inbox_frames: Vec<Box<[u8]>>) {
        let mut queue = self.queue.lock();
        queue.push = push;
        queue.inbox_frames = inbox_frames;
    }

    /// Whether its frames are lines: a program at the other end waits as long as its lines are not read.
    pub fn has_lines(&self) -> bool {
        self.framing == Framing::Line
    }

    /// Whether another connection has taken the session over, so that calls are refused.
    pub fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Acquire)
    }

    /// Bytes that wait for the socket.
    pub fn waiting_len(&self) -> usize {
        self.waiting_len.load(Ordering::Relaxed)
    }

    /// Moves the queue to `into`, which must be empty, and its marks to `marks`. Returns the reason to close the
    /// connection after these bytes, if it is to be closed.
    pub fn take(&self, into: &mut Vec<u8>, marks: &mut WriteMarks) -> Option<CloseReason> {
        self.is_signalled.store(false, Ordering::Release);
        let mut queue = self.queue.lock();
        std::mem::swap(&mut queue.bytes, into);
        queue.marks.receives.iter().for_each(|mark| mark.receive.mark_taken());
        marks.append(&mut queue.marks);
        queue.inbox_announced = false;
        queue.closing
    }

    /// Frees unused capacity.
    pub fn shrink(&self) {
        let mut queue = self.queue.lock();
        queue.bytes.shrink_to_fit();
        queue.marks.shrink();
    }

    /// Notes that `len` bytes went to the socket. True if refused pushes have room now; the session must be notified.
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

    /// Drops the waker: the transport runs, and calls [`Outbox::register_waker`] before it sleeps.
    pub fn set_awake(&self) {
        drop(self.waker.take());
    }

    /// Sets the task to wake. False if something was queued in between and has to be written first.
    pub fn register_waker(&self, waker: &Waker) -> bool {
        self.waker.register(waker);
        !self.is_signalled.swap(false, Ordering::AcqRel)
    }

    /// Appends a frame, unless the output has ended.
    fn append(&self, queue: &mut Queue, frame: impl JsonText) {
        if queue.ended {
            return;
        }
        queue.events_len += 1;
        let number = queue.events_len;
        self.append_with(queue, |bytes| {
            // The first frame of an empty buffer would make it grow several times. Without room for the text around it, it
            // would grow once more and copy a large frame.
            if bytes.capacity() == 0 || frame.len_hint() >= LARGE_LEN {
                bytes.reserve(frame.len_hint() + FRAMING_LEN);
            }
            match self.framing {
                Framing::WebSocket => write_text_frame(bytes, frame),
                Framing::Line => {
                    write_one_line(bytes, frame);
                    bytes.push(b'\n');
                }
                Framing::Events { stream } | Framing::Exchange { stream, .. } => {
                    if let Some(stream) = stream {
                        format_args!("id: {stream}-{number}\n").write_to(bytes);
                    }
                    bytes.extend_from_slice(b"event: message\ndata: ");
                    write_one_line(bytes, frame);
                    bytes.extend_from_slice(b"\n\n");
                }
            }
        });
    }

    /// Appends bytes as they are, and counts them.
    fn append_with(&self, queue: &mut Queue, write: impl FnOnce(&mut Vec<u8>)) {
        let before = queue.bytes.len();
        write(&mut queue.bytes);
        let added = queue.bytes.len() - before;
        queue.queued_bytes_total += added as u64;
        self.waiting_len.fetch_add(added, Ordering::Relaxed);
    }
}

/// Appends a frame without line breaks.
fn write_one_line(out: &mut Vec<u8>, frame: impl JsonText) {
    let start = out.len();
    frame.write_to(out);
    replace_line_breaks(&mut out[start..]);
}

/// Appends an unmasked text frame (RFC 6455, section 5.2). The text moves only if its hint is of another class of lengths.
pub fn write_text_frame(out: &mut Vec<u8>, text: impl JsonText) {
    let start = out.len();
    let (header, reserved) = text_frame_header(text.len_hint());
    out.extend_from_slice(&header[..reserved]);
    text.write_to(out);
    let (header, needed) = text_frame_header(out.len() - start - reserved);
    if needed == reserved {
        out[start..start + needed].copy_from_slice(&header[..needed]);
    } else {
        out.splice(start..start + reserved, header.into_iter().take(needed));
    }
}

/// The header of a text of `len` bytes, and its own length.
fn text_frame_header(len: usize) -> ([u8; 10], usize) {
    const FIN_TEXT: u8 = 0x81;
    let (class, size) = match len {
        0..126 => (len as u8, 0),
        126..65_536 => (126, 2),
        _ => (127, 8),
    };
    let mut header = [0; 10];
    header[..2].copy_from_slice(&[FIN_TEXT, class]);
    header[2..2 + size].copy_from_slice(&(len as u64).to_be_bytes()[8 - size..]);
    (header, 2 + size)
}

/// The charge changes in steps of this many bytes; fewer bytes are not charged.
const STEP_BYTES: usize = UNRESERVED_BYTES_MAX;

/// The share of one outbox in the budget.
struct OutboxCharge {
    reservation: Locked<Reservation>,
    charged_bytes: AtomicUsize,
    reserved_bytes: AtomicUsize,
    gauge: Gauge,
}

impl OutboxCharge {
    /// A charge of nothing, in the project of this reservation.
    fn new(reservation: Reservation) -> Self {
        Self {
            gauge: reservation.gauge(),
            reservation: Locked::new(reservation),
            charged_bytes: AtomicUsize::new(0),
            reserved_bytes: AtomicUsize::new(0),
        }
    }

    /// Charges `waiting` bytes if the charge has to grow, or may shrink to half or less.
    fn update(&self, waiting: usize) {
        let differs = |charged: usize| {
            let due = due(waiting + self.reserved_bytes());
            (due > charged || due <= charged / 2).then_some(due)
        };
        let is_settled = |charged| differs(charged).is_none_or(|due| due == charged);
        if is_settled(self.charged_bytes.load(Ordering::Relaxed)) {
            return;
        }
        let mut reservation = self.reservation.lock();
        if let Some(due) = differs(reservation.bytes()) {
            reservation.set_bytes(due);
            self.charged_bytes.store(due, Ordering::Relaxed);
        }
    }

    /// Reserves `bytes` in addition to the `waiting` ones; false if the budget has no room now. Up to [`UNRESERVED_BYTES_MAX`]
    /// bytes need no reservation unless the budget is full.
    fn reserve(&self, waiting: usize, bytes: usize) -> bool {
        if self.gauge.is_full() {
            return false;
        }
        if bytes <= UNRESERVED_BYTES_MAX {
            return true;
        }
        let mut reservation = self.reservation.lock();
        let grows = reservation.try_grow_to(due(waiting + self.reserved_bytes() + bytes));
        if grows {
            self.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.charged_bytes.store(reservation.bytes(), Ordering::Relaxed);
        }
        grows
    }

    /// Ends a reservation of `bytes`. From now on they count as part of `waiting`, if they arrived.
    fn unreserve(&self, waiting: usize, bytes: usize) {
        self.reserved_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.update(waiting);
    }

    /// Bytes that are reserved and have not arrived.
    fn reserved_bytes(&self) -> usize {
        self.reserved_bytes.load(Ordering::Relaxed)
    }

    /// Whether [`Self::reserve`] may succeed. Does not consider other waiters of the budget.
    fn may_have_room(&self, bytes: usize) -> bool {
        !self.gauge.is_full() && (bytes <= UNRESERVED_BYTES_MAX || self.gauge.has_room_for(bytes))
    }
}

/// The charge for this many bytes.
const fn due(bytes: usize) -> usize {
    if bytes < STEP_BYTES {
        0
    } else {
        bytes.next_multiple_of(STEP_BYTES)
    }
}

#[cfg(test)]
mod tests;
