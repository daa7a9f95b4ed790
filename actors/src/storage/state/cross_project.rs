//! The projects to which messages of this project were sent.

use std::collections::{BTreeMap, VecDeque};

use super::journal::{Change, Journal};
use crate::model::{MessageId, ProjectId, id_map::IdMap};

/// The target project of each message to another project. Bounded; the oldest are forgotten.
#[derive(Debug)]
pub struct CrossProjectTargets {
    targets: IdMap<MessageId, ProjectId>,
    by_age: VecDeque<MessageId>,
    /// The number of remembered messages to each project.
    counts: BTreeMap<ProjectId, usize>,
    len_max: usize,
}

impl CrossProjectTargets {
    /// An empty list of at most `len_max` messages.
    pub fn new(len_max: usize) -> Self {
        Self {
            targets: IdMap::default(),
            by_age: VecDeque::new(),
            counts: BTreeMap::new(),
            len_max,
        }
    }

    /// Remembers the target of a message; the first one stays.
    pub fn put(&mut self, message: MessageId, target: ProjectId, journal: &mut impl Journal) {
        if self.targets.contains_key(&message) {
            return;
        }
        journal.record(Change::CrossProjectTargetPut {
            message,
            target: &target,
        });
        self.restore(message, target, journal);
    }

    /// Adds a target that was remembered before a restart.
    pub fn restore(&mut self, message: MessageId, target: ProjectId, journal: &mut impl Journal) {
        // All messages to a project share one copy of its id.
        let target = self
            .counts
            .get_key_value(&target)
            .map_or(target, |(known, _)| known.clone());
        *self.counts.entry(target.clone()).or_default() += 1;
        self.targets.insert(message, target);
        self.by_age.push_back(message);
        while self.by_age.len() > self.len_max {
            self.forget_oldest(journal);
        }
    }

    /// The target of a message.
    pub fn get(&self, message: MessageId) -> Option<&ProjectId> {
        self.targets.get(&message)
    }

    /// All targets of remembered messages.
    pub fn targets(&self) -> Vec<ProjectId> {
        self.counts.keys().cloned().collect()
    }

    fn forget_oldest(&mut self, journal: &mut impl Journal) {
        let Some(oldest) = self.by_age.pop_front() else { return };
        journal.record(Change::CrossProjectTargetRemoved(oldest));
        let Some(target) = self.targets.remove(&oldest) else {
            return;
        };
        let is_last = self.counts.get_mut(&target).is_some_and(|count| {
            *count -= 1;
            *count == 0
        });
        if is_last {
            self.counts.remove(&target);
        }
    }
}
