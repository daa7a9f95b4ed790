//! Changes of project records. A record from the store is applied here: keys, limits, and whether the project is
//! open.

use std::sync::Arc;

use actix::{AsyncContext, Context};

use super::{Broker, DELETED_CHECK_DELAY, Duration, LoadedRecord, RecordUpdate, Reply, is_default};
use crate::{
    clock::now,
    model::{BrokerError, ProjectId, ProjectRecord},
    ops::then,
    project::Projects,
    session::CloseReason,
    storage::{Storage, StoreEpoch, StoreError},
};

impl Broker {
    pub(super) fn create(&mut self, mut record: ProjectRecord, reply: Reply, ctx: &mut Context<Self>) {
        let active = self.records.values().filter(|known| known.record.active).count();
        let max = self.settings.projects_max;
        if active >= max && !self.records.contains_key(&record.id) {
            let reason = format!("the broker has its maximum of {max} projects (projects_max): delete one first");
            drop(reply.send(Err(BrokerError::forbidden(reason))));
            return;
        }
        record.revision = 0;
        let epoch = self.storage.epoch();
        self.put(record.clone(), epoch, ctx, move |broker, stored, ctx| match stored {
            Ok(Some(record)) => {
                let answer = Ok(Arc::clone(&record));
                broker.apply_record(record, epoch, ctx, move || drop(reply.send(answer)));
            }
            Ok(None) => drop(reply.send(Err(BrokerError::ProjectExists {
                id: record.id.to_string(),
            }))),
            Err(StoreError::RolledBack) => broker.create(record, reply, ctx),
            Err(error) => drop(reply.send(Err(error.into()))),
        });
    }

    pub(super) fn update(
        &mut self,
        project: ProjectId,
        update: RecordUpdate,
        tries: usize,
        reply: Reply,
        ctx: &mut Context<Self>,
    ) {
        let Some(base) = self.records.get(&project).filter(|known| known.record.active) else {
            drop(reply.send(Err(BrokerError::ProjectNotFound)));
            return;
        };
        let (mut record, epoch) = (ProjectRecord::clone(&base.record), base.epoch);
        for key in &mut record.keys {
            key.last_used_at_ms = self.keyring.last_used_at_ms(&key.digest).max(key.last_used_at_ms);
        }
        if let Err(error) = update.apply(&mut record) {
            drop(reply.send(Err(error)));
            return;
        }
        record.revision += 1;
        self.put(record, epoch, ctx, move |broker, stored, ctx| match stored {
            Ok(Some(record)) => {
                let answer = Ok(Arc::clone(&record));
                broker.apply_record(record, epoch, ctx, move || drop(reply.send(answer)));
            }
            Ok(None) | Err(StoreError::RolledBack) if tries > 1 => {
                broker.reload_and_update(project, update, tries - 1, reply, ctx)
            }
            Ok(None) => drop(reply.send(Err(BrokerError::unavailable()))),
            Err(error) => {
                // The store may have applied the update in spite of the error.
                broker.reload(project, ctx);
                drop(reply.send(Err(error.into())));
            }
        });
    }

    /// Reads the record of a project from the store and applies it.
    pub(super) fn reload(&mut self, project: ProjectId, ctx: &mut Context<Self>) {
        let epoch = self.storage.epoch();
        let op = self.storage.project(project.clone());
        then(op, self, ctx, move |broker, record, ctx| match record {
            Ok(record) => broker.apply_loaded(project, record, epoch, ctx),
            Err(StoreError::RolledBack) => broker.reload(project, ctx),
            Err(error) => {
                tracing::warn!(%project, %error, "project record cannot be read; retrying");
                ctx.run_later(Duration::from_secs(1), move |broker, ctx| broker.reload(project, ctx));
            }
        });
    }

    /// Applies what the store answered about a project. `epoch` is the epoch of the store when it was asked.
    fn apply_loaded(
        &mut self,
        project: ProjectId,
        record: Option<Arc<ProjectRecord>>,
        epoch: StoreEpoch,
        ctx: &mut Context<Self>,
    ) {
        let is_lost = |known: &LoadedRecord| self.storage.has_rolled_back(&project, known.epoch);
        match record {
            _ if self.storage.has_rolled_back(&project, epoch) => self.reload(project, ctx),
            Some(record) => self.apply_record(record, epoch, ctx, || ()),
            None if !self.records.get(&project).is_some_and(is_lost) => {}
            None if is_default(&project) => self.create_default(epoch, ctx),
            None => self.remove_lost(project),
        }
    }

    /// Creates the default project again after the store has lost it.
    fn create_default(&mut self, epoch: StoreEpoch, ctx: &mut Context<Self>) {
        let record = ProjectRecord::default_project(now().unix_ms);
        self.put(record, epoch, ctx, move |broker, stored, ctx| match stored {
            Ok(Some(record)) => broker.apply_record(record, epoch, ctx, || ()),
            // Another replica created it first.
            Ok(None) | Err(StoreError::RolledBack) => broker.reload(ProjectId::default_project(), ctx),
            Err(error) => Self::load_later(&error, ctx),
        });
    }

