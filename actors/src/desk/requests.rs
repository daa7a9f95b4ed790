//! The callers of the verbs of the desk, what they give to the verbs, and what they get: also the events that consoles and watchers
//! follow.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::sync::broadcast::{self, error::RecvError};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::model::{
    AddressedTo, AnsweredBy, BrokerError, ConsoleId, Owner, Question, QuestionContent, QuestionId, SessionName,
    ShownYap, Urgency, Via,
};

/// A question that an agent asks. The desk checks its content and its bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewQuestion {
    pub content: QuestionContent,
    pub urgency: Urgency,
    pub to: AddressedTo,
    /// How long the question lives: [`Self::EXPIRES_IN_MIN`] to [`Self::EXPIRES_IN_MAX`]. None: until it is cancelled, which
    /// needs `to`.
    pub expires_in: Option<Duration>,
    /// What the asker gets as `default` if the question expires.
    pub on_expiry: Option<Value>,
    /// The same key from the same session finds the same question for 24 hours.
    pub idempotency_key: Option<String>,
    /// The answer is shown on the desk page only, and in no message and no history.
    pub is_sensitive: bool,
}

impl NewQuestion {
    /// The shortest life of a question.
    pub const EXPIRES_IN_MIN: Duration = Duration::from_secs(60);
    /// The longest life of a question that expires.
    pub const EXPIRES_IN_MAX: Duration = Duration::from_secs(30 * 86_400);
    /// The life of a question whose asker says nothing about it.
    pub const EXPIRES_IN_DEFAULT: Duration = Duration::from_secs(86_400);
    /// Bytes of `on_expiry` as JSON.
    pub const ON_EXPIRY_BYTES_MAX: usize = 8 * 1024;
}

/// The answer to a new question.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedQuestion {
    pub question: Arc<Question>,
    /// False: the session asked it before with the same idempotency key.
    pub is_new: bool,
}

/// Which questions a list has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuestionFilter {
    pub state: StateFilter,
    /// Only questions addressed to exactly this person, this role, or `desk`.
    pub to: Option<String>,
    /// Only questions of the session with this id or this name.
    pub asker: Option<String>,
    /// Only questions with this text in their summary or the name of their asker, in any case.
    pub text: Option<String>,
}

words! {
    /// Questions in which states a list has.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum StateFilter {
        /// Open: the most urgent first, then the oldest.
        #[default]
        Pending = "pending",
        /// The others: the newest first.
        Answered = "answered",
        Declined = "declined",
        Expired = "expired",
        Cancelled = "cancelled",
        /// Open and closed.
        All = "all",
    }
}

/// A page of a list of questions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuestionPage {
    pub questions: Vec<Arc<Question>>,
    /// Where the next page begins; None on the last page. A page can be short, even empty, before the last one.
    pub next: Option<QuestionCursor>,
}

/// A place in a list of questions: behind the question with this id.
///
/// ```text
/// high.0198f3a2-…        // as text
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionCursor {
    pub urgency: Urgency,
    pub id: QuestionId,
}

impl QuestionCursor {
    /// The place behind this question.
    pub fn behind(question: &Question) -> Self {
        Self {
            urgency: question.urgency,
            id: question.id,
        }
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (urgency, id) = text.split_once('.')?;
        Some(Self {
            urgency: Urgency::parse(urgency)?,
            id: QuestionId::parse(id)?,
        })
    }
}

impl fmt::Display for QuestionCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.urgency.as_str(), self.id)
    }
}

/// A remark of an agent for the people who watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewYap {
    pub message: String,
    /// One of [`Self::MODES`].
    pub mode: Option<String>,
    /// One line in the words of the agent, such as `progress`.
    pub category: Option<String>,
    pub task_context: Option<String>,
    /// When the sender says that it wrote it, in milliseconds since the Unix epoch.
    pub sent_at_ms: Option<u64>,
}

