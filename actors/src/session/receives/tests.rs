//! The calls of one session against an inbox, callers that wait, cancel and acknowledge, and answers that are written
//! or not.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::{
    model::MessageIds,
    session::fixtures::{NOW, delivery},
    storage::Depth,
};

const WAITS: Option<u64> = Some(60_000);

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(usize),
    /// A call arrives, which takes so many messages.
    Call {
        limit: usize,
        waits: bool,
        is_acked_by_next: bool,
    },
    /// A call with a receipt of an earlier one.
    CallWithReceipt(Index),
    /// The inbox that was being read answers.
    AnswerRead,
    /// The answer of a call is written to its socket.
    WriteAnswer(Index),
    /// The time of a waiting call is over.
    Expire,
    Cancel(Index),
    /// Everything that is leased is released.
    Release,
    /// Another caller registers the session.
    FenceOut,
    Panic,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let call = (1..4_usize, any::<bool>(), prop::bool::weighted(0.8));
    let step = prop_oneof![
        6 => (1..4_usize).prop_map(Step::Append),
        8 => call.prop_map(|(limit, waits, is_acked_by_next)| Step::Call { limit, waits, is_acked_by_next }),
        2 => any::<Index>().prop_map(Step::CallWithReceipt),
        10 => Just(Step::AnswerRead),
        6 => any::<Index>().prop_map(Step::WriteAnswer),
        1 => Just(Step::Expire),
        2 => any::<Index>().prop_map(Step::Cancel),
        1 => Just(Step::Release),
        1 => Just(Step::FenceOut),
        1 => Just(Step::Panic),
    ];
    vec(step, 1..100)
}

/// How many messages the caller takes, and whether the next call acknowledges them.
#[derive(Clone, Copy, Debug)]
struct Caller {
    limit: usize,
    is_acked_by_next: bool,
}

/// What a call returned, as its caller knows it.
#[derive(Debug)]
struct Answer {
    call: ReceiveCall,
    messages: Vec<MessageId>,
    is_acked_by_next: bool,
    /// The session has forgotten it, or was asked to release or to acknowledge it.
    is_over: bool,
}

struct World {
    receives: Receives<Caller>,
    ids: MessageIds,
    waiting: Vec<MessageId>,
    leased: BTreeSet<MessageId>,
    /// Reads of the inbox that have not been answered, with what they leased.
    reads: Vec<(Waiter<Caller>, Vec<MessageId>)>,
    answers: Vec<Answer>,
    /// How often a message was acknowledged.
    acknowledged: BTreeMap<MessageId, usize>,
}

impl World {
    fn new() -> Self {
        Self {
            receives: Receives::new(0),
            ids: MessageIds::default(),
            waiting: Vec::new(),
            leased: BTreeSet::new(),
            reads: Vec::new(),
            answers: Vec::new(),
            acknowledged: BTreeMap::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Append(count) => {
                self.waiting.extend((0..count).map(|_| self.ids.next(NOW)));
                self.nudge();
            }
            Step::Call {
                limit,
                waits,
                is_acked_by_next,
            } => {
                if is_acked_by_next {
                    self.acknowledge_by_next();
                }
                self.call(limit, waits, is_acked_by_next);
            }
            Step::CallWithReceipt(index) => {
                self.acknowledge_receipt(index);
                self.call(1, false, true);
            }
            Step::AnswerRead => self.answer_read(),
            Step::WriteAnswer(index) => {
                if let Some(answer) = pick(&mut self.answers, index)
                    && !answer.call.is_written()
                {
                    answer.call.mark_written();
                }
            }
            Step::Expire => {
                let first = self.receives.waiters().next().map(|waiter| waiter.number);
                if let Some(number) = first {
                    assert!(self.receives.expire(number).is_some());
                    assert!(self.receives.expire(number).is_none());
                }
            }
            Step::Cancel(index) => self.cancel(index),
            Step::Release => {
                self.receives.mark_released();
                self.waiting.extend(std::mem::take(&mut self.leased));
                self.nudge();
            }
            Step::FenceOut => {
                let incarnation = self.receives.incarnation() + 1;
                let waiting = self.receives.waiters().count();
                let refused = self.receives.fence_out(incarnation).unwrap();
                assert_eq!(refused.len(), waiting, "all that wait are refused");
                assert!(self.receives.fence_out(incarnation).is_none());
            }
            Step::Panic => {
                self.receives.reset_after_panic();
                for (_, leased) in self.reads.drain(..) {
                    self.leased.extend(leased);
                }
                self.answers.clear();
                self.waiting.extend(std::mem::take(&mut self.leased));
            }
        }
        self.check();
    }

