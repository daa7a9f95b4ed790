//! The root actor: opens the projects that the store has and restarts those that fail. `records` holds its changes of
//! project records. It sees no message and no frame.

mod records;

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix::{Actor, AsyncContext, Context, Handler, Supervised};
use actix_rt::ArbiterHandle;
use tokio::sync::{oneshot, watch};

use super::{
    keyring::Keyring,
    messages::{
        CreateProject, ProjectFailed, RecordChanged, RecordUpdate, ReloadRecords, Reply, StoreRolledBack, UpdateProject,
    },
};
use crate::{
    backoff::Backoff,
    clock::now,
    model::{BrokerError, ProjectId, ProjectRecord},
    ops::then,
    project::{Project, ProjectHandle, ProjectSettings, Projects},
    session::CloseReason,
    storage::{Storage, StoreEpoch, StoreError},
    supervise::{Address, Envelope},
};

/// How often an update is tried again when another replica changed the record first.
const UPDATE_TRIES_MAX: usize = 128;
/// The pause before the second restart of a failed project; it doubles with each further failure.
const RESTART_BACKOFF: Backoff = Backoff {
    min: Duration::from_secs(1),
    max: Duration::from_secs(60),
};
const FAILURES_FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// How long after a rollback of the store the broker checks the deleted projects again.
const DELETED_CHECK_DELAY: Duration = Duration::from_secs(1);
/// How often the broker writes the last use of keys to the store.
const KEY_USE_WRITE_INTERVAL: Duration = Duration::from_secs(600);

/// The root actor. When it gives up, the process should end and be restarted.
pub struct Broker {
    address: Address<Broker>,
    settings: BrokerSettings,
    storage: Arc<dyn Storage>,
    arbiters: Vec<ArbiterHandle>,
    projects: Arc<Projects>,
    keyring: Arc<Keyring>,
    /// The records as the store has them.
    records: HashMap<ProjectId, LoadedRecord>,
    /// The arbiter of each project. Everything that happens to a project runs there, in the order of the broker's
    /// decisions.
    arbiter_of: HashMap<ProjectId, ArbiterHandle>,
    /// How often a project has failed, and when last, in milliseconds on the monotonic clock.
    failures: HashMap<ProjectId, (u32, u64)>,
    /// A check of the deleted projects is scheduled.
    deleted_check_pending: bool,
    loaded: Arc<watch::Sender<bool>>,
    changes: watch::Sender<u64>,
}

/// Settings of a whole broker.
#[derive(Clone, Debug)]
pub struct BrokerSettings {
    pub project: ProjectSettings,
    /// Requests per minute of each key; 0 means no limit.
    pub key_rate_limit: u32,
    /// False: the default project is the only one.
    pub multi_project: bool,
    /// Active projects at one time, at most.
    pub projects_max: usize,
}

/// A record and the epoch of the store at which it was read.
struct LoadedRecord {
    record: Arc<ProjectRecord>,
    epoch: StoreEpoch,
}

/// What the root actor is started with.
pub(super) struct BrokerParts {
    pub address: Address<Broker>,
    pub settings: BrokerSettings,
    pub storage: Arc<dyn Storage>,
    pub arbiters: Vec<ArbiterHandle>,
    pub projects: Arc<Projects>,
    pub keyring: Arc<Keyring>,
    /// Turns true when all projects are open.
    pub loaded: Arc<watch::Sender<bool>>,
    /// Changes whenever a project or one of its keys changes.
    pub changes: watch::Sender<u64>,
}

impl Broker {
    /// An actor without projects; `started` opens them.
    pub(super) fn new(parts: BrokerParts) -> Self {
        let BrokerParts {
            address,
            settings,
            storage,
            arbiters,
            projects,
            keyring,
            loaded,
            changes,
        } = parts;
        Self {
            address,
            settings,
            storage,
            arbiters,
            projects,
            keyring,
            records: HashMap::new(),
            arbiter_of: HashMap::new(),
            failures: HashMap::new(),
            deleted_check_pending: false,
            loaded,
            changes,
        }
    }