impl NewYap {
    /// How much an agent says.
    pub const MODES: &'static [&'static str] = &["concise", "verbose", "detailed"];
    /// Characters of `category`.
    pub const CATEGORY_CHARACTERS_MAX: usize = 40;
    /// Characters of `task_context`.
    pub const TASK_CONTEXT_CHARACTERS_MAX: usize = 1_000;

    /// Checks the bounds of the yap.
    ///
    /// # Errors
    /// `invalid_argument`.
    pub fn check(&self) -> Result<(), BrokerError> {
        let characters = self.message.chars().count();
        if characters == 0 || characters > crate::model::YAP_CHARACTERS_MAX {
            let reason = format!("1 to {} characters", crate::model::YAP_CHARACTERS_MAX);
            return Err(BrokerError::invalid("message", reason));
        }
        let context = self.task_context.as_deref().unwrap_or_default();
        if context.chars().count() > Self::TASK_CONTEXT_CHARACTERS_MAX {
            let reason = format!("at most {} characters", Self::TASK_CONTEXT_CHARACTERS_MAX);
            return Err(BrokerError::invalid("task_context", reason));
        }
        let is_word = |text: &String| {
            let characters = text.chars().count();
            (1..=Self::CATEGORY_CHARACTERS_MAX).contains(&characters) && !text.contains(char::is_control)
        };
        if !self.category.as_ref().is_none_or(is_word) {
            let reason = format!(
                "one line of 1 to {} characters, without control characters",
                Self::CATEGORY_CHARACTERS_MAX
            );
            return Err(BrokerError::invalid("category", reason));
        }
        match &self.mode {
            Some(mode) if !Self::MODES.contains(&mode.as_str()) => Err(BrokerError::invalid(
                "mode",
                format!("one of {}", Self::MODES.join(", ")),
            )),
            _ => Ok(()),
        }
    }
}

/// The answer to a yap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YapAccepted {
    pub id: Uuid,
    /// Consoles that show it.
    pub shown_to: usize,
}

/// A person, or an agent that the operator lets answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Human {
    /// The name of the person, which is also that of the session by which the asker is answered.
    pub name: SessionName,
    /// Roles of the person: a question may be addressed to one.
    pub roles: Vec<String>,
    /// The owner of the credentials.
    pub owner: Owner,
    /// The name comes with the credentials: the person cannot choose another one.
    pub is_name_fixed: bool,
    /// The credentials are those of an agent.
    pub is_agent: bool,
    /// The way in which the person answers.
    pub via: Via,
}

impl Human {
    /// Whether this person may answer a question, claim it and hand it over.
    pub fn may_answer(&self, question: &Question) -> bool {
        question.to.includes(self.name.as_str(), &self.roles)
    }

    /// Whether this person may read a question: all that they may answer, and those that they handed over or closed.
    pub fn may_read(&self, question: &Question) -> bool {
        let handed_over = question.handover.as_ref().is_some_and(|last| last.from == self.name);
        let closed = || question.closed().and_then(|closed| closed.how.by());
        self.may_answer(question) || handed_over || closed().is_some_and(|by| by.human == self.name)
    }

    /// Whether answers come from a session of this person. An agent, the client of one, and a link answer without: a session
    /// of theirs could be used to send messages that look like a person's.
    pub const fn has_session(&self) -> bool {
        !self.is_agent && !matches!(self.via, Via::Elicitation | Via::Link)
    }

    /// This person as the one who closes a question.
    pub fn answered_by(&self) -> AnsweredBy {
        AnsweredBy {
            human: self.name.clone(),
            via: self.via,
            is_agent: self.is_agent,
        }
    }
}

/// Who asks for a question, as far as it decides whether they may read or cancel it.
#[derive(Clone, Copy, Debug)]
pub enum Reader<'a> {
    /// An agent, by the owner of its session: it reads and cancels its own questions.
    Asker(&'a Owner),
    /// A person reads the questions that they may answer.
    Human(&'a Human),
    /// An administrator reads and cancels every question.
    Admin,
}

impl Reader<'_> {
    /// Whether this caller may read a question. For others it does not exist.
    pub fn may_read(&self, question: &Question) -> bool {
        match self {
            Self::Asker(owner) => question.asker.owner == **owner,
            Self::Human(human) => human.may_read(question),
            Self::Admin => true,
        }
    }
}

/// Events that a reader may be behind. A slower one gets [`DeskEvent::Missed`].
pub const FEED_LEN_MAX: usize = 512;

/// What changes about a console. None: unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsoleChange {
    /// It takes no new questions.
    pub is_paused: Option<bool>,
    /// The person says that they are away. Questions that they have not opened go to others.
    pub is_away: Option<bool>,
    /// The person has done something now.
    pub is_active: bool,
    /// The console has not answered yet, and may never: others are offered questions first.
    pub is_unproven: Option<bool>,
}