    fn nudge(&mut self) {
        if self.receives.len() > 0 && !self.waiting.is_empty() {
            self.serve();
        }
    }

    fn call(&mut self, limit: usize, waits: bool, is_acked_by_next: bool) {
        let caller = Caller {
            limit,
            is_acked_by_next,
        };
        let until_ms = WAITS.filter(|_| waits);
        let waiter = self.receives.admit(ReceiveCall::default(), until_ms, caller);
        self.read(waiter);
    }

    fn serve(&mut self) {
        let lowest = self.receives.waiters().map(|waiter| waiter.number).min();
        if let Some(waiter) = self.receives.next_to_serve() {
            assert_eq!(Some(waiter.number), lowest, "the call that came first is served first");
            self.read(waiter);
        }
    }

    fn read(&mut self, waiter: Waiter<Caller>) {
        self.receives.begin_read();
        let count = waiter.caller.limit.min(self.waiting.len());
        let leased = self.waiting.drain(..count).collect();
        self.reads.push((waiter, leased));
    }

    fn answer_read(&mut self) {
        if self.reads.is_empty() {
            return;
        }
        let (waiter, leased) = self.reads.remove(0);
        self.receives.end_read();
        let lease = Lease {
            deliveries: leased.iter().map(|_| delivery(&self.ids, None, false)).collect(),
            depth: Depth::default(),
            ..Lease::default()
        };
        match self.receives.outcome_of_read(&waiter, &lease, false) {
            ReadOutcome::TakenOver => {
                assert!(waiter.incarnation < self.receives.incarnation());
                self.waiting.extend(leased);
                self.nudge();
            }
            ReadOutcome::NeedsReservation(bytes) => panic!("{bytes} bytes: no message is too large here"),
            ReadOutcome::Wait => {
                assert!(leased.is_empty() && waiter.until_ms.is_some());
                if !self.receives.is_full() {
                    self.receives.enqueue(waiter);
                }
            }
            ReadOutcome::Return | ReadOutcome::Again => {
                self.leased.extend(leased.iter().copied());
                if !leased.is_empty() {
                    self.remember(waiter, leased);
                }
                self.nudge();
            }
        }
        if self.receives.take_must_read_again() {
            self.serve();
        }
    }

    fn remember(&mut self, Waiter { call, caller, .. }: Waiter<Caller>, messages: Vec<MessageId>) {
        let is_acked_by_next = caller.is_acked_by_next;
        self.receives.remember(call.clone(), messages.clone(), is_acked_by_next);
        self.answers.push(Answer {
            call,
            messages,
            is_acked_by_next,
            is_over: false,
        });
    }

    fn acknowledge_by_next(&mut self) {
        let read_at = ReadAt::now();
        let next = self.receives.acknowledge_by_next(read_at);
        for id in &next.messages {
            let answer = self
                .answers
                .iter_mut()
                .find(|answer| answer.messages.contains(id) && !answer.is_over);
            let answer = answer.expect("only what a call returned is acknowledged");
            assert!(answer.is_acked_by_next && answer.call.is_written_before(read_at));
        }
        self.acknowledge(&next.messages);
        assert!(
            !next.is_later_answer_written,
            "no answer is written between reading and serving"
        );
    }

