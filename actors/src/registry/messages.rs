use std::sync::Arc;

use actix::Message;
use tokio::sync::oneshot;

use super::Protocol;
use crate::model::{BrokerError, ProtocolName};

/// Takes a protocol in, unless it is there already. Its schema is compiled, hence checked.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Admit {
    pub protocol: Arc<Protocol>,
    /// How many there may be.
    pub len_max: Option<usize>,
    pub reply: oneshot::Sender<Result<Arc<Protocol>, BrokerError>>,
}

/// Another replica has taken protocols in: this one, or nobody knows which.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Learn {
    pub which: Option<(ProtocolName, semver::Version)>,
    /// Told when they are here; let go of when the store could not say which they are.
    pub done: oneshot::Sender<()>,
}

/// Makes the actor panic. Compiled in for tests only.
#[cfg(feature = "faults")]
#[derive(Message)]
#[rtype(result = "()")]
pub struct Panic;
