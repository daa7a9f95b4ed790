//! Differential test: Redis gives the same answers as the memory store for every sequence of operations.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use actors::{
    clock::now,
    model::{
        DeadLetterReason, EventKinds, Headers, Message, MessageId, Outcome, OutcomeKind, Priority, ProjectEvent,
        ProjectId, SessionId, SessionRecord,
    },
    storage::{
        Acknowledge, Append, Appended, Audience, Claim, DeadLetterQuery, Direction, EventQuery, EventStart,
        KeyReservation, Op, PrefetchLimit, PutSession, Release, Retention, SendResult, Storage, Store, Usage,
        memory::MemoryStorage,
    },
};
use futures_util::future::join_all;
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use storage::redis::{RedisSettings, RedisStorage};

use crate::storage::support::{DELIVERY_LIMIT, Redis, ReplicaView, append, block_on, record};

const SESSIONS: usize = 4;
/// The number of histories; `REFERENCE_CASES` overrides it.
const CASES: usize = 60;

/// Queues reach their limit in bytes before and after their limit in messages, because some messages are long.
fn bounds() -> Retention {
    Retention {
        queue_bytes_max: 9_000,
        ..Retention::default()
    }
}

/// Sessions and messages are named by index, modulo their count.
#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Remove(usize),
    Claim(usize),
    /// The owner of the claim starts push. The reference store pushes nothing and is asked instead.
    StartPush(usize),
    Send {
        to: usize,
        priority: usize,
        key: Option<u8>,
        watched: bool,
    },
    Broadcast {
        to: Vec<usize>,
        priority: usize,
    },
    /// One message to each of these sessions in one batch; `true`: tracked.
    SendMany(Vec<(usize, bool)>),
    /// Reserves an idempotency key of the sender for one of two other projects.
    Reserve {
        key: u8,
        elsewhere: bool,
    },
    KeepOutcome {
        key: u8,
        message: usize,
    },
    FreeKey(u8),
    Lease {
        session: usize,
        claimed: bool,
        limit: usize,
        bytes: usize,
    },
    Acknowledge(usize, Vec<usize>, Option<OutcomeKind>),
    /// The messages for the session among `len` consecutive ones.
    AcknowledgeRow {
        session: usize,
        from: usize,
        len: usize,
    },
    AcknowledgeUpTo(usize, usize),
    Release(usize, Vec<usize>, bool),
    ReleaseClaimed(usize),
    Redrive {
        messages: Vec<usize>,
        to: Option<usize>,
    },
    Status(usize),
    Depth(usize),
    Usage,
    DeadLetters,
}

fn step() -> impl Strategy<Value = Step> {
    let session = || 0..SESSIONS;
    let message = || 0..60_usize;
    let messages = || prop::collection::vec(0..60_usize, 0..6);
    prop_oneof![
        1 => session().prop_map(Step::Put),
        1 => session().prop_map(Step::Remove),
        2 => session().prop_map(Step::Claim),
        3 => session().prop_map(Step::StartPush),
        8 => (session(), 0..4_usize, prop::option::weighted(0.2, 0..4_u8), any::<bool>())
            .prop_map(|(to, priority, key, watched)| Step::Send { to, priority, key, watched }),
        3 => (prop::collection::vec(session(), 1..SESSIONS), 0..4_usize)
            .prop_map(|(to, priority)| Step::Broadcast { to, priority }),
        2 => (0..4_u8, any::<bool>()).prop_map(|(key, elsewhere)| Step::Reserve { key, elsewhere }),
        1 => (0..4_u8, message()).prop_map(|(key, message)| Step::KeepOutcome { key, message }),
        1 => (0..4_u8).prop_map(Step::FreeKey),
        4 => prop::collection::vec((session(), prop::bool::weighted(0.9)), 1..30).prop_map(Step::SendMany),
        4 => (session(), message(), 1..40_usize)
            .prop_map(|(session, from, len)| Step::AcknowledgeRow { session, from, len }),
        6 => (session(), any::<bool>(), prop_oneof![0..5_usize, 5..60_usize], prop_oneof![Just(usize::MAX), 1..2000_usize])
            .prop_map(|(session, claimed, limit, bytes)| Step::Lease { session, claimed, limit, bytes }),
        5 => (session(), messages(), prop::option::of(prop::sample::select(&OutcomeKind::ALL[..])))
            .prop_map(|(session, messages, outcome)| Step::Acknowledge(session, messages, outcome)),
        2 => (session(), message()).prop_map(|(session, message)| Step::AcknowledgeUpTo(session, message)),
        3 => (session(), messages(), any::<bool>())
            .prop_map(|(session, messages, counts)| Step::Release(session, messages, counts)),
        1 => session().prop_map(Step::ReleaseClaimed),
        2 => (messages(), prop::option::of(session())).prop_map(|(messages, to)| Step::Redrive { messages, to }),
        2 => message().prop_map(Step::Status),
        1 => session().prop_map(Step::Depth),
        3 => Just(Step::Usage),
        1 => Just(Step::DeadLetters),
    ]
}

