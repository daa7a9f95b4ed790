//! The connection to the servers: one that all callers share, replaced when it fails. It knows single servers,
//! sentinels and clusters.

use std::{sync::Arc, time::Duration};

use actors::{locked::Locked, metrics::METRICS};
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

/// The pause before a command is repeated that a node of a cluster has redirected.
const REDIRECT_DELAY: Duration = Duration::from_millis(20);

/// The shared connection.
pub(super) struct SharedConnection {
    servers: Servers,
    current: Locked<Current>,
    /// Held while connecting: other callers wait for the result.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Current {
    connection: Option<ServerConnection>,
    /// Counts the connections: a caller that fails discards no newer one than its own.
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

/// Commands that are sent together, all for the slot of one key.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub commands: Pipeline,
    /// A key in the hash slot of the commands.
    pub key: String,
}

impl Request {
    /// A single command.
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
    /// Prepares a connection; [`Self::connect`] opens it.
    ///
    /// # Errors
    /// When the settings contradict each other.
    pub fn new(endpoint: &RedisEndpoint, deadline: Duration) -> Result<Self, RedisError> {
        let servers = match endpoint {
            RedisEndpoint::Single(info) => {
                let manager = Manager::new_with_config(info.clone(), connection_config(deadline))?;
                // One connection is used; a second one is opened while the first is discarded.
                let pool = Pool::builder(manager).max_size(2).build();
                Servers::Single(pool.map_err(|_| config_error("the pool cannot be built"))?)
            }
            RedisEndpoint::Sentinel { .. } => Servers::Sentinel(tokio::sync::Mutex::new(sentinel(endpoint)?)),
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
            current: Locked::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    /// Whether the connection is open.
    pub fn is_connected(&self) -> bool {
        self.current().is_some()
    }

    /// Whether the servers are a cluster.
    pub const fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// Sends commands and returns their answers.
    ///
    /// # Errors
    /// Why there is none by the deadline. Only `NoReply` and `Unexpected` leave open whether a command was carried out.
    pub async fn send(&self, request: &Request, deadline: Instant) -> Result<Vec<Value>, Failure> {
        loop {
            let (connection, number) = self.connection(deadline).await?;
            let failure = match timeout_at(deadline, connection.send(request)).await {
                Ok(Ok(values)) => return Ok(values),
                Ok(Err(error)) if self.is_redirect(&error) && Instant::now() + REDIRECT_DELAY < deadline => {
                    tokio::time::sleep(REDIRECT_DELAY).await;
                    continue;
                }
                Ok(Err(error)) => Failure::of(&error),
                Err(_) => Failure::NoReply("Redis did not answer in time".to_owned()),
            };
            if failure.is_server_fault() && !self.is_cluster() {
                // After a failover the address leads to another server. The cluster client manages its connections
                // itself.
                self.discard(number);
            }
            return Err(failure);
        }
    }

    /// Sends one command.
    ///
    /// # Errors
    /// Those of [`Self::send`].
    pub async fn send_one(&self, command: Cmd, key: &str, deadline: Instant) -> Result<Value, Failure> {
        let values = self.send(&Request::of(command, key), deadline).await?;
        values
            .into_iter()
            .next()
            .ok_or_else(|| Failure::Unexpected("Redis gave no answer".to_owned()))
    }

    /// Whether a node of a cluster redirected the command, and did not carry it out.
    fn is_redirect(&self, error: &RedisError) -> bool {
        use deadpool_redis::redis::{ErrorKind, ServerErrorKind as Kind};
        let kinds = [Kind::Moved, Kind::Ask, Kind::TryAgain].map(ErrorKind::Server);
        self.is_cluster() && (kinds.contains(&error.kind()) || error.kind() == ErrorKind::ClusterConnectionNotFound)
    }

    async fn connection(&self, deadline: Instant) -> Result<(ServerConnection, u64), Failure> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let connect = async {
            let _only = self.connecting.lock().await;
            if let Some(connection) = self.current() {
                return Ok::<_, RedisError>(connection);
            }
            let connection = self.servers.connect().await?;
            let mut current = self.current.lock();
            METRICS.redis_connects.increment();
            current.connection = Some(connection.clone());
            current.generation += 1;
            Ok((connection, current.generation))
        };
        match timeout_at(deadline, connect).await {
            Ok(Ok(connection)) => Ok(connection),
            // Nothing was sent.
            Ok(Err(error)) => Err(Failure::Refused(error.to_string())),
            Err(_) => Err(Failure::Refused("no connection in time".to_owned())),
        }
    }

    /// Opens the connection.
    ///
    /// # Errors
    /// `Unreachable`, or `Refused` for a wrong user or password.
    pub async fn connect(&self, endpoint: &RedisEndpoint, deadline: Instant) -> Result<(), ConnectError> {
        let connected = self.connection(deadline).await;
        connected
            .map(|_| ())
            .map_err(|failure| ConnectError::of(endpoint, failure))
    }

    fn current(&self) -> Option<(ServerConnection, u64)> {
        let current = self.current.lock();
        Some((current.connection.clone()?, current.generation))
    }

    fn discard(&self, number: u64) {
        let mut current = self.current.lock();
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
                // The caller has a deadline of its own.
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

fn sentinel(endpoint: &RedisEndpoint) -> Result<SentinelClient, RedisError> {
    let RedisEndpoint::Sentinel {
        sentinels,
        master,
        server,
    } = endpoint
    else {
        return Err(config_error("the servers are not sentinels"));
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

/// Without a time-out for answers: each operation has its deadline.
fn connection_config(connect_within: Duration) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(connect_within))
        .set_response_timeout(None)
}

fn config_error(why: impl Into<String>) -> RedisError {
    let kind = deadpool_redis::redis::ErrorKind::InvalidClientConfig;
    RedisError::from((kind, "the connection", why.into()))
}

/// `CONFIG GET`.
pub(super) fn config_get(name: &str) -> Cmd {
    let mut command = cmd("CONFIG");
    command.arg("GET").arg(name);
    command
}

/// A function that opens connections for pub/sub, each time to the current servers.
///
/// # Errors
/// When the endpoint cannot be used.
pub(super) fn pubsub_connector(endpoint: &RedisEndpoint) -> Result<Arc<ConnectPubSub>, RedisError> {
    match endpoint {
        RedisEndpoint::Single(info) => {
            let client = Client::open(info.clone())?;
            Ok(Arc::new(move || {
                let client = client.clone();
                Box::pin(async move { client.get_async_pubsub().await })
            }))
        }
        // A cluster forwards what is published to all its nodes: any node will do.
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
            let client = Arc::new(tokio::sync::Mutex::new(sentinel(endpoint)?));
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
