//! Holds the answers to a batch of sends until every nudge of the batch has been handled, so that `delivered` in an
//! answer is true.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{RouteAnswer, Routed};
use crate::{locked::Locked, model::Message};

/// The answers of one batch. Each nudge holds a clone of the `Arc`; dropping the last one sends the answers. What was
/// delivered is looked up only then: an answer never claims more than has happened, and a session that panics over its
/// nudge delays nothing.
pub(super) struct ReplyBarrier(Locked<Option<Pending>>);

struct Pending {
    messages: Vec<Arc<Message>>,
    /// The answer to each message, complete except for what was delivered.
    answers: Vec<RouteAnswer>,
    reply: oneshot::Sender<Vec<RouteAnswer>>,
}

impl ReplyBarrier {
    /// `reply` gets the answers when the last clone is dropped.
    pub(super) fn new(
        messages: Vec<Arc<Message>>,
        answers: Vec<RouteAnswer>,
        reply: oneshot::Sender<Vec<RouteAnswer>>,
    ) -> Arc<Self> {
        Arc::new(Self(Locked::new(Some(Pending {
            messages,
            answers,
            reply,
        }))))
    }
}

impl Drop for ReplyBarrier {
    fn drop(&mut self) {
        let pending = self.0.get_mut().take();
        if let Some(Pending {
            messages,
            mut answers,
            reply,
        }) = pending
        {
            for (message, answer) in messages.iter().zip(&mut answers) {
                if let Ok(routed) = answer {
                    note_delivered(routed, message);
                }
            }
            // A sender that is gone does not need the answer; its message is accepted all the same.
            let _ = reply.send(answers);
        }
    }
}

/// Adds what was delivered until now to the answer for a message that is no repeat.
fn note_delivered(routed: &mut Routed, message: &Message) {
    if routed.is_repeat {
        return;
    }
    if let Some((count, at_ms)) = message.progress.delivered() {
        let result = &mut routed.result;
        result.delivered = (count as usize).min(result.queued);
        result.queued -= result.delivered;
        result.queue_len = result
            .queue_len
            .saturating_sub(usize::from(message.recipient.is_some()));
        result.delivered_at_ms = Some(at_ms);
    }
    routed.status = message.progress.subscribe();
}
