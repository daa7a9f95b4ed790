//! A lens as registered: parsed, checked against both schemas, proved or tried.

use serde::Serialize;
use serde_json::Value;

use crate::{
    Class, Direction, Example, LensError, Proved, TransformError,
    act::Act,
    operation::{self, Operation, Scalar},
    path::{Path, Places},
    proof::{Proof, Unproved},
    sample::Generator,
    schema::Document,
    shape::Shape,
    transform::{Compiled, Request, Step, Way, transform},
    trim::Trim,
};

/// Generated payloads that are tried.
const SAMPLES_MAX: usize = 256;
/// Work for trying one payload.
const WORK_MAX: u64 = 20_000_000;

/// The operations from one version to a later one.
#[derive(Clone, Debug, PartialEq)]
pub struct Lens {
    operations: Vec<Operation>,
}

/// A message that is kept, of the version that is checked.
#[derive(Clone, Debug)]
pub struct Kept<'a> {
    pub message_id: &'a str,
    pub payload: &'a str,
}

/// One of the two versions.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    pub schema: &'a Value,
    /// Whether a payload fits the schema.
    pub fits: &'a dyn Fn(&str) -> bool,
    /// The newest messages of this version.
    pub kept: &'a [Kept<'a>],
}

/// How a lens is checked.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    pub direction: Direction,
    /// The way forward may lose what is declared.
    pub allow_loss: bool,
    /// Ends the proof and the samples: the lens is `sampled` then. Asked often.
    pub is_out_of_time: &'a dyn Fn() -> bool,
}

/// What is known about one way of a lens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub class: Class,
    pub proof: Proved,
    pub may_lose: Places,
    pub unproved: Vec<Unproved>,
}

/// A lens that may be registered.
#[derive(Debug)]
pub struct Checked {
    pub compiled: Compiled,
    /// None for a way that the direction excludes.
    pub forward: Option<Verdict>,
    pub backward: Option<Verdict>,
}

/// The schema after the operations, for each way; None where the direction excludes the way.
struct Shapes<'s> {
    forward: Shape<'s>,
    backward: Option<Shape<'s>>,
}

impl Lens {
    /// Reads a lens as it is registered.
    ///
    /// # Errors
    /// For what is no list of at most 64 operations in 32 KiB.
    pub fn parse(lens: &Value) -> Result<Self, LensError> {
        operation::parse(lens).map(|operations| Self { operations })
    }

    /// The operations in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Compiles a lens that has been checked before, as it comes from a store.
    ///
    /// # Errors
    /// If an operation does not suit the schemas.
    pub fn compile(&self, source: &Value, target: &Value, direction: Direction) -> Result<Compiled, LensError> {
        let shapes = self.shapes(source, target, direction)?;
        Ok(shapes.compile(source, target))
    }

    /// Checks a lens against both schemas: each operation, whether results fit, and what it loses. Takes as long as
    /// `options` allow, and beyond that the time of one sample.
    ///
    /// # Errors
    /// The operation that does not suit the schemas, the loss that is not allowed, or a payload that the lens breaks.
    pub fn check(&self, source: &Side<'_>, target: &Side<'_>, options: &Options<'_>) -> Result<Checked, LensError> {
        let shapes = self.shapes(source.schema, target.schema, options.direction)?;
        let compiled = shapes.compile(source.schema, target.schema);
        let goes_forward = options.direction.includes(Direction::Forward);
        if goes_forward
            && !options.allow_loss
            && let Some(place) = compiled.forward.may_lose.first()
        {
            let reason = "the way forward may lose what is declared, which allow_loss allows";
            return Err(LensError {
                path: Some(place.to_string()),
                ..LensError::new(reason)
            }
            .on(Direction::Forward));
        }
        let (forward, backward) = (&compiled.forward, &compiled.backward);
        let verdict = |shape: &Shape<'_>, step: Step<'_>, from: &Side<'_>, to: &Side<'_>, way: Direction| {
            let mut unproved = prove(shape, step.there, to, options);
            let proof = if unproved.is_empty() {
                Proved::Proved
            } else {
                Proved::Sampled
            };
            if proof == Proved::Sampled {
                let tried = Self::try_samples(step, from, to, options).map_err(|error| error.on(way))?;
                if tried == 0 {
                    let reason = "no payload was tried".to_owned();
                    unproved.push(Unproved {
                        path: Path::default(),
                        reason,
                    });
                }
            }
            let may_lose: Places = step.there.may_lose.iter().cloned().collect();
            Ok(Verdict {
                class: step.there.class,
                proof,
                may_lose,
                unproved,
            })
        };
        let there = Step {
            there: forward,
            back: backward,
        };
        let back = Step {
            there: backward,
            back: forward,
        };
        let forward = goes_forward
            .then(|| verdict(&shapes.forward, there, source, target, Direction::Forward))
            .transpose()?;
        let backward = shapes
            .backward
            .as_ref()
            .map(|shape| verdict(shape, back, target, source, Direction::Backward));
        let backward = backward.transpose()?;
        Ok(Checked {
            compiled,
            forward,
            backward,
        })
    }

