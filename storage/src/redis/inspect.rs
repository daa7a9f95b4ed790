//! Reads what an operator has to know of the Redis servers that a URL names. It writes nothing.

use std::time::Duration;

use actors::clock::now;
use deadpool_redis::redis::{Value, cmd};
use tokio::time::Instant;

use super::{
    connection::{SharedConnection, config_get},
    error::ConnectError,
    reply::into_bytes,
    schema::{SCHEMA_KEY, is_known},
    settings::RedisEndpoint,
};

/// The oldest version that has functions.
pub const VERSION_MIN: u32 = 7;

/// What one server says of itself. `None` where it does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReport {
    /// Its address, without user and password.
    pub address: String,
    /// `7.2.4`, or `valkey 8.0.1`.
    pub version: String,
    /// Whether its version has what the broker needs.
    pub has_functions: bool,
    /// Whether it takes writes: a Redis replica does not.
    pub is_writable: bool,
    /// Most memory in bytes; 0 means no limit.
    pub memory_bytes_max: Option<u64>,
    /// What it removes when its memory is full: `noeviction` keeps everything.
    pub eviction_policy: Option<String>,
    /// Whether a restart keeps its data.
    pub persistence: Option<Persistence>,
    /// By how much its clock is ahead of the clock of this machine, in ms.
    pub clock_ahead_ms: Option<i64>,
    /// The version of the broker's data in it.
    pub schema: Option<String>,
    /// The state of the cluster to which it belongs, `ok` where all slots are served.
    pub cluster_state: Option<String>,
}

/// What survives a restart of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing.
    None,
    /// The last snapshot.
    Snapshots,
    /// The append-only file.
    AppendOnly,
}

impl ServerReport {
    /// Whether the data were written by a version of the broker whose data this build cannot read.
    pub fn has_foreign_schema(&self) -> bool {
        self.schema
            .as_ref()
            .is_some_and(|schema| !schema.parse().is_ok_and(is_known))
    }
}

/// The servers of a URL, for messages: without user and password.
///
/// # Errors
/// `Url` when the URL cannot be read.
pub fn endpoint_text(url: &str) -> Result<String, ConnectError> {
    RedisEndpoint::parse(url).map(|endpoint| endpoint.to_string())
}

/// The servers of a URL that are reached over TLS, as host and port.
///
/// # Errors
/// `Url` when the URL cannot be read.
pub fn tls_servers(url: &str) -> Result<Vec<(String, u16)>, ConnectError> {
    RedisEndpoint::parse(url).map(|endpoint| endpoint.tls_servers())
}

/// Asks every server that a URL names. Behind sentinels it asks the master.
///
/// # Errors
/// Those of [`RedisStorage::connect`](super::RedisStorage::connect), for the first server that cannot be asked.
pub async fn inspect(url: &str, deadline: Duration) -> Result<Vec<ServerReport>, ConnectError> {
    let mut reports = Vec::new();
    for endpoint in RedisEndpoint::parse(url)?.servers() {
        reports.push(inspect_server(&endpoint, deadline).await?);
    }
    Ok(reports)
}

async fn inspect_server(endpoint: &RedisEndpoint, deadline: Duration) -> Result<ServerReport, ConnectError> {
    let unreachable = |reason: String| ConnectError::Unreachable {
        endpoint: endpoint.to_string(),
        reason,
    };
    let server = SharedConnection::new(endpoint, deadline).map_err(|error| unreachable(error.to_string()))?;
    let until = Instant::now() + deadline;
    server.connect(endpoint, until).await?;
    let info = server.send_one(cmd("INFO"), "", until).await;
    let info = info.map_err(|failure| ConnectError::of(endpoint, failure))?;
    let info = Info(text(info).unwrap_or_default());

    let asked = now().unix_ms;
    let time = server.send_one(cmd("TIME"), "", until).await.ok();
    // The answer was made between the question and now.
    let middle = asked.midpoint(now().unix_ms);
    let setting = async |name| match server.send_one(config_get(name), "", until).await {
        Ok(Value::Array(pair)) => pair.into_iter().nth(1).and_then(text),
        _ => None,
    };
    let schema = server.send_one(cmd("GET").arg(SCHEMA_KEY).to_owned(), "", until).await;
    let cluster_state = match info.field("cluster_enabled") {
        Some("1") => {
            let state = server.send_one(cmd("CLUSTER").arg("INFO").to_owned(), "", until).await;
            let state = Info(state.ok().and_then(text).unwrap_or_default());
            Some(state.field("cluster_state").unwrap_or("unknown").to_owned())
        }
        _ => None,
    };
    Ok(ServerReport {
        address: endpoint.to_string(),
        version: info.version(),
        has_functions: info.has_functions(),
        is_writable: info.field("role") != Some("slave"),
        memory_bytes_max: info.field("maxmemory").and_then(|bytes| bytes.parse().ok()),
        eviction_policy: info.field("maxmemory_policy").map(str::to_owned),
        persistence: info.persistence(setting("save").await),
        clock_ahead_ms: time.and_then(unix_ms).map(|theirs| theirs - middle.cast_signed()),
        // In a cluster the key may be on another node.
        schema: schema.ok().and_then(text),
        cluster_state,
    })
}

/// The answer of `INFO`.
struct Info(String);

impl Info {
    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
    }

    fn version(&self) -> String {
        match (self.field("valkey_version"), self.field("redis_version")) {
            (Some(version), _) => format!("valkey {version}"),
            (None, version) => version.unwrap_or("unknown").to_owned(),
        }
    }

    fn has_functions(&self) -> bool {
        let major = |version: &str| version.split('.').next()?.parse::<u32>().ok();
        let is_valkey = self.field("valkey_version").is_some();
        let is_unknown = self.field("redis_version").is_none();
        is_valkey || is_unknown || self.field("redis_version").and_then(major) >= Some(VERSION_MIN)
    }

    /// `save` is the setting of the snapshots, where the server shows it.
    fn persistence(&self, save: Option<String>) -> Option<Persistence> {
        if self.field("aof_enabled")? == "1" {
            return Some(Persistence::AppendOnly);
        }
        let save = save?;
        Some(if save.is_empty() {
            Persistence::None
        } else {
            Persistence::Snapshots
        })
    }
}

fn text(value: Value) -> Option<String> {
    Some(String::from_utf8_lossy(&into_bytes(value).ok()?).into_owned())
}

/// The answer of `TIME`: seconds, and microseconds.
fn unix_ms(time: Value) -> Option<i64> {
    let Value::Array(parts) = time else { return None };
    let mut parts = parts
        .into_iter()
        .filter_map(text)
        .filter_map(|part| part.parse::<i64>().ok());
    Some(parts.next()? * 1000 + parts.next()? / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persistence_and_version_are_read() {
        let info = Info("# Server\r\nredis_version:6.2.14\r\naof_enabled:0\r\n".to_owned());
        assert_eq!((info.version().as_str(), info.has_functions()), ("6.2.14", false));
        assert_eq!(info.persistence(Some(String::new())), Some(Persistence::None));
        assert_eq!(
            info.persistence(Some("3600 1".to_owned())),
            Some(Persistence::Snapshots)
        );
        assert_eq!(info.persistence(None), None);
        let info = Info("redis_version:7.2.4\r\nvalkey_version:8.0.1\r\naof_enabled:1\r\n".to_owned());
        assert_eq!((info.version().as_str(), info.has_functions()), ("valkey 8.0.1", true));
        assert_eq!(info.persistence(None), Some(Persistence::AppendOnly));
    }
}
