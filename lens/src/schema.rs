//! Reads a schema: references, types, and what it says about a place.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ::schema::{Complete, Draft};
use serde_json::{Map, Value, json};

use crate::{operation::Scalar, path::Token};

/// The most choices of branches at a place, and subschemas of all of them.
const ALTERNATIVES_MAX: usize = 64;
const SUBSCHEMAS_MAX: usize = 4096;
/// The deepest nesting of references and branches at one place.
const NESTED_MAX: usize = 64;
const REGEX_BYTES_MAX: usize = 256 * 1024;

/// What a schema says about a place: the subschemas that apply together, for each choice of branches.
pub(crate) type Place<'s> = Vec<Vec<&'s Value>>;

/// A schema whose local references can be followed.
#[derive(Clone, Copy)]
pub(crate) struct Document<'a> {
    pub root: &'a Value,
    pub is_draft_07: bool,
    /// Whether references are pointers into the whole document.
    has_plain_references: bool,
}

impl<'a> Document<'a> {
    pub fn of(root: &'a Value) -> Self {
        let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        Self {
            root,
            is_draft_07: dialect.contains("draft-07"),
            has_plain_references: !nested_values(root).skip(1).any(|value| value.get("$id").is_some()),
        }
    }

    /// The target of a local reference.
    pub fn target(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#').filter(|_| self.has_plain_references)?;
        if pointer.contains('%') {
            None
        } else {
            self.root.pointer(pointer)
        }
    }

