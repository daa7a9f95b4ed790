//! Calls of MCP tools over HTTP (revision 2026-07-28): for what only a session itself may do.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use ureq::http::Method;

use super::lists::parsed;
use crate::cli::client::{ApiRequest, Client, ClientError, refused};

const REVISION: &str = "2026-07-28";

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
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "mcp-broker", "version": env!("CARGO_PKG_VERSION")},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    let frame = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let ask = ApiRequest::new(Method::POST, "/mcp".to_owned())
        .with_header("accept", "application/json, text/event-stream")
        .with_header("mcp-protocol-version", REVISION)
        .with_header("mcp-method", "tools/call")
        .with_header("mcp-name", tool)
        .with_body(frame);
    let body = client.send(&ask)?;
    let response: Response = parsed(answer_in(&body))?;
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

/// The answer in a body, which is JSON or, when something preceded the answer, a stream of events that ends with it.
fn answer_in(body: &str) -> &str {
    if body.trim_start().starts_with('{') {
        return body;
    }
    body.lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .next_back()
        .unwrap_or(body)
        .trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_the_body_or_the_last_event() {
        assert_eq!(answer_in("{\"id\":1}"), "{\"id\":1}");
        let stream = ":\n\nevent: message\ndata: {\"method\":\"x\"}\n\nevent: message\ndata: {\"id\":1}\n\n";
        assert_eq!(answer_in(stream), "{\"id\":1}");
    }
}
