//! The storage that several replicas share: Redis or Valkey, single, with sentinels or as a cluster.
//!
//! Needs Redis 7.0 or Valkey (`FUNCTION`). What is done to a project is an [`Operation`](operation::Operation);
//! operations gather in the [`Pipeline`](pipeline::Pipeline) of the project and go to Redis as one call of a function
//! (`scripts/*.lua`), which carries them out in their order, as one transaction, and publishes what the other replicas
//! have to know. `keys.rs` lists all keys; `docs/redis.md` explains how a message is accepted, delivered, acknowledged
//! and released. Nothing here knows actors or connections of clients.

mod append;
mod breaker;
mod client;
mod connect;
mod connection;
mod core;
mod decode;
mod error;
mod events;
mod inspect;
mod keys;
mod library;
mod local_messages;
mod operation;
mod pipeline;
mod replicas;
mod reply;
mod schema;
mod segment;
mod send_result;
mod settings;
mod store;
mod system;
mod timeline;

use std::sync::Arc;

use actors::{
    bridge::Bridge,
    model::{AuditEntry, AuditQuery, ProjectId, ProjectRecord, ReplicaId},
    storage::{Op, ReplicaDirectory, ReplicatedStorage, Storage, StorageFigures, StorageHealth, Store, StoreEpoch},
};

pub use error::ConnectError;
use futures_util::{StreamExt, TryStreamExt, stream};
pub use inspect::{Persistence, ServerReport, VERSION_MIN, endpoint_text, inspect, tls_servers};
pub use settings::{REPLICA_TIMEOUT_HEARTBEATS, RedisSettings};

use self::{
    client::RedisClient, connect::Connected, core::RedisCore, pipeline::Pipeline, replicas::RedisReplicas,
    store::RedisStore, system::CONCURRENT_READS_MAX,
};
use crate::bridge::redis::{ConnectPubSub, RedisBridge};

/// The projects of one Redis, as this replica uses them.
pub struct RedisStorage {
    shared: Arc<RedisCore>,
    /// What a restart of Redis can lose, as `/health` shows it.
    durability: String,
    connect_pubsub: Arc<ConnectPubSub>,
}

impl RedisStorage {
    /// Connects, checks the version of the data, loads the functions, and starts the heartbeats of this replica.
    ///
    /// # Errors
    /// `Url` when the URL cannot be read; `Unreachable` when no server answers in time; `Refused` for a wrong user or
    /// password; `Schema` when another version of the broker wrote the data. The texts have one line and no password.
    pub async fn connect(settings: RedisSettings) -> Result<Self, ConnectError> {
        let Connected {
            shared,
            durability,
            connect_pubsub,
        } = connect::connect(settings).await?;
        Ok(Self {
            shared,
            durability,
            connect_pubsub,
        })
    }

    /// The id of this process among the replicas.
    pub fn replica(&self) -> ReplicaId {
        self.shared.client.replica
    }

    /// Releases what a replica that has ended leased for calls that it did not answer. A replica that finds another one
    /// silent does this by itself.
    ///
    /// # Errors
    /// `Unreachable` when Redis does not answer.
    pub fn release_leases_of(&self, replica: ReplicaId) -> Op<()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let client = Arc::clone(&shared.client);
            client
                .run_on_thread(async move { shared.release_leases_of(replica).await })
                .await
        })
    }
}

impl Storage for RedisStorage {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn durability(&self) -> String {
        self.durability.clone()
    }

    fn health(&self) -> StorageHealth {
        let (is_any_available, reasons) = self.shared.health();
        match reasons.into_iter().next() {
            Some(reason) if is_any_available => StorageHealth::Degraded(reason),
            Some(reason) => StorageHealth::Unavailable(reason),
            None => {
                let client = &self.shared.client;
                let problem = client.replication_error().or_else(|| client.losses.recent());
                problem.map_or(StorageHealth::Healthy, StorageHealth::Degraded)
            }
        }
    }

    fn figures(&self) -> StorageFigures {
        StorageFigures {
            server: Some(self.shared.figures()),
        }
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStorage> {
        Some(self)
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        Arc::new(RedisStore::new(self.shared.pipeline(project), None))
    }

    fn projects(&self) -> Op<Vec<Arc<ProjectRecord>>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let client = Arc::clone(&shared.client);
            let read = async move {
                let ids = system::project_ids(&shared.client).await?;
                let records = stream::iter(ids).map(|id| shared.project(&id));
                let records: Vec<_> = records.buffered(CONCURRENT_READS_MAX).try_collect().await?;
                Ok(records.into_iter().flatten().collect())
            };
            client.run_on_thread(read).await
        })
    }

    fn project(&self, project: ProjectId) -> Op<Option<Arc<ProjectRecord>>> {
        self.shared.project(&project)
    }

    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool> {
        self.put_project_at(record, self.epoch())
    }

    fn clear_project(&self, project: ProjectId) -> Op<()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            while shared.run(&project, keys::clear(), None).await?.int()? == 1 {}
            Ok(())
        })
    }

    fn append_audit(&self, entry: AuditEntry) -> Op<()> {
        let client = Arc::clone(&self.shared.client);
        Box::pin(async move {
            client
                .run_on_thread(system::append_audit(Arc::clone(&client), entry))
                .await
        })
    }

    fn audit(&self, query: AuditQuery) -> Op<Vec<Arc<AuditEntry>>> {
        let client = Arc::clone(&self.shared.client);
        Box::pin(async move { client.run_on_thread(system::audit(Arc::clone(&client), query)).await })
    }
}

impl ReplicatedStorage for RedisStorage {
    fn bridge(&self) -> Arc<dyn Bridge> {
        let RedisClient {
            replica,
            channel,
            deadline,
            ..
        } = &*self.shared.client;
        let bridge = RedisBridge::new(*replica, channel.clone(), *deadline, Arc::clone(&self.connect_pubsub));
        Arc::new(bridge)
    }

    fn replicas(&self) -> Arc<dyn ReplicaDirectory> {
        Arc::new(RedisReplicas(Arc::clone(&self.shared.client)))
    }

    fn flush_events(&self) -> Op<()> {
        let pipelines = self.shared.pipelines();
        Box::pin(async move {
            let written = pipelines.iter().map(Pipeline::flush_events);
            futures_util::future::join_all(written).await.into_iter().collect()
        })
    }

    fn open_at(&self, project: &ProjectId, epoch: StoreEpoch) -> Arc<dyn Store> {
        Arc::new(RedisStore::new(self.shared.pipeline(project), Some(epoch)))
    }

    fn epoch(&self) -> StoreEpoch {
        self.shared.client.losses.epoch()
    }

    fn has_rolled_back(&self, project: &ProjectId, at: StoreEpoch) -> bool {
        self.shared.has_rolled_back(project, at)
    }

    fn put_project_at(&self, record: Arc<ProjectRecord>, epoch: StoreEpoch) -> Op<bool> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            // The id first: an id without a record is ignored, and a record without an id would be lost.
            let client = &shared.client;
            client
                .run_on_thread(system::add_project_id(Arc::clone(client), record.id.clone()))
                .await?;
            let put = system::put_project(client.replica, &record);
            Ok(shared.run(&record.id, put, Some(epoch)).await?.int()? == 1)
        })
    }
}
