//! What a session decides about its connection, its presence and its end: when messages are leased for the connection,
//! which connection is closed, when the session is disconnected and when it ends. Pure.

use std::time::Duration;

use crate::{
    clock::{Now, millis},
    model::{ConnectionId, PresenceTimeouts, SessionStatus},
    storage::Depth,
};

/// How messages are pushed to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushMode {
    /// Messages that may be in flight at most.
    pub window: usize,
    pub ack: AckMode,
}

/// Who acknowledges what is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// The client acknowledges each message.
    Manual,
    /// A message is acknowledged when its last byte was written to the socket.
    Auto,
}

/// The live connection and what it subscribes to.
#[derive(Clone, Copy, Debug)]
struct Attachment {
    connection: ConnectionId,
    push: Option<PushMode>,
    inbox_changes: bool,
    /// Counts the attachments of the session: the same connection may be attached again.
    number: u64,
}

/// The state of a session apart from its claim, its pushes and its calls.
#[derive(Debug)]
pub struct State {
    presence: PresenceTimeouts,
    retention: Duration,
    named: bool,
    attachment: Option<Attachment>,
    attachment_count: u64,
    /// The waiting and the leased messages, as of the last operation on the inbox.
    depth: Depth,
    /// Calls of `receive_messages` that wait.
    waiters: usize,
    /// Connections in addition to the live one that are notified of changes of the inbox.
    watchers: usize,
    /// A lease for the connection has begun and is not answered.
    draining: bool,
    /// An event asked for a lease while one was being made or the window was closed: `depth` may be older than it.
    drain_wanted: bool,
    /// The presence that was last acted upon. The true one is always derived from the silence.
    last_status: SessionStatus,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection registered the session.
    Attached { connection: ConnectionId },
    /// A caller without a lasting connection registered the session again.
    Resumed,
    /// The connection closed, or its session left.
    Detached { connection: ConnectionId },
    /// Another replica has claimed the session.
    Superseded,
    /// The connection said what it wants to be sent.
    Subscribed {
        connection: ConnectionId,
        inbox_changes: bool,
        push: Option<PushMode>,
    },
    /// Messages may have been appended to the inbox or released.
    Nudged,
    /// The connection may have bytes to reserve again.
    Writable { connection: ConnectionId },
    /// The lease for the connection was answered.
    Drained {
        depth: Depth,
        /// Messages that were given to the connection.
        delivered: usize,
    },
    /// The store leased this many messages to the connection by itself.
    PushedByStore { count: usize },
    /// An acknowledgement, a release or a call of `receive_messages` has changed the inbox.
    DepthChanged { depth: Depth },
    /// The number of waiting calls of `receive_messages` changed.
    WaitersChanged { waiters: usize },
    /// The number of watchers changed.
    WatchersChanged { watchers: usize },
    /// The timer went off, or something happened that may change the presence.
    Ticked {
        now: Now,
        /// The last heartbeat, on the monotonic clock.
        last_seen_mono_ms: u64,
        /// The session left of its own will.
        has_left: bool,
        /// Messages that wait. A session that wants no wakeup does not know it otherwise.
        waiting: usize,
    },
}

/// What the actor has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Close this connection: another one took the session over.
    CloseTakenOver(ConnectionId),
    /// Close this connection: the client was silent for too long.
    CloseSilent(ConnectionId),
    /// Claim the inbox for this replica: the store releases what is leased, to any connection of any replica.
    Claim,
    /// Release what is leased.
    Release,
    /// Lease up to `limit` messages for the connection.
    Drain { limit: usize },
    /// Serve the calls that wait.
    ServeWaiters,
    /// Notify the watchers, and the connection if it subscribed to it, that the inbox changed.
    NotifyInboxChanged,
    /// The presence has changed to this one.
    PresenceChanged(SessionStatus),
    /// Set the timer of [`Event::Ticked`] to this moment of the monotonic clock.
    WakeAt { mono_ms: u64 },
    /// The retention is over: end the session.
    EndSession,
}

/// The effects of one event, at most four, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects([Option<Effect>; 4]);

impl Effects {
    fn and(mut self, effect: Effect) -> Self {
        if let Some(slot) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(effect);
        }
        self
    }

    fn and_maybe(self, effect: Option<Effect>) -> Self {
        match effect {
            Some(effect) => self.and(effect),
            None => self,
        }
    }
}

impl IntoIterator for Effects {
    type Item = Effect;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Effect>, 4>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}

impl State {
    /// `retention` is how long a named session is kept after it was disconnected.
    pub fn new(presence: PresenceTimeouts, retention: Duration, named: bool) -> Self {
        Self {
            presence,
            retention,
            named,
            attachment: None,
            attachment_count: 0,
            depth: Depth::default(),
            waiters: 0,
            watchers: 0,
            draining: false,
            drain_wanted: false,
            last_status: SessionStatus::Active,
        }
    }

