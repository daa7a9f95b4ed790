//! JSON Schema: what a payload of a protocol must look like.
//!
//! A [`Schema`] answers twice over. The common part of the language runs in one pass over the text ([`fast`]); the
//! `jsonschema` crate runs the rest, and lists what is wrong. Neither ever opens a file or a connection, and what a
//! schema may cost is settled when it is compiled ([`intake`]).

mod cost;
mod fast;
mod intake;
mod pointer;
mod strict;
#[cfg(test)]
mod tests;

use std::fmt;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::model::{BrokerError, PathFailure};

use cost::Cost;
use strict::Payload;

/// Failures that are listed of one payload.
const FAILURES_LEN_MAX: usize = 20;
/// Compiled size of one regular expression; Unicode classes take tens of KiB.
const REGEX_BYTES_MAX: usize = 256 * 1024;
/// What a payload may cost: work on one value ([`Cost::per_value`]) times bytes of payload. About 5 seconds at the
/// measured worst; a payload of 10 MiB reaches it with 200 keywords that all look at the same value.
const WORK_MAX: u64 = 1 << 31;
/// The same when failures are to be listed: listing them takes memory for each, not only for those that are shown.
const LISTING_WORK_MAX: u64 = 1 << 19;

/// A compiled schema.
pub struct Schema {
    fast: Option<fast::Node>,
    full: Validator,
    cost: Cost,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("fast", &self.fast.is_some())
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

impl Schema {
    /// Compiles JSON Schema draft-07 or 2020-12, by `$schema`, else 2020-12. As in those dialects by default,
    /// `format` is asserted in draft-07 and an annotation in 2020-12.
    ///
    /// # Errors
    /// `invalid_schema` for anything else, for a reference that leaves the document, for a regular expression that
    /// takes more than linear time (look-around, back-references), and beyond the limits: 256 KiB, depth 32,
    /// 4096 values, 128 regular expressions, 100 000 keywords when references are followed (16 000 when they recur).
    pub fn compile(value: &Value) -> Result<Self, BrokerError> {
        let admitted = intake::admit(value)?;
        let full = jsonschema::options()
            .with_draft(admitted.draft)
            .offline()
            .with_pattern_options(
                PatternOptions::regex()
                    .size_limit(REGEX_BYTES_MAX)
                    .dfa_size_limit(REGEX_BYTES_MAX),
            )
            .build(value)
            .map_err(|error| BrokerError::InvalidSchema {
                reason: pointer::bounded(&format_args!("{error}, at {}", error.instance_path())),
            })?;
        Ok(Self {
            fast: fast::Node::compile(value, admitted.draft),
            full,
            cost: admitted.cost,
        })
    }

    /// # Errors
    /// `payload_invalid` with up to 20 places when the payload is not an object, names a key twice in one object
    /// (RFC 7493), or does not fit; `invalid_argument` for `payload` when it is not JSON.
    #[inline]
    pub fn validate(&self, payload: &str) -> Result<(), BrokerError> {
        if self.fast.as_ref().is_some_and(|node| fast::is_valid(node, payload)) {
            return Ok(());
        }
        self.validate_fully(payload)
    }

    #[cold]
    fn validate_fully(&self, text: &str) -> Result<(), BrokerError> {
        let payload = strict::parse(text)?;
        if !payload.value.is_object() {
            return failed("", "a payload is a JSON object");
        }
        let len = text.len() as u64;
        if self.fast.is_none() && self.cost.per_value.saturating_mul(len) > WORK_MAX {
            return failed("", "too large for a schema that looks at each value this often");
        }
        if self.full.is_valid(&payload.value) {
            return Ok(());
        }
        Err(BrokerError::PayloadInvalid {
            failures: self.failures(&payload, len),
        })
    }

    fn failures(&self, payload: &Payload, len: u64) -> Vec<PathFailure> {
        if self.listing_work(payload.depth, len) <= LISTING_WORK_MAX {
            let errors = self.full.iter_errors(&payload.value);
            return errors.take(FAILURES_LEN_MAX).map(|error| failure(&error)).collect();
        }
        // Without alternatives or references the first failure costs no more than the verdict did.
        let first = self
            .fast
            .as_ref()
            .and_then(|_| self.full.validate(&payload.value).err());
        vec![first.map_or_else(
            || PathFailure {
                path: String::new(),
                reason: "does not fit the schema; too large to say where".to_owned(),
            },
            |error| failure(&error),
        )]
    }

    /// At most this much work, and as many failures, can come of listing what is wrong.
    fn listing_work(&self, depth: u32, len: u64) -> u64 {
        let turns = self.cost.loops.max(1).saturating_pow(depth);
        self.cost.per_value.saturating_mul(len).saturating_mul(turns)
    }
}

fn failed(path: &str, reason: &str) -> Result<(), BrokerError> {
    Err(BrokerError::PayloadInvalid {
        failures: vec![PathFailure {
            path: path.to_owned(),
            reason: reason.to_owned(),
        }],
    })
}

/// Masked: the reason names the rule, not the value, which may be large or secret and ends up in logs.
fn failure(error: &jsonschema::ValidationError<'_>) -> PathFailure {
    PathFailure {
        path: pointer::bounded(error.instance_path()),
        reason: pointer::bounded(&error.masked()),
    }
}
