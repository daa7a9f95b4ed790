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

use super::{Place, inbound::SMALL_LEN};
use crate::{budget::Budget, mcp::Taking};

/// A socket that tells its [`Line`] what happens to it.
pub struct Socket {
    io: TcpStream,
    line: Rc<Line>,
    /// Among the connections from its address.
    place: Option<Place>,
    inbound: Arc<Budget>,
    /// While room is short: the last read gave something, and who asked for it is to look at that first.
    has_given: bool,
}

/// Answers with messages that a socket remembers after it has written them.
const CARRIED_LEN_MAX: usize = 16;
/// Bytes of an answer over HTTP from which on it is held until it is with the kernel. HTTP buffers a shorter one.
pub const LONG_ANSWER_LEN: usize = 64 * 1024;
/// How long bytes of a refused body are still read and thrown away: a client that writes all of it before it reads gets to
/// read why.
pub const REFUSED_TIME_MAX: Duration = Duration::from_secs(10);

/// The state of a socket, for the requests that come by it. Lives on the socket's thread.
#[derive(Default)]
pub struct Line {
    hung_up: Cell<bool>,
    emptied: Cell<u64>,
    wakes: RefCell<Option<Waker>>,
    /// What is read has no room.
    is_paused: Cell<bool>,
    /// What is read has all the room that it may need.
    has_room: Cell<bool>,
    /// How many more bytes are read; None when nothing was refused.
    left: Cell<Option<usize>>,
    reader: RefCell<Option<Waker>>,
    read_at: Cell<ReadAt>,
    /// Answers with messages that HTTP has taken and the operating system has not.
    leaving: RefCell<Vec<Taking>>,
    /// The last answers with messages that were written, in case the socket turns out to be reset.
    carried: RefCell<VecDeque<Taking>>,
}

impl Line {
    /// When the last bytes were read. Of requests that were read together that is when each of them was; a client that
    /// sends several without waiting may have one taken for younger than it is.
    pub fn read_at(&self) -> ReadAt {
        self.read_at.get()
    }

    /// An answer with messages is with the operating system. They wait again if the socket is reset before it is closed:
    /// then it may never have arrived.
    pub fn carries(&self, taking: Taking) {
        taking.written();
        let mut carried = self.carried.borrow_mut();
        if carried.len() == CARRIED_LEN_MAX {
            carried.pop_front();
        }
        carried.push_back(taking);
    }

    /// Answers with messages go to HTTP now. They count as written as soon as everything is with the operating system,
    /// and not when their task is polled the next time: by then the client may have asked for more.
    pub fn will_carry(&self, takings: impl Iterator<Item = Taking>) {
        self.leaving.borrow_mut().extend(takings);
    }

    fn was_reset(&self) {
        for taking in self.carried.take() {
            taking.give_back();
        }
    }

    /// Whether the peer has closed its side. HTTP allows it to wait for its answer all the same; no client does, and
    /// what one that has gone waits for must not be taken from others. Looked at by a handler whenever it is polled:
    /// reading the end of the stream wakes it.
    pub fn hung_up(&self) -> bool {
        self.hung_up.get()
    }

    /// How often all that was to be written had been written. What was queued before this grew is with the kernel.
    pub fn emptied(&self) -> u64 {
        self.emptied.get()
    }

    /// Wakes this task when everything is written the next time.
    pub fn wake_when_empty(&self, waker: &Waker) {
        *self.wakes.borrow_mut() = Some(waker.clone());
    }

    /// What else the peer sends is not wanted: at most so many bytes of it are read, and no longer than
    /// [`REFUSED_TIME_MAX`].
    pub fn refuse(self: &Rc<Self>, bytes_max: usize) {
        self.left.set(Some(bytes_max));
        let line = Rc::clone(self);
        actix_rt::spawn(async move {
            tokio::time::sleep(REFUSED_TIME_MAX).await;
            line.left.set(Some(0));
            if let Some(reader) = line.reader.borrow_mut().take() {
                reader.wake();
            }
        });
    }

