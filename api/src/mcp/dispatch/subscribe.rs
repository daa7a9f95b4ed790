//! `resources/subscribe`, `resources/unsubscribe` and `subscriptions/listen`.

use std::{collections::BTreeSet, rc::Rc, sync::Arc};

use actors::{
    gateway::{AllRevisions, Profile},
    model::{BackendName, Scope, SessionId},
    project::Lookup,
};
use futures_util::future::pending;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::{
    backend_updates,
    introduction::revision_of,
    read_resource::{UriParams, no_resource},
};
use crate::mcp::{
    client::PeerKind,
    context::PeerContext,
    forwarding,
    list_changes::{List, notification_for, serves_fixtures},
    reply::ReplyTo,
    resources::{self, BACKENDS},
    rpc::{INVALID_REQUEST, Params, RpcError},
    subscriptions::{INBOX, Notifier, OpenListen, meta, updated_frame},
    tasks,
    tools::ToolCaller,
    version::{Era, PushSettings},
};
use common::json::{
    JsonObject,
    frame::{JsonText, notification},
};

#[cfg(feature = "conformance-fixtures")]
use crate::mcp::fixtures;

/// Listens that one connection may have open.
const LISTENS_LEN_MAX: usize = 64;
/// Resources and tasks of backends that one connection may subscribe to.
const WATCHED_LEN_MAX: usize = 256;
/// Tasks that one listen may watch.
const TASKS_LEN_MAX: usize = 256;

/// Whether this URI is the inbox of the peer's session. A stateless request chooses its session by it.
fn is_own_inbox(context: &PeerContext, uri: &str) -> bool {
    if !context.exposure.has_own() {
        return false;
    }
    if uri == INBOX {
        return context.kind != PeerKind::Stateless;
    }
    let Some(id) = resources::inbox_session_id(uri) else {
        return false;
    };
    if context.kind == PeerKind::Stateless
        && context.binding.member().is_none()
        && let Ok(member) = context.project.own_session(id, context.identity.owner()).known()
    {
        context.binding.set_member(member);
    }
    context.binding.with_member(|member| member.record.id == id.durable()) == Some(true)
}

/// A subscription to an inbox may receive messages, which delivers them; that needs more than the scope of an observer.
fn check_listener(context: &PeerContext) -> Result<(), RpcError> {
    let allowed = context.identity.check_scope(Scope::Member);
    allowed.map_err(|error| RpcError::refused(&error))
}

fn check_is_own_inbox(context: &Rc<PeerContext>, uri: &str) -> Result<(), RpcError> {
    if is_own_inbox(context, uri) {
        return Ok(());
    }
    Err(
        if context.exposure.has_own() && resources::exists(&ToolCaller::new(context), uri) {
            RpcError::invalid_params(format!(
                "only {INBOX}, {BACKENDS}, {BACKENDS}/NAME and resources of backends have subscriptions"
            ))
        } else {
            no_resource(uri, false)
        },
    )
}

/// Serves `resources/subscribe` (2025-11-25 and before).
pub(super) fn subscribe(context: &Rc<PeerContext>, to: &ReplyTo, params: &Params<'_>) -> Result<(), RpcError> {
    let UriParams { uri } = params.parse()?;
    #[cfg(feature = "conformance-fixtures")]
    if fixtures::resources::is_subscribable(&uri) {
        to.result(&context.outbox, "{}");
        return Ok(());
    }
    let capabilities = forwarding::carried_capabilities(context, &Era::Legacy);
    let profile = forwarding::profile_of(&capabilities);
    if let Some(notifier) = notifier_of(context, None, profile, &uri) {
        return add_legacy_resource(context, to, uri.into_owned(), notifier?);
    }
    check_is_own_inbox(context, &uri)?;
    check_listener(context)?;
    let (uri, shared, again) = (uri.into_owned(), Rc::clone(context), to.clone());
    context.run_in_order(to, uri.len(), async move {
        shared.ensure_session().await;
        add_legacy(&shared, &again, uri);
    });
    Ok(())
}

