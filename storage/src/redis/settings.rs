//! Settings of the Redis storage, and the endpoint that its URL names.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    time::Duration,
};

use actors::storage::Retention;
use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::error::ConnectError;

/// The settings of the Redis storage.
#[derive(Clone)]
pub struct RedisSettings {
    /// One server: `redis://[user:password@]host[:port][/db]`. Several, separated by commas:
    /// `redis+cluster://[user:password@]host[:port],...` and
    /// `redis+sentinel://[user:password@]host[:port],.../master[/db]`. With TLS: `rediss://`, `rediss+...`. A single
    /// server that belongs to a cluster is used as a cluster. User and password are those of the servers, not of the
    /// sentinels.
    pub url: String,
    /// Longest time of one operation, connecting included.
    pub deadline: Duration,
    /// Redis replicas that must confirm what is accepted; 0: none.
    pub wait_for_replicas: u32,
    /// How much is kept, and for how long.
    pub retention: Retention,
    /// How often this replica sends a heartbeat. All replicas use the same interval: one that is silent for
    /// [`REPLICA_TIMEOUT_HEARTBEATS`] intervals counts as ended.
    pub heartbeat: Duration,
    /// Where this process serves HTTP, for the other replicas. The unspecified address means the address by which
    /// this machine reaches Redis. None: the other replicas learn of no address.
    pub address: Option<SocketAddr>,
    /// How long a group lease waits until its message is written to all members.
    pub group_lease_timeout: Duration,
}

/// Intervals of silence after which a replica counts as ended.
pub const REPLICA_TIMEOUT_HEARTBEATS: u32 = 6;

impl RedisSettings {
    /// The defaults, with this URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            deadline: Duration::from_secs(2),
            wait_for_replicas: 0,
            retention: Retention::default(),
            heartbeat: Duration::from_secs(5),
            address: None,
            group_lease_timeout: Duration::from_millis(100),
        }
    }
}

impl RedisSettings {
    /// Checks the URL.
    ///
    /// # Errors
    /// `Url`, with the fault and without the URL.
    pub fn check(&self) -> Result<(), ConnectError> {
        RedisEndpoint::parse(&self.url).map(drop)
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("RedisSettings")
            .field("deadline", &self.deadline)
            .field("wait_for_replicas", &self.wait_for_replicas)
            .field("retention", &self.retention)
            .field("heartbeat", &self.heartbeat)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// The servers that a URL names.
#[derive(Clone, Debug)]
pub(super) enum RedisEndpoint {
    Single(ConnectionInfo),
    Cluster(Vec<ConnectionInfo>),
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        master: String,
        /// User, password and database of the servers behind the sentinels.
        server: ConnectionInfo,
    },
}

impl RedisEndpoint {
    /// # Errors
    /// `Url`, with the fault and without the URL.
    pub fn parse(url: &str) -> Result<Self, ConnectError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| url_error("it has no scheme"))?;
        let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(user, rest)| (user, rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (plain, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        if !["redis", "rediss"].contains(&plain) {
            return Err(url_error(
                "use redis:// or rediss://, with +cluster or +sentinel for several servers",
            ));
        }
        let server = |user: &str, host: &str, db: &str| {
            let at = if user.is_empty() { "" } else { "@" };
            info(&format!("{plain}://{user}{at}{host}/{db}"))
        };
        let all = |user, db| {
            hosts
                .split(',')
                .map(|host| server(user, host, db))
                .collect::<Result<Vec<_>, _>>()
        };
        match kind {
            "" if hosts.contains(',') => Err(url_error("several servers are a redis+cluster:// or redis+sentinel://")),
            "" => server(user, hosts, path).map(Self::Single),
            "cluster" if ["", "0"].contains(&path) => all(user, "").map(Self::Cluster),
            "cluster" => Err(url_error("a cluster has no databases but 0")),
            "sentinel" => {
                let (master, db) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(url_error(
                        "the name of the master is missing: redis+sentinel://host:port/NAME",
                    ));
                }
                Ok(Self::Sentinel {
                    sentinels: hosts
                        .split(',')
                        .map(|host| {
                            let host = if host.contains(':') {
                                host.to_owned()
                            } else {
                                format!("{host}:26379")
                            };
                            server("", &host, "")
                        })
                        .collect::<Result<Vec<_>, _>>()?,
                    master: master.to_owned(),
                    server: server(user, "master", db)?,
                })
            }
            _ => Err(url_error("the kinds are +cluster and +sentinel")),
        }
    }

    /// The number of the database.
    pub fn database(&self) -> i64 {
        match self {
            Self::Single(info) | Self::Sentinel { server: info, .. } => info.redis_settings().db(),
            Self::Cluster(_) => 0,
        }
    }

