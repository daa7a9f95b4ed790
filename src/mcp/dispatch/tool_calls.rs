//! Calls of tools, and what became tasks of them.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use actors::{
    model::{BrokerError, Scope, SessionId},
    session::Member,
};
use futures_util::{
    FutureExt,
    future::{Either, LocalBoxFuture, join, select},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::looking::{after_news, looks_first};
use crate::auth::AuditedAction;
use crate::mcp::{
    answer_reservation::AnswerReservation,
    context::{PeerContext, PeerKind, ShutdownBehaviour},
    interactive::{InteractiveCall, InteractiveResult},
    read_batch::ReadBatch,
    reply::{ReplyTo, ToolResult, with_era_members},
    rpc::{self, INTERNAL_ERROR, Incoming, Params, RpcError, is_json, shortened},
    scan::{self, ScanError},
    tasks,
    tools::{self, Arguments, Run, Tool, ToolCaller},
    version::{ClientInfo, Era},
};

/// Makes a session for a connection that has none and comes back to the frame then. False when there is one, and for
/// who may only look, who has none.
pub(super) fn ensure_session(turn: &mut ReadBatch, to: &ReplyTo, text: &str) -> bool {
    let context = &turn.context;
    if context.kind == PeerKind::Stateless || context.session.borrow().is_some() || context.has_left.get() {
        return false;
    }
    if context.identity.check_scope(Scope::Member).is_err() {
        return false;
    }
    if to.route.is_batch() {
        // An element of a batch cannot be taken up again alone.
        return false;
    }
    let context = Rc::clone(&turn.context);
    let opening = async move {
        if let Err(error) = context.register_unnamed_session().await {
            // The frame is taken up again without a session, and that answers it.
            tracing::warn!(%error, "a connection got no session of its own");
            *context.session_error.borrow_mut() = Some(error);
            context.has_left.set(true);
        }
    };
    turn.run_exclusively(to, opening, Some(text));
    true
}

/// Whether a frame calls a tool for the session of the connection.
pub(super) fn acts_as_session(frame: &str) -> bool {
    let Ok(Incoming::Request { method, params, .. }) = rpc::parse(frame) else {
        return false;
    };
    let tool = params.named().and_then(|name| tools::find(&name));
    method == "tools/call"
        && tool.is_some_and(|tool| tool.acts_as_session)
        && params.members.iter().all(|(name, _)| name != "session_id")
}

/// Whether a frame, or one of a batch, takes messages out of an inbox.
pub(in crate::mcp) fn takes_messages(frame: &str) -> bool {
    match rpc::parse(frame) {
        Ok(Incoming::Request { params, .. }) => params.named().is_some_and(|name| tools::receives_messages(&name)),
        Ok(Incoming::Batch(frames)) => frames.into_iter().any(takes_messages),
        _ => false,
    }
}

/// `tasks/get`, `tasks/update`, `tasks/cancel`.
pub(super) fn handle_task(turn: &ReadBatch, to: &ReplyTo, method: &str, params: &Params<'_>) -> Result<(), RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct TaskParams {
        task_id: String,
        input_responses: Option<Map<String, Value>>,
    }
    if !to.takes_tasks {
        return Err(tasks::extension_not_declared());
    }
    let TaskParams {
        task_id,
        input_responses,
    } = params.read()?;
    let context = &turn.context;
    let task = context.service.tasks.find(&context.identity, &task_id)?;
    match method {
        "tasks/get" => {
            let receive = task.take_unclaimed();
            if let Some(receive) = &receive {
                // It is the caller's now, unless the answer does not get through.
                context.record_receive(to, receive.clone());
            }
            to.raw_result_with_receive(&context.outbox, &task.detailed_result(), receive);
            return Ok(());
        }
        "tasks/update" => {
            let responses = input_responses
                .ok_or_else(|| RpcError::invalid_params("Invalid params: inputResponses is required, an object"))?;
            task.update(responses);
        }
        _ => task.cancel(),
    }
    to.result(&context.outbox, &with_era_members(json!({}), true));
    Ok(())
}

