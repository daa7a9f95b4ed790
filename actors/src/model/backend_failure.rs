//! Why a call to a backend has no result of the backend.

use std::time::Duration;

/// Why a call to a backend has no result of the backend, or an operator's command is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendFailure {
    #[error("no backend \"{name}\": mcp-broker gateway list shows the backends of the project")]
    NotFound { name: String },
    #[error("a backend \"{name}\" exists already: change it, or choose another name")]
    Exists { name: String },
    #[error(
        "{backend}: a command runs as the user of the broker, and gateway_commands does not allow you to add one: put it \
         into the configuration file, or use a url"
    )]
    CommandNotAllowed { backend: String },
    #[error("{backend}: not running ({}){}", reason_or_state(reason.as_deref(), state), next_attempt(state, *retry_after))]
    Unavailable {
        backend: String,
        state: &'static str,
        /// Why it does not run.
        reason: Option<String>,
        /// When it is started again.
        retry_after: Option<Duration>,
    },
    #[error("{backend}: busy, {reason}: repeat the call later")]
    Busy { backend: String, reason: &'static str },
    #[error("{backend}: too many calls of this connection are open: repeat the call when one of them has ended")]
    TooManyCalls { backend: String },
    #[error(
        "{backend}: ended during the call ({how}); the call may have been carried out, so check before repeating it"
    )]
    Died {
        backend: String,
        /// The exit status and the last line of stderr.
        how: String,
    },
    #[error("{backend}: its server has answered with HTTP {status}: {reason}")]
    Http {
        backend: String,
        status: u16,
        reason: String,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    #[error("{backend}: its answer cannot be passed on: {reason}")]
    Protocol { backend: String, reason: String },
    #[error("{backend}: its answer has more than {limit} bytes: ask for less, or raise result_max of the backend")]
    TooLarge { backend: String, limit: usize },
    #[error(
        "{backend}: its answer was given up, because this client does not read those before it; the call was carried out"
    )]
    GivenUp { backend: String },
    #[error(
        "{backend}: its answer was given up, because too many answers wait for clients of this project that do not read \
         them; the call was carried out"
    )]
    NoRoom { backend: String },
    #[error("{backend}: no answer within {} s; the call was cancelled", (after.as_secs_f64() * 10.0).round() / 10.0)]
    TimedOut { backend: String, after: Duration },
    #[error(
        "{backend}: the broker is shutting down, and the call was cancelled: connect again and check before repeating it"
    )]
    ShuttingDown { backend: String },
    #[error("{backend}: an operator has ended the call; it may have been carried out, so check before repeating it")]
    Cancelled { backend: String },
}

fn reason_or_state<'a>(reason: Option<&'a str>, state: &'a str) -> &'a str {
    reason.unwrap_or(state)
}

fn next_attempt(state: &str, retry_after: Option<Duration>) -> String {
    match (state, retry_after) {
        ("failed" | "disabled", None) => "; mcp-broker gateway restart starts it".to_owned(),
        ("backoff" | "failed", Some(wait)) => format!("; next attempt in {} s", wait.as_secs().max(1)),
        _ => String::new(),
    }
}

impl BackendFailure {
    /// The wait that a caller gets when the backend does not read its input or too many calls wait.
    const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

    /// The error code of the contract, section 12.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "backend_not_found",
            Self::Exists { .. } => "backend_exists",
            Self::CommandNotAllowed { .. } => "command_not_allowed",
            Self::Unavailable { .. } => "backend_unavailable",
            Self::Busy { .. } => "backend_busy",
            Self::Died { .. } => "backend_died",
            Self::Http { .. } => "backend_error",
            Self::Protocol { .. } => "backend_protocol",
            Self::TooLarge { .. } | Self::GivenUp { .. } => "result_too_large",
            Self::TooManyCalls { .. } | Self::NoRoom { .. } => "unavailable",
            Self::TimedOut { .. } => "timeout",
            Self::ShuttingDown { .. } => "shutting_down",
            Self::Cancelled { .. } => "call_cancelled",
        }
    }

    /// How long to wait before a repeat.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } | Self::Http { retry_after, .. } => *retry_after,
            Self::Busy { .. } | Self::TooManyCalls { .. } => Some(Self::BUSY_RETRY_AFTER),
            _ => None,
        }
    }

    /// The backend.
    pub fn backend(&self) -> &str {
        match self {
            Self::NotFound { name } | Self::Exists { name } => name,
            Self::CommandNotAllowed { backend }
            | Self::Unavailable { backend, .. }
            | Self::Busy { backend, .. }
            | Self::Died { backend, .. }
            | Self::Http { backend, .. }
            | Self::Protocol { backend, .. }
            | Self::TooLarge { backend, .. }
            | Self::TooManyCalls { backend }
            | Self::GivenUp { backend }
            | Self::NoRoom { backend }
            | Self::TimedOut { backend, .. }
            | Self::ShuttingDown { backend }
            | Self::Cancelled { backend } => backend,
        }
    }

    /// Whether the call provably was not carried out, so that a repeat is safe.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { .. }
                | Self::Busy { .. }
                | Self::TooManyCalls { .. }
                | Self::Http {
                    status: 401 | 403 | 429,
                    ..
                }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unavailable_backend_says_why_and_when_it_is_tried_again() {
        let failure = |state: &'static str, reason: Option<&str>, seconds: Option<u64>| {
            BackendFailure::Unavailable {
                backend: "github".to_owned(),
                state,
                reason: reason.map(str::to_owned),
                retry_after: seconds.map(Duration::from_secs),
            }
            .to_string()
        };
        assert_eq!(
            failure("backoff", Some("exited with code 1: missing GITHUB_TOKEN"), Some(8)),
            "github: not running (exited with code 1: missing GITHUB_TOKEN); next attempt in 8 s"
        );
        assert_eq!(
            failure("disabled", None, None),
            "github: not running (disabled); mcp-broker gateway restart starts it"
        );
    }
}
