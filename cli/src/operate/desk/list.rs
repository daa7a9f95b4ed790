//! `desk list`: the questions that wait, or those of another state.

use clap::{ArgMatches, Command};

use super::human::HumanFlags;
use super::question::urgency_style;
use crate::client::{parameter, with_query};
use crate::error::CliError;
use crate::flags::{choice, given, given_number, limit, text};
use crate::operate::job::{Context, Job};
use crate::operate::lists::{self, LIMIT_MAX, Pages};
use crate::operate::lookup::whole_path;
use crate::output::Output;
use crate::short::prefix;
use crate::table::Table;
use rest::questions::Question;

const STATES: &[&str] = &["pending", "answered", "declined", "expired", "cancelled", "all"];
/// Questions that the broker puts on one page.
const PAGE_LEN_MAX: usize = 1000;

/// The command with its help.
pub fn command() -> Command {
    Command::new("list")
        .about("List the open questions, the most urgent and oldest first")
        .arg(
            choice(
                "state",
                "STATE",
                STATES,
                "Questions of this state, those that are closed newest first",
            )
            .default_value("pending"),
        )
        .arg(text(
            "to",
            "NAME",
            "Only questions addressed to this person, to this role, or to desk",
        ))
        .arg(text("asker", "SESSION", "Only questions of this agent"))
        .arg(limit(LIMIT_MAX, "100", "The most questions to list"))
}

#[derive(Debug)]
struct List {
    path: String,
    limit: usize,
    human: HumanFlags,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    let parts = ["state", "to", "asker"].map(|name| parameter(name, given(matches, name)));
    Box::new(List {
        path: with_query("/api/v1/questions", parts),
        limit: given_number(matches, "limit").unwrap_or(LIMIT_MAX) as usize,
        human: HumanFlags::read(matches),
    })
}

impl Job for List {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let human = self.human.name(&context.client)?;
        let headers = [("x-human", human), ("x-human-roles", self.human.roles())];
        let mut pages = Pages::new(
            &context.client,
            whole_path(&context.client, &self.path)?,
            "questions",
            PAGE_LEN_MAX,
            self.limit,
        );
        for (name, value) in headers {
            if let Some(value) = value {
                pages = pages.with_header(name, value);
            }
        }
        if lists::show(context, pages, "questions", |questions| {
            table(&context.output, questions)
        })? == 0
        {
            return Err(CliError::Nothing(None));
        }
        Ok(())
    }
}

fn table(output: &Output, questions: &[Question]) -> Table {
    let len = output.id_len(questions.iter().map(|question| question.question_id.as_str()));
    let mut table = Table::new(&["URGENCY", "ASKED", "FROM", "TO", "STATE", "QUESTION", "ID"]);
    let plain = anstyle::Style::new();
    for question in questions {
        table.styled_row([
            (question.urgency.as_str(), urgency_style(&question.urgency)),
            (output.age(&question.asked_at).as_str(), plain),
            (question.asker(), plain),
            (question.to.as_str(), plain),
            (question.stage().as_str(), plain),
            (question.summary.as_str(), plain),
            (prefix(&question.question_id, len), plain),
        ]);
    }
    table
}
