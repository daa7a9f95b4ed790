//! The MCP server that the demo puts behind the gateway: a program on stdin and stdout with one tool.

use std::io::{BufRead, Write};

use serde_json::{Value, json};

use super::script::SPRINTS;
use common::json::frame::{self, JsonText};

/// The error of JSON-RPC for an unknown method.
const METHOD_NOT_FOUND: i32 = -32601;
/// The name of the backend.
pub const NAME: &str = "staging";
/// The flag of `demo` that serves it.
pub const FLAG: &str = "staging-server";

/// Serves until stdin ends, or stdout is closed.
pub fn serve() {
    let mut stdout = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(request) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let Some(id) = request.get("id") else { continue };
        let not_found = || json!({"code": METHOD_NOT_FOUND, "message": "Method not found"});
        let line = frame::response(id, result_of(&request).ok_or_else(not_found)).into_line();
        if stdout.write_all(&line).and_then(|()| stdout.flush()).is_err() {
            break;
        }
    }
}

fn result_of(request: &Value) -> Option<Value> {
    let params = &request["params"];
    Some(match request["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": NAME, "version": env!("CARGO_PKG_VERSION")},
        }),
        "ping" => json!({}),
        "tools/list" => json!({"tools": [{
            "name": "run_check", "description": "Try a change on the staging system.",
            "inputSchema": {"type": "object", "properties": {"check": {"type": "string"}}, "required": ["check"]},
        }]}),
        "tools/call" => {
            let check = &params["arguments"]["check"];
            let sprint = SPRINTS.iter().find(|sprint| *check == *sprint.check);
            let text = sprint.map_or("No such check.", |sprint| sprint.check_result);
            json!({"content": [{"type": "text", "text": text}], "structuredContent": {"result": text}})
        }
        _ => return None,
    })
}
