//! `desk answer`, `desk decline`, `desk take`: what a person does with a question.

use std::io::Read;

use clap::{Arg, ArgAction, ArgMatches, Command};
use rest::questions::Question;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::human::HumanFlags;
use super::id::{question_id, question_path};
use crate::client::ApiRequest;
use crate::error::CliError;
use crate::flags::{given, text};
use crate::operate::job::{Context, Job};
use crate::operate::lists;
use crate::operate::lookup::whole_path;
use crate::table::escaped;

/// The names of the commands.
pub const ANSWER: &str = "answer";
pub const DECLINE: &str = "decline";
pub const TAKE: &str = "take";

/// The most bytes of an answer that are read from stdin. The broker has a limit of its own, which is lower.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// `answer` with its help.
pub fn answer() -> Command {
    Command::new(ANSWER)
        .about("Answer a question")
        .arg(question_id())
        .arg(
            Arg::new("text")
                .value_name("TEXT")
                .allow_negative_numbers(true)
                .required_unless_present_any(["select", "other", "answers"])
                .help("The answer, or a note to an option; - reads it from stdin"),
        )
        .arg(
            text(
                "select",
                "VALUE",
                "Value of an option; may be repeated where several may be chosen",
            )
            .action(ArgAction::Append),
        )
        .arg(text("other", "TEXT", "A text in place of an option"))
        .arg(text(
            "answers",
            "JSON",
            "Answers to a form by the id of the question, such as\n'{\"db\": {\"selected\": [\"drop\"]}}'",
        ))
        .arg(text(
            "if-revision",
            "N",
            "Answer only if the question still has this revision, which --json shows",
        ))
}

/// `decline` with its help.
pub fn decline() -> Command {
    Command::new(DECLINE)
        .about("Decline to answer a question: its agent is notified and continues without an answer")
        .arg(question_id())
        .arg(text("reason", "TEXT", "Why, for the agent"))
}

/// `take` with its help.
pub fn take() -> Command {
    Command::new(TAKE)
        .about("Take a question: others see that this person answers it, for ten minutes")
        .arg(question_id())
}

#[derive(Debug)]
struct Change {
    path: String,
    body: Map<String, Value>,
    /// The text of the answer comes from stdin.
    reads_stdin: bool,
    answers: Option<String>,
    if_revision: Option<String>,
    human: HumanFlags,
    verb: &'static str,
}

/// Reads the arguments of one of the commands.
pub fn read(name: &str, matches: &ArgMatches) -> Box<dyn Job> {
    let mut change = Change {
        path: question_path(matches),
        body: Map::new(),
        reads_stdin: false,
        answers: None,
        if_revision: None,
        human: HumanFlags::read(matches),
        verb: "",
    };
    let insert = |body: &mut Map<String, Value>, flag: &str| {
        if let Some(value) = given(matches, flag) {
            body.insert(flag.to_owned(), value.into());
        }
    };
    match name {
        DECLINE => {
            insert(&mut change.body, "reason");
            (change.verb, change.path) = ("declined", change.path + "/decline");
        }
        TAKE => (change.verb, change.path) = ("took", change.path + "/claim"),
        _ => {
            change.reads_stdin = given(matches, "text").is_some_and(|text| text == "-");
            if !change.reads_stdin {
                insert(&mut change.body, "text");
            }
            insert(&mut change.body, "other");
            if let Some(selected) = matches.get_many::<String>("select") {
                let selected: Vec<_> = selected.collect();
                change.body.insert("selected".to_owned(), json!(selected));
            }
            change.answers = given(matches, "answers");
            change.if_revision = given(matches, "if-revision");
            (change.verb, change.path) = ("answered", change.path + "/answer");
        }
    }
    Box::new(change)
}

impl Job for Change {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let mut body = self.body.clone();
        if self.reads_stdin {
            body.insert("text".to_owned(), read_stdin()?.into());
        }
        if let Some(text) = &self.answers {
            let answers: Map<String, Value> = serde_json::from_str(text)
                .map_err(|error| CliError::Usage(format!("--answers is not a JSON object: {error}")))?;
            body.insert("answers".to_owned(), answers.into());
        }
        let mut ask =
            ApiRequest::new(Method::POST, whole_path(&context.client, &self.path)?).with_body(Value::Object(body));
        if let Some(revision) = &self.if_revision {
            ask = ask.with_header("if-match", format!("\"{revision}\""));
        }
        let ask = self.human.sign(&context.client, ask)?;
        let changed = context.client.send(&ask).map_err(|error| {
            if error.has_code("question_closed") {
                CliError::Nothing(Some(error.line))
            } else {
                error.into()
            }
        })?;
        lists::show_one(context, &changed, |question: &Question| {
            format!("{} the question of {}\n", self.verb, escaped(question.asker()))
        })
    }
}

/// The text of stdin, without the line break at its end.
fn read_stdin() -> Result<String, CliError> {
    let mut text = String::new();
    let read = std::io::stdin().take(TEXT_BYTES_MAX + 1).read_to_string(&mut text);
    let read = read.map_err(|error| CliError::Failed(format!("stdin cannot be read: {error}")))?;
    if read as u64 > TEXT_BYTES_MAX {
        let most = TEXT_BYTES_MAX >> 20;
        return Err(CliError::Failed(format!("stdin has more than {most} MB")));
    }
    let end = text.trim_end_matches(['\n', '\r']).len();
    text.truncate(end);
    if text.is_empty() {
        return Err(CliError::Usage(
            "stdin has no text; allowed: a text of at least one character".to_owned(),
        ));
    }
    Ok(text)
}
