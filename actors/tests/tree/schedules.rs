//! Three replicas under faults that a seed decides: cut off, deaf, killed and begun anew, while agents fight for names
//! and send to each other. What was accepted arrives; a session is in one hand; and the same seed does the same.
//!
//! `SCHEDULES` says how many seeds there are (50), `SCHEDULE_SEED` which one alone is run.

use std::{
    cell::{Cell, RefCell},
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use actix_rt::task::JoinHandle;
use actors::{
    model::SessionId,
    session::{AckMode, Closing, Connection, Written},
    storage::Acknowledge,
};
use futures_util::future::{Either, select};
use tokio::sync::watch;

use crate::{
    ledger::Ledger,
    twins::{Cluster, Replica, Twin},
    world::{Line, MANUAL, Threads, World, ids, run, settings, soon},
};

const REPLICAS: usize = 3;
const NAMES: [&str; 3] = ["ann", "ben", "cat"];
const EVENTS: usize = 40;

/// The dice of one seed (`SplitMix64`).
struct Dice(AtomicU64);

impl Dice {
    fn below(&self, end: u64) -> u64 {
        let mut z = self
            .0
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn at(&self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }
}

/// One run of a replica.
#[derive(Clone)]
struct Running {
    world: World,
    twin: Arc<Twin>,
    /// False when its process was killed: its connections are gone with it.
    alive: watch::Receiver<bool>,
    kill: Rc<watch::Sender<bool>>,
}

struct Replicas {
    cluster: Arc<Cluster>,
    running: RefCell<Vec<Running>>,
    dice: Dice,
    ledger: Arc<Ledger>,
    over: Cell<bool>,
}

impl Replicas {
    async fn start(seed: u64) -> Rc<Self> {
        let replicas = Rc::new(Self {
            cluster: Arc::default(),
            running: RefCell::default(),
            dice: Dice(AtomicU64::new(seed)),
            ledger: Ledger::new(),
            over: Cell::new(false),
        });
        for _ in 0..REPLICAS {
            let running = replicas.begin().await;
            replicas.running.borrow_mut().push(running);
        }
        let first = replicas.running.borrow()[0].clone();
        first.world.register_protocol(crate::world::CHAT).await.unwrap();
        for name in NAMES {
            first.world.register(name, None).await;
        }
        replicas
    }

    async fn begin(&self) -> Running {
        let twin = self.cluster.twin();
        let storage = Arc::new(Replica(Arc::clone(&twin)));
        let (kill, alive) = watch::channel(true);
        Running {
            world: World::beside(storage, settings(), Threads::One).await,
            twin,
            alive,
            kill: Rc::new(kill),
        }
    }

    fn any(&self) -> Running {
        let running = self.running.borrow();
        running[self.dice.at(running.len())].clone()
    }

    async fn fault(&self) {
        let at = self.dice.at(REPLICAS);
        let struck = self.running.borrow()[at].clone();
        match self.dice.below(6) {
            0 => struck.twin.cut(),
            1 => struck.twin.heal(),
            2 => struck.twin.ears.lose_one_in(2 + self.dice.at(6)),
            3 => struck.twin.ears.lose_one_in(0),
            4 => {
                struck.twin.cut();
                struck.kill.send_replace(false);
                let next = self.begin().await;
                self.running.borrow_mut()[at] = next;
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(self.dice.below(8))).await;
    }

    /// Everything works from now on.
    fn heal(&self) {
        for running in &*self.running.borrow() {
            running.twin.ears.lose_one_in(0);
            running.twin.heal();
        }
    }
}

/// Fights for a name until all is over: registers somewhere, takes what comes, and comes back when it is thrown out.
/// Returns the connection that it had at the end.
async fn contend(replicas: Rc<Replicas>, name: &'static str, ack: AckMode) -> Option<(Arc<Line>, bool)> {
    while !replicas.over.get() {
        let running = replicas.any();
        let line = Line::new();
        let push = actors::session::Push { ack, ..MANUAL };
        if let Ok(registered) = running.world.try_register(name, Some(&line)).await {
            let member = registered.member;
            running.world.subscribe(&member, &line, Some(push));
            let mut alive = running.alive.clone();
            loop {
                let news = pin!(line.until("work", |seen| !seen.pushed.is_empty() || !seen.closed.is_empty()));
                let (killed, over) = (pin!(alive.wait_for(|alive| !*alive)), pin!(over(&replicas)));
                if let Either::Right(_) = select(news, select(killed, over)).await {
                    break;
                }
                let messages = ids(&line.take_pushed());
                for &message in &messages {
                    replicas.ledger.seen(member.record.id, message);
                }
                match ack {
                    AckMode::Manual => running
                        .world
                        .project
                        .acknowledge_unheard(&member, Acknowledge::Ids(messages)),
                    AckMode::Auto => {
                        let connection = line.id();
                        running.world.project.written(&member, Written { connection, messages });
                    }
                }
                if !line.closed().is_empty() {
                    break;
                }
            }
            if replicas.over.get() {
                return Some((line, *running.alive.borrow()));
            }
        }
        tokio::time::sleep(Duration::from_millis(1 + replicas.dice.below(10))).await;
    }
    None
}

async fn over(replicas: &Replicas) {
    while !replicas.over.get() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn send_on(replicas: Rc<Replicas>, number: usize, meant: Vec<(&'static str, SessionId)>) {
    while !replicas.over.get() {
        let running = replicas.any();
        let sender = running.world.try_register(&format!("sender-{number}"), None).await;
        let submissions = sender.map(|sender| {
            let (name, id) = meant[replicas.dice.at(meant.len())];
            let direct = running.world.submission(&sender.member, name).map(|it| (it, vec![id]));
            let broadcast = running.world.broadcast(&sender.member);
            let everyone = meant.iter().map(|(_, id)| *id).collect();
            direct
                .into_iter()
                .chain(broadcast.map(|it| (it, everyone)))
                .collect::<Vec<_>>()
        });
        let (submissions, meant): (Vec<_>, Vec<Vec<SessionId>>) = submissions.into_iter().flatten().unzip();
        let answers = running.world.submit(submissions).await.unwrap_or_default();
        for (answer, meant) in answers.into_iter().zip(meant) {
            let Ok(routed) = answer else { continue };
            let outcome = &routed.outcome;
            for id in meant.into_iter().filter(|id| !outcome.refused.contains(id)) {
                replicas.ledger.accepted(id, outcome.message);
            }
        }
        tokio::time::sleep(Duration::from_millis(replicas.dice.below(4))).await;
    }
}

async fn schedule(seed: u64) {
    let replicas = Replicas::start(seed).await;
    let world = replicas.running.borrow()[0].world.clone();
    let meant: Vec<_> = NAMES
        .iter()
        .map(|name| (*name, world.project.resolve(name).unwrap().record.id))
        .collect();
    let mut contenders: Vec<(&str, JoinHandle<_>)> = Vec::new();
    for (at, name) in NAMES.into_iter().enumerate() {
        let ack = if at == 0 { AckMode::Auto } else { AckMode::Manual };
        for _ in 0..2 {
            contenders.push((name, actix_rt::spawn(contend(Rc::clone(&replicas), name, ack))));
        }
    }
    let senders: Vec<_> = (0..2)
        .map(|number| actix_rt::spawn(send_on(Rc::clone(&replicas), number, meant.clone())))
        .collect();
    for _ in 0..EVENTS {
        replicas.fault().await;
    }
    replicas.heal();
    replicas.over.set(true);
    for sender in senders {
        soon("the end of a sender", sender).await.unwrap();
    }
    let mut lines: Vec<(&str, Arc<Line>)> = Vec::new();
    for (name, contender) in contenders {
        let left = soon("the end of a contender", contender).await.unwrap();
        lines.extend(left.filter(|(_, alive)| *alive).map(|(line, _)| (name, line)));
    }
    // Whoever comes last has the session, and all that anybody has not acknowledged.
    let last = replicas.any();
    last.world.project.catch_up().await.unwrap();
    for (name, id) in &meant {
        let line = Line::new();
        let member = soon("the last registers", async {
            loop {
                match last.world.try_register(name, Some(&line)).await {
                    Ok(registered) => return registered.member,
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        })
        .await;
        assert_eq!(member.record.id, *id, "{name} is who it was");
        last.world.subscribe(&member, &line, Some(MANUAL));
        let (project, ledger, id) = (last.world.project.clone(), Arc::clone(&replicas.ledger), *id);
        actix_rt::spawn(async move {
            loop {
                line.until("work", |seen| !seen.pushed.is_empty()).await;
                let messages = ids(&line.take_pushed());
                for &message in &messages {
                    ledger.seen(id, message);
                }
                project.acknowledge_unheard(&member, Acknowledge::Ids(messages));
            }
        });
    }
    for (name, line) in &lines {
        line.until("it is taken over", |seen| !seen.closed.is_empty()).await;
        let closed = line.closed();
        assert_eq!(closed.len(), 1, "{name}: {closed:?}");
        assert!(matches!(closed[0], Closing::TakenOver | Closing::Failed), "{closed:?}");
    }
    replicas.ledger.is_settled().await;
    assert_eq!(replicas.ledger.open(), []);
}

#[test]
fn what_was_accepted_arrives_whatever_happens_to_the_replicas() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("SCHEDULE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SCHEDULES").unwrap_or(50),
    };
    for seed in seeds {
        println!("SCHEDULE_SEED={seed}");
        run(move || schedule(seed));
    }
}
