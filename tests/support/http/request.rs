//! HTTP requests, and connections to send them on.

use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpStream},
};

use socket2::{Domain, Socket, Type};

use super::{
    super::WAIT_TIMEOUT,
    response::{Response, ResponseReader},
};

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
    while !reply.has_head() {
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
    pub fn sent_from(mut self, source: Ipv4Addr) -> Self {
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
