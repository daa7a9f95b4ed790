use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use super::ProjectHandle;
use crate::model::{ProjectId, ProjectRecord};

/// The projects of a broker. The broker's actor alone writes it; anybody may look.
#[derive(Default)]
pub struct Projects(RwLock<ProjectMaps>);

#[derive(Default)]
struct ProjectMaps {
    open: HashMap<ProjectId, ProjectHandle>,
    closed: BTreeMap<ProjectId, Arc<ProjectRecord>>,
}

impl Projects {
    /// None for one that is closed, and for one that never was: nobody is to tell them apart.
    pub fn get(&self, id: &ProjectId) -> Option<ProjectHandle> {
        self.read().open.get(id).cloned()
    }

    pub fn all_open(&self) -> Vec<ProjectHandle> {
        self.read().open.values().cloned().collect()
    }

    /// All of them as they are, by id.
    pub fn records(&self) -> Vec<Arc<ProjectRecord>> {
        let roster = self.read();
        let open = roster.open.values().map(ProjectHandle::record);
        let mut records: Vec<_> = open.chain(roster.closed.values().cloned()).collect();
        records.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        records
    }

    pub(crate) fn record(&self, id: &ProjectId) -> Option<Arc<ProjectRecord>> {
        let roster = self.read();
        let open = roster.open.get(id).map(ProjectHandle::record);
        open.or_else(|| roster.closed.get(id).cloned())
    }

    pub(crate) fn insert(&self, project: ProjectHandle) {
        let mut roster = self.write();
        roster.closed.remove(project.id());
        roster.open.insert(project.id().clone(), project);
    }

    /// The store does not have it any more. Returns what it was, if it was open.
    pub(crate) fn remove(&self, id: &ProjectId) -> Option<ProjectHandle> {
        let mut roster = self.write();
        roster.closed.remove(id);
        roster.open.remove(id)
    }

    /// Returns what it was, if it was open.
    pub(crate) fn close(&self, record: Arc<ProjectRecord>) -> Option<ProjectHandle> {
        let mut roster = self.write();
        let project = roster.open.remove(&record.id);
        roster.closed.insert(record.id.clone(), record);
        project
    }

    fn read(&self) -> RwLockReadGuard<'_, ProjectMaps> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ProjectMaps> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