    /// The servers one by one. Those behind sentinels stay one: only the sentinels know them.
    pub fn servers(&self) -> Vec<Self> {
        match self {
            Self::Cluster(infos) => infos.iter().cloned().map(Self::Single).collect(),
            other => vec![other.clone()],
        }
    }

    /// The servers, or sentinels, that are reached over TLS, as host and port.
    pub fn tls_servers(&self) -> Vec<(String, u16)> {
        let tls = self.infos().iter().filter_map(|info| match info.addr() {
            ConnectionAddr::TcpTls { host, port, .. } => Some((host.clone(), *port)),
            _ => None,
        });
        tls.collect()
    }

    fn infos(&self) -> &[ConnectionInfo] {
        match self {
            Self::Single(info) => std::slice::from_ref(info),
            Self::Cluster(infos) | Self::Sentinel { sentinels: infos, .. } => infos,
        }
    }

    /// An address at which this machine listens, as the other machines see it that reach the same Redis. None when it
    /// cannot be found, as with a Redis on a Unix socket.
    pub fn advertised_address(&self, address: SocketAddr) -> Option<SocketAddr> {
        if !address.ip().is_unspecified() {
            return Some(address);
        }
        let own = self.infos().iter().find_map(|server| match server.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                local_address_towards(host, *port)
            }
            _ => None,
        });
        Some(SocketAddr::new(own?, address.port()))
    }
}

/// The address by which this machine reaches a host. Nothing is sent.
fn local_address_towards(host: &str, port: u16) -> Option<IpAddr> {
    (host, port).to_socket_addrs().ok()?.find_map(|server| {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(server).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

/// Without user and password.
impl fmt::Display for RedisEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = |infos: &[ConnectionInfo]| {
            let all: Vec<_> = infos.iter().map(|info| address(info.addr())).collect();
            all.join(", ")
        };
        match self {
            Self::Single(info) => f.write_str(&address(info.addr())),
            Self::Cluster(infos) => write!(f, "the cluster of {}", addresses(infos)),
            Self::Sentinel { sentinels, master, .. } => {
                write!(f, "{master}, asked for at the sentinels {}", addresses(sentinels))
            }
        }
    }
}

fn address(of: &ConnectionAddr) -> String {
    of.to_string()
}

fn info(url: &str) -> Result<ConnectionInfo, ConnectError> {
    // The error of the parser may quote the URL, and with it a password.
    url.into_connection_info()
        .map_err(|_| url_error("host, port or database number cannot be read"))
}

fn url_error(reason: &'static str) -> ConnectError {
    ConnectError::Url(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        match RedisEndpoint::parse(url) {
            Ok(endpoint) => format!("{endpoint} db {}", endpoint.database()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_url_names_the_endpoint() {
        assert_eq!(shown("redis://cache"), "cache:6379 db 0");
        assert_eq!(shown("redis://user:se@cret@cache:1/3"), "cache:1 db 3");
        assert_eq!(shown("rediss://cache:1"), "cache:1 db 0");
        assert_eq!(shown("redis+cluster://:pw@a,b:2"), "the cluster of a:6379, b:2 db 0");
        assert_eq!(
            shown("redis+sentinel://a,b:2/main/4"),
            "main, asked for at the sentinels a:26379, b:2 db 4"
        );
    }

    #[test]
    fn an_invalid_url_is_refused_without_its_password() {
        for url in [
            "cache:6379",
            "http://:secret@cache",
            "redis://:secret@a,b",
            "redis://:secret@cache:port",
            "redis://:secret@cache/first",
            "redis+cluster://:secret@a,b/1",
            "redis+sentinel://:secret@a",
            "redis+ring://:secret@a",
        ] {
            let error = RedisEndpoint::parse(url).unwrap_err().to_string();
            assert!(
                error.starts_with("the Redis URL cannot be used: ") && !error.contains("secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_replica_advertises_the_address_that_faces_redis() {
        let seen = |url: &str, address: &str| {
            let seen = RedisEndpoint::parse(url)
                .unwrap()
                .advertised_address(address.parse().unwrap());
            seen.map(|address| address.to_string())
        };
        assert_eq!(seen("redis://127.0.0.1", "0.0.0.0:8000").unwrap(), "127.0.0.1:8000");
        assert_eq!(
            seen("redis+sentinel://127.0.0.1/main", "[::]:8000").unwrap(),
            "127.0.0.1:8000"
        );
        assert_eq!(seen("redis://127.0.0.1", "10.1.2.3:80").unwrap(), "10.1.2.3:80");
    }

    #[test]
    fn settings_show_no_password() {
        assert!(!format!("{:?}", RedisSettings::new("redis://:secret@cache")).contains("secret"));
    }
}
