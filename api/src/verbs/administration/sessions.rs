//! Ends sessions: an administrator any of its project, a member its own.

use std::sync::Arc;

use actors::{
    model::{BrokerError, MissingSession, Scope, SessionId},
    session::Member,
};
use rest::sessions::{EndedSession, SessionEnd};

use super::{Administration, Result, audited_action};
use crate::auth::Identity;

impl Administration {
    /// Disconnects a session: its live connection at this replica is closed, name and inbox stay. Returns whether it
    /// was connected here. Requires the scope `admin`, or `member` for a session of the caller.
    ///
    /// # Errors
    /// `forbidden`, `session_not_found`, or `unavailable` when the storage fails.
    pub async fn disconnect_session(&self, by: &Arc<Identity>, address: &str) -> Result<(EndedSession, bool)> {
        let found = session_to_end(by, address).await;
        let act = audited_action("session.disconnect", by.project.id(), Some(target(&found, address)));
        let member = self.audit_refusal(by, &act, found)?;
        let project = by.project.clone();
        self.audited(by, act, Ok(()), async move |_| {
            let (was_connected, waiting) = project.close_connection(&member).await?;
            let view = EndedSession {
                session_id: member.record.id.to_string(),
                queue_size: Some(waiting),
                ..EndedSession::default()
            };
            Ok((view, was_connected))
        })
        .await
    }

    /// Ends a session for good: its messages become dead letters (`recipient_gone`), and its name is free. Requires the
    /// scope `admin`, or `member` for a session of the caller.
    ///
    /// # Errors
    /// As [`Self::disconnect_session`].
    pub async fn forget_session(&self, by: &Arc<Identity>, address: &str) -> Result<EndedSession> {
        let found = session_to_end(by, address).await;
        let act = audited_action("session.forget", by.project.id(), Some(target(&found, address)));
        let session = self.audit_refusal(by, &act, found)?.record.id;
        let project = by.project.clone();
        self.audited(by, act, Ok(()), async move |_| {
            let dead_letters = project.forget_session(session).await?;
            Ok(EndedSession {
                session_id: session.to_string(),
                status: SessionEnd::Ended,
                dead_letters: Some(dead_letters),
                ..EndedSession::default()
            })
        })
        .await
    }
}

async fn session_to_end(by: &Identity, address: &str) -> Result<Arc<Member>> {
    by.check_scope(Scope::Member)?;
    let is_admin = by.scope() >= Scope::Admin;
    if let Some(id) = SessionId::parse(address).filter(|_| !is_admin) {
        let own = by.project.own_session(id, by.owner()).answer().await;
        return own.map_err(|error| match error {
            BrokerError::InvalidArgument { .. } => BrokerError::forbidden(
                "an id from a list ends a session only with the scope admin: use its name, or the session_id that its \
                 registration returned",
            ),
            error => error,
        });
    }
    let member = by.project.resolve(address).answer().await?;
    if !is_admin && member.record.owner != *by.owner() {
        // As everywhere, a session of another key looks like a missing one to callers that want to act as it.
        return Err(MissingSession::own(address).into());
    }
    Ok(member)
}

/// The id of the session, or else what the caller called it.
fn target(found: &Result<Arc<Member>>, address: &str) -> String {
    found
        .as_ref()
        .map_or_else(|_| address.to_owned(), |member| member.record.id.to_string())
}
