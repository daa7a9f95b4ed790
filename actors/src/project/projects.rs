//! The open and closed projects of a broker, shared with every reader.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::handle::ProjectHandle;
use crate::{
    locked::RwLocked,
    metrics,
    model::{ProjectId, ProjectRecord},
};

/// The projects of a broker. Only the broker's actor decides about entries; reads take no actor.
#[derive(Default)]
pub struct Projects(RwLocked<ProjectMaps>);

#[derive(Default)]
struct ProjectMaps {
    open: HashMap<ProjectId, ProjectHandle>,
    closed: BTreeMap<ProjectId, Arc<ProjectRecord>>,
}

impl Projects {
    /// The open project of this id. A closed project and one that never existed give the same answer.
    pub fn get(&self, id: &ProjectId) -> Option<ProjectHandle> {
        self.0.read().open.get(id).cloned()
    }

    /// All open projects, in no order.
    pub fn all_open(&self) -> Vec<ProjectHandle> {
        self.0.read().open.values().cloned().collect()
    }

    /// The records of all projects, sorted by id.
    pub fn records(&self) -> Vec<Arc<ProjectRecord>> {
        let maps = self.0.read();
        let open = maps.open.values().map(ProjectHandle::record);
        let mut records: Vec<_> = open.chain(maps.closed.values().cloned()).collect();
        records.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        records
    }

    pub(crate) fn record(&self, id: &ProjectId) -> Option<Arc<ProjectRecord>> {
        let maps = self.0.read();
        let open = maps.open.get(id).map(ProjectHandle::record);
        open.or_else(|| maps.closed.get(id).cloned())
    }

    pub(crate) fn insert(&self, project: ProjectHandle) {
        let mut maps = self.0.write();
        maps.closed.remove(project.id());
        maps.open.insert(project.id().clone(), project);
    }

    /// Removes a project that the store no longer has. Returns it if it was open.
    pub(crate) fn remove(&self, id: &ProjectId) -> Option<ProjectHandle> {
        let mut maps = self.0.write();
        maps.closed.remove(id);
        metrics::close_project(id);
        maps.open.remove(id)
    }

    /// Moves a project to the closed ones. Returns it if it was open.
    pub(crate) fn close(&self, record: Arc<ProjectRecord>) -> Option<ProjectHandle> {
        let mut maps = self.0.write();
        metrics::close_project(&record.id);
        let project = maps.open.remove(&record.id);
        maps.closed.insert(record.id.clone(), record);
        project
    }
}
