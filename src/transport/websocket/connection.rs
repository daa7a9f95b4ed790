//! The task of one connection: reads frames, gives the turn to MCP, writes what the outbox holds in one go.

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
    mcp::{FrameOutcome, Outbox, Peer, WriteMarks, outbox::ROOM_CHECK_INTERVAL},
    transport::{
        AddressPermit, ConnectionPermit, Timeouts,
        inbound::{INBOUND_IDLE_TIMEOUT, INBOUND_TOTAL_TIMEOUT, UNRESERVED_LEN_MAX},
    },
};

/// Bytes that one read takes at most, and about as many one turn, before the others have theirs. The buffer is shared by
/// all connections of a thread.
const READ_LEN: usize = 128 * 1024;
/// An empty write buffer of more than this is given back.
const WRITE_BUFFER_KEPT_MAX: usize = 128 * 1024;
/// Frames in a row that are not JSON after which a peer is sent away.
const MALFORMED_IN_A_ROW_MAX: usize = 10;
/// How long a connection that is being closed is given to take the last bytes and close its side.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_LEN]);
}

#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the connection"
)]
pub struct WebSocketConnection {
    io: TcpStream,
    peer: Peer,
    outbox: Arc<Outbox>,
    decoder: Decoder,
    /// The room of what has begun to come in, and of frames that are held back.
    reservation: Reservation,
    /// The next tick looks for room for what is to be pushed.
    checks_push_capacity: bool,
    /// When it took its room.
    reserved_since_ms: u64,
    timeouts: Timeouts,
    /// What is being written, and how much of it has been.
    write_buffer: Vec<u8>,
    write_offset: usize,
    /// Bytes ever written; marks are in the same count.
    written_total: u64,
    marks: WriteMarks,
    phase: Phase,
    /// Nothing is read: enough is under way, or a message waits for its room.
    is_paused: bool,
    /// It is paused for want of room. The budget wakes it.
    awaits_reservation: bool,
    /// The broker stops: what is under way is answered, and nothing else is read.
    is_draining: bool,
    tick: Pin<Box<Sleep>>,
    /// The timer knows whom to wake.
    is_tick_armed: bool,
    last_read_ms: u64,
    last_write_ms: u64,
    /// Given up with the connection.
    _permits: (ConnectionPermit, Option<AddressPermit>),
}

/// How far a connection is from its end.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The close frame waits to be written.
    Closing,
    /// Nothing more is written; the peer's side is awaited.
    Lingering,
}

impl WebSocketConnection {
    pub fn new(
        io: TcpStream,
        peer: Peer,
        outbox: Arc<Outbox>,
        (decoder, inbound): (Decoder, Reservation),
        tempo: Timeouts,
        places: (ConnectionPermit, Option<AddressPermit>),
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
            timeouts: tempo,
            write_buffer: Vec::new(),
            write_offset: 0,
            written_total: 0,
            marks: WriteMarks::default(),
            phase: Phase::Open,
            is_paused: false,
            awaits_reservation: false,
            is_draining: false,
            tick: Box::pin(tokio::time::sleep(tempo.ping_interval)),
            is_tick_armed: false,
            last_read_ms: now.mono_ms,
            last_write_ms: now.mono_ms,
            _permits: places,
        }
    }

    /// Runs the connection to its end. `first` are bytes that came with the handshake.
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
        // Before anybody is called silent, what waits in the socket is read.
        if let Err(error) = self.read(cx, now) {
            return self.on_io_error(&error);
        }
        // A timer that is armed wakes this task by itself; asking it at every turn would be for nothing.
        while (!self.is_tick_armed || self.tick.is_elapsed()) && self.tick.as_mut().poll(cx).is_ready() {
            if self.phase != Phase::Open {
                // The time to close decently is over.
                return Poll::Ready(());
            }
            self.set_tick(self.tick_interval());
            self.on_tick(now);
        }
        self.is_tick_armed = true;
        loop {
            self.peer.poll(cx, now);
            if self.reservation.bytes() > 0 {
                // Frames that were held back may have been taken up.
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

    /// The connection is over. A peer that closed its side first may have read everything before.
    fn on_io_error(&self, error: &io::Error) -> Poll<()> {
        if error.kind() != io::ErrorKind::UnexpectedEof {
            self.peer.mark_reset();
        }
        Poll::Ready(())
    }

    /// Reads what is there, as long as there is use for it. An error is the end of the connection.
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
            // There may be more; the others first.
            cx.waker().wake_by_ref();
            Ok(())
        })
    }

    /// Whether there is room for the message that has begun to come in. When not, the task is woken when there is.
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

    /// Counts what is kept of what came in: messages that are not whole, and frames that wait to be taken up.
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

    /// Who has taken room is looked after more often.
    fn tick_interval(&self) -> Duration {
        if self.reservation.bytes() > 0 {
            self.timeouts.ping_interval.min(INBOUND_IDLE_TIMEOUT / 4)
        } else {
            self.timeouts.ping_interval
        }
    }

    /// Whether others wait for the room of a message that does not come to its end.
    fn is_receive_overdue(&self, now: Now, silence: Duration) -> bool {
        self.decoder.buffered_len() > 0
            && self.reservation.bytes() > 0
            && self.reservation.budget().has_waiters()
            && !self.is_paused
            && (silence >= INBOUND_IDLE_TIMEOUT
                || silence::peer_silence(self.reserved_since_ms, now) >= INBOUND_TOTAL_TIMEOUT)
    }

    /// Decodes one read and gives its frames to MCP, as one turn.
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

    /// Writes what waits until the socket takes no more. An error is the end of the connection.
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

    /// Whoever is good no more is not waited for: what they do not take would keep them here, and heard.
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

    /// Queues a close frame, once. What is in the outbox before it is still written.
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

    /// Looks after the peer: pings it when it is idle, lets it go when it is gone or takes nothing.
    fn on_tick(&mut self, now: Now) {
        if self.outbox.waiting_len() == 0 {
            self.last_write_ms = now.mono_ms;
        } else if silence::peer_silence(self.last_write_ms, now) >= self.timeouts.stall_timeout {
            return self.close(SLOW_CONSUMER, "slow consumer: read faster, or ask for a smaller window");
        }
        let silence = silence::peer_silence(self.last_read_ms, now);
        // Whoever is not read may have said something.
        if silence >= self.timeouts.silence_timeout && !self.is_paused {
            return self.close(SILENT, "no sign of life");
        }
        if self.is_receive_overdue(now, silence) {
            return self.close(
                u16::from(CloseCode::Again),
                "others wait for the room of this message: send it again later",
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

/// Close codes of our own (RFC 6455, section 7.4.2).
pub const TAKEN_OVER: u16 = 4001;
pub const SILENT: u16 = 4002;
pub const SLOW_CONSUMER: u16 = 4003;
pub const RELEASED: u16 = 4004;
pub const UNAUTHORIZED: u16 = 4005;
pub const STORE_ROLLED_BACK: u16 = 4006;

fn close_frame(why: CloseReason) -> (u16, String) {
    match why {
        CloseReason::TakenOver => (TAKEN_OVER, "a newer connection has taken this session over".to_owned()),
        CloseReason::Silent => (SILENT, "no sign of life".to_owned()),
        CloseReason::SessionEnded => (RELEASED, "the session is over".to_owned()),
        CloseReason::Unauthorized => (UNAUTHORIZED, "the key is good no more".to_owned()),
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
