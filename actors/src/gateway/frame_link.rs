//! The link to a backend on a lasting connection: frames go out in order through one buffer, and answers come back by
//! number. The task of the connection moves the bytes; it alone knows pipes and sockets.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::{runtime::Handle, sync::Notify, time::sleep};

use super::call::{
    Call, CallEnd, CallEvent, CallEvents, CallNumber, CallPurpose, Found, InputRequest, Link, LinkEnded, LinkRefusal,
    Slots,
};
use crate::{
    clock::{millis, mono_ms},
    json::frame::{self, JsonText},
    locked::Locked,
    model::BackendEra,
};

/// Bytes of requests that wait to be written. With more, the backend counts as busy.
const OUTGOING_BYTES_MAX: usize = 1024 * 1024;
/// Requests that wait to be written.
const OUTGOING_LEN_MAX: usize = 1_024;

/// How long a cancelled call without a late answer may still ask. Calls take no longer by default.
const CANCELLED_ASKS_MAX: Duration = Duration::from_mins(10);
/// How long it may still log.
const CANCELLED_LOGS_MAX: Duration = Duration::from_secs(10);
/// Such calls that are remembered.
const CANCELLED_LEN_MAX: usize = 1_024;

/// Questions that wait for the next call of a caller.
const KEPT_QUESTIONS_MAX: usize = 8;
/// How long a backend has, after the answers to what it has asked before its call, to take them in. No message tells when it
/// has: the official filesystem server uses the folders that it got first.
const TAKE_IN_TIME: Duration = Duration::from_millis(200);

/// The id of the request that sets the level of log messages. Calls have far higher numbers.
pub const SET_LOG_LEVEL: CallNumber = CallNumber(4);
/// The id of the request whose answer comes after what the backend asks when it starts.
pub const FIRST_PING: CallNumber = CallNumber(3);

/// The link of one lasting connection.
#[derive(Debug)]
pub struct FrameLink {
    own: Weak<Self>,
    number: u64,
    /// Modern, once the handshake has shown it.
    is_modern: AtomicBool,
    /// The lowest level of log messages that a caller has wanted; 0 where the backend sends none.
    log_rank: AtomicU8,
    /// The backend knows something of the caller that used it last.
    has_learnt: AtomicBool,
    state: Locked<State>,
    /// Frames wait to be written.
    wake: Notify,
    /// The last open call of a caller has ended.
    idle: Notify,
    /// The cancelled call has ended.
    settled: Notify,
}

#[derive(Debug, Default)]
struct State {
    slots: Slots<OpenCall>,
    /// Open calls that serve callers.
    callers: usize,
    /// The calls of callers that were cancelled and may still run, each with the time of that. The oldest come first.
    cancelled: VecDeque<(CallNumber, u64)>,
    /// Frames that the task has not taken.
    outgoing: Vec<u8>,
    /// The number of frames in `outgoing`.
    outgoing_len: usize,
    /// Bytes that the task has taken, since the beginning.
    taken: u64,
    /// Bytes that were written, since the beginning.
    written: u64,
    is_closed: bool,
    /// Questions without a call wait for the next one.
    keeps_questions: bool,
    kept_questions: Vec<InputRequest>,
    /// The call that they went to. Its frame is sent once they have been answered.
    held: Option<HeldCall>,
    /// A caller has had a call.
    had_caller: bool,
}

#[derive(Debug)]
struct HeldCall {
    number: CallNumber,
    frame: Vec<u8>,
    /// The questions that have no answer yet.
    questions: Vec<InputRequest>,
}

#[derive(Debug)]
struct OpenCall {
    events: Arc<CallEvents>,
    purpose: CallPurpose,
    /// Where its frame begins among all bytes of the connection.
    start: u64,
}

/// What an answer or a notification of the backend belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belongs {
    /// An open call.
    ToCall,
    /// A call that has ended or was cancelled.
    ToEndedCall,
    /// No call of this link.
    ToNone,
}

