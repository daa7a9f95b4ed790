//! What the backends of a project say about themselves and offer. The gateway reads and writes the text.

use std::sync::Arc;

use super::error::Op;
use crate::model::BackendName;

/// Bytes of the lists of one backend, at most. Callers keep to it.
pub const BACKEND_LISTS_BYTES_MAX: usize = 4 << 20;

/// The kept lists of the backends of a project: one text for each, by name.
pub trait BackendListStore {
    /// Keeps the lists of a backend in place of those that were kept before; None forgets them.
    fn keep_backend_lists(&self, backend: BackendName, lists: Option<Arc<str>>) -> Op<()>;

    /// The kept lists of a backend; None without any.
    fn backend_lists(&self, backend: BackendName) -> Op<Option<Arc<str>>>;

    /// Forgets the lists of all backends but these.
    fn retain_backend_lists(&self, backends: Vec<BackendName>) -> Op<()>;
}
