//! The command line: which words it takes, and what becomes of them.

mod mistakes;
mod serve;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Command;

use crate::config::Config;
use crate::exit;

/// Does what the command line asks, and says how the process ends.
pub fn run(args: impl IntoIterator<Item = OsString>, env: impl IntoIterator<Item = (OsString, OsString)>) -> ExitCode {
    match parse(args, env) {
        Ok(Action::Serve(config)) => serve::run(*config),
        Err(stop) => tell(stop),
    }
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Action {
    Serve(Box<Config>),
}

/// Why nothing more is to be done.
#[derive(Debug)]
pub enum Stop {
    /// Help or version were asked for, or no command was given.
    Help(clap::Error),
    /// A mistake, told in one line.
    Usage(String),
}

/// Reads a command line, whose first word is the name of the program, with the environment around it.
///
/// # Errors
///
/// [`Stop`] when there is nothing to do but to print something.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Action, Stop> {
    let args: Vec<OsString> = args.into_iter().collect();
    let mut command = command();
    command.build();
    let matches = command.try_get_matches_from_mut(&args);
    let mut matches = matches.map_err(|error| mistakes::stop(error, &command, &args))?;
    match matches.remove_subcommand() {
        Some((name, matches)) if name == "serve" => serve::read(matches, env).map(Box::new).map(Action::Serve),
        _ => {
            let words = mistakes::words(&command).join(", ");
            Err(Stop::Usage(format!("no command; allowed: {words}")))
        }
    }
}

/// Every command, flag and help text.
pub fn command() -> Command {
    Command::new("mcp-broker")
        .about("A message broker for AI agents that speak MCP")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve::command())
        .after_help(serve::EXIT_CODES)
}

fn tell(stop: Stop) -> ExitCode {
    let (line, code) = match stop {
        Stop::Help(help) => {
            // Whoever closed the pipe has read enough.
            let _ = help.print();
            return ExitCode::from(u8::try_from(help.exit_code()).unwrap_or(exit::USAGE));
        }
        Stop::Usage(line) => (line, exit::USAGE),
    };
    let _ = writeln!(std::io::stderr(), "error: {line}");
    ExitCode::from(code)
}
