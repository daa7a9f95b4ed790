use std::collections::{BTreeMap, VecDeque};

use super::super::{
    id_map::IdMap,
    journal::{Change, Journal},
};
use crate::model::{MessageId, ProjectId};

/// Where messages to other projects went. Bounded; the oldest go first.
#[derive(Debug)]
pub(super) struct CrossProjectTargets {
    targets: IdMap<MessageId, ProjectId>,
    by_age: VecDeque<MessageId>,
    /// How many of them went to each.
    counts: BTreeMap<ProjectId, usize>,
    len_max: usize,
}

impl CrossProjectTargets {
    pub fn new(len_max: usize) -> Self {
        Self {
            targets: IdMap::default(),
            by_age: VecDeque::new(),
            counts: BTreeMap::new(),
            len_max,
        }
    }

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

    /// What was put before a restart.
    pub fn restore(&mut self, message: MessageId, target: ProjectId, journal: &mut impl Journal) {
        // One text for all messages that went there.
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

    pub fn get(&self, message: MessageId) -> Option<&ProjectId> {
        self.targets.get(&message)
    }

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
