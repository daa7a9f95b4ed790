//! The reference backend: keeps everything in this process, each project in a local store (`local.rs`) that commits nothing.

use std::{collections::HashMap, future::ready, sync::Arc};

use super::{
    Op, ReplicatedStorage, Retention, Storage, StorageHealth, Store,
    local::{LocalStore, MemoryCommit},
    state::{account::StoreLimits, project::ProjectState, system::SystemState},
};
use crate::{
    locked::Locked,
    model::{AuditEntry, AuditQuery, ProjectId, ProjectRecord},
};

/// Keeps the store of each project as long as the storage itself lives.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    limits: StoreLimits,
    /// Why this storage replaces another one.
    fallback_reason: Option<String>,
    stores: Locked<HashMap<ProjectId, Arc<LocalStore<MemoryCommit>>>>,
    system: Locked<SystemState>,
}

impl MemoryStorage {
    /// `retention` applies to each project by itself, except `messages_bytes_max`, which all projects share.
    pub fn new(retention: Retention) -> Self {
        Self {
            limits: StoreLimits::new(retention),
            ..Self::default()
        }
    }

    /// A storage that replaces another one for this reason. Its health is degraded.
    pub fn new_fallback(retention: Retention, why: impl Into<String>) -> Self {
        Self {
            limits: StoreLimits::new(retention),
            fallback_reason: Some(why.into()),
            ..Self::default()
        }
    }
}

impl MemoryStorage {
    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&mut SystemState) -> T) -> Op<T> {
        let answer = operation(&mut self.system.lock());
        Box::pin(ready(Ok(answer)))
    }
}

impl Storage for MemoryStorage {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn durability(&self) -> String {
        "nothing survives the process".to_owned()
    }

    fn health(&self) -> StorageHealth {
        self.fallback_reason
            .clone()
            .map_or(StorageHealth::Healthy, StorageHealth::Degraded)
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStorage> {
        None
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        let mut stores = self.stores.lock();
        if let Some(store) = stores.get(project) {
            return store.clone();
        }
        let state = ProjectState::new(project.clone(), &self.limits);
        let store = Arc::new(LocalStore(MemoryCommit::new(state)));
        stores.insert(project.clone(), store.clone());
        store
    }

    fn projects(&self) -> Op<Vec<Arc<ProjectRecord>>> {
        self.run(|system| system.projects())
    }

    fn project(&self, project: ProjectId) -> Op<Option<Arc<ProjectRecord>>> {
        self.run(|system| system.project(&project))
    }

    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool> {
        self.run(|system| system.put_project(record))
    }

    fn clear_project(&self, project: ProjectId) -> Op<()> {
        self.stores.lock().remove(&project);
        Box::pin(ready(Ok(())))
    }

    fn append_audit(&self, entry: AuditEntry) -> Op<()> {
        let len_max = self.limits.retention.audit_len_max;
        self.run(|system| {
            system.append_audit(entry, len_max);
        })
    }

    fn audit(&self, query: AuditQuery) -> Op<Vec<Arc<AuditEntry>>> {
        self.run(|system| system.audit(&query))
    }
}

#[cfg(test)]
mod tests;
