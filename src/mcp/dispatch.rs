//! Methods: which there are, in which era, and what each does.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use actors::model::{BrokerError, SessionId};
use futures_util::{FutureExt, future::LocalBoxFuture};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[cfg(feature = "conformance-fixtures")]
use super::fixtures;
use super::{
    INSTRUCTIONS, completions,
    conversation::{Conversation, Outcome},
    list_changes::List,
    logging::Level,
    prompts,
    reply::{Lane, ReplyTo, in_era, server_info},
    resources,
    rpc::{
        self, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, Incoming, METHOD_NOT_FOUND, Params, RpcError, is_json,
        shortened, unreadable,
    },
    scan::{self, ScanError},
    shared::{Kind, Legacy},
    subscriptions::{INBOX, Listen, Teller},
    tasks,
    tools::{self, Arguments, Caller, Object, Run, Tool},
    turn::Turn,
    version::{Era, MODERN, PUSH_EXTENSION, PushSettings, RequestMeta, negotiate_legacy},
};

/// Listens that one connection may have open.
const LISTENS_LEN_MAX: usize = 64;
/// Tasks that one listen may tell of.
const TASKS_LEN_MAX: usize = 256;
/// Whether the lists change while the broker runs: only the fixtures do as if.
const LISTS_CHANGE: bool = cfg!(feature = "conformance-fixtures");
/// How long a client may keep the lists, which change only with the version of the broker.
const LIST_TTL_MS: u64 = 3_600_000;

impl<'a> Params<'a> {
    fn read<T: Deserialize<'a>>(&self) -> Result<T, RpcError> {
        let text = self.text.unwrap_or("{}");
        serde_json::from_str(text).map_err(|error| unreadable(text, &error))
    }
}

/// Serves one request. `text` is the whole frame, for when it has to be taken up again later. False when it turned out
/// not to be JSON.
pub(super) fn request(turn: &mut Turn, mut to: ReplyTo, method: &str, params: Params<'_>, text: &str) -> bool {
    let Err(error) = serve(turn, &mut to, method, params, text) else {
        return true;
    };
    let malformed = error.code == rpc::PARSE_ERROR;
    let id = (!malformed).then_some(&*to.id);
    to.lane.refuse(&turn.shared.outbox, id, &error);
    !malformed
}

fn serve(turn: &mut Turn, to: &mut ReplyTo, method: &str, mut params: Params<'_>, text: &str) -> Result<(), RpcError> {
    if params.text.is_some_and(|params| !params.starts_with('{')) {
        return Err(RpcError::invalid_params("params must be an object"));
    }
    let Some(era) = era(turn, to, method, &mut params)? else {
        return Err(RpcError::new(
            INVALID_PARAMS,
            "neither initialized (2025-11-25 and before) nor a request with the _meta of 2026-07-28",
        ));
    };
    if method == "tools/call" {
        return call(turn, to, &mut params, &era, text);
    }
    // Only the hot path leaves parts of the params to its own parsers.
    params.text.map_or(Ok(()), scan::check)?;
    #[cfg(feature = "conformance-fixtures")]
    if method == "prompts/get"
        && let Some(prompt) = fixtures::prompts::find(&params)
    {
        return converse(turn, to, method, &params, &era, prompt);
    }
    let modern = to.modern;
    let result = match (method, &era) {
        ("ping", Era::Legacy) => json!({}),
        ("initialize", Era::Legacy) => initialize(turn, &params)?,
        ("logging/setLevel", Era::Legacy) => set_log_level(turn, &params)?,
        ("server/discover", Era::Modern { .. }) => discover(),
        ("tools/list", _) => list(&params, "tools", tools::list())?,
        ("resources/list", _) => list(&params, "resources", resources::list())?,
        ("resources/templates/list", _) => list(&params, "resourceTemplates", resources::templates())?,
        ("prompts/list", _) => list(&params, "prompts", prompts::list())?,
        ("prompts/get", _) => prompts::get(&turn.shared.project, &params)?,
        ("completion/complete", _) => completions::complete(&turn.shared.project, params.read()?)?,
        ("resources/read", _) => read(turn, &params, modern)?,
        ("resources/subscribe", Era::Legacy) => return subscribe_legacy(turn, to, &params, text, true),
        ("resources/unsubscribe", Era::Legacy) => return subscribe_legacy(turn, to, &params, text, false),
        ("tasks/get" | "tasks/update" | "tasks/cancel", Era::Modern { .. }) => return task(turn, to, method, &params),
        ("subscriptions/listen", Era::Modern { capabilities }) => return listen(turn, to, &params, capabilities, text),
        _ => {
            return Err(RpcError::new(
                METHOD_NOT_FOUND,
                format!("Method not found: {}", shortened(method)),
            ));
        }
    };
    to.result(&turn.shared.outbox, &in_era(result, modern));
    Ok(())
}

