//! Opens a disk storage, and keeps the project records and the audit log on it.

use std::{io, sync::Arc, thread::JoinHandle};

use super::{
    codec::RecordWriter,
    commits::{Changes, wait_durable},
    disk_state::{DiskState, DiskSystem},
    engine::{Engine, Record},
    load::load,
    project::DiskProject,
    records::{self, SYSTEM_SPACE, VERSION_WITHOUT_LENSES, kind},
    store::DiskCommit,
    writer::{self, DiskWriter},
};
use crate::{
    clock::Now,
    model::{AuditEntry, AuditQuery, ProjectId, ProjectRecord},
    storage::{
        Op, ReplicatedStorage, Retention, Storage, StorageHealth, Store, StoreError,
        local::{LocalStore, Need},
        state::{account::StoreLimits, system::SystemState},
    },
};

/// The settings of a disk storage.
#[derive(Clone, Copy, Debug)]
pub struct DiskSettings {
    /// Applies to each project by itself.
    pub retention: Retention,
    /// While less than this many bytes are free, new data are refused. The reserve is for removals, which are written
    /// too. On a small disk it is half of the disk, because the journal of the key-value store is written a second time
    /// before it is freed.
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
    shared: Arc<DiskState>,
    writer: Option<JoinHandle<()>>,
}

impl DiskStorage {
    /// Reads everything back and starts the writer thread.
    ///
    /// # Errors
    /// If the records cannot be read or were written by a later version, and if an empty disk cannot be written.
    pub fn open(mut engine: impl Engine, settings: DiskSettings, now: Now) -> io::Result<Self> {
        let limits = StoreLimits::with_logs_elsewhere(settings.retention);
        let loaded = load(&mut engine, &limits, now).map_err(|error| match error {
            StoreError::Unreachable(reason) => io::Error::other(reason),
            error => io::Error::other(error),
        })?;
        // A folder of an earlier version can be read by this one, and no longer by the earlier one.
        if loaded.version < Some(VERSION_WITHOUT_LENSES) {
            let version = records::layout_version(VERSION_WITHOUT_LENSES);
            engine.commit(vec![version]).map_err(io::Error::other)?;
        }
        let shared = Arc::new(DiskState::new(limits, engine.reader()));
        shared.install(loaded);
        let writer = DiskWriter {
            shared: Arc::clone(&shared),
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
            shared,
            writer: Some(writer),
        })
    }
}

impl Drop for DiskStorage {
    /// Waits until everything is written and the disk is released.
    fn drop(&mut self) {
        self.shared.commits.close();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl DiskStorage {
    /// Runs an operation on the system state and waits until its records are on the disk.
    fn change<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut SystemState, &mut Vec<Record>) -> T + Send + 'static,
    ) -> Op<T> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (answer, durable) = {
                let mut system = shared.system();
                shared.commits.check(Need::Access)?;
                let DiskSystem { state, changes } = &mut *system;
                let answer = operation(state, &mut changes.records);
                (answer, shared.commits.submit(changes)?)
            };
            wait_durable(durable).await?;
            Ok(answer)
        })
    }

    /// Runs a query on the system state and waits until what it saw is on the disk.
    fn read<T: Send + 'static>(&self, operation: impl FnOnce(&SystemState) -> T + Send + 'static) -> Op<T> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (answer, durable) = {
                let mut system = shared.system();
                (operation(&system.state), shared.commits.settle(&mut system.changes)?)
            };
            wait_durable(durable).await?;
            Ok(answer)
        })
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
        self.shared.commits.health()
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStorage> {
        None
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        let mut projects = self.shared.projects();
        let disk_project = if let Some(disk_project) = projects.open.get(project) {
            Arc::clone(disk_project)
        } else {
            let space = projects.next_space;
            projects.next_space += 1;
            let disk_project = Arc::new(DiskProject::new(self.shared.new_state(project, space)));
            projects.open.insert(project.clone(), Arc::clone(&disk_project));
            disk_project
        };
        Arc::new(LocalStore(DiskCommit {
            shared: Arc::clone(&self.shared),
            project: disk_project,
        }))
    }

    fn projects(&self) -> Op<Vec<Arc<ProjectRecord>>> {
        self.read(SystemState::projects)
    }

    fn project(&self, project: ProjectId) -> Op<Option<Arc<ProjectRecord>>> {
        self.read(move |system| system.project(&project))
    }

    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool> {
        self.change(move |system, records| {
            let is_next = system.put_project(Arc::clone(&record));
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
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (space, durable) = {
                let mut projects = shared.projects();
                shared.commits.check(Need::Access)?;
                let Some(disk_project) = projects.open.get(&project) else {
                    return Ok(());
                };
                let forgotten = Record {
                    key: records::space_key(&project),
                    value: None,
                };
                let mut last = Changes::default();
                last.records.push(forgotten);
                let cleared = disk_project.close_with(|| shared.commits.submit(&mut last))?;
                projects.open.remove(&project);
                cleared
            };
            wait_durable(durable).await?;
            shared.commits.purge([space]);
            Ok(())
        })
    }

    fn append_audit(&self, entry: AuditEntry) -> Op<()> {
        let len_max = self.shared.limits.retention.audit_len_max;
        self.change(move |system, records| {
            let key = |entry: &AuditEntry| {
                let key: RecordWriter = records::key(SYSTEM_SPACE, kind::AUDIT);
                key.rest(entry.id.as_bytes()).0
            };
            records.push(Record {
                key: key(&entry),
                value: Some(records::json(&entry)),
            });
            if let Some(forgotten) = system.append_audit(entry, len_max) {
                records.push(Record {
                    key: key(&forgotten),
                    value: None,
                });
            }
        })
    }

    fn audit(&self, query: AuditQuery) -> Op<Vec<Arc<AuditEntry>>> {
        self.read(move |system| system.audit(&query))
    }
}
