//! The calls of a backend as operators see them: those that are not over, how an operator ends one, and what is counted. For the
//! counters a call takes no lock and allocates nothing.

use std::{
    collections::HashMap,
    fmt,
    future::poll_fn,
    marker::PhantomData,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
};

use futures_util::task::AtomicWaker;
use uuid::Uuid;

use super::{
    call::{CallNumber, Found, Slots},
    life::StartReason,
};
use crate::{
    locked::Locked,
    metrics::{Histogram, Labelled, label},
    model::{BackendFailure, SessionId},
};

/// Bytes that are kept of a name.
const NAME_BYTES_MAX: usize = 256;
/// What the second half of every id begins with (RFC 9562, section 4.1).
const VARIANT: u64 = 0b10 << 62;

/// The calls of one backend that are not over, parked ones included.
pub struct OpenCalls {
    /// The first half of their ids, which no other backend or replica has.
    id_prefix: u64,
    calls: Locked<Slots<Weak<CallEntry>>>,
}

/// Who has sent a call, and what it calls.
#[derive(Debug)]
pub struct CallOrigin {
    /// The caller, as the audit names it.
    pub caller: Arc<str>,
    /// The session that the caller acts as.
    pub session: Option<SessionId>,
    pub method: &'static str,
}

/// Where a call is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStage {
    /// For its turn, its backend, or what its caller has to say before it is sent again.
    Waiting = 0,
    Running = 1,
    Parked = 2,
    /// Its caller gets an answer.
    Answered = 3,
    /// An operator has ended it.
    Ended = 4,
}

/// An operator has ended the call.
#[derive(Debug, PartialEq, Eq)]
pub struct EndedByOperator;

/// A call that is not over. It is listed until it is dropped.
pub struct CallEntry {
    calls: Arc<OpenCalls>,
    /// Its place among the open calls. None beyond as many as are listed.
    number: Option<CallNumber>,
    pub origin: CallOrigin,
    /// When it arrived, on the monotonic clock.
    pub begun_ms: u64,
    /// The name by which its caller knows a tool that the backend has not listed yet.
    called: OnceLock<Box<str>>,
    /// The backend's own name of the tool.
    tool: OnceLock<Box<str>>,
    stage: AtomicU8,
    /// The task that runs it.
    waker: AtomicWaker,
}

impl CallStage {
    /// The stage in answers of REST. None for a call that is over.
    pub const fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Waiting => Some("waiting"),
            Self::Running => Some("running"),
            Self::Parked => Some("parked"),
            Self::Answered | Self::Ended => None,
        }
    }
}

impl Default for OpenCalls {
    fn default() -> Self {
        Self {
            id_prefix: Uuid::new_v4().as_u64_pair().0,
            calls: Locked::default(),
        }
    }
}

impl OpenCalls {
    /// Lists a call, which waits.
    pub fn begin(self: &Arc<Self>, origin: CallOrigin, begun_ms: u64) -> Arc<CallEntry> {
        Arc::new_cyclic(|call| CallEntry {
            calls: Arc::clone(self),
            number: self.calls.lock().insert(Weak::clone(call)),
            origin,
            begun_ms,
            called: OnceLock::new(),
            tool: OnceLock::new(),
            stage: AtomicU8::new(CallStage::Waiting as u8),
            waker: AtomicWaker::new(),
        })
    }

    /// The calls that are not over, in no order.
    pub fn all(&self) -> Vec<Arc<CallEntry>> {
        // A call that is dropped takes the lock, so none is dropped here.
        self.calls.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// The call with this id.
    pub fn find(&self, id: Uuid) -> Option<Arc<CallEntry>> {
        let (prefix, number) = id.as_u64_pair();
        if prefix != self.id_prefix {
            return None;
        }
        match self.calls.lock().get(CallNumber(number ^ VARIANT)) {
            Found::Open(call) => call.upgrade(),
            Found::Late | Found::Unknown => None,
        }
    }
}

impl CallEntry {
    /// Its id, which no other call of any replica has. None beyond as many calls as are listed.
    pub fn id(&self) -> Option<Uuid> {
        let CallNumber(number) = self.number?;
        Some(Uuid::from_u64_pair(self.calls.id_prefix, number | VARIANT))
    }

    /// The name that was called, if the backend had not listed the tool by then.
    pub fn called(&self) -> Option<&str> {
        self.called.get().map(AsRef::as_ref)
    }

    /// Sets the name that was called.
    pub fn set_called(&self, name: &str) {
        let _ = self.called.set(kept(name));
    }

