//! What the desk keeps: the operations on questions and yaps.

use std::{sync::Arc, time::Duration};

use super::{journal::Journal, project::ProjectState};
use crate::{
    clock::Now,
    model::{Question, QuestionContent, QuestionId, SessionName, Yap},
    storage::{
        inboxes::Append,
        questions::{Asked, DraftPut, ReleasedYaps, Updated, YapHeld},
    },
};

impl<J: Journal> ProjectState<J> {
    /// See [`QuestionStore::ask`](crate::storage::QuestionStore::ask).
    pub fn ask(&mut self, question: Arc<Question>, content: Arc<QuestionContent>, now: Now) -> Asked {
        self.questions.ask(question, content, now, &mut self.journal)
    }

    /// See [`QuestionStore::update_question`](crate::storage::QuestionStore::update_question).
    pub fn update_question(&mut self, question: Arc<Question>, notice: Option<Append>, now: Now) -> Updated {
        match self.questions.update(question, &mut self.journal) {
            Ok(true) => {
                let appended = notice.and_then(|notice| self.append(vec![notice], now).pop());
                Updated::Stored(appended)
            }
            Ok(false) => Updated::Stored(None),
            Err(refused) => refused,
        }
    }

    /// See [`QuestionStore::remove_question`](crate::storage::QuestionStore::remove_question).
    pub fn remove_question(&mut self, id: QuestionId) -> bool {
        self.questions.remove(id, &mut self.journal)
    }

    /// See [`QuestionStore::put_draft`](crate::storage::QuestionStore::put_draft).
    pub fn put_draft(&mut self, id: QuestionId, human: SessionName, text: String) -> DraftPut {
        self.questions.put_draft(id, human, text, &mut self.journal)
    }

    /// See [`QuestionStore::hold_yap`](crate::storage::QuestionStore::hold_yap).
    pub fn hold_yap(&mut self, yap: Arc<Yap>, now: Now) -> YapHeld {
        self.yaps.hold(yap, now, &mut self.journal)
    }

    /// See [`QuestionStore::release_yaps`](crate::storage::QuestionStore::release_yaps).
    pub fn release_yaps(&mut self, delay: Duration, now: Now) -> ReleasedYaps {
        self.yaps.release(delay, now, &mut self.journal)
    }
}
