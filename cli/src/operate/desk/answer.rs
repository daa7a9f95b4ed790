//! `desk answer`, `desk decline`, `desk take`: what a person does with a question.

use clap::Args;
use rest::questions::Question;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::human::HumanFlags;
use super::of_question::{OfQuestion, exit_codes};
use crate::client::ApiRequest;
use crate::error::CliError;
use crate::operate::job::Context;
use crate::operate::lists;
use crate::operate::payload::read_bounded;
use crate::table::escaped;

/// The most bytes of an answer that are read from stdin. The broker has a limit of its own, which is lower.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Answer a question.
#[derive(Debug, Args)]
#[command(after_help = exit_codes())]
pub struct Answer {
    #[command(flatten)]
    question: OfQuestion,
    /// The answer, or a note to an option; - reads it from stdin.
    #[arg(value_name = "TEXT", allow_negative_numbers = true,
        required_unless_present_any = ["select", "other", "answers"])]
    text: Option<String>,
    /// Value of an option; may be repeated where several may be chosen.
    #[arg(long, value_name = "VALUE")]
    select: Vec<String>,
    /// A text in place of an option.
    #[arg(long, value_name = "TEXT")]
    other: Option<String>,
    #[arg(
        long,
        value_name = "JSON",
        help = "Answers to a form by the id of the question, such as\n'{\"db\": {\"selected\": [\"drop\"]}}'"
    )]
    answers: Option<String>,
    /// Answer only if the question still has this revision, which --json shows.
    #[arg(long, value_name = "N")]
    if_revision: Option<String>,
}

/// Decline to answer a question: its agent is notified and continues without an answer.
#[derive(Debug, Args)]
#[command(after_help = exit_codes())]
pub struct Decline {
    #[command(flatten)]
    question: OfQuestion,
    /// Why, for the agent.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Take a question: others see that this person answers it, for ten minutes.
#[derive(Debug, Args)]
#[command(after_help = exit_codes())]
pub struct Take {
    #[command(flatten)]
    question: OfQuestion,
}

impl Answer {
    /// Answers the question in the name of the person.
    pub fn run(&self, context: &Context, human: &HumanFlags) -> Result<(), CliError> {
        let mut body = Map::new();
        match self.text.as_deref() {
            Some("-") => drop(body.insert("text".to_owned(), read_stdin()?.into())),
            Some(text) => drop(body.insert("text".to_owned(), text.into())),
            None => {}
        }
        if let Some(other) = &self.other {
            body.insert("other".to_owned(), other.as_str().into());
        }
        if !self.select.is_empty() {
            body.insert("selected".to_owned(), json!(self.select));
        }
        if let Some(text) = &self.answers {
            let answers: Map<String, Value> = serde_json::from_str(text)
                .map_err(|error| CliError::Usage(format!("--answers is not a JSON object: {error}")))?;
            body.insert("answers".to_owned(), answers.into());
        }
        let mut ask =
            ApiRequest::new(Method::POST, self.question.path(context, "/answer")?).with_body(Value::Object(body));
        if let Some(revision) = &self.if_revision {
            ask = ask.with_header("if-match", format!("\"{revision}\""));
        }
        change(context, human, ask, "answered")
    }
}

impl Decline {
    /// Declines the question in the name of the person.
    pub fn run(&self, context: &Context, human: &HumanFlags) -> Result<(), CliError> {
        let body = self
            .reason
            .as_ref()
            .map_or_else(|| json!({}), |reason| json!({"reason": reason}));
        let ask = ApiRequest::new(Method::POST, self.question.path(context, "/decline")?).with_body(body);
        change(context, human, ask, "declined")
    }
}

impl Take {
    /// Claims the question for the person.
    pub fn run(&self, context: &Context, human: &HumanFlags) -> Result<(), CliError> {
        let ask = ApiRequest::new(Method::POST, self.question.path(context, "/claim")?).with_body(json!({}));
        change(context, human, ask, "took")
    }
}

fn change(context: &Context, human: &HumanFlags, ask: ApiRequest, verb: &str) -> Result<(), CliError> {
    let ask = human.sign(&context.client, ask)?;
    let changed = context.client.send(&ask).map_err(|error| {
        if error.has_code("question_closed") {
            CliError::Nothing(Some(error.line))
        } else {
            error.into()
        }
    })?;
    lists::show_one(context, &changed, |question: &Question| {
        format!("{verb} the question of {}\n", escaped(question.asker()))
    })
}

/// The text of stdin, without the line break at its end.
fn read_stdin() -> Result<String, CliError> {
    let text = read_bounded(std::io::stdin(), "stdin", TEXT_BYTES_MAX)?;
    match text.trim_end_matches(['\n', '\r']) {
        "" => Err(CliError::Usage(
            "stdin has no text; allowed: a text of at least one character".to_owned(),
        )),
        text => Ok(text.to_owned()),
    }
}