pub(super) fn call_tool(
    turn: &mut ReadBatch,
    to: &mut ReplyTo,
    params: &mut Params<'_>,
    era: &Era,
    text: &str,
) -> Result<(), RpcError> {
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
    let is_here = |tool: &&Tool| turn.context.service.admin.is_multi_project() || tools::is_single_project(tool);
    let Some(tool) = tools::find(&name).filter(is_here) else {
        params.arguments.map_or(Ok(()), scan::check)?;
        return Err(RpcError::invalid_params(format!("Unknown tool: {}", shortened(&name))));
    };
    let arguments = params.arguments.filter(|arguments| *arguments != "null");
    if tool.name == tools::REGISTER_SESSION
        && let Some(client) = ClientInfo::from_meta(params)
    {
        *turn.context.client.borrow_mut() = Some(Box::new(client));
    }
    if let Run::Interactive(tool) = tool.run {
        return start_interactive(turn, to, "tools/call", params, era, tool);
    }
    match run_tool(turn, to, tool, std::mem::take(&mut params.members), text) {
        Ok(()) => Ok(()),
        // What made the tool refuse may be that the frame was no JSON, which nobody had looked at yet.
        Err(_) if arguments.is_some_and(|arguments| !is_json(arguments)) => Err(ScanError::Syntax.into()),
        Err(error) => {
            if let Some(error) = after_news(turn, to, error, text) {
                turn.context.refuse(to, &error);
            }
            Ok(())
        }
    }
}

/// Begins a call that talks with its caller.
pub(super) fn start_interactive(
    turn: &ReadBatch,
    to: &ReplyTo,
    method: &str,
    params: &Params<'_>,
    era: &Era,
    run: fn(InteractiveCall) -> LocalBoxFuture<'static, InteractiveResult>,
) -> Result<(), RpcError> {
    let context = &turn.context;
    if !context.has_free_slot() {
        return Err(RpcError::new(INTERNAL_ERROR, "too many calls are under way"));
    }
    let capabilities = match era {
        Era::Modern { capabilities } => capabilities.clone(),
        Era::Legacy => {
            let legacy = context.legacy.borrow();
            legacy
                .as_ref()
                .and_then(|legacy| serde_json::from_str(&legacy.capabilities).ok())
                .unwrap_or_default()
        }
    };
    InteractiveCall::new(context, to, method, params.read()?, capabilities)?.start(run);
    Ok(())
}

/// Has a frame taken up again when the store has said how many messages wait for this session, if that is not known: what is
/// answered at once says it. False when it is known, or was just asked.
pub(super) fn refresh_depth_first(
    turn: &mut ReadBatch,
    to: &ReplyTo,
    session: Option<&Arc<Member>>,
    text: &str,
) -> bool {
    let context = Rc::clone(&turn.context);
    // A frame that is taken up again after a look at other replicas was counted for before the look: to count once more
    // would forget what the look found, and the two would follow each other without end.
    let has_looked = context.caught_up.borrow().is_some();
    // An element of a batch cannot be taken up again alone.
    if context.depth_is_fresh.take() || has_looked || to.route.is_batch() {
        return false;
    }
    let Some(counting) = session.and_then(|session| context.project.refresh_waiting_if_unknown(session)) else {
        return false;
    };
    let count = async move {
        counting.await;
        context.depth_is_fresh.set(true);
    };
    turn.run_exclusively(to, count, Some(text));
    true
}

/// The session that a call names by its id.
fn act_as(context: &PeerContext, to: &mut ReplyTo, id: SessionId, registers: bool) -> Result<Arc<Member>, BrokerError> {
    let member = context.project.own_session(id, context.identity.owner())?;
    member.touch(context.project.settings().presence, actors::clock::now());
    let is_own = |own: &Arc<Member>| own.record.id == member.record.id;
    if context.kind == PeerKind::Stateless {
        *context.session.borrow_mut() = Some(Arc::clone(&member));
    } else if !context.session.borrow().as_ref().is_some_and(is_own) {
        // As for a stateless caller: the connection claims nothing of the session, and takes nothing with it.
        context.project.note_named_by_id(&member);
        if !registers {
            to.acts_as = Some(Arc::clone(&member));
        }
    }
    Ok(member)
}

