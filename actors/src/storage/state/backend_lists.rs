//! The kept lists of the backends of a project.

use std::sync::Arc;

use super::{
    journal::{Change, Journal},
    project::ProjectState,
};
use crate::model::BackendName;

impl<J: Journal> ProjectState<J> {
    /// See [`BackendListStore::keep_backend_lists`](crate::storage::BackendListStore::keep_backend_lists).
    pub fn keep_backend_lists(&mut self, backend: BackendName, lists: Option<Arc<str>>) {
        self.journal.record(Change::BackendLists {
            backend: &backend,
            lists: lists.as_deref(),
        });
        match lists {
            Some(lists) => self.backend_lists.insert(backend, lists),
            None => self.backend_lists.remove(&backend),
        };
    }

    /// See [`BackendListStore::retain_backend_lists`](crate::storage::BackendListStore::retain_backend_lists).
    pub fn retain_backend_lists(&mut self, backends: &[BackendName]) {
        let kept = self.backend_lists.keys();
        let others: Vec<_> = kept.filter(|kept| !backends.contains(kept)).cloned().collect();
        for other in others {
            self.keep_backend_lists(other, None);
        }
    }
}
