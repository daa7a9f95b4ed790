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

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
};

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use crate::model::{BrokerError, PathFailure};

use cost::Cost;

/// Failures that are listed of one payload.
const FAILURES_LEN_MAX: usize = 20;
/// Compiled size of one regular expression; Unicode classes take tens of KiB.
const REGEX_BYTES_MAX: usize = 256 * 1024;
/// What a payload may cost, in keywords applied ([`Cost::of_payload`]): about 2 seconds at the measured worst. A
/// payload of 10 MiB reaches it with 200 keywords that all look at the same value; so does a small and deep one with
/// a schema that refers to itself more than once for the same member.
const WORK_MAX: u64 = 1 << 31;
/// The same when failures are to be listed, and the payload bytes then: listing them takes memory for each, not only
/// for those that are shown.
const LISTING_WORK_MAX: u64 = 1 << 20;
const LISTING_BYTES_MAX: usize = 64 * 1024;

/// A compiled schema.
pub struct Schema {
    fast: Option<fast::Node>,
    full: Validator,
    cost: Cost,
    /// The complete validator has panicked with this schema, and is not asked again.
    broken: AtomicBool,
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
    /// 4096 values, 128 regular expressions, 100 000 keywords when references are followed.
    pub fn compile(value: &Value) -> Result<Self, BrokerError> {
        let admitted = intake::admit(value)?;
        let full = catch_unwind(|| compile(value, admitted.draft)).unwrap_or_else(|_| intake::refuse(DEFECT))?;
        Ok(Self {
            fast: fast::Node::compile(value, admitted.draft),
            full,
            cost: admitted.cost,
            broken: AtomicBool::new(false),
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
        let work = self.cost.of_payload(text.len(), payload.depth);
        // The common part of the language looks at each value once, whatever the bound says.
        if self.fast.is_none() && work > WORK_MAX {
            return failed(
                "",
                "too large, or nested too deeply, for a schema that looks at each value this often",
            );
        }
        let list = work <= LISTING_WORK_MAX && text.len() <= LISTING_BYTES_MAX;
        let check = || {
            if self.full.is_valid(&payload.value) {
                Ok(())
            } else {
                Err(self.failures(&payload.value, list))
            }
        };
        match self.guarded(check) {
            Some(Ok(())) => Ok(()),
            Some(Err(failures)) => Err(BrokerError::PayloadInvalid { failures }),
            None => failed("", DEFECT),
        }
    }

    /// None when the validator panicked, now or before. A schema comes from a client, so a defect of the validator
    /// would otherwise be a way to take actors down.
    fn guarded<T>(&self, check: impl FnOnce() -> T) -> Option<T> {
        if self.broken.load(Ordering::Relaxed) {
            return None;
        }
        // It holds nothing that a panic could leave half changed.
        let result = catch_unwind(AssertUnwindSafe(check)).ok();
        if result.is_none() {
            self.broken.store(true, Ordering::Relaxed);
        }
        result
    }

    fn failures(&self, payload: &Value, all: bool) -> Vec<PathFailure> {
        if all {
            let errors = self.full.iter_errors(payload);
            return errors.take(FAILURES_LEN_MAX).map(|error| failure(&error)).collect();
        }
        // Without alternatives and references the first failure costs no more than the verdict did.
        let first = self.fast.as_ref().and_then(|_| self.full.validate(payload).err());
        vec![first.map_or_else(
            || PathFailure {
                path: String::new(),
                reason: "does not fit the schema; too large to say where".to_owned(),
            },
            |error| failure(&error),
        )]
    }
}

const DEFECT: &str = "the validator cannot run this schema, a defect of its own: use fewer or simpler references";

fn compile(schema: &Value, draft: Draft) -> Result<Validator, BrokerError> {
    let patterns = PatternOptions::regex()
        .size_limit(REGEX_BYTES_MAX)
        .dfa_size_limit(REGEX_BYTES_MAX);
    jsonschema::options()
        .with_draft(draft)
        .offline()
        .with_pattern_options(patterns)
        .build(schema)
        .map_err(|error| BrokerError::InvalidSchema {
            reason: pointer::bounded(&format_args!("{error}, at {}", error.instance_path())),
        })
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
