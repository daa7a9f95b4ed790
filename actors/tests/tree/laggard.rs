//! A store as a server on the network would be: operations take effect in their order, but somewhere else and later;
//! answers come when they come; and sometimes none does.

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
        Acknowledge, Acknowledged, Append, Appended, Claim, Claimed, DeadLetterQuery, DeadLetters, Depth, Inserted,
        Leased, Op, Outcome, Redriven, Release, Released, Reserved, Roster, Seat, Seated, Storage, Store, StoreError,
        Usage, Wanted, memory::MemoryStorage,
    },
};
use futures_util::FutureExt;
use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

/// Memory behind a thread of its own.
pub struct Laggard {
    inner: Arc<MemoryStorage>,
    wire: Arc<Wire>,
}

impl Default for Laggard {
    fn default() -> Self {
        Self {
            inner: Arc::default(),
            wire: Wire::new(),
        }
    }
}

impl Laggard {
    /// From now on operations wait, or no longer.
    pub fn set_held(&self, held: bool) {
        *self.wire.held.0.lock().unwrap_or_else(PoisonError::into_inner) = held;
        self.wire.held.1.notify_all();
    }

    /// From now on every operation fails, or no longer.
    pub fn set_down(&self, down: bool) {
        self.wire.down.store(down, Ordering::SeqCst);
    }

    fn begin<T: Send + 'static>(&self, operation: impl FnOnce(&MemoryStorage) -> Op<T> + Send + 'static) -> Op<T> {
        let inner = Arc::clone(&self.inner);
        self.wire.begin(move || operation(&inner))
    }
}

impl Storage for Laggard {
    fn name(&self) -> &'static str {
        "laggard"
    }

    fn durability(&self) -> String {
        self.inner.durability()
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        Arc::new(Remote {
            inner: self.inner.open(project),
            wire: Arc::clone(&self.wire),
        })
    }

    fn projects(&self) -> Op<Vec<Arc<ProjectRecord>>> {
        self.begin(|inner| inner.projects())
    }

    fn project(&self, project: ProjectId) -> Op<Option<Arc<ProjectRecord>>> {
        self.begin(|inner| inner.project(project))
    }

    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool> {
        self.begin(|inner| inner.put_project(record))
    }

    fn clear_project(&self, project: ProjectId) -> Op<()> {
        self.begin(|inner| inner.clear_project(project))
    }

    fn append_audit(&self, entry: AuditEntry) -> Op<()> {
        self.begin(|inner| inner.append_audit(entry))
    }

    fn audit(&self, query: AuditQuery) -> Op<Vec<Arc<AuditEntry>>> {
        self.begin(|inner| inner.audit(query))
    }
}

/// The one way to the thread: what is begun first is done first, whichever project it is of.
struct Wire {
    work: Mutex<mpsc::Sender<Work>>,
    held: Arc<(Mutex<bool>, Condvar)>,
    down: AtomicBool,
    dice: AtomicU64,
}

impl Wire {
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
            held,
            down: AtomicBool::default(),
            dice: AtomicU64::new(1),
        })
    }

    fn begin<T: Send + 'static>(&self, operation: impl FnOnce() -> Op<T> + Send + 'static) -> Op<T> {
        if self.down.load(Ordering::SeqCst) {
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
        queue.send(work).expect("the thread runs as long as the store is there");
        // A cheap generator: what matters is that answers overtake each other.
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

struct Remote {
    inner: Arc<dyn Store>,
    wire: Arc<Wire>,
}

impl Remote {
    fn begin<T: Send + 'static>(&self, operation: impl FnOnce(&dyn Store) -> Op<T> + Send + 'static) -> Op<T> {
        let inner = Arc::clone(&self.inner);
        self.wire.begin(move || operation(&*inner))
    }
}

/// Each operation of the trait, done by the one behind it.
macro_rules! remote {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> Op<$answer> {
            self.begin(move |store| store.$name($($argument),*))
        }
    )*};
}

impl Store for Remote {
    remote! {
        fn put_session(record: SessionRecord, seat: Seat) -> Seated;
        fn sessions() -> Roster;
        fn find_session(wanted: Wanted) -> Option<SessionRecord>;
        fn remove_session(
            session: SessionId,
            reason: DeadLetterReason,
            silent_for: Option<Duration>,
            now: Now
        ) -> Option<usize>;
        fn claim(session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Claimed;
        fn insert_protocol(record: Arc<ProtocolRecord>, len_max: Option<usize>) -> Inserted;
        fn protocols() -> Vec<Arc<ProtocolRecord>>;
        fn protocol(name: ProtocolName, version: semver::Version) -> Option<Arc<ProtocolRecord>>;
        fn append(batch: Vec<Append>, now: Now) -> Vec<Appended>;
        fn settle_outcome(sender: SessionId, key: String, outcome: Outcome) -> ();
        fn lease(session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Leased;
        fn acknowledge(session: SessionId, which: Acknowledge, now: Now) -> Acknowledged;
        fn release(session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Released;
        fn depth(session: SessionId) -> Depth;
        fn sweep(now: Now) -> Vec<(SessionId, usize)>;
        fn message_status(message: MessageId, now: Now) -> Option<Vec<RecipientStatus>>;
        fn dead_letters(query: DeadLetterQuery) -> DeadLetters;
        fn redrive(
            messages: Vec<MessageId>,
            recipient: Option<SessionId>,
            queue_capacity: usize,
            now: Now
        ) -> Redriven;
        fn dead_letter_count() -> usize;
        fn usage() -> Usage;
        fn put_crossing(message: MessageId, target: ProjectId) -> ();
        fn crossing(message: MessageId) -> Option<ProjectId>;
        fn crossing_targets() -> Vec<ProjectId>;
        fn reserve_key(sender: SessionId, key: String, target: ProjectId, now: Now) -> Reserved;
        fn keep_outcome(sender: SessionId, key: String, outcome: Outcome) -> ();
        fn free_key(sender: SessionId, key: String) -> ();
    }
}
