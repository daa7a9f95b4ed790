use std::sync::Arc;

use actix::Message;
use tokio::sync::oneshot;

use super::Protocol;
use crate::model::{BrokerError, ProtocolName, ProtocolRecord};

/// Takes a protocol in, unless it is there already. Its schema is compiled, hence checked.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct RegisterProtocol {
    pub protocol: Arc<Protocol>,
    /// How many there may be.
    pub len_max: Option<usize>,
    pub reply: oneshot::Sender<Result<RegisteredProtocol, BrokerError>>,
}

/// A protocol that is registered.
#[derive(Clone, Debug)]
pub struct RegisteredProtocol {
    pub record: Arc<ProtocolRecord>,
    /// It was there before, identical.
    pub is_duplicate: bool,
}

impl RegisteredProtocol {
    /// The answer where a protocol of the wanted name and version is there already.
    ///
    /// # Errors
    /// `protocol_exists` when it is another one.
    pub(crate) fn existing(there: &Arc<ProtocolRecord>, wanted: &ProtocolRecord) -> Result<Self, BrokerError> {
        let differs = there.differences(wanted);
        if differs.is_empty() {
            return Ok(Self {
                record: Arc::clone(there),
                is_duplicate: true,
            });
        }
        Err(BrokerError::ProtocolExists {
            name: there.name.to_string(),
            version: there.version.to_string(),
            differs,
        })
    }
}

/// Another replica has taken protocols in: this one, or nobody knows which.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct RefreshCatalog {
    pub key: Option<(ProtocolName, semver::Version)>,
    /// Told when they are here; let go of when the store could not say which they are.
    pub done: oneshot::Sender<()>,
}

/// Makes the actor panic. Compiled in for tests only.
#[cfg(feature = "faults")]
#[derive(Message)]
#[rtype(result = "()")]
pub struct PanicRegistry;
