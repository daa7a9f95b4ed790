//! Why a command line runs no command, or why its command failed.

use std::time::Duration;

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

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientError {
    /// One line that says what happened and what to do. It never contains the key.
    pub line: String,
    /// The code of the broker, if it refused the request.
    pub code: Option<String>,
    /// The time after which the broker wants the request again.
    pub retry_after: Option<Duration>,
}

impl ClientError {
    /// A failure without an answer of the broker.
    pub fn new(line: String) -> Self {
        Self {
            line,
            code: None,
            retry_after: None,
        }
    }

    /// Whether the broker refused the request with this code.
    pub fn has_code(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    /// Whether the broker refused the request for a reason that passes by itself.
    pub fn is_passing(&self) -> bool {
        self.has_code("rate_limited") || self.has_code("unavailable")
    }
}
