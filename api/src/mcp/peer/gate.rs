//! Which frames of a client are handled now, which are deferred, and whether more are read.

use super::{ANSWER_BYTES_MAX, Peer, PeerContext, PeerKind, RESERVED_BYTES_MAX, ROUTED_LEN_MAX, SLICE_MS};
use crate::mcp::{
    calls::Resource,
    owned_frame::OwnedFrame,
    peer_queue::Deferred,
    reply::ReplyRoute,
    rpc::{Incoming, Malformed},
};

/// Bytes of open requests to backends from which on lines wait. A connection may hold twice as many.
const FORWARDED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Requests that wait for the end of calls, and their bytes; with more, the connection is not read. One read may exceed it.
const WAITING_LEN_MAX: usize = 256;
const WAITING_BYTES_MAX: usize = 2 * 1024 * 1024;

impl Peer {
    /// Whether more frames should be read now. If not, a later [`Peer::poll`] changes it.
    pub fn wants_frames(&self) -> bool {
        let deferred = &self.batch.deferred;
        let has_room =
            || self.waits_for_calls() && deferred.len() < WAITING_LEN_MAX && self.deferred_len() < WAITING_BYTES_MAX;
        self.accepts_frames() && self.batch.routed.len() < ROUTED_LEN_MAX && (deferred.is_empty() || has_room())
    }

    /// Bytes of the deferred frames.
    pub fn deferred_len(&self) -> usize {
        self.batch.deferred_len()
    }

    /// Whether deferred frames can be handled now.
    pub fn can_resume_deferred(&self) -> bool {
        self.accepts_frames() && self.next_deferred().is_some()
    }

    /// Takes the deferred frame that can be handled now.
    pub(super) fn take_deferred(&mut self) -> Option<Deferred> {
        let at = self.next_deferred().filter(|_| self.accepts_frames())?;
        self.batch.earlier_len = at;
        self.batch.deferred.remove(at)
    }

    /// The place of the deferred frame that is next: the first, or the first that waits for no calls.
    fn next_deferred(&self) -> Option<usize> {
        let deferred = &self.batch.deferred;
        if deferred.is_empty() || !self.waits_for_calls() {
            return (!deferred.is_empty()).then_some(0);
        }
        deferred.iter().position(|frame| !frame.may_wait_for_calls)
    }

    /// Keeps a frame until it can be handled.
    pub(super) fn defer(
        &self,
        text: &str,
        parsed: &Result<Incoming<'_>, Malformed<'_>>,
        route: ReplyRoute,
    ) -> Deferred {
        Deferred {
            frame: OwnedFrame::new(text, parsed.as_ref()).with_http_trace(self.context.http_trace()),
            may_wait_for_calls: may_begin_call(parsed),
            route,
            read_at: self.context.read_at(),
        }
    }

    /// Whether a frame is handled now: no call blocks it, the connection does not pause, its client reads answers, and its
    /// project has a slice of the worker left. Requests may also have to wait for calls.
    fn accepts_frames(&self) -> bool {
        let waiting_len = match self.context.kind {
            PeerKind::Connection => self.context.outbox.waiting_len(),
            PeerKind::HttpSession | PeerKind::Stateless => 0,
        };
        let reserved = self.context.calls.held(Resource::AnswerBytes);
        let is_full = waiting_len >= ANSWER_BYTES_MAX || waiting_len + reserved >= RESERVED_BYTES_MAX;
        let is_paused = self.context.limits.is_read_paused() || self.pause.is_some();
        !self.context.calls.is_exclusive() && !is_paused && !is_full && self.has_slice()
    }

    /// Whether this frame, which was read now, is deferred. A request is not handled before those that wait for calls.
    pub(super) fn must_defer(&self, parsed: &Result<Incoming<'_>, Malformed<'_>>) -> bool {
        let is_behind_calls =
            || self.waits_for_calls() || (self.context.outbox.has_lines() && !self.batch.deferred.is_empty());
        !self.accepts_frames() || (may_begin_call(parsed) && is_behind_calls())
    }

    /// Whether further calls have to wait for the end of others. Over lines they wait; over other transports each call is
    /// refused, so that it fails at once.
    pub(super) fn waits_for_calls(&self) -> bool {
        let PeerContext { outbox, calls, .. } = &*self.context;
        let has_room = || calls.has_free_slot() && calls.held(Resource::RequestBytes) < FORWARDED_BYTES_MAX;
        outbox.has_lines() && !has_room()
    }

    /// Whether the project has a slice of the worker left. A read that has begun has a slice of its own, so that frames that have
    /// been read need not be copied.
    pub(super) fn has_slice(&self) -> bool {
        self.read_busy_ms.is_some_and(|busy_ms| busy_ms < SLICE_MS) || !self.context.worker_time.is_used_up()
    }
}

/// Whether this frame may begin a call. What ends calls does not wait for their end: the client's answers to questions and its
/// cancellations; nor does a ping.
fn may_begin_call(parsed: &Result<Incoming<'_>, Malformed<'_>>) -> bool {
    match parsed {
        Ok(Incoming::Request { method, .. }) => method != "ping",
        Ok(Incoming::Batch(_)) => true,
        Ok(Incoming::Notification { .. } | Incoming::Response { .. }) | Err(_) => false,
    }
}
