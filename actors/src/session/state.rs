//! What a session decides: when it drains its inbox, whom it closes, what time makes of it. Reads no clock.

use std::time::Duration;

use crate::{
    clock::{Now, millis},
    model::{ConnectionId, PresenceTimeouts, SessionStatus},
    storage::Depth,
};

/// How messages are pushed to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushMode {
    /// Most messages that may be unacknowledged.
    pub window: usize,
    pub ack: AckMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// The client acknowledges.
    Manual,
    /// What was written to the socket is acknowledged.
    Auto,
}

#[derive(Clone, Copy, Debug)]
struct Attachment {
    connection: ConnectionId,
    push: Option<PushMode>,
    inbox_changes: bool,
    /// Of all links of this session. The same connection may be linked again.
    number: u64,
}

/// The pure part of a session.
#[derive(Debug)]
pub struct State {
    presence: PresenceTimeouts,
    retention: Duration,
    named: bool,
    attachment: Option<Attachment>,
    /// How many links there were.
    attachment_count: u64,
    depth: Depth,
    /// Calls of `receive_messages` that wait.
    waiters: usize,
    /// Connections beside the live one that are told of changes of the inbox.
    watchers: usize,
    /// A lease for the connection is under way.
    draining: bool,
    /// Something called for a lease that could not be had, for one is under way or the window is closed. What `depth`
    /// says of that moment may be older.
    drain_wanted: bool,
    /// As last acted upon; the truth is always derived from the silence.
    last_status: SessionStatus,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Attached {
        connection: ConnectionId,
    },
    /// Registered anew by a caller without a lasting connection.
    Resumed,
    Detached {
        connection: ConnectionId,
    },
    /// Somebody else has claimed the session, elsewhere.
    Superseded,
    Subscribed {
        connection: ConnectionId,
        inbox_changes: bool,
        push: Option<PushMode>,
    },
    /// Something was appended to the inbox, or put back.
    Nudged,
    Writable {
        connection: ConnectionId,
    },
    /// The lease for the connection has been answered.
    Drained {
        depth: Depth,
        delivered: usize,
    },
    /// So many messages were handed over for the connection that nobody had asked for.
    PushedByStore {
        count: usize,
    },
    /// The inbox was seen by an acknowledgement, a release or a call of `receive_messages`.
    DepthChanged {
        depth: Depth,
    },
    /// The inbox was counted: connections acknowledge beside the session.
    DepthCounted {
        depth: Depth,
    },
    WaitersChanged {
        waiters: usize,
    },
    WatchersChanged {
        watchers: usize,
    },
    /// The timer went off.
    Ticked {
        now: Now,
        last_seen_mono_ms: u64,
        has_left: bool,
        /// Messages that wait. Nobody tells a session that does not listen, so it cannot know by itself.
        waiting: usize,
    },
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Close this connection: another took the session over.
    CloseTakenOver(ConnectionId),
    CloseSilent(ConnectionId),
    /// The session is this link's from now on: what is leased goes back into the queue, whoever has it.
    Claim,
    /// Put what is leased back into the queue.
    Release,
    /// Lease up to this many messages for the connection.
    Drain {
        limit: usize,
    },
    /// Serve the calls that wait.
    ServeWaiters,
    /// Tell the connection, if it wants to hear of it, and those who watch that the inbox changed.
    NotifyInboxChanged,
    /// Presence is something else than before.
    PresenceChanged(SessionStatus),
    /// Look again at this moment of the monotonic clock.
    WakeAt {
        mono_ms: u64,
    },
    /// The retention is over.
    EndSession,
}

/// At most four things follow from one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects([Option<Effect>; 4]);

