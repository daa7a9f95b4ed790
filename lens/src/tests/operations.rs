//! Each operation in both directions: present, absent, null, in nested arrays, with escapes; and what is refused.

use serde_json::{Value, json};

use super::{Pair, Route, object, value};
use crate::{Class, Direction, Lens, Transformed};

/// Transforms a payload there and back.
fn round(pair: &Pair, payload: &Value) -> (Transformed, Transformed) {
    let checked = pair.check().unwrap_or_else(|error| panic!("{error}: {error:?}"));
    let (there, back) = Route::both(pair, checked.compiled, Direction::Both);
    let transformed = there.apply(&payload.to_string(), None).unwrap();
    let returned = back.unwrap().apply(&transformed.payload, None).unwrap();
    (transformed, returned)
}

/// The payload becomes this, comes back as it was, and nothing is lost.
fn exact(pair: &Pair, cases: &[(Value, Value)]) {
    for (payload, expected) in cases {
        let (there, back) = round(pair, payload);
        assert_eq!(value(&there.payload), *expected, "{payload}");
        assert_eq!(value(&back.payload), *payload);
        assert!(
            there.loss.is_empty() && there.complement.is_none(),
            "{payload}: {there:?}"
        );
    }
}

/// The payload becomes this, and this is lost and made up on the way.
fn lossy(pair: &Pair, payload: Value, expected: Value, loss: &[&str], defaulted: &[&str]) {
    let (there, _) = round(pair, &payload);
    assert_eq!(value(&there.payload), expected, "{payload}");
    let texts = |places: &crate::Places| places.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        (texts(&there.loss), texts(&there.defaulted)),
        (strings(loss), strings(defaulted)),
        "{payload}"
    );
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// An object of optional members.
fn loose(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn refused(source: &Value, operation: Value, reason: &str) {
    let pair = Pair::new(source.clone(), json!({"type": "object"}), json!([operation]));
    let error = pair.check_in(Direction::Forward, true).expect_err(reason);
    assert_eq!(error.op, Some(0));
    assert!(error.reason.contains(reason), "{}: {reason}", error.reason);
}

#[test]
fn rename_and_move() {
    let text = json!({"type": ["string", "null"]});
    let source = loose(json!({"list": {"type": "array", "items": loose(json!({"a/b": text}))}}));
    let target = loose(json!({"list": {"type": "array", "items": loose(json!({"*": text}))}}));
    let pair = Pair::new(
        source,
        target,
        json!([{"op": "rename", "path": "/list/*/a~1b", "to": "*"}]),
    );
    let before = json!({"list": [{"a/b": "x"}, {"a/b": null}, {}]});
    exact(
        &pair,
        &[
            (before, json!({"list": [{"*": "x"}, {"*": null}, {}]})),
            (json!({}), json!({})),
        ],
    );

    let inner = |members: Value| json!({"type": "array", "items": {"type": "object", "properties": members, "required": ["to"]}});
    let number = json!({"type": "integer"});
    let source = loose(json!({"l": inner(json!({"a": loose(json!({"x": number})), "to": loose(json!({}))}))}));
    let target = loose(json!({"l": inner(json!({"a": loose(json!({})), "to": loose(json!({"y": number}))}))}));
    let lens = json!([{"op": "move", "path": "/l/*/a/x", "to": "/l/*/to/y"}]);
    let pair = Pair::new(source.clone(), target, lens.clone());
    let error = pair.check().unwrap_err();
    assert_eq!(
        error.direction,
        Some(Direction::Backward),
        "the way back needs the object `a`"
    );
    let checked = pair.check_in(Direction::Forward, false).unwrap();
    let (there, _) = Route::both(&pair, checked.compiled, Direction::Forward);
    let moved = there
        .apply(r#"{"l":[{"a":{"x":1},"to":{}},{"to":{}},{"a":{},"to":{}}]}"#, None)
        .unwrap();
    assert_eq!(
        moved.payload,
        r#"{"l":[{"a":{},"to":{"y":1}},{"to":{}},{"a":{},"to":{}}]}"#
    );
    refused(
        &loose(json!({"a": number, "b": loose(json!({}))})),
        json!({"op": "move", "path": "/a", "to": "/b/c"}),
        "not every payload",
    );
    refused(
        &source,
        json!({"op": "rename", "path": "/m", "to": "x"}),
        "does not declare",
    );
    refused(
        &loose(json!({"a": number, "b": number})),
        json!({"op": "rename", "path": "/a", "to": "b"}),
        "declares /b already",
    );
}

#[test]
fn a_move_into_an_object_that_is_added() {
    let source = object(json!({"name": {"type": "string"}}));
    let target = object(json!({"user": object(json!({"name": {"type": "string"}}))}));
    let lens =
        json!([{"op": "add", "path": "/user", "value": {}}, {"op": "move", "path": "/name", "to": "/user/name"}]);
    exact(
        &Pair::new(source, target, lens),
        &[(json!({"name": "x"}), json!({"user": {"name": "x"}}))],
    );
}

#[test]
fn add_drop_and_default() {
    let source = object(json!({"a": {"type": "string"}}));
    let target = object(json!({"b": {"type": ["integer", "null"]}}));
    let lens = json!([{"op": "drop", "path": "/a", "back": "none"}, {"op": "add", "path": "/b", "value": null}]);
    let pair = Pair::new(source.clone(), target, lens);
    let error = pair.check_in(Direction::Both, false).unwrap_err();
    assert!(
        error.reason.contains("allow_loss") && error.path.as_deref() == Some("/a"),
        "{error:?}"
    );
    lossy(&pair, json!({"a": "x"}), json!({"b": null}), &["/a"], &["/b"]);
    lossy(&pair, json!({"a": "none"}), json!({"b": null}), &[], &["/b"]);

    let error = Pair::new(source, json!({"type": "object"}), json!([{"op": "drop", "path": "/a"}]))
        .check()
        .unwrap_err();
    assert!(error.reason.contains("back is needed"), "{error}");

    let source = loose(json!({"a": {"type": ["string", "null"]}}));
    let target = object(json!({"a": {"type": ["string", "null"]}}));
    let pair = Pair::new(source, target, json!([{"op": "default", "path": "/a", "value": "x"}]));
    assert_eq!(pair.check().unwrap().forward.unwrap().class, Class::Defaulted);
    lossy(&pair, json!({}), json!({"a": "x"}), &[], &["/a"]);
    lossy(&pair, json!({"a": null}), json!({"a": null}), &[], &[]);
}

#[test]
fn wrap_and_unwrap() {
    let text = json!({"type": ["string", "null"]});
    let wrapped = json!({"anyOf": [object(json!({"v": {"type": "string"}})), {"type": "null"}]});
    let list = |items: &Value| loose(json!({"l": {"type": "array", "items": items}}));
    let pair = Pair::new(
        list(&text),
        list(&wrapped),
        json!([{"op": "wrap", "path": "/l/*", "as": "v"}]),
    );
    assert_eq!(pair.check().unwrap().forward.unwrap().class, Class::Exact);
    let before = json!({"l": ["x", null, ""]});
    exact(
        &pair,
        &[
            (before, json!({"l": [{"v": "x"}, null, {"v": ""}]})),
            (json!({}), json!({})),
        ],
    );
    let pair = Pair::new(
        list(&wrapped),
        list(&text),
        json!([{"op": "unwrap", "path": "/l/*", "as": "v"}]),
    );
    exact(&pair, &[(json!({"l": [{"v": "x"}, null]}), json!({"l": ["x", null]}))]);

    let inner = object(json!({"a": {"type": "integer"}}));
    let pair = Pair::new(
        inner.clone(),
        object(json!({"body": inner})),
        json!([{"op": "wrap", "path": "", "as": "body"}]),
    );
    exact(&pair, &[(json!({"a": 1}), json!({"body": {"a": 1}}))]);
    let two = loose(json!({"o": object(json!({"v": {}, "w": {}}))}));
    refused(&two, json!({"op": "unwrap", "path": "/o", "as": "v"}), "its one member");
}

#[test]
fn list_and_single() {
    let text = json!({"type": "string"});
    let texts = |least: u64| json!({"type": "array", "items": text, "minItems": least});
    let pair = Pair::new(
        loose(json!({"a": text})),
        loose(json!({"a": texts(1)})),
        json!([{"op": "list", "path": "/a"}]),
    );
    exact(
        &pair,
        &[(json!({"a": "x"}), json!({"a": ["x"]})), (json!({}), json!({}))],
    );

    let pair = Pair::new(
        loose(json!({"a": texts(0)})),
        loose(json!({"a": text})),
        json!([{"op": "single", "path": "/a"}]),
    );
    lossy(&pair, json!({"a": ["x"]}), json!({"a": "x"}), &[], &[]);
    lossy(&pair, json!({"a": ["x", "y", "z"]}), json!({"a": "x"}), &["/a/*"], &[]);
    lossy(&pair, json!({"a": []}), json!({}), &["/a"], &[]);
    let lens = json!([{"op": "single", "path": "/a", "value": "none"}]);
    let pair = Pair::new(object(json!({"a": texts(0)})), object(json!({"a": text})), lens);
    lossy(&pair, json!({"a": []}), json!({"a": "none"}), &["/a"], &["/a"]);
    let nested = loose(json!({"a": {"type": "array", "items": texts(0)}}));
    refused(&nested, json!({"op": "single", "path": "/a/*"}), "cannot become absent");
    refused(
        &loose(json!({"a": text})),
        json!({"op": "single", "path": "/a"}),
        "takes an array",
    );
}

#[test]
fn map_by_the_first_pair() {
    let values = json!([["low", 1], ["high", 2], ["urgent", 2], [null, 0], ["low", 3]]);
    let source = object(json!({"p": {"enum": ["low", "high", "urgent", null]}}));
    let target = object(json!({"p": {"type": "integer", "minimum": 0, "maximum": 3}}));
    let pair = Pair::new(source, target, json!([{"op": "map", "path": "/p", "values": values}]));
    lossy(&pair, json!({"p": "low"}), json!({"p": 1}), &[], &[]);
    lossy(&pair, json!({"p": "urgent"}), json!({"p": 2}), &["/p"], &[]);
    lossy(&pair, json!({"p": null}), json!({"p": 0}), &[], &[]);
    let checked = pair.check().unwrap();
    assert_eq!(checked.forward.unwrap().class, Class::Lossy);
    let (_, back) = Route::both(&pair, checked.compiled, Direction::Both);
    assert_eq!(
        back.unwrap().apply(r#"{"p":3}"#, None).unwrap().payload,
        r#"{"p":"low"}"#,
        "a further pair serves the way back"
    );
}

fn nullable(name: &str) -> Value {
    object(json!({"a": {"type": [name, "null"]}}))
}

fn convert(from: &str, to: &str, more: Value) -> Pair {
    let mut operation = json!({"op": "convert", "path": "/a", "to": to});
    operation
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    Pair::new(nullable(from), nullable(to), json!([operation]))
}

#[test]
fn convert_between_scalars() {
    let pair = convert("integer", "string", json!({"back": 0}));
    for (integer, text) in [
        ("1", "1"),
        ("-20", "-20"),
        ("1e3", "1000"),
        ("2.0", "2"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
    ] {
        let (there, back) = Route::both(&pair, pair.check().unwrap().compiled, Direction::Both);
        let transformed = there.apply(&format!("{{\"a\":{integer}}}"), None).unwrap();
        assert_eq!(transformed.payload, format!("{{\"a\":\"{text}\"}}"));
        assert_eq!(
            back.unwrap().apply(&transformed.payload, None).unwrap().payload,
            format!("{{\"a\":{text}}}")
        );
    }
    exact(&pair, &[(json!({"a": null}), json!({"a": null}))]);
    exact(
        &convert("boolean", "string", json!({"back": false})),
        &[(json!({"a": true}), json!({"a": "true"}))],
    );
    exact(
        &convert("number", "string", json!({"back": 0})),
        &[
            (json!({"a": 1e21}), json!({"a": "1e+21"})),
            (json!({"a": 0.5}), json!({"a": "0.5"})),
        ],
    );
    exact(
        &convert("integer", "number", json!({})),
        &[(json!({"a": 7}), json!({"a": 7}))],
    );
    lossy(
        &convert("number", "integer", json!({})),
        json!({"a": 2.5}),
        json!({"a": 2}),
        &["/a"],
        &[],
    );
}

#[test]
fn strings_are_read_as_scalars() {
    let pair = convert("string", "integer", json!({"value": -1}));
    lossy(&pair, json!({"a": "12"}), json!({"a": 12}), &[], &[]);
    for unread in ["", "x", "1.0", "1e3", "01", " 1", "+1"] {
        lossy(&pair, json!({"a": unread}), json!({"a": -1}), &["/a"], &["/a"]);
    }
    lossy(
        &convert("string", "boolean", json!({"value": false})),
        json!({"a": "true"}),
        json!({"a": true}),
        &[],
        &[],
    );
    lossy(
        &convert("string", "number", json!({"value": 0})),
        json!({"a": "1.50"}),
        json!({"a": 1.5}),
        &["/a"],
        &[],
    );
    let text = nullable("string");
    refused(
        &text,
        json!({"op": "convert", "path": "/a", "to": "integer"}),
        "value is needed",
    );
    refused(
        &text,
        json!({"op": "convert", "path": "/a", "to": "integer", "value": "x"}),
        "not of the type",
    );
    refused(
        &nullable("boolean"),
        json!({"op": "convert", "path": "/a", "to": "integer"}),
        "convert leads",
    );
    let listed = object(json!({"a": {"enum": ["1", "2"]}}));
    let pair = Pair::new(
        listed,
        object(json!({"a": {"enum": [1, 2]}})),
        json!([{"op": "convert", "path": "/a", "to": "integer"}]),
    );
    exact(&pair, &[(json!({"a": "2"}), json!({"a": 2}))]);
}

#[test]
fn scale_on_decimals() {
    let bounded =
        |name: &str, by: i64| object(json!({"a": {"type": name, "minimum": -1000 * by, "maximum": 10_000 * by}}));
    let lens = json!([{"op": "scale", "path": "/a", "multiply": 100}]);
    let pair = Pair::new(bounded("integer", 10), bounded("integer", 1000), lens.clone());
    let forward = pair.check().unwrap().forward.unwrap();
    assert_eq!((forward.class, forward.proof), (Class::Exact, crate::Proved::Proved));
    exact(&pair, &[(json!({"a": 7}), json!({"a": 700}))]);
    let pair = Pair::new(bounded("number", 10), bounded("number", 1000), lens);
    lossy(&pair, json!({"a": 0.07}), json!({"a": 7}), &[], &[]);
    let lens = json!([{"op": "scale", "path": "/a", "divide": 10}]);
    let pair = Pair::new(bounded("integer", 10), bounded("integer", 1), lens);
    lossy(&pair, json!({"a": 25}), json!({"a": 2}), &["/a"], &[]);
    lossy(&pair, json!({"a": 35}), json!({"a": 4}), &["/a"], &[]);
    refused(
        &object(json!({"a": {"type": "string"}})),
        json!({"op": "scale", "path": "/a"}),
        "takes a number",
    );
}

#[test]
fn split_and_join() {
    let text = json!({"type": "string"});
    let source = object(json!({"l": {"type": "array", "items": object(json!({"name": text}))}}));
    let target = object(json!({"l": {"type": "array", "items": {
        "type": "object", "properties": {"first": text, "last": text}, "required": ["first"], "additionalProperties": false}}}));
    let operation = json!([{"op": "split", "path": "/l/*/name", "to": ["first", "last"], "by": " "}]);
    let pair = Pair::new(source.clone(), target.clone(), operation);
    let before = json!({"l": [{"name": "Ada King Lovelace"}, {"name": "Ada"}, {"name": ""}]});
    let after = json!({"l": [{"first": "Ada", "last": "King Lovelace"}, {"first": "Ada"}, {"first": ""}]});
    exact(&pair, &[(before, after)]);
    let operation = json!([{"op": "join", "path": ["/l/*/first", "/l/*/last"], "to": "name", "by": " "}]);
    let pair = Pair::new(target, source, operation);
    lossy(
        &pair,
        json!({"l": [{"first": "a", "last": "b"}]}),
        json!({"l": [{"name": "a b"}]}),
        &[],
        &[],
    );
    lossy(
        &pair,
        json!({"l": [{"first": "a b"}]}),
        json!({"l": [{"name": "a b"}]}),
        &["/l/*/first"],
        &[],
    );
    refused(
        &nullable("string"),
        json!({"op": "split", "path": "/a", "to": ["b", "c"], "by": " "}),
        "takes a string",
    );
}

#[test]
fn undeclared_members_are_carried_suspected_and_dropped() {
    let text = json!({"type": "string"});
    let open = loose(json!({"a": text}));
    let keep = Pair::new(open.clone(), loose(json!({"a": text})), json!([]));
    exact(&keep, &[(json!({"a": "x", "u": [1]}), json!({"a": "x", "u": [1]}))]);

    let closed =
        json!({"type": "object", "properties": {"a": text, "b": {"type": "integer"}}, "additionalProperties": false});
    let pair = Pair::new(open.clone(), closed, json!([]));
    assert_eq!(pair.check().unwrap().forward.unwrap().proof, crate::Proved::Proved);
    lossy(
        &pair,
        json!({"a": "x", "b": 1, "u": 1}),
        json!({"a": "x", "b": 1}),
        &["/u"],
        &[],
    );
    lossy(
        &pair,
        json!({"a": "x", "b": "no", "u": 1}),
        json!({"a": "x"}),
        &["/b", "/u"],
        &[],
    );

    let rename = Pair::new(
        open,
        loose(json!({"b": text})),
        json!([{"op": "rename", "path": "/a", "to": "b"}]),
    );
    lossy(&rename, json!({"a": "x", "b": 1}), json!({"b": "x"}), &["/b"], &[]);
    lossy(&rename, json!({"b": 1}), json!({}), &["/b"], &[]);
}

#[test]
fn references_and_branches_are_followed() {
    let source = json!({
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}}},
    });
    let mut target = source.clone();
    target["properties"]["tree"] = json!({
        "type": "object", "properties": {"title": {"type": "string"}, "next": {"$ref": "#/$defs/node"}},
    });
    let pair = Pair::new(
        source,
        target,
        json!([{"op": "rename", "path": "/tree/name", "to": "title"}]),
    );
    assert_eq!(pair.check().unwrap().forward.unwrap().unproved, []);
    let before = json!({"tree": {"name": "a", "next": {"name": "b"}}});
    exact(
        &pair,
        &[(before, json!({"tree": {"title": "a", "next": {"name": "b"}}}))],
    );

    let branch = |kind: &str, name: &str| json!({"type": "object", "properties": {"kind": {"const": kind}, name: {"type": "string"}}, "required": ["kind"], "additionalProperties": false});
    let source = json!({"type": "object", "oneOf": [branch("x", "a"), branch("y", "b")]});
    let target = json!({"type": "object", "oneOf": [branch("x", "c"), branch("y", "b")]});
    let pair = Pair::new(source, target, json!([{"op": "rename", "path": "/a", "to": "c"}]));
    assert_eq!(pair.check().unwrap().forward.unwrap().unproved, []);
    exact(
        &pair,
        &[
            (json!({"kind": "x", "a": "1"}), json!({"kind": "x", "c": "1"})),
            (json!({"kind": "y"}), json!({"kind": "y"})),
        ],
    );
}

#[test]
fn numbers_that_no_operation_touches_keep_their_bytes() {
    let any = json!({"type": "object", "properties": {"a": {}, "n": {}}});
    let target = json!({"type": "object", "properties": {"b": {}, "n": {}}});
    let pair = Pair::new(any, target, json!([{"op": "rename", "path": "/a", "to": "b"}]));
    let (there, _) = Route::both(&pair, pair.check().unwrap().compiled, Direction::Both);
    let payload = r#"{"n" : [1.500, 123456789012345678901234567890.10 ], "a":"\u00e9" }"#;
    let transformed = there.apply(payload, None).unwrap();
    assert_eq!(
        transformed.payload,
        r#"{"n":[1.500, 123456789012345678901234567890.10 ],"b":"\u00e9"}"#
    );
}

#[test]
fn a_complement_restores_where_nothing_has_changed() {
    let source = object(
        json!({"l": {"type": "array", "items": object(json!({"id": {"type": "integer"}, "n": {"type": "string"}}))}, "x": {"type": "string"}}),
    );
    let target = object(json!({"l": {"type": "array", "items": object(json!({"n": {"type": "string"}}))}}));
    let lens = json!([{"op": "drop", "path": "/l/*/id", "back": 0}, {"op": "drop", "path": "/x", "back": ""}]);
    let pair = Pair::new(source, target, lens);
    let (there, back) = Route::both(&pair, pair.check().unwrap().compiled, Direction::Both);
    let back = back.unwrap();
    let payload = json!({"l": [{"id": 1, "n": "a"}, {"id": 2, "n": "b"}], "x": "y"});
    let sent = there.apply(&payload.to_string(), None).unwrap();
    let complement = sent.complement.as_deref();
    let returned = back.apply(&sent.payload, complement).unwrap();
    assert_eq!(value(&returned.payload), payload);
    let changed = back
        .apply(r#"{"l":[{"n":"a"},{"n":"changed"},{"n":"b"}]}"#, complement)
        .unwrap();
    let expected = json!({"l": [{"id": 0, "n": "a"}, {"id": 0, "n": "changed"}, {"id": 0, "n": "b"}], "x": "y"});
    let first_restored = json!({"l": [{"id": 1, "n": "a"}, {"id": 0, "n": "changed"}, {"id": 0, "n": "b"}], "x": "y"});
    assert!([expected, first_restored.clone()].contains(&value(&changed.payload)));
    assert_eq!(value(&changed.payload), first_restored);
    for nonsense in [
        "",
        "{}",
        "[1]",
        r#"{"path":["2.0.0","1.0.0"],"entries":[{"at":"/x","was":1,"is":""}]}"#,
    ] {
        let ignored = back.apply(&sent.payload, Some(nonsense)).unwrap();
        assert_eq!(value(&ignored.payload)["x"], json!(""));
    }
    let forged = r#"{"path":["1.0.0","2.0.0"],"entries":[{"at":"/x","was":1,"is":""}]}"#;
    assert_eq!(
        value(&back.apply(&sent.payload, Some(forged)).unwrap().payload)["x"],
        json!(""),
        "what does not fit is ignored"
    );
}

#[test]
fn work_size_and_depth_are_bounded() {
    let any = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}}}});
    let lens = json!([{"op": "add", "path": "/l/*/b", "value": "x".repeat(1000)}]);
    let compiled = Lens::parse(&lens)
        .unwrap()
        .compile(&any, &json!({"type": "object"}), Direction::Forward)
        .unwrap();
    let edge = super::edge("1.0.0", "2.0.0", &std::sync::Arc::new(compiled));
    let plan = crate::Plan::find(&[edge], &super::version("1.0.0"), &[super::version("2.0.0")]).unwrap();
    let payload = format!("{{\"l\":[{}{{}}]}}", "{\"a\":1},".repeat(1000));
    let request = crate::Request::of(&payload);
    let apply = |work: u64| plan.apply(request, &mut { work }, &mut |_, _| true).unwrap_err();
    assert_eq!(apply(20_000_000), crate::TransformError::TooLarge);
    assert_eq!(apply(10_000), crate::TransformError::TooExpensive);
    for text in ["", "[]", "7", "{\"a\":", &format!("{{\"l\":{}", "[".repeat(1_000_000))] {
        let request = crate::Request::of(text);
        assert_eq!(
            plan.apply(request, &mut 20_000_000, &mut |_, _| true).unwrap_err(),
            crate::TransformError::NotJson
        );
    }
}

