//! Calls of MCP tools over HTTP (revision 2026-07-28): for what only a session itself may do.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::{Client, ClientError, parsed};
use crate::mcp_client::{CallResult, INVALID_PARAMS, modern_request, response_in};
use crate::refusals;

/// A JSON-RPC response to a call.
#[derive(Deserialize)]
struct Response {
    result: Option<CallResult>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    message: String,
}

/// Calls a tool and returns its object.
///
/// # Errors
/// The broker refused the call, or it cannot be reached.
pub fn call(client: &Client, tool: &str, arguments: &Value) -> Result<Box<RawValue>, ClientError> {
    let ask = modern_request("tools/call", json!({"name": tool, "arguments": arguments}));
    let answer = client.respond(&ask)?;
    let text = response_in(&answer).map_err(|error| ClientError::new(error.to_string()))?;
    let response: Response = parsed(&text)?;
    if let Some(error) = response.error {
        let code = match error.code {
            INVALID_PARAMS => "invalid_argument".to_owned(),
            code => format!("error {code}"),
        };
        return Err(refusals::refused(&client.access, code, &error.message, None));
    }
    let is_refused = response.result.as_ref().is_some_and(|result| result.is_error);
    let content = response.result.and_then(|result| result.structured_content);
    let content = content.ok_or_else(|| ClientError::new(format!("{tool} has no result")))?;
    if is_refused {
        return Err(refusals::of_tool(&client.access, parsed(content.get())?));
    }
    Ok(content)
}
