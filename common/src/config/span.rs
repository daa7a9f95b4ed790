//! What a rule for values is, and the rule for times.

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
