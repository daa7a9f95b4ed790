//! A payload as a tree that is read only where an operation goes. What is not read is copied byte for byte.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    TransformError,
    path::{Places, Token, Trail},
};

/// The deepest nesting that is read, as `serde_json` does. What is deeper is copied and compared as text.
pub(crate) const DEPTH_MAX: usize = 128;

/// Work, in nanoseconds of the slowest case measured (`measure_the_most_expensive_transformations`): of reading a member or
/// an item, of the memory of an object or an array that is not empty, of a place that is visited. Measured: 40 to 75, 150, 20.
const MEMBER: usize = 80;
const CONTAINER: usize = 150;
const PLACE: usize = 30;
/// Work of a member or a text that an operation makes, with its memory. Measured: 300 ns.
pub(crate) const MADE: usize = 300;
/// Work of copying a member that is not read.
pub(crate) const COPIED: usize = 10;
/// Bytes of a name that is compared for one unit, in addition to one for each name. Measured: 0.5 ns a name, 8 ns one of 400
/// bytes.
const NAME_BYTES_PER_UNIT: usize = 32;
/// Bytes that are read, written or compared for one unit. Measured: 0.1 ns a byte.
const BYTES_PER_UNIT: usize = 8;
/// Work of each byte of an object or an array in a payload, each time that one level of it is read. Measured: 2 ns for brackets,
/// 1.5 for escapes, 0.2 for letters.
const READ_BYTE: usize = 2;
/// Bytes of the payload itself for one unit: it is read once or twice.
const PAYLOAD_BYTES_PER_UNIT: usize = 4;

/// The work that remains for a payload.
pub(crate) struct Work<'w> {
    left: &'w mut u64,
    /// An operation has removed an undeclared member.
    pub has_removed: bool,
}

impl<'w> Work<'w> {
    pub fn within(left: &'w mut u64) -> Self {
        Self {
            left,
            has_removed: false,
        }
    }

    pub fn spend(&mut self, work: usize) -> Result<(), TransformError> {
        let left = self.left.checked_sub(work as u64);
        *self.left = left.unwrap_or(0);
        left.map(drop).ok_or(TransformError::TooExpensive)
    }

    pub fn spend_bytes(&mut self, len: usize) -> Result<(), TransformError> {
        self.spend(len / BYTES_PER_UNIT)
    }
}

/// The members of an object.
pub(crate) type Members<'a> = Vec<(Cow<'a, str>, Node<'a>)>;

