//! Registered protocols in the store. The registry compiles their schemas.

use std::sync::Arc;

use semver::Version;

use super::error::Op;
use crate::model::{ProtocolName, ProtocolRecord};

/// The protocols of a project. A version of a protocol never changes and is never removed.
pub trait ProtocolStore {
    /// Adds a protocol unless its name and version exist or the project has `len_max` protocols already.
    fn insert_protocol(&self, record: Arc<ProtocolRecord>, len_max: Option<usize>) -> Op<Inserted>;

    /// All protocols.
    fn protocols(&self) -> Op<Vec<Arc<ProtocolRecord>>>;

    /// One version of a protocol; None if the store does not have it.
    fn protocol(&self, name: ProtocolName, version: Version) -> Op<Option<Arc<ProtocolRecord>>>;
}

/// The result of [`ProtocolStore::insert_protocol`]. Every variant but `New` means that nothing changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Inserted {
    /// The protocol is stored.
    New,
    /// The store has this protocol under the same name and version; it may differ from the one offered.
    Exists(Arc<ProtocolRecord>),
    /// The project has as many protocols as allowed.
    Full,
}
