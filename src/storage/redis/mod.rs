//! Projects in Redis: what several replicas of the broker share, and what outlives all of them.
//!
//! All keys of a project begin with `{project}:`, so that they are in one slot and a script reaches all of them; what
//! belongs to no project begins with `{system}:` (`offices`, `replicas`). What is done to a project is done by one
//! script (`script`), which takes many operations at a time (`lane`) and publishes what the other replicas have to
//! know. It needs Redis 6.2 or Valkey.
//!
//! | key | holds |
//! |---|---|
//! | `project:record` | hash of `record` (JSON) and `revision` |
//! | `sessions`, `names`, `named` | hashes: session to record, name to session, session to name |
//! | `inboxes` | hash: session to how many wait and are leased, their bytes, next place and lease, epoch and claim; `totals`: the bytes that the project keeps |
//! | `inbox:SESSION` | sorted set of what waits: id, flags and length by priority and place |
//! | `leased:SESSION` | hash of what was delivered and is not acknowledged: id to lease |
//! | `messages`, `copies` | hashes: id to stored message, id to copies of a broadcast |
//! | `expiries` | sorted set: session and message by deadline |
//! | `receipts`, `receipts:BUCKET` | hashes: how many in each bucket of 16 seconds; where messages stand |
//! | `dead`, `dead:age`, `dead:letters` | dead letters by message, by age, and what is known of them |
//! | `idempotency`, `idempotency:until` | by what idempotency keys are taken (a first result or a reservation), and until when |
//! | `seen`, `left`, `signs`, `thinned` | sorted sets: last signs of life, goodbyes; what is news, by `serial` |
//! | `protocols`, `crossings*` | records; which messages went to which project |
//! | `frames`, `roster`, `epochs`, `serial`, `changes` | what counts on for as long as there is the project |
//! | `epoch`, `forks` | which data set this is, and the last ends of its timelines (`scripts/timeline.lua`) |
//! | `given_up` | hash: replica to the last batch whose leases it gave up |

mod append;
mod auto_ack;
mod breaker;
mod client;
mod connect;
mod connection;
mod decode;
mod error;
mod group_lease;
mod incomplete_reply;
mod keys;
mod library;
mod local_messages;
mod operation;
mod pipeline;
mod replicas;
mod reply;
mod segment;
mod send_result;
mod settings;
mod store;
mod system;
mod thread;
mod timeline;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use actors::{
    bridge::Bridge,
    model::{AuditEntry, AuditQuery, ProjectId, ProjectRecord, ReplicaId},
    storage::{Op, ReplicaDirectory, Storage, StorageHealth, Store, StoreEpoch},
};

pub use error::ConnectError;
use futures_util::{StreamExt, TryStreamExt, stream};
pub use settings::{REPLICA_TIMEOUT_HEARTBEATS, RedisSettings};

use self::{
    client::RedisClient, operation::Operation, pipeline::Pipeline, replicas::RedisReplicas, reply::Reply,
    store::RedisStore, system::CONCURRENT_READS_MAX,
};
use crate::bridge::redis::{ConnectPubSub, RedisBridge};

/// The version of the layout of keys that this build writes and reads.
const SCHEMA: i64 = 4;

pub struct RedisStorage {
    shared: Arc<RedisCore>,
    durability: String,
    connect_pubsub: Arc<ConnectPubSub>,
}

/// What goes on in the background as well.
struct RedisCore {
    client: Arc<RedisClient>,
    pipelines: Mutex<HashMap<ProjectId, Arc<Pipeline>>>,
}

impl RedisStorage {
    /// Connects, and looks whether what is there can be used.
    ///
    /// # Errors
    /// In one line, without passwords: where Redis cannot be reached or refuses the password, and when the data is of a
    /// later version than this build knows.
    pub async fn connect(settings: RedisSettings) -> Result<Self, ConnectError> {
        connect::connect(settings).await
    }

