//! What a command is run with, and how it ends.

use std::process::ExitCode;

use clap::ArgMatches;

use super::access::EnvVars;
use super::broker::Broker;
use super::error::CliError;

/// The arguments of a command, its environment, and the broker that it may run.
pub struct Call<'a> {
    pub matches: ArgMatches,
    pub env: &'a EnvVars,
    pub broker: &'static dyn Broker,
}

/// The exit code of a command that has only one.
///
/// # Errors
/// Those of the command.
pub fn done(outcome: Result<(), CliError>) -> Result<ExitCode, CliError> {
    outcome.map(|()| ExitCode::SUCCESS)
}
