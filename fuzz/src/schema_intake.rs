//! Target: schemas and payloads of untrusted callers. No panic, no stack overflow, no long computation.

use actors::registry::Schema;
use serde_json::{Map, Value, json};

use crate::mutate::Choices;

pub const DICTIONARY: &[&str] = &[
    "\0",
    "{\"$ref\":\"#\"}",
    "{\"$ref\":\"#/$defs/a\"}",
    "\"$defs\":{\"a\":{}},",
    "\"$dynamicRef\":\"#a\",",
    "\"$dynamicAnchor\":\"a\",",
    "\"$id\":\"http://a/b\",",
    "\"$anchor\":\"a\",",
    "\"allOf\":[",
    "\"anyOf\":[",
    "\"oneOf\":[",
    "\"not\":",
    "\"unevaluatedProperties\":",
    "\"patternProperties\":{\"(a+)+$\":",
    "\"pattern\":\"^(a|a)*$\"",
    "\"pattern\":\"a{1000}{1000}\"",
    "\"properties\":{\"a\":",
    "\"additionalProperties\":",
    "\"items\":",
    "\"contains\":",
    "\"minContains\":0",
    "\"enum\":[1,\"a\",null]",
    "\"multipleOf\":0.1",
    "\"uniqueItems\":true",
    "\"required\":[\"a\"]",
    "\"type\":\"object\"",
    "1e308",
    "-0.0",
    "18446744073709551616",
    "\\ud800",
    "[[[[[[[[",
    "]]]]]]]]",
];

/// The input is a schema and a payload as text with a 0 between them, or a series of choices that generate both.
pub fn run(input: &[u8]) {
    if let Some(at) = input.iter().position(|&byte| byte == 0)
        && let Ok(schema) = serde_json::from_slice(&input[..at])
    {
        return pair(&schema, &String::from_utf8_lossy(&input[at + 1..]));
    }
    let mut choices = Choices(input);
    let schema = schema(&mut choices, 6);
    pair(&schema, &value(&mut choices, 12).to_string());
    pair(
        &schema,
        &json!({ "a": value(&mut choices, 12), "b": [1, "a"] }).to_string(),
    );
}

fn pair(schema: &Value, payload: &str) {
    let Ok(compiled) = Schema::compile(schema) else { return };
    let verdict = compiled.validate(payload);
    assert_eq!(compiled.validate(payload), verdict, "the verdict is the same each time");
    if verdict.is_ok() {
        let value: Value = serde_json::from_str(payload).expect("a payload that was accepted is JSON");
        assert!(value.is_object(), "a payload is an object");
        // The verdict does not depend on how the payload is written: a schema is about values.
        assert_eq!(
            compiled.validate(&value.to_string()),
            Ok(()),
            "accepted, but not after a round trip through serde_json"
        );
    }
}

fn schema(choices: &mut Choices<'_>, depth: usize) -> Value {
    if depth == 0 || choices.is_used_up() {
        return [
            json!(true),
            json!({}),
            json!({ "$ref": "#" }),
            json!({ "$ref": "#/$defs/a" }),
        ][choices.below(4)]
        .clone();
    }
    let mut members = Map::new();
    for _ in 0..=choices.below(4) {
        let (name, value) = keyword(choices, depth - 1);
        members.insert(name.to_owned(), value);
    }
    if depth == 6 {
        members.insert(
            "$defs".to_owned(),
            json!({ "a": schema(choices, 3), "b": schema(choices, 3) }),
        );
        if choices.below(3) == 0 {
            members.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
        }
    }
    Value::Object(members)
}

fn keyword(choices: &mut Choices<'_>, depth: usize) -> (&'static str, Value) {
    let types = ["object", "array", "string", "number", "integer", "boolean", "null"];
    let several = |choices: &mut Choices<'_>| {
        let len = 1 + choices.below(3);
        Value::Array((0..len).map(|_| schema(choices, depth)).collect())
    };
    let named = |choices: &mut Choices<'_>, names: &[&str]| {
        let chosen = names
            .iter()
            .filter(|_| choices.byte() & 1 == 0)
            .copied()
            .collect::<Vec<_>>();
        let members = chosen.into_iter().map(|name| (name.to_owned(), schema(choices, depth)));
        Value::Object(members.collect())
    };
    match choices.below(30) {
        0 | 1 => ("type", json!(types[choices.below(7)])),
        2 => ("type", json!([types[choices.below(4)], "null"])),
        3..6 => ("properties", named(choices, &["a", "b", "", "é"])),
        6 => (
            "patternProperties",
            named(choices, &["^a", "(a|b)+$", "\\p{L}", "[", "(?=a)"]),
        ),
        7 => ("additionalProperties", schema(choices, depth)),
        8 => ("propertyNames", schema(choices, depth)),
        9 => ("required", json!(["a", "b"][..choices.below(3)])),
        10 => ("allOf", several(choices)),
        11 => ("anyOf", several(choices)),
        12 => ("oneOf", several(choices)),
        13 => ("not", schema(choices, depth)),
        14 => ("if", schema(choices, depth)),
        15 => ("then", schema(choices, depth)),
        16 => ("items", schema(choices, depth)),
        17 => ("prefixItems", several(choices)),
        18 => ("contains", schema(choices, depth)),
        19 => ("unevaluatedProperties", schema(choices, depth)),
        20 => ("dependentSchemas", named(choices, &["a", "b"])),
        21 => (
            "$ref",
            json!(["#", "#/$defs/a", "#/$defs/b", "#/$defs/c", "#x", "http://x/"][choices.below(6)]),
        ),
        22 => (
            "enum",
            Value::Array((0..choices.below(4)).map(|_| value(choices, 2)).collect()),
        ),
        23 => ("const", value(choices, 2)),
        24 => ("minimum", number(choices)),
        25 => ("multipleOf", number(choices)),
        26 => ("minLength", number(choices)),
        27 => ("maxItems", number(choices)),
        28 => ("uniqueItems", json!(choices.byte() & 1 == 0)),
        _ => (
            "format",
            json!(["date-time", "email", "uri", "regex", "x"][choices.below(5)]),
        ),
    }
}

fn number(choices: &mut Choices<'_>) -> Value {
    [
        json!(0),
        json!(1),
        json!(-1),
        json!(2),
        json!(0.1),
        json!(1e308),
        json!(1.5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(5e-324),
    ][choices.below(10)]
    .clone()
}

fn value(choices: &mut Choices<'_>, depth: usize) -> Value {
    match choices.below(if depth == 0 { 6 } else { 10 }) {
        0 => Value::Null,
        1 => json!(choices.byte() & 1 == 0),
        2 | 3 => number(choices),
        4 => json!("a".repeat(choices.below(40))),
        5 => json!(["", "é", "b", "2026-09-21T14:13:20Z", "\u{0}"][choices.below(5)]),
        6 => Value::Array((0..choices.below(5)).map(|_| value(choices, depth - 1)).collect()),
        _ => {
            let names = ["a", "b", "", "é", "c"];
            let members = (0..choices.below(5)).map(|at| (names[at].to_owned(), value(choices, depth - 1)));
            Value::Object(members.collect())
        }
    }
}
