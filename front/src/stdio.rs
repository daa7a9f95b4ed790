//! The standard streams of the front. Only [`Stdout`] reaches the real stdout: all other output of the process goes to
//! stderr, so that a client reads nothing but frames.

use std::{
    fs::OpenOptions,
    io, mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::MutexGuard,
    thread,
    time::{Duration, Instant},
};

use actors::locked::Locked;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// Bytes that a pipe takes at once when it is ready for output (`PIPE_BUF`; at least 512 by POSIX, 4096 on Linux).
const PIPE_ROOM: usize = 512;
/// How often the end of the front looks whether another thread still writes.
const WRITE_CHECK: Duration = Duration::from_millis(5);

/// The real stdout.
pub struct Stdout {
    stream: OwnedFd,
    turn: Locked<()>,
}

impl Stdout {
    /// Takes stdout away from the rest of the process, whose output goes to stderr from now on.
    ///
    /// # Errors
    /// The system refuses to copy the descriptor, for example because stdout is closed.
    pub fn take() -> io::Result<Self> {
        let stream = rustix::io::fcntl_dupfd_cloexec(io::stdout().as_fd(), 3)?;
        if rustix::stdio::dup2_stdout(io::stderr().as_fd()).is_err() {
            // Stderr is closed.
            rustix::stdio::dup2_stdout(OpenOptions::new().write(true).open("/dev/null")?.as_fd())?;
        }
        Ok(Self::new(stream))
    }

    /// Writes to this descriptor.
    pub fn new(stream: OwnedFd) -> Self {
        Self {
            stream,
            turn: Locked::new(()),
        }
    }

    /// The descriptor of the real stdout.
    pub fn into_descriptor(self) -> OwnedFd {
        self.stream
    }

    /// Writes whole frames, each with its line break. Frames of several threads do not mix.
    ///
    /// # Errors
    /// The client no longer reads.
    pub fn write(&self, frames: &[u8]) -> io::Result<()> {
        let _turn = self.turn.lock();
        write_all(self.stream.as_fd(), frames)
    }

    /// Waits until the frame that another thread writes is whole, keeps all later ones back, and writes the last frames.
    /// Gives up at a time, because the client may not read.
    pub fn write_last(&self, until: Instant, frames: impl FnOnce() -> Vec<u8>) {
        let Some(turn) = lock_until(&self.turn, until) else {
            return;
        };
        mem::forget(turn);
        for part in frames().chunks(PIPE_ROOM) {
            let mut polled = [PollFd::new(&self.stream, PollFlags::OUT)];
            let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap_or_default();
            if !matches!(poll(&mut polled, Some(&left)), Ok(1..)) || write_all(self.stream.as_fd(), part).is_err() {
                return;
            }
        }
    }
}

/// Waits until another thread has finished what it does under a lock.
pub fn lock_until(lock: &Locked<()>, until: Instant) -> Option<MutexGuard<'_, ()>> {
    loop {
        if let Some(guard) = lock.try_lock() {
            return Some(guard);
        }
        if Instant::now() >= until {
            return None;
        }
        thread::sleep(WRITE_CHECK);
    }
}

/// Writes all bytes, even where another process has made the descriptor non-blocking.
fn write_all(stream: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(stream, bytes) {
            Ok(len) => bytes = bytes.get(len..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for(stream, PollFlags::OUT)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reads what a descriptor has into the free end of a buffer; zero at its end.
///
/// # Errors
/// The descriptor cannot be read.
pub fn read(stream: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(stream, &mut *buffer) {
            Ok(len) => return Ok(len),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for(stream, PollFlags::IN)?,
            Err(error) => return Err(error.into()),
        }
    }
}

fn wait_for(stream: BorrowedFd<'_>, ready: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(stream, ready)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
