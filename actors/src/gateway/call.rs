//! A call to a backend, and the link that carries it. The link has no mailbox: callers on any thread write their requests
//! into it, and read the events of each call in order. A link may take no request, and it ends with a reason.
//!
//! Pure. A link finds its open calls by number ([`Slots`]).

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::{locked::Locked, model::BackendEra};

/// The number of a call towards its backend: the id of its request, and its progress token. A number is never used again
/// by the same link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallNumber(pub u64);

/// A connection to a running backend.
pub trait Link: fmt::Debug + Send + Sync {
    /// A number that no other link of this process has.
    fn number(&self) -> u64;

    /// The era that the backend speaks.
    fn era(&self) -> BackendEra;

    /// Sends a request. `purpose` says whom it serves. `write` appends its frame, whose id and progress token are the number
    /// of the call. It is called at most once, and must not call the link.
    ///
    /// # Errors
    /// [`LinkRefusal`]: the frame was not sent.
    fn open(
        self: Arc<Self>,
        purpose: CallPurpose,
        write: &mut dyn FnMut(CallNumber, &mut Vec<u8>),
    ) -> Result<Call, LinkRefusal>;

    /// Wants log messages of this level from a legacy backend that sends them. `rank` orders the levels: the backend keeps
    /// the lowest that any caller has wanted.
    fn want_log_level(&self, rank: u8, level: &str);

    /// Answers a question of the backend: a result or an error object, as JSON.
    fn answer(&self, question: &InputRequest, outcome: Result<&str, &str>);

    /// Tells the backend that the answer to a call is not wanted. Its late answer is dropped.
    fn cancel(&self, number: CallNumber);

    /// Notes that the backend knows something of a caller: an answer to a question.
    fn note_learnt(&self);

    /// Whether the backend knows something of a caller that is not for others.
    fn has_learnt(&self) -> bool;

    /// Whether it takes calls.
    fn is_open(&self) -> bool;

    /// Calls without an answer.
    fn in_flight(&self) -> usize;

    /// Waits until no call of a caller is open.
    fn wait_until_idle(self: Arc<Self>) -> BoxFuture<'static, ()>;

    /// Waits until the late answer to a call of a caller that was cancelled has come, or the connection has ended.
    fn wait_until_answered(self: Arc<Self>, number: CallNumber) -> BoxFuture<'static, ()>;

    /// Waits until the connection has ended.
    fn wait_until_closed(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// Whom a request to a backend serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPurpose {
    /// The broker itself.
    Own,
    /// A caller, whom the backend may ask for input.
    Caller,
}

/// A request that a backend sends to its client while a call runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRequest {
    /// Its id, as JSON.
    pub id: Box<str>,
    pub method: Box<str>,
    /// Its params, as JSON.
    pub params: Box<str>,
}

