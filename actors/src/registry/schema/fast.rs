//! The common part of JSON Schema as a small tree that is checked in one pass over the text.
//!
//! The answer is yes or no. Nothing is built, and nothing is allocated for a payload whose strings need no unescaping
//! and whose objects have at most [`UNKNOWN_INLINE_MAX`] members that the schema does not name. If the answer is no,
//! the complete validator finds the reasons. A schema outside of the common part has no tree ([`Node::compile`] returns
//! None), so that both always agree; a property test checks this.

use std::{borrow::Cow, cell::Cell, cmp::Ordering, collections::HashSet, fmt};

use referencing::Draft;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::payload;

/// Up to this number, members that the schema does not name are remembered in an array; beyond it in a set.
const UNKNOWN_INLINE_MAX: usize = 8;
/// Up to this number, members are found by linear search; beyond it by binary search.
const LINEAR_MAX: usize = 12;
/// The named members that fit the bit mask of seen members; a schema with more has no tree.
const NAMED_MAX: usize = 64;

/// Work of reading a value; in addition, of a number with a fraction or exponent; of looking it up among choices; of a
/// member; and of a member that is remembered in a set. Measured: 13 ns, 50 ns, 20 ns, 25 ns, 100 to 200 ns.
const VALUE: u64 = 20;
const FLOAT: u64 = 50;
const CHOICE: u64 = 20;
const MEMBER: u64 = 30;
const REMEMBERED: u64 = 200;
/// The work of a payload up to this many bytes is not counted: it takes at most about 100 ns for each byte, at most
/// as much as a request of its own, and counting takes as long as checking.
const UNCOUNTED_LEN_MAX: usize = 512;

/// The answer of the tree.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The payload is a JSON object that fits the schema and has no duplicate key.
    Valid,
    Invalid,
    NotJson(serde_json::Error),
    TooExpensive,
}

/// Checks a payload within the budget.
pub(super) fn check(node: &Node, payload: &str, budget: &Cell<u64>) -> Verdict {
    if !payload.trim_ascii_start().starts_with('{') {
        return Verdict::Invalid;
    }
    let left = Cell::new(Some(budget.get()));
    let checked = if payload.len() <= UNCOUNTED_LEN_MAX {
        read::<false>(node, payload, &left)
    } else {
        left.set(budget.get().checked_sub(payload::text_work(payload)));
        read::<true>(node, payload, &left)
    };
    budget.set(left.get().unwrap_or(0));
    match checked {
        Ok(()) => Verdict::Valid,
        Err(_) if left.get().is_none() => Verdict::TooExpensive,
        Err(error) if error.is_data() => Verdict::Invalid,
        Err(error) => Verdict::NotJson(error),
    }
}

fn read<const COUNTS: bool>(node: &Node, payload: &str, left: &Cell<Option<u64>>) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(payload);
    Check::<COUNTS> { node, remaining: left }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// A number as `serde_json` reads it.
#[derive(Clone, Copy, Debug)]
enum ExactNumber {
    Integer(i128),
    Float(f64),
}

impl ExactNumber {
    fn of(number: &serde_json::Number) -> Option<Self> {
        let integer = number.as_u64().map(i128::from).or(number.as_i64().map(i128::from));
        integer.map(Self::Integer).or(number.as_f64().map(Self::Float))
    }

    /// 1.0 is an integer in JSON Schema.
    fn is_integer(self) -> bool {
        match self {
            Self::Integer(_) => true,
            Self::Float(float) => float.fract() == 0.0,
        }
    }

    /// Compares by value, exactly: never rounds an integer to a float.
    fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(&b),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
            (Self::Float(float), Self::Integer(integer)) => compare_float(float, integer),
            (Self::Integer(integer), Self::Float(float)) => compare_float(float, integer).reverse(),
        }
    }
}

/// `float` is finite and `integer` within 65 bits, as every number read from JSON.
fn compare_float(float: f64, integer: i128) -> Ordering {
    // Saturates beyond 128 bits, which preserves the order.
    let whole = float.trunc() as i128;
    whole
        .cmp(&integer)
        .then_with(|| float.fract().partial_cmp(&0.0).unwrap_or(Ordering::Equal))
}

