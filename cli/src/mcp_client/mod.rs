//! A small MCP client of both eras, for commands that talk to a broker as an agent does: over HTTP or WebSocket.

mod http;
mod tls;
mod websocket;

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

pub use http::{HttpClient, modern_request, response_in};
pub use tls::{connect_tcp, split_address};
pub use websocket::{Socket, WebSocketClient, open_socket};

const MODERN_VERSION: &str = "2026-07-28";
const LEGACY_VERSION: &str = "2025-11-25";

/// The generation of MCP revisions that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

impl Era {
    /// The revision of the era that the client speaks.
    pub fn version(self) -> &'static str {
        match self {
            Self::Legacy => LEGACY_VERSION,
            Self::Modern => MODERN_VERSION,
        }
    }

    /// Adds what the era wants in the params of every request.
    fn complete(self, params: &mut Value) {
        if self == Self::Modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
                "io.modelcontextprotocol/clientInfo": client_info(),
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
    }
}

/// The code of JSON-RPC for params that are wrong.
pub const INVALID_PARAMS: i64 = -32602;

/// The result of `tools/call` as the broker has written it: numbers keep their digits.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    pub content: Option<Box<RawValue>>,
    pub structured_content: Option<Box<RawValue>>,
    #[serde(default)]
    pub is_error: bool,
}

fn client_info() -> Value {
    json!({"name": "mcp-broker", "version": env!("CARGO_PKG_VERSION")})
}

/// The params of `initialize`.
pub fn hello() -> Value {
    json!({"protocolVersion": LEGACY_VERSION, "capabilities": {}, "clientInfo": client_info()})
}

/// Why a request has no result. The texts have one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// The broker asks for a key, or for another one.
    KeyNeeded,
    /// A tool refused, with a code of the broker.
    Refused { code: String, message: String },
    /// The request could not be sent, or its answer could not be used.
    Failed(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyNeeded => f.write_str("the broker asks for a key"),
            Self::Refused { code, message } => write!(f, "{code}: {message}"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

fn failed(reason: impl fmt::Display) -> CallError {
    CallError::Failed(reason.to_string())
}

/// A client of MCP on some transport.
pub trait McpClient {
    /// Sends a request and waits for its result.
    ///
    /// # Errors
    /// The request failed, or its answer is an error.
    fn request(&mut self, method: &str, params: Value) -> Result<Value, CallError>;

    /// Calls a tool and returns its object.
    ///
    /// # Errors
    /// Those of [`Self::request`], and `Refused` when the tool refuses.
    fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, CallError> {
        let mut result = self.request("tools/call", json!({"name": tool, "arguments": arguments}))?;
        let object = result["structuredContent"].take();
        if result["isError"] == true {
            let text = |name: &str| object[name].as_str().unwrap_or("unknown").to_owned();
            let (code, message) = (text("code"), text("message"));
            return Err(CallError::Refused { code, message });
        }
        Ok(object)
    }
}

/// The result in a JSON-RPC response.
fn result_of(mut response: Value) -> Result<Value, CallError> {
    match response.get("error") {
        Some(error) => Err(failed(
            error["message"].as_str().unwrap_or("an error without a message"),
        )),
        None => Ok(response["result"].take()),
    }
}
