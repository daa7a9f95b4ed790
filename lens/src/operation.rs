//! The 14 operations of a lens: how they are written, and their inverses.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::{LensError, path::Path};

/// Operations of a lens, and the bytes of its text.
pub const OPERATIONS_MAX: usize = 64;
pub const BYTES_MAX: usize = 32 * 1024;
/// The largest factor and divisor.
const FACTOR_MAX: u32 = 1_000_000_000;
/// The most characters of a separator.
const SEPARATOR_LEN_MAX: usize = 16;

/// An operation as it is written. `value` counts forward, `back` on the way back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// The member gets the name `to`.
    Rename { path: Path, to: String },
    /// The member goes to the place `to`.
    Move { path: Path, to: Path },
    /// A new member; without a value it stays absent.
    Add {
        path: Path,
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
    },
    /// Removes the member.
    Drop {
        path: Path,
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        back: Option<Value>,
    },
    /// An absent member gets a value.
    Default {
        path: Path,
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        back: Option<Value>,
    },
    /// v becomes {as: v}.
    Wrap {
        path: Path,
        #[serde(rename = "as")]
        name: String,
    },
    /// {as: v} becomes v.
    Unwrap {
        path: Path,
        #[serde(rename = "as")]
        name: String,
    },
    /// v becomes [v].
    List {
        path: Path,
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        back: Option<Value>,
    },
    /// [v, …] becomes v.
    Single {
        path: Path,
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
    },
    /// Replaces scalars, by pairs of old and new.
    Map { path: Path, values: Vec<(Value, Value)> },
    /// Changes the type of a scalar.
    Convert {
        path: Path,
        to: Scalar,
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        back: Option<Value>,
    },
    /// v becomes v · multiply / divide.
    Scale {
        path: Path,
        #[serde(default = "one", skip_serializing_if = "is_one")]
        multiply: u32,
        #[serde(default = "one", skip_serializing_if = "is_one")]
        divide: u32,
    },
    /// Cuts a string into members of the same object.
    Split { path: Path, to: Vec<String>, by: String },
    /// Joins strings of one object.
    Join { path: Vec<Path>, to: String, by: String },
}

/// A type of JSON Schema whose values have no parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scalar {
    String,
    Integer,
    Number,
    Boolean,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

const fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(factor: &u32) -> bool {
    *factor == 1
}

/// Reads the operations of a lens.
pub(crate) fn parse(lens: &Value) -> Result<Vec<Operation>, LensError> {
    let Value::Array(items) = lens else {
        return Err(LensError::new("a lens is a list of operations"));
    };
    if items.len() > OPERATIONS_MAX {
        return Err(LensError::new(format!(
            "a lens has at most {OPERATIONS_MAX} operations"
        )));
    }
    if lens.to_string().len() > BYTES_MAX {
        return Err(LensError::new(format!("a lens has at most {BYTES_MAX} bytes")));
    }
    let operation = |(at, item): (usize, &Value)| {
        let error = |reason: String| {
            let path = item.get("path").and_then(Value::as_str);
            LensError {
                path: path.map(str::to_owned),
                ..LensError::new(reason)
            }
            .at(at)
        };
        let operation = Operation::deserialize(item).map_err(|why| error(why.to_string()))?;
        operation
            .check()
            .map(|()| operation)
            .map_err(|why| error(why.to_owned()))
    };
    items.iter().enumerate().map(operation).collect()
}

impl Operation {
    /// The path, of `join` the first one.
    pub fn path(&self) -> &Path {
        match self {
            Self::Join { path, .. } => &path[0],
            Self::Rename { path, .. }
            | Self::Move { path, .. }
            | Self::Add { path, .. }
            | Self::Drop { path, .. }
            | Self::Default { path, .. }
            | Self::Wrap { path, .. }
            | Self::Unwrap { path, .. }
            | Self::List { path, .. }
            | Self::Single { path, .. }
            | Self::Map { path, .. }
            | Self::Convert { path, .. }
            | Self::Scale { path, .. }
            | Self::Split { path, .. } => path,
        }
    }

