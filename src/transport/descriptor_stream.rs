//! Descriptors of this process as a stream of the event loop.
//!
//! The event loop polls the output only while the output has no room. A Unix socket reports room after each message
//! that its reader takes, which would wake the process once more for each answer.

use std::{
    future::{Future, pending},
    io::{self, ErrorKind},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, fstat},
    io::Errno,
    pipe::PIPE_BUF,
};
use tokio::io::{
    AsyncRead, AsyncWrite, Interest, ReadBuf,
    unix::{AsyncFd, AsyncFdRegisterError},
};

use common::hang_up::is_hung_up;

/// Bytes are read from one descriptor and written to another, or to the same.
pub struct DescriptorStream {
    input: Input,
    /// `None` if bytes are written to the input.
    output: Option<OwnedFd>,
    /// Reports room in the output, after it had none.
    room: Option<AsyncFd<OwnedFd>>,
    may_block: bool,
    /// A write never waits, and the event loop knows nothing of it.
    is_output_file: bool,
}

enum Input {
    /// A pipe, a socket or a terminal.
    Awaited(Rc<AsyncFd<OwnedFd>>),
    /// A file, of which the event loop knows nothing: a read never waits.
    File(OwnedFd),
}

impl DescriptorStream {
    /// A socket of this process. It becomes non-blocking.
    ///
    /// # Errors
    /// The system refuses to register it.
    pub fn of_socket(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            input: Input::new(socket.into())?,
            output: None,
            room: None,
            may_block: false,
            is_output_file: false,
        })
    }

    /// Descriptors that other processes may share, such as the standard streams. They stay as they are: whether they block
    /// would change for all.
    ///
    /// # Errors
    /// The system refuses to register the input.
    pub fn of_shared(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(fstat(&output)?.st_mode);
        Ok(Self {
            input: Input::new(input)?,
            output: Some(output),
            room: None,
            may_block: true,
            is_output_file: kind.is_file(),
        })
    }

    /// Waits until the other end of the input is closed, although bytes of it may still be unread. The end of a file is
    /// not awaited.
    pub fn input_end(&self) -> impl Future<Output = ()> + 'static {
        let awaited = match &self.input {
            Input::Awaited(input) => Some(Rc::clone(input)),
            Input::File(_) => None,
        };
        async move {
            match awaited {
                Some(input) => wait_for_end(&input).await,
                None => pending().await,
            }
        }
    }

    /// Whether what is written has no reader.
    pub fn is_hung_up(&self) -> bool {
        is_hung_up(self.output())
    }

    fn output(&self) -> BorrowedFd<'_> {
        match &self.output {
            Some(output) => output.as_fd(),
            None => self.input.as_fd(),
        }
    }

    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let output = self.output();
        if !self.may_block || self.is_output_file {
            return Ok(rustix::io::write(output, bytes)?);
        }
        match nowait::write(output, bytes) {
            Err(Errno::OPNOTSUPP) if !is_ready(output, PollFlags::OUT)? => Err(ErrorKind::WouldBlock.into()),
            // A descriptor that is ready takes this many bytes at once.
            Err(Errno::OPNOTSUPP) => Ok(rustix::io::write(output, bytes.get(..PIPE_BUF).unwrap_or(bytes))?),
            written => Ok(written?),
        }
    }
}

/// Waits for a hang-up, which the event loop reports for every descriptor that it knows.
#[cfg(target_os = "linux")]
async fn wait_for_end(input: &AsyncFd<OwnedFd>) {
    while let Ok(mut guard) = input.ready(Interest::PRIORITY).await {
        if guard.ready().is_read_closed() {
            return;
        }
        guard.clear_ready();
    }
}

#[cfg(not(target_os = "linux"))]
async fn wait_for_end(_: &AsyncFd<OwnedFd>) {
    pending().await
}

