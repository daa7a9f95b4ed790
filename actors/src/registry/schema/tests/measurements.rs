//! Measurements of the validators; they print times and check nothing.
//!
//! `cargo test --release -p mcp-broker-actors --lib -- --ignored --nocapture measure_`

use std::time::{Duration, Instant};

use serde_json::{Map, json};

use super::{super::*, chain, nested, schema};

/// The time of one check of a small payload: by the tree, by the complete validator, and of reading it.
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

/// The bytes of the largest payload that is tried.
const PAYLOAD_BYTES_MAX: usize = 10 << 20;

/// Makes a payload that contains something this many times.
type Payload = Box<dyn Fn(usize) -> String>;

/// A name, a schema, and the payloads to check against it.
type Case = (&'static str, Value, Payload);

/// An array of `item`s in the member `a`.
fn many(n: usize, item: &str) -> String {
    format!("{{\"a\":[{}0]}}", format!("{item},").repeat(n))
}

/// A string of `part`s in the member `a`.
fn text(n: usize, part: &str) -> String {
    format!("{{\"a\":\"{}\"}}", part.repeat(n))
}

/// An object with this many members.
fn members(n: usize) -> String {
    let members: Vec<_> = (0..n).map(|at| format!("\"{at}\":0")).collect();
    format!("{{{}}}", members.join(","))
}

/// Arrays whose hashes collide.
fn collide(n: usize) -> String {
    let items: Vec<_> = (0..n)
        .map(|at| format!("[{}[]]", "[],".repeat(at % 64) + &"[[]],".repeat(at / 64)))
        .collect();
    format!("{{\"a\":[{}]}}", items.join(","))
}

/// The schema with a keyword that only the complete validator checks.
fn slow(mut schema: Value) -> Value {
    schema["not"] = json!({"required": ["never"]});
    schema
}

/// A draft-07 schema for the member `a`.
fn old(schema: Value) -> Value {
    json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": schema}})
}

/// A schema for the member `a`.
fn a(schema: Value) -> Value {
    json!({"properties": {"a": schema}})
}

/// Schemas that the tree checks.
fn fast_cases() -> Vec<Case> {
    vec![
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
    ]
}

/// The same payloads for the complete validator.
fn plain_cases() -> Vec<Case> {
    vec![
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
    ]
}

/// The keywords that multiply the work.
fn keyword_cases() -> Vec<Case> {
    let expressions: Map<String, Value> = (0..100)
        .map(|at| (format!("^[a-z]{{{at}}}x[0-9]+"), json!({})))
        .collect();
    let around = json!({"properties": {"x": {"$ref": "#/$defs/d0"}}});
    let double = chain(10, around, |next| json!({"allOf": [next, next]}));
    vec![
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
    ]
}

/// Regular expressions that follow few and many states.
fn expression_cases() -> Vec<Case> {
    let expressions = [
        ("table", "^[a-z]+$", "a"),
        ("table, unanchored", "[a-z]+[0-9]{3}x", "a1"),
        ("many states", "[ab]*a[ab]{2500}c", "ab"),
        ("some states", "[ab]*a[ab]{40}c", "aab"),
        ("nested", "(.*a){20}.{200}b", "xa"),
        ("counted", "^.{1,1000}$", "x\u{e9}"),
        ("words", "\\b(a|aa){100}b", "a\u{e9}"),
        ("alternatives", "(a|b|ab|ba|aab|bba)*c", "ab"),
    ];
    let case = |(name, expression, part): (&'static str, &str, &'static str)| -> Case {
        (
            name,
            a(json!({"pattern": expression})),
            Box::new(move |n| text(n, part)),
        )
    };
    expressions.into_iter().map(case).collect()
}

/// Formats, which draft-07 asserts.
fn format_cases() -> Vec<Case> {
    let formats = [
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
    ];
    let case = |(format, part): (&'static str, &'static str)| -> Case {
        (format, old(json!({"format": format})), Box::new(move |n| text(n, part)))
    };
    formats.into_iter().map(case).collect()
}

/// The largest payload that the schema's budget admits.
fn largest_admitted(schema: &Schema, payload: &Payload) -> String {
    let refused = |n: usize| {
        let payload = payload(n);
        payload.len() > PAYLOAD_BYTES_MAX
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
    payload(n)
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// The largest payload, up to 10 MiB, that each kind of schema admits, and the processor time it takes.
#[test]
#[ignore = "a measurement"]
fn measure_the_most_expensive_payloads() {
    let cases = [
        fast_cases(),
        plain_cases(),
        keyword_cases(),
        expression_cases(),
        format_cases(),
    ];
    for (name, schema_value, payload) in cases.into_iter().flatten() {
        let schema = match Schema::compile(&schema_value) {
            Ok(schema) => schema,
            Err(error) => {
                println!("{name:>20} {error}");
                continue;
            }
        };
        let payload = largest_admitted(&schema, &payload);
        let run = || {
            let start = processor_time();
            let verdict = schema.validate(&payload);
            (processor_time().saturating_sub(start), verdict.is_ok())
        };
        let (took, verdict) = (0..3).map(|_| run()).min().unwrap();
        println!(
            "{name:>20} {:>9} bytes {:>7.1} ms {verdict}",
            payload.len(),
            took.as_secs_f64() * 1e3
        );
    }
}

/// Schemas with random references, against very deep payloads: an admitted schema must stay cheap, wherever
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
