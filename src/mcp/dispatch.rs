//! Methods: which there are, in which era, and what each does.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use actors::model::{BrokerError, SessionId};
use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    INSTRUCTIONS,
    logging::Level,
    reply::{Lane, ReplyTo, server_info},
    resources,
    rpc::{self, INVALID_PARAMS, INVALID_REQUEST, Incoming, METHOD_NOT_FOUND, Params, RpcError, is_json, unreadable},
    scan::{self, ScanError},
    shared::{Kind, Legacy},
    subscriptions::{INBOX, Listen},
    tools::{self, Arguments, Caller, Object, Run, Tool},
    turn::Turn,
    version::{Era, MODERN, PUSH_EXTENSION, PushSettings, RequestMeta, negotiate_legacy},
};

/// Listens that one connection may have open.
const LISTENS_LEN_MAX: usize = 64;
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
    if malformed {
        to.id = "null".into();
    }
    to.error(&turn.shared.outbox, &error);
    !malformed
}

fn serve(turn: &mut Turn, to: &mut ReplyTo, method: &str, mut params: Params<'_>, text: &str) -> Result<(), RpcError> {
    if params.text.is_some_and(|params| !params.starts_with('{')) {
        return Err(RpcError::invalid_params("params must be an object"));
    }
    let Some(era) = era(turn, to, method, &params)? else {
        return Err(RpcError::new(
            INVALID_PARAMS,
            "neither initialized (2025-11-25 and before) nor a request with the _meta of 2026-07-28",
        ));
    };
    if method == "tools/call" {
        return call(turn, to, &mut params, text);
    }
    // Only the hot path leaves parts of the params to its own parsers.
    params.text.map_or(Ok(()), scan::check)?;
    let modern = to.modern;
    let result = match (method, &era) {
        ("ping", Era::Legacy) => json!({}),
        ("initialize", _) => initialize(turn, &params)?,
        ("logging/setLevel", Era::Legacy) => set_log_level(turn, &params)?,
        ("server/discover", Era::Modern { .. }) => discover(),
        ("tools/list", _) => list(&params, "tools", tools::list())?,
        ("resources/list", _) => list(&params, "resources", resources::list())?,
        ("resources/templates/list", _) => list(&params, "resourceTemplates", resources::templates())?,
        ("resources/read", _) => read(turn, &params, modern)?,
        ("resources/subscribe", Era::Legacy) => return subscribe_legacy(turn, to, &params, text, true),
        ("resources/unsubscribe", Era::Legacy) => return subscribe_legacy(turn, to, &params, text, false),
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
fn era(turn: &Turn, to: &mut ReplyTo, method: &str, params: &Params<'_>) -> Result<Option<Era>, RpcError> {
    to.log_level = turn.shared.log_level.get();
    let meta = RequestMeta::of(params)?;
    to.progress = meta.progress_token();
    if method == "initialize" {
        return Ok(Some(Era::Legacy));
    }
    if meta.is_modern() {
        to.modern = true;
        to.log_level = meta.log_level()?;
        return meta.modern().map(Some);
    }
    let initialized = turn.shared.legacy.borrow().is_some();
    Ok((initialized || method == "ping").then_some(Era::Legacy))
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

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Every modern result says what it is and who it is from.
fn in_era(mut result: Value, modern: bool) -> Value {
    if modern && let Some(result) = result.as_object_mut() {
        result.insert("resultType".to_owned(), json!("complete"));
        let meta = result.entry("_meta").or_insert_with(|| json!({}));
        meta["io.modelcontextprotocol/serverInfo"] = server_info();
    }
    result
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
    *shared.legacy.borrow_mut() = Some(Legacy { version, push });
    shared.subscriptions_changed();
    Ok(json!({
        "protocolVersion": version,
        "capabilities": {
            "tools": {"listChanged": false},
            "resources": {"subscribe": true, "listChanged": false},
            "logging": {},
            "experimental": {PUSH_EXTENSION: {}},
        },
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    }))
}

fn discover() -> Value {
    let result = json!({
        "supportedVersions": [MODERN],
        "capabilities": {
            "tools": {},
            "resources": {"subscribe": true},
            "logging": {},
            "extensions": {PUSH_EXTENSION: {}},
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
        Some(content) => {
            let content = json!({"uri": uri, "mimeType": "application/json", "text": content.to_string()});
            Ok(cacheable(json!({"contents": [content]}), 0, "private"))
        }
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
    }
    let ListenParams {
        notifications: Object(notifications),
    } = params.read()?;
    let push = PushSettings::read(capabilities.get("extensions"))?;
    let inbox = notifications
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
    let honored = match &inbox {
        Some(uri) => json!({"resourceSubscriptions": [uri]}),
        None => json!({}),
    };
    let acknowledged = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{{\"_meta\":\
         {{\"io.modelcontextprotocol/subscriptionId\":{}}},\"notifications\":{honored}}}}}",
        to.id
    );
    let shared = &turn.shared;
    to.notify(&shared.outbox, acknowledged.as_bytes());
    let pushes = inbox.is_some() && push.is_some();
    shared.subscriptions.borrow_mut().listen(Listen {
        id: Rc::clone(&to.id),
        inbox,
        push,
    });
    shared.tie(pushes);
    shared.subscriptions_changed();
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

/// The same as [`needs_session`] for a whole batch.
pub(super) fn opens_session(turn: &mut Turn, batch: &str, lane: Lane) -> bool {
    needs_session(turn, &ReplyTo::new("null", lane), batch)
}

fn call(turn: &mut Turn, to: &mut ReplyTo, params: &mut Params<'_>, text: &str) -> Result<(), RpcError> {
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
            if let Some(taking) = call.takes.take() {
                shared.remember(to.clone(), taking);
            }
            let task = {
                let (shared, to) = (Rc::clone(&shared), to.clone());
                async move {
                    let outcome = std::panic::AssertUnwindSafe(call.answer).catch_unwind().await;
                    match outcome {
                        Ok(answer) => shared.answer(&to, answer),
                        Err(_) => to.error(&shared.outbox, &RpcError::new(rpc::INTERNAL_ERROR, "Internal error")),
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
