//! The task of one lasting connection: reads frames, passes each read to MCP as one batch, and writes the outbox in as
//! few calls as possible. The kind of the connection is a [`Wire`].

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    io,
    ops::RangeInclusive,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actix_web_actors::ws::CloseCode;
use actors::{
    clock::{Now, millis, now},
    faults,
    session::{CloseReason, ReadAt},
    silence,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

use super::{
    ConnectionPermit, Timeouts,
    closing::{Closing, SLOW_CONSUMER},
    inbound::{INBOUND_IDLE_TIMEOUT, INBOUND_TOTAL_TIMEOUT, UNRESERVED_LEN_MAX},
    wire::{Decode, Served, Wire, WireEvent},
};
use api::{
    budget::Reservation,
    mcp::{FrameOutcome, Outbox, Peer, WriteMarks, outbox::ROOM_CHECK_INTERVAL},
};

/// Most bytes of one read, and of one poll before other connections run. All connections of a thread share the buffer.
const READ_LEN: usize = 128 * 1024;
/// Capacities of an empty write buffer that is kept. A larger one is freed, and a smaller one as well: a connection that writes
/// little would hold two of them, and to allocate one again costs almost nothing.
const WRITE_BUFFER_KEPT: RangeInclusive<usize> = 4 * 1024..=128 * 1024;
/// Consecutive frames that are not JSON after which the connection is closed.
const MALFORMED_IN_A_ROW_MAX: usize = 10;
/// Time that a closing connection has to flush and to receive the peer's close.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// The same time, where all output has to be written first.
const LONG_LINGER_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Interval of looking whether a peer that ended its output still reads.
const GONE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_LEN]);
}

/// One lasting connection with its peer, its buffers and its timers. `G` is what it holds until it ends.
#[allow(
    clippy::struct_excessive_bools,
    reason = "the flags are independent facts about the connection"
)]
pub struct LastingConnection<W: Wire, G> {
    io: W::Stream,
    wire: W,
    peer: Peer,
    outbox: Arc<Outbox>,
    decoder: W::Decoder,
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
    /// The broker stops, or another client follows: calls in progress are answered, and nothing else is read.
    is_draining: bool,
    /// The peer sends nothing more, and may still read.
    is_input_ended: bool,
    /// The peer has sent a byte.
    has_spoken: bool,
    tick: Pin<Box<Sleep>>,
    /// The timer has this task's waker.
    is_tick_armed: bool,
    /// No timer is armed until the next event, so that an idle process does not wake up.
    is_resting: bool,
    last_read_ms: u64,
    last_write_ms: u64,
    /// Released with the connection.
    _permits: (ConnectionPermit, G),
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

impl<W: Wire, G> LastingConnection<W, G> {
    /// A connection over `io`; the permits are held until it ends. It is boxed, because a task has room for each place that
    /// an unboxed one would move through.
    pub fn new(
        (io, wire): (W::Stream, W),
        peer: Peer,
        outbox: Arc<Outbox>,
        (decoder, inbound): (W::Decoder, Reservation),
        timeouts: Timeouts,
        permits: (ConnectionPermit, G),
    ) -> Box<Self> {
        let now = now();
        Box::new(Self {
            io,
            wire,
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
            is_input_ended: false,
            has_spoken: false,
            tick: Box::pin(tokio::time::sleep(timeouts.ping_interval.min(timeouts.silence_timeout))),
            is_tick_armed: false,
            is_resting: false,
            last_read_ms: now.mono_ms,
            last_write_ms: now.mono_ms,
            _permits: permits,
        })
    }

    /// Runs the connection to its end. `first` are bytes that have been read already. Returns what a connection of the next
    /// client on the same stream begins with.
    pub async fn run(mut self: Box<Self>, mut first: Vec<u8>) -> (W::Stream, W, W::Decoder) {
        if !first.is_empty() {
            self.handle_read(&mut first, now());
        }
        drop(first);
        poll_fn(|cx| self.poll(cx)).await;
        let Self { io, wire, decoder, .. } = *self;
        (io, wire, decoder)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.outbox.set_awake();
        let now = now();
        // Reads first, so that waiting bytes count before the peer is judged silent.
        if let Err(error) = self.read(cx, now) {
            return self.on_io_error(&error);
        }
        // An armed timer wakes this task by itself; polling it each time would cost too much.
        while !self.is_resting
            && (!self.is_tick_armed || self.tick.is_elapsed())
            && self.tick.as_mut().poll(cx).is_ready()
        {
            if self.phase != Phase::Open || (self.is_input_ended && W::is_gone(&self.io)) {
                // The linger timeout has passed, or the answers have no reader.
                return Poll::Ready(());
            }
            self.set_tick(self.tick_interval());
            self.on_tick(now);
            self.is_resting = self.may_rest();
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
        if !self.may_rest() {
            self.end_rest(now);
        }
        self.wire.observe(&self.peer);
        if self.is_finished() {
            return Poll::Ready(());
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

    /// Whether everything is written after the end of the input, or after the end of a connection that no peer confirms.
    fn is_finished(&self) -> bool {
        match self.phase {
            Phase::Open if self.is_input_ended => {
                let is_done = if self.is_draining {
                    self.peer.is_drained(None)
                } else {
                    self.peer.is_idle()
                };
                is_done && self.outbox.waiting_len() == 0
            }
            Phase::Open | Phase::Closing => false,
            Phase::Lingering => !W::HAS_CONTROL_FRAMES,
        }
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
                if self.is_input_ended {
                    return Ok(());
                }
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
                    if faults::hides_closed() {
                        return Ok(());
                    }
                    return self.end_input(now);
                }
                self.handle_read(&mut buffer[..len], now);
                left = left.saturating_sub(len);
            }
            // More bytes may wait; other connections run first.
            cx.waker().wake_by_ref();
            Ok(())
        })
    }

