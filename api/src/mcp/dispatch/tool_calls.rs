//! `tools/call`: from the frame to the tool, and from the tool to the answer.
//!
//! A call runs where its frame is read, on slices of it. What cannot be done there is a future, which is one of the running
//! calls of the connection ([`Calls`](crate::mcp::calls::Calls)): an answer that comes later; a message, once it is known
//! whether its recipient exists; or the whole call from its frame, once its session is registered or found.

use std::{borrow::Cow, panic::AssertUnwindSafe, rc::Rc, sync::Arc};

use actors::{
    clock,
    model::{BrokerError, Scope, SessionId},
    project::Lookup,
    session::{Member, ReadAt},
    trace::in_trace,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Either, LocalBoxFuture, join, select},
};

use crate::{
    auth::AuditedAction,
    mcp::{
        calls::ShutdownBehaviour,
        client::PeerKind,
        context::PeerContext,
        pending_receive::HandedOver,
        reply::{ReplyTo, ToolResult},
        rpc::{self, INTERNAL_ERROR, Incoming, Params, RpcError, check_refused, shortened},
        tools::{self, Called, PendingCall, Tool, ToolCaller, tool::AnswerReservation},
        version::{ClientInfo, Era},
    },
    verbs::{arguments::Arguments, backends},
};
use common::json::scan::ScanError;

#[cfg(feature = "conformance-fixtures")]
use crate::mcp::{
    fixtures,
    interactive::{InteractiveCall, InteractiveFn},
};

/// What a call waits for before its tool runs. An error answers the call.
type Wait = LocalBoxFuture<'static, Result<(), BrokerError>>;

/// Serves `tools/call`; `text` is its frame.
pub(super) fn call_tool(
    context: &Rc<PeerContext>,
    to: &mut ReplyTo,
    params: &mut Params<'_>,
    era: &Era,
    text: &str,
) -> Result<(), RpcError> {
    if let Some(wait) = try_call(context, to, params, era, false)? {
        let frame = (text.to_owned(), context.read_at());
        let call = call_after(wait, Rc::clone(context), to.clone(), frame, era.clone());
        let trace = to.trace.as_ref().map(|trace| trace.context().clone());
        context.calls.run_exclusively(to, text.len(), in_trace(trace, call));
    }
    Ok(())
}

/// Serves the call of a frame, and of the time when it was read, after a wait.
async fn call_after(
    mut wait: Wait,
    context: Rc<PeerContext>,
    mut to: ReplyTo,
    (text, read_at): (String, ReadAt),
    era: Era,
) {
    loop {
        if let Err(error) = wait.await {
            return context.refuse(&to, &error);
        }
        let Ok(Incoming::Request { mut params, .. }) = rpc::parse(&text) else {
            return;
        };
        let receives = params.named().is_some_and(|name| tools::receives_messages(&name));
        if receives && context.calls.is_unread(&to.id) {
            return context.refuse(&to, &BrokerError::unavailable());
        }
        context.set_read_at(read_at);
        match context.charged(|| try_call(&context, &mut to, &mut params, &era, true)) {
            Ok(None) => return,
            Ok(Some(next)) => wait = next,
            Err(error) => return context.fail(&to, &error),
        }
    }
}

/// Runs the tool. Returns what has to come before, if anything; then the call is tried again, and `has_waited`.
fn try_call(
    context: &Rc<PeerContext>,
    to: &mut ReplyTo,
    params: &mut Params<'_>,
    era: &Era,
    has_waited: bool,
) -> Result<Option<Wait>, RpcError> {
    let tool = find_tool(context, params)?;
    if tool.name == tools::REGISTER_SESSION
        && let Some(client) = ClientInfo::from_meta(params)
    {
        context.set_client(Some(client));
    }
    #[cfg(feature = "conformance-fixtures")]
    if let Some(run) = fixtures::tools::run_of(tool.name) {
        return start_interactive(context, to, "tools/call", params, era, run).map(|()| None);
    }
    if tools::asks(tool.name) {
        to.input = tools::read_input(context, params, era)?;
    }
    match begin(context, to, tool, std::mem::take(&mut params.members), has_waited) {
        Ok(wait) => Ok(wait),
        // The scanner does not check arguments: the tool may have refused a text that is not JSON.
        Err(_)
            if params
                .arguments
                .is_some_and(|arguments| check_refused(arguments).is_err()) =>
        {
            Err(ScanError::Syntax.into())
        }
        Err(error) => {
            context.refuse(to, &error);
            Ok(None)
        }
    }
}

