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
    session::{CloseReason, Connection},
};
use tokio::sync::Notify;

use crate::{auth::Identity, mcp::Outbox};

/// The live connections of the process: so that there are not too many, and that all can be told to go.
#[derive(Default)]
pub struct Connections {
    max: usize,
    /// Most of one project.
    project_max: AtomicUsize,
    len: AtomicUsize,
    /// All were told to go: nobody is let in any more. Changed while `live` is locked.
    is_closed: AtomicBool,
    live: Mutex<Live>,
    next_id: AtomicU64,
    permit_released: Notify,
    /// The earliest end of a credential that one of them came in with, in milliseconds since the Unix epoch.
    next_expiry_ms: AtomicU64,
    earlier_expiry: Notify,
}

#[derive(Default)]
struct Live {
    entries: HashMap<u64, Entry>,
    /// How many there are of each project.
    by_project: HashMap<ProjectId, usize>,
}

struct Entry {
    outbox: Weak<Outbox>,
    identity: Arc<Identity>,
}

impl Connections {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            project_max: AtomicUsize::new(max),
            next_expiry_ms: AtomicU64::new(u64::MAX),
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
        self.len() < self.max && !self.is_closed.load(Ordering::Relaxed)
    }

    /// A place for one connection; None when all are taken, those of its project, or all were told to go. A project has
    /// no more than twice as many as it may have sessions: each may come back before its old connection is known to be
    /// gone.
    pub fn try_acquire(self: &Arc<Self>, outbox: &Arc<Outbox>, identity: &Arc<Identity>) -> Option<ConnectionPermit> {
        let of_project_max = identity.project.limits().record.config.max_sessions;
        let share = self.project_max.load(Ordering::Relaxed);
        self.acquire_within(
            outbox,
            identity,
            self.max,
            of_project_max.map_or(share, |max| (2 * max).min(share)),
        )
    }

    /// Among so many projects nobody takes all places: while there are others, no project has more than half.
    pub fn set_project_count(&self, projects: usize) {
        let share = if projects > 1 { self.max.div_ceil(2) } else { self.max };
        self.project_max.store(share, Ordering::Relaxed);
    }

    /// A place for a wait that has begun, whether or not there is one: nobody may stay who would not hear that their
    /// credential has ended. None when all were told to go.
    pub fn acquire_over_limit(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        identity: &Arc<Identity>,
    ) -> Option<ConnectionPermit> {
        self.acquire_within(outbox, identity, usize::MAX, usize::MAX)
    }

    fn acquire_within(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        identity: &Arc<Identity>,
        max: usize,
        of_project_max: usize,
    ) -> Option<ConnectionPermit> {
        let len = self.len.fetch_add(1, Ordering::Relaxed);
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut live = self.live();
        let of_project = live.by_project.get(identity.project.id()).copied().unwrap_or(0);
        if len >= max || of_project >= of_project_max || self.is_closed.load(Ordering::Relaxed) {
            drop(live);
            self.release();
            return None;
        }
        *live.by_project.entry(identity.project.id().clone()).or_default() += 1;
        let seated = Entry {
            outbox: Arc::downgrade(outbox),
            identity: Arc::clone(identity),
        };
        live.entries.insert(number, seated);
        drop(live);
        let end_ms = identity.principal.status.valid_until_ms();
        if self.next_expiry_ms.fetch_min(end_ms, Ordering::Relaxed) > end_ms {
            self.earlier_expiry.notify_one();
        }
        Some(ConnectionPermit {
            connections: Arc::clone(self),
            id: number,
        })
    }

    fn release(&self) {
        self.len.fetch_sub(1, Ordering::Relaxed);
        self.permit_released.notify_waiters();
    }

    /// Sends away whoever came in with what is good no more, and has been for so long. Returns when the next of them is
    /// due, in milliseconds since the Unix epoch.
    pub fn close_invalid(&self, now: Now, known_for: Duration) -> u64 {
        self.next_expiry_ms.store(u64::MAX, Ordering::Relaxed);
        let mut next_end_ms = u64::MAX;
        let ended: Vec<_> = {
            let live = self.live();
            let is_ended = |seated: &&Entry| {
                let due_ms = match seated.identity.invalid_for(now) {
                    Some(time) if time >= known_for => return true,
                    Some(_) => now.unix_ms,
                    None => seated.identity.principal.status.valid_until_ms(),
                };
                next_end_ms = next_end_ms.min(due_ms);
                false
            };
            let ended = live.entries.values().filter(is_ended);
            ended
                .filter_map(|seated| Some((seated.outbox.upgrade()?, closing_reason(&seated.identity))))
                .collect()
        };
        for (outbox, why) in ended {
            outbox.close(why);
        }
        self.next_expiry_ms
            .fetch_min(next_end_ms, Ordering::Relaxed)
            .min(next_end_ms)
    }

    /// Returns when somebody was seated whose credential ends sooner than that of anybody before.
    pub async fn wait_for_earlier_expiry(&self) {
        self.earlier_expiry.notified().await;
    }

    /// Asks every connection to close, and lets no other in.
    pub fn close_all(&self, why: CloseReason) {
        let live: Vec<_> = {
            let live = self.live();
            self.is_closed.store(true, Ordering::Relaxed);
            live.entries
                .values()
                .filter_map(|seated| seated.outbox.upgrade())
                .collect()
        };
        for outbox in live {
            outbox.close(why);
        }
    }

    /// Returns when the last connection has gone.
    pub async fn wait_until_empty(&self) {
        loop {
            let gone = self.permit_released.notified();
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
fn closing_reason(identity: &Identity) -> CloseReason {
    if identity.project.is_closed() {
        CloseReason::SessionEnded
    } else {
        identity.project.kill_reason().unwrap_or(CloseReason::Unauthorized)
    }
}

/// The place of one live connection, given up when it is dropped.
pub struct ConnectionPermit {
    connections: Arc<Connections>,
    id: u64,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut live = self.connections.live();
        if let Some(seated) = live.entries.remove(&self.id) {
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
        self.connections.release();
    }
}
