//! What follows when the router has answered for a message: the answer to its sender, at once or after a wait, as a call or
//! as a task. A message to another project is sent from here: it goes to the router of that project.

use std::{rc::Rc, sync::Arc};

use actors::{model::BrokerError, project::CrossProjectSend, router::Routed};

use super::{calls::ShutdownBehaviour, context::PeerContext, send_reply::SendReply, tasks::Task};
use common::json::frame::JsonText;

/// Answers the sender of an accepted message, now or once it has the status that the sender waits for. `object` is a
/// buffer.
pub fn answer_send(context: &Rc<PeerContext>, reply: SendReply, routed: Routed, object: &mut Vec<u8>) {
    if reply.is_complete(&routed) {
        reply
            .to
            .result(&context.outbox, reply.result(object, &context.project, &routed));
    } else if reply.may_wait()
        && let Some(task) = context.become_task(&reply.to)
    {
        run_as_task(context, &task, reply, routed);
    } else {
        let so_far = reply.result(object, &context.project, &routed).into_bytes();
        let (to, context) = (reply.to.clone(), Rc::clone(context));
        let calls = Rc::clone(&context.calls);
        let waiting = async move { await_outcome(&context, &reply, routed).await };
        calls.spawn(&to, ShutdownBehaviour::Answer(so_far), waiting);
    }
}

/// Sends a message to another project and answers its sender. The messages of one connection start in their order.
pub fn send_cross_project(context: &Rc<PeerContext>, send: CrossProjectSend, mut reply: SendReply) {
    reply.release_slot();
    if !context.calls.has_free_slot() {
        return context.refuse(&reply.to, &BrokerError::unavailable());
    }
    let (context, to) = (Rc::clone(context), reply.to.clone());
    let (project, calls) = (context.project.clone(), Rc::clone(&context.calls));
    // It continues if its request is cancelled; the sender may repeat it with the same idempotency key.
    let sending = actix_rt::spawn(async move { project.send_cross_project(send).await });
    calls.spawn(&to, ShutdownBehaviour::Finish, async move {
        let routed = match sending.await.unwrap_or(Err(BrokerError::unavailable())) {
            Ok(routed) => routed,
            Err(error) => return context.refuse(&reply.to, &error),
        };
        let mut object = Vec::new();
        let so_far = reply.result(&mut object, &context.project, &routed);
        if reply.is_complete(&routed) {
            reply.to.result(&context.outbox, so_far);
        } else if reply.may_wait()
            && let Some(task) = context.become_task(&reply.to)
        {
            run_as_task(&context, &task, reply, routed);
        } else {
            context.calls.answer_on_shutdown(&reply.to, so_far.into_bytes());
            await_outcome(&context, &reply, routed).await;
        }
    });
}

/// Waits as a task for the status that the sender asked for.
fn run_as_task(context: &PeerContext, task: &Arc<Task>, reply: SendReply, routed: Routed) {
    let project = context.project.clone();
    let call = async move {
        let routed = reply.await_outcome(&project, routed).await;
        Ok(reply.to_result(&project, &routed))
    };
    context.run_as_task(task, None, call);
}

/// Waits for the status that the sender asked for, and answers.
async fn await_outcome(context: &PeerContext, reply: &SendReply, routed: Routed) {
    let routed = reply.await_outcome(&context.project, routed).await;
    let mut object = Vec::new();
    let result = reply.result(&mut object, &context.project, &routed);
    reply.to.result(&context.outbox, result);
}
