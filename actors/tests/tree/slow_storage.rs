//! A storage that behaves like a server on the network: operations take effect in order but later, on another thread;
//! answers may overtake each other; and the server may be unreachable.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use actors::{
    clock::Now,
    model::{
        AuditEntry, AuditQuery, DeadLetterReason, MessageId, ProjectId, ProjectRecord, ProtocolName, ProtocolRecord,
        RecipientStatus, SessionId, SessionRecord,
    },
    storage::{
        Acknowledge, Acknowledged, Append, Appended, Claim, Claimed, DeadLetterPage, DeadLetterQuery, DeadLetterStore,
        Depth, InboxStore, Inserted, KeyReservation, Lease, Op, ProtocolStore, PushStore, PutOutcome, PutSession,
        Redriven, Release, Released, ReplicatedStorage, ReplicatedStore, Roster, SendResult, SessionKey, SessionStore,
        Storage, StorageHealth, Store, StoreError, TrackingStore, Usage, memory::MemoryStorage,
    },
};
use futures_util::FutureExt;
use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

/// Memory storage whose operations run on a thread of their own.
pub struct SlowStorage {
    inner: Arc<MemoryStorage>,
    worker: Arc<StorageWorker>,
}

impl Default for SlowStorage {
    fn default() -> Self {
        Self {
            inner: Arc::default(),
            worker: StorageWorker::new(),
        }
    }
}

impl SlowStorage {
    /// Holds all operations back, or lets them run.
    pub fn set_paused(&self, held: bool) {
        *self.worker.paused.0.lock().unwrap_or_else(PoisonError::into_inner) = held;
        self.worker.paused.1.notify_all();
    }

    /// Makes every operation fail, or succeed again.
    pub fn set_unreachable(&self, down: bool) {
        self.worker.unreachable.store(down, Ordering::SeqCst);
    }

    fn enqueue<T: Send + 'static>(&self, operation: impl FnOnce(&MemoryStorage) -> Op<T> + Send + 'static) -> Op<T> {
        let inner = Arc::clone(&self.inner);
        self.worker.enqueue(move || operation(&inner))
    }
}

impl Storage for SlowStorage {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn durability(&self) -> String {
        self.inner.durability()
    }

    fn health(&self) -> StorageHealth {
        StorageHealth::Healthy
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStorage> {
        None
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        Arc::new(SlowStore {
            inner: self.inner.open(project),
            worker: Arc::clone(&self.worker),
        })
    }

    fn projects(&self) -> Op<Vec<Arc<ProjectRecord>>> {
        self.enqueue(|inner| inner.projects())
    }

    fn project(&self, project: ProjectId) -> Op<Option<Arc<ProjectRecord>>> {
        self.enqueue(|inner| inner.project(project))
    }

    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool> {
        self.enqueue(|inner| inner.put_project(record))
    }

    fn clear_project(&self, project: ProjectId) -> Op<()> {
        self.enqueue(|inner| inner.clear_project(project))
    }

    fn append_audit(&self, entry: AuditEntry) -> Op<()> {
        self.enqueue(|inner| inner.append_audit(entry))
    }

    fn audit(&self, query: AuditQuery) -> Op<Vec<Arc<AuditEntry>>> {
        self.enqueue(|inner| inner.audit(query))
    }
}

/// The queue of the thread. Operations run in the order in which they are enqueued, across all projects.
struct StorageWorker {
    work: Mutex<mpsc::Sender<Work>>,
    paused: Arc<(Mutex<bool>, Condvar)>,
    unreachable: AtomicBool,
    dice: AtomicU64,
}

impl StorageWorker {
    fn new() -> Arc<Self> {
        let (work, queue) = mpsc::channel::<Work>();
        let held = Arc::<(Mutex<bool>, Condvar)>::default();
        let holds = Arc::clone(&held);
        thread::spawn(move || {
            for work in queue {
                let held_now = holds.0.lock().unwrap_or_else(PoisonError::into_inner);
                drop(holds.1.wait_while(held_now, |held| *held));
                work();
            }
        });
        Arc::new(Self {
            work: Mutex::new(work),
            paused: held,
            unreachable: AtomicBool::default(),
            dice: AtomicU64::new(1),
        })
    }

