//! The methods of MCP: which exist, in which era, and what each does. Each request passes the same steps (`serve`): it is
//! counted, its era is found, a backend may have what it names, and then its method or tool runs.

mod backend_updates;
mod introduction;
mod read_resource;
mod shared_lists;
mod subscribe;
mod task_methods;
mod tool_calls;

use std::rc::Rc;

use actors::{
    gateway::ListKind,
    model::{Scope, SessionName},
    project::Lookup,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    call_trace::{CallTrace, RequestNames},
    client::PeerKind,
    completions,
    context::PeerContext,
    forwarding,
    logging::Level,
    peer_queue::PeerQueue,
    prompts,
    reply::{ReplyTo, with_era_members},
    rpc::{self, INVALID_PARAMS, Incoming, Malformed, Params, RpcError},
    tasks, tools,
    version::{Era, RequestMeta},
};
use common::json::scan::{self, ScanError};

#[cfg(feature = "conformance-fixtures")]
use super::fixtures;

/// Declares the methods by name. Others are refused.
macro_rules! methods {
    ($($method:ident = $name:literal,)*) => {
        /// A method of MCP that the broker serves.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Method {
            $($method,)*
        }

        impl Method {
            #[cfg(test)]
            const NAMES: &[&str] = &[$($name,)*];

            /// The name of the method.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$method => $name,)*
                }
            }

            /// The method of this name.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$method),)*
                    _ => None,
                }
            }
        }
    };
}

impl Method {
    /// Whether a client that sees only one backend may call it. What the backend answers itself is not asked here.
    pub const fn is_served_for_backends(self) -> bool {
        !matches!(self, Self::ReadResource | Self::GetPrompt | Self::Complete)
    }
}

methods! {
    Ping = "ping",
    Initialize = "initialize",
    SetLogLevel = "logging/setLevel",
    Discover = "server/discover",
    ListTools = "tools/list",
    CallTool = "tools/call",
    ListResources = "resources/list",
    ListResourceTemplates = "resources/templates/list",
    ReadResource = "resources/read",
    Subscribe = "resources/subscribe",
    Unsubscribe = "resources/unsubscribe",
    ListPrompts = "prompts/list",
    GetPrompt = "prompts/get",
    Complete = "completion/complete",
    GetTask = "tasks/get",
    UpdateTask = "tasks/update",
    CancelTask = "tasks/cancel",
    Listen = "subscriptions/listen",
    Cancelled = "notifications/cancelled",
    Acknowledged = "notifications/dev.mcp-broker/ack",
}

