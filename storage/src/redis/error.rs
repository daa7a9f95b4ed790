//! Errors of Redis: why the storage cannot be opened, and why a command had no usable answer.

use std::fmt;

use actors::storage::StoreError;
use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

/// Why the storage cannot be opened. Texts have one line and no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The URL cannot be read.
    #[error("the Redis URL cannot be used: {0}")]
    Url(&'static str),
    /// No server answered in time, or none that can be used.
    #[error("Redis at {endpoint} cannot be reached: {reason}")]
    Unreachable { endpoint: String, reason: String },
    /// The user or the password is wrong.
    #[error("Redis at {endpoint} refuses the user or the password")]
    Refused { endpoint: String },
    /// Another version of the broker wrote the data.
    #[error("the data in Redis have schema version {found}, and this build knows {known}: {}", schema_advice(*found, *known))]
    Schema { found: i64, known: i64 },
}

const fn schema_advice(found: i64, known: i64) -> &'static str {
    if found > known {
        "run a newer one"
    } else {
        "run the older one, or begin with an empty database"
    }
}

impl ConnectError {
    /// The error of connecting to an endpoint.
    pub(super) fn of(endpoint: &impl fmt::Display, failure: Failure) -> Self {
        let endpoint = endpoint.to_string();
        let (Failure::OutOfMemory(why) | Failure::Refused(why) | Failure::NoReply(why) | Failure::Unexpected(why)) =
            failure
        else {
            let reason = "the server lost the function library".to_owned();
            return Self::Unreachable { endpoint, reason };
        };
        if AUTHENTICATION_ERRORS.iter().any(|sign| why.contains(sign)) {
            return Self::Refused { endpoint };
        }
        Self::Unreachable { endpoint, reason: why }
    }
}

/// Parts of the texts by which servers, and the client, refuse a user or a password.
const AUTHENTICATION_ERRORS: [&str; 5] = [
    "WRONGPASS",
    "NOAUTH",
    "AuthenticationFailed",
    "invalid password",
    "Password authentication failed",
];

/// Why a command had no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server has no memory. Nothing was carried out.
    OutOfMemory(String),
    /// The server does not know the function library. Nothing was carried out.
    LibraryMissing,
    /// The server does not carry out commands, or not now. Nothing was carried out.
    Refused(String),
    /// No answer came. The command may have been carried out.
    NoReply(String),
    /// The server refused the command, or its answer has another form.
    Unexpected(String),
}

impl Failure {
    /// Classifies an error of the client.
    pub fn of(error: &RedisError) -> Self {
        use ServerErrorKind as Kind;
        let text = error.to_string();
        match error.kind() {
            ErrorKind::Server(
                Kind::ReadOnly
                | Kind::BusyLoading
                | Kind::MasterDown
                | Kind::ClusterDown
                | Kind::TryAgain
                | Kind::Moved
                | Kind::Ask,
            )
            | ErrorKind::ClusterConnectionNotFound
            | ErrorKind::AuthenticationFailed
            | ErrorKind::MasterNameNotFoundBySentinel => Self::Refused(text),
            ErrorKind::Server(_) | ErrorKind::Extension => Self::from_server(error.code().unwrap_or_default(), text),
            ErrorKind::Io if error.is_connection_refusal() => Self::Refused(text),
            ErrorKind::Io => Self::NoReply(text),
            _ => Self::Unexpected(text),
        }
    }

    /// Classifies an error of the server by its code and text.
    pub fn from_server(code: &str, text: String) -> Self {
        match code {
            _ if text.contains("Function not found") => Self::LibraryMissing,
            "OOM" => Self::OutOfMemory("Redis is out of memory".to_owned()),
            "READONLY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "MISCONF" | "NOREPLICAS" | "BUSY" | "NOAUTH"
            | "WRONGPASS" => Self::Refused(text),
            _ => Self::Unexpected(text),
        }
    }

    /// Whether the server, or the connection to it, is at fault, and not the command.
    pub const fn is_server_fault(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::NoReply(_))
    }

    /// What the log and `/health` say.
    pub fn reason(&self) -> &str {
        match self {
            Self::OutOfMemory(why) | Self::Refused(why) | Self::NoReply(why) | Self::Unexpected(why) => why,
            Self::LibraryMissing => "Redis lost the function library",
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::OutOfMemory(why) => Self::Full(why),
            other => Self::Unreachable(other.reason().to_owned()),
        }
    }
}