    fn shapes<'s>(&self, source: &'s Value, target: &'s Value, direction: Direction) -> Result<Shapes<'s>, LensError> {
        let mut forward = Shape::of(source);
        for (index, operation) in self.operations.iter().enumerate() {
            forward.apply(operation, index)?;
        }
        if !direction.includes(Direction::Backward) {
            return Ok(Shapes {
                forward,
                backward: None,
            });
        }
        if let Some(index) = forward.without_back.first() {
            let path = self.operations[*index].path().to_string();
            let reason = "a required member is dropped: back is needed, or the direction forward";
            return Err(LensError {
                path: Some(path),
                ..LensError::new(reason).at(*index)
            });
        }
        let mut backward = Shape::of(target);
        for act in forward.acts.iter().rev() {
            let inverse = act.inverse();
            backward
                .apply(&inverse.operation, inverse.index)
                .map_err(|error| error.on(Direction::Backward))?;
        }
        Ok(Shapes {
            forward,
            backward: Some(backward),
        })
    }

    fn try_samples(step: Step<'_>, from: &Side<'_>, to: &Side<'_>, options: &Options<'_>) -> Result<usize, LensError> {
        let mut generator = Generator::new(
            Document::of(from.schema),
            hints(&step.there.acts),
            to.schema,
            options.is_out_of_time,
        );
        let mut tried = 0;
        for payload in generator.payloads() {
            if tried == SAMPLES_MAX || (options.is_out_of_time)() {
                break;
            }
            let text = payload.to_string();
            if (from.fits)(&text) {
                tried += 1;
                try_one(step, &text, to).map_err(|error| error.with(Example::Payload(payload)))?;
            }
        }
        for kept in from.kept {
            if (options.is_out_of_time)() {
                break;
            }
            if (from.fits)(kept.payload) {
                tried += 1;
                let message_id = kept.message_id.to_owned();
                try_one(step, kept.payload, to).map_err(|error| error.with(Example::Message { message_id }))?;
            }
        }
        Ok(tried)
    }
}

impl Shapes<'_> {
    fn compile(&self, source: &Value, target: &Value) -> Compiled {
        let forward = way(&self.forward, target);
        let backward = self.backward.as_ref().map_or_else(
            || Way {
                acts: forward.acts.iter().rev().map(Act::inverse).collect(),
                trim: None,
                class: Class::Lossy,
                is_restored: false,
                may_lose: Vec::new(),
            },
            |shape| way(shape, source),
        );
        Compiled { forward, backward }
    }
}

fn way(shape: &Shape<'_>, target: &Value) -> Way {
    let class = match (shape.may_lose.is_empty(), shape.invents) {
        (false, _) => Class::Lossy,
        (true, true) => Class::Defaulted,
        (true, false) => Class::Exact,
    };
    Way {
        acts: shape.acts.clone(),
        trim: Trim::of(shape.document, &shape.root, Document::of(target)),
        class,
        is_restored: shape.restores,
        may_lose: shape.may_lose.clone(),
    }
}

fn prove(shape: &Shape<'_>, way: &Way, target: &Side<'_>, options: &Options<'_>) -> Vec<Unproved> {
    let trims = way.trim.is_some();
    let target = Document::of(target.schema);
    let mut unproved = Proof::run(shape.document, &shape.root, target, trims, options.is_out_of_time);
    let may_fail = shape.may_fail.iter().cloned();
    unproved.extend(may_fail.map(|(path, reason)| Unproved { path, reason }));
    unproved
}

fn try_one(step: Step<'_>, payload: &str, to: &Side<'_>) -> Result<(), LensError> {
    let mut work = WORK_MAX;
    let request = Request::of(payload);
    match transform(&[step], &[], request, &mut work, &mut |_, text| (to.fits)(text)) {
        Ok(_) => Ok(()),
        Err(TransformError::CannotCarryOut { op, path, reason }) => Err(LensError {
            path: Some(path.into()),
            ..LensError::new(reason).at(op as usize)
        }),
        Err(error) => Err(LensError::new(error.to_string())),
    }
}

/// Values that the operations name, and texts that they cut.
fn hints(acts: &[Act]) -> Vec<Value> {
    let mut hints = Vec::new();
    for act in acts {
        match &act.operation {
            Operation::Map { values, .. } => hints.extend(values.iter().map(|(old, _)| old.clone())),
            Operation::Split { by, .. } | Operation::Join { by, .. } => {
                hints.push(Value::String(format!("a{by}b{by}c{by}d")));
                hints.push(Value::String(by.clone()));
            }
            Operation::Convert { .. } if act.from == Scalar::String => {
                hints.extend(["12", "-7", "1.5", "true"].map(|text| Value::String(text.to_owned())));
            }
            _ => {}
        }
    }
    hints
}

impl From<&Path> for Value {
    fn from(path: &Path) -> Self {
        Self::String(path.to_string())
    }
}
