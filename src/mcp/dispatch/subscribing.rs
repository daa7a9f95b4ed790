//! Subscriptions, in both eras.

use std::{rc::Rc, sync::Arc};

use actors::model::SessionId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[cfg(feature = "conformance-fixtures")]
use crate::mcp::fixtures;

use super::{LISTS_CHANGE, Uri, calling::needs_session, no_resource};
use crate::mcp::{
    list_changes::List,
    reply::ReplyTo,
    resources,
    rpc::{INVALID_REQUEST, Params, RpcError},
    shared::Kind,
    subscriptions::{INBOX, Listen, Teller},
    tasks,
    tools::{Caller, Object},
    turn::Turn,
    version::PushSettings,
};

/// Listens that one connection may have open.
const LISTENS_LEN_MAX: usize = 64;
/// Tasks that one listen may tell of.
const TASKS_LEN_MAX: usize = 256;

/// Whether this URI is the inbox of the connection's session. A stateless caller names a session by it.
fn is_own_inbox(turn: &Turn, uri: &str) -> bool {
    let shared = &turn.shared;
    if uri == INBOX {
        return shared.kind != Kind::Stateless;
    }
    let Some(id) = uri
        .strip_prefix("broker://sessions/")
        .and_then(|rest| rest.strip_suffix("/inbox"))
        .and_then(SessionId::parse)
    else {
        return false;
    };
    let mut session = shared.session.borrow_mut();
    if shared.kind == Kind::Stateless && session.is_none() {
        *session = shared.project.session(id).ok();
    }
    session.as_ref().is_some_and(|member| member.record.id == id)
}

pub(super) fn subscribe_legacy(
    turn: &mut Turn,
    to: &mut ReplyTo,
    params: &Params<'_>,
    text: &str,
    on: bool,
) -> Result<(), RpcError> {
    let Uri { uri } = params.read()?;
    #[cfg(feature = "conformance-fixtures")]
    if fixtures::resources::is_watched(&uri) {
        to.result(&turn.shared.outbox, &json!({}));
        return Ok(());
    }
    if !is_own_inbox(turn, &uri) {
        let error = if resources::exists(&Caller::of(&turn.shared), &uri) {
            RpcError::invalid_params(format!("only {INBOX} tells of its changes"))
        } else {
            no_resource(&uri, false)
        };
        return Err(error);
    }
    if on && needs_session(turn, to, text) {
        return Ok(());
    }
    let shared = &turn.shared;
    if on {
        shared.subscriptions.borrow_mut().subscribe_legacy(uri.into_owned());
    } else {
        shared.subscriptions.borrow_mut().unsubscribe_legacy(&uri);
    }
    // The answer first: nothing of a subscription comes before it.
    to.result(&shared.outbox, &json!({}));
    shared.subscriptions_changed();
    Ok(())
}

pub(super) fn listen(
    turn: &mut Turn,
    to: &mut ReplyTo,
    params: &Params<'_>,
    capabilities: &Map<String, Value>,
    text: &str,
) -> Result<(), RpcError> {
    #[derive(Deserialize)]
    struct ListenParams {
        notifications: Object<Filter>,
    }
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
    let ListenParams {
        notifications: Object(wanted),
    } = params.read()?;
    let push = PushSettings::read(capabilities.get("extensions"))?;
    if wanted.task_ids.is_some() && !to.takes_tasks {
        return Err(tasks::undeclared());
    }
    let inbox = wanted
        .resource_subscriptions
        .into_iter()
        .find(|uri| is_own_inbox(turn, uri));
    {
        let subscriptions = turn.shared.subscriptions.borrow();
        if subscriptions.has_listen(&to.id) {
            return Err(RpcError::new(INVALID_REQUEST, "Invalid Request: this id is in use"));
        }
        if subscriptions.listens_len() >= LISTENS_LEN_MAX {
            return Err(RpcError::new(
                INVALID_REQUEST,
                "Invalid Request: too many open subscriptions",
            ));
        }
    }
    if inbox.is_some() && needs_session(turn, to, text) {
        return Ok(());
    }
    let shared = &turn.shared;
    let mut honored = Map::new();
    if let Some(uri) = &inbox {
        honored.insert("resourceSubscriptions".to_owned(), json!([uri]));
    }
    let project = shared.project.id();
    let tasks: Option<Vec<_>> = wanted.task_ids.map(|ids| {
        let ids = ids.iter().take(TASKS_LEN_MAX);
        ids.filter_map(|id| shared.service.tasks.find(project, id).ok())
            .collect()
    });
    if let Some(tasks) = &tasks {
        let ids: Vec<_> = tasks.iter().map(|task| task.id()).collect();
        honored.insert("taskIds".to_owned(), json!(ids));
    }
    let lists: Vec<_> = List::ALL
        .into_iter()
        .filter(|list| {
            let asked = match list {
                List::Tools => wanted.tools_list_changed,
                List::Prompts => wanted.prompts_list_changed,
            };
            LISTS_CHANGE && asked == Some(true)
        })
        .collect();
    for list in &lists {
        honored.insert(list.filter().to_owned(), json!(true));
    }
    let acknowledged = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{{\"_meta\":\
         {{\"io.modelcontextprotocol/subscriptionId\":{}}},\"notifications\":{}}}}}",
        to.id,
        Value::Object(honored)
    );
    to.notify(&shared.outbox, acknowledged.as_bytes());
    let sender = || {
        let outbox = Arc::clone(&shared.outbox);
        move |frame: &[u8]| outbox.send(frame)
    };
    let mut tellers = Vec::new();
    for task in tasks.into_iter().flatten() {
        let telling = actix_rt::spawn(task.notify(Rc::clone(&to.id), sender()));
        tellers.push(Teller(telling.abort_handle()));
    }
    for list in lists {
        let telling = actix_rt::spawn(shared.service.lists.notify(list, &to.id, sender()));
        tellers.push(Teller(telling.abort_handle()));
    }
    let pushes = inbox.is_some() && push.is_some();
    shared.subscriptions.borrow_mut().listen(Listen {
        id: Rc::clone(&to.id),
        inbox,
        push,
        tellers,
    });
    // Before the session may tell of anything the outbox knows how.
    shared.subscriptions_changed();
    if shared.tie(pushes) {
        shared.subscriptions_changed();
    }
    Ok(())
}
