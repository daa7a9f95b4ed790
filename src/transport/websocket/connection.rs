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
    attention,
    clock::{Now, millis, now},
    session::{Closing, ReadAt},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

use super::frame::{self, Decoder, Event, Violation};
use crate::{
    budget::Hold,
    mcp::{Marks, Outbox, Peer, Taken, outbox::ROOM_INTERVAL},
    transport::{
        Place, Seat, Tempo,
        inbound::{INBOUND_PATIENCE, INBOUND_TIME_MAX, SMALL_LEN},
    },
};

/// Bytes that one read takes at most, and about as many one turn, before the others have theirs. The buffer is shared by
/// all connections of a thread.
const READ_LEN: usize = 128 * 1024;
/// An empty write buffer of more than this is given back.
const WRITE_BUFFER_KEPT: usize = 128 * 1024;
/// Frames in a row that are not JSON after which a peer is sent away.
const MALFORMED_IN_A_ROW_MAX: usize = 10;
/// How long a connection that is being closed is given to take the last bytes and close its side.
const LINGER: Duration = Duration::from_secs(2);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_LEN]);
}

#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the connection"
)]
pub struct Connection {
    io: TcpStream,
    peer: Peer,
    outbox: Arc<Outbox>,
    decoder: Decoder,
    /// The room of what has begun to come in, and of frames that are held back.
    inbound: Hold,
    /// The next tick looks for room for what is to be pushed.
    looks_for_room: bool,
    /// When it took its room.
    inbound_since_ms: u64,
    tempo: Tempo,
    /// What is being written, and how much of it has been.
    writing: Vec<u8>,
    written: usize,
    /// Bytes ever written; marks are in the same count.
    written_in_all: u64,
    marks: Marks,
    end: End,
    /// Nothing is read: enough is under way, or a message waits for its room.
    paused: bool,
    /// It is paused for want of room. The budget wakes it.
    awaits_room: bool,
    /// The broker stops: what is under way is answered, and nothing else is read.
    winds_up: bool,
    tick: Pin<Box<Sleep>>,
    /// The timer knows whom to wake.
    armed: bool,
    last_read_ms: u64,
    last_write_ms: u64,
    /// Given up with the connection.
    _places: (Seat, Option<Place>),
}

/// How far a connection is from its end.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Open,
    /// The close frame waits to be written.
    Closing,
    /// Nothing more is written; the peer's side is awaited.
    Lingering,
}

impl Connection {
    pub fn new(
        io: TcpStream,
        peer: Peer,
        outbox: Arc<Outbox>,
        (decoder, inbound): (Decoder, Hold),
        tempo: Tempo,
        places: (Seat, Option<Place>),
    ) -> Self {
        let now = now();
        Self {
            io,
            peer,
            outbox,
            decoder,
            inbound,
            looks_for_room: false,
            inbound_since_ms: now.mono_ms,
            tempo,
            writing: Vec::new(),
            written: 0,
            written_in_all: 0,
            marks: Marks::default(),
            end: End::Open,
            paused: false,
            awaits_room: false,
            winds_up: false,
            tick: Box::pin(tokio::time::sleep(tempo.ping_interval)),
            armed: false,
            last_read_ms: now.mono_ms,
            last_write_ms: now.mono_ms,
            _places: places,
        }
    }

