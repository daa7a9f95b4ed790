//! Positions in the event log, and their text.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The place of an event in the log of its project. Positions of one incarnation ascend as events are recorded.
///
/// The text, which the events of `GET /api/v1/events` carry as their id, is `incarnation-block-index` in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EventPosition {
    /// Changes when the log is lost: a position of another incarnation names nothing in this one.
    pub incarnation: u64,
    /// The block.
    pub block: u64,
    /// The index of the event in its block.
    pub index: u32,
}

impl EventPosition {
    /// The position before the first event of an incarnation. Blocks are numbered from 1.
    pub const fn origin(incarnation: u64) -> Self {
        Self {
            incarnation,
            block: 0,
            index: 0,
        }
    }
}

impl fmt::Display for EventPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}-{:x}", self.incarnation, self.block, self.index)
    }
}

/// The text is not a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the id of an event")]
pub struct NotAPosition;

impl From<EventPosition> for String {
    fn from(position: EventPosition) -> Self {
        position.to_string()
    }
}

impl TryFrom<String> for EventPosition {
    type Error = NotAPosition;

    fn try_from(text: String) -> Result<Self, NotAPosition> {
        text.parse()
    }
}

impl FromStr for EventPosition {
    type Err = NotAPosition;

    fn from_str(text: &str) -> Result<Self, NotAPosition> {
        let mut parts = text.split('-');
        let mut part = |digits_max: usize| {
            let digits = parts
                .next()
                .filter(|digits| digits.len() <= digits_max)
                .ok_or(NotAPosition)?;
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            // `from_str_radix` accepts a sign and upper case, so that an event would have several ids.
            if !digits.bytes().all(is_digit) || (digits.len() > 1 && digits.starts_with('0')) {
                return Err(NotAPosition);
            }
            u64::from_str_radix(digits, 16).map_err(|_| NotAPosition)
        };
        let position = Self {
            incarnation: part(16)?,
            block: part(16)?,
            index: u32::try_from(part(8)?).map_err(|_| NotAPosition)?,
        };
        parts.next().is_none().then_some(position).ok_or(NotAPosition)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_position_is_read_back_from_its_text(incarnation: u64, block: u64, index: u32) {
            let position = EventPosition { incarnation, block, index };
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }

        #[test]
        fn a_text_that_is_read_is_the_text_of_its_position(text in "[0-9a-fA-F+-]{0,40}") {
            if let Ok(position) = text.parse::<EventPosition>() {
                prop_assert_eq!(position.to_string(), text);
            }
        }

        #[test]
        fn positions_of_an_incarnation_ascend_by_block_and_index(a: (u64, u32), b: (u64, u32)) {
            let at = |(block, index)| EventPosition { incarnation: 7, block, index };
            prop_assert_eq!(at(a).cmp(&at(b)), a.cmp(&b));
            prop_assert!(at(a) >= EventPosition::origin(7));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "-",
            "--",
            "1-2",
            "1-2-3-4",
            "1-2-+3",
            "1-2-100000000",
            "G-1-1",
            "01-1-1",
            "1-1-1 ",
        ] {
            assert_eq!(text.parse::<EventPosition>(), Err(NotAPosition), "{text:?}");
        }
    }
}