impl FrameLink {
    /// The link of a new connection.
    pub fn new() -> Arc<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            is_modern: AtomicBool::new(false),
            log_rank: AtomicU8::new(0),
            has_learnt: AtomicBool::new(false),
            state: Locked::default(),
            wake: Notify::new(),
            idle: Notify::new(),
            settled: Notify::new(),
        })
    }

    fn note_if_idle(&self, state: &State) {
        if state.callers == 0 {
            self.idle.notify_waiters();
        }
    }

    // For the task of the connection

    /// Sets the era that the handshake has agreed on.
    pub fn set_era(&self, era: BackendEra) {
        self.is_modern.store(era == BackendEra::Modern, Ordering::Relaxed);
    }

    /// Lets callers choose the level of log messages: the legacy backend has said that it sends them.
    pub fn enable_log_levels(&self) {
        self.log_rank.store(u8::MAX, Ordering::Relaxed);
    }

    /// Passes a log message to the call that it belongs to, as [`Self::ask`] finds it.
    pub fn log(&self, number: Option<CallNumber>, params: Bytes) {
        let events = self.state.lock().call_of_caller(number, CANCELLED_LOGS_MAX);
        if let Some(events) = events {
            events.push(CallEvent::Log(params));
        }
    }

    /// Waits until frames wait to be written.
    pub async fn has_outgoing(&self) {
        while self.state.lock().outgoing.is_empty() {
            self.wake.notified().await;
        }
    }

    /// Moves the frames that wait into `buffer`, which must be empty.
    pub fn take_outgoing(&self, buffer: &mut Vec<u8>) {
        let mut state = self.state.lock();
        std::mem::swap(&mut state.outgoing, buffer);
        state.outgoing_len = 0;
        state.taken += buffer.len() as u64;
    }

    /// Notes that this many further bytes were written.
    pub fn note_written(&self, bytes: usize) {
        self.state.lock().written += bytes as u64;
    }

    /// Adds a frame that is no call. Returns false if the backend does not read what was sent before.
    pub fn send(&self, frame: impl JsonText) -> bool {
        let mut state = self.state.lock();
        if state.is_closed || state.outgoing.len() >= OUTGOING_BYTES_MAX {
            return false;
        }
        state.append(frame);
        drop(state);
        self.wake.notify_one();
        true
    }

    /// Whether this is the number of an open call.
    pub fn has_call(&self, number: CallNumber) -> bool {
        matches!(self.state.lock().slots.get(number), Found::Open(_))
    }

    /// Whether this is the number of an open call that serves a caller.
    pub fn serves_caller(&self, number: CallNumber) -> bool {
        matches!(self.state.lock().slots.get(number), Found::Open(call) if call.purpose == CallPurpose::Caller)
    }

    /// The number of the only open call. `None` if there are several or none.
    pub fn only_call(&self) -> Option<CallNumber> {
        self.state.lock().slots.only()
    }

    /// Ends the call of this number.
    pub fn end(&self, number: CallNumber, end: CallEnd) -> Belongs {
        let mut state = self.state.lock();
        let found = state.remove(number);
        self.note_if_idle(&state);
        if matches!(found, Found::Late)
            && let Some(at) = state.cancelled.iter().position(|(cancelled, _)| *cancelled == number)
        {
            state.cancelled.remove(at);
            self.settled.notify_waiters();
        }
        drop(state);
        match found {
            Found::Open(call) => {
                call.events.push(CallEvent::Ended(end));
                Belongs::ToCall
            }
            Found::Late => Belongs::ToEndedCall,
            Found::Unknown => Belongs::ToNone,
        }
    }

    /// Passes a progress notification to its call.
    pub fn progress(&self, number: CallNumber, params: Bytes) -> Belongs {
        let state = self.state.lock();
        match state.slots.get(number) {
            Found::Open(call) => {
                let events = Arc::clone(&call.events);
                drop(state);
                events.push(CallEvent::Progress(params));
                Belongs::ToCall
            }
            Found::Late => Belongs::ToEndedCall,
            Found::Unknown => Belongs::ToNone,
        }
    }

    /// Keeps questions that come while no call is open for the next one, which is sent after their answers. For a backend that
    /// runs one call at a time.
    pub fn keep_questions(&self) {
        self.state.lock().keeps_questions = true;
    }

    /// Passes questions of the backend, which came together, to the call that they belong to: the one that the connection
    /// names, or else the only one that serves a caller, unless a cancelled one may still run. Returns those that no call
    /// takes.
    pub fn ask(&self, number: Option<CallNumber>, mut questions: Vec<InputRequest>) -> Vec<InputRequest> {
        let mut state = self.state.lock();
        if let Some(events) = state.call_of_caller(number, CANCELLED_ASKS_MAX) {
            drop(state);
            return events.ask(questions);
        }
        let is_quiet = state.callers == 0 && !state.may_run_cancelled(CANCELLED_ASKS_MAX);
        if number.is_some() || !state.keeps_questions || !is_quiet {
            return questions;
        }
        if state.had_caller {
            // They may be about what it knows of its last caller.
            self.note_learnt();
        }
        let room = KEPT_QUESTIONS_MAX.saturating_sub(state.kept_questions.len());
        let refused = questions.split_off(room.min(questions.len()));
        state.kept_questions.extend(questions);
        refused
    }

    /// Sends the call that was held back until the backend has its answers.
    fn send_held(&self, number: CallNumber) {
        let mut state = self.state.lock();
        let Some(held) = state.held.take_if(|held| held.number == number) else {
            return;
        };
        let start = state.taken + state.outgoing.len() as u64;
        if let Some(call) = state.slots.get_mut(number) {
            call.start = start;
            state.append(held.frame);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// The connection has ended: ends all calls. Those whose first byte was not written can be sent to the next one.
    pub fn close(&self, ended: &Arc<LinkEnded>) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let written = state.written;
        let calls = state.slots.drain();
        state.callers = 0;
        state.cancelled.clear();
        state.kept_questions.clear();
        state.held = None;
        self.idle.notify_waiters();
        self.settled.notify_waiters();
        state.outgoing = Vec::new();
        drop(state);
        for call in calls {
            let end = if call.start >= written {
                CallEnd::NotSent
            } else {
                CallEnd::Died(Arc::clone(ended))
            };
            call.events.push(CallEvent::Ended(end));
        }
    }
}

