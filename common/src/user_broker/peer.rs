//! The process at the other end of a Unix socket, as the kernel knows it.

use std::{io, os::unix::net::UnixStream};

/// A process that listens or has connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProcess {
    pub uid: u32,
    /// The process that called `listen` or `connect`.
    pub pid: i32,
}

/// The process at the other end; `None` on systems that do not tell it to a blocking client, where the private folder of
/// the socket keeps other users away.
///
/// # Errors
/// The socket is not connected.
#[cfg(target_os = "linux")]
pub fn peer_of(stream: &UnixStream) -> io::Result<Option<PeerProcess>> {
    let credentials = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(Some(PeerProcess {
        uid: credentials.uid.as_raw(),
        pid: credentials.pid.as_raw_nonzero().get(),
    }))
}

/// `None`: the private folder of the socket keeps other users away.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn peer_of(_: &UnixStream) -> io::Result<Option<PeerProcess>> {
    Ok(None)
}