    /// The state of a session that has this presence when its actor starts: that is no change.
    pub fn found(mut self, status: SessionStatus) -> Self {
        self.last_status = status;
        self
    }

    /// The live connection.
    pub fn connection(&self) -> Option<ConnectionId> {
        self.attachment.map(|attachment| attachment.connection)
    }

    /// The number of the attachment. An operation that was begun for another attachment is not for this one, even if the
    /// connection is the same.
    pub fn attachment_number(&self) -> Option<u64> {
        self.attachment.map(|attachment| attachment.number)
    }

    /// How messages are pushed to the connection.
    pub fn push(&self) -> Option<PushMode> {
        self.attachment.and_then(|attachment| attachment.push)
    }

    /// Whether the connection is notified of changes of the inbox.
    pub fn inbox_changes(&self) -> bool {
        self.attachment.is_some_and(|attachment| attachment.inbox_changes)
    }

    /// The waiting and the leased messages, as of the last operation on the inbox.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// The session has a name from now on.
    pub fn set_named(&mut self) {
        self.named = true;
    }

    /// Whether the session was last found to be stale or disconnected: a heartbeat changes its presence.
    pub fn is_silent(&self) -> bool {
        self.last_status != SessionStatus::Active
    }

    /// Keeps the watchers after a panic, and the attachment if `connection` is still open. The store has the rest.
    pub fn reset_after_panic(&mut self, connection: Option<ConnectionId>) {
        *self = Self {
            watchers: self.watchers,
            attachment: self
                .attachment
                .filter(|attachment| connection == Some(attachment.connection)),
            attachment_count: self.attachment_count,
            ..Self::new(self.presence, self.retention, self.named)
        };
    }

    /// The connection whose writes acknowledge, if there is one.
    pub fn auto_ack_connection(&self) -> Option<ConnectionId> {
        let attachment = self
            .attachment
            .filter(|attachment| attachment.push.is_some_and(|push| push.ack == AckMode::Auto))?;
        Some(attachment.connection)
    }

    /// Whether the session would act on a new message at once.
    pub fn wants_wakeup(&self) -> bool {
        self.waiters > 0
            || self.watchers > 0
            || self
                .attachment
                .is_some_and(|attachment| attachment.push.is_some() || attachment.inbox_changes)
    }

    /// Whether something takes what comes: a call that waits, or a connection that messages are pushed to.
    pub fn takes_messages(&self) -> bool {
        self.waiters > 0 || self.push().is_some()
    }

    /// Takes note of an event and returns what follows from it.
    pub fn on(&mut self, event: Event) -> Effects {
        match event {
            Event::Attached { connection } => self.attached(connection),
            Event::Resumed => {
                let before = self.take_attachment();
                Effects::default()
                    .and_maybe(before.map(|attachment| Effect::CloseTakenOver(attachment.connection)))
                    .and(Effect::Claim)
            }
            Event::Detached { connection } => self.detached(connection),
            Event::Superseded => {
                let before = self.take_attachment();
                Effects::default().and_maybe(before.map(|attachment| Effect::CloseTakenOver(attachment.connection)))
            }
            Event::Subscribed {
                connection,
                inbox_changes,
                push,
            } => self.subscribed(connection, inbox_changes, push),
            Event::Nudged => self.deliver_waiting().and_maybe(self.notification()),
            Event::PushedByStore { count } => {
                // Never lowered here: the store keeps the exact count, and its leases keep to the window.
                self.depth.leased = self.depth.leased.max(count);
                Effects::default().and_maybe(self.notification())
            }
            Event::Writable { connection } if self.connection() == Some(connection) => {
                Effects::default().and_maybe(self.drain())
            }
            Event::Writable { .. } => Effects::default(),
            Event::Drained { depth, delivered } => {
                self.depth = depth;
                self.draining = false;
                // A lease of nothing is not repeated: nothing waits, or the connection has no bytes, and an event will
                // report either.
                let again = std::mem::take(&mut self.drain_wanted) || (delivered > 0 && depth.waiting > 0);
                Effects::default().and_maybe(if again { self.drain() } else { None })
            }
            Event::DepthChanged { depth } => {
                self.depth = depth;
                if depth.waiting > 0 {
                    self.deliver_waiting()
                } else {
                    Effects::default().and_maybe(if self.drain_wanted { self.drain() } else { None })
                }
            }
            Event::WaitersChanged { waiters } => {
                self.waiters = waiters;
                Effects::default()
            }
            Event::WatchersChanged { watchers } => {
                self.watchers = watchers;
                Effects::default()
            }
            Event::Ticked {
                now,
                last_seen_mono_ms,
                has_left,
                waiting,
            } => {
                self.depth.waiting = waiting;
                self.ticked(now, last_seen_mono_ms, has_left)
            }
        }
    }

