//! Many WebSocket connections on one thread: one readiness loop, one shared read buffer, at most one write per
//! connection and poll. The frames that are queued during one poll go out together, so the generator costs far less
//! than the server.

use std::{
    io::{ErrorKind, Read, Write},
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token, net::TcpStream};
use test_client::websocket::{self, Violation};

use crate::{
    error::{LoadError, Result},
    target::Target,
};

/// Nanoseconds since the event loop was created.
pub type Nanos = u64;

const READ_BYTES: usize = 256 << 10;
const EVENTS_PER_POLL: usize = 1024;
/// A connection that has written nothing for this long sends a ping: the server would close it as stale otherwise.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const TIMER: Token = Token(usize::MAX);

/// What the event loop reports. Every call may queue frames on any connection. `link` is the number of the connection.
pub trait ConnectionEvents {
    /// The WebSocket is open.
    fn opened(&mut self, link: usize, now: Nanos, out: &mut Outbox) -> Result<()>;
    /// One complete text message; `now` is when its bytes were read.
    fn text(&mut self, link: usize, text: &[u8], now: Nanos, out: &mut Outbox) -> Result<()>;
    /// Everything that was ready on the connection has been reported.
    fn drained(&mut self, link: usize, out: &mut Outbox) -> Result<()>;
    /// The connection is closed. Its number is never used again.
    fn closed(&mut self, link: usize, reason: &str) -> Result<()>;
}

/// The frames that wait to be written. Separate from the connections, so that [`ConnectionEvents`] can add frames
/// while a connection is being read.
#[derive(Default)]
pub struct Outbox {
    queues: Vec<Vec<u8>>,
    dirty: Vec<usize>,
    mask: u32,
}

impl Outbox {
    pub fn text(&mut self, link: usize, payload: &[u8]) {
        self.frame(link, websocket::TEXT, payload);
    }

    fn frame(&mut self, link: usize, opcode: u8, payload: &[u8]) {
        // Marsaglia's xorshift: RFC 6455 asks for a new mask per frame, and a system call per mask would cost too
        // much.
        self.mask ^= self.mask << 13;
        self.mask ^= self.mask >> 17;
        self.mask ^= self.mask << 5;
        let mask = self.mask.to_ne_bytes();
        websocket::write_frame(self.queue(link), websocket::LAST | opcode, payload, Some(mask));
    }