/// A value of a payload.
#[derive(Clone, Debug)]
pub(crate) struct Node<'a> {
    pub kind: Kind<'a>,
    /// An operation has made this value up.
    pub is_made: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind<'a> {
    /// Any value, as text without white space around it.
    Text(Cow<'a, str>),
    Object(Members<'a>),
    Array(Vec<Node<'a>>),
}

impl<'a> Node<'a> {
    pub fn of(text: &'a str) -> Self {
        Kind::Text(Cow::Borrowed(text.trim_ascii())).into()
    }

    pub fn made(text: &'a str) -> Self {
        Self {
            is_made: true,
            ..Self::of(text)
        }
    }

    /// The text of a scalar; of an object or an array that has not been read, the whole.
    pub fn text(&self) -> &str {
        match &self.kind {
            Kind::Text(text) => text,
            Kind::Object(_) => "{",
            Kind::Array(_) => "[",
        }
    }

    pub fn is_null(&self) -> bool {
        self.text() == "null"
    }

    /// The text that a JSON string encodes.
    pub fn string(&self) -> Option<Cow<'_, str>> {
        string(self.text())
    }

    pub fn set_text(&mut self, text: String) {
        self.kind = Kind::Text(Cow::Owned(text));
    }

    /// The members, if this is an object.
    pub fn members(&mut self, work: &mut Work<'_>) -> Result<Option<&mut Members<'a>>, TransformError> {
        if self.text().starts_with('{') {
            self.read(work)?;
        }
        Ok(match &mut self.kind {
            Kind::Object(members) => Some(members),
            _ => None,
        })
    }

    /// The items, if this is an array.
    pub fn items(&mut self, work: &mut Work<'_>) -> Result<Option<&mut Vec<Self>>, TransformError> {
        if self.text().starts_with('[') {
            self.read(work)?;
        }
        Ok(match &mut self.kind {
            Kind::Array(items) => Some(items),
            _ => None,
        })
    }

    /// Reads a payload one level deep, if it is an object.
    pub fn read_payload(&mut self, work: &mut Work<'_>) -> Result<(), TransformError> {
        if !self.text().starts_with('{') {
            return Ok(());
        }
        work.spend(self.text().len() / PAYLOAD_BYTES_PER_UNIT)?;
        self.read_level(work)
    }

    /// Reads an object or an array one level deep.
    fn read(&mut self, work: &mut Work<'_>) -> Result<(), TransformError> {
        let Kind::Text(text) = &self.kind else { return Ok(()) };
        work.spend(READ_BYTE * text.len())?;
        self.read_level(work)
    }

    fn read_level(&mut self, work: &mut Work<'_>) -> Result<(), TransformError> {
        let Kind::Text(text) = &self.kind else { return Ok(()) };
        let mut kind = match text {
            Cow::Borrowed(text) => read(text)?,
            // Operations write scalars only.
            Cow::Owned(_) => return Err(TransformError::NotJson),
        };
        let len = match &kind {
            Kind::Object(members) => members.len(),
            Kind::Array(items) => items.len(),
            Kind::Text(_) => 0,
        };
        work.spend(len.min(1) * CONTAINER + len * MEMBER)?;
        // What was made up is made up in all its parts, wherever later operations put them.
        if self.is_made {
            match &mut kind {
                Kind::Object(members) => members.iter_mut().for_each(|(_, value)| value.is_made = true),
                Kind::Array(items) => items.iter_mut().for_each(|item| item.is_made = true),
                Kind::Text(_) => {}
            }
        }
        self.kind = kind;
        Ok(())
    }

    /// Calls `act` for each value at the path. A value is removed from what contains it where `act` returns false.
    pub fn visit(
        &mut self,
        path: &[Token],
        work: &mut Work<'_>,
        act: &mut dyn FnMut(&mut Self, &mut Work<'_>) -> Result<bool, TransformError>,
    ) -> Result<bool, TransformError> {
        work.spend(PLACE)?;
        match path.split_first() {
            None => return act(self, work),
            Some((Token::Name(name), rest)) => {
                if let Some(members) = self.members(work)?
                    && let Some(at) = position(members, name, work)?
                    && !members[at].1.visit(rest, work, act)?
                {
                    remove(members, at, work)?;
                }
            }
            Some((Token::Items, rest)) => {
                let Some(items) = self.items(work)? else {
                    return Ok(true);
                };
                let mut kept = Vec::with_capacity(items.len());
                for mut item in std::mem::take(items) {
                    if item.visit(rest, work, act)? {
                        kept.push(item);
                    }
                }
                *items = kept;
            }
        }
        Ok(true)
    }

    /// Writes the value, and refuses to write more than `len_max` bytes.
    pub fn write(&self, out: &mut String, len_max: usize, work: &mut Work<'_>) -> Result<(), TransformError> {
        match &self.kind {
            Kind::Text(text) => push(out, text, len_max, work)?,
            Kind::Object(members) => {
                push(out, "{", len_max, work)?;
                for (at, (name, value)) in members.iter().enumerate() {
                    push(out, if at > 0 { "," } else { "" }, len_max, work)?;
                    push_name(out, name, len_max, work)?;
                    push(out, ":", len_max, work)?;
                    value.write(out, len_max, work)?;
                }
                push(out, "}", len_max, work)?;
            }
            Kind::Array(items) => {
                push(out, "[", len_max, work)?;
                for (at, item) in items.iter().enumerate() {
                    push(out, if at > 0 { "," } else { "" }, len_max, work)?;
                    item.write(out, len_max, work)?;
                }
                push(out, "]", len_max, work)?;
            }
        }
        Ok(())
    }

    /// Collects the places that operations have made up.
    pub fn made_places(&self, at: &Trail<'_>, places: &mut Places) {
        if self.is_made {
            return places.insert(at.path());
        }
        match &self.kind {
            Kind::Text(_) => {}
            Kind::Object(members) => {
                for (name, value) in members {
                    value.made_places(&at.member(name), places);
                }
            }
            Kind::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.made_places(&at.item(index), places);
                }
            }
        }
    }
}

impl<'a> From<Kind<'a>> for Node<'a> {
    fn from(kind: Kind<'a>) -> Self {
        Self { kind, is_made: false }
    }
}

fn push(out: &mut String, text: &str, len_max: usize, work: &mut Work<'_>) -> Result<(), TransformError> {
    work.spend_bytes(text.len())?;
    if out.len() + text.len() > len_max {
        return Err(TransformError::TooLarge);
    }
    out.push_str(text);
    Ok(())
}

fn push_name(out: &mut String, name: &str, len_max: usize, work: &mut Work<'_>) -> Result<(), TransformError> {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if !name.bytes().all(is_plain) {
        return push(out, &quoted(name), len_max, work);
    }
    for part in ["\"", name, "\""] {
        push(out, part, len_max, work)?;
    }
    Ok(())
}

