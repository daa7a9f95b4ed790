//! A client of MCP over Streamable HTTP, one request at a time on one connection.

use std::{
    fmt::Write as _,
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use serde_json::json;
use test_client::{http::Connection, mcp};

use crate::{
    error::{LoadError, Result},
    workloads::{
        own_broker::CLIENT,
        way::{Exchange, INITIALIZED, answers},
    },
};

/// The longest time without a byte of an answer: a backend may have to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of one endpoint.
pub struct HttpWay {
    connection: Connection,
    /// The request up to its length.
    head: String,
    out: Vec<u8>,
}

impl HttpWay {
    /// A client of 2026-07-28, whose requests have this method and, for a call, this tool.
    pub fn modern(address: SocketAddr, path: &str, method: &str, tool: Option<&str>) -> Result<Self> {
        let mut way = Self::open(address, path)?;
        way.add("MCP-Protocol-Version", mcp::MODERN);
        way.add("Mcp-Method", method);
        if let Some(tool) = tool {
            way.add("Mcp-Name", tool);
        }
        Ok(way)
    }

    /// A client of 2025-11-25, which has begun a session.
    pub fn legacy(url: &str) -> Result<Self> {
        let invalid = |reason: String| LoadError::Url {
            url: url.to_owned(),
            reason,
        };
        let rest = url.strip_prefix("http://");
        let rest = rest.ok_or_else(|| invalid("it must begin with http://, TLS is not spoken here".to_owned()))?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let mut addresses = host.to_socket_addrs().map_err(|error| invalid(error.to_string()))?;
        let address = addresses
            .next()
            .ok_or_else(|| invalid("the name has no address".to_owned()))?;
        let mut way = Self::open(address, path)?;
        let hello = mcp::hello(CLIENT, mcp::LEGACY, &json!({}));
        let request = mcp::request(&json!(1), "initialize", &hello);
        way.write(request.to_string().as_bytes());
        let answer = way.connection.ask(&way.out)?;
        let session = answer.head.header("mcp-session-id").map(str::to_owned);
        find_answer(1, answer.body)?;
        way.add("MCP-Protocol-Version", mcp::LEGACY);
        if let Some(session) = session {
            way.add("Mcp-Session-Id", &session);
        }
        way.write(INITIALIZED);
        way.connection.ask(&way.out)?;
        Ok(way)
    }

    fn open(address: SocketAddr, path: &str) -> Result<Self> {
        Ok(Self {
            connection: Connection::open(address, PATIENCE)?,
            head: format!(
                "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
                 Accept: application/json, text/event-stream\r\n"
            ),
            out: Vec::new(),
        })
    }

    fn add(&mut self, name: &str, value: &str) {
        // Writing to a string cannot fail.
        _ = write!(self.head, "{name}: {value}\r\n");
    }

    /// Sends a request.
    pub fn send(&mut self, request: &[u8]) -> Result<()> {
        self.write(request);
        Ok(self.connection.send(&self.out)?)
    }

    /// Waits for the answer to the request with this id, which was sent.
    pub fn receive(&mut self, id: u64) -> Result<&[u8]> {
        find_answer(id, self.connection.receive()?.body)
    }

    fn write(&mut self, body: &[u8]) {
        self.out.clear();
        self.out.extend_from_slice(self.head.as_bytes());
        self.out
            .extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        self.out.extend_from_slice(body);
    }
}

impl Exchange for HttpWay {
    fn exchange(&mut self, id: u64, request: &[u8]) -> Result<&[u8]> {
        self.send(request)?;
        self.receive(id)
    }
}

/// The answer in a body: the body itself, or the data of an event.
fn find_answer(id: u64, body: &[u8]) -> Result<&[u8]> {
    if answers(id, body)? {
        return Ok(body);
    }
    for line in body.split(|byte| *byte == b'\n') {
        if let Some(data) = line.strip_prefix(b"data:")
            && answers(id, data.trim_ascii())?
        {
            return Ok(data.trim_ascii());
        }
    }
    Err(LoadError::refused("a request", body))
}

/// Asks for a plain page on a connection that stays open.
pub struct PlainWay {
    connection: Connection,
    request: String,
}

impl PlainWay {
    pub fn open(address: SocketAddr, path: &str) -> Result<Self> {
        Ok(Self {
            connection: Connection::open(address, PATIENCE)?,
            request: format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"),
        })
    }

    /// The page.
    pub fn get(&mut self) -> Result<&[u8]> {
        let answer = self.connection.ask(self.request.as_bytes())?;
        match answer.head.status {
            200 => Ok(answer.body),
            _ => Err(LoadError::refused("a page", answer.head.text().as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_body_or_the_data_of_an_event() {
        let answer = br#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        assert_eq!(find_answer(7, answer).unwrap(), answer);
        let events = b"event: message\ndata: {\"method\":\"x\"}\n\ndata: {\"result\":{},\"id\":7}\r\n\n";
        assert_eq!(find_answer(7, events).unwrap(), br#"{"result":{},"id":7}"#);
        assert!(find_answer(8, events).is_err());
        assert!(find_answer(7, b"data: {\"id\":7,\"error\":{\"code\":1,\"message\":\"no\"}}\n").is_err());
    }
}
