//! Questions to people, the drafts of their answers, and yaps.

use std::{sync::Arc, time::Duration};

use super::{
    error::Op,
    inboxes::{Append, Appended},
};
use crate::{
    clock::Now,
    model::{ProjectEvent, Question, QuestionContent, QuestionId, SessionName, ShownYap, Yap},
};

/// Open questions of one session.
pub const OPEN_OF_SESSION_MAX: usize = 100;
/// Open questions of a project.
pub const OPEN_MAX: usize = 2_000;
/// Open questions and their drafts have at most this part of the bytes of all questions, so that no question that is asked
/// displaces all answers.
pub const OPEN_BYTES_DIVISOR: usize = 2;
/// A question is refused beyond this part of the bytes of all questions, three eighths. The eighth between it and the part for
/// open questions is for drafts alone, so that people can write however much agents ask.
pub const fn asked_bytes_max(questions_bytes_max: usize) -> usize {
    questions_bytes_max / 8 * 3
}
/// The contents of the open questions of one session have at most this part.
pub const SESSION_BYTES_DIVISOR: usize = 8;
/// Drafts of one question: one for each person.
pub const DRAFTS_MAX: usize = 32;
/// Yaps of a project that are kept after they were shown.
pub const YAPS_MAX: usize = 1_000;
/// Bytes of these yaps, as JSON. The oldest are forgotten, never the last one.
pub const YAPS_BYTES_MAX: usize = 4 << 20;
/// How long a yap is kept after it was shown.
pub const YAPS_RETENTION: Duration = Duration::from_secs(24 * 3600);
/// Yaps of a project that are held for the order at once.
pub const HELD_YAPS_MAX: usize = 5_000;
/// Bytes of these yaps, as JSON.
pub const HELD_YAPS_BYTES_MAX: usize = 16 << 20;
/// How far before its arrival a yap may be ordered.
pub const YAP_BACKDATE_MAX: Duration = Duration::from_secs(5);

/// The questions of a project, and its yaps.
pub trait QuestionStore {
    /// Stores a new question (revision 0) and records in the event log that it was asked. With an idempotency key that the session used in the last 24 hours
    /// ([`idempotency_window`](super::Retention::idempotency_window)) for a question that is kept, or with the id of a
    /// kept question, it stores nothing and returns that question. Closed questions that are older than the retention, or
    /// that are in the way of the bounds, are forgotten, the oldest first.
    fn ask(&self, question: Arc<Question>, content: Arc<QuestionContent>, now: Now) -> Op<Asked>;

    /// Compare and set: stores the record if its revision is one above that of the stored one, and records the event in
    /// the same operation. If it closes the question and comes with a notice, the notice is appended to the inbox of the
    /// asker in this operation too. A notice that cannot be appended, because the session is gone or its inbox is full,
    /// does not keep the question open. A record of a question that was closed before appends no notice.
    fn update_question(
        &self,
        question: Arc<Question>,
        event: Option<ProjectEvent>,
        notice: Option<Append>,
        now: Now,
    ) -> Op<Updated>;

    /// The records of these questions; None for an unknown one.
    fn questions(&self, ids: Vec<QuestionId>) -> Op<Vec<Option<Arc<Question>>>>;

    /// The content of a question; None for an unknown one.
    fn question_content(&self, id: QuestionId) -> Op<Option<Arc<QuestionContent>>>;

    /// The records of all open questions, the oldest first: at most [`OPEN_MAX`].
    fn open_questions(&self) -> Op<Vec<Arc<Question>>>;

    /// A page of all kept questions, open and closed, the newest first: at most `limit` behind `before`.
    fn question_page(&self, before: Option<QuestionId>, limit: usize) -> Op<Vec<Arc<Question>>>;

    /// Forgets a question, its content and its drafts. Returns whether it was known.
    fn remove_question(&self, id: QuestionId) -> Op<bool>;

    /// Stores the draft of one person for a question, in place of the earlier one; an empty text removes it. The caller
    /// bounds the text; the store bounds the drafts of a question and the bytes of all questions.
    fn put_draft(&self, id: QuestionId, human: SessionName, text: String) -> Op<DraftPut>;

    /// The draft of one person for a question; empty without one.
    fn draft(&self, id: QuestionId, human: SessionName) -> Op<String>;

    /// Accepts a yap and holds it until [`Self::release_yaps`] gives it its place.
    fn hold_yap(&self, yap: Arc<Yap>, now: Now) -> Op<YapHeld>;

    /// Gives their place in the order to the yaps that were held for `delay`, to those that came too late for theirs, and
    /// to the held ones that precede either. Returns the yaps that this call has released, in their order, and the time
    /// until the next is due. A yap that was held when the process ended is due at once.
    fn release_yaps(&self, delay: Duration, now: Now) -> Op<ReleasedYaps>;

    /// The yaps behind this number, oldest first, at most `limit`. None: the last `limit`.
    fn yaps(&self, after: Option<u64>, limit: usize) -> Op<Vec<Arc<ShownYap>>>;
}

/// The result of [`QuestionStore::ask`].
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    New,
    /// The session used this idempotency key before, for this question.
    Existing(Arc<Question>),
    /// A bound is reached; nothing was stored.
    Full(QuestionsFull),
}

/// The bound that a new question would break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionsFull {
    /// [`OPEN_OF_SESSION_MAX`] questions of the session are open.
    Session,
    /// [`OPEN_MAX`] questions of the project are open.
    Project,
    /// Bytes of open questions of the project, at most this many.
    Bytes(usize),
    /// Bytes of the contents of the open questions of the session, at most this many.
    SessionBytes(usize),
}

/// The result of [`QuestionStore::update_question`].
#[derive(Clone, Debug, PartialEq)]
pub enum Updated {
    /// Stored. The answer of the inbox to the notice, if one was appended.
    Stored(Option<Appended>),
    /// Another change came first: the record as it is now. Nothing was stored.
    Changed(Arc<Question>),
    /// The question is not known.
    Unknown,
}

/// The result of [`QuestionStore::put_draft`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftPut {
    /// Stored, or removed.
    Stored,
    /// The question is not known.
    Unknown,
    /// [`DRAFTS_MAX`] other people have drafts, or the questions of the project take too many bytes; nothing was stored.
    Full,
}

/// The result of [`QuestionStore::hold_yap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YapHeld {
    /// It is held.
    Held,
    /// It is held, and due at once: a yap with a later time was shown before it came.
    Late,
    /// [`HELD_YAPS_MAX`] yaps or [`HELD_YAPS_BYTES_MAX`] bytes are held; nothing was stored.
    Full,
}

/// The result of [`QuestionStore::release_yaps`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReleasedYaps {
    pub released: Vec<Arc<ShownYap>>,
    /// Time until the next held yap is due; None if none is held.
    pub next_in: Option<Duration>,
}