/// The position of a member. Prices the names that are compared.
pub(crate) fn position(
    members: &Members<'_>,
    name: &str,
    work: &mut Work<'_>,
) -> Result<Option<usize>, TransformError> {
    let found = members.iter().position(|(own, _)| own == name);
    work.spend(found.unwrap_or(members.len()) * (1 + name.len() / NAME_BYTES_PER_UNIT))?;
    Ok(found)
}

/// Removes a member. Prices the members that move up.
pub(crate) fn remove<'a>(
    members: &mut Members<'a>,
    at: usize,
    work: &mut Work<'_>,
) -> Result<Node<'a>, TransformError> {
    work.spend((members.len() - at) * size_of::<(Cow<'_, str>, Node<'_>)>() / 16)?;
    Ok(members.remove(at).1)
}

/// Sets a member that an operation makes. What the object has under this name can only be an undeclared one.
pub(crate) fn set<'a>(
    members: &mut Members<'a>,
    name: &'a str,
    value: Node<'a>,
    work: &mut Work<'_>,
) -> Result<(), TransformError> {
    clear(members, name, work)?;
    work.spend(MADE)?;
    members.push((Cow::Borrowed(name), value));
    Ok(())
}

/// Removes an undeclared member that is where an operation makes one.
pub(crate) fn clear(members: &mut Members<'_>, name: &str, work: &mut Work<'_>) -> Result<(), TransformError> {
    if let Some(at) = position(members, name, work)? {
        work.has_removed = true;
        remove(members, at, work)?;
    }
    Ok(())
}

/// The text that a JSON string encodes.
pub(crate) fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.bytes().any(|byte| byte == b'\\') {
        serde_json::from_str(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// A text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Reads one level of an object or an array.
fn read(text: &str) -> Result<Kind<'_>, TransformError> {
    struct Level;
    impl<'de> Visitor<'de> for Level {
        type Value = Kind<'de>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object or an array")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Kind<'de>, A::Error> {
            let mut read = Vec::new();
            while let Some((Name(name), value)) = members.next_entry::<Name<'de>, &'de RawValue>()? {
                read.push((name, Node::of(value.get())));
            }
            Ok(Kind::Object(read))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Kind<'de>, A::Error> {
            let mut read = Vec::new();
            while let Some(item) = items.next_element::<&'de RawValue>()? {
                read.push(Node::of(item.get()));
            }
            Ok(Kind::Array(read))
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let kind = deserializer
        .deserialize_any(Level)
        .map_err(|_| TransformError::NotJson)?;
    deserializer.end().map_err(|_| TransformError::NotJson)?;
    Ok(kind)
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Path;

    fn written(node: &Node<'_>) -> String {
        let mut out = String::new();
        node.write(&mut out, usize::MAX, &mut Work::within(&mut 1_000_000))
            .unwrap();
        out
    }

    #[test]
    fn what_is_not_read_keeps_its_bytes() {
        let text = r#" {"a" : [ 1.50 , 12345678901234567890123 ], "\u0062":{"c" : "\u00e9"} } "#;
        let mut node = Node::of(text);
        assert_eq!(written(&node), text.trim());
        let mut budget = 10_000;
        let work = &mut Work::within(&mut budget);
        assert_eq!(node.members(work).unwrap().unwrap().len(), 2);
        assert_eq!(
            written(&node),
            r#"{"a":[ 1.50 , 12345678901234567890123 ],"b":{"c" : "\u00e9"}}"#
        );
        let path = Path::parse("/a/*").unwrap();
        node.visit(&path.0, work, &mut |item, _| Ok(item.text() != "1.50"))
            .unwrap();
        assert_eq!(
            written(&node),
            r#"{"a":[12345678901234567890123],"b":{"c" : "\u00e9"}}"#
        );
    }

    #[test]
    fn work_and_length_are_bounded() {
        let text = format!("[{}]", "0,".repeat(500) + "0");
        assert!(matches!(
            Node::of(&text).items(&mut Work::within(&mut 100)),
            Err(TransformError::TooExpensive)
        ));
        let mut out = String::new();
        let written = Node::of(&text).write(&mut out, 1000, &mut Work::within(&mut 10_000));
        assert!(matches!(written, Err(TransformError::TooLarge)));
        assert!(matches!(
            Node::of("{\"a\":").members(&mut Work::within(&mut 100)),
            Err(TransformError::NotJson)
        ));
        let deep = format!("{{\"a\":{}", "[".repeat(1_000_000));
        assert!(matches!(
            Node::of(&deep).members(&mut Work::within(&mut 10_000_000)),
            Err(TransformError::NotJson)
        ));
    }
}
