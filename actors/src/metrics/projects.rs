//! The counters of each project.
//!
//! A project has them as long as it is open. The first projects up to a limit are shown by name; a name that becomes free
//! goes to a project that is opened later, never to one that counts already, so that no series jumps.

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::counter::shard;
use crate::{
    locked::RwLocked,
    model::{DeadLetterReason, ProjectId},
};

/// Shards of the counters of one project. Nearly all of it is counted on one or two threads.
const PROJECT_SHARDS: usize = 4;

/// Projects that are shown by name, unless the configuration says otherwise.
const LABELLED_MAX_DEFAULT: usize = 50;

/// What became of the messages of a project, as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// Messages that the router got.
    pub received: u64,
    /// Messages that the store accepted for one recipient or more.
    pub accepted: u64,
    /// Messages that were not accepted.
    pub refused: u64,
    /// Messages that repeated an earlier one by their idempotency key.
    pub repeated: u64,
    /// Copies of accepted messages, one for each recipient.
    pub enqueued: u64,
    /// Deliveries to connections and to calls that receive messages.
    pub delivered: u64,
    /// Copies that were acknowledged.
    pub acknowledged: u64,
    /// Dead letters that wait again.
    pub redriven: u64,
    /// Copies that became dead letters.
    pub dead_lettered: DeadLetterCounts,
}

/// Dead letters by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterCounts {
    pub expired: u64,
    pub delivery_limit: u64,
    pub recipient_gone: u64,
    pub rejected: u64,
    pub transform_failed: u64,
}

impl MessageCounts {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.repeated += other.repeated;
        self.enqueued += other.enqueued;
        self.delivered += other.delivered;
        self.acknowledged += other.acknowledged;
        self.redriven += other.redriven;
        self.dead_lettered.add(other.dead_lettered);
    }
}

impl DeadLetterCounts {
    fn add(&mut self, other: Self) {
        self.expired += other.expired;
        self.delivery_limit += other.delivery_limit;
        self.recipient_gone += other.recipient_gone;
        self.rejected += other.rejected;
        self.transform_failed += other.transform_failed;
    }

    /// Dead letters of all reasons.
    pub const fn total(self) -> u64 {
        self.expired + self.delivery_limit + self.recipient_gone + self.rejected + self.transform_failed
    }

    /// The count of a reason.
    pub const fn of(self, reason: DeadLetterReason) -> u64 {
        match reason {
            DeadLetterReason::Expired => self.expired,
            DeadLetterReason::DeliveryLimit => self.delivery_limit,
            DeadLetterReason::RecipientGone => self.recipient_gone,
            DeadLetterReason::Rejected => self.rejected,
            DeadLetterReason::TransformFailed => self.transform_failed,
        }
    }
}

#[repr(align(128))]
#[derive(Debug, Default)]
struct Shard {
    received: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    repeated: AtomicU64,
    enqueued: AtomicU64,
    delivered: AtomicU64,
    acknowledged: AtomicU64,
    redriven: AtomicU64,
    expired: AtomicU64,
    delivery_limit: AtomicU64,
    recipient_gone: AtomicU64,
    rejected: AtomicU64,
    transform_failed: AtomicU64,
}

/// The counters of one project.
#[derive(Debug)]
pub struct ProjectCounters {
    /// The project is shown by name.
    is_labelled: bool,
    shards: [Shard; PROJECT_SHARDS],
}

