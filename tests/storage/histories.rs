//! Random histories of several replicas during faults of Redis and of the connections to it, checked against the
//! promises of the store.
//!
//! `HISTORIES` is the number of histories (50); `HISTORY_SEED` runs one seed alone. A seed decides the operations and
//! the faults; their interleaving depends on the machine.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    env,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use actors::{
    clock::now,
    model::{Addressing, DeliveryStatus, Headers, MessageId, MessageIds, NewMessage, SessionId},
    storage::{Acknowledge, Append, Appended, Audience, Claim, PrefetchLimit, Release},
};
use tokio::task::{LocalSet, spawn_local};

use crate::storage::support::{Proxy, Redis, ReplicaView, block_on, connect, eventually, record};

const REPLICAS: usize = 3;
const SESSIONS: usize = 2;
const WRITERS: usize = 3;
/// Messages of each writer.
const MESSAGES: usize = 25;
const FAULTS: usize = 4;
/// No message reaches its delivery limit in a history.
const DELIVERIES_MAX: u32 = 100_000;

/// `SplitMix64` (Steele, Lea, Flood 2014).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn pick_one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len() as u64) as usize]
    }
}

/// The start and the end of a call, on a logical clock that all tasks share.
#[derive(Clone, Copy, Debug)]
struct CallTime {
    began: u64,
    ended: u64,
}

impl CallTime {
    fn is_before(&self, other: &Self) -> bool {
        self.ended < other.began
    }
}

#[derive(Debug)]
struct Claimed {
    session: SessionId,
    span: CallTime,
    /// None if it is unknown whether the claim took effect.
    epoch: Option<u64>,
}

#[derive(Debug)]
struct Leased {
    session: SessionId,
    span: CallTime,
    epoch: u64,
    superseded: bool,
    /// With their delivery counts.
    messages: Vec<(MessageId, u32)>,
}

#[derive(Debug)]
struct Acknowledged {
    session: SessionId,
    span: CallTime,
    message: MessageId,
}

#[derive(Default)]
struct History {
    time: AtomicU64,
    /// Messages that a writer tried to send, by recipient.
    attempted: Mutex<BTreeSet<(MessageId, SessionId)>>,
    accepted: Mutex<BTreeSet<(MessageId, SessionId)>>,
    claims: Mutex<Vec<Claimed>>,
    leases: Mutex<Vec<Leased>>,
    acknowledgements: Mutex<Vec<Acknowledged>>,
    failures: AtomicUsize,
}

impl History {
    async fn timed<T>(&self, what: impl Future<Output = T>) -> (T, CallTime) {
        let began = self.time.fetch_add(1, Ordering::SeqCst);
        let result = what.await;
        let ended = self.time.fetch_add(1, Ordering::SeqCst);
        (result, CallTime { began, ended })
    }

    fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::SeqCst);
    }

    /// A claim writes and a lease reads one register: the claim in force. Epochs order the writes. They are
    /// linearizable if that order agrees with real time and with each read.
    fn claims_are_linearizable(&self) {
        let claims = self.claims.lock().unwrap();
        let leases = self.leases.lock().unwrap();
        let known = || claims.iter().filter_map(|claim| Some((claim, claim.epoch?)));
        let mut seen = BTreeSet::new();
        for (claim, epoch) in known() {
            assert!(seen.insert((claim.session, epoch)), "two claims of epoch {epoch}");
            for (later, newer) in known().filter(|(later, _)| later.session == claim.session) {
                assert!(
                    !claim.span.is_before(&later.span) || epoch < newer,
                    "{claim:?} {later:?}"
                );
            }
        }
        for lease in leases.iter() {
            let others = || known().filter(|(claim, _)| claim.session == lease.session);
            if lease.superseded {
                assert!(lease.messages.is_empty(), "{lease:?}");
                let is_newer = |claim: &&Claimed| {
                    claim.session == lease.session
                        && claim.epoch.is_none_or(|epoch| epoch > lease.epoch)
                        && !lease.span.is_before(&claim.span)
                };
                assert!(
                    claims.iter().any(|claim| is_newer(&claim)),
                    "superseded without a later claim: {lease:?}"
                );
            } else {
                let newer = others().find(|(claim, epoch)| *epoch > lease.epoch && claim.span.is_before(&lease.span));
                assert!(newer.is_none(), "{lease:?} in spite of {newer:?}");
            }
        }
    }

    fn nothing_is_lost_or_made_up(&self) {
        let tried = self.attempted.lock().unwrap();
        let leases = self.leases.lock().unwrap();
        let mut delivered = BTreeSet::new();
        let mut counts = BTreeSet::new();
        for lease in leases.iter() {
            for (message, count) in &lease.messages {
                assert!(
                    tried.contains(&(*message, lease.session)),
                    "delivered and never sent: {message}"
                );
                assert!(
                    counts.insert((*message, lease.session, *count)),
                    "{message} has two deliveries number {count}"
                );
                delivered.insert((*message, lease.session));
            }
        }
        let accepted = self.accepted.lock().unwrap();
        let lost: Vec<_> = accepted.difference(&delivered).collect();
        assert!(lost.is_empty(), "accepted and never delivered: {lost:?}");
        for acknowledged in self.acknowledgements.lock().unwrap().iter() {
            let again = leases.iter().find(|lease| {
                lease.session == acknowledged.session
                    && acknowledged.span.is_before(&lease.span)
                    && lease
                        .messages
                        .iter()
                        .any(|(message, _)| *message == acknowledged.message)
            });
            assert!(again.is_none(), "{again:?} after {acknowledged:?}");
        }
    }
}