#[test]
fn a_result_has_at_most_the_bytes_that_are_asked_for_also_with_what_a_complement_restores() {
    let lens = json!([{"op": "add", "path": "/b", "value": "made"}, {"op": "drop", "path": "/a"}]);
    let schema = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
    let compiled = Lens::parse(&lens).unwrap();
    let compiled = compiled.compile(&schema("a"), &schema("b"), Direction::Both).unwrap();
    let edge = super::edge("1.0.0", "2.0.0", &std::sync::Arc::new(compiled));
    let plan = |from: &str, to: &str| {
        let (from, to) = (super::version(from), super::version(to));
        crate::Plan::find(std::slice::from_ref(&edge), &from, &[to]).unwrap()
    };
    let apply = |plan: &crate::Plan, request| plan.apply(request, &mut 1_000_000, &mut |_, _| true);
    let (there, back) = (plan("1.0.0", "2.0.0"), plan("2.0.0", "1.0.0"));
    let request = |payload, len_max| crate::Request {
        wants_complement: true,
        len_max,
        ..crate::Request::of(payload)
    };
    let payload = r#"{"a":"lost"}"#;
    let sent = apply(&there, request(payload, 12)).unwrap();
    assert_eq!(sent.payload, r#"{"b":"made"}"#);
    assert_eq!(
        apply(&there, request(payload, 11)).unwrap_err(),
        crate::TransformError::TooLarge
    );
    let restored = |len_max| {
        let request = crate::Request {
            complement: sent.complement.as_deref(),
            ..request(&sent.payload, len_max)
        };
        apply(&back, request).unwrap().payload
    };
    assert_eq!((restored(12), restored(11)), (payload.to_owned(), "{}".to_owned()));
}

#[test]
fn a_part_of_what_was_made_up_is_made_up() {
    let made = Pair::new(
        json!({"type": "object", "properties": {}}),
        json!({"type": "object", "properties": {"tag": {"type": "string"}}, "required": ["tag"]}),
        json!([
            {"op": "add", "path": "/tag", "value": ["none"]},
            {"op": "single", "path": "/tag", "value": "none"},
        ]),
    );
    lossy(&made, json!({}), json!({"tag": "none"}), &[], &["/tag"]);
}
