//! The answers of the broker that the console shows. Members that are not known, and members that are missing, do no harm:
//! the broker may be older or newer.

use std::cmp::Reverse;

use chrono::DateTime;
use serde::{Deserialize, Deserializer};

/// A question, as lists have it or whole.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_field_names, reason = "the names are those of the REST API")]
pub struct Question {
    pub question_id: String,
    pub revision: u64,
    /// `pending`, or how it ended.
    pub state: String,
    /// `waiting`, `offered` or `claimed`.
    pub desk_state: String,
    #[serde(rename = "asked_at", deserialize_with = "time")]
    pub asked_at_ms: Option<u64>,
    #[serde(rename = "expires_at", deserialize_with = "time")]
    pub expires_at_ms: Option<u64>,
    pub urgency: Urgency,
    pub to: String,
    pub asker: Asker,
    pub summary: Option<String>,
    pub question: Option<String>,
    /// The questions of a form.
    pub questions: Option<Vec<Item>>,
    pub context: Option<String>,
    pub options: Vec<Choice>,
    pub multi_select: bool,
    #[serde(default = "yes")]
    pub allow_other: bool,
    pub links: Vec<Link>,
    pub images: Vec<serde::de::IgnoredAny>,
    pub sensitive: bool,
    pub offered_to: Option<Holder>,
    pub claimed_by: Option<Holder>,
    pub handover: Option<Handover>,
    pub answer: Option<Answer>,
    pub answered_by: Option<Holder>,
    #[serde(rename = "answered_at", deserialize_with = "time")]
    pub answered_at_ms: Option<u64>,
    #[serde(rename = "closed_at", deserialize_with = "time")]
    pub closed_at_ms: Option<u64>,
    pub declined_by: Option<Holder>,
    pub reason: Option<String>,
    /// Who has cancelled it.
    pub by: Option<String>,
}

const fn yes() -> bool {
    true
}

/// How soon a question is to be answered; the most urgent first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub enum Urgency {
    High,
    #[default]
    Medium,
    Low,
}

impl From<String> for Urgency {
    fn from(word: String) -> Self {
        match word.as_str() {
            "high" => Self::High,
            "low" => Self::Low,
            _ => Self::Medium,
        }
    }
}

impl Urgency {
    /// The word of the broker.
    pub const fn word(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// The agent that asks.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Asker {
    pub session_id: String,
    pub name: Option<String>,
    pub status: String,
    pub away_seconds: u64,
}

/// One question of a form.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Item {
    pub id: String,
    pub question: String,
    pub options: Vec<Choice>,
    pub multi_select: bool,
    #[serde(default = "yes")]
    pub allow_other: bool,
    pub required: bool,
}

/// An option.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Choice {
    pub value: String,
    pub label: String,
    pub description: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Link {
    pub title: String,
    pub uri: String,
}

/// A person, and the console or the way.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Holder {
    pub human: String,
    pub console: Option<String>,
    pub typing: bool,
    pub via: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Handover {
    pub from: String,
    pub to: String,
    pub note: Option<String>,
}

/// The answer that a person gave.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Answer {
    pub selected: Vec<String>,
    pub other: Option<String>,
    pub text: Option<String>,
    pub answers: Option<std::collections::BTreeMap<String, Part>>,
}

/// The answer to one question of a form.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Part {
    pub selected: Vec<String>,
    pub other: Option<String>,
    pub text: Option<String>,
}

/// A line of an agent that wants no answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Yap {
    pub seq: u64,
    pub sender_id: String,
    pub sender_name: Option<String>,
    pub message: String,
    pub mode: Option<String>,
    pub category: Option<String>,
    pub task_context: Option<String>,
    #[serde(rename = "at", deserialize_with = "time")]
    pub at_ms: Option<u64>,
    pub late: bool,
    /// How many further lines of the same agent this one replaces; then it has no text of its own.
    pub folded: Option<u64>,
}

impl Yap {
    /// How many lines of the same agent it replaces, if any.
    pub fn folded(&self) -> Option<u64> {
        self.folded.filter(|count| *count > 0)
    }
}

/// A message from or to the person.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_field_names, reason = "the names are those of the REST API")]
pub struct Message {
    pub message_id: String,
    pub sender_id: String,
    pub sender_name: Option<String>,
    pub recipient_id: Option<String>,
    pub recipient_name: Option<String>,
    #[serde(rename = "timestamp", deserialize_with = "time")]
    pub at_ms: Option<u64>,
    pub thread_id: String,
    pub status: Option<String>,
    pub unread: bool,
    /// Absent once the broker does not keep it.
    #[serde(deserialize_with = "payload_text")]
    payload: Option<String>,
}

impl Message {
    /// Its text: that of the protocol `text`, else the payload as JSON.
    pub fn text(&self) -> Option<&str> {
        self.payload.as_deref()
    }

