//! Decides which questions a console gets, and when. It does no I/O.
//!
//! A rubberduck console keeps what it was sent in a queue of its own: a question cannot be withdrawn from there, and one
//! that is sent twice is asked twice.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use actors::model::{AnswerPart, ConsoleId, Question, QuestionId, Urgency};

/// Questions that a console has and that wait for its person.
pub const PUSHED_LEN_MAX: usize = 10;
/// Questions that the console has got and not answered, and that are remembered.
const SHOWN_LEN_MAX: usize = 1_000;

/// The questions of one console.
#[derive(Debug, Default)]
pub struct Board {
    /// The questions that the desk offers to this console, and that it has not got: the most urgent first, then the oldest.
    offered: BTreeSet<(Reverse<Urgency>, QuestionId)>,
    /// The questions that the console has got, and that are still its own.
    pushed: BTreeMap<QuestionId, Urgency>,
    /// All that the console has got and not answered, the latest last.
    shown: VecDeque<QuestionId>,
    /// The answers to the first questions of forms.
    begun: BTreeMap<QuestionId, Vec<AnswerPart>>,
}

impl Board {
    /// A question has changed.
    pub fn update(&mut self, question: &Question, own: ConsoleId) {
        let key = (Reverse(question.urgency), question.id);
        // The answer to a sensitive question is not typed into a line that a terminal keeps.
        let is_own = question.is_open() && question.console() == Some(own) && !question.is_sensitive;
        if !is_own {
            self.offered.remove(&key);
            self.pushed.remove(&question.id);
        } else if self.shown.contains(&question.id) {
            self.pushed.insert(question.id, question.urgency);
        } else {
            self.offered.insert(key);
        }
        if !question.is_open() {
            self.begun.remove(&question.id);
        }
    }