impl Effects {
    fn and(mut self, effect: Effect) -> Self {
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            *place = Some(effect);
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

    pub fn connection(&self) -> Option<ConnectionId> {
        self.attachment.map(|link| link.connection)
    }

    /// Which link this is. What was begun for another is not for this one, even if the connection is the same.
    pub fn attachment_number(&self) -> Option<u64> {
        self.attachment.map(|link| link.number)
    }

    pub fn push(&self) -> Option<PushMode> {
        self.attachment.and_then(|link| link.push)
    }

    /// Whether the connection is told of changes of the inbox.
    pub fn inbox_changes(&self) -> bool {
        self.attachment.is_some_and(|link| link.inbox_changes)
    }

    pub fn depth(&self) -> Depth {
        self.depth
    }

    pub fn set_named(&mut self) {
        self.named = true;
    }

    /// The session was last found to be disconnected: a sign of life is news.
    pub fn is_disconnected(&self) -> bool {
        self.last_status == SessionStatus::Disconnected
    }

    /// What is left after a panic: the link, which is a fact about the world, if `connection` is still held. The rest
    /// is read from the store anew.
    pub fn reset_after_panic(&mut self, connection: Option<ConnectionId>) {
        *self = Self {
            watchers: self.watchers,
            attachment: self.attachment.filter(|link| connection == Some(link.connection)),
            attachment_count: self.attachment_count,
            ..Self::new(self.presence, self.retention, self.named)
        };
    }

    /// The connection whose writes acknowledge what they write.
    pub fn auto_ack_connection(&self) -> Option<ConnectionId> {
        let link = self
            .attachment
            .filter(|link| link.push.is_some_and(|push| push.ack == AckMode::Auto))?;
        Some(link.connection)
    }

    /// Whether a new message should be told at once.
    pub fn wants_wakeup(&self) -> bool {
        self.waiters > 0
            || self.watchers > 0
            || self
                .attachment
                .is_some_and(|link| link.push.is_some() || link.inbox_changes)
    }

    pub fn on(&mut self, event: Event) -> Effects {
        match event {
            Event::Attached { connection } => self.attached(connection),
            Event::Resumed => {
                let before = self.take_attachment();
                Effects::default()
                    .and_maybe(before.map(|link| Effect::CloseTakenOver(link.connection)))
                    .and(Effect::Claim)
            }
            Event::Detached { connection } => self.detached(connection),
            Event::Superseded => {
                let before = self.take_attachment();
                Effects::default().and_maybe(before.map(|link| Effect::CloseTakenOver(link.connection)))
            }
            Event::Subscribed {
                connection,
                inbox_changes,
                push,
            } => self.subscribed(connection, inbox_changes, push),
            Event::Nudged => self.deliver_waiting().and_maybe(self.notification()),
            Event::PushedByStore { count } => {
                // Not less. How many there are the store knows, and what is leased keeps to that.
                self.depth.leased = self.depth.leased.max(count);
                Effects::default().and_maybe(self.notification())
            }
            Event::Writable { connection } if self.connection() == Some(connection) => {
                Effects::default().and_maybe(self.drain())
            }
            Event::Writable { .. } => Effects::default(),
            Event::Drained {
                depth,
                delivered: handed_over,
            } => {
                self.depth = depth;
                self.draining = false;
                // With nothing handed over there is nothing to hand over now, or no room: an event will say so.
                let again = std::mem::take(&mut self.drain_wanted) || (handed_over > 0 && depth.waiting > 0);
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
            Event::DepthCounted { depth } => {
                self.depth = depth;
                Effects::default()
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
                has_left: said_goodbye,
                waiting,
            } => {
                self.depth.waiting = waiting;
                self.ticked(now, last_seen_mono_ms, said_goodbye)
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
            .and_maybe(before.map(|link| Effect::CloseTakenOver(link.connection)))
            .and(Effect::Claim)
    }

    fn detached(&mut self, connection: ConnectionId) -> Effects {
        if self.connection() != Some(connection) {
            return Effects::default();
        }
        self.take_attachment();
        Effects::default().and(Effect::Release)
    }

    /// What was under way or wanted for the link ends with it.
    fn take_attachment(&mut self) -> Option<Attachment> {
        self.draining = false;
        self.drain_wanted = false;
        self.attachment.take()
    }

    fn subscribed(&mut self, connection: ConnectionId, inbox_changes: bool, push: Option<PushMode>) -> Effects {
        match &mut self.attachment {
            Some(link) if link.connection == connection => {
                link.inbox_changes = inbox_changes;
                let before = std::mem::replace(&mut link.push, push);
                if before.is_some() && push.is_none() {
                    // What was pushed last may have met a connection that takes no more: it must not stay leased. Nor
                    // is what a lease under way brings for this connection any more, whatever it subscribes to next.
                    self.attachment_count += 1;
                    link.number = self.attachment_count;
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

    /// Something waits: whoever takes messages gets them.
    fn deliver_waiting(&mut self) -> Effects {
        let serve = (self.waiters > 0).then_some(Effect::ServeWaiters);
        Effects::default().and_maybe(self.drain()).and_maybe(serve)
    }

    /// A lease for the connection, if it takes messages and its window is open.
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

    fn ticked(&mut self, now: Now, last_seen_mono_ms: u64, said_goodbye: bool) -> Effects {
        let silence = now.since(last_seen_mono_ms);
        let status = if said_goodbye {
            SessionStatus::Disconnected
        } else {
            self.presence.status(silence)
        };
        let mut effects = Effects::default();
        if status != self.last_status {
            self.last_status = status;
            effects = effects.and(Effect::PresenceChanged(status));
            if status == SessionStatus::Disconnected {
                let link = self.take_attachment();
                effects = effects
                    .and_maybe(link.map(|link| Effect::CloseSilent(link.connection)))
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
            // Nothing should have to be found here; a command that met a full mailbox is made good for.
            effects = effects
                .and_maybe(self.drain())
                .and_maybe((self.waiters > 0).then_some(Effect::ServeWaiters));
        }
        effects.and(Effect::WakeAt {
            mono_ms: last_seen_mono_ms.saturating_add(millis(next)).max(now.mono_ms + 1),
        })
    }

    /// A name and an inbox are kept for the retention; a session that has neither has nothing to be kept for.
    fn is_retention_over(&self, silence: Duration) -> bool {
        silence >= self.retention_end() || (self.is_disposable() && silence >= self.presence.disconnect_after)
    }

    /// The silence after which nothing is kept any more.
    fn retention_end(&self) -> Duration {
        self.presence.disconnect_after.saturating_add(self.retention)
    }

    fn is_disposable(&self) -> bool {
        !self.named && self.depth == Depth::default() && self.waiters == 0
    }
}

#[cfg(test)]
mod tests;
