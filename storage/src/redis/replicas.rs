//! The replicas of the broker: each sends heartbeats to Redis, and releases what a silent one had leased.
//!
//! | key | holds |
//! |---|---|
//! | `{system}:replicas` | sorted set: replica by its last heartbeat, in milliseconds of the clock of Redis |
//! | `{system}:replicas:addresses` | hash: replica -> address at which it serves HTTP |
//! | `{system}:replicas:features` | hash: replica -> what it knows that earlier builds do not: `lenses` |

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use actors::{
    model::ReplicaId,
    storage::{Op, ReplicaDirectory, StoreError},
};
use deadpool_redis::redis::{Value, cmd};
use tokio::time::{Instant, MissedTickBehavior, interval};
use uuid::Uuid;

use super::{
    client::RedisClient,
    core::RedisCore,
    operation::Operation,
    reply::{Reply, into_bytes, unreadable},
    schema::{SCHEMA_KEY, SCHEMA_WITH_LENSES},
    settings::REPLICA_TIMEOUT_HEARTBEATS,
    system,
};

const REPLICAS_KEY: &str = "{system}:replicas";
const ADDRESSES_KEY: &str = "{system}:replicas:addresses";
const FEATURES_KEY: &str = "{system}:replicas:features";
/// Consecutive heartbeats after which this replica trusts what it sees: after Redis was unreachable, all replicas seem
/// silent.
const STEADY_HEARTBEATS: u32 = REPLICA_TIMEOUT_HEARTBEATS + 1;

/// A heartbeat. KEYS: the replicas, their addresses, their features. ARGV: this replica, the longest silence in milliseconds, its
/// address or ''. Reply: the replicas that have been silent for longer.
const HEARTBEAT_SCRIPT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], 'lenses')
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
end
return redis.call('ZRANGE', KEYS[1], '-inf', string.format('(%.0f', now - ARGV[2]), 'BYSCORE')
";

/// Writes the schema version of data with lenses, if no replica lives that does not know lenses. KEYS: the replicas, their
/// features, the schema version. ARGV: the longest silence in milliseconds, the schema version. Reply: 1 if it is written.
const ADMIT_LENSES_SCRIPT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local live = redis.call('ZRANGE', KEYS[1], string.format('%.0f', now - ARGV[1]), '+inf', 'BYSCORE')
for at = 1, #live do
  if redis.call('HEXISTS', KEYS[2], live[at]) == 0 then
    return 0
  end
end
redis.call('SET', KEYS[3], ARGV[2])
return 1
";

/// Sends heartbeats, until the storage is dropped.
pub(super) async fn send_heartbeats(shared: Weak<RedisCore>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut steady = 0;
    let mut last = Instant::now();
    loop {
        ticks.tick().await;
        if last.elapsed() >= every * REPLICA_TIMEOUT_HEARTBEATS {
            // This process did not run for a while. Others may not have run, either.
            steady = 0;
        }
        last = Instant::now();
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match send_heartbeat(&shared.client, every * REPLICA_TIMEOUT_HEARTBEATS).await {
            Ok(silent) if steady >= STEADY_HEARTBEATS => shared.remove_silent_replicas(silent).await,
            Ok(_) => steady += 1,
            Err(_) => steady = 0,
        }
        shared.probe_unavailable_projects().await;
    }
}

/// Returns the replicas that are silent.
async fn send_heartbeat(client: &RedisClient, silence: Duration) -> Result<Vec<ReplicaId>, StoreError> {
    let mut script = cmd("EVAL");
    let keys = [REPLICAS_KEY, ADDRESSES_KEY, FEATURES_KEY];
    script.arg(HEARTBEAT_SCRIPT).arg(keys.len()).arg(&keys);
    script.arg(client.replica.to_string()).arg(silence.as_millis() as u64);
    script.arg(client.address.map(|address| address.to_string()).unwrap_or_default());
    let mut silent = Reply::new(client.send_one(script, REPLICAS_KEY).await?)?;
    let mut replicas = Vec::new();
    while !silent.is_empty() {
        let text = String::from_utf8(silent.bytes()?).ok();
        let replica = text.as_deref().and_then(ReplicaId::parse);
        replicas.push(replica.ok_or_else(|| unreadable("the id of a replica"))?);
    }
    Ok(replicas)
}

