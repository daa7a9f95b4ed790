//! Questions to people: ask, read, wait, cancel. `desk/` has the verbs of people and of the consoles.
//!
//! A change of a question is a pure transition that is stored by compare and set, so any replica may make it, and of two
//! racing ends exactly one wins.

mod answering;
mod watching;

use std::{sync::Arc, time::Duration};

use super::ProjectHandle;
use crate::{
    desk::{AskedQuestion, NewQuestion, QuestionCursor, QuestionFilter, QuestionPage, Reader},
    model::{BrokerError, Question, QuestionContent, QuestionId},
    session::Member,
};

impl ProjectHandle {
    /// Asks people a question. It lives in the store until it is answered, declined, cancelled or expired.
    ///
    /// # Errors
    /// `invalid_argument` for a content out of bounds; `queue_full` when too many questions are open; `unavailable`.
    pub async fn ask(&self, asker: &Arc<Member>, new: NewQuestion) -> Result<AskedQuestion, BrokerError> {
        let _ = (asker, new);
        Err(BrokerError::unavailable())
    }

    /// A question with its content. A person who reads it has seen it.
    ///
    /// # Errors
    /// `question_not_found` for a question that is not kept or that the caller may not read; `unavailable`.
    pub async fn question(
        &self,
        id: QuestionId,
        reader: &Reader<'_>,
    ) -> Result<(Arc<Question>, Arc<QuestionContent>), BrokerError> {
        Ok((
            self.question_record(id, reader).await?,
            self.question_content(id, reader).await?,
        ))
    }

    /// A question without its content.
    ///
    /// # Errors
    /// As of [`Self::question`].
    pub async fn question_record(&self, id: QuestionId, reader: &Reader<'_>) -> Result<Arc<Question>, BrokerError> {
        let _ = reader;
        Err(BrokerError::QuestionNotFound { id })
    }

    /// The content of a question.
    ///
    /// # Errors
    /// As of [`Self::question`].
    pub async fn question_content(
        &self,
        id: QuestionId,
        reader: &Reader<'_>,
    ) -> Result<Arc<QuestionContent>, BrokerError> {
        let _ = reader;
        Err(BrokerError::QuestionNotFound { id })
    }

    /// A page of the questions that the caller may read: `limit` at most, from the place `after` on.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn list_questions(
        &self,
        reader: &Reader<'_>,
        filter: &QuestionFilter,
        limit: usize,
        after: Option<QuestionCursor>,
    ) -> Result<QuestionPage, BrokerError> {
        let _ = (reader, filter, limit, after);
        Err(BrokerError::unavailable())
    }

    /// The questions of a session that are open, or closed while it has not acknowledged the message that says so; the
    /// oldest first.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn open_questions_of(&self, asker: &Member) -> Result<Vec<Arc<Question>>, BrokerError> {
        let _ = asker;
        Err(BrokerError::unavailable())
    }

    /// The record of a question once its revision is above `after_revision`, or as it is when the time is over. A change
    /// at another replica ends the wait as well.
    ///
    /// # Errors
    /// `question_not_found`, also when the question is removed meanwhile; `unavailable`.
    pub async fn wait_for_change(
        &self,
        id: QuestionId,
        after_revision: u64,
        timeout: Duration,
    ) -> Result<Arc<Question>, BrokerError> {
        let _ = (after_revision, timeout);
        Err(BrokerError::QuestionNotFound { id })
    }

    /// Cancels a question for its asker or an administrator. A closed question stays as it is, and is returned.
    ///
    /// # Errors
    /// `question_not_found`; `forbidden` for a person, who declines a question instead; `unavailable`.
    pub async fn cancel_question(
        &self,
        id: QuestionId,
        by: &Reader<'_>,
        reason: Option<String>,
    ) -> Result<Arc<Question>, BrokerError> {
        let _ = (by, reason);
        Err(BrokerError::QuestionNotFound { id })
    }

    /// Forgets a question, its content and its drafts. Only an administrator may ask for it.
    ///
    /// # Errors
    /// `question_not_found`; `unavailable`.
    pub async fn remove_question(&self, id: QuestionId) -> Result<(), BrokerError> {
        Err(BrokerError::QuestionNotFound { id })
    }

    /// The place of an open question in the queue of the desk, as this replica knows it: 1 for the question that is next.
    /// None for a question that a console has, or that is closed.
    pub fn queue_position(&self, id: QuestionId) -> Option<usize> {
        let _ = id;
        None
    }
}
