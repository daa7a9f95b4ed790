//! Valid requests of both eras, and a client over a WebSocket.

use std::{
    io,
    net::{SocketAddr, TcpStream},
};

use serde_json::{Value, json};

use crate::{http::Request, wait::WAIT_TIMEOUT, websocket::WebSocket};

pub const MODERN: &str = "2026-07-28";
pub const LEGACY: &str = "2025-11-25";

pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The client that requests here are of.
const CLIENT: &str = "a test";

/// A POST with the headers that every request has.
fn post(message: &Value) -> Request {
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
    ];
    Request::new("POST", "/mcp", &headers, message.to_string())
}

/// A request of 2026-07-28. `params` is an object without `_meta`.
pub fn modern(id: &Value, method: &str, mut params: Value) -> Request {
    params["_meta"] = meta(CLIENT, &json!({}));
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

/// The `_meta` of every request of 2026-07-28.
pub fn meta(client: &str, capabilities: &Value) -> Value {
    json!({
        PROTOCOL_VERSION: MODERN,
        CLIENT_INFO: {"name": client, "version": "1"},
        CLIENT_CAPABILITIES: capabilities,
    })
}

/// The params of `initialize`.
pub fn hello(client: &str, version: &str, capabilities: &Value) -> Value {
    json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": client, "version": "1"}})
}

/// The first request of a legacy client.
pub fn initialize(id: &Value, version: &str) -> Request {
    post(&request(id, "initialize", &hello(CLIENT, version, &json!({}))))
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

/// A legacy client over a WebSocket, whose connection may end at any time.
pub struct McpSocket {
    socket: WebSocket,
    last_id: u64,
}

impl McpSocket {
    /// Connects and initializes.
    pub fn open(address: SocketAddr, capabilities: &Value) -> io::Result<Self> {
        let socket = WebSocket::connect(address, "/ws", &[])?;
        socket.stream.set_read_timeout(Some(WAIT_TIMEOUT))?;
        let mut client = Self { socket, last_id: 0 };
        client.send(&request(&json!(0), "initialize", &hello(CLIENT, LEGACY, capabilities)))?;
        client.next_answer()?;
        client.send(&notification("notifications/initialized", &json!({})))?;
        Ok(client)
    }

    pub fn stream(&self) -> &TcpStream {
        &self.socket.stream
    }

    pub fn send(&mut self, frame: &Value) -> io::Result<()> {
        self.socket.send(frame)
    }

    /// Calls a tool without waiting for the answer. Returns the id of the request.
    pub fn begins_call(&mut self, tool: &str, arguments: &Value) -> io::Result<u64> {
        self.last_id += 1;
        let params = json!({"name": tool, "arguments": arguments});
        self.send(&request(&json!(self.last_id), "tools/call", &params))?;
        Ok(self.last_id)
    }

    /// The next frame.
    pub fn receive(&mut self) -> io::Result<Value> {
        self.socket.receive()
    }

    /// The result of the next answered request. Notifications are left out.
    pub fn next_answer(&mut self) -> io::Result<Value> {
        loop {
            let mut frame = self.receive()?;
            if frame.get("id").is_some() {
                return Ok(frame["result"].take());
            }
        }
    }
}
