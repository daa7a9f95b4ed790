//! x
/// The difference.
pub struct Diff; /// c
pub struct Change; /// d
pub fn diff() {}
