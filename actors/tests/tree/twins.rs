//! Replicas that share a store, in one process: memory for all of them, and what each does told to all.

use std::{
    collections::HashMap,
    future::ready,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use actors::{
    bridge::{Bridge, Frame, Heard, Incoming, News},
    clock::{Now, now},
    model::{
        AuditEntry, AuditQuery, DeadLetterReason, MessageId, ProjectId, ProjectRecord, ProtocolName, ProtocolRecord,
        RecipientStatus, ReplicaId, SessionId, SessionRecord,
    },
    storage::{
        Acknowledge, Acknowledged, Append, Appended, Claim, Claimed, DeadLetterQuery, DeadLetters, Depth, Exchanged,
        Inserted, Leased, Op, Outcome, Redriven, Release, Released, Reserved, Roster, Seat, Seated, Sign, Storage,
        Store, StoreError, Usage, Wanted, memory::MemoryStorage,
    },
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};

/// What the replicas share.
#[derive(Default)]
pub struct Cluster {
    memory: MemoryStorage,
    hub: Mutex<Hub>,
}

#[derive(Default)]
struct Hub {
    serials: HashMap<ProjectId, u64>,
    /// When each was seen, on the clock that all of them have here, and with the count of what was told.
    signs: HashMap<(ProjectId, SessionId), (u64, bool, u64)>,
    told: u64,
    returned: HashMap<SessionId, Vec<MessageId>>,
    listeners: Vec<(Arc<Ears>, mpsc::UnboundedSender<Incoming>)>,
}

/// What of the frames comes through to one replica.
#[derive(Default)]
pub struct Ears {
    deaf: AtomicBool,
    /// Of so many frames one is lost; 0: none.
    loses_one_in: AtomicUsize,
    count: AtomicUsize,
}

/// One replica's way to the store.
pub struct Twin {
    cluster: Arc<Cluster>,
    replica: ReplicaId,
    pub ears: Arc<Ears>,
    down: AtomicBool,
    /// Whether frames have to wait.
    pub frames_held: watch::Sender<bool>,
    /// Whether who asks for all sessions has to wait for the answer; how often that was asked.
    pub rosters_held: watch::Sender<bool>,
    pub rosters_asked: watch::Sender<usize>,
    /// What the store cannot say, though it can be reached.
    unanswered: Mutex<Option<Unanswered>>,
}

/// A question that the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    Sessions,
    Protocols,
}

impl Cluster {
    pub fn twin(self: &Arc<Self>) -> Arc<Twin> {
        Arc::new(Twin {
            cluster: Arc::clone(self),
            replica: ReplicaId::generate(),
            ears: Arc::default(),
            down: AtomicBool::new(false),
            frames_held: watch::Sender::new(false),
            rosters_held: watch::Sender::new(false),
            rosters_asked: watch::Sender::new(0),
            unanswered: Mutex::default(),
        })
    }

    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ears {
    pub fn lose_one_in(&self, count: usize) {
        self.loses_one_in.store(count, Ordering::SeqCst);
    }

    fn hear(&self) -> bool {
        let one_in = self.loses_one_in.load(Ordering::SeqCst);
        let count = self.count.fetch_add(1, Ordering::SeqCst);
        !self.deaf.load(Ordering::SeqCst) && (one_in == 0 || !count.is_multiple_of(one_in))
    }
}

impl Hub {
    fn is_seen(&mut self, project: &ProjectId, session: SessionId, seen_ms: u64, goodbye: bool) {
        self.told += 1;
        let told = (seen_ms, goodbye, self.told);
        let known = self.signs.entry((project.clone(), session)).or_insert(told);
        if known.0 <= seen_ms {
            *known = told;
        }
    }

    /// Of the last frame of a project that was published.
    fn serial(&self, project: &ProjectId) -> u64 {
        self.serials.get(project).copied().unwrap_or(0)
    }

