//! `desk show`: one question with its context, its options and its answer.

use clap::{ArgMatches, Command};

use super::human::HumanFlags;
use super::id::{question_id, question_path};
use super::question::text;
use crate::client::ApiRequest;
use crate::error::CliError;
use crate::operate::job::{Context, Job};
use crate::operate::lists;
use crate::operate::lookup::whole_path;
use rest::questions::Question;

/// The name of the command.
pub const NAME: &str = "show";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("Show a question with its context, its options and its answer")
        .arg(question_id())
}

#[derive(Debug)]
struct Show {
    path: String,
    human: HumanFlags,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    Box::new(Show {
        path: question_path(matches),
        human: HumanFlags::read(matches),
    })
}

impl Job for Show {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let client = &context.client;
        let ask = self
            .human
            .sign(client, ApiRequest::get(whole_path(client, &self.path)?))?;
        let answer = client.send(&ask)?;
        lists::show_one(context, &answer, |question: &Question| text(question, &context.output))
    }
}
