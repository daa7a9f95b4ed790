//! The session that a connection gets when a call needs one and none was registered.

use std::rc::Rc;

use actors::model::Scope;

use crate::mcp::context::PeerContext;

/// Whether a session has to be registered before a call that acts as one. Callers that may only observe get none.
pub(super) fn needs_session(context: &PeerContext) -> bool {
    context.binding.needs_session() && context.identity.check_scope(Scope::Member).is_ok()
}

/// Registers a session without a name if one is needed.
pub(super) async fn ensure_session(context: &Rc<PeerContext>) {
    if needs_session(context) {
        register_session(Rc::clone(context)).await;
    }
}

/// Registers a session without a name. If that fails, the calls of the connection are served without a session, and
/// those that need one report the error.
pub(super) async fn register_session(context: Rc<PeerContext>) {
    if let Err(error) = context.register_unnamed_session().await {
        tracing::warn!(%error, "a connection got no session of its own");
        context.binding.set_error(error);
    }
}
