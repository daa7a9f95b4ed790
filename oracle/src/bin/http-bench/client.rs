//! An HTTP client with a persistent connection and little overhead.

use std::{io, net::SocketAddr};

use serde_json::{Value, json};
use test_client::{
    http::{self, Request},
    mcp,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::rounds::Era;

pub struct Client {
    socket: TcpStream,
    address: SocketAddr,
    bytes: Vec<u8>,
    /// Sent with every request.
    headers: Vec<(String, String)>,
}

impl Client {
    pub async fn connect(address: SocketAddr, headers: &[(&str, &str)]) -> io::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            address,
            bytes: Vec::with_capacity(16 * 1024),
            headers: headers
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        })
    }

    /// Sends one request and reads its answer, which stays in the buffer until the next one.
    ///
    /// # Errors
    /// When the status of the answer is not 200, or the connection fails.
    pub async fn call(&mut self, request: &[u8]) -> io::Result<()> {
        self.exchange(request, 200).await
    }

    async fn exchange(&mut self, request: &[u8], wanted: u16) -> io::Result<()> {
        self.bytes.clear();
        self.socket.write_all(request).await?;
        loop {
            if let Some((head, len)) = http::end(&self.bytes) {
                if head.status == wanted && len == self.bytes.len() {
                    return Ok(());
                }
                let text = String::from_utf8_lossy(&self.bytes);
                return Err(io::Error::other(format!("not what was wanted: {text}")));
            }
            if self.socket.read_buf(&mut self.bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The result in the last answer.
    ///
    /// # Errors
    /// When the answer has no result, or a tool result with `isError`.
    pub fn result(&self) -> io::Result<Value> {
        let wrong = || io::Error::other(format!("no result: {}", String::from_utf8_lossy(&self.bytes)));
        let (head, _) = http::end(&self.bytes).ok_or_else(wrong)?;
        let (body, _) = http::body(head, &self.bytes);
        let mut message = http::message(&body);
        let result = message["result"].take();
        if !result.is_object() || result["isError"] == true {
            return Err(wrong());
        }
        Ok(result)
    }

    /// The measured call as bytes: the cheapest call that the server offers.
    ///
    /// # Errors
    /// When the server refuses to open a session.
    pub async fn prepare(&mut self, server: &str, era: Era) -> io::Result<Vec<u8>> {
        let session = match era {
            Era::Legacy if server != "bare" => self.initialize().await?,
            _ => "00000000-0000-4000-8000-000000000000".to_owned(),
        };
        let call = |name: &str, arguments: Value| {
            let params = json!({"name": name, "arguments": arguments});
            match era {
                Era::Modern => mcp::modern(&json!(1), "tools/call", params),
                Era::Legacy => {
                    let message = mcp::request(&json!(1), "tools/call", &params);
                    mcp::legacy(mcp::LEGACY, &session, &message)
                }
            }
        };
        // The bodies for all three servers have about the same length; actix-web gets exactly the bytes of the broker.
        let id = "01999999-9999-7999-8999-999999999999";
        let (name, arguments) = match server {
            "ours" => {
                self.send(&call("register_session", json!({}))).await?;
                let result = self.result()?;
                let id = &result["structuredContent"]["session_id"];
                ("heartbeat", json!({"session_id": id}))
            }
            "bare" => ("heartbeat", json!({"session_id": id})),
            _ => ("echo", json!({"text": id})),
        };
        let request = call(name, arguments);
        self.send(&request).await?;
        if server != "bare" {
            self.result()?;
        }
        Ok(self.encode(&request))
    }

    fn encode(&self, request: &Request) -> Vec<u8> {
        let mut request = request.clone();
        for (name, value) in &self.headers {
            request.add(name, value);
        }
        request.encode(self.address)
    }

    async fn send(&mut self, request: &Request) -> io::Result<()> {
        let request = self.encode(request);
        self.exchange(&request, 200).await
    }

    /// Opens a session and returns its id.
    async fn initialize(&mut self) -> io::Result<String> {
        self.send(&mcp::initialize(&json!(0), mcp::LEGACY)).await?;
        self.result()?;
        let session = http::end(&self.bytes)
            .and_then(|(head, _)| head.header("mcp-session-id").map(str::to_owned))
            .ok_or_else(|| io::Error::other("initialize opened no session"))?;
        let initialized = mcp::notification("notifications/initialized", &json!({}));
        let initialized = mcp::legacy(mcp::LEGACY, &session, &initialized);
        let initialized = self.encode(&initialized);
        self.exchange(&initialized, 202).await?;
        Ok(session)
    }
}