fn add_legacy_resource(context: &PeerContext, to: &ReplyTo, uri: String, notifier: Notifier) -> Result<(), RpcError> {
    let mut subscriptions = context.subscriptions.borrow_mut();
    if subscriptions.watched_len() >= WATCHED_LEN_MAX {
        let reason =
            format!("a connection subscribes to at most {WATCHED_LEN_MAX} resources: end another subscription");
        return Err(RpcError::invalid_params(reason));
    }
    // The answer first, as for the inbox: the notifier runs later.
    to.result(&context.outbox, "{}");
    subscriptions.subscribe_legacy_resource(uri, notifier);
    Ok(())
}

/// Starts the task that sends changes of a resource: the states of backends, or one that a backend has. `None` if it is
/// neither. `listen` is the id of the `subscriptions/listen` that asks for it, as JSON, and `profile` what its client can be asked
/// for.
///
/// # Errors
/// The backend has no subscriptions.
fn notifier_of(
    context: &PeerContext,
    listen: Option<&str>,
    profile: Profile,
    uri: &str,
) -> Option<Result<Notifier, RpcError>> {
    let (frame, outbox) = (updated_frame(listen, uri), Arc::clone(&context.outbox));
    let send = move || outbox.send(&*frame);
    let task = if let Some(notifying) = backend_updates::notify(context, uri, send.clone()) {
        actix_rt::spawn(notifying)
    } else {
        match forwarding::watch_resource(context, uri, profile, send)? {
            Ok(watching) => actix_rt::spawn(watching),
            Err(error) => return Some(Err(error)),
        }
    };
    Some(Ok(Notifier(task.abort_handle())))
}

fn add_legacy(context: &PeerContext, to: &ReplyTo, uri: String) {
    context.subscriptions.borrow_mut().subscribe_legacy(uri);
    // The answer first: no notification of a subscription may precede it.
    to.result(&context.outbox, "{}");
    context.apply_subscriptions();
}

/// Serves `resources/unsubscribe` (2025-11-25 and before).
pub(super) fn unsubscribe(context: &Rc<PeerContext>, to: &ReplyTo, params: &Params<'_>) -> Result<(), RpcError> {
    let UriParams { uri } = params.parse()?;
    #[cfg(feature = "conformance-fixtures")]
    if fixtures::resources::is_subscribable(&uri) {
        to.result(&context.outbox, "{}");
        return Ok(());
    }
    let was_subscribed = context.subscriptions.borrow_mut().unsubscribe_legacy(&uri);
    if !was_subscribed && notifier_of(context, None, Profile::NONE, &uri).is_none() {
        check_is_own_inbox(context, &uri)?;
    }
    to.result(&context.outbox, "{}");
    context.apply_subscriptions();
    Ok(())
}

/// Serves `subscriptions/listen` (2026-07-28).
pub(super) fn listen(
    context: &Rc<PeerContext>,
    to: &ReplyTo,
    params: &Params<'_>,
    capabilities: &Map<String, Value>,
) -> Result<(), RpcError> {
    let ListenParams {
        notifications: JsonObject(filter),
    } = params.parse()?;
    let push = PushSettings::parse(capabilities.get("extensions"))?;
    if filter.task_ids.is_some() && !to.takes_tasks {
        return Err(tasks::extension_not_declared());
    }
    check_capacity(context, to)?;
    let request = ListenRequest {
        filter,
        push,
        profile: forwarding::profile_of(capabilities),
    };
    let (shared, again) = (Rc::clone(context), to.clone());
    context.run_in_order(to, params.text.map_or(0, str::len), async move {
        if let Err(error) = request.begin(&shared, &again).await {
            shared.fail(&again, &error);
        }
    });
    Ok(())
}

/// Looks up the sessions that a stateless request names by the URIs of their inboxes.
fn look_up_sessions(context: &PeerContext, filter: &Filter) -> Lookup<Option<()>> {
    if context.kind != PeerKind::Stateless {
        return Lookup::Ready(Ok(Some(())));
    }
    let uris = filter.resource_subscriptions.iter();
    let ids: Vec<SessionId> = uris.filter_map(|uri| resources::inbox_session_id(uri)).collect();
    let project = context.project.clone();
    context
        .project
        .look_up_optional(move || ids.iter().all(|id| project.session(*id).is_some()).then_some(()))
}