    /// The store no longer has this project: ends its keys, its sessions and its connections.
    fn remove_lost(&mut self, project: ProjectId) {
        self.records.remove(&project);
        self.failures.remove(&project);
        self.keyring.revoke_all(&project);
        self.changes.send_modify(|count| *count += 1);
        if let Some(arbiter) = self.arbiter_for(&project) {
            let (projects, changes) = (Arc::clone(&self.projects), self.changes.clone());
            arbiter.spawn_fn(move || {
                if let Some(lost) = projects.remove(&project) {
                    lost.control().kill(CloseReason::StoreRolledBack);
                }
                changes.send_modify(|count| *count += 1);
            });
        }
    }

    /// Deleted projects have no actor that would notice a rollback, so the broker checks them.
    fn schedule_deleted_check(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.deleted_check_pending, true) {
            ctx.run_later(DELETED_CHECK_DELAY, |broker, ctx| {
                broker.deleted_check_pending = false;
                let deleted = broker.records.values().filter(|known| !known.record.active);
                let deleted: Vec<_> = deleted.map(|known| known.record.id.clone()).collect();
                for project in deleted {
                    broker.reload(project, ctx);
                }
            });
        }
    }

    /// Another replica changed the record first: reads it again and applies the update to it.
    fn reload_and_update(
        &mut self,
        project: ProjectId,
        update: RecordUpdate,
        tries: usize,
        reply: Reply,
        ctx: &mut Context<Self>,
    ) {
        let epoch = self.storage.epoch();
        let op = self.storage.project(project.clone());
        then(op, self, ctx, move |broker, record, ctx| {
            if let Ok(record) = record {
                broker.apply_loaded(project.clone(), record, epoch, ctx);
            }
            broker.update(project, update, tries, reply, ctx);
        });
    }

    /// Stores a record. `then` gets None when the store has another revision than the one before this one.
    pub(super) fn put(
        &mut self,
        record: ProjectRecord,
        epoch: StoreEpoch,
        ctx: &mut Context<Self>,
        on_done: impl FnOnce(&mut Self, Result<Option<Arc<ProjectRecord>>, StoreError>, &mut Context<Self>) + 'static,
    ) {
        let record = Arc::new(record);
        let op = self.storage.put_project_at(Arc::clone(&record), epoch);
        then(op, self, ctx, move |broker, stored, ctx| {
            on_done(broker, stored.map(|stored| stored.then_some(record)), ctx);
        });
    }

    /// Applies a record: keys, limits, and whether the project is open. `then` runs when this has happened. After a
    /// rollback of the store the project is opened again, even if a newer revision was known before.
    pub(super) fn apply_record(
        &mut self,
        record: Arc<ProjectRecord>,
        epoch: StoreEpoch,
        ctx: &mut Context<Self>,
        then: impl FnOnce() + Send + 'static,
    ) {
        let known = self.records.get(&record.id);
        let went_back = known.is_some_and(|known| self.storage.has_rolled_back(&record.id, known.epoch));
        if !went_back && known.is_some_and(|known| known.record.revision > record.revision) {
            // `then` waits until the newer record has been applied on the arbiter.
            match self.arbiter_for(&record.id) {
                Some(arbiter) => drop(arbiter.spawn_fn(then)),
                None => then(),
            }
            return;
        }
        if went_back {
            self.schedule_deleted_check(ctx);
        }
        let known = LoadedRecord {
            record: Arc::clone(&record),
            epoch,
        };
        self.records.insert(record.id.clone(), known);
        self.keyring.apply(&record, now().unix_ms);
        self.changes.send_modify(|count| *count += 1);
        let Some(arbiter) = self.arbiter_for(&record.id) else {
            return then();
        };
        let (projects, changes) = (Arc::clone(&self.projects), self.changes.clone());
        let (storage, start) = (
            Arc::clone(&self.storage),
            self.project_starter(Arc::clone(&record), epoch),
        );
        arbiter.spawn_fn(move || {
            match projects.get(&record.id) {
                Some(project) if went_back => {
                    project.control().kill(CloseReason::StoreRolledBack);
                    if record.active {
                        projects.insert(start());
                    }
                }
                Some(project) => project.control().update_record(Arc::clone(&record)),
                None if record.active => projects.insert(start()),
                None => {}
            }
            if !record.active {
                close_project(&projects, record, storage);
            }
            changes.send_modify(|count| *count += 1);
            then();
        });
    }
}

/// Ends the sessions of a deleted project and clears what the store holds for it.
fn close_project(projects: &Projects, record: Arc<ProjectRecord>, storage: Arc<dyn Storage>) {
    let id = record.id.clone();
    // A killed project needs no close: its actors are already stopping.
    let closed = projects.close(record).filter(|project| !project.is_killed());
    let closed = closed.map(|project| project.control().close());
    actix_rt::spawn(async move {
        // The sessions end first, so that senders that track a message learn its final status.
        if let Some(closed) = closed {
            let _ = closed.await;
        }
        if let Err(error) = storage.clear_project(id).await {
            tracing::warn!(%error, "data of a deleted project could not be cleared");
        }
    });
}
