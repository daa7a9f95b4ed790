//! The outbox of an exchange, as HTTP sees it: the answer to one request, whose reader may leave and return.

use std::sync::{MutexGuard, Weak, atomic::Ordering};

use actors::session::CloseReason;

use super::{Framing, HandedOver, Outbox, Queue, QueuedResponse, ReaderGone, RetentionCounter};

/// How the response of an exchange begins.
#[derive(Debug)]
pub enum ResponseStart {
    /// The response is the whole body. `error` is its JSON-RPC error code.
    Whole { body: Vec<u8>, error: Option<i32> },
    /// A stream of events. `error` is the code of the response, if that is queued already.
    Stream { error: Option<i32> },
    /// No response: the request was cancelled.
    Abandoned,
}

impl Outbox {
    #[cold]
    pub(super) fn after_queueing_unread(&self, mut queue: MutexGuard<'_, Queue>) {
        self.drop_unread(&mut queue);
        let retention_counter = queue
            .exchange
            .reader_gone
            .as_ref()
            .and_then(|left| left.retention_counter.upgrade());
        drop(queue);
        self.update_budget();
        if let Some(retention_counter) = retention_counter {
            retention_counter.recount();
        }
    }

    /// How the response of an exchange begins, as soon as it is known. `events_at_once` begins a stream before the
    /// first event. The decision is final: later frames are queued in the form that was decided.
    pub fn response_start(&self, events_at_once: bool) -> Option<ResponseStart> {
        let mut queue = self.queue.lock();
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

    /// The receives of an exchange whose response [`Outbox::take`] has not returned yet.
    pub fn take_receives(&self) -> impl Iterator<Item = HandedOver> {
        std::mem::take(&mut self.queue.lock().marks.receives)
            .into_iter()
            .map(|mark| mark.receive)
            .inspect(HandedOver::mark_taken)
    }

    /// Whether the response was queued and taken completely.
    pub fn is_done(&self) -> bool {
        let queue = self.queue.lock();
        queue.exchange.answered.is_some() && queue.bytes.is_empty()
    }

    /// Whether events carry ids, so that a client can resume.
    pub fn is_numbered(&self) -> bool {
        matches!(
            self.framing,
            Framing::Events { stream: Some(_) } | Framing::Exchange { stream: Some(_), .. }
        )
    }

    /// Events queued since the start.
    pub fn events_len(&self) -> u64 {
        self.queue.lock().events_len
    }

    /// Ends the HTTP response but not the exchange: the client reconnects for the rest.
    pub fn interrupt(&self) {
        self.queue.lock().exchange.interrupted = true;
        self.wake();
    }

    /// Discards the answer: the caller has cancelled its request.
    pub fn abandon(&self) {
        let mut queue = self.queue.lock();
        queue.exchange.abandoned = true;
        queue.ended = true;
        drop(queue);
        self.wake();
    }

    /// Detaches the reader of an exchange. At most `bytes_max` bytes are kept for a returning reader; a longer answer
    /// is discarded. From now on `keeper` counts the bytes.
    pub fn detach_reader(&self, bytes_max: usize, retention_counter: Weak<dyn RetentionCounter>) {
        let mut queue = self.queue.lock();
        queue.exchange.reader_gone = Some(ReaderGone {
            bytes_max,
            retention_counter,
        });
        self.is_retained.store(true, Ordering::Relaxed);
        self.drop_unread(&mut queue);
        drop(queue);
        self.update_budget();
    }

    /// Attaches a returned reader.
    pub fn attach_reader(&self) {
        self.queue.lock().exchange.reader_gone = None;
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

    /// Whether the answer was discarded.
    pub fn is_abandoned(&self) -> bool {
        self.queue.lock().exchange.abandoned
    }

    /// Whether nothing was ever queued.
    pub fn is_unused(&self) -> bool {
        self.queue.lock().queued_bytes_total == 0
    }

    /// Whether the response is to be ended now; true once per interruption.
    pub fn take_interrupt(&self) -> bool {
        std::mem::take(&mut self.queue.lock().exchange.interrupted)
    }

    /// Withdraws a close for a reason that a returning client ends, and returns the reason. For HTTP sessions, which
    /// outlive their connections.
    pub fn reopen(&self) -> Option<CloseReason> {
        let given_up = |why: &mut CloseReason| {
            let released = matches!(
                why,
                CloseReason::SessionEnded | CloseReason::Failed | CloseReason::StoreRolledBack
            );
            released || matches!(why, CloseReason::Silent | CloseReason::Disconnected)
        };
        self.queue.lock().closing.take_if(given_up)
    }

    /// Withdraws a close as unauthorized: the reader from now on has a valid credential.
    pub fn clear_unauthorized(&self) {
        self.queue
            .lock()
            .closing
            .take_if(|why| *why == CloseReason::Unauthorized);
    }

    /// Queues a comment (SSE): begins a stream of events, or keeps an idle one alive.
    pub fn send_comment(&self) {
        self.send_raw(b": keep-alive\n\n");
    }
}
