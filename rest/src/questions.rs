//! Questions of agents to people.

use std::collections::BTreeMap;

use actors::model::{Image, Link, QuestionChoice, SessionStatus, Urgency, Via};
use answer::answer;
use serde_json::Value;
use utoipa::ToSchema;

use super::words::{Id, Time};

/// A question. Lists leave its content out: the members from `question` to `images`.
#[answer(lenient)]
pub struct Question {
    pub question_id: Id,
    /// Counts the changes.
    #[schema(value_type = usize)]
    pub revision: u64,
    #[schema(value_type = State)]
    pub state: String,
    /// Of a pending question.
    #[absent]
    #[schema(value_type = Option<DeskState>)]
    pub desk_state: Option<String>,
    pub asked_at: Time,
    /// Null for a question that lives until it is cancelled.
    pub expires_at: Option<Time>,
    #[schema(value_type = Urgency)]
    pub urgency: String,
    /// The name of a person, a role, or `desk`.
    pub to: String,
    pub asker: Asker,
    /// The first characters of the question on one line.
    pub summary: String,
    pub sensitive: bool,
    pub offered_to: Option<OfferedTo>,
    pub claimed_by: Option<ClaimedBy>,
    pub handover: Option<HandoverView>,
    /// When a person first saw it.
    pub seen_at: Option<Time>,
    /// The place in the queue of the desk, 1 first; null for a question that a console has, or that is closed.
    pub position: Option<usize>,
    /// The content says more than the summary.
    pub has_more: bool,
    /// Of a single question.
    #[absent]
    pub question: Option<String>,
    #[absent]
    pub options: Option<Vec<QuestionChoice>>,
    #[absent]
    pub multi_select: Option<bool>,
    #[absent]
    pub allow_other: Option<bool>,
    /// Of a form.
    #[absent]
    pub questions: Option<Vec<FormQuestion>>,
    /// Markdown.
    #[absent]
    pub context: Option<String>,
    #[absent]
    pub links: Option<Vec<Link>>,
    #[absent]
    pub images: Option<Vec<Image>>,
    /// Of an answered question; null for a sensitive one.
    #[absent]
    #[schema(nullable, value_type = Option<Answer>)]
    pub answer: Option<Option<Answer>>,
    #[absent]
    pub answered_by: Option<ClosedBy>,
    #[absent]
    pub answered_at: Option<Time>,
    /// When the answer to a sensitive question was deleted: its asker has it.
    #[absent]
    pub answer_deleted_at: Option<Time>,
    #[absent]
    pub declined_by: Option<ClosedBy>,
    #[absent]
    pub declined_at: Option<Time>,
    #[absent]
    pub expired_at: Option<Time>,
    #[absent]
    pub cancelled_at: Option<Time>,
    /// Who cancelled it.
    #[absent]
    #[schema(nullable, value_type = Option<String>)]
    pub by: Option<Option<String>>,
    /// Why it was declined or cancelled.
    #[absent]
    #[schema(nullable, value_type = Option<String>)]
    pub reason: Option<Option<String>>,
    /// Of an expired question: what its asker gets.
    #[absent]
    #[schema(nullable, value_type = Option<Object>)]
    pub default: Option<Option<Value>>,
    /// In the stream of a console: it is offered to that console, or claimed by it.
    #[absent]
    pub mine: bool,
}

impl Question {
    /// Whether it waits for an answer.
    pub fn is_open(&self) -> bool {
        self.state == "pending"
    }

    /// Whether it has its content, and not only a summary.
    pub fn is_whole(&self) -> bool {
        self.question.is_some() || self.questions.is_some()
    }

    /// Whether it has several questions.
    pub fn is_form(&self) -> bool {
        self.questions.as_ref().is_some_and(|items| !items.is_empty())
    }

    /// The name of the asker, or else its id.
    pub fn asker(&self) -> &str {
        self.asker.name.as_deref().unwrap_or(&self.asker.session_id)
    }

    /// The person who has it now, and whether they type.
    pub fn holder(&self) -> Option<(&str, bool)> {
        let claim = self
            .claimed_by
            .as_ref()
            .map(|claim| (claim.human.as_str(), claim.typing));
        claim.or(self.offered_to.as_ref().map(|offer| (offer.human.as_str(), false)))
    }

    /// The questions that are answered together: those of a form, or the one.
    pub fn items(&self) -> Vec<FormQuestion> {
        if let Some(items) = self.questions.as_ref().filter(|items| !items.is_empty()) {
            return items.clone();
        }
        vec![FormQuestion {
            question: self.question.as_ref().unwrap_or(&self.summary).clone(),
            options: self.options.clone().unwrap_or_default(),
            multi_select: self.multi_select.unwrap_or(false),
            allow_other: self.allow_other.unwrap_or(true),
            ..FormQuestion::default()
        }]
    }

