use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use actix::{Actor, Context, Handler, Message, Supervised};
use actix_rt::ArbiterHandle;
use tokio::sync::oneshot;

use crate::{
    model::{BrokerError, ProjectId},
    project::{Project, ProjectHandle, Settings},
    storage::Storage,
    supervise::{self, Address, Node, Policy, Posted, Pulse},
};

type Projects = Arc<RwLock<HashMap<ProjectId, ProjectHandle>>>;

/// The root actor. When it gives up, the process should end: whoever runs it restarts it.
pub struct Broker {
    settings: Settings,
    storage: Arc<dyn Storage>,
    arbiters: Vec<ArbiterHandle>,
    projects: Projects,
    opened: usize,
    gave_up: Arc<dyn Fn() + Send + Sync>,
}

/// The way into the broker, for every surface.
#[derive(Clone)]
pub struct BrokerHandle {
    address: Address<Broker>,
    projects: Projects,
    storage: Arc<dyn Storage>,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Open {
    project: ProjectId,
    reply: oneshot::Sender<Result<ProjectHandle, BrokerError>>,
}

impl Broker {
    /// Starts the root on this thread's arbiter. Projects are spread over `arbiters` in turn; `gave_up` is called
    /// when a part without which the broker cannot go on has panicked too often.
    pub fn start(
        settings: Settings,
        storage: Arc<dyn Storage>,
        arbiters: Vec<ArbiterHandle>,
        gave_up: impl Fn() + Send + Sync + 'static,
    ) -> BrokerHandle {
        let projects = Projects::default();
        let gave_up: Arc<dyn Fn() + Send + Sync> = Arc::new(gave_up);
        let address = supervise::start(
            Pulse::new("broker", ""),
            Policy::default(),
            {
                let gave_up = Arc::clone(&gave_up);
                move || gave_up()
            },
            |_| Self {
                settings,
                storage: Arc::clone(&storage),
                arbiters,
                projects: Arc::clone(&projects),
                opened: 0,
                gave_up,
            },
        );
        BrokerHandle {
            address,
            projects,
            storage,
        }
    }

    fn open(&mut self, project: ProjectId, reply: oneshot::Sender<Result<ProjectHandle, BrokerError>>) {
        if let Some(handle) = get(&self.projects, &project) {
            drop(reply.send(Ok(handle)));
            return;
        }
        let Some(arbiter) = self.arbiters.get(self.opened % self.arbiters.len().max(1)) else {
            drop(reply.send(Err(BrokerError::unavailable())));
            return;
        };
        self.opened += 1;
        let (settings, store) = (self.settings, self.storage.open(&project));
        let (projects, gave_up) = (Arc::clone(&self.projects), Arc::clone(&self.gave_up));
        arbiter.spawn_fn(move || {
            // A second request for the same project may have come while this one was on its way here; both run on
            // whatever arbiter was theirs, and the first to write wins.
            let mut projects = projects.write().unwrap_or_else(PoisonError::into_inner);
            let handle = projects
                .entry(project.clone())
                .or_insert_with(|| Project::start(project, settings, store, move || gave_up()))
                .clone();
            let _ = reply.send(Ok(handle));
        });
    }
}

fn get(projects: &Projects, id: &ProjectId) -> Option<ProjectHandle> {
    projects.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
}

impl Actor for Broker {
    type Context = Context<Self>;
}

impl Supervised for Broker {}

impl Handler<Posted<Open>> for Broker {
    type Result = ();

    fn handle(&mut self, Posted { message, .. }: Posted<Open>, _: &mut Context<Self>) {
        self.open(message.project, message.reply);
    }
}

impl BrokerHandle {
    /// The project of this id, opened if it is not yet.
    pub async fn project(&self, id: &ProjectId) -> Result<ProjectHandle, BrokerError> {
        if let Some(handle) = get(&self.projects, id) {
            return Ok(handle);
        }
        let (reply, answer) = oneshot::channel();
        self.address.tell(Open {
            project: id.clone(),
            reply,
        })?;
        answer.await.unwrap_or(Err(BrokerError::unavailable()))
    }

    /// The projects that are open.
    pub fn projects(&self) -> Vec<ProjectHandle> {
        self.projects
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    pub fn storage_name(&self) -> &'static str {
        self.storage.name()
    }

    /// The whole tree as data. It is read from the outside, so it is there even when an actor is stuck.
    pub fn observe(&self) -> Node {
        let mut projects = self.projects();
        projects.sort_by(|a, b| a.id().cmp(b.id()));
        self.address
            .pulse()
            .node(projects.iter().map(ProjectHandle::observe).collect())
    }
}
