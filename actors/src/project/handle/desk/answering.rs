//! What people do with a question: open, type, answer, decline, hand over.

use std::sync::Arc;

use crate::{
    desk::Human,
    model::{AddressedTo, Answer, BrokerError, ConsoleId, Owner, Question, QuestionId, SessionName},
    project::ProjectHandle,
    session::Member,
};

impl ProjectHandle {
    /// Answers a question. The asker is told by a message in the same operation of the store. `if_revision` is the
    /// revision that the person has seen.
    ///
    /// # Errors
    /// `question_closed` when another end came first: the text of this answer is kept as the draft of the person;
    /// `precondition_failed` for another revision; `invalid_argument` for an answer that does not fit the question;
    /// `question_not_found`; `unavailable`.
    pub async fn answer_question(
        &self,
        id: QuestionId,
        by: &Human,
        answer: Answer,
        if_revision: Option<u64>,
    ) -> Result<Arc<Question>, BrokerError> {
        let _ = (by, answer, if_revision);
        Err(BrokerError::QuestionNotFound { id })
    }

    /// Declines a question: the asker gets no answer to it.
    ///
    /// # Errors
    /// As of [`Self::answer_question`].
    pub async fn decline_question(
        &self,
        id: QuestionId,
        by: &Human,
        reason: Option<String>,
        if_revision: Option<u64>,
    ) -> Result<Arc<Question>, BrokerError> {
        let _ = (by, reason, if_revision);
        Err(BrokerError::QuestionNotFound { id })
    }

    /// A person opens a question to write an answer; a claim of another person ends. `console` is one of the person's.
    ///
    /// # Errors
    /// `question_closed`, `precondition_failed`, `question_not_found`, `unavailable`; `invalid_argument` for a console
    /// of another person.
    pub async fn claim_question(
        &self,
        id: QuestionId,
        by: &Human,
        console: Option<ConsoleId>,
        if_revision: Option<u64>,
    ) -> Result<Arc<Question>, BrokerError> {
        let _ = (by, console, if_revision);
        Err(BrokerError::QuestionNotFound { id })
    }

    /// The person gives up their claim: the question waits again.
    ///
    /// # Errors
    /// `question_closed`, `question_not_found`, `unavailable`; `invalid_argument` for a question that the person has not
    /// claimed.
    pub async fn release_question(&self, id: QuestionId, by: &Human) -> Result<Arc<Question>, BrokerError> {
        let _ = by;
        Err(BrokerError::QuestionNotFound { id })
    }

    /// Hands a question over to another person, to a role, or back to the desk. It keeps its age and its place.
    ///
    /// # Errors
    /// `question_closed`, `question_not_found`, `unavailable`; `invalid_argument` for a note that is too long.
    pub async fn hand_over_question(
        &self,
        id: QuestionId,
        by: &Human,
        to: AddressedTo,
        note: Option<String>,
    ) -> Result<Arc<Question>, BrokerError> {
        let _ = (by, to, note);
        Err(BrokerError::QuestionNotFound { id })
    }

    /// The person types: their claim is renewed, or begins if no person has claimed the question.
    ///
    /// # Errors
    /// `question_closed`, `question_not_found`, `unavailable`; `invalid_argument` while another person has the claim.
    pub async fn typed_at_question(
        &self,
        id: QuestionId,
        by: &Human,
        console: Option<ConsoleId>,
    ) -> Result<Arc<Question>, BrokerError> {
        let _ = (by, console);
        Err(BrokerError::QuestionNotFound { id })
    }

    /// Keeps what the person has written so far, for this person only. An empty text removes it.
    ///
    /// # Errors
    /// `question_not_found`, `unavailable`; `payload_too_large`.
    pub async fn put_draft(&self, id: QuestionId, by: &Human, text: String) -> Result<(), BrokerError> {
        let _ = (by, text);
        Err(BrokerError::QuestionNotFound { id })
    }

    /// What the person has written so far; empty if nothing.
    ///
    /// # Errors
    /// `question_not_found`, `unavailable`.
    pub async fn draft(&self, id: QuestionId, by: &Human) -> Result<String, BrokerError> {
        let _ = by;
        Err(BrokerError::QuestionNotFound { id })
    }

    /// The session of a person, which is made at its first use.
    ///
    /// # Errors
    /// `invalid_argument` when the name belongs to an agent; as of [`Self::register`].
    pub async fn human_session(&self, name: &SessionName, owner: &Owner) -> Result<Arc<Member>, BrokerError> {
        let _ = (name, owner);
        Err(BrokerError::unavailable())
    }
}
