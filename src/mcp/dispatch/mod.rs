//! Methods: which there are, in which era, and what each does.

mod looking;
mod methods;
mod subscribe;
mod tool_calls;

use std::{borrow::Cow, sync::OnceLock};

use actors::model::{BrokerError, Scope};
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

#[cfg(feature = "conformance-fixtures")]
use super::fixtures;
use super::{
    INSTRUCTIONS, completions,
    context::{Initialized, PeerKind},
    logging::Level,
    prompts,
    read_batch::ReadBatch,
    reply::{ReplyTo, server_info, with_era_members},
    resources,
    rpc::{self, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Params, RpcError, deserialize_error, shortened},
    scan::{self, ScanError},
    subscriptions::INBOX,
    tasks,
    tools::{self, ToolCaller},
    version::{Era, MODERN, PUSH_EXTENSION, PushSettings, RequestMeta, negotiate_legacy},
};
use crate::refusal::error_object;

pub(super) use looking::holds_back;
use methods::Method;
pub(super) use tool_calls::takes_messages;

/// Whether the lists change while the broker runs: only the fixtures do as if.
const LISTS_CHANGE: bool = cfg!(feature = "conformance-fixtures");
/// Bytes of the params of every method but `tools/call`: they are read whole.
const PARAMS_LEN_MAX: usize = 512 * 1024;
/// How long a client may keep the lists, which change only with the version of the broker.
const LIST_TTL_MS: u64 = 3_600_000;

impl<'a> Params<'a> {
    fn read<T: Deserialize<'a>>(&self) -> Result<T, RpcError> {
        let text = self.text.unwrap_or("{}");
        serde_json::from_str(text).map_err(|error| deserialize_error(text, &error))
    }
}

/// Serves one request. `text` is the whole frame, for when it has to be taken up again later. False when it turned out
/// not to be JSON.
pub(super) fn handle_request(
    turn: &mut ReadBatch,
    mut to: ReplyTo,
    method: &str,
    params: Params<'_>,
    text: &str,
) -> bool {
    let Err(error) = serve(turn, &mut to, method, params, text) else {
        return true;
    };
    let malformed = error.code == rpc::PARSE_ERROR;
    let id = (!malformed).then_some(&*to.id);
    to.route.refuse(&turn.context.outbox, id, &error);
    !malformed
}

fn serve(
    turn: &mut ReadBatch,
    to: &mut ReplyTo,
    method: &str,
    mut params: Params<'_>,
    text: &str,
) -> Result<(), RpcError> {
    // Whatever is wrong with it: what is refused for another reason costs the broker as much.
    let taken = turn.context.take_request(&to.route, text.len());
    to.route.check_room()?;
    if params.text.is_some_and(|params| !params.starts_with('{')) {
        return Err(RpcError::invalid_params("params must be an object"));
    }
    let Some(era) = resolve_era(turn, to, method, &params)? else {
        return Err(RpcError::new(
            INVALID_PARAMS,
            "neither initialized (2025-11-25 and before) nor a request with the _meta of 2026-07-28",
        ));
    };
    let known = Method::named(method);
    if let Err(error) = taken {
        if known == Some(Method::CallTool) {
            turn.context.refuse(to, &error);
            return Ok(());
        }
        return Err(RpcError::refused(&error));
    }
    if known == Some(Method::CallTool) {
        return tool_calls::call_tool(turn, to, &mut params, &era, text);
    }
    if params.text.is_some_and(|params| params.len() > PARAMS_LEN_MAX) {
        return Err(RpcError::invalid_params(format!(
            "Invalid params: {} takes at most {PARAMS_LEN_MAX} bytes",
            shortened(method)
        )));
    }
    // Only the hot path leaves parts of the params to its own parsers.
    params.text.map_or(Ok(()), scan::check)?;
    #[cfg(feature = "conformance-fixtures")]
    if method == "prompts/get"
        && let Some(prompt) = fixtures::prompts::find(&params)
    {
        return tool_calls::start_interactive(turn, to, method, &params, &era, prompt);
    }
    let modern = to.modern;
    let result = match (known, &era) {
        (Some(Method::Ping), Era::Legacy) => json!({}),
        (Some(Method::Initialize), Era::Legacy) => initialize(turn, &params)?,
        (Some(Method::SetLogLevel), Era::Legacy) => set_log_level(turn, &params)?,
        (Some(Method::Discover), Era::Modern { .. }) => discover(),
        (Some(Method::ListTools), _) => {
            check_cursor(&params)?;
            let context = &turn.context;
            let text = tool_list(
                context.service.admin.is_multi_project(),
                context.identity.scope(),
                modern,
            );
            to.raw_result(&turn.context.outbox, text);
            return Ok(());
        }
        (Some(Method::ListResources), _) => list(&params, "resources", resources::list())?,
        (Some(Method::ListResourceTemplates), _) => list(&params, "resourceTemplates", resources::templates())?,
        (Some(Method::ListPrompts), _) => list(&params, "prompts", prompts::list())?,
        (Some(Method::GetPrompt), _) => prompts::get(&turn.context.project, &params)?,
        (Some(Method::Complete), _) => completions::complete(&turn.context.identity, params.read()?)?,
        (Some(Method::ReadResource), _) => {
            let Some(content) = read_resource(turn, to, &params, text)? else {
                return Ok(());
            };
            content
        }
        (Some(Method::Subscribe), Era::Legacy) => return subscribe::subscribe_legacy(turn, to, &params, text, true),
        (Some(Method::Unsubscribe), Era::Legacy) => {
            return subscribe::subscribe_legacy(turn, to, &params, text, false);
        }
        (Some(Method::GetTask | Method::UpdateTask | Method::CancelTask), Era::Modern { .. }) => {
            return tool_calls::handle_task(turn, to, method, &params);
        }
        (Some(Method::Listen), Era::Modern { capabilities }) => {
            return subscribe::listen(turn, to, &params, capabilities, text);
        }
        _ => {
            return Err(RpcError::new(
                METHOD_NOT_FOUND,
                format!("Method not found: {}", shortened(method)),
            ));
        }
    };
    to.result(&turn.context.outbox, &with_era_members(result, modern));
    Ok(())
}

