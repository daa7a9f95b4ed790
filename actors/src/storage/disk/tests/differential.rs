//! The same operations on a disk store that restarts and on a memory store that never does.

use std::{sync::Arc, time::Duration};

use proptest::sample::Index;

use super::{SimulatedDisk, properties::Step};
use crate::{
    clock::Now,
    model::{
        Addressing, DeadLetterReason, EventKinds, Headers, MessageId, MessageIds, NewMessage, Owner, ProjectEvent,
        ProjectId, SessionId, SessionName, SessionRecord, Transformed, Transforms, WakePreference,
    },
    storage::{
        Acknowledge, Append, Audience, Claim, DeadLetterQuery, Direction, EventPage, EventQuery, EventStart, Lease,
        LoggedEvent, Op, PutSession, Release, Retention, SendResult, Storage, Store, Usage,
        disk::{DiskSettings, DiskStorage},
        memory::MemoryStorage,
    },
};

pub const SESSIONS: usize = 3;
pub const KEYS: usize = 3;
const CAPACITY: usize = 20;
const DELIVERY_LIMIT: u32 = 3;

/// Small limits for everything except dead letters, whose order of eviction is unspecified among those given up at the
/// same moment.
const RETENTION: Retention = Retention {
    receipts_len_max: 8,
    dead_letters_len_max: 10_000,
    idempotency_keys_len_max: 4,
    idempotency_window: Duration::from_mins(2),
    cross_project_targets_len_max: 3,
    audit_len_max: 3,
    queue_bytes_max: 12_000,
    waiting_bytes_max: 30_000,
    dead_letters_bytes_max: usize::MAX,
    messages_bytes_max: usize::MAX,
    idempotency_keys_bytes_max: usize::MAX,
    sessions_bytes_max: usize::MAX,
    questions_bytes_max: usize::MAX,
    closed_questions_len_max: 4,
    questions_retention: Duration::from_hours(24),
    history_window: Duration::from_hours(24),
    history_payloads: true,
    history_messages_max: 100_000,
    events_bytes_max: usize::MAX,
    all_events_bytes_max: usize::MAX,
};

pub struct DiskAndMemory {
    simulated_disk: SimulatedDisk,
    disk: DiskStorage,
    memory: MemoryStorage,
    sessions: [SessionId; SESSIONS],
    ids: MessageIds,
    pub sent: Vec<MessageId>,
    now: Now,
    /// When the disk was opened, in monotonic milliseconds of the memory store. The disk's own clock started then.
    opened_at: u64,
}

impl DiskAndMemory {
    pub async fn new() -> Self {
        let simulated_disk = SimulatedDisk::default();
        let now = Now {
            unix_ms: 1_790_000_000_000,
            mono_ms: 5_000,
        };
        let pair = Self {
            disk: open(&simulated_disk, now),
            simulated_disk,
            memory: MemoryStorage::new(RETENTION),
            sessions: [(); SESSIONS].map(|()| SessionId::generate()),
            ids: MessageIds::default(),
            sent: Vec::new(),
            now,
            opened_at: 0,
        };
        for at in 0..SESSIONS {
            pair.put_session(at).await;
        }
        pair
    }

    /// Runs an operation on both stores; returns the answers of the disk and of the memory store.
    async fn both<T>(&self, operation: impl Fn(&dyn Store, Now) -> Op<T>) -> (T, T) {
        let project = ProjectId::default_project();
        let now = Now {
            mono_ms: self.now.mono_ms - self.opened_at,
            ..self.now
        };
        let disk = operation(&*self.disk.open(&project), now).await.unwrap();
        let memory = operation(&*self.memory.open(&project), self.now).await.unwrap();
        (disk, memory)
    }

    async fn same<T: PartialEq + std::fmt::Debug>(&self, operation: impl Fn(&dyn Store, Now) -> Op<T>) -> T {
        let (disk, memory) = self.both(operation).await;
        assert_eq!(disk, memory);
        disk
    }

    async fn put_session(&self, at: usize) {
        let record = record(self.sessions[at], at);
        self.same(|store, _| store.put_session(record.clone(), PutSession::default()))
            .await;
    }

