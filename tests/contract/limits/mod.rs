//! Bounds: requests, connections, bytes in flight and stored, pages, and the cost of one call.

use std::{io, net::TcpStream};

mod budgets;
mod bytes_in_flight;
mod fair_share;
mod page_bytes;
mod paging;
mod rates;
mod rest_bytes_in_flight;
mod worst_administration;
mod worst_calls;
mod worst_frames;
mod worst_lenses;
mod worst_questions;

/// How many of the first bytes of an answer have come, read without taking them: zero at the end of the connection, and an
/// error of the kind `WouldBlock` while neither is there.
fn peek_at_once(socket: &TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
    socket.set_nonblocking(true).unwrap();
    let peeked = socket.peek(bytes);
    socket.set_nonblocking(false).unwrap();
    peeked
}