/// What happens to a call.
#[derive(Clone, Debug)]
pub enum CallEvent {
    /// The backend asks the caller for input.
    Asked(InputRequest),
    /// A progress notification: its params, as JSON.
    Progress(Bytes),
    /// A log message that belongs to this call: the params of the notification, as JSON.
    Log(Bytes),
    /// The last event.
    Ended(CallEnd),
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum CallEnd {
    /// The backend has answered with this result, as JSON.
    Result(Bytes),
    /// The backend has answered with this JSON-RPC error object.
    Error(Bytes),
    /// The answer has more bytes than are allowed.
    TooLarge { limit: usize },
    /// The backend has answered, and its answer cannot be read: why.
    Broken { reason: String },
    /// The answers that wait for their clients leave no room for this one.
    NoRoom,
    /// The server of the backend has answered with an error of HTTP, or with something that is no message of MCP.
    HttpError {
        status: u16,
        /// What it answered, in words.
        reason: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The backend has ended. It may have run the call or not.
    Died(Arc<LinkEnded>),
    /// The link has ended before any byte of the call was written: the backend cannot have seen it.
    NotSent,
}

/// Questions of one call that wait for its caller. No backend needs as many.
const QUESTIONS_LEN_MAX: usize = 32;
/// Progress notifications of one call that wait for its caller. The oldest are dropped: each replaces those before it.
const PROGRESS_LEN_MAX: usize = 32;

/// The events of a call that its caller has not read yet.
#[derive(Debug, Default)]
pub struct CallEvents(Locked<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<CallEvent>,
    has_ended: bool,
    waker: Option<Waker>,
}

impl CallEvents {
    /// Adds an event, and wakes the caller. Nothing follows the end of the call. Returns false for an event that is not
    /// added.
    pub fn push(&self, event: CallEvent) -> bool {
        let mut waiting = self.0.lock();
        if waiting.has_ended {
            return false;
        }
        let is_news = |event: &CallEvent| matches!(event, CallEvent::Progress(_) | CallEvent::Log(_));
        match event {
            CallEvent::Ended(_) => waiting.has_ended = true,
            CallEvent::Asked(question) => {
                drop(waiting);
                return self.ask(vec![question]).is_empty();
            }
            CallEvent::Progress(_) | CallEvent::Log(_) => {
                let news = waiting.events.iter().filter(|event| is_news(event)).count();
                if news >= PROGRESS_LEN_MAX
                    && let Some(oldest) = waiting.events.iter().position(is_news)
                {
                    waiting.events.remove(oldest);
                }
            }
        }
        waiting.events.push_back(event);
        if let Some(waker) = waiting.waker.take() {
            drop(waiting);
            waker.wake();
        }
        true
    }

    /// Adds questions at once, so that the caller finds them together. Returns those that are not added.
    pub fn ask(&self, mut questions: Vec<InputRequest>) -> Vec<InputRequest> {
        let mut waiting = self.0.lock();
        if waiting.has_ended {
            return questions;
        }
        let is_question = |event: &&CallEvent| matches!(event, CallEvent::Asked(_));
        let room = QUESTIONS_LEN_MAX.saturating_sub(waiting.events.iter().filter(is_question).count());
        let refused = questions.split_off(room.min(questions.len()));
        waiting.events.extend(questions.into_iter().map(CallEvent::Asked));
        if let Some(waker) = waiting.waker.take() {
            drop(waiting);
            waker.wake();
        }
        refused
    }

    /// Takes the questions out that wait now. Other events stay.
    fn take_questions(&self) -> Vec<InputRequest> {
        let mut waiting = self.0.lock();
        let events = std::mem::take(&mut waiting.events);
        let mut questions = Vec::new();
        for event in events {
            match event {
                CallEvent::Asked(question) => questions.push(question),
                other => waiting.events.push_back(other),
            }
        }
        questions
    }

    /// Waits for the next event.
    async fn next(&self) -> CallEvent {
        poll_fn(|cx| {
            let mut waiting = self.0.lock();
            if let Some(event) = waiting.events.pop_front() {
                return Poll::Ready(event);
            }
            waiting.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// A call that a backend has been asked to run. Dropping it before its end cancels it.
#[derive(Debug)]
pub struct Call {
    link: Arc<dyn Link>,
    number: CallNumber,
    events: Arc<CallEvents>,
    has_ended: bool,
}

impl Call {
    /// The call that a link has opened under this number.
    pub fn new(link: Arc<dyn Link>, number: CallNumber, events: Arc<CallEvents>) -> Self {
        Self {
            link,
            number,
            events,
            has_ended: false,
        }
    }

    /// The number of the call.
    pub fn number(&self) -> CallNumber {
        self.number
    }

    /// The link that carries it.
    pub fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }

    /// The questions that the backend has asked and that were not read yet.
    pub fn take_questions(&mut self) -> Vec<InputRequest> {
        self.events.take_questions()
    }

    /// Waits for the next event. After the end there is none.
    pub async fn next(&mut self) -> CallEvent {
        let event = self.events.next().await;
        self.has_ended |= matches!(event, CallEvent::Ended(_));
        event
    }

    /// Cancels it unless it has ended. Returns whether it ran until now.
    pub(super) fn cancel(&mut self) -> bool {
        let ran = !std::mem::replace(&mut self.has_ended, true);
        if ran {
            self.link.cancel(self.number);
        }
        ran
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Why a link sends no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRefusal {
    /// The backend does not read what was sent before.
    Busy,
    /// The backend has ended.
    Closed,
}

/// How a backend ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkEnded {
    /// The exit status or the signal, or what broke the connection: `exited with code 1`.
    pub status: String,
    /// The last line that it wrote to stderr.
    pub last_line: Option<String>,
}

impl LinkEnded {
    /// The end of a backend without a stderr.
    pub fn without_output(status: impl Into<String>) -> Self {
        Self {
            status: status.into(),
            last_line: None,
        }
    }
}

impl fmt::Display for LinkEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.status)?;
        match &self.last_line {
            Some(line) => write!(f, ": {line}"),
            None => Ok(()),
        }
    }
}

/// Bits of a number that hold the index; the rest holds the generation. Numbers stay below 2^53, which every JSON parser
/// reads exactly.
const INDEX_BITS: u32 = 20;
const GENERATION_MAX: u64 = (1 << (53 - INDEX_BITS)) - 1;

/// Calls that one link may have open.
pub const SLOTS_MAX: usize = 1 << INDEX_BITS;

/// The open calls of a link by number. A number is an index and a generation, so that finding a call is one look into a list, and a
/// late answer never finds the call that uses the place now.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Slot<T> {
    /// The generation of the call that is in the slot, or that was in it last. The first is 1.
    generation: u64,
    call: Option<T>,
}

/// What a number is the id of.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// An open call.
    Open(T),
    /// A call that has ended or was cancelled.
    Late,
    /// This link has not used the number.
    Unknown,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// The number of open calls.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a call. `None` if too many are open.
    pub fn insert(&mut self, call: T) -> Option<CallNumber> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(Slot {
                    generation: 0,
                    call: None,
                });
                self.slots.len() - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[index];
        slot.generation = if slot.generation < GENERATION_MAX {
            slot.generation + 1
        } else {
            1
        };
        slot.call = Some(call);
        Some(CallNumber(slot.generation << INDEX_BITS | index as u64))
    }

