//! Ids and names, parsed once at the edge.

use std::{borrow::Cow, fmt, sync::Arc};

use icu_normalizer::ComposingNormalizerBorrowed;
use icu_properties::{CodePointSetData, props::DefaultIgnorableCodePoint};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::{ContextV7, Timestamp, Uuid};

use super::BrokerError;
use crate::clock::Now;
use crate::locked::Locked;

/// The placeholder for an id that is written later: as long as any UUID in text form.
pub const UNSET_ID: &str = "00000000-0000-0000-0000-000000000000";

/// Whether a text is a label: 1 to `len_max` of `a-z`, `0-9` and `-`, not beginning or ending with `-`.
pub(super) fn is_label(text: &str, len_max: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=len_max).contains(&text.len())
        && text.bytes().all(is_allowed)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A tenant. `^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProjectId(Arc<str>);

impl ProjectId {
    /// The id of the project of callers that name none.
    pub const DEFAULT: &'static str = "default";
    const LEN_MAX: usize = 63;

    /// Parses a project id.
    ///
    /// # Errors
    /// `invalid_argument` when the text does not match the grammar above.
    pub fn parse(text: &str) -> Result<Self, BrokerError> {
        if is_label(text, Self::LEN_MAX) {
            Ok(Self(text.into()))
        } else {
            Err(BrokerError::invalid(
                "project_id",
                "1 to 63 of a-z, 0-9 and '-', not beginning or ending with '-'",
            ))
        }
    }

    /// Whether the id is reserved: keys and paths of the broker itself begin with it.
    pub fn is_reserved(&self) -> bool {
        ["system", "admin", "root"].contains(&self.as_str())
    }

    /// The project of callers that name none.
    pub fn default_project() -> Self {
        Self(Self::DEFAULT.into())
    }
}

impl SessionId {
    /// The sender of the broker's own messages. No session has it.
    pub const BROKER: Self = Self::from_uuid(Uuid::nil());
}

/// The durable address of an agent, unique in its project.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionName(Arc<str>);

impl SessionName {
    const CHARS_MAX: usize = 128;
    /// Bytes of the longest text that is normalized.
    const TEXT_LEN_MAX: usize = 4096;
    /// The sender of the broker's own messages.
    const OF_BROKER: &str = "mcp-broker";
    /// Addresses of other kinds begin with these.
    const RESERVED_PREFIXES: [&str; 4] = ["conversation:", "queue:", "topic:", "role:"];

    /// Parses a name that a caller has chosen, in its [normal form](Self::normalized).
    ///
    /// # Errors
    /// `invalid_argument`: empty, longer than 128 characters, with a control character, with white space at an end,
    /// with an `@` (which separates a name from its project), with the form of a session id, or reserved: `mcp-broker` and
    /// what begins like an address of another kind, in upper or lower case.
    pub fn parse(text: &str) -> Result<Self, BrokerError> {
        Self::parse_as("name", text)
    }

    /// As [`Self::parse`], for the argument with this name.
    ///
    /// # Errors
    /// As of [`Self::parse`].
    pub fn parse_as(argument: &str, text: &str) -> Result<Self, BrokerError> {
        let name = Self::checked(argument, &Self::normalized(text))?;
        let begins_with = |prefix: &str| {
            let start = name.0.get(..prefix.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        let is_of_broker = name.0.eq_ignore_ascii_case(Self::OF_BROKER);
        if is_of_broker || Self::RESERVED_PREFIXES.into_iter().any(begins_with) {
            let reason = format!("\"{}\" is reserved: choose another", name.0);
            return Err(BrokerError::invalid(argument, reason));
        }
        Ok(name)
    }

    /// A name that is stored, as it is: an earlier version of the broker may have accepted what is refused now.
    ///
    /// # Errors
    /// As of [`Self::parse`], but for reserved names.
    pub fn stored(text: &str) -> Result<Self, BrokerError> {
        Self::checked("name", text)
    }

    /// The name of the broker as a sender. No session can take it.
    pub fn of_broker() -> Self {
        Self(Self::OF_BROKER.into())
    }

    /// The form in which names are compared: NFKC without the characters that no font shows (Unicode,
    /// `Default_Ignorable_Code_Point`), so that two names that look alike by these are one name.
    pub fn normalized(text: &str) -> Cow<'_, str> {
        if text.is_ascii() || text.len() > Self::TEXT_LEN_MAX {
            return text.into();
        }
        let ignored = CodePointSetData::new::<DefaultIgnorableCodePoint>();
        let shown: String = text.chars().filter(|&one| !ignored.contains(one)).collect();
        ComposingNormalizerBorrowed::new_nfkc()
            .normalize(&shown)
            .into_owned()
            .into()
    }

    fn checked(argument: &str, text: &str) -> Result<Self, BrokerError> {
        let refuse = |reason: &str| Err(BrokerError::invalid(argument, reason));
        if text.is_empty() || text.chars().count() > Self::CHARS_MAX {
            return refuse("1 to 128 characters");
        }
        if text.chars().any(char::is_control) || text.trim() != text {
            return refuse("no control characters, no white space at either end");
        }
        if text.contains('@') {
            return refuse("no '@': it separates a name from its project");
        }
        if Uuid::try_parse(text).is_ok() {
            return refuse("not of the form of a session id");
        }
        Ok(Self(text.into()))
    }
}

macro_rules! text_id {
    ($name:ident, $read:ident) => {
        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                Self::$read(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(super) use text_id;
text_id!(ProjectId, parse);
text_id!(SessionName, stored);

macro_rules! uuid_id {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Reads any text form of a UUID.
            pub fn parse(text: &str) -> Option<Self> {
                Uuid::try_parse(text).ok().map(Self)
            }
            /// The id with these bits.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }
            /// The bits of the id.
            pub const fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }
    )*};
}
uuid_id!(
    /// A participant, for as long as its name and inbox are kept. A `UUIDv7`: ids sort by creation.
    SessionId,
    /// A message. A `UUIDv7`; a recipient recognizes a redelivery by it.
    MessageId,
    /// A question of an agent to people. A `UUIDv7`: ids sort by the time of asking.
    QuestionId,
    /// One run of one broker process.
    ReplicaId
);

impl QuestionId {
    /// The id of a question that is asked now, by the clock that its answer is timed with. In one process a later question has
    /// a greater id, even if the wall clock is set back.
    pub fn at(now: Now) -> Self {
        static CONTEXT: Locked<ContextV7> = Locked::new(ContextV7::new());
        let context = CONTEXT.lock();
        let (seconds, millis) = (now.unix_ms / 1000, now.unix_ms % 1000);
        Self(Uuid::new_v7(Timestamp::from_unix(
            &*context,
            seconds,
            millis as u32 * 1_000_000,
        )))
    }

    /// A new id.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// When the question was asked, in milliseconds since the Unix epoch: the first 48 bits of the id.
    pub const fn created_ms(self) -> u64 {
        (self.0.as_u128() >> 80) as u64
    }
}

impl ReplicaId {
    /// A new id.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl MessageId {
    /// When the message was accepted, in milliseconds since the Unix epoch: the first 48 bits of the id.
    pub const fn accepted_ms(self) -> u64 {
        (self.0.as_u128() >> 80) as u64
    }
}

impl SessionId {
    /// The lowest 32 bits of an id name an incarnation; a new session has incarnation 0. In a `UUIDv7` of this
    /// process these bits are random and a counter precedes them: ids still grow and do not collide.
    const INCARNATION: u128 = 0xffff_ffff;

    /// A new id, of incarnation 0.
    pub fn generate() -> Self {
        Self(Uuid::now_v7()).durable()
    }

    /// The id under which the session is stored and known to others: the id of incarnation 0.
    #[must_use]
    pub const fn durable(self) -> Self {
        Self(Uuid::from_u128(self.0.as_u128() & !Self::INCARNATION))
    }

    /// The id by which the holder of this incarnation names the session.
    #[must_use]
    pub const fn of_incarnation(self, incarnation: u32) -> Self {
        Self(Uuid::from_u128(self.durable().0.as_u128() | incarnation as u128))
    }
}

/// One live connection of a session, in this process. A later connection has a higher id: a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// The id of the next connection of this process.
    pub fn next() -> Self {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Self(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }

    /// The number of the connection; never 0.
    pub const fn get(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_ids_follow_their_grammar() {
        for good in ["a", "0", "team-a", &"x".repeat(63)] {
            assert!(ProjectId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a b", &"x".repeat(64)] {
            assert!(ProjectId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_ids_of_all_incarnations_lead_to_the_durable_one() {
        let id = SessionId::generate();
        assert_eq!((id.durable(), id.of_incarnation(0)), (id, id));
        let second = id.of_incarnation(0xfedc_ba98);
        assert_eq!(second.as_uuid().as_u128(), id.as_uuid().as_u128() + 0xfedc_ba98);
        assert_eq!(second.durable(), id);
        assert_eq!(second.of_incarnation(3), id.of_incarnation(3));
    }

    #[test]
    fn the_id_of_a_question_has_the_time_of_the_clock_that_it_is_asked_by() {
        let at = |unix_ms| Now { unix_ms, mono_ms: 0 };
        // Far ahead: no other test of this process has asked later.
        let asked_ms = 3_000_000_000_123;
        let first = QuestionId::at(at(asked_ms));
        assert_eq!(first.created_ms(), asked_ms);
        let ids: Vec<_> = (0..5_000)
            .map(|step| QuestionId::at(at(asked_ms - step % 700)))
            .collect();
        assert!(first < ids[0] && ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_later_connection_has_a_higher_id_and_none_has_0() {
        let (first, second) = (ConnectionId::next(), ConnectionId::next());
        assert!(0 < first.get() && first.get() < second.get());
    }

    #[test]
    fn names_that_look_alike_are_one_name() {
        for (given, wanted) in [
            ("bo\u{200b}b", "bob"),
            ("\u{202e}bob\u{2069}", "bob"),
            ("\u{feff}bob", "bob"),
            ("Zoe\u{308}", "Zo\u{eb}"),
            ("\u{ff42}\u{ff4f}\u{ff42}", "bob"),
            ("a\u{a0}b", "a b"),
            ("\u{2764}\u{fe0f}", "\u{2764}"),
            (
                "\u{915}\u{3b9}\u{1f04}\u{3bd}\u{3bd}\u{3b7}\u{3c2}",
                "\u{915}\u{3b9}\u{1f04}\u{3bd}\u{3bd}\u{3b7}\u{3c2}",
            ),
        ] {
            assert_eq!(SessionName::parse(given).unwrap().as_str(), wanted);
        }
        for bad in ["\u{200b}", "\u{200b} bob", "bob\u{ff20}other", "\u{3000}bob"] {
            assert!(SessionName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_of_the_broker_and_prefixes_of_addresses_are_reserved() {
        for bad in [
            "mcp-broker",
            "MCP-Broker",
            "mcp\u{200b}-broker",
            "conversation:7",
            "Queue:x",
            "topic:",
            "role:dba",
        ] {
            let refused = SessionName::parse(bad).unwrap_err().to_string();
            assert!(refused.contains("reserved"), "{bad}: {refused}");
            assert!(SessionName::stored(bad).is_ok(), "{bad}");
        }
        for good in ["mcp-broker-2", "conversation", "my queue: one"] {
            assert!(SessionName::parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn session_names_cannot_be_mistaken_for_an_id_or_an_address() {
        for good in ["alice", "build agent 7", "Zoë", "a/b", &"ë".repeat(128)] {
            assert_eq!(SessionName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", " a", "a@b", "a\nb", UNSET_ID, &"x".repeat(129)] {
            assert!(SessionName::parse(bad).is_err(), "{bad}");
        }
    }
}
