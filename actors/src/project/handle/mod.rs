//! [`ProjectHandle`]: the verbs of a project that every surface calls, a file per facet. A verb that only reads takes
//! no actor; the others send a command to the router, to a session, or to the project's actor.

mod broadcasting;
mod control;
mod cross_project;
mod dead_letters;
mod desk;
mod figures;
mod history;
mod inbox;
mod lenses;
mod lookup;
mod protocols;
mod reports;
mod sending;
mod sessions;

mod transforming;

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use crate::{
    desk::{Desk, QuestionChanges},
    directory::Directory,
    gateway::GatewayHandle,
    metrics::ProjectCounters,
    model::{BrokerError, ProjectId, ProjectRecord},
    policy::{PolicyLimits, ProjectPolicy, ProjectSettings},
    project::{actor::Project, view::View},
    registry::{Catalog, Compiler, LargeWork, Registry},
    router::Router,
    session::{CloseReason, Member},
    storage::Store,
    supervise::{ActorNode, Address},
};

pub use dead_letters::RedriveRequest;
pub use figures::{MailboxFigures, ProjectFigures};
pub(super) use history::WALKS_MAX;
pub use history::{
    EnvelopePage, Flow, FlowEdge, LifeChange, ListedMessage, MessageFilter, MessageLife, MessagePage, Party,
    ProtocolUsage, RecipientLife, SessionSet, StatusFilter, Thread, ThreadCursor, ThreadKey, ThreadPage, VersionUsage,
};
pub use inbox::ReceiveRequest;
pub use lenses::{LensDefinition, Registrant};
pub use lookup::{LateAnswer, Lookup, PendingLookup};
pub use protocols::ProtocolDefinition;
pub use sending::{CrossProjectSend, PreparedSend, RequestTrace, SendRequest};
pub use transforming::{TransformRequest, TransformedPayload};

/// The verbs of a project, which every surface calls. Cheap to clone. Reads take no actor.
#[derive(Clone)]
pub struct ProjectHandle(Arc<Parts>);

/// Finds another open project of the broker.
pub(super) type FindProject = Box<dyn Fn(&ProjectId) -> Option<ProjectHandle> + Send + Sync>;

/// The parts of a project.
pub(super) struct Parts {
    pub id: ProjectId,
    pub settings: ProjectSettings,
    pub project: Address<Project>,
    pub registry: Address<Registry>,
    pub router: Address<Router>,
    pub desk: Address<Desk>,
    pub gateway: Option<GatewayHandle>,
    pub questions: Arc<QuestionChanges>,
    pub directory: Arc<Directory>,
    pub policy: Arc<ProjectPolicy>,
    pub catalog: Arc<Catalog>,
    pub compiler: Arc<Compiler>,
    /// Checks the project's large messages.
    pub large_checks: LargeWork,
    pub store: Arc<dyn Store>,
    pub counters: Arc<ProjectCounters>,
    pub view: View,
    pub find_project: FindProject,
    /// Permits of the walks over the event log that keep what they have counted.
    pub history_walks: Semaphore,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// More items follow.
    pub more: bool,
}

impl Drop for Parts {
    /// The backends end with the last handle of the project, if it was not closed.
    fn drop(&mut self) {
        if let Some(gateway) = &self.gateway {
            gateway.close();
        }
    }
}

impl ProjectHandle {
    pub(super) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// The id of the project.
    pub fn id(&self) -> &ProjectId {
        &self.0.id
    }

    /// The settings that apply to every project.
    pub fn settings(&self) -> &ProjectSettings {
        &self.0.settings
    }

    /// The sessions of the project.
    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// The current limits and the record.
    pub fn limits(&self) -> Arc<PolicyLimits> {
        self.0.policy.limits()
    }

    /// The current record.
    pub fn record(&self) -> Arc<ProjectRecord> {
        Arc::clone(&self.limits().record)
    }

    /// Takes requests from the rate limit of the project.
    ///
    /// # Errors
    /// The time until the limit has room again.
    pub fn take_requests(&self, count: u32) -> Result<(), Duration> {
        self.0.policy.take_requests(count)
    }

    /// Charges requests whose cost became known only after they were served: later requests wait for them.
    pub fn charge_requests(&self, count: u32) {
        self.0.policy.limits().charge_requests(count);
    }

    /// Whether the project was deleted.
    pub fn is_closed(&self) -> bool {
        self.0.policy.is_closed()
    }

    /// Whether the subtree was killed.
    pub fn is_killed(&self) -> bool {
        self.kill_reason().is_some()
    }

    /// Why the subtree was killed; None while it runs.
    pub fn kill_reason(&self) -> Option<CloseReason> {
        self.0.policy.kill_reason()
    }

    /// The project and its actors as data.
    pub fn observe(&self) -> ActorNode {
        let Parts {
            project,
            registry,
            router,
            desk,
            gateway,
            directory,
            ..
        } = &*self.0;
        let sessions = directory.all();
        let children = [registry.metrics(), router.metrics(), desk.metrics()]
            .map(|actor| actor.node(Vec::new()))
            .into_iter()
            .chain(gateway.iter().map(GatewayHandle::observe))
            .chain(sessions.iter().map(|member| member.address.metrics().node(Vec::new())))
            .collect();
        project.metrics().node(children)
    }

    /// The backend servers that agents share; None if the broker has none.
    pub fn gateway(&self) -> Option<&GatewayHandle> {
        self.0.gateway.as_ref()
    }

    /// Another open project of the broker.
    fn other_project(&self, id: &ProjectId) -> Option<Self> {
        (self.0.find_project)(id)
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    fn tell(&self, member: &Member, sent: Result<(), BrokerError>) {
        if sent.is_err() {
            tracing::warn!(project = %self.0.id, session = %member.record.id, "a session's mailbox is full or gone");
        }
    }

    /// The address of the desk. Compiled in for tests only.
    #[cfg(feature = "faults")]
    pub fn desk_address(&self) -> &Address<Desk> {
        &self.0.desk
    }

    /// Has the desk read the open questions again: a test has changed the store or the clock. Compiled in for tests only.
    #[cfg(feature = "faults")]
    pub fn look_at_desk(&self) {
        self.0.questions.shared().reload();
    }

    /// The protocols of the project, for a test that gives them lenses without a registration. Compiled in for tests only.
    #[cfg(feature = "faults")]
    pub fn catalog(&self) -> &Catalog {
        &self.0.catalog
    }

    /// Holds up the transformation of large messages. Compiled in for tests only.
    #[cfg(feature = "faults")]
    pub async fn hold_large_transforms(&self) -> tokio::sync::OwnedMutexGuard<()> {
        self.0.view.large_transforms.hold().await
    }

    /// The addresses of the project's actor, its registry and its router. Compiled in for tests only.
    #[cfg(feature = "faults")]
    pub fn actor_addresses(&self) -> (&Address<Project>, &Address<Registry>, &Address<Router>) {
        (&self.0.project, &self.0.registry, &self.0.router)
    }
}
