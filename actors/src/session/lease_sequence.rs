//! The order of the leases of a session. Some arrive as answers to its own requests, others as pushes of the store, and
//! the two may overtake each other on their way. Pure.

use std::{cmp::Ordering, collections::BTreeMap, ops::Range};

/// Leases under one claim. Their numbers have no gaps; an item is returned once all before it have been.
#[derive(Debug)]
pub(super) struct LeaseSequence<T> {
    /// The number of the next lease that is to arrive.
    next_number: u64,
    /// The last sync that was begun and has no answer yet. Everything that arrives is kept until then.
    pending_sync: Option<SyncRequest>,
    sync_count: u64,
    /// What arrived early, by its first number, with the number after its last. A group lease takes no number: it comes
    /// before the lease of its number.
    early: BTreeMap<(u64, EntryKind), (u64, Vec<T>)>,
}

/// Whether a number is that of a lease, or of the lease before which a group lease comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EntryKind {
    GroupLease,
    Lease,
}

/// A question to the store for the number of the next lease, and for the leases before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyncRequest(u64);

impl<T> Default for LeaseSequence<T> {
    /// A sequence whose next number is unknown: a sync has to be begun.
    fn default() -> Self {
        Self {
            next_number: 0,
            pending_sync: Some(SyncRequest(0)),
            sync_count: 0,
            early: BTreeMap::new(),
        }
    }
}

impl<T> LeaseSequence<T> {
    /// Begins a sync: the store is asked for the next number, now or later. It replaces one begun before.
    pub fn begin_sync(&mut self) -> SyncRequest {
        self.sync_count += 1;
        let sync = SyncRequest(self.sync_count);
        self.pending_sync = Some(sync);
        sync
    }

    /// The store has answered a sync: `next` is the next number, and `known` are the leases before it that had not
    /// arrived. Returns these and what arrived meanwhile and follows them; None when a later sync was begun.
    pub fn finish_sync(&mut self, sync: SyncRequest, next: u64, mut known: Vec<T>) -> Option<Vec<T>> {
        self.pending_sync.take_if(|last| *last == sync)?;
        self.next_number = next;
        self.early = self.early.split_off(&(next, EntryKind::GroupLease));
        known.extend(self.take_ready());
        Some(known)
    }

    /// The number of the first lease that has not arrived.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Whether something arrived early: a lease before it is on its way, or lost.
    pub fn has_gap(&self) -> bool {
        !self.early.is_empty()
    }

    /// Leases arrived. Returns all items that are next now; nothing if they had arrived before.
    pub fn insert(&mut self, numbers: Range<u64>, items: Vec<T>) -> Vec<T> {
        if self.pending_sync.is_none() {
            if numbers.start < self.next_number {
                return Vec::new();
            }
            if numbers.start == self.next_number && self.early.is_empty() {
                // The usual case.
                self.next_number = numbers.end;
                return items;
            }
        }
        if !numbers.is_empty() {
            self.early
                .insert((numbers.start, EntryKind::Lease), (numbers.end, items));
        }
        self.take_ready()
    }

    /// As [`Self::insert`], for a group lease: it comes before the lease of this number and after all earlier ones.
    pub fn insert_group_lease(&mut self, before: u64, items: Vec<T>) -> Vec<T> {
        if self.pending_sync.is_none() {
            match before.cmp(&self.next_number) {
                // It became a lease of its own and arrived as such, or it was released.
                Ordering::Less => return Vec::new(),
                Ordering::Equal => return items,
                Ordering::Greater => {}
            }
        }
        let kept = self.early.entry((before, EntryKind::GroupLease));
        kept.or_insert_with(|| (before, Vec::new())).1.extend(items);
        Vec::new()
    }

