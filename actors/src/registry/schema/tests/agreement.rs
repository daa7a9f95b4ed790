//! Both validators agree on random schemas and payloads.

use proptest::prelude::*;
use serde_json::json;

use super::super::*;

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
