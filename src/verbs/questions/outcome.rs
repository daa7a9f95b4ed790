//! What the asker of a question gets: the result object of `clarify` and `get_answer`, and the texts of progress.

use std::time::Duration;

use actors::{
    clock::rfc3339_text,
    desk::{DeskSummary, Presence},
    model::{Answer, AnswerPart, AnsweredBy, Closing, Question, QuestionState},
};
use serde_json::{Map, Value, json};

use super::view::{is_typing, state_word};

/// Characters of an answer that the summary repeats.
const SUMMARY_CHARACTERS_MAX: usize = 500;

/// The people at the desk, as the asker is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Humans {
    pub present: usize,
    pub idle: usize,
    /// With a console, and away by their own word.
    pub away: usize,
}

impl Humans {
    /// Those who have a console now, each by the console at which they are most present.
    #[must_use]
    pub fn of(desk: &DeskSummary) -> Self {
        Self {
            present: desk.humans(Presence::Present),
            idle: desk.humans(Presence::Idle),
            away: desk.humans(Presence::Away),
        }
    }

    /// Whether no person has a console.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.present + self.idle + self.away == 0
    }
}

/// What the asker gets.
#[derive(Debug)]
pub struct Outcome<'a> {
    pub question: &'a Question,
    /// The place in the queue of the desk, 1 first.
    pub position: Option<usize>,
    pub humans: Humans,
    /// How long this call waited.
    pub waited: Duration,
}

impl Outcome<'_> {
    /// The result object of `clarify` and `get_answer`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Self {
            question,
            position,
            humans,
            waited,
        } = self;
        let mut object = end_json(question);
        object.insert("waited_seconds".to_owned(), json!(waited.as_secs()));
        if question.is_open() {
            object.insert("position".to_owned(), json!(position));
            let humans = json!({"present": humans.present, "idle": humans.idle, "away": humans.away});
            object.insert("humans".to_owned(), humans);
            object.insert("next".to_owned(), json!(self.next()));
        }
        object.insert("summary".to_owned(), json!(self.summary()));
        Value::Object(object)
    }

    /// What the agent does next.
    fn next(&self) -> &'static str {
        if self.humans.is_empty() {
            return "No person is at the desk; one opens it with `mcp-broker console` or at /desk. Do not guess. Go on with \
                    other work, or call get_answer with this question_id; the answer also comes to your inbox.";
        }
        "Nobody has answered yet. Do not guess. Go on with other work, or call get_answer with this question_id; the answer \
         also comes to your inbox."
    }

    /// One line for models.
    #[must_use]
    pub fn summary(&self) -> String {
        let Some(closed) = self.question.closed() else {
            let progress = progress_text(self.question, self.position, self.humans);
            return format!("PENDING: {progress}");
        };
        let because = |reason: &Option<String>| match reason {
            Some(reason) => format!(": {}", one_line(reason)),
            None => String::new(),
        };
        match &closed.how {
            Closing::Answered { by, answer } => format!("ANSWERED by {}: {}", by.human, answer_line(answer)),
            Closing::Declined { by, reason } => format!("DECLINED by {}{}", by.human, because(reason)),
            Closing::Expired => "EXPIRED: no person answered in time. This is no answer.".to_owned(),
            Closing::Cancelled { by, reason } => match by {
                Some(by) => format!("CANCELLED by {by}{}", because(reason)),
                None => format!("CANCELLED{}", because(reason)),
            },
        }
    }
}

/// The members that say how far a question has come: what a notice has, too.
fn end_json(question: &Question) -> Map<String, Value> {
    let mut object = Map::new();
    let mut set = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    set("question_id", json!(question.id));
    set("state", json!(state_word(question)));
    set("asked_at", json!(rfc3339_text(question.asked_at_ms())));
    let Some(closed) = question.closed() else {
        set("expires_at", json!(question.expires_at_ms.map(rfc3339_text)));
        return object;
    };
    set("seen_at", json!(question.seen_at_ms.map(rfc3339_text)));
    let at = json!(rfc3339_text(closed.at_ms));
    match &closed.how {
        Closing::Answered { by, answer } => {
            set("answer", json!(answer));
            set("answered_by", by_json(by));
            set("answered_at", at);
        }
        Closing::Declined { by, reason } => {
            set("reason", json!(reason));
            set("declined_by", by_json(by));
            set("declined_at", at);
        }
        Closing::Expired => {
            set("default", json!(question.on_expiry));
            set("expired_at", at);
        }
        Closing::Cancelled { by, reason } => {
            set("by", json!(by));
            set("reason", json!(reason));
            set("cancelled_at", at);
        }
    }
    object
}

/// The person who closed a question.
pub(super) fn by_json(by: &AnsweredBy) -> Value {
    let mut object = json!({"human": by.human, "via": by.via});
    if by.is_agent {
        object["kind"] = json!("agent");
    }
    object
}

/// What a call that waits is told: where the question is now.
#[must_use]
pub fn progress_text(question: &Question, position: Option<usize>, humans: Humans) -> String {
    match &question.state {
        QuestionState::Claimed(claim) if is_typing(claim) => format!("{} is typing", claim.human),
        QuestionState::Claimed(claim) => format!("{} is reading it", claim.human),
        _ if humans.is_empty() => "nobody is at the desk".to_owned(),
        QuestionState::Offered(offer) => format!("shown to {}", offer.human),
        _ => match position {
            Some(position) => format!("{} in the queue", ordinal(position)),
            None => "it waits at the desk".to_owned(),
        },
    }
}

fn ordinal(number: usize) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// The answer in one line.
fn answer_line(answer: &Answer) -> String {
    let mut parts = Vec::new();
    add_part(&mut parts, "", &answer.part);
    for (id, part) in answer.answers.iter().flatten() {
        add_part(&mut parts, &format!("{id}: "), part);
    }
    match answer.images.len() {
        0 => {}
        1 => parts.push("1 image".to_owned()),
        len => parts.push(format!("{len} images")),
    }
    one_line(&parts.join("; "))
}

fn add_part(parts: &mut Vec<String>, before: &str, part: &AnswerPart) {
    if !part.selected.is_empty() {
        parts.push(format!("{before}{}", part.selected.join(", ")));
    }
    for text in [&part.other, &part.text].into_iter().flatten() {
        parts.push(format!("{before}{text}"));
    }
}

/// The beginning of a text, without line breaks and other control characters.
fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().take(SUMMARY_CHARACTERS_MAX).map(plain).collect();
    if text.chars().nth(SUMMARY_CHARACTERS_MAX).is_some() {
        line.push('…');
    }
    line
}
