//! What replicas tell each other of signs of life. Pure.

use std::{collections::HashMap, time::Duration};

use crate::{
    clock::{Now, millis},
    model::SessionId,
    storage::Sign,
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
pub(super) struct Signs(HashMap<SessionId, Seen>);

/// Signs are told in milliseconds, by clocks that are read a tick apart: less than this is no news.
const NEWS: Duration = Duration::from_millis(20);

impl Signs {
    /// Whether nobody else knows of this yet. It counts as told then.
    pub fn is_news(&mut self, session: SessionId, seen: Seen) -> bool {
        let known = self.0.get(&session);
        let is_news = known.is_none_or(|known| {
            seen.mono_ms > known.mono_ms.saturating_add(millis(NEWS))
                || (seen.goodbye != known.goodbye && seen.mono_ms >= known.mono_ms)
        });
        if is_news {
            self.0.insert(session, seen);
        }
        is_news
    }

    /// What a sign that another replica has told of says, if it is newer than what is known.
    pub fn hear(&mut self, sign: &Sign, now: Now) -> Option<Seen> {
        let seen = Seen::heard(sign, now);
        self.is_news(sign.session, seen).then_some(seen)
    }

    pub fn of(&self, session: SessionId) -> Option<Seen> {
        self.0.get(&session).copied()
    }

    pub fn forget(&mut self, session: SessionId) {
        self.0.remove(&session);
    }

    /// They could not be told after all.
    pub fn take_back(&mut self, signs: &[SessionId]) {
        for session in signs {
            self.0.remove(session);
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

    #[test]
    fn what_was_heard_is_not_told_again() {
        let (mut signs, bob) = (Signs::default(), SessionId::generate());
        let sign = Sign {
            session: bob,
            ago: Duration::from_secs(2),
            goodbye: false,
        };
        assert_eq!(signs.hear(&sign, at(10_000)), Some(seen(8_000, false)));
        assert!(!signs.is_news(bob, seen(8_000, false)));
        assert!(signs.is_news(bob, seen(9_000, false)));
        assert!(!signs.is_news(bob, seen(9_000, false)), "once is enough");
        assert_eq!(signs.hear(&sign, at(10_000)), None, "older than what is known");
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