    /// This process, as the others hear of it.
    pub fn replica(&self) -> ReplicaId {
        self.shared.client.replica
    }

    /// Has wait again what a replica that is no more leased for calls that it did not answer. Whoever notices that a
    /// replica has been silent does this by itself.
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

impl RedisCore {
    fn pipeline(&self, project: &ProjectId) -> Arc<Pipeline> {
        let mut lanes = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes
            .entry(project.clone())
            .or_insert_with(|| Arc::new(Pipeline::new(Arc::clone(&self.client), project.clone())));
        Arc::clone(lane)
    }

    fn open_projects(&self) -> Vec<ProjectId> {
        let lanes = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.keys().cloned().collect()
    }

    fn unavailable_projects(&self) -> Vec<ProjectId> {
        let lanes = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        let troubled = lanes.values().filter(|lane| lane.breaker.open_reason().is_some());
        troubled.map(|lane| lane.project.clone()).collect()
    }

    /// Whether something goes, and why the rest does not.
    fn health(&self) -> (bool, Vec<String>) {
        let own = self.client.breaker.open_reason();
        if !self.client.connection.is_cluster() {
            return (own.is_none(), own.into_iter().collect());
        }
        let lanes = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        let all = lanes.values().map(|lane| lane.breaker.open_reason()).chain([own]);
        let (troubled, well): (Vec<_>, Vec<_>) = all.partition(Option::is_some);
        (!well.is_empty(), troubled.into_iter().flatten().collect())
    }

    fn run(&self, project: &ProjectId, operation: Operation, at: Option<StoreEpoch>) -> Op<Reply> {
        Box::pin(self.pipeline(project).submit(operation, at))
    }

    /// As an operation on the project, so that the data set that it is read from is known.
    fn project(&self, project: &ProjectId) -> Op<Option<Arc<ProjectRecord>>> {
        let reply = self.run(project, Operation::new("project"), None);
        Box::pin(async move { reply.await?.record() })
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
        let (healthy, troubles) = self.shared.health();
        match troubles.into_iter().next() {
            Some(reason) if healthy => StorageHealth::Degraded(reason),
            Some(reason) => StorageHealth::Unavailable(reason),
            None => {
                let client = &self.shared.client;
                let problem = client.replication_error().or_else(|| client.losses.recent());
                problem.map_or(StorageHealth::Healthy, StorageHealth::Degraded)
            }
        }
    }

    fn bridge(&self) -> Option<Arc<dyn Bridge>> {
        let RedisClient {
            replica,
            channel,
            deadline,
            ..
        } = &*self.shared.client;
        let bridge = RedisBridge::new(*replica, channel.clone(), *deadline, Arc::clone(&self.connect_pubsub));
        Some(Arc::new(bridge))
    }

    fn replicas(&self) -> Option<Arc<dyn ReplicaDirectory>> {
        Some(Arc::new(RedisReplicas(Arc::clone(&self.shared.client))))
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        Arc::new(RedisStore::new(self.shared.pipeline(project), None))
    }

    fn open_at(&self, project: &ProjectId, epoch: StoreEpoch) -> Arc<dyn Store> {
        Arc::new(RedisStore::new(self.shared.pipeline(project), Some(epoch)))
    }

    fn epoch(&self) -> StoreEpoch {
        self.shared.client.losses.epoch()
    }

    fn has_rolled_back(&self, project: &ProjectId, at: StoreEpoch) -> bool {
        let lanes = self.shared.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.get(project).is_some_and(|lane| at < lane.epoch())
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

    fn put_project_at(&self, record: Arc<ProjectRecord>, epoch: StoreEpoch) -> Op<bool> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            // An id that is listed and has no record is left out: the other way round it would be lost.
            let client = &shared.client;
            client
                .run_on_thread(system::add_project_id(Arc::clone(client), record.id.clone()))
                .await?;
            let put = system::put_project(client.replica, &record);
            Ok(shared.run(&record.id, put, Some(epoch)).await?.int()? == 1)
        })
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