    fn one_of(&self, which: Index) -> Option<MessageId> {
        (!self.sent.is_empty()).then(|| *which.get(&self.sent))
    }

    async fn send(&mut self, audience: Audience, headers: Headers) {
        let to = match &audience {
            Audience::One(to) => Some(*to),
            Audience::Many(_) => None,
        };
        let (project, sender) = (ProjectId::default_project(), record(self.sessions[0], 0));
        let direction = to.map_or(Addressing::Broadcast, |_| Addressing::Direct);
        let draft = NewMessage::new(&project, &sender, direction, ("chat", "1.0.0"), "{}", &headers);
        let message = draft.seal(self.ids.next(self.now), to, self.now, false);
        self.sent.push(message.id);
        let append = Append {
            message,
            audience,
            queue_capacity: CAPACITY,
            idempotency_key: headers.idempotency_key,
            roster_version: None,
        };
        self.same(|store, now| store.append(vec![append.clone()], now)).await;
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
    pub async fn step(&mut self, step: Step) {
        match step {
            Step::Send {
                to,
                headers: (priority, ttl_seconds),
                key,
            } => {
                let headers = Headers {
                    priority,
                    ttl_seconds,
                    idempotency_key: key.map(|key| key.to_string()),
                    ..Headers::default()
                };
                self.send(Audience::One(self.sessions[to]), headers).await;
            }
            Step::Broadcast => {
                self.send(Audience::Many(self.sessions.into()), Headers::default())
                    .await;
            }
            Step::Lease { session, limit } => self.lease(session, limit).await,
            Step::Acknowledge(session, which) => {
                let ids = self.one_of(which).into_iter().collect();
                self.acknowledge(session, Acknowledge::Ids(ids)).await;
            }
            Step::AcknowledgeUpTo(session, which) => {
                if let Some(id) = self.one_of(which) {
                    self.acknowledge(session, Acknowledge::UpTo(id)).await;
                }
            }
            Step::Release(session, which) => {
                let (session, ids) = (self.sessions[session], self.one_of(which).into_iter().collect());
                let release = Release::Ids(ids);
                self.same(|store, now| store.release(session, release.clone(), DELIVERY_LIMIT, now))
                    .await;
            }
            Step::Claim(session) => self.claim(session, DELIVERY_LIMIT).await,
            Step::Reserve { key, other } => {
                let target = ProjectId::parse(if other { "elsewhere" } else { "there" }).unwrap();
                let sender = self.sessions[0];
                self.same(|store, now| store.reserve_key(sender, key.to_string(), target.clone(), now))
                    .await;
            }
            Step::CompleteReservation(key) => {
                let (sender, result) = (self.sessions[0], self.result());
                self.same(|store, _| store.complete_reservation(sender, key.to_string(), result.clone()))
                    .await;
            }
            Step::CancelReservation(key) => {
                let sender = self.sessions[0];
                self.same(|store, _| store.cancel_reservation(sender, key.to_string()))
                    .await;
            }
            Step::UpdateSendResult(key) => {
                let (sender, result) = (self.sessions[0], self.result());
                self.same(|store, _| store.update_send_result(sender, key.to_string(), result.clone()))
                    .await;
            }
            Step::Redrive { message, to } => {
                let (ids, to): (Vec<_>, _) = (
                    self.one_of(message).into_iter().collect(),
                    to.map(|to| self.sessions[to]),
                );
                self.same(|store, now| store.redrive(ids.clone(), to, CAPACITY, now))
                    .await;
            }
            Step::Replace(at) => {
                let (session, reason) = (self.sessions[at], DeadLetterReason::RecipientGone);
                self.same(|store, now| store.remove_session(session, reason, None, now))
                    .await;
                self.sessions[at] = SessionId::generate();
                self.put_session(at).await;
            }
            Step::Cross => {
                let message = self.ids.next(self.now);
                self.sent.push(message);
                self.same(|store, _| store.put_cross_project_target(message, ProjectId::default_project()))
                    .await;
            }
            Step::Pass(seconds) => {
                self.now.unix_ms += seconds * 1000;
                self.now.mono_ms += seconds * 1000;
            }
            Step::Sweep => drop(self.both(|store, now| store.sweep(now)).await),
            Step::Clear => self.clear().await,
            Step::Restart => self.restart().await,
        }
    }

    fn result(&self) -> SendResult {
        let [from, to] = ["1.0.0", "2.0.0"].map(|version| version.parse().unwrap());
        let transformed = Transformed::new(from, to, vec!["/a".to_owned()], Vec::new(), false);
        SendResult {
            delivered_at_ms: Some(9),
            transforms: Some(Transforms::of_one(&Arc::new(transformed))),
            ..SendResult::accepted(self.ids.next(self.now), 3, 7, vec![self.sessions[1]])
        }
    }

    /// A message without recipients: its answer shows the use of the key, and it takes no key itself.
    fn probe(&self, key: usize) -> Append {
        let headers = Headers::default();
        let sender = record(self.sessions[0], 0);
        let draft = NewMessage::new(
            &ProjectId::default_project(),
            &sender,
            Addressing::Broadcast,
            ("chat", "1.0.0"),
            "{}",
            &headers,
        );
        Append {
            message: draft.seal(self.ids.next(self.now), None, self.now, false),
            audience: Audience::Many(Arc::default()),
            queue_capacity: CAPACITY,
            idempotency_key: Some(key.to_string()),
            roster_version: None,
        }
    }

    pub async fn lease(&self, session: usize, limit: usize) {
        let session = self.sessions[session];
        let (disk, memory) = self
            .both(|store, now| store.lease(session, None, limit, usize::MAX, now))
            .await;
        let shown = |leased: Lease| {
            let deliveries: Vec<_> = leased.deliveries.iter().map(|it| (body(it), it.count)).collect();
            (deliveries, leased.depth)
        };
        assert_eq!(shown(disk), shown(memory));
    }

    pub async fn acknowledge(&self, session: usize, which: Acknowledge) {
        let session = self.sessions[session];
        let (disk, memory) = self
            .both(|store, now| store.acknowledge(session, which.clone(), now))
            .await;
        assert_eq!(
            (disk.acknowledged, disk.unknown, disk.depth),
            (memory.acknowledged, memory.unknown, memory.depth)
        );
    }

    async fn claim(&self, session: usize, delivery_limit: u32) {
        let session = self.sessions[session];
        let (disk, memory) = self
            .both(|store, now| store.claim_session(session, Claim::generate(), delivery_limit, now))
            .await;
        assert_eq!(disk.released, memory.released);
    }

    async fn clear(&mut self) {
        let project = ProjectId::default_project();
        self.disk.clear_project(project.clone()).await.unwrap();
        self.memory.clear_project(project).await.unwrap();
        for at in 0..SESSIONS {
            self.put_session(at).await;
        }
    }

    /// Kills the process: nothing more is written to the old disk, and another process reads a copy.
    pub async fn restart(&mut self) {
        self.simulated_disk = self.simulated_disk.snapshot();
        self.opened_at = self.now.mono_ms;
        let now = Now { mono_ms: 0, ..self.now };
        self.disk = open(&self.simulated_disk, now);
        // On the disk leased messages wait again. The memory store does the same on a claim, without a delivery limit.
        let project = ProjectId::default_project();
        for session in self.sessions {
            let memory = self.memory.open(&project);
            memory
                .claim_session(session, Claim::generate(), u32::MAX, self.now)
                .await
                .unwrap();
        }
        self.both(|store, now| store.sweep(now)).await;
        self.compare().await;
    }

    async fn compare_events(&self) {
        let everything = EventQuery {
            from: EventStart::Oldest,
            direction: Direction::Forward,
            kinds: EventKinds::ALL,
            scan_max: usize::MAX,
            bytes_max: usize::MAX,
        };
        let (disk, memory) = self.both(|store, _| store.events(everything)).await;
        assert_eq!(recorded(disk), recorded(memory));
    }

    async fn compare(&self) {
        let (disk, memory) = self.both(|store, _| store.sessions()).await;
        let sorted = |mut sessions: Vec<SessionRecord>| {
            sessions.sort_unstable_by_key(|record| record.id);
            sessions
        };
        assert_eq!(sorted(disk.sessions), sorted(memory.sessions));
        for session in self.sessions {
            self.same(|store, _| store.depth(session)).await;
        }
        // Which of several keys of the same moment is the oldest is unspecified.
        let of_keys_unknown = |usage| Usage {
            idempotency_keys: 0,
            ..usage
        };
        let (disk, memory) = self.both(|store, _| store.usage()).await;
        assert_eq!(of_keys_unknown(disk), of_keys_unknown(memory));
        let everything = DeadLetterQuery {
            limit: usize::MAX,
            ..DeadLetterQuery::default()
        };
        let (disk, memory) = self.both(|store, _| store.dead_letters(everything.clone())).await;
        assert_eq!(
            format!("{:?}", shown(&disk.dead_letters)),
            format!("{:?}", shown(&memory.dead_letters))
        );
        assert_eq!(disk.blocked, memory.blocked);
        for &id in &self.sent {
            self.same(|store, _| store.cross_project_target(id)).await;
            let (disk, memory) = self.both(|store, now| store.message_status(id, now)).await;
            let statuses = |all: Vec<crate::model::RecipientStatus>| {
                let mut all: Vec<_> = all.iter().map(|entry| (entry.session, entry.status.as_str())).collect();
                all.sort_unstable();
                all
            };
            let (disk, memory) = (
                disk.map(statuses).unwrap_or_default(),
                memory.map(statuses).unwrap_or_default(),
            );
            // A receipt near the limit may be known for longer by one store, separately for each recipient.
            let lost: Vec<_> = memory.iter().filter(|entry| !disk.contains(entry)).collect();
            assert!(lost.is_empty(), "of {id}: {lost:?} and not only {disk:?}");
        }
        self.compare_events().await;
        for key in 0..KEYS {
            let probe = self.probe(key);
            self.same(|store, now| store.append(vec![probe.clone()], now)).await;
        }
    }
}

/// The events of a log, without their order among sessions. A claim releases messages in memory, a restart on the disk:
/// only the former is recorded.
fn recorded(page: EventPage) -> Vec<String> {
    assert!(!page.gap && !page.more);
    let of_both = |logged: &LoggedEvent| !matches!(logged.event, ProjectEvent::Released { .. });
    let events = page.events.iter().filter(|logged| of_both(logged));
    let mut events: Vec<_> = events
        .map(|logged| format!("{} {:?}", logged.at_ms, logged.event))
        .collect();
    events.sort_unstable();
    events
}

fn open(simulated_disk: &SimulatedDisk, now: Now) -> DiskStorage {
    let settings = DiskSettings {
        retention: RETENTION,
        ..DiskSettings::default()
    };
    DiskStorage::open(simulated_disk.clone(), settings, now).unwrap()
}

fn record(id: SessionId, at: usize) -> SessionRecord {
    SessionRecord {
        id,
        name: (at > 0).then(|| SessionName::parse(&format!("agent {at}")).unwrap()),
        capabilities: Arc::default(),
        metadata: serde_json::Map::new(),
        aliases: Vec::new(),
        connected_at_ms: 1,
        owner: Owner::anonymous(),
        holder: crate::model::Holder::default(),
        wake: WakePreference::default(),
    }
}

fn body(delivery: &crate::storage::Delivery) -> String {
    let mut out = Vec::new();
    delivery.message.write(&mut out, delivery.count);
    String::from_utf8(out).unwrap()
}

fn shown(dead_letters: &[crate::model::DeadLetter]) -> Vec<impl std::fmt::Debug> {
    let show = |dead: &crate::model::DeadLetter| {
        let message = &dead.message;
        let address = (message.recipient, dead.recipient, message.priority, message.ttl);
        (
            message.id,
            message.body().to_vec(),
            address,
            dead.reason,
            dead.deliveries,
        )
    };
    dead_letters.iter().map(show).collect()
}
