//! Clients of a flood that begin a large message and never finish it.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use test_client::websocket::{LAST, TEXT, read_upgrade};

use super::{FloodState, SWITCH_DELAY_MAX};
use crate::target::Target;

const READ_TIMEOUT: Duration = Duration::from_millis(100);
/// Bytes that are written at once.
const CHUNK_LEN: usize = 64 * 1024;

/// One client that sends all of a message but its last byte, and waits. It reconnects when the broker closes the
/// connection.
pub fn client(target: &Target, len: usize, shared: &FloodState) {
    let mut open = None;
    while !shared.is_over() {
        if !shared.is_on() {
            open = None;
            thread::sleep(SWITCH_DELAY_MAX);
            continue;
        }
        let held = open
            .take()
            .map_or_else(|| begin(target, len), Ok)
            .and_then(|(mut socket, left)| {
                let left = write_filler(&mut socket, left)?;
                is_open(&mut socket).map(|()| (socket, left))
            });
        if let Ok(held) = held {
            open = Some(held);
        } else {
            FloodState::add(&shared.lost);
            thread::sleep(SWITCH_DELAY_MAX);
        }
    }
}

/// Connects and begins a text frame of `len` bytes. Returns how many of them remain to be sent.
fn begin(target: &Target, len: usize) -> io::Result<(TcpStream, usize)> {
    let mut socket = TcpStream::connect(target.address)?;
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    socket.set_write_timeout(Some(READ_TIMEOUT))?;
    socket.write_all(target.upgrade.as_bytes())?;
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    while read_upgrade(&answer)?.is_none() {
        match socket.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => answer.extend_from_slice(&chunk[..len]),
        }
    }
    let mut head = vec![LAST | TEXT, 0xff];
    head.extend_from_slice(&(len as u64).to_be_bytes());
    head.extend_from_slice(&[0; 4]);
    socket.write_all(&head)?;
    Ok((socket, len - 1))
}

/// Sends as much of the rest as the broker takes.
fn write_filler(socket: &mut TcpStream, mut left: usize) -> io::Result<usize> {
    static CHUNK: [u8; CHUNK_LEN] = [b' '; CHUNK_LEN];
    while left > 0 {
        match socket.write(&CHUNK[..left.min(CHUNK_LEN)]) {
            Ok(len) => left -= len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(left)
}

/// Reads pings of the broker until none arrives for [`READ_TIMEOUT`]. Fails when the connection is closed.
fn is_open(socket: &mut TcpStream) -> io::Result<()> {
    match socket.read(&mut [0; 1024]) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}