    fn take_ready(&mut self) -> Vec<T> {
        let mut taken = Vec::new();
        while self.pending_sync.is_none()
            && let Some(first) = self.early.first_entry()
            && first.key().0 == self.next_number
        {
            let (end, items) = first.remove();
            self.next_number = end;
            taken.extend(items);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn leases_are_kept_until_the_store_has_said_which_number_is_next() {
        let mut sequence = LeaseSequence::<i32>::default();
        assert_eq!(sequence.insert(5..6, vec![5]), [0; 0]);
        assert_eq!(sequence.insert(3..5, vec![3, 4]), [0; 0]);
        let (first, second) = (sequence.begin_sync(), sequence.begin_sync());
        assert_eq!(sequence.finish_sync(first, 3, vec![]), None, "a later sync was begun");
        assert_eq!(
            sequence.finish_sync(second, 5, vec![]),
            Some(vec![5]),
            "leases before the next number are over"
        );
        assert_eq!(sequence.insert(3..5, vec![3, 4]), [0; 0]);
        assert_eq!(sequence.insert(6..8, vec![6, 7]), [6, 7]);
        assert_eq!(sequence.insert(6..8, vec![6, 7]), [0; 0], "a repeat");
        assert!(!sequence.has_gap());
    }

    #[test]
    fn a_sync_closes_the_gap_of_a_lost_lease() {
        let mut sequence = LeaseSequence::<i32>::default();
        let sync = sequence.begin_sync();
        sequence.finish_sync(sync, 0, vec![]);
        assert_eq!(sequence.insert(2..3, vec![2]), [0; 0]);
        assert!(sequence.has_gap());
        let sync = sequence.begin_sync();
        assert_eq!(
            sequence.insert(0..1, vec![0]),
            [0; 0],
            "late, and in the answer to the sync"
        );
        assert_eq!(sequence.insert(3..4, vec![3]), [0; 0], "leased since");
        assert_eq!(sequence.finish_sync(sync, 3, vec![0, 1, 2]), Some(vec![0, 1, 2, 3]));
        assert_eq!(sequence.next_number(), 4);
        // A store that has lost its count starts again from a lower number.
        let sync = sequence.begin_sync();
        assert_eq!(sequence.finish_sync(sync, 1, vec![0]), Some(vec![0]));
        assert_eq!(sequence.insert(1..2, vec![1]), [1]);
    }

    #[test]
    fn a_group_lease_comes_before_the_lease_of_its_number() {
        let mut sequence = LeaseSequence::default();
        assert_eq!(sequence.insert_group_lease(3, vec!["kept during the sync"]), [""; 0]);
        let sync = sequence.begin_sync();
        let first = "kept during the sync";
        assert_eq!(sequence.finish_sync(sync, 3, vec![]), Some(vec![first]));
        assert_eq!(sequence.insert_group_lease(3, vec!["at once"]), ["at once"]);
        assert_eq!(sequence.insert_group_lease(5, vec!["after two"]), [""; 0]);
        assert!(sequence.has_gap(), "a lease before it may be lost");
        assert_eq!(sequence.insert(5..6, vec!["fifth"]), [""; 0]);
        assert_eq!(sequence.insert(4..5, vec!["fourth"]), [""; 0]);
        assert_eq!(
            sequence.insert(3..4, vec!["third"]),
            ["third", "fourth", "after two", "fifth"]
        );
        assert_eq!(
            sequence.insert_group_lease(4, vec!["arrived under its own number"]),
            [""; 0]
        );
        // What comes before the number that the store has named is over.
        assert_eq!(sequence.insert_group_lease(7, vec!["over"]), [""; 0]);
        assert_eq!(sequence.insert_group_lease(9, vec!["to come"]), [""; 0]);
        let sync = sequence.begin_sync();
        assert_eq!(
            sequence.finish_sync(sync, 9, vec!["known"]),
            Some(vec!["known", "to come"])
        );
    }

    proptest! {
        /// Leases arrive in two ways, each of which keeps its order. A group lease arrives in the first way, and once more
        /// as a lease of its own before anything arrives in the second.
        #[test]
        fn leases_that_arrive_in_two_ways_are_returned_in_the_order_in_which_they_were_made(
            leases in prop::collection::vec((0..4_u64, any::<bool>()), 1..40),
            turns in prop::collection::vec(any::<bool>(), 40),
        ) {
            let (mut sequence, mut returned) = (LeaseSequence::default(), Vec::new());
            let sync = sequence.begin_sync();
            sequence.finish_sync(sync, 0, vec![]);
            let (mut ways, mut end, mut groups) = ([Vec::new(), Vec::new()], 0, Vec::new());
            for (at, (len, way)) in leases.iter().enumerate() {
                let way = usize::from(*way && *len > 0);
                if *len == 0 {
                    groups.push(at);
                }
                if way == 1 {
                    for at in groups.drain(..) {
                        ways[0].push((at, end..end + 1));
                        end += 1;
                    }
                }
                ways[way].push((at, end..end + len));
                end += len;
            }
            let mut ways = ways.map(Vec::into_iter);
            let count = leases.len();
            for turn in turns.into_iter().chain(std::iter::repeat_n(true, count)).chain(std::iter::repeat_n(false, count)) {
                if let Some((at, numbers)) = ways[usize::from(turn)].next() {
                    returned.extend(if numbers.is_empty() {
                        sequence.insert_group_lease(numbers.start, vec![at])
                    } else {
                        sequence.insert(numbers, vec![at])
                    });
                }
            }
            let mut seen = std::collections::HashSet::new();
            returned.retain(|at| seen.insert(*at));
            prop_assert_eq!(returned, (0..count).collect::<Vec<_>>());
            prop_assert!(!sequence.has_gap());
        }

        /// Leases overtake each other, and some are lost until the next sync.
        #[test]
        fn every_lease_is_returned_once_and_in_order_although_some_overtake_others_or_are_lost(
            lens in prop::collection::vec((1..4_u64, prop::bool::weighted(0.9)), 1..20),
            shuffle in prop::collection::vec(any::<prop::sample::Index>(), 20),
            sync_at in 0..20_usize,
        ) {
            let mut sequence = LeaseSequence::default();
            let mut returned = Vec::new();
            let sync = sequence.begin_sync();
            returned.extend(sequence.finish_sync(sync, 7, vec![]).unwrap());
            let mut end = 7;
            let mut on_the_way = Vec::new();
            for (at, (len, is_received)) in lens.into_iter().enumerate() {
                on_the_way.push((end..end + len, is_received));
                end += len;
                if shuffle[at].index(2) == 0 {
                    let (numbers, is_received) = on_the_way.remove(shuffle[at].index(on_the_way.len()));
                    if is_received {
                        returned.extend(sequence.insert(numbers.clone(), numbers.collect()));
                    }
                }
                if at == sync_at {
                    // The store answers as of this moment; the answer arrives after all that is on its way.
                    let (sync, known) = (sequence.begin_sync(), (sequence.next_number()..end).collect());
                    for (numbers, is_received) in on_the_way.drain(..) {
                        if is_received {
                            returned.extend(sequence.insert(numbers.clone(), numbers.collect()));
                        }
                    }
                    returned.extend(sequence.finish_sync(sync, end, known).unwrap());
                }
            }
            for (numbers, is_received) in on_the_way {
                if is_received {
                    returned.extend(sequence.insert(numbers.clone(), numbers.collect()));
                }
            }
            let (sync, known) = (sequence.begin_sync(), (sequence.next_number()..end).collect());
            returned.extend(sequence.finish_sync(sync, end, known).unwrap());
            prop_assert_eq!(returned, (7..end).collect::<Vec<_>>());
            prop_assert!(!sequence.has_gap());
        }
    }
}