/// One replica, and its proxy to Redis.
struct Replica {
    proxy: Proxy,
    view: ReplicaView,
}

async fn replica(server: SocketAddr, project: &str) -> Replica {
    let proxy = Proxy::to(server);
    let storage = connect(format!("redis://{}", proxy.address)).await.unwrap();
    Replica {
        proxy,
        view: ReplicaView::of(&storage, project),
    }
}

/// Sends messages one after the other, each until it is accepted.
async fn write_all(history: Arc<History>, replicas: Rc<Vec<Replica>>, sessions: Vec<SessionId>, mut dice: Dice) {
    let (writer, ids) = (record(None), MessageIds::default());
    for number in 0..MESSAGES {
        // Some messages are broadcasts.
        let to = match dice.roll(4) {
            0 => None,
            _ => Some(*dice.pick_one(&sessions)),
        };
        let audience = to.map_or_else(|| Audience::Many(Arc::from(&sessions[..])), Audience::One);
        let project = &replicas[0].view.project;
        let kind = to.map_or(Addressing::Broadcast, |_| Addressing::Direct);
        let draft = NewMessage::new(project, &writer, kind, ("chat", "1.0.0"), "{}", &Headers::default());
        let message = draft.seal(ids.next(now()), to, now(), false);
        let sent = audience.ids().iter().map(|session| (message.id, *session));
        history.attempted.lock().unwrap().extend(sent.clone());
        loop {
            let view = &dice.pick_one(&replicas).view;
            let append = Append {
                message: Arc::clone(&message),
                audience: audience.clone(),
                queue_capacity: 10_000,
                idempotency_key: Some(number.to_string()),
                roster_version: None,
            };
            match view.store.append(vec![append], now()).await.as_deref() {
                Ok([Appended::Accepted { refused, .. }]) => assert!(refused.is_empty()),
                Ok([Appended::Duplicate(outcome)]) => assert_eq!(outcome.message, message.id),
                Ok(other) => panic!("{other:?}"),
                Err(_) => {
                    history.count_failure();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
            }
            history.accepted.lock().unwrap().extend(sent);
            break;
        }
    }
}

/// Claims a session repeatedly and reads from it, until the history is over.
async fn read_until_over(
    history: Arc<History>,
    replicas: Rc<Vec<Replica>>,
    session: SessionId,
    mut dice: Dice,
    is_over: Arc<AtomicBool>,
) {
    while !is_over.load(Ordering::SeqCst) {
        let view = &dice.pick_one(&replicas).view;
        claim_and_read(&history, view, session, &mut dice).await;
    }
}

/// Claims a session and reads from it a few times. Returns true when nothing was left.
#[expect(clippy::too_many_lines, reason = "one step of a history")]
async fn claim_and_read(history: &History, view: &ReplicaView, session: SessionId, dice: &mut Dice) -> bool {
    let claim = Claim::generate();
    let claiming = view.store.claim_session(session, claim, DELIVERIES_MAX, now());
    let (claimed, span) = history.timed(claiming).await;
    let epoch = claimed.map(|claimed| claimed.epoch).ok();
    history.claims.lock().unwrap().push(Claimed { session, span, epoch });
    let Some(epoch) = epoch else {
        history.count_failure();
        tokio::time::sleep(Duration::from_millis(5)).await;
        return false;
    };
    // Some readers use push and notice pushed messages only by reading: all batches are lost.
    let stands_by = dice.roll(2) == 0;
    let (mut next, mut seen) = (0, HashSet::new());
    for _ in 0..=dice.roll(6) {
        let limit = 1 + dice.roll(8) as usize;
        let taking = if stands_by && dice.roll(2) == 0 {
            let takes = PrefetchLimit {
                messages: limit,
                bytes: usize::MAX,
                auto_ack: true,
            };
            view.store.push().unwrap().start_push(session, claim, takes, next)
        } else {
            view.store.lease(session, Some(claim), limit, usize::MAX, now())
        };
        let (leased, span) = history.timed(taking).await;
        let Ok(leased) = leased else {
            history.count_failure();
            return false;
        };
        let mut messages: Vec<_> = leased
            .deliveries
            .iter()
            .map(|one| (one.message.id, one.count))
            .collect();
        messages.retain(|message| seen.insert(*message));
        if leased.lease_numbers.start <= next {
            next = next.max(leased.lease_numbers.end);
        }
        let is_empty = messages.is_empty() && leased.depth.waiting == 0 && leased.depth.leased == 0;
        let ids: Vec<_> = messages.iter().map(|(id, _)| *id).collect();
        history.leases.lock().unwrap().push(Leased {
            session,
            span,
            epoch,
            superseded: leased.superseded,
            messages,
        });
        if leased.superseded {
            return false;
        }
        if is_empty {
            return true;
        }
        match dice.roll(8) {
            0 => {
                // The claim is lost.
                return false;
            }
            1 => {
                let released = view
                    .store
                    .release(session, Release::Claimed(claim), DELIVERIES_MAX, now());
                if released.await.is_err() {
                    history.count_failure();
                }
            }
            _ => {
                let acknowledging = view.store.acknowledge(session, Acknowledge::Ids(ids.clone()), now());
                let (acknowledged, span) = history.timed(acknowledging).await;
                let Ok(acknowledged) = acknowledged else {
                    history.count_failure();
                    continue;
                };
                let known = ids.into_iter().filter(|id| !acknowledged.unknown.contains(id));
                let known = known.map(|message| Acknowledged { session, span, message });
                history.acknowledgements.lock().unwrap().extend(known);
            }
        }
    }
    false
}

/// Injects faults, each for a while.
async fn inject_faults(redis: &Arc<Mutex<Redis>>, replicas: &[Replica], dice: &mut Dice) {
    let pause = Duration::from_millis(dice.roll(60));
    let proxy = &dice.pick_one(replicas).proxy;
    match dice.roll(7) {
        0 | 1 => proxy.cut(),
        2 => proxy.silence(),
        3 => proxy.delay(Duration::from_millis(dice.roll(40))),
        4 => {
            for replica in replicas {
                replica.proxy.cut();
            }
        }
        5 => drop(redis.lock().unwrap().command(&["SCRIPT", "FLUSH"])),
        _ => {
            let redis = Arc::clone(redis);
            let revived = tokio::task::spawn_blocking(move || redis.lock().unwrap().restart());
            revived.await.unwrap();
        }
    }
    tokio::time::sleep(pause).await;
    for replica in replicas {
        replica.proxy.restore();
    }
    tokio::time::sleep(Duration::from_millis(dice.roll(40))).await;
}

/// Runs the history of a seed and returns the number of failed operations.
async fn run_history(redis: &Arc<Mutex<Redis>>, seed: u64) -> usize {
    let mut dice = Dice(seed);
    let project = format!("history-{seed}");
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        let server = redis.lock().unwrap().address;
        replicas.push(replica(server, &project).await);
    }
    let replicas = Rc::new(replicas);
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(replicas[0].view.join().await);
    }
    let history = Arc::new(History::default());
    let is_over = Arc::new(AtomicBool::new(false));
    let mut next = || Dice(dice.roll(u64::MAX));
    let mut readers = Vec::new();
    // Two readers compete for each session.
    for session in sessions.iter().chain(&sessions) {
        let (history, replicas, is_over) = (Arc::clone(&history), Rc::clone(&replicas), Arc::clone(&is_over));
        readers.push(spawn_local(read_until_over(
            history,
            replicas,
            *session,
            next(),
            is_over,
        )));
    }
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let (history, replicas) = (Arc::clone(&history), Rc::clone(&replicas));
        writers.push(spawn_local(write_all(history, replicas, sessions.clone(), next())));
    }
    let mut faults = next();
    for _ in 0..FAULTS {
        inject_faults(redis, &replicas, &mut faults).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }
    let mut last = next();
    for session in &sessions {
        eventually(async || {
            claim_and_read(&history, &replicas[0].view, *session, &mut last)
                .await
                .then_some(())
        })
        .await;
    }
    history.claims_are_linearizable();
    history.nothing_is_lost_or_made_up();
    let accepted = history.accepted.lock().unwrap().clone();
    let messages: BTreeMap<_, usize> = accepted.into_iter().fold(BTreeMap::new(), |mut messages, (id, _)| {
        *messages.entry(id).or_default() += 1;
        messages
    });
    assert_eq!(messages.len(), WRITERS * MESSAGES);
    for (id, recipients) in messages {
        let statuses = replicas[0].view.statuses(id).await;
        assert_eq!(statuses, vec![DeliveryStatus::Acknowledged; recipients], "{id}");
    }
    history.failures.load(Ordering::SeqCst)
}

#[test]
fn claims_are_linearizable_and_accepted_messages_arrive_despite_faults_of_redis() {
    let len: u64 = env::var("HISTORIES").map_or(50, |len| len.parse().unwrap());
    let seeds: Vec<u64> = match env::var("HISTORY_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..len).collect(),
    };
    let redis = Arc::new(Mutex::new(Redis::durable()));
    let mut failures = HashMap::new();
    for seed in seeds {
        println!("HISTORY_SEED={seed}");
        failures.insert(seed, block_on(LocalSet::new().run_until(run_history(&redis, seed))));
    }
    let troubled = failures.values().filter(|count| **count > 0).count();
    println!("{} histories, {troubled} with operations that failed", failures.len());
    assert!(troubled * 2 >= failures.len(), "too few operations were hit by faults");
}