    /// The backend's own name of the tool, once it is known.
    pub fn tool(&self) -> Option<&str> {
        self.tool.get().map(AsRef::as_ref)
    }

    /// Sets the backend's own name of the tool.
    pub fn set_tool(&self, name: &str) {
        let _ = self.tool.set(kept(name));
    }

    /// Where it is.
    pub fn stage(&self) -> CallStage {
        match self.stage.load(Ordering::Acquire) {
            0 => CallStage::Waiting,
            1 => CallStage::Running,
            2 => CallStage::Parked,
            3 => CallStage::Answered,
            _ => CallStage::Ended,
        }
    }

    /// Moves it to another stage.
    ///
    /// # Errors
    /// [`EndedByOperator`]: it stays there.
    pub fn moves_to(&self, stage: CallStage) -> Result<(), EndedByOperator> {
        let ended = CallStage::Ended as u8;
        let moved = self.stage.fetch_update(Ordering::AcqRel, Ordering::Acquire, |known| {
            (known != ended).then_some(stage as u8)
        });
        moved.map(drop).map_err(|_| EndedByOperator)
    }

    /// Ends it in the name of an operator. False if its caller gets another answer already.
    pub fn end(&self) -> bool {
        let answered = CallStage::Answered as u8;
        let ended = self.stage.fetch_update(Ordering::AcqRel, Ordering::Acquire, |known| {
            (known < answered).then_some(CallStage::Ended as u8)
        });
        self.waker.wake();
        ended.is_ok()
    }

    /// Waits until an operator ends it. One task waits at a time.
    pub async fn ended(&self) {
        poll_fn(|context| {
            self.waker.register(context.waker());
            match self.stage() {
                CallStage::Ended => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }
}

/// The beginning of a name, which may be any text of a caller.
fn kept(name: &str) -> Box<str> {
    name[..name.floor_char_boundary(NAME_BYTES_MAX)].into()
}

impl Drop for CallEntry {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.calls.calls.lock().remove(number);
        }
    }
}

impl fmt::Debug for CallEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallEntry")
            .field("origin", &self.origin)
            .field("stage", &self.stage())
            .finish_non_exhaustive()
    }
}

label! {
    /// How a call of a backend ended.
    CallStatus {
        /// The backend has answered with a result, or asks its caller.
        Ok = "ok",
        /// The backend has answered with a result that says that its tool failed.
        ToolError = "tool_error",
        /// The backend has answered with an error, or with something that cannot be passed on.
        Error = "error",
        TimedOut = "timeout",
        /// Its caller has gone or wants no answer, an operator has ended it, or the broker stops.
        Cancelled = "cancelled",
        Died = "died",
        /// It was not sent to the backend.
        Refused = "refused",
    }
}

impl CallStatus {
    /// The outcome of a call that fails in the gateway.
    pub const fn of(failure: &BackendFailure) -> Self {
        match failure {
            BackendFailure::NotFound { .. }
            | BackendFailure::Exists { .. }
            | BackendFailure::CommandNotAllowed { .. }
            | BackendFailure::Unavailable { .. }
            | BackendFailure::Busy { .. }
            | BackendFailure::TooManyCalls { .. } => Self::Refused,
            BackendFailure::Died { .. } => Self::Died,
            BackendFailure::TimedOut { .. } => Self::TimedOut,
            BackendFailure::ShuttingDown { .. }
            | BackendFailure::Cancelled { .. }
            | BackendFailure::GivenUp { .. }
            | BackendFailure::NoRoom { .. } => Self::Cancelled,
            BackendFailure::Http { .. } | BackendFailure::Protocol { .. } | BackendFailure::TooLarge { .. } => {
                Self::Error
            }
        }
    }
}

label! {
    /// The way of bytes.
    Direction {
        /// To the backend.
        Sent = "sent",
        Received = "received",
    }
}

/// A number for each value of a label. It has no shards, because a project may have many backends.
#[derive(Debug)]
pub struct Counts<L, const N: usize>([AtomicU64; N], PhantomData<fn(L)>);

impl<L: Labelled, const N: usize> Counts<L, N> {
    /// Adds to the number of one value.
    pub fn add(&self, value: L, count: u64) {
        self.0[value.index()].fetch_add(count, Ordering::Relaxed);
    }

    /// The number of one value.
    pub fn get(&self, value: L) -> u64 {
        self.0[value.index()].load(Ordering::Relaxed)
    }

    /// The sum of the numbers of these values.
    pub fn sum(&self, values: &[L]) -> u64 {
        values.iter().map(|value| self.get(*value)).sum()
    }
}

