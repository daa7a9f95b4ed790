//! How long transformations take, and the work that they are priced at. To be run in a release build:
//! `cargo test --release -p mcp-broker-lens measure -- --ignored --nocapture`.

use std::{fmt::Write as _, sync::Arc};

use serde_json::{Value, json};

use super::{edge, version};
use crate::{Direction, Lens, Plan, Request, TransformError};

/// Bytes of a payload that a worker transforms.
const ON_WORKER_BYTES_MAX: usize = 256 * 1024;
/// Work that one transformation may take, in nanoseconds.
const WORK_MAX: u64 = 10_000_000;

struct Case {
    name: &'static str,
    source: Value,
    target: Value,
    lens: Value,
    direction: Direction,
    /// A payload of about so many bytes.
    payload: Box<dyn Fn(usize) -> String>,
    wants_complement: bool,
}

fn case(name: &'static str, source: Value, lens: Value, payload: impl Fn(usize) -> String + 'static) -> Case {
    Case {
        name,
        source,
        target: json!({"type": "object"}),
        lens,
        direction: Direction::Forward,
        payload: Box::new(payload),
        wants_complement: false,
    }
}

fn repeated(len: usize, begin: &str, part: &str, end: &str) -> String {
    let count = (len / (part.len() + 1)).max(1);
    format!("{begin}{}{end}", vec![part; count].join(","))
}

/// Members with numbered names of so many bytes.
fn members(len: usize, name_len: usize, value: &str) -> String {
    let mut text = String::from("{");
    let mut at = 0;
    while text.len() < len {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(text, "{comma}\"{at:x>name_len$}\":{value}");
        at += 1;
    }
    text + "}"
}

fn items(properties: Value) -> Value {
    json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "object", "properties": properties}}}})
}

fn scalars(kind: &str) -> Value {
    json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": kind}}}})
}

fn open() -> Value {
    json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}})
}

fn reading() -> Vec<Case> {
    let many = |op: Value| Value::Array(vec![op; 60]);
    let add = json!([{"op": "add", "path": "/c", "value": 1}]);
    vec![
        case(
            "small items",
            scalars("integer"),
            json!([{"op": "scale", "path": "/l/*", "multiply": 2}]),
            |len| repeated(len, "{\"l\":[", "1", "]}"),
        ),
        case(
            "empty objects",
            items(json!({"a": {"type": "string"}})),
            json!([{"op": "add", "path": "/l/*/c", "value": 1}]),
            |len| repeated(len, "{\"l\":[", "{}", "]}"),
        ),
        case(
            "small objects",
            items(json!({"a": {"type": "integer"}})),
            json!([{"op": "rename", "path": "/l/*/a", "to": "b"}]),
            |len| repeated(len, "{\"l\":[", "{\"a\":1}", "]}"),
        ),
        case("escaped names", open(), add.clone(), |len| {
            members(len, 4, "1").replace('x', "\\u0078")
        }),
        case("short names", open(), add.clone(), |len| members(len, 1, "1")),
        case("long names", open(), add.clone(), |len| members(len, 200, "1")),
        case("one string", open(), add.clone(), |len| {
            format!("{{\"a\":\"{}\"}}", "x".repeat(len))
        }),
        case("one string of quotes", open(), add.clone(), |len| {
            format!("{{\"a\":\"{}\"}}", "\\\"".repeat(len / 2))
        }),
        case("deep", open(), add, |len| {
            let depth = 100;
            let inside = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
            repeated(len, "{\"u\":[", &inside, "]}")
        }),
        case(
            "searched names",
            open(),
            many(json!({"op": "default", "path": "/a", "value": ""})),
            |len| members(len, 8, "1"),
        ),
        case(
            "searched long names",
            open(),
            many(json!({"op": "default", "path": "/a", "value": ""})),
            |len| members(len, 400, "1"),
        ),
        case(
            "searched names as long as one of the lens",
            json!({"type": "object", "properties": {"x".repeat(400): {"type": "string"}}}),
            many(json!({"op": "default", "path": format!("/{}", "x".repeat(400)), "value": ""})),
            |len| members(len, 400, "1"),
        ),
        case(
            "first members dropped",
            open(),
            json!([{"op": "drop", "path": "/a"}, {"op": "drop", "path": "/b"}]),
            |len| members(len, 2, "1").replacen('{', "{\"a\":\"\",\"b\":\"\",", 1),
        ),
    ]
}

