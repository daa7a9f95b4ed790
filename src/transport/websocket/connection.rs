//! The task of one WebSocket: reads frames, passes each read to MCP as one batch, and writes the outbox in as few calls
//! as possible.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actix_rt::net::TcpStream;
use actix_web_actors::ws::CloseCode;
use actors::{
    clock::{Now, millis, now},
    session::{CloseReason, ReadAt},
    silence,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

use super::frame::{self, Decoder, FrameEvent, Violation};
use crate::{
    budget::Reservation,
    edge::AddressPermit,
    mcp::{FrameOutcome, Outbox, Peer, WriteMarks, outbox::ROOM_CHECK_INTERVAL},
    transport::{
        ConnectionPermit, Timeouts,
        inbound::{INBOUND_IDLE_TIMEOUT, INBOUND_TOTAL_TIMEOUT, UNRESERVED_LEN_MAX},
    },
};

/// Most bytes of one read, and of one poll before other connections run. All connections of a thread share the buffer.
const READ_LEN: usize = 128 * 1024;
/// Capacity of an empty write buffer that is kept; a larger one is freed.
const WRITE_BUFFER_KEPT_MAX: usize = 128 * 1024;
/// Consecutive frames that are not JSON after which the connection is closed.
const MALFORMED_IN_A_ROW_MAX: usize = 10;
/// Time that a closing connection has to flush and to receive the peer's close.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_LEN]);
}

/// One WebSocket with its peer, its buffers and its timers.
#[allow(
    clippy::struct_excessive_bools,
    reason = "the flags are independent facts about the connection"
)]
pub struct WebSocketConnection {
    io: TcpStream,
    peer: Peer,
    outbox: Arc<Outbox>,
    decoder: Decoder,
    /// The reservation for partial messages and deferred frames.
    reservation: Reservation,
    /// The next tick checks the outbound budget for waiting pushes.
    checks_push_capacity: bool,
    /// When the reservation was made.
    reserved_since_ms: u64,
    timeouts: Timeouts,
    /// The bytes being written, up to `write_offset` done.
    write_buffer: Vec<u8>,
    write_offset: usize,
    /// Bytes written since the start; marks use the same count.
    written_total: u64,
    marks: WriteMarks,
    phase: Phase,
    /// Reading is paused: enough calls are in progress, or a message waits for its reservation.
    is_paused: bool,
    /// Paused for a reservation. The budget wakes the task.
    awaits_reservation: bool,
    /// The broker stops: calls in progress are answered, and nothing else is read.
    is_draining: bool,
    tick: Pin<Box<Sleep>>,
    /// The timer has this task's waker.
    is_tick_armed: bool,
    last_read_ms: u64,
    last_write_ms: u64,
    /// Released with the connection.
    _permits: (ConnectionPermit, Option<AddressPermit>),
}

/// How far the connection is closed.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The close frame waits to be written.
    Closing,
    /// All output is written; the peer's close is awaited.
    Lingering,
}

impl WebSocketConnection {
    /// A connection over `io` after its handshake; both permits are held until it ends.
    pub fn new(
        io: TcpStream,
        peer: Peer,
        outbox: Arc<Outbox>,
        (decoder, inbound): (Decoder, Reservation),
        timeouts: Timeouts,
        permits: (ConnectionPermit, Option<AddressPermit>),
    ) -> Self {
        let now = now();
        Self {
            io,
            peer,
            outbox,
            decoder,
            reservation: inbound,
            checks_push_capacity: false,
            reserved_since_ms: now.mono_ms,
            timeouts,
            write_buffer: Vec::new(),
            write_offset: 0,
            written_total: 0,
            marks: WriteMarks::default(),
            phase: Phase::Open,
            is_paused: false,
            awaits_reservation: false,
            is_draining: false,
            tick: Box::pin(tokio::time::sleep(timeouts.ping_interval)),
            is_tick_armed: false,
            last_read_ms: now.mono_ms,
            last_write_ms: now.mono_ms,
            _permits: permits,
        }
    }

