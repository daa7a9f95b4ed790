//! The result of every storage operation, and the health of a storage.

use std::pin::Pin;

use crate::model::BrokerError;

/// A storage operation in progress. Nothing happens before its first poll. The memory backend is ready at that poll, so
/// a caller that polls once before it arranges to wait saves the wait.
pub type Op<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Why an operation failed. The store may or may not have carried it out; the caller reports nothing as accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The server or the disk does not answer; the text says why.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The server or the disk has no space left for new data; the text says why.
    #[error("the store has no room: {0}")]
    Full(String),
    /// The project's data are older than what the caller has read from it: the server lost writes. See
    /// [`StoreEpoch`](super::StoreEpoch).
    #[error("the store came back with older data: the project is opened again from what it has")]
    RolledBack,
    /// A replica of an earlier version shares the store, and could not read what would be stored.
    #[error(
        "a replica of an earlier version is running, which does not know lenses: update it, then register the lens"
    )]
    EarlierReplica,
}

impl From<StoreError> for BrokerError {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "a storage operation failed");
        match error {
            StoreError::Unreachable(_) | StoreError::RolledBack => Self::unavailable(),
            StoreError::Full(_) => Self::StorageFull,
            StoreError::EarlierReplica => Self::EarlierReplica,
        }
    }
}

/// The health of a storage as `/health` reports it. The reasons are public: they contain no address and no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageHealth {
    /// Every operation works.
    Healthy,
    /// Operations work, with a limitation; the reason.
    Degraded(String),
    /// New messages are refused; the reason.
    Unavailable(String),
}
