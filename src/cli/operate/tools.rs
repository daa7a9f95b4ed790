//! Calls of MCP tools over HTTP (revision 2026-07-28): for what only a session itself may do.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::lists::parsed;
use crate::cli::client::{Client, ClientError, refused};
use crate::cli::mcp_client::{modern_request, response_in};

/// A JSON-RPC response to a call.
#[derive(Deserialize)]
struct Response {
    result: Option<CallResult>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult {
    structured_content: Option<Box<RawValue>>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
struct RpcError {
    message: String,
}

/// The error object of a tool.
#[derive(Deserialize)]
struct ToolError {
    code: String,
    message: String,
    detail: Option<Value>,
    retry_after_ms: Option<u64>,
}

/// Calls a tool and returns its object.
///
/// # Errors
/// The broker refused the call, or it cannot be reached.
pub fn call(client: &Client, tool: &str, arguments: &Value) -> Result<Box<RawValue>, ClientError> {
    let ask = modern_request("tools/call", json!({"name": tool, "arguments": arguments}));
    let answer = client.respond(&ask)?;
    let text = response_in(&answer).map_err(|error| ClientError::new(error.to_string()))?;
    let response: Response = parsed(text)?;
    if let Some(error) = response.error {
        return Err(refused(
            &client.access,
            "invalid_argument".to_owned(),
            &error.message,
            None,
        ));
    }
    let result = response
        .result
        .ok_or_else(|| ClientError::new(format!("{tool} has no result")))?;
    let content = result
        .structured_content
        .ok_or_else(|| ClientError::new(format!("{tool} has no result")))?;
    if !result.is_error {
        return Ok(content);
    }
    let error: ToolError = parsed(content.get())?;
    let detail = match error.detail {
        Some(Value::String(detail)) => format!("{}: {detail}", error.message),
        _ => error.message,
    };
    let retry_after = error.retry_after_ms.map(std::time::Duration::from_millis);
    Err(refused(&client.access, error.code, &detail, retry_after))
}
