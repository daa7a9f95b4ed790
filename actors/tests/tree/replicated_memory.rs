//! Replicas in one process that share a store: one memory storage, and the frames of each replica published to all.

use std::{
    collections::HashMap,
    future::ready,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use actors::{
    bridge::{Bridge, BridgeEvent, BridgeStream, Frame, StoreEvent},
    clock::{Now, now},
    model::{
        AuditEntry, AuditQuery, CallReceipt, DeadLetterReason, MessageId, ProjectId, ProjectRecord, ProtocolName,
        ProtocolRecord, RecipientStatus, ReplicaId, SessionId, SessionRecord,
    },
    storage::{
        Acknowledge, Acknowledged, Append, Appended, Claim, Claimed, DeadLetterPage, DeadLetterQuery, DeadLetterStore,
        Depth, Heartbeat, HeartbeatExchange, InboxStore, Inserted, KeyReservation, Lease, Op, ProtocolStore, PushStore,
        PutOutcome, PutSession, Redriven, Release, Released, ReplicaDirectory, ReplicatedStorage, ReplicatedStore,
        Roster, SendResult, SessionKey, SessionStore, Storage, StorageHealth, Store, StoreEpoch, StoreError,
        TrackingStore, Usage, memory::MemoryStorage,
    },
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};

/// The store and the frames that the replicas share.
#[derive(Default)]
pub struct ReplicatedMemory {
    memory: MemoryStorage,
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
}

/// A question that the store can refuse to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    Sessions,
    Protocols,
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

    fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&ReplicatedMemory, &mut SharedState) -> Result<T, StoreError>,
    ) -> Op<T> {
        if self.down.load(Ordering::SeqCst) {
            return Box::pin(async {
                tokio::task::yield_now().await;
                Err(StoreError::Unreachable("it is cut off".to_owned()))
            });
        }
        let result = operation(&self.cluster, &mut self.cluster.hub());
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

    fn address_of(&self, _: ReplicaId) -> Op<Option<SocketAddr>> {
        Box::pin(ready(Ok(None)))
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
pub struct ReplicaStorage(pub Arc<ReplicaConnection>);

impl Storage for ReplicaStorage {
    fn name(&self) -> &'static str {
        "twin"
    }

    fn durability(&self) -> String {
        self.0.cluster.memory.durability()
    }

    fn health(&self) -> StorageHealth {
        StorageHealth::Healthy
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStorage> {
        Some(self)
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        Arc::new(ReplicaStore {
            connection: Arc::clone(&self.0),
            project: project.clone(),
            inner: self.0.cluster.memory.open(project),
            heartbeats_read: Mutex::new(0),
        })
    }

    fn projects(&self) -> Op<Vec<Arc<ProjectRecord>>> {
        self.0.run(|cluster, _| at_once(cluster.memory.projects()))
    }

    fn project(&self, project: ProjectId) -> Op<Option<Arc<ProjectRecord>>> {
        self.0.run(|cluster, _| at_once(cluster.memory.project(project)))
    }

    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool> {
        let replica = self.0.replica;
        self.0.run(move |cluster, hub| {
            let put = at_once(cluster.memory.put_project(Arc::clone(&record)))?;
            if put {
                hub.publish(replica, &record.id, &StoreEvent::Project(record.revision), 0);
            }
            Ok(put)
        })
    }

    fn clear_project(&self, project: ProjectId) -> Op<()> {
        self.0.run(|cluster, _| at_once(cluster.memory.clear_project(project)))
    }

    fn append_audit(&self, entry: AuditEntry) -> Op<()> {
        self.0.run(|cluster, _| at_once(cluster.memory.append_audit(entry)))
    }

    fn audit(&self, query: AuditQuery) -> Op<Vec<Arc<AuditEntry>>> {
        self.0.run(|cluster, _| at_once(cluster.memory.audit(query)))
    }
}

impl ReplicatedStorage for ReplicaStorage {
    fn bridge(&self) -> Arc<dyn Bridge> {
        Arc::clone(&self.0) as _
    }

    fn replicas(&self) -> Arc<dyn ReplicaDirectory> {
        Arc::clone(&self.0) as _
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

struct ReplicaStore {
    connection: Arc<ReplicaConnection>,
    project: ProjectId,
    inner: Arc<dyn Store>,
    /// The `heartbeat_count` up to which this replica has read.
    heartbeats_read: Mutex<u64>,
}

impl ReplicaStore {
    /// Runs an operation and publishes the events of its result.
    fn run_and_publish<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&dyn Store) -> Op<T>,
        news: impl FnOnce(&T) -> Vec<(StoreEvent, u64)>,
    ) -> Op<T> {
        self.connection.run(|_, hub| {
            let done = at_once(operation(&*self.inner))?;
            for (news, number) in news(&done) {
                hub.publish(self.connection.replica, &self.project, &news, number);
            }
            Ok(done)
        })
    }

    fn roster_version(&self) -> u64 {
        at_once(self.inner.sessions()).map_or(0, |roster| roster.version)
    }

    fn waiting_event(session: SessionId, released: &Released) -> Option<(StoreEvent, u64)> {
        (released.returned > 0).then(|| (StoreEvent::Waiting(vec![session]), 0))
    }

    /// The time since the last heartbeat of a session at any replica.
    fn silence(&self, hub: &SharedState, session: SessionId) -> Option<Duration> {
        let (seen_ms, ..) = hub.heartbeats.get(&(self.project.clone(), session))?;
        Some(now().since(*seen_ms))
    }
}

/// Implements operations that publish no frame.
macro_rules! quiet {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> Op<$answer> {
            self.run_and_publish(move |store| store.$name($($argument),*), |_| Vec::new())
        }
    )*};
}

