//! What callers give to the verbs of the desk, and what they get.

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;
use uuid::Uuid;

use crate::model::{AddressedTo, BrokerError, Question, QuestionContent, QuestionId, Urgency};

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
