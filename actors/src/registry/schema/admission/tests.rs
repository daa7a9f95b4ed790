//! Tests of the limits of a schema.

use serde_json::json;

use super::{super::Schema, *};

fn len(schema: &Value) -> usize {
    admit(schema).map(|admitted| admitted.len).unwrap()
}

fn reason(schema: &Value) -> Option<String> {
    admit(schema).err().map(|error| error.to_string())
}

#[test]
fn a_compiled_schema_is_counted_by_its_text_its_subschemas_and_its_expressions() {
    let plain = json!({"properties": {"a": {}, "b": true}});
    assert_eq!(len(&plain), 4 * plain.to_string().len() + 3 * 1024);
    assert_eq!(Schema::compile(&plain).unwrap().bytes_len(), len(&plain));
    let pattern = |text: &str| Expression::of(text, &mut { WALK_MAX }).unwrap().len;
    let with_patterns = json!({"pattern": "^a+$", "patternProperties": {"^a+$": {}, "^b+$": {}}});
    assert_eq!(
        len(&with_patterns),
        4 * with_patterns.to_string().len() + 3 * 1024 + 4 * (pattern("^a+$") + pattern("^b+$")),
        "an expression that occurs twice is compiled once"
    );
}

#[test]
fn a_schema_at_its_limits_is_admitted() {
    let filled = |len: usize| json!({"title": "x".repeat(len - r#"{"title":""}"#.len())});
    assert_eq!(reason(&filled(BYTES_MAX)), None);
    assert!(reason(&filled(BYTES_MAX + 1)).is_some_and(|reason| reason.contains("262144 bytes")));
    let values = |count: usize| json!({"default": vec![0; count - 2]});
    assert_eq!(reason(&values(NODES_MAX)), None);
    assert!(reason(&values(NODES_MAX + 1)).is_some_and(|reason| reason.contains("4096 JSON values")));
    let mut deep = json!({});
    for _ in 1..DEPTH_MAX {
        deep = json!({"not": deep});
    }
    assert_eq!(reason(&deep), None);
    assert!(reason(&json!({"not": deep})).is_some_and(|reason| reason.contains("deeper than 32")));
    let mut listed = json!([]);
    for _ in 1..DEPTH_MAX {
        listed = json!([listed]);
    }
    assert!(reason(&json!({"default": listed})).is_some_and(|reason| reason.contains("deeper than 32")));
}

#[test]
fn regular_expressions_count_in_every_position() {
    let names =
        |count: usize| -> serde_json::Map<_, _> { (0..count).map(|at| (format!("p{at}"), json!({}))).collect() };
    let schema = |of_names, of_texts| {
        let texts = vec![json!({"pattern": "a"}); of_texts];
        json!({"patternProperties": names(of_names), "allOf": texts})
    };
    assert_eq!(reason(&schema(100, PATTERNS_MAX - 100)), None);
    for (of_names, of_texts) in [(100, PATTERNS_MAX - 99), (101, PATTERNS_MAX - 100)] {
        let refused = reason(&schema(of_names, of_texts));
        assert!(refused.is_some_and(|reason| reason.contains("128 regular expressions")));
    }
}

#[test]
fn a_nested_schema_may_repeat_the_dialect() {
    let with = |inner: &str| {
        let inner = json!({"$schema": inner});
        json!({"$schema": DRAFT_2020_12, "properties": {"a": inner}})
    };
    assert_eq!(reason(&with(DRAFT_2020_12)), None);
    assert!(reason(&with(DRAFT_07)).is_some_and(|reason| reason.contains("one dialect")));
}

#[test]
fn references_by_anchor_have_one_target() {
    let dynamic = |anchors: &[&str]| {
        let declared: serde_json::Map<_, _> = (0..)
            .zip(anchors)
            .map(|(at, anchor)| (format!("d{at}"), json!({"$dynamicAnchor": anchor})))
            .collect();
        json!({"properties": {"x": {"$dynamicRef": "#m"}}, "$defs": declared})
    };
    assert_eq!(reason(&dynamic(&["m", "n"])), None);
    assert!(reason(&dynamic(&["m", "m", "n"])).is_some_and(|reason| reason.contains("more than one $dynamicAnchor")));
    assert!(reason(&json!({"$recursiveRef": "#"})).is_some_and(|reason| reason.contains("draft 2019-09")));
}

#[test]
fn divisors_have_few_digits() {
    for (divisor, is_admitted) in [
        ("1e15", true),
        ("1.1e15", false),
        ("0.000000001", true),
        ("0.0000000001", false),
        ("1e-9", true),
        ("1e-10", false),
        ("25e-9", true),
        ("2.5e-9", false),
        ("1.2345678900", true),
        ("1.2345678901", false),
    ] {
        let divisor: Value = serde_json::from_str(divisor).unwrap();
        assert_eq!(
            reason(&json!({"multipleOf": divisor})).is_none(),
            is_admitted,
            "{divisor}"
        );
    }
    for (text, count) in [
        ("7", 0),
        ("0.25", 2),
        ("0.250", 2),
        ("25e-2", 2),
        ("2.5E-1", 2),
        ("2.5e1", 0),
    ] {
        assert_eq!(decimals(text), count, "{text}");
    }
}

#[test]
fn the_expressions_of_a_schema_are_bounded_together() {
    // Each takes some hundred KiB.
    let patterns = |count: usize| {
        let pattern = |at: usize| json!({"pattern": format!("^[a-z]{{{}}}$", 2000 + at)});
        json!({"allOf": (0..count).map(pattern).collect::<Vec<_>>()})
    };
    let one_len = Expression::of("^[a-z]{2000}$", &mut { WALK_MAX }).unwrap().len;
    let count_max = PATTERN_BYTES_MAX / one_len;
    assert_eq!(reason(&patterns(count_max - 1)), None);
    let refused = reason(&patterns(count_max + 1));
    assert!(refused.is_some_and(|reason| reason.contains("2097152 bytes together")));
}