    /// Runs the connection to its end. `first` are bytes that came with the handshake.
    pub async fn run(mut self, mut first: Vec<u8>) {
        if !first.is_empty() {
            self.took(&mut first, now());
        }
        drop(first);
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.outbox.awake();
        let now = now();
        // Before anybody is called silent, what waits in the socket is read.
        if let Err(error) = self.read(cx, now) {
            return self.ends(&error);
        }
        // A timer that is armed wakes this task by itself; asking it at every turn would be for nothing.
        while (!self.armed || self.tick.is_elapsed()) && self.tick.as_mut().poll(cx).is_ready() {
            if self.end != End::Open {
                // The time to close decently is over.
                return Poll::Ready(());
            }
            self.set_tick(self.tick_interval());
            self.ticked(now);
        }
        self.armed = true;
        loop {
            self.peer.poll(cx, now);
            if self.inbound.bytes() > 0 {
                // Frames that were held back may have been taken up.
                self.charge_kept();
            }
            if let Err(error) = self.write(cx, now) {
                return self.ends(&error);
            }
            if self.outbox.sleep(cx.waker()) {
                break;
            }
        }
        if !self.looks_for_room && self.outbox.lacks_room() {
            self.looks_for_room = true;
            self.set_tick(self.tempo.ping_interval.min(ROOM_INTERVAL));
        }
        let resumes = self.paused && !self.awaits_room && !self.winds_up && self.peer.wants_frames();
        let more_to_do = self.peer.can_go_on() || resumes;
        if more_to_do || !self.armed {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// The connection is over. A peer that closed its side first may have read everything before.
    fn ends(&self, error: &io::Error) -> Poll<()> {
        if error.kind() != io::ErrorKind::UnexpectedEof {
            self.peer.was_reset();
        }
        Poll::Ready(())
    }

    /// Reads what is there, as long as there is use for it. An error is the end of the connection.
    fn read(&mut self, cx: &mut Context<'_>, now: Now) -> io::Result<()> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let mut left = READ_LEN;
            while left > 0 {
                self.paused = self.end == End::Open && (self.winds_up || !self.peer.wants_frames());
                self.awaits_room = !self.paused && self.end == End::Open && !self.has_room(cx, now);
                self.paused |= self.awaits_room;
                if self.paused {
                    return Ok(());
                }
                let len_max = if self.inbound.bytes() == 0 && self.inbound.budget().is_short() {
                    SMALL_LEN
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
                self.took(&mut buffer[..len], now);
                left = left.saturating_sub(len);
            }
            // There may be more; the others first.
            cx.waker().wake_by_ref();
            Ok(())
        })
    }

    /// Whether there is room for the message that has begun to come in. When not, the task is woken when there is.
    fn has_room(&mut self, cx: &Context<'_>, now: Now) -> bool {
        let needed = self.decoder.needed_len();
        if needed <= SMALL_LEN.max(self.inbound.bytes()) {
            return true;
        }
        if self.inbound.poll_grow(needed, cx).is_pending() {
            return false;
        }
        self.decoder.make_room();
        self.inbound_since_ms = now.mono_ms;
        self.set_tick(self.tick_interval());
        true
    }

    /// Counts what is kept of what came in: messages that are not whole, and frames that wait to be taken up.
    fn charge_kept(&mut self) {
        let kept = self.decoder.kept_len() + self.peer.held_len();
        let needed = kept.max(self.decoder.needed_len());
        if needed <= SMALL_LEN {
            self.inbound.set(0);
        } else if needed < self.inbound.bytes() || kept > self.inbound.bytes() {
            self.inbound
                .set(if needed < self.inbound.bytes() { needed } else { kept });
        }
    }

    /// Who has taken room is looked after more often.
    fn tick_interval(&self) -> Duration {
        if self.inbound.bytes() > 0 {
            self.tempo.ping_interval.min(INBOUND_PATIENCE / 4)
        } else {
            self.tempo.ping_interval
        }
    }

    /// Whether others wait for the room of a message that does not come to its end.
    fn takes_too_long(&self, now: Now, silence: Duration) -> bool {
        self.decoder.kept_len() > 0
            && self.inbound.bytes() > 0
            && self.inbound.budget().is_short()
            && !self.paused
            && (silence >= INBOUND_PATIENCE || attention::silence(self.inbound_since_ms, now) >= INBOUND_TIME_MAX)
    }

    /// Decodes one read and gives its frames to MCP, as one turn.
    fn took(&mut self, bytes: &mut [u8], now: Now) {
        self.last_read_ms = now.mono_ms;
        if self.end != End::Open {
            return;
        }
        let (peer, outbox) = (&mut self.peer, &self.outbox);
        peer.reads(ReadAt::now(), now);
        let mut refusal = None;
        let mut closed = None;
        let decoded = self.decoder.decode(bytes, |event| match event {
            _ if refusal.is_some() || closed.is_some() => {}
            Event::Text(text) => {
                if let Taken::Malformed { in_a_row } = peer.frame(text)
                    && in_a_row >= MALFORMED_IN_A_ROW_MAX
                {
                    refusal = Some((
                        u16::from(CloseCode::Policy),
                        "too many frames in a row that are not JSON",
                    ));
                }
            }
            Event::Ping(payload) => outbox.send_raw(&frame::pong(payload)),
            Event::Pong => peer.touch(now),
            Event::Close(code) => closed = Some(code),
        });
        self.peer.end_turn(now);
        self.charge_kept();
        match (decoded, refusal, closed) {
            (Err(violation), ..) => self.close(violation as u16, in_words(violation)),
            (_, Some((code, reason)), _) => self.close(code, reason),
            (_, _, Some(code)) => self.close(code.unwrap_or(u16::from(CloseCode::Normal)), ""),
            _ => {}
        }
    }

    /// Writes what waits until the socket takes no more. An error is the end of the connection.
    fn write(&mut self, cx: &mut Context<'_>, now: Now) -> io::Result<()> {
        loop {
            if self.written == self.writing.len() {
                self.refill();
                if self.writing.is_empty() {
                    self.all_written(cx);
                    return Ok(());
                }
            }
            match Pin::new(&mut self.io).poll_write(cx, &self.writing[self.written..]) {
                Poll::Pending => {
                    self.leave_if_unauthorized();
                    return Ok(());
                }
                Poll::Ready(len) => self.wrote(len?, now),
            }
            if self.outbox.waiting_len() == 0 && self.end == End::Open {
                return Ok(());
            }
        }
    }

    /// Whoever is good no more is not waited for: what they do not take would keep them here, and heard.
    fn leave_if_unauthorized(&mut self) {
        if self.end == End::Open && self.outbox.closing() == Some(Closing::Unauthorized) {
            let (code, reason) = close_frame(Closing::Unauthorized);
            self.close(code, &reason);
        }
    }

    fn refill(&mut self) {
        self.writing.clear();
        self.written = 0;
        if self.writing.capacity() > WRITE_BUFFER_KEPT {
            self.writing = Vec::new();
        }
        let closing = self.outbox.take(&mut self.writing, &mut self.marks);
        if let Some(why) = closing
            && self.end == End::Open
        {
            self.winds_up = why == Closing::ShuttingDown;
            if self.winds_up && !self.peer.winds_up(None) {
                return;
            }
            let (code, reason) = close_frame(why);
            self.peer.say_farewell();
            self.close(code, &reason);
            if self.writing.is_empty() {
                self.outbox.take(&mut self.writing, &mut self.marks);
            }
        }
    }

    fn wrote(&mut self, len: usize, now: Now) {
        self.written += len;
        self.written_in_all += len as u64;
        self.last_write_ms = now.mono_ms;
        if self.outbox.written(len) {
            self.peer.writable();
        }
        let messages = &mut self.marks.messages;
        let done = messages
            .iter()
            .take_while(|(end, _)| *end <= self.written_in_all)
            .count();
        if done > 0 {
            let written = messages.drain(..done).map(|(_, id)| id).collect();
            self.peer.written(written);
        }
        self.marks.answers_written(self.written_in_all);
    }

    fn all_written(&mut self, cx: &mut Context<'_>) {
        if self.end == End::Closing {
            self.end = End::Lingering;
            let _ = Pin::new(&mut self.io).poll_shutdown(cx);
        }
    }

    /// Queues a close frame, once. What is in the outbox before it is still written.
    fn close(&mut self, code: u16, reason: &str) {
        if self.end == End::Open {
            self.end = End::Closing;
            self.outbox.send_last(&frame::close(code, reason));
            self.set_tick(LINGER);
        }
    }

    fn set_tick(&mut self, delay: Duration) {
        self.tick.as_mut().reset(Instant::now() + delay);
        self.armed = false;
    }

    /// Looks after the peer: pings it when it is idle, lets it go when it is gone or takes nothing.
    fn ticked(&mut self, now: Now) {
        if self.outbox.waiting_len() == 0 {
            self.last_write_ms = now.mono_ms;
        } else if attention::silence(self.last_write_ms, now) >= self.tempo.stall_max {
            return self.close(SLOW_CONSUMER, "slow consumer: read faster, or ask for a smaller window");
        }
        let silence = attention::silence(self.last_read_ms, now);
        // Whoever is not read may have said something.
        if silence >= self.tempo.silence_max && !self.paused {
            return self.close(SILENT, "no sign of life");
        }
        if self.takes_too_long(now, silence) {
            return self.close(
                u16::from(CloseCode::Again),
                "others wait for the room of this message: send it again later",
            );
        }
        self.looks_for_room = false;
        if self.outbox.has_room_again() {
            self.peer.writable();
        }
        if millis(silence) >= millis(self.tempo.ping_interval) / 2 {
            self.outbox.send_raw(&frame::ping());
        }
        self.peer.shrink();
        self.decoder.shrink();
        if self.written == self.writing.len() {
            self.writing = Vec::new();
            self.written = 0;
        }
        self.marks.messages.shrink_to_fit();
        self.marks.answers.shrink_to_fit();
    }
}

/// Close codes of our own (RFC 6455, section 7.4.2).
pub const TAKEN_OVER: u16 = 4001;
pub const SILENT: u16 = 4002;
pub const SLOW_CONSUMER: u16 = 4003;
pub const RELEASED: u16 = 4004;
pub const UNAUTHORIZED: u16 = 4005;
pub const STORE_WENT_BACK: u16 = 4006;

fn close_frame(why: Closing) -> (u16, String) {
    match why {
        Closing::TakenOver => (TAKEN_OVER, "a newer connection has taken this session over".to_owned()),
        Closing::Silent => (SILENT, "no sign of life".to_owned()),
        Closing::Released => (RELEASED, "the session is over".to_owned()),
        Closing::Unauthorized => (UNAUTHORIZED, "the key is good no more".to_owned()),
        Closing::WentBack => (
            STORE_WENT_BACK,
            "the storage came back with older data: connect and register again".to_owned(),
        ),
        Closing::Failed => (
            u16::from(CloseCode::Error),
            "the session failed: connect again".to_owned(),
        ),
        Closing::ShuttingDown => {
            let retry_ms = 200 + uuid::Uuid::new_v4().as_u128() % 1800;
            (
                u16::from(CloseCode::Restart),
                format!("shutting down: retry in {retry_ms} ms"),
            )
        }
    }
}

fn in_words(violation: Violation) -> &'static str {
    match violation {
        Violation::Protocol => "not a frame of RFC 6455",
        Violation::Binary => "one JSON-RPC message per text frame",
        Violation::Utf8 => "a text frame must be UTF-8",
        Violation::TooLarge => "the message is too large",
    }
}