/// Ends a round before a session acknowledges what it has leased in the round: a lease whose messages are read beside the
/// function answers without those that are acknowledged meanwhile. A start of push is a round: it takes two operations.
fn split_after_leases(rounds: Vec<Vec<Step>>) -> Vec<Vec<Step>> {
    let mut split = Vec::new();
    for round in rounds {
        let mut part = Vec::new();
        for step in round {
            let has_leased = |of: usize| {
                let of_session = |step: &Step| matches!(step, Step::Lease { session, .. } if *session == of);
                part.iter().any(of_session)
            };
            let ends_part = match &step {
                Step::Acknowledge(session, ..)
                | Step::AcknowledgeRow { session, .. }
                | Step::AcknowledgeUpTo(session, _)
                | Step::Remove(session) => has_leased(*session),
                Step::StartPush(_) => true,
                _ => false,
            };
            if ends_part || matches!(part.last(), Some(Step::StartPush(_))) {
                split.push(std::mem::take(&mut part));
            }
            part.push(step);
        }
        split.push(part);
    }
    split
}

/// The sessions, claims and messages that the steps refer to.
struct World {
    view: ReplicaView,
    records: Vec<SessionRecord>,
    claims: Vec<Claim>,
    sent: Vec<Arc<Message>>,
}

/// An answer as text, so that answers of all kinds can be compared.
type Answer = std::pin::Pin<Box<dyn Future<Output = String>>>;

fn answer_as<T: 'static>(op: Op<T>, show: impl FnOnce(T) -> String + 'static) -> Answer {
    Box::pin(async move { show(op.await.unwrap()) })
}

fn answer_as_debug<T: std::fmt::Debug + 'static>(op: Op<T>) -> Answer {
    answer_as(op, |answer| format!("{answer:?}"))
}

/// Hides the queue length in the first answers of idempotency keys: Redis counts after it has pushed the message, and the
/// reference store keeps the answer before its message is leased in place of the push.
fn show_appended(mut answers: Vec<Appended>) -> String {
    for answer in &mut answers {
        if let Appended::Duplicate(first) = answer {
            first.queue_len = 0;
        }
    }
    format!("{answers:?}")
}

/// Hides the queue length as [`show_appended`] does.
fn show_reservation(mut answer: KeyReservation) -> String {
    if let KeyReservation::Completed(first) = &mut answer {
        first.queue_len = 0;
    }
    format!("{answer:?}")
}

impl World {
    fn id(&self, session: usize) -> SessionId {
        self.records[session].id
    }

    fn message(&self, place: usize) -> Option<&Arc<Message>> {
        self.sent.get(place.checked_rem(self.sent.len())?)
    }

