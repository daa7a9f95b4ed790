//! The rules of the proof with witnesses, the samples, the paths between versions, and the suggestions.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Pair, edge, object, validator, value, version};
use crate::{
    Class, Compiled, Direction, Edge, Example, Kept, Lens, Options, Plan, Proved, Side, diff, proof::Proof,
    schema::Document,
};

fn is_proved(from: &Value, to: &Value) -> bool {
    Proof::run(Document::of(from), from, Document::of(to), false, &|| false).is_empty()
}

/// A member of this schema.
fn member(schema: &Value) -> Value {
    json!({"type": "object", "properties": {"a": schema}, "required": ["a"]})
}

#[test]
fn what_fits_by_rule_is_proved() {
    for (from, to) in [
        (json!({"type": "integer"}), json!({"type": "number"})),
        (
            json!({"type": "integer", "minimum": 2}),
            json!({"exclusiveMinimum": 1.5}),
        ),
        (json!({"type": "integer", "minimum": 2}), json!({"multipleOf": 1})),
        (json!({"type": "number", "multipleOf": 0.3}), json!({"multipleOf": 0.1})),
        (
            json!({"enum": ["a", "bb"]}),
            json!({"type": "string", "pattern": "^[ab]+$", "maxLength": 2}),
        ),
        (
            json!({"type": ["string", "null"]}),
            json!({"anyOf": [{"type": "null"}, {"type": "string"}]}),
        ),
        (
            json!({"anyOf": [{"type": "null"}, {"type": "string"}]}),
            json!({"type": ["string", "null"]}),
        ),
        (json!({"type": "boolean"}), json!({"enum": [true, false, 1]})),
        (
            json!({"type": "string", "pattern": "^a", "minLength": 3}),
            json!({"pattern": "^a", "minLength": 2}),
        ),
        (
            json!({"type": "array", "items": {"const": 1}, "maxItems": 3}),
            json!({"items": {"type": "integer"}, "maxItems": 4}),
        ),
        (
            json!({"type": "string"}),
            json!({"minimum": 7, "properties": {"x": false}}),
        ),
        (
            json!({"allOf": [{"type": "string"}, {"maxLength": 3}]}),
            json!({"type": "string", "maxLength": 3}),
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"additionalProperties": {"type": "number"}}),
        ),
        (object(json!({"x": {}})), json!({"minProperties": 1, "required": ["x"]})),
        (
            json!({"type": "string", "not": {"const": "x"}}),
            json!({"not": {"const": "x"}}),
        ),
        (json!(false), json!({"type": "string"})),
        (
            json!({"type": "array", "uniqueItems": true, "items": {}}),
            json!({"uniqueItems": true}),
        ),
    ] {
        assert!(is_proved(&member(&from), &member(&to)), "{from} fits {to}");
    }
}

