//! Heartbeats exchanged between replicas: which local ones to tell, and which remote ones are newer. Pure.

use std::{collections::HashMap, time::Duration};

use crate::{
    clock::{Now, millis},
    model::SessionId,
    storage::{Heartbeat, HeartbeatExchange},
};

/// The last heartbeat of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LastSeen {
    /// Milliseconds on the monotonic clock of this process.
    pub mono_ms: u64,
    /// The session left of its own will.
    pub left: bool,
    /// The session has a live connection, as far as its store keeps that.
    pub connected: bool,
}

impl LastSeen {
    /// Whether this is newer than what is known.
    fn is_newer_than(self, known: Self) -> bool {
        self.mono_ms > known.mono_ms.saturating_add(millis(HEARTBEAT_RESOLUTION))
            || (self.left != known.left && self.mono_ms >= known.mono_ms)
            || self.connected != known.connected
    }

    fn is_close_to(self, known: Self) -> bool {
        self.left == known.left && self.mono_ms.abs_diff(known.mono_ms) <= millis(HEARTBEAT_RESOLUTION)
    }

    /// This heartbeat with its age, as replicas exchange it.
    pub fn heartbeat(self, session: SessionId, now: Now) -> Heartbeat {
        Heartbeat {
            session,
            ago: now.since(self.mono_ms),
            has_left: self.left,
            is_connected: self.connected,
        }
    }

    pub fn from_heartbeat(heartbeat: &Heartbeat, now: Now) -> Self {
        Self {
            mono_ms: now.mono_ms.saturating_sub(millis(heartbeat.ago)),
            left: heartbeat.has_left,
            connected: heartbeat.is_connected,
        }
    }
}

/// What all replicas know: the heartbeats that this replica has sent or received.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    known: HashMap<SessionId, KnownHeartbeat>,
    /// The last frame published before the last exchange.
    frame_seq: u64,
    /// When the last applied exchange was requested, in milliseconds on the monotonic clock.
    asked_mono_ms: u64,
}

#[derive(Debug)]
struct KnownHeartbeat {
    seen: LastSeen,
    source: Source,
}

/// The source of a heartbeat.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Seen at this replica and sent to the others.
    Local,
    /// A frame announced the session without a time. The heartbeat counts from the arrival of the frame, which is
    /// later, until the exchange brings its time.
    Frame(u64),
    /// Received in an exchange.
    Exchange,
}

/// A heartbeat that is new to this replica.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewHeartbeat {
    pub seen: LastSeen,
    /// The estimate that it replaces, in milliseconds on the monotonic clock; None if the session was seen here.
    pub replaces_mono_ms: Option<u64>,
}

/// Heartbeats are sent in milliseconds by clocks that are read a tick apart: a smaller difference is no change.
const HEARTBEAT_RESOLUTION: Duration = Duration::from_millis(20);

impl Heartbeats {
    /// Records a local heartbeat. Returns whether it must be sent to the other replicas; it then counts as sent.
    pub fn record_local(&mut self, session: SessionId, seen: LastSeen) -> bool {
        let known = self.known.get(&session);
        let is_new = known.is_none_or(|known| seen.is_newer_than(known.seen));
        if is_new {
            let source = Source::Local;
            self.known.insert(session, KnownHeartbeat { seen, source });
        }
        is_new
    }

    /// A frame announced that another replica has put a session, which counts as a heartbeat. Returns false when that
    /// heartbeat or a later one is known already.
    pub fn apply_put_frame(&mut self, session: SessionId, frame: u64, now: Now) -> bool {
        let is_new = frame > self.frame_seq;
        if is_new {
            let seen = LastSeen {
                mono_ms: now.mono_ms,
                ..LastSeen::default()
            };
            let source = Source::Frame(frame);
            self.known.insert(session, KnownHeartbeat { seen, source });
        }
        is_new
    }

