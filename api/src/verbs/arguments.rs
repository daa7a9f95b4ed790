//! The arguments of a tool call: parses and bounds each one, with errors that name it.

use std::{borrow::Cow, fmt, marker::PhantomData, str::FromStr};

use actors::model::{BrokerError, MissingSession, SessionId};
use chrono::DateTime;
use semver::{Version, VersionReq};
use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};

use common::{
    json::{JsonObject, from_text, scan},
    refusal::{json_error_reason, serde_error_reason},
};

/// Characters of a text that a search is for.
const SEARCH_CHARS_MAX: usize = 128;

/// The arguments of one call: slices of the frame. Taking them one by one lets each error name its argument.
#[derive(Debug)]
pub struct Arguments<'a> {
    members: Vec<(Cow<'a, str>, &'a str)>,
    /// The empty string is a value.
    is_exact: bool,
}

/// Arguments of one call; no tool has nearly as many.
pub const ARGUMENTS_LEN_MAX: usize = 64;
/// Bytes of the JSON of one argument, unless its tool sets another bound.
const ARGUMENT_BYTES_MAX: usize = 64 * 1024;

impl<'a> Arguments<'a> {
    /// The members of an `arguments` object.
    ///
    /// # Errors
    /// `InvalidArgument` if a name repeats, or if there are more than any tool takes.
    pub fn new(members: Vec<(Cow<'a, str>, &'a str)>) -> Result<Self, BrokerError> {
        if members.len() > ARGUMENTS_LEN_MAX {
            let text = format!("more than {ARGUMENTS_LEN_MAX} arguments: no tool takes so many");
            return Err(BrokerError::invalid("arguments", text));
        }
        let twice = (1..members.len()).find(|&at| members[..at].iter().any(|(name, _)| *name == members[at].0));
        match twice {
            Some(at) => Err(BrokerError::invalid(members[at].0.clone(), "given twice")),
            None => Ok(Self {
                members,
                is_exact: false,
            }),
        }
    }

    /// The same arguments, where the empty string is a value: for callers that are programs.
    #[must_use]
    pub fn exact(self) -> Self {
        Self { is_exact: true, ..self }
    }

    /// Bytes of the arguments that were not taken yet.
    pub fn bytes(&self) -> usize {
        let bytes = |(name, value): &(Cow<'_, str>, &str)| name.len() + value.len();
        self.members.iter().map(bytes).sum()
    }

    /// The raw JSON of an argument, of any length. `null` and the empty string count as absent, because models send
    /// either for arguments that they omit; see [`Self::exact`].
    #[inline]
    fn raw(&mut self, name: &str) -> Option<&'a str> {
        let at = self.members.iter().position(|(known, _)| known == name)?;
        let (_, value) = self.members.swap_remove(at);
        let is_absent = if self.is_exact {
            value == "null"
        } else {
            is_absent(value)
        };
        (!is_absent).then_some(value)
    }