    /// Runs the connection to its end. `first` are the bytes that arrived with the handshake.
    pub async fn run(mut self, mut first: Vec<u8>) {
        if !first.is_empty() {
            self.handle_read(&mut first, now());
        }
        drop(first);
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.outbox.set_awake();
        let now = now();
        // Reads first, so that waiting bytes count before the peer is judged silent.
        if let Err(error) = self.read(cx, now) {
            return self.on_io_error(&error);
        }
        // An armed timer wakes this task by itself; polling it each time would cost too much.
        while (!self.is_tick_armed || self.tick.is_elapsed()) && self.tick.as_mut().poll(cx).is_ready() {
            if self.phase != Phase::Open {
                // The linger timeout has passed.
                return Poll::Ready(());
            }
            self.set_tick(self.tick_interval());
            self.on_tick(now);
        }
        self.is_tick_armed = true;
        loop {
            self.peer.poll(cx, now);
            if self.reservation.bytes() > 0 {
                // Deferred frames may have been handled.
                self.update_reservation();
            }
            if let Err(error) = self.write(cx, now) {
                return self.on_io_error(&error);
            }
            if self.outbox.register_waker(cx.waker()) {
                break;
            }
        }
        if !self.checks_push_capacity && self.outbox.is_push_blocked() {
            self.checks_push_capacity = true;
            self.set_tick(self.timeouts.ping_interval.min(ROOM_CHECK_INTERVAL));
        }
        let resumes = self.is_paused && !self.awaits_reservation && !self.is_draining && self.peer.wants_frames();
        let more_to_do = self.peer.can_resume_deferred() || resumes;
        if more_to_do || !self.is_tick_armed {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Ends the connection after an I/O error. After a regular close the peer may have read all answers.
    fn on_io_error(&self, error: &io::Error) -> Poll<()> {
        if error.kind() != io::ErrorKind::UnexpectedEof {
            self.peer.mark_reset();
        }
        Poll::Ready(())
    }

    /// Reads while frames are wanted. An error ends the connection.
    fn read(&mut self, cx: &mut Context<'_>, now: Now) -> io::Result<()> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let mut left = READ_LEN;
            while left > 0 {
                self.is_paused = self.phase == Phase::Open && (self.is_draining || !self.peer.wants_frames());
                self.awaits_reservation = !self.is_paused && self.phase == Phase::Open && !self.try_reserve(cx, now);
                self.is_paused |= self.awaits_reservation;
                if self.is_paused {
                    return Ok(());
                }
                let len_max = if self.reservation.bytes() == 0 && self.reservation.budget().has_waiters() {
                    UNRESERVED_LEN_MAX
                } else {
                    READ_LEN
                };
                let mut read = ReadBuf::new(&mut buffer[..len_max]);
                match Pin::new(&mut self.io).poll_read(cx, &mut read) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(result) => result?,
                }
                let len = read.filled().len();
                if len == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.handle_read(&mut buffer[..len], now);
                left = left.saturating_sub(len);
            }
            // More bytes may wait; other connections run first.
            cx.waker().wake_by_ref();
            Ok(())
        })
    }

    /// Reserves bytes for the message being received. If false, the task is woken when they are free.
    fn try_reserve(&mut self, cx: &Context<'_>, now: Now) -> bool {
        let needed = self.decoder.needed_len();
        if needed <= UNRESERVED_LEN_MAX.max(self.reservation.bytes()) {
            return true;
        }
        if self.reservation.poll_grow_to(needed, cx).is_pending() {
            return false;
        }
        self.decoder.reserve_frame();
        self.reserved_since_ms = now.mono_ms;
        self.set_tick(self.tick_interval());
        true
    }

    /// Adjusts the reservation to partial messages and deferred frames.
    fn update_reservation(&mut self) {
        let kept = self.decoder.buffered_len() + self.peer.deferred_len();
        let needed = kept.max(self.decoder.needed_len());
        if needed <= UNRESERVED_LEN_MAX {
            self.reservation.set_bytes(0);
        } else if needed < self.reservation.bytes() || kept > self.reservation.bytes() {
            self.reservation.set_bytes(if needed < self.reservation.bytes() {
                needed
            } else {
                kept
            });
        }
    }

    /// A connection with a reservation is checked more often.
    fn tick_interval(&self) -> Duration {
        if self.reservation.bytes() > 0 {
            self.timeouts.ping_interval.min(INBOUND_IDLE_TIMEOUT / 4)
        } else {
            self.timeouts.ping_interval
        }
    }

    /// Whether a partial message holds its reservation for too long while others wait.
    fn is_receive_overdue(&self, now: Now, silence: Duration) -> bool {
        self.decoder.buffered_len() > 0
            && self.reservation.bytes() > 0
            && self.reservation.budget().has_waiters()
            && !self.is_paused
            && (silence >= INBOUND_IDLE_TIMEOUT
                || silence::peer_silence(self.reserved_since_ms, now) >= INBOUND_TOTAL_TIMEOUT)
    }

    /// Decodes one read and passes its frames to MCP as one batch.
    fn handle_read(&mut self, bytes: &mut [u8], now: Now) {
        self.last_read_ms = now.mono_ms;
        if self.phase != Phase::Open {
            return;
        }
        let (peer, outbox) = (&mut self.peer, &self.outbox);
        peer.begin_read(ReadAt::now(), now);
        let mut refusal = None;
        let mut closed = None;
        let decoded = self.decoder.decode(bytes, |event| match event {
            _ if refusal.is_some() || closed.is_some() => {}
            FrameEvent::Text(text) => {
                if let FrameOutcome::Malformed { in_a_row } = peer.handle_frame(text)
                    && in_a_row >= MALFORMED_IN_A_ROW_MAX
                {
                    refusal = Some((
                        u16::from(CloseCode::Policy),
                        "too many frames in a row that are not JSON",
                    ));
                }
            }
            FrameEvent::Ping(payload) => outbox.send_raw(&frame::pong(payload)),
            FrameEvent::Pong => peer.touch(now),
            FrameEvent::Close(code) => closed = Some(code),
        });
        self.peer.finish_read(now);
        self.update_reservation();
        match (decoded, refusal, closed) {
            (Err(violation), ..) => self.close(violation as u16, violation_text(violation)),
            (_, Some((code, reason)), _) => self.close(code, reason),
            (_, _, Some(code)) => self.close(code.unwrap_or(u16::from(CloseCode::Normal)), ""),
            _ => {}
        }
    }

    /// Writes until the outbox is empty or the socket is full. An error ends the connection.
    fn write(&mut self, cx: &mut Context<'_>, now: Now) -> io::Result<()> {
        loop {
            if self.write_offset == self.write_buffer.len() {
                self.fill_write_buffer();
                if self.write_buffer.is_empty() {
                    self.on_flushed(cx);
                    return Ok(());
                }
            }
            match Pin::new(&mut self.io).poll_write(cx, &self.write_buffer[self.write_offset..]) {
                Poll::Pending => {
                    self.close_if_unauthorized();
                    return Ok(());
                }
                Poll::Ready(len) => self.on_written(len?, now),
            }
            if self.outbox.waiting_len() == 0 && self.phase == Phase::Open {
                return Ok(());
            }
        }
    }

    /// Closes at once when the credential is invalid: waiting for the peer to read would keep it served.
    fn close_if_unauthorized(&mut self) {
        if self.phase == Phase::Open && self.outbox.closing() == Some(CloseReason::Unauthorized) {
            let (code, reason) = close_frame(CloseReason::Unauthorized);
            self.close(code, &reason);
        }
    }

    fn fill_write_buffer(&mut self) {
        self.write_buffer.clear();
        self.write_offset = 0;
        if self.write_buffer.capacity() > WRITE_BUFFER_KEPT_MAX {
            self.write_buffer = Vec::new();
        }
        let closing = self.outbox.take(&mut self.write_buffer, &mut self.marks);
        if let Some(why) = closing
            && self.phase == Phase::Open
        {
            self.is_draining = why == CloseReason::ShuttingDown;
            if self.is_draining && !self.peer.is_drained(None) {
                return;
            }
            let (code, reason) = close_frame(why);
            self.peer.end_subscriptions();
            self.close(code, &reason);
            if self.write_buffer.is_empty() {
                self.outbox.take(&mut self.write_buffer, &mut self.marks);
            }
        }
    }

    fn on_written(&mut self, len: usize, now: Now) {
        self.write_offset += len;
        self.written_total += len as u64;
        self.last_write_ms = now.mono_ms;
        if self.outbox.note_written(len) {
            self.peer.writable();
        }
        let messages = &mut self.marks.messages;
        let done = messages
            .iter()
            .take_while(|(end, _)| *end <= self.written_total)
            .count();
        if done > 0 {
            let written = messages.drain(..done).map(|(_, id)| id).collect();
            self.peer.messages_written(written);
        }
        self.marks.mark_receives_written(self.written_total);
    }

    fn on_flushed(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Closing {
            self.phase = Phase::Lingering;
            let _ = Pin::new(&mut self.io).poll_shutdown(cx);
        }
    }

    /// Queues a close frame, once. Earlier output is still written.
    fn close(&mut self, code: u16, reason: &str) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
            self.outbox.send_last(&frame::close(code, reason));
            self.set_tick(LINGER_TIMEOUT);
        }
    }

    fn set_tick(&mut self, delay: Duration) {
        self.tick.as_mut().reset(Instant::now() + delay);
        self.is_tick_armed = false;
    }

    /// Checks the peer: pings an idle one, closes a silent or stalled one.
    fn on_tick(&mut self, now: Now) {
        if self.outbox.waiting_len() == 0 {
            self.last_write_ms = now.mono_ms;
        } else if silence::peer_silence(self.last_write_ms, now) >= self.timeouts.stall_timeout {
            return self.close(SLOW_CONSUMER, "slow consumer: read faster, or ask for a smaller window");
        }
        let silence = silence::peer_silence(self.last_read_ms, now);
        // While reading is paused, the peer's bytes are not seen.
        if silence >= self.timeouts.silence_timeout && !self.is_paused {
            return self.close(SILENT, "no sign of life");
        }
        if self.is_receive_overdue(now, silence) {
            return self.close(
                u16::from(CloseCode::Again),
                "too many messages are being received: send this one again later",
            );
        }
        self.checks_push_capacity = false;
        if self.outbox.take_unblocked() {
            self.peer.writable();
        }
        if millis(silence) >= millis(self.timeouts.ping_interval) / 2 {
            self.outbox.send_raw(&frame::ping());
        }
        self.peer.shrink_buffers();
        self.decoder.shrink();
        if self.write_offset == self.write_buffer.len() {
            self.write_buffer = Vec::new();
            self.write_offset = 0;
        }
        self.marks.messages.shrink_to_fit();
        self.marks.receives.shrink_to_fit();
    }
}

