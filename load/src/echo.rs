//! `echo`: the MCP server that the workload `gateway` puts behind a gateway. It does next to nothing, so that what is measured
//! is the way to it.

use std::{
    borrow::Cow,
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use serde::Deserialize;
use serde_json::{json, value::RawValue};
use test_client::http::MessageReader;

use crate::error::Result;

/// Bytes of the buffers of both directions.
const BUFFER_LEN: usize = 64 * 1024;

#[derive(clap::Args)]
pub struct Options {
    /// Tools beside echo, big and hang
    #[arg(long, default_value_t = 0)]
    tools: usize,
    /// Serve Streamable HTTP at this address, such as 127.0.0.1:0, and print the URL [default: stdin and stdout]
    #[arg(long)]
    http: Option<SocketAddr>,
}

/// Serves until the input ends; over HTTP until the process is ended.
pub fn run(options: &Options) -> Result<()> {
    let server = Server { tools: options.tools };
    match options.http {
        Some(address) => serve_http(server, address),
        None => serve_lines(server),
    }
}

#[derive(Clone, Copy)]
struct Server {
    tools: usize,
}

/// What is read of a message. Answers and notifications of the client have no method or no id.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Params<'a>,
}

#[derive(Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Arguments<'a>,
}

#[derive(Default, Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(default)]
    bytes: usize,
}

impl Server {
    /// Appends the answer to a message, if it is a request. It is legacy, as nearly all servers are.
    fn answer(self, message: &[u8], out: &mut Vec<u8>) {
        let Ok(message) = serde_json::from_slice::<Message<'_>>(message) else {
            return;
        };
        let Some(id) = message.id.filter(|_| !message.method.is_empty()) else {
            return;
        };
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.extend_from_slice(id.get().as_bytes());
        match &*message.method {
            "tools/call" => {
                let Arguments { text, bytes } = message.params.arguments;
                out.extend_from_slice(b",\"result\":{\"content\":[{\"type\":\"text\",\"text\":");
                if message.params.name == "big" {
                    out.push(b'"');
                    out.resize(out.len() + bytes, b'x');
                    out.push(b'"');
                } else {
                    out.extend_from_slice(text.map_or("\"\"", RawValue::get).as_bytes());
                }
                out.extend_from_slice(b"}]}}");
                if message.params.name == "hang" {
                    loop {
                        thread::park();
                    }
                }
            }
            "initialize" => {
                let result = json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "mcp-broker-load-echo", "version": env!("CARGO_PKG_VERSION")},
                });
                out.extend_from_slice(format!(",\"result\":{result}}}").as_bytes());
            }
            "tools/list" => out.extend_from_slice(format!(",\"result\":{}}}", self.list()).as_bytes()),
            "ping" => out.extend_from_slice(b",\"result\":{}}"),
            _ => out.extend_from_slice(b",\"error\":{\"code\":-32601,\"message\":\"Method not found\"}}"),
        }
    }

    fn list(self) -> serde_json::Value {
        let names = ["echo", "big", "hang"].map(str::to_owned).into_iter();
        let tools = names.chain((0..self.tools).map(|at| format!("tool_{at}")));
        let tools: Vec<_> = tools
            .map(|name| {
                json!({
                    "name": name,
                    "description": "It answers with the text that it gets, as the other tools of this server do.",
                    "inputSchema": {"type": "object"},
                })
            })
            .collect();
        json!({"tools": tools})
    }
}

/// Answers everything that one read has brought in one write.
fn serve_lines(server: Server) -> Result<()> {
    let mut input = BufReader::with_capacity(BUFFER_LEN, io::stdin().lock());
    let mut output = io::stdout().lock();
    let (mut line, mut out) = (Vec::new(), Vec::new());
    while input.read_until(b'\n', &mut line)? > 0 {
        let before = out.len();
        server.answer(&line, &mut out);
        if out.len() > before {
            out.push(b'\n');
        }
        line.clear();
        if memchr::memchr(b'\n', input.buffer()).is_none() {
            output.write_all(&out)?;
            output.flush()?;
            out.clear();
        }
    }
    Ok(())
}

fn serve_http(server: Server, address: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    println!("http://{}/mcp", listener.local_addr()?);
    for client in listener.incoming() {
        let client = client?;
        // A client that breaks its connection off is no concern of the others.
        thread::spawn(move || serve_client(server, client));
    }
    Ok(())
}

fn serve_client(server: Server, client: TcpStream) -> Result<()> {
    client.set_nodelay(true)?;
    let mut output = client.try_clone()?;
    let mut input = MessageReader::new(client);
    let (mut body, mut out) = (Vec::new(), Vec::new());
    while let Some(request) = input.next_message()? {
        body.clear();
        out.clear();
        server.answer(request.body, &mut body);
        if !request.head.text().starts_with("POST ") {
            out.extend_from_slice(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n");
        } else if body.is_empty() {
            out.extend_from_slice(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
        } else {
            let len = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\r\n");
            out.extend_from_slice(head.as_bytes());
            out.append(&mut body);
        }
        output.write_all(&out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn answer(message: &Value) -> String {
        let mut out = Vec::new();
        Server { tools: 2 }.answer(message.to_string().as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_are_answered_in_any_order_of_their_members() {
        let params = json!({"_meta": {}, "name": "echo", "arguments": {"text": "a\"b"}});
        let echo = json!({"params": params, "id": "x", "method": "tools/call"});
        let expected = r#"{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"text","text":"a\"b"}]}}"#;
        assert_eq!(answer(&echo), expected);
        let big = json!({"id": 1, "method": "tools/call", "params": {"name": "big", "arguments": {"bytes": 3}}});
        assert!(answer(&big).contains("\"text\":\"xxx\""));
        let list: Value = serde_json::from_str(&answer(&json!({"id": 2, "method": "tools/list"}))).unwrap();
        assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 5);
        assert!(answer(&json!({"id": 3, "method": "server/discover", "params": {}})).contains("-32601"));
        assert_eq!(answer(&json!({"method": "notifications/initialized"})), "");
        assert_eq!(answer(&json!({"id": 4, "result": {}})), "");
    }
}
