//! What the broker says of itself to a client that is shown backends: their instructions, and that its lists change.

use std::rc::Rc;

use actors::{
    gateway::{GatewayShared, ListRevisions, Offered},
    model::Scope,
};
use serde_json::{Value, json};

use crate::mcp::{
    backend_instructions,
    client::Exposure,
    context::PeerContext,
    handshake::{
        ALREADY_INITIALIZED, Introduction, discover_result, initialize_result, with_changing_lists, with_name,
    },
    list_changes::List,
    rpc::{INVALID_REQUEST, Params, RpcError},
    subscriptions::Notifier,
    tasks,
    version::Initialized,
};
use common::json::frame::{self, NO_PARAMS};

/// The result of `server/discover`.
pub fn discover(context: &PeerContext) -> Value {
    let result = introduced(context, discover_result());
    let name = context
        .binding
        .with_member(|member| member.record.name.clone())
        .flatten();
    match name.filter(|_| context.exposure.has_own()) {
        Some(name) => with_name(result, name.as_str()),
        None => result,
    }
}

/// Serves `initialize`: notes what the client agrees to. From then on it gets notifications of changed lists.
///
/// # Errors
/// Those of the params, and for a client that is initialized.
pub fn initialize(context: &Rc<PeerContext>, params: &Params<'_>) -> Result<Value, RpcError> {
    if context.legacy.is_initialized() {
        return Err(RpcError::new(INVALID_REQUEST, ALREADY_INITIALIZED));
    }
    let Introduction {
        version,
        push,
        capabilities,
        client,
    } = Introduction::parse(params, context.exposure == Exposure::Backends)?;
    context.set_client(client);
    context.legacy.initialize(Initialized {
        version,
        push,
        capabilities: Value::Object(capabilities).to_string().into(),
    });
    context.apply_subscriptions();
    if let Some(gateway) = context.project.gateway()
        && context.exposure.has_backends()
        && context.identity.check_scope(Scope::Member).is_ok()
    {
        context
            .list_notifier
            .replace(Some(notify_of_lists(context, gateway.shared())));
    }
    Ok(introduced(context, initialize_result(version)))
}

fn introduced(context: &PeerContext, mut result: Value) -> Value {
    let gateway = context.project.gateway().filter(|_| context.exposure.has_backends());
    let Some(gateway) = gateway else { return result };
    // Not every caller may use the backends.
    if let Some(scope) = result.get_mut("cacheScope").filter(|_| gateway.has_backends()) {
        *scope = json!("private");
    }
    let mut result = with_changing_lists(result);
    let capabilities = &mut result["capabilities"];
    let of_backends = backend_instructions::of_shown(&context.identity, &context.exposure);
    if context.exposure.has_own() {
        let own = result["instructions"].as_str().unwrap_or_default();
        result["instructions"] = json!(backend_instructions::after_own(own, &of_backends));
        return result;
    }
    let offered = gateway.shared().offered();
    let only = context.exposure.only_backend(&offered);
    if let Some(capabilities) = capabilities.as_object_mut() {
        capabilities.remove("experimental");
        let had_extensions = capabilities.remove("extensions").is_some();
        if had_extensions && has_tasks(&offered, only) {
            capabilities.insert("extensions".to_owned(), json!({tasks::EXTENSION: {}}));
        }
    }
    if of_backends.is_empty() {
        drop(result.as_object_mut().and_then(|result| result.remove("instructions")));
    } else {
        result["instructions"] = json!(of_backends);
    }
    result
}

/// Whether a backend declares tasks: the one at a position, or any.
fn has_tasks(offered: &Offered, only: Option<usize>) -> bool {
    let shown = match only {
        Some(at) => offered.backends.get(at..=at).unwrap_or_default(),
        None => &offered.backends,
    };
    shown.iter().any(|backend| {
        let view = backend.view();
        view.server.as_deref().is_some_and(tasks::is_declared_by)
    })
}

/// Starts to tell a legacy client of changes of the lists that it is shown.
fn notify_of_lists(context: &PeerContext, gateway: &GatewayShared) -> Notifier {
    let mut revisions = gateway.revisions();
    let only = context.exposure.backend().cloned();
    let mut seen = revisions.borrow_and_update().of(only.as_ref());
    let outbox = std::sync::Arc::clone(&context.outbox);
    let task = actix_rt::spawn(async move {
        while revisions.changed().await.is_ok() {
            let now = revisions.borrow_and_update().of(only.as_ref());
            for list in List::ALL {
                if revision_of(list, &now) != revision_of(list, &seen) {
                    let method = list.notification();
                    outbox.send(frame::notification(method, NO_PARAMS));
                }
            }
            seen = now;
        }
    });
    Notifier(task.abort_handle())
}

/// How often a list of the backends has changed.
pub fn revision_of(list: List, revisions: &ListRevisions) -> u64 {
    match list {
        List::Tools => revisions.tools,
        List::Prompts => revisions.prompts,
        List::Resources => revisions.resources,
    }
}
