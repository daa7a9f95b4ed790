//! `resources/read`.

use std::borrow::Cow;

use actors::{model::BrokerError, project::Lookup};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::mcp::{
    context::PeerContext,
    lists::cacheable,
    read_batch::{ReadBatch, Suspension},
    reply::{ReplyTo, with_era_members},
    resources::{self, SESSION_INBOX_TEMPLATE},
    rpc::{INVALID_PARAMS, Params, REFUSED, RESOURCE_NOT_FOUND, RpcError},
    subscriptions::INBOX,
    tools::ToolCaller,
};
use common::refusal::error_object;

/// Params that name a resource.
#[derive(Deserialize)]
pub(super) struct UriParams<'a> {
    /// The resource.
    #[serde(borrow)]
    pub uri: Cow<'a, str>,
}

/// Serves `resources/read`.
pub(super) fn read_resource(batch: &mut ReadBatch, to: &ReplyTo, params: &Params<'_>) -> Result<(), RpcError> {
    let UriParams { uri } = params.parse()?;
    let allowed = batch.context.identity.check_scope(resources::required_scope(&uri));
    allowed.map_err(|error| RpcError::refused(&error))?;
    let caller = ToolCaller::new(&batch.context);
    if uri == INBOX && caller.session.is_none() {
        return Err(no_own_inbox());
    }
    let inbox = resources::session_of_inbox(&caller, &uri);
    let refreshing = inbox.and_then(|member| caller.project.refresh_waiting_if_unknown(&member));
    let Some(refreshing) = refreshing else {
        return look_up(batch, to, &uri);
    };
    let uri = uri.into_owned();
    let again = to.clone();
    batch.suspend(&suspension(to, &uri), refreshing, move |batch, ()| {
        if let Err(error) = look_up(batch, &again, &uri) {
            again.error(&batch.context.outbox, &error);
        }
    });
    Ok(())
}

/// Reads the resource and answers, once it is known whether it exists.
fn look_up(batch: &mut ReadBatch, to: &ReplyTo, uri: &str) -> Result<(), RpcError> {
    let caller = ToolCaller::new(&batch.context);
    match resources::read(&caller, uri) {
        Lookup::Ready(found) => answer(&batch.context, to, uri, found),
        Lookup::Pending(found) => {
            let (again, uri) = (to.clone(), uri.to_owned());
            batch.suspend(&suspension(to, &uri), found.answer(), move |batch, found| {
                if let Err(error) = answer(&batch.context, &again, &uri, found) {
                    again.error(&batch.context.outbox, &error);
                }
            });
            Ok(())
        }
    }
}

fn answer(
    context: &PeerContext,
    to: &ReplyTo,
    uri: &str,
    found: Result<Option<Value>, BrokerError>,
) -> Result<(), RpcError> {
    let found = found.map_err(|error| RpcError::refused(&error))?;
    let content = found.ok_or_else(|| no_resource(uri, to.modern))?;
    let result = cacheable(json!({"contents": [content]}), 0, "private");
    to.result(&context.outbox, with_era_members(result, to.modern));
    Ok(())
}

fn suspension<'a>(to: &'a ReplyTo, uri: &str) -> Suspension<'a> {
    Suspension {
        to,
        receives_messages: false,
        bytes: uri.len(),
    }
}

/// The error for [`INBOX`] where the request has no session.
fn no_own_inbox() -> RpcError {
    let message = format!(
        "{INBOX} is the inbox of the session that a connection acts as, and this request has none: call \
         register_session and use {SESSION_INBOX_TEMPLATE} with the session_id that it returns"
    );
    RpcError::new(REFUSED, message).with_data(error_object(&BrokerError::SessionRequired))
}

/// The error for an unknown resource, the only one whose code differs between the eras (2026-07-28, server/resources,
/// Error Handling).
pub(super) fn no_resource(uri: &str, modern: bool) -> RpcError {
    let code = if modern { INVALID_PARAMS } else { RESOURCE_NOT_FOUND };
    RpcError::new(code, "Resource not found").with_data(json!({"uri": uri}))
}
