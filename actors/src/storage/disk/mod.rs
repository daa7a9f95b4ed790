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
    codec::Writer as Encoder,
    commits::{Commits, Durable, Need},
    load::{Loaded, load},
    recorder::Recorder,
    records::{OFFICES, VERSION, kind},
    store::{DiskStore, Tenant},
    writer::Writer,
};
use super::{
    Condition, Op, Retention, Storage, Store, StoreError,
    account::Limits,
    memory::{offices::Offices, state::State},
};
use crate::{
    clock::Now,
    model::{AuditEntry, AuditQuery, ProjectId, ProjectRecord},
};

pub use self::engine::{Each, Engine, Record, Room};

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
    limits: Limits,
    commits: Commits,
    offices: Mutex<Offices>,
    tenants: Mutex<Tenants>,
}

#[derive(Debug, Default)]
struct Tenants {
    open: HashMap<ProjectId, Arc<Tenant>>,
    next_space: u32,
}

impl DiskStorage {
    /// Reads back what is there, and begins to write.
    ///
    /// # Errors
    /// What is there cannot be read, or was written by a later version; or nothing is there, and nothing can be written.
    pub fn open(mut engine: impl Engine, settings: DiskSettings, now: Now) -> io::Result<Self> {
        let limits = Limits::new(settings.retention);
        let loaded = load(&mut engine, &limits, now).map_err(io::Error::other)?;
        if loaded.version.is_none() {
            let version = Record {
                key: records::key(OFFICES, kind::VERSION).0,
                value: Some(VERSION.to_be_bytes().to_vec()),
            };
            engine.commit(vec![version]).map_err(io::Error::other)?;
        }
        let core = Arc::new(Core {
            limits,
            commits: Commits::default(),
            offices: Mutex::default(),
            tenants: Mutex::default(),
        });
        core.take(loaded);
        let writer = Writer {
            core: Arc::clone(&core),
            engine,
            has_removed: true,
            made_room_at: now.mono_ms,
            make_room_after: writer::LOOK_INTERVAL,
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
    fn take(&self, loaded: Loaded) {
        *self.offices() = loaded.offices;
        self.commits.purge(loaded.orphans);
        let mut tenants = self.tenants();
        let mut states = loaded.states;
        for (project, tenant) in &tenants.open {
            let fresh = states
                .remove(project)
                .unwrap_or_else(|| self.new_state(project, tenant.space()));
            tenant.begin_anew(fresh);
        }
        for (project, state) in states {
            tenants.open.insert(project, Arc::new(Tenant::new(state)));
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

    fn offices(&self) -> MutexGuard<'_, Offices> {
        self.offices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tenants(&self) -> MutexGuard<'_, Tenants> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until what was recorded is on the disk.
async fn settled(durable: Option<Durable>) -> Result<(), StoreError> {
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
        operation: impl FnOnce(&mut Offices, &mut Vec<Record>) -> T + Send + 'static,
    ) -> Op<T> {
        let core = Arc::clone(&self.core);
        Box::pin(async move {
            let (answer, durable) = {
                let mut offices = core.offices();
                core.commits.admit(Need::Access)?;
                let mut records = Vec::new();
                let answer = operation(&mut offices, &mut records);
                (answer, core.commits.submit(records)?)
            };
            settled(durable).await?;
            Ok(answer)
        })
    }

    fn look<T: Send + 'static>(&self, operation: impl FnOnce(&Offices) -> T + Send + 'static) -> Op<T> {
        let core = Arc::clone(&self.core);
        Box::pin(async move { Ok(operation(&core.offices())) })
    }
}

impl Storage for DiskStorage {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn durability(&self) -> String {
        "everything is on the disk (fdatasync) before it is answered".to_owned()
    }

    fn condition(&self) -> Condition {
        self.core.commits.condition()
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        let mut tenants = self.core.tenants();
        if let Some(tenant) = tenants.open.get(project) {
            return Arc::new(DiskStore::new(Arc::clone(&self.core), Arc::clone(tenant)));
        }
        let space = tenants.next_space;
        tenants.next_space += 1;
        let tenant = Arc::new(Tenant::new(self.core.new_state(project, space)));
        tenants.open.insert(project.clone(), Arc::clone(&tenant));
        Arc::new(DiskStore::new(Arc::clone(&self.core), tenant))
    }

    fn projects(&self) -> Op<Vec<Arc<ProjectRecord>>> {
        self.look(Offices::projects)
    }

    fn project(&self, project: ProjectId) -> Op<Option<Arc<ProjectRecord>>> {
        self.look(move |offices| offices.project(&project))
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
                let mut tenants = core.tenants();
                core.commits.admit(Need::Access)?;
                let Some(tenant) = tenants.open.get(&project) else {
                    return Ok(());
                };
                let forgotten = Record {
                    key: records::space_key(&project),
                    value: None,
                };
                let cleared = tenant.mute(|| core.commits.submit(vec![forgotten]))?;
                tenants.open.remove(&project);
                cleared
            };
            settled(durable).await?;
            core.commits.purge([space]);
            Ok(())
        })
    }

    fn append_audit(&self, entry: AuditEntry) -> Op<()> {
        let len_max = self.core.limits.retention.audit_len_max;
        self.change(move |offices, records| {
            let key = |entry: &AuditEntry| {
                let key: Encoder = records::key(OFFICES, kind::AUDIT);
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
        self.look(move |offices| offices.audit(&query))
    }
}

#[cfg(test)]
mod tests;
