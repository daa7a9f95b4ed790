//! The accepted messages of a test and the messages that its recipients have seen.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actors::model::{MessageId, SessionId};
use tokio::sync::watch;

use crate::world::within_deadline;

/// Accepted and seen messages, one entry per message and recipient.
#[derive(Default)]
pub struct Ledger {
    entries: Mutex<Entries>,
    changes: watch::Sender<()>,
}

#[derive(Default)]
struct Entries {
    accepted: usize,
    seen: HashSet<(SessionId, MessageId)>,
    /// Accepted and not yet seen.
    missing: HashSet<(SessionId, MessageId)>,
    repeats: usize,
}

impl Ledger {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Records that the sender has the id of a message: the recipient must see it.
    pub fn record_accepted(&self, recipient: SessionId, message: MessageId) {
        let mut entries = self.entries();
        entries.accepted += 1;
        // The recipient may see a message before the sender has its id.
        if !entries.seen.contains(&(recipient, message)) {
            entries.missing.insert((recipient, message));
        }
        drop(entries);
        self.changes.send_replace(());
    }

    pub fn record_seen(&self, recipient: SessionId, message: MessageId) {
        let mut entries = self.entries();
        entries.missing.remove(&(recipient, message));
        if !entries.seen.insert((recipient, message)) {
            entries.repeats += 1;
        }
        drop(entries);
        self.changes.send_replace(());
    }

    pub fn accepted_len(&self) -> usize {
        self.entries().accepted
    }

    pub fn missing(&self) -> Vec<(SessionId, MessageId)> {
        self.entries().missing.iter().copied().collect()
    }

    /// Waits until `more` further messages are accepted.
    pub async fn await_more_accepted(&self, more: usize) {
        let goal = self.accepted_len() + more;
        self.await_entries("more accepted messages", |entries| entries.accepted >= goal)
            .await;
    }

    /// Waits until every accepted message has been seen.
    pub async fn await_all_seen(&self) {
        self.await_entries("all that was accepted", |entries| entries.missing.is_empty())
            .await;
    }

    async fn await_entries(&self, what: &str, fulfilled: impl Fn(&Entries) -> bool) {
        let mut changes = self.changes.subscribe();
        within_deadline(what, async {
            while !fulfilled(&self.entries()) {
                changes.changed().await.unwrap();
            }
        })
        .await;
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
