//! What every command of this folder is, and what it works with.

use clap::Args;

use crate::client::Client;
use crate::error::CliError;
use crate::output::Output;

/// What a command works with.
pub struct Context {
    pub client: Client,
    pub output: Output,
}

/// A command that asks a running broker: its arguments with their help, and what it does.
pub trait Job: Args {
    /// Asks the broker and prints what it says.
    ///
    /// # Errors
    /// What went wrong, for the user.
    fn run(&self, context: &Context) -> Result<(), CliError>;
}
