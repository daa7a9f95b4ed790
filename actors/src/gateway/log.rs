//! What a backend has written to its stderr: the last lines, for operators and for the reasons of errors.

use std::collections::VecDeque;

use crate::locked::Locked;

/// Bytes that are kept of one backend.
const BYTES_MAX: usize = 256 * 1024;

/// The last lines of one backend. It outlives the processes.
#[derive(Debug, Default)]
pub struct BackendLog(Locked<Kept>);

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<LogLine>,
    bytes: usize,
    next: u64,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its number, counted from the start of the broker.
    pub number: u64,
    /// When it was read, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Without its line break.
    pub text: Box<str>,
}

/// What a line takes, also an empty one.
fn bytes_of(text: &str) -> usize {
    text.len() + size_of::<LogLine>()
}

impl BackendLog {
    /// Adds a line. The oldest make room.
    pub fn push(&self, text: &str, at_ms: u64) {
        let mut log = self.0.lock();
        let number = log.next;
        log.next += 1;
        log.bytes += bytes_of(text);
        log.lines.push_back(LogLine {
            number,
            at_ms,
            text: text.into(),
        });
        while log.bytes > BYTES_MAX
            && let Some(oldest) = log.lines.pop_front()
        {
            log.bytes -= bytes_of(&oldest.text);
        }
    }

    /// The lines from this number on.
    pub fn since(&self, number: u64) -> Vec<LogLine> {
        let log = self.0.lock();
        log.lines.iter().filter(|line| line.number >= number).cloned().collect()
    }

    /// The last line from this number on that is not empty.
    pub fn last_since(&self, number: u64) -> Option<String> {
        let log = self.0.lock();
        let mut lines = log.lines.iter().rev().take_while(|line| line.number >= number);
        lines
            .find(|line| !line.text.trim().is_empty())
            .map(|line| line.text.trim().to_owned())
    }

    /// The number of the next line.
    pub fn next_number(&self) -> u64 {
        self.0.lock().next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let log = BackendLog::default();
        let line = "x".repeat(1_000);
        for _ in 0..1_000 {
            log.push(&line, 1);
        }
        log.push("  ", 2);
        let kept = log.since(0);
        assert!(kept.iter().map(|line| line.text.len()).sum::<usize>() <= BYTES_MAX);
        assert_eq!(kept.last().map(|line| line.number), Some(1_000));
        assert_eq!(log.last_since(0), Some(line));
        assert_eq!(log.last_since(1_000), None);
        assert_eq!(log.next_number(), 1_001);
        for _ in 0..100_000 {
            log.push("", 3);
        }
        assert!(
            log.since(0).len() <= BYTES_MAX / size_of::<LogLine>(),
            "empty lines count too"
        );
    }
}
