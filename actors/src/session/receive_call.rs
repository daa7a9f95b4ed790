//! A call of `receive_messages`, as its caller, the transport and the session share it: its receipt, and whether it was
//! cancelled or answered.

use std::sync::{
    Arc, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::sync::Notify;

use crate::{locked::Locked, model::CallReceipt};

/// A logical clock of the process: the number of answers written. It tells requests that were read before an answer was
/// written from those that were read after it.
static ANSWERS_WRITTEN: AtomicU64 = AtomicU64::new(0);

/// When a request was read, as the number of answers written before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadAt(u64);

impl ReadAt {
    /// For a request that is read now.
    pub fn now() -> Self {
        Self(ANSWERS_WRITTEN.load(Ordering::SeqCst))
    }
}

/// A call of `receive_messages`. Clones share one state.
#[derive(Clone, Debug)]
pub struct ReceiveCall(Arc<State>);

#[derive(Debug)]
struct State {
    receipt: CallReceipt,
    cancelled: AtomicBool,
    waiting: Notify,
    taken: AtomicBool,
    /// The number of its answer among all written answers; 0 until it is written. Locked while the operating system takes
    /// the last bytes.
    written: Locked<u64>,
}

/// The operating system takes the last bytes of an answer. Until this is dropped, every question whether the answer is
/// written waits: the client may have read it, and sent its next request to another thread, before this one runs again.
#[derive(Debug)]
pub struct WriteInProgress<'a> {
    place: u64,
    written: MutexGuard<'a, u64>,
}

impl WriteInProgress<'_> {
    /// The operating system has taken the last byte. Requests that were read since the beginning are later ones.
    pub fn complete(mut self) {
        if *self.written == 0 {
            *self.written = self.place;
        }
    }
}

impl Default for ReceiveCall {
    fn default() -> Self {
        Self(Arc::new(State {
            receipt: CallReceipt::generate(),
            cancelled: AtomicBool::new(false),
            waiting: Notify::new(),
            taken: AtomicBool::new(false),
            written: Locked::default(),
        }))
    }
}

impl ReceiveCall {
    /// The receipt by which a later call acknowledges what this one returns.
    pub fn receipt(&self) -> CallReceipt {
        self.0.receipt
    }

    /// The session gives this call nothing from now on. Follow it by [`CancelReceive`](super::CancelReceive), which
    /// releases what it gave before.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
    }

    /// Whether the caller has cancelled the call.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// The inbox was empty: the call waits from now on.
    pub fn mark_waiting(&self) {
        self.0.waiting.notify_one();
    }

    /// Completes when the call has begun to wait.
    pub async fn until_waiting(&self) {
        self.0.waiting.notified().await;
    }

    /// A transport or a task has taken the answer: its client may get it from now on.
    pub fn mark_taken(&self) {
        self.0.taken.store(true, Ordering::SeqCst);
    }

    /// Whether the client may have the answer, or a part of it.
    pub fn may_be_read(&self) -> bool {
        self.0.taken.load(Ordering::SeqCst) || self.is_written()
    }

    /// Begins to hand the last bytes of the answer to the operating system. Hold it for one call that does not block.
    pub fn begin_write(&self) -> WriteInProgress<'_> {
        let written = self.0.written.lock();
        let place = ANSWERS_WRITTEN.fetch_add(1, Ordering::SeqCst) + 1;
        WriteInProgress { place, written }
    }

    /// The operating system has taken the last byte of the answer.
    pub fn mark_written(&self) {
        self.begin_write().complete();
    }

    /// Whether the answer is written.
    pub fn is_written(&self) -> bool {
        *self.0.written.lock() != 0
    }

    /// Whether the answer was written before a request was read.
    pub fn is_written_before(&self, read: ReadAt) -> bool {
        let place = *self.0.written.lock();
        place != 0 && place <= read.0
    }

    /// Whether both are clones of one call.
    pub fn is_same_call(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_call_is_cancelled_through_any_of_its_clones() {
        let call = ReceiveCall::default();
        let (shared, other) = (call.clone(), ReceiveCall::default());
        assert!(call.is_same_call(&shared) && !call.is_same_call(&other));
        assert!(!call.is_cancelled());
        shared.cancel();
        assert!(call.is_cancelled() && !other.is_cancelled());
    }

    #[test]
    fn a_call_reports_that_it_has_begun_to_wait() {
        let call = ReceiveCall::default();
        assert_eq!(call.until_waiting().now_or_never(), None);
        call.mark_waiting();
        assert_eq!(call.until_waiting().now_or_never(), Some(()));
    }

    #[test]
    fn a_request_that_is_read_while_an_answer_is_written_is_later_once_it_is_written() {
        let call = ReceiveCall::default();
        assert!(!call.may_be_read());
        call.mark_taken();
        assert!(call.may_be_read());
        // The socket was full: nothing is written.
        drop(call.begin_write());
        assert!(!call.is_written());
        let before = ReadAt::now();
        let write = call.begin_write();
        let meanwhile = ReadAt::now();
        let asked = std::thread::scope(|scope| {
            let asks = scope.spawn(|| call.is_written_before(meanwhile));
            write.complete();
            asks.join().unwrap()
        });
        assert!(asked && call.is_written());
        assert!(!call.is_written_before(before));
        call.mark_written();
        assert!(call.is_written_before(meanwhile), "it is written once");
    }

    #[test]
    fn an_answer_is_written_before_a_request_that_is_read_after_it() {
        let (first, second) = (ReceiveCall::default(), ReceiveCall::default());
        let before = ReadAt::now();
        assert!(!first.is_written_before(before) && !first.is_written());
        first.mark_written();
        assert!(first.is_written() && !second.is_written());
        let between = ReadAt::now();
        second.mark_written();
        assert!(!first.is_written_before(before));
        assert!(first.is_written_before(between));
        assert!(!second.is_written_before(between));
        assert!(second.is_written_before(ReadAt::now()));
    }
}