    fn enqueue<T: Send + 'static>(&self, operation: impl FnOnce() -> Op<T> + Send + 'static) -> Op<T> {
        if self.unreachable.load(Ordering::SeqCst) {
            return Box::pin(async {
                tokio::task::yield_now().await;
                Err(StoreError::Unreachable("it is down".to_owned()))
            });
        }
        let (reply, answer) = oneshot::channel();
        let work = Box::new(move || {
            let result = operation().now_or_never().expect("memory answers at once");
            let _ = reply.send(result);
        });
        let queue = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        queue.send(work).expect("the thread runs as long as the storage exists");
        // A cheap random number: it only has to make answers overtake each other.
        let roll = self
            .dice
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 62;
        Box::pin(async move {
            let result = answer.await.expect("the thread answers everything");
            match roll {
                0 => tokio::time::sleep(Duration::from_millis(1)).await,
                1 => tokio::task::yield_now().await,
                _ => {}
            }
            result
        })
    }
}

struct SlowStore {
    inner: Arc<dyn Store>,
    worker: Arc<StorageWorker>,
}

impl SlowStore {
    fn enqueue<T: Send + 'static>(&self, operation: impl FnOnce(&dyn Store) -> Op<T> + Send + 'static) -> Op<T> {
        let inner = Arc::clone(&self.inner);
        self.worker.enqueue(move || operation(&*inner))
    }
}

/// Implements operations of the trait by enqueueing those of the inner store.
macro_rules! remote {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> Op<$answer> {
            self.enqueue(move |store| store.$name($($argument),*))
        }
    )*};
}

impl Store for SlowStore {
    fn is_synchronous(&self) -> bool {
        false
    }

    fn replicated(&self) -> Option<&dyn ReplicatedStore> {
        None
    }

    fn push(&self) -> Option<&dyn PushStore> {
        None
    }

    remote! {
        fn usage() -> Usage;
    }
}

impl SessionStore for SlowStore {
    remote! {
        fn put_session(record: SessionRecord, condition: PutSession) -> PutOutcome;
        fn sessions() -> Roster;
        fn find_session(wanted: SessionKey) -> Option<SessionRecord>;
        fn remove_session(
            session: SessionId,
            reason: DeadLetterReason,
            silent_for: Option<Duration>,
            now: Now
        ) -> Option<usize>;
        fn claim(session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Claimed;
    }
}

impl ProtocolStore for SlowStore {
    remote! {
        fn insert_protocol(record: Arc<ProtocolRecord>, len_max: Option<usize>) -> Inserted;
        fn protocols() -> Vec<Arc<ProtocolRecord>>;
        fn protocol(name: ProtocolName, version: semver::Version) -> Option<Arc<ProtocolRecord>>;
    }
}

impl InboxStore for SlowStore {
    remote! {
        fn append(batch: Vec<Append>, now: Now) -> Vec<Appended>;
        fn lease(session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Lease;
        fn acknowledge(session: SessionId, which: Acknowledge, now: Now) -> Acknowledged;
        fn release(session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Released;
        fn depth(session: SessionId) -> Depth;
        fn sweep(now: Now) -> Vec<(SessionId, usize)>;
    }
}

impl TrackingStore for SlowStore {
    remote! {
        fn update_send_result(sender: SessionId, key: String, outcome: SendResult) -> ();
        fn message_status(message: MessageId, now: Now) -> Option<Vec<RecipientStatus>>;
        fn put_cross_project_target(message: MessageId, target: ProjectId) -> ();
        fn cross_project_target(message: MessageId) -> Option<ProjectId>;
        fn cross_project_targets() -> Vec<ProjectId>;
        fn reserve_key(sender: SessionId, key: String, target: ProjectId, now: Now) -> KeyReservation;
        fn complete_reservation(sender: SessionId, key: String, outcome: SendResult) -> ();
        fn cancel_reservation(sender: SessionId, key: String) -> ();
    }
}

impl DeadLetterStore for SlowStore {
    remote! {
        fn dead_letters(query: DeadLetterQuery) -> DeadLetterPage;
        fn redrive(
            messages: Vec<MessageId>,
            recipient: Option<SessionId>,
            queue_capacity: usize,
            now: Now
        ) -> Redriven;
        fn dead_letter_count() -> usize;
    }
}
