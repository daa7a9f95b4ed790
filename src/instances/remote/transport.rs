//! The transports over HTTP, and how a client session over one of them ends.

use std::{fmt, sync::Arc};

use actors::{gateway::LinkEnded, model::BackendEra};

/// How messages go to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP.
    Streamable(BackendEra),
    /// HTTP+SSE: messages are posted to an address that the first event of a stream names, and all answers come in that
    /// stream.
    Sse,
}

impl Transport {
    /// The era that is spoken over it.
    pub fn era(self) -> BackendEra {
        match self {
            Self::Streamable(era) => era,
            Self::Sse => BackendEra::Legacy,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Streamable(BackendEra::Modern) => "server/discover",
            Self::Streamable(BackendEra::Legacy) => "initialize",
            Self::Sse => "HTTP+SSE",
        })
    }
}

/// How a client session has ended.
pub enum Held {
    /// It ended in the usual way; another one may be started.
    Ended(Arc<LinkEnded>),
    /// The server speaks, but not over this transport: what it answered.
    OtherTransport(String),
    /// The server refuses the broker, and will again.
    Refused(String),
}

/// What follows when a handshake has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failed {
    #[default]
    TryLater,
    OtherTransport,
    Refused,
}
