//! What replicas tell each other of signs of life. Pure.

use std::{collections::HashMap, time::Duration};

use crate::{
    clock::{Now, millis},
    model::SessionId,
    storage::{Exchanged, Sign},
};

/// The last sign of life of a session, as it was told or heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// On the monotonic clock of this process.
    pub mono_ms: u64,
    pub goodbye: bool,
}

impl Seen {
    pub fn sign(self, session: SessionId, now: Now) -> Sign {
        Sign {
            session,
            ago: now.since(self.mono_ms),
            goodbye: self.goodbye,
        }
    }

    fn heard(sign: &Sign, now: Now) -> Self {
        Self {
            mono_ms: now.mono_ms.saturating_sub(millis(sign.ago)),
            goodbye: sign.goodbye,
        }
    }
}

/// What everybody knows: what this replica has told, and what it has heard.
#[derive(Debug, Default)]
pub(super) struct Signs {
    known: HashMap<SessionId, Known>,
    /// The last frame that had been published when signs were exchanged last.
    serial: u64,
}

#[derive(Debug)]
struct Known {
    seen: Seen,
    /// The frame that told of it, and not when it was: it counts as given when it was heard, which was later, until its
    /// sign is exchanged.
    frame: Option<u64>,
}

/// A sign that is news here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub seen: Seen,
    /// What it counted as until now, which was too late.
    pub instead_of: Option<u64>,
}

/// Signs are told in milliseconds, by clocks that are read a tick apart: less than this is no news.
const NEWS: Duration = Duration::from_millis(20);

impl Signs {
    /// Whether nobody else knows of this yet. It counts as told then.
    pub fn is_news(&mut self, session: SessionId, seen: Seen) -> bool {
        let known = self.known.get(&session);
        let is_news = known.is_none_or(|Known { seen: known, .. }| {
            seen.mono_ms > known.mono_ms.saturating_add(millis(NEWS))
                || (seen.goodbye != known.goodbye && seen.mono_ms >= known.mono_ms)
        });
        if is_news {
            self.known.insert(session, Known { seen, frame: None });
        }
        is_news
    }

    /// A frame has told that a session was put by another replica, which is a sign of life. False when that sign, or one
    /// that came after it, has been heard already.
    pub fn is_put(&mut self, session: SessionId, frame: u64, now: Now) -> bool {
        let is_news = frame > self.serial;
        if is_news {
            let seen = Seen {
                mono_ms: now.mono_ms,
                goodbye: false,
            };
            let frame = Some(frame);
            self.known.insert(session, Known { seen, frame });
        }
        is_news
    }

    /// What is news of the signs that were exchanged.
    pub fn hear(&mut self, Exchanged { signs, serial }: Exchanged, now: Now) -> Vec<(SessionId, Heard)> {
        self.serial = serial;
        let heard = signs.into_iter().filter_map(|sign| {
            let (session, seen) = (sign.session, Seen::heard(&sign, now));
            let known = self.known.get(&session);
            let put = known.filter(|known| known.frame.is_some_and(|frame| frame <= serial));
            let instead_of = put.map(|known| known.seen.mono_ms);
            if instead_of.is_some() {
                self.known.insert(session, Known { seen, frame: None });
            } else if !self.is_news(session, seen) {
                return None;
            }
            Some((session, Heard { seen, instead_of }))
        });
        heard.collect()
    }

    pub fn of(&self, session: SessionId) -> Option<Seen> {
        self.known.get(&session).map(|known| known.seen)
    }

    pub fn forget(&mut self, session: SessionId) {
        self.known.remove(&session);
    }

    /// They could not be told after all.
    pub fn take_back(&mut self, signs: &[SessionId]) {
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

    fn seen(mono_ms: u64, goodbye: bool) -> Seen {
        Seen { mono_ms, goodbye }
    }

    fn hear(signs: &mut Signs, sign: Sign, serial: u64, now: u64) -> Option<(Seen, Option<u64>)> {
        let exchanged = Exchanged {
            signs: vec![sign],
            serial,
        };
        let heard = signs.hear(exchanged, at(now)).pop();
        heard.map(|(_, heard)| (heard.seen, heard.instead_of))
    }

    #[test]
    fn what_was_heard_is_not_told_again() {
        let (mut signs, bob) = (Signs::default(), SessionId::generate());
        let sign = Sign {
            session: bob,
            ago: Duration::from_secs(2),
            goodbye: false,
        };
        let hear = |signs: &mut Signs| hear(signs, sign, 0, 10_000);
        assert_eq!(hear(&mut signs), Some((seen(8_000, false), None)));
        assert!(!signs.is_news(bob, seen(8_000, false)));
        assert!(signs.is_news(bob, seen(9_000, false)));
        assert!(!signs.is_news(bob, seen(9_000, false)), "once is enough");
        assert_eq!(hear(&mut signs), None, "older than what is known");
    }

    /// A session is put, and says goodbye 3 seconds ago; the frame comes late.
    #[test]
    fn a_goodbye_is_heard_whenever_the_frame_comes_that_brought_the_session() {
        let bob = SessionId::generate();
        let sign = |seconds, goodbye| Sign {
            session: bob,
            ago: Duration::from_secs(seconds),
            goodbye,
        };
        let mut signs = Signs::default();
        assert!(signs.is_put(bob, 7, at(10_000)));
        assert!(!signs.is_news(bob, seen(10_000, false)), "others have that frame too");
        assert_eq!(
            hear(&mut signs, sign(5, true), 6, 11_000),
            None,
            "from before it was put"
        );
        let goodbye = Some((seen(8_000, true), Some(10_000)));
        assert_eq!(hear(&mut signs, sign(3, true), 7, 11_000), goodbye);
        assert_eq!(signs.of(bob), Some(seen(8_000, true)));
        // Or what was exchanged comes first.
        let mut signs = Signs::default();
        assert_eq!(
            hear(&mut signs, sign(3, true), 7, 11_000),
            Some((seen(8_000, true), None))
        );
        assert!(!signs.is_put(bob, 7, at(12_000)));
        assert_eq!(signs.of(bob), Some(seen(8_000, true)));
        assert!(signs.is_put(bob, 8, at(12_000)), "it has come back");
        assert_eq!(signs.of(bob), Some(seen(12_000, false)));
    }

    #[test]
    fn a_goodbye_is_news_until_the_next_sign() {
        let (mut signs, bob) = (Signs::default(), SessionId::generate());
        assert!(signs.is_news(bob, seen(5_000, false)));
        assert!(signs.is_news(bob, seen(5_000, true)));
        assert!(!signs.is_news(bob, seen(5_000, true)));
        assert!(signs.is_news(bob, seen(6_000, false)));
    }
}
