//! Questions as tasks (2026-07-28): the id of the task is that of the question, and the task lives as long as the question.
//!
//! Nothing is kept here: each request reads the stored question.

use std::{sync::Arc, time::Duration};

use actors::{
    clock::{millis, rfc3339_text},
    model::{Closing, Question},
    project::ProjectHandle,
};
use serde_json::{Value, json};

use super::reply::{CallResult, UnreadCount, server_info};
use crate::verbs::questions::{Humans, Outcome};
use common::json::{frame::JsonText, write_json};

/// How often a client should poll.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The result of a call that became a task.
pub fn created_result(question: &Question, progress: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write_json(&mut out, &task(question, "task", progress));
    out
}

/// The result of `tasks/get`.
pub async fn detailed_result(project: &ProjectHandle, question: &Arc<Question>) -> Vec<u8> {
    let humans = project
        .desk()
        .await
        .map_or_else(|_| Humans::default(), |desk| Humans::of(&desk));
    let question = &*project.opened(question);
    let outcome = Outcome {
        question,
        position: project.queue_position(question.id),
        humans,
        waited: Duration::ZERO,
    };
    let mut out = Vec::with_capacity(1024);
    write_json(&mut out, &task(question, "complete", &outcome.summary()));
    if status(question) == "completed" && out.pop() == Some(b'}') {
        let mut object = Vec::with_capacity(512);
        write_json(&mut object, &outcome.to_json());
        out.extend_from_slice(b",\"result\":");
        let result = CallResult {
            modern: true,
            object: &object,
            is_error: false,
            unread: UnreadCount::Unknown,
        };
        result.write_to(&mut out);
        out.push(b'}');
    }
    out
}

fn status(question: &Question) -> &'static str {
    match question.closed().map(|closed| &closed.how) {
        None => "working",
        Some(Closing::Cancelled { .. }) => "cancelled",
        Some(_) => "completed",
    }
}

fn task(question: &Question, kind: &str, message: &str) -> Value {
    let asked_at_ms = question.asked_at_ms();
    json!({
        "resultType": kind,
        "_meta": {"io.modelcontextprotocol/serverInfo": server_info()},
        "taskId": question.id,
        "status": status(question),
        "statusMessage": message,
        "createdAt": rfc3339_text(asked_at_ms),
        "lastUpdatedAt": rfc3339_text(question.closed().map_or(asked_at_ms, |closed| closed.at_ms)),
        "ttlMs": question.expires_at_ms.map(|at_ms| at_ms.saturating_sub(asked_at_ms)),
        "pollIntervalMs": millis(POLL_INTERVAL),
    })
}
