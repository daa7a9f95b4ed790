use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use actors::session::{Closing, Connection};
use tokio::sync::Notify;

use crate::mcp::Outbox;

/// The live connections of the process: so that there are not too many, and that all can be told to go.
#[derive(Default)]
pub struct Connections {
    max: usize,
    len: AtomicUsize,
    /// All were told to go: nobody is let in any more. Changed while `live` is locked.
    closed: AtomicBool,
    live: Mutex<HashMap<u64, Weak<Outbox>>>,
    seats: AtomicU64,
    one_left: Notify,
}

impl Connections {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, ..Self::default() })
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

    /// A place for one connection; None when all are taken, or all were told to go.
    pub fn seat(self: &Arc<Self>, outbox: &Arc<Outbox>) -> Option<Seat> {
        let len = self.len.fetch_add(1, Ordering::Relaxed);
        let number = self.seats.fetch_add(1, Ordering::Relaxed);
        let seat = Seat {
            connections: Arc::clone(self),
            number,
        };
        let mut live = self.live();
        if len >= self.max || self.closed.load(Ordering::Relaxed) {
            drop(live);
            return None;
        }
        live.insert(number, Arc::downgrade(outbox));
        drop(live);
        Some(seat)
    }

    /// Asks every connection to close, and lets no other in.
    pub fn close_all(&self, why: Closing) {
        let live: Vec<_> = {
            let live = self.live();
            self.closed.store(true, Ordering::Relaxed);
            live.values().filter_map(Weak::upgrade).collect()
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

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Weak<Outbox>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one live connection, given up when it is dropped.
pub struct Seat {
    connections: Arc<Connections>,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.live().remove(&self.number);
        self.connections.len.fetch_sub(1, Ordering::Relaxed);
        self.connections.one_left.notify_waiters();
    }
}
