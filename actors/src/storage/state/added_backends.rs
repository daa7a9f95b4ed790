//! The tables of the added backends of a project.

use std::sync::Arc;

use super::{
    journal::{Change, Journal},
    project::ProjectState,
};
use crate::{
    model::BackendName,
    storage::added_backends::{ADDED_BACKENDS_MAX, TableChange},
};

impl<J: Journal> ProjectState<J> {
    /// See [`AddedBackendStore::added_backends`](crate::storage::AddedBackendStore::added_backends).
    pub fn added_backends(&self) -> Vec<(BackendName, Arc<str>)> {
        let tables = self.added_backends.iter();
        tables
            .map(|(backend, table)| (backend.clone(), Arc::clone(table)))
            .collect()
    }

    /// See [`AddedBackendStore::change_added_backend`](crate::storage::AddedBackendStore::change_added_backend).
    pub fn change_added_backend(
        &mut self,
        backend: BackendName,
        before: Option<&str>,
        table: Option<Arc<str>>,
    ) -> TableChange {
        let stored = self.added_backends.get(&backend);
        if stored.map(|stored| &**stored) != before {
            return TableChange::Differs(stored.cloned());
        }
        if before.is_none() && self.added_backends.len() >= ADDED_BACKENDS_MAX {
            return TableChange::Full;
        }
        self.journal.record(Change::AddedBackend {
            backend: &backend,
            table: table.as_deref(),
        });
        match table {
            Some(table) => self.added_backends.insert(backend, table),
            None => self.added_backends.remove(&backend),
        };
        TableChange::Stored
    }
}
