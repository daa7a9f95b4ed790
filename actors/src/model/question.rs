//! Questions of agents to people: what is asked, how far a question has come, and how it ended.
//!
//! A question is a stored record with a revision. Calls, tasks, pages and consoles show it or ask for a change; each change
//! is decided by a pure function of `transitions.rs` and stored as the next revision, if no other change came first.

mod answer;
mod check;
mod content;
mod outcome;
mod seal;
mod transitions;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use answer::{Answer, AnswerPart, AnsweredBy, Via};
pub use check::ANSWER_BYTES_MAX;
pub use content::{
    CONTEXT_BYTES_MAX, IMAGES_BYTES_MAX, IMAGES_LEN_MAX, Image, LINKS_LEN_MAX, Link, OPTIONS_LEN_MAX,
    QUESTION_CHARACTERS_MAX, QUESTIONS_LEN_MAX, QuestionChoice, QuestionContent, QuestionItem,
};
pub use seal::AnswerSeal;
pub use transitions::{
    ASKER_GONE, CLAIM_TIME, REMARK_CHARACTERS_MAX, Refusal, TYPING_GRACE, TYPING_GRACE_MAX, TYPING_SHOWN,
};

use super::{BrokerError, MessageId, Owner, QuestionId, ReplicaId, SessionId, SessionName};

/// A question as it is stored: everything but its content, which never changes and is stored next to it.
///
/// ```text
/// Question { id: q1, revision: 3, asker: alice, summary: "Drop the old table?", urgency: High, to: Anyone,
///            state: Claimed(QuestionClaim { human: mara, console: c7, until_ms: …, .. }), .. }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The id; its first 48 bits are the time at which it was asked.
    pub id: QuestionId,
    /// Counts the changes: 0 for a new question. A store accepts only the next revision.
    pub revision: u64,
    /// Who asks.
    pub asker: Asker,
    /// The first characters of the question on one line, for lists.
    pub summary: String,
    /// Bytes of the content as it is stored.
    pub content_bytes: usize,
    /// How soon it is to be answered.
    pub urgency: Urgency,
    /// Who may answer it.
    pub to: AddressedTo,
    /// The question is answered on the desk page only. The answer is in no list and no history, and is deleted once the
    /// asker has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_sensitive: bool,
    /// Milliseconds since the Unix epoch; None for a question that lives until it is cancelled.
    pub expires_at_ms: Option<u64>,
    /// What the asker gets as `default` when the question expires; None for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<Value>,
    /// The asker's name for this question: asking again with it finds the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// How far it has come.
    pub state: QuestionState,
    /// When a person first saw it, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_at_ms: Option<u64>,
    /// It was said that its time is nearly over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_expiring: bool,
    /// The answer to a sensitive question, encrypted; the one in `state` is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_answer: Option<String>,
    /// When the answer to a sensitive question was deleted, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_deleted_ms: Option<u64>,
    /// The last handover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// The message that notifies the asker of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<MessageId>,
}

/// The agent that asks a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// Its session.
    pub session: SessionId,
    /// The name of the session.
    pub name: Option<SessionName>,
    /// The owner of the session. Other callers get the answer for a question that does not exist.
    pub owner: Owner,
}

words! {
    /// How soon a question is to be answered.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Urgency {
        Low = "low",
        #[default]
        Medium = "medium",
        High = "high",
    }
}

/// Who may answer a question: one person by name, all people with a role, or all (`desk`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum AddressedTo {
    /// All people of the project: `desk`.
    #[default]
    Anyone,
    /// The person with this name, or the people with this role. Who comes decides whether it is a name or a role.
    Named(String),
}

impl AddressedTo {
    /// The word of the contract for all people.
    pub const ANYONE: &'static str = "desk";

    /// The same with its name in normal form, as the names of people are.
    ///
    /// # Errors
    /// `invalid_argument` for a text that is no name.
    pub fn checked(self) -> Result<Self, BrokerError> {
        Ok(match self {
            Self::Anyone => Self::Anyone,
            Self::Named(name) => Self::Named(SessionName::parse_as("to", &name)?.as_str().to_owned()),
        })
    }

    /// Whether a person with this name and these roles may answer.
    pub fn includes(&self, name: &str, roles: &[String]) -> bool {
        match self {
            Self::Anyone => true,
            Self::Named(wanted) => wanted == name || roles.contains(wanted),
        }
    }