    fn queue(&mut self, link: usize) -> &mut Vec<u8> {
        if self.queues[link].is_empty() {
            self.dirty.push(link);
        }
        &mut self.queues[link]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionStage {
    Connecting,
    Upgrading,
    Open,
    Closed,
}

struct ClientConnection {
    socket: Option<TcpStream>,
    stage: ConnectionStage,
    /// The last write would have blocked; the poll reports when the socket is writable again.
    blocked: bool,
    /// Something was written since the last round of keep-alive pings.
    wrote: bool,
    /// Bytes of an incomplete frame.
    partial: Vec<u8>,
    /// Payload of an incomplete message in several frames.
    fragments: Vec<u8>,
}

pub struct EventLoop {
    targets: Vec<Target>,
    poll: Poll,
    events: Events,
    connections: Vec<ClientConnection>,
    pub outbox: Outbox,
    scratch: Vec<u8>,
    start: Instant,
    wakeup_timer: WakeupTimer,
    last_keep_alive: Nanos,
    next_keep_alive: usize,
}

impl EventLoop {
    pub fn new(targets: Vec<Target>) -> Result<Self> {
        let poll = Poll::new()?;
        let alarm = WakeupTimer::new(&poll)?;
        Ok(Self {
            targets,
            poll,
            events: Events::with_capacity(EVENTS_PER_POLL),
            connections: vec![],
            outbox: Outbox {
                mask: 0x9e37_79b9,
                ..Outbox::default()
            },
            scratch: vec![0; READ_BYTES],
            start: Instant::now(),
            wakeup_timer: alarm,
            last_keep_alive: 0,
            next_keep_alive: 0,
        })
    }

    pub fn now(&self) -> Nanos {
        nanos(self.start.elapsed())
    }

    /// Begins to connect. [`ConnectionEvents::opened`] reports the open WebSocket.
    pub fn connect(&mut self) -> Result<usize> {
        let id = self.connections.len();
        let address = self.target(id).address;
        let refused = |e: std::io::Error| LoadError::Connect {
            address: address.to_string(),
            reason: e.to_string(),
        };
        let mut socket = TcpStream::connect(address).map_err(refused)?;
        self.poll
            .registry()
            .register(&mut socket, Token(id), Interest::READABLE | Interest::WRITABLE)?;
        self.connections.push(ClientConnection {
            socket: Some(socket),
            stage: ConnectionStage::Connecting,
            blocked: true,
            wrote: true,
            partial: vec![],
            fragments: vec![],
        });
        self.outbox.queues.push(vec![]);
        Ok(id)
    }

    /// The replica of a connection. A hash spreads them, so that it does not follow from one end of a pair where the other is.
    fn target(&self, id: usize) -> &Target {
        let mixed = (id as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
        &self.targets[mixed as usize % self.targets.len()]
    }

    /// Sends a close frame; [`ConnectionEvents::closed`] follows when the server has answered it.
    pub fn close(&mut self, link: usize) {
        if self.connections[link].stage == ConnectionStage::Open {
            self.outbox.frame(link, websocket::CLOSE, &1000_u16.to_be_bytes());
        }
    }

    /// Drops the connection without a close frame, as a crash or a lost network does. No event follows.
    pub fn abort(&mut self, link: usize) {
        self.remove(link);
    }

    fn remove(&mut self, id: usize) {
        let link = &mut self.connections[id];
        link.stage = ConnectionStage::Closed;
        link.partial = vec![];
        link.fragments = vec![];
        if let Some(mut socket) = link.socket.take() {
            // If deregistering fails, the drop closes the socket anyway.
            drop(self.poll.registry().deregister(&mut socket));
        }
        self.outbox.queues[id] = vec![];
    }

    /// Writes the queued frames, waits until a socket is ready or `until` has come, and reports the events.
    pub fn poll_once(&mut self, until: Nanos, handler: &mut impl ConnectionEvents) -> Result<()> {
        self.keep_alive();
        self.flush();
        let wait = Duration::from_nanos(until.saturating_sub(self.now()));
        let wait = self.wakeup_timer.set(wait)?;
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        let told = events
            .iter()
            .filter(|event| event.token() != TIMER)
            .try_for_each(|event| {
                let id = event.token().0;
                if event.is_writable() {
                    self.writable(id, handler)?;
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    self.read(id, handler)
                } else {
                    Ok(())
                }
            });
        self.events = events;
        told?;
        self.flush();
        Ok(())
    }

    fn writable(&mut self, id: usize, handler: &mut impl ConnectionEvents) -> Result<()> {
        let link = &mut self.connections[id];
        let Some(socket) = &link.socket else { return Ok(()) };
        if link.stage == ConnectionStage::Connecting {
            let failed = socket.take_error()?.or_else(|| socket.peer_addr().err());
            match failed {
                // Woken too early: the connection is still being established.
                Some(e) if e.kind() == ErrorKind::NotConnected => return Ok(()),
                Some(e) => return self.drop_connection(id, &e.to_string(), handler),
                None => {}
            }
            socket.set_nodelay(true)?;
            link.stage = ConnectionStage::Upgrading;
            let upgrade = self.target(id).upgrade.clone();
            self.outbox.queue(id).extend_from_slice(upgrade.as_bytes());
        }
        self.connections[id].blocked = false;
        Ok(())
    }

    fn read(&mut self, id: usize, handler: &mut impl ConnectionEvents) -> Result<()> {
        loop {
            let Some(socket) = &mut self.connections[id].socket else {
                return Ok(());
            };
            match socket.read(&mut self.scratch) {
                Ok(0) => return self.drop_connection(id, "the server closed it", handler),
                Ok(len) => {
                    if let Some(reason) = self.handle_bytes(id, len, handler)? {
                        return self.drop_connection(id, &reason, handler);
                    }
                    // A short read has emptied the socket: a new readiness event announces the next bytes.
                    if len < self.scratch.len() {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return self.drop_connection(id, &e.to_string(), handler),
            }
        }
        handler.drained(id, &mut self.outbox)
    }

    /// Reports the frames in the `len` bytes just read. Returns the reason if the server has closed the connection.
    fn handle_bytes(&mut self, id: usize, len: usize, handler: &mut impl ConnectionEvents) -> Result<Option<String>> {
        let now = self.now();
        let Self {
            connections: links,
            outbox,
            scratch,
            ..
        } = self;
        let link = &mut links[id];
        let mut partial = std::mem::take(&mut link.partial);
        let mut tell = FrameDispatch {
            id,
            now,
            outbox,
            close_reason: None,
        };
        if partial.is_empty() {
            let used = tell.frames(link, &scratch[..len], handler)?;
            partial.extend_from_slice(&scratch[used..len]);
        } else {
            partial.extend_from_slice(&scratch[..len]);
            let used = tell.frames(link, &partial, handler)?;
            partial.drain(..used);
        }
        // Frees an empty buffer: thousands of idle connections would keep thousands of buffers.
        link.partial = if partial.is_empty() { vec![] } else { partial };
        Ok(tell.close_reason)
    }

    fn drop_connection(&mut self, id: usize, reason: &str, handler: &mut impl ConnectionEvents) -> Result<()> {
        self.remove(id);
        handler.closed(id, reason)
    }

    fn keep_alive(&mut self) {
        let period = nanos(KEEP_ALIVE_INTERVAL);
        let links = self.connections.len() as u64;
        let now = self.now();
        let due = links * (now - self.last_keep_alive) / period;
        if due == 0 {
            return;
        }
        self.last_keep_alive = if due > links {
            now
        } else {
            self.last_keep_alive + due * period / links
        };
        for _ in 0..due.min(links) {
            let id = self.next_keep_alive % self.connections.len();
            self.next_keep_alive = id + 1;
            let silent = !std::mem::take(&mut self.connections[id].wrote);
            if silent && self.connections[id].stage == ConnectionStage::Open {
                self.outbox.frame(id, websocket::PING, &[]);
            }
        }
    }

    pub fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.outbox.dirty);
        dirty.retain(|&id| self.write(id));
        self.outbox.dirty = dirty;
    }

    /// Writes as much as the socket takes. Returns whether bytes remain.
    fn write(&mut self, id: usize) -> bool {
        let link = &mut self.connections[id];
        let queue = &mut self.outbox.queues[id];
        let Some(socket) = &mut link.socket else {
            queue.clear();
            return false;
        };
        let mut done = 0;
        while done < queue.len() && !link.blocked {
            match socket.write(&queue[done..]) {
                Ok(len) => done += len,
                Err(e) if e.kind() == ErrorKind::WouldBlock => link.blocked = true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // The read side reports the broken connection, after everything that arrived before.
                Err(_) => done = queue.len(),
            }
        }
        link.wrote |= done > 0;
        queue.drain(..done);
        !queue.is_empty()
    }
}

impl Drop for EventLoop {
    /// Sends close frames as far as the sockets take them without blocking.
    fn drop(&mut self) {
        (0..self.connections.len()).for_each(|link| self.close(link));
        self.flush();
    }
}

pub fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Reports the frames of one connection, with borrowed parts of the event loop.
struct FrameDispatch<'a> {
    id: usize,
    now: Nanos,
    outbox: &'a mut Outbox,
    close_reason: Option<String>,
}

impl FrameDispatch<'_> {
    /// Returns the number of bytes that made complete frames.
    fn frames(
        &mut self,
        link: &mut ClientConnection,
        bytes: &[u8],
        handler: &mut impl ConnectionEvents,
    ) -> Result<usize> {
        let mut used = 0;
        if link.stage == ConnectionStage::Upgrading {
            let Some(len) = websocket::read_upgrade(bytes)? else {
                return Ok(0);
            };
            used = len;
            link.stage = ConnectionStage::Open;
            handler.opened(self.id, self.now, self.outbox)?;
        }
        while self.close_reason.is_none() {
            let Some(frame) = websocket::read_frame(&bytes[used..])? else {
                break;
            };
            used += frame.taken;
            self.frame(link, &frame, handler)?;
        }
        Ok(used)
    }

    fn frame(
        &mut self,
        link: &mut ClientConnection,
        frame: &websocket::Frame<'_>,
        handler: &mut impl ConnectionEvents,
    ) -> Result<()> {
        match frame.opcode {
            websocket::TEXT if frame.last => handler.text(self.id, frame.payload, self.now, self.outbox)?,
            websocket::TEXT | websocket::CONTINUATION => {
                link.fragments.extend_from_slice(frame.payload);
                if frame.last {
                    let whole = std::mem::take(&mut link.fragments);
                    handler.text(self.id, &whole, self.now, self.outbox)?;
                }
            }
            websocket::PING => self.outbox.frame(self.id, websocket::PONG, frame.payload),
            websocket::PONG => {}
            websocket::CLOSE => self.close_reason = Some(close_reason(frame.payload)),
            other => return Err(Violation::Framing(format!("a frame with opcode {other}")).into()),
        }
        Ok(())
    }
}

fn close_reason(payload: &[u8]) -> String {
    match payload.split_first_chunk::<2>() {
        Some((code, reason)) => format!(
            "closed with {} {}",
            u16::from_be_bytes(*code),
            String::from_utf8_lossy(reason)
        )
        .trim_end()
        .into(),
        None => "closed without a code".into(),
    }
}

/// Wakes the loop with a resolution below one millisecond, the resolution of a poll: an open loop has to send on time.
#[cfg(target_os = "linux")]
struct WakeupTimer {
    timer: rustix::fd::OwnedFd,
    armed: bool,
}

#[cfg(target_os = "linux")]
impl WakeupTimer {
    fn new(poll: &Poll) -> Result<Self> {
        use rustix::{
            fd::AsRawFd,
            time::{TimerfdClockId, TimerfdFlags, timerfd_create},
        };
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )
        .map_err(std::io::Error::from)?;
        let raw = timer.as_raw_fd();
        poll.registry()
            .register(&mut mio::unix::SourceFd(&raw), TIMER, Interest::READABLE)?;
        Ok(Self { timer, armed: false })
    }

    /// Returns how long the poll itself may take.
    fn set(&mut self, wait: Duration) -> Result<Duration> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        const COARSE: Duration = Duration::from_millis(20);
        let fine = !wait.is_zero() && wait < COARSE;
        if fine || self.armed {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let value = Timespec {
                tv_sec: 0,
                tv_nsec: if fine { i64::from(wait.subsec_nanos()) } else { 0 },
            };
            let spec = Itimerspec {
                it_interval: zero,
                it_value: value,
            };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec).map_err(std::io::Error::from)?;
            self.armed = fine;
        }
        Ok(if fine { COARSE } else { wait })
    }
}

#[cfg(not(target_os = "linux"))]
struct Alarm;

#[cfg(not(target_os = "linux"))]
impl WakeupTimer {
    fn new(_poll: &Poll) -> Result<Self> {
        Ok(Self)
    }

    fn set(&mut self, wait: Duration) -> Result<Duration> {
        Ok(wait)
    }
}
