//! Tests of schemas as a whole: verdicts, limits, and agreement of both validators.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

fn schema(value: &Value) -> Schema {
    Schema::compile(value).unwrap()
}

fn refused(value: &Value) -> String {
    match Schema::compile(value) {
        Err(BrokerError::InvalidSchema { reason }) => reason,
        other => panic!("{other:?} for {value}"),
    }
}

fn failures(schema: &Schema, payload: &str) -> Vec<(String, String)> {
    match schema.validate(payload) {
        Err(BrokerError::PayloadInvalid { failures }) => failures
            .into_iter()
            .map(|failure| (failure.path, failure.reason))
            .collect(),
        other => panic!("{other:?} for {payload}"),
    }
}

/// `{"$ref": "#/$defs/d0"}` where each definition applies the next one through `link`.
fn chain(len: usize, last: Value, link: impl Fn(Value) -> Value) -> Value {
    let mut defs = Map::new();
    for at in 0..len {
        let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
        defs.insert(format!("d{at}"), link(next));
    }
    defs.insert(format!("d{len}"), last);
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

fn nested(depth: usize, leaf: &str) -> String {
    format!("{}{leaf}{}", r#"{"x":"#.repeat(depth), "}".repeat(depth))
}

#[test]
fn a_failure_says_where_and_why() {
    let schema = schema(&json!({
        "type": "object",
        "properties": {"a/b": {"type": "array", "items": {"type": "integer"}}, "n": {"minimum": 1}},
        "required": ["text"],
    }));
    assert_eq!(schema.validate(r#"{"text":1,"a/b":[1,2.0],"n":1}"#), Ok(()));
    let found = failures(&schema, r#"{"a/b":[1,"secret"],"n":0}"#);
    let paths: Vec<_> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths.iter().filter(|path| **path == "/a~1b/1").count(), 1, "{found:?}");
    assert!(paths.contains(&"/n") && paths.contains(&""), "{found:?}");
    assert!(
        found
            .iter()
            .all(|(_, reason)| !reason.contains("secret") && !reason.is_empty())
    );
}

#[test]
fn failures_are_bounded_in_number_and_length() {
    let strict = schema(&json!({"additionalProperties": {"type": "string"}}));
    let members: Map<String, Value> = (0..100)
        .map(|at| (format!("{at}{}", "k".repeat(500)), json!(1)))
        .collect();
    let found = failures(&strict, &json!(members).to_string());
    assert_eq!(found.len(), FAILURES_LEN_MAX);
    assert!(
        found
            .iter()
            .all(|(path, reason)| path.len() <= 243 && reason.len() <= 243)
    );
    let closed = schema(&json!({"additionalProperties": false}));
    assert!(failures(&closed, &json!(members).to_string())[0].1.len() <= 243);
}

#[test]
fn non_objects_and_invalid_json_are_refused_differently() {
    for schema in [schema(&json!({})), schema(&json!({"not": {"type": "string"}}))] {
        for payload in ["[]", "1", "null", "\"x\"", " true "] {
            assert_eq!(failures(&schema, payload)[0].0, "");
        }
        let deep = nested(200, "1");
        for payload in [
            "",
            "{",
            "{}{}",
            "{\"a\":1e999}",
            "{'a':1}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":01}",
            &deep,
        ] {
            let error = schema.validate(payload).unwrap_err();
            assert!(matches!(error, BrokerError::InvalidArgument { field, .. } if field == "payload"));
        }
        assert_eq!(schema.validate(" {\"a\" : \"\\ud83d\\ude00\"} \n"), Ok(()));
    }
}

#[test]
fn a_duplicate_key_is_refused_by_both_validators() {
    let fast = schema(&json!({"properties": {"a": {"type": "string"}}}));
    let slow = schema(&json!({"properties": {"a": {"type": "string"}}, "not": {"required": ["never"]}}));
    assert!(fast.fast.is_some() && slow.fast.is_none());
    let many: Vec<String> = (0..40).chain(39..40).map(|at| format!("\"k{at}\":0")).collect();
    for (payload, path) in [
        (r#"{"a":1,"a":"x"}"#.to_owned(), "/a"),
        (r#"{"a":"x","\u0061":"y"}"#.to_owned(), "/a"),
        (r#"{"b":1,"b":1}"#.to_owned(), "/b"),
        (r#"{"c":[{"d":1,"d":2}]}"#.to_owned(), "/c/0/d"),
        (format!("{{{}}}", many.join(",")), "/k39"),
    ] {
        for schema in [&fast, &slow] {
            assert_eq!(
                failures(schema, &payload),
                [(path.to_owned(), "duplicate key".to_owned())]
            );
        }
    }
    assert_eq!(fast.validate(r#"{"a":"x","b":{"a":"x"},"c":{"a":"x"}}"#), Ok(()));
}

#[test]
fn only_draft_07_and_2020_12_are_supported() {
    let tuple = |dialect: &str| json!({"$schema": dialect, "properties": {"a": {"items": [{"type": "string"}]}}});
    for dialect in [
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
    ] {
        assert_eq!(failures(&schema(&tuple(dialect)), r#"{"a":[1]}"#)[0].0, "/a/0");
    }
    refused(&tuple("https://json-schema.org/draft/2020-12/schema"));
    let prefix = json!({"properties": {"a": {"prefixItems": [{"type": "string"}]}}});
    assert_eq!(failures(&schema(&prefix), r#"{"a":[1]}"#)[0].0, "/a/0");
    for other in [
        json!("http://json-schema.org/draft-04/schema#"),
        json!("https://evil.example/meta"),
        json!(7),
    ] {
        assert!(refused(&json!({"$schema": other})).contains("2020-12"));
    }
    let mixed = json!({"$defs": {"a": {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "x:a"}}});
    assert!(refused(&mixed).contains("dialect"));
    for value in [
        json!(true),
        json!([]),
        json!({"type": "nothing"}),
        json!({"minLength": -1}),
        json!({"required": 1}),
    ] {
        refused(&value);
    }
}

#[test]
fn format_is_asserted_where_the_dialect_says_so() {
    let with = |dialect: &str| schema(&json!({"$schema": dialect, "properties": {"a": {"format": "ipv4"}}}));
    let old = with("http://json-schema.org/draft-07/schema#");
    assert_eq!(failures(&old, r#"{"a":"x"}"#)[0].0, "/a");
    let new = with("https://json-schema.org/draft/2020-12/schema");
    assert!(new.fast.is_some());
    assert_eq!(new.validate(r#"{"a":"x"}"#), Ok(()));
    assert!(new.full.is_valid(&json!({"a": "x"})));
}

#[test]
fn a_schema_is_bounded_in_bytes_depth_values_and_expressions() {
    assert!(refused(&json!({"description": "x".repeat(256 * 1024)})).contains("262144 bytes"));
    assert!(refused(&json!({"enum": vec![0; 5000]})).contains("4096"));
    let mut deep = json!({});
    for _ in 0..32 {
        deep = json!({"not": deep});
    }
    assert!(refused(&deep).contains("deeper than 32"));
    for _ in 0..100_000 {
        deep = Value::Array(vec![deep]);
    }
    let very_deep = Value::Object(Map::from_iter([("x".to_owned(), deep)]));
    assert!(matches!(
        Schema::compile(&very_deep),
        Err(BrokerError::InvalidSchema { .. })
    ));
    // Dropping it would recurse, which admission never does.
    std::mem::forget(very_deep);
    let patterns: Map<String, Value> = (0..129).map(|at| (format!("p{at}"), json!({"pattern": "a"}))).collect();
    assert!(refused(&json!({"properties": patterns})).contains("128"));
}

#[test]
fn references_out_of_the_document_are_refused() {
    for reference in [
        "https://evil.example/schema.json",
        "http://127.0.0.1:1/",
        "file:///etc/passwd",
        "other.json",
        "//evil.example/a",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
        "#/$defs/missing",
        "#missing",
        "",
    ] {
        for keyword in ["$ref", "$dynamicRef"] {
            let reason = refused(&json!({"properties": {"a": {keyword: reference}}}));
            assert!(reason.contains("reference"), "{reason}");
            let unused = json!({"$defs": {"b": {keyword: "https://evil.example/"}}});
            assert!(Schema::compile(&unused).is_err() || schema(&unused).validate("{}").is_ok());
        }
    }
    let local = json!({
        "$id": "https://here.example/root",
        "properties": {
            "a": {"$ref": "#/$defs/a~1b"}, "b": {"$ref": "#word"}, "c": {"$ref": "item"}, "d": {"$dynamicRef": "#word"},
        },
        "$defs": {
            "a/b": {"type": "string"},
            "w": {"$dynamicAnchor": "word", "type": "integer"},
            "i": {"$id": "item", "$ref": "#/$defs/x", "$defs": {"x": {"type": "boolean"}}},
        },
    });
    let local = schema(&local);
    assert_eq!(local.validate(r#"{"a":"x","b":1,"c":true,"d":2}"#), Ok(()));
    assert_eq!(failures(&local, r#"{"a":1,"b":"x","c":1,"d":"x"}"#).len(), 4);
    // As data, or as the name of a member, it is not a reference.
    schema(&json!({"const": {"$ref": "https://evil.example/"}, "properties": {"$ref": {"type": "string"}}}));
}

#[test]
fn a_reference_loop_that_consumes_nothing_is_refused() {
    for circle in [
        json!({"$ref": "#"}),
        json!({"$id": "https://here.example/a", "$ref": "https://here.example/a"}),
        json!({"not": {"$ref": "#"}}),
        json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"$ref": "#/properties/a"}]}}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}}),
        json!({"$ref": "#/default", "default": {"$ref": "#/default"}}),
    ] {
        assert!(refused(&circle).contains("circle"));
    }
    let tree = schema(&json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "type": "object",
            "properties": {"left": {"$ref": "#/$defs/node"}, "x": {"$ref": "#/$defs/node"}},
            "additionalProperties": false,
        }},
    }));
    assert_eq!(tree.validate(&nested(120, "{}")), Ok(()));
    let found = failures(&tree, &nested(120, "1"));
    assert_eq!(found.len(), 1);
    assert!(found[0].0.starts_with("/x/x/x"), "{found:?}");
}

#[test]
fn references_that_multiply_are_refused() {
    let twice = |next: Value| json!({"allOf": [next, next]});
    assert!(refused(&chain(30, json!({}), twice)).contains("keywords"));
    assert!(refused(&chain(600, json!({}), twice)).contains("keywords"));
    assert!(
        refused(&chain(
            30,
            json!({}),
            |next| json!({"properties": {"a": next, "b": next}})
        ))
        .contains("keywords")
    );
    // 2.5 to the 30 keywords applied, though only 30 exist.
    let again = |next: Value| json!({"allOf": [next], "unevaluatedProperties": false});
    assert!(refused(&chain(30, json!({}), again)).contains("keywords"));
    let around = json!({"properties": {"x": {"$ref": "#/$defs/d0"}}});
    assert!(refused(&chain(30, around.clone(), twice)).contains("keywords"));
    let deeper = |next: Value| json!({"properties": {"x": {"allOf": [next, next]}}});
    assert!(refused(&chain(30, around, deeper)).contains("keywords"));
    let mut long = chain(1000, json!({"type": "object"}), |next| next);
    assert_eq!(schema(&long).validate("{}"), Ok(()));
    long["$defs"]["d1000"] = json!({"$dynamicRef": "#m"});
    long["$defs"]["m"] = json!({"$defs": {"a": {"$dynamicAnchor": "m"}, "b": {"$dynamicAnchor": "m"}}});
    assert!(refused(&long).contains("dynamicAnchor"));
}

#[test]
fn long_reference_chains_do_not_overflow_the_stack() {
    let around = json!({"properties": {"x": {"$ref": "#/$defs/d0"}}});
    let schema = schema(&chain(500, around, |next| next));
    assert_eq!(schema.validate(r#"{"x":1}"#), Ok(()));
    assert!(failures(&schema, &nested(120, "{}"))[0].1.contains("more work"));
    assert!(refused(&chain(1500, json!({}), |next| next)).contains("1024"));
}

#[test]
fn a_panic_of_the_validator_is_a_refusal() {
    // Panics in jsonschema 0.60.2: "pending schema target dropped". Found by `measure_random_references`.
    let schema = schema(&json!({
        "$ref": "#/$defs/d0",
        "$defs": {
            "d0": {"properties": {"x": {"anyOf": [{"$ref": "#/$defs/d2"}]}}},
            "d2": {"oneOf": [{"$ref": "#/$defs/d5"}], "unevaluatedProperties": {}},
            "d5": {"anyOf": [{"$ref": "#/$defs/d7"}, {"$ref": "#/$defs/d14"}]},
            "d7": {"additionalProperties": {"anyOf": [{"$ref": "#/$defs/d9"}]}},
            "d9": {"anyOf": [{"$ref": "#/$defs/d11"}]},
            "d11": {"additionalProperties": {"anyOf": [{"$ref": "#/$defs/d12"}]}},
            "d12": {"oneOf": [{"$ref": "#/$defs/d14"}]},
            "d14": {"anyOf": [{"$ref": "#/$defs/d17"}]},
            "d17": {"patternProperties": {"x": {"$ref": "#/$defs/d18"}}},
            "d18": {"patternProperties": {"x": {"$ref": "#/$defs/d18"}}},
        },
    }));
    for _ in 0..2 {
        assert!(
            failures(
                &schema,
                r#"{"x":{"x":{"x":{"x":{},"y":{"x":1}},"y":{"x":1}},"y":{"x":1}},"y":{"x":1}}"#
            )[0]
            .1
            .contains("defect")
        );
    }
}

#[test]
fn an_admitted_schema_checks_payloads_in_bounded_time() {
    let around = json!({"properties": {"x": {"$ref": "#/$defs/d0"}}});
    let branches = json!({"anyOf": [
        {"properties": {"x": {"$ref": "#"}, "a": true}, "required": ["a"]},
        {"properties": {"x": {"$ref": "#"}, "b": true}, "required": ["b"]},
        {"properties": {"x": {"$ref": "#"}}, "required": ["x"]},
    ]});
    for (schema_value, payload) in [
        (
            chain(10, around.clone(), |next| json!({"allOf": [next, next]})),
            nested(120, "{}"),
        ),
        (
            chain(10, around, |next| json!({"properties": {"x": {"allOf": [next, next]}}})),
            nested(120, "{}"),
        ),
        (branches.clone(), nested(120, "1")),
        (
            json!({"allOf": [branches], "unevaluatedProperties": false}),
            nested(120, "1"),
        ),
        (json!({"additionalProperties": {"type": "string"}}), {
            let members: Vec<String> = (0..300_000).map(|at| format!("\"{at}\":1")).collect();
            format!("{{{}}}", members.join(","))
        }),
    ] {
        let schema = schema(&schema_value);
        let start = Instant::now();
        let _ = schema.validate(&payload);
        println!(
            "{:?} ns for {}",
            start.elapsed(),
            &schema_value.to_string()[..60.min(schema_value.to_string().len())]
        );
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?} for {schema_value}",
            start.elapsed()
        );
    }
}

#[test]
fn regular_expressions_take_linear_time() {
    for pattern in [
        "(?=a)b",
        "(a)\\1",
        "(?<!a)b",
        "(((a{1,100}){1,100}){1,100}){1,100}",
        "(",
    ] {
        refused(&json!({"properties": {"a": {"pattern": pattern}}}));
        refused(&json!({"patternProperties": {pattern: {}}}));
    }
    let evil = schema(&json!({"properties": {"a": {"pattern": "^(a|a)*(a|aa)+$"}}}));
    let start = Instant::now();
    assert_eq!(
        failures(&evil, &format!(r#"{{"a":"{}!"}}"#, "a".repeat(10_000)))[0].0,
        "/a"
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn many_members_need_no_fast_path() {
    let named: Map<String, Value> = (0..65)
        .map(|at| (format!("m{at}"), json!({"type": "integer"})))
        .collect();
    for (len, is_fast) in [(64, true), (65, false)] {
        let properties: Map<String, Value> = named.clone().into_iter().take(len).collect();
        let required: Vec<&String> = properties.keys().collect();
        let schema = schema(&json!({"properties": properties, "required": required}));
        assert_eq!(schema.fast.is_some(), is_fast);
        let mut payload: Map<String, Value> = properties.keys().map(|name| (name.clone(), json!(1))).collect();
        assert_eq!(schema.validate(&json!(payload).to_string()), Ok(()));
        payload.remove("m7");
        assert_eq!(failures(&schema, &json!(payload).to_string()).len(), 1);
    }
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-3..4_i64).prop_map(|n| json!(n)),
        (-6..7_i32).prop_map(|n| json!(f64::from(n) / 2.0)),
        prop_oneof![
            Just("-0.0"),
            Just("9007199254740993"),
            Just("9007199254740992.0"),
            Just("18446744073709551615"),
            Just("18446744073709551616"),
            Just("-9223372036854775808"),
            Just("9223372036854775808"),
            Just("1e300"),
            Just("-1e-300"),
        ]
        .prop_map(|text| serde_json::from_str(text).unwrap()),
        any::<f64>()
            .prop_filter("finite", |n| n.is_finite())
            .prop_map(|n| json!(n)),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[ab]{0,4}", 1 => "[é😀\"\\\\\n]{0,4}"]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number(),
        text().prop_map(Value::String),
    ]
}

fn payload() -> impl Strategy<Value = Value> {
    let value = scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(text(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    prop::collection::btree_map(text(), value, 0..5).prop_map(|members| Value::Object(members.into_iter().collect()))
}

fn type_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "null", "boolean", "integer", "number", "string", "array", "object",
    ])
}

/// One keyword of the common part; `inner` generates subschemas.
fn keyword(inner: BoxedStrategy<Value>) -> impl Strategy<Value = (&'static str, Value)> {
    let number_of = |name| number().prop_map(move |n| (name, n)).boxed();
    let count_of = |name, max| (0..max).prop_map(move |n: i32| (name, json!(n))).boxed();
    let named = prop::collection::btree_map(text(), inner.clone(), 0..4);
    let required = prop::collection::btree_set(text(), 0..3);
    let types = prop::collection::btree_set(type_name(), 1..4);
    let choices = prop::collection::vec(scalar(), 1..4);
    prop_oneof![
        4 => type_name().prop_map(|name| ("type", json!(name))),
        2 => types.prop_map(|names| ("type", json!(names))),
        4 => named.prop_map(|members| ("properties", json!(members))),
        2 => required.prop_map(|names| ("required", json!(names))),
        2 => inner.clone().prop_map(|schema| ("additionalProperties", schema)),
        2 => inner.prop_map(|schema| ("items", schema)),
        1 => choices.prop_map(|choices| ("enum", json!(choices))),
        1 => scalar().prop_map(|value| ("const", value)),
        1 => number_of("minimum"),
        1 => number_of("maximum"),
        1 => number_of("exclusiveMinimum"),
        1 => number_of("exclusiveMaximum"),
        1 => count_of("minLength", 3),
        1 => count_of("maxLength", 5),
        1 => count_of("minItems", 3),
        1 => count_of("maxItems", 4),
        1 => count_of("minProperties", 3),
        1 => count_of("maxProperties", 4),
        1 => Just(("title", json!("x"))),
        1 => Just(("format", json!("ipv4"))),
    ]
}

fn object_schema(inner: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec(keyword(inner), 0..5).prop_map(|keywords| {
        Value::Object(
            keywords
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    })
}

fn common_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        3 => any::<bool>().prop_map(Value::Bool),
        4 => type_name().prop_map(|name| json!({"type": name})),
    ];
    let inner = leaf.prop_recursive(3, 24, 4, object_schema);
    object_schema(inner.boxed())
}

/// The text of a value, with escapes and white space.
fn spelled(value: &Value, escape: bool) -> String {
    let text = if escape {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    }
    .unwrap();
    if escape { text.replace('b', "\\u0062") } else { text }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_validators_agree(
        value in common_schema(), payloads in prop::collection::vec(payload(), 8), escape: bool,
    ) {
        if let Ok(schema) = Schema::compile(&value) {
            let fast = schema.fast.as_ref();
            prop_assert!(fast.is_some(), "outside of the common part: {value}");
            for payload in payloads {
                let text = spelled(&payload, escape);
                let read: Value = serde_json::from_str(&text).unwrap();
                let verdict = schema.full.is_valid(&read);
                let found = fast.map(|node| matches!(fast::check(node, &text, &Cell::new(WORK_MAX)), Verdict::Valid));
                prop_assert_eq!(found, Some(verdict), "{} {}", value, text);
                prop_assert_eq!(schema.validate(&text).is_ok(), verdict);
            }
        }
    }

    #[test]
    fn no_text_makes_validation_panic(value in common_schema(), text in ".{0,40}", valid in payload(), cut: prop::sample::Index) {
        if let Ok(schema) = Schema::compile(&value) {
            let _ = schema.validate(&text);
            let valid = valid.to_string();
            let at = valid.floor_char_boundary(cut.index(valid.len()));
            prop_assert!(schema.validate(&valid[..at]).is_err());
        }
    }
}

/// `cargo test --release -p mcp-broker-actors --lib -- --ignored --nocapture measure_the_fast_path`
#[test]
#[ignore = "a measurement"]
fn measure_the_fast_path() {
    let schema = schema(&json!({
        "type": "object",
        "properties": {"type": {"type": "string"}, "seq": {"type": "integer"}, "text": {"type": "string"}},
        "required": ["type", "seq", "text"],
    }));
    let payload = format!(r#"{{"type":"note","seq":1234567,"text":"{}"}}"#, "x".repeat(180 - 39));
    assert_eq!(payload.len(), 180);
    let fast = |text: &str| schema.validate(text).is_ok();
    let complete = |text: &str| schema.validate_fully(&WorkBudget::default(), text).is_ok();
    let ignored = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    for (name, run) in [
        ("fast", &fast as &dyn Fn(&str) -> bool),
        ("complete", &complete),
        ("read and ignored", &ignored),
    ] {
        let batch = || {
            let start = Instant::now();
            assert!((0..100_000).all(|_| run(std::hint::black_box(&payload))));
            start.elapsed().as_nanos() / 100_000
        };
        println!("{name}: {:?} ns, the best of 30", (0..30).map(|_| batch()).min());
    }
}

type Payload = Box<dyn Fn(usize) -> String>;

/// As above. The largest payload, up to 10 MiB, that each kind of schema admits, and the processor time it takes.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "a measurement"]
fn measure_the_most_expensive_payloads() {
    let many = |n: usize, item: &str| format!("{{\"a\":[{}0]}}", format!("{item},").repeat(n));
    let text = |n: usize, part: &str| format!("{{\"a\":\"{}\"}}", part.repeat(n));
    let members = |n: usize| {
        let members: Vec<_> = (0..n).map(|at| format!("\"{at}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    let collide = |n: usize| {
        let items: Vec<_> = (0..n)
            .map(|at| format!("[{}[]]", "[],".repeat(at % 64) + &"[[]],".repeat(at / 64)))
            .collect();
        format!("{{\"a\":[{}]}}", items.join(","))
    };
    let slow = |mut schema: Value| {
        schema["not"] = json!({"required": ["never"]});
        schema
    };
    let old =
        |schema: Value| json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": schema}});
    let a = |schema: Value| json!({"properties": {"a": schema}});
    let expressions: Map<String, Value> = (0..100)
        .map(|at| (format!("^[a-z]{{{at}}}x[0-9]+"), json!({})))
        .collect();
    let around = json!({"properties": {"x": {"$ref": "#/$defs/d0"}}});
    let double = chain(10, around, |next| json!({"allOf": [next, next]}));
    let mut cases: Vec<(&str, Value, Payload)> = vec![
        ("fast: integers", json!({}), Box::new(move |n| many(n, "1"))),
        (
            "fast: floats",
            json!({}),
            Box::new(move |n| many(n, "1.2345678901234567e-300")),
        ),
        ("fast: arrays", json!({}), Box::new(move |n| many(n, "[]"))),
        ("fast: objects", json!({}), Box::new(move |n| many(n, "{\"\":0}"))),
        ("fast: members", json!({}), Box::new(members)),
        ("fast: text", json!({}), Box::new(move |n| text(n, "x"))),
        ("fast: escapes", json!({}), Box::new(move |n| text(n, "\\u00e9"))),
        (
            "fast: enum",
            a(json!({"items": {"enum": (0..4000).collect::<Vec<_>>()}})),
            Box::new(move |n| many(n, "3999")),
        ),
        ("integers", slow(json!({"title": "1"})), Box::new(move |n| many(n, "1"))),
        (
            "floats",
            slow(json!({"title": "2"})),
            Box::new(move |n| many(n, "1.2345678901234567e-300")),
        ),
        ("arrays", slow(json!({"title": "3"})), Box::new(move |n| many(n, "[]"))),
        (
            "objects",
            slow(json!({"title": "4"})),
            Box::new(move |n| many(n, "{\"\":0}")),
        ),
        ("members", slow(json!({"title": "5"})), Box::new(members)),
        ("text", slow(json!({"title": "6"})), Box::new(move |n| text(n, "x"))),
        (
            "escapes",
            slow(json!({"title": "7"})),
            Box::new(move |n| text(n, "\\u00e9")),
        ),
        (
            "alternatives",
            a(json!({"items": {"anyOf": vec![json!({"type": "string"}); 100]}})),
            Box::new(move |n| many(n, "1")),
        ),
        (
            "one of",
            a(json!({"items": {"oneOf": vec![json!({"minimum": 1, "maximum": 5}); 50]}})),
            Box::new(move |n| many(n, "1")),
        ),
        (
            "compared",
            a(json!({"items": {"enum": [[1], {"a": 1}, 2, 3, 4, 5, 6, 7, 8, 9]}})),
            Box::new(move |n| many(n, "9")),
        ),
        (
            "divided",
            a(json!({"items": {"multipleOf": 0.000_000_003}})),
            Box::new(move |n| many(n, "123456789.123456")),
        ),
        ("unique, colliding", a(json!({"uniqueItems": true})), Box::new(collide)),
        (
            "unique integers",
            a(json!({"uniqueItems": true})),
            Box::new(move |n| format!("{{\"a\":{:?}}}", (0..n).collect::<Vec<_>>())),
        ),
        (
            "names",
            json!({"patternProperties": expressions, "additionalProperties": true}),
            Box::new(members),
        ),
        (
            "unevaluated",
            a(json!({"items": {"allOf": [{"properties": {"": true}}], "unevaluatedProperties": false}})),
            Box::new(move |n| many(n, "{\"\":0}")),
        ),
        ("references", double, Box::new(|n| nested(n.min(120), "{}"))),
        (
            "read as JSON",
            old(json!({"contentMediaType": "application/json"})),
            Box::new(move |n| format!("{{\"a\":\"[{}0]\"}}", "[],".repeat(n))),
        ),
        (
            "decoded",
            old(json!({"contentEncoding": "base64"})),
            Box::new(move |n| text(n, "abcd")),
        ),
        (
            "length",
            slow(a(json!({"maxLength": 3}))),
            Box::new(move |n| text(n, "\u{e9}")),
        ),
    ];
    for (name, expression, part) in [
        ("table", "^[a-z]+$", "a"),
        ("table, unanchored", "[a-z]+[0-9]{3}x", "a1"),
        ("many states", "[ab]*a[ab]{2500}c", "ab"),
        ("some states", "[ab]*a[ab]{40}c", "aab"),
        ("nested", "(.*a){20}.{200}b", "xa"),
        ("counted", "^.{1,1000}$", "x\u{e9}"),
        ("words", "\\b(a|aa){100}b", "a\u{e9}"),
        ("alternatives", "(a|b|ab|ba|aab|bba)*c", "ab"),
    ] {
        cases.push((
            name,
            a(json!({"pattern": expression})),
            Box::new(move |n| text(n, part)),
        ));
    }
    for (format, part) in [
        ("regex", "(a"),
        ("regex", "a"),
        ("regex", "(?<a>b)|"),
        ("uri", "a:"),
        ("uri-reference", "/%20"),
        ("email", "a.b@"),
        ("email", "a."),
        ("hostname", "a.a-"),
        ("idn-hostname", "\u{e9}."),
        ("uri-template", "{a,b}"),
        ("json-pointer", "/~0"),
        ("iri", "\u{e9}"),
        ("date-time", "2020-"),
        ("ipv6", "1:"),
        ("uuid", "a"),
        ("idn-email", "\u{e9}@"),
        ("time", "1"),
        ("relative-json-pointer", "1"),
    ] {
        cases.push((format, old(json!({"format": format})), Box::new(move |n| text(n, part))));
    }
    for (name, schema_value, payload) in cases {
        let schema = match Schema::compile(&schema_value) {
            Ok(schema) => schema,
            Err(error) => {
                println!("{name:>20} {error}");
                continue;
            }
        };
        let refused = |n: usize| {
            let payload = payload(n);
            payload.len() > 10 << 20
                || matches!(schema.validate(&payload), Err(BrokerError::PayloadInvalid { failures }) if failures[0].reason.contains("more work"))
        };
        let mut n = 1;
        while n < 6_000_000 && !refused(2 * n) {
            n *= 2;
        }
        for part in [2, 4, 8] {
            if !refused(n + n / part) {
                n += n / part;
            }
        }
        let payload = payload(n);
        let processor = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
        };
        let run = || {
            let start = processor();
            let verdict = schema.validate(&payload);
            (processor().saturating_sub(start), verdict.is_ok())
        };
        let (took, verdict) = (0..3).map(|_| run()).min().unwrap();
        println!(
            "{name:>20} {:>9} bytes {:>7.1} ms {verdict}",
            payload.len(),
            took.as_secs_f64() * 1e3
        );
    }
}

/// As above. Schemas with random references, against very deep payloads: an admitted schema must stay cheap, wherever
/// the validator caches results.
#[test]
#[ignore = "a measurement"]
fn measure_random_references() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut pick = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let leaves = ["{}", "1", r#"{"y":{"x":1}}"#];
    let payload = |depth| leaves.map(|leaf| nested(depth, leaf));
    let payloads = [1, 2, 3, 5, 8, 12, 20, 40, 120].map(payload).concat();
    let (mut admitted, mut broken, mut worst) = (0, 0, Duration::ZERO);
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(1) {
        let len = 3 + pick(24);
        let mut defs = Map::new();
        for at in 0..len {
            let mut def = Map::new();
            for _ in 0..=pick(2) {
                // Mostly forward, which multiplies; sometimes anywhere, which recurs.
                let to = |n: usize, any: usize| if n == 0 { any } else { (at + n).min(len - 1) };
                let (a, b) = (to(pick(4), pick(len)), to(pick(4), pick(len)));
                let (a, b) = (
                    json!({"$ref": format!("#/$defs/d{a}")}),
                    json!({"$ref": format!("#/$defs/d{b}")}),
                );
                let (keyword, value) = match pick(12) {
                    0 => ("allOf", json!([a, b])),
                    1 => ("anyOf", json!([a, b])),
                    2 => ("oneOf", json!([a, b])),
                    3 => ("not", json!({"allOf": [a, b]})),
                    4 => ("unevaluatedProperties", a),
                    5 => ("additionalProperties", json!({"anyOf": [a, b]})),
                    6 => ("patternProperties", json!({"x": a, ".": b})),
                    7 => ("if", a),
                    8 => ("then", b),
                    _ => (
                        "properties",
                        json!({"x": {(["allOf", "anyOf", "oneOf"][pick(3)]): [a, b]}, "y": b}),
                    ),
                };
                def.insert(keyword.to_owned(), value);
            }
            defs.insert(format!("d{at}"), Value::Object(def));
        }
        let value = json!({"$ref": "#/$defs/d0", "$defs": defs});
        let Ok(schema) = Schema::compile(&value) else { continue };
        admitted += 1;
        for payload in &payloads {
            let start = Instant::now();
            let _ = schema.validate(payload);
            if schema.has_panicked.load(Ordering::Relaxed) {
                broken += 1;
                println!("BROKEN {} {}", value.to_string().contains("unevaluated"), value);
                break;
            }
            if start.elapsed() > worst {
                worst = start.elapsed();
                println!("{worst:?}, {} bytes: {value}", payload.len());
            }
        }
    }
    println!("{admitted} admitted, {broken} that the validator cannot run, the worst took {worst:?}");
}
