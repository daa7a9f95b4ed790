//! The socket under HTTP, with what a handler has to know of it and HTTP does not tell.

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
use actors::session::ReadAt;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{AddressPermit, inbound::UNRESERVED_LEN_MAX};
use crate::{budget::Budget, mcp::PendingReceive};

/// A socket that tells its [`Line`] what happens to it.
pub struct Socket {
    io: TcpStream,
    state: Rc<SocketState>,
    /// Among the connections from its address.
    address_permit: Option<AddressPermit>,
    inbound: Arc<Budget>,
    /// While room is short: the last read gave something, and who asked for it is to look at that first.
    must_yield: bool,
}

/// Answers with messages that a socket remembers after it has written them.
const FLUSHED_RECEIVES_MAX: usize = 16;
/// Bytes of an answer over HTTP from which on it is held until it is with the kernel. HTTP buffers a shorter one.
pub const LONG_ANSWER_LEN_MIN: usize = 64 * 1024;
/// How long bytes of a refused body are still read and thrown away: a client that writes all of it before it reads gets to
/// read why.
pub const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of a socket, for the requests that come by it. Lives on the socket's thread.
#[derive(Default)]
pub struct SocketState {
    peer_closed: Cell<bool>,
    flush_count: Cell<u64>,
    flush_waker: RefCell<Option<Waker>>,
    /// What is read has no room.
    is_paused: Cell<bool>,
    /// What is read has all the room that it may need.
    is_reserved: Cell<bool>,
    /// How many more bytes are read; None when nothing was refused.
    discard_left: Cell<Option<usize>>,
    read_waker: RefCell<Option<Waker>>,
    read_at: Cell<ReadAt>,
    /// Answers with messages that HTTP has taken and the operating system has not.
    unflushed_receives: RefCell<Vec<PendingReceive>>,
    /// The last answers with messages that were written, in case the socket turns out to be reset.
    flushed_receives: RefCell<VecDeque<PendingReceive>>,
}

impl SocketState {
    /// When the last bytes were read. Of requests that were read together that is when each of them was; a client that
    /// sends several without waiting may have one taken for younger than it is.
    pub fn read_at(&self) -> ReadAt {
        self.read_at.get()
    }

    /// An answer with messages is with the operating system. They wait again if the socket is reset before it is closed:
    /// then it may never have arrived.
    pub fn track_flushed(&self, taking: PendingReceive) {
        taking.mark_written();
        let mut carried = self.flushed_receives.borrow_mut();
        if carried.len() == FLUSHED_RECEIVES_MAX {
            carried.pop_front();
        }
        carried.push_back(taking);
    }

    /// Answers with messages go to HTTP now. They count as written as soon as everything is with the operating system,
    /// and not when their task is polled the next time: by then the client may have asked for more.
    pub fn track_unflushed(&self, takings: impl Iterator<Item = PendingReceive>) {
        self.unflushed_receives.borrow_mut().extend(takings);
    }

    fn on_reset(&self) {
        for taking in self.flushed_receives.take() {
            taking.release();
        }
    }

    /// Whether the peer has closed its side. HTTP allows it to wait for its answer all the same; no client does, and
    /// what one that has gone waits for must not be taken from others. Looked at by a handler whenever it is polled:
    /// reading the end of the stream wakes it.
    pub fn has_peer_closed(&self) -> bool {
        self.peer_closed.get()
    }

    /// How often all that was to be written had been written. What was queued before this grew is with the kernel.
    pub fn flush_count(&self) -> u64 {
        self.flush_count.get()
    }

    /// Wakes this task when everything is written the next time.
    pub fn wake_on_flush(&self, waker: &Waker) {
        *self.flush_waker.borrow_mut() = Some(waker.clone());
    }

    /// What else the peer sends is not wanted: at most so many bytes of it are read, and no longer than
    /// [`REFUSED_TIME_MAX`].
    pub fn discard_input(self: &Rc<Self>, bytes_max: usize) {
        self.discard_left.set(Some(bytes_max));
        let line = Rc::clone(self);
        actix_rt::spawn(async move {
            tokio::time::sleep(DISCARD_TIMEOUT).await;
            line.discard_left.set(Some(0));
            if let Some(reader) = line.read_waker.borrow_mut().take() {
                reader.wake();
            }
        });
    }

    /// Nothing is read until [`Line::resume`]: there is no room for it.
    pub fn pause_reading(&self) {
        self.is_paused.set(true);
    }

    /// What is read has all the room that it may need, or is small again.
    pub fn resume_reading(&self, has_room: bool) {
        self.is_paused.set(false);
        self.is_reserved.set(has_room);
        if let Some(reader) = self.read_waker.borrow_mut().take() {
            reader.wake();
        }
    }

    fn on_flush(&self) {
        self.flush_count.set(self.flush_count.get() + 1);
        for taking in self.unflushed_receives.take() {
            self.track_flushed(taking);
        }
        if let Some(waker) = self.flush_waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl Socket {
    /// Answers are small and somebody waits for them, so they are not held back. A peer that takes nothing of what was
    /// sent to it for `stall_max` is gone, whatever it acknowledges (RFC 5482).
    pub fn new(io: TcpStream, stall_max: Duration, place: Option<AddressPermit>, inbound: Arc<Budget>) -> Self {
        let socket = SockRef::from(&io);
        let prepared = socket
            .set_tcp_nodelay(true)
            .and_then(|()| set_stall_max(&socket, Some(stall_max)));
        if let Err(error) = prepared {
            tracing::debug!(%error, "the peer left before it was served");
        }
        Self {
            io,
            state: Rc::default(),
            address_permit: place,
            inbound,
            must_yield: false,
        }
    }

    pub fn state(&self) -> &Rc<SocketState> {
        &self.state
    }

    /// The bare socket, for who looks after a stalled peer itself, and tells it.
    pub fn into_inner(self) -> (TcpStream, Option<AddressPermit>) {
        // An error is one of the socket, which shows again.
        let _ = set_stall_max(&SockRef::from(&self.io), None);
        (self.io, self.address_permit)
    }
}

/// Prepares a connection to another replica: nothing is held back, and a machine that is gone is noticed within about
/// `silence_max`, also while nothing is sent.
pub fn configure_outgoing(io: &TcpStream, silence_max: Duration) -> io::Result<()> {
    /// Probes go out so often within the time.
    const PROBES: u32 = 3;
    let pause = (silence_max / PROBES).max(Duration::from_secs(1));
    let socket = SockRef::from(io);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(pause).with_interval(pause))?;
    set_stall_max(&socket, Some(silence_max))
}

#[cfg(target_os = "linux")]
fn set_stall_max(socket: &SockRef<'_>, stall_max: Option<Duration>) -> io::Result<()> {
    socket.set_tcp_user_timeout(stall_max)
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
            self.state.peer_closed.set(true);
        }
        polled
    }
}

impl Socket {
    /// Room is short: reads no more at once than needs none, so that a handler can pause the reading before HTTP has
    /// buffered the rest.
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
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        // Who writes gives all that there is to be written.
        match &polled {
            Poll::Ready(Ok(len)) if *len == buf.len() => self.state.on_flush(),
            Poll::Ready(Err(_)) => self.state.on_reset(),
            _ => {}
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
