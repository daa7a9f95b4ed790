//! `desk`: the questions of agents to people, for scripts and terminals without the full console.
//!
//! Each file has one group of subcommands. [`HumanFlags`] name the person for all of them.

mod answer;
mod human;
mod list;
mod of_question;
mod question;
mod watch;

use clap::{Args, Subcommand};

pub use human::person_of_key;
pub(super) use human::user_name;

use super::job::{Context, Job};
use super::lists;
use crate::client::ApiRequest;
use crate::error::CliError;
use answer::{Answer, Decline, Take};
use human::HumanFlags;
use list::List;
use of_question::{DESK_EXIT_CODES, OfQuestion, exit_codes};
use rest::questions::Question;
use watch::Watch;

const ABOUT: &str = "\
Read and answer the questions of agents to people.

A key of scope answer answers as its person. Without a key, or with the admin key, --human names the person;
the default is your user name. mcp-broker console shows the same on a full screen.";

/// Read and answer the questions of agents to people.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = DESK_EXIT_CODES)]
pub struct Desk {
    #[command(flatten)]
    human: HumanFlags,
    #[command(subcommand)]
    below: Below,
}

#[derive(Debug, Subcommand)]
enum Below {
    List(List),
    /// Show a question with its context, its options and its answer.
    #[command(after_help = exit_codes())]
    Show {
        #[command(flatten)]
        question: OfQuestion,
    },
    Answer(Answer),
    Decline(Decline),
    Take(Take),
    Watch(Watch),
}

impl Job for Desk {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let human = &self.human;
        match &self.below {
            Below::List(list) => list.run(context, human),
            Below::Show { question } => {
                let path = question.path(context, "")?;
                let ask = human.sign(&context.client, ApiRequest::get(path))?;
                let answer = context.client.send(&ask)?;
                lists::show_one(context, &answer, |asked: &Question| {
                    question::text(asked, &context.output)
                })
            }
            Below::Answer(answer) => answer.run(context, human),
            Below::Decline(decline) => decline.run(context, human),
            Below::Take(take) => take.run(context, human),
            Below::Watch(watch) => watch.run(context, human),
        }
    }
}