    /// Replaces all that is known of open questions, after changes were missed.
    pub fn replace<'a>(&mut self, open: impl IntoIterator<Item = &'a Question>, own: ConsoleId) {
        self.offered.clear();
        self.pushed.clear();
        for question in open {
            self.update(question, own);
        }
    }

    /// The question that the console gets next.
    pub fn next(&self) -> Option<QuestionId> {
        let has_room = self.pushed.len() < PUSHED_LEN_MAX;
        self.offered.first().filter(|_| has_room).map(|(_, id)| *id)
    }

    /// The console gets this question, or the question is closed.
    pub fn take(&mut self, id: QuestionId, is_shown: bool) {
        let offered = self.offered.extract_if(.., |(_, offered)| *offered == id).last();
        if is_shown {
            let urgency = offered.map_or_else(Urgency::default, |(Reverse(urgency), _)| urgency);
            self.pushed.insert(id, urgency);
            self.shown.retain(|shown| *shown != id);
            self.shown.push_back(id);
            if self.shown.len() > SHOWN_LEN_MAX {
                self.shown.pop_front();
            }
        }
    }

    /// The person has answered a question, so the console does not have it now. `is_asked_again`: the answer was
    /// not taken.
    pub fn answered(&mut self, id: QuestionId, urgency: Urgency, is_asked_again: bool) {
        self.pushed.remove(&id);
        self.shown.retain(|shown| *shown != id);
        if is_asked_again {
            self.offered.insert((Reverse(urgency), id));
        } else {
            self.begun.remove(&id);
        }
    }

    /// The connection that the console got these questions on has closed: it gets them again.
    pub fn lost(&mut self, ids: &[QuestionId]) {
        for id in ids {
            self.shown.retain(|shown| shown != id);
            if let Some(urgency) = self.pushed.remove(id) {
                self.offered.insert((Reverse(urgency), *id));
            }
        }
    }

    /// The answers so far to the questions of a form.
    pub fn begun(&self, id: QuestionId) -> &[AnswerPart] {
        self.begun.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The next question of a form was answered.
    pub fn begin(&mut self, id: QuestionId, part: AnswerPart) {
        self.begun.entry(id).or_default().push(part);
        if self.begun.len() > SHOWN_LEN_MAX {
            self.begun.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use actors::model::{
        AddressedTo, Asker, Closed, Closing, Offer, Owner, QuestionState, ReplicaId, SessionId, SessionName,
    };
    use proptest::prelude::*;

    use super::*;

    fn console(number: u64) -> ConsoleId {
        ConsoleId {
            replica: ReplicaId::parse("0198f3aa-0000-7000-8000-000000000000").unwrap(),
            number,
        }
    }

    fn id(number: u8) -> QuestionId {
        QuestionId::parse(&format!("0198f3aa-0000-7000-8000-0000000000{number:02x}")).unwrap()
    }

    fn offered(number: u8, urgency: Urgency, to: ConsoleId) -> Question {
        Question {
            id: id(number),
            revision: 1,
            asker: Asker {
                session: SessionId::parse("0198f3aa-0000-7000-8000-000000000001").unwrap(),
                name: None,
                owner: Owner::anonymous(),
            },
            summary: String::new(),
            content_bytes: 0,
            urgency,
            to: AddressedTo::Anyone,
            is_sensitive: false,
            expires_at_ms: None,
            on_expiry: None,
            idempotency_key: None,
            state: QuestionState::Offered(Offer {
                console: to,
                human: SessionName::parse("mara").unwrap(),
                until_ms: 0,
            }),
            seen_at_ms: None,
            is_expiring: false,
            sealed_answer: None,
            answer_deleted_ms: None,
            handover: None,
            notice: None,
        }
    }

    fn closed(mut question: Question) -> Question {
        question.state = QuestionState::Closed(Closed {
            at_ms: 0,
            how: Closing::Expired,
        });
        question
    }

    fn push_all(board: &mut Board) -> Vec<QuestionId> {
        let mut pushed = Vec::new();
        while let Some(id) = board.next() {
            board.take(id, true);
            pushed.push(id);
        }
        pushed
    }

    #[test]
    fn the_most_urgent_goes_first_then_the_oldest_and_ten_at_most_wait_for_the_person() {
        let mut board = Board::default();
        for number in 0..12 {
            board.update(&offered(number, Urgency::Low, console(1)), console(1));
        }
        board.update(&offered(20, Urgency::High, console(1)), console(1));
        let pushed = push_all(&mut board);
        assert_eq!(pushed.len(), PUSHED_LEN_MAX);
        assert_eq!(pushed[..3], [id(20), id(0), id(1)]);
        board.update(&offered(21, Urgency::High, console(1)), console(1));
        assert_eq!(board.next(), None);
        board.answered(id(0), Urgency::Low, false);
        assert_eq!(push_all(&mut board), [id(21)]);
    }

    #[test]
    fn a_question_that_returns_to_the_console_is_not_asked_twice() {
        let mut board = Board::default();
        board.update(&offered(1, Urgency::Low, console(1)), console(1));
        assert_eq!(push_all(&mut board), [id(1)]);
        board.update(&offered(1, Urgency::Low, console(2)), console(1));
        board.update(&offered(1, Urgency::Low, console(1)), console(1));
        assert_eq!(board.next(), None);
        board.replace([&offered(1, Urgency::Low, console(1))], console(1));
        assert_eq!(board.next(), None);
        board.answered(id(1), Urgency::Low, true);
        assert_eq!(
            board.next(),
            Some(id(1)),
            "an answer that was not taken is asked for again"
        );
    }

    #[test]
    fn what_a_closed_connection_got_is_pushed_again_while_it_is_open() {
        let mut board = Board::default();
        for number in 1..=3 {
            board.update(&offered(number, Urgency::Medium, console(1)), console(1));
        }
        assert_eq!(push_all(&mut board), [id(1), id(2), id(3)]);
        board.update(&closed(offered(1, Urgency::Medium, console(1))), console(1));
        board.answered(id(2), Urgency::Medium, false);
        board.lost(&[id(1), id(2), id(3), id(4)]);
        assert_eq!(push_all(&mut board), [id(3)]);
    }

    #[test]
    fn a_sensitive_question_is_not_pushed() {
        let mut board = Board::default();
        let mut question = offered(1, Urgency::High, console(1));
        question.is_sensitive = true;
        board.update(&question, console(1));
        assert_eq!(board.next(), None);
    }

    proptest! {
        #[test]
        fn no_question_is_with_the_console_twice_and_none_is_pushed_to_ten(
            steps in prop::collection::vec((0_u8..30, 0_u8..5), 0..200),
        ) {
            let mut board = Board::default();
            let mut with_console = BTreeSet::new();
            for (number, step) in steps {
                let urgency = Urgency::ALL[usize::from(number % 3)];
                match step {
                    0 | 1 => board.update(&offered(number, urgency, console(1)), console(1)),
                    2 => board.update(&offered(number, urgency, console(2)), console(1)),
                    3 => board.update(&closed(offered(number, urgency, console(1))), console(1)),
                    _ => {
                        board.answered(id(number), urgency, false);
                        with_console.remove(&id(number));
                    }
                }
                while let Some(next) = board.next() {
                    // One that has returned from another console is with this one already, and may be the eleventh.
                    prop_assert!(board.pushed.len() < PUSHED_LEN_MAX);
                    board.take(next, true);
                    prop_assert!(with_console.insert(next), "{} is asked twice", next);
                }
            }
        }
    }
}
