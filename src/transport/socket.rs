//! The socket under HTTP, with the state that handlers need and HTTP does not expose.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use actix_rt::net::TcpStream;
use actors::{faults, session::ReadAt};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::inbound::UNRESERVED_LEN_MAX;
use crate::edge::AddressPermit;
use api::{
    auth::Stranger,
    budget::ByteBudget,
    mcp::{AnswerInProgress, HandedOver},
};
use common::hang_up::has_ended;

/// A socket that records its state in a [`SocketState`].
pub struct Socket {
    io: TcpStream,
    state: Rc<SocketState>,
    /// Permit of the peer's address.
    address_permit: Option<AddressPermit>,
    inbound: Arc<ByteBudget>,
    /// While the inbound budget has waiters: the last read returned bytes, and their reader must run first.
    must_yield: bool,
}

/// Answers with messages that a socket remembers after they were flushed.
const FLUSHED_RECEIVES_MAX: usize = 16;
/// Bytes from which an answer over HTTP counts as pending until the kernel has it. HTTP buffers a shorter one.
pub const LONG_ANSWER_LEN_MIN: usize = 64 * 1024;
/// How long a refused body is still read and discarded: a client that writes all of it first gets to read the refusal.
pub const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of a socket, shared with the requests on it. It stays on the socket's thread.
#[derive(Default)]
pub struct SocketState {
    peer_closed: Cell<bool>,
    flush_count: Cell<u64>,
    flush_waker: RefCell<Option<Waker>>,
    /// Reading waits for a reservation.
    is_paused: Cell<bool>,
    /// The bytes being read have their full reservation.
    is_reserved: Cell<bool>,
    /// Bytes that are still read and discarded; `None` when no request was refused.
    discard_left: Cell<Option<usize>>,
    read_waker: RefCell<Option<Waker>>,
    read_at: Cell<ReadAt>,
    /// The peer is a program of this machine that a broker without keys does not serve.
    stranger: Cell<Option<Stranger>>,
    /// Answers with messages that HTTP has buffered and the kernel has not.
    unflushed_receives: RefCell<Vec<HandedOver>>,
    /// The last answers with messages that were flushed, in case the socket turns out to be reset.
    flushed_receives: RefCell<VecDeque<HandedOver>>,
}

impl SocketState {
    /// When the last bytes were read. Requests that arrive in one read share this time, so a pipelined request may
    /// count as younger than it is.
    pub fn read_at(&self) -> ReadAt {
        self.read_at.get()
    }

    /// Sets why the peer needs a key, if it does.
    pub fn set_stranger(&self, stranger: Option<Stranger>) {
        self.stranger.set(stranger);
    }

    /// Why the peer needs a key, where the broker asks the kernel for its user.
    pub fn stranger(&self) -> Option<Stranger> {
        self.stranger.get()
    }

    /// Records that an answer with messages is with the kernel. The messages return to the inbox if the socket is reset
    /// before it is closed, because they may not have arrived.
    pub fn track_flushed(&self, receive: HandedOver) {
        receive.mark_written();
        self.keep_flushed(receive);
    }

    fn keep_flushed(&self, receive: HandedOver) {
        let mut carried = self.flushed_receives.borrow_mut();
        if carried.len() == FLUSHED_RECEIVES_MAX {
            carried.pop_front();
        }
        carried.push_back(receive);
    }

    /// Records answers with messages that HTTP buffers now. They count as written as soon as everything is with the
    /// kernel, and not when their task is polled next: the client may have sent its next request by then.
    pub fn track_unflushed(&self, receives: impl Iterator<Item = HandedOver>) {
        self.unflushed_receives.borrow_mut().extend(receives);
    }

    fn on_reset(&self) {
        for receive in self.flushed_receives.take() {
            receive.release();
        }
    }

    /// Whether the peer has closed its side. HTTP lets such a peer wait for its answer, but no client does, and
    /// messages must not be taken for a lost peer. Handlers check it on each poll: reading the end of the stream wakes
    /// them.
    pub fn has_peer_closed(&self) -> bool {
        self.peer_closed.get()
    }

    /// How often all output was flushed. Output queued before this count grew is with the kernel.
    pub fn flush_count(&self) -> u64 {
        self.flush_count.get()
    }

    /// Wakes this task at the next flush.
    pub fn wake_on_flush(&self, waker: &Waker) {
        *self.flush_waker.borrow_mut() = Some(waker.clone());
    }

    /// Discards further input: at most `bytes_max` bytes of it are read, for at most [`DISCARD_TIMEOUT`].
    pub fn discard_input(self: &Rc<Self>, bytes_max: usize) {
        self.discard_left.set(Some(bytes_max));
        let state = Rc::clone(self);
        actix_rt::spawn(async move {
            tokio::time::sleep(DISCARD_TIMEOUT).await;
            state.discard_left.set(Some(0));
            if let Some(reader) = state.read_waker.borrow_mut().take() {
                reader.wake();
            }
        });
    }

    /// Stops reading until [`SocketState::resume_reading`], for want of a reservation.
    pub fn pause_reading(&self) {
        self.is_paused.set(true);
    }

