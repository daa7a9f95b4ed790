//! The HTTP server: its listener, its workers, and what each worker serves.

use std::{
    future::ready,
    io,
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use actix_codec::Framed;
use actix_http::{Extensions, HttpService, Protocol, Request, error::DispatchError, h1};
use actix_rt::{
    Arbiter, ArbiterHandle,
    net::{TcpStream, UnixStream},
    task::JoinHandle,
};
use actix_server::{Server, ServerHandle};
use actix_service::{ServiceFactory, ServiceFactoryExt, fn_factory, fn_service, map_config};
use actix_web::{
    App,
    body::MessageBody,
    dev::{AppConfig, ServiceRequest, ServiceResponse},
    middleware::{Condition, from_fn},
    web,
};
use actors::silence;
use tokio::sync::mpsc;
use tracing_actix_web::TracingLogger;

use super::{lazy_service::LazyService, settings};
use crate::{
    edge::{self, AddressLimiter, PeerUser},
    http::{self, HttpState},
    transport::{
        DISCARD_TIMEOUT, Socket,
        streamable_http::{self, Endpoint},
        websocket,
    },
};
use api::budget::ByteBudget;
use common::{
    config::Config,
    telemetry::{self, RequestSpan},
};

/// Longest time that a client may take for the head of a request.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// State that all workers share.
#[derive(Clone)]
pub struct Shared {
    pub state: Arc<HttpState>,
    pub endpoint: Arc<Endpoint>,
    /// The byte budget for what connections receive.
    pub inbound: Arc<ByteBudget>,
    pub outbound: Arc<ByteBudget>,
}

/// A server that accepts connections.
pub struct RunningServer {
    handle: ServerHandle,
    task: JoinHandle<io::Result<()>>,
    arbiters: Vec<ArbiterHandle>,
}

impl RunningServer {
    /// The arbiters of the workers, where the projects' actors live: with one worker, no message changes threads.
    pub fn arbiters(&self) -> &[ArbiterHandle] {
        &self.arbiters
    }

    /// Stops accepting and waits until all requests are answered.
    pub async fn stop(self) {
        self.handle.stop(true).await;
        let _ = self.task.await;
    }
}

/// Starts the server and returns once all its workers run. Without a listener nothing can connect, and the workers run the
/// projects.
///
/// # Errors
/// The listener cannot be registered.
pub async fn start(config: &Config, listener: Option<TcpListener>, shared: &Shared) -> io::Result<RunningServer> {
    let workers = settings::workers(config);
    let (started, mut arbiters) = mpsc::unbounded_channel();
    let server = build(config, workers, listener, started, shared)?;
    let handle = server.handle();
    let task = actix_rt::spawn(server);
    let mut found = Vec::with_capacity(workers);
    while found.len() < workers
        && let Some(arbiter) = arbiters.recv().await
    {
        found.push(arbiter);
    }
    for arbiter in &found {
        arbiter.spawn(silence::beat_forever());
    }
    Ok(RunningServer {
        handle,
        task,
        arbiters: found,
    })
}

/// Builds the server. Each worker sends its arbiter to `started`.
fn build(
    config: &Config,
    workers: usize,
    listener: Option<TcpListener>,
    started: mpsc::UnboundedSender<ArbiterHandle>,
    shared: &Shared,
) -> io::Result<Server> {
    let (shared, inbound) = (shared.clone(), Arc::clone(&shared.inbound));
    let has_origins = !config.cors_origins.is_empty();
    let (stall_timeout, keep_alive) = (config.stale_threshold, config.keep_alive);
    let addresses = settings::address_limiter(config);
    let asks_user = settings::asks_user(config);
    let builder = Server::build();
    let stopping = builder.graceful_shutdown_signal();
    let builder = builder
        .workers(workers)
        .max_concurrent_connections(config.connections_max)
        .shutdown_timeout(config.shutdown_grace.as_secs().max(1))
        .disable_signals();
    let Some(listener) = listener else {
        let workers = builder.listen_uds("no-port", unreachable_listener()?, move || {
            let _ = started.send(Arbiter::current());
            fn_service(|_: UnixStream| ready(Ok::<_, ()>(())))
        });
        return Ok(workers?.run());
    };
    let server = builder
        .listen("mcp-broker", listener, move || {
            let _ = started.send(Arbiter::current());
            let (shared, stopping) = (shared.clone(), stopping.clone());
            let http = move || {
                let stopping = stopping.clone();
                HttpService::build()
                    .client_request_timeout(REQUEST_HEAD_TIMEOUT)
                    .client_disconnect_timeout(DISCARD_TIMEOUT)
                    .keep_alive(keep_alive)
                    .graceful_shutdown_signal(move || {
                        let stopping = stopping.clone();
                        async move { stopping.notified().await }
                    })
                    .on_connect_ext(|socket: &Socket, data: &mut Extensions| {
                        data.insert(Rc::clone(socket.state()));
                    })
                    .upgrade({
                        let endpoint = Arc::clone(&shared.endpoint);
                        fn_service(move |(request, framed): (Request, Framed<Socket, h1::Codec>)| {
                            let context = endpoint.context.get().cloned();
                            async move {
                                if let Err(error) = websocket::upgrade(context, request, framed).await {
                                    tracing::debug!(%error, "the peer disconnected during the handshake");
                                }
                                Ok::<_, actix_web::Error>(())
                            }
                        })
                    })
                    .finish(map_config(app(&shared, has_origins), |()| AppConfig::default()))
            };
            let (addresses, inbound) = (Arc::clone(&addresses), Arc::clone(&inbound));
            let http = fn_factory(move || ready(Ok::<_, ()>(LazyService::new(http.clone()))));
            fn_service(move |io| ready(accept(io, (&addresses, asks_user), &inbound, stall_timeout))).and_then(http)
        })?
        .run();
    Ok(server)
}

/// A listener that nothing can connect to: the server takes no fewer than one.
fn unreachable_listener() -> io::Result<UnixListener> {
    let path = std::env::temp_dir().join(format!("mcp-broker-{}", uuid::Uuid::new_v4().simple()));
    let listener = UnixListener::bind(&path)?;
    std::fs::remove_file(&path)?;
    Ok(listener)
}

/// Wraps an accepted connection, unless its address has too many. With `asks_user` it notes whether the peer is one
/// that needs a key.
fn accept(
    io: TcpStream,
    (addresses, asks_user): (&Arc<AddressLimiter>, bool),
    inbound: &Arc<ByteBudget>,
    stall_timeout: Duration,
) -> Result<(Socket, Protocol, Option<SocketAddr>), DispatchError> {
    let address = io.peer_addr().ok();
    let permit = address.map(|address| addresses.try_acquire(address.ip()));
    if matches!(permit, Some(None)) {
        tracing::debug!(?address, "too many connections from one address");
        return Err(DispatchError::Io(io::ErrorKind::ConnectionRefused.into()));
    }
    let own = io.local_addr().ok();
    let socket = Socket::new(io, stall_timeout, permit.flatten(), Arc::clone(inbound));
    if asks_user {
        let user = address.zip(own).map(|(peer, own)| PeerUser::of(peer, own));
        socket
            .state()
            .set_stranger(user.unwrap_or(PeerUser::Unknown).stranger());
    }
    Ok((socket, Protocol::Http1, address))
}

/// The routes and middleware of one worker. Middleware runs from the last `wrap` to the first.
fn app(
    shared: &Shared,
    has_origins: bool,
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<impl MessageBody + use<>>,
        Error = actix_web::Error,
        InitError = (),
    > + use<>,
> {
    let Shared { state, endpoint, .. } = shared;
    App::new()
        .app_data(web::Data::new(Arc::clone(state)))
        .wrap(from_fn(http::authenticate))
        .wrap(Condition::new(has_origins, edge::cors(state.admission.clone())))
        .wrap(from_fn(http::admit))
        // Making a span takes longer than many a request.
        .wrap(Condition::new(
            telemetry::has_request_spans(),
            TracingLogger::<RequestSpan>::new(),
        ))
        .app_data(web::Data::from(Arc::clone(endpoint)))
        .configure(streamable_http::routes)
        .configure(http::routes)
}