    /// The text in the contract.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Anyone => Self::ANYONE,
            Self::Named(name) => name,
        }
    }
}

impl From<String> for AddressedTo {
    fn from(text: String) -> Self {
        if text == Self::ANYONE {
            Self::Anyone
        } else {
            Self::Named(text)
        }
    }
}

impl From<AddressedTo> for String {
    fn from(to: AddressedTo) -> Self {
        to.as_str().to_owned()
    }
}

/// How far a question has come. `waiting`, `offered` and `claimed` are open: the contract calls them `pending`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionState {
    /// No console has it.
    Waiting,
    /// It is shown to one console, which is expected to open it.
    Offered(Offer),
    /// A person has opened it and writes.
    Claimed(QuestionClaim),
    /// It is answered, declined, expired or cancelled, and never changes again, except that the answer to a sensitive
    /// question is deleted.
    Closed(Closed),
}

/// A question is shown to one console first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    pub console: ConsoleId,
    pub human: SessionName,
    /// When it moves on, in milliseconds since the Unix epoch.
    pub until_ms: u64,
}

/// A person has opened a question and writes. Others may see it, and take it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionClaim {
    /// None for a claim without a console: `mcp-broker desk take`, REST.
    pub console: Option<ConsoleId>,
    pub human: SessionName,
    /// When the claim ends unless it is renewed, in milliseconds since the Unix epoch.
    pub until_ms: u64,
    /// The last keystroke, in milliseconds since the Unix epoch.
    pub typed_at_ms: u64,
}

/// How a question ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    pub how: Closing,
}

/// The end of a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    Answered {
        by: AnsweredBy,
        answer: Answer,
    },
    Declined {
        by: AnsweredBy,
        reason: Option<String>,
    },
    /// Its time was over before a person answered.
    Expired,
    /// By the asker, by an administrator (`by` is a name), or because the asker is gone (`reason` is `asker_gone`).
    Cancelled {
        by: Option<String>,
        reason: Option<String>,
    },
}

impl Closing {
    /// The person who closed it; None for an end without a person.
    pub const fn by(&self) -> Option<&AnsweredBy> {
        match self {
            Self::Answered { by, .. } | Self::Declined { by, .. } => Some(by),
            Self::Expired | Self::Cancelled { .. } => None,
        }
    }

    /// The state in the contract.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Answered { .. } => "answered",
            Self::Declined { .. } => "declined",
            Self::Expired => "expired",
            Self::Cancelled { .. } => "cancelled",
        }
    }
}

/// A question was handed over to another person, or back to the desk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    pub from: SessionName,
    /// The name of a person, or `desk`.
    pub to: AddressedTo,
    pub note: Option<String>,
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// A console: one connection that shows questions to one person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConsoleId {
    /// The replica to which it is connected.
    pub replica: ReplicaId,
    /// Its number there.
    pub number: u64,
}

impl ConsoleId {
    /// Reads what [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (replica, number) = text.split_once('.')?;
        Some(Self {
            replica: ReplicaId::parse(replica)?,
            number: number.parse().ok()?,
        })
    }
}

/// `0198f3a2-….7`: the replica and the number.
impl fmt::Display for ConsoleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.replica, self.number)
    }
}

impl Question {
    /// When it was asked, in milliseconds since the Unix epoch.
    pub const fn asked_at_ms(&self) -> u64 {
        self.id.created_ms()
    }

    /// Whether it waits for an answer.
    pub const fn is_open(&self) -> bool {
        !matches!(self.state, QuestionState::Closed(_))
    }

    /// How it ended; None while it is open.
    pub const fn closed(&self) -> Option<&Closed> {
        match &self.state {
            QuestionState::Closed(closed) => Some(closed),
            _ => None,
        }
    }

    /// The console that shows it first.
    pub const fn console(&self) -> Option<ConsoleId> {
        match &self.state {
            QuestionState::Offered(offer) => Some(offer.console),
            QuestionState::Claimed(claim) => claim.console,
            _ => None,
        }
    }

    /// Bytes of the record as stores keep it: JSON.
    pub fn stored_len(&self) -> usize {
        // Writing plain values to memory cannot fail.
        serde_json::to_vec(self).map_or(0, |text| text.len())
    }
}
