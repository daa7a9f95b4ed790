//! The inbox compared with a model that is a plain list.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::{
    clock::now,
    model::{Addressing, Headers, MessageIds, NewMessage, ProjectId, SessionRecord},
    storage::state::journal::NO_DEADLINE,
};

const DELIVERY_LIMIT: u32 = 4;
const CAPACITY: usize = 24;

#[derive(Clone, Debug)]
enum Step {
    Push { priority: Priority, ttl: Option<u64> },
    Lease(usize),
    Acknowledge(Vec<Index>),
    AcknowledgeUpTo(Index),
    ReleaseAll,
    Release(Vec<Index>),
    ReleaseUndelivered(Vec<Index>),
    Expire(Index),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let picks = || vec(any::<Index>(), 1..6);
    let priority = prop::sample::select(Priority::ALL.to_vec());
    let step = prop_oneof![
        8 => (priority, prop::option::weighted(0.2, 1..30_u64)).prop_map(|(priority, ttl)| Step::Push { priority, ttl }),
        4 => (0..8_usize).prop_map(Step::Lease),
        3 => picks().prop_map(Step::Acknowledge),
        1 => any::<Index>().prop_map(Step::AcknowledgeUpTo),
        1 => Just(Step::ReleaseAll),
        2 => picks().prop_map(Step::Release),
        2 => picks().prop_map(Step::ReleaseUndelivered),
        1 => any::<Index>().prop_map(Step::Expire),
        1 => (1..10_u64).prop_map(Step::Pass),
    ];
    vec(step, 1..200)
}

/// A message in the model. Its index in the list is its age.
#[derive(Clone, Debug)]
struct Known {
    message: Arc<Message>,
    seq: u64,
    deadline_ms: u64,
    deliveries: u32,
    last_lease: usize,
    stands: Stands,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stands {
    Waiting,
    Leased,
    Done,
    Dead(DeadLetterReason),
}

#[derive(Default)]
struct Pair {
    inbox: Inbox,
    model: Vec<Known>,
    ids: MessageIds,
    leases: usize,
    now_ms: u64,
}

impl Pair {
    fn take(&mut self, step: Step) {
        match step {
            Step::Push { priority, ttl } => self.push(priority, ttl),
            Step::Lease(limit) => self.lease(limit),
            Step::Acknowledge(picks) => {
                for pick in self.pick(&picks) {
                    self.acknowledge(pick);
                }
            }
            Step::AcknowledgeUpTo(pick) => self
                .pick(&[pick])
                .into_iter()
                .for_each(|pick| self.acknowledge_up_to(pick)),
            Step::ReleaseAll => {
                let leased = (0..self.model.len())
                    .filter(|&at| self.model[at].stands == Stands::Leased)
                    .collect();
                self.release(leased, Selection::All);
            }
            Step::Release(picks) => {
                let picks = self.pick(&picks);
                let ids: Vec<_> = picks.iter().map(|&at| self.model[at].message.id).collect();
                self.release(picks, Selection::Ids(&ids));
            }
            Step::ReleaseUndelivered(picks) => {
                let picks = self.pick(&picks);
                let ids: Vec<_> = picks.iter().map(|&at| self.model[at].message.id).collect();
                self.release(picks, Selection::Undelivered(&ids));
            }
            Step::Expire(pick) => self.pick(&[pick]).into_iter().for_each(|pick| self.expire(pick)),
            Step::Pass(ms) => self.now_ms += ms,
        }
        self.check();
    }

    /// Messages in any status, including those that have left the inbox.
    fn pick(&self, picks: &[Index]) -> Vec<usize> {
        if self.model.is_empty() {
            return Vec::new();
        }
        picks.iter().map(|pick| pick.index(self.model.len())).collect()
    }