    fn messages(&self, places: &[usize]) -> Vec<MessageId> {
        let mut ids: Vec<_> = places.iter().filter_map(|at| Some(self.message(*at)?.id)).collect();
        let mut seen = HashSet::new();
        ids.retain(|id| seen.insert(*id));
        ids
    }

    /// Creates the messages of a step once, for both stores.
    fn prepare(&mut self, step: &Step) -> Vec<Append> {
        let mut batch = self.batch(step);
        for append in &mut batch {
            append.queue_capacity = 20;
            self.sent.push(Arc::clone(&append.message));
        }
        batch
    }

    fn batch(&self, step: &Step) -> Vec<Append> {
        let headers = |priority: usize| Headers {
            priority: Priority::ALL[priority],
            correlation_id: (priority == 0).then(|| "long".repeat(500)),
            ..Headers::default()
        };
        match step {
            Step::Send {
                to,
                priority,
                watched,
                key,
            } => {
                let to = self.id(*to);
                let message = self.view.message(Some(to), &headers(*priority), *watched);
                let mut append = append(message, Audience::One(to));
                append.idempotency_key = key.map(|key| key.to_string());
                vec![append]
            }
            Step::SendMany(to) => {
                let send = |(to, plain): &(usize, bool)| {
                    let to = self.id(*to);
                    append(self.view.message(Some(to), &headers(1), !plain), Audience::One(to))
                };
                to.iter().map(send).collect()
            }
            Step::Broadcast { to, priority } => {
                let mut to: Vec<_> = to.iter().map(|at| self.id(*at)).collect();
                to.sort_unstable();
                to.dedup();
                let message = self.view.message(None, &headers(*priority), false);
                vec![append(message, Audience::Many(to.into()))]
            }
            _ => Vec::new(),
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
    fn run(&self, store: &dyn Store, step: &Step, prepared: &[Append]) -> Answer {
        let now = now();
        match step {
            Step::Put(at) => answer_as_debug(store.put_session(self.records[*at].clone(), PutSession::default())),
            Step::Remove(at) => {
                answer_as_debug(store.remove_session(self.id(*at), DeadLetterReason::RecipientGone, None, now))
            }
            Step::StartPush(at) => {
                let takes = PrefetchLimit {
                    messages: usize::MAX,
                    bytes: usize::MAX,
                    auto_ack: *at > 0,
                };
                let (store, session, claim) = (Arc::clone(&self.view.store), self.id(*at), self.claims[*at]);
                Box::pin(async move {
                    // The owner has received all that was leased so far.
                    let leased = store.lease(session, Some(claim), 0, 0, now).await.unwrap();
                    let op = store
                        .push()
                        .unwrap()
                        .start_push(session, claim, takes, leased.lease_numbers.end);
                    op.await.unwrap();
                    String::new()
                })
            }
            Step::Claim(at) => {
                answer_as_debug(store.claim_session(self.id(*at), self.claims[*at], DELIVERY_LIMIT, now))
            }
            Step::Send { .. } | Step::SendMany(_) | Step::Broadcast { .. } => {
                answer_as(store.append(prepared.to_vec(), now), show_appended)
            }
            Step::Reserve { key, elsewhere } => {
                let target = ProjectId::parse(if *elsewhere { "elsewhere" } else { "there" }).unwrap();
                let op = store.reserve_key(self.view.sender.id, key.to_string(), target, now);
                answer_as(op, show_reservation)
            }
            Step::KeepOutcome { key, message } => match self.message(*message) {
                Some(message) => {
                    let outcome = SendResult::accepted(message.id, 1, 1, Vec::new());
                    answer_as_debug(store.complete_reservation(self.view.sender.id, key.to_string(), outcome))
                }
                None => Box::pin(std::future::ready(String::new())),
            },
            Step::FreeKey(key) => answer_as_debug(store.cancel_reservation(self.view.sender.id, key.to_string())),
            Step::Lease {
                session,
                claimed,
                limit,
                bytes,
            } => {
                let claim = claimed.then_some(self.claims[*session]);
                answer_as(store.lease(self.id(*session), claim, *limit, *bytes, now), |leased| {
                    let deliveries = leased.deliveries.iter().map(|delivery| {
                        let mut text = Vec::new();
                        delivery.message.write(&mut text, delivery.count);
                        String::from_utf8(text).unwrap()
                    });
                    format!(
                        "{:?} {} {:?} {:?}",
                        leased.depth,
                        leased.superseded,
                        leased.blocked_bytes,
                        deliveries.collect::<Vec<_>>()
                    )
                })
            }
            Step::Acknowledge(session, messages, outcome) => {
                let (ids, note) = (self.messages(messages), "a note! with 2 marks!");
                let concluded = |outcome: OutcomeKind| Acknowledge::Concluded(ids.clone(), Outcome::new(outcome, note));
                self.acknowledge(
                    store,
                    *session,
                    outcome.map_or(Acknowledge::Ids(ids.clone()), concluded),
                )
            }
            Step::AcknowledgeRow { session, from, len } => {
                let places: Vec<_> = (*from..from + len).collect();
                let mut ids = self.messages(&places);
                let of_session = |message: &&Arc<Message>| message.recipient == Some(self.id(*session));
                let own: Vec<_> = self.sent.iter().filter(of_session).map(|message| message.id).collect();
                ids.retain(|id| own.contains(id));
                self.acknowledge(store, *session, Acknowledge::Ids(ids))
            }
            Step::AcknowledgeUpTo(session, message) => match self.message(*message) {
                Some(message) => self.acknowledge(store, *session, Acknowledge::UpTo(message.id)),
                None => Box::pin(std::future::ready(String::new())),
            },
            Step::Release(session, messages, counts) => {
                let which = [Release::Undelivered, Release::Ids][usize::from(*counts)](self.messages(messages));
                answer_as_debug(store.release(self.id(*session), which, DELIVERY_LIMIT, now))
            }
            Step::ReleaseClaimed(at) => {
                let which = Release::Claimed(self.claims[*at]);
                answer_as_debug(store.release(self.id(*at), which, DELIVERY_LIMIT, now))
            }
            Step::Redrive { messages, to } => {
                let to = to.map(|at| self.id(at));
                answer_as_debug(store.redrive(self.messages(messages), to, 20, now))
            }
            Step::Status(at) => match self.message(*at) {
                Some(message) => answer_as(store.message_status(message.id, now), |known| {
                    let mut known: Vec<_> = known.into_iter().flatten().collect();
                    known.sort_by_key(|entry| entry.session);
                    let known = known.iter().map(|entry| (entry.session, entry.status, &entry.outcome));
                    format!("{:?}", known.collect::<Vec<_>>())
                }),
                None => Box::pin(std::future::ready(String::new())),
            },
            Step::Depth(at) => answer_as_debug(store.depth(self.id(*at))),
            // The memory for a key differs between the stores.
            Step::Usage => answer_as(store.usage(), |usage| {
                let idempotency_keys = 0;
                format!(
                    "{:?}",
                    Usage {
                        idempotency_keys,
                        ..usage
                    }
                )
            }),
            Step::DeadLetters => {
                let query = DeadLetterQuery {
                    limit: 100,
                    ..DeadLetterQuery::default()
                };
                answer_as(store.dead_letters(query), |found| {
                    let letters = found.dead_letters.iter().map(|letter| {
                        let id = letter.message.id;
                        (
                            id,
                            letter.message.recipient,
                            letter.recipient,
                            letter.reason,
                            letter.deliveries,
                        )
                    });
                    format!("{:?}", letters.collect::<Vec<_>>())
                })
            }
        }
    }

    fn acknowledge(&self, store: &dyn Store, session: usize, which: Acknowledge) -> Answer {
        answer_as(store.acknowledge(self.id(session), which, now()), |done| {
            let mut watched: Vec<_> = done.tracked.iter().map(|message| message.id).collect();
            watched.sort_unstable();
            let (count, dead) = (done.acknowledged, done.dead);
            format!("{count} {dead} {:?} {watched:?} {:?}", done.unknown, done.depth)
        })
    }
}

/// The memory store, which pushes nothing, and the sessions that would receive pushed messages.
struct ReferenceStore {
    memory: Arc<dyn Store>,
    claimed: HashSet<SessionId>,
    pushed: HashMap<SessionId, Claim>,
}

impl ReferenceStore {
    async fn ask(&mut self, world: &World, step: &Step, prepared: &[Append]) -> String {
        match step {
            Step::StartPush(at) => {
                if self.claimed.contains(&world.id(*at)) {
                    self.pushed.insert(world.id(*at), world.claims[*at]);
                }
                return String::new();
            }
            Step::Send { .. } | Step::SendMany(_) | Step::Broadcast { .. } => {
                let mut answers = Vec::new();
                for append in prepared {
                    answers.push(self.append(append).await);
                }
                return show_appended(answers);
            }
            Step::Claim(at) | Step::ReleaseClaimed(at) | Step::Remove(at) if self.claimed.contains(&world.id(*at)) => {
                self.pushed.remove(&world.id(*at));
            }
            _ => {}
        }
        let answer = world.run(&*self.memory, step, prepared).await;
        match step {
            Step::Claim(at) if answer.contains("epoch: 0") => {}
            Step::Claim(at) => drop(self.claimed.insert(world.id(*at))),
            Step::Remove(at) => drop(self.claimed.remove(&world.id(*at))),
            _ => {}
        }
        answer
    }

    async fn waiting(&self, session: SessionId) -> usize {
        self.memory.depth(session).await.unwrap().waiting
    }

    /// Appends a message, and leases it where Redis would push it.
    async fn append(&self, append: &Append) -> Appended {
        let mut takes = Vec::new();
        for session in append.audience.ids() {
            let is_taken = !append.message.is_tracked() && self.waiting(*session).await == 0;
            takes.extend(
                self.pushed
                    .get(session)
                    .filter(|_| is_taken)
                    .map(|claim| (*session, *claim)),
            );
        }
        let answer = self.memory.append(vec![append.clone()], now()).await.unwrap().remove(0);
        let Appended::Accepted { refused, refusal, .. } = answer else {
            return answer;
        };
        let accepted = |session: &SessionId| !refused.contains(session);
        for (session, claim) in takes.iter().filter(|(session, _)| accepted(session)) {
            let leased = self
                .memory
                .lease(*session, Some(*claim), 1, usize::MAX, now())
                .await
                .unwrap();
            assert_eq!(leased.deliveries[0].message.id, append.message.id);
        }
        let mut queue_len = 0;
        for session in append.audience.ids().iter().filter(|session| accepted(session)) {
            queue_len = queue_len.max(self.waiting(*session).await);
        }
        Appended::Accepted {
            queue_len,
            refused,
            refusal,
        }
    }
}

async fn compare(storage: &dyn Storage, redis: &Redis, rounds: Vec<Vec<Step>>) {
    let project = format!("p-{}", uuid::Uuid::new_v4().simple());
    let memory = MemoryStorage::new(bounds());
    let mut reference = ReferenceStore {
        memory: memory.open(&ProjectId::parse(&project).unwrap()),
        claimed: HashSet::new(),
        pushed: HashMap::new(),
    };
    let mut world = World {
        view: ReplicaView::of(storage, &project),
        records: (0..SESSIONS).map(|_| record(None)).collect(),
        claims: (0..SESSIONS).map(|_| Claim::generate()).collect(),
        sent: Vec::new(),
    };
    for at in 0..SESSIONS {
        for store in [&reference.memory, &world.view.store] {
            world.run(&**store, &Step::Put(at), &[]).await;
        }
    }
    for round in rounds {
        // The operations of one round run concurrently and still take effect in order.
        let prepared: Vec<_> = round.iter().map(|step| (step, world.prepare(step))).collect();
        let mut expected = Vec::new();
        for (step, batch) in &prepared {
            expected.push(reference.ask(&world, step, batch).await);
        }
        let asked = prepared
            .iter()
            .map(|(step, batch)| world.run(&*world.view.store, step, batch));
        let found = join_all(asked.collect::<Vec<_>>()).await;
        for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
            assert_eq!(found, expected, "{:?} of {round:?}", round[at]);
        }
    }
    assert_same_events(&*world.view.store, &*reference.memory).await;
    let reason = DeadLetterReason::RecipientGone;
    for record in &world.records {
        world
            .view
            .store
            .remove_session(record.id, reason, None, now())
            .await
            .unwrap();
    }
    assert_no_keys_left(redis, &project);
}

/// Asserts that both logs have the same events. Those of messages that Redis pushed to no connection are in the
/// reference log alone.
async fn assert_same_events(store: &dyn Store, reference: &dyn Store) {
    let query = EventQuery {
        from: EventStart::Oldest,
        direction: Direction::Forward,
        kinds: EventKinds::MESSAGES,
        scan_max: 100_000,
        bytes_max: 64 << 20,
    };
    let read = async |store: &dyn Store| {
        let page = store.events(query).await.unwrap();
        assert!(!page.gap && !page.more);
        let is_delivery = |event: &ProjectEvent| matches!(event, ProjectEvent::Delivered { .. });
        let events = page.events.into_iter().map(|logged| logged.event);
        let (deliveries, others): (Vec<_>, Vec<_>) = events.partition(is_delivery);
        let texts = |events: Vec<ProjectEvent>| events.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>();
        let mut others = texts(others);
        others.sort_unstable();
        (texts(deliveries), others)
    };
    let (deliveries, others) = read(store).await;
    let (reference_deliveries, reference_others) = read(reference).await;
    assert_eq!(others, reference_others);
    for delivery in deliveries {
        assert!(reference_deliveries.contains(&delivery), "{delivery}");
    }
}

/// Asserts that a project without sessions has only dead letters, their messages, receipts, results and counters.
fn assert_no_keys_left(redis: &Redis, project: &str) {
    let keys = redis.command(&["KEYS", &format!("{{{project}}}:*")]);
    let of_sessions = "inbox leases sessions heartbeats leaves expiries expired_in segments";
    // Those are of receipts.
    for key in keys.lines().filter(|key| !key.contains(":segments:settled:")) {
        let kind = key.split(':').nth(1).unwrap();
        assert!(!of_sessions.split(' ').any(|of_session| of_session == kind), "{keys}");
    }
    let len = |command: &str, key: &str| redis.command(&[command, &format!("{{{project}}}:{key}")]);
    assert_eq!(len("ZCARD", "dead_letters"), len("HLEN", "dead_letters:info"));
    assert_eq!(len("ZCARD", "dead_letters"), len("ZCARD", "dead_letters:by_age"));
}

#[test]
fn redis_gives_the_same_answers_as_the_memory_store() {
    let redis = Redis::start();
    block_on(async {
        let settings = RedisSettings {
            retention: bounds(),
            ..RedisSettings::new(redis.url())
        };
        let storage = RedisStorage::connect(settings).await.unwrap();
        let mut runner = TestRunner::new(ProptestConfig::default());
        let rounds = prop::collection::vec(prop::collection::vec(step(), 1..8), 1..30);
        let cases = std::env::var("REFERENCE_CASES").map_or(CASES, |cases| cases.parse().unwrap());
        for _ in 0..cases {
            let tree = rounds.new_tree(&mut runner).unwrap();
            compare(&storage, &redis, split_after_leases(tree.current())).await;
        }
    });
}
