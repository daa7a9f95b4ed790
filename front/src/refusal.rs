//! The answers that the front gives in place of a broker that cannot be reached.

use std::time::Duration;

use actors::model::BrokerError;
use serde_json::{Value, json};

use super::requests::{Answer, Request};
use api::mcp::{
    reply::{CallResult, UnreadCount},
    rpc::{REFUSED, RpcError, error_response},
};
use common::{
    json::{
        frame::{self, JsonText},
        write_json,
    },
    refusal::error_object,
};

/// After what time a client should repeat a call that was refused.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The error object of a call whose answer was lost with its connection.
pub fn lost() -> Value {
    unavailable("the broker was restarted while this ran; it may or may not have happened")
}

/// The error object of a call that was not answered before the front ended.
pub fn unanswered() -> Value {
    unavailable("the front has ended before the broker answered; the call may or may not have happened")
}

/// The error object of a call that has waited too long for a connection, and why there is none.
pub fn not_attached(trouble: Option<&str>) -> Value {
    let trouble = trouble.map_or_else(String::new, |trouble| format!(": {trouble}"));
    unavailable(&format!("the broker cannot be reached{trouble}"))
}

/// The error object of a call whose session another connection has taken over.
pub fn taken_over() -> Value {
    error_object(&BrokerError::SessionTakenOver)
}

fn unavailable(message: &str) -> Value {
    let mut object = error_object(&BrokerError::Unavailable {
        retry_after: RETRY_AFTER,
    });
    object["message"] = json!(message);
    object
}

/// Appends the response to a request that cannot be served, with its line break. Nothing for a notification.
pub fn write(out: &mut Vec<u8>, request: &Request, error: &Value) {
    if request.traits.answer == Answer::None {
        return;
    }
    let before = out.len();
    for id in request.ids() {
        let separator = match (request.is_batch(), out.len() == before) {
            (false, _) => "",
            (true, true) => "[",
            (true, false) => ",",
        };
        out.extend_from_slice(separator.as_bytes());
        write_one(out, id, request.traits.answer, error);
    }
    if out.len() == before {
        return;
    }
    if request.is_batch() {
        out.push(b']');
    }
    out.push(b'\n');
}

/// Appends the response with this error, without a line break.
pub fn write_one(out: &mut Vec<u8>, id: &str, answer: Answer, error: &Value) {
    if let Answer::ToolResult { is_modern } = answer {
        let mut object = Vec::with_capacity(256);
        write_json(&mut object, error);
        let result = CallResult {
            modern: is_modern,
            object: &object,
            is_error: true,
            unread: UnreadCount::Unknown,
        };
        frame::result(id, result).write_to(out);
    } else {
        let message = error["message"].as_str().unwrap_or_default().to_owned();
        let error = RpcError::new(REFUSED, message).with_data(error.clone());
        error_response(Some(id), &error).write_to(out);
    }
}
