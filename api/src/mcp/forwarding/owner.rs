//! How a backend's pool knows the caller of a call. It has three names for three purposes:
//!
//! - [`Caller::id`], a number: callers that wait take turns by it.
//! - [`owner_of`]: the owner of an instance that the project does not share. It is a part of the affinity of the call.
//! - [`learner_of`]: an instance that runs one call at a time, and has learnt something of a caller (an answer to a question),
//!   serves only this caller.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use actors::{
    gateway::CallerId,
    model::{SessionId, Sharing},
    session::Connection,
};
use uuid::Uuid;

use crate::mcp::{client::PeerKind, context::PeerContext};

/// A caller without the session that it acts as, which may become another one.
pub struct Caller {
    /// The path of its key.
    key: String,
    /// Its connection; `None` for a request that has none.
    connection: Option<u64>,
}

impl Caller {
    /// The caller of a peer.
    pub fn of(context: &PeerContext) -> Self {
        let has_connection = context.kind != PeerKind::Stateless;
        Self {
            key: context.identity.owner_path(),
            connection: has_connection.then(|| context.outbox.id().get()),
        }
    }

    /// Its owner: its key; or its session, if it acts as one, or else its connection. Requests without
    /// either belong to their key.
    pub fn owner(&self, sharing: Sharing, session: Option<SessionId>) -> Arc<str> {
        match (sharing, session, self.connection) {
            (Sharing::Session, Some(session), _) => format!("session {session}").into(),
            (Sharing::Session, None, Some(connection)) => format!("connection {connection}").into(),
            _ => self.key.as_str().into(),
        }
    }

    /// The number under which its calls take turns: that of its connection, because agents may share a key. Requests without
    /// a connection belong to their key.
    pub fn id(&self) -> CallerId {
        self.connection.unwrap_or_else(|| {
            let mut hasher = DefaultHasher::new();
            self.key.hash(&mut hasher);
            hasher.finish()
        })
    }
}

/// The caller of a peer, as an instance that has learnt something of it knows it: its session or its connection. A request
/// without either is a caller of its own.
pub fn learner_of(context: &PeerContext) -> Arc<str> {
    let caller = Caller::of(context);
    match (context.session_id(), caller.connection) {
        (None, None) => format!("request {}", Uuid::new_v4()).into(),
        (session, _) => caller.owner(Sharing::Session, session),
    }
}

/// The owner of the calls of a peer.
pub fn owner_of(context: &PeerContext, sharing: Sharing) -> Arc<str> {
    Caller::of(context).owner(sharing, context.session_id())
}