/// A schema of the common part.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// The refused types, bits of [`types`].
    refused: u8,
    /// One list for `enum` and one for `const`; a value must equal an element of each.
    choices: Vec<Choices>,
    bounds: Vec<(Bound, ExactNumber)>,
    /// In Unicode code points.
    length: Range,
    items: Option<Box<Node>>,
    items_len: Range,
    named: Vec<Named>,
    /// One bit for each of `named`.
    required: u64,
    /// For members that the schema does not name.
    additional: Option<Box<Node>>,
    members_len: Range,
}

#[derive(Debug)]
struct Named {
    name: Box<str>,
    /// None for a name that is only required: the rule for additional members applies.
    node: Option<Node>,
}

/// Scalars of which a value must equal one. A lookup takes the logarithm of their number.
#[derive(Debug, Default)]
struct Choices {
    null: bool,
    bools: [bool; 2],
    /// Sorted.
    numbers: Vec<ExactNumber>,
    /// Sorted.
    texts: Vec<Box<str>>,
}

impl Choices {
    /// None if a value is not a scalar.
    fn of<'v>(values: impl IntoIterator<Item = &'v Value>) -> Option<Self> {
        let mut choices = Self::default();
        for value in values {
            match value {
                Value::Null => choices.null = true,
                Value::Bool(value) => choices.bools[usize::from(*value)] = true,
                Value::Number(number) => choices.numbers.push(ExactNumber::of(number)?),
                Value::String(text) => choices.texts.push(text.as_str().into()),
                Value::Array(_) | Value::Object(_) => return None,
            }
        }
        choices.numbers.sort_unstable_by(|a, b| a.compare(*b));
        choices.texts.sort_unstable();
        Some(choices)
    }
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    Minimum,
    Maximum,
    ExclusiveMinimum,
    ExclusiveMaximum,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    min: u64,
    max: u64,
}

impl Default for Range {
    fn default() -> Self {
        Self { min: 0, max: u64::MAX }
    }
}

impl Range {
    const fn contains(self, len: u64) -> bool {
        self.min <= len && len <= self.max
    }
}

mod types {
    /// null.
    pub const NULL: u8 = 1;
    /// true and false.
    pub const BOOL: u8 = 2;
    /// A number without a fraction.
    pub const INTEGER: u8 = 4;
    /// A number that is not an integer.
    pub const FRACTION: u8 = 8;
    /// A string.
    pub const TEXT: u8 = 16;
    /// An array.
    pub const ARRAY: u8 = 32;
    /// An object.
    pub const OBJECT: u8 = 64;
    /// All types.
    pub const ALL: u8 = 127;
}

static ANY: Node = Node {
    refused: 0,
    choices: Vec::new(),
    bounds: Vec::new(),
    length: Range { min: 0, max: u64::MAX },
    items: None,
    items_len: Range { min: 0, max: u64::MAX },
    named: Vec::new(),
    required: 0,
    additional: None,
    members_len: Range { min: 0, max: u64::MAX },
};

impl Node {
    /// None for a schema outside of the common part. `schema` has been admitted, so its depth is bounded.
    pub fn compile(schema: &Value, draft: Draft) -> Option<Self> {
        match schema {
            Value::Bool(true) => Some(Self::default()),
            Value::Bool(false) => Some(Self {
                refused: types::ALL,
                ..Self::default()
            }),
            Value::Object(members) => {
                let mut node = Self::default();
                for (keyword, value) in members {
                    node.keyword(keyword, value, draft)?;
                }
                node.finish(members)
            }
            _ => None,
        }
    }

