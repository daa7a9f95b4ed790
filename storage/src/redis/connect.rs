//! Opens the storage: finds the kind of server, checks the schema version, loads the function library.

use std::sync::Arc;

use deadpool_redis::redis::{RedisError, Value, cmd};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    client::{RedisClient, RedisThread},
    connection::{SharedConnection, config_get, pubsub_connector},
    core::RedisCore,
    error::{ConnectError, Failure},
    library::Library,
    replicas,
    reply::into_bytes,
    schema::{BROKER_ID_KEY, SCHEMA_KEY, SCHEMA_WITH_LENSES, is_known, put_broker_id, put_schema_version},
    settings::{RedisEndpoint, RedisSettings},
};
use crate::bridge::redis::ConnectPubSub;

/// A connected storage.
pub(super) struct Connected {
    pub shared: Arc<RedisCore>,
    /// What a restart of Redis can lose.
    pub durability: String,
    pub connect_pubsub: Arc<ConnectPubSub>,
}

/// See [`RedisStorage::connect`](super::RedisStorage::connect).
pub(super) async fn connect(settings: RedisSettings) -> Result<Connected, ConnectError> {
    let asked = RedisEndpoint::parse(&settings.url)?;
    let unreachable = |reason: String| ConnectError::Unreachable {
        endpoint: asked.to_string(),
        reason,
    };
    let thread = RedisThread::start().map_err(|error| unreachable(format!("no thread can be started ({error})")))?;
    let endpoint = asked.clone();
    let found = thread.spawn(async move { probe(endpoint, &settings).await });
    let found = found
        .await
        .map_err(|_| unreachable("its thread has ended".to_owned()))??;
    let Probed {
        endpoint,
        link,
        broker_id,
        durability,
        settings,
    } = found;
    let connect_pubsub = pubsub_connector(&endpoint).map_err(|error| unreachable(error.to_string()))?;
    let client = RedisClient::new(thread, link, endpoint.database(), broker_id, &settings);
    let shared = Arc::new(RedisCore::new(client));
    shared
        .client
        .thread
        .spawn(replicas::send_heartbeats(Arc::downgrade(&shared), settings.heartbeat));
    Ok(Connected {
        shared,
        durability,
        connect_pubsub,
    })
}

/// A server that can be used.
struct Probed {
    endpoint: RedisEndpoint,
    link: SharedConnection,
    broker_id: Uuid,
    durability: String,
    settings: RedisSettings,
}

/// Connects to the server. A single one that belongs to a cluster is used as a cluster.
async fn probe(mut endpoint: RedisEndpoint, settings: &RedisSettings) -> Result<Probed, ConnectError> {
    let mut link = open_connection(&endpoint, settings).await?;
    if let RedisEndpoint::Single(server) = &endpoint
        && is_cluster_node(&link, settings)
            .await
            .map_err(|failure| connect_error(&endpoint, failure))?
    {
        endpoint = RedisEndpoint::Cluster(vec![server.clone()]);
        link = open_connection(&endpoint, settings).await?;
    }
    check_schema(&link, settings)
        .await
        .map_err(|trouble_with| match trouble_with {
            SchemaCheckError::Redis(failure) => connect_error(&endpoint, failure),
            SchemaCheckError::Schema(error) => error,
        })?;
    let broker_id = broker_id(&link, settings)
        .await
        .map_err(|failure| connect_error(&endpoint, failure))?;
    // One of a cluster's nodes gets it now, the others when they are asked.
    load_library(&link, settings)
        .await
        .map_err(|failure| connect_error(&endpoint, failure))?;
    let durability = durability(&link, settings).await;
    let settings = RedisSettings {
        address: settings
            .address
            .and_then(|address| endpoint.advertised_address(address)),
        ..settings.clone()
    };
    Ok(Probed {
        endpoint,
        link,
        broker_id,
        durability,
        settings,
    })
}

async fn open_connection(endpoint: &RedisEndpoint, settings: &RedisSettings) -> Result<SharedConnection, ConnectError> {
    let link =
        SharedConnection::new(endpoint, settings.deadline).map_err(|error: RedisError| ConnectError::Unreachable {
            endpoint: endpoint.to_string(),
            reason: error.to_string(),
        })?;
    link.connect(endpoint, deadline(settings)).await?;
    Ok(link)
}

