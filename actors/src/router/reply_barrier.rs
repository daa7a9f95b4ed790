//! Holds the answers to a batch of sends until every nudge of the batch has been handled, so that `delivered` in an
//! answer is true.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{RouteAnswer, Routed};
use crate::{locked::Locked, model::Message, storage::SendResult};

/// The answers of one batch. Each nudge holds a clone of the `Arc`; dropping the last one sends the answers. What was
/// delivered is looked up only then: an answer never claims more than has happened, and a session that panics over its
/// nudge delays nothing.
pub(super) struct ReplyBarrier(Locked<Option<Pending>>);

struct Pending {
    answers: Vec<PendingAnswer>,
    reply: oneshot::Sender<Vec<RouteAnswer>>,
}

/// The answer to one submission, complete except for what was delivered.
pub(super) enum PendingAnswer {
    /// Refused, or the result of an earlier send.
    Answered(RouteAnswer),
    /// The store has the message.
    Accepted {
        message: Arc<Message>,
        result: SendResult,
        skipped: usize,
    },
}

impl ReplyBarrier {
    /// `reply` gets the answers when the last clone is dropped.
    pub(super) fn new(answers: Vec<PendingAnswer>, reply: oneshot::Sender<Vec<RouteAnswer>>) -> Arc<Self> {
        Arc::new(Self(Locked::new(Some(Pending { answers, reply }))))
    }
}

impl Drop for ReplyBarrier {
    fn drop(&mut self) {
        let pending = self.0.get_mut().take();
        if let Some(Pending { answers, reply }) = pending {
            // A sender that is gone does not need the answer; its message is accepted all the same.
            let _ = reply.send(answers.into_iter().map(PendingAnswer::resolve).collect());
        }
    }
}

impl PendingAnswer {
    /// The answer, with what was delivered until now.
    fn resolve(self) -> RouteAnswer {
        match self {
            Self::Answered(answer) => answer,
            Self::Accepted {
                message,
                mut result,
                skipped,
            } => {
                if let Some((count, at_ms)) = message.progress.delivered() {
                    let delivered = (count as usize).min(result.queued);
                    result.delivered = delivered;
                    result.queued -= delivered;
                    result.queue_len = result
                        .queue_len
                        .saturating_sub(usize::from(message.recipient.is_some()));
                    result.delivered_at_ms = Some(at_ms);
                }
                let status = message.progress.subscribe();
                Ok(Routed {
                    result,
                    skipped,
                    status,
                    is_repeat: false,
                    outcome: None,
                })
            }
        }
    }
}
