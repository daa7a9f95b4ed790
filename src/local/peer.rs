//! The process at the other end of a Unix socket, as the kernel knows it.

use std::{io, os::unix::net::UnixStream};

/// A process that listens or has connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    /// The process that called `listen` or `connect`.
    pub pid: i32,
}

/// Who is at the other end; `None` on systems that do not tell a blocking client, whose private folder then vouches
/// for it.
///
/// # Errors
/// The socket is not connected.
#[cfg(target_os = "linux")]
pub fn peer_of(stream: &UnixStream) -> io::Result<Option<Peer>> {
    let credentials = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(Some(Peer {
        uid: credentials.uid.as_raw(),
        pid: credentials.pid.as_raw_nonzero().get(),
    }))
}

/// None: the private folder of the socket vouches for it.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn peer_of(_: &UnixStream) -> io::Result<Option<Peer>> {
    Ok(None)
}
