//! Tests of the crate as its callers use it.

mod operations;
mod random;
mod rules;

use std::sync::Arc;

use jsonschema::Validator;
use semver::Version;
use serde_json::{Value, json};

use crate::{
    Checked, Compiled, Direction, Edge, Lens, LensError, Options, Plan, Request, Side, TransformError, Transformed,
    schema::{Document, compile},
};

fn validator(schema: &Value) -> Validator {
    let compiled = compile(schema, Document::of(schema).is_draft_07);
    compiled.unwrap_or_else(|| panic!("not a schema: {schema}"))
}

fn fits(validator: &Validator, text: &str) -> bool {
    serde_json::from_str(text).is_ok_and(|value: Value| value.is_object() && validator.is_valid(&value))
}

/// A lens with both schemas.
struct Pair {
    source: Value,
    target: Value,
    lens: Value,
}

impl Pair {
    fn new(source: Value, target: Value, lens: Value) -> Self {
        Self { source, target, lens }
    }

    fn check_in(&self, direction: Direction, allow_loss: bool) -> Result<Checked, LensError> {
        let lens = Lens::parse(&self.lens)?;
        let (source, target) = (validator(&self.source), validator(&self.target));
        let fits_source = |text: &str| fits(&source, text);
        let fits_target = |text: &str| fits(&target, text);
        lens.check(
            &Side { schema: &self.source, fits: &fits_source, kept: &[] },
            &Side { schema: &self.target, fits: &fits_target, kept: &[] },
            &Options { direction, allow_loss, is_out_of_time: &|| false },
        )
    }

    fn check(&self) -> Result<Checked, LensError> {
        self.check_in(Direction::Both, true)
    }
}

/// One way of a lens, with the validators of its ends.
struct Route {
    plan: Plan,
    validators: Vec<Validator>,
}

impl Route {
    /// The way there and the way back.
    fn both(pair: &Pair, compiled: Compiled) -> (Self, Self) {
        let edge = edge("1.0.0", "2.0.0", &Arc::new(compiled));
        let plan = |from: &str, to: &str| Plan::find(std::slice::from_ref(&edge), &version(from), &[version(to)]).unwrap();
        let there = vec![validator(&pair.source), validator(&pair.target)];
        let back = vec![validator(&pair.target), validator(&pair.source)];
        (
            Self { plan: plan("1.0.0", "2.0.0"), validators: there },
            Self { plan: plan("2.0.0", "1.0.0"), validators: back },
        )
    }

    fn apply(&self, payload: &str, complement: Option<&str>) -> Result<Transformed, TransformError> {
        let request = Request { payload, complement, wants_complement: true };
        let mut work = 1_000_000_000;
        self.plan.apply(request, &mut work, &mut |at, text| fits(&self.validators[at], text))
    }
}

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

fn edge(from: &str, to: &str, compiled: &Arc<Compiled>) -> Edge {
    Edge { from: version(from), to: version(to), direction: Direction::Both, compiled: Arc::clone(compiled) }
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A schema of an object with these members, all required.
fn object(properties: Value) -> Value {
    let required: Vec<_> = properties.as_object().unwrap().keys().cloned().collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