impl State {
    fn remove(&mut self, number: CallNumber) -> Found<OpenCall> {
        let found = self.slots.remove(number);
        if let Found::Open(call) = &found {
            self.callers -= usize::from(call.purpose == CallPurpose::Caller);
        }
        found
    }

    /// The call of a caller of this number. Without one, the only one that is open, if none was cancelled in the time `quiet`.
    fn call_of_caller(&self, number: Option<CallNumber>, quiet: Duration) -> Option<Arc<CallEvents>> {
        let is_of_caller = |call: &&OpenCall| call.purpose == CallPurpose::Caller;
        let call = if let Some(number) = number {
            match self.slots.get(number) {
                Found::Open(call) => Some(call).filter(is_of_caller),
                Found::Late | Found::Unknown => None,
            }
        } else if self.may_run_cancelled(quiet) {
            None
        } else {
            let mut calls = self.slots.iter().filter(is_of_caller);
            calls.next().filter(|_| calls.next().is_none())
        };
        call.map(|call| Arc::clone(&call.events))
    }

    fn note_cancelled(&mut self, number: CallNumber) {
        if self.cancelled.len() >= CANCELLED_LEN_MAX {
            self.cancelled.pop_front();
        }
        self.cancelled.push_back((number, mono_ms()));
    }

    /// Whether a call was cancelled in this last time, and may still run.
    fn may_run_cancelled(&self, within: Duration) -> bool {
        let now_ms = mono_ms();
        let last = self.cancelled.back();
        last.is_some_and(|(_, at_ms)| now_ms.saturating_sub(*at_ms) < millis(within))
    }

    fn append(&mut self, frame: impl JsonText) {
        frame.write_to(&mut self.outgoing);
        self.outgoing.push(b'\n');
        self.outgoing_len += 1;
    }
}

impl Link for FrameLink {
    fn number(&self) -> u64 {
        self.number
    }

    fn era(&self) -> BackendEra {
        if self.is_modern.load(Ordering::Relaxed) {
            BackendEra::Modern
        } else {
            BackendEra::Legacy
        }
    }