#[test]
fn what_a_witness_refutes_is_not_proved() {
    for (from, to, witness) in [
        (json!({"type": "number"}), json!({"type": "integer"}), json!(1.5)),
        (json!({"minimum": 2}), json!({"minimum": 3}), json!(2)),
        (
            json!({"type": "integer", "minimum": 2}),
            json!({"exclusiveMinimum": 2}),
            json!(2),
        ),
        (
            json!({"type": "number", "multipleOf": 0.3}),
            json!({"multipleOf": 0.2}),
            json!(0.3),
        ),
        (json!({"enum": ["a", "b"]}), json!({"const": "a"}), json!("b")),
        (json!({"type": "string"}), json!({"pattern": "^a"}), json!("b")),
        (json!({}), json!({"type": "string"}), json!(1)),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            json!({"type": "string"}),
            json!(1),
        ),
        (
            json!({"type": "string"}),
            json!({"oneOf": [{"type": "string"}, {"minLength": 1}]}),
            json!("x"),
        ),
        (
            json!({"properties": {"x": {"type": "string"}}}),
            json!({"properties": {"x": {"type": "string"}}, "required": ["x"]}),
            json!({}),
        ),
        (
            json!({"type": "object"}),
            json!({"properties": {"x": {"type": "string"}}}),
            json!({"x": 1}),
        ),
        (
            json!({"type": "object"}),
            json!({"type": "object", "additionalProperties": false}),
            json!({"x": 1}),
        ),
        (
            json!({"type": "object"}),
            json!({"additionalProperties": {"type": "string"}}),
            json!({"x": 1}),
        ),
        (
            json!({"type": "array"}),
            json!({"items": {"type": "string"}}),
            json!([1]),
        ),
        (json!({"type": "array"}), json!({"uniqueItems": true}), json!([1, 1])),
        (json!({"type": "object"}), json!({"minProperties": 1}), json!({})),
        (json!({"type": "string"}), json!(false), json!("x")),
        (
            json!({"type": "object", "patternProperties": {"^x": {"type": "string"}}}),
            json!({"properties": {"x": {"type": "integer"}}}),
            json!({"x": "s"}),
        ),
    ] {
        let (from, to) = (member(&from), member(&to));
        let witness = json!({ "a": witness });
        assert!(
            validator(&from).is_valid(&witness) && !validator(&to).is_valid(&witness),
            "{witness}: {from} {to}"
        );
        assert!(!is_proved(&from, &to), "{from} does not fit {to}");
    }
}

#[test]
fn recursion_dialects_and_time_are_heeded() {
    let tree = |keyword: &str| {
        json!({
            "type": "object", "properties": {"next": {"$ref": format!("#/{keyword}/t")}},
            keyword: {"t": {"type": "object", "properties": {"next": {"$ref": format!("#/{keyword}/t")}, "n": {"type": "integer"}}}},
        })
    };
    assert!(is_proved(&tree("$defs"), &tree("definitions")));
    let format = |dialect: &str| json!({"$schema": dialect, "type": "object", "properties": {"a": {"type": "string", "format": "ipv4"}}, "additionalProperties": false});
    let (old, new) = (
        format("http://json-schema.org/draft-07/schema#"),
        format("https://json-schema.org/draft/2020-12/schema"),
    );
    assert!(is_proved(&old, &new) && is_proved(&old, &old) && is_proved(&new, &new));
    assert!(!is_proved(&new, &old), "2020-12 does not assert a format");
    let pair = Pair::new(object(json!({"a": {}})), object(json!({"a": {}})), json!([]));
    let side = |schema| Side {
        schema,
        fits: &|_| true,
        kept: &[],
    };
    let options = Options {
        direction: Direction::Both,
        allow_loss: true,
        is_out_of_time: &|| true,
    };
    let lens = Lens::parse(&json!([])).unwrap();
    let other = object(json!({"a": {"title": "x"}}));
    let late = lens.check(&side(&pair.source), &side(&other), &options).unwrap();
    assert_eq!(late.forward.unwrap().proof, Proved::Sampled);
}

#[test]
fn a_lens_that_a_sample_breaks_is_refused_with_the_payload() {
    let source = object(json!({"a": {"type": "integer", "minimum": 0, "maximum": 10}}));
    let target = object(json!({"a": {"type": "integer", "maximum": 9}}));
    let error = Pair::new(source.clone(), target.clone(), json!([]))
        .check()
        .unwrap_err();
    assert_eq!(error.direction, Some(Direction::Forward));
    assert_eq!(error.example, Some(Example::Payload(json!({"a": 10}))));

    let pattern = object(json!({"a": {"type": "string", "pattern": "^[a-z]+$"}}));
    let wider = object(json!({"a": {"type": "string", "pattern": "^[a-z]{1,9}$"}}));
    let (from, to) = (validator(&pattern), validator(&wider));
    let (fits_from, fits_to) = (
        |text: &str| super::fits(&from, text),
        |text: &str| super::fits(&to, text),
    );
    let kept = [Kept {
        message_id: "m1",
        payload: r#"{"a":"abcdefghijkl"}"#,
    }];
    let options = Options {
        direction: Direction::Forward,
        allow_loss: false,
        is_out_of_time: &|| false,
    };
    let lens = Lens::parse(&json!([])).unwrap();
    let to = Side {
        schema: &wider,
        fits: &fits_to,
        kept: &[],
    };
    let accepted = lens
        .check(
            &Side {
                schema: &pattern,
                fits: &fits_from,
                kept: &[],
            },
            &to,
            &options,
        )
        .unwrap();
    let forward = accepted.forward.unwrap();
    assert_eq!(
        (forward.proof, forward.unproved[0].path.to_string()),
        (Proved::Sampled, "/a".to_owned())
    );
    let refused = lens
        .check(
            &Side {
                schema: &pattern,
                fits: &fits_from,
                kept: &kept,
            },
            &to,
            &options,
        )
        .unwrap_err();
    assert_eq!(
        refused.example,
        Some(Example::Message {
            message_id: "m1".to_owned()
        })
    );
    assert_eq!(json!(refused)["example"], json!({"message_id": "m1"}));
}