    fn acknowledge_receipt(&mut self, index: Index) {
        let Some(answer) = pick(&mut self.answers, index) else {
            return;
        };
        let (receipt, named) = (answer.call.receipt(), answer.messages.clone());
        let effect = self.receives.acknowledge_receipt(receipt);
        assert!(effect.acknowledged.is_empty() || effect.acknowledged == named);
        // The store acknowledges what is leased, even if another call has it by now, and then releases the rest.
        let leased: Vec<_> = effect
            .acknowledged
            .into_iter()
            .filter(|id| self.leased.contains(id))
            .collect();
        self.acknowledge(&leased);
        self.release(&effect.released);
        let next = self.receives.acknowledge_by_next(ReadAt::now());
        assert_eq!(next, NextAcknowledges::default(), "the receipt has settled everything");
    }

    fn cancel(&mut self, index: Index) {
        let Some(answer) = pick(&mut self.answers, index) else {
            return;
        };
        let call = answer.call.clone();
        let cancelled = self.receives.cancel(&call);
        assert!(cancelled.waiter.is_none(), "it has its answer");
        self.release(&cancelled.released);
        let again = self.receives.cancel(&call);
        assert!(again.released.is_empty() && self.receives.acked_by_next(&call).is_none());
    }

    fn acknowledge(&mut self, messages: &[MessageId]) {
        for id in messages {
            assert!(self.leased.remove(id), "what is acknowledged is leased");
            *self.acknowledged.entry(*id).or_default() += 1;
            assert_eq!(self.acknowledged[id], 1, "a message is acknowledged once");
        }
    }

    /// The store ignores messages that are not leased: the receipt of an earlier call may have acknowledged them.
    fn release(&mut self, messages: &[MessageId]) {
        let leased = messages.iter().filter(|id| self.leased.remove(id));
        self.waiting.extend(leased);
        self.nudge();
    }

    fn check(&mut self) {
        for answer in &mut self.answers {
            let is_leased = answer.messages.iter().all(|id| self.leased.contains(id));
            answer.is_over |= !is_leased;
            if let Some(messages) = self.receives.acked_by_next(&answer.call) {
                assert!(
                    is_leased && messages == answer.messages,
                    "only what is leased is acknowledged by the next"
                );
            }
        }
        assert!(self.receives.waiters().count() <= WAITERS_MAX);
        assert_eq!(self.receives.len(), self.receives.waiters().count() + self.reads.len());
        let numbers: Vec<_> = self.receives.waiters().map(|waiter| waiter.number).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        if self.reads.is_empty() && !self.waiting.is_empty() {
            assert_eq!(self.receives.len(), 0, "no call waits for messages that are there");
        }
    }
}

fn pick(answers: &mut [Answer], index: Index) -> Option<&mut Answer> {
    (!answers.is_empty()).then(|| &mut answers[index.index(answers.len())])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_leave_every_message_waiting_leased_or_acknowledged_once(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        while !world.reads.is_empty() {
            world.answer_read();
            world.check();
        }
        for id in world.acknowledged.keys() {
            prop_assert!(!world.leased.contains(id) && !world.waiting.contains(id));
        }
    }
}

fn receives() -> Receives<()> {
    Receives::new(0)
}

fn lease(blocked_bytes: Option<usize>, deliveries_len: usize) -> Lease {
    let ids = MessageIds::default();
    Lease {
        deliveries: (0..deliveries_len).map(|_| delivery(&ids, None, false)).collect(),
        blocked_bytes,
        ..Lease::default()
    }
}

