//! Why a command line runs no command, or why its command failed.

use super::client::ClientError;

/// Why a command line runs no command, or why its command failed.
#[derive(Debug)]
pub enum CliError {
    /// Help or version is requested, or the command is missing.
    Help(clap::Error),
    /// The command line is wrong; one line for the user.
    Usage(String),
    /// The command failed; one line for the user.
    Failed(String),
    /// What the command waited for did not happen in time; one line for the user.
    TimedOut(String),
    /// What the command is about does not exist or is closed; one line for the user, unless stdout says it already.
    Nothing(Option<String>),
    /// The broker does not run; one line for the user.
    NotRunning(String),
    /// Tools are not ready; one line for the user, and the exit code.
    NotReady(String, u8),
    /// A signal ended the command.
    Signalled(i32),
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        Self::Failed(error.line)
    }
}