fn compiled(lens: &Value, source: &Value, target: &Value) -> Arc<Compiled> {
    Arc::new(
        Lens::parse(lens)
            .unwrap()
            .compile(source, target, Direction::Both)
            .unwrap(),
    )
}

fn found(edges: &[Edge], from: &str, accepted: &[&str]) -> Vec<String> {
    let accepted: Vec<_> = accepted.iter().map(|text| version(text)).collect();
    let plan = Plan::find(edges, &version(from), &accepted);
    plan.map_or_else(Vec::new, |plan| {
        plan.versions().iter().map(ToString::to_string).collect()
    })
}

#[test]
fn the_best_path_is_found() {
    let any = json!({"type": "object"});
    let exact = compiled(&json!([]), &any, &any);
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let lossy = compiled(&json!([{"op": "drop", "path": "/a"}]), &open, &any);
    let chain = [
        ("1.0.0", "2.0.0"),
        ("2.0.0", "3.0.0"),
        ("1.0.0", "2.5.0-rc.1"),
        ("2.5.0-rc.1", "3.0.0"),
    ];
    let mut edges: Vec<_> = chain.iter().map(|(from, to)| edge(from, to, &exact)).collect();
    assert_eq!(
        found(&edges, "1.0.0", &["3.0.0"]),
        ["1.0.0", "2.5.0-rc.1", "3.0.0"],
        "higher versions on the way"
    );
    assert_eq!(found(&edges, "3.0.0", &["1.0.0"]), ["3.0.0", "2.5.0-rc.1", "1.0.0"]);
    assert_eq!(
        found(&edges, "1.0.0", &["2.0.0", "3.0.0"]),
        ["1.0.0", "2.0.0"],
        "fewer steps"
    );
    assert_eq!(
        found(&edges, "1.0.0", &["2.0.0", "2.5.0-rc.1"]),
        ["1.0.0", "2.5.0-rc.1"],
        "the higher version at the end"
    );
    assert_eq!(
        found(&edges, "1.0.0+x", &["1.0.0+y"]),
        ["1.0.0+x"],
        "build metadata counts for nothing"
    );
    assert_eq!(found(&edges, "1.0.0", &["4.0.0"]), Vec::<String>::new());
    edges[2].compiled = Arc::clone(&lossy);
    assert_eq!(
        found(&edges, "1.0.0", &["3.0.0"]),
        ["1.0.0", "2.0.0", "3.0.0"],
        "the better class"
    );
    edges.push(edge("1.0.0", "3.0.0", &lossy));
    assert_eq!(
        found(&edges, "1.0.0", &["3.0.0"]),
        ["1.0.0", "3.0.0"],
        "a direct lens replaces a chain"
    );
    edges[4].direction = Direction::Backward;
    assert_eq!(
        found(&edges, "1.0.0", &["3.0.0"]).len(),
        3,
        "a direction that the lens excludes"
    );

    let turning = [edge("1.0.0", "3.0.0", &exact), edge("2.0.0", "3.0.0", &exact)];
    assert_eq!(
        found(&turning, "1.0.0", &["2.0.0"]),
        ["1.0.0", "3.0.0", "2.0.0"],
        "up and down, if nothing else"
    );
    let mut both = turning.to_vec();
    both.extend([
        edge("1.0.0", "1.5.0", &exact),
        edge("1.5.0", "1.6.0", &exact),
        edge("1.6.0", "2.0.0", &exact),
    ]);
    assert_eq!(
        found(&both, "1.0.0", &["2.0.0"]).len(),
        4,
        "a longer path that only rises comes first"
    );
    let names: Vec<_> = (0..10).map(|minor| format!("1.{minor}.0")).collect();
    let long: Vec<_> = names.windows(2).map(|pair| edge(&pair[0], &pair[1], &exact)).collect();
    assert_eq!(found(&long, "1.0.0", &["1.8.0"]).len(), 9);
    assert_eq!(found(&long, "1.0.0", &["1.9.0"]).len(), 0, "more than eight steps");
}

