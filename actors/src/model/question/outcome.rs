//! How far a question has come, as its asker sees it: the result of `clarify`, and the payload of `human-answer`.

use serde_json::{Map, Value, json};

use super::{AnsweredBy, Closing, Question, QuestionState};
use crate::clock::rfc3339_text;

/// Characters of the line for a model.
const LINE_CHARACTERS_MAX: usize = 500;

fn time(unix_ms: Option<u64>) -> Value {
    unix_ms.map_or(Value::Null, |unix_ms| rfc3339_text(unix_ms).into())
}

fn person(by: &AnsweredBy) -> Value {
    let mut person = json!({"human": by.human, "via": by.via});
    if by.is_agent {
        person["kind"] = "agent".into();
    }
    person
}

impl Question {
    /// The state in the contract: `pending` for each open one.
    pub const fn state_str(&self) -> &'static str {
        match &self.state {
            QuestionState::Closed(closed) => closed.how.as_str(),
            _ => "pending",
        }
    }

    /// What the asker gets: id, state, times, and what the end of the question brought.
    ///
    /// ```json
    /// {"question_id": "…", "state": "declined", "asked_at": "…", "seen_at": "…", "reason": "ask Lena",
    ///  "declined_by": {"human": "mara", "via": "web"}, "declined_at": "…"}
    /// ```
    pub fn outcome(&self) -> Map<String, Value> {
        let mut members = Map::new();
        let mut put = |name: &str, value: Value| {
            members.insert(name.to_owned(), value);
        };
        put("question_id", self.id.to_string().into());
        put("state", self.state_str().into());
        put("asked_at", time(Some(self.asked_at_ms())));
        put("expires_at", time(self.expires_at_ms));
        put("seen_at", time(self.seen_at_ms));
        if self.is_sensitive {
            put("sensitive", true.into());
        }
        let Some(closed) = self.closed() else {
            return members;
        };
        let at = time(Some(closed.at_ms));
        match &closed.how {
            Closing::Answered { by, answer } => {
                match self.answer_deleted_ms {
                    None => put("answer", json!(answer)),
                    Some(deleted_ms) => {
                        put("answer", Value::Null);
                        put("answer_deleted_at", time(Some(deleted_ms)));
                    }
                }
                put("answered_by", person(by));
                put("answered_at", at);
            }
            Closing::Declined { by, reason } => {
                put("reason", json!(reason));
                put("declined_by", person(by));
                put("declined_at", at);
            }
            Closing::Expired => {
                put("default", self.on_expiry.clone().unwrap_or_default());
                put("expired_at", at);
            }
            Closing::Cancelled { by, reason } => {
                put("by", json!(by));
                put("reason", json!(reason));
                put("cancelled_at", at);
            }
        }
        members
    }

    /// One line for a model: what became of the question, and the beginning of the answer in words.
    pub fn outcome_line(&self) -> String {
        let words = self.outcome_words();
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let mut line: String = words.chars().take(LINE_CHARACTERS_MAX).map(plain).collect();
        if line.len() < words.len() {
            line.push('…');
        }
        line
    }

    fn outcome_words(&self) -> String {
        let Some(closed) = self.closed() else {
            return format!("PENDING: {}", self.summary);
        };
        match &closed.how {
            Closing::Answered { by, .. } if self.answer_deleted_ms.is_some() => {
                format!("ANSWERED by {}: the answer was handed over and then deleted", by.human)
            }
            Closing::Answered { by, .. } if self.is_sensitive => {
                format!("ANSWERED by {}: get_answer returns the answer", by.human)
            }
            Closing::Answered { by, answer } => format!("ANSWERED by {}: {}", by.human, answer.line()),
            Closing::Declined { by, reason } => match reason {
                Some(reason) => format!("DECLINED by {}: {reason}", by.human),
                None => format!("DECLINED by {}", by.human),
            },
            Closing::Expired => "EXPIRED: no person answered in time".to_owned(),
            Closing::Cancelled { by, reason } => {
                let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
                let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                format!("CANCELLED{by}{reason}")
            }
        }
    }
}

impl super::Answer {
    /// The answer in words.
    pub fn line(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        if let Some(words_of_part) = self.part.line() {
            words.push(words_of_part);
        }
        for (id, part) in self.answers.iter().flatten() {
            if let Some(line) = part.line() {
                words.push(format!("{id}: {line}"));
            }
        }
        if !self.images.is_empty() {
            words.push(format!("{} image(s)", self.images.len()));
        }
        words.join("; ")
    }
}

impl super::AnswerPart {
    fn line(&self) -> Option<String> {
        let mut words: Vec<&str> = self.selected.iter().map(String::as_str).collect();
        words.extend(self.other.as_deref());
        let chosen = words.join(", ");
        match (chosen.is_empty(), self.text.as_deref().filter(|text| !text.is_empty())) {
            (true, None) => None,
            (true, Some(text)) => Some(text.to_owned()),
            (false, None) => Some(chosen),
            (false, Some(text)) => Some(format!("{chosen}. {text}")),
        }
    }
}
