//! The live connections of the process and their permits.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use actors::{
    clock::Now,
    idle::{self, AwakeGuard},
    locked::Locked,
    metrics::{Labelled, METRICS, TransportKind},
    model::ProjectId,
    session::{CloseReason, Connection},
};
use tokio::sync::{Notify, futures::Notified};

use api::{auth::Identity, mcp::Outbox};

/// The live connections of the process: limits their number, and closes them at shutdown or when their credential ends.
#[derive(Default)]
pub struct Connections {
    max: usize,
    /// Most connections of one project.
    project_max: AtomicUsize,
    len: AtomicUsize,
    /// Connections that a client has opened: all but those of [`Self::acquire_standing`].
    clients: AtomicUsize,
    /// Set by `close_all`: from then on no permit is given. Changed while `live` is locked.
    is_closed: AtomicBool,
    live: Locked<Live>,
    next_id: AtomicU64,
    permit_released: Notify,
    /// The earliest expiry of a credential in use, in milliseconds since the Unix epoch.
    next_expiry_ms: AtomicU64,
    earlier_expiry: Notify,
}

#[derive(Default)]
struct Live {
    entries: HashMap<u64, Entry>,
    /// Number of connections of each project, by [`TransportKind::index`](Labelled::index).
    by_project: HashMap<ProjectId, [usize; TransportKind::LEN]>,
}

struct Entry {
    outbox: Weak<Outbox>,
    identity: Arc<Identity>,
}

