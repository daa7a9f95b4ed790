//! Whether the program at the other end of a stream has gone, for code that has nothing to read or to write.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether the kernel reports that the other end of a pipe, FIFO or socket is closed. Never waits.
pub fn is_hung_up(stream: impl AsFd) -> bool {
    reports(stream, PollFlags::HUP | PollFlags::ERR)
}

/// Whether the kernel reports that the other end of a connection sends nothing more, also while earlier bytes of it are not
/// read. Never waits. Other kernels than Linux report a closed connection only.
pub fn has_ended(connection: impl AsFd) -> bool {
    #[cfg(target_os = "linux")]
    const ENDED: PollFlags = PollFlags::HUP.union(PollFlags::ERR).union(PollFlags::RDHUP);
    #[cfg(not(target_os = "linux"))]
    const ENDED: PollFlags = PollFlags::HUP.union(PollFlags::ERR);
    reports(connection, ENDED)
}

fn reports(stream: impl AsFd, events: PollFlags) -> bool {
    let mut polled = [PollFd::new(&stream, events)];
    let answered = poll(&mut polled, Some(&Timespec::default())).is_ok();
    answered && polled[0].revents().intersects(events)
}
