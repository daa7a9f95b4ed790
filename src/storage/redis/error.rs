use actors::storage::StoreError;
use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

use super::settings::RedisEndpoint;

/// Why Redis cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error("the Redis URL cannot be used: {0}")]
    Url(&'static str),
    #[error("Redis at {place} cannot be reached: {reason}")]
    Unreachable { place: String, reason: String },
    #[error("Redis at {place} refuses the user or the password")]
    Refused { place: String },
    #[error("the data in Redis is of schema version {found}, and this build knows {known}: {}", schema_advice(*found, *known))]
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
    pub(super) fn of(place: &RedisEndpoint, failure: Failure) -> Self {
        let place = place.to_string();
        let (Failure::OutOfMemory(why) | Failure::Refused(why) | Failure::NoReply(why) | Failure::Unexpected(why)) =
            failure
        else {
            let reason = "it forgets its functions".to_owned();
            return Self::Unreachable { place, reason };
        };
        if AUTHENTICATION_ERRORS.iter().any(|sign| why.contains(sign)) {
            return Self::Refused { place };
        }
        Self::Unreachable { place, reason: why }
    }
}

/// What servers, and the client, say of users and passwords that will not do.
const AUTHENTICATION_ERRORS: [&str; 5] = [
    "WRONGPASS",
    "NOAUTH",
    "AuthenticationFailed",
    "invalid password",
    "Password authentication failed",
];

/// Why a command had no good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It was not carried out, for want of memory.
    OutOfMemory(String),
    /// The server does not know the functions yet. Nothing was carried out.
    LibraryMissing,
    /// It was not carried out: the server is not one that does, or not now.
    Refused(String),
    /// It may have been carried out, and nobody will say.
    NoReply(String),
    /// The server did not like the command.
    Unexpected(String),
}

impl Failure {
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

    /// What an error that the server worded so means.
    pub fn from_server(code: &str, text: String) -> Self {
        match code {
            _ if text.contains("Function not found") => Self::LibraryMissing,
            "OOM" => Self::OutOfMemory("Redis is out of memory".to_owned()),
            "READONLY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "MISCONF" | "NOREPLICAS" | "BUSY" | "NOAUTH"
            | "WRONGPASS" => Self::Refused(text),
            _ => Self::Unexpected(text),
        }
    }

    /// Whether the server, or the way to it, is at fault, and not what it was asked.
    pub const fn is_server_fault(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::NoReply(_))
    }

    pub fn reason(&self) -> &str {
        match self {
            Self::OutOfMemory(why) | Self::Refused(why) | Self::NoReply(why) | Self::Unexpected(why) => why,
            Self::LibraryMissing => "Redis forgets its functions",
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