    /// The keywords that count next to a reference: in draft-07 none.
    pub fn keywords<'s>(&self, schema: &'s Value) -> Option<&'s Map<String, Value>> {
        let keywords = schema.as_object()?;
        (!self.is_draft_07 || !keywords.contains_key("$ref")).then_some(keywords)
    }

    /// The subschemas that apply together to a value of all these schemas, for each choice of branches. None if they
    /// are too many, or a reference leads to nothing.
    pub fn alternatives(&self, schemas: &[&'a Value]) -> Option<Place<'a>> {
        let mut all = vec![Vec::new()];
        for schema in schemas {
            self.expand(schema, &mut all, 0)?;
        }
        Some(all)
    }

    fn expand(&self, schema: &'a Value, all: &mut Vec<Vec<&'a Value>>, depth: usize) -> Option<()> {
        if depth > NESTED_MAX {
            return None;
        }
        if let Some(reference) = schema.get("$ref") {
            self.expand(self.target(reference.as_str()?)?, all, depth + 1)?;
        }
        if let Some(keywords) = self.keywords(schema) {
            for branch in branches(keywords, "allOf") {
                self.expand(branch, all, depth + 1)?;
            }
            for keyword in ["anyOf", "oneOf"] {
                if keywords.contains_key(keyword) {
                    let before = std::mem::take(all);
                    for branch in branches(keywords, keyword) {
                        let mut some = before.clone();
                        self.expand(branch, &mut some, depth + 1)?;
                        all.append(&mut some);
                        if all.len() > ALTERNATIVES_MAX {
                            return None;
                        }
                    }
                }
            }
            for one in all.iter_mut() {
                one.push(schema);
            }
            if all.iter().map(Vec::len).sum::<usize>() > SUBSCHEMAS_MAX {
                return None;
            }
        } else if schema.is_boolean() {
            for one in all {
                one.push(schema);
            }
        }
        Some(())
    }

    /// What the schemas say about a place: the subschemas that apply together there, for each choice of branches that
    /// declares it. None if they are too many.
    pub fn at(&self, schemas: &[&'a Value], path: &[Token]) -> Option<Place<'a>> {
        path.iter().try_fold(vec![schemas.to_vec()], |place, token| {
            inside(&self.expanded(&place)?, token)
        })
    }

    /// All choices of branches of a place.
    pub fn expanded(&self, place: &[Vec<&'a Value>]) -> Option<Place<'a>> {
        let mut all = Vec::new();
        for group in place {
            all.append(&mut self.alternatives(group)?);
        }
        Some(all)
    }

    /// Whether each value of these schemas has the member.
    pub fn requires(&self, schemas: &[&'a Value], name: &str) -> bool {
        let alternatives = self.alternatives(schemas).unwrap_or_else(|| vec![Vec::new()]);
        alternatives.iter().all(|all| is_required(all, name))
    }

    /// The types that a value of these schemas can have.
    pub fn types(&self, schemas: &[&'a Value]) -> Types {
        let Some(alternatives) = self.alternatives(schemas) else {
            return Types::ALL;
        };
        alternatives
            .iter()
            .fold(Types(0), |types, all| Types(types.0 | Types::of(all).0))
    }

    /// Whether these values fit a subschema of this document. None if that cannot be found out.
    pub fn accepts(&self, schema: &Value, values: &[Value]) -> Option<bool> {
        self.check(schema, |validator| values.iter().all(|value| validator.is_valid(value)))
    }

    /// The first of these values that fits a subschema of this document. None also if that cannot be found out.
    pub fn first_accepted(&self, schema: &Value, values: impl Iterator<Item = Value>) -> Option<Value> {
        self.check(schema, |validator| {
            let mut values = values;
            values.find(|value| validator.is_valid(value))
        })?
    }

    /// Calls `check` with the validator of a subschema. None if it has none, or panics.
    fn check<T>(&self, schema: &Value, check: impl FnOnce(&Complete) -> T) -> Option<T> {
        let mut whole = json!({ "allOf": [schema] });
        for definitions in ["$schema", "$defs", "definitions"] {
            if let Some(value) = self.root.get(definitions) {
                whole[definitions] = value.clone();
            }
        }
        let leads_inside = |value: &Value| {
            let reference = value.get("$ref").and_then(Value::as_str);
            let is_inside = |it: &str| it.starts_with("#/$defs/") || it.starts_with("#/definitions/");
            reference.is_none_or(is_inside) && value.get("$dynamicRef").is_none() && value.get("$id").is_none()
        };
        if !nested_values(&whole).all(leads_inside) {
            return None;
        }
        // The validator has defects in which it panics.
        let check = || compile(&whole, self.is_draft_07).map(|validator| check(&validator));
        catch_unwind(AssertUnwindSafe(check)).ok().flatten()
    }

    /// The validator of the keywords of a schema that concern scalars.
    pub fn alone(&self, schema: &Value) -> Option<Complete> {
        const SCALAR: [&str; 9] = [
            "type",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "pattern",
            "format",
            "not",
        ];
        let mut keywords = schema.as_object()?.clone();
        keywords.retain(|keyword, _| SCALAR.contains(&keyword.as_str()));
        keywords.retain(|_, value| !nested_values(value).any(|inside| inside.get("$ref").is_some()));
        catch_unwind(|| compile(&Value::Object(keywords), self.is_draft_07))
            .ok()
            .flatten()
    }
}

/// Compiles a schema as the registry does.
pub(crate) fn compile(schema: &Value, is_draft_07: bool) -> Option<Complete> {
    let draft = if is_draft_07 { Draft::Draft7 } else { Draft::Draft202012 };
    Complete::compile(schema, draft, REGEX_BYTES_MAX).ok()
}

/// What all choices of branches of a place declare for a member or for every item.
pub(crate) fn inside<'a>(expanded: &[Vec<&'a Value>], token: &Token) -> Option<Place<'a>> {
    let mut inside = Vec::new();
    for all in expanded {
        let children: Vec<_> = all.iter().filter_map(|schema| child(schema, token)).collect();
        let is_known = inside.iter().any(|known: &Vec<&Value>| same(known, &children));
        if !children.is_empty() && !is_known {
            inside.push(children);
        }
    }
    (inside.len() <= ALTERNATIVES_MAX).then_some(inside)
}

/// The subschema for a member or for every item.
pub(crate) fn child<'a>(schema: &'a Value, token: &Token) -> Option<&'a Value> {
    match token {
        Token::Name(name) => schema.get("properties")?.get(name),
        Token::Items => schema
            .get("items")
            .filter(|items| !items.is_array() && schema.get("prefixItems").is_none()),
    }
}

/// Whether two lists have the same subschemas.
pub(crate) fn same(a: &[&Value], b: &[&Value]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| std::ptr::eq(*a, *b))
}

pub(crate) fn branches<'a>(keywords: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    keywords
        .get(keyword)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Whether one of the schemas, which apply together, requires the member.
pub(crate) fn is_required(all: &[&Value], name: &str) -> bool {
    let requires = |schema: &&Value| strings(schema.get("required")).any(|required| required == name);
    all.iter().any(requires)
}

/// The texts of a list.
pub(crate) fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// The names that these schemas declare.
pub(crate) fn property_names<'a>(schemas: &[&'a Value]) -> std::collections::BTreeSet<&'a str> {
    let properties = schemas
        .iter()
        .filter_map(|schema| schema.get("properties")?.as_object());
    properties
        .flat_map(|members| members.keys().map(String::as_str))
        .collect()
}