    fn keyword(&mut self, keyword: &str, value: &Value, draft: Draft) -> Option<()> {
        match keyword {
            // `required` is read by `finish`, when the properties are known.
            "required" | "$schema" | "$id" | "$comment" | "$defs" | "definitions" | "title" | "description"
            | "default" | "examples" | "deprecated" | "readOnly" | "writeOnly" => {}
            // An annotation in 2020-12, as in the complete validator; draft-07 asserts it.
            "format" => return (draft == Draft::Draft202012).then_some(()),
            "type" => self.refused |= types::ALL & !types_of(value)?,
            "enum" => self.choices.push(Choices::of(value.as_array()?)?),
            "const" => self.choices.push(Choices::of([value])?),
            "minimum" => self.bound(Bound::Minimum, value)?,
            "maximum" => self.bound(Bound::Maximum, value)?,
            "exclusiveMinimum" => self.bound(Bound::ExclusiveMinimum, value)?,
            "exclusiveMaximum" => self.bound(Bound::ExclusiveMaximum, value)?,
            "minLength" => self.length.min = value.as_u64()?,
            "maxLength" => self.length.max = value.as_u64()?,
            "minItems" => self.items_len.min = value.as_u64()?,
            "maxItems" => self.items_len.max = value.as_u64()?,
            "minProperties" => self.members_len.min = value.as_u64()?,
            "maxProperties" => self.members_len.max = value.as_u64()?,
            "items" => self.items = Some(Box::new(Self::compile(value, draft)?)),
            "additionalProperties" => self.additional = Some(Box::new(Self::compile(value, draft)?)),
            "properties" => {
                for (name, schema) in value.as_object()? {
                    let node = Some(Self::compile(schema, draft)?);
                    let name = name.as_str().into();
                    self.named.push(Named { name, node });
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn bound(&mut self, bound: Bound, value: &Value) -> Option<()> {
        let Value::Number(number) = value else { return None };
        self.bounds.push((bound, ExactNumber::of(number)?));
        Some(())
    }

    fn finish(mut self, members: &Map<String, Value>) -> Option<Self> {
        let required: HashSet<&str> = match members.get("required") {
            Some(names) => names.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?,
            None => HashSet::new(),
        };
        for name in &required {
            if !self.named.iter().any(|named| *named.name == **name) {
                let name = (*name).into();
                self.named.push(Named { name, node: None });
            }
        }
        if self.named.len() > NAMED_MAX {
            return None;
        }
        self.named.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for (index, named) in self.named.iter().enumerate() {
            self.required |= u64::from(required.contains(&*named.name)) << index;
        }
        Some(self)
    }

    #[inline]
    fn find(&self, name: &str) -> Option<usize> {
        if self.named.len() <= LINEAR_MAX {
            self.named.iter().position(|named| *named.name == *name)
        } else {
            self.named.binary_search_by(|named| (*named.name).cmp(name)).ok()
        }
    }

    #[inline]
    const fn admits(&self, kind: u8) -> bool {
        self.refused & kind == 0
    }

    #[inline]
    fn choices_allow(&self, is_among: impl Fn(&Choices) -> bool) -> bool {
        self.choices.iter().all(is_among)
    }

    fn admits_number(&self, number: ExactNumber) -> bool {
        let kind = if number.is_integer() {
            types::INTEGER
        } else {
            types::FRACTION
        };
        let within = |(bound, limit): &(Bound, ExactNumber)| {
            let order = number.compare(*limit);
            match bound {
                Bound::Minimum => order.is_ge(),
                Bound::Maximum => order.is_le(),
                Bound::ExclusiveMinimum => order.is_gt(),
                Bound::ExclusiveMaximum => order.is_lt(),
            }
        };
        self.admits(kind)
            && self.bounds.iter().all(within)
            && self.choices_allow(|choices| choices.numbers.binary_search_by(|other| other.compare(number)).is_ok())
    }

    #[inline]
    fn admits_text(&self, text: &str) -> bool {
        self.admits(types::TEXT)
            && self.admits_length(text)
            && self.choices_allow(|choices| choices.texts.binary_search_by(|other| (**other).cmp(text)).is_ok())
    }

    fn admits_length(&self, text: &str) -> bool {
        let bytes = text.len() as u64;
        // A code point takes one to four bytes, so counting is needed only in between.
        if bytes / 4 >= self.length.min && bytes <= self.length.max {
            return true;
        }
        self.length.contains(text.chars().count() as u64)
    }
}

fn types_of(value: &Value) -> Option<u8> {
    let one = |name: &Value| {
        Some(match name.as_str()? {
            "null" => types::NULL,
            "boolean" => types::BOOL,
            "integer" => types::INTEGER,
            "number" => types::INTEGER | types::FRACTION,
            "string" => types::TEXT,
            "array" => types::ARRAY,
            "object" => types::OBJECT,
            _ => return None,
        })
    };
    match value {
        Value::Array(names) => names.iter().try_fold(0, |types, name| Some(types | one(name)?)),
        name => one(name),
    }
}

/// Reads one value and fails if it does not fit. Counts the work unless the payload is short.
#[derive(Clone, Copy)]
struct Check<'a, const COUNTS: bool> {
    node: &'a Node,
    /// What remains of the budget; None when it is spent.
    remaining: &'a Cell<Option<u64>>,
}

impl<'a, const COUNTS: bool> Check<'a, COUNTS> {
    fn of(self, node: &'a Node) -> Self {
        Self { node, ..self }
    }

    #[inline]
    fn spend<E: Error>(self, work: u64) -> Result<(), E> {
        if !COUNTS {
            return Ok(());
        }
        let left = self.remaining.get().and_then(|left| left.checked_sub(work));
        self.remaining.set(left);
        ensure(left.is_some())
    }
}

/// The reason is never shown: the complete validator finds its own.
#[cold]
fn mismatch<E: Error>() -> E {
    E::custom("does not fit")
}

fn ensure<E: Error>(fits: bool) -> Result<(), E> {
    if fits { Ok(()) } else { Err(mismatch()) }
}

impl<'de, const COUNTS: bool> DeserializeSeed<'de> for Check<'_, COUNTS> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.spend(VALUE + CHOICE * self.node.choices.len() as u64)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de, const COUNTS: bool> Visitor<'de> for Check<'_, COUNTS> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that fits the schema")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        ensure(self.node.admits(types::NULL) && self.node.choices_allow(|choices| choices.null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        ensure(self.node.admits(types::BOOL) && self.node.choices_allow(|choices| choices.bools[usize::from(value)]))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        ensure(self.node.admits_number(ExactNumber::Integer(value.into())))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        ensure(self.node.admits_number(ExactNumber::Integer(value.into())))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.spend(FLOAT)?;
        ensure(self.node.admits_number(ExactNumber::Float(value)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        ensure(self.node.admits_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let node = self.node;
        if !node.admits(types::ARRAY) || !node.choices.is_empty() {
            return Err(mismatch());
        }
        let item = node.items.as_deref().unwrap_or(&ANY);
        let mut len = 0;
        while items.next_element_seed(self.of(item))?.is_some() {
            len += 1;
        }
        ensure(node.items_len.contains(len))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let node = self.node;
        if !node.admits(types::OBJECT) || !node.choices.is_empty() {
            return Err(mismatch());
        }
        let additional = node.additional.as_deref().unwrap_or(&ANY);
        let (mut seen, mut len) = (0_u64, 0);
        let mut unknown = UnnamedKeys::default();
        while let Some(index) = members.next_key_seed(KeySeed {
            node,
            unknown: &mut unknown,
        })? {
            self.spend(if unknown.more.is_some() {
                MEMBER + REMEMBERED
            } else {
                MEMBER
            })?;
            let member = match index {
                Some(index) => {
                    if seen & 1 << index != 0 {
                        return Err(mismatch());
                    }
                    seen |= 1 << index;
                    node.named[index].node.as_ref().unwrap_or(additional)
                }
                None => additional,
            };
            members.next_value_seed(self.of(member))?;
            len += 1;
        }
        ensure(seen & node.required == node.required && node.members_len.contains(len))
    }
}

/// Reads a key: the index of a named member, or None for another member that has not occurred before.
struct KeySeed<'a, 'de> {
    node: &'a Node,
    unknown: &'a mut UnnamedKeys<'de>,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_, 'de> {
    type Value = Option<usize>;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed<'_, 'de> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that did not occur before")
    }

    #[inline]
    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Self::Value, E> {
        match self.node.find(key) {
            Some(index) => Ok(Some(index)),
            None if self.unknown.insert(Cow::Borrowed(key)) => Ok(None),
            None => Err(mismatch()),
        }
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        match self.node.find(key) {
            Some(index) => Ok(Some(index)),
            None if self.unknown.insert(Cow::Owned(key.to_owned())) => Ok(None),
            None => Err(mismatch()),
        }
    }
}

/// The keys of an object that its schema does not name.
#[derive(Default)]
struct UnnamedKeys<'de> {
    inline: [&'de str; UNKNOWN_INLINE_MAX],
    inline_len: usize,
    more: Option<HashSet<Cow<'de, str>>>,
}

impl<'de> UnnamedKeys<'de> {
    /// False if the key has occurred before.
    fn insert(&mut self, key: Cow<'de, str>) -> bool {
        if self.inline[..self.inline_len].iter().any(|other| **other == *key) {
            return false;
        }
        match key {
            Cow::Borrowed(key) if self.more.is_none() && self.inline_len < UNKNOWN_INLINE_MAX => {
                self.inline[self.inline_len] = key;
                self.inline_len += 1;
                true
            }
            key => self.more.get_or_insert_default().insert(key),
        }
    }
}