    /// The peer sends nothing more. An error if it reads no answers either.
    fn end_input(&mut self, now: Now) -> io::Result<()> {
        if W::HAS_CONTROL_FRAMES || W::is_gone(&self.io) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // The last line needs no line break.
        self.handle_read(&mut [b'\n'], now);
        self.is_input_ended = true;
        if self.phase == Phase::Open {
            self.set_tick(GONE_CHECK_INTERVAL);
        }
        Ok(())
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
        self.decoder.reserve();
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

    /// A connection with a reservation, and one whose peer may have gone, are checked more often.
    fn tick_interval(&self) -> Duration {
        if self.reservation.bytes() > 0 {
            self.timeouts.ping_interval.min(INBOUND_IDLE_TIMEOUT / 4)
        } else if self.is_input_ended {
            GONE_CHECK_INTERVAL
        } else {
            self.timeouts.ping_interval.min(self.timeouts.silence_timeout)
        }
    }

    /// Whether no timer is needed: the kernel reports the end of the peer, and nothing waits for it.
    fn may_rest(&self) -> bool {
        let may_be_silent = self.has_spoken || self.timeouts.silence_timeout == Duration::MAX;
        !W::HAS_CONTROL_FRAMES
            && may_be_silent
            && self.phase == Phase::Open
            && !self.is_input_ended
            && self.reservation.bytes() == 0
            && self.outbox.waiting_len() == 0
            && !self.outbox.is_push_blocked()
    }

    /// Checks from now on whether the peer takes what is written.
    fn end_rest(&mut self, now: Now) {
        if std::mem::take(&mut self.is_resting) {
            self.last_write_ms = now.mono_ms;
            self.set_tick(self.tick_interval());
        }
    }

    /// Whether a partial message holds its reservation for too long while others wait.
    fn is_receive_overdue(&self, now: Now, silence: Duration) -> bool {
        self.decoder.buffered_len() > 0
            && self.reservation.bytes() > 0
            && self.reservation.budget().has_waiters()
            && !self.is_paused
            // They hold it too.
            && self.peer.deferred_len() == 0
            && (silence >= INBOUND_IDLE_TIMEOUT
                || silence::peer_silence(self.reserved_since_ms, now) >= INBOUND_TOTAL_TIMEOUT)
    }

    /// Decodes one read and passes its frames to MCP as one batch.
    fn handle_read(&mut self, bytes: &mut [u8], now: Now) {
        self.last_read_ms = now.mono_ms;
        self.has_spoken = true;
        self.end_rest(now);
        if self.phase != Phase::Open {
            return;
        }
        let (wire, peer, outbox) = (&mut self.wire, &mut self.peer, &self.outbox);
        peer.begin_read(ReadAt::now(), now);
        let mut closing = None;
        let mut is_next_client = false;
        let decoded = self.decoder.decode(bytes, |event| {
            if closing.is_some() {
                return;
            }
            let served = match event {
                WireEvent::Text(text) => wire.serve(peer, text),
                WireEvent::Refused { id, error } => Served::Frame(peer.refuse_frame(id.as_deref(), &error)),
                WireEvent::Ping(payload) => return outbox.send_raw(&W::pong(payload)),
                WireEvent::Pong => return peer.touch(now),
                WireEvent::Close(code) => {
                    closing = Some(Closing::confirmation(code));
                    return;
                }
            };
            match served {
                Served::Frame(FrameOutcome::Malformed { in_a_row }) if in_a_row >= MALFORMED_IN_A_ROW_MAX => {
                    let reason = "too many frames in a row that are not JSON";
                    closing = Some(Closing::standard(CloseCode::Policy, reason));
                }
                Served::Frame(_) => {}
                Served::NextClient => is_next_client = true,
            }
        });
        self.peer.finish_read(now);
        self.update_reservation();
        if is_next_client {
            (self.is_input_ended, self.is_draining) = (true, true);
        }
        if let Some(closing) = decoded.err().or(closing) {
            self.close(&closing);
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
            // The kernel takes the answer all the same: its messages do not count as delivered. What the peer sent before it
            // left is still read.
            if !self.marks.receives.is_empty() && W::is_gone(&self.io) {
                self.marks.receives.drain(..).for_each(|mark| mark.receive.release());
            }
            match Pin::new(&mut self.io).poll_write(cx, &self.write_buffer[self.write_offset..]) {
                Poll::Pending => {
                    self.close_if_unauthorized();
                    return Ok(());
                }
                Poll::Ready(len) => self.on_written(len?, now),
            }
            if self.outbox.waiting_len() == 0 && self.phase == Phase::Open {
                self.free_write_buffer();
                return Ok(());
            }
        }
    }

    /// Closes at once when the credential is invalid: waiting for the peer to read would keep it served.
    fn close_if_unauthorized(&mut self) {
        if self.phase == Phase::Open && self.outbox.closing() == Some(CloseReason::Unauthorized) {
            self.close(&CloseReason::Unauthorized.into());
        }
    }

    fn fill_write_buffer(&mut self) {
        self.write_buffer.clear();
        self.write_offset = 0;
        self.free_write_buffer();
        let closing = self.outbox.take(&mut self.write_buffer, &mut self.marks);
        if let Some(why) = closing
            && self.phase == Phase::Open
        {
            self.is_draining |= why == CloseReason::ShuttingDown;
            if self.is_draining && !self.peer.is_drained(None) {
                return;
            }
            self.peer.end_subscriptions();
            self.close(&why.into());
            if self.write_buffer.is_empty() {
                self.outbox.take(&mut self.write_buffer, &mut self.marks);
            }
        }
    }

    /// Frees the write buffer if it is not of a size that is kept. All its bytes are written.
    fn free_write_buffer(&mut self) {
        if !WRITE_BUFFER_KEPT.contains(&self.write_buffer.capacity()) {
            self.write_buffer = Vec::new();
            self.write_offset = 0;
        }
    }

    fn on_written(&mut self, len: usize, now: Now) {
        self.write_offset += len;
        self.written_total += len as u64;
        self.last_write_ms = now.mono_ms;
        self.end_rest(now);
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

    /// Queues the last bytes of the connection, once. Earlier output is still written.
    fn close(&mut self, closing: &Closing) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closing;
            self.outbox.send_last(&W::last(closing));
            self.set_tick(if self.wire.writes_all() && !closing.is_shutdown() {
                LONG_LINGER_TIMEOUT
            } else {
                LINGER_TIMEOUT
            });
        }
    }

