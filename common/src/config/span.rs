//! What a rule for values is, and the rules for times and sizes. Both are whole numbers with a unit.

use std::{ops::RangeInclusive, time::Duration};

/// How a value looks on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One value, with this placeholder in the help.
    One(&'static str),
    /// `true` or `false`; the flag alone means `true`.
    Switch,
    /// Values separated by commas; the flag may be repeated.
    Many(&'static str),
}

/// The text is not allowed by a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAllowed;

/// Reads one kind of value.
pub trait Rule {
    type Value;
    const SHAPE: Shape;

    /// Reads a value.
    ///
    /// # Errors
    /// The text is not allowed.
    fn parse(&self, text: &str) -> Result<Self::Value, NotAllowed>;

    /// The allowed values, as the end of the sentence "allowed: ...".
    fn allowed(&self) -> String;
}

/// A duration within bounds: `500ms`, `10s`, `2m`, `24h`, `7d`, or a bare number of seconds.
pub struct Span(pub RangeInclusive<Duration>);

impl Rule for Span {
    type Value = Duration;
    const SHAPE: Shape = Shape::One("TIME");

    fn parse(&self, text: &str) -> Result<Duration, NotAllowed> {
        parse_duration(text)
            .filter(|span| self.0.contains(span))
            .ok_or(NotAllowed)
    }

    fn allowed(&self) -> String {
        let (least, most) = (show_duration(*self.0.start()), show_duration(*self.0.end()));
        format!("a time from {least} to {most}, such as 500ms, 10s, 2m, 24h, 7d, or a bare number of seconds")
    }
}

/// A size within bounds, which are in MiB: `10MiB`, `1GiB`, or a bare number of MiB.
pub struct Size(pub RangeInclusive<usize>);

impl Rule for Size {
    /// MiB.
    type Value = usize;
    const SHAPE: Shape = Shape::One("SIZE");

    fn parse(&self, text: &str) -> Result<usize, NotAllowed> {
        parse_size(text).filter(|size| self.0.contains(size)).ok_or(NotAllowed)
    }

    fn allowed(&self) -> String {
        let (least, most) = (show_size(*self.0.start()), show_size(*self.0.end()));
        format!("a size from {least} to {most}, such as 10MiB or 1GiB, or a bare number of MiB")
    }
}

const GIB: usize = 1024;

/// The MiB that a text names; None if it names none.
fn parse_size(text: &str) -> Option<usize> {
    let (count, length) = match text.strip_suffix("GiB") {
        Some(count) => (count, GIB),
        None => (text.strip_suffix("MiB").unwrap_or(text), 1),
    };
    count.parse::<usize>().ok()?.checked_mul(length)
}

/// A size of so many MiB in its largest unit.
fn show_size(mib: usize) -> String {
    if mib.is_multiple_of(GIB) {
        format!("{}GiB", mib / GIB)
    } else {
        format!("{mib}MiB")
    }
}

/// Units with their length in milliseconds, longest first.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// A duration of so many milliseconds.
pub const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A duration of so many seconds.
pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A duration of so many hours.
pub const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3600)
}

/// The duration that a text names; None if it names none.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let unit = if unit.is_empty() { "s" } else { unit };
    let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(millis(count.parse::<u64>().ok()?.checked_mul(*length)?))
}

/// A duration in its largest unit.
pub fn show_duration(span: Duration) -> String {
    let span = span.as_millis();
    let fits = |length: u64| span != 0 && span.is_multiple_of(u128::from(length));
    let (name, length) = UNITS
        .into_iter()
        .find(|&(_, length)| fits(length))
        .unwrap_or(("s", 1000));
    format!("{}{name}", span / u128::from(length))
}
