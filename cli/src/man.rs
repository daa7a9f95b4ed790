//! `man`: writes the manual pages.

use std::path::{Path, PathBuf};

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Command};

use super::error::CliError;
use super::output::{EXIT_CODES, print};
use super::table::escaped;

/// The command with its help.
pub fn command() -> Command {
    Command::new("man")
        .about("Write the manual pages of all commands into a folder")
        .long_about(
            "Write the manual pages of all commands into a folder, which must exist. The packages install them.",
        )
        .arg(
            Arg::new("folder")
                .value_name("DIR")
                .required(true)
                .value_parser(ValueParser::path_buf())
                .help("The folder, such as ~/.local/share/man/man1"),
        )
        .after_help(EXIT_CODES)
}

/// The folder that the arguments name.
pub fn read(matches: &ArgMatches) -> PathBuf {
    matches.get_one("folder").cloned().unwrap_or_default()
}

/// Writes a page for each of these commands.
///
/// # Errors
/// [`CliError::Failed`] when a page cannot be written.
pub fn run(folder: &Path, commands: Command) -> Result<(), CliError> {
    let shown = escaped(&folder.to_string_lossy());
    clap_mangen::generate_to(commands, folder)
        .map_err(|error| CliError::Failed(format!("the manual cannot be written to {shown}: {error}")))?;
    print(&format!("wrote the manual pages to {shown}\n"))
}