/// The era of a request, and what its `_meta` asks for; None when it is of neither.
fn resolve_era(
    turn: &mut ReadBatch,
    to: &mut ReplyTo,
    method: &str,
    params: &Params<'_>,
) -> Result<Option<Era>, RpcError> {
    to.log_level = turn.context.log_level.get();
    let meta = match turn.parsed_meta.take() {
        Some(meta) => *meta,
        None => RequestMeta::parse(params)?,
    };
    to.progress = meta.progress_token();
    if meta.is_modern() {
        to.modern = true;
        to.log_level = meta.log_level()?;
        let era = meta.into_era()?;
        to.takes_tasks = era.declares_extension(tasks::EXTENSION);
        return Ok(Some(era));
    }
    let initialized = turn.context.legacy.borrow().is_some();
    Ok((initialized || matches!(method, "initialize" | "ping")).then_some(Era::Legacy))
}

fn set_log_level(turn: &ReadBatch, params: &Params<'_>) -> Result<Value, RpcError> {
    #[derive(Deserialize)]
    struct SetLevel {
        level: Level,
    }
    let SetLevel { level } = params.read()?;
    turn.context.log_level.set(Some(level));
    Ok(json!({}))
}

fn cacheable(mut result: Value, ttl_ms: u64, scope: &str) -> Value {
    result["ttlMs"] = json!(ttl_ms);
    result["cacheScope"] = json!(scope);
    result
}