fn run_tool(
    turn: &mut ReadBatch,
    to: &mut ReplyTo,
    tool: &'static Tool,
    members: Vec<(Cow<'_, str>, &str)>,
    text: &str,
) -> Result<(), BrokerError> {
    let context = Rc::clone(&turn.context);
    // Who administers is asked, and written down, where that is done.
    if tool.required_scope < Scope::Admin
        && let Err(error) = context.identity.check_scope(tool.required_scope)
    {
        let act = AuditedAction {
            action: tool.name,
            project: None,
            target: None,
        };
        context
            .service
            .admin
            .audit()
            .record_refused(&context.identity, &act, &error);
        return Err(error);
    }
    let mut arguments = Arguments::new(members)?;
    let registers = tool.name == tools::REGISTER_SESSION;
    let session = match arguments.session_id() {
        Err(_) if registers => None,
        session => session?,
    };
    if tool.acts_as_session && session.is_none() && ensure_session(turn, to, text) {
        return Ok(());
    }
    if context.outbox.is_taken_over() && !(context.kind == PeerKind::HttpSession && registers) {
        return Err(BrokerError::SessionTakenOver);
    }
    let mut caller = ToolCaller::new(&context);
    if let Some(id) = session {
        match act_as(&context, to, id, registers) {
            Ok(member) => caller.session = Some(member),
            // Registering is the way back of a caller whose session has ended, or was taken over.
            Err(_) if registers => {
                if looks_first(turn, to, text)? {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
    if matches!(tool.run, Run::Sync(_)) && refresh_depth_first(turn, to, caller.session.as_ref(), text) {
        return Ok(());
    }
    match tool.run {
        Run::Submit(prepare) => {
            let prepared = prepare(&caller, arguments, to.clone())?;
            turn.prepare(prepared);
        }
        Run::Sync(run) => {
            let answer = run(&caller, arguments)?;
            context.answer(to, Ok(answer));
        }
        Run::Async(start) => {
            if !context.has_free_slot() {
                return Err(BrokerError::unavailable());
            }
            let counting = caller.session.as_ref();
            let counting = counting.and_then(|session| context.project.refresh_waiting_if_unknown(session));
            let room = Rc::clone(caller.reservation());
            let mut call = start(caller, arguments)?;
            if call.may_wait
                && let Some(task) = context.become_task(to)
            {
                context.run_as_task(&task, call.receive, call.answer);
                return Ok(());
            }
            if call.has_page {
                room.reserve_page();
            }
            let receive = call.receive.take();
            if let Some(receive) = &receive {
                context.record_receive(to, receive.clone());
            }
            let when_stopped = if call.may_wait {
                ShutdownBehaviour::Refuse
            } else {
                ShutdownBehaviour::Finish
            };
            let task = {
                let (context, to) = (Rc::clone(&context), to.clone());
                async move {
                    let _turn = if call.has_page {
                        to.route.page_permit().await
                    } else {
                        None
                    };
                    if call.has_page {
                        if let Err(error) = to.route.check_room() {
                            return to.error(&context.outbox, &error);
                        }
                        room.wait_for_page().await;
                    }
                    let answer = await_answer(&room, call.answer, call.wait_started);
                    let answer = std::panic::AssertUnwindSafe(answer).catch_unwind();
                    let outcome = match counting {
                        Some(counting) => join(counting, answer).await.1,
                        None => answer.await,
                    };
                    match outcome {
                        Ok(answer) => context.answer_receive(&to, answer, receive),
                        Err(_) => to.error(&context.outbox, &RpcError::new(INTERNAL_ERROR, "Internal error")),
                    }
                    drop(room);
                    if let Some(then) = call.after_answer {
                        then.await;
                    }
                }
            };
            if tool.exclusive {
                turn.run_exclusively(to, task, None);
            } else {
                context.spawn(to, when_stopped, task);
            }
        }
        Run::Interactive(_) => return Err(BrokerError::unavailable()),
    }
    Ok(())
}

/// The answer of a call, which takes no room for it while it waits for what may come late.
async fn await_answer(
    room: &AnswerReservation,
    mut answer: LocalBoxFuture<'static, Result<ToolResult, BrokerError>>,
    waits: Option<LocalBoxFuture<'static, ()>>,
) -> Result<ToolResult, BrokerError> {
    let Some(waits) = waits else {
        return answer.await;
    };
    match select(&mut answer, waits).await {
        Either::Left((answered, _)) => answered,
        Either::Right(_) => {
            room.release_page();
            answer.await
        }
    }
}
