//! The headers of a message: what its sender says about it besides the payload.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Which waiting message goes first; equal ones keep the order in which they were accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
    Urgent,
}

impl Priority {
    /// All priorities, lowest first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Normal, Self::High, Self::Urgent];
}

/// Which reports about its message a sender wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportChoice {
    /// No report, also if the message becomes a dead letter.
    None,
}

/// Whether a recipient that declares another version of the protocol gets the message transformed by lenses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransformRule {
    #[default]
    Any,
    /// It is not delivered where it would lose something.
    Lossless,
    /// Every recipient gets it as it was sent.
    Never,
}

/// How the name of the headers is written in an envelope, and otherwise.
const HEADERS: &str = ",\"headers\":";
const SPACED_HEADERS: &str = ", \"headers\":";

/// What an earlier transformation has lost: a JSON object, kept as it was written, whose inside is the broker's. The headers of
/// an envelope are found by the last place of their name, so a complement has that name in another spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complement(Box<str>);

impl Complement {
    /// The text of the object.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for Complement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Complement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if !raw.get().starts_with('{') {
            return Err(D::Error::custom(
                "the complement is the object that a message had in `transformed`",
            ));
        }
        // Not within a string: a quote there has a backslash before it.
        Ok(Self(raw.get().replace(HEADERS, SPACED_HEADERS).into()))
    }
}

/// What a sender says about a message besides its payload. A header that the sender leaves out is absent in the envelope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headers {
    #[serde(default)]
    pub priority: Priority,
    /// Seconds from acceptance after which the message is no longer delivered. At least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// Free text of the sender, delivered as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The address to which the sender wants answers, delivered as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// For 24 hours a repeat with the same key from the same sender sends nothing and returns the first result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The thread that the message belongs to. A message without this header is the first of the thread that its
    /// message id names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// What the message is about: one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How many messages in a row, each caused by the one before, led to this one; at most [`HOPS_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<u64>,
    /// Absent: the sender wants every report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportChoice>,
    /// Absent: as [`TransformRule::Any`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<TransformRule>,
    /// The `transformed.complement` of a message that this one answers: what was lost on the way there is restored on the
    /// way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complement: Option<Complement>,
}

/// The largest value of the header `hops`.
pub const HOPS_MAX: u64 = 64;

/// The headers of a message whose sender gives none.
const DEFAULT_TEXT: &[u8] = br#"{"priority":"normal"}"#;

impl Headers {
    /// Appends them as JSON.
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        if *self == Self::default() {
            out.extend_from_slice(DEFAULT_TEXT);
        } else {
            write_json(out, self);
        }
    }
}

pub(super) fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Writing plain values to memory cannot fail: no I/O is involved, and all map keys are strings.
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_headers_are_written_like_others() {
        assert_eq!(serde_json::to_vec(&Headers::default()).unwrap(), DEFAULT_TEXT);
    }
}