    /// The new heartbeats of an exchange that was requested at `asked` and answered at `now`. The store read them at
    /// some time in between, so a heartbeat may be older than its age says, by as much as the answer took.
    pub fn apply_exchange(
        &mut self,
        HeartbeatExchange { heartbeats, frame_seq }: HeartbeatExchange,
        asked: Now,
        now: Now,
    ) -> Vec<(SessionId, NewHeartbeat)> {
        if asked.mono_ms < self.asked_mono_ms {
            // A later exchange has already sent all of this.
            return Vec::new();
        }
        self.asked_mono_ms = asked.mono_ms;
        self.frame_seq = frame_seq;
        let received = heartbeats.into_iter().filter_map(|heartbeat| {
            let (session, seen) = (heartbeat.session, LastSeen::from_heartbeat(&heartbeat, now));
            let (is_new, replaces_mono_ms) = match self.known.get(&session) {
                None => (true, None),
                // Unless the session has left, it may be the heartbeat that was seen here: it must be later beyond
                // doubt.
                Some(known) if matches!(known.source, Source::Local) && !heartbeat.has_left => (
                    LastSeen::from_heartbeat(&heartbeat, asked).is_newer_than(known.seen),
                    None,
                ),
                // The store never replaces a heartbeat by an older one.
                Some(KnownHeartbeat { seen: before, source }) => match source {
                    Source::Frame(frame) if *frame <= frame_seq => (true, Some(before.mono_ms)),
                    Source::Exchange => (!seen.is_close_to(*before), Some(before.mono_ms)),
                    Source::Local | Source::Frame(_) => (seen.is_newer_than(*before), None),
                },
            };
            if !is_new {
                return None;
            }
            let source = Source::Exchange;
            self.known.insert(session, KnownHeartbeat { seen, source });
            Some((session, NewHeartbeat { seen, replaces_mono_ms }))
        });
        received.collect()
    }

    /// The last known heartbeat.
    pub fn last_seen(&self, session: SessionId) -> Option<LastSeen> {
        self.known.get(&session).map(|known| known.seen)
    }

    /// Forgets a session that has ended.
    pub fn remove(&mut self, session: SessionId) {
        self.known.remove(&session);
    }

