//! The messages that the registry's actor handles, with their answers.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::catalog::Protocol;
use crate::{
    model::{BrokerError, LensRecord, ProtocolName, ProtocolRecord},
    storage::StoredLens,
};

/// Registers a protocol whose schema is compiled, and thereby checked.
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
    /// The lens that was registered with it.
    pub lens: Option<LensOutcome>,
}

impl RegisteredProtocol {
    /// The answer for a new protocol.
    pub(crate) const fn new(record: Arc<ProtocolRecord>) -> Self {
        Self {
            record,
            is_duplicate: false,
            lens: None,
        }
    }

    /// The answer when a protocol with the wanted name and version exists.
    ///
    /// # Errors
    /// `protocol_exists` if it differs from the wanted one.
    pub(crate) fn existing(there: &Arc<ProtocolRecord>, wanted: &ProtocolRecord) -> Result<Self, BrokerError> {
        let differs = there.differences(wanted);
        if differs.is_empty() {
            return Ok(Self {
                is_duplicate: true,
                ..Self::new(Arc::clone(there))
            });
        }
        Err(BrokerError::ProtocolExists {
            name: there.name.to_string(),
            version: there.version.to_string(),
            differs,
        })
    }
}

/// The answer to the registration of a lens.
#[derive(Clone, Debug)]
pub struct LensOutcome {
    pub record: Arc<LensRecord>,
    /// The identical lens was registered before.
    pub is_duplicate: bool,
    /// Another lens of the same versions was replaced.
    pub is_replacement: bool,
}

/// Loads what another replica has registered or changed.
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

/// Stores, replaces or removes a lens that is checked.
pub(crate) struct ChangeLens {
    pub change: LensChange,
    pub reply: oneshot::Sender<Result<LensChanged, BrokerError>>,
}

/// A change of a lens, if the store still has the one that it was made for.
pub(crate) enum LensChange {
    Put {
        record: Arc<LensRecord>,
        /// None: the versions have no lens.
        before: Option<StoredLens>,
    },
    Remove(StoredLens),
}

impl LensChange {
    /// The protocol.
    pub fn name(&self) -> &ProtocolName {
        match self {
            Self::Put { record, .. } => &record.name,
            Self::Remove(stored) => &stored.record.name,
        }
    }
}

/// The answer to a change of a lens.
pub(crate) enum LensChanged {
    Stored,
    /// The versions have another lens meanwhile, or none: nothing changed.
    Differs,
    /// The record is larger than one may be: nothing changed.
    TooLarge,
}
