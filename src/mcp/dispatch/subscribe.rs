//! Subscriptions, in both eras.

use std::{rc::Rc, sync::Arc};

use actors::model::Scope;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[cfg(feature = "conformance-fixtures")]
use crate::mcp::fixtures;

use super::{LISTS_CHANGE, UriParams, looking::looks_first, no_resource, tool_calls::ensure_session};
use crate::mcp::{
    context::{PeerContext, PeerKind},
    list_changes::List,
    read_batch::ReadBatch,
    reply::ReplyTo,
    resources,
    rpc::{INVALID_REQUEST, Params, RpcError},
    subscriptions::{INBOX, Notifier, OpenListen},
    tasks::{self, Task},
    tools::{JsonObject, ToolCaller},
    version::PushSettings,
};

/// Listens that one connection may have open.
const LISTENS_LEN_MAX: usize = 64;
/// Tasks that one listen may tell of.
const TASKS_LEN_MAX: usize = 256;

/// Whether this URI is the inbox of the connection's session. A stateless caller names a session by it.
fn is_own_inbox(turn: &ReadBatch, uri: &str) -> bool {
    let context = &turn.context;
    if uri == INBOX {
        return context.kind != PeerKind::Stateless;
    }
    let Some(id) = resources::inbox_session_id(uri) else {
        return false;
    };
    let mut session = context.session.borrow_mut();
    if context.kind == PeerKind::Stateless && session.is_none() {
        *session = context.project.own_session(id, context.identity.owner()).ok();
    }
    session.as_ref().is_some_and(|member| member.record.id == id.durable())
}

/// Messages may be pushed to who listens to an inbox, and count as delivered then: that is more than to look.
fn check_listener(turn: &ReadBatch) -> Result<(), RpcError> {
    let allowed = turn.context.identity.check_scope(Scope::Member);
    allowed.map_err(|error| RpcError::refused(&error))
}

pub(super) fn subscribe_legacy(
    turn: &mut ReadBatch,
    to: &mut ReplyTo,
    params: &Params<'_>,
    text: &str,
    on: bool,
) -> Result<(), RpcError> {
    let UriParams { uri } = params.read()?;
    #[cfg(feature = "conformance-fixtures")]
    if fixtures::resources::is_subscribable(&uri) {
        to.result(&turn.context.outbox, &json!({}));
        return Ok(());
    }
    if !is_own_inbox(turn, &uri) {
        let error = if resources::exists(&ToolCaller::new(&turn.context), &uri) {
            RpcError::invalid_params(format!("only {INBOX} tells of its changes"))
        } else {
            no_resource(&uri, false)
        };
        return Err(error);
    }
    if on {
        check_listener(turn)?;
    }
    if on && ensure_session(turn, to, text) {
        return Ok(());
    }
    let context = &turn.context;
    if on {
        context.subscriptions.borrow_mut().subscribe_legacy(uri.into_owned());
    } else {
        context.subscriptions.borrow_mut().unsubscribe_legacy(&uri);
    }
    // The answer first: nothing of a subscription comes before it.
    to.result(&context.outbox, &json!({}));
    context.apply_subscriptions();
    Ok(())
}

pub(super) fn listen(
    turn: &mut ReadBatch,
    to: &mut ReplyTo,
    params: &Params<'_>,
    capabilities: &Map<String, Value>,
    text: &str,
) -> Result<(), RpcError> {
    let ListenParams {
        notifications: JsonObject(filter),
    } = params.read()?;
    let push = PushSettings::parse(capabilities.get("extensions"))?;
    if filter.task_ids.is_some() && !to.takes_tasks {
        return Err(tasks::extension_not_declared());
    }
    check_room(turn, to)?;
    let is_unknown = |uri: &String| {
        let named = resources::inbox_session_id(uri).filter(|_| turn.context.kind == PeerKind::Stateless);
        named.is_some_and(|id| turn.context.project.session(id).is_none())
    };
    if filter.resource_subscriptions.iter().any(is_unknown)
        && looks_first(turn, to, text).map_err(|error| RpcError::refused(&error))?
    {
        return Ok(());
    }
    let mut uris = filter.resource_subscriptions.iter();
    let inbox = uris.find(|uri| is_own_inbox(turn, uri)).cloned();
    if inbox.is_some() {
        check_listener(turn)?;
    }
    if inbox.is_some() && ensure_session(turn, to, text) {
        return Ok(());
    }
    let context = &turn.context;
    let tasks = filter.tasks(context);
    let lists = filter.lists();
    to.notify(
        &context.outbox,
        &acknowledgement(&to.id, inbox.as_ref(), tasks.as_deref(), &lists),
    );
    let pushes = inbox.is_some() && push.is_some();
    let listen = OpenListen {
        id: Rc::clone(&to.id),
        inbox,
        push,
        notifiers: spawn_notifiers(context, &to.id, tasks.unwrap_or_default(), lists),
    };
    context.subscriptions.borrow_mut().listen(listen);
    // Before the session may tell of anything the outbox knows how.
    context.apply_subscriptions();
    if context.bind(pushes) {
        context.apply_subscriptions();
    }
    Ok(())
}

