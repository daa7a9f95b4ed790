//! The registry: which protocols are accepted, found and refused.

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
    assert_eq!(
        error["detail"],
        json!({"name": "note", "version": "1.0.0", "differs": ["schema"]})
    );
    alice.calls("register_protocol", note("1.0.1"));
    alice.calls("register_protocol", note("1.0.0-rc.1"));
    // The first schema is still in force.
    alice
        .sends("")
        .with_argument("payload", json!({}))
        .fails_as("payload_invalid", &alice);
    alice
        .sends("")
        .with_argument("protocol_version", "1.0.1")
        .with_argument("payload", json!({}))
        .to(&alice);
}

#[test]
fn the_identical_protocol_can_be_registered_again() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let task = json!({
        "name": "task", "version": "1.0.0", "schema": {"type": "object", "required": ["what"]},
        "capabilities": ["broadcast", "streaming"], "metadata": {"author": "us", "tags": ["work", "new"]},
    });
    let first = alice.calls("register_protocol", task.clone());
    assert_eq!(first["existed"], false);
    let mut same = task.clone();
    same["capabilities"] = json!(["streaming", "broadcast"]);
    same["metadata"]["tags"] = json!(["new", "work"]);
    let mut again = bob.calls("register_protocol", same);
    assert_eq!(again["existed"], true);
    again["existed"] = json!(false);
    assert_eq!(again, first, "the result describes the first registration");
    for (member, value) in [
        ("schema", json!({"type": "object"})),
        ("capabilities", json!(["streaming"])),
        ("metadata", json!({"author": "them"})),
        ("version", json!("1.0.0+b")),
    ] {
        let mut other = task.clone();
        other[member] = value;
        let error = bob.is_refused_as("protocol_exists", "register_protocol", other);
        assert_eq!(error["detail"]["differs"], json!([member]), "{error}");
        assert!(error["message"].as_str().unwrap().contains(member), "{error}");
    }
}

#[test]
fn the_compiled_schemas_of_a_project_are_bounded_in_bytes() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let before_kib = broker.rss_kib();
    let properties: Value = (0..2000)
        .map(|at| (format!("property{at}"), json!({"type": "string"})))
        .collect();
    let schema = json!({"properties": properties});
    let full = (0..40).find_map(|at| {
        let protocol = json!({"name": format!("large{at}"), "version": "1.0.0", "schema": schema});
        let params = json!({"name": "register_protocol", "arguments": protocol});
        let result = alice.request("tools/call", params).unwrap();
        (result["isError"] == true).then(|| result["structuredContent"].clone())
    });
    let error = full.expect("40 large schemas are more than there is room for");
    assert_eq!(error["code"], "forbidden");
    assert!(
        error["message"].as_str().unwrap().contains("compiled schemas"),
        "{error}"
    );
    let grown_kib = broker.rss_kib() - before_kib;
    assert!(grown_kib < 128 * 1024, "{grown_kib} KiB");
    // A small schema still fits, and registered ones stay usable.
    alice.calls(
        "register_protocol",
        json!({"name": "small", "version": "1.0.0", "schema": {}}),
    );
    alice
        .sends("")
        .with_argument("protocol_name", "large0")
        .with_argument("payload", json!({"property7": "x"}))
        .to(&alice);
}

#[test]
fn a_schema_that_accepts_no_object_is_refused() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for schema in [
        json!({"type": "string"}),
        json!({"const": 7}),
        json!({"enum": ["a", "b"]}),
        json!({"not": {}}),
        json!({"allOf": [{"properties": {}}, false]}),
    ] {
        let arguments = json!({"name": "never", "version": "1.0.0", "schema": schema});
        let error = alice.is_refused_as("invalid_schema", "register_protocol", arguments);
        assert!(error["message"].as_str().unwrap().contains("none fits"), "{error}");
    }
    let either = json!({"name": "either", "version": "1.0.0", "schema": {"type": ["string", "object"]}});
    alice.calls("register_protocol", either);
}

#[test]
fn an_unknown_version_is_answered_with_the_known_ones() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    alice.calls(
        "register_protocol",
        json!({"name": "note", "version": "1.2.0", "schema": {}}),
    );
    let fails = |name: &str, version: &str| {
        let message = alice
            .sends("x")
            .with_argument("protocol_name", name)
            .with_argument("protocol_version", version);
        message.fails_as("protocol_not_found", &alice)
    };
    let error = fails("note", "3.0.0");
    assert_eq!(
        error["detail"],
        json!({"name": "note", "version": "3.0.0", "versions": ["1.2.0", "1.0.0"]})
    );
    let text = error["message"].as_str().unwrap();
    assert!(
        text.contains("note 3.0.0") && text.contains("1.2.0, 1.0.0") && text.contains("register_protocol"),
        "{text}"
    );
    let error = fails("nothing", "1.0.0");
    assert_eq!(error["detail"]["versions"], json!([]));
    assert!(
        error["message"].as_str().unwrap().contains("discover_protocols"),
        "{error}"
    );
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
fn a_reference_within_the_schema_is_accepted_even_to_itself() {
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
    let tree = |payload: Value| {
        alice
            .sends("")
            .with_argument("protocol_name", "tree")
            .with_argument("payload", payload)
    };
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
fn a_backtracking_expression_is_matched_in_linear_time() {
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
        .with_argument("protocol_name", "evil")
        .with_argument("payload", payload)
        .fails_as("payload_invalid", &alice);
}