/// The tool that the params name, after checks of their shape.
fn find_tool(context: &PeerContext, params: &Params<'_>) -> Result<&'static Tool, RpcError> {
    let name = params
        .name
        .ok_or_else(|| RpcError::invalid_params("Invalid params: no tool is named"))?;
    let Some(name) = params.named() else {
        check_refused(name)?;
        return Err(RpcError::invalid_params(
            "Invalid params: the name of a tool is a string of at most 64 KiB",
        ));
    };
    if let Some(arguments) = params
        .arguments
        .filter(|arguments| !arguments.starts_with('{') && *arguments != "null")
    {
        check_refused(arguments)?;
        return Err(RpcError::invalid_params("Invalid params: arguments must be an object"));
    }
    let is_offered = |tool: &&Tool| {
        let is_multi_project = context.service.admin.is_multi_project();
        tools::is_offered(tool, is_multi_project, || backends::any(&context.project))
    };
    let Some(tool) = tools::find(&name).filter(is_offered) else {
        params.arguments.map_or(Ok(()), check_refused)?;
        return Err(RpcError::invalid_params(format!("Unknown tool: {}", shortened(&name))));
    };
    Ok(tool)
}

/// Starts a call that interacts with its caller.
#[cfg(feature = "conformance-fixtures")]
pub(super) fn start_interactive(
    context: &Rc<PeerContext>,
    to: &ReplyTo,
    method: &str,
    params: &Params<'_>,
    era: &Era,
    run: InteractiveFn,
) -> Result<(), RpcError> {
    if !context.calls.has_free_slot() {
        return Err(RpcError::new(INTERNAL_ERROR, "too many calls are under way"));
    }
    let capabilities = match era {
        Era::Modern { capabilities } => capabilities.clone(),
        Era::Legacy => context.legacy.capabilities(),
    };
    InteractiveCall::new(context, to, method, params.parse()?, capabilities)?.start(run);
    Ok(())
}

fn begin<'a>(
    context: &Rc<PeerContext>,
    to: &mut ReplyTo,
    tool: &'static Tool,
    members: Vec<(Cow<'a, str>, &'a str)>,
    has_waited: bool,
) -> Result<Option<Wait>, BrokerError> {
    check_scope(context, tool)?;
    let mut arguments = Arguments::new(members)?;
    let registers = tool.name == tools::REGISTER_SESSION;
    let session_id = match arguments.session_id() {
        Err(_) if registers => None,
        session_id => session_id?,
    };
    if tool.acts_as_session && session_id.is_none() && context.needs_session() {
        let context = Rc::clone(context);
        let registered = async move { context.register_unnamed_session().await };
        return Ok(Some(registered.map(Ok).boxed_local()));
    }
    if context.outbox.is_taken_over() && !(context.kind == PeerKind::HttpSession && registers) {
        return Err(BrokerError::SessionTakenOver);
    }
    let mut caller = ToolCaller::new(context);
    match session_id.map(|id| find_session(context, id, has_waited)) {
        None => {}
        Some(Lookup::Pending(found)) => {
            let waited = found.answer().map(|found| match found {
                Err(error @ BrokerError::Unavailable { .. }) => Err(error),
                _ => Ok(()),
            });
            return Ok(Some(waited.boxed_local()));
        }
        Some(Lookup::Ready(Ok(member))) => {
            act_as(context, to, &member, registers);
            caller.session = Some(member);
        }
        // Registering is the way back of a caller whose session has ended or was taken over.
        Some(Lookup::Ready(Err(error))) if !registers || matches!(error, BrokerError::Unavailable { .. }) => {
            return Err(error);
        }
        Some(Lookup::Ready(Err(_))) => {}
    }
    let bytes = arguments.bytes();
    let called = (tool.run)(&caller, arguments, to)?;
    finish(&caller, to, tool, bytes, called)?;
    Ok(None)
}

/// The session that a call names; that of the connection by whichever of its ids the caller knows.
fn find_session(context: &PeerContext, id: SessionId, has_waited: bool) -> Lookup<Arc<Member>> {
    let own = context.binding.member().filter(|own| own.record.id == id.durable());
    if let Some(own) = own {
        return Lookup::Ready(Ok(own));
    }
    let found = context.project.own_session(id, context.identity.owner());
    if has_waited {
        Lookup::Ready(found.known())
    } else {
        found
    }
}

/// Checks that the caller may call this tool, and audits a refusal. The administration checks and audits its own tools.
fn check_scope(context: &PeerContext, tool: &Tool) -> Result<(), BrokerError> {
    if tool.required_scope >= Scope::Admin {
        return Ok(());
    }
    context.identity.check_scope(tool.required_scope).inspect_err(|error| {
        let action = AuditedAction {
            action: tool.name,
            project: None,
            target: None,
        };
        let audit = context.service.admin.audit();
        audit.record_refused(&context.identity, &action, error);
    })
}

/// Acts for the session that a call names by its id.
fn act_as(context: &PeerContext, to: &mut ReplyTo, member: &Arc<Member>, registers: bool) {
    member.touch(context.project.settings().presence, clock::now());
    if context.kind == PeerKind::Stateless {
        context.binding.set_member(Arc::clone(member));
    } else if !context.binding.is_member(member) && !registers {
        // As for a stateless caller, the connection is not bound to the session.
        to.acts_as = Some(Arc::clone(member));
    }
}

