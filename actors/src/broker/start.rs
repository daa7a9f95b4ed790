//! Starts a broker: joins the root actor, the listener of the bridge, and the handle. Events of the bridge go to the
//! projects without passing the root actor, which hears only of changes of records.

use std::sync::Arc;

use actix_rt::ArbiterHandle;
use tokio::sync::watch;

use super::{
    actor::{Broker, BrokerParts, BrokerSettings},
    handle::BrokerHandle,
    keyring::Keyring,
    messages::{RecordChanged, ReloadRecords},
};
use crate::{
    bridge::{Listener, ReplicaEvent, StoreEvent},
    project::Projects,
    storage::Storage,
    supervise::{self, ActorMetrics, Address, RestartPolicy},
};

impl Broker {
    /// Starts the root on this thread's arbiter. Projects are spread over `arbiters` in turn. `on_give_up` runs when the
    /// root or the listener has panicked too often; a project that panics too often is restarted from the store.
    pub fn start(
        settings: BrokerSettings,
        storage: Arc<dyn Storage>,
        arbiters: Vec<ArbiterHandle>,
        on_give_up: impl Fn() + Send + Sync + 'static,
    ) -> BrokerHandle {
        let projects = Arc::<Projects>::default();
        let keyring = Arc::new(Keyring::new(settings.key_rate_limit));
        let loaded = Arc::new(watch::Sender::new(false));
        let is_loaded = loaded.subscribe();
        let changes = watch::Sender::new(0);
        let changed = changes.subscribe();
        let on_give_up = Arc::new(on_give_up);
        let on_root_down = Arc::clone(&on_give_up);
        let address = supervise::start(
            ActorMetrics::new("broker", ""),
            RestartPolicy::default(),
            move || on_root_down(),
            |address| {
                Self::new(BrokerParts {
                    address,
                    settings,
                    storage: Arc::clone(&storage),
                    arbiters,
                    projects: Arc::clone(&projects),
                    keyring: Arc::clone(&keyring),
                    loaded,
                    changes,
                })
            },
        );
        let listener = storage.bridge().map(|bridge| {
            let (broker, projects) = (address.clone(), Arc::clone(&projects));
            // A replica without a listener would serve outdated data, so the process ends with it.
            supervise::start(
                ActorMetrics::new("bridge", ""),
                RestartPolicy::default(),
                move || on_give_up(),
                |_| Listener::new(bridge, move |event| dispatch(event, &projects, &broker)),
            )
        });
        BrokerHandle {
            address,
            listener,
            projects,
            keyring,
            storage,
            loaded: is_loaded,
            changes: changed,
        }
    }
}

/// Passes an event of the bridge on to its project, and to the root actor if records are concerned.
fn dispatch(event: ReplicaEvent, projects: &Projects, broker: &Address<Broker>) {
    match event {
        ReplicaEvent::Frame { frame, own } => {
            if let StoreEvent::Project(revision) = frame.event
                && !own
            {
                let project = frame.project.clone();
                broker.report(RecordChanged { project, revision });
            }
            if let Some(project) = projects.get(&frame.project) {
                project.control().apply_frame(frame, own);
            }
        }
        ReplicaEvent::Deliveries(batch) => {
            if let Some(project) = projects.get(&batch.project) {
                project.control().deliver(&batch);
            }
        }
        ReplicaEvent::Resync(Some(id)) => {
            if let Some(project) = projects.get(&id) {
                project.control().request_resync();
            }
            broker.report(ReloadRecords(Some(id)));
        }
        ReplicaEvent::Resync(None) => {
            for project in projects.all_open() {
                project.control().request_resync();
            }
            broker.report(ReloadRecords(None));
        }
    }
}
