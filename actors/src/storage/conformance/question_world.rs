//! The fixture of the cases about questions: questions, their next revisions, and what a world does with them.

use std::sync::Arc;

use futures_util::future::join_all;
use uuid::Uuid;

use super::{
    super::{Append, Asked, DraftPut, Updated},
    world::{World, done},
};
use crate::model::{
    AddressedTo, Answer, AnswerPart, AnsweredBy, Asker, Closed, Closing, ConsoleId, Offer, Owner, Question,
    QuestionContent, QuestionId, QuestionItem, QuestionState, ReplicaId, SessionId, SessionName, Urgency, Via,
};

/// A content with this text.
pub fn content(text: &str) -> Arc<QuestionContent> {
    let item = QuestionItem {
        id: String::new(),
        question: text.to_owned(),
        options: Vec::new(),
        multi_select: false,
        allow_other: true,
        required: false,
    };
    Arc::new(QuestionContent {
        items: vec![item],
        context: Some("\u{1f980} \"quoted\"\n".to_owned()),
        ..QuestionContent::default()
    })
}

/// The name of a person.
pub fn human(name: &str) -> SessionName {
    SessionName::parse(name).expect("a valid name")
}

/// A new question with this content.
pub fn question(session: SessionId, content: &QuestionContent, key: Option<&str>) -> Question {
    Question {
        id: QuestionId::at(crate::clock::now()),
        revision: 0,
        asker: Asker {
            session,
            name: Some(human("alice \u{e4}")),
            owner: Owner::anonymous(),
        },
        summary: "Drop the old table?".to_owned(),
        content_bytes: content.stored_len(),
        urgency: Urgency::High,
        to: AddressedTo::Named("mara".to_owned()),
        is_sensitive: false,
        expires_at_ms: Some(1_790_000_000_000),
        on_expiry: Some(serde_json::json!({"value": [1, 2.5]})),
        idempotency_key: key.map(str::to_owned),
        state: QuestionState::Waiting,
        seen_at_ms: None,
        is_expiring: false,
        sealed_answer: None,
        answer_deleted_ms: None,
        handover: None,
        notice: None,
    }
}

/// The next revision of a question, in this state.
pub fn next(question: &Question, state: QuestionState) -> Arc<Question> {
    Arc::new(Question {
        revision: question.revision + 1,
        state,
        ..question.clone()
    })
}

/// The next revision of a question, offered to a console.
pub fn offered(question: &Question) -> Arc<Question> {
    let offer = Offer {
        console: ConsoleId {
            replica: ReplicaId::from_uuid(Uuid::nil()),
            number: 7,
        },
        human: human("mara"),
        until_ms: 5,
    };
    next(question, QuestionState::Offered(offer))
}

/// The next revision of a question, answered at this time by this person.
pub fn closed_at(question: &Question, at_ms: u64, by: &str) -> Arc<Question> {
    let how = Closing::Answered {
        by: AnsweredBy {
            human: human(by),
            via: Via::Console,
            is_agent: false,
        },
        answer: Answer {
            part: AnswerPart {
                text: Some("yes".to_owned()),
                ..AnswerPart::default()
            },
            ..Answer::default()
        },
    };
    next(question, QuestionState::Closed(Closed { at_ms, how }))
}

impl World {
    /// Asks without a check of the result.
    pub async fn asks_with(&self, question: &Arc<Question>, content: &Arc<QuestionContent>) -> Asked {
        done(self.store.ask(Arc::clone(question), Arc::clone(content), self.now)).await
    }

    /// Asks; panics unless the question is new.
    pub async fn asks(&self, session: SessionId, key: Option<&str>) -> Arc<Question> {
        let content = content("Drop the old table?");
        let question = Arc::new(question(session, &content, key));
        assert_eq!(self.asks_with(&question, &content).await, Asked::New);
        question
    }

    /// Stores a record with a notice.
    pub async fn updates(&self, question: &Arc<Question>, notice: Option<Append>) -> Updated {
        done(self.store.update_question(Arc::clone(question), None, notice, self.now)).await
    }

    /// The next revision of a question, answered now.
    pub fn closed(&self, question: &Question) -> Arc<Question> {
        closed_at(question, self.now.unix_ms, "mara")
    }

    /// The record of a question.
    pub async fn record(&self, id: QuestionId) -> Option<Arc<Question>> {
        done(self.store.questions(vec![id])).await.pop().flatten()
    }

    /// The open questions.
    pub async fn open(&self) -> Vec<QuestionId> {
        done(self.store.open_questions())
            .await
            .iter()
            .map(|question| question.id)
            .collect()
    }

    /// A page of all questions.
    pub async fn page(&self, before: Option<QuestionId>, limit: usize) -> Vec<QuestionId> {
        let page = done(self.store.question_page(before, limit)).await;
        page.iter().map(|question| question.id).collect()
    }

    /// Stores a draft.
    pub async fn drafts(&self, id: QuestionId, name: &str, text: &str) -> DraftPut {
        done(self.store.put_draft(id, human(name), text.to_owned())).await
    }

    /// The draft of a person.
    pub async fn draft(&self, id: QuestionId, name: &str) -> String {
        done(self.store.draft(id, human(name))).await
    }

    /// Carries out an operation for each of `0..count`, many at once. The results are in this order.
    pub async fn each<T>(&self, count: usize, operation: impl AsyncFn(usize) -> T) -> Vec<T> {
        const TOGETHER: usize = 500;
        let mut results = Vec::with_capacity(count);
        for first in (0..count).step_by(TOGETHER) {
            let last = count.min(first + TOGETHER);
            results.extend(join_all((first..last).map(|at| operation(at))).await);
        }
        results
    }
}
