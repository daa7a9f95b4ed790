//! `tools/call`: from the frame to the tool, and from the tool to the answer.
//!
//! A call that cannot run yet is suspended: until its connection has a session, until a session that another replica may
//! have registered is found, or until the number of waiting messages is current. Then it continues where it was.

use std::{borrow::Cow, panic::AssertUnwindSafe, rc::Rc, sync::Arc};

use actors::{
    clock,
    model::{BrokerError, Scope, SessionId},
    project::Lookup,
    session::Member,
    trace::in_trace,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Either, LocalBoxFuture, join, select},
};

use super::implicit_session::{needs_session, register_session};
use crate::auth::AuditedAction;
use crate::mcp::{
    answer_reservation::AnswerReservation,
    binding::PeerKind,
    calls::ShutdownBehaviour,
    context::PeerContext,
    interactive::{InteractiveCall, InteractiveFn},
    pending_receive::HandedOver,
    read_batch::{ReadBatch, Suspension},
    reply::{ReplyTo, ToolResult},
    rpc::{INTERNAL_ERROR, Params, RpcError, check_refused, shortened},
    tools::{self, PendingCall, Run, Tool, ToolCaller},
    version::{ClientInfo, Era},
};
use crate::verbs::{
    arguments::{Arguments, OwnedArguments},
    backends,
};
use common::json::scan::ScanError;

/// A call on its way to its tool.
struct ToolCall<'a> {
    to: &'a mut ReplyTo,
    tool: &'static Tool,
    arguments: Arguments<'a>,
    /// The session that the call names.
    session_id: Option<SessionId>,
    /// What became of looking it up, once that is known.
    session: Option<Result<Arc<Member>, BrokerError>>,
    /// The number of waiting messages has been refreshed for this call.
    is_depth_fresh: bool,
}

/// A suspended call.
struct SuspendedToolCall {
    to: ReplyTo,
    tool: &'static Tool,
    arguments: OwnedArguments,
    session_id: Option<SessionId>,
    session: Option<Result<Arc<Member>, BrokerError>>,
    is_depth_fresh: bool,
}

