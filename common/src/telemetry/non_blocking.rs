//! A log on stderr whose writers never wait. A thread writes it; when nothing reads stderr, as at a stopped terminal, lines
//! wait, and further ones are dropped and counted.

use std::{
    fs::File,
    io::{self, Write, stderr},
    mem::take,
    os::fd::AsFd,
    sync::{Arc, Condvar, PoisonError},
    thread,
    time::Duration,
};

use actors::locked::Locked;

use rustix::event::{PollFd, PollFlags, poll};
use tracing_subscriber::fmt::MakeWriter;

use super::logs::{format_line, is_json};
use crate::config::Config;

/// Bytes of lines that wait. As many are being written at the same time.
const WAITING_MAX: usize = 256 * 1024;
/// How long the end of the process waits for the lines before it.
const LAST_LINES_TIME_MAX: Duration = Duration::from_millis(200);

/// A log that a thread writes. Dropping it waits a moment until all is written.
pub struct NonBlockingLog(NonBlockingWriter);

/// Gives lines to the thread of a [`NonBlockingLog`].
#[derive(Clone)]
pub struct NonBlockingWriter(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Locked<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Lines that did not fit behind those that wait.
    dropped: u64,
    is_writing: bool,
    is_closed: bool,
}

impl State {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0
    }
}

impl NonBlockingLog {
    /// A log on stderr. `notice` is the line that tells how many lines before it were dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn on_stderr(notice: impl Fn(u64) -> String + Send + 'static) -> io::Result<Self> {
        Self::start(File::from(stderr().as_fd().try_clone_to_owned()?), notice)
    }

    fn start(output: File, notice: impl Fn(u64) -> String + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let writer = NonBlockingWriter(Arc::clone(&shared));
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || shared.write_to(&output, notice))?;
        Ok(Self(writer))
    }

    /// What gives lines to it.
    pub fn writer(&self) -> NonBlockingWriter {
        self.0.clone()
    }

    /// Prints a line about the start or the end, for every `log_level`.
    pub fn print_status(&self, config: &Config, level: &str, line: &str) {
        self.write_line(&format_line(is_json(config), level, line));
    }

    fn write_line(&self, line: &str) {
        self.0.0.push(format!("{line}\n").as_bytes());
    }

    /// Waits until all is written, at most this long.
    fn flush(&self, at_most: Duration) {
        let Shared { state, changed } = &*self.0.0;
        let state = state.lock();
        let is_busy = |state: &mut State| state.is_writing || !state.is_empty();
        drop(changed.wait_timeout_while(state, at_most, is_busy));
    }
}

impl Drop for NonBlockingLog {
    fn drop(&mut self) {
        self.0.0.state.lock().is_closed = true;
        self.0.0.changed.notify_all();
        self.flush(LAST_LINES_TIME_MAX);
    }
}

impl Shared {
    fn push(&self, lines: &[u8]) {
        let mut state = self.state.lock();
        if state.dropped > 0 || state.waiting.len() + lines.len() > WAITING_MAX {
            // Until those before them are on their way, so that the notice is where lines are missing.
            state.dropped += 1;
        } else {
            state.waiting.extend_from_slice(lines);
        }
        self.changed.notify_all();
    }

    fn write_to(&self, output: &File, notice: impl Fn(u64) -> String) {
        loop {
            let mut state = self.state.lock();
            state.is_writing = false;
            self.changed.notify_all();
            let is_idle = |state: &mut State| state.is_empty() && !state.is_closed;
            let mut state = self
                .changed
                .wait_while(state, is_idle)
                .unwrap_or_else(PoisonError::into_inner);
            if state.is_empty() {
                return;
            }
            state.is_writing = true;
            let (mut lines, dropped) = (take(&mut state.waiting), take(&mut state.dropped));
            drop(state);
            if dropped > 0 {
                lines.extend_from_slice(format!("{}\n", notice(dropped)).as_bytes());
            }
            write_all(output, &lines);
        }
    }
}

/// Writes to an output that may be one that does not wait: it is shared with other processes. An output that has gone takes
/// nothing.
fn write_all(mut output: &File, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(len @ 1..) => bytes = &bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut polled = [PollFd::new(&output, PollFlags::OUT)];
                let _ = poll(&mut polled, None);
            }
            Ok(0) | Err(_) => return,
        }
    }
}

impl Write for NonBlockingWriter {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.0.push(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for NonBlockingWriter {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, pipe},
        os::fd::OwnedFd,
    };

    use super::*;

    #[test]
    fn lines_are_dropped_and_counted_while_nothing_is_read_and_written_again_afterwards() {
        const LINES: usize = 100_000;
        let (mut reader, writer) = pipe().unwrap();
        let output = File::from(OwnedFd::from(writer));
        let log = NonBlockingLog::start(output, |dropped| format!("dropped {dropped}")).unwrap();
        for at in 0..LINES {
            log.writer().write_all(format!("line {at}\n").as_bytes()).unwrap();
        }
        let read = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        log.flush(Duration::MAX);
        log.write_line("after");
        drop(log);
        let text = read.join().unwrap();
        let mut next = 0;
        let mut dropped = 0;
        for line in text.strip_suffix("after\n").unwrap().lines() {
            if let Some(number) = line.strip_prefix("dropped ") {
                let number: usize = number.parse().unwrap();
                (next, dropped) = (next + number, dropped + number);
            } else {
                assert_eq!(line, format!("line {next}"));
                next += 1;
            }
        }
        assert_eq!(next, LINES);
        assert!(dropped > LINES / 10, "{dropped}");
    }

    #[test]
    fn a_line_that_is_too_long_is_dropped_alone() {
        let (mut reader, writer) = pipe().unwrap();
        let log = NonBlockingLog::start(File::from(OwnedFd::from(writer)), |dropped| {
            format!("dropped {dropped}")
        })
        .unwrap();
        log.write_line(&"x".repeat(WAITING_MAX));
        log.flush(Duration::MAX);
        log.write_line("after");
        drop(log);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "dropped 1\nafter\n");
    }

    #[test]
    fn an_output_that_has_gone_holds_nothing_up() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let log = NonBlockingLog::start(File::from(OwnedFd::from(writer)), |_| String::new()).unwrap();
        log.write_line("lost");
        log.flush(Duration::MAX);
    }
}
