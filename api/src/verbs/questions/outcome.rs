//! What the asker of a question gets: the result object of `clarify` and `get_answer`, and the texts of progress.

use std::time::Duration;

use actors::{
    clock::now,
    desk::{DeskSummary, Presence},
    model::{Question, QuestionState},
};
use serde_json::{Value, json};

/// The people at the desk, as the asker sees them.
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
        let mut object = question.outcome();
        if question.sealed_answer.is_some() {
            object.insert("answer".to_owned(), Value::Null);
        }
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
            return "No person is at the desk; one opens it with `mcp-broker console` or at /desk. Do not guess. Continue with \
                    other work, or call get_answer with this question_id; the answer also comes to your inbox.";
        }
        "No person has answered yet. Do not guess. Continue with other work, or call get_answer with this question_id; the answer \
         also comes to your inbox."
    }

    /// One line for models.
    #[must_use]
    pub fn summary(&self) -> String {
        if self.question.is_open() {
            return format!("PENDING: {}", progress_text(self.question, self.position, self.humans));
        }
        if self.question.sealed_answer.is_some() {
            return "ANSWERED, but the broker cannot decrypt the answer: its desk_secret_file has changed. Ask again."
                .to_owned();
        }
        self.question.outcome_line()
    }
}

/// The progress of a call that waits: where the question is now.
#[must_use]
pub fn progress_text(question: &Question, position: Option<usize>, humans: Humans) -> String {
    match &question.state {
        QuestionState::Claimed(claim) if claim.is_typing(now()) => format!("{} is typing", claim.human),
        QuestionState::Claimed(claim) => format!("{} is reading it", claim.human),
        _ if humans.is_empty() => "no person is at the desk".to_owned(),
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