    fn set_tick(&mut self, delay: Duration) {
        self.is_resting = false;
        self.tick.as_mut().reset(Instant::now() + delay);
        self.is_tick_armed = false;
    }

    /// Checks the peer: pings an idle one, closes a silent or stalled one.
    fn on_tick(&mut self, now: Now) {
        if self.outbox.waiting_len() == 0 {
            self.last_write_ms = now.mono_ms;
        } else if silence::peer_silence(self.last_write_ms, now) >= self.timeouts.stall_timeout {
            let reason = "slow consumer: read faster, or ask for a smaller window";
            return self.close(&Closing::new(SLOW_CONSUMER, reason));
        }
        let silence = silence::peer_silence(self.last_read_ms, now);
        // While reading is paused, the peer's bytes are not seen.
        let may_be_lost = W::HAS_CONTROL_FRAMES || !self.has_spoken;
        if silence >= self.timeouts.silence_timeout && may_be_lost && !self.is_paused {
            return self.close(&CloseReason::Silent.into());
        }
        if self.is_receive_overdue(now, silence) {
            let reason = "too many messages are being received: send this one again later";
            return self.close(&Closing::standard(CloseCode::Again, reason));
        }
        self.checks_push_capacity = false;
        if self.outbox.take_unblocked() {
            self.peer.writable();
        }
        if W::HAS_CONTROL_FRAMES && millis(silence) >= millis(self.timeouts.ping_interval) / 2 {
            self.outbox.send_raw(&W::ping());
        }
        self.peer.shrink_buffers();
        self.decoder.shrink();
        if self.write_offset == self.write_buffer.len() {
            self.write_buffer = Vec::new();
            self.write_offset = 0;
        }
        self.outbox.shrink();
        self.marks.shrink();
    }
}
