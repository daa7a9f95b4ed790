//! The lists that the present instances of a backend have sent. Pure.

use std::sync::Arc;

use super::lists::BackendLists;

/// The lists of the main instance, and those of an instance of the pool whose client can be asked for
/// everything.
#[derive(Default)]
pub struct AnnouncedLists {
    /// The lists of the main instance, and whether all of them could be read.
    by_main: Option<(BackendLists, bool)>,
    /// The lists of the instance of the pool whose client can be asked for everything.
    for_askers: Option<BackendLists>,
    /// The instance of the pool that was started to send its lists, by its id.
    awaited: Option<u64>,
    /// What was known before. It is used until what is awaited comes.
    known: Option<Arc<BackendLists>>,
}

impl AnnouncedLists {
    /// No list has come yet.
    pub fn new(known: Option<Arc<BackendLists>>) -> Self {
        Self {
            known,
            ..Self::default()
        }
    }

    /// Takes those of the main instance. Returns whether they are others than before.
    pub fn main(&mut self, lists: BackendLists, are_complete: bool) -> bool {
        let is_other = self.by_main.as_ref().is_none_or(|(known, _)| *known != lists);
        self.by_main = Some((lists, are_complete));
        is_other
    }

    /// Notes that this instance of the pool was started to tell its lists.
    pub fn await_from(&mut self, id: u64) {
        self.awaited = Some(id);
    }

    /// Whether this instance was started to send its lists, and has not sent them.
    pub fn awaits(&self, id: u64) -> bool {
        self.awaited == Some(id)
    }

    /// Whether an instance that was started to send its lists has not sent them.
    pub fn is_awaiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// Takes those of an instance of the pool; `None` if it does not tell. Returns whether [`Self::all`] may be others now.
    pub fn askers(&mut self, id: u64, lists: Option<BackendLists>) -> bool {
        let was_awaited = self.awaits(id);
        if was_awaited {
            self.awaited = None;
        }
        let is_told = lists.is_some();
        if is_told {
            self.for_askers = lists;
        }
        is_told || was_awaited
    }

    /// The lists of all, and whether they are complete.
    pub fn all(&self) -> Option<(BackendLists, bool)> {
        let (lists, are_complete) = self.by_main.clone()?;
        let awaited = self.awaited.and(self.known.as_deref());
        let all = match self.for_askers.as_ref().or(awaited) {
            Some(others) => lists.with_items_of(others),
            None => lists,
        };
        let is_told = self.for_askers.is_some() || self.awaited.is_none();
        Some((all, are_complete && is_told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Item;

    fn lists(names: &[&str]) -> BackendLists {
        let item = |name: &&str| Item {
            key: (*name).to_owned(),
            text: "{}".into(),
        };
        BackendLists {
            tools: names.iter().map(item).collect(),
            ..BackendLists::default()
        }
    }

    #[test]
    fn lists_are_complete_once_both_instances_have_told() {
        let mut announced = AnnouncedLists::default();
        assert!(announced.all().is_none());
        assert!(announced.main(lists(&["a"]), true));
        assert_eq!(
            announced.all(),
            Some((lists(&["a"]), true)),
            "a backend that does not ask"
        );
        announced.await_from(7);
        assert!(announced.awaits(7) && !announced.awaits(8));
        assert_eq!(announced.all(), Some((lists(&["a"]), false)));
        assert!(!announced.askers(8, None), "another instance tells nothing");
        assert!(announced.askers(7, Some(lists(&["a", "b"]))));
        assert_eq!(announced.all(), Some((lists(&["a", "b"]), true)));
        assert!(!announced.main(lists(&["a"]), true));
        assert!(announced.main(lists(&["c"]), true));
        assert_eq!(announced.all(), Some((lists(&["c", "a", "b"]), true)));
    }

    #[test]
    fn what_was_known_before_stands_for_what_is_awaited() {
        let mut announced = AnnouncedLists::new(Some(Arc::new(lists(&["a", "b"]))));
        announced.main(lists(&["a"]), true);
        assert_eq!(
            announced.all(),
            Some((lists(&["a"]), true)),
            "a backend that does not ask"
        );
        announced.await_from(7);
        assert_eq!(announced.all(), Some((lists(&["a", "b"]), false)));
        assert!(announced.askers(7, None), "it does not tell");
        assert_eq!(announced.all(), Some((lists(&["a"]), true)));
    }
}