    /// The answer, if it has one that is shown.
    pub fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref().and_then(Option::as_ref)
    }

    /// Why it was declined or cancelled.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_ref().and_then(Option::as_deref)
    }

    /// When it ended.
    pub fn ended_at(&self) -> Option<&str> {
        let times = [
            &self.answered_at,
            &self.declined_at,
            &self.expired_at,
            &self.cancelled_at,
        ];
        times.into_iter().flatten().next().map(String::as_str)
    }

    /// Who ended it.
    pub fn ended_by(&self) -> Option<&str> {
        let by = self.answered_by.as_ref().or(self.declined_by.as_ref());
        let by = by.map(|by| by.human.as_str());
        by.or(self.by.as_ref().and_then(Option::as_deref))
    }

    /// The state, and who has the question: `waiting`, `claimed by mara`, `answered by lena`.
    pub fn stage(&self) -> String {
        let (stage, who) = if self.is_open() {
            let stage = self.desk_state.as_deref().unwrap_or("pending");
            (stage, self.holder().map(|(human, _)| human))
        } else {
            (self.state.as_str(), self.ended_by())
        };
        match who {
            Some(who) if stage == "offered" => format!("{stage} to {who}"),
            Some(who) => format!("{stage} by {who}"),
            None => stage.to_owned(),
        }
    }

    /// Takes in another record of the question. The newer one holds; content that it leaves out is that of the other one,
    /// because content never changes.
    pub fn merge(&mut self, new: Self) {
        let old = if new.revision < self.revision {
            new
        } else {
            std::mem::replace(self, new)
        };
        if !self.is_whole() && old.is_whole() {
            self.question = old.question;
            self.questions = old.questions;
            self.context = old.context;
            self.options = old.options;
            self.multi_select = old.multi_select;
            self.allow_other = old.allow_other;
            self.links = old.links;
            self.images = old.images;
        }
        if self.summary.is_empty() {
            self.summary = old.summary;
        }
    }
}

/// The state of a question.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum State {
    Pending,
    Answered,
    Declined,
    Expired,
    Cancelled,
}

/// Where a pending question is.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum DeskState {
    Waiting,
    Offered,
    Claimed,
}

/// The agent that asks.
#[answer(lenient)]
pub struct Asker {
    pub session_id: Id,
    pub name: Option<String>,
    #[schema(value_type = SessionStatus)]
    pub status: String,
    /// Seconds since the agent was there; 0 while it is active.
    #[schema(value_type = usize)]
    pub away_seconds: u64,
}

/// One question of a form.
#[answer(lenient)]
pub struct FormQuestion {
    pub id: String,
    pub question: String,
    pub options: Vec<QuestionChoice>,
    pub multi_select: bool,
    #[serde(default = "yes")]
    pub allow_other: bool,
    pub required: bool,
}

const fn yes() -> bool {
    true
}

/// A person with a console.
#[answer(lenient)]
pub struct OfferedTo {
    pub human: String,
    pub console: String,
}

/// The person who has opened a question.
#[answer(lenient)]
pub struct ClaimedBy {
    pub human: String,
    /// Null for a claim without a console.
    pub console: Option<String>,
    pub until: Time,
    pub typing: bool,
}

/// A question was handed over.
#[answer(lenient)]
#[schema(as = QuestionHandover)]
pub struct HandoverView {
    pub from: String,
    pub to: String,
    pub note: Option<String>,
    pub at: Time,
}

/// The person who closed a question.
#[answer(lenient)]
pub struct ClosedBy {
    pub human: String,
    #[schema(value_type = Via)]
    pub via: String,
    /// `agent`: the answer came with the key of an agent.
    #[absent]
    #[schema(pattern = "^agent$")]
    pub kind: Option<String>,
}

/// An answer.
#[answer(lenient)]
pub struct Answer {
    pub selected: Vec<String>,
    pub other: Option<String>,
    pub text: Option<String>,
    /// The answers to a form by the id of the question.
    pub answers: Option<BTreeMap<String, AnswerPart>>,
    pub images: Vec<Image>,
}

/// The answer to one question.
#[answer(lenient)]
pub struct AnswerPart {
    pub selected: Vec<String>,
    pub other: Option<String>,
    pub text: Option<String>,
}

/// A page of questions.
#[answer(lenient)]
pub struct Questions {
    pub questions: Vec<Question>,
    /// Cursor of the next page, when questions are left.
    #[absent]
    pub next_cursor: Option<String>,
}
