//! Answers to sensitive questions, encrypted for as long as they are stored.

use std::fmt;

use super::{Answer, Closed, Closing, Question, QuestionId, QuestionState};

/// Encrypts answers, with a key that the store does not have.
pub trait AnswerSeal: fmt::Debug + Send + Sync {
    /// The text, encrypted for this question; None if that fails.
    fn seal(&self, question: QuestionId, text: &str) -> Option<String>;

    /// The text that was encrypted for this question; None for anything else, also with another key.
    fn open(&self, question: QuestionId, sealed: &str) -> Option<String>;
}

impl Question {
    /// The record with its answer encrypted. None if that fails. A record without an answer is unchanged.
    pub fn sealed(mut self, seal: &dyn AnswerSeal) -> Option<Self> {
        if let Some(answer) = self.answer_mut() {
            let text = serde_json::to_string(&std::mem::take(answer)).ok()?;
            self.sealed_answer = Some(seal.seal(self.id, &text)?);
        }
        Some(self)
    }

    /// The record with its answer in plain text. None if it cannot be decrypted, or is not encrypted.
    pub fn opened(&self, seal: &dyn AnswerSeal) -> Option<Self> {
        let text = seal.open(self.id, self.sealed_answer.as_deref()?)?;
        let mut opened = self.clone();
        *opened.answer_mut()? = serde_json::from_str(&text).ok()?;
        opened.sealed_answer = None;
        Some(opened)
    }

    const fn answer_mut(&mut self) -> Option<&mut Answer> {
        match &mut self.state {
            QuestionState::Closed(Closed {
                how: Closing::Answered { answer, .. },
                ..
            }) => Some(answer),
            _ => None,
        }
    }
}
