//! What every command of this folder is, and what it works with.

use clap::{ArgMatches, Args, Command};

use crate::client::Client;
use crate::error::CliError;
use crate::output::Output;

/// What a command works with.
pub struct Context {
    pub client: Client,
    pub output: Output,
}

/// A command: its arguments with their help, and what it does.
pub trait Job: Args {
    /// Asks the broker and prints what it says.
    ///
    /// # Errors
    /// What went wrong, for the user.
    fn run(&self, context: &Context) -> Result<(), CliError>;
}

/// A command of which only the name and the functions are known.
#[derive(Clone, Copy)]
pub struct AnyJob {
    pub name: &'static str,
    augment: fn(Command) -> Command,
    pub run: fn(&ArgMatches, &Context) -> Result<(), CliError>,
}

impl AnyJob {
    /// A command under its name.
    pub const fn new<J: Job>(name: &'static str) -> Self {
        let (augment, run) = (J::augment_args, run::<J>);
        Self { name, augment, run }
    }

    /// The command with its help.
    pub fn command(self) -> Command {
        (self.augment)(Command::new(self.name))
    }
}

fn run<J: Job>(matches: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let job = J::from_arg_matches(matches).map_err(|error| CliError::Usage(error.to_string()))?;
    job.run(context)
}