    /// Opens every project that the store has, and creates the default project if it is missing.
    fn load(&mut self, ctx: &mut Context<Self>) {
        let epoch = self.storage.epoch();
        let op = self.storage.projects();
        then(op, self, ctx, move |broker, records, ctx| match records {
            Ok(records) if records.iter().any(|record| is_default(&record.id)) => broker.open_all(records, epoch, ctx),
            Ok(records) => broker.open_all_and_default(records, epoch, ctx),
            Err(error) => Self::load_later(&error, ctx),
        });
    }

    fn load_later(error: &StoreError, ctx: &mut Context<Self>) {
        tracing::warn!(%error, "projects cannot be loaded; retrying");
        ctx.run_later(Duration::from_secs(1), Self::load);
    }

    fn open_all_and_default(
        &mut self,
        mut records: Vec<Arc<ProjectRecord>>,
        epoch: StoreEpoch,
        ctx: &mut Context<Self>,
    ) {
        let record = ProjectRecord::default_project(now().unix_ms);
        self.put(record, epoch, ctx, move |broker, stored, ctx| match stored {
            Ok(Some(record)) => {
                records.push(record);
                broker.open_all(records, epoch, ctx);
            }
            // Another replica created it first.
            Ok(None) => broker.load(ctx),
            Err(error) => Self::load_later(&error, ctx),
        });
    }

    fn open_all(&mut self, records: Vec<Arc<ProjectRecord>>, epoch: StoreEpoch, ctx: &mut Context<Self>) {
        let all = Arc::new(LoadedOnDrop(Arc::clone(&self.loaded)));
        for record in records
            .into_iter()
            .filter(|record| self.serves(&record.id))
            .collect::<Vec<_>>()
        {
            let all = Arc::clone(&all);
            self.apply_record(record, epoch, ctx, move || drop(all));
        }
    }

    fn serves(&self, project: &ProjectId) -> bool {
        self.settings.multi_project || is_default(project)
    }

    /// Another replica changed the record of a project.
    fn note_revision(&mut self, project: ProjectId, revision: u64, ctx: &mut Context<Self>) {
        let known = self.records.get(&project);
        let is_known = known.is_some_and(|known| known.record.revision >= revision);
        if self.serves(&project) && !is_known {
            self.reload(project, ctx);
        }
    }

