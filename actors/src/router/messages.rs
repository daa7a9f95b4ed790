use std::sync::Arc;

use actix::Message;
use tokio::sync::{oneshot, watch};

use crate::{
    model::{BrokerError, CapabilityFilter, Draft, ProtocolName, SessionId, Status},
    session::Member,
    storage::Outcome,
};

/// Messages to accept, in this order; one answer each, all at once, when the recipients that could be told at once
/// have been.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Route {
    pub submissions: Vec<Submission>,
    pub reply: oneshot::Sender<Vec<Answer>>,
}

pub type Answer = Result<Routed, BrokerError>;

/// A message that is checked and encoded.
pub struct Submission {
    pub draft: Draft,
    pub target: Target,
    pub idempotency_key: Option<String>,
    /// The sender wants to follow the status beyond this answer.
    pub watched: bool,
}

pub enum Target {
    One(Arc<Member>),
    Many(Box<Audience>),
    /// Nobody is there any more. Only when the sender has used the idempotency key before is the answer another than
    /// this.
    Nobody(BrokerError),
}

/// Everyone but the sender whom the filter lets through and who speaks the protocol.
pub struct Audience {
    pub sender: SessionId,
    pub filter: CapabilityFilter,
    pub protocol: ProtocolName,
    pub version: semver::Version,
}

pub struct Routed {
    pub outcome: Outcome,
    /// Sessions the filter or their protocols left out.
    pub skipped: usize,
    /// There when the submission was `watched` and is not a repeat.
    pub status: Option<watch::Receiver<Status>>,
    /// The answer is that of an earlier submission with the same idempotency key.
    pub repeated: bool,
}

impl Routed {
    /// The answer to a send whose idempotency key has a first result.
    #[must_use]
    pub fn repeated(first: Outcome) -> Self {
        Self {
            skipped: first.skipped,
            outcome: first,
            status: None,
            repeated: true,
        }
    }
}

/// Makes the actor panic. Compiled in for tests only.
#[cfg(feature = "faults")]
#[derive(Message)]
#[rtype(result = "()")]
pub struct Panic;