    fn push(&mut self, priority: Priority, ttl: Option<u64>) {
        let is_here = |known: &&Known| matches!(known.stands, Stands::Waiting | Stands::Leased);
        let lens = self
            .model
            .iter()
            .filter(is_here)
            .map(|known| known.message.encoded_len(1));
        let (here, bytes) = (lens.clone().count(), lens.sum::<usize>());
        let message = message(&self.ids, priority);
        let bytes_max = bytes + message.encoded_len(1);
        let room = |capacity, bytes_max| self.inbox.check_room(&message, capacity, bytes_max);
        let is_full = room(CAPACITY, bytes_max).is_err();
        assert_eq!(is_full, here >= CAPACITY);
        let full = BudgetFull {
            budget: Budget::QueueBytes,
            limit: bytes_max - 1,
        };
        assert_eq!(room(here + 1, bytes_max - 1), Err(full));
        if here >= CAPACITY {
            return;
        }
        let deadline_ms = ttl.map_or(NO_DEADLINE, |ttl| self.now_ms + ttl);
        let seq = self.inbox.push(message.clone(), receipt(self.model.len()), deadline_ms);
        self.model.push(Known {
            message,
            seq,
            deadline_ms,
            deliveries: 0,
            last_lease: 0,
            stands: Stands::Waiting,
        });
    }

    fn lease(&mut self, limit: usize) {
        let mut waiting: Vec<_> = (0..self.model.len())
            .filter(|&at| self.model[at].stands == Stands::Waiting)
            .collect();
        waiting.sort_by_key(|&at| std::cmp::Reverse(self.model[at].message.priority));
        waiting.truncate(limit);
        let mut leased = Vec::new();
        self.inbox.lease(limit, usize::MAX, |item| {
            leased.push((item.receipt, item.message.id, item.deliveries));
        });
        let mut expected = Vec::new();
        for at in waiting {
            self.leases += 1;
            let known = &mut self.model[at];
            known.deliveries += 1;
            known.last_lease = self.leases;
            known.stands = Stands::Leased;
            expected.push((receipt(at), known.message.id, known.deliveries));
        }
        assert_eq!(leased, expected);
    }

    fn acknowledge(&mut self, at: usize) {
        let known = &mut self.model[at];
        let expected = known.may_be_acknowledged().then_some(receipt(at));
        if expected.is_some() {
            known.stands = Stands::Done;
        }
        let item = self.inbox.acknowledge(self.model[at].message.id);
        assert_eq!(item.map(|item| item.receipt), expected);
    }

    fn acknowledge_up_to(&mut self, at: usize) {
        let (last, known) = (self.model[at].last_lease, self.model[at].may_be_acknowledged());
        let mut expected = Vec::new();
        for (place, other) in self.model.iter_mut().enumerate().filter(|_| known) {
            if place == at || (other.stands == Stands::Leased && other.last_lease < last) {
                other.stands = Stands::Done;
                expected.push(receipt(place));
            }
        }
        let mut done = Vec::new();
        let answer = self
            .inbox
            .acknowledge_up_to(self.model[at].message.id, |item| done.push(item.receipt));
        done.sort_unstable();
        assert_eq!((answer, done), (known, expected));
    }

    fn release(&mut self, picks: Vec<usize>, which: Selection<'_>) {
        let mut expected = Vec::new();
        for at in picks {
            let known = &mut self.model[at];
            if known.stands == Stands::Leased {
                if matches!(which, Selection::Undelivered(_)) {
                    (known.last_lease, known.deliveries) = (0, known.deliveries - 1);
                }
                known.stands = if known.deadline_ms <= self.now_ms {
                    Stands::Dead(DeadLetterReason::Expired)
                } else if known.deliveries >= DELIVERY_LIMIT {
                    Stands::Dead(DeadLetterReason::DeliveryLimit)
                } else {
                    Stands::Waiting
                };
                expected.push((receipt(at), known.stands));
            }
        }
        let mut dispositions = Vec::new();
        self.inbox.release(which, DELIVERY_LIMIT, self.now_ms, |disposition| {
            dispositions.push(match disposition {
                Disposition::Requeued(item) => (item.receipt, Stands::Waiting),
                Disposition::DeadLettered(item, reason) => (item.receipt, Stands::Dead(reason)),
            });
        });
        expected.sort_unstable_by_key(|(receipt, _)| *receipt);
        dispositions.sort_unstable_by_key(|(receipt, _)| *receipt);
        assert_eq!(dispositions, expected);
    }

