//! HTTP/1.1 requests, responses and event streams byte by byte, and an MCP client over HTTP.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    time::Instant,
};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::WAIT_TIMEOUT;

/// A complete HTTP response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The whole response except its `Date` header.
    pub fn without_date(&self) -> String {
        let lines = self.head.lines();
        let lines = lines.filter(|line| !line.to_ascii_lowercase().starts_with("date:"));
        let mut whole: String = lines.flat_map(|line| [line, "\n"]).collect();
        whole.push_str(&self.body);
        whole
    }

    /// The status, and the code of the problem in the body (empty without a problem).
    pub fn problem(&self) -> (u16, String) {
        let code = match self.header("content-type") {
            Some("application/problem+json") => self.json()["code"]
                .as_str()
                .unwrap_or_else(|| panic!("{self:?}"))
                .to_owned(),
            _ => String::new(),
        };
        (self.status, code)
    }

    /// The status, and the code of the JSON-RPC error in the body.
    pub fn refusal(&self) -> (u16, i64) {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let error = &self.json()["error"];
        (
            self.status,
            error["code"].as_i64().unwrap_or_else(|| panic!("{self:?}")),
        )
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Sends these bytes and reads one response.
pub fn exchange(socket: &TcpStream, request: &[u8]) -> Response {
    let mut socket = socket.try_clone().unwrap();
    socket.write_all(request).unwrap();
    ResponseReader::from_socket(socket).into_response()
}

/// Sends a request for an upgrade and reads the answer, byte by byte: what follows a 101 is not HTTP and stays unread.
pub fn upgrade(mut socket: TcpStream, request: &[u8]) -> (Response, TcpStream) {
    socket.write_all(request).unwrap();
    let mut reply = ResponseReader::from_socket(socket.try_clone().unwrap());
    while reply.head.is_none() {
        assert!(reply.read_at_most(1), "incomplete head: {reply:?}");
    }
    (reply.into_response(), socket)
}

/// A request before it is sent, by default a POST of JSON to `/mcp`.
#[derive(Clone, Debug)]
#[must_use]
pub struct Request {
    pub address: SocketAddr,
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The local address to connect from, if it matters.
    pub source: Option<Ipv4Addr>,
}

impl Request {
    pub fn post(address: SocketAddr, body: impl Into<Vec<u8>>) -> Self {
        Self {
            address,
            method: "POST".to_owned(),
            path: "/mcp".to_owned(),
            headers: Vec::new(),
            body: body.into(),
            source: None,
        }
        .with("Host", address.to_string())
        .with("Content-Type", "application/json")
        .with("Accept", "application/json, text/event-stream")
    }

    pub fn get(address: SocketAddr) -> Self {
        Self::post(address, "")
            .with_method("GET")
            .without("Content-Type")
            .with("Accept", "text/event-stream")
    }

    pub fn with_method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    pub fn with_path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Replaces the headers of this name.
    pub fn with(self, name: &str, value: impl Into<String>) -> Self {
        self.without(name).with_another(name, value)
    }

    /// Adds a header.
    pub fn with_another(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// Connects from this address of the loopback network.
    pub fn from_address(mut self, source: Ipv4Addr) -> Self {
        self.source = Some(source);
        self
    }

    /// The head without a length.
    pub fn head(&self) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        if !self.body.is_empty() || self.method == "POST" {
            bytes.extend(["Content-Length: ", &self.body.len().to_string(), "\r\n"]);
        }
        bytes.push_str("\r\n");
        [bytes.as_bytes(), &self.body].concat()
    }

    /// Sends the request on a connection of its own.
    pub fn sent(&self) -> ResponseReader {
        let mut socket = self
            .source
            .map_or_else(|| connect(self.address), |source| connect_from(source, self.address));
        // The answer shows whether the peer has taken the whole request.
        let _ = socket.write_all(&self.bytes());
        ResponseReader::from_socket(socket)
    }

    pub fn answered(&self) -> Response {
        self.sent().into_response()
    }

    /// The status and the code of the refusal.
    pub fn refused(&self) -> (u16, i64) {
        self.answered().refusal()
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    with_timeouts(TcpStream::connect(address).unwrap())
}

/// Connects from this address of the loopback network.
fn connect_from(source: Ipv4Addr, address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    with_timeouts(socket.into())
}

fn with_timeouts(socket: TcpStream) -> TcpStream {
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    socket.set_write_timeout(Some(WAIT_TIMEOUT)).unwrap();
    socket
}

/// A server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub kind: Option<String>,
    pub retry: Option<u64>,
    pub data: String,
}

impl Event {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// How the end of a body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Known(usize),
    Chunked,
    UntilClosed,
}

/// A response that is still being received. Dropping it closes the connection.
#[derive(Debug)]
pub struct ResponseReader {
    socket: TcpStream,
    raw: Vec<u8>,
    head: Option<(String, Length)>,
    body: Vec<u8>,
    /// The body is complete according to its framing.
    complete: bool,
    events: VecDeque<Event>,
    pub comments: usize,
}

impl ResponseReader {
    pub fn from_socket(socket: TcpStream) -> Self {
        Self {
            socket,
            raw: Vec::new(),
            head: None,
            body: Vec::new(),
            complete: false,
            events: VecDeque::new(),
            comments: 0,
        }
    }

    pub fn status(&mut self) -> u16 {
        self.read_head();
        let (head, _) = self.head.as_ref().unwrap();
        head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub fn header(&mut self, name: &str) -> Option<String> {
        self.read_head();
        let (head, _) = self.head.as_ref().unwrap();
        header(head, name).map(str::to_owned)
    }

    fn read_head(&mut self) {
        while self.head.is_none() {
            assert!(
                self.read_some(),
                "incomplete head: {:?}",
                String::from_utf8_lossy(&self.raw)
            );
        }
    }

    /// Reads to the end of the body.
    pub fn into_response(mut self) -> Response {
        self.read_head();
        while !self.complete {
            assert!(self.read_some(), "incomplete body: {self:?}");
        }
        self.take_response()
    }

    /// Reads until the peer closes; returns the response if it is complete.
    pub fn into_response_if_complete(mut self) -> Option<Response> {
        while !self.complete {
            if !self.read_some() {
                return None;
            }
        }
        Some(self.take_response())
    }

    fn take_response(&mut self) -> Response {
        let status = self.status();
        let (head, _) = self.head.take().unwrap();
        Response {
            status,
            head,
            body: String::from_utf8(std::mem::take(&mut self.body)).unwrap(),
        }
    }

    /// The result or error for the request of this id, from a JSON body or a stream.
    pub fn answer_to(&mut self, id: &Value) -> Result<Value, Value> {
        let frame = if self.is_stream() {
            self.awaits_frame(&format!("the answer to {id}"), |frame| {
                frame["id"] == *id && frame.get("method").is_none()
            })
        } else {
            while !self.complete {
                assert!(self.read_some(), "incomplete body: {self:?}");
            }
            serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
        };
        assert_eq!(frame["jsonrpc"], "2.0", "{frame}");
        assert_eq!(frame["id"], *id, "{frame}");
        match (frame.get("result"), frame.get("error")) {
            (Some(result), None) => Ok(result.clone()),
            (None, Some(error)) => Err(error.clone()),
            _ => panic!("neither a result nor an error: {frame}"),
        }
    }

    pub fn is_stream(&mut self) -> bool {
        self.header("content-type")
            .is_some_and(|kind| kind == "text/event-stream")
    }

    /// Asserts that the response is a stream of events.
    pub fn streams(mut self) -> Self {
        let status = self.status();
        if status != 200 || !self.is_stream() {
            let head = self.head.take();
            panic!("not a stream: {head:?}");
        }
        self
    }

    /// The next event; None at the end of the stream.
    pub fn next_event(&mut self) -> Option<Event> {
        let began = Instant::now();
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.complete || !self.read_some() {
                return None;
            }
            assert!(
                began.elapsed() < WAIT_TIMEOUT,
                "no event, but {} comments",
                self.comments
            );
        }
    }

    /// The next event as a JSON-RPC frame.
    pub fn next_frame(&mut self) -> Value {
        let event = self.next_event().unwrap_or_else(|| panic!("the stream has ended"));
        assert!(event.kind.as_deref().is_none_or(|kind| kind == "message"), "{event:?}");
        event.json()
    }

    /// The first frame that fits; skips those before it.
    pub fn awaits_frame(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let mut others = Vec::new();
        let began = Instant::now();
        loop {
            let Some(event) = self.next_event() else {
                panic!("waited for {what}, and the stream ended after {others:#?}");
            };
            if !event.data.is_empty() {
                let frame = event.json();
                if fits(&frame) {
                    return frame;
                }
                others.push(frame);
            }
            assert!(began.elapsed() < WAIT_TIMEOUT, "not received: {what}; but {others:#?}");
        }
    }

    /// Waits for the next notification of this method and returns its params.
    pub fn next_notification(&mut self, method: &str) -> Value {
        let mut frame = self.awaits_frame(method, |frame| frame["method"] == method);
        assert!(frame.get("id").is_none(), "{frame}");
        frame["params"].take()
    }

    /// Waits for one further comment line.
    pub fn awaits_comment(&mut self) {
        let before = self.comments;
        while self.comments == before {
            assert!(!self.complete && self.read_some(), "the stream ended");
        }
    }

    /// Asserts that the stream ends without another event and with correct framing.
    pub fn ends(&mut self) {
        let event = self.next_event();
        assert_eq!(event, None);
        assert!(self.complete, "the stream was cut: {self:?}");
    }

    /// Waits until the stream has ended, with or without correct framing.
    pub fn awaits_end(&mut self) {
        let began = Instant::now();
        while !self.complete && self.read_some() {
            assert!(began.elapsed() < WAIT_TIMEOUT, "the stream does not end");
        }
    }

    /// Closes the connection.
    pub fn disconnects(self) {
        drop(self);
    }

    /// Closes the sending half of the connection; reading goes on.
    pub fn half_closes(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Reads what is available; false at the end of the connection.
    fn read_some(&mut self) -> bool {
        self.read_at_most(16 * 1024)
    }

    fn read_at_most(&mut self, len_max: usize) -> bool {
        let mut chunk = [0; 16 * 1024];
        let len = match self.socket.read(&mut chunk[..len_max]) {
            Ok(len) => len,
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                panic!("no data for {WAIT_TIMEOUT:?}: {self:?}")
            }
            Err(_) => 0,
        };
        self.raw.extend_from_slice(&chunk[..len]);
        if self.head.is_none() {
            self.parse_head();
        }
        let Some((_, length)) = self.head else { return len > 0 };
        match length {
            Length::Known(known) => {
                self.body.append(&mut self.raw);
                self.complete = self.body.len() >= known;
            }
            Length::UntilClosed => {
                self.body.append(&mut self.raw);
                self.complete = len == 0;
            }
            Length::Chunked => {
                while !self.complete
                    && let Some((chunk, rest)) = first_chunk(&self.raw)
                {
                    self.complete |= chunk.is_empty();
                    self.body.extend_from_slice(chunk);
                    self.raw = rest.to_vec();
                }
            }
        }
        if self.is_stream() {
            self.parse_events();
        }
        len > 0
    }

    fn parse_head(&mut self) {
        let Some(end) = self.raw.windows(4).position(|window| window == b"\r\n\r\n") else {
            return;
        };
        let head = String::from_utf8(self.raw[..end].to_vec()).unwrap();
        self.raw.drain(..end + 4);
        let status = head.split(' ').nth(1).unwrap_or("");
        let length = match (header(&head, "content-length"), header(&head, "transfer-encoding")) {
            (None, None) if status.starts_with('1') || status == "204" => Length::Known(0),
            (Some(len), None) => Length::Known(len.parse().unwrap()),
            (None, Some("chunked")) => Length::Chunked,
            (None, None) => Length::UntilClosed,
            other => panic!("{other:?}: {head}"),
        };
        self.head = Some((head, length));
    }

    fn parse_events(&mut self) {
        while let Some(end) = self.body.windows(2).position(|window| window == b"\n\n") {
            let text = String::from_utf8(self.body[..end].to_vec()).unwrap();
            self.body.drain(..end + 2);
            let mut event = Event::default();
            let mut fields = 0;
            for line in text.lines() {
                let (field, value) = line.split_once(':').unwrap_or((line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                fields += usize::from(!field.is_empty());
                match field {
                    "" => self.comments += 1,
                    "id" => event.id = Some(value.to_owned()),
                    "event" => event.kind = Some(value.to_owned()),
                    "retry" => event.retry = Some(value.parse().unwrap()),
                    "data" => event.data.push_str(value),
                    _ => panic!("no field of an event: {text:?}"),
                }
            }
            if fields > 0 {
                self.events.push_back(event);
            }
        }
    }
}

/// The first chunk of a chunked body, and the bytes after it.
fn first_chunk(raw: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = raw.windows(2).position(|window| window == b"\r\n")?;
    let len = std::str::from_utf8(&raw[..line]).unwrap();
    let len = usize::from_str_radix(len, 16).unwrap_or_else(|_| panic!("not the length of a chunk: {len:?}"));
    let chunk = raw.get(line + 2..line + 2 + len)?;
    let rest = raw.get(line + 2 + len + 2..)?;
    Some((chunk, rest))
}

const MODERN: &str = "2026-07-28";
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
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "a test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        Self {
            address,
            headers: [("MCP-Protocol-Version", MODERN)]
                .iter()
                .chain(headers)
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            meta: Some(meta),
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
    #[allow(dead_code, reason = "only some tests have several")]
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
    let params = json!({
        "protocolVersion": version, "capabilities": capabilities,
        "clientInfo": {"name": "a test", "version": "1"},
    });
    let frame = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    Request::post(address, frame.to_string())
}