impl Input {
    fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let registered = register(descriptor, Interest::READABLE);
        registered
            .map(|input| Self::Awaited(Rc::new(input)))
            .or_else(|refused| match refused.into_parts() {
                (file, error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => Ok(Self::File(file)),
                (_, error) => Err(error),
            })
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Awaited(input) => input.as_fd(),
            Self::File(file) => file.as_fd(),
        }
    }

    fn poll_read(&self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>, may_block: bool) -> Poll<io::Result<()>> {
        let input = match self {
            Self::Awaited(input) => input,
            Self::File(file) => {
                let len = rustix::io::read(file, into.initialize_unfilled())?;
                into.advance(len);
                return Poll::Ready(Ok(()));
            }
        };
        loop {
            let mut guard = ready!(input.poll_read_ready(cx))?;
            match guard.try_io(|input| read_now(input.as_fd(), into.initialize_unfilled(), may_block)) {
                Ok(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Ok(outcome) => {
                    let (len, is_emptied) = outcome?;
                    into.advance(len);
                    if is_emptied {
                        // The next bytes are an event of their own.
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(_would_block) => {}
            }
        }
    }
}

/// Registers a descriptor with the event loop.
#[expect(
    deprecated,
    reason = "what replaced it is unsafe for the sake of types that change their descriptor, which this one cannot"
)]
fn register(descriptor: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>, AsyncFdRegisterError<OwnedFd>> {
    AsyncFd::try_with_interest(descriptor, interest)
}

/// Reads without waiting. Returns the number of bytes, and whether the input is empty for certain.
fn read_now(input: BorrowedFd<'_>, into: &mut [u8], may_block: bool) -> io::Result<(usize, bool)> {
    let read = if may_block {
        nowait::read(input, &mut *into)
    } else {
        rustix::io::read(input, &mut *into)
    };
    match read {
        Err(Errno::OPNOTSUPP) if !is_ready(input, PollFlags::IN)? => Err(ErrorKind::WouldBlock.into()),
        // A terminal gives one line at a time.
        Err(Errno::OPNOTSUPP) => Ok((rustix::io::read(input, into)?, false)),
        // At the end of the input there is always something to read: the end.
        read => read
            .map(|len| (len, len > 0 && len < into.len()))
            .map_err(io::Error::from),
    }
}

/// Reads and writes that do not wait, although the descriptor would. Linux has them for pipes and sockets (`RWF_NOWAIT`,
/// 6.4 and 6.5), not for terminals.
#[cfg(target_os = "linux")]
mod nowait {
    use std::{
        io::{IoSlice, IoSliceMut},
        os::fd::BorrowedFd,
    };

    use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};

    /// The offset of a stream.
    const NONE: u64 = u64::MAX;

    pub fn read(input: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
        preadv2(input, &mut [IoSliceMut::new(into)], NONE, ReadWriteFlags::NOWAIT)
    }

    pub fn write(output: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
        pwritev2(output, &[IoSlice::new(bytes)], NONE, ReadWriteFlags::NOWAIT)
    }
}

#[cfg(not(target_os = "linux"))]
mod nowait {
    use std::os::fd::BorrowedFd;

    use rustix::io::Errno;

    pub fn read(_: BorrowedFd<'_>, _: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    pub fn write(_: BorrowedFd<'_>, _: &[u8]) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }
}

/// Whether a descriptor is ready, or has an end that the next operation tells.
fn is_ready(descriptor: BorrowedFd<'_>, event: PollFlags) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, event)];
    Ok(poll(&mut polled, Some(&Timespec::default()))? > 0)
}

impl AsyncRead for DescriptorStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.input.poll_read(cx, into, self.may_block)
    }
}

