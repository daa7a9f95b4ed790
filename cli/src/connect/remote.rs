//! The way to a broker on another machine: MCP over WebSocket. A thread of its own turns frames into lines and lines into
//! frames, so that the front reads and writes one kind of connection.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use tungstenite::{Bytes, Error, Message, protocol::WebSocketConfig};

use crate::{
    access::BrokerAccess,
    mcp_client::{CallError, Socket, open_socket},
};
use common::{
    json::frame::{self, JsonText},
    user_broker::hello::{Agent, CLOSING},
};
use front::{
    STACK_LEN,
    dial::{Dial, DialError, Dialed, FRAME_LEN_MAX},
};

/// Longest time until a broker has answered the handshake.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// After this time without a byte the broker is asked for a sign of life, and after that it counts as lost.
const PING_AFTER: Duration = Duration::from_secs(20);
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Longest time for the close of a connection.
const CLOSE_MAX: Duration = Duration::from_millis(200);
/// Bytes that wait for the front before the broker is read again.
const WAITING_MAX: usize = 1024 * 1024;

/// Reaches a broker by its URL.
pub struct RemoteDial {
    pub access: BrokerAccess,
}

impl RemoteDial {
    /// Opens a connection that carries one frame a line.
    ///
    /// # Errors
    /// The broker does not answer, or not as WebSocket says.
    pub fn open(&self) -> Result<UnixStream, CallError> {
        let config = WebSocketConfig::default()
            .max_message_size(Some(FRAME_LEN_MAX))
            .max_frame_size(Some(FRAME_LEN_MAX));
        let (socket, tcp) = open_socket(&self.access, CONNECT_MAX, config)?;
        let start = || {
            let (stream, local) = UnixStream::pair()?;
            local.set_nonblocking(true)?;
            tcp.set_nonblocking(true)?;
            let pump = Pump::new(socket, tcp, local);
            thread::Builder::new()
                .name("websocket".to_owned())
                .stack_size(STACK_LEN)
                .spawn(|| pump.run())?;
            Ok::<_, io::Error>(stream)
        };
        start().map_err(|error| CallError::Failed(error.to_string()))
    }
}

impl Dial for RemoteDial {
    fn dial(&self, _: Agent) -> Result<Dialed, DialError> {
        let failed = |error: CallError| DialError(format!("{}: {error}", self.access.url.text));
        let stream = self.open().map_err(failed)?;
        Ok(Dialed { stream, hello: None })
    }
}

/// Passes frames in both directions.
struct Pump {
    socket: Socket,
    /// The connection under the socket, for its readiness.
    tcp: TcpStream,
    local: UnixStream,
    /// Lines for the front, and how many bytes of them were written.
    lines: Vec<u8>,
    written: usize,
    /// The beginning of a line of the front.
    partial: Vec<u8>,
    /// Frames for the broker wait until its connection takes more.
    is_blocked: bool,
    last_read: Instant,
    has_pinged: bool,
}

/// What ends the pump.
enum End {
    Front,
    Broker,
}

impl Pump {
    fn new(socket: Socket, tcp: TcpStream, local: UnixStream) -> Self {
        Self {
            socket,
            tcp,
            local,
            lines: Vec::new(),
            written: 0,
            partial: Vec::new(),
            is_blocked: false,
            last_read: Instant::now(),
            has_pinged: false,
        }
    }

    fn run(mut self) {
        loop {
            let passed = self.read_broker().and_then(|has_more| {
                self.write_front()?;
                self.read_front()?;
                // What the TLS layer has decoded already makes no socket ready.
                if has_more && self.lines.is_empty() {
                    Ok(())
                } else {
                    self.wait()
                }
            });
            match passed {
                Ok(()) => {}
                Err(End::Front) => return self.close(),
                Err(End::Broker) => {
                    let _ = self.local.set_nonblocking(false);
                    let _ = self.local.set_write_timeout(Some(CLOSE_MAX));
                    let _ = self.write_front();
                    return;
                }
            }
        }
    }