impl<L, const N: usize> Default for Counts<L, N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N], PhantomData)
    }
}

/// What is counted of one backend.
#[derive(Debug, Default)]
pub struct BackendCounters {
    /// Calls that have ended.
    pub calls: Counts<CallStatus, { CallStatus::LEN }>,
    /// From the arrival of a call until its end.
    pub call_time: Histogram<1>,
    /// Calls that are open, waiting ones included.
    pub open: AtomicUsize,
    /// When the last call began or ended, on the monotonic clock.
    pub last_call_ms: AtomicU64,
    /// Starts of instances.
    pub starts: Counts<StartReason, { StartReason::LEN }>,
    /// Processes that run.
    pub processes: AtomicUsize,
    /// Bytes of messages.
    pub bytes: Counts<Direction, { Direction::LEN }>,
    /// How often it offered something else than before.
    pub list_changes: AtomicU64,
    dropped: Locked<HashMap<&'static str, u64>>,
}

impl BackendCounters {
    /// Counts a message of the backend that reached no caller: why.
    pub fn note_dropped(&self, why: &'static str) {
        *self.dropped.lock().entry(why).or_default() += 1;
    }

    /// Messages of the backend that reached no caller, by reason.
    pub fn dropped(&self) -> Vec<(&'static str, u64)> {
        let mut counts: Vec<_> = self.dropped.lock().iter().map(|(why, count)| (*why, *count)).collect();
        counts.sort_unstable();
        counts
    }

    /// Calls that ended with a result of the backend.
    pub fn answered(&self) -> u64 {
        self.calls.sum(&[CallStatus::Ok, CallStatus::ToolError])
    }

    /// Calls that ended with an error, of the backend or of the gateway.
    pub fn failed(&self) -> u64 {
        use CallStatus::{Died, Error, Refused, TimedOut};
        self.calls.sum(&[Error, TimedOut, Died, Refused])
    }

    /// Starts of instances, for all reasons.
    pub fn starts(&self) -> u64 {
        self.starts.sum(StartReason::ALL)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn call(calls: &Arc<OpenCalls>) -> Arc<CallEntry> {
        let origin = CallOrigin {
            caller: "anonymous".into(),
            session: None,
            method: "tools/call",
        };
        calls.begin(origin, 0)
    }

    #[test]
    fn a_call_is_found_by_its_id_until_it_is_dropped() {
        let (calls, others) = (Arc::<OpenCalls>::default(), Arc::<OpenCalls>::default());
        let (first, second) = (call(&calls), call(&calls));
        let id = first.id().unwrap();
        assert_eq!(id.get_version_num(), 4);
        assert!(Arc::ptr_eq(&calls.find(id).unwrap(), &first));
        assert!(others.find(id).is_none(), "the id of another backend");
        assert_eq!(calls.all().len(), 2);
        drop(first);
        assert!(calls.find(id).is_none());
        let third = call(&calls);
        assert!(calls.find(id).is_none(), "the id is not used again");
        assert_eq!(calls.all().len(), 2);
        drop((second, third));
        assert!(calls.all().is_empty());
    }

    #[test]
    fn a_call_is_ended_once_and_stays_ended() {
        let calls = Arc::<OpenCalls>::default();
        let running = call(&calls);
        assert_eq!(running.moves_to(CallStage::Running), Ok(()));
        assert!(running.ended().now_or_never().is_none());
        assert!(running.end());
        assert!(!running.end(), "another operator was first");
        assert!(running.ended().now_or_never().is_some());
        for stage in [CallStage::Running, CallStage::Parked, CallStage::Answered] {
            assert_eq!(running.moves_to(stage), Err(EndedByOperator));
        }
        assert_eq!(running.stage().as_str(), None);
    }

    #[test]
    fn a_call_that_is_answered_is_not_ended() {
        let calls = Arc::<OpenCalls>::default();
        let answered = call(&calls);
        assert_eq!(answered.moves_to(CallStage::Answered), Ok(()));
        assert!(!answered.end());
        assert!(answered.ended().now_or_never().is_none());
    }

    #[test]
    fn only_the_beginning_of_a_long_name_is_kept() {
        let calls = Arc::<OpenCalls>::default();
        let long = call(&calls);
        long.set_tool(&"ü".repeat(NAME_BYTES_MAX));
        assert_eq!(long.tool().unwrap().len(), NAME_BYTES_MAX);
        long.set_called("short");
        assert_eq!(long.called(), Some("short"));
    }
}
