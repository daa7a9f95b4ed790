//! Records: texts by table and key, changed by compare and set. The room that uses a table gives keys and texts their meaning.

use std::sync::Arc;

use super::error::Op;
use crate::{bridge::StoreEvent, model::ProtocolName};

/// Added backends of a project, at most.
pub const ADDED_BACKENDS_MAX: usize = 200;
/// Bytes of the table of one added backend, at most.
pub const BACKEND_TABLE_BYTES_MAX: usize = 16 << 10;
/// Bytes of one protocol, at most: more than a request has.
const PROTOCOL_BYTES_MAX: usize = 16 << 20;
/// Bytes of the lists of one backend, at most.
pub const BACKEND_LISTS_BYTES_MAX: usize = 4 << 20;

/// Bytes of one lens, at most: its operations, and what is known about both ways.
const LENS_BYTES_MAX: usize = 128 << 10;

/// A table of the records of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The registered protocols, by name and version (`protocols.rs`).
    Protocols,
    /// The tables of the backends that administrators have added, by name.
    AddedBackends,
    /// What the backends say about themselves and offer, by name.
    BackendLists,
    /// How far the event log has been sent to each target outside the broker, by the bytes of its id.
    Targets,
    /// The lenses of the protocols, by name and both versions (`lenses.rs`).
    Lenses,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 5] = [
        Self::Protocols,
        Self::AddedBackends,
        Self::BackendLists,
        Self::Targets,
        Self::Lenses,
    ];

    /// Its name, which never changes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Protocols => "protocols",
            Self::AddedBackends => "added_backends",
            Self::BackendLists => "backend_lists",
            Self::Targets => "targets",
            Self::Lenses => "lenses",
        }
    }

    /// The largest number of bytes of the text of a record.
    pub const fn text_bytes_max(self) -> usize {
        match self {
            Self::Protocols => PROTOCOL_BYTES_MAX,
            Self::AddedBackends => BACKEND_TABLE_BYTES_MAX,
            Self::BackendLists => BACKEND_LISTS_BYTES_MAX,
            Self::Targets => 4 << 10,
            Self::Lenses => LENS_BYTES_MAX,
        }
    }

    /// What the other replicas learn of a change of this record, if they learn of it.
    pub fn event(self, key: &[u8]) -> Option<StoreEvent> {
        match self {
            Self::Protocols => {
                let (name, version) = str::from_utf8(key).ok()?.split_once(' ')?;
                Some(StoreEvent::Protocol {
                    name: ProtocolName::parse(name).ok()?,
                    version: version.parse().ok()?,
                })
            }
            Self::Lenses => {
                let (name, _) = str::from_utf8(key).ok()?.split_once(' ')?;
                Some(StoreEvent::Lenses(ProtocolName::parse(name).ok()?))
            }
            Self::AddedBackends => Some(StoreEvent::Backends),
            Self::BackendLists | Self::Targets => None,
        }
    }

    /// Whether a new text adds data. A storage without space refuses it then.
    pub const fn adds_data(self) -> bool {
        !matches!(self, Self::Targets)
    }
}

/// What must be stored for a change to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// Any record, or none.
    Any,
    /// No record with this key, and fewer than `len_max` records in the table.
    Absent { len_max: usize },
    /// A record with this text. A text that contains a revision makes this a comparison of revisions.
    Text(Arc<str>),
}

/// The records of a project.
pub trait RecordStore {
    /// The text with this key; None without one.
    fn get(&self, table: Table, key: Vec<u8>) -> Op<Option<Arc<str>>>;

    /// The keys that begin with `prefix`, sorted.
    fn keys(&self, table: Table, prefix: Vec<u8>) -> Op<Vec<Vec<u8>>>;

    /// The records whose key begins with `prefix`, sorted by key. Each may have
    /// [`Table::text_bytes_max`] bytes.
    fn list(&self, table: Table, prefix: Vec<u8>) -> Op<Vec<(Vec<u8>, Arc<str>)>>;

    /// Stores a text, which is not empty, or with None removes the record, if what is stored is `before`. The other
    /// replicas learn of it if the table has an [event](Table::event).
    fn put_if(&self, table: Table, key: Vec<u8>, before: Before, text: Option<Arc<str>>) -> Op<RecordPut>;
}

/// The result of [`RecordStore::put_if`]. Every variant but `Stored` means that nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordPut {
    /// It is stored, or removed.
    Stored,
    /// This text is stored, or none.
    Differs(Option<Arc<str>>),
    /// The table has `len_max` records, or the text has more than [`Table::text_bytes_max`] bytes.
    Full,
}
