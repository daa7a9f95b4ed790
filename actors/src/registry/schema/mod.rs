//! JSON Schema: the form that the payloads of a protocol must have.
//!
//! A [`Schema`] has two validators. The common part of the language runs in one pass over the text ([`fast`]); the
//! crate `schema` runs the rest, and lists the failures. Neither opens a file or a connection. The cost of a schema
//! is bounded when it is compiled ([`admission`]).

mod admission;
mod cost;
mod error;
mod expression;
mod fast;
mod object_check;
mod payload;
mod pointer;
#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
};

use schema::{Complete, Draft, ValidationError};
use serde_json::Value;

use crate::model::{BrokerError, PathFailure};

use cost::{Graph, TooExpensive};
use error::FAILURES_LEN_MAX;
use expression::REGEX_BYTES_MAX;
use fast::Verdict;
use payload::ParseFailure;

/// Work for one payload, in nanoseconds of the slowest case measured: as long as a worker may be busy. See [`cost`] for
/// what counts.
const WORK_MAX: u64 = 16_000_000;
/// The largest work and payload bytes with which failures are listed: a list takes time and memory for each failure,
/// not only for those shown.
const LISTING_WORK_MAX: u64 = 1_000_000;
const LISTING_BYTES_MAX: usize = 64 * 1024;

/// The work that remains for checking one message, over all schemas that it is checked against, in nanoseconds of the
/// slowest case measured.
#[derive(Debug)]
pub struct WorkBudget(Cell<u64>);

impl Default for WorkBudget {
    fn default() -> Self {
        Self(Cell::new(WORK_MAX))
    }
}

impl WorkBudget {
    /// The work taken so far, in nanoseconds.
    #[must_use]
    pub fn spent(&self) -> u64 {
        WORK_MAX - self.remaining()
    }

    /// A budget of at most this much work, of what remains here: pay it back with [`Self::spend`].
    pub(crate) fn part(&self, work_max: u64) -> Self {
        Self(Cell::new(self.0.get().min(work_max)))
    }

    /// The work that remains.
    pub(crate) fn remaining(&self) -> u64 {
        self.0.get()
    }

    /// Takes work that was done.
    pub(crate) fn spend(&self, work: u64) {
        self.0.set(self.0.get().saturating_sub(work));
    }

    fn with_remaining<T>(&self, work: impl FnOnce(&mut u64) -> T) -> T {
        let mut left = self.0.get();
        let done = work(&mut left);
        self.0.set(left);
        done
    }
}