impl Store for ReplicaStore {
    fn is_synchronous(&self) -> bool {
        false
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStore> {
        Some(self)
    }

    fn push(&self) -> Option<&dyn PushStore> {
        None
    }

    quiet! {
        fn usage() -> Usage;
    }
}

impl SessionStore for ReplicaStore {
    fn put_session(&self, record: SessionRecord, seat: PutSession) -> Op<PutOutcome> {
        self.connection.run(|_, hub| {
            let seated = at_once(self.inner.put_session(record.clone(), seat))?;
            if seated == PutOutcome::Stored {
                hub.record_heartbeat(&self.project, record.id, now().mono_ms, false);
                let news = StoreEvent::Session(Box::new(record));
                hub.publish(self.connection.replica, &self.project, &news, self.roster_version());
            }
            Ok(seated)
        })
    }

    fn remove_session(
        &self,
        session: SessionId,
        reason: DeadLetterReason,
        silent_for: Option<Duration>,
        now: Now,
    ) -> Op<Option<usize>> {
        self.connection.run(|_, hub| {
            let silence = self.silence(hub, session);
            if silent_for
                .zip(silence)
                .is_some_and(|(wanted, silence)| silence < wanted)
            {
                return Ok(None);
            }
            let known = at_once(self.inner.find_session(SessionKey::Id(session)))?.is_some();
            let removed = at_once(self.inner.remove_session(session, reason, None, now))?;
            if known {
                let news = StoreEvent::SessionRemoved(session);
                hub.publish(self.connection.replica, &self.project, &news, self.roster_version());
            }
            Ok(removed)
        })
    }

    fn claim(&self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Op<Claimed> {
        self.run_and_publish(
            move |store| store.claim(session, claim, delivery_limit, now),
            |claimed| {
                let news = (StoreEvent::Claimed(session), claimed.epoch);
                [news]
                    .into_iter()
                    .chain(Self::waiting_event(session, &claimed.released))
                    .collect()
            },
        )
    }

    fn sessions(&self) -> Op<Roster> {
        let roster = self.connection.run(|_, _| {
            self.connection.check_answered(Unanswered::Sessions)?;
            at_once(self.inner.sessions())
        });
        let mut held = self.connection.rosters_held.subscribe();
        self.connection.roster_reads.send_modify(|asked| *asked += 1);
        Box::pin(async move {
            // The roster of this moment, returned later.
            let roster = roster.await?;
            let _ = held.wait_for(|held| !held).await;
            Ok(roster)
        })
    }

    quiet! {
        fn find_session(wanted: SessionKey) -> Option<SessionRecord>;
    }
}

impl ProtocolStore for ReplicaStore {
    fn insert_protocol(&self, record: Arc<ProtocolRecord>, len_max: Option<usize>) -> Op<Inserted> {
        let news = StoreEvent::Protocol {
            name: record.name.clone(),
            version: record.version.clone(),
        };
        self.run_and_publish(
            move |store| store.insert_protocol(record, len_max),
            |inserted| (*inserted == Inserted::New).then_some((news, 0)).into_iter().collect(),
        )
    }

    fn protocols(&self) -> Op<Vec<Arc<ProtocolRecord>>> {
        self.connection.run(|_, _| {
            self.connection.check_answered(Unanswered::Protocols)?;
            at_once(self.inner.protocols())
        })
    }

    fn protocol(&self, name: ProtocolName, version: semver::Version) -> Op<Option<Arc<ProtocolRecord>>> {
        self.connection.run(|_, _| {
            self.connection.check_answered(Unanswered::Protocols)?;
            at_once(self.inner.protocol(name, version))
        })
    }
}

impl InboxStore for ReplicaStore {
    fn append(&self, batch: Vec<Append>, now: Now) -> Op<Vec<Appended>> {
        let version = self.roster_version();
        let is_current = |append: &&Append| append.roster_version.is_none_or(|roster| roster == version);
        let current = batch.iter().take_while(is_current).count();
        let refused = batch.len() - current;
        let batch: Vec<_> = batch.into_iter().take(current).collect();
        let audience = batch.iter().flat_map(|append| append.audience.ids().to_vec()).collect();
        let appended = self.run_and_publish(
            move |store| store.append(batch, now),
            |_| vec![(StoreEvent::Waiting(audience), 0)],
        );
        Box::pin(async move {
            let mut answers = appended.await?;
            answers.extend(std::iter::repeat_n(Appended::RosterOutdated, refused));
            Ok(answers)
        })
    }

