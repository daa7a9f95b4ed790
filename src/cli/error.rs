//! Why a command line runs no command, or why its command failed.

/// Why a command line runs no command, or why its command failed.
#[derive(Debug)]
pub enum CliError {
    /// Help or version is requested, or the command is missing.
    Help(clap::Error),
    /// The command line is wrong; one line for the user.
    Usage(String),
    /// The command failed; one line for the user.
    Failed(String),
}