#[derive(Deserialize)]
struct ListenParams {
    notifications: JsonObject<Filter>,
}

/// What a listen asks for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Filter {
    #[serde(default)]
    resource_subscriptions: Vec<String>,
    task_ids: Option<Vec<String>>,
    tools_list_changed: Option<bool>,
    prompts_list_changed: Option<bool>,
    #[serde(rename = "resourcesListChanged")]
    _resources_list_changed: Option<bool>,
}

impl Filter {
    /// Those of the tasks that there are; None when none is asked for.
    fn tasks(&self, context: &PeerContext) -> Option<Vec<Arc<Task>>> {
        let known = |id: &String| context.service.tasks.find(&context.identity, id).ok();
        let ids = self.task_ids.as_ref()?;
        Some(ids.iter().take(TASKS_LEN_MAX).filter_map(known).collect())
    }

    fn lists(&self) -> Vec<List> {
        let asked = |list: &List| match list {
            List::Tools => self.tools_list_changed,
            List::Prompts => self.prompts_list_changed,
        };
        let honored = |list: &List| LISTS_CHANGE && asked(list) == Some(true);
        List::ALL.into_iter().filter(honored).collect()
    }
}

fn check_room(turn: &ReadBatch, to: &ReplyTo) -> Result<(), RpcError> {
    let subscriptions = turn.context.subscriptions.borrow();
    if subscriptions.has_listen(&to.id) {
        return Err(RpcError::new(INVALID_REQUEST, "Invalid Request: this id is in use"));
    }
    if subscriptions.listens_len() >= LISTENS_LEN_MAX {
        let message = "Invalid Request: too many open subscriptions";
        return Err(RpcError::new(INVALID_REQUEST, message));
    }
    Ok(())
}

/// The first frame of a subscription: what of its filter is honored.
fn acknowledgement(id: &str, inbox: Option<&String>, tasks: Option<&[Arc<Task>]>, lists: &[List]) -> Vec<u8> {
    let mut honored = Map::new();
    if let Some(uri) = inbox {
        honored.insert("resourceSubscriptions".to_owned(), json!([uri]));
    }
    if let Some(tasks) = tasks {
        let ids: Vec<_> = tasks.iter().map(|task| task.id()).collect();
        honored.insert("taskIds".to_owned(), json!(ids));
    }
    for list in lists {
        honored.insert(list.filter().to_owned(), json!(true));
    }
    let honored = Value::Object(honored);
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{{\"_meta\":\
         {{\"io.modelcontextprotocol/subscriptionId\":{id}}},\"notifications\":{honored}}}}}"
    )
    .into_bytes()
}

/// What tells a subscription of tasks and of lists.
fn spawn_notifiers(context: &PeerContext, id: &Rc<str>, tasks: Vec<Arc<Task>>, lists: Vec<List>) -> Vec<Notifier> {
    let sender = || {
        let outbox = Arc::clone(&context.outbox);
        move |frame: &[u8]| outbox.send(frame)
    };
    let of_tasks = tasks
        .into_iter()
        .map(|task| actix_rt::spawn(task.notify(Rc::clone(id), sender())));
    let of_lists = lists
        .into_iter()
        .map(|list| actix_rt::spawn(context.service.lists.notify(list, id, sender())));
    of_tasks
        .chain(of_lists)
        .map(|telling| Notifier(telling.abort_handle()))
        .collect()
}