    fn publish(&mut self, from: ReplicaId, project: &ProjectId, news: &News, number: u64) {
        let serial = self.serials.entry(project.clone()).or_default();
        *serial += 1;
        let text = format!("{}{number},\"n\":{serial}}}", Frame::head(from, project, news));
        for (ears, listener) in &self.listeners {
            if ears.hear() {
                let _ = listener.send(Incoming::Frame(Bytes::from(text.clone())));
            }
        }
    }
}

impl Twin {
    /// The store cannot be reached from here, and nothing is heard.
    pub fn cut(&self) {
        self.down.store(true, Ordering::SeqCst);
        self.ears.deaf.store(true, Ordering::SeqCst);
        self.tell_own(&Incoming::Lost);
    }

    pub fn heal(&self) {
        self.down.store(false, Ordering::SeqCst);
        self.ears.deaf.store(false, Ordering::SeqCst);
        self.tell_own(&Incoming::Connected);
    }

    /// From now on the store does not answer this, or answers everything.
    pub fn leaves_unanswered(&self, what: Option<Unanswered>) {
        *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    fn answers(&self, what: Unanswered) -> Result<(), StoreError> {
        let unanswered = *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        if unanswered == Some(what) {
            return Err(StoreError::Unreachable(format!("no answer: {what:?}")));
        }
        Ok(())
    }

    fn tell_own(&self, incoming: &Incoming) {
        for (ears, listener) in &self.cluster.hub().listeners {
            if Arc::ptr_eq(ears, &self.ears) {
                let _ = listener.send(incoming.clone());
            }
        }
    }

    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&Cluster, &mut Hub) -> Result<T, StoreError>) -> Op<T> {
        if self.down.load(Ordering::SeqCst) {
            return Box::pin(async {
                tokio::task::yield_now().await;
                Err(StoreError::Unreachable("it is cut off".to_owned()))
            });
        }
        let result = operation(&self.cluster, &mut self.cluster.hub());
        // The answer of a server comes later than what it tells the others.
        Box::pin(async move {
            tokio::task::yield_now().await;
            result
        })
    }
}

fn at_once<T>(op: Op<T>) -> Result<T, StoreError> {
    op.now_or_never().expect("memory answers at once")
}

impl Bridge for Twin {
    fn replica(&self) -> ReplicaId {
        self.replica
    }

    fn listen(&self) -> Heard {
        let (listener, heard) = mpsc::unbounded_channel();
        let _ = listener.send(Incoming::Connected);
        self.cluster.hub().listeners.push((Arc::clone(&self.ears), listener));
        let frames = (heard, self.frames_held.subscribe());
        let next = async |(mut heard, mut held): (mpsc::UnboundedReceiver<_>, watch::Receiver<bool>)| {
            let incoming = heard.recv().await?;
            let _ = held.wait_for(|held| !held).await;
            Some((incoming, (heard, held)))
        };
        futures_util::stream::unfold(frames, next).boxed()
    }
}

/// The storage of one replica: a twin, which is its bridge too.
pub struct Replica(pub Arc<Twin>);

impl Storage for Replica {
    fn name(&self) -> &'static str {
        "twin"
    }

    fn durability(&self) -> String {
        self.0.cluster.memory.durability()
    }

    fn bridge(&self) -> Option<Arc<dyn Bridge>> {
        Some(Arc::clone(&self.0) as _)
    }

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        Arc::new(Shared {
            twin: Arc::clone(&self.0),
            project: project.clone(),
            inner: self.0.cluster.memory.open(project),
            heard: Mutex::new(0),
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
                hub.publish(replica, &record.id, &News::Project(record.revision), 0);
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

struct Shared {
    twin: Arc<Twin>,
    project: ProjectId,
    inner: Arc<dyn Store>,
    /// How much of what was told of signs of life was heard here.
    heard: Mutex<u64>,
}

impl Shared {
    /// Does an operation, and tells of what came of it.
    fn told<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&dyn Store) -> Op<T>,
        news: impl FnOnce(&T) -> Vec<(News, u64)>,
    ) -> Op<T> {
        self.twin.run(|_, hub| {
            let done = at_once(operation(&*self.inner))?;
            for (news, number) in news(&done) {
                hub.publish(self.twin.replica, &self.project, &news, number);
            }
            Ok(done)
        })
    }

    fn roster(&self) -> u64 {
        at_once(self.inner.sessions()).map_or(0, |roster| roster.version)
    }

    fn waits_again(session: SessionId, released: &Released) -> Option<(News, u64)> {
        (released.returned > 0).then(|| (News::Waiting(vec![session]), 0))
    }

    /// How long ago a session was seen, by anybody.
    fn silence(&self, hub: &Hub, session: SessionId) -> Option<Duration> {
        let (seen_ms, ..) = hub.signs.get(&(self.project.clone(), session))?;
        Some(now().since(*seen_ms))
    }
}

