//! The handshakes of both eras, and what each era wants of a request.

use std::{process::exit, sync::PoisonError};

use serde_json::{Value, json};

use crate::{Server, tasks};

/// A generation of MCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// Serves a handshake or `ping`; `None` for other methods.
pub fn serve(server: &Server, method: &str, params: &Value) -> Option<Result<Value, Value>> {
    match method {
        "initialize" => Some(initialize(server, params)),
        "server/discover" => Some(discover(server)),
        "ping" | "logging/setLevel" => Some(Ok(json!({}))),
        _ => check_request(server, params).err().map(Err),
    }
}

/// Checks that a request is of the era of the server.
pub fn check_request(server: &Server, params: &Value) -> Result<(), Value> {
    let is_modern = params["_meta"].get(VERSION_KEY).is_some();
    let serves_modern = server.script.era != "legacy" && (server.is_modern() || !server.script.locks);
    match (is_modern, server.is_modern()) {
        (true, _) if !serves_modern => Err(error(-32600, "this connection serves the handshake protocol era")),
        (false, true) => Err(error(-32602, "the request has no protocol version")),
        _ => Ok(()),
    }
}

fn initialize(server: &Server, params: &Value) -> Result<Value, Value> {
    let capabilities = params["capabilities"].as_object().cloned().unwrap_or_default();
    if let Some(refused) = &server.script.exits_when_told
        && capabilities.contains_key(refused)
    {
        eprintln!("a client with {refused} is not served");
        exit(8);
    }
    server.state().capabilities = capabilities;
    if server.script.era == "modern" || (server.script.locks && server.is_modern()) {
        return Err(error(-32022, "connection is serving the 2026-07-28 protocol"));
    }
    choose(server, Era::Legacy);
    let mut result = introduction(server);
    result["protocolVersion"] = json!("2025-11-25");
    Ok(result)
}

fn discover(server: &Server) -> Result<Value, Value> {
    if server.script.exits_on_discover {
        exit(3);
    }
    let is_locked = server.script.locks && server.era.lock().is_ok_and(|era| *era == Some(Era::Legacy));
    if server.script.era == "legacy" || is_locked {
        return Err(error(-32601, "Method not found"));
    }
    choose(server, Era::Modern);
    let mut result = introduction(server);
    if server.script.has_tasks {
        result["capabilities"]["extensions"] = json!({tasks::EXTENSION: {}});
    }
    result["resultType"] = json!("complete");
    result["supportedVersions"] = json!(["2026-07-28"]);
    result["ttlMs"] = json!(60_000);
    result["cacheScope"] = json!("public");
    Ok(result)
}

fn choose(server: &Server, era: Era) {
    server
        .era
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert(era);
}

fn introduction(server: &Server) -> Value {
    let mut introduction = json!({
        "capabilities": {
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": true, "listChanged": true},
            "logging": {},
            "completions": {},
        },
        "serverInfo": {"name": "fake-backend", "version": "1.0"},
        "instructions": server.script.instructions.as_deref().unwrap_or("Use the fake tools."),
    });
    if server.script.has_only_tools {
        introduction["capabilities"] = json!({"tools": {"listChanged": true}});
    }
    introduction
}

/// A JSON-RPC error.
pub fn error(code: i64, message: &str) -> Value {
    json!({"code": code, "message": message})
}
