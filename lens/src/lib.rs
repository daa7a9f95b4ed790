//! Lenses: payloads of one version of a protocol become payloads of another.
//!
//! A [`Lens`] is a list of [`Operation`]s from one version to a later one; the way back is derived. [`Lens::check`] proves
//! against both schemas that its results fit, or tries it on generated payloads. A [`Plan`] is a path of lenses from the
//! version of a message to one that its recipient declares; [`Plan::apply`] transforms a payload along it and says what it
//! lost and what it made up. [`diff`] compares two schemas and suggests a lens.
//!
//! ```text
//! Lens --check--> Checked { compiled, forward, backward }      at registration
//! Edge { from, to, compiled } --Plan::find--> Plan             for each pair of version and recipient
//! Plan --apply--> Transformed { payload, loss, defaulted }     for each message and target version
//! ```
//!
//! Everything here is pure: no clock, no I/O, no actors. The same input gives the same result on every replica.
//!
//! - A lens is checked once and carried out often: what an operation needs is found when it is checked.
//! - No input makes this crate panic or recurse deeper than its bounds. Schemas are those that the registry has admitted:
//!   their references consume a part of the value before they repeat.
//! - The caller passes the validators of the registry, and validates every result by them, proved or not.
//! - What no operation touches keeps its bytes.

mod act;
mod check;
mod difference;
mod edit;
mod error;
mod number;
mod operation;
mod path;
mod payload;
mod plan;
mod proof;
mod sample;
mod scalars;
mod schema;
mod shape;
mod suggest;
#[cfg(test)]
mod tests;
mod transform;
mod trim;

use serde::{Deserialize, Serialize};

pub use check::{Checked, Kept, Lens, Options, Side, Verdict};
pub use error::{Example, LensError, TransformError};
pub use operation::{BYTES_MAX, OPERATIONS_MAX, Operation, Scalar};
pub use path::{Path, Places, Token};
pub use plan::{Description, Edge, Plan, STEPS_MAX};
pub use proof::Unproved;
pub use suggest::{Change, Diff, diff};
pub use transform::{Compiled, Request, Transformed};

/// Which way messages are transformed by a lens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    #[default]
    Both,
    Forward,
    Backward,
}

impl Direction {
    /// Whether messages go this way. `way` is forward or backward.
    pub fn includes(self, way: Self) -> bool {
        self == Self::Both || self == way
    }
}

/// What a transformation does to what the sender's version declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Loses and makes up nothing.
    Exact,
    /// May make up values.
    Defaulted,
    /// May lose values.
    Lossy,
}

/// How it is known that results fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proved {
    Proved,
    Sampled,
}