/// The era of a request, and what its `_meta` asks for; None when it is of neither.
fn era(turn: &Turn, to: &mut ReplyTo, method: &str, params: &mut Params<'_>) -> Result<Option<Era>, RpcError> {
    to.log_level = turn.shared.log_level.get();
    let meta = RequestMeta::of(params)?;
    to.progress = meta.progress_token();
    if meta.is_modern() {
        to.modern = true;
        to.log_level = meta.log_level()?;
        let era = meta.modern()?;
        to.takes_tasks = era.declares_extension(tasks::EXTENSION);
        return Ok(Some(era));
    }
    let initialized = turn.shared.legacy.borrow().is_some();
    Ok((initialized || matches!(method, "initialize" | "ping")).then_some(Era::Legacy))
}

fn set_log_level(turn: &Turn, params: &Params<'_>) -> Result<Value, RpcError> {
    #[derive(Deserialize)]
    struct SetLevel {
        level: Level,
    }
    let SetLevel { level } = params.read()?;
    turn.shared.log_level.set(Some(level));
    Ok(json!({}))
}

fn cacheable(mut result: Value, ttl_ms: u64, scope: &str) -> Value {
    result["ttlMs"] = json!(ttl_ms);
    result["cacheScope"] = json!(scope);
    result
}

fn initialize(turn: &Turn, params: &Params<'_>) -> Result<Value, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Initialize<'a> {
        #[serde(borrow)]
        protocol_version: Cow<'a, str>,
        #[serde(default)]
        capabilities: Map<String, Value>,
    }
    let Initialize {
        protocol_version,
        capabilities,
    } = params.read()?;
    let shared = &turn.shared;
    if shared.legacy.borrow().is_some() {
        return Err(RpcError::new(INVALID_REQUEST, "Invalid Request: already initialized"));
    }
    let push = PushSettings::read(capabilities.get("experimental"))?;
    let version = negotiate_legacy(&protocol_version);
    *shared.legacy.borrow_mut() = Some(Legacy {
        version,
        push,
        capabilities,
    });
    shared.subscriptions_changed();
    Ok(json!({
        "protocolVersion": version,
        "capabilities": {
            "tools": {"listChanged": false},
            "resources": {"subscribe": true, "listChanged": false},
            "prompts": {"listChanged": false},
            "completions": {},
            "logging": {},
            "experimental": {PUSH_EXTENSION: {}},
        },
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    }))
}

fn discover() -> Value {
    let lists = if LISTS_CHANGE {
        json!({"listChanged": true})
    } else {
        json!({})
    };
    let result = json!({
        "supportedVersions": [MODERN],
        "capabilities": {
            "tools": lists,
            "resources": {"subscribe": true},
            "prompts": lists,
            "completions": {},
            "logging": {},
            "extensions": {PUSH_EXTENSION: {}, tasks::EXTENSION: {}},
        },
        "instructions": INSTRUCTIONS,
    });
    cacheable(result, LIST_TTL_MS, "public")
}

/// All of a list: none is so long that it has pages, so no cursor is ever handed out.
fn list(params: &Params<'_>, key: &str, items: Value) -> Result<Value, RpcError> {
    #[derive(Deserialize)]
    struct List {
        cursor: Option<Value>,
    }
    if params.read::<List>()?.cursor.is_some() {
        return Err(RpcError::invalid_params("Invalid cursor"));
    }
    Ok(cacheable(json!({key: items}), LIST_TTL_MS, "public"))
}

#[derive(Deserialize)]
struct Uri<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
}

fn read(turn: &Turn, params: &Params<'_>, modern: bool) -> Result<Value, RpcError> {
    let Uri { uri } = params.read()?;
    let caller = Caller::of(&turn.shared);
    match resources::read(&caller, &uri) {
        Some(content) => Ok(cacheable(json!({"contents": [content]}), 0, "private")),
        None => Err(no_resource(&uri, modern)),
    }
}

/// The one error whose code differs between the eras (2026-07-28, server/resources, Error Handling).
fn no_resource(uri: &str, modern: bool) -> RpcError {
    let code = if modern {
        INVALID_PARAMS
    } else {
        rpc::RESOURCE_NOT_FOUND
    };
    RpcError::new(code, "Resource not found").with_data(json!({"uri": uri}))
}

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

