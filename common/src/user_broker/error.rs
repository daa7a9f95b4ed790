//! Why a client has no broker.

use std::{io, path::PathBuf};

use crate::config::API_KEY_ENV;

/// Why the files of a local broker cannot be used: one line for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LocalError(pub String);

/// Why a client has no broker: one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No broker runs, and none was to be started. `start` is the command that starts it.
    #[error("no broker runs at {}; {start} starts it", .socket.display())]
    NotRunning { socket: PathBuf, start: String },
    /// The socket belongs to another user.
    #[error("the process that listens at {} belongs to another user (uid {uid})", .socket.display())]
    Foreign { socket: PathBuf, uid: u32 },
    /// The broker asks for a key, and the environment has none.
    #[error("this broker asks for a key (local_auth): put it into {API_KEY_ENV}")]
    KeyMissing,
    /// The broker does not accept the key of the environment.
    #[error("this broker does not accept the key in {API_KEY_ENV}: {0}")]
    KeyRefused(String),
    /// The broker serves no further client now.
    #[error("the broker refused this client: {0}")]
    Refused(String),
    /// A newer broker runs, and does not speak the protocol of this program.
    #[error("mcp-broker {running} runs, this is {own}: update this one, or name another broker with --instance")]
    NewerRuns { running: String, own: String },
    /// An older broker runs, and this client was not to replace it. `restart` is the command that does.
    #[error("mcp-broker {running} runs, this is {own}: {restart} replaces it")]
    OlderRuns {
        running: String,
        own: String,
        restart: String,
    },
    /// A broker was started and could not serve.
    #[error("the broker did not start: {error} (log: {})", .log.display())]
    StartFailed { error: String, log: PathBuf },
    /// The broker did not answer, or another process did not finish a start, before the deadline. `what` says which, and
    /// what to do.
    #[error("{what} (log: {})", .log.display())]
    TimedOut { what: String, log: PathBuf },
    /// The files cannot be used.
    #[error(transparent)]
    Files(#[from] LocalError),
    /// The socket cannot be used.
    #[error("{}: {error}", .socket.display())]
    Io { socket: PathBuf, error: io::Error },
}
