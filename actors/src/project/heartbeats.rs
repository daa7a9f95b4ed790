//! What replicas tell each other of signs of life. Pure.

use std::{collections::HashMap, time::Duration};

use crate::{
    clock::{Now, millis},
    model::SessionId,
    storage::{Heartbeat, HeartbeatExchange},
};

/// The last sign of life of a session, as it was told or heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LastSeen {
    /// On the monotonic clock of this process.
    pub mono_ms: u64,
    pub left: bool,
}

impl LastSeen {
    /// Whether this tells more than what is known.
    fn is_newer_than(self, known: Self) -> bool {
        self.mono_ms > known.mono_ms.saturating_add(millis(HEARTBEAT_RESOLUTION))
            || (self.left != known.left && self.mono_ms >= known.mono_ms)
    }

    fn is_close_to(self, known: Self) -> bool {
        self.left == known.left && self.mono_ms.abs_diff(known.mono_ms) <= millis(HEARTBEAT_RESOLUTION)
    }

    pub fn heartbeat(self, session: SessionId, now: Now) -> Heartbeat {
        Heartbeat {
            session,
            ago: now.since(self.mono_ms),
            has_left: self.left,
        }
    }

    fn from_heartbeat(sign: &Heartbeat, now: Now) -> Self {
        Self {
            mono_ms: now.mono_ms.saturating_sub(millis(sign.ago)),
            left: sign.has_left,
        }
    }
}

/// What everybody knows: what this replica has told, and what it has heard.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    known: HashMap<SessionId, KnownHeartbeat>,
    /// The last frame that had been published when signs were exchanged last.
    frame_seq: u64,
    /// When the exchange was asked for that was heard last.
    asked_mono_ms: u64,
}

#[derive(Debug)]
struct KnownHeartbeat {
    seen: LastSeen,
    source: Source,
}

/// Where a sign was.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// At this replica, which has told it.
    Local,
    /// The frame told of it, and not when it was: it counts as given when it was heard, which was later, until its sign
    /// is exchanged.
    Frame(u64),
    /// It was heard in an exchange.
    Exchange,
}

/// A sign that is news here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewHeartbeat {
    pub seen: LastSeen,
    /// What it counted as until now, if that was no more than heard.
    pub replaces_mono_ms: Option<u64>,
}

/// Signs are told in milliseconds, by clocks that are read a tick apart: less than this is no news.
const HEARTBEAT_RESOLUTION: Duration = Duration::from_millis(20);

impl Heartbeats {
    /// Whether nobody else knows of this yet. It counts as told then.
    pub fn record_local(&mut self, session: SessionId, seen: LastSeen) -> bool {
        let known = self.known.get(&session);
        let is_news = known.is_none_or(|known| seen.is_newer_than(known.seen));
        if is_news {
            let source = Source::Local;
            self.known.insert(session, KnownHeartbeat { seen, source });
        }
        is_news
    }

    /// A frame has told that a session was put by another replica, which is a sign of life. False when that sign, or one
    /// that came after it, has been heard already.
    pub fn apply_put_frame(&mut self, session: SessionId, frame: u64, now: Now) -> bool {
        let is_news = frame > self.frame_seq;
        if is_news {
            let seen = LastSeen {
                mono_ms: now.mono_ms,
                left: false,
            };
            let source = Source::Frame(frame);
            self.known.insert(session, KnownHeartbeat { seen, source });
        }
        is_news
    }

