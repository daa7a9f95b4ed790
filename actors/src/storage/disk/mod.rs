//! The durable backend of one broker: the same state and the same decisions as in memory, and every change of it on a
//! disk before the operation is answered.
//!
//! An operation takes effect in memory at its first poll, under the lock of its project. What it changed becomes
//! records there (`recorder`), joins the group that gathers (`commits`), and is written with it (`writer`). At the start
//! everything is read back (`load`). The store beneath is an [`Engine`] that the caller brings.

mod codec;
mod commits;
mod engine;
mod load;
mod recorder;
mod records;
mod store;
mod writer;

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use self::{
    codec::RecordWriter as Encoder,
    commits::{Commits, Durable, Need},
    load::{Loaded, load},
    recorder::Recorder,
    records::{SYSTEM_SPACE, VERSION, kind},
    store::{DiskProject, DiskStore},
    writer::DiskWriter,
};
use super::{
    Op, Retention, Storage, StorageHealth, Store, StoreError,
    account::StoreLimits,
    memory::{state::State, system::SystemState},
};
use crate::{
    clock::Now,
    model::{AuditEntry, AuditQuery, ProjectId, ProjectRecord},
};

pub use self::engine::{DiskSpace, Engine, Record, ScanVisitor};

/// What a disk storage may have.
#[derive(Clone, Copy, Debug)]
pub struct DiskSettings {
    /// For each project by itself.
    pub retention: Retention,
    /// With less than this free on the disk nothing new is accepted. It is for what is removed, which is written too.
    /// Of a small disk it is a half: what is in the journal is written a second time before the journal goes.
    pub reserve_bytes: u64,
}

impl Default for DiskSettings {
    fn default() -> Self {
        Self {
            retention: Retention::default(),
            reserve_bytes: 256 << 20,
        }
    }
}

/// Keeps everything on a disk of its own.
#[derive(Debug)]
pub struct DiskStorage {
    core: Arc<Core>,
    writer: Option<JoinHandle<()>>,
}

/// What the operations share with the one who writes.
#[derive(Debug)]
struct Core {
    limits: StoreLimits,
    commits: Commits,
    system: Mutex<SystemState>,
    projects: Mutex<Projects>,
}

#[derive(Debug, Default)]
struct Projects {
    open: HashMap<ProjectId, Arc<DiskProject>>,
    next_space: u32,
}

impl DiskStorage {
    /// Reads back what is there, and begins to write.
    ///
    /// # Errors
    /// What is there cannot be read, or was written by a later version; or nothing is there, and nothing can be written.
    pub fn open(mut engine: impl Engine, settings: DiskSettings, now: Now) -> io::Result<Self> {
        let limits = StoreLimits::new(settings.retention);
        let loaded = load(&mut engine, &limits, now).map_err(io::Error::other)?;
        if loaded.version.is_none() {
            let version = Record {
                key: records::key(SYSTEM_SPACE, kind::VERSION).0,
                value: Some(VERSION.to_be_bytes().to_vec()),
            };
            engine.commit(vec![version]).map_err(io::Error::other)?;
        }
        let core = Arc::new(Core {
            limits,
            commits: Commits::default(),
            system: Mutex::default(),
            projects: Mutex::default(),
        });
        core.install(loaded);
        let writer = DiskWriter {
            core: Arc::clone(&core),
            engine,
            has_removed: true,
            reclaimed_at_ms: now.mono_ms,
            reclaim_backoff: writer::CHECK_INTERVAL,
            reserve_bytes: settings.reserve_bytes,
        };
        let writer = std::thread::Builder::new()
            .name("storage".to_owned())
            .spawn(move || writer.run())?;
        Ok(Self {
            core,
            writer: Some(writer),
        })
    }
}