/// Refreshes the number of messages that wait for the caller's session, which the answer reports. `None` if it is
/// current.
fn refresh_depth(caller: &ToolCaller) -> Option<BoxFuture<'static, ()>> {
    let session = caller.session.as_ref()?;
    caller.project().refresh_waiting_if_unknown(session)
}

/// Does what the tool has left to do. A call that waits keeps `bytes` of its frame.
fn finish(
    caller: &ToolCaller,
    to: &ReplyTo,
    tool: &'static Tool,
    bytes: usize,
    called: Called,
) -> Result<(), BrokerError> {
    let context = &caller.context;
    match called {
        Called::Answered(result) => match refresh_depth(caller) {
            None => context.answer(to, Ok(result)),
            Some(refreshing) => {
                let (answering, again) = (Rc::clone(context), to.clone());
                context.calls.run_exclusively(to, 0, async move {
                    refreshing.await;
                    answering.answer(&again, Ok(result));
                });
            }
        },
        Called::Prepared(send) => context.prepared.borrow_mut().push(send),
        Called::Runs(call) => start(caller, to, tool, call)?,
        Called::Waits(rest) => {
            let (caller, again) = (caller.clone(), to.clone());
            context.calls.run_exclusively(to, bytes, async move {
                let finished = rest.await.and_then(|called| finish(&caller, &again, tool, 0, called));
                if let Err(error) = finished {
                    caller.context.refuse(&again, &error);
                }
            });
        }
    }
    Ok(())
}

fn start(caller: &ToolCaller, to: &ReplyTo, tool: &'static Tool, call: PendingCall) -> Result<(), BrokerError> {
    let context = &caller.context;
    if !context.calls.has_free_slot() {
        return Err(BrokerError::unavailable());
    }
    if call.may_wait
        && let Some(task) = context.become_task(to)
    {
        context.run_as_task(&task, call.receive, call.answer);
        return Ok(());
    }
    let reservation = Rc::clone(caller.reservation());
    if call.has_page {
        reservation.reserve_page();
    }
    if let Some(receive) = &call.receive {
        context.calls.record_receive(to, HandedOver::Received(receive.clone()));
    }
    let on_shutdown = match &call.shutdown {
        Some(shutdown) => ShutdownBehaviour::Notify(Rc::clone(shutdown)),
        None if call.may_wait => ShutdownBehaviour::Refuse,
        None => ShutdownBehaviour::Finish,
    };
    let progress = to.progress.clone().filter(|_| call.shutdown.is_none());
    let trace = to.trace.as_ref().map(|trace| trace.context().clone());
    let refreshing = refresh_depth(caller);
    let running = run_pending(Rc::clone(context), to.clone(), call, refreshing, reservation);
    let running = in_trace(trace, running);
    if tool.exclusive {
        context.calls.run_exclusively(to, 0, running);
    } else {
        let to = ReplyTo { progress, ..to.clone() };
        context.calls.spawn(&to, on_shutdown, running);
    }
    Ok(())
}

/// Runs a call to its answer and sends it.
async fn run_pending(
    context: Rc<PeerContext>,
    to: ReplyTo,
    call: PendingCall,
    refreshing: Option<BoxFuture<'static, ()>>,
    reservation: Rc<AnswerReservation>,
) {
    let _page_permit = if call.has_page {
        to.route.page_permit().await
    } else {
        None
    };
    if call.has_page {
        if let Err(error) = to.route.check_room() {
            return to.error(&context.outbox, &error);
        }
        reservation.wait_for_page().await;
    }
    let answer = await_answer(&reservation, call.answer, call.wait_started);
    let answer = AssertUnwindSafe(answer).catch_unwind();
    let result = match refreshing {
        Some(refreshing) => join(refreshing, answer).await.1,
        None => answer.await,
    };
    match result {
        Ok(result) => context.answer_receive(&to, result, call.receive),
        Err(_) => to.error(&context.outbox, &RpcError::new(INTERNAL_ERROR, "Internal error")),
    }
    drop(reservation);
    if let Some(after_answer) = call.after_answer {
        after_answer.await;
    }
}

/// The answer of a call. The call releases its reserved page once it waits for messages.
async fn await_answer(
    reservation: &AnswerReservation,
    mut answer: LocalBoxFuture<'static, Result<ToolResult, BrokerError>>,
    wait_started: Option<LocalBoxFuture<'static, ()>>,
) -> Result<ToolResult, BrokerError> {
    let Some(wait_started) = wait_started else {
        return answer.await;
    };
    match select(&mut answer, wait_started).await {
        Either::Left((answered, _)) => answered,
        Either::Right(_) => {
            reservation.release_page();
            answer.await
        }
    }
}
