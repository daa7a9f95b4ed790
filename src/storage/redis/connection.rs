//! The way to the servers: one connection that everybody shares, made anew when it breaks.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use deadpool_redis::{
    Connection, Manager, Pool,
    redis::{
        AsyncConnectionConfig, Client, Cmd, ConnectionAddr, Pipeline, RedisError, TlsMode, Value,
        aio::MultiplexedConnection,
        cluster::ClusterClientBuilder,
        cluster_async::ClusterConnection,
        cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr},
        cmd,
        sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
    },
};
use tokio::time::{Instant, timeout_at};

use super::{
    error::{ConnectError, Failure},
    settings::RedisEndpoint,
};
use crate::bridge::redis::ConnectPubSub;

/// How long a node that moves its slots is given before it is asked again.
const REDIRECT_DELAY: Duration = Duration::from_millis(20);

pub(super) struct SharedConnection {
    servers: Servers,
    current: Mutex<Current>,
    /// One connects at a time; the others wait for what comes of it.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Current {
    connection: Option<ServerConnection>,
    /// Counts the connections, so that nobody throws away a newer one than the one that failed.
    generation: u64,
}

enum Servers {
    Single(Pool),
    Sentinel(tokio::sync::Mutex<SentinelClient>),
    Cluster(deadpool_redis::redis::cluster::ClusterClient),
}

/// A connection. Clones share it; commands go out in the order in which they were first polled.
#[derive(Clone)]
enum ServerConnection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// What is sent in one go, all of it about one key.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub commands: Pipeline,
    pub key: String,
}

impl Request {
    pub fn of(command: Cmd, key: impl Into<String>) -> Self {
        let mut commands = Pipeline::with_capacity(1);
        commands.add_command(command);
        Self {
            commands,
            key: key.into(),
        }
    }
}

impl SharedConnection {
    pub fn new(place: &RedisEndpoint, deadline: Duration) -> Result<Self, RedisError> {
        let servers = match place {
            RedisEndpoint::Single(info) => {
                let manager = Manager::new_with_config(info.clone(), connection_config(deadline))?;
                // One connection carries everything; a second one is made while the first is given up.
                let pool = Pool::builder(manager).max_size(2).build();
                Servers::Single(pool.map_err(|_| config_error("the pool cannot be built"))?)
            }
            RedisEndpoint::Sentinel { .. } => Servers::Sentinel(tokio::sync::Mutex::new(sentinel(place)?)),
            RedisEndpoint::Cluster(infos) => Servers::Cluster(
                // A command that broke off may have been carried out: it is never sent a second time.
                ClusterClientBuilder::new(infos.clone())
                    .retries(0)
                    .connection_timeout(deadline)
                    .response_timeout(deadline)
                    .build()?,
            ),
        };
        Ok(Self {
            servers,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    pub const fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// The answers to these commands, which take until then at the latest.
    pub async fn send(&self, request: &Request, until: Instant) -> Result<Vec<Value>, Failure> {
        loop {
            let (wire, number) = self.connection(until).await?;
            let failure = match timeout_at(until, wire.send(request)).await {
                Ok(Ok(values)) => return Ok(values),
                Ok(Err(error)) if self.is_redirect(&error) && Instant::now() + REDIRECT_DELAY < until => {
                    tokio::time::sleep(REDIRECT_DELAY).await;
                    continue;
                }
                Ok(Err(error)) => Failure::of(&error),
                Err(_) => Failure::NoReply("Redis did not answer in time".to_owned()),
            };
            if failure.is_server_fault() && !self.is_cluster() {
                // After a failover the address leads elsewhere. A cluster looks after its connections itself.
                self.discard(number);
            }
            return Err(failure);
        }
    }

    pub async fn send_one(&self, command: Cmd, key: &str, until: Instant) -> Result<Value, Failure> {
        let values = self.send(&Request::of(command, key), until).await?;
        values
            .into_iter()
            .next()
            .ok_or_else(|| Failure::Unexpected("Redis gave no answer".to_owned()))
    }

    /// Whether a node of a cluster said that it is not the one to ask, and did nothing.
    fn is_redirect(&self, error: &RedisError) -> bool {
        use deadpool_redis::redis::{ErrorKind, ServerErrorKind as Kind};
        let kinds = [Kind::Moved, Kind::Ask, Kind::TryAgain].map(ErrorKind::Server);
        self.is_cluster() && (kinds.contains(&error.kind()) || error.kind() == ErrorKind::ClusterConnectionNotFound)
    }

    async fn connection(&self, until: Instant) -> Result<(ServerConnection, u64), Failure> {
        if let Some(wire) = self.current() {
            return Ok(wire);
        }
        let connect = async {
            let _only = self.connecting.lock().await;
            if let Some(wire) = self.current() {
                return Ok::<_, RedisError>(wire);
            }
            let wire = self.servers.connect().await?;
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.connection = Some(wire.clone());
            current.generation += 1;
            Ok((wire, current.generation))
        };
        match timeout_at(until, connect).await {
            Ok(Ok(wire)) => Ok(wire),
            // Nothing was sent yet.
            Ok(Err(error)) => Err(Failure::Refused(error.to_string())),
            Err(_) => Err(Failure::Refused("no connection in time".to_owned())),
        }
    }

    /// Connects, or says what is in the way.
    pub async fn connect(&self, place: &RedisEndpoint, until: Instant) -> Result<(), ConnectError> {
        let connected = self.connection(until).await;
        connected
            .map(|_| ())
            .map_err(|failure| ConnectError::of(place, failure))
    }

    fn current(&self) -> Option<(ServerConnection, u64)> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Some((current.connection.clone()?, current.generation))
    }

    fn discard(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.generation == number {
            current.connection = None;
        }
    }
}

impl Servers {
    async fn connect(&self) -> Result<ServerConnection, RedisError> {
        match self {
            Self::Single(pool) => {
                let connection = pool.get().await.map_err(|error| match error {
                    deadpool_redis::PoolError::Backend(error) => error,
                    other => config_error(other.to_string()),
                })?;
                Ok(ServerConnection::Single(Connection::take(connection)))
            }
            Self::Sentinel(client) => {
                let mut client = client.lock().await;
                // How long it may take is known to the caller.
                let config = connection_config(Duration::from_secs(3600));
                let connection = client.get_async_connection_with_config(&config).await?;
                Ok(ServerConnection::Single(connection))
            }
            Self::Cluster(client) => Ok(ServerConnection::Cluster(client.get_async_connection().await?)),
        }
    }
}

impl ServerConnection {
    async fn send(self, request: &Request) -> Result<Vec<Value>, RedisError> {
        let len = request.commands.len();
        match self {
            Self::Single(mut connection) => connection.send_packed_commands(&request.commands, 0, len).await,
            Self::Cluster(mut connection) => {
                let route = Route::with_key(&request.key, SlotAddr::Master);
                let node = SingleNodeRoutingInfo::SpecificNode(route);
                connection.route_pipeline(request.commands.clone(), 0, len, node).await
            }
        }
        .and_then(|values| values.into_iter().map(Value::extract_error).collect())
    }
}

fn sentinel(place: &RedisEndpoint) -> Result<SentinelClient, RedisError> {
    let RedisEndpoint::Sentinel {
        sentinels,
        master,
        server,
    } = place
    else {
        return Err(config_error("these are no sentinels"));
    };
    let mut info = SentinelNodeConnectionInfo::default();
    info = info.set_redis_connection_info(server.redis_settings().clone());
    if let ConnectionAddr::TcpTls { .. } = server.addr() {
        info = info.set_tls_mode(TlsMode::Secure);
    }
    SentinelClient::build(
        sentinels.clone(),
        master.clone(),
        Some(info),
        SentinelServerType::Master,
    )
}

/// The deadline of an answer is that of its operation.
fn connection_config(connect_within: Duration) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(connect_within))
        .set_response_timeout(None)
}

