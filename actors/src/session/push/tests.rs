//! The push of one session against a store that leases to it in two ways, loses some of it, and releases all of it.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::{
    model::{MessageIds, SessionId},
    session::fixtures::delivery,
};

const AUTO: PushMode = PushMode {
    window: 100,
    ack: AckMode::Auto,
};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The store leases a message by itself and sends it.
    PushDirect { is_tracked: bool },
    /// The store leases a broadcast to many sessions at once and sends it without a number.
    PushBroadcast,
    /// All broadcasts that are leased in a group become leases of this session's own, and are sent again.
    SplitGroups,
    /// The session starts push, if it has to, and leases the waiting messages.
    Lease,
    /// One of what is on its way arrives. Each of the two ways keeps its order.
    Arrive { by_answer: bool },
    /// The next of what the store has sent by itself is lost.
    Lose,
    /// The timer of the gap check goes off, if it is set.
    CheckGap,
    /// Everything leased waits again.
    Release,
    /// The oldest message that was pushed is acknowledged.
    Acknowledge(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => any::<bool>().prop_map(|is_tracked| Step::PushDirect { is_tracked }),
        3 => Just(Step::PushBroadcast),
        2 => Just(Step::SplitGroups),
        3 => Just(Step::Lease),
        12 => any::<bool>().prop_map(|by_answer| Step::Arrive { by_answer }),
        1 => Just(Step::Lose),
        1 => Just(Step::CheckGap),
        1 => Just(Step::Release),
        3 => any::<Index>().prop_map(Step::Acknowledge),
    ];
    vec(step, 1..80)
}

/// One message in the store.
#[derive(Clone, Debug)]
struct Item {
    delivery: Delivery,
    /// The number of its lease. None in a group lease.
    number: Option<u64>,
}

/// What is on its way to the session.
#[derive(Debug)]
enum Packet {
    Lease {
        first: u64,
        deliveries: Vec<Delivery>,
    },
    Group {
        before: u64,
        delivery: Delivery,
    },
    Started {
        sync: SyncRequest,
        next: u64,
        deliveries: Vec<Delivery>,
    },
}

