//! Calls of MCP tools over HTTP (revision 2026-07-28): for what only a session itself may do.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::lists::parsed;
use crate::client::{ApiRequest, Client, ClientError};
use crate::mcp_client::{modern_request, response_in};
use crate::refusals;

/// A JSON-RPC response to a call.
#[derive(Deserialize)]
struct Response {
    result: Option<CallResult>,
    error: Option<RpcError>,
}

/// The result of a call.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult {
    structured_content: Option<Box<RawValue>>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    message: String,
}

/// The code of JSON-RPC for params that are wrong.
const INVALID_PARAMS: i64 = -32602;

/// Calls a tool and returns its object.
///
/// # Errors
/// The broker refused the call, or it cannot be reached.
pub fn call(client: &Client, tool: &str, arguments: &Value) -> Result<Box<RawValue>, ClientError> {
    let ask = modern_request("tools/call", json!({"name": tool, "arguments": arguments}));
    let result = result_of(client, tool, &ask)?;
    let content = result
        .structured_content
        .ok_or_else(|| ClientError::new(format!("{tool} has no result")))?;
    if !result.is_error {
        return Ok(content);
    }
    Err(refusals::of_tool(&client.access, parsed(content.get())?))
}

/// Sends a call and returns its result, also that of a tool that refuses.
fn result_of(client: &Client, tool: &str, ask: &ApiRequest) -> Result<CallResult, ClientError> {
    let answer = client.respond(ask)?;
    let text = response_in(&answer).map_err(|error| ClientError::new(error.to_string()))?;
    let response: Response = parsed(&text)?;
    if let Some(error) = response.error {
        let code = match error.code {
            INVALID_PARAMS => "invalid_argument".to_owned(),
            code => format!("error {code}"),
        };
        return Err(refusals::refused(&client.access, code, &error.message, None));
    }
    response
        .result
        .ok_or_else(|| ClientError::new(format!("{tool} has no result")))
}