    /// What is news of the signs that were exchanged, for which the store was `asked` then, and has answered `now`. It has
    /// looked at some time between: a sign may be older than its age says now, by as much as the answer took.
    pub fn apply_exchange(
        &mut self,
        HeartbeatExchange {
            heartbeats: signs,
            frame_seq: serial,
        }: HeartbeatExchange,
        asked: Now,
        now: Now,
    ) -> Vec<(SessionId, NewHeartbeat)> {
        if asked.mono_ms < self.asked_mono_ms {
            // One that was asked for later has told all of this, as it is by now.
            return Vec::new();
        }
        self.asked_mono_ms = asked.mono_ms;
        self.frame_seq = serial;
        let heard = signs.into_iter().filter_map(|sign| {
            let (session, seen) = (sign.session, LastSeen::from_heartbeat(&sign, now));
            let (is_news, instead_of) = match self.known.get(&session) {
                None => (true, None),
                // Unless it is a goodbye it may be what was seen here: it is to be later for sure.
                Some(known) if matches!(known.source, Source::Local) && !sign.has_left => {
                    (LastSeen::from_heartbeat(&sign, asked).is_newer_than(known.seen), None)
                }
                // Of what it has told before, the store tells nothing older.
                Some(KnownHeartbeat { seen: before, source }) => match source {
                    Source::Frame(frame) if *frame <= serial => (true, Some(before.mono_ms)),
                    Source::Exchange => (!seen.is_close_to(*before), Some(before.mono_ms)),
                    Source::Local | Source::Frame(_) => (seen.is_newer_than(*before), None),
                },
            };
            if !is_news {
                return None;
            }
            let source = Source::Exchange;
            self.known.insert(session, KnownHeartbeat { seen, source });
            Some((
                session,
                NewHeartbeat {
                    seen,
                    replaces_mono_ms: instead_of,
                },
            ))
        });
        heard.collect()
    }

    pub fn last_seen(&self, session: SessionId) -> Option<LastSeen> {
        self.known.get(&session).map(|known| known.seen)
    }

    pub fn remove(&mut self, session: SessionId) {
        self.known.remove(&session);
    }

