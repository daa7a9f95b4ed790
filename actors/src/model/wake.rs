//! Waking an agent: what it allows, the ways in which its client can be reached, and what became of it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{MailSummary, Priority};

/// Seconds of [`WakePreference::min_interval_seconds`] where an agent says nothing.
const MIN_INTERVAL_DEFAULT: u32 = 5;
/// Most seconds of [`WakePreference::min_interval_seconds`].
pub const MIN_INTERVAL_MAX: u32 = 3600;
const MINUTES_OF_DAY: u16 = 24 * 60;

/// When an agent may be woken, as it says itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakePreference {
    /// The messages that wake it.
    #[serde(rename = "for", default)]
    pub wakes_for: WakeFor,
    /// The hours of the day in which only urgent messages wake it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietHours>,
    /// Seconds between two wakes, at least: 0 to [`MIN_INTERVAL_MAX`].
    #[serde(default = "min_interval_default")]
    pub min_interval_seconds: u32,
}

const fn min_interval_default() -> u32 {
    MIN_INTERVAL_DEFAULT
}

impl Default for WakePreference {
    fn default() -> Self {
        Self {
            wakes_for: WakeFor::default(),
            quiet: None,
            min_interval_seconds: MIN_INTERVAL_DEFAULT,
        }
    }
}

impl WakePreference {
    /// Whether it is what an agent has that says nothing.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The messages that wake an agent, by their priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WakeFor {
    /// All messages.
    #[default]
    Any,
    /// Those of the priorities high and urgent.
    High,
    /// Those of the priority urgent.
    Urgent,
    /// None.
    Never,
}

impl WakeFor {
    /// All values, as callers write them.
    pub const NAMES: [&str; 4] = ["any", "high", "urgent", "never"];

    /// Whether a message of this priority wakes the agent.
    pub fn allows(self, priority: Priority) -> bool {
        match self {
            Self::Any => true,
            Self::High => priority >= Priority::High,
            Self::Urgent => priority == Priority::Urgent,
            Self::Never => false,
        }
    }
}

/// Hours of the day, `22:00-07:00`, in UTC or at an offset from it, `22:00-07:00+02:00`. The end is not in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QuietHours {
    /// Minutes since midnight.
    from: u16,
    /// Minutes since midnight. At or before `from` it is on the next day.
    to: u16,
    /// Minutes by which the clock of the agent is ahead of UTC.
    offset: i16,
}

impl QuietHours {
    /// Reads `hh:mm-hh:mm`, with an offset such as `+02:00` behind it or none.
    ///
    /// # Errors
    /// What is expected, in one sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse_hours(text).ok_or_else(|| {
            "quiet is two times of a day, such as 22:00-07:00 in UTC or 22:00-07:00+02:00, which differ".to_owned()
        })
    }

    /// Milliseconds from this moment, in milliseconds since the Unix epoch, to the end of the quiet hours; None outside
    /// of them.
    pub fn left_ms(&self, unix_ms: u64) -> Option<u64> {
        const MINUTE_MS: u64 = 60_000;
        let day = u64::from(MINUTES_OF_DAY) * MINUTE_MS;
        let ahead = i64::from(self.offset)
            .rem_euclid(i64::from(MINUTES_OF_DAY))
            .unsigned_abs()
            * MINUTE_MS;
        let since_start = (unix_ms + ahead + day - u64::from(self.from) * MINUTE_MS) % day;
        let minutes = (self.to + MINUTES_OF_DAY - self.from) % MINUTES_OF_DAY;
        (u64::from(minutes) * MINUTE_MS)
            .checked_sub(since_start)
            .filter(|left| *left > 0)
    }
}

fn parse_hours(text: &str) -> Option<QuietHours> {
    let (from, rest) = text.split_once('-')?;
    let (to, offset) = rest.split_at_checked(5)?;
    let offset = match offset.split_at_checked(1) {
        None => 0,
        Some((sign @ ("+" | "-"), offset)) => {
            let minutes = i16::try_from(parse_time(offset)?).ok()?;
            if sign == "-" { -minutes } else { minutes }
        }
        Some(_) => return None,
    };
    let (from, to) = (parse_time(from)?, parse_time(to)?);
    (from != to).then_some(QuietHours { from, to, offset })
}

/// Reads `hh:mm` as minutes since midnight.
fn parse_time(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<u16>().ok()).flatten()
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

