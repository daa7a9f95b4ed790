//! What the desk keeps: the operations on questions and yaps, and how far their events have been sent.

use std::{sync::Arc, time::Duration};

use super::{
    journal::{Change, DeskChange, Journal},
    project::ProjectState,
};
use crate::{
    clock::Now,
    model::{ProjectEvent, Question, QuestionChange, QuestionContent, QuestionId, SessionName, Yap},
    storage::{
        inboxes::Append,
        questions::{Asked, DraftPut, ReleasedYaps, Updated, YapHeld},
        targets::{TargetCursor, TargetId},
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

    /// The cursor of a target; that of a new target without one.
    pub fn target(&self, id: TargetId) -> TargetCursor {
        self.targets.get(&id).copied().unwrap_or_default()
    }

    /// See [`TargetStore::move_target`](crate::storage::TargetStore::move_target).
    pub fn move_target(&mut self, target: TargetId, cursor: TargetCursor) {
        let change = DeskChange::TargetMoved {
            target,
            cursor: &cursor,
        };
        self.journal.record(Change::Desk(change));
        self.targets.insert(target, cursor);
    }
}
