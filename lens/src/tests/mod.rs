//! Tests of the crate as its callers use it.

mod measurements;
mod operations;
mod random;
mod rules;

use std::sync::Arc;

use ::schema::Complete;
use semver::Version;
use serde_json::{Value, json};

use crate::{
    Checked, Compiled, Direction, Edge, Lens, LensError, Options, Plan, Request, Side, TransformError, Transformed,
    schema::{Document, compile},
};

fn validator(schema: &Value) -> Complete {
    let compiled = compile(schema, Document::of(schema).is_draft_07);
    compiled.unwrap_or_else(|| panic!("not a schema: {schema}"))
}

fn fits(validator: &Complete, text: &str) -> bool {
    serde_json::from_str(text).is_ok_and(|value: Value| value.is_object() && validator.is_valid(&value))
}

/// A lens with both schemas and their validators.
struct Pair {
    source: Value,
    target: Value,
    lens: Value,
    validators: [Complete; 2],
}

impl Pair {
    fn new(source: Value, target: Value, lens: Value) -> Self {
        let validators = [validator(&source), validator(&target)];
        Self {
            source,
            target,
            lens,
            validators,
        }
    }

    fn check_in(&self, direction: Direction, allow_loss: bool) -> Result<Checked, LensError> {
        let lens = Lens::parse(&self.lens)?;
        let fits_source = |text: &str| fits(&self.validators[0], text);
        let fits_target = |text: &str| fits(&self.validators[1], text);
        lens.check(
            &Side {
                schema: &self.source,
                fits: &fits_source,
                kept: &[],
            },
            &Side {
                schema: &self.target,
                fits: &fits_target,
                kept: &[],
            },
            &Options {
                direction,
                allow_loss,
                is_out_of_time: &|| false,
            },
        )
    }

    fn check(&self) -> Result<Checked, LensError> {
        self.check_in(Direction::Both, true)
    }
}

/// One way of a lens, with the validators of its ends.
struct Route<'p> {
    plan: Plan,
    /// Of each version on the path.
    validators: Vec<&'p Complete>,
}

impl<'p> Route<'p> {
    /// The way there, and the way back if there is one.
    fn both(pair: &'p Pair, compiled: Compiled, direction: Direction) -> (Self, Option<Self>) {
        let (there, back) = Self::chain(vec![(pair, compiled)], direction);
        (there.unwrap(), back)
    }

    /// The way along all lenses, and the way back.
    fn chain(lenses: Vec<(&'p Pair, Compiled)>, direction: Direction) -> (Option<Self>, Option<Self>) {
        let mut validators = vec![&lenses[0].0.validators[0]];
        let mut edges = Vec::new();
        for (at, (pair, compiled)) in lenses.into_iter().enumerate() {
            let (from, to) = (format!("{}.0.0", at + 1), format!("{}.0.0", at + 2));
            edges.push(Edge {
                direction,
                ..edge(&from, &to, &Arc::new(compiled))
            });
            validators.push(&pair.validators[1]);
        }
        let (first, last) = (version("1.0.0"), version(&format!("{}.0.0", edges.len() + 1)));
        let there = Plan::find(&edges, &first, std::slice::from_ref(&last));
        let back = Plan::find(&edges, &last, &[first]);
        let reversed = validators.iter().rev().copied().collect();
        (
            there.map(|plan| Self { plan, validators }),
            back.map(|plan| Self {
                plan,
                validators: reversed,
            }),
        )
    }

    fn apply(&self, payload: &str, complement: Option<&str>) -> Result<Transformed, TransformError> {
        let request = Request {
            complement,
            wants_complement: true,
            ..Request::of(payload)
        };
        let mut work = 1_000_000_000;
        self.plan
            .apply(request, &mut work, &mut |at, text| fits(self.validators[at], text))
    }
}

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

fn edge(from: &str, to: &str, compiled: &Arc<Compiled>) -> Edge {
    Edge {
        from: version(from),
        to: version(to),
        direction: Direction::Both,
        compiled: Arc::clone(compiled),
    }
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A schema of an object with these members, all required.
fn object(properties: Value) -> Value {
    let required: Vec<_> = properties.as_object().unwrap().keys().cloned().collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
