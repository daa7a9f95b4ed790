//! The messages in flight on one stream, and whether each arrived once, in order and unchanged.

use std::collections::VecDeque;

use crate::{event_loop::Nanos, report::Report};

/// The faults of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub lost: u64,
    /// Messages that the server did not answer.
    pub unanswered: u64,
    /// Messages that arrived with other content.
    pub corrupt: u64,
    pub out_of_order: u64,
    /// Messages that arrived again. Delivery is at least once, so this is reported and is not a fault.
    pub repeated: u64,
}

impl Faults {
    pub fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.unanswered += other.unanswered;
        self.corrupt += other.corrupt;
        self.out_of_order += other.out_of_order;
        self.repeated += other.repeated;
    }

    pub fn describe(self, report: &mut Report) {
        report.add("repeated", self.repeated);
        report.add_fault("lost", self.lost);
        report.add_fault("unanswered", self.unanswered);
        report.add_fault("out_of_order", self.out_of_order);
        report.add_fault("corrupt", self.corrupt);
    }
}

#[derive(Clone, Copy)]
struct Sent {
    at: Nanos,
    delivered: bool,
    answered: bool,
}

/// An event of a message in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageProgress {
    pub sent_at: Nanos,
    /// The message has now been both delivered and answered.
    pub finished: bool,
}

/// Messages of one sender to one recipient, numbered from zero.
#[derive(Default)]
pub struct MessageTracker {
    /// The number of the oldest message in `sent`.
    first: u64,
    sent: VecDeque<Sent>,
    next_delivery: u64,
    faults: Faults,
}

impl MessageTracker {
    /// Records a message and returns its number.
    pub fn send(&mut self, at: Nanos) -> u64 {
        self.sent.push_back(Sent {
            at,
            delivered: false,
            answered: false,
        });
        self.first + self.sent.len() as u64 - 1
    }

    /// Records a delivery. Returns None for a message that is not expected.
    pub fn deliver(&mut self, seq: u64) -> Option<MessageProgress> {
        let fresh = self
            .get(seq)
            .is_some_and(|sent| !std::mem::replace(&mut sent.delivered, true));
        if !fresh {
            self.faults.repeated += 1;
            return None;
        }
        if seq != self.next_delivery {
            self.faults.out_of_order += 1;
        }
        self.next_delivery = self.next_delivery.max(seq + 1);
        self.step(seq)
    }

    /// Records the answer to the sender.
    pub fn answer(&mut self, seq: u64) -> Option<MessageProgress> {
        let fresh = self
            .get(seq)
            .is_some_and(|sent| !std::mem::replace(&mut sent.answered, true));
        if fresh { self.step(seq) } else { None }
    }

    /// The faults so far. Messages in flight count as lost or unanswered.
    pub fn faults(&self) -> Faults {
        let count = |missing: fn(&Sent) -> bool| self.sent.iter().filter(|sent| missing(sent)).count() as u64;
        Faults {
            lost: count(|sent| !sent.delivered),
            unanswered: count(|sent| !sent.answered),
            ..self.faults
        }
    }

    pub fn is_settled(&self) -> bool {
        self.sent.is_empty()
    }

    pub fn in_flight(&self) -> usize {
        self.sent.len()
    }

    fn get(&mut self, seq: u64) -> Option<&mut Sent> {
        let at = seq.checked_sub(self.first)?;
        self.sent.get_mut(usize::try_from(at).ok()?)
    }

    fn step(&mut self, seq: u64) -> Option<MessageProgress> {
        let sent = *self.get(seq)?;
        while self.sent.front().is_some_and(|sent| sent.delivered && sent.answered) {
            self.sent.pop_front();
            self.first += 1;
        }
        Some(MessageProgress {
            sent_at: sent.at,
            finished: sent.delivered && sent.answered,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_sent(count: u64) -> MessageTracker {
        let mut track = MessageTracker::default();
        (0..count).for_each(|i| assert_eq!(track.send(i * 10), i));
        track
    }

    #[test]
    fn a_message_is_finished_when_delivered_and_answered_in_any_order() {
        let mut track = with_sent(2);
        assert_eq!(
            track.deliver(0),
            Some(MessageProgress {
                sent_at: 0,
                finished: false
            })
        );
        assert_eq!(
            track.answer(1),
            Some(MessageProgress {
                sent_at: 10,
                finished: false
            })
        );
        assert_eq!(
            track.answer(0),
            Some(MessageProgress {
                sent_at: 0,
                finished: true
            })
        );
        assert_eq!(
            track.deliver(1),
            Some(MessageProgress {
                sent_at: 10,
                finished: true
            })
        );
        assert!(track.is_settled());
        assert_eq!(track.faults(), Faults::default());
        assert_eq!(track.send(5), 2);
    }

    #[test]
    fn a_gap_is_out_of_order_and_a_missing_message_is_lost() {
        let mut track = with_sent(3);
        (0..3).for_each(|seq| assert!(track.answer(seq).is_some()));
        track.deliver(0);
        track.deliver(2);
        assert_eq!(
            track.faults(),
            Faults {
                lost: 1,
                out_of_order: 1,
                ..Faults::default()
            }
        );
        track.deliver(1);
        assert_eq!(
            track.faults(),
            Faults {
                out_of_order: 2,
                ..Faults::default()
            }
        );
    }

    #[test]
    fn repeats_are_counted_and_never_finish_a_message() {
        let mut track = with_sent(1);
        track.deliver(0);
        assert_eq!(track.deliver(0), None);
        track.answer(0);
        assert_eq!(track.deliver(0), None);
        assert_eq!(track.answer(0), None);
        assert_eq!(track.faults().repeated, 2);
    }
}