fn config_error(why: impl Into<String>) -> RedisError {
    let kind = deadpool_redis::redis::ErrorKind::InvalidClientConfig;
    RedisError::from((kind, "the connection", why.into()))
}

/// A command that any server answers.
pub(super) fn config_get(name: &str) -> Cmd {
    let mut command = cmd("CONFIG");
    command.arg("GET").arg(name);
    command
}

/// Opens connections that can subscribe, each time to wherever the servers are by then.
pub(super) fn pubsub_connector(place: &RedisEndpoint) -> Result<Arc<ConnectPubSub>, RedisError> {
    match place {
        RedisEndpoint::Single(info) => {
            let client = Client::open(info.clone())?;
            Ok(Arc::new(move || {
                let client = client.clone();
                Box::pin(async move { client.get_async_pubsub().await })
            }))
        }
        // What is published on one node of a cluster is heard on all.
        RedisEndpoint::Cluster(infos) => {
            let clients = infos.iter().map(|info| Client::open(info.clone()));
            let clients: Vec<_> = clients.collect::<Result<_, _>>()?;
            Ok(Arc::new(move || {
                let clients = clients.clone();
                Box::pin(async move {
                    let mut error = config_error("no node is known");
                    for client in clients {
                        match client.get_async_pubsub().await {
                            Ok(connection) => return Ok(connection),
                            Err(refused) => error = refused,
                        }
                    }
                    Err(error)
                })
            }))
        }
        RedisEndpoint::Sentinel { .. } => {
            let client = Arc::new(tokio::sync::Mutex::new(sentinel(place)?));
            Ok(Arc::new(move || {
                let client = Arc::clone(&client);
                Box::pin(async move {
                    let master = client.lock().await.async_get_client().await?;
                    master.get_async_pubsub().await
                })
            }))
        }
    }
}
