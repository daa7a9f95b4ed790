//! To whom an instance of a backend belongs that not the whole project shares.

use std::sync::Arc;

use actors::{model::Sharing, session::Connection};

use crate::mcp::{binding::PeerKind, context::PeerContext};

/// The owner that a caller stands for: its key; or its session, if it acts as one, or else its connection. Requests without
/// either belong to their key.
pub fn owner_of(context: &PeerContext, sharing: Sharing) -> Arc<str> {
    let session = context
        .binding
        .with_member(|member| format!("session {}", member.record.id));
    let by_connection = || match context.kind {
        PeerKind::Stateless => context.identity.owner_path(),
        PeerKind::Connection | PeerKind::HttpSession => format!("connection {}", context.outbox.id().get()),
    };
    match sharing {
        Sharing::Project | Sharing::Key => context.identity.owner_path(),
        Sharing::Session => session.unwrap_or_else(by_connection),
    }
    .into()
}
