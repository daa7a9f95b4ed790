//! Valid requests of both eras.

use serde_json::{Value, json};

use crate::http::Request;

pub const MODERN: &str = "2026-07-28";
pub const LEGACY: &str = "2025-11-25";

pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// A POST with the headers that every request has.
fn post(message: &Value) -> Request {
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
    ];
    Request::new("POST", &headers, message.to_string())
}

/// A request of 2026-07-28. `params` is an object without `_meta`.
pub fn modern(id: &Value, method: &str, mut params: Value) -> Request {
    params["_meta"] = json!({
        PROTOCOL_VERSION: MODERN,
        CLIENT_INFO: {"name": "oracle", "version": "1"},
        CLIENT_CAPABILITIES: {},
    });
    let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let mut request = post(&message);
    request.add("MCP-Protocol-Version", MODERN);
    request.add("Mcp-Method", method);
    let key = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return request,
    };
    if let Some(name) = params[key].as_str() {
        request.add("Mcp-Name", name);
    }
    request
}

/// The first request of a legacy client.
pub fn initialize(id: &Value, version: &str) -> Request {
    let params = json!({
        "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "oracle", "version": "1"},
    });
    post(&json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params}))
}

/// A later message of a legacy client.
pub fn legacy(version: &str, session: &str, message: &Value) -> Request {
    let mut request = post(message);
    request.add("MCP-Protocol-Version", version);
    request.add("Mcp-Session-Id", session);
    request
}

pub fn request(id: &Value, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}
