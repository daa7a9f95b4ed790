//! Registered protocols as records. The registry compiles their schemas. A version of a protocol never changes and is never
//! removed.

use std::sync::Arc;

use semver::Version;

use super::{
    error::{Op, StoreError},
    records::{Before, RecordPut, Table},
    store::Store,
};
use crate::model::{ProtocolName, ProtocolRecord};

impl dyn Store {
    /// Adds a protocol unless its name and version exist or the project has `len_max` protocols already.
    pub fn insert_protocol(&self, record: &ProtocolRecord, len_max: Option<usize>) -> Op<Inserted> {
        let len_max = len_max.unwrap_or(usize::MAX);
        // Plain values are always JSON.
        let text = serde_json::to_string(record).unwrap_or_default();
        let key = key_of(&record.name, &record.version);
        let put = self.put_if(Table::Protocols, key, Before::Absent { len_max }, Some(text.into()));
        Box::pin(async move {
            Ok(match put.await? {
                RecordPut::Stored => Inserted::New,
                RecordPut::Differs(Some(stored)) => Inserted::Exists(read(&stored)?),
                RecordPut::Differs(None) | RecordPut::Full => Inserted::Full,
            })
        })
    }

    /// All protocols, by name and version.
    pub fn protocols(&self) -> Op<Vec<Arc<ProtocolRecord>>> {
        self.protocols_with(Vec::new())
    }

    /// The versions of a protocol.
    pub fn versions_of(&self, name: &ProtocolName) -> Op<Vec<Arc<ProtocolRecord>>> {
        self.protocols_with(format!("{name} ").into_bytes())
    }

    fn protocols_with(&self, prefix: Vec<u8>) -> Op<Vec<Arc<ProtocolRecord>>> {
        let records = self.list(Table::Protocols, prefix);
        Box::pin(async move {
            let records = records.await?;
            let protocols: Result<Vec<_>, _> = records.iter().map(|(_, text)| read(text)).collect();
            let mut protocols = protocols?;
            protocols.sort_by(|left, right| (&left.name, &left.version).cmp(&(&right.name, &right.version)));
            Ok(protocols)
        })
    }

    /// One version of a protocol; None if the store does not have it.
    pub fn protocol(&self, name: &ProtocolName, version: &Version) -> Op<Option<Arc<ProtocolRecord>>> {
        let record = self.get(Table::Protocols, key_of(name, version));
        Box::pin(async move { record.await?.as_deref().map(read).transpose() })
    }
}

fn key_of(name: &ProtocolName, version: &Version) -> Vec<u8> {
    format!("{name} {version}").into_bytes()
}

fn read(text: &str) -> Result<Arc<ProtocolRecord>, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Unreachable(format!("a protocol cannot be read: {error}")))
}

/// The result of `insert_protocol`. Every variant but `New` means that nothing changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Inserted {
    /// The protocol is stored.
    New,
    /// The store has this protocol under the same name and version; it may differ from the one offered.
    Exists(Arc<ProtocolRecord>),
    /// The project has as many protocols as allowed.
    Full,
}