fn subscribe_legacy(
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

fn listen(
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

/// Makes a session for a connection that has none and comes back to the frame then. False when there is one.
fn needs_session(turn: &mut Turn, to: &ReplyTo, text: &str) -> bool {
    let shared = &turn.shared;
    if shared.kind == Kind::Stateless || shared.session.borrow().is_some() || shared.said_goodbye.get() {
        return false;
    }
    if to.lane.is_batch() {
        // An element of a batch cannot be taken up again alone.
        return false;
    }
    let shared = Rc::clone(&turn.shared);
    let opening = async move {
        if let Err(error) = shared.open_session().await {
            // The frame is taken up again without a session, and that answers it.
            tracing::warn!(%error, "a connection got no session of its own");
            shared.said_goodbye.set(true);
        }
    };
    turn.exclusively(to, opening, Some(text));
    true
}

/// Whether a frame calls a tool for the session of the connection.
pub(super) fn acts_as_session(frame: &str) -> bool {
    let Ok(Incoming::Request { method, params, .. }) = rpc::parse(frame) else {
        return false;
    };
    let tool = params.name.and_then(scan::string).and_then(|name| tools::find(&name));
    method == "tools/call"
        && tool.is_some_and(|tool| tool.acts_as_session)
        && params.members.iter().all(|(name, _)| name != "session_id")
}

/// Whether a frame, or one of a batch, takes messages out of an inbox.
pub(super) fn takes_messages(frame: &str) -> bool {
    match rpc::parse(frame) {
        Ok(Incoming::Request { params, .. }) => params
            .name
            .and_then(scan::string)
            .is_some_and(|name| tools::takes_messages(&name)),
        Ok(Incoming::Batch(frames)) => frames.into_iter().any(takes_messages),
        _ => false,
    }
}

/// The same as [`needs_session`] for a whole batch.
pub(super) fn opens_session(turn: &mut Turn, batch: &str, lane: Lane) -> bool {
    needs_session(turn, &ReplyTo::new("null", lane), batch)
}

/// `tasks/get`, `tasks/update`, `tasks/cancel`.
fn task(turn: &Turn, to: &ReplyTo, method: &str, params: &Params<'_>) -> Result<(), RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct TaskParams {
        task_id: String,
        input_responses: Option<Map<String, Value>>,
    }
    if !to.takes_tasks {
        return Err(tasks::undeclared());
    }
    let TaskParams {
        task_id,
        input_responses,
    } = params.read()?;
    let shared = &turn.shared;
    let task = shared.service.tasks.find(shared.project.id(), &task_id)?;
    match method {
        "tasks/get" => {
            if let Some(taking) = task.claim() {
                // It is the caller's now, unless the answer does not get through.
                shared.remember(to.clone(), taking);
            }
            to.raw_result(&shared.outbox, &task.detailed());
            return Ok(());
        }
        "tasks/update" => {
            let responses = input_responses
                .ok_or_else(|| RpcError::invalid_params("Invalid params: inputResponses is required, an object"))?;
            task.update(responses);
        }
        _ => task.cancel(),
    }
    to.result(&shared.outbox, &in_era(json!({}), true));
    Ok(())
}

fn call(turn: &mut Turn, to: &mut ReplyTo, params: &mut Params<'_>, era: &Era, text: &str) -> Result<(), RpcError> {
    let name = params
        .name
        .ok_or_else(|| RpcError::invalid_params("Invalid params: no tool is named"))?;
    let Some(name) = scan::string(name) else {
        scan::check(name)?;
        return Err(RpcError::invalid_params(
            "Invalid params: the name of a tool is a string",
        ));
    };
    if let Some(arguments) = params
        .arguments
        .filter(|arguments| !arguments.starts_with('{') && *arguments != "null")
    {
        scan::check(arguments)?;
        return Err(RpcError::invalid_params("Invalid params: arguments must be an object"));
    }
    let Some(tool) = tools::find(&name) else {
        params.arguments.map_or(Ok(()), scan::check)?;
        return Err(RpcError::invalid_params(format!("Unknown tool: {}", shortened(&name))));
    };
    let arguments = params.arguments.filter(|arguments| *arguments != "null");
    if let Run::Converse(tool) = tool.run {
        return converse(turn, to, "tools/call", params, era, tool);
    }
    match run(turn, to, tool, std::mem::take(&mut params.members), text) {
        Ok(()) => Ok(()),
        // What made the tool refuse may be that the frame was no JSON, which nobody had looked at yet.
        Err(_) if arguments.is_some_and(|arguments| !is_json(arguments)) => Err(ScanError::Syntax.into()),
        Err(error) => {
            turn.shared.refuse(to, &error);
            Ok(())
        }
    }
}

/// Begins a call that talks with its caller.
fn converse(
    turn: &Turn,
    to: &ReplyTo,
    method: &str,
    params: &Params<'_>,
    era: &Era,
    run: fn(Conversation) -> LocalBoxFuture<'static, Outcome>,
) -> Result<(), RpcError> {
    let shared = &turn.shared;
    if !shared.has_room_for_calls() {
        return Err(RpcError::new(INTERNAL_ERROR, "too many calls are under way"));
    }
    let capabilities = match era {
        Era::Modern { capabilities } => capabilities.clone(),
        Era::Legacy => {
            let legacy = shared.legacy.borrow();
            legacy
                .as_ref()
                .map(|legacy| legacy.capabilities.clone())
                .unwrap_or_default()
        }
    };
    Conversation::new(shared, to, method, params.read()?, capabilities)?.start(run);
    Ok(())
}

fn run(
    turn: &mut Turn,
    to: &ReplyTo,
    tool: &'static Tool,
    members: Vec<(Cow<'_, str>, &str)>,
    text: &str,
) -> Result<(), BrokerError> {
    let mut arguments = Arguments::new(members)?;
    let session = arguments.session_id()?;
    if tool.acts_as_session && session.is_none() && needs_session(turn, to, text) {
        return Ok(());
    }
    let shared = Rc::clone(&turn.shared);
    if shared.outbox.taken_over() && !(shared.kind == Kind::Resumable && tool.name == "register_session") {
        return Err(BrokerError::SessionTakenOver);
    }
    let mut caller = Caller::of(&shared);
    if let Some(id) = session {
        let member = shared.project.session(id)?;
        member.touch(shared.project.settings().presence, actors::clock::now());
        if shared.kind == Kind::Stateless {
            *shared.session.borrow_mut() = Some(Arc::clone(&member));
        }
        caller.session = Some(member);
    }
    match tool.run {
        Run::Submit(prepare) => {
            let prepared = prepare(&caller, arguments, to.clone())?;
            turn.submit(prepared);
        }
        Run::Now(run) => {
            let answer = run(&caller, arguments)?;
            shared.answer(to, Ok(answer));
        }
        Run::Later(start) => {
            if !shared.has_room_for_calls() {
                return Err(BrokerError::unavailable());
            }
            let mut call = start(caller, arguments)?;
            if call.lasts
                && let Some(task) = shared.become_task(to)
            {
                shared.run_as_task(&task, call.takes, call.answer);
                return Ok(());
            }
            if let Some(taking) = call.takes.take() {
                shared.remember(to.clone(), taking);
            }
            let task = {
                let (shared, to) = (Rc::clone(&shared), to.clone());
                async move {
                    let outcome = std::panic::AssertUnwindSafe(call.answer).catch_unwind().await;
                    match outcome {
                        Ok(answer) => shared.answer(&to, answer),
                        Err(_) => to.error(&shared.outbox, &RpcError::new(INTERNAL_ERROR, "Internal error")),
                    }
                    if let Some(then) = call.then {
                        then.await;
                    }
                }
            };
            if tool.exclusive {
                turn.exclusively(to, task, None);
            } else {
                shared.spawn(to, task);
            }
        }
        Run::Converse(_) => return Err(BrokerError::unavailable()),
    }
    Ok(())
}

/// Serves one notification. Nothing is ever answered to one.
pub(super) fn notification(turn: &Turn, method: &str, params: &Params<'_>) {
    match method {
        "notifications/cancelled" => cancelled(turn, params.text),
        "notifications/dev.mcp-broker/ack" => acknowledged(turn, params.text),
        _ => {}
    }
}

fn cancelled(turn: &Turn, params: Option<&str>) {
    let mut id = None;
    let Some(params) = params else { return };
    let scanned = scan::members::<ScanError>(params, |key, value| {
        if key == "requestId" {
            id = Some(value);
        }
        Ok(())
    });
    let (Ok(()), Some(id)) = (scanned, id) else { return };
    let shared = &turn.shared;
    // Before the call is given up, so that no later frame comes between.
    shared.give_back(id);
    if !shared.cancel(id) && shared.subscriptions.borrow_mut().end_listen(id) {
        shared.subscriptions_changed();
    }
}

fn acknowledged(turn: &Turn, params: Option<&str>) {
    let Some(params) = params else { return };
    let shared = &turn.shared;
    let Some((which, session)) = tools::read_acknowledgement(params) else {
        return;
    };
    // Who has no lasting connection says for whom it acknowledges.
    let member = match session.filter(|_| shared.kind == Kind::Stateless) {
        Some(id) => shared.project.session(id).ok(),
        None => shared.session.borrow().clone(),
    };
    if let Some(member) = member {
        shared.project.acknowledge_unheard(&member, which);
    }
}
