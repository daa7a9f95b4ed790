//! The standard streams of the front. Only [`Stdout`] reaches the real stdout: all other output of the process goes to
//! stderr, so that a client reads nothing but frames.

use std::{
    fs::OpenOptions,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, PoisonError},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

/// The real stdout.
pub struct Stdout {
    stream: OwnedFd,
    turn: Mutex<()>,
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
            turn: Mutex::new(()),
        }
    }

    /// Held by the thread that writes.
    pub fn turn(&self) -> &Mutex<()> {
        &self.turn
    }

    /// Writes whole frames, each with its line break. Frames of several threads do not mix.
    ///
    /// # Errors
    /// The client no longer reads.
    pub fn write(&self, frames: &[u8]) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        write_all(self.stream.as_fd(), frames)
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
