//! Generates payloads that try the edges of a schema, one at a time. Many do not fit: the caller tries them first.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    path::Token,
    schema::{Document, Types, child, finite, is_required, property_names},
};

/// Values of the payload, of which each level inside has half, and places that are looked at.
const VALUES_MAX: usize = 400;
const HALVINGS_MAX: usize = 4;
const PLACES_MAX: usize = 5000;
/// Nested deeper, optional members are left out and arrays are short.
const DEPTH_MAX: usize = 6;
/// The longest text and the longest array.
const TEXT_LEN_MAX: u64 = 2000;
const ITEMS_MAX: u64 = 40;
/// Names of other versions that are tried as undeclared members.
const NAMES_MAX: usize = 16;

/// Texts that a pattern or a format may want.
const TEXTS: &[&str] = &[
    "",
    "a",
    "0",
    "-1",
    "1.50",
    "true",
    "A",
    "ab",
    "a b",
    "a,b",
    "a-b",
    "abc",
    "ABC",
    "a1",
    "12",
    "123",
    "1234",
    "12345",
    "1.0.0",
    "é",
    "2026-09-21T14:13:20Z",
    "2026-09-21",
    "14:13:20Z",
    "a@example.com",
    "https://example.com/a",
    "/a",
    "127.0.0.1",
    "::1",
    "example.com",
    "P1D",
    "00000000-0000-4000-8000-000000000000",
    "0123456789abcdef0123456789abcdef01234567",
    "#aabbcc",
];

pub(crate) struct Generator<'a> {
    document: Document<'a>,
    /// Scalars that the lens names.
    hints: Vec<Value>,
    /// Names that the other version declares.
    names: BTreeSet<String>,
    is_out_of_time: &'a dyn Fn() -> bool,
    left: usize,
}

impl<'a> Generator<'a> {
    pub fn new(document: Document<'a>, hints: Vec<Value>, other: &Value, is_out_of_time: &'a dyn Fn() -> bool) -> Self {
        let names = crate::schema::nested_values(other).flat_map(|schema| {
            let properties = schema.get("properties").and_then(Value::as_object);
            properties.into_iter().flat_map(|members| members.keys().cloned())
        });
        Self {
            document,
            hints,
            names: names.take(NAMES_MAX).collect(),
            is_out_of_time,
            left: PLACES_MAX,
        }
    }

    /// Payloads: the fullest first, then the least, then others.
    pub fn payloads(&mut self) -> Vec<Value> {
        let root = self.document.root;
        self.values(&[root], 0)
    }