#[test]
fn a_call_returns_waits_or_asks_for_a_larger_reservation_by_what_was_leased() {
    for (until_ms, blocked_bytes, deliveries_len, outcome) in [
        (None, None, 0, ReadOutcome::Return),
        (WAITS, None, 0, ReadOutcome::Wait),
        (WAITS, None, 1, ReadOutcome::Return),
        (WAITS, Some(9), 0, ReadOutcome::NeedsReservation(9)),
        (None, Some(9), 0, ReadOutcome::NeedsReservation(9)),
        (None, Some(9), 1, ReadOutcome::Return),
    ] {
        let mut receives = receives();
        let waiter = receives.admit(ReceiveCall::default(), until_ms, ());
        let lease = lease(blocked_bytes, deliveries_len);
        assert_eq!(receives.outcome_of_read(&waiter, &lease, false), outcome);
        let again = until_ms.is_none() && deliveries_len == 0;
        let outcome = if again { ReadOutcome::Again } else { outcome };
        assert_eq!(
            receives.outcome_of_read(&waiter, &lease, true),
            outcome,
            "lenses failed"
        );
        let waiter = Waiter {
            reads: READS_AGAIN_MAX,
            ..waiter
        };
        assert_ne!(receives.outcome_of_read(&waiter, &lease, true), ReadOutcome::Again);
        receives.fence_out(1);
        assert_eq!(receives.outcome_of_read(&waiter, &lease, false), ReadOutcome::TakenOver);
    }
}

#[test]
fn a_call_acknowledges_only_answers_that_were_written_before_it_was_read() {
    let (ids, mut receives) = (MessageIds::default(), receives());
    let calls = [(); 3].map(|()| ReceiveCall::default());
    let messages = [(); 3].map(|()| ids.next(NOW));
    for (call, message) in calls.iter().zip(messages) {
        receives.remember(call.clone(), vec![message], true);
    }
    calls[0].mark_written();
    let read_at = ReadAt::now();
    calls[1].mark_written();
    let next = receives.acknowledge_by_next(read_at);
    assert_eq!((next.messages, next.is_later_answer_written), (vec![messages[0]], true));
    let next = receives.acknowledge_by_next(ReadAt::now());
    assert_eq!(
        (next.messages, next.is_later_answer_written),
        (vec![messages[1]], false)
    );
}

#[test]
fn a_receipt_acknowledges_what_it_names_even_if_it_was_released() {
    let (ids, mut receives) = (MessageIds::default(), receives());
    let (call, message) = (ReceiveCall::default(), ids.next(NOW));
    receives.remember(call.clone(), vec![message], true);
    receives.mark_released();
    assert_eq!(receives.acked_by_next(&call), None);
    let effect = ReceiptEffect {
        acknowledged: vec![message],
        released: vec![],
    };
    assert_eq!(receives.acknowledge_receipt(call.receipt()), effect);
    assert_eq!(receives.acknowledge_receipt(call.receipt()), ReceiptEffect::default());
}

#[test]
fn the_oldest_answers_are_forgotten_beyond_the_bounds() {
    let (ids, mut receives) = (MessageIds::default(), receives());
    let calls: Vec<_> = (0..=RETURNED_CALLS_MAX).map(|_| ReceiveCall::default()).collect();
    for call in &calls {
        receives.remember(call.clone(), vec![ids.next(NOW)], true);
    }
    assert!(receives.acked_by_next(&calls[0]).is_none() && receives.acked_by_next(&calls[1]).is_some());
    let many = ReceiveCall::default();
    let messages = std::iter::repeat_with(|| ids.next(NOW)).take(RETURNED_MESSAGES_MAX);
    receives.remember(many.clone(), messages.collect(), true);
    assert!(calls.iter().all(|call| receives.acked_by_next(call).is_none()));
    assert!(receives.acked_by_next(&many).is_some());
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_is_returned() {
    let mut receives = receives();
    let call = ReceiveCall::default();
    let waiter = receives.admit(call.clone(), WAITS, ());
    receives.enqueue(waiter);
    assert!(receives.cancel(&call).waiter.is_some());
    assert!(receives.cancel(&call).waiter.is_none());
    assert_eq!(receives.len(), 0);
}