/// Each operation of the trait that tells nobody.
macro_rules! quiet {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> Op<$answer> {
            self.told(move |store| store.$name($($argument),*), |_| Vec::new())
        }
    )*};
}

impl Store for Shared {
    fn is_shared(&self) -> bool {
        true
    }

    fn serial(&self) -> Op<u64> {
        self.twin.run(|_, hub| Ok(hub.serial(&self.project)))
    }

    fn put_session(&self, record: SessionRecord, seat: Seat) -> Op<Seated> {
        self.twin.run(|_, hub| {
            let seated = at_once(self.inner.put_session(record.clone(), seat))?;
            if seated == Seated::Kept {
                hub.is_seen(&self.project, record.id, now().mono_ms, false);
                let news = News::Session(Box::new(record));
                hub.publish(self.twin.replica, &self.project, &news, self.roster());
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
        self.twin.run(|_, hub| {
            let silence = self.silence(hub, session);
            if silent_for
                .zip(silence)
                .is_some_and(|(wanted, silence)| silence < wanted)
            {
                return Ok(None);
            }
            let known = at_once(self.inner.find_session(Wanted::Id(session)))?.is_some();
            let removed = at_once(self.inner.remove_session(session, reason, None, now))?;
            if known {
                let news = News::SessionRemoved(session);
                hub.publish(self.twin.replica, &self.project, &news, self.roster());
            }
            Ok(removed)
        })
    }

    fn claim(&self, session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Op<Claimed> {
        self.told(
            move |store| store.claim(session, claim, delivery_limit, now),
            |claimed| {
                let news = (News::Claimed(session), claimed.epoch);
                [news]
                    .into_iter()
                    .chain(Self::waits_again(session, &claimed.released))
                    .collect()
            },
        )
    }

    fn exchange_signs(&self, own: Vec<Sign>) -> Op<Exchanged> {
        self.twin.run(|_, hub| {
            let now = now();
            for sign in own {
                let ago = u64::try_from(sign.ago.as_millis()).unwrap_or(0);
                hub.is_seen(
                    &self.project,
                    sign.session,
                    now.mono_ms.saturating_sub(ago),
                    sign.goodbye,
                );
            }
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            let since = std::mem::replace(&mut *heard, hub.told);
            let news = hub
                .signs
                .iter()
                .filter(|((project, _), (.., told))| *project == self.project && *told > since);
            let signs = news.map(|((_, session), (seen_ms, goodbye, _))| Sign {
                session: *session,
                ago: now.since(*seen_ms),
                goodbye: *goodbye,
            });
            Ok(Exchanged {
                signs: signs.collect(),
                serial: hub.serial(&self.project),
            })
        })
    }

    fn append(&self, batch: Vec<Append>, now: Now) -> Op<Vec<Appended>> {
        let version = self.roster();
        let is_current = |append: &&Append| append.roster.is_none_or(|roster| roster == version);
        let current = batch.iter().take_while(is_current).count();
        let refused = batch.len() - current;
        let batch: Vec<_> = batch.into_iter().take(current).collect();
        let audience = batch.iter().flat_map(|append| append.audience.ids().to_vec()).collect();
        let appended = self.told(
            move |store| store.append(batch, now),
            |_| vec![(News::Waiting(audience), 0)],
        );
        Box::pin(async move {
            let mut answers = appended.await?;
            answers.extend(std::iter::repeat_n(Appended::RosterOutdated, refused));
            Ok(answers)
        })
    }

    fn mark_returned(&self, session: SessionId, messages: Vec<MessageId>) -> Op<()> {
        self.twin.run(move |_, hub| {
            hub.returned.entry(session).or_default().extend(messages);
            Ok(())
        })
    }

    fn acknowledge_returned(&self, session: SessionId, now: Now) -> Op<Acknowledged> {
        let returned = self.twin.cluster.hub().returned.remove(&session).unwrap_or_default();
        self.acknowledge(session, Acknowledge::Ids(returned), now)
    }

    fn release(&self, session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Op<Released> {
        if let Some(returned) = self.twin.cluster.hub().returned.get_mut(&session) {
            match &which {
                Release::Ids(ids) => returned.retain(|id| !ids.contains(id)),
                Release::Claimed(_) | Release::Silent(_) => returned.clear(),
            }
        }
        let silence = self.silence(&self.twin.cluster.hub(), session);
        let which = match which {
            Release::Silent(wanted) if silence.is_some_and(|silence| silence < wanted) => Release::Ids(Vec::new()),
            which => which,
        };
        self.told(
            move |store| store.release(session, which, delivery_limit, now),
            |released| Self::waits_again(session, released).into_iter().collect(),
        )
    }

    fn insert_protocol(&self, record: Arc<ProtocolRecord>, len_max: Option<usize>) -> Op<Inserted> {
        let news = News::Protocol {
            name: record.name.clone(),
            version: record.version.clone(),
        };
        self.told(
            move |store| store.insert_protocol(record, len_max),
            |inserted| (*inserted == Inserted::New).then_some((news, 0)).into_iter().collect(),
        )
    }

    fn redrive(
        &self,
        messages: Vec<MessageId>,
        recipient: Option<SessionId>,
        queue_capacity: usize,
        now: Now,
    ) -> Op<Redriven> {
        self.told(
            move |store| store.redrive(messages, recipient, queue_capacity, now),
            |redriven| {
                let sessions = redriven.sent.iter().map(|&(_, session, _)| session).collect();
                vec![(News::Waiting(sessions), 0)]
            },
        )
    }

    fn sweep(&self, now: Now) -> Op<Vec<(SessionId, usize)>> {
        if self.twin.down.load(Ordering::SeqCst) {
            return Box::pin(ready(Ok(Vec::new())));
        }
        self.inner.sweep(now)
    }

    fn sessions(&self) -> Op<Roster> {
        let roster = self.twin.run(|_, _| {
            self.twin.answers(Unanswered::Sessions)?;
            at_once(self.inner.sessions())
        });
        let mut held = self.twin.rosters_held.subscribe();
        self.twin.rosters_asked.send_modify(|asked| *asked += 1);
        Box::pin(async move {
            // As it is now, though it comes later.
            let roster = roster.await?;
            let _ = held.wait_for(|held| !held).await;
            Ok(roster)
        })
    }

    fn protocols(&self) -> Op<Vec<Arc<ProtocolRecord>>> {
        self.twin.run(|_, _| {
            self.twin.answers(Unanswered::Protocols)?;
            at_once(self.inner.protocols())
        })
    }

    fn protocol(&self, name: ProtocolName, version: semver::Version) -> Op<Option<Arc<ProtocolRecord>>> {
        self.twin.run(|_, _| {
            self.twin.answers(Unanswered::Protocols)?;
            at_once(self.inner.protocol(name, version))
        })
    }

    quiet! {
        fn find_session(wanted: Wanted) -> Option<SessionRecord>;
        fn settle_outcome(sender: SessionId, key: String, outcome: Outcome) -> ();
        fn reserve_key(sender: SessionId, key: String, target: ProjectId, now: Now) -> Reserved;
        fn keep_outcome(sender: SessionId, key: String, outcome: Outcome) -> ();
        fn free_key(sender: SessionId, key: String) -> ();
        fn lease(session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Leased;
        fn acknowledge(session: SessionId, which: Acknowledge, now: Now) -> Acknowledged;
        fn depth(session: SessionId) -> Depth;
        fn message_status(message: MessageId, now: Now) -> Option<Vec<RecipientStatus>>;
        fn dead_letters(query: DeadLetterQuery) -> DeadLetters;
        fn dead_letter_count() -> usize;
        fn usage() -> Usage;
        fn put_crossing(message: MessageId, target: ProjectId) -> ();
        fn crossing(message: MessageId) -> Option<ProjectId>;
        fn crossing_targets() -> Vec<ProjectId>;
    }
}
