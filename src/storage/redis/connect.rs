use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use deadpool_redis::redis::{Cmd, RedisError, Value, cmd};
use tokio::time::Instant;

use super::{
    ConnectError, RedisSettings, RedisStorage, SCHEMA, Shared,
    client::Client,
    error::Failure,
    link::{Link, config_get, subscriber},
    replicas,
    reply::bytes,
    script::Library,
    settings::Place,
    thread::Thread,
};

pub(super) const SCHEMA_KEY: &str = "{system}:schema:version";

pub(super) async fn storage(settings: RedisSettings) -> Result<RedisStorage, ConnectError> {
    let asked = Place::parse(&settings.url)?;
    let unreachable = |reason: String| ConnectError::Unreachable {
        place: asked.to_string(),
        reason,
    };
    let thread = Thread::start().map_err(|error| unreachable(format!("no thread for it ({error})")))?;
    let place = asked.clone();
    let found = thread.spawn(async move { look(place, &settings).await });
    let found = found
        .await
        .map_err(|_| unreachable("its thread has ended".to_owned()))??;
    let Found {
        place,
        link,
        durability,
        settings,
    } = found;
    let subscribe = subscriber(&place).map_err(|error| unreachable(error.to_string()))?;
    let client = Client::new(thread, link, format!("mcp-broker:{}:bridge", place.db()), &settings);
    let shared = Arc::new(Shared {
        client: Arc::new(client),
        lanes: Mutex::new(HashMap::new()),
    });
    shared
        .client
        .thread
        .spawn(replicas::beat(Arc::downgrade(&shared), settings.heartbeat));
    Ok(RedisStorage {
        shared,
        durability,
        subscribe,
    })
}

struct Found {
    place: Place,
    link: Link,
    durability: String,
    settings: RedisSettings,
}

async fn look(mut place: Place, settings: &RedisSettings) -> Result<Found, ConnectError> {
    let mut link = open(&place, settings).await?;
    if let Place::Single(server) = &place
        && belongs_to_a_cluster(&link, settings)
            .await
            .map_err(|failure| trouble(&place, failure))?
    {
        place = Place::Cluster(vec![server.clone()]);
        link = open(&place, settings).await?;
    }
    check_schema(&link, settings)
        .await
        .map_err(|trouble_with| match trouble_with {
            Trouble::Redis(failure) => trouble(&place, failure),
            Trouble::Schema(error) => error,
        })?;
    // One of a cluster's nodes is told now, the others when they are asked.
    teach(&link, settings)
        .await
        .map_err(|failure| trouble(&place, failure))?;
    let durability = durability(&link, settings).await;
    let settings = RedisSettings {
        address: settings.address.and_then(|address| place.as_seen_from(address)),
        ..settings.clone()
    };
    Ok(Found {
        place,
        link,
        durability,
        settings,
    })
}

async fn open(place: &Place, settings: &RedisSettings) -> Result<Link, ConnectError> {
    let link = Link::new(place, settings.deadline).map_err(|error: RedisError| ConnectError::Unreachable {
        place: place.to_string(),
        reason: error.to_string(),
    })?;
    link.connect(place, until(settings)).await?;
    Ok(link)
}

async fn belongs_to_a_cluster(link: &Link, settings: &RedisSettings) -> Result<bool, Failure> {
    let info = link
        .ask_one(cmd("INFO").arg("cluster").to_owned(), "", until(settings))
        .await?;
    let text = bytes(info).unwrap_or_default();
    Ok(String::from_utf8_lossy(&text).contains("cluster_enabled:1"))
}

enum Trouble {
    Redis(Failure),
    Schema(ConnectError),
}

/// Says of which version the layout is, where nothing says so.
pub(super) fn put_schema() -> Cmd {
    cmd("SETNX").arg(SCHEMA_KEY).arg(SCHEMA).to_owned()
}

async fn check_schema(link: &Link, settings: &RedisSettings) -> Result<(), Trouble> {
    let ask = async |command| {
        link.ask_one(command, SCHEMA_KEY, until(settings))
            .await
            .map_err(Trouble::Redis)
    };
    ask(put_schema()).await?;
    let version = ask(cmd("GET").arg(SCHEMA_KEY).to_owned()).await?;
    let text = bytes(version).unwrap_or_default();
    match String::from_utf8_lossy(&text).parse() {
        Ok(SCHEMA) => Ok(()),
        Ok(found) => Err(Trouble::Schema(ConnectError::Schema { found, known: SCHEMA })),
        Err(_) => {
            let why = format!("{SCHEMA_KEY} is no number");
            Err(Trouble::Redis(Failure::Wrong(why)))
        }
    }
}

/// Loads the functions where they are not known: to load them again has the server forget what they have seen.
async fn teach(link: &Link, settings: &RedisSettings) -> Result<(), Failure> {
    let library = Library::operations();
    let known = link.ask_one(library.list(), SCHEMA_KEY, until(settings)).await?;
    if !matches!(known, Value::Array(known) if !known.is_empty()) {
        link.ask_one(library.load(), SCHEMA_KEY, until(settings)).await?;
    }
    Ok(())
}

fn trouble(place: &Place, failure: Failure) -> ConnectError {
    ConnectError::of(place, failure)
}

/// What a restart of Redis, or its loss, can lose.
async fn durability(link: &Link, settings: &RedisSettings) -> String {
    let get = async |name| match link.ask_one(config_get(name), "", until(settings)).await {
        Ok(Value::Array(mut pair)) if pair.len() == 2 => {
            let value = pair.pop().and_then(|value| bytes(value).ok())?;
            Some(String::from_utf8_lossy(&value).into_owned())
        }
        _ => None,
    };
    let kept = match (get("appendonly").await, get("appendfsync").await, get("save").await) {
        (Some(appendonly), Some(_), Some(save)) if appendonly != "yes" && save.is_empty() => {
            "nothing survives a restart of Redis (no appendonly, no save)".to_owned()
        }
        (Some(appendonly), Some(_), Some(save)) if appendonly != "yes" => {
            format!("a restart of Redis loses what came after its last snapshot (save {save})")
        }
        (Some(_), Some(fsync), _) => match fsync.as_str() {
            "always" => "nothing is lost when Redis restarts (appendfsync always)".to_owned(),
            "everysec" => "a crash of the machine of Redis loses up to 2 seconds (appendfsync everysec)".to_owned(),
            other => format!("a crash of the machine of Redis loses what it had not written yet (appendfsync {other})"),
        },
        _ => "Redis does not say what it keeps (CONFIG GET is not allowed)".to_owned(),
    };
    match settings.wait_for_replicas {
        0 => format!("{kept}; no Redis replica is waited for"),
        1 => format!("{kept}; what is accepted is on 1 Redis replica"),
        count => format!("{kept}; what is accepted is on {count} Redis replicas"),
    }
}

fn until(settings: &RedisSettings) -> Instant {
    Instant::now() + settings.deadline
}
