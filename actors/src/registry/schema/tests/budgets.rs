//! Tests of the work budget of a message, and of when a refusal lists the failures.

use serde_json::json;

use super::super::*;

/// A schema that only the complete validator can check.
fn schema(of_members: Value) -> Schema {
    let value = json!({"additionalProperties": of_members, "not": {"required": ["never"]}});
    let schema = Schema::compile(&value).unwrap();
    assert!(schema.fast.is_none());
    schema
}

fn reason(result: Result<(), BrokerError>) -> String {
    match result {
        Err(BrokerError::PayloadInvalid { failures }) => failures[0].reason.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn checks_of_one_message_share_its_budget() {
    let schema = schema(json!(true));
    // Reading an object costs 40. Seven keywords are applied to it: three of the schema and four inside.
    let once = 40 + 7 * cost::KEYWORD;
    let budget = WorkBudget::default();
    for times in 1..=3 {
        assert_eq!(schema.validate_within(&budget, "{}"), Ok(()));
        assert_eq!(budget.spent(), times * once);
    }
    let nearly_spent = WorkBudget(Cell::new(2 * once - 1));
    assert_eq!(schema.validate_within(&nearly_spent, "{}"), Ok(()));
    assert!(reason(schema.validate_within(&nearly_spent, "{}")).contains("more work"));
}

#[test]
fn failures_are_listed_if_listing_is_cheap() {
    const TOO_LARGE: &str = "too large to say where";
    let dear = schema(json!({"type": "string", "allOf": vec![json!({}); 1000]}));
    let of_members = |len: usize| {
        let members: serde_json::Map<_, _> = (0..len).map(|at| (at.to_string(), json!(1))).collect();
        Value::Object(members).to_string()
    };
    let work_of_member = 1003 * cost::KEYWORD;
    let len_max = (LISTING_WORK_MAX / work_of_member) as usize;
    assert!(!reason(dear.validate(&of_members(len_max - 1))).contains(TOO_LARGE));
    assert!(reason(dear.validate(&of_members(len_max + 1))).contains(TOO_LARGE));
    let padded = |len: usize| " ".repeat(len - r#"{"a":1}"#.len()) + r#"{"a":1}"#;
    let common = Schema::compile(&json!({"additionalProperties": {"type": "string"}})).unwrap();
    assert!(common.fast.is_some());
    for cheap in [common, schema(json!({"type": "string"}))] {
        assert!(!reason(cheap.validate(&padded(LISTING_BYTES_MAX))).contains(TOO_LARGE));
        assert!(reason(cheap.validate(&padded(LISTING_BYTES_MAX + 1))).contains(TOO_LARGE));
    }
}
