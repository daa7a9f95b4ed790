//! Starts a project: joins its actor, its registry, its router and its handle.

use std::sync::{Arc, OnceLock, Weak, atomic::AtomicBool};

use tokio::sync::Semaphore;

use super::{
    actor::{Project, ProjectParts},
    handle::{Parts, ProjectHandle, WALKS_MAX},
    messages::{Child, ChildDown, RefreshDirectory, RequestResync},
    projects::Projects,
    resync::KnownSeq,
    view::View,
};
use crate::{
    clock::now,
    desk::{Desk, DeskShared, QuestionChanges},
    directory::Directory,
    gateway::Gateway,
    metrics,
    model::{ActorKind, ProjectEvent, ProjectRecord},
    policy::{ProjectPolicy, ProjectSettings},
    registry::{Catalog, Compiler, LargeWork, Registry},
    router::Router,
    storage::Store,
    supervise::{self, ActorMetrics, Address},
};

impl Project {
    /// Starts a project and its children on this thread's arbiter. `projects` leads to the recipients of cross-project
    /// messages. `on_rollback` runs when the store turns out to have lost data of the project, `on_give_up` when the
    /// project cannot continue.
    #[expect(clippy::too_many_lines, reason = "the one place that joins the parts of a project")]
    pub(crate) fn start(
        record: Arc<ProjectRecord>,
        settings: ProjectSettings,
        store: Arc<dyn Store>,
        projects: Weak<Projects>,
        on_rollback: impl Fn() + 'static,
        on_give_up: impl FnOnce() + Clone + 'static,
    ) -> ProjectHandle {
        let id = record.id.clone();
        let policy = ProjectPolicy::new(settings.clone(), record);
        let (metrics, counters) = (ActorMetrics::new("project", id.as_str()), metrics::project(&id));
        let directory = Arc::new(Directory::new(settings.presence));
        let (catalog, compiler) = (Catalog::new(settings.payload_len_max), Arc::<Compiler>::default());
        let catalog = Arc::new(catalog);
        let (registry_address, gateway_cell) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let desk_shared = DeskShared::new(settings.desk.clone(), store.is_shared());
        let gave_up = recorded_give_up(Arc::clone(&store), on_give_up.clone());
        let (known_seq, frames_dropped) = (KnownSeq::default(), Arc::<AtomicBool>::default());
        let large_transforms = Arc::new(LargeWork::transforms());
        let view = |project: &Address<Self>| View {
            store: Arc::clone(&store),
            ask_for_resync: {
                let project = project.clone();
                Arc::new(move |done| project.report(RequestResync { done: Some(done) }))
            },
            directory: Arc::downgrade(&directory),
            catalog: Arc::clone(&catalog),
            known_seq: KnownSeq::clone(&known_seq),
            frames_dropped: Arc::clone(&frames_dropped),
            large_transforms: Arc::clone(&large_transforms),
        };
        let project = supervise::start(Arc::clone(&metrics), settings.restarts, gave_up, |address| {
            Self::new(ProjectParts {
                id: id.clone(),
                settings: settings.clone(),
                registry: Arc::clone(&registry_address),
                gateway: Arc::clone(&gateway_cell),
                store: Arc::clone(&store),
                directory: Arc::clone(&directory),
                policy: Arc::clone(&policy),
                desk: Arc::clone(&desk_shared),
                metrics,
                counters: Arc::clone(&counters),
                view: Arc::new(view(&address)),
                address,
                report_dead_letters: {
                    let (projects, id) = (Weak::clone(&projects), id.clone());
                    Box::new(move || {
                        let own = projects.upgrade().and_then(|projects| projects.get(&id));
                        Box::pin(ProjectHandle::report_dead_letters_of(own))
                    })
                },
                on_rollback: Box::new(on_rollback),
                on_give_up: Box::new(on_give_up),
            })
        });
        let report_down = |child| {
            let project = project.clone();
            move || project.report(ChildDown { child })
        };
        let registry = supervise::start(
            ActorMetrics::new("registry", id.as_str()),
            settings.restarts,
            report_down(Child::Registry),
            |_| Registry::new(Arc::clone(&catalog), Arc::clone(&compiler), Arc::clone(&store)),
        );
        let _ = registry_address.set(registry.clone());
        let router = supervise::start(
            ActorMetrics::new("router", id.as_str()),
            settings.restarts,
            report_down(Child::Router),
            |_| {
                let project = project.clone();
                let refresh = move |done| project.report(RefreshDirectory { done });
                Router::new(
                    Arc::clone(&directory),
                    Arc::clone(&store),
                    Arc::clone(&policy),
                    Arc::clone(&counters),
                    refresh,
                )
            },
        );
        let questions = QuestionChanges::new(
            id.clone(),
            Arc::clone(&store),
            Arc::clone(&directory),
            Arc::clone(&policy),
            Arc::clone(&counters),
            desk_shared,
        );
        let desk = Desk::start(&id, &questions, settings.restarts, report_down(Child::Desk));
        let gateway = settings.gateway.clone();
        let gateway = gateway.map(|gateway| {
            let (store, give_up) = (Arc::clone(&store), report_down(Child::Gateway));
            Gateway::start(&id, gateway, store, settings.restarts, give_up)
        });
        if let Some(gateway) = &gateway {
            let _ = gateway_cell.set(gateway.clone());
        }
        let view = view(&project);
        ProjectHandle::new(Parts {
            id,
            settings,
            project,
            registry,
            router,
            desk,
            gateway,
            questions,
            directory,
            policy,
            catalog,
            compiler,
            large_checks: LargeWork::checks(),
            store,
            counters,
            view,
            history_walks: Semaphore::new(WALKS_MAX),
            find_project: Box::new(move |id| projects.upgrade()?.get(id)),
        })
    }
}

/// Records that the project gave up, before it does.
fn recorded_give_up(store: Arc<dyn Store>, on_give_up: impl FnOnce()) -> impl FnOnce() {
    move || {
        store.record(ProjectEvent::gave_up(ActorKind::Project), now());
        on_give_up();
    }
}
