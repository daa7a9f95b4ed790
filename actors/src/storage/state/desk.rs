//! Changes of questions, with what they record and append.

use std::sync::Arc;

use super::{journal::Journal, project::ProjectState};
use crate::{
    clock::Now,
    model::{ProjectEvent, Question, QuestionChange, QuestionContent},
    storage::{
        inboxes::Append,
        questions::{Asked, Updated},
    },
};

impl<J: Journal> ProjectState<J> {
    /// See [`QuestionStore::ask`](crate::storage::QuestionStore::ask).
    pub fn ask(&mut self, question: Arc<Question>, content: Arc<QuestionContent>, now: Now) -> Asked {
        let event = ProjectEvent::of_question(&question, QuestionChange::Asked, None);
        let asked = self.questions.ask(question, content, now, &mut self.journal);
        if asked == Asked::New {
            self.ledger.events.record(&event, now);
        }
        asked
    }

    /// See [`QuestionStore::update_question`](crate::storage::QuestionStore::update_question).
    pub fn update_question(
        &mut self,
        question: Arc<Question>,
        event: Option<ProjectEvent>,
        notice: Option<Append>,
        now: Now,
    ) -> Updated {
        let closes = match self.questions.update(question, &mut self.journal) {
            Ok(closes) => closes,
            Err(refused) => return refused,
        };
        if let Some(event) = event {
            self.ledger.events.record(&event, now);
        }
        let notice = notice.filter(|_| closes);
        Updated::Stored(notice.and_then(|notice| self.append(vec![notice], now).pop()))
    }
}