/// A `subscriptions/listen` whose params have been checked.
struct ListenRequest {
    filter: Filter,
    push: Option<PushSettings>,
    /// What its client can be asked for.
    profile: Profile,
}

impl ListenRequest {
    /// Opens the listen, once the sessions that it names are known, and the connection has a session if it needs one.
    async fn begin(self, context: &Rc<PeerContext>, to: &ReplyTo) -> Result<(), RpcError> {
        let found = look_up_sessions(context, &self.filter).answer().await;
        found.map_err(|error| RpcError::refused(&error))?;
        let mut uris = self.filter.resource_subscriptions.iter();
        let inbox = uris.find(|uri| is_own_inbox(context, uri)).cloned();
        if inbox.is_some() {
            check_listener(context)?;
            context.ensure_session().await;
        }
        self.open(context, to, inbox);
        Ok(())
    }

    fn open(self, context: &PeerContext, to: &ReplyTo, inbox: Option<String>) {
        let Self { filter, push, profile } = self;
        let mut watched_len = context.subscriptions.borrow().watched_len();
        let before = watched_len;
        let tasks = filter.tasks(context, &to.id, &mut watched_len);
        let lists = filter.lists(context);
        let resources = filter.resources(context, &to.id, profile, &mut watched_len);
        let uris: Vec<&String> = inbox.iter().chain(resources.iter().map(|(uri, _)| *uri)).collect();
        to.notify(
            &context.outbox,
            acknowledgement(&to.id, &uris, tasks.as_deref(), &lists),
        );
        let watched = tasks.into_iter().flatten().chain(resources);
        let mut notifiers: Vec<_> = watched.map(|(_, notifier)| notifier).collect();
        notifiers.extend(list_notifiers(context, &to.id, lists));
        let pushes = inbox.is_some() && push.is_some();
        let listen = OpenListen {
            id: Rc::clone(&to.id),
            inbox,
            push,
            watched_len: watched_len - before,
            notifiers,
        };
        context.subscriptions.borrow_mut().listen(listen);
        // The outbox must know how to push before the session does.
        context.apply_subscriptions();
        if context
            .binding
            .bind_stateless(&context.project, &context.outbox, pushes)
        {
            context.apply_subscriptions();
        }
    }
}

#[derive(Deserialize)]
struct ListenParams {
    notifications: JsonObject<Filter>,
}

/// What a listen subscribes to.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Filter {
    #[serde(default)]
    resource_subscriptions: Vec<String>,
    task_ids: Option<Vec<String>>,
    tools_list_changed: Option<bool>,
    prompts_list_changed: Option<bool>,
    resources_list_changed: Option<bool>,
}

impl Filter {
    /// The existing tasks among the requested ones, with the source of their changes; `None` if none is requested. Those of
    /// backends are counted.
    fn tasks(
        &self,
        context: &PeerContext,
        listen: &Rc<str>,
        watched_len: &mut usize,
    ) -> Option<Vec<(&String, Notifier)>> {
        let mut notifier = |id: &String| {
            let own = context.service.tasks.find(&context.identity, id);
            let outbox = Arc::clone(&context.outbox);
            let task = if let Some(own) = own.ok().filter(|_| context.exposure.has_own()) {
                actix_rt::spawn(own.notify(Rc::clone(listen), outbox))
            } else {
                let is_free = *watched_len < WATCHED_LEN_MAX;
                let watching = is_free
                    .then(|| forwarding::watch_task(context, listen, id, outbox))
                    .flatten()?;
                *watched_len += 1;
                actix_rt::spawn(watching)
            };
            Some(Notifier(task.abort_handle()))
        };
        let ids = self.task_ids.as_ref()?.iter().take(TASKS_LEN_MAX);
        Some(ids.filter_map(|id| Some((id, notifier(id)?))).collect())
    }

    /// The requested resources of backends, and of their states, with the tasks that send their changes. They are counted.
    fn resources(
        &self,
        context: &PeerContext,
        listen: &str,
        profile: Profile,
        watched_len: &mut usize,
    ) -> Vec<(&String, Notifier)> {
        let uris = self.resource_subscriptions.iter().collect::<BTreeSet<_>>().into_iter();
        let notifiers = uris.filter_map(|uri| Some((uri, notifier_of(context, Some(listen), profile, uri)?.ok()?)));
        let notifiers: Vec<_> = notifiers.take(WATCHED_LEN_MAX.saturating_sub(*watched_len)).collect();
        *watched_len += notifiers.len();
        notifiers
    }

