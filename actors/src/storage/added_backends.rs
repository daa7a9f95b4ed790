//! The backends that administrators have added to a project. The gateway reads and writes their tables.

use std::sync::Arc;

use super::error::Op;
use crate::model::BackendName;

/// Added backends of a project, at most.
pub const ADDED_BACKENDS_MAX: usize = 200;
/// Bytes of one table, at most. Callers keep to it.
pub const BACKEND_TABLE_BYTES_MAX: usize = 16 << 10;

/// The tables of the added backends of a project: one text for each, by name.
pub trait AddedBackendStore {
    /// All tables, sorted by name.
    fn added_backends(&self) -> Op<Vec<(BackendName, Arc<str>)>>;

    /// Stores the table of a backend if the one that is stored is still `before`. None means no table: it adds a
    /// backend as `before`, and removes one as `table`. The other replicas learn of it.
    fn change_added_backend(
        &self,
        backend: BackendName,
        before: Option<Arc<str>>,
        table: Option<Arc<str>>,
    ) -> Op<TableChange>;
}

/// The result of [`AddedBackendStore::change_added_backend`]. Every variant but `Stored` means that nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableChange {
    Stored,
    /// This table is stored, or none.
    Differs(Option<Arc<str>>),
    /// The project has [`ADDED_BACKENDS_MAX`] added backends.
    Full,
}
