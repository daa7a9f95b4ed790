//! Carries out an operation on a payload.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    TransformError,
    number::{self, Decimal},
    operation::{Operation, Scalar},
    path::{Path, Token},
    payload::{Kind, MADE, Members, Node, Work, clear, position, quoted, remove, set, string},
};

/// Work of a conversion, and of calculating with each byte of a number, in nanoseconds of the slowest case measured: that of
/// `1e300`. Others take a third.
const CONVERT: usize = 250;
const CALCULATE_BYTE: usize = 60;
/// Work of cutting or joining each byte of a text. Measured: 3 ns for escapes.
const CUT_BYTE: usize = 3;

/// An operation that has been checked against a schema.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Act {
    pub operation: Operation,
    /// The type of the values that `convert` and `scale` take.
    pub from: Scalar,
    /// The position of the operation in the lens as written.
    pub index: usize,
    /// The text of the value that the operation makes.
    value: Option<Box<str>>,
    /// The texts of the values that `map` replaces.
    pairs: Vec<(Box<str>, Box<str>)>,
}

impl Act {
    pub fn new(operation: Operation, from: Scalar, index: usize) -> Self {
        let value = match &operation {
            Operation::Add { value, .. }
            | Operation::Default { value, .. }
            | Operation::Single { value, .. }
            | Operation::Convert { value, .. } => value.as_ref().map(|value| value.to_string().into()),
            _ => None,
        };
        let pairs = match &operation {
            Operation::Map { values, .. } => values.iter().map(text_pair).collect(),
            _ => Vec::new(),
        };
        Self {
            operation,
            from,
            index,
            value,
            pairs,
        }
    }

    pub fn inverse(&self) -> Self {
        let from = match self.operation {
            Operation::Convert { to, .. } => to,
            _ => self.from,
        };
        Self::new(self.operation.inverse(self.from), from, self.index)
    }

    /// The value that `convert`, `scale` or `map` makes of a scalar. None: it stays as it is.
    pub fn scalar(&self, text: &str) -> Result<Option<String>, &'static str> {
        match &self.operation {
            Operation::Map { .. } => {
                let pair = self.pairs.iter().find(|(old, _)| scalar_equal(old, text));
                Ok(pair.map(|(_, new)| new.to_string()))
            }
            _ if !is_of(text, self.from) => Ok(None),
            Operation::Convert { to, .. } => {
                let made = || self.value.as_ref().map(|value| value.to_string());
                Ok(convert(text, self.from, *to).or_else(made))
            }
            Operation::Scale { multiply, divide, .. } => {
                let number = Decimal::parse(text).ok_or("not a number")?;
                let scaled = match self.from {
                    Scalar::Integer => number.scaled_to_integer(*multiply, *divide),
                    _ => number.scaled_to_double(*multiply, *divide).map(number::rfc8785),
                };
                scaled.map(Some).ok_or("the number becomes too large")
            }
            _ => Ok(None),
        }
    }

    /// Whether `convert` makes this value up, because it cannot read the text.
    pub fn makes_up(&self, text: &str) -> bool {
        match self.operation {
            Operation::Convert { to, .. } => is_of(text, self.from) && convert(text, self.from, to).is_none(),
            _ => false,
        }
    }

    /// Carries the operation out, wherever its path leads to.
    pub fn run<'a>(&'a self, payload: &mut Node<'a>, work: &mut Work<'_>) -> Result<(), TransformError> {
        let value = || self.value.as_deref().map(Node::made);
        match &self.operation {
            Operation::Rename { path, to } => in_object(payload, path, work, &mut |members, name, work| {
                clear(members, to, work)?;
                if let Some(at) = position(members, name, work)? {
                    members[at].0 = Cow::Borrowed(to);
                }
                Ok(())
            }),
            Operation::Move { path, to } => relocate(payload, path, to, work),
            Operation::Add { path, .. } => in_object(payload, path, work, &mut |members, name, work| match value() {
                Some(value) => set(members, name, value, work),
                None => clear(members, name, work),
            }),
            Operation::Drop { path, .. } => payload.visit(&path.0, work, &mut |_, _| Ok(false)).map(drop),
            Operation::Default { path, .. } => {
                in_object(payload, path, work, &mut |members, name, work| match value() {
                    Some(value) if position(members, name, work)?.is_none() => set(members, name, value, work),
                    _ => Ok(()),
                })
            }
            Operation::Wrap { path, name } => on_values(payload, path, work, &mut |node, work| {
                work.spend(MADE)?;
                let inside = std::mem::replace(node, Node::of("null"));
                *node = Kind::Object(vec![(Cow::Borrowed(name), inside)]).into();
                Ok(true)
            }),
            Operation::Unwrap { path, name } => on_values(payload, path, work, &mut |node, work| {
                if let Some(members) = node.members(work)?
                    && let Some(at) = position(members, name, work)?
                {
                    work.has_removed |= members.len() > 1;
                    *node = remove(members, at, work)?;
                }
                Ok(true)
            }),
            Operation::List { path, .. } => on_values(payload, path, work, &mut |node, work| {
                work.spend(MADE)?;
                let item = std::mem::replace(node, Node::of("null"));
                *node = Kind::Array(vec![item]).into();
                Ok(true)
            }),
            Operation::Single { path, .. } => on_values(payload, path, work, &mut |node, work| {
                let Some(items) = node.items(work)? else {
                    return Ok(true);
                };
                let first = items.drain(..).next().or_else(value);
                Ok(first.map(|first| *node = first).is_some())
            }),
            Operation::Map { path, .. } => payload
                .visit(&path.0, work, &mut |node, work| self.replace(node, work).map(|()| true))
                .map(drop),
            Operation::Convert { path, .. } | Operation::Scale { path, .. } => {
                on_values(payload, path, work, &mut |node, work| {
                    self.replace(node, work).map(|()| true)
                })
            }
            Operation::Split { path, to, by } => in_object(payload, path, work, &mut |members, name, work| {
                split(members, name, to, by, work)
            }),
            Operation::Join { path, to, by } => in_object(payload, &path[0], work, &mut |members, _, work| {
                join(members, path, to, by, work)
            }),
        }
    }

    fn replace(&self, node: &mut Node<'_>, work: &mut Work<'_>) -> Result<(), TransformError> {
        let text = node.text();
        work.spend(match self.pairs.len() {
            0 => CONVERT + text.len() * CALCULATE_BYTE,
            // The value is compared with each pair.
            pairs => pairs.saturating_mul(CONVERT + text.len()),
        })?;
        let scalar = self.scalar(text).map_err(|reason| TransformError::CannotCarryOut {
            // A lens has at most 64 operations.
            op: self.index as u32,
            path: self.operation.path().to_string().into(),
            reason,
        })?;
        node.is_made |= self.makes_up(text);
        if let Some(scalar) = scalar {
            node.set_text(scalar);
        }
        Ok(())
    }
}