impl AsyncWrite for DescriptorStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = match &self.room {
                Some(room) => Some(ready!(room.poll_write_ready(cx))?),
                None => None,
            };
            match self.write_now(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if let Some(guard) = &mut guard {
                        guard.clear_ready();
                    } else {
                        let output = self.output().try_clone_to_owned()?;
                        self.room = Some(register(output, Interest::WRITABLE)?);
                    }
                }
                written => {
                    if written.as_ref().is_ok_and(|len| *len == bytes.len()) {
                        self.room = None;
                    }
                    return Poll::Ready(written);
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(
            match rustix::net::shutdown(self.output(), rustix::net::Shutdown::Write) {
                // A pipe ends with the process.
                Ok(()) | Err(Errno::NOTSOCK) => Ok(()),
                Err(error) => Err(error.into()),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _};

    use rustix::{
        fs::{OFlags, fcntl_getfl},
        pipe::{PipeFlags, pipe_with},
    };
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// More than a pipe or a socket holds.
    const LARGE: usize = 1_000_000;

    fn pipe() -> (OwnedFd, OwnedFd) {
        pipe_with(PipeFlags::CLOEXEC).unwrap()
    }

    /// A stream of two pipes, and their other ends: to write to, and to read from.
    fn piped() -> (DescriptorStream, File, OwnedFd) {
        let ((input, to), (from, output)) = (pipe(), pipe());
        (DescriptorStream::of_shared(input, output).unwrap(), to.into(), from)
    }

    async fn read_all(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
        let mut read = Vec::new();
        stream.read_to_end(&mut read).await.unwrap();
        read
    }

    fn bytes() -> Vec<u8> {
        (0..LARGE).map(|n| (n % 251) as u8).collect()
    }

    #[actix_rt::test]
    async fn shared_descriptors_carry_more_than_they_hold_and_stay_blocking() {
        let (mut stream, mut to, from) = piped();
        let writing = std::thread::spawn(move || to.write_all(&bytes()).unwrap());
        let mut read = vec![0; LARGE];
        stream.read_exact(&mut read).await.unwrap();
        assert!(read == bytes());
        writing.join().unwrap();
        assert_eq!(stream.read(&mut read).await.unwrap(), 0);

        let (none, _to) = pipe();
        let reading = actix_rt::spawn(read_all(DescriptorStream::of_shared(from, none).unwrap()));
        for descriptor in [stream.output(), stream.input.as_fd()] {
            assert!(!fcntl_getfl(descriptor).unwrap().contains(OFlags::NONBLOCK));
        }
        stream.write_all(&bytes()).await.unwrap();
        drop(stream);
        assert!(reading.await.unwrap() == bytes());
    }

    #[actix_rt::test]
    async fn room_is_awaited_only_while_there_is_none() {
        let (own, other) = UnixStream::pair().unwrap();
        let mut stream = DescriptorStream::of_socket(own).unwrap();
        stream.write_all(b"fits").await.unwrap();
        assert!(stream.room.is_none());
        let mut written = 0;
        let waits = std::future::poll_fn(|cx| {
            Poll::Ready(loop {
                match Pin::new(&mut stream).poll_write(cx, &[1; 4_096]) {
                    Poll::Ready(len) => written += len.unwrap(),
                    Poll::Pending => break true,
                }
            })
        });
        assert!(waits.await);
        assert!(stream.room.is_some());
        let reading = actix_rt::spawn(read_all(DescriptorStream::of_socket(other).unwrap()));
        stream.write_all(b"last").await.unwrap();
        assert!(stream.room.is_none());
        stream.shutdown().await.unwrap();
        assert_eq!(reading.await.unwrap().len(), 4 + written + 4);
    }

    #[cfg(target_os = "linux")]
    #[actix_rt::test]
    async fn the_end_of_the_input_is_told_before_its_bytes_are_read() {
        let (mut stream, mut to, _from) = piped();
        to.write_all(b"unread").unwrap();
        drop(to);
        stream.input_end().await;
        let mut read = [0; 6];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"unread");
    }

    #[actix_rt::test]
    async fn an_output_without_a_reader_has_hung_up() {
        let (stream, _to, from) = piped();
        assert!(!stream.is_hung_up());
        drop(from);
        assert!(stream.is_hung_up());
    }
}