    /// They could not be told after all.
    pub fn retract(&mut self, signs: &[SessionId]) {
        for session in signs {
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

    fn seen(mono_ms: u64, goodbye: bool) -> LastSeen {
        LastSeen { mono_ms, left: goodbye }
    }

    fn hear(signs: &mut Heartbeats, sign: Heartbeat, serial: u64, now: u64) -> Option<(LastSeen, Option<u64>)> {
        hear_late(signs, sign, serial, now, now)
    }

    fn hear_late(
        signs: &mut Heartbeats,
        sign: Heartbeat,
        serial: u64,
        asked: u64,
        now: u64,
    ) -> Option<(LastSeen, Option<u64>)> {
        let exchanged = HeartbeatExchange {
            heartbeats: vec![sign],
            frame_seq: serial,
        };
        let heard = signs.apply_exchange(exchanged, at(asked), at(now)).pop();
        heard.map(|(_, heard)| (heard.seen, heard.replaces_mono_ms))
    }

    /// The store is asked at 10,000, looks at 10,200 and answers at 10,400.
    fn looks_late(
        signs: &mut Heartbeats,
        session: SessionId,
        seen_ms: u64,
        goodbye: bool,
    ) -> Option<(LastSeen, Option<u64>)> {
        let ago = Duration::from_millis(10_200 - seen_ms);
        let sign = Heartbeat {
            session,
            ago,
            has_left: goodbye,
        };
        hear_late(signs, sign, 0, 10_000, 10_400)
    }

    #[test]
    fn what_was_seen_here_does_not_come_back_as_later_than_it_was() {
        let (mut signs, bob) = (Heartbeats::default(), SessionId::generate());
        assert!(signs.record_local(bob, seen(9_900, false)));
        assert_eq!(looks_late(&mut signs, bob, 9_900, false), None);
        // So what was seen after it, and before the answer, is told.
        assert!(signs.record_local(bob, seen(10_050, true)));
        assert_eq!(looks_late(&mut signs, bob, 9_900, false), None);
        // What is later for sure is heard.
        let sign = |goodbye| Heartbeat {
            session: bob,
            ago: Duration::ZERO,
            has_left: goodbye,
        };
        let back = Some((seen(11_400, false), None));
        assert_eq!(hear_late(&mut signs, sign(false), 0, 11_000, 11_400), back);
    }

    #[test]
    fn a_goodbye_elsewhere_is_heard_however_slow_the_store_is() {
        let (mut signs, bob) = (Heartbeats::default(), SessionId::generate());
        assert!(signs.record_local(bob, seen(9_900, false)));
        assert_eq!(
            looks_late(&mut signs, bob, 9_950, true),
            Some((seen(10_150, true), None))
        );
        // And when what was heard before it took longer.
        let mut signs = Heartbeats::default();
        assert_eq!(
            looks_late(&mut signs, bob, 10_100, false),
            Some((seen(10_300, false), None))
        );
        let goodbye = Heartbeat {
            session: bob,
            ago: Duration::from_millis(300),
            has_left: true,
        };
        let heard = Some((seen(10_150, true), Some(10_300)));
        assert_eq!(hear(&mut signs, goodbye, 0, 10_450), heard);
        assert_eq!(hear(&mut signs, goodbye, 0, 10_450), None, "once is enough");
        assert_eq!(looks_late(&mut signs, bob, 10_100, false), None, "overtaken");
    }

    #[test]
    fn what_was_heard_is_not_told_again() {
        let (mut signs, bob) = (Heartbeats::default(), SessionId::generate());
        let sign = Heartbeat {
            session: bob,
            ago: Duration::from_secs(2),
            has_left: false,
        };
        let hear = |signs: &mut Heartbeats| hear(signs, sign, 0, 10_000);
        assert_eq!(hear(&mut signs), Some((seen(8_000, false), None)));
        assert!(!signs.record_local(bob, seen(8_000, false)));
        assert!(signs.record_local(bob, seen(9_000, false)));
        assert!(!signs.record_local(bob, seen(9_000, false)), "once is enough");
        assert_eq!(hear(&mut signs), None, "older than what is known");
    }

    /// A session is put, and says goodbye 3 seconds ago; the frame comes late.
    #[test]
    fn a_goodbye_is_heard_whenever_the_frame_comes_that_brought_the_session() {
        let bob = SessionId::generate();
        let sign = |seconds, goodbye| Heartbeat {
            session: bob,
            ago: Duration::from_secs(seconds),
            has_left: goodbye,
        };
        let mut signs = Heartbeats::default();
        assert!(signs.apply_put_frame(bob, 7, at(10_000)));
        assert!(
            !signs.record_local(bob, seen(10_000, false)),
            "others have that frame too"
        );
        assert_eq!(
            hear(&mut signs, sign(5, true), 6, 11_000),
            None,
            "from before it was put"
        );
        let goodbye = Some((seen(8_000, true), Some(10_000)));
        assert_eq!(hear(&mut signs, sign(3, true), 7, 11_000), goodbye);
        assert_eq!(signs.last_seen(bob), Some(seen(8_000, true)));
        // Or what was exchanged comes first.
        let mut signs = Heartbeats::default();
        assert_eq!(
            hear(&mut signs, sign(3, true), 7, 11_000),
            Some((seen(8_000, true), None))
        );
        assert!(!signs.apply_put_frame(bob, 7, at(12_000)));
        assert_eq!(signs.last_seen(bob), Some(seen(8_000, true)));
        assert!(signs.apply_put_frame(bob, 8, at(12_000)), "it has come back");
        assert_eq!(signs.last_seen(bob), Some(seen(12_000, false)));
    }

    #[test]
    fn a_goodbye_is_news_until_the_next_sign() {
        let (mut signs, bob) = (Heartbeats::default(), SessionId::generate());
        assert!(signs.record_local(bob, seen(5_000, false)));
        assert!(signs.record_local(bob, seen(5_000, true)));
        assert!(!signs.record_local(bob, seen(5_000, true)));
        assert!(signs.record_local(bob, seen(6_000, false)));
    }
}
