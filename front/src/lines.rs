//! Splits the bytes of a stream, which the caller reads, into lines. Pure.

use memchr::{memchr, memrchr};

use api::mcp::skipped_frame::SkippedFrame;

/// Bytes of the buffer while lines are short.
const BUFFER_LEN: usize = 16 * 1024;

/// The buffer of one stream. It grows for a long line and shrinks after it.
pub struct Lines {
    buffer: Vec<u8>,
    /// Where the bytes that were read end.
    end: usize,
    /// Bytes before this position have no line break.
    searched: usize,
    /// Bytes of the whole lines at the beginning.
    done: usize,
    len_max: usize,
    /// The current line, if it is too long.
    skipped: Option<SkippedFrame>,
}

/// What a read has brought, in its order.
#[derive(Debug, Default)]
pub struct Brought<'a> {
    /// A line that was too long has ended.
    pub too_long: Option<SkippedFrame>,
    /// Whole lines, each with its line break. Empty if the read has ended no other line.
    pub lines: &'a [u8],
}

impl Lines {
    /// A buffer for lines of at most `len_max` bytes.
    pub fn new(len_max: usize) -> Self {
        Self {
            buffer: vec![0; BUFFER_LEN],
            end: 0,
            searched: 0,
            done: 0,
            len_max,
            skipped: None,
        }
    }

    /// The free end of the buffer, never empty.
    pub fn free(&mut self) -> &mut [u8] {
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// Takes note of `len` bytes in the free end. [`Self::consume`] must follow.
    pub fn filled(&mut self, len: usize) -> Brought<'_> {
        self.end += len;
        let mut too_long = None;
        if let Some(mut skipped) = self.skipped.take() {
            let read = self.buffer.get(..self.end).unwrap_or_default();
            let Some(at) = memchr(b'\n', read) else {
                skipped.skip(read);
                self.skipped = Some(skipped);
                self.end = 0;
                return Brought::default();
            };
            skipped.skip(&read[..at]);
            too_long = Some(skipped);
            self.buffer.copy_within(at + 1..self.end, 0);
            self.end -= at + 1;
        }
        let new = self.buffer.get(self.searched..self.end).unwrap_or_default();
        if let Some(at) = memrchr(b'\n', new) {
            self.done = self.searched + at + 1;
            let lines = self.buffer.get(..self.done).unwrap_or_default();
            return Brought { too_long, lines };
        }
        if self.end > self.len_max {
            let line = self.buffer.get(..self.end).unwrap_or_default();
            self.skipped = Some(SkippedFrame::beginning_with(line));
            self.end = 0;
        }
        Brought { too_long, lines: &[] }
    }

    /// Discards what the last [`Self::filled`] has returned.
    pub fn consume(&mut self) {
        self.buffer.copy_within(self.done..self.end, 0);
        self.end -= self.done;
        self.done = 0;
        self.searched = self.end;
        if self.buffer.len() > BUFFER_LEN && self.end <= BUFFER_LEN / 2 {
            self.buffer.truncate(BUFFER_LEN);
            self.buffer.shrink_to_fit();
        }
    }

    /// The last line, which has no line break, at the end of the stream.
    pub fn rest(&mut self) -> Brought<'_> {
        Brought {
            too_long: self.skipped.take(),
            lines: self.buffer.get(..self.end).unwrap_or_default(),
        }
    }
}

/// The lines in these bytes, without their line breaks. Empty lines are left out.
pub fn split(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = lines.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds a text in parts, and returns the lines and the number of those that were too long.
    fn fed(text: &[u8], parts: &[usize], len_max: usize) -> (Vec<Vec<u8>>, usize, Vec<u8>) {
        let (mut lines, mut found, mut refused) = (Lines::new(len_max), Vec::new(), 0);
        let (mut rest, mut parts) = (text, parts.iter().cycle());
        while !rest.is_empty() {
            let free = lines.free();
            let len = (*parts.next().unwrap()).min(rest.len()).min(free.len());
            free[..len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
            let brought = lines.filled(len);
            refused += usize::from(brought.too_long.is_some());
            found.extend(split(brought.lines).map(<[u8]>::to_vec));
            lines.consume();
        }
        (found, refused, lines.rest().lines.to_vec())
    }

    #[test]
    fn a_long_line_is_refused_without_being_kept() {
        let long = [vec![b'x'; 10_000_000], b"\nshort\n".to_vec()].concat();
        let mut lines = Lines::new(100_000);
        let mut rest = long.as_slice();
        let mut found = Vec::new();
        while !rest.is_empty() {
            let free = lines.free();
            let len = rest.len().min(free.len());
            free[..len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
            found.extend(split(lines.filled(len).lines).map(<[u8]>::to_vec));
            lines.consume();
            assert!(lines.buffer.len() <= 2 * 131_072);
        }
        assert_eq!(found, [b"short"]);
        assert_eq!(lines.buffer.len(), BUFFER_LEN);
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_they_arrive(
            lens in proptest::collection::vec(0usize..40_000, 0..12),
            parts in proptest::collection::vec(1usize..30_000, 1..6),
            tail in 0usize..100,
        ) {
            let lines: Vec<Vec<u8>> = lens.iter().enumerate().map(|(at, len)| {
                vec![b'a' + u8::try_from(at).unwrap(); *len]
            }).collect();
            let mut text: Vec<u8> = lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect();
            text.extend(vec![b'z'; tail]);
            let (found, refused, rest) = fed(&text, &parts, 1 << 20);
            let expected: Vec<_> = lines.into_iter().filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!((refused, rest.len()), (0, tail));
        }

        #[test]
        fn a_line_that_is_too_long_costs_only_itself(
            lens in proptest::collection::vec(prop_oneof![1usize..100, 70_000usize..90_000], 1..8),
            parts in proptest::collection::vec(1usize..9_000, 1..6),
        ) {
            let text: Vec<u8> = lens.iter().flat_map(|len| [vec![b'x'; *len], b"\n".to_vec()].concat()).collect();
            let (found, refused, _) = fed(&text, &parts, 20_000);
            let short = lens.iter().filter(|len| **len < 100).count();
            prop_assert_eq!((found.len(), refused), (short, lens.len() - short));
        }
    }
}
