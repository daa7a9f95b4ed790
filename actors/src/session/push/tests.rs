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
