//! The connections of a session: the live one, and those that watch its inbox.

use std::{collections::VecDeque, sync::Arc};

use super::{CloseReason, Connection};
use crate::model::ConnectionId;

/// Connections in addition to the live one that may watch an inbox.
const WATCHERS_MAX: usize = 32;

/// Handles of the connections of one session.
#[derive(Default)]
pub(super) struct Connections {
    live: Option<Arc<dyn Connection>>,
    /// Replaced by the live one, and about to be closed.
    replaced: Option<Arc<dyn Connection>>,
    /// Notified of changes of the inbox in addition to the live one, the oldest first.
    watchers: VecDeque<Arc<dyn Connection>>,
}

impl Connections {
    /// The live connection.
    pub fn live(&self) -> Option<&Arc<dyn Connection>> {
        self.live.as_ref()
    }

    /// The id of the live connection.
    pub fn live_id(&self) -> Option<ConnectionId> {
        self.live.as_ref().map(|connection| connection.id())
    }

    /// Whether there is a live connection that ends with its client.
    pub fn live_ends_with_client(&self) -> bool {
        self.live
            .as_ref()
            .is_some_and(|connection| connection.ends_with_client())
    }

    /// Makes `connection` the live one. Another one that was live before stays until [`Self::close`].
    pub fn attach(&mut self, connection: Arc<dyn Connection>) {
        let id = connection.id();
        self.replaced = self.live.replace(connection).filter(|replaced| replaced.id() != id);
    }

    /// Drops the live connection, if it is this one, without closing it.
    pub fn detach(&mut self, id: ConnectionId) {
        self.live.take_if(|connection| connection.id() == id);
    }

    /// Drops the live connection without closing it.
    pub fn detach_live(&mut self) {
        self.live = None;
    }

    /// Closes this connection if it is the live one or was replaced by it.
    pub fn close(&mut self, id: ConnectionId, reason: CloseReason) {
        for held in [&mut self.replaced, &mut self.live] {
            if let Some(connection) = held.take_if(|connection| connection.id() == id) {
                connection.close(reason);
            }
        }
    }

    /// Closes the live connection and all watchers. Call it once the session has ended or its actor does.
    pub fn close_all(&mut self, reason: CloseReason) {
        if let Some(connection) = self.live.take() {
            connection.close(reason);
        }
        self.close_watchers(reason);
    }

    /// Adds a watcher. Beyond the bound it closes the oldest.
    pub fn watch(&mut self, connection: Arc<dyn Connection>) {
        if self.watchers.len() == WATCHERS_MAX
            && let Some(oldest) = self.watchers.pop_front()
        {
            oldest.close(CloseReason::SessionEnded);
        }
        self.watchers.push_back(connection);
    }

    /// Removes a watcher without closing it.
    pub fn unwatch(&mut self, id: ConnectionId) {
        self.watchers.retain(|connection| connection.id() != id);
    }

    /// Closes all watchers.
    pub fn close_watchers(&mut self, reason: CloseReason) {
        for watcher in self.watchers.drain(..) {
            watcher.close(reason);
        }
    }

    /// How many connections watch the inbox.
    pub fn watchers_len(&self) -> usize {
        self.watchers.len()
    }

    /// Notifies the watchers of a change of the inbox, and the live connection if it asked for it.
    pub fn notify_inbox_changed(&self, is_live_notified: bool) {
        let live = self.live.as_ref().filter(|_| is_live_notified);
        for connection in live.into_iter().chain(&self.watchers) {
            connection.notify_inbox_changed();
        }
    }
}