/// Serves one request: the parts of the frame `text`, and its `_meta` if the transport has parsed it. Returns false if it
/// was not JSON.
pub(super) fn handle_request(
    context: &Rc<PeerContext>,
    mut to: ReplyTo,
    (method, params): (&str, &mut Params<'_>),
    meta: Option<Box<RequestMeta>>,
    text: &str,
) -> bool {
    to.trace = begin_trace(context, method, params);
    let trace = to.trace.clone();
    let _entered = trace.as_ref().map(|trace| trace.enter());
    let Err(error) = serve(context, &mut to, (method, params), meta, text) else {
        return true;
    };
    context.fail(&to, &error);
    error.code != rpc::PARSE_ERROR
}

/// Begins the trace of a request, if it has one.
fn begin_trace(context: &PeerContext, method: &str, params: &Params<'_>) -> Option<Rc<CallTrace>> {
    let http = context.http_trace();
    CallTrace::begin(http.as_deref(), context.project.id(), params, || {
        let method = Method::parse(method);
        let tool = params.named().filter(|_| method == Some(Method::CallTool));
        RequestNames {
            method: method.map(Method::name),
            tool: tool.and_then(|name| Some(tools::find(&name)?.name)),
        }
    })
}

fn serve(
    context: &Rc<PeerContext>,
    to: &mut ReplyTo,
    (method, params): (&str, &mut Params<'_>),
    meta: Option<Box<RequestMeta>>,
    text: &str,
) -> Result<(), RpcError> {
    // Counted before all checks, because a refused request costs the broker as much.
    let taken = context.limits.take_request(to.route.is_batch(), text.len());
    to.route.check_room()?;
    params.check_is_object()?;
    let Some(era) = resolve_era(context, to, method, params, meta)? else {
        return Err(RpcError::new(
            INVALID_PARAMS,
            "neither initialized (2025-11-25 and before) nor a request with the _meta of 2026-07-28",
        ));
    };
    let known = Method::parse(method);
    if let Err(error) = taken {
        if known == Some(Method::CallTool) {
            context.refuse(to, &error);
            return Ok(());
        }
        return Err(RpcError::refused(&error));
    }
    if let Some(route) = forwarding::find_route(context, method, params)? {
        return forwarding::forward(context, to, params, &era, route);
    }
    if known == Some(Method::CallTool) {
        return tool_calls::call_tool(context, to, params, &era, text);
    }
    params.check(method)?;
    #[cfg(feature = "conformance-fixtures")]
    if method == "prompts/get"
        && let Some(prompt) = fixtures::prompts::find(params)
    {
        return tool_calls::start_interactive(context, to, method, params, &era, prompt);
    }
    match known {
        Some(known) => serve_method(context, to, known, method, params, &era),
        None => Err(RpcError::method_not_found(method)),
    }
}

/// The era of a request; `None` if it belongs to neither. Notes in `to` what the request says of its answer: progress token,
/// log level, tasks.
fn resolve_era(
    context: &PeerContext,
    to: &mut ReplyTo,
    method: &str,
    params: &Params<'_>,
    meta: Option<Box<RequestMeta>>,
) -> Result<Option<Era>, RpcError> {
    to.log_level = context.legacy.log_level();
    let meta = match meta {
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
    let is_legacy = context.legacy.serves_requests() || matches!(method, "initialize" | "ping");
    Ok(is_legacy.then_some(Era::Legacy))
}

fn serve_method(
    context: &Rc<PeerContext>,
    to: &ReplyTo,
    known: Method,
    method: &str,
    params: &Params<'_>,
    era: &Era,
) -> Result<(), RpcError> {
    if !context.exposure.has_own() && !known.is_served_for_backends() {
        return Err(RpcError::method_not_found(method));
    }
    let result = match (known, era) {
        (Method::Ping, Era::Legacy) => json!({}),
        (Method::Initialize, Era::Legacy) => introduction::initialize(context, params)?,
        (Method::SetLogLevel, Era::Legacy) => set_log_level(context, params)?,
        (Method::Discover, Era::Modern { .. }) => introduction::discover(context),
        (Method::ListTools | Method::ListResources | Method::ListResourceTemplates | Method::ListPrompts, _) => {
            return list(context, to, method, params);
        }
        (Method::GetPrompt, _) => {
            let name = context
                .binding
                .with_member(|member| member.record.name.clone())
                .flatten();
            prompts::get(&context.project, name.as_ref().map(SessionName::as_str), params)?
        }
        (Method::Complete, _) => completions::complete(&context.project, context.session_id(), params.parse()?)?,
        (Method::ReadResource, _) => return read_resource::read_resource(context, to, params),
        (Method::Subscribe, Era::Legacy) => return subscribe::subscribe(context, to, params),
        (Method::Unsubscribe, Era::Legacy) => return subscribe::unsubscribe(context, to, params),
        (Method::GetTask | Method::UpdateTask | Method::CancelTask, Era::Modern { .. }) => {
            return task_methods::handle_task(context, to, known.name(), params, era);
        }
        (Method::Listen, Era::Modern { capabilities }) => return subscribe::listen(context, to, params, capabilities),
        _ => return Err(RpcError::method_not_found(method)),
    };
    respond(context, to, result);
    Ok(())
}

/// Serves a method that lists something.
fn list(context: &Rc<PeerContext>, to: &ReplyTo, method: &str, params: &Params<'_>) -> Result<(), RpcError> {
    if let (Some(shown), Some(kind)) = (forwarding::lists_of(context), ListKind::of_method(method)) {
        return shared_lists::serve(context, to, kind, params, shown);
    }
    let viewer = shared_lists::viewer_of(context);
    let list = viewer.list(method, params, to.modern);
    let list = list.unwrap_or_else(|| Err(RpcError::method_not_found(method)))?;
    to.result(&context.outbox, &*list);
    Ok(())
}

fn respond(context: &PeerContext, to: &ReplyTo, result: Value) {
    to.result(&context.outbox, with_era_members(result, to.modern));
}

/// `logging/setLevel`.
fn set_log_level(context: &PeerContext, params: &Params<'_>) -> Result<Value, RpcError> {
    #[derive(Deserialize)]
    struct SetLevel {
        level: Level,
    }
    let SetLevel { level } = params.parse()?;
    context.legacy.set_log_level(level);
    Ok(json!({}))
}

/// Serves one notification. Notifications have no answer.
pub(super) fn handle_notification(queue: &mut PeerQueue, method: &str, params: &Params<'_>) {
    queue.context.limits.take_notification();
    match Method::parse(method) {
        Some(Method::Cancelled) => cancelled(queue, params.text),
        Some(Method::Acknowledged) => acknowledged(&queue.context, params.text),
        _ => {}
    }
}

fn cancelled(queue: &mut PeerQueue, params: Option<&str>) {
    let mut id = None;
    let Some(params) = params else { return };
    let scanned = scan::members::<ScanError>(params, |key, value| {
        if key == "requestId" {
            id = Some(value);
        }
        Ok(())
    });
    let (Ok(()), Some(id)) = (scanned, id) else { return };
    let context = &queue.context;
    // First, so that a receive of a later frame finds the messages in the inbox.
    context.calls.release_receive(id);
    context.calls.cancel(id);
    let ended = context.subscriptions.borrow_mut().end_listen(id);
    if ended {
        context.apply_subscriptions();
    }
    queue.withdraw(id);
}

fn acknowledged(context: &PeerContext, params: Option<&str>) {
    let Some(params) = params else { return };
    if context.identity.check_scope(Scope::Member).is_err() {
        return;
    }
    let Some((which, session)) = tools::read_acknowledgement(params) else {
        return;
    };
    let project = context.project.clone();
    // A caller without a connection names its session.
    let Some(id) = session.filter(|_| context.kind == PeerKind::Stateless) else {
        context
            .binding
            .with_member(|member| project.acknowledge_without_reply(member, which));
        return;
    };
    match project.own_session(id, context.identity.owner()) {
        Lookup::Ready(Ok(member)) => project.acknowledge_without_reply(&member, which),
        Lookup::Ready(Err(_)) => {}
        Lookup::Pending(found) => drop(actix_rt::spawn(async move {
            if let Ok(member) = found.answer().await {
                project.acknowledge_without_reply(&member, which);
            }
        })),
    }
}

/// Whether a frame, or an element of a batch, receives messages.
pub(super) fn receives_messages(parsed: &Result<Incoming<'_>, Malformed<'_>>) -> bool {
    match parsed {
        Ok(Incoming::Request { params, .. }) => params.named().is_some_and(|name| tools::receives_messages(&name)),
        Ok(Incoming::Batch(frames)) => frames.iter().any(|frame| receives_messages(&rpc::parse(frame))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_request_of_every_method_is_measured() {
        let measured = include_str!("../../../../tests/contract/limits/worst_calls.rs");
        for name in Method::NAMES {
            assert!(
                measured.contains(&format!("\"{name}\",")),
                "tests/contract/limits/worst_calls.rs has no request of {name}: add the most expensive one"
            );
        }
    }
}
