//! `tasks/get`, `tasks/update` and `tasks/cancel`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::mcp::{
    context::PeerContext,
    reply::{ReplyTo, with_era_members},
    rpc::{Params, RpcError},
    tasks,
};

/// Serves a method of the extension for tasks.
pub(super) fn handle_task(
    context: &PeerContext,
    to: &ReplyTo,
    method: &str,
    params: &Params<'_>,
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
    let task = context.service.tasks.find(&context.identity, &task_id)?;
    match method {
        "tasks/get" => {
            let receive = task.take_unclaimed();
            if let Some(receive) = &receive {
                // From now on the answer carries the messages; if it is lost, they return to the inbox.
                context.calls.record_receive(to, receive.clone());
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