fn text_pair((old, new): &(Value, Value)) -> (Box<str>, Box<str>) {
    (old.to_string().into(), new.to_string().into())
}

type OnMembers<'f, 'a> = &'f mut dyn FnMut(&mut Members<'a>, &'a str, &mut Work<'_>) -> Result<(), TransformError>;

/// Calls `act` for each object that can have the member at the path, with the name of the member.
fn in_object<'a>(
    payload: &mut Node<'a>,
    path: &'a Path,
    work: &mut Work<'_>,
    act: OnMembers<'_, 'a>,
) -> Result<(), TransformError> {
    let Some((parent, name)) = path.split_name() else {
        return Ok(());
    };
    let mut on_object = |node: &mut Node<'a>, work: &mut Work<'_>| {
        if let Some(members) = node.members(work)? {
            act(members, name, work)?;
        }
        Ok(true)
    };
    payload.visit(parent, work, &mut on_object).map(drop)
}

/// Calls `act` for each value at the path but null.
fn on_values<'a>(
    payload: &mut Node<'a>,
    path: &'a Path,
    work: &mut Work<'_>,
    act: &mut dyn FnMut(&mut Node<'a>, &mut Work<'_>) -> Result<bool, TransformError>,
) -> Result<(), TransformError> {
    let mut on_value =
        |node: &mut Node<'a>, work: &mut Work<'_>| if node.is_null() { Ok(true) } else { act(node, work) };
    payload.visit(&path.0, work, &mut on_value).map(drop)
}

fn relocate<'a>(
    payload: &mut Node<'a>,
    path: &'a Path,
    to: &'a Path,
    work: &mut Work<'_>,
) -> Result<(), TransformError> {
    let ((common, from), (_, to)) = (path.below_items(), to.below_items());
    let Some((Token::Name(name), parent)) = to.split_last() else {
        return Ok(());
    };
    let mut on_common = |node: &mut Node<'a>, work: &mut Work<'_>| {
        let mut has_place = false;
        node.visit(parent, work, &mut |node, work| {
            if let Some(members) = node.members(work)? {
                has_place = true;
                clear(members, name, work)?;
            }
            Ok(true)
        })?;
        let mut moved = None;
        if has_place {
            node.visit(from, work, &mut |node, _| {
                moved = Some(std::mem::replace(node, Node::of("null")));
                Ok(false)
            })?;
        }
        node.visit(parent, work, &mut |node, work| {
            if let Some(members) = node.members(work)?
                && let Some(moved) = moved.take()
            {
                set(members, name, moved, work)?;
            }
            Ok(true)
        })
    };
    payload.visit(common, work, &mut on_common).map(drop)
}

