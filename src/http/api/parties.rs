//! Senders and recipients of messages: as a query names them, and as an answer shows them.

use actors::{
    model::{BrokerError, SessionId},
    project::{Party, ProjectHandle},
};
use serde::Serialize;
use utoipa::ToSchema;

/// The session of this id or name. An id may be that of a session that has ended.
///
/// # Errors
/// `session_not_found` for a name that no session has.
pub async fn parse_session(project: &ProjectHandle, address: &str) -> Result<SessionId, BrokerError> {
    match SessionId::parse(address) {
        Some(id) => Ok(id.durable()),
        None => Ok(project.resolve(address).answer().await?.record.id),
    }
}

/// A sender or a recipient.
#[derive(Serialize, ToSchema)]
#[schema(as = Party)]
pub struct PartyView<'a> {
    /// Null for recipients of broadcasts that have ended since.
    #[schema(required, format = "uuid")]
    session_id: Option<String>,
    #[schema(required)]
    name: Option<&'a str>,
}

impl<'a> PartyView<'a> {
    /// The view of a sender or a recipient.
    pub fn of(party: &'a Party) -> Self {
        Self {
            session_id: party.id.map(|id| id.to_string()),
            name: party.name.as_deref(),
        }
    }
}