    /// Reads frames of the broker as long as there is room; returns whether there may be more.
    fn read_broker(&mut self) -> Result<bool, End> {
        while self.lines.len() < WAITING_MAX {
            let frame = match self.socket.read() {
                Ok(frame) => frame,
                Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(End::Broker),
            };
            self.last_read = Instant::now();
            self.has_pinged = false;
            match frame {
                Message::Text(text) => self.add_line(text.as_bytes()),
                Message::Close(Some(close)) => {
                    let params = json!({"code": u16::from(close.code), "reason": close.reason.as_str()});
                    self.add_line(&frame::notification(CLOSING, params).into_bytes());
                }
                _ => {}
            }
        }
        Ok(true)
    }

    /// A line break is white space between tokens in JSON.
    fn add_line(&mut self, frame: &[u8]) {
        let start = self.lines.len();
        self.lines.extend_from_slice(frame);
        for byte in self
            .lines
            .iter_mut()
            .skip(start)
            .filter(|byte| matches!(**byte, b'\n' | b'\r'))
        {
            *byte = b' ';
        }
        self.lines.push(b'\n');
    }

    fn write_front(&mut self) -> Result<(), End> {
        while let Some(rest) = self.lines.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.local.write(rest) {
                Ok(len) => self.written += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(End::Front),
            }
        }
        self.written = 0;
        if self.lines.capacity() > WAITING_MAX {
            self.lines = Vec::new();
        }
        self.lines.clear();
        Ok(())
    }

    /// Sends the lines of the front as frames until the connection to the broker is full.
    fn read_front(&mut self) -> Result<(), End> {
        let mut buffer = [0; 16 * 1024];
        self.flush()?;
        while !self.is_blocked {
            let len = match self.local.read(&mut buffer) {
                Ok(0) => return Err(End::Front),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(End::Front),
            };
            for part in buffer
                .get(..len)
                .unwrap_or_default()
                .split_inclusive(|byte| *byte == b'\n')
            {
                self.partial.extend_from_slice(part);
                if self.partial.pop_if(|last| *last == b'\n').is_some() {
                    let line = String::from_utf8(std::mem::take(&mut self.partial)).map_err(|_| End::Broker)?;
                    self.send(Message::text(line))?;
                }
            }
            self.flush()?;
        }
        Ok(())
    }

    /// Queues a frame.
    fn send(&mut self, frame: Message) -> Result<(), End> {
        match self.socket.write(frame) {
            Ok(()) => Ok(()),
            // The frame is queued.
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(End::Broker),
        }
    }

    fn flush(&mut self) -> Result<(), End> {
        self.is_blocked = match self.socket.flush() {
            Ok(()) => false,
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => true,
            Err(_) => return Err(End::Broker),
        };
        Ok(())
    }

    /// Waits until either side is ready, and asks a silent broker for a sign of life.
    fn wait(&mut self) -> Result<(), End> {
        let silence = self.last_read.elapsed();
        if silence >= SILENCE_MAX {
            return Err(End::Broker);
        }
        if silence >= PING_AFTER && !std::mem::replace(&mut self.has_pinged, true) {
            self.send(Message::Ping(Bytes::new()))?;
            self.flush()?;
        }
        let until = if self.has_pinged { SILENCE_MAX } else { PING_AFTER };
        let timeout = Timespec::try_from(until.saturating_sub(silence) + Duration::from_millis(1)).ok();
        let flags = |reads: bool, writes: bool| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            flags
        };
        let has_room = self.lines.len() < WAITING_MAX;
        let mut ready = [
            PollFd::new(&self.tcp, flags(has_room, self.is_blocked)),
            PollFd::new(&self.local, flags(!self.is_blocked, !self.lines.is_empty())),
        ];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(_) => Err(End::Broker),
        }
    }

    /// Tells the broker that the front has ended.
    fn close(mut self) {
        let _ = self.tcp.set_nonblocking(false);
        let _ = self.tcp.set_read_timeout(Some(CLOSE_MAX));
        let _ = self.tcp.set_write_timeout(Some(CLOSE_MAX));
        let _ = self.socket.close(None);
        let until = Instant::now() + CLOSE_MAX;
        while Instant::now() < until && self.socket.read().is_ok() {}
    }
}