#[test]
fn a_chain_is_described_in_the_places_of_the_sender() {
    let text = json!({"type": "string"});
    let first = object(json!({"a": text, "b": text}));
    let second = object(json!({"x": object(json!({"a": text})), "b": text, "new": text}));
    let third = object(json!({"b": text}));
    let wrap = json!([
        {"op": "add", "path": "/x", "value": {}}, {"op": "move", "path": "/a", "to": "/x/a"}, {"op": "add", "path": "/new", "value": "n"},
    ]);
    let drops = json!([
        {"op": "drop", "path": "/x/a", "back": "gone"}, {"op": "drop", "path": "/x", "back": {}}, {"op": "drop", "path": "/new", "back": ""},
    ]);
    let edges = [
        edge("1.0.0", "2.0.0", &compiled(&wrap, &first, &second)),
        edge("2.0.0", "3.0.0", &compiled(&drops, &second, &third)),
    ];
    let plan = Plan::find(&edges, &version("1.0.0"), &[version("3.0.0")]).unwrap();
    assert_eq!(
        json!(plan.describe()),
        json!({"class": "lossy", "steps": 2, "may_lose": ["/a"]})
    );
    let request = crate::Request {
        wants_complement: true,
        ..crate::Request::of(r#"{"a":"1","b":"2"}"#)
    };
    let sent = plan.apply(request, &mut 1_000_000, &mut |_, _| true).unwrap();
    assert_eq!(sent.payload, r#"{"b":"2"}"#);
    assert_eq!((json!(sent.loss), json!(sent.defaulted)), (json!(["/a"]), json!([])));
    let back = Plan::find(&edges, &version("3.0.0"), &[version("1.0.0")]).unwrap();
    assert_eq!(back.describe().class, Class::Defaulted);
    let request = crate::Request {
        complement: sent.complement.as_deref(),
        ..crate::Request::of(&sent.payload)
    };
    let returned = back.apply(request, &mut 1_000_000, &mut |_, _| true).unwrap();
    assert_eq!(value(&returned.payload), json!({"a": "1", "b": "2"}));
}

#[test]
fn a_suggested_lens_is_accepted() {
    let text = json!({"type": "string"});
    let old = json!({"type": "object", "required": ["title", "priority", "tags", "city"], "additionalProperties": false, "properties": {
        "title": text, "priority": {"enum": ["low", "high"]}, "tags": text, "count": {"type": "integer"}, "legacy": {"type": "boolean"},
        "city": {"type": "string", "maxLength": 80}, "note": text}});
    let new = json!({"type": "object", "required": ["name", "priority", "tags", "count", "owner", "address"], "additionalProperties": false, "properties": {
        "name": text, "priority": {"enum": ["low", "urgent"]}, "tags": {"type": "array", "items": text}, "count": {"type": "string"},
        "owner": {"type": "integer", "minimum": 3}, "note": text,
        "address": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 80}}, "required": ["city"], "additionalProperties": false}}});
    let found = diff(&old, &new, &|| false);
    assert!(!found.compatible);
    let changes: Vec<_> = found
        .changes
        .iter()
        .map(|change| format!("{} {}", change.path, change.change))
        .collect();
    for expected in [
        "/title has the name name",
        "/priority may be \"urgent\"",
        "/tags string became array",
        "/count integer became string",
        "/count is required",
        "/legacy is gone",
        "/owner is new and required",
        "/city is at /address/city",
    ] {
        assert!(
            changes.iter().any(|change| change == expected),
            "{expected} in {changes:#?}"
        );
    }
    let lens = json!(found.suggested_lens);
    let checked = Pair::new(old.clone(), new, lens.clone())
        .check()
        .unwrap_or_else(|error| panic!("{error:?}\n{lens:#}"));
    assert_eq!(checked.forward.unwrap().class, Class::Lossy);
    let same = diff(&old, &old, &|| false);
    assert!(same.compatible && same.changes.is_empty() && same.suggested_lens.is_empty());
    let wider = json!({"type": "object", "properties": {"a": {"type": "number"}}});
    assert!(
        diff(
            &json!({"type": "object", "properties": {"a": {"type": "integer"}}}),
            &wider,
            &|| false
        )
        .compatible
    );
    let two = |names: [&str; 2]| json!({"type": "object", "properties": {names[0]: text, names[1]: text}, "required": [names[1]]});
    let one = json!({"type": "object", "properties": {"summary": text}, "required": ["summary"]});
    let renamed = json!(diff(&two(["note", "title"]), &one, &|| false).suggested_lens[0]);
    assert_eq!(renamed, json!({"op": "rename", "path": "/title", "to": "summary"}));
    let out_of_time = diff(&old, &wider, &|| true);
    assert!(!out_of_time.compatible && out_of_time.changes.is_empty() && out_of_time.suggested_lens.is_empty());
}

