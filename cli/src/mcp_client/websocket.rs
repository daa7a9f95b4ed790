//! MCP over WebSocket: one JSON-RPC frame per text message.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};
use serde_json::{Value, json};
use tungstenite::{
    Error, HandshakeError, Message, WebSocket,
    client::IntoClientRequest,
    http::{HeaderValue, StatusCode},
    protocol::WebSocketConfig,
};

use super::{
    CallError, Era, McpClient, failed, hello, result_of,
    tls::{connect_tcp, split_address, tls_config},
};
use crate::access::BrokerAccess;
use common::json::frame::{self, JsonText, NO_PARAMS};

/// A TCP or TLS connection.
pub trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// A connection on which a signal interrupts no read and no write. With a time limit, the system does not continue automatically.
struct Uninterrupted<S>(S);

impl<S: Read> Read for Uninterrupted<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl<S: Write> Write for Uninterrupted<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A WebSocket to a broker.
pub type Socket = WebSocket<Box<dyn Stream>>;

/// Opens a WebSocket to a broker. Returns the connection under it as well, for its time limits and its readiness.
///
/// # Errors
/// The broker does not answer, or not as WebSocket says.
pub fn open_socket(
    access: &BrokerAccess,
    timeout: Duration,
    config: WebSocketConfig,
) -> Result<(Socket, TcpStream), CallError> {
    let url = format!("{}/ws", access.url.text.replacen("http", "ws", 1));
    let (host, port) = split_address(&access.url.text).ok_or_else(|| failed("the URL names no host"))?;
    let tcp = connect_tcp(&host, port, timeout).map_err(failed)?;
    let stream = Uninterrupted(tcp.try_clone().map_err(failed)?);
    let stream: Box<dyn Stream> = if access.url.is_https {
        let name = ServerName::try_from(host).map_err(failed)?;
        let tls = ClientConnection::new(tls_config().map_err(failed)?, name).map_err(failed)?;
        Box::new(StreamOwned::new(tls, stream))
    } else {
        Box::new(stream)
    };
    let mut request = url.into_client_request().map_err(failed)?;
    let headers = request.headers_mut();
    headers.insert("sec-websocket-protocol", HeaderValue::from_static("mcp"));
    if let Some(project) = &access.project {
        headers.insert("x-project-id", HeaderValue::from_str(project).map_err(failed)?);
    }
    if let Some(key) = &access.key {
        let mut value = HeaderValue::from_str(key.expose()).map_err(failed)?;
        value.set_sensitive(true);
        headers.insert("x-api-key", value);
    }
    let opened = tungstenite::client::client_with_config(request, stream, Some(config));
    let (socket, _) = opened.map_err(handshake_error)?;
    Ok((socket, tcp))
}

/// A client over WebSocket. It answers pings while one of its functions runs, and drops notifications.
pub struct WebSocketClient {
    socket: Socket,
    /// The same connection, for its time limits.
    tcp: TcpStream,
    era: Era,
    timeout: Duration,
    last_id: u64,
}

impl WebSocketClient {
    /// Connects to a broker, and in the legacy era initializes the connection.
    ///
    /// # Errors
    /// The broker does not answer, or not as WebSocket and MCP say.
    pub fn connect(access: &BrokerAccess, era: Era, timeout: Duration) -> Result<Self, CallError> {
        let (socket, tcp) = open_socket(access, timeout, WebSocketConfig::default())?;
        let mut client = Self {
            socket,
            tcp,
            era,
            timeout,
            last_id: 0,
        };
        match era {
            Era::Modern => drop(client.request("server/discover", json!({}))?),
            Era::Legacy => {
                client.request("initialize", hello())?;
                client.send(frame::notification("notifications/initialized", NO_PARAMS))?;
            }
        }
        Ok(client)
    }

    /// Answers pings for a while. Notifications are dropped.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn read_for(&mut self, time: Duration) -> Result<(), CallError> {
        let until = Instant::now() + time;
        while self.read(until)?.is_some() {}
        Ok(())
    }

    fn send(&mut self, frame: impl JsonText) -> Result<(), CallError> {
        self.socket.send(Message::text(frame.into_text())).map_err(failed)
    }

    /// Reads one frame, unless none arrives in time.
    fn read(&mut self, until: Instant) -> Result<Option<Value>, CallError> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.tcp.set_read_timeout(Some(left)).map_err(failed)?;
            match self.socket.read() {
                Ok(Message::Text(text)) => return serde_json::from_str(&text).map(Some).map_err(failed),
                Ok(Message::Close(close)) => {
                    let reason = close.map_or_else(String::new, |close| format!(": {} {}", close.code, close.reason));
                    return Err(failed(format!("the broker closed the connection{reason}")));
                }
                // The answer to a ping waits until the next flush.
                Ok(_) => self.socket.flush().map_err(failed)?,
                Err(Error::Io(error)) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

impl McpClient for WebSocketClient {
    fn request(&mut self, method: &str, mut params: Value) -> Result<Value, CallError> {
        self.era.complete(&mut params);
        self.last_id += 1;
        let id = self.last_id;
        self.send(frame::request(id, method, params))?;
        let until = Instant::now() + self.timeout;
        while let Some(frame) = self.read(until)? {
            if frame["id"] == id && frame.get("method").is_none() {
                return result_of(frame);
            }
        }
        Err(failed(format!("no answer within {} s", self.timeout.as_secs())))
    }
}

impl Drop for WebSocketClient {
    fn drop(&mut self) {
        let _ = self.socket.close(None);
        let _ = self.socket.flush();
    }
}

fn handshake_error<S: Stream>(error: HandshakeError<tungstenite::handshake::client::ClientHandshake<S>>) -> CallError {
    match error {
        HandshakeError::Failure(Error::Http(response)) if response.status() == StatusCode::UNAUTHORIZED => {
            CallError::KeyNeeded
        }
        HandshakeError::Failure(Error::Http(response)) => failed(format!("GET /ws answered {}", response.status())),
        HandshakeError::Failure(error) => failed(error),
        HandshakeError::Interrupted(_) => failed("no answer in time"),
    }
}