    /// Forgets these heartbeats: they could not be sent.
    pub fn retract(&mut self, heartbeats: &[SessionId]) {
        for session in heartbeats {
            self.known.remove(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono_ms: u64) -> Now {
        Now { unix_ms: 0, mono_ms }
    }

    fn seen(mono_ms: u64, left: bool) -> LastSeen {
        LastSeen {
            mono_ms,
            left,
            connected: false,
        }
    }

    fn exchange(
        heartbeats: &mut Heartbeats,
        heartbeat: Heartbeat,
        seq: u64,
        now: u64,
    ) -> Option<(LastSeen, Option<u64>)> {
        exchange_slowly(heartbeats, heartbeat, seq, now, now)
    }

    fn exchange_slowly(
        heartbeats: &mut Heartbeats,
        heartbeat: Heartbeat,
        seq: u64,
        asked: u64,
        now: u64,
    ) -> Option<(LastSeen, Option<u64>)> {
        let exchanged = HeartbeatExchange {
            heartbeats: vec![heartbeat],
            frame_seq: seq,
        };
        let received = heartbeats.apply_exchange(exchanged, at(asked), at(now)).pop();
        received.map(|(_, received)| (received.seen, received.replaces_mono_ms))
    }

    /// The store is asked at 10,000, reads at 10,200 and answers at 10,400.
    fn exchange_midway(
        heartbeats: &mut Heartbeats,
        session: SessionId,
        seen_ms: u64,
        left: bool,
    ) -> Option<(LastSeen, Option<u64>)> {
        let ago = Duration::from_millis(10_200 - seen_ms);
        let heartbeat = Heartbeat {
            session,
            ago,
            has_left: left,
            is_connected: false,
        };
        exchange_slowly(heartbeats, heartbeat, 0, 10_000, 10_400)
    }

    #[test]
    fn a_local_heartbeat_does_not_come_back_as_a_later_one() {
        let (mut heartbeats, bob) = (Heartbeats::default(), SessionId::generate());
        assert!(heartbeats.record_local(bob, seen(9_900, false)));
        assert_eq!(exchange_midway(&mut heartbeats, bob, 9_900, false), None);
        // A heartbeat seen between the two is therefore sent.
        assert!(heartbeats.record_local(bob, seen(10_050, true)));
        assert_eq!(exchange_midway(&mut heartbeats, bob, 9_900, false), None);
        // A heartbeat that is later beyond doubt is applied.
        let heartbeat = |left| Heartbeat {
            session: bob,
            ago: Duration::ZERO,
            has_left: left,
            is_connected: false,
        };
        let back = Some((seen(11_400, false), None));
        assert_eq!(
            exchange_slowly(&mut heartbeats, heartbeat(false), 0, 11_000, 11_400),
            back
        );
    }

    #[test]
    fn a_leave_at_another_replica_is_applied_even_if_the_store_is_slow() {
        let (mut heartbeats, bob) = (Heartbeats::default(), SessionId::generate());
        assert!(heartbeats.record_local(bob, seen(9_900, false)));
        assert_eq!(
            exchange_midway(&mut heartbeats, bob, 9_950, true),
            Some((seen(10_150, true), None))
        );
        // The same after a slower exchange.
        let mut heartbeats = Heartbeats::default();
        assert_eq!(
            exchange_midway(&mut heartbeats, bob, 10_100, false),
            Some((seen(10_300, false), None))
        );
        let left = Heartbeat {
            session: bob,
            ago: Duration::from_millis(300),
            has_left: true,
            is_connected: false,
        };
        let received = Some((seen(10_150, true), Some(10_300)));
        assert_eq!(exchange(&mut heartbeats, left, 0, 10_450), received);
        assert_eq!(exchange(&mut heartbeats, left, 0, 10_450), None, "told once");
        assert_eq!(exchange_midway(&mut heartbeats, bob, 10_100, false), None, "overtaken");
    }

    #[test]
    fn a_received_heartbeat_is_not_told_again() {
        let (mut heartbeats, bob) = (Heartbeats::default(), SessionId::generate());
        let heartbeat = Heartbeat {
            session: bob,
            ago: Duration::from_secs(2),
            has_left: false,
            is_connected: false,
        };
        let exchange = |heartbeats: &mut Heartbeats| exchange(heartbeats, heartbeat, 0, 10_000);
        assert_eq!(exchange(&mut heartbeats), Some((seen(8_000, false), None)));
        assert!(!heartbeats.record_local(bob, seen(8_000, false)));
        assert!(heartbeats.record_local(bob, seen(9_000, false)));
        assert!(!heartbeats.record_local(bob, seen(9_000, false)), "told once");
        assert_eq!(exchange(&mut heartbeats), None, "older than the known heartbeat");
    }

    /// A session is put, and leaves three seconds ago; the frame of the put comes late.
    #[test]
    fn a_leave_is_applied_whenever_the_frame_of_the_put_arrives() {
        let bob = SessionId::generate();
        let heartbeat = |seconds, left| Heartbeat {
            session: bob,
            ago: Duration::from_secs(seconds),
            has_left: left,
            is_connected: false,
        };
        let mut heartbeats = Heartbeats::default();
        assert!(heartbeats.apply_put_frame(bob, 7, at(10_000)));
        assert!(
            !heartbeats.record_local(bob, seen(10_000, false)),
            "the other replicas have that frame too"
        );
        assert_eq!(
            exchange(&mut heartbeats, heartbeat(5, true), 6, 11_000),
            None,
            "from before the put"
        );
        let left = Some((seen(8_000, true), Some(10_000)));
        assert_eq!(exchange(&mut heartbeats, heartbeat(3, true), 7, 11_000), left);
        assert_eq!(heartbeats.last_seen(bob), Some(seen(8_000, true)));
        // The exchange may come first.
        let mut heartbeats = Heartbeats::default();
        assert_eq!(
            exchange(&mut heartbeats, heartbeat(3, true), 7, 11_000),
            Some((seen(8_000, true), None))
        );
        assert!(!heartbeats.apply_put_frame(bob, 7, at(12_000)));
        assert_eq!(heartbeats.last_seen(bob), Some(seen(8_000, true)));
        assert!(
            heartbeats.apply_put_frame(bob, 8, at(12_000)),
            "it has registered again"
        );
        assert_eq!(heartbeats.last_seen(bob), Some(seen(12_000, false)));
    }

    #[test]
    fn a_leave_is_new_until_the_next_heartbeat() {
        let (mut heartbeats, bob) = (Heartbeats::default(), SessionId::generate());
        assert!(heartbeats.record_local(bob, seen(5_000, false)));
        assert!(heartbeats.record_local(bob, seen(5_000, true)));
        assert!(!heartbeats.record_local(bob, seen(5_000, true)));
        assert!(heartbeats.record_local(bob, seen(6_000, false)));
    }
}
