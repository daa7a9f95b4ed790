//! A WebSocket or local connection that carries JSON-RPC frames, valid or not.

use std::{
    cell::Cell,
    collections::VecDeque,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use serde_json::{Value, json};
use test_client::websocket::{CLOSE, FrameReader, LAST, PING, PONG, TEXT, WebSocket, masked_frame};

use super::WAIT_TIMEOUT;

/// One connection. A thread reads it and answers pings, so that the client counts as present.
pub struct Wire {
    stream: Stream,
    writer: Arc<Mutex<Stream>>,
    received: Arc<ReceivedFrames>,
    last_id: Cell<u64>,
}

/// The socket under a connection.
enum Stream {
    /// After a WebSocket handshake.
    Tcp(TcpStream),
    /// One message in a line.
    Unix(UnixStream),
}

impl Stream {
    fn try_clone(&self) -> Self {
        match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone().unwrap()),
            Self::Unix(stream) => Self::Unix(stream.try_clone().unwrap()),
        }
    }

    fn shutdown(&self, which: Shutdown) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(which),
            Self::Unix(stream) => stream.shutdown(which),
        };
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// A message as this kind of connection carries it.
    fn encoded(&self, text: &[u8]) -> Vec<u8> {
        match self {
            Self::Tcp(_) => masked_frame(0x81, text),
            Self::Unix(_) => [text, b"\n"].concat(),
        }
    }
}

#[derive(Default)]
struct ReceivedFrames {
    state: Mutex<State>,
    changed: Condvar,
    mute: AtomicBool,
}

#[derive(Default)]
struct State {
    frames: VecDeque<Value>,
    pings: usize,
    closed: Option<Closed>,
}

/// How a connection ended; without a close frame the code is None.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    pub code: Option<u16>,
    pub reason: String,
}

impl Wire {
    pub fn open(address: SocketAddr) -> Self {
        Self::open_with(address, &[])
    }

    /// Opens a connection with these headers in the handshake.
    pub fn open_with(address: SocketAddr, headers: &[(&str, &str)]) -> Self {
        Self::open_to(address, "/ws", headers)
    }

    /// Opens a connection at this path.
    pub fn open_at(address: SocketAddr, path: &str) -> Self {
        Self::open_to(address, path, &[])
    }

    fn open_to(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let WebSocket { stream, frames } = WebSocket::connect(address, path, headers).unwrap();
        Self::on(Stream::Tcp(stream), Some(frames))
    }

    /// Uses a socket after the handshake.
    pub fn on_stream(stream: TcpStream) -> Self {
        let frames = FrameReader::new(stream.try_clone().unwrap());
        Self::on(Stream::Tcp(stream), Some(frames))
    }

    /// Connects to a local socket.
    pub fn open_local(path: &Path) -> Self {
        Self::on_socket(UnixStream::connect(path).unwrap())
    }

    /// Uses a socket that carries one message in a line.
    pub fn on_socket(stream: UnixStream) -> Self {
        stream.set_write_timeout(Some(WAIT_TIMEOUT)).unwrap();
        Self::on(Stream::Unix(stream), None)
    }

    fn on(stream: Stream, frames: Option<FrameReader<TcpStream>>) -> Self {
        let writer = Arc::new(Mutex::new(stream.try_clone()));
        let received = Arc::new(ReceivedFrames::default());
        let reader = Reader {
            writer: Arc::clone(&writer),
            received: Arc::clone(&received),
        };
        match (stream.try_clone(), frames) {
            (_, Some(frames)) => std::thread::spawn(move || reader.read_frames(frames)),
            (Stream::Unix(socket), _) => std::thread::spawn(move || reader.read_lines(&socket)),
            (Stream::Tcp(_), None) => unreachable!("frames come over TCP"),
        };
        Self {
            stream,
            writer,
            received,
            last_id: Cell::new(0),
        }
    }

    pub fn sends_text(&self, text: &str) {
        self.sends_bytes(&self.stream.encoded(text.as_bytes()));
    }

    pub fn sends(&self, frame: &Value) {
        self.sends_text(&frame.to_string());
    }

    /// Sends one masked frame with this first byte.
    pub fn sends_frame(&self, first: u8, payload: &[u8]) {
        self.sends_bytes(&masked_frame(first, payload));
    }