    /// Checks what does not depend on a schema.
    fn check(&self) -> Result<(), &'static str> {
        let is_scalar = |value: &Value| !value.is_array() && !value.is_object();
        match self {
            Self::Join { path, to, by } => {
                let parts: Vec<_> = path.iter().map(Path::split_name).collect();
                let parent = parts.first().copied().flatten().map(|(parent, _)| parent);
                if !(2..=8).contains(&path.len()) {
                    return Err("path has 2 to 8 members");
                }
                if parts.iter().any(|part| part.is_none_or(|(own, _)| Some(own) != parent)) {
                    return Err("path names members of one object");
                }
                check_separator(by)?;
                distinct(parts.iter().flatten().map(|(_, name)| *name).chain([to.as_str()]))
            }
            Self::Split { path, to, by } => {
                if !(2..=8).contains(&to.len()) {
                    return Err("to has 2 to 8 names");
                }
                check_separator(by)?;
                let (_, name) = path.split_name().ok_or("path ends in a name")?;
                distinct(to.iter().map(String::as_str).chain([name]))
            }
            Self::Wrap { .. } | Self::Unwrap { .. } => Ok(()),
            Self::Map { values, .. } if !values.iter().all(|(old, new)| is_scalar(old) && is_scalar(new)) => {
                Err("values are pairs of scalars")
            }
            Self::Scale { multiply, divide, .. }
                if [multiply, divide].iter().any(|n| !(1..=FACTOR_MAX).contains(*n)) =>
            {
                Err("multiply and divide are 1 to 1000000000")
            }
            Self::List { path, .. }
            | Self::Single { path, .. }
            | Self::Map { path, .. }
            | Self::Convert { path, .. }
            | Self::Scale { path, .. } => {
                if path.0.is_empty() {
                    return Err("the payload stays an object");
                }
                Ok(())
            }
            Self::Move { path, to } => check_move(path, to),
            Self::Rename { path, to } => {
                let (_, name) = path.split_name().ok_or("path ends in a name")?;
                distinct([name, to].into_iter())
            }
            Self::Add { path, .. } | Self::Drop { path, .. } | Self::Default { path, .. } => {
                path.split_name().map(drop).ok_or("path ends in a name")
            }
        }
    }

    /// The operation of the way back, for a value whose type was `from`: that is what the inverse of `convert` makes.
    #[must_use]
    pub fn inverse(&self, from: Scalar) -> Self {
        match self.clone() {
            Self::Rename { path, to } => {
                let (parent, name) = path.split_name().unwrap_or_default();
                Self::Rename {
                    path: Path::join(parent, &to),
                    to: name.to_owned(),
                }
            }
            Self::Move { path, to } => Self::Move { path: to, to: path },
            Self::Add { path, value } => Self::Drop { path, back: value },
            Self::Drop { path, back } => Self::Add { path, value: back },
            Self::Default { path, value, back } => Self::Default {
                path,
                value: back,
                back: value,
            },
            Self::Wrap { path, name } => Self::Unwrap { path, name },
            Self::Unwrap { path, name } => Self::Wrap { path, name },
            Self::List { path, back } => Self::Single { path, value: back },
            Self::Single { path, value } => Self::List { path, back: value },
            Self::Map { path, values } => Self::Map {
                path,
                values: values.into_iter().map(|(old, new)| (new, old)).collect(),
            },
            Self::Convert { path, value, back, .. } => Self::Convert {
                path,
                to: from,
                value: back,
                back: value,
            },
            Self::Scale { path, multiply, divide } => Self::Scale {
                path,
                multiply: divide,
                divide: multiply,
            },
            Self::Split { path, to, by } => {
                let (parent, name) = path.split_name().unwrap_or_default();
                let path = to.iter().map(|to| Path::join(parent, to)).collect();
                Self::Join {
                    path,
                    to: name.to_owned(),
                    by,
                }
            }
            Self::Join { path, to, by } => {
                let (parent, _) = path[0].split_name().unwrap_or_default();
                let names = path
                    .iter()
                    .filter_map(Path::split_name)
                    .map(|(_, name)| name.to_owned());
                Self::Split {
                    path: Path::join(parent, &to),
                    to: names.collect(),
                    by,
                }
            }
        }
    }

    /// Where the value at a path of the result was before this operation. None if the operation has made it.
    pub(crate) fn origin(&self, path: &Path) -> Option<Path> {
        let (after, before) = match self {
            Self::Add { path: made, .. } => return (!path.0.starts_with(&made.0)).then(|| path.clone()),
            Self::Split { path: cut, to, .. } => {
                let (parent, _) = cut.split_name()?;
                let is_part = to.iter().any(|name| path.0.starts_with(&Path::join(parent, name).0));
                return Some(if is_part { cut } else { path }.clone());
            }
            Self::Rename { path, to } => (Path::join(path.split_name()?.0, to), path.clone()),
            Self::Join { path, to, .. } => (Path::join(path[0].split_name()?.0, to), path[0].clone()),
            Self::Move { path, to } => (to.clone(), path.clone()),
            Self::Wrap { path, name } => (path.clone().child(name), path.clone()),
            Self::Unwrap { path, name } => (path.clone(), path.clone().child(name)),
            Self::List { path, .. } => (path.clone().items(), path.clone()),
            Self::Single { path, .. } => (path.clone(), path.clone().items()),
            _ => return Some(path.clone()),
        };
        Some(match path.0.strip_prefix(after.0.as_slice()) {
            Some(rest) => Path([&before.0, rest].concat()),
            None => path.clone(),
        })
    }
}

