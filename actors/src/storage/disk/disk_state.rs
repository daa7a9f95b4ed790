//! The state in memory, shared by the operations and the writer thread.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard},
};

use super::{
    commits::{Changes, Commits},
    engine::{EngineReader, Record},
    event_reader::EventReader,
    load::Loaded,
    project::DiskProject,
    recorder::Recorder,
    records,
};
use crate::{
    locked::Locked,
    model::ProjectId,
    storage::state::{account::StoreLimits, project::ProjectState, system::SystemState},
};

/// What the operations share with the writer thread.
#[derive(Debug)]
pub struct DiskState {
    /// The limits of every project.
    pub limits: StoreLimits,
    /// The queue to the writer thread.
    pub commits: Commits,
    /// Reads event logs.
    pub events: EventReader,
    system: Locked<DiskSystem>,
    projects: Locked<Projects>,
}

/// The project records and the audit log, with their changes.
#[derive(Debug, Default)]
pub struct DiskSystem {
    pub state: SystemState,
    pub changes: Changes,
}

/// The projects that have a space on the disk, or will have one.
#[derive(Debug, Default)]
pub struct Projects {
    /// The open projects.
    pub open: HashMap<ProjectId, Arc<DiskProject>>,
    /// Higher than every space in use.
    pub next_space: u32,
}

impl DiskState {
    /// The state of an empty disk.
    pub fn new(limits: StoreLimits, reader: Arc<dyn EngineReader>) -> Self {
        Self {
            limits,
            commits: Commits::default(),
            events: EventReader::new(reader),
            system: Locked::default(),
            projects: Locked::default(),
        }
    }

    /// Replaces all state by what is on the disk.
    pub fn install(&self, loaded: Loaded) {
        *self.system() = DiskSystem {
            state: loaded.system,
            changes: Changes::default(),
        };
        self.commits.purge(loaded.orphaned_spaces);
        let mut projects = self.projects();
        let mut states = loaded.states;
        for (project, disk_project) in &projects.open {
            let fresh = states
                .remove(project)
                .unwrap_or_else(|| self.new_state(project, disk_project.space()));
            disk_project.replace_state(fresh);
        }
        for (project, state) in states {
            projects.open.insert(project, Arc::new(DiskProject::new(state)));
        }
        projects.next_space = projects.next_space.max(loaded.next_space);
        self.commits.replaced();
    }

    /// The state of a project that is not on the disk. Its space is written with its first change.
    pub fn new_state(&self, project: &ProjectId, space: u32) -> ProjectState<Recorder> {
        let first = vec![Record {
            key: records::space_key(project),
            value: Some(space.to_be_bytes().to_vec()),
        }];
        ProjectState::with_journal(project.clone(), &self.limits, Recorder::new(space, first))
    }

    /// Locks the project records and the audit log.
    pub fn system(&self) -> MutexGuard<'_, DiskSystem> {
        self.system.lock()
    }

    /// Locks the list of projects.
    pub fn projects(&self) -> MutexGuard<'_, Projects> {
        self.projects.lock()
    }
}
