//! The link to a backend on a lasting connection: frames go out in order through one buffer, and answers come back by
//! number. The task of the connection moves the bytes; it alone knows pipes and sockets.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::{
    call::{Call, CallEnd, CallEvent, CallEvents, CallNumber, CallPurpose, InputRequest, Link},
    link_end::{LinkEnded, LinkRefusal},
    slots::{Found, Slots},
};
use crate::{
    clock::{millis, mono_ms},
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

/// The id of the request that sets the level of log messages. Calls have far higher numbers.
pub const SET_LOG_LEVEL: CallNumber = CallNumber(4);

/// The link of one lasting connection.
#[derive(Debug)]
pub struct FrameLink {
    number: u64,
    /// Modern, once the handshake has said so.
    is_modern: AtomicBool,
    /// The lowest level of log messages that a caller has wanted; 0 where the backend sends none.
    log_rank: AtomicU8,
    state: Mutex<State>,
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
        Arc::new(Self {
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            is_modern: AtomicBool::new(false),
            log_rank: AtomicU8::new(0),
            state: Mutex::default(),
            wake: Notify::new(),
            idle: Notify::new(),
            settled: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let events = self.lock().call_of_caller(number, CANCELLED_LOGS_MAX);
        if let Some(events) = events {
            events.push(CallEvent::Log(params));
        }
    }

    /// Waits until frames wait to be written.
    pub async fn has_outgoing(&self) {
        while self.lock().outgoing.is_empty() {
            self.wake.notified().await;
        }
    }

    /// Moves the frames that wait into `buffer`, which must be empty.
    pub fn take_outgoing(&self, buffer: &mut Vec<u8>) {
        let mut state = self.lock();
        std::mem::swap(&mut state.outgoing, buffer);
        state.outgoing_len = 0;
        state.taken += buffer.len() as u64;
    }

    /// Notes that this many further bytes were written.
    pub fn note_written(&self, bytes: usize) {
        self.lock().written += bytes as u64;
    }

    /// Adds a frame that is no call. Returns false if the backend does not read what was sent before.
    pub fn send(&self, frame: &[u8]) -> bool {
        let mut state = self.lock();
        if state.is_closed || state.outgoing.len() >= OUTGOING_BYTES_MAX {
            return false;
        }
        state.append(|out| out.extend_from_slice(frame));
        drop(state);
        self.wake.notify_one();
        true
    }

    /// Whether this is the number of an open call.
    pub fn has_call(&self, number: CallNumber) -> bool {
        matches!(self.lock().slots.get(number), Found::Open(_))
    }

    /// Ends the call of this number.
    pub fn end(&self, number: CallNumber, end: CallEnd) -> Belongs {
        let mut state = self.lock();
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
        let state = self.lock();
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

    /// Passes questions of the backend, which came together, to the call that they belong to: the one that the connection
    /// names, or else the only one that serves a caller, unless a cancelled one may still run. Returns those that no call
    /// takes.
    pub fn ask(&self, number: Option<CallNumber>, questions: Vec<InputRequest>) -> Vec<InputRequest> {
        let events = self.lock().call_of_caller(number, CANCELLED_ASKS_MAX);
        match events {
            Some(events) => events.ask(questions),
            None => questions,
        }
    }

    /// The connection has ended: ends all calls. Those whose first byte was not written can be sent to the next one.
    pub fn close(&self, ended: &Arc<LinkEnded>) {
        let mut state = self.lock();
        state.is_closed = true;
        let written = state.written;
        let calls = state.slots.drain();
        state.callers = 0;
        state.cancelled.clear();
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

    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.outgoing);
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
        let mut state = self.lock();
        if state.is_closed {
            return Err(LinkRefusal::Closed);
        }
        if state.outgoing.len() >= OUTGOING_BYTES_MAX || state.outgoing_len >= OUTGOING_LEN_MAX {
            return Err(LinkRefusal::Busy);
        }
        let call = OpenCall {
            events: Arc::clone(&events),
            purpose,
            start: state.taken + state.outgoing.len() as u64,
        };
        let number = state.slots.insert(call).ok_or(LinkRefusal::Busy)?;
        state.callers += usize::from(purpose == CallPurpose::Caller);
        state.append(|out| write(number, out));
        drop(state);
        self.wake.notify_one();
        Ok(Call::new(self, number, events))
    }

    fn want_log_level(&self, rank: u8, level: &str) {
        if self.log_rank.fetch_min(rank, Ordering::Relaxed) > rank {
            let frame = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"logging/setLevel\",\"params\":{{\"level\":\"{level}\"}}}}",
                SET_LOG_LEVEL.0
            );
            self.send(frame.as_bytes());
        }
    }

    fn answer(&self, question: &InputRequest, outcome: Result<&str, &str>) {
        let (member, value) = match outcome {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        let id = &question.id;
        self.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{member}\":{value}}}").as_bytes());
    }

    fn cancel(&self, number: CallNumber) {
        let mut state = self.lock();
        let Found::Open(call) = state.remove(number) else {
            return;
        };
        if state.is_closed {
            return;
        }
        if call.purpose == CallPurpose::Caller {
            state.note_cancelled(number);
        }
        let CallNumber(id) = number;
        self.note_if_idle(&state);
        let frame = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\
             \"reason\":\"the caller has given up\"}}}}"
        );
        state.append(|out| out.extend_from_slice(frame.as_bytes()));
        drop(state);
        self.wake.notify_one();
    }

    fn is_open(&self) -> bool {
        !self.lock().is_closed
    }

    fn in_flight(&self) -> usize {
        self.lock().slots.len()
    }

    fn wait_until_idle(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { until(&self.idle, || self.lock().callers == 0).await })
    }

    fn owes_answer(&self) -> bool {
        !self.lock().cancelled.is_empty()
    }

    fn wait_until_settled(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { until(&self.settled, || !self.owes_answer()).await })
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
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn open(link: &Arc<FrameLink>, text: &str) -> Call {
        let link = Arc::clone(link);
        let mut write = |number: CallNumber, out: &mut Vec<u8>| {
            out.extend_from_slice(format!("{text}{}", number.0).as_bytes());
        };
        link.open(CallPurpose::Caller, &mut write).unwrap()
    }

    fn end_of(call: &mut Call) -> CallEnd {
        match call.next().now_or_never() {
            Some(CallEvent::Ended(end)) => end,
            other => panic!("the call has ended: {other:?}"),
        }
    }

    #[test]
    fn answers_reach_their_calls_and_late_ones_reach_none() {
        let link = FrameLink::new();
        let (mut first, second) = (open(&link, "a"), open(&link, "b"));
        let mut sent = Vec::new();
        link.take_outgoing(&mut sent);
        let text = format!("a{}\nb{}\n", first.number().0, second.number().0);
        assert_eq!(sent, text.as_bytes());

        let result = || CallEnd::Result(Bytes::from_static(b"{}"));
        assert_eq!(link.end(first.number(), result()), Belongs::ToCall);
        assert_eq!(link.end(first.number(), result()), Belongs::ToEndedCall);
        assert!(matches!(end_of(&mut first), CallEnd::Result(_)));

        let number = second.number();
        drop(second);
        assert_eq!(link.end(number, result()), Belongs::ToEndedCall);
        assert_eq!(link.in_flight(), 0);
        sent.clear();
        link.take_outgoing(&mut sent);
        let cancelled = format!("\"requestId\":{}", number.0);
        assert!(String::from_utf8(sent).unwrap().contains(&cancelled));
    }

    #[test]
    fn calls_of_which_no_byte_was_written_can_be_sent_again() {
        let link = FrameLink::new();
        let mut calls = [open(&link, "a"), open(&link, "b"), open(&link, "c")];
        let mut sent = Vec::new();
        link.take_outgoing(&mut sent);
        let first_len = sent.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        link.note_written(first_len + 1);
        link.close(&Arc::default());
        let ends = calls.each_mut().map(end_of);
        assert!(matches!(ends[0], CallEnd::Died(_)));
        assert!(matches!(ends[1], CallEnd::Died(_)), "one byte of it was written");
        assert!(matches!(ends[2], CallEnd::NotSent));
        let refused = Arc::clone(&link).open(CallPurpose::Own, &mut |_, _| {});
        assert_eq!(refused.unwrap_err(), LinkRefusal::Closed);
    }

    #[test]
    fn a_backend_that_does_not_read_is_busy() {
        let link = FrameLink::new();
        let calls: Vec<_> = (0..OUTGOING_LEN_MAX).map(|_| open(&link, "x")).collect();
        let refused = || Arc::clone(&link).open(CallPurpose::Own, &mut |_, _| {}).unwrap_err();
        assert_eq!(refused(), LinkRefusal::Busy);
        let mut sent = Vec::new();
        link.take_outgoing(&mut sent);
        let large = open(&link, &"x".repeat(OUTGOING_BYTES_MAX));
        assert_eq!(refused(), LinkRefusal::Busy);
        assert_eq!(link.in_flight(), calls.len() + 1);
        drop(large);
    }

    #[test]
    fn a_question_reaches_the_call_that_is_named_or_the_only_one() {
        let link = FrameLink::new();
        let question = || InputRequest {
            id: "\"q\"".into(),
            method: "roots/list".into(),
            params: "{}".into(),
        };
        let asks = |number| link.ask(number, vec![question()]).is_empty();
        assert!(!asks(None), "no call is open");
        let own = Arc::clone(&link).open(CallPurpose::Own, &mut |_, _| {}).unwrap();
        let mut first = open(&link, "a");
        assert!(!asks(Some(own.number())), "the broker asks itself nothing");
        assert!(asks(None));
        let second = open(&link, "b");
        assert!(!asks(None), "of two calls it may belong to either");
        assert!(asks(Some(first.number())));
        link.progress(first.number(), Bytes::from_static(b"{}"));
        let (questions, mut sent) = (first.take_questions(), Vec::new());
        for question in &questions {
            link.answer(question, Ok("{\"roots\":[]}"));
        }
        assert_eq!(questions.len(), 2);
        assert!(matches!(first.next().now_or_never(), Some(CallEvent::Progress(_))));
        link.take_outgoing(&mut sent);
        let answer = "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{\"roots\":[]}}\n";
        assert_eq!(String::from_utf8(sent).unwrap().matches(answer).count(), 2);
        let number = second.number();
        drop(second);
        assert!(!asks(None), "the cancelled call may still run");
        assert!(link.owes_answer());
        link.end(number, CallEnd::NotSent);
        let refused = link.ask(None, (0..40).map(|_| question()).collect());
        assert_eq!(refused.len(), 8, "questions that nobody reads are bounded");
    }

    #[test]
    fn the_lowest_level_of_log_messages_is_asked_for_once() {
        let link = FrameLink::new();
        link.want_log_level(3, "info");
        link.enable_log_levels();
        for (rank, level) in [(5, "warning"), (5, "warning"), (3, "info"), (5, "warning")] {
            link.want_log_level(rank, level);
        }
        let mut sent = Vec::new();
        link.take_outgoing(&mut sent);
        let sent = String::from_utf8(sent).unwrap();
        let levels: Vec<_> = sent.lines().map(|line| line.rsplit('"').nth(1).unwrap()).collect();
        assert_eq!(levels, ["warning", "info"]);
    }

    #[test]
    fn of_many_progress_notifications_the_last_ones_reach_a_slow_caller() {
        let link = FrameLink::new();
        let mut call = open(&link, "a");
        for at in 0..100 {
            link.progress(call.number(), Bytes::from(format!("{at}")));
        }
        link.end(call.number(), CallEnd::NotSent);
        let mut seen = Vec::new();
        while let Some(CallEvent::Progress(params)) = call.next().now_or_never() {
            seen.push(String::from_utf8(params.to_vec()).unwrap());
        }
        assert_eq!(seen.len(), 32);
        assert_eq!(seen.last().map(String::as_str), Some("99"));
    }
}
