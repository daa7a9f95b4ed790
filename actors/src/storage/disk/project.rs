//! The state of one project with the recorder of its changes.

use std::sync::MutexGuard;

use super::recorder::Recorder;
use crate::{
    locked::Locked,
    storage::{StoreError, state::project::ProjectState},
};

/// The state of a project, shared by all stores that are open on it.
#[derive(Debug)]
pub struct DiskProject(Locked<ProjectState<Recorder>>);

impl DiskProject {
    /// A project with this state.
    pub fn new(state: ProjectState<Recorder>) -> Self {
        Self(Locked::new(state))
    }

    /// The space of the project on the disk.
    pub fn space(&self) -> u32 {
        self.state().journal.space()
    }

    /// Replaces the state by what is on the disk; changes that never reached the disk are lost. Claims and open
    /// stores stay valid.
    pub fn replace_state(&self, mut fresh: ProjectState<Recorder>) {
        let mut state = self.state();
        fresh.adopt(&state);
        *state = fresh;
    }

    /// Runs `last` and records no further change. Returns the space and the result of `last`.
    ///
    /// # Errors
    /// Those of `last`; the project stays open then.
    pub fn close_with<T>(&self, last: impl FnOnce() -> Result<T, StoreError>) -> Result<(u32, T), StoreError> {
        let mut state = self.state();
        let done = last()?;
        state.journal.close();
        Ok((state.journal.space(), done))
    }

    /// Locks the state.
    pub fn state(&self) -> MutexGuard<'_, ProjectState<Recorder>> {
        self.0.lock()
    }
}
