//! The one place where the parts meet.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    panic::AssertUnwindSafe,
    process::ExitCode,
    rc::Rc,
    sync::{Arc, OnceLock},
    time::Duration,
};

use actix_codec::Framed;
use actix_http::{Extensions, HttpService, Protocol, Request, error::DispatchError, h1};
use actix_rt::{Arbiter, ArbiterHandle, System, net::TcpStream};
use actix_server::Server;
use actix_service::{ServiceFactoryExt, fn_service, map_config};
use actix_web::{
    App,
    dev::AppConfig,
    middleware::{Condition, from_fn},
    web,
};
use actors::{
    broker::{Broker, BrokerHandle, BrokerSettings},
    clock,
    model::PresenceTimeouts,
    project::ProjectSettings,
    session::CloseReason,
    silence, supervise,
};
use futures_util::FutureExt;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, mpsc},
};
use tracing::Level;
use tracing_actix_web::TracingLogger;

use crate::{
    admin::Administration,
    admission::Admission,
    auth::{
        Audit, AuthPolicy, Authenticator,
        jwt::{JwtSettings, JwtVerifier, KeySource},
    },
    budget::Budget,
    config::{self, Config},
    exit,
    http::{self, HttpState, Lifecycle},
    mcp::{Service, tasks::Tasks},
    storage,
    telemetry::{self, RequestSpan},
    transport::{
        AddressLimiter, Connections, DISCARD_TIMEOUT, Socket, Timeouts, TransportContext,
        streamable_http::{self, Endpoint, HttpSessions},
        websocket,
    },
};

/// How long a client may take for the head of a request.
const REQUEST_HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// A project has at most one of so many parts of what is received, and of what is answered: there a project goes beyond its
/// part by one message, and another needs room for one at the same time.
const INBOUND_SHARE: usize = 2;
const OUTBOUND_SHARE: usize = 4;
/// How long a connection may wait for its next request. Clients keep theirs for shorter, so that it is not the broker
/// that closes one while a request is on its way.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Runs a broker until it is told to stop; the exit code says how it ended.
pub fn serve(config: Config) -> ExitCode {
    match System::new().block_on(run(&config)) {
        Ok(code) => code,
        Err(error) => {
            telemetry::print_status(&config, "ERROR", &error.to_string());
            ExitCode::from(exit::FAILED)
        }
    }
}