    /// Returns what starts the actors of a project; it runs on the arbiter of the project.
    fn project_starter(
        &self,
        record: Arc<ProjectRecord>,
        epoch: StoreEpoch,
    ) -> impl FnOnce() -> ProjectHandle + Send + 'static {
        let (settings, storage) = (self.settings.project.clone(), Arc::clone(&self.storage));
        let (projects, broker) = (Arc::downgrade(&self.projects), self.address.clone());
        move || {
            let (store, project) = (storage.open_at(&record.id, epoch), record.id.clone());
            let went_back = {
                let (broker, project) = (broker.clone(), project.clone());
                move || {
                    let project = project.clone();
                    broker.report(StoreRolledBack { project });
                }
            };
            Project::start(record, settings, store, projects, went_back, move || {
                broker.report(ProjectFailed { project })
            })
        }
    }

    /// Restarts a failed project from the store: the first time at once, then after a pause that doubles. Other
    /// projects are not affected.
    fn restart_project(&mut self, project: ProjectId, ctx: &mut Context<Self>) {
        let now = now();
        let (count, last_ms) = self.failures.entry(project.clone()).or_insert((0, now.mono_ms));
        if now.since(*last_ms) > FAILURES_FORGOTTEN_AFTER {
            *count = 0;
        }
        let pause = RESTART_BACKOFF.wait(*count, 0.0);
        (*count, *last_ms) = (*count + 1, now.mono_ms);
        tracing::error!(%project, ?pause, "project failed; restarting it");
        if let Some(broken) = self.projects.get(&project) {
            broken.control().kill(CloseReason::Failed);
        }
        self.changes.send_modify(|count| *count += 1);
        ctx.run_later(pause, move |broker, _| broker.start_again(&project));
    }

    fn start_again(&mut self, project: &ProjectId) {
        let known = self.records.get(project).filter(|known| known.record.active);
        let start = known.map(|known| self.project_starter(Arc::clone(&known.record), known.epoch));
        let (Some(start), Some(arbiter)) = (start, self.arbiter_for(project)) else {
            return;
        };
        let projects = Arc::clone(&self.projects);
        arbiter.spawn_fn(move || projects.insert(start()));
    }

    fn arbiter_for(&mut self, project: &ProjectId) -> Option<ArbiterHandle> {
        let next = self.arbiter_of.len() % self.arbiters.len().max(1);
        if !self.arbiter_of.contains_key(project) {
            let arbiter = self.arbiters.get(next)?.clone();
            self.arbiter_of.insert(project.clone(), arbiter);
        }
        self.arbiter_of.get(project).cloned()
    }

    /// Writes the last use of keys to the store, for projects where it has changed.
    fn write_key_uses(&mut self, ctx: &mut Context<Self>) {
        let is_used = |record: &&ProjectRecord| {
            record.active
                && record
                    .keys
                    .iter()
                    .any(|key| self.keyring.last_used_at_ms(&key.digest) > key.last_used_at_ms)
        };
        let used: Vec<_> = self
            .records
            .values()
            .map(|known| &*known.record)
            .filter(is_used)
            .map(|record| record.id.clone())
            .collect();
        for project in used {
            let (reply, _) = oneshot::channel();
            self.update(project, RecordUpdate::new(|_| Ok(())), UPDATE_TRIES_MAX, reply, ctx);
        }
    }
}

fn is_default(id: &ProjectId) -> bool {
    id.as_str() == ProjectId::DEFAULT
}

/// Reports that all projects are open when the last clone is dropped.
struct LoadedOnDrop(Arc<watch::Sender<bool>>);

impl Drop for LoadedOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Actor for Broker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.load(ctx);
        ctx.run_interval(KEY_USE_WRITE_INTERVAL, Self::write_key_uses);
    }
}

/// All fields stay valid across a restart; `started` loads what is missing.
impl Supervised for Broker {}

impl Handler<Envelope<RecordChanged>> for Broker {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<RecordChanged>, ctx: &mut Context<Self>) {
        self.note_revision(message.project, message.revision, ctx);
    }
}

impl Handler<Envelope<ReloadRecords>> for Broker {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<ReloadRecords>, ctx: &mut Context<Self>) {
        match message.0 {
            Some(project) => self.reload(project, ctx),
            None => self.load(ctx),
        }
    }
}

impl Handler<Envelope<ProjectFailed>> for Broker {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<ProjectFailed>, ctx: &mut Context<Self>) {
        self.restart_project(message.project, ctx);
    }
}

impl Handler<Envelope<StoreRolledBack>> for Broker {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<StoreRolledBack>, ctx: &mut Context<Self>) {
        self.reload(message.project, ctx);
    }
}

impl Handler<Envelope<CreateProject>> for Broker {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<CreateProject>, ctx: &mut Context<Self>) {
        if !self.settings.multi_project {
            let text = "this broker has a single project (enable_multi_project is false)";
            drop(message.reply.send(Err(BrokerError::forbidden(text))));
            return;
        }
        self.create(message.record, message.reply, ctx);
    }
}

impl Handler<Envelope<UpdateProject>> for Broker {
    type Result = ();

    fn handle(&mut self, Envelope { message, .. }: Envelope<UpdateProject>, ctx: &mut Context<Self>) {
        let UpdateProject { project, update, reply } = message;
        self.update(project, update, UPDATE_TRIES_MAX, reply, ctx);
    }
}

crate::supervise::panics!(Broker);
