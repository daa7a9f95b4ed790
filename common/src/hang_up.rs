//! Whether the program at the other end of a stream has gone, for code that has nothing to read or to write.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether the kernel reports that the other end of a pipe, FIFO or socket is closed. Never waits.
pub fn is_hung_up(stream: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&stream, PollFlags::empty())];
    let answered = poll(&mut polled, Some(&Timespec::default())).is_ok();
    answered && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
