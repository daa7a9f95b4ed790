//! Panics of the actors of a gateway: open calls have an end, the next instance takes calls, and the project goes on.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use actors::{
    gateway::{
        BackendLog, BackendShared, BackendState, BackendTables, BackendView, Call, CallEnd, CallEvent, CallPurpose,
        FrameLink, GatewaySettings, Instance, InstanceEvent, LaunchOrder, Launcher, Link, LinkEnded, Naming,
        ReadyInstance,
    },
    model::{BackendAddress, BackendConfig, BackendName, BackendsConfig, BrokerError, ProjectId},
    project::ProjectSettings,
    supervise::RestartPolicy,
};
use tokio::sync::watch;

use crate::world::{ActorThread, World, run, settings, within_deadline};

/// Reads no table.
#[derive(Debug)]
struct NoTables;

impl BackendTables for NoTables {
    fn read(&self, _: &BackendName, _: &str) -> Result<BackendConfig, BrokerError> {
        Err(BrokerError::unavailable())
    }
}

/// Starts instances that take calls at once and answer none.
#[derive(Default)]
struct SilentBackends {
    launches: AtomicUsize,
    /// Instances do not take calls yet.
    holds_back: AtomicBool,
    /// The links of all instances.
    links: Mutex<Vec<Arc<FrameLink>>>,
}

impl SilentBackends {
    fn link(&self, at: usize) -> Arc<FrameLink> {
        Arc::clone(&self.links.lock().unwrap()[at])
    }
}

impl fmt::Debug for SilentBackends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SilentBackends")
    }
}

impl Launcher for SilentBackends {
    fn launch(&self, order: LaunchOrder) -> Box<dyn Instance> {
        self.launches.fetch_add(1, Ordering::Relaxed);
        let link = FrameLink::new();
        self.links.lock().unwrap().push(Arc::clone(&link));
        if !self.holds_back.load(Ordering::Relaxed) {
            (order.report)(InstanceEvent::Ready(ReadyInstance {
                link: Arc::clone(&link) as _,
                server: Arc::default(),
                asks_without_call: false,
            }));
        }
        Box::new(SilentInstance(link))
    }

    fn watch(&self, _: &BackendConfig, _: Arc<BackendLog>, _: Arc<dyn Fn() + Send + Sync>) -> Box<dyn Any> {
        Box::new(())
    }
}

/// Its process ends with it.
struct SilentInstance(Arc<FrameLink>);

impl SilentInstance {
    fn close(&self) {
        let mut written = Vec::new();
        self.0.take_outgoing(&mut written);
        self.0.note_written(written.len());
        self.0.close(&Arc::new(LinkEnded::without_output("it was ended")));
    }
}

impl Instance for SilentInstance {
    fn end(&self) {
        self.close();
    }
}

impl Drop for SilentInstance {
    fn drop(&mut self) {
        self.close();
    }
}

/// A project with one backend, which runs.
struct Served {
    world: World,
    launcher: Arc<SilentBackends>,
    backend: Arc<BackendShared>,
    backends: watch::Sender<Arc<BackendsConfig>>,
}

/// The configuration of the backend.
fn config(args: &[&str]) -> BackendConfig {
    let address = BackendAddress::Command {
        command: "silent".to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        env: BTreeMap::new(),
        pass_env: Vec::new(),
        cwd: None,
    };
    BackendConfig::new(BackendName::parse("silent").unwrap(), address)
}

fn of_project(config: BackendConfig) -> Arc<BackendsConfig> {
    Arc::new(BTreeMap::from([(ProjectId::default_project(), vec![Arc::new(config)])]))
}

impl Served {
    async fn start(restarts: RestartPolicy) -> Self {
        let (sender, backends) = watch::channel(of_project(config(&[])));
        let launcher = Arc::<SilentBackends>::default();
        let gateway = GatewaySettings {
            launcher: Arc::clone(&launcher) as _,
            tables: Arc::new(NoTables),
            backends,
            naming: Naming::default(),
            list_wait: Duration::ZERO,
            announces_lists: true,
        };
        let settings = ProjectSettings {
            gateway: Some(gateway),
            restarts,
            ..settings()
        };
        let world = World::new(settings, ActorThread::Test).await;
        let shared = Arc::clone(world.project.gateway().unwrap().shared());
        let found = shared.wait_for(|| shared.offered().backend("silent").cloned());
        let backend = within_deadline("the backend is known", found).await.unwrap();
        Self {
            world,
            launcher,
            backend,
            backends: sender,
        }
    }

