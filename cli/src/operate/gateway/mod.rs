//! `gateway`: the backend MCP servers that the agents of a project share.
//!
//! Each file has one group of subcommands. A subcommand reads its arguments into a [`Job`], or into an [`Alone`] if it asks
//! no broker.

mod backend;
mod calls;
mod command;
mod configuration_file;
mod entry;
mod import;
mod imported;
mod list;
mod logs;
mod ready;
mod run;
mod servers_file;
mod tools;
mod watch;

use std::{ffi::OsString, process::ExitCode};

use clap::{ArgMatches, Command};

use super::job::Job;
use crate::broker::Broker;
use crate::{error::CliError, output::EXIT_CODES, tool_calls};
use entry::{Add, Remove};
use import::Import;
use run::Run;
use watch::Watched;

/// The name of the command.
pub const NAME: &str = "gateway";

const ABOUT: &str = "\
The backend MCP servers that the agents of a project share.

The configuration file describes them, under [backends.NAME]. add and remove change the file, import copies the servers of an
MCP client into it. Administrators add others over REST; enable and disable are for these. run and watch are gateways of their
own for one client. The other subcommands ask a running broker. docs/gateway.md explains what agents see.";

/// The command with its help.
pub fn command() -> Command {
    let subcommands = [
        list::command(),
        list::show(),
        tools::command(),
        // The former name of `mcp-broker call`.
        tool_calls::call_command().hide(true),
        calls::calls(),
        calls::cancel(),
        ready::command(),
        logs::command(),
        command::start(),
        command::restart(),
        command::stop(),
        command::enable(),
        command::disable(),
        entry::add(),
        entry::remove(),
        import::command(),
        run::command(),
        watch::command(),
    ];
    Command::new(NAME)
        .about("Share MCP servers among agents: list, add, restart and import backends")
        .long_about(ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(subcommands.map(with_exit_codes))
}

/// A subcommand whose help says what its exit codes mean.
fn with_exit_codes(subcommand: Command) -> Command {
    if subcommand.get_after_help().is_some() {
        return subcommand;
    }
    subcommand.after_help(EXIT_CODES)
}

/// A subcommand that asks no broker.
#[derive(Debug)]
pub enum Alone {
    Add(Add),
    Remove(Remove),
    Import(Import),
    Run(Run),
    Watch(Box<Watched>),
}

/// Reads the arguments of a subcommand that asks no broker; `None` if it asks one.
///
/// # Errors
/// [`CliError::Usage`] with one line for the user.
pub fn read_alone(matches: &ArgMatches, env: &[(OsString, OsString)]) -> Result<Option<Alone>, CliError> {
    Ok(match matches.subcommand() {
        Some((entry::ADD, below)) => Some(Alone::Add(entry::read_add(below)?)),
        Some((entry::REMOVE, below)) => Some(Alone::Remove(entry::read_remove(below))),
        Some((import::NAME, below)) => Some(Alone::Import(import::read(below))),
        Some((run::NAME, below)) => Some(Alone::Run(run::read(below, env.to_vec())?)),
        Some((watch::NAME, below)) => Some(Alone::Watch(Box::new(watch::read(below, env.to_vec())?))),
        _ => None,
    })
}

impl Alone {
    /// Runs the subcommand, and returns the exit code of the process.
    ///
    /// # Errors
    /// What went wrong, for the user.
    pub fn run(self, broker: &dyn Broker) -> Result<ExitCode, CliError> {
        match self {
            Self::Add(add) => add.run().map(|()| ExitCode::SUCCESS),
            Self::Remove(remove) => remove.run().map(|()| ExitCode::SUCCESS),
            Self::Import(import) => import.run().map(|()| ExitCode::SUCCESS),
            Self::Run(run) => run.run(broker),
            Self::Watch(watched) => watched.run(broker),
        }
    }
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    match matches.subcommand() {
        Some((list::SHOW, below)) => list::read_show(below),
        Some((tools::NAME, below)) => tools::read(below),
        Some((calls::CALLS, below)) => calls::read_calls(below),
        Some((calls::CANCEL, below)) => calls::read_cancel(below),
        Some((ready::NAME, below)) => ready::read(below),
        Some((logs::NAME, below)) => logs::read(below),
        Some((
            name @ (command::START | command::RESTART | command::STOP | command::ENABLE | command::DISABLE),
            below,
        )) => command::read(name, below),
        _ => list::read(),
    }
}