    fn expire(&mut self, at: usize) {
        let known = &mut self.model[at];
        let expected = (known.stands == Stands::Waiting).then_some(receipt(at));
        if expected.is_some() {
            known.stands = Stands::Dead(DeadLetterReason::Expired);
        }
        let item = self.inbox.expire(known.message.id, known.message.priority, known.seq);
        assert_eq!(item.map(|item| item.receipt), expected);
    }

    fn check(&self) {
        let count = |stands| self.model.iter().filter(|known| known.stands == stands).count();
        let (waiting, leased) = (count(Stands::Waiting), count(Stands::Leased));
        assert_eq!(self.inbox.depth(), Depth { waiting, leased });
        for known in &self.model {
            let here = matches!(known.stands, Stands::Waiting | Stands::Leased);
            assert_eq!(
                self.inbox.contains(known.message.id, known.message.priority, known.seq),
                here
            );
        }
        let delivered = self.model.iter().filter(|known| known.may_be_acknowledged()).count();
        assert_eq!(self.inbox.delivered.len(), delivered);
        assert!(
            self.inbox.leased.len() <= 2 * leased + 32,
            "gaps: {}",
            self.inbox.leased.len()
        );
    }
}

impl Known {
    fn may_be_acknowledged(&self) -> bool {
        self.deliveries > 0 && matches!(self.stands, Stands::Waiting | Stands::Leased)
    }
}

fn receipt(at: usize) -> ReceiptKey {
    ReceiptKey {
        receipt: at as u64,
        recipient_index: 0,
    }
}

fn message(ids: &MessageIds, priority: Priority) -> Arc<Message> {
    let sender = SessionRecord::unnamed();
    let headers = Headers {
        priority,
        ..Headers::default()
    };
    let draft = NewMessage::new(
        &ProjectId::default_project(),
        &sender,
        Addressing::Broadcast,
        ("chat", "1.0.0"),
        "{}",
        &headers,
    );
    draft.seal(ids.next(now()), None, now(), false)
}

/// Pushes one message for each receipt number, and leases all of them.
fn push_and_lease(inbox: &mut Inbox, numbers: std::ops::Range<usize>) -> Vec<MessageId> {
    let ids = MessageIds::default();
    for at in numbers {
        inbox.push(message(&ids, Priority::Normal), receipt(at), NO_DEADLINE);
    }
    let mut leased = Vec::new();
    inbox.lease(usize::MAX, usize::MAX, |item| leased.push(item.message.id));
    leased
}

proptest! {
    #[test]
    fn an_inbox_behaves_like_the_list_model(steps in steps()) {
        let mut pair = Pair::default();
        for step in steps {
            pair.take(step);
        }
        let rest: Vec<_> = pair.inbox.into_entries().iter().map(|item| item.receipt).collect();
        let here = |known: &Known| matches!(known.stands, Stands::Waiting | Stands::Leased);
        let expected: Vec<_> =
            (0..pair.model.len()).filter(|&at| here(&pair.model[at])).map(receipt).collect();
        prop_assert_eq!(rest, expected);
    }
}

#[test]
fn an_empty_inbox_frees_the_memory_of_a_burst() {
    type Way = fn(&mut Inbox, &[MessageId]);
    let one_by_one = |inbox: &mut Inbox, leased: &[MessageId]| {
        for &id in leased.iter().rev() {
            assert!(inbox.acknowledge(id).is_some());
        }
    };
    let all_at_once = |inbox: &mut Inbox, leased: &[MessageId]| {
        assert!(inbox.acknowledge_up_to(leased[leased.len() - 1], drop));
    };
    for acknowledge in [one_by_one as Way, all_at_once] {
        let mut inbox = Inbox::default();
        let leased = push_and_lease(&mut inbox, 0..1000);
        acknowledge(&mut inbox, &leased);
        assert_eq!(
            (
                inbox.waiting[1].capacity(),
                inbox.leased.capacity(),
                inbox.delivered.capacity()
            ),
            (0, 0, 0)
        );
    }
}

#[test]
fn an_unacknowledged_message_does_not_keep_later_slots() {
    let (mut inbox, ids) = (Inbox::default(), MessageIds::default());
    for at in 0..10_000 {
        let message = message(&ids, Priority::Normal);
        let id = message.id;
        inbox.push(message, receipt(at), NO_DEADLINE);
        inbox.lease(1, usize::MAX, |_| ());
        assert!(at == 0 || inbox.acknowledge(id).is_some());
    }
    assert!(inbox.leased.capacity() < 100, "{}", inbox.leased.capacity());
}

#[test]
fn a_lease_ends_before_the_first_message_that_does_not_fit() {
    let (mut inbox, ids) = (Inbox::default(), MessageIds::default());
    let mut len = 0;
    for at in 0..4 {
        let message = message(&ids, Priority::Normal);
        len = message.encoded_len(1);
        inbox.push(message, receipt(at), NO_DEADLINE);
    }
    let mut leases = |room| {
        let mut leased = 0;
        let beyond = inbox.lease(usize::MAX, room, |_| leased += 1);
        (leased, beyond)
    };
    assert_eq!(leases(0), (0, Some(len)));
    assert_eq!(leases(len - 1), (0, Some(len)));
    assert_eq!(leases(len), (1, Some(len)));
    assert_eq!(leases(2 * len + 1), (2, Some(len)));
    assert_eq!(leases(len), (1, None));
}

#[test]
fn a_leased_message_is_found_after_compaction() {
    const LEASED: usize = 200;
    // Every other one at the beginning, then enough of the rest to compact the slots.
    let to_the_end: Vec<_> = (1..40).step_by(2).chain(100..LEASED).collect();
    let before_the_end: Vec<_> = (1..40).step_by(2).chain(60..190).collect();
    for acknowledged in [to_the_end, before_the_end] {
        let mut inbox = Inbox::default();
        let mut leased = push_and_lease(&mut inbox, 0..LEASED);
        for &at in &acknowledged {
            assert!(inbox.acknowledge(leased[at]).is_some());
        }
        assert!(inbox.leased.len() < LEASED, "no gap was closed");
        // More leases than there were empty slots.
        leased.extend(push_and_lease(&mut inbox, LEASED..3 * LEASED));
        for at in (0..3 * LEASED).rev().filter(|at| !acknowledged.contains(at)) {
            let found = inbox.acknowledge(leased[at]).expect("it is leased");
            assert_eq!(found.receipt, receipt(at));
        }
    }
}

#[test]
fn slots_are_compacted_when_more_than_half_are_empty() {
    const LEASED: usize = 200;
    let mut inbox = Inbox::default();
    let leased = push_and_lease(&mut inbox, 0..LEASED);
    for id in &leased[50..166] {
        assert!(inbox.acknowledge(*id).is_some());
    }
    assert_eq!(inbox.leased.len(), LEASED, "twice those that are leased, and 32");
    // Several releases at once leave several empty slots at once.
    inbox.release(Selection::Ids(&leased[166..190]), DELIVERY_LIMIT, 0, |_| ());
    assert_eq!(inbox.leased.len(), 50 + 10);
}

#[test]
fn a_small_inbox_keeps_its_memory() {
    let mut inbox = Inbox::default();
    let leased = push_and_lease(&mut inbox, 0..100);
    assert!(inbox.acknowledge_up_to(leased[99], drop));
    assert!(inbox.waiting[1].capacity() >= 100 && inbox.leased.capacity() >= 100);
}
