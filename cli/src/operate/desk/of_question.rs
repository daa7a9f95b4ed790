//! What the commands about questions have in common: the question, and the exit codes.

use clap::Args;

use crate::client::percent_encoded;
use crate::error::CliError;
use crate::flags::id;
use crate::operate::{job::Context, lookup::whole_path};
use crate::output::EXIT_CODES;

/// What scripts may rely on.
pub const DESK_EXIT_CODES: &str = "Exit code 3: no question to list, or the question is already closed.";

/// The exit codes of a command that prints or changes questions.
pub fn exit_codes() -> String {
    format!("{DESK_EXIT_CODES}\n\n{EXIT_CODES}")
}

/// The question that a command is about.
#[derive(Debug, Args)]
pub struct OfQuestion {
    /// Id of the question, which desk list shows.
    #[arg(value_name = "ID", value_parser = id)]
    id: String,
}

impl OfQuestion {
    /// The path of the question, and of what is done with it.
    ///
    /// # Errors
    /// Those of [`whole_path`].
    pub fn path(&self, context: &Context, verb: &str) -> Result<String, CliError> {
        let path = format!("/api/v1/questions/{}{verb}", percent_encoded(&self.id));
        whole_path(&context.client, &path)
    }
}
