//! Clients of MCP, one request at a time, and the one over lines: a pipe or a local socket.

use std::io::{BufRead, BufReader, Read, Write};

use serde_json::{Value, json};
use test_client::mcp::{LEGACY, hello};

use crate::{
    error::{LoadError, Result},
    messages::read_reply,
};

/// Bytes of the buffer of what was read.
const BUFFER_LEN: usize = 64 * 1024;

/// A way on which a request waits for its answer.
pub trait Exchange {
    /// Sends a request with this id and returns its answer.
    ///
    /// # Errors
    /// The answer is an error, or there is none.
    fn exchange(&mut self, id: u64, request: &[u8]) -> Result<&[u8]>;

    /// Sends a request with this id and returns its result.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    fn request(&mut self, id: u64, method: &str, params: &Value) -> Result<Value> {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let answer = self.exchange(id, request.to_string().as_bytes())?;
        let mut answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        Ok(answer["result"].take())
    }
}

impl Exchange for Box<dyn Exchange> {
    fn exchange(&mut self, id: u64, request: &[u8]) -> Result<&[u8]> {
        (**self).exchange(id, request)
    }
}

/// Whether a message is the answer to the request with this id.
///
/// # Errors
/// It is one, and an error.
pub fn answers(id: u64, message: &[u8]) -> Result<bool> {
    match read_reply(message).filter(|reply| reply.id == id) {
        Some(reply) if reply.failed => Err(LoadError::refused("a request", message)),
        found => Ok(found.is_some()),
    }
}

/// What follows `initialize`.
pub const INITIALIZED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";

/// A way to the broker: lines of JSON in both directions.
pub struct Way<W, R> {
    to: W,
    from: BufReader<R>,
    out: Vec<u8>,
    line: Vec<u8>,
    last_id: u64,
}

impl<W: Write, R: Read> Way<W, R> {
    pub fn new(to: W, from: R) -> Self {
        Self {
            to,
            from: BufReader::with_capacity(BUFFER_LEN, from),
            out: Vec::new(),
            line: Vec::new(),
            last_id: 0,
        }
    }

    /// Begins a session of MCP.
    pub fn initialize(&mut self, client: &str) -> Result<()> {
        self.last_id += 1;
        self.request(self.last_id, "initialize", &hello(client, LEGACY, &json!({})))?;
        self.send(INITIALIZED)
    }

    /// Calls a tool and waits for its result.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        self.last_id += 1;
        let params = json!({"name": tool, "arguments": arguments});
        self.request(self.last_id, "tools/call", &params)
    }

    /// Sends lines in one write.
    pub fn send(&mut self, lines: &[u8]) -> Result<()> {
        Ok(self.to.write_all(lines)?)
    }

    /// Waits for the next line.
    pub fn next_line(&mut self) -> Result<&[u8]> {
        self.line.clear();
        if self.from.read_until(b'\n', &mut self.line)? == 0 {
            return Err(LoadError::Arguments("the way ended before an answer".to_owned()));
        }
        Ok(&self.line)
    }

    /// Whether the next line was read already.
    pub fn has_line(&self) -> bool {
        memchr::memchr(b'\n', self.from.buffer()).is_some()
    }
}

impl<W: Write, R: Read> Exchange for Way<W, R> {
    fn exchange(&mut self, id: u64, request: &[u8]) -> Result<&[u8]> {
        self.out.clear();
        self.out.extend_from_slice(request);
        self.out.push(b'\n');
        self.to.write_all(&self.out)?;
        while !answers(id, self.next_line()?)? {}
        Ok(&self.line)
    }
}