    async fn is_seen(&self, what: &str, is_so: impl FnMut(&Arc<BackendView>) -> bool) -> Arc<BackendView> {
        let mut views = self.backend.views();
        let seen = views.wait_for(is_so);
        within_deadline(what, seen).await.unwrap().clone()
    }

    /// Waits until the backend takes calls, and begins one.
    async fn call(&self) -> Call {
        let is_running = |view: &Arc<BackendView>| view.link.as_ref().is_some_and(|link| link.is_open());
        let view = self.is_seen("the backend runs", is_running).await;
        let link = Arc::clone(view.link.as_ref().unwrap());
        link.open(CallPurpose::Caller, &mut |_, out| out.extend_from_slice(b"{}"))
            .unwrap()
    }

    fn panic(&self, backend: Option<&str>) {
        self.world.project.gateway().unwrap().panic(backend);
    }
}

async fn end_of(call: &mut Call) -> CallEnd {
    match within_deadline("the call ends", call.next()).await {
        CallEvent::Ended(end) => end,
        other => panic!("the call ends: {other:?}"),
    }
}

#[test]
fn a_panic_in_the_actor_of_a_backend_ends_its_calls_and_starts_it_again() {
    run(|| async {
        let served = Served::start(settings().restarts).await;
        for round in 1..=3 {
            let mut call = served.call().await;
            served.panic(Some("silent"));
            assert!(matches!(end_of(&mut call).await, CallEnd::Died(_)), "round {round}");
            drop(served.call().await);
            assert_eq!(served.launcher.launches.load(Ordering::Relaxed), round + 1);
        }
        assert_eq!(served.world.restarts(), [("backend", "default/silent".to_owned(), 3)]);
        served.world.register("alice", None).await;
    });
}

#[test]
fn a_panic_in_the_actor_of_a_gateway_leaves_the_running_backends_alone() {
    run(|| async {
        let served = Served::start(settings().restarts).await;
        let mut call = served.call().await;
        served.panic(None);
        // It comes after the panic at the same address.
        served.panic(Some("silent"));
        end_of(&mut call).await;
        drop(served.call().await);
        let restarts = served.world.restarts();
        assert_eq!(restarts.len(), 2, "{restarts:?}");
        assert_eq!(
            served.launcher.launches.load(Ordering::Relaxed),
            2,
            "once for each panic of the backend itself"
        );
        let shared = served.world.project.gateway().unwrap().shared();
        assert!(shared.offered().backend("silent").is_some());
    });
}

#[test]
fn a_changed_backend_that_is_switched_off_gives_up_what_it_was_starting() {
    run(|| async {
        let served = Served::start(settings().restarts).await;
        let mut call = served.call().await;
        served.launcher.holds_back.store(true, Ordering::Relaxed);
        served.backends.send_replace(of_project(config(&["changed"])));
        let is_handed_over = |view: &Arc<BackendView>| view.state == BackendState::Replacing;
        served.is_seen("the changed one is started", is_handed_over).await;
        assert!(served.launcher.link(1).is_open());

        let mut disabled = config(&["changed"]);
        disabled.is_disabled = true;
        served.backends.send_replace(of_project(disabled));
        let takes_no_calls = |view: &Arc<BackendView>| view.link.is_none();
        served.is_seen("it takes no further calls", takes_no_calls).await;
        assert!(
            !served.launcher.link(1).is_open(),
            "it would end with the calls that it gets"
        );
        assert!(served.launcher.link(0).is_open(), "a call is open");

        served.launcher.link(0).end(call.number(), CallEnd::NotSent);
        end_of(&mut call).await;
        let is_stopping = |view: &Arc<BackendView>| view.state == BackendState::Stopping;
        served.is_seen("it ends after its last call", is_stopping).await;
    });
}

#[test]
fn a_backend_past_its_restart_limit_has_failed_and_its_project_goes_on() {
    run(|| async {
        let served = Served::start(RestartPolicy {
            restarts_max: 2,
            ..settings().restarts
        })
        .await;
        drop(served.call().await);
        for _ in 0..3 {
            served.panic(Some("silent"));
        }
        let has_failed = |view: &Arc<BackendView>| view.state == BackendState::Failed;
        let view = served.is_seen("the backend has failed", has_failed).await;
        assert_eq!(view.reason.as_deref(), Some("its actor failed too often"));
        assert!(view.link.is_none() && view.retry_at_ms.is_some());
        served.world.register("alice", None).await;
        let shared = served.world.project.gateway().unwrap().shared();
        assert!(shared.offered().backend("silent").is_some(), "it is still shown");
    });
}
