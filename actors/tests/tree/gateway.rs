//! Panics of the actors of a gateway: open calls have an end, the next instance takes calls, and the project goes on.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actors::{
    gateway::{
        BackendLog, BackendShared, BackendState, Call, CallEnd, CallEvent, CallPurpose, FrameLink, GatewaySettings,
        Instance, InstanceEvent, LaunchOrder, Launcher, LinkEnded, Naming, ReadyInstance,
    },
    model::{BackendAddress, BackendConfig, BackendName, ProjectId},
    project::ProjectSettings,
    supervise::RestartPolicy,
};
use tokio::sync::watch;

use crate::world::{ActorThread, World, run, settings, within_deadline};

/// Starts instances that take calls at once and answer none.
#[derive(Default)]
struct SilentBackends {
    launches: AtomicUsize,
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
        (order.report)(InstanceEvent::Ready(ReadyInstance {
            link: Arc::clone(&link) as _,
            server: Arc::default(),
            takes_one_call: false,
        }));
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
    _backends: watch::Sender<Arc<BTreeMap<ProjectId, Vec<Arc<BackendConfig>>>>>,
}

impl Served {
    async fn start(restarts: RestartPolicy) -> Self {
        let address = BackendAddress::Command {
            command: "silent".to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            cwd: None,
        };
        let config = Arc::new(BackendConfig::new(BackendName::parse("silent").unwrap(), address));
        let all = BTreeMap::from([(ProjectId::default_project(), vec![config])]);
        let (sender, backends) = watch::channel(Arc::new(all));
        let launcher = Arc::<SilentBackends>::default();
        let gateway = GatewaySettings {
            launcher: Arc::clone(&launcher) as _,
            backends,
            naming: Naming::default(),
            list_wait: Duration::ZERO,
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
            _backends: sender,
        }
    }

    /// Waits until the backend takes calls, and begins one.
    async fn call(&self) -> Call {
        let mut views = self.backend.views();
        let running = views.wait_for(|view| view.link.as_ref().is_some_and(|link| link.is_open()));
        let view = within_deadline("the backend runs", running).await.unwrap().clone();
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
        let mut views = served.backend.views();
        let failed = views.wait_for(|view| view.state == BackendState::Failed);
        let view = within_deadline("the backend has failed", failed).await.unwrap().clone();
        assert_eq!(view.reason.as_deref(), Some("its actor failed too often"));
        assert!(view.link.is_none() && view.retry_at_ms.is_some());
        served.world.register("alice", None).await;
        let shared = served.world.project.gateway().unwrap().shared();
        assert!(shared.offered().backend("silent").is_some(), "it is still shown");
    });
}
