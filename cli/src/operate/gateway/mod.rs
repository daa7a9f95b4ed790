//! `gateway`: the backend MCP servers that the agents of a project share.
//!
//! Each file has one group of subcommands. A subcommand that asks a broker reads its arguments into a [`Job`].

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

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::job::Job;
use crate::call::{Call, done};
use crate::{error::CliError, operate, output::EXIT_CODES, tool_calls};

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

/// Runs the subcommand that the arguments name, and returns the exit code of the process.
///
/// # Errors
/// What went wrong, for the user.
pub fn run(call: Call<'_>) -> Result<ExitCode, CliError> {
    let Call { matches, env, broker } = call;
    match matches.subcommand() {
        Some((tool_calls::CALL, below)) => tool_calls::read_call(below, tool_calls::target(below, env)?).run(),
        Some((entry::ADD, below)) => done(entry::read_add(below)?.run()),
        Some((entry::REMOVE, below)) => done(entry::read_remove(below).run()),
        Some((import::NAME, below)) => done(import::read(below).run()),
        Some((run::NAME, below)) => run::read(below, env.to_vec())?.run(broker),
        Some((watch::NAME, below)) => watch::read(below, env.to_vec())?.run(broker),
        _ => done(operate::run(&*read(&matches), &matches, env)),
    }
}

/// Reads the arguments of a subcommand that asks a broker.
fn read(matches: &ArgMatches) -> Box<dyn Job> {
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