    /// Nothing is read until [`Line::resume`]: there is no room for it.
    pub fn pause(&self) {
        self.is_paused.set(true);
    }

    /// What is read has all the room that it may need, or is small again.
    pub fn resume(&self, has_room: bool) {
        self.is_paused.set(false);
        self.has_room.set(has_room);
        if let Some(reader) = self.reader.borrow_mut().take() {
            reader.wake();
        }
    }

    fn has_emptied(&self) {
        self.emptied.set(self.emptied.get() + 1);
        for taking in self.leaving.take() {
            self.carries(taking);
        }
        if let Some(waker) = self.wakes.borrow_mut().take() {
            waker.wake();
        }
    }
}

impl Socket {
    /// Answers are small and somebody waits for them, so they are not held back. A peer that takes nothing of what was
    /// sent to it for `stall_max` is gone, whatever it acknowledges (RFC 5482).
    pub fn new(io: TcpStream, stall_max: Duration, place: Option<Place>, inbound: Arc<Budget>) -> Self {
        let socket = SockRef::from(&io);
        let prepared = socket
            .set_tcp_nodelay(true)
            .and_then(|()| set_stall_max(&socket, Some(stall_max)));
        if let Err(error) = prepared {
            tracing::debug!(%error, "the peer left before it was served");
        }
        Self {
            io,
            line: Rc::default(),
            place,
            inbound,
            has_given: false,
        }
    }

    pub fn line(&self) -> &Rc<Line> {
        &self.line
    }

    /// The bare socket, for who looks after a stalled peer itself, and tells it.
    pub fn into_inner(self) -> (TcpStream, Option<Place>) {
        // An error is one of the socket, which shows again.
        let _ = set_stall_max(&SockRef::from(&self.io), None);
        (self.io, self.place)
    }
}

/// Prepares a connection to another replica: nothing is held back, and a machine that is gone is noticed within about
/// `silence_max`, also while nothing is sent.
pub fn prepare_outgoing(io: &TcpStream, silence_max: Duration) -> io::Result<()> {
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
        if self.line.left.get() == Some(0) {
            self.line.hung_up.set(true);
            return Poll::Ready(Ok(()));
        }
        if self.line.is_paused.get() {
            *self.line.reader.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let polled = if self.inbound.is_short() && !self.line.has_room.get() {
            self.poll_read_little(cx, buf)
        } else {
            Pin::new(&mut self.io).poll_read(cx, buf)
        };
        if let Some(left) = self.line.left.get() {
            self.line
                .left
                .set(Some(left.saturating_sub(buf.filled().len() - before)));
            *self.line.reader.borrow_mut() = Some(cx.waker().clone());
        }
        let ended = match &polled {
            Poll::Ready(Ok(())) => buf.filled().len() == before && buf.remaining() > 0,
            Poll::Ready(Err(_)) => {
                self.line.was_reset();
                true
            }
            Poll::Pending => false,
        };
        if buf.filled().len() > before {
            self.line.read_at.set(ReadAt::now());
        }
        if ended {
            self.line.hung_up.set(true);
        }
        polled
    }
}

impl Socket {
    /// Room is short: reads no more at once than needs none, so that a handler can pause the reading before HTTP has
    /// buffered the rest.
    fn poll_read_little(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.has_given) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut little = [0; SMALL_LEN];
        let len = SMALL_LEN.min(buf.remaining());
        let mut some = ReadBuf::new(&mut little[..len]);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut some))?;
        self.has_given = !some.filled().is_empty();
        buf.put_slice(some.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(cx, buf);
        // Who writes gives all that there is to be written.
        match &polled {
            Poll::Ready(Ok(len)) if *len == buf.len() => self.line.has_emptied(),
            Poll::Ready(Err(_)) => self.line.was_reset(),
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
