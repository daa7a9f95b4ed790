//! Why a lens is refused, and why a payload is not transformed.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::Direction;

/// Why a lens is refused: the detail of `invalid_lens`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LensError {
    pub reason: String,
    /// The index of the operation in the lens as written, also on the way back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// A payload that fits the one version and whose result does not fit the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<Example>,
}

impl LensError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            ..Self::default()
        }
    }

    pub(crate) fn at(mut self, op: usize) -> Self {
        self.op = Some(op);
        self
    }

    pub(crate) fn with(mut self, example: Example) -> Self {
        self.example = Some(example);
        self
    }

    pub(crate) fn on(mut self, direction: Direction) -> Self {
        self.direction = Some(direction);
        self
    }
}

impl fmt::Display for LensError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(op) = self.op {
            write!(f, "operation {op}: ")?;
        }
        f.write_str(&self.reason)?;
        if let Some(path) = &self.path {
            write!(f, ", at `{path}`")?;
        }
        Ok(())
    }
}

impl std::error::Error for LensError {}

/// A payload that shows that a lens does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Example {
    Payload(Value),
    /// A kept message is shown by its id alone.
    Message {
        message_id: String,
    },
}

/// Why a payload is not transformed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum TransformError {
    /// An operation does not work with a value.
    #[serde(rename = "cannot_carry_out")]
    CannotCarryOut {
        op: u32,
        path: Box<str>,
        #[serde(skip)]
        reason: &'static str,
    },
    /// The result does not fit the schema of its version.
    DoesNotFit,
    /// The result is larger than four times the payload and 4 KiB, or than a payload may be.
    TooLarge,
    /// The work budget is spent.
    TooExpensive,
    /// The payload is not a JSON object.
    NotJson,
}

impl fmt::Display for TransformError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotCarryOut { op, path, reason } => {
                write!(f, "operation {op} cannot be carried out at `{path}`: {reason}")
            }
            Self::DoesNotFit => f.write_str("the result does not fit the schema of its version"),
            Self::TooLarge => {
                f.write_str("the result is larger than four times the payload and 4 KiB, or than a payload may be")
            }
            Self::TooExpensive => f.write_str("transforming the payload takes more work than is done for one message"),
            Self::NotJson => f.write_str("the payload is not a JSON object"),
        }
    }
}

impl std::error::Error for TransformError {}
