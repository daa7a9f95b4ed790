use std::sync::Arc;

use actix::Message;
use tokio::sync::{oneshot, watch};

use crate::{
    model::{BrokerError, CapabilityFilter, DeliveryStatus, Draft, ProtocolName, SessionId},
    session::Member,
    storage::SendResult,
};

/// Messages to accept, in this order; one answer each, all at once, when the recipients that could be told at once
/// have been.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Route {
    pub submissions: Vec<Submission>,
    pub reply: oneshot::Sender<Vec<RouteAnswer>>,
}

pub type RouteAnswer = Result<Routed, BrokerError>;

/// A message that is checked and encoded.
pub struct Submission {
    pub draft: Draft,
    pub target: Recipients,
    pub idempotency_key: Option<String>,
    /// The sender wants to follow the status beyond this answer.
    pub is_tracked: bool,
}

pub enum Recipients {
    One(Arc<Member>),
    Many(Box<AudienceQuery>),
    /// Nobody is there any more. Only when the sender has used the idempotency key before is the answer another than
    /// this.
    Missing(BrokerError),
}

/// Everyone but the sender whom the filter lets through and who speaks the protocol.
pub struct AudienceQuery {
    pub sender: SessionId,
    pub filter: CapabilityFilter,
    pub protocol: ProtocolName,
    pub version: semver::Version,
}

pub struct Routed {
    pub result: SendResult,
    /// Sessions the filter or their protocols left out.
    pub skipped: usize,
    /// There when the submission was `watched` and is not a repeat.
    pub status: Option<watch::Receiver<DeliveryStatus>>,
    /// The answer is that of an earlier submission with the same idempotency key.
    pub is_repeat: bool,
}

impl Routed {
    /// The answer to a send whose idempotency key has a first result.
    #[must_use]
    pub fn from_first_result(first: SendResult) -> Self {
        Self {
            skipped: first.skipped,
            result: first,
            status: None,
            is_repeat: true,
        }
    }
}

/// Makes the actor panic. Compiled in for tests only.
#[cfg(feature = "faults")]
#[derive(Message)]
#[rtype(result = "()")]
pub struct PanicRouter;