    fn open(
        self: Arc<Self>,
        purpose: CallPurpose,
        write: &mut dyn FnMut(CallNumber, &mut Vec<u8>),
    ) -> Result<Call, LinkRefusal> {
        let events = Arc::<CallEvents>::default();
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(LinkRefusal::Closed);
        }
        if state.outgoing.len() >= OUTGOING_BYTES_MAX || state.outgoing_len >= OUTGOING_LEN_MAX {
            return Err(LinkRefusal::Busy);
        }
        let serves_caller = purpose == CallPurpose::Caller;
        let is_held = serves_caller && !state.kept_questions.is_empty();
        let call = OpenCall {
            events: Arc::clone(&events),
            purpose,
            start: if is_held {
                u64::MAX
            } else {
                state.taken + state.outgoing.len() as u64
            },
        };
        let number = state.slots.insert(call).ok_or(LinkRefusal::Busy)?;
        state.callers += usize::from(serves_caller);
        state.had_caller |= serves_caller;
        if is_held {
            let questions = std::mem::take(&mut state.kept_questions);
            let mut frame = Vec::new();
            write(number, &mut frame);
            events.ask(questions.clone());
            state.held = Some(HeldCall {
                number,
                frame,
                questions,
            });
        } else {
            state.append(|out: &mut Vec<u8>| write(number, out));
        }
        drop(state);
        self.wake.notify_one();
        Ok(Call::new(self, number, events))
    }

    fn want_log_level(&self, rank: u8, level: &str) {
        if self.log_rank.fetch_min(rank, Ordering::Relaxed) > rank {
            let params = format_args!("{{\"level\":\"{level}\"}}");
            self.send(frame::request(SET_LOG_LEVEL.0, "logging/setLevel", params));
        }
    }

    fn answer(&self, question: &InputRequest, outcome: Result<&str, &str>) {
        let id = &question.id;
        self.send(frame::response(&**id, outcome));
        let mut state = self.state.lock();
        let Some(held) = &mut state.held else { return };
        held.questions.retain(|waiting| waiting.id != *id);
        if !held.questions.is_empty() {
            return;
        }
        let number = held.number;
        drop(state);
        match (Handle::try_current(), self.own.upgrade()) {
            (Ok(runtime), Some(link)) => drop(runtime.spawn(async move {
                sleep(TAKE_IN_TIME).await;
                link.send_held(number);
            })),
            _ => self.send_held(number),
        }
    }

    fn note_learnt(&self) {
        self.has_learnt.store(true, Ordering::Relaxed);
    }

    fn has_learnt(&self) -> bool {
        self.has_learnt.load(Ordering::Relaxed)
    }

    fn cancel(&self, number: CallNumber) {
        let mut state = self.state.lock();
        let Found::Open(call) = state.remove(number) else {
            return;
        };
        if state.is_closed {
            return;
        }
        if let Some(held) = state.held.take_if(|held| held.number == number) {
            // The backend does not know of it, and waits for its answers.
            state.kept_questions = held.questions;
            return self.note_if_idle(&state);
        }
        if call.purpose == CallPurpose::Caller {
            state.note_cancelled(number);
        }
        let CallNumber(id) = number;
        self.note_if_idle(&state);
        let params = format_args!("{{\"requestId\":{id},\"reason\":\"the caller has given up\"}}");
        let cancelled = frame::notification("notifications/cancelled", params);
        state.append(cancelled);
        drop(state);
        self.wake.notify_one();
    }

    fn is_open(&self) -> bool {
        !self.state.lock().is_closed
    }

    fn in_flight(&self) -> usize {
        self.state.lock().slots.len()
    }

    fn wait_until_idle(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { until(&self.idle, || self.state.lock().callers == 0).await })
    }

    fn wait_until_answered(self: Arc<Self>, number: CallNumber) -> BoxFuture<'static, ()> {
        let is_answered = move |state: &State| state.cancelled.iter().all(|(cancelled, _)| *cancelled != number);
        Box::pin(async move { until(&self.settled, || is_answered(&self.state.lock())).await })
    }

    fn wait_until_closed(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { until(&self.settled, || !self.is_open()).await })
    }
}

/// Waits until this is so. It changes before all who wait are notified.
async fn until(changed: &Notify, is_so: impl Fn() -> bool) {
    loop {
        let mut notified = pin!(changed.notified());
        notified.as_mut().enable();
        if is_so() {
            return;
        }
        notified.await;
    }
}

#[cfg(test)]
mod tests;
