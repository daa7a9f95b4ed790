//! What the router takes and what it answers.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use super::AcceptSpans;
use crate::{
    directory::AudienceQuery,
    model::{BrokerError, DeliveryStatus, NewMessage, Outcome},
    session::Member,
    speech::Form,
    storage::SendResult,
};

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
