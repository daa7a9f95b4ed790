//! The registry: what is taken in, what is found, and what is refused.

use serde_json::{Value, json};

use crate::support::Broker;

fn names(found: &Value) -> Vec<String> {
    let protocols = found["protocols"].as_array().unwrap().iter();
    let name = |protocol: &Value| {
        format!(
            "{} {}",
            protocol["name"].as_str().unwrap(),
            protocol["version"].as_str().unwrap()
        )
    };
    protocols.map(name).collect()
}

#[test]
fn a_protocol_never_changes() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let note = |version: &str| json!({"name": "note", "version": version, "schema": {"type": "object"}});
    let error = alice.is_refused_as("protocol_exists", "register_protocol", note("1.0.0"));
    assert_eq!(error["detail"], json!({"name": "note", "version": "1.0.0"}));
    alice.calls("register_protocol", note("1.0.1"));
    alice.calls("register_protocol", note("1.0.0-rc.1"));
    // The first schema still holds.
    alice
        .sends("")
        .and("payload", json!({}))
        .fails_as("payload_invalid", &alice);
    alice
        .sends("")
        .and("protocol_version", "1.0.1")
        .and("payload", json!({}))
        .to(&alice);
}

#[test]
fn protocols_are_found_by_name_version_tag_and_pattern() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for (name, version, tags, pattern) in [
        ("task", "1.0.0", json!(["work"]), "request_response"),
        ("task", "1.5.0", json!(["work", "new"]), "request_response"),
        ("task", "2.0.0", json!(["work"]), "streaming"),
        ("news", "0.1.0", json!(["play"]), "broadcast"),
    ] {
        alice.calls(
            "register_protocol",
            json!({
                "name": name, "version": version, "schema": {}, "capabilities": [pattern], "metadata": {"tags": tags},
            }),
        );
    }
    for (query, expected) in [
        (json!({"name": "task"}), vec!["task 1.0.0", "task 1.5.0", "task 2.0.0"]),
        (json!({"name": "task", "version": "^1.2"}), vec!["task 1.5.0"]),
        (
            json!({"name": "task", "version": "1.0.0"}),
            vec!["task 1.0.0", "task 1.5.0"],
        ),
        (
            json!({"name": "task", "version": ">=1, <3"}),
            vec!["task 1.0.0", "task 1.5.0", "task 2.0.0"],
        ),
        (json!({"name": "task", "version": "=2.0.0"}), vec!["task 2.0.0"]),
        (json!({"tags": ["work", "new"]}), vec!["task 1.5.0"]),
        (json!({"capability": "broadcast"}), vec!["news 0.1.0"]),
        (json!({"tags": ["nothing"]}), vec![]),
        (json!({"name": "nobodys"}), vec![]),
    ] {
        let mut found = names(&alice.calls("discover_protocols", query.clone()));
        found.sort();
        assert_eq!(found, expected, "{query}");
    }
}

#[test]
fn a_hostile_schema_is_refused() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let deep = (0..40).fold(
        json!({"type": "object"}),
        |inner, _| json!({"properties": {"x": inner}}),
    );
    let wide: Value = (0..10_000)
        .map(|at| (format!("p{at}"), json!({"type": "string"})))
        .collect();
    for (what, schema) in [
        ("remote reference", json!({"$ref": "http://127.0.0.1:1/schema.json"})),
        ("reference to a file", json!({"$ref": "file:///etc/passwd"})),
        (
            "relative reference",
            json!({"properties": {"x": {"$ref": "other.json"}}}),
        ),
        ("reference to nothing", json!({"$ref": "#/$defs/none"})),
        ("unknown dialect", json!({"$schema": "https://example.com/own"})),
        ("too deep", deep),
        ("too many", json!({"properties": wide})),
        ("too large", json!({"description": "x".repeat(300_000)})),
        ("look-ahead", json!({"properties": {"x": {"pattern": "(?=a)b"}}})),
        ("look-behind", json!({"properties": {"x": {"pattern": "(?<!a)b"}}})),
        ("back-reference", json!({"properties": {"x": {"pattern": "(a+)\\1"}}})),
        (
            "hungry expression",
            json!({"properties": {"x": {"pattern": "((a{1,100}){1,100}){1,100}"}}}),
        ),
        ("no regular expression", json!({"patternProperties": {"(": {}}})),
        ("no schema at all", json!({"type": "thing"})),
        ("not an object", json!("schema")),
        ("a list", json!([])),
    ] {
        let arguments = json!({"name": "hostile", "version": "1.0.0", "schema": schema});
        let error = alice.is_refused("register_protocol", arguments);
        assert_eq!(error["code"], "invalid_schema", "{what}: {error}");
        assert!(error["message"].as_str().unwrap().len() < 2000, "{what}");
    }
    assert_eq!(names(&alice.calls("discover_protocols", json!({}))), ["note 1.0.0"]);
}

#[test]
fn a_reference_within_the_schema_is_fine_even_to_itself() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let tree = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}, "value": {"$ref": "#/$defs/value"}},
        "required": ["value"],
        "$defs": {"value": {"type": "integer"}},
    });
    alice.calls(
        "register_protocol",
        json!({"name": "tree", "version": "1.0.0", "schema": tree}),
    );
    let tree = |payload: Value| alice.sends("").and("protocol_name", "tree").and("payload", payload);
    tree(json!({"value": 1, "children": [{"value": 2, "children": []}]})).to(&alice);
    let error = tree(json!({"value": 1, "children": [{"value": 2, "children": [{"value": "x"}]}]}))
        .fails_as("payload_invalid", &alice);
    let failures = error["detail"]["failures"].as_array().unwrap();
    assert!(
        failures
            .iter()
            .any(|failure| failure["path"] == "/children/0/children/0/value"),
        "{error}"
    );
}

#[test]
fn an_expression_with_exponential_cost_elsewhere_costs_nothing_here() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let schema = json!({"properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}});
    alice.calls(
        "register_protocol",
        json!({"name": "evil", "version": "1.0.0", "schema": schema}),
    );
    let payload = json!({"x": format!("{}!", "a".repeat(100_000))});
    alice
        .sends("")
        .and("protocol_name", "evil")
        .and("payload", payload)
        .fails_as("payload_invalid", &alice);
}
