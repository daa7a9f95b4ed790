//! Which replicas are there: each says so, and what one that has fallen silent had leased is given to others.
//!
//! `{system}:replicas` is a sorted set of their ids by when they were heard last, in milliseconds of Redis' clock;
//! `{system}:replicas:addresses` a hash of where they serve HTTP.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use actors::{
    model::ReplicaId,
    storage::{Op, Replicas, StoreError},
};
use deadpool_redis::redis::{Value, cmd};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    Shared,
    client::Client,
    offices,
    operation::Operation,
    reply::{Reply, bytes, unreadable},
    settings::SILENT_BEATS,
};

const KEY: &str = "{system}:replicas";
const ADDRESSES: &str = "{system}:replicas:addresses";
/// Beats without a failure after which this replica trusts what it sees: while nobody reaches Redis, everybody is
/// silent.
const STEADY_BEATS: u32 = SILENT_BEATS + 1;

/// KEYS the replicas, their addresses; ARGV this replica, most silence in milliseconds, its address or nothing. Reply:
/// those who have been silent for longer.
const SCRIPT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
end
return redis.call('ZRANGE', KEYS[1], '-inf', string.format('(%.0f', now - ARGV[2]), 'BYSCORE')
";

/// Goes on for as long as there is a storage.
pub(super) async fn beat(shared: Weak<Shared>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut steady = 0;
    let mut last = Instant::now();
    loop {
        ticks.tick().await;
        if last.elapsed() >= every * SILENT_BEATS {
            // This one was away itself: the others may have been, too.
            steady = 0;
        }
        last = Instant::now();
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match say_so(&shared.client, every * SILENT_BEATS).await {
            Ok(silent) if steady >= STEADY_BEATS => shared.see_off(silent).await,
            Ok(_) => steady += 1,
            Err(_) => steady = 0,
        }
        shared.look_after_troubles().await;
    }
}

async fn say_so(client: &Client, silence: Duration) -> Result<Vec<ReplicaId>, StoreError> {
    let mut script = cmd("EVAL");
    script.arg(SCRIPT).arg(2).arg(KEY).arg(ADDRESSES);
    script.arg(client.replica.to_string()).arg(silence.as_millis() as u64);
    script.arg(client.address.map(|address| address.to_string()).unwrap_or_default());
    let mut silent = Reply::new(client.ask_one(script, KEY).await?)?;
    let mut replicas = Vec::new();
    while !silent.is_done() {
        let text = String::from_utf8(silent.bytes()?).ok();
        let replica = text.as_deref().and_then(ReplicaId::parse);
        replicas.push(replica.ok_or_else(|| unreadable("the id of a replica"))?);
    }
    Ok(replicas)
}

/// The replicas that use the same Redis.
pub(super) struct RedisReplicas(pub Arc<Client>);

impl Replicas for RedisReplicas {
    fn own(&self) -> ReplicaId {
        self.0.replica
    }

    fn address_of(&self, replica: ReplicaId) -> Op<Option<SocketAddr>> {
        let client = Arc::clone(&self.0);
        Box::pin(async move { client.here(address_of(Arc::clone(&client), replica)).await })
    }
}

async fn address_of(client: Arc<Client>, replica: ReplicaId) -> Result<Option<SocketAddr>, StoreError> {
    let get = cmd("HGET").arg(ADDRESSES).arg(replica.to_string()).to_owned();
    let text = match client.ask_one(get, ADDRESSES).await? {
        Value::Nil => return Ok(None),
        value => String::from_utf8(bytes(value)?).ok(),
    };
    let address = text.and_then(|text| text.parse().ok());
    address.map(Some).ok_or_else(|| unreadable("the address of a replica"))
}

impl Shared {
    /// Nodes of a cluster that were away may be back, and nobody may ask them for a while.
    async fn look_after_troubles(&self) {
        if self.client.link.is_cluster() {
            let troubled = self.troubled_projects();
            let looks = troubled
                .iter()
                .map(|project| self.run(project, Operation::new("serial"), None));
            futures_util::future::join_all(looks).await;
        }
    }

    async fn see_off(self: &Arc<Self>, silent: Vec<ReplicaId>) {
        for replica in silent {
            tracing::warn!(%replica, "a replica is silent: what it had in hand is given to others");
            let released = async {
                self.release_leases_of(replica).await?;
                let forget = cmd("HDEL").arg(ADDRESSES).arg(replica.to_string()).to_owned();
                self.client.ask_one(forget, ADDRESSES).await?;
                let remove = cmd("ZREM").arg(KEY).arg(replica.to_string()).to_owned();
                self.client.ask_one(remove, KEY).await
            };
            if let Err(error) = released.await {
                tracing::warn!(%replica, %error, "what a silent replica had in hand is still not given to others");
            }
        }
    }

    pub(super) async fn release_leases_of(&self, replica: ReplicaId) -> Result<(), StoreError> {
        let mut projects: HashSet<_> = self.open_projects().into_iter().collect();
        projects.extend(offices::project_ids(&self.client).await?);
        for project in projects {
            let operation = Operation::new("release_of").time(actors::clock::now()).replica(replica);
            self.run(&project, operation, None).await?;
        }
        Ok(())
    }
}
