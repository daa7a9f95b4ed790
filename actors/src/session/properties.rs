//! The state of a session in a simulated world that carries out its effects: a store, connections, callers and timers.
//!
//! The world knows which messages wait, which are leased and which connection is live. The state learns it from events, some of them
//! late. After each step the world checks what a session promises.

mod steps;

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use steps::{Step, steps};

use super::state::{AckMode, Effect, Event, PushMode, State};
use crate::{
    clock::Now,
    model::{ConnectionId, PresenceTimeouts, SessionStatus},
    storage::Depth,
};

const PRESENCE: PresenceTimeouts = PresenceTimeouts {
    stale_after: Duration::from_secs(30),
    disconnect_after: Duration::from_mins(1),
};
const RETENTION: Duration = Duration::from_mins(10);

/// An operation that took effect in the store and whose answer has not arrived.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    /// A lease for the connection, during this attachment.
    Drain {
        attachment: Option<u64>,
        leased: usize,
        depth: Depth,
    },
    Serve {
        leased: usize,
        depth: Depth,
    },
    Other {
        /// Messages leased by a call that did not wait.
        leased: usize,
        depth: Depth,
    },
}

/// A state and everything around it.
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
struct World {
    state: State,
    named: bool,
    /// The store answers at once, as in memory.
    prompt: bool,
    now: Now,
    last_seen_mono_ms: u64,
    has_left: bool,
    /// The waiting messages in the store.
    waiting: usize,
    leased: usize,
    /// How often everything leased was released.
    releases: usize,
    awaited: Vec<Awaited>,
    waiters: usize,
    serving: bool,
    serve_again: bool,
    has_budget: bool,
    live: Option<ConnectionId>,
    /// How often each connection was closed.
    closed: BTreeMap<ConnectionId, usize>,
    /// The window that the live connection asked for.
    window: Option<usize>,
    wake_at_ms: u64,
    presence: SessionStatus,
    over: bool,
}