/// The values that schemas that apply together leave, if one of them is a list of values.
pub(crate) fn finite(all: &[&Value]) -> Option<Vec<Value>> {
    let listed = all
        .iter()
        .filter_map(|schema| match (schema.get("const"), schema.get("enum")) {
            (Some(value), _) => Some(vec![value.clone()]),
            (_, Some(Value::Array(values))) => Some(values.clone()),
            _ => None,
        });
    let types = Types::of(all);
    if let Some(mut values) = listed.min_by_key(Vec::len) {
        values.retain(|value| types.admits(value));
        return Some(values);
    }
    let scalars = [
        (Types::NULL, json!(null)),
        (Types::BOOLEAN, json!(false)),
        (Types::BOOLEAN, json!(true)),
    ];
    let is_finite = types.0 & !(Types::NULL.0 | Types::BOOLEAN.0) == 0;
    is_finite.then(|| {
        scalars
            .into_iter()
            .filter(|(of, _)| types.0 & of.0 != 0)
            .map(|(_, value)| value)
            .collect()
    })
}

/// A value and all values inside it.
pub(crate) fn nested_values(value: &Value) -> impl Iterator<Item = &Value> {
    let mut open = vec![value];
    std::iter::from_fn(move || {
        let next = open.pop()?;
        match next {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
        Some(next)
    })
}

/// A set of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Types(pub u8);

impl Types {
    pub const NULL: Self = Self(1);
    pub const BOOLEAN: Self = Self(2);
    pub const STRING: Self = Self(4);
    pub const INTEGER: Self = Self(8);
    /// Includes integers.
    pub const NUMBER: Self = Self(24);
    pub const ARRAY: Self = Self(32);
    pub const OBJECT: Self = Self(64);
    pub const ALL: Self = Self(127);

    fn named(name: &str) -> Self {
        match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "string" => Self::STRING,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => Self(0),
        }
    }

    pub fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::String(_) => Self::STRING,
            Value::Number(number) if number.as_f64().is_none_or(|number| number.fract() == 0.0) => Self::INTEGER,
            Value::Number(_) => Self::NUMBER,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    /// Of schemas that apply together, whose branches count separately.
    pub fn of(all: &[&Value]) -> Self {
        all.iter()
            .fold(Self::ALL, |types, schema| Self(types.0 & Self::stated(schema).0))
    }

    fn stated(schema: &Value) -> Self {
        let mut types = match schema.get("type") {
            Some(Value::String(name)) => Self::named(name),
            Some(Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str);
                names.fold(Self(0), |types, name| Self(types.0 | Self::named(name).0))
            }
            _ if *schema == Value::Bool(false) => Self(0),
            _ => Self::ALL,
        };
        let listed = |values: &[Value]| values.iter().fold(0, |types, value| types | Self::of_value(value).0);
        if let Some(Value::Array(values)) = schema.get("enum") {
            types.0 &= listed(values);
        }
        if let Some(value) = schema.get("const") {
            types.0 &= Self::of_value(value).0;
        }
        types
    }

    pub fn admits(self, value: &Value) -> bool {
        Self::of_value(value).is_within(self)
    }

    pub fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The one scalar type.
    pub fn scalar(self) -> Option<Scalar> {
        match self {
            Self::STRING => Some(Scalar::String),
            Self::INTEGER => Some(Scalar::Integer),
            Self::NUMBER => Some(Scalar::Number),
            Self::BOOLEAN => Some(Scalar::Boolean),
            _ => None,
        }
    }

    /// The types in words.
    pub fn names(self) -> String {
        let names = ["null", "boolean", "string", "integer", "number", "array", "object"];
        let has =
            |name: &&&str| Self::named(name).is_within(self) && (**name != "integer" || !Self::NUMBER.is_within(self));
        let names: Vec<_> = names.iter().filter(has).copied().collect();
        if self == Self::ALL {
            "anything".to_owned()
        } else {
            names.join(" or ")
        }
    }

    pub fn without_null(self) -> Self {
        Self(self.0 & !Self::NULL.0)
    }
}