    /// The requested lists that can change.
    fn lists(&self, context: &PeerContext) -> Vec<List> {
        let requested = |list: &List| match list {
            List::Tools => self.tools_list_changed,
            List::Prompts => self.prompts_list_changed,
            List::Resources => self.resources_list_changed,
        };
        let has_backends = forwarding::lists_of(context).is_some();
        let honored = |list: &List| {
            let changes = has_backends || (serves_fixtures() && *list != List::Resources);
            changes && requested(list) == Some(true)
        };
        List::ALL.into_iter().filter(honored).collect()
    }
}

fn check_capacity(context: &PeerContext, to: &ReplyTo) -> Result<(), RpcError> {
    let subscriptions = context.subscriptions.borrow();
    if subscriptions.has_listen(&to.id) {
        return Err(RpcError::new(INVALID_REQUEST, "Invalid Request: this id is in use"));
    }
    if subscriptions.listens_len() >= LISTENS_LEN_MAX {
        let message = "Invalid Request: too many open subscriptions";
        return Err(RpcError::new(INVALID_REQUEST, message));
    }
    Ok(())
}

/// The first frame of a subscription: the part of its filter that is honored.
fn acknowledgement(
    id: &str,
    uris: &[&String],
    tasks: Option<&[(&String, Notifier)]>,
    lists: &[List],
) -> impl JsonText + use<> {
    let mut honored = Map::new();
    if !uris.is_empty() {
        honored.insert("resourceSubscriptions".to_owned(), json!(uris));
    }
    if let Some(tasks) = tasks {
        let ids: Vec<_> = tasks.iter().map(|(id, _)| id).collect();
        honored.insert("taskIds".to_owned(), json!(ids));
    }
    for list in lists {
        honored.insert(list.filter().to_owned(), json!(true));
    }
    let honored = Value::Object(honored);
    let params = format!("{{{}\"notifications\":{honored}}}", meta(Some(id)));
    notification("notifications/subscriptions/acknowledged", params)
}

/// Starts the tasks that notify a subscription about lists.
fn list_notifiers(context: &PeerContext, id: &Rc<str>, lists: Vec<List>) -> impl Iterator<Item = Notifier> {
    lists.into_iter().map(move |list| {
        let outbox = Arc::clone(&context.outbox);
        let send = move |frame: &[u8]| outbox.send(frame);
        let task = actix_rt::spawn(notify_of_list(context, list, notification_for(list, id), send));
        Notifier(task.abort_handle())
    })
}

/// Sends a notification at every later change of a list, of the broker or of its backends, until the future is dropped.
fn notify_of_list<S: Fn(&[u8])>(
    context: &PeerContext,
    list: List,
    frame: Vec<u8>,
    send: S,
) -> impl Future<Output = ()> + use<S> {
    let mut own = context.service.lists.changes(list);
    let mut backends = forwarding::lists_of(context).map(|shown| shown.gateway.revisions());
    let only = context.exposure.backend().cloned();
    let mut seen = backends
        .as_mut()
        .map(|revisions| revision_of(list, &revisions.borrow_and_update().of(only.as_ref())));
    async move {
        loop {
            let is_open = tokio::select! {
                changed = own.changed() => {
                    if changed.is_ok() {
                        send(&frame);
                    }
                    changed.is_ok()
                }
                now = next_revision(&mut backends, only.as_ref(), list) => {
                    if now != seen {
                        send(&frame);
                    }
                    seen = now;
                    now.is_some()
                }
            };
            if !is_open {
                return;
            }
        }
    }
}

/// The next revision of a list of the backends, or of one of them. Waits for ever without backends.
async fn next_revision(
    backends: &mut Option<watch::Receiver<AllRevisions>>,
    only: Option<&BackendName>,
    list: List,
) -> Option<u64> {
    let Some(revisions) = backends else {
        return pending().await;
    };
    revisions.changed().await.ok()?;
    Some(revision_of(list, &revisions.borrow_and_update().of(only)))
}
