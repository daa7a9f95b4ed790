//! What is unknown here may only have come to be on another replica: it is looked for before anybody hears that there
//! is no such thing.

use std::{collections::BTreeSet, rc::Rc};

use actors::{
    model::{BrokerError, ProjectId, SessionId},
    session::Member,
};

use super::tool_calls::{acts_as_session, ensure_session};
use crate::mcp::{
    context::PeerContext,
    read_batch::ReadBatch,
    reply::{ReplyRoute, ReplyTo},
    rpc::{self, Incoming},
    scan,
};

/// Whether a frame that named something unknown is held back until it is known what other replicas have done, and
/// taken up again then. False where that was done (for a batch it always was), or where there are no others.
///
/// # Errors
/// `unavailable`, if it was tried and could not be found out: whoever could not look does not know what there is.
pub(super) fn looks_first(turn: &mut ReadBatch, to: &ReplyTo, text: &str) -> Result<bool, BrokerError> {
    if !turn.context.project.is_shared() {
        return Ok(false);
    }
    if let Some(looked) = &*turn.context.caught_up.borrow() {
        return looked.clone().map(|()| false);
    }
    let context = Rc::clone(&turn.context);
    let abroad = named_abroad(text);
    let looking = async move {
        let looked = context.project.wait_until_current_with(&abroad).await;
        context.caught_up.replace(Some(looked));
    };
    turn.run_exclusively(to, looking, Some(text));
    Ok(true)
}

/// Why a call is refused; None when it is held back instead.
pub(super) fn after_news(turn: &mut ReadBatch, to: &ReplyTo, error: BrokerError, text: &str) -> Option<BrokerError> {
    let is_missing = matches!(
        error,
        // Of a session that was taken over elsewhere the newest id is known there.
        BrokerError::SessionNotFound(_)
            | BrokerError::SessionTakenOver
            | BrokerError::ProtocolNotFound { .. }
            | BrokerError::IncompatibleProtocol { .. }
    );
    if !is_missing {
        return Some(error);
    }
    match looks_first(turn, to, text) {
        Ok(true) => None,
        Ok(false) => Some(error),
        Err(unavailable) => Some(unavailable),
    }
}

/// Whether a batch waits for what has to be done before any of it is: one element cannot be taken up again later, the
/// whole can.
pub(in crate::mcp) fn holds_back(turn: &mut ReadBatch, batch: &str, frames: &[&str], route: &ReplyRoute) -> bool {
    let to = ReplyTo::new("null", route.clone());
    if frames.iter().any(|frame| acts_as_session(frame)) && ensure_session(turn, &to, batch) {
        return true;
    }
    // That it failed is told to those who named something unknown.
    looks_first(turn, &to, batch).unwrap_or(false)
}

/// Runs `then` for one of the caller's own sessions: at once when it is known here, else when it is. Nobody is told
/// when there is none.
pub(super) fn with_session(context: &PeerContext, id: SessionId, then: impl FnOnce(&Member) + 'static) {
    let (project, identity) = (context.project.clone(), context.identity.clone());
    match project.own_session(id, identity.owner()) {
        Ok(member) => then(&member),
        Err(_) if project.is_shared() => drop(actix_rt::spawn(async move {
            if project.wait_until_current().await.is_ok()
                && let Ok(member) = project.own_session(id, identity.owner())
            {
                then(&member);
            }
        })),
        Err(_) => {}
    }
}

/// The other projects to which a frame, or those of a batch, wants to send.
fn named_abroad(frame: &str) -> BTreeSet<ProjectId> {
    match rpc::parse(frame) {
        Ok(Incoming::Request { params, .. }) => {
            let recipient = params.members.iter().find(|(name, _)| name == "recipient_id");
            let address = recipient.and_then(|(_, value)| scan::string(value));
            let project = address.and_then(|address| ProjectId::parse(address.rsplit_once('@')?.1).ok());
            project.into_iter().collect()
        }
        Ok(Incoming::Batch(frames)) => frames.into_iter().flat_map(named_abroad).collect(),
        _ => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_projects_that_a_frame_names_are_those_it_sends_to() {
        let sends = |to: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"send_message","arguments":{{"recipient_id":"{to}"}}}}}}"#
            )
        };
        let named = |frame: &str| -> Vec<_> { named_abroad(frame).iter().map(ToString::to_string).collect() };
        assert_eq!(named(&sends("bob@there")), ["there"]);
        assert_eq!(named(&sends("b\\u006fb@a@b")), ["b"]);
        assert!(named(&sends("bob")).is_empty());
        assert!(named(&sends("bob@no such")).is_empty());
        let batch = format!(
            "[{},{},1,{},{}]",
            sends("a@x"),
            sends("b@y"),
            sends("c@x"),
            r#"{"jsonrpc":"2.0","method":"ping"}"#
        );
        assert_eq!(named(&batch), ["x", "y"]);
    }
}