    /// The open calls.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.call.as_ref())
    }

    /// The number of the only open call. `None` if there are several or none.
    pub fn only(&self) -> Option<CallNumber> {
        let is_open = |(_, slot): &(usize, &Slot<T>)| slot.call.is_some();
        let mut open = self.slots.iter().enumerate().filter(is_open);
        let (index, slot) = open.next().filter(|_| self.len() == 1)?;
        Some(CallNumber(slot.generation << INDEX_BITS | index as u64))
    }

    /// Looks at an open call.
    pub fn get(&self, number: CallNumber) -> Found<&T> {
        match self.slot(number) {
            Some((index, generation)) => {
                let slot = &self.slots[index];
                match &slot.call {
                    Some(call) if slot.generation == generation => Found::Open(call),
                    _ if generation <= slot.generation => Found::Late,
                    _ => Found::Unknown,
                }
            }
            None => Found::Unknown,
        }
    }

    /// An open call, to be changed.
    pub fn get_mut(&mut self, number: CallNumber) -> Option<&mut T> {
        let (index, generation) = self.slot(number)?;
        let slot = &mut self.slots[index];
        slot.call.as_mut().filter(|_| slot.generation == generation)
    }

    /// Takes a call out.
    pub fn remove(&mut self, number: CallNumber) -> Found<T> {
        match self.get(number) {
            Found::Open(_) => {}
            Found::Late => return Found::Late,
            Found::Unknown => return Found::Unknown,
        }
        let Some((index, _)) = self.slot(number) else {
            return Found::Unknown;
        };
        match self.slots[index].call.take() {
            Some(call) => {
                self.free.push(index);
                Found::Open(call)
            }
            None => Found::Late,
        }
    }

    /// Takes all calls out, in no order.
    pub fn drain(&mut self) -> Vec<T> {
        let calls: Vec<T> = self.slots.iter_mut().filter_map(|slot| slot.call.take()).collect();
        self.free = (0..self.slots.len()).collect();
        calls
    }

    fn slot(&self, CallNumber(number): CallNumber) -> Option<(usize, u64)> {
        let generation = number >> INDEX_BITS;
        let index = usize::try_from(number & ((1 << INDEX_BITS) - 1)).ok()?;
        (generation > 0 && index < self.slots.len()).then_some((index, generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_finds_its_call_until_it_is_taken_out() {
        let mut slots = Slots::default();
        let (first, second) = (slots.insert("a").unwrap(), slots.insert("b").unwrap());
        assert_eq!((slots.len(), slots.only()), (2, None));
        assert_eq!(slots.get(first), Found::Open(&"a"));
        assert_eq!(slots.remove(second), Found::Open("b"));
        assert_eq!(slots.remove(second), Found::Late);
        assert_eq!(slots.only(), Some(first));
        assert_eq!(slots.remove(first), Found::Open("a"));
        assert_eq!((slots.len(), slots.only()), (0, None));
    }

    #[test]
    fn a_late_answer_does_not_find_the_call_that_has_the_place_now() {
        let mut slots = Slots::default();
        let first = slots.insert("a").unwrap();
        slots.remove(first);
        let second = slots.insert("b").unwrap();
        assert_ne!(first, second);
        assert_eq!(slots.remove(first), Found::Late);
        assert_eq!(slots.get(second), Found::Open(&"b"));
    }

    #[test]
    fn numbers_that_were_never_used_are_unknown() {
        let mut slots = Slots::default();
        let CallNumber(number) = slots.insert("a").unwrap();
        for other in [0, 1, 2, number + 1, number + (1 << INDEX_BITS), u64::MAX] {
            assert_eq!(slots.remove(CallNumber(other)), Found::Unknown, "{other}");
        }
        assert!(number < 1 << 53);
    }
}
