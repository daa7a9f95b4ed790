//! A client of MCP over a pipe or a local socket, one request at a time.

use std::io::{BufRead, BufReader, Read, Write};

use serde_json::{Value, json};

use crate::error::{LoadError, Result};

/// A way to the broker: lines of JSON in both directions.
pub struct Way<W, R> {
    to: W,
    from: BufReader<R>,
    line: String,
    last_id: u64,
}

impl<W: Write, R: Read> Way<W, R> {
    pub fn new(to: W, from: R) -> Self {
        Self {
            to,
            from: BufReader::new(from),
            line: String::new(),
            last_id: 0,
        }
    }

    /// Sends a request and waits for its result.
    pub fn request(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        self.to.write_all(format!("{request}\n").as_bytes())?;
        loop {
            self.line.clear();
            if self.from.read_line(&mut self.line)? == 0 {
                return Err(LoadError::Arguments(format!(
                    "{method} was not answered: the way ended"
                )));
            }
            let frame: Value = serde_json::from_str(&self.line).unwrap_or_default();
            if frame["id"] == self.last_id {
                let result = frame["result"].clone();
                if result.is_null() || result["isError"] == true {
                    return Err(LoadError::refused(method, self.line.as_bytes()));
                }
                return Ok(result);
            }
        }
    }

    /// Begins a session of MCP.
    pub fn initialize(&mut self, client: &str) -> Result<()> {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": client, "version": env!("CARGO_PKG_VERSION")},
        });
        self.request("initialize", &params)?;
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        Ok(self.to.write_all(format!("{initialized}\n").as_bytes())?)
    }

    /// Calls a tool and waits for its result.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }
}
