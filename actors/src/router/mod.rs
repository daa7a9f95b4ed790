//! The router of a project: selects the recipients of a message, appends it to the store, and nudges the sessions that
//! want a wakeup. A direct message is a broadcast to one.
//!
//! A shared store may push an appended message to its recipients by itself; then the nudge finds nothing to do.
//!
//! This file has what the router takes and answers, and the barrier that holds the answers; `actor.rs` does the work.

mod actor;

use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use crate::{
    directory::AudienceQuery,
    locked::Locked,
    model::{BrokerError, DeliveryStatus, Message, NewMessage, Outcome, TraceContext},
    session::Member,
    speech::Form,
    storage::{Appended, SendResult, StoreError},
    trace::{ActiveSpan, Attribute, SpanKind},
};

pub use actor::{ROUTER_BYTES_MAX, Router};

/// Messages to accept, in this order. The answers, one for each, come together once the nudged recipients have taken
/// what they can take at once.
pub struct Route {
    pub submissions: Vec<Submission>,
    /// When they were submitted, on the fine clock.
    pub submitted_ns: u64,
    pub reply: oneshot::Sender<Vec<RouteAnswer>>,
}

/// The answer to one message.
pub type RouteAnswer = Result<Routed, BrokerError>;

/// A message that is checked and encoded, and has no id and no time yet.
pub struct Submission {
    pub draft: NewMessage,
    pub target: Recipients,
    pub idempotency_key: Option<String>,
    /// The sender wants to know how far the message comes after this answer.
    pub is_tracked: bool,
    /// It is refused where the inbox of its recipient is half full, and leaves the other half to messages of agents.
    pub is_report: bool,
    /// The message in the versions of those recipients that lenses transform it for. None if there are none.
    pub forms: Option<Box<[Arc<Form>]>>,
    /// The spans of its acceptance, if its trace is recorded.
    pub spans: Option<Box<AcceptSpans>>,
}

/// To whom a message goes.
pub enum Recipients {
    One(Arc<Member>),
    Many(Box<AudienceQuery>),
    /// The recipient does not exist. The answer is this error, unless the idempotency key already has a result.
    Missing(Box<BrokerError>),
}

/// What became of an accepted message.
#[derive(Clone)]
pub struct Routed {
    pub result: SendResult,
    /// The status as it changes. None unless the submission is tracked and not a repeat.
    pub status: Option<watch::Receiver<DeliveryStatus>>,
    /// An earlier submission with the same idempotency key had this answer.
    pub is_repeat: bool,
    /// What the recipient said of the message, for a sender that waited for its acknowledgement.
    pub outcome: Option<Arc<Outcome>>,
}

impl Routed {
    /// The answer to a send whose idempotency key has a result already.
    pub fn from_first_result(first: SendResult) -> Self {
        Self {
            result: first,
            status: None,
            is_repeat: true,
            outcome: None,
        }
    }
}

/// Holds the answers to a batch of sends until every nudge of the batch has been handled, so that `delivered` in an answer is
/// true. Each nudge holds a clone of the `Arc`; dropping the last one sends the answers. What was
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

/// The spans of a message that is being accepted: `accept`, from its submission to the end of the append, and in it `store`, the
/// append. They end when this is dropped.
#[derive(Debug)]
pub struct AcceptSpans {
    // Dropped first: it ends before the span around it.
    store: Option<ActiveSpan>,
    accept: ActiveSpan,
}

impl AcceptSpans {
    /// Begins to accept a message for the request of this recorded span.
    pub fn begin(request: &TraceContext) -> Option<Box<Self>> {
        let accept = ActiveSpan::child("accept", SpanKind::Producer, request)?;
        Some(Box::new(Self { store: None, accept }))
    }

    /// The context of what the message causes.
    pub const fn context(&self) -> &TraceContext {
        self.accept.context()
    }

    /// Begins the append. A retry continues it.
    pub(super) fn begin_store(&mut self) {
        if self.store.is_none() {
            self.store = ActiveSpan::child("store", SpanKind::Client, self.accept.context());
        }
    }

    /// Notes which message it was and what the store answered.
    pub(super) fn finish(mut self, message: &Message, recipients: usize, result: &Result<Appended, StoreError>) {
        let Self { store, accept } = &mut self;
        accept.set("messaging.message.id", Attribute::Text(message.id.to_string()));
        accept.set(
            "messaging.message.envelope.size",
            Attribute::Number(message.encoded_len(1) as u64),
        );
        match message.recipient {
            Some(recipient) => accept.set("mcp_broker.session.id", Attribute::Text(recipient.to_string())),
            None => accept.set("mcp_broker.recipients", Attribute::Number(recipients as u64)),
        }
        match result {
            // A broadcast is accepted for the others.
            Ok(Appended::Accepted { refusal: Some(_), .. }) if message.recipient.is_some() => accept.fail("refused"),
            Ok(Appended::Accepted { .. } | Appended::Duplicate(_)) => {}
            Ok(Appended::KeyReserved | Appended::RosterOutdated) => accept.fail("refused"),
            Err(error) => {
                let code = BrokerError::from(error.clone()).code();
                if let Some(store) = store {
                    store.fail(code);
                }
                accept.fail(code);
            }
        }
    }
}