fn initialize(turn: &ReadBatch, params: &Params<'_>) -> Result<Value, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Initialize<'a> {
        #[serde(borrow)]
        protocol_version: Cow<'a, str>,
        #[serde(default)]
        capabilities: Map<String, Value>,
        client_info: Option<&'a RawValue>,
    }
    let Initialize {
        protocol_version,
        capabilities,
        client_info,
    } = params.read()?;
    let context = &turn.context;
    if context.legacy.borrow().is_some() {
        return Err(RpcError::new(INVALID_REQUEST, "Invalid Request: already initialized"));
    }
    let push = PushSettings::parse(capabilities.get("experimental"))?;
    let version = negotiate_legacy(&protocol_version);
    // Only the log shows it: a client that names itself badly is served all the same.
    let client = client_info.and_then(|client| serde_json::from_str(client.get()).ok());
    *context.client.borrow_mut() = client.map(Box::new);
    *context.legacy.borrow_mut() = Some(Initialized {
        version,
        push,
        capabilities: Value::Object(capabilities).to_string().into(),
    });
    context.apply_subscriptions();
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

/// All of a list.
fn list(params: &Params<'_>, key: &str, items: Value) -> Result<Value, RpcError> {
    check_cursor(params)?;
    Ok(cacheable(json!({key: items}), LIST_TTL_MS, "public"))
}

/// No list is so long that it has pages, so no cursor is ever handed out.
fn check_cursor(params: &Params<'_>) -> Result<(), RpcError> {
    #[derive(Deserialize)]
    struct List {
        cursor: Option<Value>,
    }
    match params.read::<List>()?.cursor {
        Some(_) => Err(RpcError::invalid_params("Invalid cursor")),
        None => Ok(()),
    }
}

/// The result of `tools/list` for callers of one scope, written once: it is long, and every client asks for it. What a
/// caller may not do is not in it.
fn tool_list(multi_project: bool, scope: Scope, modern: bool) -> &'static [u8] {
    type List = OnceLock<Vec<u8>>;
    static LISTS: [[[List; 2]; 2]; Scope::ALL.len()] =
        [const { [const { [const { List::new() }; 2] }; 2] }; Scope::ALL.len()];
    LISTS[scope as usize][usize::from(multi_project)][usize::from(modern)].get_or_init(|| {
        let tools = json!({"tools": tools::list(multi_project, scope)});
        let mut text = Vec::new();
        rpc::write_json(
            &mut text,
            &with_era_members(cacheable(tools, LIST_TTL_MS, "private"), modern),
        );
        text
    })
}

#[derive(Deserialize)]
struct UriParams<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
}

/// None when it is taken up again later.
fn read_resource(
    turn: &mut ReadBatch,
    to: &ReplyTo,
    params: &Params<'_>,
    text: &str,
) -> Result<Option<Value>, RpcError> {
    let UriParams { uri } = params.read()?;
    let caller = ToolCaller::new(&turn.context);
    if uri == INBOX && caller.session.is_none() {
        return Err(no_own_inbox());
    }
    if tool_calls::refresh_depth_first(turn, to, resources::session_of_inbox(&caller, &uri).as_ref(), text) {
        return Ok(None);
    }
    match resources::read(&caller, &uri) {
        Some(content) => Ok(Some(cacheable(json!({"contents": [content]}), 0, "private"))),
        None if looking::looks_first(turn, to, text).map_err(|error| RpcError::refused(&error))? => Ok(None),
        None => Err(no_resource(&uri, to.modern)),
    }
}

/// The inbox of a connection's session, where there is none.
fn no_own_inbox() -> RpcError {
    let message = format!(
        "{INBOX} is the inbox of the session that a connection acts as, and this request has none: call \
         register_session and use {} with the session_id that it returns",
        resources::SESSION_INBOX_TEMPLATE
    );
    RpcError::new(rpc::REFUSED, message).with_data(error_object(&BrokerError::SessionRequired))
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

/// Serves one notification. Nothing is ever answered to one.
pub(super) fn handle_notification(turn: &mut ReadBatch, method: &str, params: &Params<'_>) {
    turn.context.take_notification();
    match Method::named(method) {
        Some(Method::Cancelled) => cancelled(turn, params.text),
        Some(Method::Acknowledged) => acknowledged(turn, params.text),
        _ => {}
    }
}

fn cancelled(turn: &mut ReadBatch, params: Option<&str>) {
    let mut id = None;
    let Some(params) = params else { return };
    let scanned = scan::members::<ScanError>(params, |key, value| {
        if key == "requestId" {
            id = Some(value);
        }
        Ok(())
    });
    let (Ok(()), Some(id)) = (scanned, id) else { return };
    let context = &turn.context;
    // Before the call is given up, so that no later frame comes between.
    context.release_receive(id);
    if context.cancel_call(id) {
        return;
    }
    if context.subscriptions.borrow_mut().end_listen(id) {
        context.apply_subscriptions();
    } else {
        turn.withdraw(id);
    }
}

fn acknowledged(turn: &ReadBatch, params: Option<&str>) {
    let Some(params) = params else { return };
    let context = &turn.context;
    if context.identity.check_scope(Scope::Member).is_err() {
        return;
    }
    let Some((which, session)) = tools::read_acknowledgement(params) else {
        return;
    };
    // Who has no lasting connection says for whom it acknowledges.
    if let Some(id) = session.filter(|_| context.kind == PeerKind::Stateless) {
        let project = context.project.clone();
        looking::with_session(context, id, move |member| {
            project.acknowledge_without_reply(member, which)
        });
    } else if let Some(member) = &*context.session.borrow() {
        context.project.acknowledge_without_reply(member, which);
    }
}
