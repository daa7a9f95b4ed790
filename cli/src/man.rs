//! `man`: writes the manual pages.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::call::{Call, Run, done};
use super::error::CliError;
use super::output::{EXIT_CODES, print};
use super::table::escaped;

const ABOUT: &str =
    "Write the manual pages of all commands into a folder, which must exist. The packages install them.";

/// Write the manual pages of all commands into a folder.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES)]
pub struct Man {
    /// The folder, such as ~/.local/share/man/man1.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Run for Man {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        let shown = escaped(&self.folder.to_string_lossy());
        clap_mangen::generate_to((call.all)(), &self.folder)
            .map_err(|error| CliError::Failed(format!("the manual cannot be written to {shown}: {error}")))?;
        done(print(&format!("wrote the manual pages to {shown}\n")))
    }
}
