//! `desk`: the questions of agents to people, for scripts and terminals without the full console.
//!
//! Each file has one group of subcommands. A subcommand reads its arguments into a [`Job`].

mod answer;
mod human;
mod id;
mod list;
mod question;
mod show;
mod watch;

use clap::{ArgMatches, Command};

pub(super) use human::user_name;

use super::job::Job;
use crate::output::EXIT_CODES;

/// The name of the command.
pub const NAME: &str = "desk";

/// What scripts may rely on.
const DESK_EXIT_CODES: &str = "Exit code 3: no question to list, or the question is already closed.";

const ABOUT: &str = "\
Read and answer the questions of agents to people.

A key of scope answer answers as its person. Without a key, or with the admin key, --human names the person;
the default is your user name. mcp-broker console shows the same on a full screen.";

/// The command with its help.
pub fn command() -> Command {
    let subcommands = [
        list::command(),
        show::command(),
        answer::answer(),
        answer::decline(),
        answer::take(),
        watch::command(),
    ];
    Command::new(NAME)
        .about("Read and answer the questions of agents to people")
        .long_about(ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(human::flags())
        .subcommands(subcommands.map(|subcommand| {
            let epilogue = match subcommand.get_name() {
                watch::NAME => EXIT_CODES.to_owned(),
                _ => format!("{DESK_EXIT_CODES}\n\n{EXIT_CODES}"),
            };
            subcommand.after_help(epilogue)
        }))
        .after_help(DESK_EXIT_CODES)
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    let Some((name, below)) = matches.subcommand() else {
        // The command line requires a subcommand.
        return list::read(matches);
    };
    match name {
        show::NAME => show::read(below),
        answer::ANSWER | answer::DECLINE | answer::TAKE => answer::read(name, below),
        watch::NAME => watch::read(below),
        _ => list::read(below),
    }
}
