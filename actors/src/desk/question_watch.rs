//! A call that waits for the changes of one question.

use std::sync::Arc;

use tokio::sync::watch;

use super::QuestionChanges;
use crate::model::{BrokerError, Question, QuestionId};

/// The changes of one question from the record on that a call knows. The store is read once, and then the desk gives each
/// new record to all that wait; changes of other replicas too.
pub struct QuestionWatch<'a> {
    questions: &'a QuestionChanges,
    records: watch::Receiver<Option<Arc<Question>>>,
    known: Arc<Question>,
    /// The store was read after the watch began.
    is_current: bool,
}

impl<'a> QuestionWatch<'a> {
    /// Watches a question whose record was `known`.
    pub(crate) fn new(questions: &'a QuestionChanges, known: Arc<Question>) -> Self {
        Self {
            records: questions.shared().watch(known.id),
            questions,
            known,
            is_current: false,
        }
    }

    /// The question.
    pub fn id(&self) -> QuestionId {
        self.known.id
    }

    /// The record as soon as it is newer than the last one. A call that is dropped misses nothing.
    ///
    /// # Errors
    /// `question_not_found`, also when the question is removed meanwhile; `unavailable`, also when the project ends.
    pub async fn changed(&mut self) -> Result<Arc<Question>, BrokerError> {
        if !self.is_current {
            let read = self.questions.read(self.id()).await?;
            self.is_current = true;
            if self.is_news(&read) {
                return Ok(read);
            }
        }
        loop {
            if self.records.changed().await.is_err() {
                return Err(if self.questions.shared().is_closed() {
                    BrokerError::unavailable()
                } else {
                    BrokerError::QuestionNotFound {
                        id: *self.id().as_uuid(),
                    }
                });
            }
            let newer = self.records.borrow_and_update().clone();
            if let Some(newer) = newer.filter(|newer| self.is_news(newer)) {
                return Ok(newer);
            }
        }
    }

    /// The record as the store has it now: a change of another replica may be on its way to this one.
    ///
    /// # Errors
    /// `question_not_found`; `unavailable`.
    pub async fn read(&self) -> Result<Arc<Question>, BrokerError> {
        self.questions.read(self.id()).await
    }

    fn is_news(&mut self, record: &Arc<Question>) -> bool {
        let is_news = record.revision > self.known.revision;
        if is_news {
            self.known = Arc::clone(record);
        }
        is_news
    }
}

impl Drop for QuestionWatch<'_> {
    fn drop(&mut self) {
        self.questions.shared().unwatch(self.known.id);
    }
}