/// Lets lenses be stored: earlier builds do not start from then on.
///
/// # Errors
/// A replica of an earlier build lives, or Redis does not answer.
pub(super) async fn admit_lenses(client: Arc<RedisClient>) -> Result<(), StoreError> {
    let mut script = cmd("EVAL");
    let keys = [REPLICAS_KEY, FEATURES_KEY, SCHEMA_KEY];
    script.arg(ADMIT_LENSES_SCRIPT).arg(keys.len()).arg(&keys);
    script.arg(client.silence.as_millis() as u64).arg(SCHEMA_WITH_LENSES);
    let mut admitted = Reply::new(Value::Array(vec![client.send_one(script, SCHEMA_KEY).await?]))?;
    if admitted.int()? == 1 {
        return Ok(());
    }
    Err(StoreError::EarlierReplica)
}

/// The replicas that share the Redis.
pub(super) struct RedisReplicas(pub Arc<RedisClient>);

impl ReplicaDirectory for RedisReplicas {
    fn own_id(&self) -> ReplicaId {
        self.0.replica
    }

    fn broker_id(&self) -> Uuid {
        self.0.broker_id
    }

    fn address_of(&self, replica: ReplicaId) -> Op<Option<SocketAddr>> {
        let client = Arc::clone(&self.0);
        Box::pin(async move { client.run_on_thread(address_of(Arc::clone(&client), replica)).await })
    }

    fn addresses(&self) -> Op<Vec<(ReplicaId, SocketAddr)>> {
        let client = Arc::clone(&self.0);
        Box::pin(async move { client.run_on_thread(addresses(Arc::clone(&client))).await })
    }
}

async fn address_of(client: Arc<RedisClient>, replica: ReplicaId) -> Result<Option<SocketAddr>, StoreError> {
    let get = cmd("HGET").arg(ADDRESSES_KEY).arg(replica.to_string()).to_owned();
    let text = match client.send_one(get, ADDRESSES_KEY).await? {
        Value::Nil => return Ok(None),
        value => String::from_utf8(into_bytes(value)?).ok(),
    };
    let address = text.and_then(|text| text.parse().ok());
    address.map(Some).ok_or_else(|| unreadable("the address of a replica"))
}

async fn addresses(client: Arc<RedisClient>) -> Result<Vec<(ReplicaId, SocketAddr)>, StoreError> {
    let get = cmd("HGETALL").arg(ADDRESSES_KEY).to_owned();
    let mut entries = Reply::new(client.send_one(get, ADDRESSES_KEY).await?)?;
    let mut found = Vec::new();
    while !entries.is_empty() {
        let [replica, address] = [entries.bytes()?, entries.bytes()?].map(|text| String::from_utf8(text).ok());
        let replica = replica.as_deref().and_then(ReplicaId::parse);
        let address = address.and_then(|text| text.parse().ok());
        let entry = replica.zip(address);
        found.push(entry.ok_or_else(|| unreadable("the address of a replica"))?);
    }
    Ok(found)
}

impl RedisCore {
    /// Asks the nodes of a cluster that failed, so that the breakers of their projects close without other operations.
    async fn probe_unavailable_projects(&self) {
        if self.client.connection.is_cluster() {
            let unavailable = self.unavailable_projects();
            let probes = unavailable
                .iter()
                .map(|project| self.run(project, Operation::new("last_frame_seq"), None));
            futures_util::future::join_all(probes).await;
        }
    }

    async fn remove_silent_replicas(self: &Arc<Self>, silent: Vec<ReplicaId>) {
        for replica in silent {
            tracing::warn!(%replica, "a replica is silent: its leases for calls are released");
            let released = async {
                self.release_leases_of(replica).await?;
                for key in [ADDRESSES_KEY, FEATURES_KEY] {
                    let forget = cmd("HDEL").arg(key).arg(replica.to_string()).to_owned();
                    self.client.send_one(forget, key).await?;
                }
                let remove = cmd("ZREM").arg(REPLICAS_KEY).arg(replica.to_string()).to_owned();
                self.client.send_one(remove, REPLICAS_KEY).await
            };
            if let Err(error) = released.await {
                tracing::warn!(%replica, %error, "the leases of a silent replica are not released yet");
            }
        }
    }

    /// See [`RedisStorage::release_leases_of`](super::RedisStorage::release_leases_of).
    pub(super) async fn release_leases_of(&self, replica: ReplicaId) -> Result<(), StoreError> {
        let mut projects: HashSet<_> = self.open_projects().into_iter().collect();
        projects.extend(system::project_ids(&self.client).await?);
        for project in projects {
            let operation = Operation::new("release_replica")
                .time(actors::clock::now())
                .replica(replica);
            self.run(&project, operation, None).await?;
        }
        Ok(())
    }
}
