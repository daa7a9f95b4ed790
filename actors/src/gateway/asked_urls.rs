//! The URLs that a legacy backend has asked its callers to open. It may tell later that what it waits for there is complete,
//! also when the call has ended (2025-11-25, client/elicitation).

use std::{collections::VecDeque, fmt};

use crate::locked::Locked;

/// URLs of one backend of which it is not known that they are complete. The oldest are forgotten.
const ASKED_MAX: usize = 1_000;
/// Bytes of an id that is remembered.
const ID_BYTES_MAX: usize = 256;

/// Tells a caller of the end of what it was asked for.
type Tell = Box<dyn FnOnce() + Send>;

/// The URLs of one backend, by the ids that it gives them.
#[derive(Default)]
pub struct AskedUrls(Locked<VecDeque<(Box<str>, Tell)>>);

impl AskedUrls {
    /// Remembers that a caller is asked. `tell` is called once the backend tells that this is complete. It must not keep the
    /// connection of the caller.
    pub fn note(&self, id: &str, tell: impl FnOnce() + Send + 'static) {
        if id.len() > ID_BYTES_MAX {
            return;
        }
        let mut asked = self.0.lock();
        if asked.len() >= ASKED_MAX {
            asked.pop_front();
        }
        asked.push_back((id.into(), Box::new(tell)));
    }

    /// The backend has reported that this is complete. Returns false if no caller waits for that.
    pub fn complete(&self, id: &str) -> bool {
        let mut asked = self.0.lock();
        let (complete, open): (VecDeque<_>, VecDeque<_>) = asked.drain(..).partition(|(known, _)| **known == *id);
        *asked = open;
        drop(asked);
        let is_known = !complete.is_empty();
        for (_, tell) in complete {
            tell();
        }
        is_known
    }
}

impl fmt::Debug for AskedUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AskedUrls").field(&self.0.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn those_who_were_asked_are_told_once() {
        let (asked, (told, tells)) = (AskedUrls::default(), mpsc::channel());
        for (id, caller) in [("a", 1), ("b", 2), ("a", 3)] {
            let told = told.clone();
            asked.note(id, move || told.send(caller).unwrap());
        }
        assert!(asked.complete("a"));
        assert!(!asked.complete("a"));
        assert_eq!(tells.try_iter().collect::<Vec<_>>(), [1, 3]);
        assert!(asked.complete("b"));
    }

    #[test]
    fn their_number_and_their_bytes_are_bounded() {
        let asked = AskedUrls::default();
        asked.note(&"x".repeat(ID_BYTES_MAX + 1), || {});
        assert_eq!(asked.0.lock().len(), 0);
        for at in 0..=ASKED_MAX {
            asked.note(&at.to_string(), || {});
        }
        assert_eq!(asked.0.lock().len(), ASKED_MAX);
        assert!(!asked.complete("0"), "the oldest is forgotten");
        assert!(asked.complete("1"));
    }
}