impl TryFrom<String> for QuietHours {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<QuietHours> for String {
    fn from(hours: QuietHours) -> Self {
        let time = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        let offset = match hours.offset {
            0 => Self::new(),
            offset if offset > 0 => format!("+{}", time(offset.unsigned_abs())),
            offset => format!("-{}", time(offset.unsigned_abs())),
        };
        format!("{}-{}{offset}", time(hours.from), time(hours.to))
    }
}

words! {
    /// A way in which the client of an agent can be asked to begin a turn.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Rung {
        /// The inbox socket of Claude Code.
        Inbox = "inbox",
        /// The notification of a channel of Claude Code.
        Channel = "channel",
        /// The queue of Codex.
        Queue = "queue",
        /// Keys that are written to a terminal of tmux.
        Tmux = "tmux",
        /// A hook of the client that waits.
        Hook = "hook",
    }
}

/// A set of ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rungs(u8);

impl Rungs {
    /// The ways with these names. A name that is unknown is left out.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        names
            .into_iter()
            .filter_map(Rung::parse)
            .fold(Self::default(), Self::with)
    }

    /// The set with one more.
    #[must_use]
    pub const fn with(self, rung: Rung) -> Self {
        Self(self.0 | 1 << rung as u8)
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The ways of the set.
    pub fn iter(self) -> impl Iterator<Item = Rung> {
        Rung::ALL.into_iter().filter(move |rung| self.0 & 1 << *rung as u8 != 0)
    }

    /// The set as a number, for an atomic.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set of [`Self::bits`].
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

/// What asks for the attention of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeReason {
    /// A message waits in the inbox.
    Message,
    /// A question of the agent was answered.
    Answer,
    /// A question of the agent was closed without an answer.
    QuestionClosed,
}

words! {
    /// What became of a wake. None of them says that the agent read anything.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum WakeResult {
        /// The client of the agent has taken the wake.
        Written = "written",
        /// The client of the agent refuses it.
        Refused = "refused",
        /// The client of the agent offers no such way.
        Absent = "absent",
        /// It could not be sent to the client.
        Failed = "failed",
    }
}

/// A wake, as it is sent to a client. It has no payload: a wake is no delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The number of the wake among those of its session.
    pub number: u64,
    /// The waiting messages.
    pub mail: MailSummary,
    pub reason: WakeReason,
}

/// What became of one wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeRecord {
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    pub rung: Option<Rung>,
    pub result: WakeResult,
}

words! {
    /// What an agent does, as far as its client tells.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Activity {
        /// The client does not tell.
        #[default]
        Unknown = "unknown",
        /// The agent waits for its next turn.
        Idle = "idle",
        /// A turn runs.
        Busy = "busy",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn quiet_hours_are_read_and_written() {
        for text in ["22:00-07:00", "09:30-17:00+02:00", "00:00-23:59-05:30"] {
            assert_eq!(String::from(QuietHours::parse(text).unwrap()), text);
        }
        for text in [
            "",
            "22:00",
            "22-07",
            "24:00-07:00",
            "22:00-07:60",
            "22:00-22:00",
            "22:00-07:00Z",
            "+2:00-07:00",
        ] {
            assert!(QuietHours::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn quiet_hours_may_pass_midnight_and_have_an_offset() {
        let night = QuietHours::parse("22:00-07:00").unwrap();
        assert_eq!(night.left_ms(23 * HOUR_MS), Some(8 * HOUR_MS));
        assert_eq!(night.left_ms(6 * HOUR_MS), Some(HOUR_MS));
        assert_eq!(night.left_ms(7 * HOUR_MS), None);
        assert_eq!(night.left_ms(21 * HOUR_MS), None);
        let east = QuietHours::parse("22:00-07:00+02:00").unwrap();
        assert_eq!(east.left_ms(20 * HOUR_MS), Some(9 * HOUR_MS));
        assert_eq!(east.left_ms(5 * HOUR_MS), None);
    }

    proptest! {
        #[test]
        fn quiet_hours_end(from in 0u16..1440, to in 0u16..1440, offset in -1439i16..1440, unix_ms in 0u64..10_000_000_000_000) {
            prop_assume!(from != to);
            let hours = QuietHours { from, to, offset };
            if let Some(left) = hours.left_ms(unix_ms) {
                prop_assert!(left <= 24 * HOUR_MS);
                prop_assert_eq!(hours.left_ms(unix_ms + left), None);
            }
            let text = String::from(hours);
            prop_assert_eq!(QuietHours::parse(&text).unwrap(), hours);
        }
    }
}
