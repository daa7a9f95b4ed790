//! The messages that the registry's actor handles, with their answers.

use std::sync::Arc;

use actix::Message;
use tokio::sync::oneshot;

use super::catalog::Protocol;
use crate::model::{BrokerError, ProtocolName, ProtocolRecord};

/// Registers a protocol whose schema is compiled, and thereby checked.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct RegisterProtocol {
    pub protocol: Arc<Protocol>,
    /// The largest number of protocols of the project.
    pub len_max: Option<usize>,
    pub reply: oneshot::Sender<Result<RegisteredProtocol, BrokerError>>,
}

/// The answer to a registration.
#[derive(Clone, Debug)]
pub struct RegisteredProtocol {
    pub record: Arc<ProtocolRecord>,
    /// An identical protocol was registered before.
    pub is_duplicate: bool,
}

impl RegisteredProtocol {
    /// The answer when a protocol with the wanted name and version exists.
    ///
    /// # Errors
    /// `protocol_exists` if it differs from the wanted one.
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

/// Loads what another replica has registered or changed.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct RefreshCatalog {
    pub what: Refresh,
    /// Receives a value when it is in the catalog; dropped if the store cannot be read.
    pub done: oneshot::Sender<()>,
}

/// What is read from the store again.
#[derive(Clone, Debug)]
pub(crate) enum Refresh {
    /// All protocols and lenses.
    All,
    /// One version of a protocol.
    Protocol(ProtocolName, semver::Version),
    /// The lenses of a protocol, with its versions.
    Lenses(ProtocolName),
}

/// Makes the actor panic. Exists in test builds only.
#[cfg(feature = "faults")]
#[derive(Message)]
#[rtype(result = "()")]
pub struct PanicRegistry;