async fn is_cluster_node(link: &SharedConnection, settings: &RedisSettings) -> Result<bool, Failure> {
    let info = link
        .send_one(cmd("INFO").arg("cluster").to_owned(), "", deadline(settings))
        .await?;
    let text = into_bytes(info).unwrap_or_default();
    Ok(String::from_utf8_lossy(&text).contains("cluster_enabled:1"))
}

enum SchemaCheckError {
    Redis(Failure),
    Schema(ConnectError),
}

/// Writes the schema version to an empty database, and refuses data of another version.
async fn check_schema(link: &SharedConnection, settings: &RedisSettings) -> Result<(), SchemaCheckError> {
    let ask = async |command| {
        link.send_one(command, SCHEMA_KEY, deadline(settings))
            .await
            .map_err(SchemaCheckError::Redis)
    };
    ask(put_schema_version()).await?;
    let version = ask(cmd("GET").arg(SCHEMA_KEY).to_owned()).await?;
    let text = into_bytes(version).unwrap_or_default();
    match String::from_utf8_lossy(&text).parse() {
        Ok(found) if is_known(found) => Ok(()),
        Ok(found) => Err(SchemaCheckError::Schema(ConnectError::Schema {
            found,
            known: SCHEMA_WITH_LENSES,
        })),
        Err(_) => {
            let why = format!("{SCHEMA_KEY} is not a number");
            Err(SchemaCheckError::Redis(Failure::Unexpected(why)))
        }
    }
}

/// The id of the broker that this process is a replica of. The first replica makes it.
async fn broker_id(link: &SharedConnection, settings: &RedisSettings) -> Result<Uuid, Failure> {
    let ask = async |command| link.send_one(command, BROKER_ID_KEY, deadline(settings)).await;
    ask(put_broker_id(Uuid::new_v4())).await?;
    let id = ask(cmd("GET").arg(BROKER_ID_KEY).to_owned()).await?;
    let id = into_bytes(id).ok().and_then(|id| Uuid::try_parse_ascii(&id).ok());
    id.ok_or_else(|| Failure::Unexpected(format!("{BROKER_ID_KEY} is not an id")))
}

/// Loads the function library, unless the server has it: a second load would drop what the functions remember.
async fn load_library(link: &SharedConnection, settings: &RedisSettings) -> Result<(), Failure> {
    let library = Library::operations();
    let known = link.send_one(library.list(), SCHEMA_KEY, deadline(settings)).await?;
    if !matches!(known, Value::Array(known) if !known.is_empty()) {
        link.send_one(library.load(), SCHEMA_KEY, deadline(settings)).await?;
    }
    Ok(())
}

fn connect_error(endpoint: &RedisEndpoint, failure: Failure) -> ConnectError {
    ConnectError::of(endpoint, failure)
}

/// What a restart or a crash of Redis can lose, by its settings.
async fn durability(link: &SharedConnection, settings: &RedisSettings) -> String {
    let get = async |name| match link.send_one(config_get(name), "", deadline(settings)).await {
        Ok(Value::Array(mut pair)) if pair.len() == 2 => {
            let value = pair.pop().and_then(|value| into_bytes(value).ok())?;
            Some(String::from_utf8_lossy(&value).into_owned())
        }
        _ => None,
    };
    let kept = match (get("appendonly").await, get("appendfsync").await, get("save").await) {
        (Some(appendonly), Some(_), Some(save)) if appendonly != "yes" && save.is_empty() => {
            "a restart of Redis loses all data (no appendonly, no save)".to_owned()
        }
        (Some(appendonly), Some(_), Some(save)) if appendonly != "yes" => {
            format!("a restart of Redis loses everything after its last snapshot (save {save})")
        }
        (Some(_), Some(fsync), _) => match fsync.as_str() {
            "always" => "nothing is lost when Redis restarts (appendfsync always)".to_owned(),
            "everysec" => "a crash of the machine of Redis loses up to 2 seconds (appendfsync everysec)".to_owned(),
            other => format!(
                "a crash of the machine of Redis loses everything that it had not written (appendfsync {other})"
            ),
        },
        _ => "Redis does not say what it keeps (CONFIG GET is not allowed)".to_owned(),
    };
    match settings.wait_for_replicas {
        0 => format!("{kept}; the broker waits for no Redis replica"),
        1 => format!("{kept}; accepted messages are on 1 Redis replica"),
        count => format!("{kept}; accepted messages are on {count} Redis replicas"),
    }
}

/// When a command that begins now is given up.
fn deadline(settings: &RedisSettings) -> Instant {
    Instant::now() + settings.deadline
}
