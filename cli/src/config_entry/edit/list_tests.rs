//! The edits of lists: examples, and for generated texts that to add and remove items gives the same text.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::EditError;
use super::json_tests::document;
use super::list::{items, push, remove, replace};

const STOP: [&str; 2] = ["hooks", "Stop"];
const START: [&str; 2] = ["hooks", "SessionStart"];

fn item() -> Value {
    json!({"hooks": [{"type": "command", "command": "mcp-broker hook stop"}]})
}

/// Adds an item to two lists, and removes both in the opposite order.
fn with_items(text: &str) -> String {
    let one = push(text, &STOP, &item()).unwrap();
    let both = push(&one, &START, &item()).unwrap();
    assert!(items(&both, &STOP).unwrap().contains(&item()), "{both}");
    let last = |text: &str, keys: &[&str]| items(text, keys).unwrap().len() - 1;
    assert_eq!(remove(&both, &START, last(&both, &START)).unwrap(), one, "{both}");
    assert_eq!(remove(&one, &STOP, last(&one, &STOP)).unwrap(), text, "{one}");
    both
}

#[test]
fn lists_are_made_and_taken_back() {
    let item = r#"{"hooks": [{"command": "mcp-broker hook stop", "type": "command"}]}"#;
    let lists = |between: &str| format!("\"Stop\": [{item}],{between}\"SessionStart\": [{item}]");
    assert_eq!(
        with_items("{}\n"),
        format!("{{\n  \"hooks\": {{\n    {}\n  }}\n}}\n", lists("\n    "))
    );
    assert_eq!(
        with_items("{\"hooks\": {}}"),
        format!("{{\"hooks\": {{{}}}}}", lists(" "))
    );
    assert_eq!(
        with_items("{\"hooks\": {\"Stop\": [ // none\n]}}"),
        format!("{{\"hooks\": {{\"Stop\": [ {item}  // none\n], \"SessionStart\": [{item}]}}}}")
    );
}

#[test]
fn an_item_stands_behind_those_of_others() {
    for text in [
        "{\"hooks\": {\"Stop\": [1]}}",
        "{\"hooks\": {\"Stop\": [1, ]}}",
        "{\"hooks\": {\"Stop\": [1 /* one */, 2 // two\n]}}",
        "{\n  \"hooks\": {\n    \"Stop\": [\n      {\"a\": 1}, // mine\n    ],\n  },\n}\n",
        "{\r\n  \"hooks\": {\r\n    \"Stop\": [\r\n      1\r\n    ]\r\n  }\r\n}\r\n",
        "\u{feff}{\"x\": 1}",
    ] {
        with_items(text);
    }
}

#[test]
fn an_item_of_the_middle_goes_alone_and_can_be_replaced() {
    let text = "{\"hooks\": {\"Stop\": [\n  1, // one\n  2, // two\n  3 // three\n]}}";
    assert_eq!(
        remove(text, &STOP, 1).unwrap(),
        "{\"hooks\": {\"Stop\": [\n  1, // one\n   // two\n  3 // three\n]}}"
    );
    assert_eq!(
        replace(text, &STOP, 1, &json!([9])).unwrap(),
        text.replace("  2,", "  [9],")
    );
}

#[test]
fn what_is_something_else_is_refused() {
    for (text, error) in [
        ("[]", EditError::NotAnObject(String::new())),
        ("{\"hooks\": 1}", EditError::NotAnObject("hooks".to_owned())),
        (
            "{\"hooks\": {\"Stop\": {}}}",
            EditError::NotAList("hooks.Stop".to_owned()),
        ),
    ] {
        assert_eq!(push(text, &STOP, &item()), Err(error), "{text}");
    }
    assert_eq!(remove("{}", &STOP, 0), Err(EditError::Unusual));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn items_come_and_go_without_a_trace(text in document()) {
        for keys in [&["other"][..], &["mcpServers", "other"], &["hooks", "Stop"]] {
            match push(&text, keys, &item()) {
                Ok(with) => {
                    let last = items(&with, keys).unwrap().len() - 1;
                    prop_assert_eq!(remove(&with, keys, last).unwrap(), text.clone(), "{}", with);
                }
                Err(EditError::NotAnObject(_) | EditError::NotAList(_)) => {}
                Err(other) => prop_assert!(false, "{other} {text:?}"),
            }
        }
    }
}