fn split<'a>(
    members: &mut Members<'a>,
    name: &str,
    to: &'a [String],
    by: &str,
    work: &mut Work<'_>,
) -> Result<(), TransformError> {
    to.iter().try_for_each(|to| clear(members, to, work))?;
    let Some(at) = position(members, name, work)? else {
        return Ok(());
    };
    work.spend(CUT_BYTE * members[at].1.text().len() + MADE * to.len())?;
    let Some(whole) = members[at].1.string() else {
        return Ok(());
    };
    let parts: Vec<_> = whole.splitn(to.len(), by).map(quoted).collect();
    let is_made = remove(members, at, work)?.is_made;
    for (name, part) in to.iter().zip(parts) {
        members.push((
            Cow::Borrowed(name),
            Node {
                kind: Kind::Text(Cow::Owned(part)),
                is_made,
            },
        ));
    }
    Ok(())
}

fn join<'a>(
    members: &mut Members<'a>,
    path: &[Path],
    to: &'a str,
    by: &str,
    work: &mut Work<'_>,
) -> Result<(), TransformError> {
    clear(members, to, work)?;
    let (mut parts, mut is_made) = (Vec::new(), false);
    for (_, name) in path.iter().filter_map(Path::split_name) {
        let Some(at) = position(members, name, work)? else {
            continue;
        };
        work.spend(CUT_BYTE * members[at].1.text().len() + MADE)?;
        let Some(part) = members[at].1.string() else { continue };
        parts.push(part.into_owned());
        is_made |= remove(members, at, work)?.is_made;
    }
    if !parts.is_empty() {
        work.spend(MADE)?;
        let joined = Kind::Text(Cow::Owned(quoted(&parts.join(by))));
        members.push((Cow::Borrowed(to), Node { kind: joined, is_made }));
    }
    Ok(())
}

/// Whether a value is of the type. An integer is any number: it may be written as 1.0.
fn is_of(text: &str, scalar: Scalar) -> bool {
    let first = text.as_bytes().first().copied().unwrap_or_default();
    match scalar {
        Scalar::String => first == b'"',
        Scalar::Boolean => matches!(first, b't' | b'f'),
        Scalar::Integer | Scalar::Number => first == b'-' || first.is_ascii_digit(),
    }
}

fn convert(text: &str, from: Scalar, to: Scalar) -> Option<String> {
    match (from, to) {
        (Scalar::String, _) => {
            let read = string(text)?;
            let can_read = match to {
                Scalar::String => return Some(text.to_owned()),
                Scalar::Integer => number::is_plain_integer(&read),
                Scalar::Number => Decimal::parse(&read).is_some() && read.parse::<f64>().is_ok_and(f64::is_finite),
                Scalar::Boolean => matches!(&*read, "true" | "false"),
            };
            can_read.then(|| read.into_owned())
        }
        (Scalar::Boolean, Scalar::String) => Some(quoted(text)),
        (_, Scalar::String) if number::is_plain_integer(text) => Some(quoted(text)),
        (Scalar::Integer, Scalar::String) => Decimal::parse(text)?
            .scaled_to_integer(1, 1)
            .map(|digits| quoted(&digits)),
        (Scalar::Number, Scalar::String) => text.parse().ok().map(|double| quoted(&number::rfc8785(double))),
        (Scalar::Number, Scalar::Integer) => Decimal::parse(text)?.scaled_to_integer(1, 1),
        (from, to) => (from == to || to == Scalar::Number).then(|| text.to_owned()),
    }
}

/// Whether two scalars are one value.
pub(crate) fn scalar_equal(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    match (a.as_bytes().first(), b.as_bytes().first()) {
        (Some(b'"'), Some(b'"')) => string(a).is_some_and(|a| string(b).is_some_and(|b| a == b)),
        (Some(b'"' | b'[' | b'{' | b't' | b'f' | b'n'), _) | (_, Some(b'"')) => false,
        _ => number::equal(a, b),
    }
}