    /// The raw JSON of an argument of at most `len_max` bytes.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too long.
    #[inline]
    pub fn raw_within(&mut self, name: &str, len_max: usize) -> Result<Option<&'a str>, BrokerError> {
        match self.raw(name) {
            Some(raw) if raw.len() > len_max => Err(too_long(name, len_max)),
            raw => Ok(raw),
        }
    }

    /// An argument of at most [`ARGUMENT_BYTES_MAX`] bytes of JSON.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too long or of a wrong type.
    pub fn optional<T: Deserialize<'a>>(&mut self, name: &str) -> Result<Option<T>, BrokerError> {
        self.optional_within(name, ARGUMENT_BYTES_MAX)
    }

    /// An argument of at most `len_max` bytes of JSON.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too long or of a wrong type.
    pub fn optional_within<T: Deserialize<'a>>(
        &mut self,
        name: &str,
        len_max: usize,
    ) -> Result<Option<T>, BrokerError> {
        let Some(raw) = self.raw_within(name, len_max)? else {
            return Ok(None);
        };
        from_text(raw)
            .map(Some)
            .map_err(|error| BrokerError::invalid(name, json_error_reason(&error)))
    }

    /// An object of at most `len_max` bytes of JSON.
    ///
    /// # Errors
    /// As [`Self::optional_within`].
    pub fn optional_object<T: Deserialize<'a>>(
        &mut self,
        name: &str,
        len_max: usize,
    ) -> Result<Option<T>, BrokerError> {
        let object = self.optional_within(name, len_max)?;
        Ok(object.map(|JsonObject(value)| value))
    }

    /// A list of at most `len_max` bytes of JSON. `shape` says what an item is.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too long or no such list. It names the item and its shape.
    pub fn list_within<T: Deserialize<'a>>(
        &mut self,
        name: &str,
        len_max: usize,
        shape: &str,
    ) -> Result<Option<Vec<T>>, BrokerError> {
        let list = self.optional_within::<NamedItems<T>>(name, len_max);
        match list {
            Ok(list) => Ok(list.map(|NamedItems(items)| items)),
            Err(BrokerError::InvalidArgument { field, reason }) => {
                Err(BrokerError::invalid(field, format!("{reason}; each item is {shape}")))
            }
            Err(error) => Err(error),
        }
    }

    /// As [`Self::optional`].
    ///
    /// # Errors
    /// `InvalidArgument`, also if it is absent.
    pub fn required<T: Deserialize<'a>>(&mut self, name: &str) -> Result<T, BrokerError> {
        self.optional(name)?
            .ok_or_else(|| BrokerError::invalid(name, "required"))
    }

    /// The raw JSON of an argument, of any length: its tool bounds it.
    ///
    /// # Errors
    /// `InvalidArgument` if it is absent.
    pub fn required_raw(&mut self, name: &str) -> Result<&'a str, BrokerError> {
        self.raw(name).ok_or_else(|| BrokerError::invalid(name, "required"))
    }

    /// A string, copied only if it has escapes.
    ///
    /// # Errors
    /// `InvalidArgument` if it is too long or not a string.
    pub fn text(&mut self, name: &str) -> Result<Option<Cow<'a, str>>, BrokerError> {
        let Some(raw) = self.raw_within(name, ARGUMENT_BYTES_MAX)? else {
            return Ok(None);
        };
        scan::string(raw)
            .map(Some)
            .ok_or_else(|| BrokerError::invalid(name, "must be a string"))
    }

    /// As [`Self::text`].
    ///
    /// # Errors
    /// `InvalidArgument`, also if it is absent.
    pub fn required_text(&mut self, name: &str) -> Result<Cow<'a, str>, BrokerError> {
        self.text(name)?.ok_or_else(|| BrokerError::invalid(name, "required"))
    }

    /// A whole number from `min` to `max`, or the default.
    ///
    /// # Errors
    /// `InvalidArgument` if it is outside.
    pub fn bounded(&mut self, name: &str, default: usize, min: usize, max: usize) -> Result<usize, BrokerError> {
        match self.optional::<usize>(name)? {
            None => Ok(default),
            Some(value) if (min..=max).contains(&value) => Ok(value),
            Some(_) => Err(BrokerError::invalid(
                name,
                format!("a whole number from {min} to {max}"),
            )),
        }
    }

    /// Seconds, possibly fractional, up to `max`, or the default.
    ///
    /// # Errors
    /// `InvalidArgument` if they are outside.
    pub fn seconds(&mut self, name: &str, default: f64, max: f64) -> Result<std::time::Duration, BrokerError> {
        let seconds = self.optional::<f64>(name)?.unwrap_or(default);
        if (0.0..=max).contains(&seconds) {
            Ok(std::time::Duration::from_secs_f64(seconds))
        } else {
            Err(BrokerError::invalid(name, format!("seconds, from 0 to {max}")))
        }
    }

    /// The `session_id` that every tool accepts.
    ///
    /// # Errors
    /// `SessionNotFound` if it is malformed, `InvalidArgument` if it is no string.
    pub fn session_id(&mut self) -> Result<Option<SessionId>, BrokerError> {
        match self.text("session_id")? {
            None => Ok(None),
            Some(text) => SessionId::parse(&text)
                .map(Some)
                .ok_or_else(|| MissingSession::own(&text).into()),
        }
    }

    /// The arguments that were not taken yet, parsed.
    ///
    /// # Errors
    /// `InvalidArgument` for one that is no JSON.
    pub fn rest(mut self) -> Result<serde_json::Map<String, serde_json::Value>, BrokerError> {
        if !self.is_exact {
            self.members.retain(|(_, value)| !is_absent(value));
        }
        let parsed = self.members.into_iter().map(|(name, value)| {
            let value = serde_json::from_str(value);
            let value = value.map_err(|error| BrokerError::invalid(name.clone(), json_error_reason(&error)))?;
            Ok((name.into_owned(), value))
        });
        parsed.collect()
    }

    /// Refuses unknown arguments, which are most likely misspelled.
    ///
    /// # Errors
    /// `InvalidArgument` if any argument was not taken.
    pub fn finish(self) -> Result<(), BrokerError> {
        match self.members.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(BrokerError::invalid(name, "no such argument")),
        }
    }
}

