//! The cost of payloads, added up by hand.

use serde_json::json;

use super::{super::admission::admit, *};

const DRAFT_07: &str = "http://json-schema.org/draft-07/schema#";

fn graph(schema: &Value) -> Graph {
    match admit(schema) {
        Ok(admitted) => admitted.graph,
        Err(error) => panic!("{error} for {schema}"),
    }
}

fn price(schema: &Value, payload: &Value) -> u64 {
    const BUDGET: u64 = u64::MAX / 2;
    let mut left = BUDGET;
    assert_eq!(graph(schema).charge(payload, &mut left), Ok(()));
    BUDGET - left
}

/// Checks that a payload costs this many keywords and this much work besides. Every subschema counts as a keyword.
fn costs(schema: Value, payload: Value, keywords: u64, work: u64) {
    assert_eq!(
        price(&schema, &payload),
        keywords * KEYWORD + work,
        "{schema} {payload}"
    );
}

/// The same for a value in the member `a`. The subschema around it, its keyword and the member found are three
/// keywords.
fn member_costs(schema: Value, value: Value, keywords: u64, work: u64) {
    costs(
        json!({"properties": {"a": schema}}),
        json!({"a": value}),
        3 + keywords,
        work,
    );
}

/// The same in draft-07, whose declaration is a keyword.
fn draft_07_member_costs(schema: Value, value: Value, keywords: u64, work: u64) {
    let around = json!({"$schema": DRAFT_07, "properties": {"a": schema}});
    costs(around, json!({"a": value}), 4 + keywords, work);
}

#[test]
fn named_members_cost_what_is_present() {
    costs(json!({}), json!({}), 1, 0);
    costs(json!({}), json!({"a": [1, 2, 3]}), 1, 0);
    let one = json!({"properties": {"a": {}}});
    costs(one.clone(), json!({}), 2, 0);
    costs(one.clone(), json!({"a": 1}), 2 + 1 + 1, 0);
    costs(one, json!({"b": 1}), 2 + 1, 0);
    let two = json!({"properties": {"a": {}, "b": {"type": "number"}}});
    costs(two.clone(), json!({"b": 1}), 2 + 1 + 2, 0);
    costs(two.clone(), json!({"a": 1, "b": 1}), 2 + 2 + 1 + 2, 0);
    costs(two, json!({"a": 1, "b": 1, "c": 1}), 2 + 2 + 1 + 2, 0);
}

#[test]
fn members_items_and_names_cost_each_of_them() {
    let typed = json!({"type": "string"});
    costs(
        json!({"additionalProperties": typed}),
        json!({"a": 1, "b": "xy"}),
        2 + 2 * 2,
        0,
    );
    for keyword in ["items", "contains", "unevaluatedItems"] {
        let times = if keyword == "unevaluatedItems" { 3 } else { 1 };
        member_costs(json!({keyword: typed}), json!([1, 2, 3]), 2 + 3 * 2 * times, 0);
        member_costs(json!({keyword: typed}), json!({"b": 1}), 2, 0);
    }
    member_costs(json!({"prefixItems": [typed, {}]}), json!([1, 2]), 2 + 2 * (2 + 1), 0);
    draft_07_member_costs(
        json!({"items": [{}], "additionalItems": typed}),
        json!([1, 2]),
        3 + 2 * (1 + 2),
        0,
    );
    costs(
        json!({"propertyNames": {"maxLength": 5}}),
        json!({"abc": 1, "de": 1}),
        2 + 2 * 2,
        3 + 2,
    );
}

#[test]
fn subschemas_of_the_same_value_are_all_applied() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        costs(json!({keyword: [{}, {"type": "object"}]}), json!({}), 2 + 1 + 2, 0);
    }
    costs(json!({"not": {"type": "string"}}), json!({}), 2 + 2, 0);
    costs(json!({"if": {}, "then": {}, "else": true}), json!({}), 4 + 3, 0);
    costs(json!({"dependentSchemas": {"a": {}, "b": {}}}), json!({}), 2 + 2, 0);
    costs(
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}),
        json!({}),
        3 + 2,
        0,
    );
}