    /// Takes the text of an earlier look at this message where it has none.
    pub fn keep_text_of(&mut self, earlier: &Self) {
        if self.payload.is_none() {
            self.payload.clone_from(&earlier.payload);
        }
    }
}

fn payload_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let payload = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(payload.map(|payload| {
        let text = payload.as_str().or_else(|| payload["text"].as_str());
        text.map_or_else(|| payload.to_string(), str::to_owned)
    }))
}

/// What the broker says of the messages that wait for the person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Inbox {
    pub waiting: u64,
    /// Counts changes of this connection.
    pub changes: u64,
}

/// Who is at the desk.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Desk {
    pub humans: Vec<Human>,
    pub consoles: Vec<Console>,
    /// The console of this stream; in its first event only.
    pub console: Option<String>,
    /// Of the person at the console. An older broker does not say it.
    pub inbox: Option<Inbox>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_field_names, reason = "the names are those of the REST API")]
pub struct Human {
    pub human: String,
    /// `present`, `idle` or `away`.
    pub presence: String,
    pub open: u64,
}

/// A connection that shows questions to a person.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Console {
    pub console: String,
    pub human: String,
}

/// A time of the broker as milliseconds since the Unix epoch.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let time = text.and_then(|text| DateTime::parse_from_rfc3339(&text).ok());
    Ok(time.and_then(|time| u64::try_from(time.timestamp_millis()).ok()))
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

    /// The name of the asker, or else its id.
    pub fn asker(&self) -> &str {
        self.asker.name.as_deref().unwrap_or(&self.asker.session_id)
    }

    /// Its place in a list: the most urgent first, then the oldest.
    pub fn place(&self) -> (Urgency, u64, &str) {
        (self.urgency, self.asked_at_ms.unwrap_or_default(), &self.question_id)
    }

    /// Its place in the history: the newest first.
    pub fn place_in_history(&self) -> Reverse<(u64, &str)> {
        Reverse((self.asked_at_ms.unwrap_or_default(), &self.question_id))
    }

    /// The questions that are answered together: those of a form, or the one.
    pub fn items(&self) -> Vec<Item> {
        if let Some(items) = self.questions.as_ref().filter(|items| !items.is_empty()) {
            return items.clone();
        }
        let text = self.question.as_ref().or(self.summary.as_ref());
        vec![Item {
            id: String::new(),
            question: text.cloned().unwrap_or_default(),
            options: self.options.clone(),
            multi_select: self.multi_select,
            allow_other: self.allow_other,
            required: false,
        }]
    }

    /// Whether it has several questions.
    pub fn is_form(&self) -> bool {
        self.questions.as_ref().is_some_and(|items| !items.is_empty())
    }

    /// When it ended, if it has and the broker gives the time.
    pub fn ended_at_ms(&self) -> Option<u64> {
        self.answered_at_ms.or(self.closed_at_ms)
    }

    /// Who ended it.
    pub fn ended_by(&self) -> Option<&str> {
        let by = [&self.answered_by, &self.declined_by].into_iter().flatten().next();
        by.map(|by| by.human.as_str()).or(self.by.as_deref())
    }

    /// Takes in what another look at the question brings; an older look changes nothing. Content that a list leaves out
    /// stays.
    pub fn merge(&mut self, new: Self) {
        if new.revision < self.revision {
            return;
        }
        let old = std::mem::replace(self, new);
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
        if self.summary.is_none() {
            self.summary = old.summary;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_of_an_unknown_version_is_read() {
        let text = r#"{"question_id":"q1","urgency":"blazing","asked_at":"2026-11-23T05:01:00.500Z","expires_at":null,
            "asker":{"name":null,"session_id":"s1"},"new_member":{},"summary":"a"}"#;
        let question: Question = serde_json::from_str(text).unwrap();
        assert_eq!(question.asked_at_ms, Some(1_795_410_060_500));
        assert_eq!((question.urgency, question.asker()), (Urgency::Medium, "s1"));
        assert!(question.allow_other && question.expires_at_ms.is_none());
    }

    #[test]
    fn a_list_does_not_take_away_the_content() {
        let whole =
            r#"{"question_id":"q1","revision":2,"question":"Drop it?","options":[{"value":"y","label":"Yes"}]}"#;
        let mut question: Question = serde_json::from_str(whole).unwrap();
        let brief = |text: &str| serde_json::from_str::<Question>(text).unwrap();
        question.merge(brief(
            r#"{"question_id":"q1","revision":3,"state":"answered","summary":"Drop"}"#,
        ));
        assert_eq!((question.state.as_str(), question.options.len()), ("answered", 1));
        question.merge(brief(r#"{"question_id":"q1","revision":1,"state":"pending"}"#));
        assert_eq!(question.state, "answered", "an older look changes nothing");
    }
}
