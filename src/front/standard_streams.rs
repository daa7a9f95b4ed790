//! Carries the bytes of stdin and stdout to and from a socket, for a server in the same process. Each way has a thread, so
//! that no line is lost to a reader that was given up.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::mpsc,
    time::Duration,
};

use super::{
    stdio::{self, Stdout},
    threads::spawn,
};

/// Bytes that are carried at once.
const BUFFER_LEN: usize = 64 * 1024;

/// Stdout while its thread writes.
pub struct Carried {
    ended: mpsc::Receiver<()>,
}

/// Starts to carry, and returns the other end of the socket. Its reader sees the end of stdin as the end of its input, once it
/// has read all before it; `on_end` is called at once.
///
/// # Errors
/// The system has no descriptor or thread left.
pub fn carry(stdout: Stdout, on_end: impl FnOnce() + Send + 'static) -> io::Result<(UnixStream, Carried)> {
    let (mut from_server, server) = UnixStream::pair()?;
    let mut to_server = from_server.try_clone()?;
    spawn("stdin", move || {
        let stdin = io::stdin();
        let mut buffer = vec![0; BUFFER_LEN];
        while let Ok(len @ 1..) = stdio::read(stdin.as_fd(), &mut buffer) {
            if to_server.write_all(&buffer[..len]).is_err() {
                return;
            }
        }
        let _ = to_server.shutdown(Shutdown::Write);
        on_end();
    })?;
    let (end, ended) = mpsc::channel();
    spawn("stdout", move || {
        let mut buffer = vec![0; BUFFER_LEN];
        while let Ok(len @ 1..) = from_server.read(&mut buffer) {
            if stdout.write(&buffer[..len]).is_err() {
                // The client reads nothing more: the server sees that its peer has gone.
                let _ = from_server.shutdown(Shutdown::Both);
                break;
            }
        }
        let _ = end.send(());
    })?;
    Ok((server, Carried { ended }))
}

impl Carried {
    /// Waits until the last bytes of the server are written, at most this long, because the client may not read.
    pub fn finish(self, at_most: Duration) {
        let _ = self.ended.recv_timeout(at_most);
    }
}