async fn run(config: &Config) -> io::Result<ExitCode> {
    raise_file_limit(config);
    let policy = policy(config)?;
    let listener = bind(config)?;
    let address = listener.local_addr()?;
    let admission = Admission::new(&config.allowed_hosts, &config.cors_origins);
    let gate = Arc::new(OnceLock::new());
    let state = Arc::new(HttpState {
        broker: OnceLock::new(),
        auth: OnceLock::new(),
        admin: OnceLock::new(),
        lifecycle: Lifecycle::default(),
        admission: admission.clone(),
        transport: Arc::clone(&gate),
    });
    let connections = Connections::new(config.connections_max);
    let endpoint = Arc::new(Endpoint {
        context: gate,
        sessions: HttpSessions::new(config.connections_max, config.session_retention),
    });

    let workers = workers(config);
    let inbound = Budget::new(
        config.inbound_buffer_bytes(),
        config.inbound_buffer_bytes() / INBOUND_SHARE,
    );
    let (found, mut arbiters) = mpsc::unbounded_channel();
    let server = build_server(config, workers, listener, found, &state, &endpoint, &inbound)?;
    let handle = server.handle();
    let serving = actix_rt::spawn(server);
    let mut arbiters_found = Vec::with_capacity(workers);
    while arbiters_found.len() < workers
        && let Some(arbiter) = arbiters.recv().await
    {
        arbiters_found.push(arbiter);
    }

    for arbiter in &arbiters_found {
        arbiter.spawn(silence::beat_forever());
    }
    let gave_up = Arc::new(Notify::new());
    let storage = storage::open(config, address).await?;
    let replicas = storage.replicas();
    let broker = Broker::start(broker_settings(config), storage, arbiters_found, {
        let gave_up = Arc::clone(&gave_up);
        move || gave_up.notify_one()
    });
    let audit = Audit::new(broker.clone());
    let auth = Arc::new(Authenticator::new(broker.clone(), policy, Arc::clone(&audit)));
    let admin = Administration::new(broker.clone(), audit, config.enable_multi_project);
    let admin = Arc::new(admin);
    let service = Service::new(
        config.max_payload_bytes(),
        config.heartbeat_interval,
        Arc::clone(&admin),
        replicas.as_ref().map(|replicas| replicas.own_id()),
        Budget::new(
            config.outbound_buffer_bytes(),
            config.outbound_buffer_bytes() / OUTBOUND_SHARE,
        ),
    )?;
    let tasks = Arc::clone(&service.tasks);
    let _ = state.auth.set(Arc::clone(&auth));
    let _ = state.admin.set(admin);
    let _ = state.broker.set(broker.clone());
    let _ = endpoint.context.set(TransportContext {
        connections: Arc::clone(&connections),
        admission,
        auth,
        service: Arc::new(service),
        timeouts: tempo(config),
        replicas,
        inbound,
    });
    actix_rt::spawn({
        let (connections, sessions) = (Arc::clone(&connections), Arc::clone(&endpoint.sessions));
        async move {
            loop {
                let sending = send_away_the_ended(&broker, &connections, &sessions, &tasks);
                if AssertUnwindSafe(sending).catch_unwind().await.is_ok() {
                    return;
                }
                // Nobody else would see to it that a revoked key is of no use.
                tracing::error!("whoever sends callers away panicked: begun anew");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    });
    state.lifecycle.mark_started();
    announce(config, address);

    let code = tokio::select! {
        () = gave_up.notified() => {
            tracing::error!("a part without which the broker cannot go on was given up: the process ends");
            ExitCode::from(exit::GAVE_UP)
        }
        result = stop_signal() => {
            result?;
            ExitCode::SUCCESS
        }
    };
    // What is still open at the end of the grace ends with the process.
    let stopping = async {
        drain(&state, &connections).await;
        handle.stop(true).await;
        let _ = serving.await;
    };
    if tokio::time::timeout(config.shutdown_grace, stopping).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "the grace is over: what is open is cut"
        );
    }
    Ok(code)
}

/// Every connection is an open file, and the limit that a shell gives is often 1024: asks for as many as may come.
fn raise_file_limit(config: &Config) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    /// Files that are open beside the connections.
    const OTHERS: u64 = 256;
    // What is sent on to another replica takes a connection to it besides.
    let files_each = match config.storage {
        config::StorageKind::Redis => 2,
        config::StorageKind::Memory | config::StorageKind::Disk => 1,
    };
    let connections_max = config.connections_max as u64;
    let wanted = files_each * connections_max + OTHERS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let limit = Rlimit {
        current: Some(raised),
        maximum,
    };
    if setrlimit(Resource::Nofile, limit).is_err() || raised < wanted {
        tracing::warn!(
            connections_max,
            limit = raised,
            "the limit of open files is lower than connections_max"
        );
    }
}

