//! The lines for one program, and which of its connections writes them.
//!
//! A program opens two connections under one id and reads both. Both stay: closing one would make the program connect
//! again and again, and writing to both would ask each question twice. The newest connection gets the lines; when it
//! closes, the one before it does, beginning with the line that was not written whole. The questions that the closed one
//! got are sent again.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

use actors::model::{MessageId, QuestionId};
use tokio::sync::{Notify, futures::Notified};

/// Bytes that may wait for a program before it gets no further questions and yaps. One line may exceed it.
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// Questions that a connection got and that are remembered.
const QUESTIONS_LEN_MAX: usize = 1_000;

/// A line for the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub bytes: Vec<u8>,
    /// The message of the inbox that this line shows: it is acknowledged when the line has been written.
    pub notice: Option<MessageId>,
    /// The question that it shows.
    pub question: Option<QuestionId>,
}

/// The lines that wait, and the connections. It stays on one thread.
#[derive(Default)]
pub struct Output {
    /// The connections, the newest last.
    links: RefCell<Vec<u64>>,
    lines: RefCell<VecDeque<Line>>,
    waiting_bytes: Cell<usize>,
    written: RefCell<Vec<MessageId>>,
    /// The questions that each connection got, the latest last.
    got: RefCell<VecDeque<(u64, QuestionId)>>,
    /// Questions that a closed connection got, while another is open.
    lost: RefCell<Vec<QuestionId>>,
    is_refused: Cell<bool>,
    /// Any of the above has changed.
    changed: Notify,
}

impl Output {
    /// Adds the newest connection.
    pub fn enter(&self, link: u64) {
        self.links.borrow_mut().push(link);
        self.changed.notify_waiters();
    }

    /// Removes a connection, and takes back the line that it has not written whole.
    pub fn leave(&self, link: u64, unwritten: Option<Line>) {
        if let Some(line) = unwritten {
            self.waiting_bytes.set(self.waiting_bytes.get() + line.bytes.len());
            self.lines.borrow_mut().push_front(line);
        }
        self.links.borrow_mut().retain(|other| *other != link);
        let got = self.got.take();
        let (lost, kept): (VecDeque<_>, _) = got.into_iter().partition(|(other, _)| *other == link);
        self.got.replace(kept);
        self.lost
            .borrow_mut()
            .extend(lost.into_iter().map(|(_, question)| question));
        self.changed.notify_waiters();
    }

    /// Queues a line.
    pub fn send(&self, line: Line) {
        self.waiting_bytes.set(self.waiting_bytes.get() + line.bytes.len());
        self.lines.borrow_mut().push_back(line);
        self.changed.notify_waiters();
    }

    /// Waits until this connection is the newest and a line waits, and takes the line.
    pub async fn next_line(&self, link: u64) -> Line {
        self.when(|| {
            let is_newest = self.links.borrow().last() == Some(&link);
            let line = is_newest.then(|| self.lines.borrow_mut().pop_front()).flatten()?;
            self.waiting_bytes.set(self.waiting_bytes.get() - line.bytes.len());
            self.changed.notify_waiters();
            Some(line)
        })
        .await
    }

    /// A line was written whole on this connection.
    pub fn note_written(&self, link: u64, line: &Line) {
        if let Some(question) = line.question {
            let mut got = self.got.borrow_mut();
            if got.len() >= QUESTIONS_LEN_MAX {
                got.pop_front();
            }
            got.push_back((link, question));
        }
        if let Some(notice) = line.notice {
            self.written.borrow_mut().push(notice);
            self.changed.notify_waiters();
        }
    }

    /// The messages whose lines have been written, once.
    pub fn take_written(&self) -> Vec<MessageId> {
        self.written.take()
    }

    /// The questions that a closed connection got, once.
    pub fn take_lost(&self) -> Vec<QuestionId> {
        self.lost.take()
    }

    /// Whether further questions and yaps may be queued.
    pub fn has_room(&self) -> bool {
        self.waiting_bytes.get() < WAITING_BYTES_MAX
    }

    /// No connection gets anything but the lines that wait.
    pub fn refuse(&self) {
        self.is_refused.set(true);
        self.changed.notify_waiters();
    }

    /// Waits until the program is refused and has got its lines.
    pub async fn over(&self) {
        self.when(|| (self.is_refused.get() && self.lines.borrow().is_empty()).then_some(()))
            .await;
    }

    /// Waits until the last connection has closed.
    pub async fn gone(&self) {
        self.when(|| self.is_gone().then_some(())).await;
    }

    /// Whether the last connection has closed.
    pub fn is_gone(&self) -> bool {
        self.links.borrow().is_empty()
    }

    /// Becomes ready when something changes, from this call on.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits until `found` finds something.
    async fn when<T>(&self, found: impl Fn() -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = found() {
                return found;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use uuid::Uuid;

    use super::*;

    fn line(text: &str) -> Line {
        Line {
            bytes: text.into(),
            notice: None,
            question: None,
        }
    }

    fn next(output: &Output, link: u64) -> Option<Line> {
        output.next_line(link).now_or_never()
    }

    #[test]
    fn the_newest_connection_gets_the_lines_and_the_older_one_after_it() {
        let output = Output::default();
        output.enter(1);
        output.send(line("a"));
        output.enter(2);
        output.send(line("b"));
        assert_eq!(next(&output, 1), None);
        assert_eq!(next(&output, 2), Some(line("a")));
        let unwritten = next(&output, 2);
        output.leave(2, unwritten);
        assert_eq!(
            next(&output, 1),
            Some(line("b")),
            "the line that was not written whole is written again"
        );
        assert_eq!(next(&output, 1), None);
        assert!(!output.is_gone());
        output.leave(1, None);
        assert_eq!(output.gone().now_or_never(), Some(()));
    }

    #[test]
    fn bytes_that_wait_are_bounded_and_counted_once() {
        let output = Output::default();
        output.enter(1);
        output.send(line(&"x".repeat(WAITING_BYTES_MAX)));
        assert!(!output.has_room());
        let taken = next(&output, 1);
        assert!(output.has_room());
        output.leave(1, taken);
        assert!(!output.has_room());
    }

    #[test]
    fn a_message_counts_as_written_when_its_line_is() {
        let output = Output::default();
        let notice = Some(MessageId::from_uuid(Uuid::from_u128(1)));
        output.enter(1);
        output.send(Line {
            bytes: b"a".to_vec(),
            notice,
            question: None,
        });
        let taken = next(&output, 1).unwrap();
        assert_eq!(output.take_written(), []);
        output.note_written(1, &taken);
        assert_eq!(output.take_written(), Vec::from_iter(notice));
        assert_eq!(output.take_written(), []);
    }

    #[test]
    fn the_questions_of_a_closed_connection_are_lost_once() {
        let output = Output::default();
        let questions =
            [1, 2].map(|number| QuestionId::parse(&format!("0198f3aa-0000-7000-8000-00000000000{number}")).unwrap());
        for (link, question) in [1, 2].into_iter().zip(questions) {
            output.enter(link);
            let question = Some(question);
            output.note_written(link, &Line { question, ..line("a") });
        }
        output.leave(2, None);
        assert_eq!((output.take_lost(), output.take_lost()), (vec![questions[1]], vec![]));
    }

    #[test]
    fn a_refused_program_gets_the_reason_first() {
        let output = Output::default();
        output.enter(1);
        output.send(line("why"));
        output.refuse();
        assert_eq!(output.over().now_or_never(), None);
        assert!(next(&output, 1).is_some());
        assert_eq!(output.over().now_or_never(), Some(()));
    }
}
