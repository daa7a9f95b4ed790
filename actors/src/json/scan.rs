//! A lazy scanner: finds the members of a JSON object as slices of the text, without building values.
//!
//! It skips values and does not check them: it counts brackets and respects strings. Every slice must be read by a real
//! parser or passed to [`check`] before a frame counts as JSON. It guarantees that it recurses at most [`LEVELS_MAX`]
//! levels, never reads a byte twice at one level, and refuses text that is nested too deeply before any recursive
//! parser sees it.

use std::borrow::Cow;

use memchr::memchr2;

/// Deepest nesting of arrays and objects in a frame.
pub const DEPTH_MAX: usize = 100;

/// Why a text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanError {
    /// The text is not JSON of the expected kind.
    Syntax,
    /// Nested deeper than [`DEPTH_MAX`].
    TooDeep,
}

/// Calls `member` with the key and the raw value of each member of an object, in order.
///
/// # Errors
/// `Syntax` if the text is not exactly one object, `TooDeep` past [`DEPTH_MAX`], and the errors of `member`.
pub fn members<'a, E: From<ScanError>>(
    text: &'a str,
    mut member: impl FnMut(Cow<'a, str>, &'a str) -> Result<(), E>,
) -> Result<(), E> {
    walk(text, |_, _| false, |_, key, value| member(key, value))
}

/// As [`members`], for a text that may be nested as deeply as it likes. No recursive parser without a limit of its own may
/// read the values.
///
/// # Errors
/// `Syntax`, and the errors of `member`.
pub fn deep_members<'a, E: From<ScanError>>(
    text: &'a str,
    mut member: impl FnMut(Cow<'a, str>, &'a str) -> Result<(), E>,
) -> Result<(), E> {
    walk_whole(text, usize::MAX, |_, _| false, &mut |_, key, value| member(key, value))
}

/// As [`members`], and enters the member objects that `enter` selects by level and key: their members are reported with
/// the next level, before the object itself. So nested objects are found in one pass.
///
/// # Errors
/// As [`members`].
pub fn walk<'a, E: From<ScanError>>(
    text: &'a str,
    enter: fn(usize, &str) -> bool,
    mut member: impl FnMut(usize, Cow<'a, str>, &'a str) -> Result<(), E>,
) -> Result<(), E> {
    walk_whole(text, DEPTH_MAX, enter, &mut member)
}

fn walk_whole<'a, E: From<ScanError>>(
    text: &'a str,
    depth_max: usize,
    enter: fn(usize, &str) -> bool,
    member: &mut impl FnMut(usize, Cow<'a, str>, &'a str) -> Result<(), E>,
) -> Result<(), E> {
    let mut scan = Scan { text, at: 0, depth_max };
    scan.object(0, enter, member)?;
    if scan.peek().is_some() {
        Err(ScanError::Syntax.into())
    } else {
        Ok(())
    }
}

/// Levels that [`walk`] enters at most, because it recurses for them.
const LEVELS_MAX: usize = 3;

/// Calls `element` with the raw value of each element of an array, in order.
///
/// # Errors
/// As [`members`], for an array.
pub fn elements<'a, E: From<ScanError>>(text: &'a str, element: impl FnMut(&'a str) -> Result<(), E>) -> Result<(), E> {
    elements_within(text, DEPTH_MAX, element)
}

/// As [`elements`], for a text that may be nested as deeply as it likes; see [`deep_members`].
///
/// # Errors
/// As [`deep_members`], for an array.
pub fn deep_elements<'a, E: From<ScanError>>(
    text: &'a str,
    element: impl FnMut(&'a str) -> Result<(), E>,
) -> Result<(), E> {
    elements_within(text, usize::MAX, element)
}

fn elements_within<'a, E: From<ScanError>>(
    text: &'a str,
    depth_max: usize,
    mut element: impl FnMut(&'a str) -> Result<(), E>,
) -> Result<(), E> {
    let mut scan = Scan { text, at: 0, depth_max };
    scan.expect(b'[')?;
    if scan.peek() == Some(b']') {
        scan.at += 1;
    } else {
        loop {
            let value = scan.value()?;
            element(value)?;
            match scan.next()? {
                b',' => {}
                b']' => break,
                _ => return Err(ScanError::Syntax.into()),
            }
        }
    }
    if scan.peek().is_some() {
        Err(ScanError::Syntax.into())
    } else {
        Ok(())
    }
}

/// Checks with a real parser that the text is one JSON value.
///
/// # Errors
/// `Syntax` if it is not.
pub fn check(text: &str) -> Result<(), ScanError> {
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map(drop)
        .map_err(|_| ScanError::Syntax)
}

