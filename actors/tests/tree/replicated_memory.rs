//! Replicas in one process that share a store: one memory storage, and the frames of each replica published to all.
//! Beyond the hooks this simulates what a shared store adds to memory: frames with numbers, heartbeats, a roster version,
//! messages of calls that were not answered, and the connection of each replica, which can be cut.

mod store;

use std::{
    collections::HashMap,
    future::ready,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use actors::{
    bridge::{Bridge, BridgeEvent, BridgeStream, Frame, StoreEvent},
    model::{MessageId, ProjectId, ProjectRecord, ReplicaId, SessionId},
    storage::{Op, ReplicaDirectory, ReplicatedStorage, Storage, Store, StoreEpoch, StoreError, memory::MemoryStorage},
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::intercept::{Hooks, Intercept, InterceptStore, StorageHooks};
use store::ReplicaStore;

/// The store and the frames that the replicas share.
#[derive(Default)]
pub struct ReplicatedMemory {
    memory: Arc<MemoryStorage>,
    hub: Mutex<SharedState>,
}

#[derive(Default)]
struct SharedState {
    frame_sequences: HashMap<ProjectId, u64>,
    /// Per session: the time of its last heartbeat in ms on the common clock, whether it has left, and the value of
    /// `heartbeat_count` then.
    heartbeats: HashMap<(ProjectId, SessionId), (u64, bool, u64)>,
    heartbeat_count: u64,
    returned: HashMap<SessionId, Vec<MessageId>>,
    listeners: Vec<(Arc<FrameFilter>, mpsc::UnboundedSender<BridgeEvent>)>,
}

/// Decides which frames reach one replica.
#[derive(Default)]
pub struct FrameFilter {
    blocked: AtomicBool,
    /// One of this many frames is lost; 0: none.
    loses_one_in: AtomicUsize,
    count: AtomicUsize,
}

/// The connection of one replica to the shared store. Also its bridge.
pub struct ReplicaConnection {
    cluster: Arc<ReplicatedMemory>,
    replica: ReplicaId,
    pub frame_filter: Arc<FrameFilter>,
    down: AtomicBool,
    /// True while incoming frames wait.
    pub frames_held: watch::Sender<bool>,
    /// True while reads of the roster wait for their answer.
    pub rosters_held: watch::Sender<bool>,
    pub roster_reads: watch::Sender<usize>,
    /// The question that the reachable store does not answer.
    unanswered: Mutex<Option<Unanswered>>,
    /// How many questions were not answered.
    pub refusals: watch::Sender<usize>,
}

/// A question that the store can refuse to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    Sessions,
    Protocols,
    Claims,
}

impl ReplicatedMemory {
    pub fn connect_replica(self: &Arc<Self>) -> Arc<ReplicaConnection> {
        Arc::new(ReplicaConnection {
            cluster: Arc::clone(self),
            replica: ReplicaId::generate(),
            frame_filter: Arc::default(),
            down: AtomicBool::new(false),
            frames_held: watch::Sender::new(false),
            rosters_held: watch::Sender::new(false),
            roster_reads: watch::Sender::new(0),
            unanswered: Mutex::default(),
            refusals: watch::Sender::new(0),
        })
    }

    fn hub(&self) -> MutexGuard<'_, SharedState> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrameFilter {
    pub fn lose_one_in(&self, count: usize) {
        self.loses_one_in.store(count, Ordering::SeqCst);
    }

    fn lets_through(&self) -> bool {
        let one_in = self.loses_one_in.load(Ordering::SeqCst);
        let count = self.count.fetch_add(1, Ordering::SeqCst);
        !self.blocked.load(Ordering::SeqCst) && (one_in == 0 || !count.is_multiple_of(one_in))
    }
}

impl SharedState {
    fn record_heartbeat(&mut self, project: &ProjectId, session: SessionId, seen_ms: u64, goodbye: bool) {
        self.heartbeat_count += 1;
        let told = (seen_ms, goodbye, self.heartbeat_count);
        let known = self.heartbeats.entry((project.clone(), session)).or_insert(told);
        if known.0 <= seen_ms {
            *known = told;
        }
    }

    /// The sequence number of the last frame of a project.
    fn frame_sequence(&self, project: &ProjectId) -> u64 {
        self.frame_sequences.get(project).copied().unwrap_or(0)
    }

    fn publish(&mut self, from: ReplicaId, project: &ProjectId, news: &StoreEvent, number: u64) {
        let serial = self.frame_sequences.entry(project.clone()).or_default();
        *serial += 1;
        let text = format!("{}{number},\"n\":{serial}}}", Frame::head(from, project, news));
        for (ears, listener) in &self.listeners {
            if ears.lets_through() {
                let _ = listener.send(BridgeEvent::Frame(Bytes::from(text.clone())));
            }
        }
    }
}

impl ReplicaConnection {
    /// Makes the store unreachable from this replica and loses its frames.
    pub fn cut(&self) {
        self.down.store(true, Ordering::SeqCst);
        self.frame_filter.blocked.store(true, Ordering::SeqCst);
        self.notify_own_listener(&BridgeEvent::Disconnected);
    }

    pub fn heal(&self) {
        self.down.store(false, Ordering::SeqCst);
        self.frame_filter.blocked.store(false, Ordering::SeqCst);
        self.notify_own_listener(&BridgeEvent::Connected);
    }

    /// Makes reads of this kind fail; `None`: all reads succeed.
    pub fn set_unanswered(&self, what: Option<Unanswered>) {
        *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    fn check_answered(&self, what: Unanswered) -> Result<(), StoreError> {
        let unanswered = *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        if unanswered == Some(what) {
            self.refusals.send_modify(|count| *count += 1);
            return Err(StoreError::Unreachable(format!("no answer: {what:?}")));
        }
        Ok(())
    }

    fn notify_own_listener(&self, incoming: &BridgeEvent) {
        for (ears, listener) in &self.cluster.hub().listeners {
            if Arc::ptr_eq(ears, &self.frame_filter) {
                let _ = listener.send(incoming.clone());
            }
        }
    }

    /// The storage that uses this connection.
    pub fn storage(self: &Arc<Self>) -> Arc<ReplicaStorage> {
        Arc::new(Intercept(ReplicaHooks(Arc::clone(self))))
    }

    /// Runs an operation while no other replica runs one.
    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&mut SharedState) -> Result<T, StoreError>) -> Op<T> {
        if self.down.load(Ordering::SeqCst) {
            return Box::pin(async {
                tokio::task::yield_now().await;
                Err(StoreError::Unreachable("it is cut off".to_owned()))
            });
        }
        let result = operation(&mut self.cluster.hub());
        // The answer of a server arrives after the frames that it published.
        Box::pin(async move {
            tokio::task::yield_now().await;
            result
        })
    }
}

