//! The outbox as its session sees it: a connection that messages are pushed to.

use std::sync::{Arc, atomic::Ordering};

use actors::{
    model::{ConnectionId, Rungs, SessionId},
    session::{CloseReason, Connection, ReadReservation, UNRESERVED_BYTES_MAX},
    storage::Delivery,
};

use serde_json::json;

use super::{Outbox, PUSH_BYTES_MAX};
use crate::mcp::waking::{WAKE, Wake};
use common::json::frame::{self, OfLen};

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
            // Room in the shared budget is made elsewhere; the transport has to poll for it.
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
        let mut queue = self.queue.lock();
        // The peer unsubscribed after the lease. The leased messages return to the inbox at the next release.
        let Some(frame) = queue.push.take() else { return };
        for Delivery { message, count } in deliveries {
            let before = frame.before(message.meta());
            let before_len: usize = before.iter().map(|part| part.len()).sum();
            let len = before_len + message.encoded_len(*count) + frame.after.len();
            let write = |out: &mut Vec<u8>| {
                for part in &before {
                    out.extend_from_slice(part);
                }
                message.write(out, *count);
                out.extend_from_slice(&frame.after);
            };
            self.append(&mut queue, OfLen { len, write });
            if !queue.ended {
                let end = queue.queued_bytes_total;
                queue.marks.messages.push_back((end, message.id));
            }
        }
        queue.push = Some(frame);
        drop(queue);
        // While a reservation exists, it covers these messages.
        if self.charge.as_ref().is_some_and(|charge| charge.reserved_bytes() == 0) {
            self.update_budget();
        }
        self.wake();
    }

    fn notify_inbox_changed(&self) {
        let mut queue = self.queue.lock();
        if queue.inbox_frames.is_empty() || std::mem::replace(&mut queue.inbox_announced, true) {
            return;
        }
        let frames = std::mem::take(&mut queue.inbox_frames);
        for frame in &frames {
            self.append(&mut queue, &**frame);
        }
        queue.inbox_frames = frames;
        drop(queue);
        self.update_budget();
        self.wake();
    }

    fn wakes_by(&self) -> Rungs {
        Rungs::from_bits(self.rungs.load(Ordering::Relaxed))
    }

    fn wake(&self, session: SessionId, wake: &actors::model::Wake) {
        let params = Wake {
            wake_id: wake.number.to_string(),
            session_id: session.to_string(),
            mail: wake.mail.clone(),
            reason: wake.reason,
        };
        self.send(frame::notification(WAKE, json!(params)));
    }

    fn close(&self, why: CloseReason) {
        if why == CloseReason::TakenOver {
            self.taken_over.store(true, Ordering::Release);
        }
        self.queue.lock().closing.get_or_insert(why);
        self.wake();
    }

    fn ends_with_client(&self) -> bool {
        self.has_lines()
    }
}

/// Bytes that an outbox has reserved for messages that are being read from the store.
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