fn bind(config: &Config) -> io::Result<TcpListener> {
    let wanted = SocketAddr::new(config.host, config.port);
    let socket = socket2::Socket::new(socket2::Domain::for_address(wanted), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket
        .bind(&wanted.into())
        .and_then(|()| socket.listen(4096))
        .map_err(|error| {
            let reason = match error.kind() {
                io::ErrorKind::AddrInUse => "another program listens there".to_owned(),
                _ => error.to_string(),
            };
            let line = format!("cannot listen on {wanted}: {reason}; choose another --port");
            io::Error::new(error.kind(), line)
        })?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Builds the server; each worker that starts says which arbiter it is. Their arbiters are where the projects' actors
/// live: with one worker no message ever changes the thread.
fn build_server(
    config: &Config,
    workers: usize,
    listener: TcpListener,
    found: mpsc::UnboundedSender<ArbiterHandle>,
    state: &Arc<HttpState>,
    endpoint: &Arc<Endpoint>,
    inbound: &Arc<Budget>,
) -> io::Result<Server> {
    let (state, endpoint, inbound) = (Arc::clone(state), Arc::clone(endpoint), Arc::clone(inbound));
    let stall_max = config.stale_threshold;
    let addresses = addresses(config);
    let has_origins = !config.cors_origins.is_empty();
    let builder = Server::build();
    let stopping = builder.graceful_shutdown_signal();
    let server = builder
        .workers(workers)
        .max_concurrent_connections(config.connections_max)
        .shutdown_timeout(config.shutdown_grace.as_secs().max(1))
        .disable_signals()
        .listen("mcp-broker", listener, move || {
            let _ = found.send(Arbiter::current());
            let (state, gate) = (Arc::clone(&state), Arc::clone(&endpoint.context));
            let (addresses, inbound) = (Arc::clone(&addresses), Arc::clone(&inbound));
            let stopping = stopping.clone();
            let app = App::new()
                .app_data(web::Data::new(Arc::clone(&state)))
                .wrap(from_fn(http::authenticate))
                .wrap(Condition::new(has_origins, http::cors(state.admission.clone())))
                .wrap(from_fn(http::admit))
                // What is known of a request is gathered for logs of level debug: that takes longer than many a
                // request.
                .wrap(Condition::new(
                    tracing::enabled!(Level::DEBUG),
                    TracingLogger::<RequestSpan>::new(),
                ))
                .app_data(web::Data::from(Arc::clone(&endpoint)))
                .configure(streamable_http::routes)
                .configure(http::routes);
            let http = HttpService::build()
                .client_request_timeout(REQUEST_HEAD_TIME_MAX)
                .client_disconnect_timeout(DISCARD_TIMEOUT)
                .keep_alive(KEEP_ALIVE)
                .graceful_shutdown_signal(move || {
                    let stopping = stopping.clone();
                    async move { stopping.notified().await }
                })
                .on_connect_ext(|socket: &Socket, data: &mut Extensions| {
                    data.insert(Rc::clone(socket.state()));
                })
                .upgrade(fn_service(
                    move |(request, framed): (Request, Framed<Socket, h1::Codec>)| {
                        let gate = gate.get().cloned();
                        async move {
                            if let Err(error) = websocket::upgrade(gate, request, framed).await {
                                tracing::debug!(%error, "the peer left during the handshake");
                            }
                            Ok::<_, actix_web::Error>(())
                        }
                    },
                ))
                .finish(map_config(app, |()| AppConfig::default()));
            fn_service(move |io: TcpStream| {
                let address = io.peer_addr().ok();
                let place = address.map(|address| addresses.try_acquire(address.ip()));
                let inbound = Arc::clone(&inbound);
                async move {
                    if matches!(place, Some(None)) {
                        tracing::debug!(?address, "too many connections from one address");
                        return Err(DispatchError::Io(io::ErrorKind::ConnectionRefused.into()));
                    }
                    let socket = Socket::new(io, stall_max, place.flatten(), inbound);
                    Ok((socket, Protocol::Http1, address))
                }
            })
            .and_then(http)
        })?
        .run();
    Ok(server)
}

/// Half as many as there are cores: the agents are often on the same machine, and a thread more costs each message two
/// crossings (docs/decisions/0005-workers.md).
fn workers(config: &Config) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
    config.workers.map_or_else(cores, std::num::NonZero::get)
}

/// Half of all places are for one address, unless it is this machine's own.
fn addresses(config: &Config) -> Arc<AddressLimiter> {
    match config.connections_per_address {
        Some(max) => AddressLimiter::new(max.get(), max.get()),
        None => AddressLimiter::new(config.connections_max.div_ceil(2), usize::MAX),
    }
}

fn broker_settings(config: &Config) -> BrokerSettings {
    BrokerSettings {
        project: project_settings(config),
        key_rate_limit: config.rate_limit,
        multi_project: config.enable_multi_project,
        projects_max: config.projects_max,
    }
}

/// How callers are looked at. The rules of the configuration have looked at the same before.
fn policy(config: &Config) -> io::Result<AuthPolicy> {
    let jwt = match (&config.jwt_issuer, &config.jwt_audience, &config.jwt_jwks) {
        (Some(issuer), Some(audience), Some(keys)) => {
            let settings = JwtSettings {
                issuer: issuer.clone(),
                audience: audience.clone(),
                keys: if keys.contains("://") {
                    KeySource::Url(keys.clone())
                } else {
                    KeySource::File(keys.into())
                },
                project_claim: config.jwt_project_claim.clone().unwrap_or_default(),
                scope_claim: config.jwt_scope_claim.clone().unwrap_or_default(),
            };
            let jwt = JwtVerifier::open(settings);
            Some(jwt.map_err(|reason| io::Error::other(format!("jwt_jwks cannot be used: {reason}")))?)
        }
        _ => None,
    };
    let admin_key = config
        .admin_digest()
        .map_err(|reason| io::Error::other(format!("admin_key_file cannot be used: {reason}")))?;
    Ok(AuthPolicy {
        is_required: config.enable_auth,
        admin_key,
        jwt,
        rate_limit: config.rate_limit,
    })
}

/// Closes the connections of those whose credentials end, whether because their time is over or because somebody ended
/// them.
async fn send_away_the_ended(broker: &BrokerHandle, connections: &Connections, sessions: &HttpSessions, tasks: &Tasks) {
    /// Who ends its own key is to have the answer first.
    const ANSWERED_WITHIN: Duration = Duration::from_millis(200);
    let mut changes = broker.changes();
    let close_ended = || {
        let now = clock::now();
        sessions.close_invalid(now, ANSWERED_WITHIN);
        tasks.close_of_ended_credentials(now, ANSWERED_WITHIN);
        let next_end_ms = connections.close_invalid(now, ANSWERED_WITHIN);
        // The wall clock may be set meanwhile: what is far away is looked at again before.
        Duration::from_millis(next_end_ms.saturating_sub(now.unix_ms)).min(Duration::from_secs(60))
    };
    loop {
        let wait = close_ended();
        connections.set_project_count(broker.open_projects().len());
        tokio::select! {
            changed = changes.changed() => if changed.is_err() {
                return;
            },
            () = connections.wait_for_earlier_expiry() => {}
            () = tokio::time::sleep(wait.max(Duration::from_millis(1))) => {}
        }
        // It is seen now who is to go, and they go with the next look.
        close_ended();
        tokio::time::sleep(ANSWERED_WITHIN).await;
    }
}

fn project_settings(config: &Config) -> ProjectSettings {
    ProjectSettings {
        queue_capacity: config.queue_capacity,
        sessions_max: config.sessions_max,
        queue_warning: config.queue_warning,
        delivery_limit: config.delivery_limit,
        heartbeat_interval: config.heartbeat_interval,
        presence: PresenceTimeouts {
            stale_after: config.stale_threshold,
            disconnect_after: config.disconnect_threshold,
        },
        session_retention: config.session_retention,
        restarts: supervise::RestartPolicy::default(),
    }
}

fn tempo(config: &Config) -> Timeouts {
    Timeouts {
        ping_interval: config.heartbeat_interval,
        stall_timeout: config.stale_threshold,
        silence_timeout: config.disconnect_threshold,
    }
}

fn announce(config: &Config, address: SocketAddr) {
    let line = format!(
        "mcp-broker {} is listening: http://{address}/mcp, ws://{address}/ws (health: http://{address}/health)",
        env!("CARGO_PKG_VERSION")
    );
    telemetry::print_status(config, "INFO", &line);
}

async fn stop_signal() -> io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Not ready from now on; every connection is told when to come back, and takes its leave.
async fn drain(state: &HttpState, connections: &Connections) {
    state.lifecycle.mark_stopping();
    tracing::info!(connections = connections.len(), "shutting down");
    connections.close_all(CloseReason::ShuttingDown);
    connections.wait_until_empty().await;
}