    /// Continues reading. `has_room`: the bytes being read have their full reservation.
    pub fn resume_reading(&self, has_room: bool) {
        self.is_paused.set(false);
        self.is_reserved.set(has_room);
        if let Some(reader) = self.read_waker.borrow_mut().take() {
            reader.wake();
        }
    }

    /// All output is with the kernel, with these answers.
    fn on_flush(&self, written: Vec<HandedOver>) {
        self.flush_count.set(self.flush_count.get() + 1);
        for receive in written {
            self.keep_flushed(receive);
        }
        if let Some(waker) = self.flush_waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl Socket {
    /// Disables Nagle's algorithm: answers are small and awaited. A peer that takes no bytes for `stall_timeout` is
    /// lost, even if it acknowledges keep-alives (RFC 5482).
    pub fn new(
        io: TcpStream,
        stall_timeout: Duration,
        address_permit: Option<AddressPermit>,
        inbound: Arc<ByteBudget>,
    ) -> Self {
        let socket = SockRef::from(&io);
        let prepared = socket
            .set_tcp_nodelay(true)
            .and_then(|()| set_stall_max(&socket, Some(stall_timeout)));
        if let Err(error) = prepared {
            tracing::debug!(%error, "the peer disconnected before it was served");
        }
        Self {
            io,
            state: Rc::default(),
            address_permit,
            inbound,
            must_yield: false,
        }
    }

    /// The shared state of the socket.
    pub fn state(&self) -> &Rc<SocketState> {
        &self.state
    }

    /// Returns the bare socket, for a connection that handles stalled peers itself.
    pub fn into_inner(self) -> (TcpStream, Option<AddressPermit>) {
        // An error of the socket shows again at its next use.
        let _ = set_stall_max(&SockRef::from(&self.io), None);
        (self.io, self.address_permit)
    }
}

/// Configures a connection to another replica: no Nagle delay, and a lost machine is noticed within about
/// `silence_timeout`, also while nothing is sent.
///
/// # Errors
/// The socket refuses an option.
pub fn configure_outgoing(io: &TcpStream, silence_timeout: Duration) -> io::Result<()> {
    /// Keep-alive probes within the time.
    const PROBES: u32 = 3;
    let pause = (silence_timeout / PROBES).max(Duration::from_secs(1));
    let socket = SockRef::from(io);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(pause).with_interval(pause))?;
    set_stall_max(&socket, Some(silence_timeout))
}

#[cfg(target_os = "linux")]
fn set_stall_max(socket: &SockRef<'_>, stall_timeout: Option<Duration>) -> io::Result<()> {
    socket.set_tcp_user_timeout(stall_timeout)
}

#[cfg(not(target_os = "linux"))]
fn set_stall_max(_: &SockRef<'_>, _: Option<Duration>) -> io::Result<()> {
    Ok(())
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if self.state.discard_left.get() == Some(0) {
            self.state.peer_closed.set(true);
            return Poll::Ready(Ok(()));
        }
        if self.state.is_paused.get() {
            *self.state.read_waker.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let polled = if self.inbound.has_waiters() && !self.state.is_reserved.get() {
            self.poll_read_small(cx, buf)
        } else {
            Pin::new(&mut self.io).poll_read(cx, buf)
        };
        if let Some(left) = self.state.discard_left.get() {
            self.state
                .discard_left
                .set(Some(left.saturating_sub(buf.filled().len() - before)));
            *self.state.read_waker.borrow_mut() = Some(cx.waker().clone());
        }
        let ended = match &polled {
            Poll::Ready(Ok(())) => buf.filled().len() == before && buf.remaining() > 0,
            Poll::Ready(Err(_)) => {
                self.state.on_reset();
                true
            }
            Poll::Pending => false,
        };
        if buf.filled().len() > before {
            self.state.read_at.set(ReadAt::now());
        }
        if ended {
            if faults::hides_closed() {
                return Poll::Pending;
            }
            self.state.peer_closed.set(true);
        }
        polled
    }
}

impl Socket {
    /// The inbound budget has waiters: reads at most [`UNRESERVED_LEN_MAX`] bytes at once, so that a handler can pause
    /// reading before HTTP has buffered the rest.
    fn poll_read_small(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.must_yield) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut little = [0; UNRESERVED_LEN_MAX];
        let len = UNRESERVED_LEN_MAX.min(buf.remaining());
        let mut some = ReadBuf::new(&mut little[..len]);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut some))?;
        self.must_yield = !some.filled().is_empty();
        buf.put_slice(some.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let unflushed = self.state.unflushed_receives.take();
        // The kernel would take the answer, and its messages would count as delivered.
        if !unflushed.is_empty() && has_ended(&self.io) {
            self.state.peer_closed.set(true);
            unflushed.iter().for_each(HandedOver::release);
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let begun: Vec<_> = unflushed.iter().map(HandedOver::begin_write).collect();
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        if !begun.is_empty() {
            faults::delay_at("answer_sent");
        }
        // HTTP passes all pending output in one call.
        if matches!(&polled, Poll::Ready(Ok(len)) if *len == buf.len()) {
            begun.into_iter().for_each(AnswerInProgress::complete);
            self.state.on_flush(unflushed);
            return polled;
        }
        drop(begun);
        self.state.unflushed_receives.replace(unflushed);
        if let Poll::Ready(Err(_)) = &polled {
            self.state.on_reset();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
