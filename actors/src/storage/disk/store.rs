//! Keeps the changes of one project on the disk.

use std::sync::Arc;

use super::{commits::wait_durable, disk_state::DiskState, project::DiskProject, recorder::Recorder};
use crate::{
    clock::Now,
    model::ProjectEvent,
    storage::{
        EventPage, EventQuery, Op, Unswept,
        local::{Commit, Need},
        state::project::ProjectState,
    },
};

/// Answers an operation when its changes are on the disk.
#[derive(Debug)]
pub struct DiskCommit {
    pub shared: Arc<DiskState>,
    pub project: Arc<DiskProject>,
}

impl Commit for DiskCommit {
    type Journal = Recorder;

    const IS_SYNCHRONOUS: bool = false;

    /// Waits until what the operation changed and what it saw of the project is on the disk: a query waits for nothing
    /// while no change of the project is being written.
    ///
    /// The project's lock is held until the records have joined a group, so that their order is that of the operations.
    fn run<T: Send + 'static>(
        &self,
        need: Need,
        operation: impl FnOnce(&mut ProjectState<Recorder>) -> T + Send + 'static,
    ) -> Op<T> {
        let (shared, project) = (Arc::clone(&self.shared), Arc::clone(&self.project));
        Box::pin(async move {
            let (answer, durable) = {
                let mut state = project.state();
                shared.commits.check(need)?;
                if need != Need::Read {
                    state.unswept.mark();
                }
                let answer = operation(&mut state);
                state.flush_events();
                let changes = state.journal.changes();
                let durable = match need {
                    Need::Read => shared.commits.settle(changes),
                    Need::Access | Need::Space => shared.commits.submit(changes),
                };
                (answer, durable?)
            };
            wait_durable(durable).await?;
            Ok(answer)
        })
    }

    fn unswept(&self) -> Arc<Unswept> {
        Arc::clone(&self.project.state().unswept)
    }

    /// While the disk fails, nothing is recorded: the state is replaced by that on the disk anyway.
    fn record(&self, event: &ProjectEvent, now: Now) {
        if self.shared.commits.check(Need::Access).is_err() {
            return;
        }
        let mut state = self.project.state();
        state.ledger.events.record(event, now);
        state.flush_events();
        self.shared.commits.record(state.journal.changes());
    }

    /// Waits until the events are on the disk: a follower must find an event that it has seen after a restart too.
    fn events(&self, query: EventQuery) -> Op<EventPage> {
        let planned = self.run(Need::Access, move |state| {
            (state.journal.space(), state.ledger.events.plan(query))
        });
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (space, plan) = planned.await?;
            shared.events.read(space, plan).await
        })
    }
}