fn add(counter: &AtomicU64, count: usize) {
    if count > 0 {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

impl ProjectCounters {
    fn new(is_labelled: bool) -> Arc<Self> {
        Arc::new(Self {
            is_labelled,
            shards: Default::default(),
        })
    }

    /// Whether the project is shown by name.
    pub fn is_labelled(&self) -> bool {
        self.is_labelled
    }

    fn shard(&self) -> &Shard {
        &self.shards[shard() % PROJECT_SHARDS]
    }

    /// The router got messages.
    pub fn received(&self, messages: usize) {
        add(&self.shard().received, messages);
    }

    /// The store has answered a batch: messages that were accepted, refused and repeated, and accepted copies.
    pub fn answered(&self, accepted: usize, refused: usize, repeated: usize, enqueued: usize) {
        let shard = self.shard();
        add(&shard.accepted, accepted);
        add(&shard.refused, refused);
        add(&shard.repeated, repeated);
        add(&shard.enqueued, enqueued);
    }

    /// Messages were delivered.
    pub fn delivered(&self, messages: usize) {
        add(&self.shard().delivered, messages);
    }

    /// Messages were acknowledged.
    pub fn acknowledged(&self, messages: usize) {
        add(&self.shard().acknowledged, messages);
    }

    /// Dead letters wait again.
    pub fn redriven(&self, messages: usize) {
        add(&self.shard().redriven, messages);
    }

    /// Messages became dead letters.
    pub fn dead_lettered(&self, reason: DeadLetterReason, messages: usize) {
        let shard = self.shard();
        let counter = match reason {
            DeadLetterReason::Expired => &shard.expired,
            DeadLetterReason::DeliveryLimit => &shard.delivery_limit,
            DeadLetterReason::RecipientGone => &shard.recipient_gone,
            DeadLetterReason::Rejected => &shard.rejected,
            DeadLetterReason::TransformFailed => &shard.transform_failed,
        };
        add(counter, messages);
    }

    /// The present counts.
    pub fn counts(&self) -> MessageCounts {
        let mut counts = MessageCounts::default();
        for shard in &self.shards {
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            counts.add(&MessageCounts {
                received: read(&shard.received),
                accepted: read(&shard.accepted),
                refused: read(&shard.refused),
                repeated: read(&shard.repeated),
                enqueued: read(&shard.enqueued),
                delivered: read(&shard.delivered),
                acknowledged: read(&shard.acknowledged),
                redriven: read(&shard.redriven),
                dead_lettered: DeadLetterCounts {
                    expired: read(&shard.expired),
                    delivery_limit: read(&shard.delivery_limit),
                    recipient_gone: read(&shard.recipient_gone),
                    rejected: read(&shard.rejected),
                    transform_failed: read(&shard.transform_failed),
                },
            });
        }
        counts
    }
}

/// All open projects, and what closed ones have counted.
struct Table {
    open: HashMap<ProjectId, Arc<ProjectCounters>>,
    labelled_len: usize,
    labelled_max: usize,
    closed: MessageCounts,
    /// The part of `closed` that was not shown by name.
    closed_unlabelled: MessageCounts,
}

static TABLE: LazyLock<RwLocked<Table>> = LazyLock::new(|| {
    RwLocked::new(Table {
        open: HashMap::new(),
        labelled_len: 0,
        labelled_max: LABELLED_MAX_DEFAULT,
        closed: MessageCounts::default(),
        closed_unlabelled: MessageCounts::default(),
    })
});

impl Table {
    fn open(&mut self, id: &ProjectId) -> Arc<ProjectCounters> {
        if let Some(known) = self.open.get(id) {
            return Arc::clone(known);
        }
        let is_labelled = self.labelled_len < self.labelled_max;
        self.labelled_len += usize::from(is_labelled);
        let counters = ProjectCounters::new(is_labelled);
        self.open.insert(id.clone(), Arc::clone(&counters));
        counters
    }

    fn close(&mut self, id: &ProjectId) {
        let Some(counters) = self.open.remove(id) else { return };
        let counts = counters.counts();
        self.closed.add(&counts);
        if counters.is_labelled {
            self.labelled_len -= 1;
        } else {
            self.closed_unlabelled.add(&counts);
        }
    }

    fn view(&self) -> ProjectCountsView {
        let mut view = ProjectCountsView {
            labelled: Vec::with_capacity(self.labelled_len),
            others: self.closed_unlabelled,
            has_others: self.closed_unlabelled != MessageCounts::default(),
            total: self.closed,
        };
        for (id, counters) in &self.open {
            let counts = counters.counts();
            view.total.add(&counts);
            if counters.is_labelled {
                view.labelled.push((id.clone(), counts));
            } else {
                view.others.add(&counts);
                view.has_others = true;
            }
        }
        view.labelled.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        view
    }
}

/// The counts of all projects at one moment.
#[derive(Clone, Debug, Default)]
pub struct ProjectCountsView {
    /// The projects that are shown by name, sorted.
    pub labelled: Vec<(ProjectId, MessageCounts)>,
    /// All other projects together, closed ones included.
    pub others: MessageCounts,
    /// Whether other projects exist or existed.
    pub has_others: bool,
    /// All projects together, closed ones included.
    pub total: MessageCounts,
}

/// The counters of an open project. Made at the first call, and kept until [`close_project`].
pub fn project(id: &ProjectId) -> Arc<ProjectCounters> {
    TABLE.write().open(id)
}

/// The counters of a project, if it is open.
pub fn open_project(id: &ProjectId) -> Option<Arc<ProjectCounters>> {
    let table = TABLE.read();
    table.open.get(id).cloned()
}

/// The project is closed: its counts stay in the totals.
pub fn close_project(id: &ProjectId) {
    TABLE.write().close(id);
}

/// Sets how many projects are shown by name. Call before projects are opened.
pub fn set_labelled_max(projects: usize) {
    TABLE.write().labelled_max = projects;
}

/// The counts of all projects.
pub fn all_projects() -> ProjectCountsView {
    TABLE.read().view()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ProjectId {
        ProjectId::parse(text).unwrap()
    }

    #[test]
    fn a_name_is_given_once_and_no_series_shrinks() {
        let mut table = Table {
            open: HashMap::new(),
            labelled_len: 0,
            labelled_max: 2,
            closed: MessageCounts::default(),
            closed_unlabelled: MessageCounts::default(),
        };
        for (at, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            table.open(&id(name)).received(10 + at);
        }
        let names = |table: &Table| {
            let view = table.view();
            view.labelled
                .iter()
                .map(|(id, _)| id.as_str().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (names(&table), table.view().others.received),
            (vec!["a".into(), "b".into()], 25)
        );
        table.close(&id("d"));
        table.close(&id("a"));
        assert_eq!(
            (names(&table), table.view().others.received),
            (vec!["b".into()], 25),
            "c stays without a name"
        );
        table.open(&id("e")).received(1);
        table.open(&id("f")).received(1);
        assert_eq!(
            (names(&table), table.view().others.received),
            (vec!["b".into(), "e".into()], 26)
        );
        assert_eq!(table.view().total.received, 10 + 11 + 12 + 13 + 1 + 1);
    }

    #[test]
    fn a_hundred_thousand_names_are_shown_as_a_few() {
        let mut table = Table {
            open: HashMap::new(),
            labelled_len: 0,
            labelled_max: 50,
            closed: MessageCounts::default(),
            closed_unlabelled: MessageCounts::default(),
        };
        for at in 0..100_000_u64 {
            let name = id(&format!("p{:x}", at.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            table.open(&name).received(1);
            if at % 3 != 0 {
                table.close(&name);
            }
            assert!(table.labelled_len <= 50);
        }
        let view = table.view();
        assert!(view.labelled.len() <= 50);
        assert_eq!(view.total.received, 100_000);
    }
}
