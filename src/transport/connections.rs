use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use actors::{
    clock::Now,
    model::ProjectId,
    session::{Closing, Connection},
};
use tokio::sync::Notify;

use crate::{auth::Identity, mcp::Outbox};

/// The live connections of the process: so that there are not too many, and that all can be told to go.
#[derive(Default)]
pub struct Connections {
    max: usize,
    /// Most of one project.
    share: AtomicUsize,
    len: AtomicUsize,
    /// All were told to go: nobody is let in any more. Changed while `live` is locked.
    closed: AtomicBool,
    live: Mutex<Live>,
    seats: AtomicU64,
    one_left: Notify,
    /// The earliest end of a credential that one of them came in with, in milliseconds since the Unix epoch.
    next_end_ms: AtomicU64,
    sooner: Notify,
}

#[derive(Default)]
struct Live {
    seated: HashMap<u64, Seated>,
    /// How many there are of each project.
    by_project: HashMap<ProjectId, usize>,
}

struct Seated {
    outbox: Weak<Outbox>,
    identity: Arc<Identity>,
}

impl Connections {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            share: AtomicUsize::new(max),
            next_end_ms: AtomicU64::new(u64::MAX),
            ..Self::default()
        })
    }

    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there would be a place for one more.
    pub fn has_room(&self) -> bool {
        self.len() < self.max && !self.closed.load(Ordering::Relaxed)
    }

    /// A place for one connection; None when all are taken, those of its project, or all were told to go. A project has
    /// no more than twice as many as it may have sessions: each may come back before its old connection is known to be
    /// gone.
    pub fn seat(self: &Arc<Self>, outbox: &Arc<Outbox>, identity: &Arc<Identity>) -> Option<Seat> {
        let of_project_max = identity.project.terms().record.config.max_sessions;
        let share = self.share.load(Ordering::Relaxed);
        self.place(
            outbox,
            identity,
            self.max,
            of_project_max.map_or(share, |max| (2 * max).min(share)),
        )
    }

    /// Among so many projects nobody takes all places: while there are others, no project has more than half.
    pub fn share(&self, projects: usize) {
        let share = if projects > 1 { self.max.div_ceil(2) } else { self.max };
        self.share.store(share, Ordering::Relaxed);
    }

    /// A place for a wait that has begun, whether or not there is one: nobody may stay who would not hear that their
    /// credential has ended. None when all were told to go.
    pub fn seat_begun(self: &Arc<Self>, outbox: &Arc<Outbox>, identity: &Arc<Identity>) -> Option<Seat> {
        self.place(outbox, identity, usize::MAX, usize::MAX)
    }

    fn place(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        identity: &Arc<Identity>,
        max: usize,
        of_project_max: usize,
    ) -> Option<Seat> {
        let len = self.len.fetch_add(1, Ordering::Relaxed);
        let number = self.seats.fetch_add(1, Ordering::Relaxed);
        let mut live = self.live();
        let of_project = live.by_project.get(identity.project.id()).copied().unwrap_or(0);
        if len >= max || of_project >= of_project_max || self.closed.load(Ordering::Relaxed) {
            drop(live);
            self.left();
            return None;
        }
        *live.by_project.entry(identity.project.id().clone()).or_default() += 1;
        let seated = Seated {
            outbox: Arc::downgrade(outbox),
            identity: Arc::clone(identity),
        };
        live.seated.insert(number, seated);
        drop(live);
        let end_ms = identity.principal.standing.good_until_ms();
        if self.next_end_ms.fetch_min(end_ms, Ordering::Relaxed) > end_ms {
            self.sooner.notify_one();
        }
        Some(Seat {
            connections: Arc::clone(self),
            number,
        })
    }

    fn left(&self) {
        self.len.fetch_sub(1, Ordering::Relaxed);
        self.one_left.notify_waiters();
    }

    /// Sends away whoever came in with what is good no more, and has been for so long. Returns when the next of them is
    /// due, in milliseconds since the Unix epoch.
    pub fn close_ended(&self, now: Now, known_for: Duration) -> u64 {
        self.next_end_ms.store(u64::MAX, Ordering::Relaxed);
        let mut next_end_ms = u64::MAX;
        let ended: Vec<_> = {
            let live = self.live();
            let is_ended = |seated: &&Seated| {
                let due_ms = match seated.identity.over_for(now) {
                    Some(time) if time >= known_for => return true,
                    Some(_) => now.unix_ms,
                    None => seated.identity.principal.standing.good_until_ms(),
                };
                next_end_ms = next_end_ms.min(due_ms);
                false
            };
            let ended = live.seated.values().filter(is_ended);
            ended
                .filter_map(|seated| Some((seated.outbox.upgrade()?, reason(&seated.identity))))
                .collect()
        };
        for (outbox, why) in ended {
            outbox.close(why);
        }
        self.next_end_ms
            .fetch_min(next_end_ms, Ordering::Relaxed)
            .min(next_end_ms)
    }

    /// Returns when somebody was seated whose credential ends sooner than that of anybody before.
    pub async fn sooner(&self) {
        self.sooner.notified().await;
    }

    /// Asks every connection to close, and lets no other in.
    pub fn close_all(&self, why: Closing) {
        let live: Vec<_> = {
            let live = self.live();
            self.closed.store(true, Ordering::Relaxed);
            live.seated
                .values()
                .filter_map(|seated| seated.outbox.upgrade())
                .collect()
        };
        for outbox in live {
            outbox.close(why);
        }
    }

    /// Returns when the last connection has gone.
    pub async fn all_gone(&self) {
        loop {
            let gone = self.one_left.notified();
            if self.is_empty() {
                return;
            }
            gone.await;
        }
    }

    fn live(&self) -> std::sync::MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why somebody is sent away who is good no more.
fn reason(identity: &Identity) -> Closing {
    if identity.project.is_closed() {
        Closing::Released
    } else {
        identity.project.abandoned().unwrap_or(Closing::Unauthorized)
    }
}

/// The place of one live connection, given up when it is dropped.
pub struct Seat {
    connections: Arc<Connections>,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut live = self.connections.live();
        if let Some(seated) = live.seated.remove(&self.number) {
            let id = seated.identity.project.id();
            let is_last = live.by_project.get_mut(id).is_some_and(|len| {
                *len -= 1;
                *len == 0
            });
            if is_last {
                live.by_project.remove(id);
            }
        }
        drop(live);
        self.connections.left();
    }
}
