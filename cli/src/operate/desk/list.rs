//! `desk list`: the questions that wait, or those of another state.

use clap::{Args, builder::PossibleValuesParser};

use super::human::HumanFlags;
use super::of_question::exit_codes;
use super::question::urgency_style;
use crate::client::{parameter, with_query};
use crate::error::CliError;
use crate::flags::{one_of, whole};
use crate::operate::job::Context;
use crate::operate::lists::{self, LIMIT_MAX, Pages};
use crate::operate::lookup::whole_path;
use crate::output::Output;
use crate::short::prefix;
use crate::table::Table;
use rest::questions::Question;

const STATES: &[&str] = &["pending", "answered", "declined", "expired", "cancelled", "all"];
/// Questions that the broker puts on one page.
const PAGE_LEN_MAX: usize = 1000;

/// List the open questions, the most urgent and oldest first.
#[derive(Debug, Args)]
#[command(after_help = exit_codes())]
pub struct List {
    #[arg(long, value_name = "STATE", default_value = "pending", value_parser = PossibleValuesParser::new(STATES),
        help = one_of(STATES, "Questions of this state, those that are closed newest first"), hide_possible_values = true)]
    state: String,
    /// Only questions addressed to this person, to this role, or to desk.
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Only questions of this agent.
    #[arg(long, value_name = "SESSION")]
    asker: Option<String>,
    /// The most questions to list.
    #[arg(long, value_name = "N", default_value = "100", value_parser = whole(1..=LIMIT_MAX))]
    limit: u32,
}

impl List {
    /// Lists the questions that the person may see.
    pub fn run(&self, context: &Context, human: &HumanFlags) -> Result<(), CliError> {
        let filters = [
            parameter("state", Some(&self.state)),
            parameter("to", self.to.as_ref()),
            parameter("asker", self.asker.as_ref()),
        ];
        let name = human.name(&context.client)?;
        let path = whole_path(&context.client, &with_query("/api/v1/questions", filters))?;
        let mut pages = Pages::new(&context.client, path, "questions", PAGE_LEN_MAX, self.limit as usize);
        for (header, value) in [("x-human", name), ("x-human-roles", human.roles())] {
            if let Some(value) = value {
                pages = pages.with_header(header, value);
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