/// Serves `tools/call`.
pub(super) fn call_tool(
    batch: &mut ReadBatch,
    to: &mut ReplyTo,
    params: &mut Params<'_>,
    era: &Era,
) -> Result<(), RpcError> {
    let tool = find_tool(&batch.context, params)?;
    let arguments = params.arguments.filter(|arguments| *arguments != "null");
    if tool.name == tools::REGISTER_SESSION
        && let Some(client) = ClientInfo::from_meta(params)
    {
        batch.context.set_client(Some(client));
    }
    if let Run::Interactive(run) = tool.run {
        return start_interactive(batch, to, "tools/call", params, era, run);
    }
    if matches!(tool.run, Run::Asking(_)) {
        to.input = tools::read_input(&batch.context, params, era)?;
    }
    match begin(batch, to, tool, std::mem::take(&mut params.members)) {
        Ok(()) => Ok(()),
        // The scanner does not check arguments: the tool may have refused a text that is not JSON.
        Err(_) if arguments.is_some_and(|arguments| check_refused(arguments).is_err()) => Err(ScanError::Syntax.into()),
        Err(error) => {
            batch.context.refuse(to, &error);
            Ok(())
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
pub(super) fn start_interactive(
    batch: &ReadBatch,
    to: &ReplyTo,
    method: &str,
    params: &Params<'_>,
    era: &Era,
    run: InteractiveFn,
) -> Result<(), RpcError> {
    let context = &batch.context;
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
    batch: &mut ReadBatch,
    to: &'a mut ReplyTo,
    tool: &'static Tool,
    members: Vec<(Cow<'a, str>, &'a str)>,
) -> Result<(), BrokerError> {
    check_scope(&batch.context, tool)?;
    let mut arguments = Arguments::new(members)?;
    let session_id = match arguments.session_id() {
        Err(_) if tool.name == tools::REGISTER_SESSION => None,
        session_id => session_id?,
    };
    let call = ToolCall {
        to,
        tool,
        arguments,
        session_id,
        session: None,
        is_depth_fresh: false,
    };
    call.advance(batch)
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

impl ToolCall<'_> {
    /// Runs the tool, or suspends the call until it can run.
    fn advance(mut self, batch: &mut ReadBatch) -> Result<(), BrokerError> {
        let context = Rc::clone(&batch.context);
        if self.tool.acts_as_session && self.session_id.is_none() && needs_session(&context) {
            self.suspend(batch, register_session(context), |_, ()| {});
            return Ok(());
        }
        let registers = self.tool.name == tools::REGISTER_SESSION;
        if context.outbox.is_taken_over() && !(context.kind == PeerKind::HttpSession && registers) {
            return Err(BrokerError::SessionTakenOver);
        }
        let mut caller = ToolCaller::new(&context);
        if let Some(id) = self.session_id {
            let own = context.binding.member();
            let found = match self.session.take().or_else(|| own_of_connection(own, id)) {
                Some(found) => found,
                None => match context.project.own_session(id, context.identity.owner()) {
                    Lookup::Ready(found) => found,
                    Lookup::Pending(found) => {
                        self.suspend(batch, found.answer(), |call, found| call.session = Some(found));
                        return Ok(());
                    }
                },
            };
            match &found {
                Ok(member) => {
                    act_as(&context, self.to, member, registers);
                    caller.session = Some(Arc::clone(member));
                }
                Err(error @ BrokerError::Unavailable { .. }) => return Err(error.clone()),
                // Registering is the way back of a caller whose session has ended or was taken over.
                Err(_) if registers => {}
                Err(error) => return Err(error.clone()),
            }
            self.session = Some(found);
        }
        if matches!(self.tool.run, Run::Sync(_))
            && !self.is_depth_fresh
            && let Some(refreshing) = refresh_depth(&caller)
        {
            self.suspend(batch, refreshing, |call, ()| call.is_depth_fresh = true);
            return Ok(());
        }
        self.run(batch, caller)
    }

    /// Suspends the call while `wait` runs; `note` stores its output in the call before it continues.
    fn suspend<T: 'static>(
        self,
        batch: &mut ReadBatch,
        wait: impl Future<Output = T> + 'static,
        note: impl FnOnce(&mut SuspendedToolCall, T) + 'static,
    ) {
        let mut call = SuspendedToolCall {
            to: self.to.clone(),
            tool: self.tool,
            arguments: self.arguments.to_owned(),
            session_id: self.session_id,
            session: self.session,
            is_depth_fresh: self.is_depth_fresh,
        };
        let suspension = Suspension {
            to: self.to,
            receives_messages: tools::receives_messages(self.tool.name),
            bytes: self.arguments.bytes(),
        };
        batch.suspend(&suspension, wait, move |batch, output| {
            note(&mut call, output);
            call.resume(batch);
        });
    }

    fn run(self, batch: &mut ReadBatch, caller: ToolCaller) -> Result<(), BrokerError> {
        let bytes = self.arguments.bytes();
        match self.tool.run {
            Run::Submit(prepare) => {
                let send = prepare(&caller, self.arguments, self.to.clone())?;
                await_lookup(batch, self.to, bytes, send, |batch, _, send| batch.prepare(send))
            }
            Run::Sync(run) => {
                let result = run(&caller, self.arguments)?;
                await_lookup(batch, self.to, bytes, result, |batch, to, result| {
                    batch.context.answer(to, Ok(result));
                })
            }
            Run::Async(start) => {
                let start = |caller| start(caller, self.arguments);
                start_async(&batch.context, self.to, self.tool, caller, start)
            }
            Run::Asking(start) => {
                let start = |caller| start(caller, self.arguments, self.to.clone());
                start_async(&batch.context, self.to, self.tool, caller, start)
            }
            Run::Interactive(_) => Err(BrokerError::unavailable()),
        }
    }
}

impl SuspendedToolCall {
    fn resume(mut self, batch: &mut ReadBatch) {
        let call = ToolCall {
            to: &mut self.to,
            tool: self.tool,
            arguments: self.arguments.as_arguments(),
            session_id: self.session_id,
            session: self.session,
            is_depth_fresh: self.is_depth_fresh,
        };
        if let Err(error) = call.advance(batch) {
            batch.context.refuse(&self.to, &error);
        }
    }
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

/// The session of the connection, if the call names that one: whichever of its ids the caller knows, the connection acts.
fn own_of_connection(own: Option<Arc<Member>>, id: SessionId) -> Option<Result<Arc<Member>, BrokerError>> {
    own.filter(|own| own.record.id == id.durable()).map(Ok)
}

/// Refreshes the number of messages that wait for the caller's session, which the answer reports. `None` if it is
/// current.
fn refresh_depth(caller: &ToolCaller) -> Option<BoxFuture<'static, ()>> {
    let session = caller.session.as_ref()?;
    caller.project.refresh_waiting_if_unknown(session)
}

/// Calls `then` with the result of a lookup: now if it is known at this replica, else once it is. Later frames of the
/// connection wait meanwhile, so their order holds.
fn await_lookup<T: 'static>(
    batch: &mut ReadBatch,
    to: &ReplyTo,
    bytes: usize,
    lookup: Lookup<T>,
    then: fn(&mut ReadBatch, &ReplyTo, T),
) -> Result<(), BrokerError> {
    match lookup {
        Lookup::Ready(found) => then(batch, to, found?),
        Lookup::Pending(found) => {
            let suspension = Suspension {
                to,
                receives_messages: false,
                bytes,
            };
            let to = to.clone();
            batch.suspend(&suspension, found.answer(), move |batch, found| match found {
                Ok(found) => then(batch, &to, found),
                Err(error) => batch.context.refuse(&to, &error),
            });
        }
    }
    Ok(())
}

fn start_async(
    context: &Rc<PeerContext>,
    to: &ReplyTo,
    tool: &'static Tool,
    caller: ToolCaller,
    start: impl FnOnce(ToolCaller) -> Result<PendingCall, BrokerError>,
) -> Result<(), BrokerError> {
    if !context.calls.has_free_slot() {
        return Err(BrokerError::unavailable());
    }
    let refreshing = refresh_depth(&caller);
    let reservation = Rc::clone(caller.reservation());
    let call = start(caller)?;
    if call.may_wait
        && let Some(task) = context.become_task(to)
    {
        context.run_as_task(&task, call.receive, call.answer);
        return Ok(());
    }
    if call.has_page {
        reservation.reserve_page();
    }
    if let Some(receive) = &call.receive {
        context.calls.record_receive(to, HandedOver::Received(receive.clone()));
    }
    let on_shutdown = match &call.hurry {
        Some(hurry) => ShutdownBehaviour::Hurry(Rc::clone(hurry)),
        None if call.may_wait => ShutdownBehaviour::Refuse,
        None => ShutdownBehaviour::Finish,
    };
    let progress = to.progress.clone().filter(|_| call.hurry.is_none());
    let trace = to.trace.as_ref().map(|trace| trace.context().clone());
    let running = run_pending(Rc::clone(context), to.clone(), call, refreshing, reservation);
    let running = in_trace(trace, running);
    if tool.exclusive {
        context.calls.run_exclusively(to, running);
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