/// The store, the two ways from it, and the connection.
struct World {
    push: Push,
    ids: MessageIds,
    waiting: Vec<Delivery>,
    leased: Vec<Item>,
    next_number: u64,
    /// What the store answers, and what it sends by itself.
    answers: VecDeque<Packet>,
    pushes: VecDeque<Packet>,
    broadcasts: usize,
    /// What the connection was given since everything was last released.
    pushed: Vec<Delivery>,
    /// The number of the last lease of a direct message that was pushed.
    last_number: Option<u64>,
    is_timer_set: bool,
    /// The store pushes by itself. A release ends it.
    is_pushing: bool,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            push: Push::default(),
            ids: MessageIds::default(),
            waiting: Vec::new(),
            leased: Vec::new(),
            next_number: 0,
            answers: VecDeque::new(),
            pushes: VecDeque::new(),
            broadcasts: 0,
            pushed: Vec::new(),
            last_number: None,
            is_timer_set: false,
            is_pushing: false,
        };
        world.push.claimed();
        world.start();
        world
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::PushDirect { is_tracked } if !self.is_pushing => {
                let delivery = delivery(&self.ids, Some(SessionId::generate()), is_tracked);
                self.waiting.push(delivery);
            }
            Step::PushDirect { is_tracked } => {
                self.split_groups();
                let delivery = delivery(&self.ids, Some(SessionId::generate()), is_tracked);
                let first = self.lease(delivery.clone());
                let deliveries = vec![delivery];
                self.pushes.push_back(Packet::Lease { first, deliveries });
            }
            Step::PushBroadcast if self.is_pushing && self.broadcasts < RECENT_BROADCASTS_MAX => {
                self.broadcasts += 1;
                let delivery = delivery(&self.ids, None, false);
                self.leased.push(Item {
                    delivery: delivery.clone(),
                    number: None,
                });
                let before = self.next_number;
                self.pushes.push_back(Packet::Group { before, delivery });
            }
            Step::PushBroadcast => {}
            Step::SplitGroups => self.split_groups(),
            Step::Lease => self.lease_waiting(),
            Step::Arrive { by_answer } => self.arrive(by_answer),
            Step::Lose => drop(self.pushes.pop_front()),
            Step::CheckGap => self.check_gap(),
            Step::Release => self.release(),
            Step::Acknowledge(index) => self.acknowledge(index),
        }
    }

    fn lease(&mut self, delivery: Delivery) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.leased.push(Item {
            delivery,
            number: Some(number),
        });
        number
    }

    /// Everything else that is done with an inbox makes group leases leases of its own, in their order.
    fn split_groups(&mut self) {
        for item in &mut self.leased {
            if item.number.is_none() {
                let first = self.next_number;
                self.next_number += 1;
                item.number = Some(first);
                let deliveries = vec![item.delivery.clone()];
                self.pushes.push_back(Packet::Lease { first, deliveries });
            }
        }
    }

    fn lease_waiting(&mut self) {
        if !self.is_pushing {
            self.start();
        }
        self.split_groups();
        let (first, deliveries) = (self.next_number, std::mem::take(&mut self.waiting));
        for delivery in &deliveries {
            self.lease(delivery.clone());
        }
        self.answers.push_back(Packet::Lease { first, deliveries });
    }

    fn start(&mut self) {
        self.is_pushing = true;
        self.split_groups();
        let claim = Claim::from_bits(1);
        let Start { sync, from, limit } = self.push.start(claim, AUTO);
        assert!(limit.auto_ack && !self.push.is_start_due(Some(claim), Some(AUTO)));
        let mut known: Vec<_> = self.leased.iter().filter(|item| item.number >= Some(from)).collect();
        known.sort_by_key(|item| item.number);
        let deliveries = known.into_iter().map(|item| item.delivery.clone()).collect();
        let next = self.next_number;
        self.answers.push_back(Packet::Started { sync, next, deliveries });
    }

    fn release(&mut self) {
        self.split_groups();
        for Item { mut delivery, .. } in self.leased.drain(..) {
            delivery.count += u32::from(delivery.message.recipient.is_some());
            self.waiting.push(delivery);
        }
        // The actor drops the answers to leases for a connection that is detached.
        self.answers.clear();
        self.pushed.clear();
        self.push.released();
        self.is_pushing = false;
    }

    fn arrive(&mut self, by_answer: bool) {
        let packet = if by_answer {
            self.answers.pop_front()
        } else {
            self.pushes.pop_front()
        };
        let Some(packet) = packet else { return };
        let mut ready = match packet {
            Packet::Lease { first, deliveries } => {
                if by_answer {
                    self.push.forget_broadcasts(&deliveries);
                }
                let end = first + deliveries.len() as u64;
                self.push.leased(first..end, deliveries)
            }
            Packet::Group { before, delivery } => self.push.group_leased(before, vec![delivery]),
            Packet::Started { sync, next, deliveries } => self.push.started(sync, next, deliveries).unwrap_or_default(),
        };
        self.push.note_pushed(&mut ready);
        for delivery in ready {
            self.pushed_one(delivery);
        }
        self.is_timer_set |= self.push.must_schedule_gap_check();
    }

    fn pushed_one(&mut self, delivery: Delivery) {
        let id = delivery.message.id;
        let is_repeat = self.pushed.iter().any(|known| known.message.id == id);
        assert!(!is_repeat, "a message is pushed once until it is released");
        let item = self.leased.iter().find(|item| item.delivery.message.id == id);
        let item = item.expect("what is pushed is leased");
        assert_eq!(item.delivery.count, delivery.count);
        if delivery.message.recipient.is_some() {
            assert!(
                item.number > self.last_number,
                "direct messages keep the order of their leases"
            );
            self.last_number = item.number;
        }
        self.pushed.push(delivery);
    }

    fn check_gap(&mut self) {
        if std::mem::take(&mut self.is_timer_set) && self.push.is_gap_left() {
            self.start();
        }
    }

    fn acknowledge(&mut self, index: Index) {
        if self.pushed.is_empty() {
            return;
        }
        let message = Arc::clone(&self.pushed[index.index(self.pushed.len())].message);
        let before = self.leased.len();
        self.leased.retain(|item| item.delivery.message.id != message.id);
        if self.leased.len() < before {
            let is_urgent = self.push.is_ack_urgent(&[message.id], AUTO.window);
            assert_eq!(is_urgent, message.is_tracked(), "a sender waits for it");
        }
    }

    fn arrive_all(&mut self) {
        while !self.answers.is_empty() || !self.pushes.is_empty() {
            self.arrive(self.pushes.is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_leased_message_is_pushed_once_and_direct_messages_in_the_order_of_their_leases(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.arrive_all();
        // The store reports what was lost, as after a gap or a resync.
        world.lease_waiting();
        world.start();
        world.arrive_all();
        for Item { delivery, .. } in &world.leased {
            let is_pushed = world.pushed.iter().any(|known| known.message.id == delivery.message.id);
            prop_assert!(is_pushed, "{:?} is leased and was not pushed", delivery.message.id);
        }
        prop_assert!(!world.push.is_gap_left());
    }
}

#[test]
fn push_is_started_again_for_another_claim_or_another_mode() {
    let [first, second] = [1, 2].map(Claim::from_bits);
    let mut push = Push::default();
    assert!(
        !push.is_start_due(Some(first), None),
        "the connection takes no messages"
    );
    assert!(push.is_start_due(Some(first), Some(AUTO)));
    push.start(first, AUTO);
    assert!(!push.is_start_due(Some(first), Some(AUTO)));
    assert!(push.is_start_due(Some(second), Some(AUTO)));
    assert!(push.is_start_due(Some(first), Some(PushMode { window: 99, ..AUTO })));
    push.stopped();
    assert!(push.is_start_due(Some(first), Some(AUTO)));
}

#[test]
fn a_broadcast_is_pushed_again_only_after_a_release_or_when_it_is_leased_on_request() {
    let (mut push, broadcast) = (Push::default(), delivery(&MessageIds::default(), None, false));
    let is_pushed = |push: &mut Push| {
        let mut deliveries = vec![broadcast.clone()];
        push.note_pushed(&mut deliveries);
        !deliveries.is_empty()
    };
    assert!(is_pushed(&mut push) && !is_pushed(&mut push));
    push.released();
    assert!(is_pushed(&mut push) && !is_pushed(&mut push));
    push.claimed();
    assert!(is_pushed(&mut push) && !is_pushed(&mut push));
    push.forget_broadcasts(std::slice::from_ref(&broadcast));
    assert!(is_pushed(&mut push));
}

#[test]
fn acknowledgements_are_batched_only_for_large_windows() {
    let mut push = Push::default();
    for (window, is_urgent) in [(1, true), (SMALL_WINDOW_MAX, true), (SMALL_WINDOW_MAX + 1, false)] {
        assert_eq!(push.is_ack_urgent(&[], window), is_urgent, "{window}");
        let mode = PushMode { window, ..AUTO };
        assert_eq!(push.start(Claim::from_bits(1), mode).limit.auto_ack, !is_urgent);
    }
    let manual = PushMode {
        ack: AckMode::Manual,
        ..AUTO
    };
    assert!(!push.start(Claim::from_bits(1), manual).limit.auto_ack);
}

#[test]
fn a_gap_is_checked_once_per_timer() {
    let mut push = Push::default();
    let start = push.start(Claim::from_bits(1), AUTO);
    push.started(start.sync, 0, Vec::new());
    assert!(!push.must_schedule_gap_check());
    let late = delivery(&MessageIds::default(), None, false);
    assert!(push.leased(1..2, vec![late]).is_empty(), "lease 0 has not arrived");
    assert!(push.must_schedule_gap_check() && !push.must_schedule_gap_check());
    assert!(push.is_gap_left());
    assert!(push.must_schedule_gap_check(), "the timer went off");
}

// The order of the leases

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
        leases in vec((0..4_u64, any::<bool>()), 1..40),
        turns in vec(any::<bool>(), 40),
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
        let mut seen = HashSet::new();
        returned.retain(|at| seen.insert(*at));
        prop_assert_eq!(returned, (0..count).collect::<Vec<_>>());
        prop_assert!(!sequence.has_gap());
    }

    /// Leases overtake each other, and some are lost until the next sync.
    #[test]
    fn every_lease_is_returned_once_and_in_order_although_some_overtake_others_or_are_lost(
        lens in vec((1..4_u64, prop::bool::weighted(0.9)), 1..20),
        shuffle in vec(any::<Index>(), 20),
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
