use actors::storage::StoreError;
use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

use super::settings::Place;

/// Why Redis cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error("the Redis URL cannot be used: {0}")]
    Url(&'static str),
    #[error("Redis at {place} cannot be reached: {reason}")]
    Unreachable { place: String, reason: String },
    #[error("Redis at {place} refuses the user or the password")]
    Refused { place: String },
    #[error("the data in Redis is of schema version {found}, and this build knows {known}: {}", run_instead(*found, *known))]
    Schema { found: i64, known: i64 },
}

const fn run_instead(found: i64, known: i64) -> &'static str {
    if found > known {
        "run a newer one"
    } else {
        "run the older one, or begin with an empty database"
    }
}

impl ConnectError {
    pub(super) fn of(place: &Place, failure: Failure) -> Self {
        let place = place.to_string();
        let (Failure::Full(why) | Failure::Refused(why) | Failure::Unheard(why) | Failure::Wrong(why)) = failure else {
            let reason = "it forgets its functions".to_owned();
            return Self::Unreachable { place, reason };
        };
        if SIGNS_OF_A_PASSWORD.iter().any(|sign| why.contains(sign)) {
            return Self::Refused { place };
        }
        Self::Unreachable { place, reason: why }
    }
}

/// What servers, and the client, say of users and passwords that will not do.
const SIGNS_OF_A_PASSWORD: [&str; 5] = [
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
    Full(String),
    /// The server does not know the functions yet. Nothing was carried out.
    NoFunction,
    /// It was not carried out: the server is not one that does, or not now.
    Refused(String),
    /// It may have been carried out, and nobody will say.
    Unheard(String),
    /// The server did not like the command.
    Wrong(String),
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
            ErrorKind::Server(_) | ErrorKind::Extension => Self::said(error.code().unwrap_or_default(), text),
            ErrorKind::Io if error.is_connection_refusal() => Self::Refused(text),
            ErrorKind::Io => Self::Unheard(text),
            _ => Self::Wrong(text),
        }
    }

    /// What an error that the server worded so means.
    pub fn said(code: &str, text: String) -> Self {
        match code {
            _ if text.contains("Function not found") => Self::NoFunction,
            "OOM" => Self::Full("Redis is out of memory".to_owned()),
            "READONLY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "MISCONF" | "NOREPLICAS" | "BUSY" | "NOAUTH"
            | "WRONGPASS" => Self::Refused(text),
            _ => Self::Wrong(text),
        }
    }

    /// Whether the server, or the way to it, is at fault, and not what it was asked.
    pub const fn is_of_the_server(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Unheard(_))
    }

    pub fn reason(&self) -> &str {
        match self {
            Self::Full(why) | Self::Refused(why) | Self::Unheard(why) | Self::Wrong(why) => why,
            Self::NoFunction => "Redis forgets its functions",
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Full(why) => Self::Full(why),
            other => Self::Unreachable(other.reason().to_owned()),
        }
    }
}