impl Connections {
    /// Allows `max` connections at once.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            project_max: AtomicUsize::new(max),
            next_expiry_ms: AtomicU64::new(u64::MAX),
            ..Self::default()
        })
    }

    /// The number of live connections.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether no connection is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a client has a connection.
    pub fn has_clients(&self) -> bool {
        self.clients.load(Ordering::Relaxed) > 0
    }

    /// Whether one more connection is allowed.
    pub fn has_room(&self) -> bool {
        self.len() < self.max && !self.is_closed.load(Ordering::Relaxed)
    }

    /// Returns a permit for one connection. `None` when the limit of the process or of the project is reached, or after
    /// `close_all`. A project has at most twice as many connections as sessions: each session may reconnect before its
    /// old connection is known to be lost.
    pub fn try_acquire(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        identity: &Arc<Identity>,
        kind: TransportKind,
    ) -> Option<ConnectionPermit> {
        let sessions_max = identity.project.limits().record.config.max_sessions;
        let share = self.project_max.load(Ordering::Relaxed);
        self.acquire_within(
            outbox,
            identity,
            self.max,
            sessions_max.map_or(share, |max| (2 * max).min(share)),
            kind,
            false,
        )
    }

    /// Sets the number of projects. With several projects, each has at most half of all connections.
    pub fn set_project_count(&self, projects: usize) {
        let share = if projects > 1 { self.max.div_ceil(2) } else { self.max };
        self.project_max.store(share, Ordering::Relaxed);
    }

    /// Returns a permit for a wait in progress, regardless of the limits, so that the wait ends when its credential
    /// does. `None` after `close_all`.
    pub fn acquire_over_limit(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        identity: &Arc<Identity>,
        kind: TransportKind,
    ) -> Option<ConnectionPermit> {
        self.acquire_within(outbox, identity, usize::MAX, usize::MAX, kind, false)
    }

    /// Returns a permit for a connection that exists whether or not a client uses it, regardless of the limits. `None`
    /// after `close_all`.
    pub fn acquire_standing(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        identity: &Arc<Identity>,
        kind: TransportKind,
    ) -> Option<ConnectionPermit> {
        self.acquire_within(outbox, identity, usize::MAX, usize::MAX, kind, true)
    }

    fn acquire_within(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        identity: &Arc<Identity>,
        max: usize,
        project_max: usize,
        kind: TransportKind,
        is_standing: bool,
    ) -> Option<ConnectionPermit> {
        let len = self.len.fetch_add(1, Ordering::Relaxed);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut live = self.live.lock();
        let project_len: usize = live.by_project.get(identity.project.id()).into_iter().flatten().sum();
        if len >= max || project_len >= project_max || self.is_closed.load(Ordering::Relaxed) {
            drop(live);
            self.release();
            METRICS.connections_refused.of(kind).increment();
            return None;
        }
        live.by_project.entry(identity.project.id().clone()).or_default()[kind.index()] += 1;
        self.clients.fetch_add(usize::from(!is_standing), Ordering::Relaxed);
        let entry = Entry {
            outbox: Arc::downgrade(outbox),
            identity: Arc::clone(identity),
        };
        live.entries.insert(id, entry);
        drop(live);
        let end_ms = identity.principal.status.valid_until_ms();
        if self.next_expiry_ms.fetch_min(end_ms, Ordering::Relaxed) > end_ms {
            self.earlier_expiry.notify_one();
        }
        METRICS.connections_opened.of(kind).increment();
        METRICS.connections[kind.index()].add(1);
        Some(ConnectionPermit {
            connections: Arc::clone(self),
            id,
            kind,
            is_standing,
            _awake: (kind != TransportKind::Local).then(idle::keep_awake),
        })
    }

    fn release(&self) {
        self.len.fetch_sub(1, Ordering::Relaxed);
        self.permit_released.notify_waiters();
    }

    /// Closes connections whose credential has been invalid for at least `known_for`. Returns when the next one is due,
    /// in milliseconds since the Unix epoch.
    pub fn close_invalid(&self, now: Now, known_for: Duration) -> u64 {
        self.next_expiry_ms.store(u64::MAX, Ordering::Relaxed);
        let mut next_end_ms = u64::MAX;
        let invalid: Vec<_> = {
            let live = self.live.lock();
            let is_invalid = |entry: &&Entry| {
                let due_ms = match entry.identity.invalid_for(now) {
                    Some(time) if time >= known_for => return true,
                    Some(_) => now.unix_ms,
                    None => entry.identity.principal.status.valid_until_ms(),
                };
                next_end_ms = next_end_ms.min(due_ms);
                false
            };
            let invalid = live.entries.values().filter(is_invalid);
            invalid
                .filter_map(|entry| Some((entry.outbox.upgrade()?, closing_reason(&entry.identity))))
                .collect()
        };
        for (outbox, why) in invalid {
            outbox.close(why);
        }
        self.next_expiry_ms
            .fetch_min(next_end_ms, Ordering::Relaxed)
            .min(next_end_ms)
    }

    /// Waits until a connection arrives whose credential expires earlier than all others.
    pub async fn wait_for_earlier_expiry(&self) {
        self.earlier_expiry.notified().await;
    }

    /// Closes all connections and gives no permit from then on.
    pub fn close_all(&self, why: CloseReason) {
        let live: Vec<_> = {
            let live = self.live.lock();
            self.is_closed.store(true, Ordering::Relaxed);
            live.entries
                .values()
                .filter_map(|entry| entry.outbox.upgrade())
                .collect()
        };
        for outbox in live {
            outbox.close(why);
        }
    }

    /// Becomes ready when a connection closes, from this call on.
    pub fn released(&self) -> Notified<'_> {
        self.permit_released.notified()
    }

    /// Waits until the last connection has closed.
    pub async fn wait_until_empty(&self) {
        self.wait_while(|| !self.is_empty()).await;
    }

    /// Waits until no client has a connection.
    pub async fn wait_until_no_clients(&self) {
        self.wait_while(|| self.has_clients()).await;
    }

    async fn wait_while(&self, holds: impl Fn() -> bool) {
        loop {
            let released = self.permit_released.notified();
            if !holds() {
                return;
            }
            released.await;
        }
    }

    /// The number of live connections of a project, by [`TransportKind::index`](Labelled::index).
    pub fn len_of(&self, project: &ProjectId) -> [usize; TransportKind::LEN] {
        self.live.lock().by_project.get(project).copied().unwrap_or_default()
    }
}

/// The reason for closing a connection whose credential is invalid.
fn closing_reason(identity: &Identity) -> CloseReason {
    if identity.project.is_closed() {
        CloseReason::SessionEnded
    } else {
        identity.project.kill_reason().unwrap_or(CloseReason::Unauthorized)
    }
}

/// Permit for one live connection. It is released on drop.
pub struct ConnectionPermit {
    connections: Arc<Connections>,
    id: u64,
    kind: TransportKind,
    is_standing: bool,
    /// None for a client of this machine, which needs no pings.
    _awake: Option<AwakeGuard>,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut live = self.connections.live.lock();
        if let Some(entry) = live.entries.remove(&self.id) {
            let id = entry.identity.project.id();
            let is_last = live.by_project.get_mut(id).is_some_and(|len| {
                len[self.kind.index()] -= 1;
                len.iter().all(|&len| len == 0)
            });
            if is_last {
                live.by_project.remove(id);
            }
        }
        drop(live);
        let clients = &self.connections.clients;
        clients.fetch_sub(usize::from(!self.is_standing), Ordering::Relaxed);
        METRICS.connections[self.kind.index()].add(-1);
        self.connections.release();
    }
}