    fn release(&self, session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Op<Released> {
        if let Some(returned) = self.connection.cluster.hub().returned.get_mut(&session) {
            match &which {
                Release::Ids(ids) => returned.retain(|id| !ids.contains(id)),
                Release::Claimed(_) | Release::Silent(_) => returned.clear(),
            }
        }
        let silence = self.silence(&self.connection.cluster.hub(), session);
        let which = match which {
            Release::Silent(wanted) if silence.is_some_and(|silence| silence < wanted) => Release::Ids(Vec::new()),
            which => which,
        };
        self.run_and_publish(
            move |store| store.release(session, which, delivery_limit, now),
            |released| Self::waiting_event(session, released).into_iter().collect(),
        )
    }

    fn sweep(&self, now: Now) -> Op<Vec<(SessionId, usize)>> {
        if self.connection.down.load(Ordering::SeqCst) {
            return Box::pin(ready(Ok(Vec::new())));
        }
        self.inner.sweep(now)
    }

    quiet! {
        fn lease(session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Lease;
        fn acknowledge(session: SessionId, which: Acknowledge, now: Now) -> Acknowledged;
        fn depth(session: SessionId) -> Depth;
    }
}

impl TrackingStore for ReplicaStore {
    quiet! {
        fn update_send_result(sender: SessionId, key: String, outcome: SendResult) -> ();
        fn reserve_key(sender: SessionId, key: String, target: ProjectId, now: Now) -> KeyReservation;
        fn complete_reservation(sender: SessionId, key: String, outcome: SendResult) -> ();
        fn cancel_reservation(sender: SessionId, key: String) -> ();
        fn message_status(message: MessageId, now: Now) -> Option<Vec<RecipientStatus>>;
        fn put_cross_project_target(message: MessageId, target: ProjectId) -> ();
        fn cross_project_target(message: MessageId) -> Option<ProjectId>;
        fn cross_project_targets() -> Vec<ProjectId>;
    }
}

impl DeadLetterStore for ReplicaStore {
    fn redrive(
        &self,
        messages: Vec<MessageId>,
        recipient: Option<SessionId>,
        queue_capacity: usize,
        now: Now,
    ) -> Op<Redriven> {
        self.run_and_publish(
            move |store| store.redrive(messages, recipient, queue_capacity, now),
            |redriven| {
                let sessions = redriven.sent.iter().map(|&(_, session, _)| session).collect();
                vec![(StoreEvent::Waiting(sessions), 0)]
            },
        )
    }

    quiet! {
        fn dead_letters(query: DeadLetterQuery) -> DeadLetterPage;
        fn dead_letter_count() -> usize;
    }
}

impl ReplicatedStore for ReplicaStore {
    fn last_frame_seq(&self) -> Op<u64> {
        self.connection.run(|_, hub| Ok(hub.frame_sequence(&self.project)))
    }

    fn exchange_heartbeats(&self, own: Vec<Heartbeat>) -> Op<HeartbeatExchange> {
        self.connection.run(|_, hub| {
            let now = now();
            for sign in own {
                let ago = u64::try_from(sign.ago.as_millis()).unwrap_or(0);
                hub.record_heartbeat(
                    &self.project,
                    sign.session,
                    now.mono_ms.saturating_sub(ago),
                    sign.has_left,
                );
            }
            let mut heard = self.heartbeats_read.lock().unwrap_or_else(PoisonError::into_inner);
            let since = std::mem::replace(&mut *heard, hub.heartbeat_count);
            let news = hub
                .heartbeats
                .iter()
                .filter(|((project, _), (.., told))| *project == self.project && *told > since);
            let signs = news.map(|((_, session), (seen_ms, goodbye, _))| Heartbeat {
                session: *session,
                ago: now.since(*seen_ms),
                has_left: *goodbye,
            });
            Ok(HeartbeatExchange {
                heartbeats: signs.collect(),
                frame_seq: hub.frame_sequence(&self.project),
            })
        })
    }

    fn mark_returned(&self, session: SessionId, messages: Vec<MessageId>) -> Op<()> {
        self.connection.run(move |_, hub| {
            hub.returned.entry(session).or_default().extend(messages);
            Ok(())
        })
    }

    fn acknowledge_returned(&self, session: SessionId, now: Now) -> Op<Acknowledged> {
        let returned = self
            .connection
            .cluster
            .hub()
            .returned
            .remove(&session)
            .unwrap_or_default();
        self.acknowledge(session, Acknowledge::Ids(returned), now)
    }

    fn lease_for_call(
        &self,
        session: SessionId,
        _: CallReceipt,
        limit: usize,
        bytes_max: usize,
        now: Now,
    ) -> Op<Lease> {
        self.lease(session, None, limit, bytes_max, now)
    }

    /// This store keeps no receipts of calls.
    fn acknowledge_receipt(&self, _: SessionId, _: CallReceipt, _: u32, _: Now) -> Op<Acknowledged> {
        Box::pin(ready(Ok(Acknowledged::default())))
    }

    /// The replicas share one process, and with it the progress of every message.
    fn notify_progress(&self, _: Option<MessageId>) -> Op<()> {
        Box::pin(ready(Ok(())))
    }
}
