//! The complete validator of JSON Schema, by the crate `jsonschema`.
//!
//! `jsonschema` is generic over the form of its values: each crate that builds a validator compiles all of it again. So
//! only this crate does, and it exports no generic function.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

pub use jsonschema::{Draft, ValidationError};

/// A compiled schema.
pub struct Complete(Validator);

impl Complete {
    /// Compiles a schema. The validator opens no file and no connection. A regular expression and its automaton take at
    /// most `regex_bytes_max` bytes each.
    ///
    /// # Errors
    /// The first fault of the schema.
    pub fn compile(schema: &Value, draft: Draft, regex_bytes_max: usize) -> Result<Self, ValidationError<'static>> {
        let patterns = PatternOptions::regex()
            .size_limit(regex_bytes_max)
            .dfa_size_limit(regex_bytes_max);
        let options = jsonschema::options().with_draft(draft).offline();
        options.with_pattern_options(patterns).build(schema).map(Self)
    }

    #[must_use]
    pub fn is_valid(&self, value: &Value) -> bool {
        self.0.is_valid(value)
    }

    /// Up to `len_max` failures of a value.
    #[must_use]
    pub fn failures<'a>(&'a self, value: &'a Value, len_max: usize) -> Vec<ValidationError<'a>> {
        self.0.iter_errors(value).take(len_max).collect()
    }
}