fn check_separator(by: &str) -> Result<(), &'static str> {
    if (1..=SEPARATOR_LEN_MAX).contains(&by.chars().count()) {
        Ok(())
    } else {
        Err("by has 1 to 16 characters")
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), &'static str> {
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    if names.is_sorted_by(|a, b| a < b) {
        Ok(())
    } else {
        Err("a name occurs twice")
    }
}

fn check_move(path: &Path, to: &Path) -> Result<(), &'static str> {
    if path.split_name().is_none() || to.split_name().is_none() {
        return Err("path and to end in a name");
    }
    if path.below_items().0 != to.below_items().0 {
        return Err("path and to have the same tokens up to the last *");
    }
    if to.0.starts_with(&path.0) || path.0.starts_with(&to.0) {
        return Err("neither of path and to contains the other");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_inverse_of_the_inverse_is_the_operation() {
        let operations = json!([
            {"op": "rename", "path": "/a/*/b~1c", "to": "*"},
            {"op": "move", "path": "/a/*/b/c", "to": "/a/*/d"},
            {"op": "add", "path": "/a", "value": null},
            {"op": "add", "path": "/a"},
            {"op": "drop", "path": "/a", "back": {"b": [1]}},
            {"op": "default", "path": "/a", "value": 1},
            {"op": "default", "path": "/a", "value": 1, "back": null},
            {"op": "wrap", "path": "", "as": "x"},
            {"op": "unwrap", "path": "/a/*", "as": "x"},
            {"op": "list", "path": "/a", "back": 1},
            {"op": "single", "path": "/a", "value": 1},
            {"op": "map", "path": "/a", "values": [["a", 1], ["b", null], ["a", true]]},
            {"op": "convert", "path": "/a", "to": "integer", "value": 0, "back": "x"},
            {"op": "scale", "path": "/a", "multiply": 100, "divide": 3},
            {"op": "split", "path": "/a/*/n", "to": ["x", "y"], "by": ", "},
            {"op": "join", "path": ["/a/*/x", "/a/*/y"], "to": "n", "by": " "},
        ]);
        for operation in parse(&operations).unwrap() {
            let to = match operation {
                Operation::Convert { to, .. } => to,
                _ => Scalar::String,
            };
            let inverse = operation.inverse(Scalar::String);
            assert_eq!(inverse.inverse(to), operation, "{inverse:?}");
            let written = serde_json::to_value([&operation, &inverse]).unwrap();
            assert_eq!(parse(&written).unwrap(), [operation, inverse], "{written}");
        }
    }

    #[test]
    fn the_bounds_of_an_operation_are_filled() {
        let names = |len: usize| (0..len).map(|at| format!("n{at}")).collect::<Vec<_>>();
        let paths = |len: usize| names(len).iter().map(|name| format!("/{name}")).collect::<Vec<_>>();
        let by = |len: usize| "\u{1f980}".repeat(len);
        for (largest, larger) in [
            (
                json!({"op": "split", "path": "/a", "to": names(8), "by": by(16)}),
                json!({"op": "split", "path": "/a", "to": names(9), "by": by(16)}),
            ),
            (
                json!({"op": "join", "path": paths(8), "to": "a", "by": by(16)}),
                json!({"op": "join", "path": paths(9), "to": "a", "by": by(16)}),
            ),
            (
                json!({"op": "join", "path": paths(2), "to": "a", "by": by(16)}),
                json!({"op": "join", "path": paths(2), "to": "a", "by": by(17)}),
            ),
            (
                json!({"op": "scale", "path": "/a", "multiply": 1_000_000_000, "divide": 1_000_000_000}),
                json!({"op": "scale", "path": "/a", "multiply": 1_000_000_001, "divide": 1_000_000_000}),
            ),
        ] {
            assert_eq!(parse(&json!([largest])).map(|read| read.len()), Ok(1), "{largest}");
            assert!(parse(&json!([larger])).is_err(), "{larger}");
        }
    }

    #[test]
    fn what_is_no_operation_is_refused_with_its_index() {
        for (bad, reason) in [
            (json!({"op": "rename", "path": "/a"}), "to"),
            (json!({"op": "rename", "path": "/a", "to": "a"}), "twice"),
            (json!({"op": "rename", "path": "/a/*", "to": "b"}), "name"),
            (json!({"op": "compute", "path": "/a"}), "compute"),
            (json!({"op": "drop", "path": "a"}), "begins with /"),
            (json!({"op": "drop", "path": "/a", "value": 1}), "value"),
            (json!({"op": "add", "path": ""}), "name"),
            (json!({"op": "list", "path": ""}), "object"),
            (json!({"op": "move", "path": "/a/*/b", "to": "/c"}), "last *"),
            (json!({"op": "move", "path": "/a/b", "to": "/a/b/c"}), "contains"),
            (json!({"op": "map", "path": "/a", "values": [["a", []]]}), "scalars"),
            (json!({"op": "convert", "path": "/a", "to": "array"}), "array"),
            (json!({"op": "scale", "path": "/a", "multiply": 0}), "1 to"),
            (json!({"op": "scale", "path": "/a", "divide": 1_000_000_001}), "1 to"),
            (json!({"op": "split", "path": "/a", "to": ["b"], "by": " "}), "2 to 8"),
            (
                json!({"op": "split", "path": "/a", "to": ["b", "b"], "by": " "}),
                "twice",
            ),
            (
                json!({"op": "split", "path": "/a", "to": ["b", "c"], "by": ""}),
                "characters",
            ),
            (
                json!({"op": "join", "path": ["/a", "/b/c"], "to": "d", "by": " "}),
                "one object",
            ),
            (json!({"op": "join", "path": [], "to": "d", "by": " "}), "2 to 8"),
            (json!(7), ""),
        ] {
            let error = parse(&json!([{"op": "drop", "path": "/x"}, bad])).unwrap_err();
            assert_eq!(error.op, Some(1));
            assert!(error.reason.contains(reason), "{bad}: {}", error.reason);
        }
        assert!(parse(&json!({})).is_err());
        assert!(parse(&json!(vec![json!({"op": "drop", "path": "/x"}); 65])).is_err());
        let long = json!([{"op": "drop", "path": "/x", "back": "x".repeat(BYTES_MAX)}]);
        assert!(parse(&long).is_err());
    }
}