/// Close codes of the broker (RFC 6455, section 7.4.2).
pub const TAKEN_OVER: u16 = 4001;
/// The peer sent nothing for the silence timeout.
pub const SILENT: u16 = 4002;
/// The peer took no bytes for the stall timeout.
pub const SLOW_CONSUMER: u16 = 4003;
/// The session has ended.
pub const RELEASED: u16 = 4004;
/// The credential was revoked or has expired.
pub const UNAUTHORIZED: u16 = 4005;
/// The storage lost recent data.
pub const STORE_ROLLED_BACK: u16 = 4006;
/// An administrator has disconnected the session.
pub const DISCONNECTED: u16 = 4007;

fn close_frame(why: CloseReason) -> (u16, String) {
    match why {
        CloseReason::TakenOver => (TAKEN_OVER, "a newer connection has taken over this session".to_owned()),
        CloseReason::Silent => (SILENT, "no sign of life".to_owned()),
        CloseReason::Disconnected => (
            DISCONNECTED,
            "an administrator has disconnected this session".to_owned(),
        ),
        CloseReason::SessionEnded => (RELEASED, "the session has ended".to_owned()),
        CloseReason::Unauthorized => (UNAUTHORIZED, "the credential was revoked or has expired".to_owned()),
        CloseReason::StoreRolledBack => (
            STORE_ROLLED_BACK,
            "the storage came back with older data: connect and register again".to_owned(),
        ),
        CloseReason::Failed => (
            u16::from(CloseCode::Error),
            "the session failed: connect again".to_owned(),
        ),
        CloseReason::ShuttingDown => {
            let retry_ms = 200 + uuid::Uuid::new_v4().as_u128() % 1800;
            (
                u16::from(CloseCode::Restart),
                format!("shutting down: retry in {retry_ms} ms"),
            )
        }
    }
}

fn violation_text(violation: Violation) -> &'static str {
    match violation {
        Violation::Protocol => "not a frame of RFC 6455",
        Violation::Binary => "one JSON-RPC message per text frame",
        Violation::Utf8 => "a text frame must be UTF-8",
        Violation::TooLarge => "the message is too large",
    }
}
