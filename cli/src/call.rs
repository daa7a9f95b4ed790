//! What a command is, what it is run with, and how it ends.

use std::process::ExitCode;

use clap::{ArgMatches, Args, Command};

use super::access::EnvVars;
use super::broker::Broker;
use super::error::CliError;

/// A command: its arguments with their help, and what it does.
pub trait Run: Args {
    /// Does it, and returns the exit code of the process.
    ///
    /// # Errors
    /// What went wrong, for the user.
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError>;
}

/// The arguments of a command, its environment, and the broker that it may run.
pub struct Call<'a> {
    pub matches: ArgMatches,
    pub env: &'a EnvVars,
    pub broker: &'static dyn Broker,
    /// The program with all commands.
    pub all: fn() -> Command,
}

impl Call<'_> {
    /// The arguments as values.
    ///
    /// # Errors
    /// [`CliError::Usage`] for what only the whole command line shows.
    pub fn read<T: Args>(&self) -> Result<T, CliError> {
        T::from_arg_matches(&self.matches).map_err(|error| CliError::Usage(error.to_string()))
    }

    /// Runs a command with them.
    ///
    /// # Errors
    /// Those of the command.
    pub fn run<T: Run>(&self) -> Result<ExitCode, CliError> {
        self.read::<T>()?.run(self)
    }
}

/// The exit code of a command that has only one.
///
/// # Errors
/// Those of the command.
pub fn done(outcome: Result<(), CliError>) -> Result<ExitCode, CliError> {
    outcome.map(|()| ExitCode::SUCCESS)
}
