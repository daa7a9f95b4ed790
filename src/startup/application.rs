//! The broker as one object: built from a configuration, run until it is asked to stop.

use std::{
    fmt::Write as _,
    io,
    net::{SocketAddr, TcpListener},
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use actors::{
    broker::{Broker, BrokerHandle, BrokerSettings},
    locked::Locked,
    model::BackendsConfig,
    session::CloseReason,
    storage::{ReplicaDirectory, Storage},
    trace,
};
use rest::stats::Warning;
use tokio::sync::{Notify, watch};

use super::{
    configuration, credential_watcher,
    file_limit::raise_file_limit,
    idle,
    rubberduck::RubberduckPort,
    scraping::{self, ScrapeServer},
    server::{self, RunningServer, Shared},
    services::Services,
    settings::{self, OwnNames},
    tasks::BackgroundTasks,
    user_broker::LocalTransports,
};
use crate::{
    edge::Admission,
    hops,
    http::{HttpState, KeptTotals, LastSilent, Lifecycle, Ready, SettingView},
    instances::Watch,
    metrics::{Metrics, TransportFigures},
    targets::LinkSigner,
    transport::{
        Connections, TransportContext,
        streamable_http::{Endpoint, HttpSessions},
        unix::WarningTexts,
    },
};
use api::{auth::AuthPolicy, mcp::Service};
use common::{
    config::{Config, SettingValue, Source, Sources},
    exit, listen, telemetry,
};

/// The longest time that the last events take at the end of the process.
const EVENTS_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time in which the last signs of life of sessions are stored when the broker ends.
const KEEP_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time at the end of the process for the spans that are queued.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// The part of the shutdown grace that is kept for them, at most a tenth.
const FLUSH_RESERVE_MAX: Duration = Duration::from_secs(1);

/// A broker that listens and serves.
pub struct Application {
    address: SocketAddr,
    shutdown_grace: Duration,
    idle_shutdown: Duration,
    state: Arc<HttpState>,
    connections: Arc<Connections>,
    server: RunningServer,
    /// The server of the metrics, if they have a port of their own.
    scraping: Option<ScrapeServer>,
    local: LocalTransports,
    rubberduck: Option<RubberduckPort>,
    storage: Arc<dyn Storage>,
    /// Notified when the root actor gives up.
    gave_up: Arc<Notify>,
    /// The backends as the configuration file has them now.
    backends: Arc<watch::Sender<Arc<BackendsConfig>>>,
    following: Option<Watch>,
    /// Stopped on drop.
    _tasks: BackgroundTasks,
}

impl Application {
    /// Builds and starts all parts; operators are shown `values`. The server answers from the first step on; until the last one it says that the
    /// broker is starting.
    ///
    /// # Errors
    /// A setting cannot be used, the address is taken, or the storage cannot be opened: the text says which setting to
    /// look at.
    pub async fn build(config: &Config, values: &[SettingValue]) -> io::Result<Self> {
        raise_file_limit(config);
        let policy = settings::auth_policy(config)?;
        let secret = settings::desk_secret(config)?;
        let wanted = SocketAddr::new(config.host, config.port);
        let bound = || listen::bind(wanted, "--port");
        let listener = (!config.has_no_http).then(bound).transpose()?;
        let address = listener.as_ref().map_or(Ok(wanted), TcpListener::local_addr)?;
        let connections = Connections::new(config.connections_max);
        let shared = shared(config, values, secret.as_ref().map(LinkSigner::new))?;
        actors::metrics::set_labelled_max(config.metrics_projects_max);
        let server = server::start(config, listener, &shared).await?;
        let scraping = scraping::start(config, &shared.state)?;

        let gave_up = Arc::new(Notify::new());
        let storage = storage::open(settings::storage(config, address)?).await?;
        let replicas = storage.replicas();
        if let Some(replicas) = &replicas {
            hops::share(replicas.broker_id());
        }
        let backends = Arc::new(watch::Sender::new(Arc::clone(&config.backends)));
        let gateway = settings::gateway(config, backends.subscribe(), OwnNames::of_broker(), &shared.outbound);
        let settings = settings::broker(config, secret.as_ref(), Some(gateway));
        let broker = start_broker(settings, Arc::clone(&storage), &server, &gave_up);
        let service = serve_broker(config, &broker, policy, &shared, replicas, &connections)?;

        // If the storage cannot be read now, the broker starts, is not ready, and reads again.
        let _ = broker.wait_until_loaded().await;
        // Without the added backends their paths would not be known.
        let _ = tokio::time::timeout(config.gateway_list_wait, added_backends_are_known(&broker)).await;
        let mut tasks = BackgroundTasks::default();
        let (watched, sessions) = (Arc::clone(&connections), Arc::clone(&shared.endpoint.sessions));
        tasks.spawn("credential-watcher", move || {
            let (broker, connections, sessions) = (broker.clone(), Arc::clone(&watched), Arc::clone(&sessions));
            let tasks = Arc::clone(&service.tasks);
            async move { credential_watcher::run(&broker, &connections, &sessions, &tasks).await }
        });
        tasks.spawn("metrics-sampler", {
            let state = Arc::clone(&shared.state);
            move || scraping::sample(Arc::clone(&state))
        });
        let (local, rubberduck) = match shared.endpoint.context.get() {
            Some(context) => {
                let state = Arc::clone(&shared.state);
                let text = |warning: Warning| format!("{}: {}", warning.text, warning.cure);
                let warnings = Arc::new(move || state.own_warnings().into_iter().map(text).collect());
                let facts = (format!("http://{address}"), storage.name(), warnings as WarningTexts);
                let local = LocalTransports::start(config, context, facts, server.arbiters())?;
                let rubberduck = RubberduckPort::start(config, context, server.arbiters().first()).await?;
                (local, rubberduck)
            }
            None => (LocalTransports::default(), None),
        };
        shared.state.lifecycle.mark_started();
        Ok(Self {
            address,
            shutdown_grace: config.shutdown_grace,
            idle_shutdown: config.idle_shutdown,
            state: shared.state,
            connections,
            server,
            scraping,
            local,
            rubberduck,
            storage,
            gave_up,
            backends,
            following: None,
            _tasks: tasks,
        })
    }

    /// From now on the backends follow the configuration file, if there is one.
    pub fn follow(&mut self, sources: Sources) {
        let Some(file) = sources.file() else { return };
        let (state, backends) = (Arc::clone(&self.state), Arc::clone(&self.backends));
        let read = move || {
            let (config, _) = sources.load().map_err(|error| error.to_string())?;
            Ok(config.backends)
        };
        let following = configuration::follow(&file, read, backends, move |problem| {
            state.set_configuration_problem(problem);
        });
        self.following = Some(following);
    }

    /// The address that the server listens on, if it has a port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Prints on stderr where the broker listens.
    pub fn announce(&self, config: &Config) {
        if let Some(scraping) = &self.scraping {
            let line = format!("the metrics are at http://{}/metrics", scraping.address());
            telemetry::print_status(config, "INFO", &line);
        }
        if let Some(line) = self.local.announcement() {
            telemetry::print_status(config, "INFO", &line);
        }
        if let Some(line) = self.rubberduck.as_ref().and_then(RubberduckPort::announcement) {
            telemetry::print_status(config, "INFO", &line);
        }
        if config.has_no_http {
            return;
        }
        let address = self.address;
        let line = format!(
            "mcp-broker {} is listening: http://{address}/mcp, ws://{address}/ws (health: http://{address}/health)",
            env!("CARGO_PKG_VERSION")
        );
        telemetry::print_status(config, "INFO", &line);
        let mut line = format!("the dashboard is at http://{address}/dashboard");
        if config.desk {
            let _ = write!(line, ", the desk, where you answer agents, at http://{address}/desk");
        }
        telemetry::print_status(config, "INFO", &line);
    }

    /// Serves until `stop` returns, a local client asks for the end, no client has used the broker for `idle_shutdown`,
    /// or the root actor gives up; then drains the connections within `shutdown_grace`. The exit code tells the last case
    /// from the others.
    ///
    /// # Errors
    /// The error of `stop`.
    pub async fn run_until(self, stop: impl Future<Output = io::Result<()>>) -> io::Result<ExitCode> {
        let code = tokio::select! {
            () = self.gave_up.notified() => {
                tracing::error!("the root actor gave up after repeated failures: the process ends");
                ExitCode::from(exit::GAVE_UP)
            }
            result = stop => {
                result?;
                ExitCode::SUCCESS
            }
            () = self.local.retired() => ExitCode::SUCCESS,
            () = idle::wait(&self.connections, &self.local, self.idle_shutdown) => ExitCode::SUCCESS,
        };
        let (connections, storage) = (Arc::clone(&self.connections), Arc::clone(&self.storage));
        let (started, grace) = (Instant::now(), self.shutdown_grace);
        let flush_reserve = if trace::is_on() {
            FLUSH_RESERVE_MAX.min(grace / 10)
        } else {
            Duration::ZERO
        };
        if tokio::time::timeout(grace.saturating_sub(flush_reserve), self.drain())
            .await
            .is_err()
        {
            tracing::warn!(
                connections = connections.len(),
                "the shutdown grace is over: cutting open connections"
            );
        }
        flush_events(&*storage).await;
        telemetry::shut_down(grace.saturating_sub(started.elapsed()).min(FLUSH_TIMEOUT));
        Ok(code)
    }

    /// Marks the process as not ready, asks every connection to close, and waits for them and for the server.
    async fn drain(mut self) {
        self.state.lifecycle.mark_stopping();
        self.local.stop().await;
        drop(self.rubberduck.take());
        tracing::info!(connections = self.connections.len(), "shutting down");
        if let Some(ready) = self.state.ready.get()
            && tokio::time::timeout(KEEP_TIMEOUT, ready.broker.keep_heartbeats())
                .await
                .is_err()
        {
            tracing::warn!("the last signs of life of sessions were not stored in time");
        }
        self.connections.close_all(CloseReason::ShuttingDown);
        self.connections.wait_until_empty().await;
        self.server.stop().await;
        if let Some(scraping) = self.scraping {
            scraping.stop().await;
        }
    }
}

/// The state of a server whose broker has not started yet.
///
/// # Errors
/// `metrics_token_file` cannot be read.
fn shared(config: &Config, values: &[SettingValue], links: Option<LinkSigner>) -> io::Result<Shared> {
    let state = HttpState {
        ready: OnceLock::new(),
        lifecycle: Lifecycle::default(),
        followers: Arc::default(),
        admission: Admission::new(&config.allowed_hosts, &config.cors_origins),
        scraping: settings::scraping(config)?,
        settings: values.iter().map(view_of).collect(),
        configuration_problem: Locked::default(),
        silent: LastSilent::default(),
        kept_totals: KeptTotals::default(),
        links,
    };
    let endpoint = Endpoint {
        context: OnceLock::new(),
        sessions: HttpSessions::new(config.connections_max, config.session_retention),
    };
    Ok(Shared {
        state: Arc::new(state),
        endpoint: Arc::new(endpoint),
        inbound: settings::inbound_budget(config),
        outbound: settings::outbound_budget(config),
    })
}

/// A setting as operators see it.
fn view_of(value: &SettingValue) -> SettingView {
    SettingView {
        location: value.location(),
        source: match &value.source {
            Source::Default => "default",
            Source::File(_) => "file",
            Source::Env(_) => "environment",
            Source::Flag => "flag",
        },
        name: value.name,
        value: value.value.clone(),
        default: value.default.clone(),
        secret: value.is_secret,
    }
}

/// Starts the root actor on the workers of the server.
fn start_broker(
    settings: BrokerSettings,
    storage: Arc<dyn Storage>,
    server: &RunningServer,
    gave_up: &Arc<Notify>,
) -> BrokerHandle {
    let gave_up = Arc::clone(gave_up);
    let arbiters = server.arbiters().to_vec();
    Broker::start(settings, storage, arbiters, move || {
        gave_up.notify_one();
    })
}

/// Makes authentication, administration and MCP around a broker, and hands them to the server.
fn serve_broker(
    config: &Config,
    broker: &BrokerHandle,
    policy: AuthPolicy,
    shared: &Shared,
    replicas: Option<Arc<dyn ReplicaDirectory>>,
    connections: &Arc<Connections>,
) -> io::Result<Arc<Service>> {
    let Services { auth, admin, service } = Services::of(broker, config, policy, replicas.as_ref(), &shared.outbound)?;
    let Shared {
        state,
        endpoint,
        inbound,
        ..
    } = shared;
    let (sessions, counted) = (Arc::clone(&endpoint.sessions), Arc::clone(connections));
    let transports = TransportFigures {
        http_sessions: Box::new(move || sessions.len()),
        connections_of: Box::new(move |project| counted.len_of(project)),
    };
    let transport = TransportContext {
        connections: Arc::clone(connections),
        admission: state.admission.clone(),
        auth: Arc::clone(&auth),
        service: Arc::clone(&service),
        timeouts: settings::timeouts(config),
        replicas,
        inbound: Arc::clone(inbound),
    };
    let _ = endpoint.context.set(transport.clone());
    let _ = state.ready.set(Ready {
        broker: broker.clone(),
        auth,
        admin,
        transport,
        metrics: Metrics::new(broker.clone(), transports),
    });
    Ok(service)
}

/// Waits until the backends that were added to the open projects are known.
async fn added_backends_are_known(broker: &BrokerHandle) {
    for project in broker.open_projects() {
        if let Some(gateway) = project.gateway() {
            let shared = gateway.shared();
            let is_complete = || shared.offered().is_complete().then_some(());
            shared.wait_for(is_complete).await;
        }
    }
}

/// Writes the last events to the log of a shared storage.
async fn flush_events(storage: &dyn Storage) {
    let Some(shared) = storage.replicated() else {
        return;
    };
    match tokio::time::timeout(EVENTS_FLUSH_TIMEOUT, shared.flush_events()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the last events could not be written to the event log"),
        Err(_) => tracing::warn!("the last events were not written to the event log in time"),
    }
}
