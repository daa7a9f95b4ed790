//! The order of what a session is handed: what it asked for comes as an answer, what it did not ask for as a parcel, and
//! neither waits for the other on its way. Pure.

use std::{cmp::Ordering, collections::BTreeMap, ops::Range};

/// Leases under one claim, by their numbers, of which none is left out.
#[derive(Debug)]
pub(super) struct LeaseSequence<T> {
    /// The number of the next lease.
    next_number: u64,
    /// The last who asked the store where it goes on has no answer yet: until then everything is kept.
    pending_sync: Option<SyncRequest>,
    sync_count: u64,
    /// What came before its turn, by its first number, with the number after its last. What has no number comes before
    /// the one that has.
    early: BTreeMap<(u64, EntryKind), (u64, Vec<T>)>,
}

/// Whether a number is that of a lease, or of the lease before which something comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EntryKind {
    GroupLease,
    Lease,
}

/// Who asked the store where a sequence goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyncRequest(u64);

impl<T> Default for LeaseSequence<T> {
    /// Nothing is known yet.
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
    /// The store is asked where it goes on, now or later. Who asked before this is not heard any more.
    pub fn begin_sync(&mut self) -> SyncRequest {
        self.sync_count += 1;
        let asked = SyncRequest(self.sync_count);
        self.pending_sync = Some(asked);
        asked
    }

    /// The store has said where it goes on: everything before is over, or `known` already. Returns that, and what came
    /// meanwhile and whose turn it is; None when somebody else has asked since.
    pub fn finish_sync(&mut self, asked: SyncRequest, next: u64, mut known: Vec<T>) -> Option<Vec<T>> {
        self.pending_sync.take_if(|last| *last == asked)?;
        self.next_number = next;
        self.early = self.early.split_off(&(next, EntryKind::GroupLease));
        known.extend(self.take_ready());
        Some(known)
    }

    /// Where what has not come yet begins.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Something came whose turn it is not: what is before it is on its way, or lost.
    pub fn has_gap(&self) -> bool {
        !self.early.is_empty()
    }