    /// Values of schemas that apply together. The first is the fullest.
    pub fn values(&mut self, schemas: &[&'a Value], depth: usize) -> Vec<Value> {
        let Some(alternatives) = self.document.alternatives(schemas) else {
            return Vec::new();
        };
        if self.left == 0 || depth > 2 * DEPTH_MAX || (self.is_out_of_time)() {
            return Vec::new();
        }
        self.left -= 1;
        let each: Vec<_> = alternatives.iter().map(|all| self.values_of(all, depth)).collect();
        in_turn(each, depth)
    }

    fn values_of(&mut self, all: &[&'a Value], depth: usize) -> Vec<Value> {
        if let Some(values) = finite(all) {
            return values;
        }
        let types = Types::of(all);
        let named = all.iter().flat_map(|schema| {
            let examples = schema.get("examples").and_then(Value::as_array).into_iter().flatten();
            examples.chain(schema.get("default"))
        });
        let mut kinds = vec![named.filter(|value| types.admits(value)).cloned().collect()];
        if types.meets(Types::OBJECT) {
            kinds.push(self.objects(all, depth));
        }
        if types.meets(Types::ARRAY) && depth > 0 {
            kinds.push(self.arrays(all, depth));
        }
        if types.meets(Types::STRING) && depth > 0 {
            kinds.push(self.texts(all));
        }
        if types.meets(Types::NUMBER) && depth > 0 {
            kinds.push(self.numbers(all, types));
        }
        if types.meets(Types::BOOLEAN) && depth > 0 {
            kinds.push(vec![json!(true), json!(false)]);
        }
        if types.meets(Types::NULL) && depth > 0 {
            kinds.push(vec![Value::Null]);
        }
        in_turn(kinds, depth)
    }

    fn objects(&mut self, all: &[&'a Value], depth: usize) -> Vec<Value> {
        let mut members: Vec<(String, bool, Vec<Value>)> = Vec::new();
        for name in property_names(all) {
            let token = Token::Name(name.to_owned());
            let schemas: Vec<_> = all.iter().filter_map(|schema| child(schema, &token)).collect();
            let is_required = is_required(all, name);
            if is_required || depth < DEPTH_MAX {
                let values = self.values(&schemas, depth + 1);
                if is_required || !values.is_empty() {
                    members.push((name.to_owned(), is_required, values));
                }
            }
        }
        let first = |(name, _, values): &(String, bool, Vec<Value>)| Some((name.clone(), values.first()?.clone()));
        let full: Map<_, _> = members.iter().filter_map(first).collect();
        let least: Map<_, _> = members.iter().filter(|member| member.1).filter_map(first).collect();
        let with = |base: &Map<String, Value>, name: &str, value: &Value| {
            let mut object = base.clone();
            object.insert(name.to_owned(), value.clone());
            Value::Object(object)
        };
        let mut objects = vec![Value::Object(full.clone()), Value::Object(least.clone())];
        for (name, _, values) in members.iter().filter(|member| !member.1) {
            let mut without = full.clone();
            without.remove(name);
            objects.push(Value::Object(without));
            objects.extend(values.first().map(|value| with(&least, name, value)));
        }
        let others = all
            .iter()
            .filter_map(|schema| schema.get("additionalProperties"))
            .collect::<Vec<_>>();
        if !others.iter().any(|others| **others == Value::Bool(false)) && depth <= 2 {
            let inside = if others.is_empty() {
                Vec::new()
            } else {
                self.values(&others, depth + 1)
            };
            objects.push(with(
                &full,
                "undeclared",
                inside.first().unwrap_or(&json!({"undeclared": 1})),
            ));
            objects.extend(inside.iter().skip(1).map(|value| with(&least, "undeclared", value)));
            for name in self
                .names
                .iter()
                .filter(|name| !members.iter().any(|member| member.0 == **name))
            {
                objects.push(with(&full, name, &json!("undeclared")));
                objects.push(with(&least, name, &json!(1)));
            }
        }
        let most = members.iter().map(|member| member.2.len()).max().unwrap_or(0);
        for at in 1..most {
            for (name, _, values) in &members {
                if objects.len() >= values_max(depth) {
                    return objects;
                }
                objects.extend(values.get(at).map(|value| with(&full, name, value)));
            }
        }
        objects
    }

    fn arrays(&mut self, all: &[&'a Value], depth: usize) -> Vec<Value> {
        let schemas: Vec<_> = all.iter().filter_map(|schema| child(schema, &Token::Items)).collect();
        let is_needed = depth < DEPTH_MAX || all.iter().any(|schema| schema.get("minItems").is_some());
        let items = if is_needed {
            self.values(&schemas, depth + 1)
        } else {
            Vec::new()
        };
        let bound = |keyword: &'static str| all.iter().filter_map(move |schema| schema.get(keyword)?.as_u64());
        let least = bound("minItems").max().unwrap_or(0);
        let most = bound("maxItems").min().unwrap_or(u64::MAX);
        let of_len = |len: u64| {
            let items = items
                .iter()
                .cycle()
                .take(if items.is_empty() { 0 } else { len as usize });
            Value::Array(items.cloned().collect())
        };
        let usual = if depth < DEPTH_MAX { 2 } else { 0 };
        let lens = [
            usual.clamp(least, most.max(least)),
            least,
            least + 1,
            most,
            most.saturating_sub(1),
            0,
            1,
        ];
        let lens = lens
            .into_iter()
            .filter(|len| (least..=most).contains(len) && *len <= ITEMS_MAX.max(least.min(1000)));
        let mut arrays: Vec<_> = lens.map(of_len).collect();
        let (known, len) = (arrays.len(), least.clamp(1, ITEMS_MAX));
        arrays.extend(
            items
                .iter()
                .skip(1)
                .take(values_max(depth).saturating_sub(known))
                .map(|item| Value::Array(vec![item.clone(); len as usize])),
        );
        arrays
    }

    fn texts(&self, all: &[&'a Value]) -> Vec<Value> {
        let bound = |keyword: &'static str| all.iter().filter_map(move |schema| schema.get(keyword)?.as_u64());
        let least = bound("minLength").max().unwrap_or(0);
        let most = bound("maxLength").min().unwrap_or(u64::MAX);
        let lens = [least.max(1), least, least + 1, most, most.saturating_sub(1)];
        let lens = lens
            .into_iter()
            .filter(|len| (least..=most).contains(len) && *len <= TEXT_LEN_MAX);
        let hints = self.hints.iter().filter(|hint| hint.is_string()).cloned();
        let made = lens.map(|len| json!("x".repeat(len as usize)));
        let texts: Vec<_> = made.chain(hints).chain(TEXTS.iter().map(|text| json!(text))).collect();
        self.fitting(all, texts)
    }

    fn numbers(&self, all: &[&'a Value], types: Types) -> Vec<Value> {
        let is_integer = !Types::NUMBER.is_within(types);
        let keywords = [
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ];
        let bounds = all
            .iter()
            .flat_map(|schema| keywords.map(|keyword| schema.get(keyword)));
        let near = bounds.flatten().flat_map(|bound| {
            let beside = |by: f64| bound.as_f64().map(|bound| bound + by);
            let step = if is_integer { 1.0 } else { 0.5 };
            [Some(bound.clone()), beside(step).map(number), beside(-step).map(number)]
        });
        let hints = self.hints.iter().filter(|hint| hint.is_number()).cloned();
        let usual = [
            json!(1),
            json!(0),
            json!(-1),
            json!(7),
            json!(100),
            json!(123_456_789),
            json!(1.5),
            json!(-0.25),
            json!(0.1),
        ];
        let numbers = near
            .flatten()
            .chain(hints)
            .chain(usual)
            .filter(|number| types.admits(number));
        self.fitting(all, numbers.collect())
    }

    /// The scalars that fit, as far as that can be found out; else all.
    fn fitting(&self, all: &[&'a Value], mut values: Vec<Value>) -> Vec<Value> {
        let is_plain = |schema: &&Value| {
            schema.as_object().is_none_or(|keywords| {
                keywords
                    .keys()
                    .all(|keyword| keyword == "type" || keyword.ends_with("Length"))
            })
        };
        if !all.iter().all(is_plain) {
            let validators: Vec<_> = all.iter().filter_map(|schema| self.document.alone(schema)).collect();
            values.retain(|value| validators.iter().all(|validator| validator.is_valid(value)));
        }
        values.dedup();
        values
    }
}

const fn values_max(depth: usize) -> usize {
    VALUES_MAX >> if depth < HALVINGS_MAX { depth } else { HALVINGS_MAX }
}

fn number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        json!(number as i64)
    } else {
        json!(number)
    }
}

/// The first values of all lists, then the second ones, and so on.
fn in_turn(lists: Vec<Vec<Value>>, depth: usize) -> Vec<Value> {
    let most = lists.iter().map(Vec::len).max().unwrap_or(0);
    let mut values = Vec::new();
    for at in 0..most {
        values.extend(lists.iter().filter_map(|list| list.get(at).cloned()));
        if values.len() >= values_max(depth) {
            break;
        }
    }
    values
}