fn operating() -> Vec<Case> {
    let in_items = |op: Value| json!([op]);
    let text = |part: &'static str| move |len: usize| repeated(len, "{\"l\":[", part, "]}");
    vec![
        case(
            "to text",
            scalars("integer"),
            in_items(json!({"op": "convert", "path": "/l/*", "to": "string"})),
            text("1"),
        ),
        case(
            "doubles to text",
            scalars("number"),
            in_items(json!({"op": "convert", "path": "/l/*", "to": "string"})),
            text("1.2345678901234567e-7"),
        ),
        case(
            "to integers",
            scalars("string"),
            in_items(json!({"op": "convert", "path": "/l/*", "to": "integer", "value": 0})),
            text("\"1234567890123456789\""),
        ),
        case(
            "to numbers",
            scalars("string"),
            in_items(json!({"op": "convert", "path": "/l/*", "to": "number", "value": 0})),
            text("\"1.2345678901234567890123456789e-7\""),
        ),
        case(
            "long numbers scaled",
            scalars("number"),
            in_items(json!({"op": "scale", "path": "/l/*", "multiply": 999_999_937, "divide": 999_999_929})),
            |len| {
                let number = format!("1.{}", "9".repeat(300));
                repeated(len, "{\"l\":[", &number, "]}")
            },
        ),
        case(
            "integers scaled",
            scalars("integer"),
            in_items(json!({"op": "scale", "path": "/l/*", "multiply": 999_999_937, "divide": 999_999_929})),
            text("123456789012345678"),
        ),
        case(
            "large exponents scaled",
            scalars("number"),
            in_items(json!({"op": "scale", "path": "/l/*", "multiply": 999_999_937, "divide": 999_999_929})),
            text("1e300"),
        ),
        case(
            "mapped texts",
            scalars("string"),
            in_items(
                json!({"op": "map", "path": "/l/*", "values": (0..100).map(|at| json!([format!("v{at}"), at])).collect::<Vec<_>>()}),
            ),
            text("\"v\\u0078\""),
        ),
        case(
            "mapped numbers",
            scalars("number"),
            in_items(
                json!({"op": "map", "path": "/l/*", "values": (0..100).map(|at| json!([f64::from(at) + 0.5, at])).collect::<Vec<_>>()}),
            ),
            text("1234567.125e-3"),
        ),
        case(
            "split",
            items(json!({"a": {"type": "string"}})),
            in_items(json!({"op": "split", "path": "/l/*/a", "to": ["b", "c", "d"], "by": " "})),
            text("{\"a\":\"x y z\"}"),
        ),
        case(
            "long texts split",
            open(),
            json!([{"op": "split", "path": "/a", "to": ["c", "d"], "by": "y"}]),
            |len| format!("{{\"a\":\"{}\"}}", "\\u00e9".repeat(len / 6)),
        ),
        case(
            "joined",
            items(json!({"a": {"type": "string"}, "b": {"type": "string"}})),
            in_items(json!({"op": "join", "path": ["/l/*/a", "/l/*/b"], "to": "c", "by": " "})),
            text("{\"a\":\"x\",\"b\":\"y\"}"),
        ),
        case(
            "moved",
            items(json!({"a": {"type": "string"}, "o": {"type": "object"}})),
            json!([{"op": "wrap", "path": "/l/*/a", "as": "in"}]),
            text("{\"a\":\"x\"}"),
        ),
        case(
            "lists",
            items(json!({"a": {"type": "string"}})),
            json!([{"op": "list", "path": "/l/*/a"}, {"op": "single", "path": "/l/*/a"}]),
            text("{\"a\":\"x\"}"),
        ),
    ]
}