    /// Returns all whose turn it is now. What came before is not returned twice.
    pub fn insert(&mut self, numbers: Range<u64>, items: Vec<T>) -> Vec<T> {
        if self.pending_sync.is_none() {
            if numbers.start < self.next_number {
                return Vec::new();
            }
            if numbers.start == self.next_number && self.early.is_empty() {
                // As it is nearly always.
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

    /// The same of what has no number, and comes before the lease of this number and after all before it.
    pub fn insert_group_lease(&mut self, before: u64, items: Vec<T>) -> Vec<T> {
        if self.pending_sync.is_none() {
            match before.cmp(&self.next_number) {
                // It has a number since, and came with that; or it waits again.
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
    fn nothing_is_told_before_it_is_known_where_it_goes_on() {
        let mut sequence = LeaseSequence::<i32>::default();
        assert_eq!(sequence.insert(5..6, vec![5]), [0; 0]);
        assert_eq!(sequence.insert(3..5, vec![3, 4]), [0; 0]);
        let (first, second) = (sequence.begin_sync(), sequence.begin_sync());
        assert_eq!(sequence.finish_sync(first, 3, vec![]), None, "another has asked since");
        assert_eq!(
            sequence.finish_sync(second, 5, vec![]),
            Some(vec![5]),
            "what was before is over"
        );
        assert_eq!(sequence.insert(3..5, vec![3, 4]), [0; 0]);
        assert_eq!(sequence.insert(6..8, vec![6, 7]), [6, 7]);
        assert_eq!(sequence.insert(6..8, vec![6, 7]), [0; 0], "a repeat");
        assert!(!sequence.has_gap());
    }

    #[test]
    fn what_is_lost_is_looked_up() {
        let mut sequence = LeaseSequence::<i32>::default();
        let asked = sequence.begin_sync();
        sequence.finish_sync(asked, 0, vec![]);
        assert_eq!(sequence.insert(2..3, vec![2]), [0; 0]);
        assert!(sequence.has_gap());
        let asked = sequence.begin_sync();
        assert_eq!(sequence.insert(0..1, vec![0]), [0; 0], "late, and in the answer");
        assert_eq!(sequence.insert(3..4, vec![3]), [0; 0], "handed over since");
        assert_eq!(sequence.finish_sync(asked, 3, vec![0, 1, 2]), Some(vec![0, 1, 2, 3]));
        assert_eq!(sequence.next_number(), 4);
        // A store that has lost its count begins it anew.
        let asked = sequence.begin_sync();
        assert_eq!(sequence.finish_sync(asked, 1, vec![0]), Some(vec![0]));
        assert_eq!(sequence.insert(1..2, vec![1]), [1]);
    }

    #[test]
    fn what_has_no_number_comes_before_the_one_that_has() {
        let mut sequence = LeaseSequence::default();
        assert_eq!(
            sequence.insert_group_lease(3, vec!["kept until it is known where it goes on"]),
            [""; 0]
        );
        let asked = sequence.begin_sync();
        let first = "kept until it is known where it goes on";
        assert_eq!(sequence.finish_sync(asked, 3, vec![]), Some(vec![first]));
        assert_eq!(sequence.insert_group_lease(3, vec!["at once"]), ["at once"]);
        assert_eq!(sequence.insert_group_lease(5, vec!["after two"]), [""; 0]);
        assert!(sequence.has_gap(), "what is before it may be lost");
        assert_eq!(sequence.insert(5..6, vec!["fifth"]), [""; 0]);
        assert_eq!(sequence.insert(4..5, vec!["fourth"]), [""; 0]);
        assert_eq!(
            sequence.insert(3..4, vec!["third"]),
            ["third", "fourth", "after two", "fifth"]
        );
        assert_eq!(sequence.insert_group_lease(4, vec!["known by its number"]), [""; 0]);
        // What the store has said to be before is over.
        assert_eq!(sequence.insert_group_lease(7, vec!["over"]), [""; 0]);
        assert_eq!(sequence.insert_group_lease(9, vec!["to come"]), [""; 0]);
        let asked = sequence.begin_sync();
        assert_eq!(
            sequence.finish_sync(asked, 9, vec!["known"]),
            Some(vec!["known", "to come"])
        );
    }

    proptest! {
        /// Of what comes by two ways, each of which keeps its order, all is told in the order in which it was leased. What
        /// has no number comes by the first, and once more with one before anything is asked for by the second.
        #[test]
        fn two_ways_keep_one_order(
            leases in prop::collection::vec((0..4_u64, any::<bool>()), 1..40),
            turns in prop::collection::vec(any::<bool>(), 40),
        ) {
            let (mut sequence, mut told) = (LeaseSequence::default(), Vec::new());
            let asked = sequence.begin_sync();
            sequence.finish_sync(asked, 0, vec![]);
            let (mut ways, mut end, mut without) = ([Vec::new(), Vec::new()], 0, Vec::new());
            for (at, (len, way)) in leases.iter().enumerate() {
                let way = usize::from(*way && *len > 0);
                if *len == 0 {
                    without.push(at);
                }
                if way == 1 {
                    for at in without.drain(..) {
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
                    told.extend(if numbers.is_empty() {
                        sequence.insert_group_lease(numbers.start, vec![at])
                    } else {
                        sequence.insert(numbers, vec![at])
                    });
                }
            }
            let mut seen = std::collections::HashSet::new();
            told.retain(|at| seen.insert(*at));
            prop_assert_eq!(told, (0..count).collect::<Vec<_>>());
            prop_assert!(!sequence.has_gap());
        }

        /// Whatever overtakes what, and whatever is lost until the store is asked, everything is told once and in its
        /// order.
        #[test]
        fn all_is_told_once_and_in_order(
            lens in prop::collection::vec((1..4_u64, prop::bool::weighted(0.9)), 1..20),
            shuffle in prop::collection::vec(any::<prop::sample::Index>(), 20),
            asked_at in 0..20_usize,
        ) {
            let mut sequence = LeaseSequence::default();
            let mut told = Vec::new();
            let asked = sequence.begin_sync();
            told.extend(sequence.finish_sync(asked, 7, vec![]).unwrap());
            let mut end = 7;
            let mut underway = Vec::new();
            for (at, (len, is_heard)) in lens.into_iter().enumerate() {
                underway.push((end..end + len, is_heard));
                end += len;
                if shuffle[at].index(2) == 0 {
                    let (numbers, is_heard) = underway.remove(shuffle[at].index(underway.len()));
                    if is_heard {
                        told.extend(sequence.insert(numbers.clone(), numbers.collect()));
                    }
                }
                if at == asked_at {
                    // What the store says is of this moment, and is heard after what comes meanwhile.
                    let (asked, known) = (sequence.begin_sync(), (sequence.next_number()..end).collect());
                    for (numbers, is_heard) in underway.drain(..) {
                        if is_heard {
                            told.extend(sequence.insert(numbers.clone(), numbers.collect()));
                        }
                    }
                    told.extend(sequence.finish_sync(asked, end, known).unwrap());
                }
            }
            for (numbers, is_heard) in underway {
                if is_heard {
                    told.extend(sequence.insert(numbers.clone(), numbers.collect()));
                }
            }
            let (asked, known) = (sequence.begin_sync(), (sequence.next_number()..end).collect());
            told.extend(sequence.finish_sync(asked, end, known).unwrap());
            prop_assert_eq!(told, (7..end).collect::<Vec<_>>());
            prop_assert!(!sequence.has_gap());
        }
    }
}