impl World {
    fn new(named: bool, prompt: bool) -> Self {
        let now = Now {
            unix_ms: 1_800_000_000_000,
            mono_ms: 5000,
        };
        let mut world = Self {
            state: State::new(PRESENCE, RETENTION, named),
            named,
            prompt,
            now,
            last_seen_mono_ms: now.mono_ms,
            has_left: false,
            waiting: 0,
            leased: 0,
            releases: 0,
            awaited: Vec::new(),
            waiters: 0,
            serving: false,
            serve_again: false,
            has_budget: true,
            live: None,
            closed: BTreeMap::new(),
            window: None,
            wake_at_ms: 0,
            presence: SessionStatus::Active,
            over: false,
        };
        world.tick();
        world
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Attach => self.attach(ConnectionId::next()),
            Step::AttachAgain => self.live.into_iter().for_each(|connection| self.attach(connection)),
            Step::Resume => {
                let before = self.live.take();
                let closed_before = self.closed.clone();
                self.apply(Event::Resumed);
                self.check_taken_over(before, &closed_before);
                self.touch();
            }
            Step::Detach { stale } => self.detach(stale),
            Step::Subscribe {
                window,
                inbox_changes,
                stale,
            } => self.subscribe(window, inbox_changes, stale),
            Step::Append { count } => {
                self.waiting += count;
                if self.state.wants_wakeup() {
                    self.apply(Event::Nudged);
                }
            }
            Step::Answer => self.answer(),
            Step::Acknowledge { count } => {
                self.leased -= count.min(self.leased);
                self.begin_other();
            }
            Step::Receive { count } => {
                // A call is a heartbeat.
                self.touch();
                let leased = count.min(self.waiting);
                if leased > 0 {
                    self.lease(leased);
                    let depth = self.depth();
                    self.begin(Awaited::Other { leased, depth });
                } else {
                    self.waiters += 1;
                    self.waiters_changed();
                    // It reads the inbox after it is counted as a waiter, so that no message is missed in between.
                    self.serve();
                }
            }
            Step::GiveUpWaiting => {
                self.waiters = self.waiters.saturating_sub(1);
                self.waiters_changed();
            }
            Step::Budget(has_budget) => {
                self.has_budget = has_budget;
                if let Some(connection) = self.live.filter(|_| has_budget) {
                    self.apply(Event::Writable { connection });
                }
            }
            Step::Touch => self.touch(),
            Step::Leave => {
                self.has_left = true;
                if let Some(connection) = self.live.take() {
                    self.apply(Event::Detached { connection });
                }
                self.tick();
            }
            Step::Pass { seconds } => self.pass(seconds),
            Step::Panic => self.panic(),
        }
        self.check();
    }

    fn attach(&mut self, connection: ConnectionId) {
        let again = self.live == Some(connection);
        let before = self.live.replace(connection).filter(|_| !again);
        let closed_before = self.closed.clone();
        self.closed.entry(connection).or_default();
        if !again {
            self.window = None;
            self.has_budget = true;
        }
        self.apply(Event::Attached { connection });
        self.check_taken_over(before, &closed_before);
        self.touch();
    }

    /// The connection that was live before was closed once, and no other.
    fn check_taken_over(&self, before: Option<ConnectionId>, closed_before: &BTreeMap<ConnectionId, usize>) {
        for (connection, times) in &self.closed {
            let expected =
                closed_before.get(connection).copied().unwrap_or(0) + usize::from(before == Some(*connection));
            assert_eq!(*times, expected, "closings of {connection:?}");
        }
    }

    fn detach(&mut self, stale: bool) {
        let connection = if stale {
            self.closed
                .keys()
                .copied()
                .find(|&connection| self.live != Some(connection))
        } else {
            self.live.take()
        };
        if let Some(connection) = connection {
            let releases = self.releases;
            self.apply(Event::Detached { connection });
            let released = self.releases > releases;
            assert_eq!(released, !stale && !self.over, "what it had in flight is released once");
        }
    }

    fn subscribe(&mut self, window: Option<usize>, inbox_changes: bool, stale: bool) {
        let connection = if stale {
            self.closed
                .keys()
                .copied()
                .find(|&connection| self.live != Some(connection))
        } else {
            self.window = self.live.and(window);
            self.live
        };
        let push = window.map(|window| PushMode {
            window,
            ack: AckMode::Manual,
        });
        if let Some(connection) = connection {
            self.apply(Event::Subscribed {
                connection,
                inbox_changes,
                push,
            });
        }
    }

    fn touch(&mut self) {
        self.last_seen_mono_ms = self.now.mono_ms;
        self.has_left = false;
        self.tick();
    }

    /// Time passes. Every timer goes off on time; the store answers before the next one.
    fn pass(&mut self, seconds: u64) {
        let until_ms = self.now.mono_ms + seconds * 1000;
        self.answer_all();
        while self.wake_at_ms <= until_ms && !self.over {
            self.at(self.wake_at_ms);
            self.tick();
            self.answer_all();
        }
        self.at(until_ms.max(self.now.mono_ms));
    }

    fn at(&mut self, mono_ms: u64) {
        self.now.unix_ms += mono_ms - self.now.mono_ms;
        self.now.mono_ms = mono_ms;
    }

    fn tick(&mut self) {
        self.apply(Event::Ticked {
            now: self.now,
            last_seen_mono_ms: self.last_seen_mono_ms,
            has_left: self.has_left,
            waiting: self.waiting,
        });
        if self.over {
            return;
        }
        assert!(self.wake_at_ms > self.now.mono_ms, "it wakes in the future");
        assert_eq!(
            self.presence,
            self.true_presence(),
            "the presence follows from the silence"
        );
    }

    /// The actor panics and starts again: its operations, calls and timers are gone.
    fn panic(&mut self) {
        self.awaited.clear();
        self.waiters = 0;
        self.serving = false;
        self.serve_again = false;
        self.state.reset_after_panic(self.live);
        self.presence = SessionStatus::Active;
        self.release();
        self.tick();
    }

    fn true_presence(&self) -> SessionStatus {
        if self.has_left {
            SessionStatus::Disconnected
        } else {
            PRESENCE.status(self.silence())
        }
    }

    fn silence(&self) -> Duration {
        self.now.since(self.last_seen_mono_ms)
    }

    fn depth(&self) -> Depth {
        Depth {
            waiting: self.waiting,
            leased: self.leased,
        }
    }

    fn lease(&mut self, count: usize) {
        self.waiting -= count;
        self.leased += count;
    }

    fn release(&mut self) {
        self.releases += 1;
        self.waiting += std::mem::take(&mut self.leased);
        self.begin_other();
    }

    fn waiters_changed(&mut self) {
        let waiters = self.waiters + usize::from(self.serving);
        self.apply(Event::WaitersChanged { waiters });
    }

    fn serve(&mut self) {
        if self.serving {
            self.serve_again = true;
        } else if self.waiters > 0 {
            self.waiters -= 1;
            self.serving = true;
            self.waiters_changed();
            let leased = self.waiting.min(2);
            self.lease(leased);
            self.begin(Awaited::Serve {
                leased,
                depth: self.depth(),
            });
        }
    }

    /// An operation that leases nothing.
    fn begin_other(&mut self) {
        let depth = self.depth();
        self.begin(Awaited::Other { leased: 0, depth });
    }

    fn begin(&mut self, awaited: Awaited) {
        self.awaited.push(awaited);
        if self.prompt {
            self.answer();
        }
    }

    /// Answers arrive in the order in which their operations were begun.
    fn answer(&mut self) {
        if self.awaited.is_empty() {
            return;
        }
        match self.awaited.remove(0) {
            Awaited::Drain {
                attachment,
                leased,
                depth,
            } => {
                if self.state.attachment_number() == attachment {
                    self.apply(Event::Drained {
                        depth,
                        delivered: leased,
                    });
                } else {
                    // The lease was released when its attachment ended.
                    self.begin_other();
                }
            }
            Awaited::Serve { leased, depth } => {
                self.serving = false;
                if leased == 0 {
                    self.waiters += 1;
                }
                self.waiters_changed();
                self.apply(Event::DepthChanged { depth });
                if std::mem::take(&mut self.serve_again) {
                    self.serve();
                }
            }
            Awaited::Other { depth, .. } => self.apply(Event::DepthChanged { depth }),
        }
    }

    fn answer_all(&mut self) {
        while !self.awaited.is_empty() && !self.over {
            self.answer();
        }
    }

    fn apply(&mut self, event: Event) {
        if self.over {
            return;
        }
        let effects = self.state.on(event);
        let mut seen = Vec::new();
        for effect in effects {
            seen.push(effect);
            self.carry_out(effect, event);
        }
        let disconnected = seen.contains(&Effect::PresenceChanged(SessionStatus::Disconnected));
        if disconnected {
            assert!(seen.contains(&Effect::Release), "{seen:?} releases what is in flight");
            assert_eq!(
                self.state.connection(),
                None,
                "a disconnected session has no connection"
            );
        }
    }

    fn carry_out(&mut self, effect: Effect, cause: Event) {
        match effect {
            Effect::CloseTakenOver(connection) | Effect::CloseSilent(connection) => {
                if matches!(effect, Effect::CloseSilent(_)) {
                    assert_eq!(self.live.take(), Some(connection), "the live one is closed");
                }
                *self.closed.entry(connection).or_default() += 1;
                assert_eq!(self.closed[&connection], 1, "a connection is closed once");
                assert_ne!(self.live, Some(connection));
            }
            Effect::Claim | Effect::Release => self.release(),
            Effect::Drain { limit } => self.drain(limit, cause),
            Effect::ServeWaiters => {
                assert!(self.waiters > 0 || self.serving, "a call waits");
                self.serve();
            }
            Effect::NotifyInboxChanged => assert!(self.live.is_some(), "a connection subscribes"),
            Effect::PresenceChanged(status) => {
                assert_ne!(status, self.presence, "the presence changes");
                assert_eq!(status, self.true_presence(), "the presence is the true one");
                self.presence = status;
            }
            Effect::WakeAt { mono_ms } => {
                assert!(mono_ms > self.now.mono_ms, "it wakes in the future");
                self.wake_at_ms = mono_ms;
            }
            Effect::EndSession => {
                let nothing_kept = !self.named && self.waiting == 0 && self.leased == 0 && self.waiters == 0;
                let least = PRESENCE.disconnect_after + if nothing_kept { Duration::ZERO } else { RETENTION };
                assert!(self.silence() >= least, "too early: {:?} of {least:?}", self.silence());
                self.over = true;
            }
        }
    }

    fn drain(&mut self, limit: usize, cause: Event) {
        let window = self.window.expect("a connection that takes messages");
        assert!(self.live.is_some() && limit > 0);
        let is_current = |awaited: &&Awaited| matches!(awaited, Awaited::Drain { attachment, .. } if *attachment == self.state.attachment_number());
        assert!(
            !self.awaited.iter().any(|awaited| is_current(&awaited)),
            "one lease at a time"
        );
        // Operations whose answers are on the way can only have opened the window, except calls that leased messages.
        let taken_by_calls: usize = self
            .awaited
            .iter()
            .map(|awaited| match awaited {
                Awaited::Serve { leased, .. } | Awaited::Other { leased, .. } => *leased,
                Awaited::Drain { .. } => 0,
            })
            .sum();
        assert!(
            self.leased + limit <= window + taken_by_calls,
            "{} leased, {limit} more asked for, the window is {window}, after {cause:?}",
            self.leased
        );
        let depth = self.depth();
        let attachment = self.state.attachment_number();
        if self.has_budget {
            let leased = limit.min(self.waiting);
            self.lease(leased);
            self.begin(Awaited::Drain {
                attachment,
                leased,
                depth: self.depth(),
            });
        } else {
            self.apply(Event::Drained { depth, delivered: 0 });
        }
    }

    /// What holds when every answer has arrived and nothing else happens.
    fn check(&self) {
        assert_eq!(
            self.state.connection(),
            self.live.filter(|_| !self.over),
            "the live connection is attached, and no other"
        );
        let quiet = self.awaited.is_empty() && !self.over;
        if !quiet || self.waiting == 0 {
            return;
        }
        assert!(
            self.waiters == 0,
            "{} wait, {} calls wait for them",
            self.waiting,
            self.waiters
        );
        if let (Some(window), true) = (self.window, self.has_budget && self.live.is_some()) {
            assert!(
                self.leased >= window,
                "{} wait, {} of {window} are in flight, and no lease was begun",
                self.waiting,
                self.leased
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_session_keeps_its_promises_over_a_store_that_answers_at_once(steps in steps(), named: bool) {
        let mut world = World::new(named, true);
        for step in steps {
            world.take(step);
            if world.over {
                break;
            }
        }
    }

    #[test]
    fn a_session_keeps_its_promises_over_a_store_that_answers_later(steps in steps(), named: bool) {
        let mut world = World::new(named, false);
        for step in steps {
            world.take(step);
            if world.over {
                return Ok(());
            }
        }
        // In the end every answer arrives.
        world.answer_all();
        world.check();
    }
}
