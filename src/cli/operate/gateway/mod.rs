//! `gateway`: the backend MCP servers that the agents of a project share.
//!
//! Each file has one group of subcommands. A subcommand reads its arguments into a [`Job`].

mod backend;
mod command;
mod import;
mod list;
mod logs;
mod tools;

use clap::{ArgMatches, Command};

use super::job::Job;
use crate::cli::output::EXIT_CODES;

/// The name of the command.
pub const NAME: &str = "gateway";

const ABOUT: &str = "\
The backend MCP servers that the agents of a project share.

They stand in the configuration file, under [backends.NAME]. import writes them there from the file of an MCP client. The
other subcommands ask a running broker. docs/gateway.md says what agents see of them.";

/// The command with its help.
pub fn command() -> Command {
    let subcommands = [
        list::command(),
        list::show(),
        tools::command(),
        logs::command(),
        command::start(),
        command::restart(),
        command::stop(),
        import::command(),
    ];
    Command::new(NAME)
        .about("Share MCP servers among agents: list, restart and import backends")
        .long_about(ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(subcommands.map(|subcommand| subcommand.after_help(EXIT_CODES)))
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    match matches.subcommand() {
        Some((list::SHOW, below)) => list::read_show(below),
        Some((tools::NAME, below)) => tools::read(below),
        Some((logs::NAME, below)) => logs::read(below),
        Some((name @ (command::START | command::RESTART | command::STOP), below)) => command::read(name, below),
        Some((import::NAME, below)) => import::read(below),
        _ => list::read(),
    }
}
