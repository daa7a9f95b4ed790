//! What lenses do for a negotiation.

use std::sync::Arc;

use lens::{Description, Direction, Edge, Lens, Plan};
use serde_json::{Value, json};

use super::super::*;

fn version(major: u64) -> Version {
    Version::new(major, 0, 0)
}

/// A lens between two versions with these members, all of them required.
fn edge(from: (u64, &[&str]), to: (u64, &[&str]), ops: Value, direction: Direction) -> Edge {
    let schema = |names: &[&str]| {
        let properties: Value = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({"type": "string"})))
            .collect();
        json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
    };
    let compiled = Lens::parse(&ops)
        .unwrap()
        .compile(&schema(from.1), &schema(to.1), direction)
        .unwrap();
    Edge {
        from: version(from.0),
        to: version(to.0),
        direction,
        compiled: Arc::new(compiled),
    }
}

/// 1 to 2 is a rename; 2 to 3 drops a member.
fn edges(direction: Direction) -> Vec<Edge> {
    vec![
        edge(
            (1, &["a", "c"]),
            (2, &["b", "c"]),
            json!([{"op": "rename", "path": "/a", "to": "b"}]),
            direction,
        ),
        edge(
            (2, &["b", "c"]),
            (3, &["b"]),
            json!([{"op": "drop", "path": "/c", "back": "x"}]),
            Direction::Both,
        ),
    ]
}

fn chat(majors: &[u64]) -> Capabilities {
    Capabilities {
        supported_protocols: [(
            ProtocolName::parse("chat").unwrap(),
            majors.iter().copied().map(version).collect(),
        )]
        .into(),
        ..Capabilities::default()
    }
}

fn describe(plan: &Plan) -> Option<(Version, Description)> {
    Some((plan.versions().last()?.clone(), plan.describe()))
}

fn negotiated(ours: &[u64], theirs: &[u64], required: Option<&str>, direction: Direction) -> Value {
    let edges = edges(direction);
    let paths: Paths<'_> = &|_, from, to| {
        let accepted: Vec<_> = to.iter().cloned().collect();
        describe(&Plan::find(&edges, from, &accepted)?)
    };
    let required = required.map(|version| RequiredProtocol {
        name: ProtocolName::parse("chat").unwrap(),
        version: VersionReq::parse(version).unwrap(),
    });
    let required: Vec<_> = required.into_iter().collect();
    json!(negotiate(&chat(ours), &chat(theirs), &required, paths))
}

#[test]
fn lenses_both_ways_make_two_versions_compatible() {
    let found = negotiated(&[2], &[1], None, Direction::Both);
    assert_eq!(
        (&found["compatible"], &found["incompatibilities"]),
        (&json!(true), &json!([]))
    );
    let exact = json!({"class": "exact", "steps": 1, "may_lose": []});
    let expected = json!({"chat": {"ours": "2.0.0", "theirs": "1.0.0", "send": exact, "receive": exact}});
    assert_eq!((&found["by_lens"], &found["suggestions"]), (&expected, &json!([])));
    let row = compare(
        SessionId::generate(),
        &chat(&[2]),
        SessionId::generate(),
        &chat(&[1]),
        &|_, from, to| {
            let accepted: Vec<_> = to.iter().cloned().collect();
            describe(&Plan::find(&edges(Direction::Both), from, &accepted)?)
        },
    );
    assert!(row.compatible);
    assert_eq!(json!(row.by_lens), json!({"chat": {"a": "2.0.0", "b": "1.0.0"}}));
}

#[test]
fn a_loss_is_shown_with_the_upgrade_that_ends_it() {
    let found = negotiated(&[1], &[3], None, Direction::Both);
    assert_eq!(
        found["by_lens"]["chat"]["send"],
        json!({"class": "lossy", "steps": 2, "may_lose": ["/c"]})
    );
    let advice = found["suggestions"][0].as_str().unwrap();
    assert!(
        advice.starts_with("upgrade chat from 1.0.0 to 3.x on this session"),
        "{advice}"
    );
}

#[test]
fn a_single_direction_stays_incompatible_and_names_the_missing_lens() {
    let found = negotiated(&[1], &[2], None, Direction::Forward);
    assert_eq!(found["compatible"], false);
    assert_eq!(found["incompatibilities"][0]["reason"], "no_compatible_version");
    assert_eq!(
        (
            found["by_lens"]["chat"]["send"].is_object(),
            &found["by_lens"]["chat"]["receive"]
        ),
        (true, &Value::Null)
    );
    let advice = found["suggestions"].as_array().unwrap().last().unwrap();
    assert_eq!(
        advice,
        "or register a lens by which chat 2.0.0 becomes 1.0.0: only the way back exists"
    );
    let back = negotiated(&[2], &[1], None, Direction::Forward);
    assert_eq!(
        (&back["by_lens"]["chat"]["send"], &back["by_lens"]["chat"]["ours"]),
        (&Value::Null, &json!("2.0.0"))
    );
}

#[test]
fn a_requirement_is_compared_with_our_version() {
    assert_eq!(negotiated(&[2], &[1], Some("^2"), Direction::Both)["compatible"], true);
    let unmet = negotiated(&[2], &[1], Some("^1"), Direction::Both);
    assert_eq!(
        (&unmet["compatible"], &unmet["incompatibilities"][0]["reason"]),
        (&json!(false), &json!("requirement_not_met"))
    );
    // Of several versions, the one that is required.
    assert_eq!(
        negotiated(&[2, 3], &[1], Some("^2"), Direction::Both)["by_lens"]["chat"]["ours"],
        "2.0.0"
    );
}