#[test]
fn hostile_schemas_are_refused_or_read_in_bounded_steps() {
    let twice = |schema: Value| json!({"allOf": [schema, schema], "anyOf": [schema, {"type": "object", "properties": {"z": schema}}]});
    let mut schema =
        json!({"type": "object", "properties": {"m0": {"type": "object"}, "o": {"type": "object"}}, "required": ["o"]});
    for _ in 0..3 {
        schema = twice(schema);
    }
    let moves: Vec<_> = (0..64)
        .map(|at| {
            let (from, to) = if at % 2 == 0 {
                ("/m0", "/o/m0")
            } else {
                ("/o/m0", "/m0")
            };
            json!({"op": "move", "path": from, "to": to})
        })
        .collect();
    let defaults: Vec<_> = (0..64)
        .map(|_| json!({"op": "default", "path": "/o", "value": {"a": 1}}))
        .collect();
    let references = json!({"type": "object", "properties": {"m0": {"$ref": "#/$defs/d0"}, "o": {"$ref": "#"}}, "$defs": {
        "d0": {"allOf": [{"$ref": "#/$defs/d1"}, {"$ref": "#/$defs/d1"}]}, "d1": {"allOf": [{"$ref": "#/$defs/d2"}, {"$ref": "#/$defs/d2"}]},
        "d2": {"anyOf": [{"$ref": "#/$defs/d0"}, {"type": "string"}]}}});
    for lens in [moves, defaults] {
        let lens = Lens::parse(&Value::Array(lens)).unwrap();
        for source in [&schema, &references] {
            // Whether it is accepted does not matter: it ends.
            let _ = lens.compile(source, &json!({"type": "object"}), Direction::Forward);
            let _ = diff(source, &references, &|| false);
        }
    }
    let mut deep = json!({"type": "string"});
    for _ in 0..30 {
        deep = json!({"type": "object", "properties": {"a": deep}, "required": ["a"]});
    }
    let path = "/a".repeat(16);
    let lens = json!([{"op": "wrap", "path": path, "as": "w"}, {"op": "unwrap", "path": path, "as": "w"}]);
    assert_eq!(
        Pair::new(deep.clone(), deep, lens)
            .check()
            .unwrap()
            .forward
            .unwrap()
            .proof,
        Proved::Proved
    );
}
