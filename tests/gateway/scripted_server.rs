//! A server over HTTP that answers as a test says.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

use serde_json::{Value, json};
use test_client::http::MessageReader;

use crate::support::Got;

/// What a server does with a request.
#[derive(Clone)]
pub enum Answer {
    /// A status line without `HTTP/1.1`, further lines of the head, and a body.
    Http(&'static str, Vec<String>, String),
    /// Events that stay open after these.
    Events(Vec<String>),
    /// Events, after which the connection ends.
    EventsThenEnd(Vec<String>),
    /// Bytes as they are, after which the connection ends.
    Raw(String),
}

impl Answer {
    /// A message as JSON.
    pub fn json(message: &Value) -> Self {
        Self::Http(
            "200 OK",
            vec!["Content-Type: application/json".to_owned()],
            message.to_string(),
        )
    }

    /// A message as JSON, with further lines in its head.
    pub fn json_with(message: &Value, head: &[&str]) -> Self {
        let lines = head.iter().map(|line| (*line).to_owned());
        let lines = lines.chain(["Content-Type: application/json".to_owned()]).collect();
        Self::Http("200 OK", lines, message.to_string())
    }

    /// A status with a text.
    pub fn status(status: &'static str, body: &str) -> Self {
        Self::Http(status, vec!["Content-Type: text/html".to_owned()], body.to_owned())
    }

    pub fn accepted() -> Self {
        Self::status("202 Accepted", "")
    }
}

/// A server that answers each request as a function says, and keeps what it got.
pub struct ScriptedServer {
    pub address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
}

impl ScriptedServer {
    /// A server that is asked how to answer a request, with the number of requests before it.
    pub fn start(answer: impl Fn(&Got, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let got = Arc::<Mutex<Vec<Got>>>::default();
        let (kept, answer) = (Arc::clone(&got), Arc::new(answer));
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                thread::spawn(move || {
                    let mut reader = MessageReader::new(&socket);
                    while let Ok(Some(request)) = Got::read(&mut reader) {
                        let before = kept.lock().unwrap().len();
                        let answer = answer(&request, before);
                        kept.lock().unwrap().push(request);
                        if !answer.write(&socket) {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, got }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    fn got(&self) -> MutexGuard<'_, Vec<Got>> {
        self.got.lock().unwrap()
    }

    /// The requests that carried this method of MCP.
    pub fn requests(&self, method: &str) -> usize {
        let got = self.got();
        got.iter().filter(|request| method_of(request) == method).count()
    }

    /// The requests with this method of HTTP.
    pub fn with_http_method(&self, method: &str) -> usize {
        self.got().iter().filter(|request| request.method == method).count()
    }

    /// What the last request with this method of MCP had in a header.
    pub fn header_of(&self, method: &str, header: &str) -> Option<String> {
        let got = self.got();
        let last = got.iter().rev().find(|request| method_of(request) == method)?;
        last.header(header).map(str::to_owned)
    }
}

impl Answer {
    /// Writes it. Returns whether the connection goes on.
    fn write(self, mut socket: &TcpStream) -> bool {
        let stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        match self {
            Self::Http(status, lines, body) => {
                let head = [&[format!("HTTP/1.1 {status}")], &lines[..]].concat().join("\r\n");
                let text = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                socket.write_all(text.as_bytes()).is_ok()
            }
            Self::Events(events) => {
                let _ = socket.write_all(format!("{stream}{}", events.concat()).as_bytes());
                // Until the client ends it.
                let _ = socket.read(&mut [0]);
                false
            }
            Self::EventsThenEnd(events) => {
                let _ = socket.write_all(format!("{stream}{}", events.concat()).as_bytes());
                false
            }
            Self::Raw(text) => {
                let _ = socket.write_all(text.as_bytes());
                false
            }
        }
    }
}

/// The method of MCP in the body of a request; empty for none.
pub fn method_of(request: &Got) -> String {
    let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    message["method"].as_str().unwrap_or_default().to_owned()
}

/// The answer with this result to a request.
pub fn result(request: &Got, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request.json()["id"], "result": result})
}

/// An event with a message.
pub fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

/// What a modern server with one tool, `work`, answers to everything but calls.
pub fn modern(request: &Got, tool: &Value) -> Answer {
    match method_of(request).as_str() {
        "server/discover" => Answer::json(&result(
            request,
            &json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "scripted", "version": "1"}, "ttlMs": 0, "cacheScope": "private",
            }),
        )),
        "tools/list" => Answer::json(&result(
            request,
            &json!({"resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "private"}),
        )),
        _ => Answer::accepted(),
    }
}

/// What a legacy server with one tool, `work`, answers to everything but calls, in a session of this id.
pub fn legacy(request: &Got, session: &str) -> Answer {
    let head = format!("Mcp-Session-Id: {session}");
    match (request.method.as_str(), method_of(request).as_str()) {
        ("GET", _) => Answer::status("405 Method Not Allowed", ""),
        (_, "initialize") => Answer::json_with(
            &result(
                request,
                &json!({
                    "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "scripted", "version": "1"},
                }),
            ),
            &[&head],
        ),
        (_, "tools/list") => Answer::json(&result(request, &json!({"tools": [work()]}))),
        (_, "server/discover") => Answer::status("400 Bad Request", "no session"),
        _ => Answer::accepted(),
    }
}

/// The tool of scripted servers.
pub fn work() -> Value {
    json!({"name": "work", "inputSchema": {"type": "object"}})
}

/// The result of a call that has worked.
pub fn done() -> Value {
    json!({"content": [], "structuredContent": {"done": true}, "resultType": "complete"})
}