/// A compiled schema.
pub struct Schema {
    fast: Option<fast::Node>,
    full: Complete,
    /// The cost of payloads for the complete validator.
    graph: Graph,
    len: usize,
    /// The complete validator has panicked with this schema and is not used again.
    has_panicked: AtomicBool,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("fast", &self.fast.is_some())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Schema {
    /// Compiles a schema of JSON Schema draft-07 or 2020-12, by `$schema`, 2020-12 by default. As those dialects
    /// specify, `format` is asserted in draft-07 and an annotation in 2020-12. Takes up to 100 ms: not for a worker.
    ///
    /// # Errors
    /// `invalid_schema` for another dialect, for a reference that leaves the document, for a regular expression that
    /// needs more than linear time (look-around, back-references), for a divisor with many digits, and beyond the
    /// limits: 256 KiB, depth 32, 4096 values, 128 regular expressions of 2 MiB compiled, 100 000 keywords with
    /// references followed.
    pub fn compile(value: &Value) -> Result<Self, BrokerError> {
        let admitted = admission::admit(value)?;
        let full =
            catch_unwind(|| compile(value, admitted.draft)).unwrap_or_else(|_| error::refuse(VALIDATOR_DEFECT))?;
        Ok(Self {
            fast: fast::Node::compile(value, admitted.draft),
            full,
            graph: admitted.graph,
            len: admitted.len,
            has_panicked: AtomicBool::new(false),
        })
    }

    /// Refuses a schema that no payload can fit. Only registration calls it; such a schema that is stored already does
    /// no harm.
    ///
    /// # Errors
    /// `invalid_schema` with the reason.
    pub fn check_admits_objects(value: &Value) -> Result<(), BrokerError> {
        match object_check::why_no_object_fits(value) {
            Some(why) => error::refuse(format!("a payload is a JSON object, and none fits: {why}")),
            None => Ok(()),
        }
    }

    /// Approximate bytes of the compiled schema.
    #[must_use]
    pub const fn bytes_len(&self) -> usize {
        self.len
    }

    /// Checks a payload with a work budget of its own.
    ///
    /// # Errors
    /// As [`Self::validate_within`].
    pub fn validate(&self, payload: &str) -> Result<(), BrokerError> {
        self.validate_within(&WorkBudget::default(), payload)
    }

    /// Checks a payload within the remaining work budget, plus the time to read the text once.
    ///
    /// # Errors
    /// `payload_invalid` with up to 20 failures if the payload is not an object, has a duplicate key (RFC 7493), does
    /// not fit, or takes more work than a payload may; `invalid_argument` for `payload` if it is not JSON.
    #[inline]
    pub fn validate_within(&self, budget: &WorkBudget, payload: &str) -> Result<(), BrokerError> {
        match self.fast.as_ref().map(|node| fast::check(node, payload, &budget.0)) {
            Some(Verdict::Valid) => Ok(()),
            Some(Verdict::Invalid) => self.explain(budget, payload),
            Some(Verdict::NotJson(error)) => Err(payload::not_json(&error)),
            Some(Verdict::TooExpensive) => Err(too_expensive(TooExpensive::Work)),
            None => self.validate_fully(budget, payload),
        }
    }

    /// Finds the reasons after the fast check has refused a payload.
    #[cold]
    fn explain(&self, budget: &WorkBudget, text: &str) -> Result<(), BrokerError> {
        if !text.trim_ascii_start().starts_with('{') {
            return budget
                .with_remaining(|left| payload::parse(text, left))
                .map_or_else(parse_failure, |_| Err(not_an_object()));
        }
        if text.len() > LISTING_BYTES_MAX {
            return failed("does not fit the schema, or names a key twice in one object; too large to say where");
        }
        self.validate_fully(budget, text)
    }

    #[cold]
    fn validate_fully(&self, budget: &WorkBudget, text: &str) -> Result<(), BrokerError> {
        let payload = match budget.with_remaining(|left| payload::parse(text, left)) {
            Ok(payload) if payload.is_object() => payload,
            Ok(_) => return Err(not_an_object()),
            Err(refused) => return parse_failure(refused),
        };
        let before = budget.spent();
        if let Err(why) = budget.with_remaining(|left| self.graph.charge(&payload, left)) {
            return Err(too_expensive(why));
        }
        let list = budget.spent() - before <= LISTING_WORK_MAX && text.len() <= LISTING_BYTES_MAX;
        let check = || {
            if self.full.is_valid(&payload) {
                Ok(())
            } else {
                Err(self.failures(&payload, list))
            }
        };
        match self.catch_panic(check) {
            Some(Ok(())) => Ok(()),
            Some(Err(failures)) => Err(BrokerError::PayloadInvalid { failures }),
            None => failed(VALIDATOR_DEFECT),
        }
    }

    /// None if the validator panics, now or earlier. Clients supply schemas, so a defect of the validator would
    /// otherwise let them take actors down.
    fn catch_panic<T>(&self, check: impl FnOnce() -> T) -> Option<T> {
        if self.has_panicked.load(Ordering::Relaxed) {
            return None;
        }
        // The check holds nothing that a panic could leave half changed.
        let result = catch_unwind(AssertUnwindSafe(check)).ok();
        if result.is_none() {
            self.has_panicked.store(true, Ordering::Relaxed);
        }
        result
    }

    fn failures(&self, payload: &Value, list: bool) -> Vec<PathFailure> {
        if list {
            let failures = self.full.failures(payload, FAILURES_LEN_MAX);
            return failures.iter().map(failure).collect();
        }
        vec![PathFailure {
            path: String::new(),
            reason: "does not fit the schema; too large to say where".to_owned(),
        }]
    }
}

fn parse_failure<T>(why: ParseFailure) -> Result<T, BrokerError> {
    Err(match why {
        ParseFailure::TooExpensive(why) => too_expensive(why),
        ParseFailure::Refused(error) => error,
    })
}

fn not_an_object() -> BrokerError {
    invalid("a payload is a JSON object")
}

fn too_expensive(why: TooExpensive) -> BrokerError {
    invalid(match why {
        TooExpensive::Work => {
            "checking it against this schema takes more work than is done for one message: send fewer values or shorter \
             strings at once, or register a schema with fewer alternatives and simpler regular expressions"
        }
        TooExpensive::Number => {
            "a number beyond 1e21 where the schema has multipleOf: send it as a string, or scale it"
        }
    })
}

const VALIDATOR_DEFECT: &str =
    "the validator cannot run this schema, a defect of its own: use fewer or simpler references";

fn compile(schema: &Value, draft: Draft) -> Result<Complete, BrokerError> {
    Complete::compile(schema, draft, REGEX_BYTES_MAX).map_err(|error| BrokerError::InvalidSchema {
        reason: pointer::bounded(&format_args!("{error}, at {}", error.instance_path())),
    })
}

fn failed(reason: &str) -> Result<(), BrokerError> {
    Err(invalid(reason))
}

fn invalid(reason: &str) -> BrokerError {
    BrokerError::PayloadInvalid {
        failures: vec![PathFailure {
            path: String::new(),
            reason: reason.to_owned(),
        }],
    }
}

/// Masked: the reason names the rule and not the value, which may be large or secret and would appear in logs.
fn failure(error: &ValidationError<'_>) -> PathFailure {
    PathFailure {
        path: pointer::bounded(error.instance_path()),
        reason: pointer::bounded(&error.masked()),
    }
}