#[test]
fn subschemas_beside_unevaluated_ones_are_applied_three_times() {
    costs(
        json!({"allOf": [{}], "unevaluatedProperties": false}),
        json!({}),
        3 + 3,
        0,
    );
    costs(
        json!({"allOf": [{}], "unevaluatedProperties": false}),
        json!({"a": 1}),
        3 + 3 + 3,
        0,
    );
    costs(json!({"allOf": [{}], "unevaluatedItems": {}}), json!({}), 3 + 3, 0);
    let twice = json!({"allOf": [{"allOf": [{}], "unevaluatedProperties": true}], "unevaluatedProperties": true});
    costs(twice, json!({}), 3 + 3 * (3 + 3), 0);
}

#[test]
fn texts_cost_their_bytes() {
    member_costs(json!({"minLength": 1}), json!("abcd"), 2, 4);
    member_costs(json!({"minLength": 1, "maxLength": 9}), json!("abcd"), 3, 2 * 4);
    member_costs(json!({"minLength": 1}), json!(7), 2, 0);
    // An expression that runs as a table costs two for each byte, and ten keywords to start.
    member_costs(json!({"pattern": "^a+$"}), json!("abcd"), 2 + 10, 2 * 4);
    member_costs(json!({"format": "ipv4"}), json!("abcd"), 2, 0);
    draft_07_member_costs(json!({"format": "ipv4"}), json!("abcd"), 2, 20 * 4);
    member_costs(json!({"contentEncoding": "base64"}), json!("abcd"), 2, 0);
    for keyword in ["contentEncoding", "contentMediaType"] {
        draft_07_member_costs(json!({keyword: "base64"}), json!("abcd"), 2, 30 * 4);
    }
}

#[test]
fn expressions_for_names_cost_each_name() {
    let by_name = json!({"patternProperties": {"^a": {}}});
    costs(
        by_name,
        json!({"ab": 1, "abc": 1}),
        2 + 2,
        2 * 10 * KEYWORD + 2 * (2 + 3),
    );
    let again = json!({"patternProperties": {"^a": {}}, "additionalProperties": true});
    costs(again, json!({"ab": 1}), 3 + 1 + 1, 2 * 10 * KEYWORD + 2 * 2 * 2);
}

#[test]
fn comparing_costs_what_is_compared() {
    member_costs(json!({"enum": ["x", "y"]}), json!("abc"), 2, 3);
    // The list itself, 1, [2, 3], 2 and 3.
    member_costs(json!({"enum": [1, [2, 3]]}), json!(1), 2 + 5, 0);
    member_costs(json!({"enum": [1, [2, 3]]}), json!("abc"), 2 + 5, 3);
    member_costs(json!({"const": {"b": "x".repeat(128)}}), json!(1), 2 + 1 + 1 + 2, 0);
    costs(json!({"required": ["a", "b"]}), json!({}), 2 + 3, 0);
    costs(json!({"dependentRequired": {"a": ["b"]}}), json!({}), 2 + 3, 0);
    // The required names are compared, and count as two subschemas in addition.
    let dependencies = json!({"$schema": DRAFT_07, "dependencies": {"a": ["b", "c"], "d": {}}});
    costs(dependencies, json!({}), 3 + 3 + 2, 0);
}

#[test]
fn unique_items_are_compared_with_each_other() {
    let unique = json!({"uniqueItems": true});
    member_costs(unique.clone(), json!([1, 2, "12345678"]), 2, 2 * 3 * 4);
    member_costs(unique.clone(), json!([[1], {"12345678": 2}]), 2, 2 * 2 * (2 + 4));
    member_costs(unique, json!("abc"), 2, 0);
    member_costs(json!({"uniqueItems": false}), json!([1, 2, 3]), 2, 0);
}