fn comparing() -> Vec<Case> {
    let lossy = json!([{"op": "drop", "path": "/a"}]);
    let closed = |properties: Value| json!({"type": "object", "properties": properties, "additionalProperties": false});
    let with = |case: Case, target: Value| Case { target, ..case };
    let complement = |case: Case| Case {
        wants_complement: true,
        ..case
    };
    let objects = |len| repeated(len, "{\"a\":\"\",\"u\":[", "{\"b\":1,\"c\":2}", "]}");
    vec![
        case("compared members", open(), lossy.clone(), |len| {
            members(len, 4, "1").replacen('{', "{\"a\":\"\",", 1)
        }),
        case(
            "compared items",
            items(json!({"b": {"type": "integer"}})),
            json!([{"op": "drop", "path": "/l/*/b", "back": 0}]),
            |len| repeated(len, "{\"l\":[", "{\"b\":1,\"c\":[[1]]}", "]}"),
        ),
        case(
            "compared numbers",
            scalars("string"),
            json!([{"op": "convert", "path": "/l/*", "to": "number", "value": 0}]),
            |len| repeated(len, "{\"l\":[", "\"1.0\"", "]}"),
        ),
        complement(case("complement", open(), lossy.clone(), objects)),
        with(
            case(
                "dropped undeclared members",
                json!({"type": "object", "properties": {"a": {"type": "string"}}}),
                json!([]),
                |len| members(len, 4, "1"),
            ),
            closed(json!({"a": {"type": "string"}})),
        ),
        with(
            case(
                "undeclared members of items",
                items(json!({"a": {"type": "integer"}})),
                json!([]),
                |len| repeated(len, "{\"l\":[", "{\"x\":1}", "]}"),
            ),
            json!({"type": "object", "properties": {"l": {"type": "array", "items": closed(json!({"a": {"type": "integer"}}))}}}),
        ),
    ]
}

fn plan_of(case: &Case) -> Plan {
    let lens = Lens::parse(&case.lens).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    let compiled = lens.compile(&case.source, &case.target, case.direction);
    let compiled = compiled.unwrap_or_else(|error| panic!("{}: {error}", case.name));
    Plan::find(
        &[edge("1.0.0", "2.0.0", &Arc::new(compiled))],
        &version("1.0.0"),
        &[version("2.0.0")],
    )
    .unwrap()
}

/// The processor time of this thread, in nanoseconds.
fn processor_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The fastest of some runs, in nanoseconds, and the work that it is priced at.
fn run(case: &Case, plan: &Plan, payload: &str) -> (u64, u64, &'static str) {
    let request = Request {
        wants_complement: case.wants_complement,
        ..Request::of(payload)
    };
    let runs = (0..5).map(|_| {
        let (begun, mut left) = (processor_ns(), u64::MAX);
        let made = plan.apply(request, &mut left, &mut |_, _| true);
        let end = match &made {
            Ok(_) => "made",
            Err(TransformError::TooLarge) => "too large",
            Err(_) => "failed",
        };
        drop(made);
        (processor_ns() - begun, u64::MAX - left, end)
    });
    runs.min().unwrap_or_default()
}

/// Nanoseconds for each unit of work, of payloads that a worker transforms; and how long the largest one takes that the
/// budget admits.
#[test]
#[ignore = "a measurement"]
fn measure_the_most_expensive_transformations() {
    for case in [reading(), operating(), comparing()].into_iter().flatten() {
        let plan = plan_of(&case);
        let (mut len, mut payload) = (ON_WORKER_BYTES_MAX, (case.payload)(ON_WORKER_BYTES_MAX));
        while run(&case, &plan, &payload).1 > WORK_MAX {
            len = len * 3 / 4;
            payload = (case.payload)(len);
        }
        let (ns, work, end) = run(&case, &plan, &payload);
        let (us, len) = (ns / 1000, payload.len());
        let (per_unit, per_byte) = (ns * 1000 / work.max(1), ns * 1000 / len as u64);
        println!(
            "{:>42} {len:>9} bytes {work:>9} units {us:>6} us {per_unit:>6} ps/unit {per_byte:>6} ps/byte {end}",
            case.name,
        );
    }
}