/// The string that a raw JSON string encodes; `None` if it is not one.
pub fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if plain_len(inner.as_bytes()) == inner.len() {
        Some(Cow::Borrowed(inner))
    } else {
        serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
    }
}

/// The number of bytes before the first quote, backslash or control character: all of them if there is none.
fn plain_len(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let plain = plain_len_of_word(*word);
        if plain < word.len() {
            return at * word.len() + plain;
        }
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    bytes.len() - rest.len() + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// As [`plain_len`], for a word: all its bytes are compared at once.
fn plain_len_of_word(word: [u8; 8]) -> usize {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let word = u64::from_le_bytes(word);
    // Sets the high bit of each byte below `limit`, which is ASCII. A borrow may set it in bytes after the first such one, too.
    let below = |word: u64, limit: u8| word.wrapping_sub(LOW * u64::from(limit)) & !word & HIGH;
    let equals = |byte: u8| below(word ^ (LOW * u64::from(byte)), 1);
    let special = below(word, 0x20) | equals(b'"') | equals(b'\\');
    special.trailing_zeros() as usize / 8
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    depth_max: usize,
}

impl<'a> Scan<'a> {
    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    fn object<E: From<ScanError>>(
        &mut self,
        level: usize,
        enter: fn(usize, &str) -> bool,
        member: &mut impl FnMut(usize, Cow<'a, str>, &'a str) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{')?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.key()?;
            self.expect(b':')?;
            let value = if self.peek() == Some(b'{') && level < LEVELS_MAX && enter(level, &key) {
                let start = self.at;
                self.object(level + 1, enter, member)?;
                self.slice(start).ok_or(ScanError::Syntax)?
            } else {
                self.value()?
            };
            member(level, key, value)?;
            match self.next()? {
                b',' => {}
                b'}' => return Ok(()),
                _ => return Err(ScanError::Syntax.into()),
            }
        }
    }

    /// The next byte that is not white space, without consuming it.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.bytes();
        while let Some(&byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    fn next(&mut self) -> Result<u8, ScanError> {
        let byte = self.peek().ok_or(ScanError::Syntax)?;
        self.at += 1;
        Ok(byte)
    }

    fn expect(&mut self, wanted: u8) -> Result<(), ScanError> {
        if self.next()? == wanted {
            Ok(())
        } else {
            Err(ScanError::Syntax)
        }
    }

    fn key(&mut self) -> Result<Cow<'a, str>, ScanError> {
        if self.peek() != Some(b'"') {
            return Err(ScanError::Syntax);
        }
        let start = self.at;
        let plain = self.skip_string()?;
        let raw = self.slice(start).ok_or(ScanError::Syntax)?;
        match raw.get(1..raw.len() - 1) {
            // Unknown keys are never parsed, so control characters in a key are detected here.
            Some(inner) if plain => Ok(Cow::Borrowed(inner)),
            _ => string(raw).ok_or(ScanError::Syntax),
        }
    }

    fn value(&mut self) -> Result<&'a str, ScanError> {
        let first = self.peek().ok_or(ScanError::Syntax)?;
        let start = self.at;
        match first {
            b'"' => drop(self.skip_string()?),
            b'{' | b'[' => self.skip_container()?,
            _ => self.skip_scalar()?,
        }
        self.slice(start).ok_or(ScanError::Syntax)
    }

    /// `None` would mean a boundary inside a character, which cannot occur: scanning stops at ASCII bytes only.
    fn slice(&self, start: usize) -> Option<&'a str> {
        self.text.get(start..self.at)
    }

    /// From an opening quote to after the closing one. True if the string is short and has neither escapes nor control characters.
    fn skip_string(&mut self) -> Result<bool, ScanError> {
        let bytes = self.bytes();
        self.at += 1;
        let mut plain = true;
        loop {
            // Most strings are short, and escapes come together: continuing word by word costs less than setting up a wide
            // search.
            for _ in 0..8 {
                let rest = bytes.get(self.at..).ok_or(ScanError::Syntax)?;
                let len = match rest.first_chunk() {
                    Some(word) => plain_len_of_word(*word),
                    None => plain_len(rest),
                };
                self.at += len;
                match rest.get(len) {
                    Some(b'"') => {
                        self.at += 1;
                        return Ok(plain);
                    }
                    Some(b'\\') => {
                        plain = false;
                        self.at += 2;
                    }
                    Some(0..0x20) => {
                        plain = false;
                        self.at += 1;
                    }
                    _ => {}
                }
            }
            plain = false;
            let rest = bytes.get(self.at..).ok_or(ScanError::Syntax)?;
            self.at += memchr2(b'"', b'\\', rest).ok_or(ScanError::Syntax)?;
        }
    }

    /// From an opening bracket to after the matching one.
    fn skip_container(&mut self) -> Result<(), ScanError> {
        let bytes = self.bytes();
        let mut depth = 0;
        loop {
            match bytes.get(self.at).ok_or(ScanError::Syntax)? {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => {
                    depth += 1;
                    if depth > self.depth_max {
                        return Err(ScanError::TooDeep);
                    }
                }
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// A number or a literal, up to the byte after it.
    fn skip_scalar(&mut self) -> Result<(), ScanError> {
        let bytes = self.bytes();
        let start = self.at;
        while bytes
            .get(self.at)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
        {
            self.at += 1;
        }
        if self.at == start {
            Err(ScanError::Syntax)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str) -> Result<Vec<(String, String)>, ScanError> {
        let mut found = Vec::new();
        members(text, |key, value| {
            found.push((key.into_owned(), value.to_owned()));
            Ok::<_, ScanError>(())
        })
        .map(|()| found)
    }

    #[test]
    fn members_are_slices_of_the_text() {
        let text = r#" {"a" : 1.5e-3, "b\u0063":"x\"}", "d":{"e":[1,{"f":"]"}]} ,"g":null} "#;
        let expected = [
            ("a", "1.5e-3"),
            ("bc", r#""x\"}""#),
            ("d", r#"{"e":[1,{"f":"]"}]}"#),
            ("g", "null"),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        assert_eq!(scanned(text).unwrap(), expected);
        assert_eq!(scanned("{}").unwrap(), vec![]);
    }

    #[test]
    fn escapes_end_no_string_wherever_they_are() {
        for before in 0..40 {
            for escapes in [1, 2, 15, 16, 17, 40] {
                let inner = format!("{}{}", "x".repeat(before), r#"\""#.repeat(escapes));
                let text = format!(r#"{{"a":"{inner}","{inner}":1}}"#);
                let found = scanned(&text).unwrap();
                assert_eq!(found[0].1, format!("\"{inner}\""));
                assert_eq!(found[1], (inner.replace('\\', ""), "1".to_owned()));
            }
        }
    }

    #[test]
    fn the_first_special_byte_ends_the_plain_ones_whatever_surrounds_it() {
        for len in 0..20 {
            let plain = vec![b'!'; len];
            assert_eq!(plain_len(&plain), len);
            for (at, special) in (0..len).flat_map(|at| (0..=255).map(move |byte| (at, byte))) {
                for around in [b'!', b'#', b']', b'[', 0x7f, 0x80, 0xff] {
                    let mut bytes = vec![around; len];
                    bytes[at] = special;
                    bytes[len - 1] = if at == len - 1 { special } else { b'"' };
                    let is_special = |byte: &u8| *byte < 0x20 || b"\"\\".contains(byte);
                    let expected = bytes.iter().position(is_special).unwrap_or(len);
                    assert_eq!(plain_len(&bytes), expected, "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn a_text_that_is_not_an_object_is_refused() {
        for bad in [
            "",
            "[]",
            "1",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1}x",
            "{a:1}",
            "{\"a\":\"",
            "{\"a\":1 2}",
            "{,}",
            "{\"\\",
            "{\"a\nb\":1}",
        ] {
            assert_eq!(scanned(bad), Err(ScanError::Syntax), "{bad}");
        }
    }

    #[test]
    fn a_walk_enters_only_the_selected_members() {
        let text = r#"{"p":{"q":{"r":1},"s":{"t":2}},"u":{"q":{}},"q":3}"#;
        let mut found = Vec::new();
        let enter = |level: usize, key: &str| (level, key) == (0, "p") || (level, key) == (1, "q");
        walk(text, enter, |level, key, value| {
            found.push(format!("{level} {key} {value}"));
            Ok::<_, ScanError>(())
        })
        .unwrap();
        let expected = [
            "2 r 1",
            r#"1 q {"r":1}"#,
            r#"1 s {"t":2}"#,
            r#"0 p {"q":{"r":1},"s":{"t":2}}"#,
            r#"0 u {"q":{}}"#,
            "0 q 3",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn nesting_is_bounded_without_recursion() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(DEPTH_MAX + 1), "]".repeat(DEPTH_MAX + 1));
        assert_eq!(scanned(&deep), Err(ScanError::TooDeep));
        let huge = format!("{{\"a\":{}", "[".repeat(1_000_000));
        assert_eq!(scanned(&huge), Err(ScanError::TooDeep));
        let fine = format!("{{\"a\":{}{}}}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert!(scanned(&fine).is_ok());
        assert_eq!(deep_members(&deep, |_, _| Ok::<_, ScanError>(())), Ok(()));
        assert_eq!(
            deep_members(&huge, |_, _| Ok::<_, ScanError>(())),
            Err(ScanError::Syntax)
        );
    }
}
