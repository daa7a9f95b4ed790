//! An MCP client over HTTP, of both eras.

use std::net::SocketAddr;

use serde_json::{Value, json};
use test_client::mcp::{self, MODERN};

use super::{super::agent::listed_id, request::Request, response::ResponseReader};

const SESSION: &str = "Mcp-Session-Id";

/// An MCP client over HTTP. Each request has a connection of its own.
#[derive(Clone, Debug)]
pub struct HttpAgent {
    pub address: SocketAddr,
    headers: Vec<(String, String)>,
    /// The `_meta` of every request, in the modern era only.
    meta: Option<Value>,
    /// The id of its session, once it is registered.
    pub session: Option<String>,
    pub name: String,
}

impl HttpAgent {
    /// A client of 2026-07-28: describes itself in every request.
    pub fn modern(address: SocketAddr, capabilities: Value) -> Self {
        Self::modern_with(address, capabilities, &[])
    }

    /// Like `modern`, with these headers in every request.
    pub fn modern_with(address: SocketAddr, capabilities: Value, headers: &[(&str, &str)]) -> Self {
        Self {
            address,
            headers: [("MCP-Protocol-Version", MODERN)]
                .iter()
                .chain(headers)
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            meta: Some(mcp::meta("a test", &capabilities)),
            session: None,
            name: String::new(),
        }
    }

    /// A client that has sent `initialize`, and sends the id of its HTTP session in every request.
    pub fn legacy(address: SocketAddr, version: &str, capabilities: Value) -> Self {
        Self::legacy_with(address, version, capabilities, &[])
    }

    /// Like `legacy`, with these headers in every request.
    pub fn legacy_with(address: SocketAddr, version: &str, capabilities: Value, besides: &[(&str, &str)]) -> Self {
        let hello = initialize_request(address, version, capabilities);
        let hello = besides
            .iter()
            .fold(hello, |hello, (name, value)| hello.with(name, *value));
        let response = hello.answered();
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.json()["result"]["protocolVersion"], version);
        let id = response.header(SESSION).expect("a session");
        let mut headers = vec![(SESSION.to_owned(), id.to_owned())];
        if version > "2025-03-26" {
            headers.push(("MCP-Protocol-Version".to_owned(), version.to_owned()));
        }
        headers.extend(besides.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
        let caller = Self {
            address,
            headers,
            meta: None,
            session: None,
            name: String::new(),
        };
        caller.notifies("notifications/initialized", json!({}));
        caller
    }

    pub fn registered(mut self, name: &str) -> Self {
        let session = self.calls("register_session", json!({"name": name}));
        self.session = Some(session["session_id"].as_str().unwrap().to_owned());
        name.clone_into(&mut self.name);
        self
    }

    /// The same client at another replica.
    pub fn at_replica(&self, address: SocketAddr) -> Self {
        Self {
            address,
            ..self.clone()
        }
    }