/// A list whose errors begin with the position of the wrong item.
struct NamedItems<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NamedItems<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemsVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ItemsVisitor<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
                let mut items = Vec::new();
                loop {
                    match list.next_element() {
                        Ok(Some(item)) => items.push(item),
                        Ok(None) => return Ok(items),
                        Err(error) => {
                            let text = error.to_string();
                            let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
                            let reason = serde_error_reason(text);
                            return Err(A::Error::custom(format!("at [{}]: {reason}", items.len())));
                        }
                    }
                }
            }
        }
        deserializer.deserialize_seq(ItemsVisitor(PhantomData)).map(Self)
    }
}

/// Whether this is what models send for an argument that they omit.
fn is_absent(value: &str) -> bool {
    value == "null" || value == "\"\""
}

#[cold]
fn too_long(name: &str, len_max: usize) -> BrokerError {
    BrokerError::invalid(name, format!("at most {len_max} bytes of JSON"))
}

/// A time of RFC 3339, in milliseconds since the Unix epoch.
///
/// # Errors
/// `InvalidArgument` for another text.
pub fn parse_time(field: &'static str, text: &str) -> Result<u64, BrokerError> {
    let time = DateTime::parse_from_rfc3339(text).ok();
    // Nothing here is older than 1970.
    let ms = time.map(|time| u64::try_from(time.timestamp_millis()).unwrap_or(0));
    ms.ok_or_else(|| BrokerError::invalid(field, "a time such as 2026-01-31T12:00:00Z (RFC 3339)"))
}

/// The text that a search is for, in lower case.
///
/// # Errors
/// `InvalidArgument` for a text that is empty or too long.
pub fn parse_search(field: &'static str, text: &str) -> Result<String, BrokerError> {
    if !(1..=SEARCH_CHARS_MAX).contains(&text.chars().count()) {
        return Err(BrokerError::invalid(
            field,
            format!("1 to {SEARCH_CHARS_MAX} characters"),
        ));
    }
    Ok(text.to_lowercase())
}

/// A semantic version as an argument.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionArgument(pub Version);

impl FromStr for VersionArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = Version::parse(text).map(Self);
        read.map_err(|_| format!("{text:.20?} is not a semantic version such as 1.0.0"))
    }
}

impl<'de> Deserialize<'de> for VersionArgument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A version requirement as an argument.
#[derive(Clone, Debug)]
pub struct RequirementArgument(pub VersionReq);

impl FromStr for RequirementArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = VersionReq::parse(text).map(Self);
        read.map_err(|_| format!("{text:.20?} is not a version requirement such as ^1.2 or >=1, <3"))
    }
}

impl<'de> Deserialize<'de> for RequirementArgument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        let limit = |text: &str| {
            let mut arguments = Arguments::new(vec![("limit".into(), text)])?;
            arguments.bounded("limit", 1, 1, 100)
        };
        for text in ["10", "10.0", "1e1", "100e-1"] {
            assert_eq!(limit(text).unwrap(), 10, "{text}");
        }
        for text in ["10.5", "1e3", "-1.0", "\"10\"", "1e400"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }
}
