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
use crate::auth::Act;
use crate::mcp::{
    conversation::{Conversation, Outcome},
    reply::{Answer, ReplyTo, in_era},
    room::AnswerRoom,
    rpc::{self, INTERNAL_ERROR, Incoming, Params, RpcError, is_json, shortened},
    scan::{self, ScanError},
    shared::{Kind, Shared, WhenStopped},
    tasks,
    tools::{self, Arguments, Caller, Run, Tool},
    turn::Turn,
    version::{Client, Era},
};

/// Makes a session for a connection that has none and comes back to the frame then. False when there is one, and for
/// who may only look, who has none.
pub(super) fn needs_session(turn: &mut Turn, to: &ReplyTo, text: &str) -> bool {
    let shared = &turn.shared;
    if shared.kind == Kind::Stateless || shared.session.borrow().is_some() || shared.said_goodbye.get() {
        return false;
    }
    if shared.identity.check(Scope::Member).is_err() {
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
            *shared.session_refused.borrow_mut() = Some(error);
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
    let tool = params.named().and_then(|name| tools::find(&name));
    method == "tools/call"
        && tool.is_some_and(|tool| tool.acts_as_session)
        && params.members.iter().all(|(name, _)| name != "session_id")
}

/// Whether a frame, or one of a batch, takes messages out of an inbox.
pub(in crate::mcp) fn takes_messages(frame: &str) -> bool {
    match rpc::parse(frame) {
        Ok(Incoming::Request { params, .. }) => params.named().is_some_and(|name| tools::takes_messages(&name)),
        Ok(Incoming::Batch(frames)) => frames.into_iter().any(takes_messages),
        _ => false,
    }
}

/// `tasks/get`, `tasks/update`, `tasks/cancel`.
pub(super) fn task(turn: &Turn, to: &ReplyTo, method: &str, params: &Params<'_>) -> Result<(), RpcError> {
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
    let task = shared.service.tasks.find(&shared.identity, &task_id)?;
    match method {
        "tasks/get" => {
            let taking = task.claim();
            if let Some(taking) = &taking {
                // It is the caller's now, unless the answer does not get through.
                shared.remember(to, taking.clone());
            }
            to.raw_result_taking(&shared.outbox, &task.detailed(), taking);
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

pub(super) fn call(
    turn: &mut Turn,
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
    let is_here = |tool: &&Tool| turn.shared.service.admin.multi_project() || tools::is_of_one_project(tool);
    let Some(tool) = tools::find(&name).filter(is_here) else {
        params.arguments.map_or(Ok(()), scan::check)?;
        return Err(RpcError::invalid_params(format!("Unknown tool: {}", shortened(&name))));
    };
    let arguments = params.arguments.filter(|arguments| *arguments != "null");
    if tool.name == tools::REGISTER_SESSION
        && let Some(client) = Client::of(params)
    {
        *turn.shared.client.borrow_mut() = Some(Box::new(client));
    }
    if let Run::Converse(tool) = tool.run {
        return converse(turn, to, "tools/call", params, era, tool);
    }
    match run(turn, to, tool, std::mem::take(&mut params.members), text) {
        Ok(()) => Ok(()),
        // What made the tool refuse may be that the frame was no JSON, which nobody had looked at yet.
        Err(_) if arguments.is_some_and(|arguments| !is_json(arguments)) => Err(ScanError::Syntax.into()),
        Err(error) => {
            if let Some(error) = after_news(turn, to, error, text) {
                turn.shared.refuse(to, &error);
            }
            Ok(())
        }
    }
}

/// Begins a call that talks with its caller.
pub(super) fn converse(
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
                .and_then(|legacy| serde_json::from_str(&legacy.capabilities).ok())
                .unwrap_or_default()
        }
    };
    Conversation::new(shared, to, method, params.read()?, capabilities)?.start(run);
    Ok(())
}

/// Has a frame taken up again when the store has said how many messages wait for this session, if that is not known: what is
/// answered at once says it. False when it is known, or was just asked.
pub(super) fn counts_first(turn: &mut Turn, to: &ReplyTo, session: Option<&Arc<Member>>, text: &str) -> bool {
    let shared = Rc::clone(&turn.shared);
    // A frame that is taken up again after a look at other replicas was counted for before the look: to count once more
    // would forget what the look found, and the two would follow each other without end.
    let has_looked = shared.caught_up.borrow().is_some();
    // An element of a batch cannot be taken up again alone.
    if shared.waiting_is_counted.take() || has_looked || to.lane.is_batch() {
        return false;
    }
    let Some(counting) = session.and_then(|session| shared.project.count_if_doubtful(session)) else {
        return false;
    };
    let count = async move {
        counting.await;
        shared.waiting_is_counted.set(true);
    };
    turn.exclusively(to, count, Some(text));
    true
}

/// The session that a call names by its id.
fn act_for(shared: &Shared, to: &mut ReplyTo, id: SessionId, registers: bool) -> Result<Arc<Member>, BrokerError> {
    let member = shared.project.session_of(id, shared.identity.owner())?;
    member.touch(shared.project.settings().presence, actors::clock::now());
    let is_own = |own: &Arc<Member>| own.record.id == member.record.id;
    if shared.kind == Kind::Stateless {
        *shared.session.borrow_mut() = Some(Arc::clone(&member));
    } else if !shared.session.borrow().as_ref().is_some_and(is_own) {
        // As for a stateless caller: the connection claims nothing of the session, and takes nothing with it.
        shared.project.is_named_by_id(&member);
        if !registers {
            to.acts_as = Some(Arc::clone(&member));
        }
    }
    Ok(member)
}

fn run(
    turn: &mut Turn,
    to: &mut ReplyTo,
    tool: &'static Tool,
    members: Vec<(Cow<'_, str>, &str)>,
    text: &str,
) -> Result<(), BrokerError> {
    let shared = Rc::clone(&turn.shared);
    // Who administers is asked, and written down, where that is done.
    if tool.needs < Scope::Admin
        && let Err(error) = shared.identity.check(tool.needs)
    {
        let act = Act {
            action: tool.name,
            project: None,
            target: None,
        };
        shared.service.admin.audit().refused(&shared.identity, &act, &error);
        return Err(error);
    }
    let mut arguments = Arguments::new(members)?;
    let registers = tool.name == tools::REGISTER_SESSION;
    let session = match arguments.session_id() {
        Err(_) if registers => None,
        session => session?,
    };
    if tool.acts_as_session && session.is_none() && needs_session(turn, to, text) {
        return Ok(());
    }
    if shared.outbox.taken_over() && !(shared.kind == Kind::Resumable && registers) {
        return Err(BrokerError::SessionTakenOver);
    }
    let mut caller = Caller::of(&shared);
    if let Some(id) = session {
        match act_for(&shared, to, id, registers) {
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
    if matches!(tool.run, Run::Now(_)) && counts_first(turn, to, caller.session.as_ref(), text) {
        return Ok(());
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
            let counting = caller.session.as_ref();
            let counting = counting.and_then(|session| shared.project.count_if_doubtful(session));
            let room = Rc::clone(caller.room());
            let mut call = start(caller, arguments)?;
            if call.lasts
                && let Some(task) = shared.become_task(to)
            {
                shared.run_as_task(&task, call.takes, call.answer);
                return Ok(());
            }
            if call.pages {
                room.reserve_page();
            }
            let taking = call.takes.take();
            if let Some(taking) = &taking {
                shared.remember(to, taking.clone());
            }
            let when_stopped = if call.lasts {
                WhenStopped::IsRefused
            } else {
                WhenStopped::Finishes
            };
            let task = {
                let (shared, to) = (Rc::clone(&shared), to.clone());
                async move {
                    let _turn = if call.pages { to.lane.turn_of_page().await } else { None };
                    if call.pages {
                        if let Err(error) = to.lane.check_room() {
                            return to.error(&shared.outbox, &error);
                        }
                        room.opens().await;
                    }
                    let answer = answered_in(&room, call.answer, call.waits);
                    let answer = std::panic::AssertUnwindSafe(answer).catch_unwind();
                    let outcome = match counting {
                        Some(counting) => join(counting, answer).await.1,
                        None => answer.await,
                    };
                    match outcome {
                        Ok(answer) => shared.answer_taking(&to, answer, taking),
                        Err(_) => to.error(&shared.outbox, &RpcError::new(INTERNAL_ERROR, "Internal error")),
                    }
                    drop(room);
                    if let Some(then) = call.then {
                        then.await;
                    }
                }
            };
            if tool.exclusive {
                turn.exclusively(to, task, None);
            } else {
                shared.spawn(to, when_stopped, task);
            }
        }
        Run::Converse(_) => return Err(BrokerError::unavailable()),
    }
    Ok(())
}

/// The answer of a call, which takes no room for it while it waits for what may come late.
async fn answered_in(
    room: &AnswerRoom,
    mut answer: LocalBoxFuture<'static, Result<Answer, BrokerError>>,
    waits: Option<LocalBoxFuture<'static, ()>>,
) -> Result<Answer, BrokerError> {
    let Some(waits) = waits else {
        return answer.await;
    };
    match select(&mut answer, waits).await {
        Either::Left((answered, _)) => answered,
        Either::Right(_) => {
            room.closes();
            answer.await
        }
    }
}
