//! What a session decides: when it drains its inbox, whom it closes, what time makes of it. Reads no clock.

use std::time::Duration;

use crate::{
    clock::{Now, millis},
    model::{ConnectionId, Presence, SessionStatus},
    storage::Depth,
};

/// How messages are pushed to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
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
struct Link {
    connection: ConnectionId,
    push: Option<Push>,
    inbox_changes: bool,
}

/// The pure part of a session.
#[derive(Debug)]
pub struct State {
    presence: Presence,
    retention: Duration,
    named: bool,
    link: Option<Link>,
    depth: Depth,
    /// Calls of `receive_messages` that wait.
    waiters: usize,
    /// A lease for the connection is under way.
    draining: bool,
    /// Something happened during it that calls for another.
    drain_again: bool,
    /// As last acted upon; the truth is always derived from the silence.
    acted_on: SessionStatus,
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
    Subscribed {
        connection: ConnectionId,
        inbox_changes: bool,
        push: Option<Push>,
    },
    /// Something was appended to the inbox, or put back.
    Nudged,
    Writable {
        connection: ConnectionId,
    },
    /// The lease for the connection has been answered.
    Drained {
        depth: Depth,
        handed_over: usize,
    },
    /// The inbox changed by an acknowledgement, a release or a call of `receive_messages`.
    Changed {
        depth: Depth,
    },
    WaitersChanged {
        waiters: usize,
    },
    /// The timer went off.
    Ticked {
        now: Now,
        last_seen_mono_ms: u64,
        said_goodbye: bool,
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
    /// Put what is leased back into the queue.
    Release,
    /// Lease up to this many messages for the connection.
    Drain {
        limit: usize,
    },
    /// Serve the calls that wait.
    Serve,
    /// Tell the connection that the inbox changed.
    Announce,
    /// Presence is something else than before.
    Became(SessionStatus),
    /// Look again at this moment of the monotonic clock.
    WakeAt {
        mono_ms: u64,
    },
    /// The retention is over.
    Retire,
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
    pub fn new(presence: Presence, retention: Duration, named: bool) -> Self {
        Self {
            presence,
            retention,
            named,
            link: None,
            depth: Depth::default(),
            waiters: 0,
            draining: false,
            drain_again: false,
            acted_on: SessionStatus::Active,
        }
    }

    pub fn connection(&self) -> Option<ConnectionId> {
        self.link.map(|link| link.connection)
    }

    pub fn push(&self) -> Option<Push> {
        self.link.and_then(|link| link.push)
    }

    pub fn depth(&self) -> Depth {
        self.depth
    }

    pub fn set_named(&mut self) {
        self.named = true;
    }

    /// The session was last found to be disconnected: a sign of life is news.
    pub fn is_away(&self) -> bool {
        self.acted_on == SessionStatus::Disconnected
    }

    /// What is left after a panic: the link, which is a fact about the world. The rest is read from the store anew.
    pub fn reload(&mut self) {
        *self = Self {
            link: self.link,
            named: self.named,
            ..Self::new(self.presence, self.retention, self.named)
        };
    }

    /// Whether a new message should be told at once.
    pub fn attentive(&self) -> bool {
        self.waiters > 0 || self.link.is_some_and(|link| link.push.is_some() || link.inbox_changes)
    }

    pub fn on(&mut self, event: Event) -> Effects {
        match event {
            Event::Attached { connection } => self.attached(connection),
            Event::Resumed => {
                let before = self.link.take();
                self.draining = false;
                Effects::default()
                    .and_maybe(before.map(|link| Effect::CloseTakenOver(link.connection)))
                    .and(Effect::Release)
            }
            Event::Detached { connection } => self.detached(connection),
            Event::Subscribed {
                connection,
                inbox_changes,
                push,
            } => self.subscribed(connection, inbox_changes, push),
            Event::Nudged => {
                let announce = self
                    .link
                    .is_some_and(|link| link.inbox_changes)
                    .then_some(Effect::Announce);
                let serve = (self.waiters > 0).then_some(Effect::Serve);
                let drain = self.drain();
                Effects::default().and_maybe(drain).and_maybe(serve).and_maybe(announce)
            }
            Event::Writable { connection } if self.connection() == Some(connection) => {
                Effects::default().and_maybe(self.drain())
            }
            Event::Writable { .. } => Effects::default(),
            Event::Drained { depth, handed_over } => {
                self.depth = depth;
                self.draining = false;
                // With nothing handed over there is nothing to hand over now, or no room: an event will say so.
                let again = std::mem::take(&mut self.drain_again) || (handed_over > 0 && depth.waiting > 0);
                Effects::default().and_maybe(if again { self.drain() } else { None })
            }
            Event::Changed { depth } => {
                self.depth = depth;
                Effects::default().and_maybe(if depth.waiting > 0 { self.drain() } else { None })
            }
            Event::WaitersChanged { waiters } => {
                self.waiters = waiters;
                Effects::default()
            }
            Event::Ticked {
                now,
                last_seen_mono_ms,
                said_goodbye,
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
        let before = self.link.replace(Link {
            connection,
            push: None,
            inbox_changes: false,
        });
        self.draining = false;
        Effects::default()
            .and_maybe(before.map(|link| Effect::CloseTakenOver(link.connection)))
            .and(Effect::Release)
    }

    fn detached(&mut self, connection: ConnectionId) -> Effects {
        if self.connection() != Some(connection) {
            return Effects::default();
        }
        self.link = None;
        self.draining = false;
        Effects::default().and(Effect::Release)
    }

    fn subscribed(&mut self, connection: ConnectionId, inbox_changes: bool, push: Option<Push>) -> Effects {
        match &mut self.link {
            Some(link) if link.connection == connection => {
                link.inbox_changes = inbox_changes;
                let before = std::mem::replace(&mut link.push, push);
                // What was pushed last may have met a connection that takes no more: it must not stay leased.
                let release = (before.is_some() && push.is_none()).then_some(Effect::Release);
                Effects::default().and_maybe(self.drain()).and_maybe(release)
            }
            _ => Effects::default(),
        }
    }

    /// A lease for the connection, if it takes messages and its window is open.
    fn drain(&mut self) -> Option<Effect> {
        if self.draining {
            self.drain_again = true;
            return None;
        }
        let window = self.push()?.window;
        let limit = window.saturating_sub(self.depth.leased);
        if limit == 0 {
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
        if status != self.acted_on {
            self.acted_on = status;
            effects = effects.and(Effect::Became(status));
            if status == SessionStatus::Disconnected {
                let link = self.link.take();
                self.draining = false;
                effects = effects
                    .and_maybe(link.map(|link| Effect::CloseSilent(link.connection)))
                    .and(Effect::Release);
            }
        }
        if status == SessionStatus::Disconnected && self.is_over(silence) {
            return effects.and(Effect::Retire);
        }
        let next = match status {
            SessionStatus::Active => self.presence.stale_after,
            SessionStatus::Stale => self.presence.disconnect_after,
            SessionStatus::Disconnected if self.nothing_to_keep() => self.presence.disconnect_after,
            SessionStatus::Disconnected => self.retained_for(),
        };
        effects.and(Effect::WakeAt {
            mono_ms: last_seen_mono_ms.saturating_add(millis(next)).max(now.mono_ms + 1),
        })
    }

    /// A name and an inbox are kept for the retention; a session that has neither has nothing to be kept for.
    fn is_over(&self, silence: Duration) -> bool {
        silence >= self.retained_for() || (self.nothing_to_keep() && silence >= self.presence.disconnect_after)
    }

    /// The silence after which nothing is kept any more.
    fn retained_for(&self) -> Duration {
        self.presence.disconnect_after.saturating_add(self.retention)
    }

    fn nothing_to_keep(&self) -> bool {
        !self.named && self.depth == Depth::default() && self.waiters == 0
    }
}