fn at_once<T>(op: Op<T>) -> Result<T, StoreError> {
    op.now_or_never().expect("memory answers at once")
}

impl ReplicaDirectory for ReplicaConnection {
    fn own_id(&self) -> ReplicaId {
        self.replica
    }

    fn broker_id(&self) -> Uuid {
        Uuid::nil()
    }

    fn address_of(&self, _: ReplicaId) -> Op<Option<SocketAddr>> {
        Box::pin(ready(Ok(None)))
    }

    fn addresses(&self) -> Op<Vec<(ReplicaId, SocketAddr)>> {
        Box::pin(ready(Ok(Vec::new())))
    }
}

impl Bridge for ReplicaConnection {
    fn replica(&self) -> ReplicaId {
        self.replica
    }

    fn listen(&self) -> BridgeStream {
        let (listener, heard) = mpsc::unbounded_channel();
        let _ = listener.send(BridgeEvent::Connected);
        self.cluster
            .hub()
            .listeners
            .push((Arc::clone(&self.frame_filter), listener));
        let frames = (heard, self.frames_held.subscribe());
        let next = async |(mut heard, mut held): (mpsc::UnboundedReceiver<_>, watch::Receiver<bool>)| {
            let incoming = heard.recv().await?;
            let _ = held.wait_for(|held| !held).await;
            Some((incoming, (heard, held)))
        };
        futures_util::stream::unfold(frames, next).boxed()
    }
}

/// The storage of one replica.
pub type ReplicaStorage = Intercept<ReplicaHooks>;

pub struct ReplicaHooks(Arc<ReplicaConnection>);

impl Hooks for ReplicaHooks {
    type Inner = MemoryStorage;

    fn inner(&self) -> &Arc<MemoryStorage> {
        &self.0.cluster.memory
    }

    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&MemoryStorage) -> Op<T> + Send + 'static) -> Op<T> {
        self.0.run(|_| at_once(operation(self.inner())))
    }
}

impl StorageHooks for ReplicaHooks {
    const NAME: &'static str = "replicated";

    fn replicated(&self) -> Option<&dyn ReplicatedStorage> {
        Some(self)
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        Arc::new(InterceptStore(ReplicaStore {
            connection: Arc::clone(&self.0),
            project: project.clone(),
            inner: self.inner().open(project),
            heartbeats_read: Mutex::new(0),
        }))
    }

    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool> {
        self.0.run(|hub| {
            let put = at_once(self.inner().put_project(Arc::clone(&record)))?;
            if put {
                hub.publish(self.0.replica, &record.id, &StoreEvent::Project(record.revision), 0);
            }
            Ok(put)
        })
    }
}

impl ReplicatedStorage for ReplicaHooks {
    fn bridge(&self) -> Arc<dyn Bridge> {
        Arc::clone(&self.0) as _
    }

    fn replicas(&self) -> Arc<dyn ReplicaDirectory> {
        Arc::clone(&self.0) as _
    }

    fn flush_events(&self) -> Op<()> {
        Box::pin(ready(Ok(())))
    }

    fn epoch(&self) -> StoreEpoch {
        StoreEpoch::default()
    }

    fn has_rolled_back(&self, _: &ProjectId, _: StoreEpoch) -> bool {
        false
    }

    fn open_at(&self, project: &ProjectId, _: StoreEpoch) -> Arc<dyn Store> {
        self.open(project)
    }

    fn put_project_at(&self, record: Arc<ProjectRecord>, _: StoreEpoch) -> Op<bool> {
        self.put_project(record)
    }
}