    fn attached(&mut self, connection: ConnectionId) -> Effects {
        if self.connection() == Some(connection) {
            return Effects::default();
        }
        let before = self.take_attachment();
        self.attachment_count += 1;
        self.attachment = Some(Attachment {
            connection,
            push: None,
            inbox_changes: false,
            number: self.attachment_count,
        });
        Effects::default()
            .and_maybe(before.map(|attachment| Effect::CloseTakenOver(attachment.connection)))
            .and(Effect::Claim)
    }

    fn detached(&mut self, connection: ConnectionId) -> Effects {
        if self.connection() != Some(connection) {
            return Effects::default();
        }
        self.take_attachment();
        Effects::default().and(Effect::Release)
    }

    /// Ends the attachment, and with it the lease that was begun or wanted for it.
    fn take_attachment(&mut self) -> Option<Attachment> {
        self.draining = false;
        self.drain_wanted = false;
        self.attachment.take()
    }

    fn subscribed(&mut self, connection: ConnectionId, inbox_changes: bool, push: Option<PushMode>) -> Effects {
        match &mut self.attachment {
            Some(attachment) if attachment.connection == connection => {
                attachment.inbox_changes = inbox_changes;
                let before = std::mem::replace(&mut attachment.push, push);
                if before.is_some() && push.is_none() {
                    // The connection may have dropped what was pushed last: it must not stay leased. A lease that was
                    // begun is not for the next subscription of this connection either: it gets a new number.
                    self.attachment_count += 1;
                    attachment.number = self.attachment_count;
                    self.draining = false;
                    self.drain_wanted = false;
                    return Effects::default().and(Effect::Release);
                }
                Effects::default().and_maybe(self.drain())
            }
            _ => Effects::default(),
        }
    }

    fn notification(&self) -> Option<Effect> {
        (self.inbox_changes() || self.watchers > 0).then_some(Effect::NotifyInboxChanged)
    }

    /// Gives the waiting messages to the connection and to the calls that wait.
    fn deliver_waiting(&mut self) -> Effects {
        let serve = (self.waiters > 0).then_some(Effect::ServeWaiters);
        Effects::default().and_maybe(self.drain()).and_maybe(serve)
    }

    /// Begins a lease for the connection, if messages are pushed to it and its window is open.
    fn drain(&mut self) -> Option<Effect> {
        let window = self.push()?.window;
        let limit = window.saturating_sub(self.depth.leased);
        self.drain_wanted = self.draining || limit == 0;
        if self.drain_wanted {
            return None;
        }
        self.draining = true;
        Some(Effect::Drain { limit })
    }

    fn ticked(&mut self, now: Now, last_seen_mono_ms: u64, has_left: bool) -> Effects {
        let silence = now.since(last_seen_mono_ms);
        let status = if has_left {
            SessionStatus::Disconnected
        } else {
            self.presence.status(silence)
        };
        let mut effects = Effects::default();
        if status != self.last_status {
            self.last_status = status;
            effects = effects.and(Effect::PresenceChanged(status));
            if status == SessionStatus::Disconnected {
                let attachment = self.take_attachment();
                effects = effects
                    .and_maybe(attachment.map(|attachment| Effect::CloseSilent(attachment.connection)))
                    .and(Effect::Release);
            }
        }
        if status == SessionStatus::Disconnected && self.is_retention_over(silence) {
            return effects.and(Effect::EndSession);
        }
        let next = match status {
            SessionStatus::Active => self.presence.stale_after,
            SessionStatus::Stale => self.presence.disconnect_after,
            SessionStatus::Disconnected if self.is_disposable() => self.presence.disconnect_after,
            SessionStatus::Disconnected => self.retention_end(),
        };
        if self.depth.waiting > 0 && status != SessionStatus::Disconnected {
            // A nudge may have met a full mailbox.
            effects = effects
                .and_maybe(self.drain())
                .and_maybe((self.waiters > 0).then_some(Effect::ServeWaiters));
        }
        effects.and(Effect::WakeAt {
            mono_ms: last_seen_mono_ms.saturating_add(millis(next)).max(now.mono_ms + 1),
        })
    }

    /// A named session, and one with messages or callers, is kept for the retention after it was disconnected. Any other
    /// ends when it is disconnected.
    fn is_retention_over(&self, silence: Duration) -> bool {
        silence >= self.retention_end() || (self.is_disposable() && silence >= self.presence.disconnect_after)
    }

    /// The silence after which a session ends even if it has a name and messages.
    fn retention_end(&self) -> Duration {
        self.presence.disconnect_after.saturating_add(self.retention)
    }

    /// Whether nothing is lost with the session, as far as is known here: no name, no message, no caller.
    pub fn is_disposable(&self) -> bool {
        !self.named && self.depth == Depth::default() && self.waiters == 0
    }
}

#[cfg(test)]
mod tests;