/// A change that readers of the desk receive.
#[derive(Clone, Debug, PartialEq)]
pub enum DeskEvent {
    /// The record of a question after a change. A reader shows it only to people who may read it.
    Question(Arc<Question>),
    /// A yap, in the order that all readers share.
    Yap(Arc<ShownYap>),
    /// The consoles or the number of open questions have changed.
    Desk(Arc<DeskSummary>),
    /// The reader was too slow for so many events: it reads the lists again.
    Missed(u64),
}

words! {
    /// Whether a person is at a console.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
    #[schema(rename_all = "lowercase")]
    pub enum Presence {
        /// The person did something in the last 5 minutes.
        Present = "present",
        /// The console is connected.
        Idle = "idle",
        /// The person chose it.
        Away = "away",
    }
}

/// A console as readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleView {
    pub id: ConsoleId,
    pub human: SessionName,
    pub roles: Vec<String>,
    pub presence: Presence,
    /// It takes no new questions.
    pub is_paused: bool,
    /// Questions that are offered to it or claimed by it.
    pub open: usize,
}

/// The desk at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeskSummary {
    /// The consoles of all replicas, by id.
    pub consoles: Vec<ConsoleView>,
    /// Open questions that no console has.
    pub waiting: usize,
    /// Open questions that are offered to a console.
    pub offered: usize,
    /// Open questions that a person has opened.
    pub claimed: usize,
    /// Open questions that are urgent.
    pub high: usize,
    /// When the oldest open question was asked, in milliseconds since the Unix epoch.
    pub oldest_asked_ms: Option<u64>,
}

impl DeskSummary {
    /// People with a console that has this presence, and none with a better one.
    pub fn humans(&self, presence: Presence) -> usize {
        let mut best: std::collections::BTreeMap<&str, Presence> = std::collections::BTreeMap::new();
        for console in &self.consoles {
            let known = best.entry(console.human.as_str()).or_insert(console.presence);
            *known = (*known).min(console.presence);
        }
        best.values().filter(|best| **best == presence).count()
    }
}

/// The changes of the desk from the moment it was made. It holds at most [`FEED_LEN_MAX`] events, however slow its reader is.
#[derive(Debug)]
pub struct DeskFeed {
    events: broadcast::Receiver<DeskEvent>,
}

impl DeskFeed {
    pub(super) const fn new(events: broadcast::Receiver<DeskEvent>) -> Self {
        Self { events }
    }

    /// The next change; None when the project has ended. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<DeskEvent> {
        match self.events.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(missed)) => Some(DeskEvent::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for urgency in Urgency::ALL {
            let cursor = QuestionCursor {
                urgency,
                id: QuestionId::generate(),
            };
            assert_eq!(QuestionCursor::parse(&cursor.to_string()), Some(cursor));
        }
        for bad in [
            "",
            "high",
            "high.",
            "urgent.0198f3a2-0000-7000-8000-000000000000",
            "high.1",
        ] {
            assert_eq!(QuestionCursor::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_yap_out_of_bounds_is_refused_by_the_name_of_its_argument() {
        let yap = NewYap {
            message: "hello".to_owned(),
            ..NewYap::default()
        };
        assert_eq!(yap.check(), Ok(()));
        let field = |yap: NewYap| match yap.check() {
            Err(BrokerError::InvalidArgument { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        let with_message = |message: String| NewYap { message, ..yap.clone() };
        assert_eq!(field(with_message(String::new())), "message");
        assert_eq!(with_message("ü".repeat(4_000)).check(), Ok(()));
        assert_eq!(field(with_message("ü".repeat(4_001))), "message");
        let mode = Some("loud".to_owned());
        assert_eq!(field(NewYap { mode, ..yap.clone() }), "mode");
        let in_category = |category: &str| NewYap {
            category: Some(category.to_owned()),
            ..yap.clone()
        };
        for category in ["progress", "ü", &"ü".repeat(40)] {
            assert_eq!(in_category(category).check(), Ok(()), "{category}");
        }
        for category in ["", "two\nlines", &"x".repeat(41)] {
            assert_eq!(field(in_category(category)), "category", "{category:?}");
        }
        let task_context = Some("x".repeat(1_001));
        assert_eq!(field(NewYap { task_context, ..yap }), "task_context");
    }
}
