//! `tasks/get`, `tasks/update` and `tasks/cancel`.

use std::{rc::Rc, sync::Arc};

use actors::{
    desk::Reader,
    model::{BrokerError, Question, QuestionId},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::mcp::{
    calls::ShutdownBehaviour,
    context::PeerContext,
    forwarding,
    pending_receive::{HandedOver, PendingNotices},
    question_tasks,
    reply::{ReplyTo, with_era_members},
    rpc::{Params, RpcError},
    tasks,
    version::Era,
};

/// Serves a method of the extension for tasks.
pub(super) fn handle_task(
    context: &Rc<PeerContext>,
    to: &ReplyTo,
    method: &'static str,
    params: &Params<'_>,
    era: &Era,
) -> Result<(), RpcError> {
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
    } = params.parse()?;
    if let Some(route) = forwarding::task_route(context, method, &task_id)? {
        return forwarding::forward(context, to, params, era, route);
    }
    if !context.exposure.has_own() {
        return Err(tasks::not_found());
    }
    let task = match context.service.tasks.find(&context.identity, &task_id) {
        Ok(task) => task,
        Err(not_found) => {
            let question = QuestionId::parse(&task_id).ok_or_else(|| not_found.clone())?;
            if !context.calls.has_free_slot() {
                return Err(RpcError::refused(&BrokerError::unavailable()));
            }
            let served = serve_question(
                Rc::clone(context),
                to.clone(),
                method == "tasks/cancel",
                question,
                not_found,
            );
            context.calls.spawn(to, ShutdownBehaviour::Finish, served);
            return Ok(());
        }
    };
    match method {
        "tasks/get" => {
            let receive = task.take_unclaimed().map(HandedOver::Received);
            if let Some(receive) = &receive {
                // From now on the answer carries the messages; if it is lost, they return to the inbox.
                context.calls.record_receive(to, receive.clone());
            }
            to.result_with_receive(&context.outbox, &*task.detailed_result(), receive);
            return Ok(());
        }
        "tasks/update" => {
            let responses = input_responses
                .ok_or_else(|| RpcError::invalid_params("Invalid params: inputResponses is required, an object"))?;
            task.update(responses);
        }
        _ => task.cancel(),
    }
    to.result(&context.outbox, with_era_members(json!({}), true));
    Ok(())
}

/// Serves a task that is a question: it lives in the store, so any replica serves it, also after a restart. A question has
/// no input requests, so an update changes nothing.
async fn serve_question(context: Rc<PeerContext>, to: ReplyTo, cancels: bool, id: QuestionId, not_found: RpcError) {
    let reader = Reader::Asker(context.identity.owner());
    let found = if cancels {
        context.project.cancel_question(id, &reader, None).await
    } else {
        context.project.question_record(id, &reader).await
    };
    let question = match found {
        Ok(question) => question,
        Err(BrokerError::QuestionNotFound { .. }) => return to.error(&context.outbox, &not_found),
        Err(error) => return to.error(&context.outbox, &RpcError::refused(&error)),
    };
    if cancels {
        return to.result(&context.outbox, with_era_members(json!({}), true));
    }
    let notices = notices_of(&context, &question)
        .await
        .map(|notices| HandedOver::Notices(notices.into()));
    if let Some(notices) = &notices {
        context.calls.record_receive(&to, notices.clone());
    }
    let result = question_tasks::detailed_result(&context.project, &question).await;
    to.result_with_receive(&context.outbox, &*result, notices);
}

/// The message about the end of a question, which the answer hands over.
async fn notices_of(context: &PeerContext, question: &Arc<Question>) -> Option<PendingNotices> {
    if question.is_open() {
        return None;
    }
    // The asker may have gone: the task is its owner's.
    let asker = question.asker.session.to_string();
    let member = context.project.resolve(&asker).answer().await.ok()?;
    let is_own = member.record.owner == *context.identity.owner();
    is_own.then(|| PendingNotices::of(&context.project, &member, [question]))?
}