impl Drop for DiskStorage {
    /// Waits until everything is written and the disk is let go of.
    fn drop(&mut self) {
        self.core.commits.close();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Core {
    /// Begins anew with what is on the disk.
    fn install(&self, loaded: Loaded) {
        *self.system() = loaded.system;
        self.commits.purge(loaded.orphaned_spaces);
        let mut tenants = self.projects();
        let mut states = loaded.states;
        for (project, tenant) in &tenants.open {
            let fresh = states
                .remove(project)
                .unwrap_or_else(|| self.new_state(project, tenant.space()));
            tenant.replace_state(fresh);
        }
        for (project, state) in states {
            tenants.open.insert(project, Arc::new(DiskProject::new(state)));
        }
        tenants.next_space = tenants.next_space.max(loaded.next_space);
    }

    /// A project that is not on the disk. Which space it has is written with the first thing that is.
    fn new_state(&self, project: &ProjectId, space: u32) -> State<Recorder> {
        let first = vec![Record {
            key: records::space_key(project),
            value: Some(space.to_be_bytes().to_vec()),
        }];
        State::with_journal(project.clone(), &self.limits, Recorder::new(space, first))
    }

    fn system(&self) -> MutexGuard<'_, SystemState> {
        self.system.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn projects(&self) -> MutexGuard<'_, Projects> {
        self.projects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until what was recorded is on the disk.
async fn wait_durable(durable: Option<Durable>) -> Result<(), StoreError> {
    match durable {
        None => Ok(()),
        Some(durable) => durable
            .await
            .unwrap_or_else(|_| Err(StoreError::Unreachable("the storage is closed".to_owned()))),
    }
}

impl DiskStorage {
    /// An operation on what belongs to no project, with the records of what it changed.
    fn change<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut SystemState, &mut Vec<Record>) -> T + Send + 'static,
    ) -> Op<T> {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            let (answer, durable) = {
                let mut offices = core.system();
                core.commits.check(Need::Access)?;
                let mut records = Vec::new();
                let answer = operation(&mut offices, &mut records);
                (answer, core.commits.submit(records)?)
            };
            wait_durable(durable).await?;
            Ok(answer)
        })
    }

    fn read<T: Send + 'static>(&self, operation: impl FnOnce(&SystemState) -> T + Send + 'static) -> Op<T> {
        let core = Arc::clone(&self.core);
        Box::pin(async move { Ok(operation(&core.system())) })
    }
}

impl Storage for DiskStorage {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn durability(&self) -> String {
        "everything is on the disk (fdatasync) before it is answered".to_owned()
    }

    fn health(&self) -> StorageHealth {
        self.core.commits.health()
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        let mut tenants = self.core.projects();
        if let Some(tenant) = tenants.open.get(project) {
            return Arc::new(DiskStore::new(Arc::clone(&self.core), Arc::clone(tenant)));
        }
        let space = tenants.next_space;
        tenants.next_space += 1;
        let tenant = Arc::new(DiskProject::new(self.core.new_state(project, space)));
        tenants.open.insert(project.clone(), Arc::clone(&tenant));
        Arc::new(DiskStore::new(Arc::clone(&self.core), tenant))
    }

    fn projects(&self) -> Op<Vec<Arc<ProjectRecord>>> {
        self.read(SystemState::projects)
    }

    fn project(&self, project: ProjectId) -> Op<Option<Arc<ProjectRecord>>> {
        self.read(move |offices| offices.project(&project))
    }

    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool> {
        self.change(move |offices, records| {
            let is_next = offices.put_project(Arc::clone(&record));
            if is_next {
                records.push(Record {
                    key: records::project_key(&record.id),
                    value: Some(records::json(&record)),
                });
            }
            is_next
        })
    }

    fn clear_project(&self, project: ProjectId) -> Op<()> {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            let (space, durable) = {
                let mut tenants = core.projects();
                core.commits.check(Need::Access)?;
                let Some(tenant) = tenants.open.get(&project) else {
                    return Ok(());
                };
                let forgotten = Record {
                    key: records::space_key(&project),
                    value: None,
                };
                let cleared = tenant.close_with(|| core.commits.submit(vec![forgotten]))?;
                tenants.open.remove(&project);
                cleared
            };
            wait_durable(durable).await?;
            core.commits.purge([space]);
            Ok(())
        })
    }

    fn append_audit(&self, entry: AuditEntry) -> Op<()> {
        let len_max = self.core.limits.retention.audit_len_max;
        self.change(move |offices, records| {
            let key = |entry: &AuditEntry| {
                let key: Encoder = records::key(SYSTEM_SPACE, kind::AUDIT);
                key.rest(entry.id.as_bytes()).0
            };
            records.push(Record {
                key: key(&entry),
                value: Some(records::json(&entry)),
            });
            if let Some(forgotten) = offices.append_audit(entry, len_max) {
                records.push(Record {
                    key: key(&forgotten),
                    value: None,
                });
            }
        })
    }

    fn audit(&self, query: AuditQuery) -> Op<Vec<Arc<AuditEntry>>> {
        self.read(move |offices| offices.audit(&query))
    }
}

#[cfg(test)]
mod tests;