    /// Sends several frames in one write.
    pub fn sends_together(&self, frames: &[Value]) {
        let bytes: Vec<_> = frames
            .iter()
            .flat_map(|frame| self.stream.encoded(frame.to_string().as_bytes()))
            .collect();
        self.sends_bytes(&bytes);
    }

    /// Sends raw bytes, never inside a frame of the thread that answers pings.
    pub fn sends_bytes(&self, bytes: &[u8]) {
        let mut writer = self.writer.lock().unwrap();
        // The reader notices a closed connection.
        let _ = writer.write_all(bytes);
    }

    /// Sends a request and returns its id.
    pub fn asks(&self, method: &str, params: Value) -> Value {
        self.last_id.set(self.last_id.get() + 1);
        let id = json!(self.last_id.get());
        self.asks_as(&id, method, params);
        id
    }

    /// Sends a request with this id.
    pub fn asks_as(&self, id: &Value, method: &str, params: Value) {
        let mut frame = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if !params.is_null() {
            frame["params"] = params;
        }
        self.sends(&frame);
    }

    pub fn notifies(&self, method: &str, params: &Value) {
        self.sends(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Waits for the answer to a request: its result or its error.
    pub fn answer_to(&self, id: &Value) -> Result<Value, Value> {
        let mut frame = self.awaits_frame(&format!("the answer to {id}"), |frame| {
            frame["id"] == *id && frame.get("method").is_none()
        });
        assert_eq!(frame["jsonrpc"], "2.0", "{frame}");
        match (frame.get("result").is_some(), frame.get("error").is_some()) {
            (true, false) => Ok(frame["result"].take()),
            (false, true) => Err(frame["error"].take()),
            _ => panic!("neither a result nor an error: {frame}"),
        }
    }

    /// Sends a request and waits for its answer.
    pub fn request(&self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.asks(method, params);
        self.answer_to(&id)
    }

    /// Sends a request that must fail, and returns the code of the error.
    pub fn error_of(&self, method: &str, params: Value) -> i64 {
        let error = self.request(method, params).expect_err("a refusal");
        error["code"].as_i64().unwrap()
    }

    /// Waits for the next notification of this method and returns its params.
    pub fn next_notification(&self, method: &str) -> Value {
        let mut frame = self.awaits_frame(method, |frame| frame["method"] == method);
        assert!(frame.get("id").is_none(), "{frame}");
        frame["params"].take()
    }

    /// The number of unread notifications of this method that were sent before this call.
    pub fn notifications_so_far(&self, method: &str) -> usize {
        self.syncs();
        let state = self.received.lock();
        state.frames.iter().filter(|frame| frame["method"] == method).count()
    }

    /// Returns when everything that the broker sent before has been read: sends a ping and waits for the answer.
    pub fn syncs(&self) {
        assert_eq!(self.request("ping", Value::Null), Ok(json!({})));
    }

    /// Waits for the first frame that fits. Other frames stay unread.
    pub fn awaits_frame(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.await_state(what, |state| {
            let at = state.frames.iter().position(&fits)?;
            state.frames.remove(at)
        })
    }

    /// Whether a frame with this id has arrived.
    pub fn has_received(&self, id: &Value) -> bool {
        let state = self.received.lock();
        state.frames.iter().any(|frame| frame["id"] == *id)
    }

    /// The answer to a request, if the broker sent it before this call.
    pub fn answer_so_far(&self, id: &Value) -> Option<Value> {
        self.syncs();
        let mut state = self.received.lock();
        let is_it = |frame: &Value| frame["id"] == *id && frame.get("method").is_none();
        let at = state.frames.iter().position(is_it)?;
        state.frames.remove(at)
    }

    /// A request of this method that the broker sent before this call.
    pub fn question_so_far(&self, method: &str) -> Option<Value> {
        self.syncs();
        let mut state = self.received.lock();
        let is_it = |frame: &Value| frame["method"] == method && frame.get("id").is_some();
        let at = state.frames.iter().position(is_it)?;
        state.frames.remove(at)
    }

    /// Cancels a request.
    pub fn cancels(&self, id: &Value) {
        self.notifies("notifications/cancelled", &json!({"requestId": id}));
    }

    /// The number of pings received so far.
    pub fn pings(&self) -> usize {
        self.received.lock().pings
    }

    /// Waits for the end of the connection.
    pub fn awaits_close(&self) -> Closed {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let mut state = self.received.lock();
        loop {
            if let Some(closed) = &state.closed {
                return closed.clone();
            }
            state = self.received.wait(state, deadline, "the connection ends");
        }
    }

    pub fn closes_with(&self, code: u16) -> String {
        let closed = self.awaits_close();
        assert_eq!(closed.code, Some(code), "{closed:?}");
        closed.reason
    }

    pub fn is_open(&self) -> bool {
        self.received.lock().closed.is_none()
    }

    /// Leaves pings unanswered from now on.
    pub fn stops_answering_pings(&self) {
        self.received.mute.store(true, Ordering::SeqCst);
    }

    /// Closes the connection without a close frame.
    pub fn disconnects(&self) {
        self.stream.shutdown(Shutdown::Both);
    }

    /// Sends nothing more, and still reads.
    pub fn ends_output(&self) {
        self.stream.shutdown(Shutdown::Write);
    }

    fn await_state<T>(&self, what: &str, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let mut state = self.received.lock();
        loop {
            if let Some(found) = look(&mut state) {
                return found;
            }
            if let Some(closed) = &state.closed {
                panic!("waited for {what}, and the connection ended: {closed:?}");
            }
            state = self.received.wait(state, deadline, what);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.disconnects();
    }
}

impl ReceivedFrames {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, deadline: Instant, what: &str) -> MutexGuard<'a, State> {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "not received: {what}; but {:#?}", state.frames);
        let waited = self.changed.wait_timeout(state, left);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Reads a connection to its end, in a thread.
struct Reader {
    writer: Arc<Mutex<Stream>>,
    received: Arc<ReceivedFrames>,
}

impl Reader {
    fn read_frames(self, mut frames: FrameReader<TcpStream>) {
        let mut closed = Closed::default();
        while let Ok(Some(frame)) = frames.next_frame() {
            assert!(frame.last && !frame.is_masked(), "{frame:?}");
            match frame.opcode {
                TEXT => self.push(std::str::from_utf8(frame.payload).unwrap()),
                PING => self.answer_ping(frame.payload),
                PONG => {}
                CLOSE => {
                    closed = parse_close(frame.payload);
                    self.send(LAST | CLOSE, frame.payload);
                    break;
                }
                _ => panic!("a server sends no {frame:?}"),
            }
        }
        let _ = frames.from.shutdown(Shutdown::Both);
        self.end(closed);
    }

    /// Reads lines. The notification that the broker closes the connection counts as a close frame.
    fn read_lines(self, socket: &UnixStream) {
        let mut closed = Closed::default();
        for line in BufReader::new(socket).lines().map_while(Result::ok) {
            let frame: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if frame["method"] == "notifications/dev.mcp-broker/closing" {
                let code = frame["params"]["code"].as_u64();
                closed = Closed {
                    code: code.and_then(|code| u16::try_from(code).ok()),
                    reason: frame["params"]["reason"].as_str().unwrap().to_owned(),
                };
                continue;
            }
            self.push(&line);
        }
        self.end(closed);
    }

    fn push(&self, text: &str) {
        let frame = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        self.received.lock().frames.push_back(frame);
        self.received.changed.notify_all();
    }

    fn answer_ping(&self, payload: &[u8]) {
        self.received.lock().pings += 1;
        self.received.changed.notify_all();
        if !self.received.mute.load(Ordering::SeqCst) {
            self.send(LAST | PONG, payload);
        }
    }

    fn send(&self, first: u8, payload: &[u8]) {
        let _ = self.writer.lock().unwrap().write_all(&masked_frame(first, payload));
    }

    fn end(&self, closed: Closed) {
        self.received.lock().closed = Some(closed);
        self.received.changed.notify_all();
    }
}

fn parse_close(payload: &[u8]) -> Closed {
    let (code, reason) = match payload {
        [high, low, reason @ ..] => (Some(u16::from_be_bytes([*high, *low])), reason),
        _ => (None, &[][..]),
    };
    Closed {
        code,
        reason: String::from_utf8(reason.to_vec()).unwrap(),
    }
}

/// Reads exactly one frame of a server and returns its payload.
pub fn read_frame(socket: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 2];
    socket.read_exact(&mut header).unwrap();
    let len = match header[1] {
        126 => {
            let mut len = [0; 2];
            socket.read_exact(&mut len).unwrap();
            usize::from(u16::from_be_bytes(len))
        }
        len @ 0..126 => usize::from(len),
        len => panic!("a long or masked frame: {len}"),
    };
    let mut payload = vec![0; len];
    socket.read_exact(&mut payload).unwrap();
    payload
}