    /// The same client with another value of a header.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut caller = self.clone();
        caller.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        caller.headers.push((name.to_owned(), value.to_owned()));
        caller
    }

    fn with_own_headers(&self, request: Request) -> Request {
        self.headers
            .iter()
            .fold(request, |request, (name, value)| request.with(name, value))
    }

    /// A POST of any frame, with the headers of this client.
    pub fn post(&self, frame: &Value) -> Request {
        self.with_own_headers(Request::post(self.address, frame.to_string()))
    }

    /// A request with this id, not sent yet.
    pub fn asks_as(&self, id: &Value, method: &str, mut params: Value) -> Request {
        let name = match method {
            "tools/call" => params["name"].as_str().map(str::to_owned),
            "resources/read" => params["uri"].as_str().map(str::to_owned),
            "tasks/get" | "tasks/update" | "tasks/cancel" => params["taskId"].as_str().map(str::to_owned),
            _ => None,
        };
        if let Some(meta) = &self.meta {
            let asked = params["_meta"].take();
            params["_meta"] = meta.clone();
            for (key, value) in asked.as_object().into_iter().flatten() {
                params["_meta"][key] = value.clone();
            }
        }
        let frame = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut request = self.post(&frame);
        if self.meta.is_some() {
            request = request.with("Mcp-Method", method);
            if let Some(name) = name {
                request = request.with("Mcp-Name", name);
            }
        }
        request
    }

    pub fn asks(&self, method: &str, params: Value) -> Request {
        self.asks_as(&json!(1), method, params)
    }

    pub fn request(&self, method: &str, params: Value) -> Result<Value, Value> {
        self.asks(method, params).sent().answer_to(&json!(1))
    }

    /// A call of a tool for the session of this client, not sent yet.
    pub fn call(&self, tool: &str, mut arguments: Value) -> Request {
        if let (Some(session), Some(_)) = (&self.session, &self.meta) {
            arguments["session_id"] = session.as_str().into();
        }
        self.asks("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool that must succeed and returns its object.
    pub fn calls(&self, tool: &str, arguments: Value) -> Value {
        let mut result = self.call(tool, arguments).sent().answer_to(&json!(1)).unwrap();
        assert_eq!(result["isError"], false, "{tool}: {result}");
        assert!(result["_meta"]["dev.mcp-broker/unread"].is_u64(), "{result}");
        result["structuredContent"].take()
    }

    /// Asserts that a tool refuses with this code.
    pub fn is_refused_as(&self, code: &str, tool: &str, arguments: Value) {
        let result = self.call(tool, arguments).sent().answer_to(&json!(1)).unwrap();
        assert_eq!(result["isError"], true, "{tool}: {result}");
        assert_eq!(result["structuredContent"]["code"], code, "{result}");
    }

    pub fn notifies(&self, method: &str, params: Value) {
        let frame = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let response = self.post(&frame).answered();
        assert_eq!((response.status, response.body.as_str()), (202, ""), "{response:?}");
    }

    pub fn cancels(&self, id: &Value) {
        self.notifies("notifications/cancelled", json!({"requestId": id}));
    }

    /// The GET of the stream of its HTTP session, not sent yet.
    pub fn stream_request(&self) -> Request {
        self.with_own_headers(Request::get(self.address))
    }

    /// Opens the stream of its HTTP session.
    pub fn opens_stream(&self) -> ResponseReader {
        self.stream_request().sent().streams()
    }

    pub fn delete_request(&self) -> Request {
        self.stream_request().with_method("DELETE")
    }

    /// Subscribes to its own inbox (2026-07-28); returns when the subscription has been acknowledged.
    pub fn subscribes_as(&self, id: &Value) -> ResponseReader {
        let inbox_uri = self.inbox();
        let params = json!({"notifications": {"resourceSubscriptions": [inbox_uri]}});
        let mut reply = self.asks_as(id, "subscriptions/listen", params).sent().streams();
        let first = reply.next_frame();
        let expected = json!({
            "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {
                "_meta": {"io.modelcontextprotocol/subscriptionId": id},
                "notifications": {"resourceSubscriptions": [inbox_uri]},
            },
        });
        assert_eq!(first, expected);
        reply
    }

    /// The id by which others know its session.
    pub fn listed(&self) -> Option<String> {
        self.session.as_deref().map(listed_id)
    }

    pub fn inbox(&self) -> String {
        format!("broker://sessions/{}/inbox", self.session.as_deref().unwrap())
    }

    /// Calls `receive_messages` once with these arguments; returns the messages.
    pub fn reads(&self, arguments: Value) -> Vec<Value> {
        let mut received = self.calls("receive_messages", arguments);
        match received["messages"].take() {
            Value::Array(messages) => messages,
            other => panic!("not a list of messages: {other}"),
        }
    }
}

/// The `initialize` request of a legacy client.
pub fn initialize_request(address: SocketAddr, version: &str, capabilities: Value) -> Request {
    let params = mcp::hello("a test", version, &capabilities);
    let frame = mcp::request(&json!(1), "initialize", &params);
    Request::post(address, frame.to_string())
}
