//! `resources/read`.

use std::{borrow::Cow, rc::Rc};

use actors::model::BrokerError;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::mcp::{
    context::PeerContext,
    lists::cacheable,
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
pub(super) fn read_resource(context: &Rc<PeerContext>, to: &ReplyTo, params: &Params<'_>) -> Result<(), RpcError> {
    let UriParams { uri } = params.parse()?;
    let allowed = context.identity.check_scope(resources::required_scope(&uri));
    allowed.map_err(|error| RpcError::refused(&error))?;
    let caller = ToolCaller::new(context);
    if uri == INBOX && caller.session.is_none() {
        return Err(no_own_inbox());
    }
    let (uri, again) = (uri.into_owned(), to.clone());
    context.run_in_order(to, uri.len(), async move {
        match read(&caller, &uri, again.modern).await {
            Ok(result) => again.result(&caller.context.outbox, with_era_members(result, again.modern)),
            Err(error) => caller.context.fail(&again, &error),
        }
    });
    Ok(())
}

async fn read(caller: &ToolCaller, uri: &str, is_modern: bool) -> Result<Value, RpcError> {
    let inbox = resources::session_of_inbox(caller, uri);
    if let Some(refreshing) = inbox.and_then(|member| caller.project().refresh_waiting_if_unknown(&member)) {
        refreshing.await;
    }
    let found = resources::read(caller, uri).answer().await;
    let found = found.map_err(|error| RpcError::refused(&error))?;
    let content = found.ok_or_else(|| no_resource(uri, is_modern))?;
    Ok(cacheable(json!({"contents": [content]}), 0, "private"))
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