#[test]
fn a_division_costs_25_keywords_and_no_number_beyond_1e21_is_divided() {
    let divided = json!({"multipleOf": 0.5});
    member_costs(divided.clone(), json!(1e21), 2 + 25, 0);
    member_costs(divided.clone(), json!("1e22"), 2 + 25, 0);
    let around = graph(&json!({"properties": {"a": divided}}));
    for beyond in [1.1e21, -1.1e21] {
        let mut budget = u64::MAX;
        assert_eq!(
            around.charge(&json!({"a": beyond}), &mut budget),
            Err(TooExpensive::Number)
        );
    }
    member_costs(json!({"minimum": 1}), json!(1e22), 2, 0);
}

#[test]
fn a_budget_may_be_spent_completely_but_not_overdrawn() {
    let schema = graph(&json!({"additionalProperties": {}}));
    let payload = json!({"a": 1});
    let mut exact = 3 * KEYWORD;
    assert_eq!(schema.charge(&payload, &mut exact), Ok(()));
    assert_eq!(exact, 0);
    assert_eq!(schema.charge(&payload, &mut (3 * KEYWORD - 1)), Err(TooExpensive::Work));
}

#[test]
fn keywords_are_expanded_up_to_the_limit() {
    // Each reference is 2 keywords and its target 997; around them are 3 and the required names of the root.
    let with_required = |len: usize| {
        let name = |at| format!("n{at}");
        let names = |len| (0..len).map(name).collect::<Vec<_>>();
        json!({
            "allOf": vec![json!({"$ref": "#/$defs/d"}); 100],
            "$defs": {"d": {"required": names(994)}},
            "required": names(len),
        })
    };
    assert_eq!(graph(&with_required(95)).expanded_keywords(), EXPANDED_KEYWORDS_MAX);
    let refused = admit(&with_required(96)).err().map(|error| error.to_string());
    assert!(refused.is_some_and(|text| text.contains("100000 keywords")));
}

#[test]
fn reference_chains_are_admitted_up_to_the_limit() {
    let chain = |len: usize| {
        let link = |at: usize| (format!("d{at}"), json!({"$ref": format!("#/$defs/d{}", at + 1)}));
        let mut defs: serde_json::Map<_, _> = (0..len).map(link).collect();
        defs.insert(format!("d{len}"), json!({}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    assert!(admit(&chain(NESTED_MAX - 2)).is_ok());
    assert!(admit(&chain(NESTED_MAX - 1)).is_err());
}

#[test]
fn subschemas_nest_up_to_the_measured_stack_depth() {
    type Wrap = fn(Value) -> Value;
    // Two subschemas for each nested value.
    const HALF: usize = NESTED_MAX / 2;
    let in_member = |value: Value| json!({"x": value});
    let in_item = |value: Value| json!([value]);
    let wraps: [(Value, Wrap, usize); 5] = [
        (json!({"properties": {"x": {"$ref": "#"}}}), in_member, HALF),
        (json!({"properties": {"x": {"$ref": "#"}, "y": true}}), in_member, HALF),
        (json!({"additionalProperties": {"$ref": "#"}}), in_member, HALF),
        (json!({"items": {"$ref": "#"}}), in_item, HALF),
        // Three for the name in the last object.
        (
            json!({"additionalProperties": {"$ref": "#"}, "propertyNames": {"allOf": [{"allOf": [{}]}]}}),
            in_member,
            HALF - 1,
        ),
    ];
    for (schema, wrap, depth_max) in wraps {
        let endless = graph(&schema);
        let deepest = (0..depth_max).fold(json!({}), |payload, _| wrap(payload));
        assert_eq!(endless.charge(&deepest, &mut { u64::MAX }), Ok(()), "{schema}");
        let too_deep = wrap(deepest);
        assert_eq!(
            endless.charge(&too_deep, &mut { u64::MAX }),
            Err(TooExpensive::Work),
            "{schema}"
        );
    }
}
